#!/bin/bash
# async-limits.sh [MPI [CASE...]]: how well SCR_FLUSH_ASYNC_BW and SCR_FLUSH_ASYNC_PERCENT hold, for the agent and for PTHREAD.
#
# One rank writes a checkpoint and ends (AGENT) or waits in SCR_Finalize (PTHREAD). For ten seconds, beginning one second
# after the copy has, this looks at the length of the hidden file that grows in the prefix directory, and at the processor
# time of the process that copies. A CASE is TRANSPORT:MEGABYTES:VARIABLE=VALUE. Needs a staged tree (make stage), and room for the megabytes in
# memory and on the disk of $TMPDIR.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mpi=${1:-openmpi} stage=$here/target/stage/${1:-openmpi}
[ -x "$stage/bin/scr" ] || { echo "async-limits: run \`make stage' first" >&2 && exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/scr-limits.XXXXXX")
agents() { for lock in "$work"/nodes/n0/*/scr.limits/agent.lock; do [ ! -e "$lock" ] || cat "$lock"; done; }
end() { # whatever runs, this ends it
    for pid in $(agents) ${job:-}; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap end EXIT
"mpicc.$mpi" -std=c99 -O2 -DUSE_SCR -o "$work/program" "$here/tests/programs/ckpt_test.c" -I "$stage/include" \
    -L "$stage/lib" -lscr -Wl,-rpath,"$stage/lib"

ticks() { # of a process and its threads: user and system
    awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat" 2>/dev/null || echo 0
}
growing() { stat -c %s "$work"/prefix/ckpt.1/.*.part 2>/dev/null | awk '{ n += $1 } END { print n + 0 }'; }

measure() { # measure TRANSPORT MEGABYTES VARIABLE=VALUE
    local files=$((($2 + 999) / 1000))
    rm -rf "$work/prefix" "$work/nodes" && mkdir -p "$work/prefix" "$work/nodes"
    local finalize=0
    [ "$1" = PTHREAD ] || finalize=1
    # The program writes below the current folder.
    cd "$work/prefix"
    env SCR_PREFIX="$work/prefix" SCR_JOB_ID=limits SCR_CACHE_BYPASS=0 SCR_COPY_TYPE=SINGLE SCR_FLUSH=1 \
        SCR_FLUSH_ASYNC=1 SCR_FLUSH_TYPE="$1" PRETEND_MODE=names "$3" \
        "$here/scripts/run-on-nodes" --mpi "$mpi" --limit 300 --nodes "$work/nodes" --hosts n0:1 \
        "$work/program" --datasets 1 --files $files --size $(($2 / files * 1000000)) --no-finalize $finalize >"$work/log" 2>&1 &
    job=$!
    until [ "$(growing)" -gt 0 ]; do
        kill -0 $job 2>/dev/null || [ "$1" = AGENT ] || { cat "$work/log" >&2 && exit 1; }
        sleep 0.05
    done
    local pid
    if [ "$1" = AGENT ]; then pid=$(agents); else pid=$(pgrep -n -f "^$work/program"); fi
    sleep 1
    local bytes cpu start stop
    bytes=$(growing) cpu=$(ticks "$pid") start=$(date +%s%N)
    sleep 10
    bytes=$(($(growing) - bytes)) cpu=$(($(ticks "$pid") - cpu)) stop=$(date +%s%N)
    awk -v what="$1 $3" -v bytes="$bytes" -v cpu="$cpu" -v hz="$(getconf CLK_TCK)" -v ns=$((stop - start)) 'BEGIN {
        s = ns / 1e9
        printf "%-40s %8.1f MB/s %6.1f %% of a processor\n", what, bytes / s / 1e6, 100 * cpu / hz / s }'
    for pid in $(agents) $job; do kill "$pid" 2>/dev/null || true; done
    wait "$job" 2>/dev/null || true
}

shift || true
if [ $# = 0 ]; then
    for transport in AGENT PTHREAD; do
        set -- "$@" $transport:700:SCR_FLUSH_ASYNC_BW=50000000
        for share in 2:1000 5:2000 20:6000; do
            set -- "$@" "$transport:${share#*:}:SCR_FLUSH_ASYNC_PERCENT=${share%:*}"
        done
    done
fi
for case in "$@"; do
    IFS=: read -r transport megabytes setting <<<"$case"
    measure "$transport" "$megabytes" "$setting"
done
