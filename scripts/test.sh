#!/bin/bash
# test.sh: all tests. First what needs no MPI, then the C interface and the jobs under every MPI that is there.
# Ends with one plain line of numbers, and with status 0 only if nothing failed.
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
mkdir -p target
log=$PWD/target/tests.log
export SCR_TESTS_SKIPPED=$PWD/target/tests.skipped
: >"$log"
: >"$SCR_TESTS_SKIPPED"
failures=0 # of whole steps: a build that broke counts as one

step() { # step TEXT COMMAND...
    printf '\n==> %s\n' "$1" | tee -a "$log"
    shift
    "$@" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || failures=$((failures + 1))
}

# Code that is not bound to an MPI is compiled once: the build for the second MPI begins with a copy of the first one's. The copy
# gets its name only when nothing is left in it that is bound to the other MPI.
begin_with_copy() { # begin_with_copy FROM TO
    local new=target/$2.new
    [ ! -d "target/$2" ] || return 0
    rm -rf "$new" && mkdir "$new" && cp -a "target/$1/release" "$new/" &&
        "$cargo" clean --quiet --release --locked -p mpi-sys -p mpi -p scr-core -p scr-ffi --target-dir "$new" &&
        mv "$new" "target/$2"
}

step "without MPI" "$cargo" test --locked --no-fail-fast
step "the vendor's example" "$cargo" test --locked --manifest-path examples/vendor-scheme/Cargo.toml --target-dir target
first=
for mpicc in mpicc.openmpi mpicc.mpich; do
    command -v $mpicc >/dev/null || continue
    mpi=$(scripts/mpi-name $mpicc)
    [ -z "$first" ] || step "what $mpi shares with $first" begin_with_copy "$first" "$mpi"
    first=${first:-$mpi}
    # As for the tree: what a second profile would compile again takes minutes. The suite of all communicators comes with it.
    step "the C interface with $mpi" env MPICC=$mpicc "$cargo" test --release --locked --no-fail-fast -p scr-ffi \
        --target-dir "target/$mpi"
    step "a tree with $mpi for the jobs" make --no-print-directory stage MPICC=$mpicc
done
# One job at a time: ranks that share few cores wait long enough as it is.
step "jobs on pretend nodes" "$cargo" test --locked --no-fail-fast -p scr-tests -- --test-threads 1

sum() { # sum WORD: adds up the numbers before this word in the result lines
    sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
}
passed=$(sum passed) failed=$(sum failed) ignored=$(sum ignored)
skipped=$(wc -l <"$SCR_TESTS_SKIPPED")
# A test that skips itself has passed in the eyes of the test runner.
passed=$((passed - skipped)) skipped=$((skipped + ignored))
[ "$failed" -gt 0 ] || failed=$failures
echo
cat "$SCR_TESTS_SKIPPED"
grep -E '^test .* \.\.\. FAILED$' "$log" || true
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$failures" = 0 ]
