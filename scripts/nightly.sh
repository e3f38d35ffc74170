#!/bin/bash
# nightly.sh: all tests, under every MPI, and all that takes longer. Ends with a table: which part, how it ended, after how long.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p target/nightly
export SCR_TEST_EVERY_MPI=1 SCR_TEST_EVERY_FAULT=1
table= failed=0
part() { # part NAME COMMAND...
    local name=$1 began=$SECONDS result=passed
    shift
    echo "==> $name: target/nightly/$name.log"
    "$@" >"target/nightly/$name.log" 2>&1 || { result=FAILED && failed=$((failed + 1)); }
    table+=$(printf '%-10s %-8s %6d s' "$name" $result $((SECONDS - began)))$'\n'
}
part test make test
part long make test-long
part torture make torture TORTURE=${TORTURE:-3600}
part seeded make seeded
part mutants make mutants MUTANTS="--minutes 60"
for target in slurm deb lammps ulfm; do part $target make test-$target; done
printf '\n%s' "$table"
[ $failed = 0 ]
