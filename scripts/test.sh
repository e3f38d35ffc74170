#!/bin/bash
# test.sh: all tests but the long ones; with `--ignored', these alone. One build for everything; for the second MPI only what is
# bound to it is built again. Two lanes run side by side, as most machines have two processors at least: the jobs on pretend nodes
# with what users build, two at a time, and what needs no MPI.
# Ends with one plain line of numbers, and with status 0 only if nothing failed.
set -uo pipefail
cd "$(dirname "$0")/.."
top=$PWD cargo=${CARGO:-cargo}
which=${1:-}
mkdir -p target/tests
[ -n "$which" ] || : >target/tests/messages # debug builds tell it, in both halves
find target/tests -type f ! -name messages -delete
log=$top/target/tests/log
export SCR_TESTS_SKIPPED=$top/target/tests/skipped
export SCR_TESTS_EXAMPLES=$top/target/debug/examples # a test that builds them by themselves compiles shared crates again
: >"$log"
: >"$SCR_TESTS_SKIPPED"
failures=0 # of whole steps: a build that broke counts as one

step() { # step TEXT COMMAND...
    printf '\n==> %s (after %d s)\n' "$1" $SECONDS | tee -a "$log"
    shift
    "$@" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || failures=$((failures + 1))
}
named() { # named COMMAND...: says at the end which command failed, also one that died after its tests
    "$@" || { echo "FAILED with status $?: $*" | cut -c 1-200 | tee -a target/tests/failed && return 1; }
}

# A line for each test program: the folder of its crate, and the program.
list_programs() { # list_programs MPICC
    scripts/build.sh "$1" dev build --workspace --exclude scr --lib --bins --tests --examples \
        --message-format json-render-diagnostics |
        sed -n 's|.*"manifest_path":"\(.*\)/Cargo.toml","target".*"test":true}.*"executable":"\([^"]*/deps/[^"]*\)".*|\1 \2|p' >target/tests/programs
    return "${PIPESTATUS[0]}"
}
run() { # run FOLDER PROGRAM ARGUMENT...: as cargo does
    local folder=$1 program=$2
    shift 2
    echo "Running ${program#"$top/"}"
    named env -C "$folder" "$program" "$@" </dev/null
}
run_matching() { # run_matching PATTERN ARGUMENT...: the programs whose lines match
    local pattern=$1 status=0 folder program
    shift
    while read -r folder program; do run "$folder" "$program" "$@" || status=1; done < <(grep -E "$pattern" target/tests/programs)
    return $status
}
list() { # list PROGRAM: the tests that are due
    { "$1" --list $which && { [ -n "$which" ] || "$1" --list --ignored; }; } | sed -n 's/: test$//p' | sort | uniq -u
}
run_jobs() { # two at a time: most of them wait, for launchers and deaths
    local status=0 folder program names
    while read -r folder program; do
        mapfile -t names < <(list "$program")
        [ ${#names[@]} = 0 ] || run "$folder" "$program" --test-threads 2 --include-ignored --exact "${names[@]}" || status=1
    done < <(grep -E "$jobs" target/tests/programs)
    return $status
}
run_others() {
    local status=0 folder program
    if [ -z "$which" ]; then
        while read -r folder program; do run "$folder" "$program" || status=1; done < <(grep -vE "$of_mpi|$jobs" target/tests/programs)
        return $status
    fi
    run_matching "$long" "$which" || status=1
    named "$cargo" test --locked --workspace --exclude scr --doc || status=1
    named "$cargo" test --locked --manifest-path examples/vendor-scheme/Cargo.toml --target-dir target || status=1
    return $status
}
codes() { # fails with the codes that no test has printed, as without root some do not, and the warnings and errors without a code
    {
        [ "$(id -u)" != 0 ] || [ -z "$which" ] || comm -23 <(sed -n 's/^### //p' docs/user/messages.md) <(cut -d ' ' -f 1 target/tests/messages | sort -u)
        grep -aE '^none (WARNING|ERROR)' target/tests/messages | sort -u || true
    } | { ! grep -a .; }
}
of_mpi="^$top/ffi(/mpi)? "   # bound to an MPI
jobs="^$top/tests .*/jobs-"  # launched by one
long="^$top/(core|tools|plugins/[a-z]+) " # with tests that take long

for mpicc in mpicc.mpich mpicc.openmpi; do
    command -v $mpicc >/dev/null || continue
    step "the build for $mpicc" named list_programs $mpicc
    [ -n "$which" ] || step "the C interface with $mpicc" run_matching "$of_mpi"
    step "a tree with $mpicc for the jobs" named scripts/install.sh "$(scripts/mpi-name $mpicc)" "target/stage/$(scripts/mpi-name $mpicc)" target/debug
done
[ -s target/tests/programs ] || step "the build" named list_programs mpicc
printf '\n==> jobs on pretend nodes, and what users build, beside: (after %d s)\n' $SECONDS
run_jobs >target/tests/jobs.log 2>&1 &
lane=$!
step "what needs no MPI" run_others
wait $lane || failures=$((failures + 1))
step "jobs on pretend nodes" cat target/tests/jobs.log
step "the codes of messages" codes
printf '\n==> the end (after %d s)\n' $SECONDS

sum() { # sum WORD: adds up the numbers before this word in the result lines
    sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
}
passed=$(sum passed) failed=$(sum failed)
skipped=$(wc -l <"$SCR_TESTS_SKIPPED")
# A test that skips itself has passed in the eyes of the test runner.
passed=$((passed - skipped))
[ "$failed" -gt 0 ] || failed=$failures
echo
cat "$SCR_TESTS_SKIPPED"
grep -E '^test .* \.\.\. FAILED$' "$log"
cat target/tests/failed 2>/dev/null
echo "$passed passed, $failed failed, $skipped skipped$([ -n "$which" ] || echo '; `make test-long'"'"' runs the long ones')"
[ "$failed" = 0 ] && [ "$failures" = 0 ]
