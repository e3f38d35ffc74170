#!/bin/sh
# Runs random histories of jobs for so many seconds, from a seed that it prints. A seed that fails is added to the regressions.
# usage: torture.sh SECONDS [SEED]
set -eu
seconds=$1
seed=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
each=500
regressions=core/tests/jobs/histories/regressions
log=$(mktemp)
trap 'rm -f "$log"' EXIT
jobs="cargo test --locked --profile torture -p scr-core --test jobs"
$jobs --no-run
end=$(($(date +%s) + seconds))
histories=0
while [ "$(date +%s)" -lt "$end" ]; do
    echo "seeds $seed to $((seed + each - 1)) (replay: SCR_TEST_HISTORIES=$seed:$each $jobs histories::no_)"
    if ! SCR_TEST_HISTORIES=$seed:$each $jobs --quiet histories::no_ >"$log" 2>&1; then
        cat "$log"
        sed -n 's/^the history of seed \([0-9]*\) fails.*/\1/p' "$log" | sort -u >>"$regressions"
        exit 1
    fi
    histories=$((histories + each))
    seed=$((seed + each))
done
echo "$histories histories, none failed"
