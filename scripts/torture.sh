#!/bin/sh
# Runs random histories of jobs for so many seconds, from a seed that it prints.
# usage: torture.sh SECONDS [SEED]
set -eu
seconds=$1
seed=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
each=50
cargo test --locked -p scr-core --test jobs --no-run
end=$(($(date +%s) + seconds))
histories=0
while [ "$(date +%s)" -lt "$end" ]; do
    echo "seed $seed: $each histories (replay: SCR_TEST_HISTORIES=$seed:$each cargo test -p scr-core --test jobs histories)"
    SCR_TEST_HISTORIES=$seed:$each cargo test --locked --quiet -p scr-core --test jobs histories::
    histories=$((histories + each))
    seed=$((seed + 1))
done
echo "$histories histories, none failed"
