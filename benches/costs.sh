#!/bin/bash
# costs.sh: measures what the event log, the metrics and the reports cost themselves: small checkpoints with and without log and
# metrics, in pairs, on pretend nodes under Open MPI; with strace also the system calls of rank 0 on files; and `scr report' of
# many jobs. It uses target/stage/openmpi.
#
# PAIRS=5 CHECKPOINTS=300   so many pairs of runs, and checkpoints of 4 KiB per rank in each; 0 pairs for none
# JOBS=10000                how many jobs are reported, each in a prefix directory of its own; 0 for none
# STAGE=FOLDER              another installed tree
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
stage=${STAGE:-$here/target/stage/openmpi} pairs=${PAIRS:-5} checkpoints=${CHECKPOINTS:-300} jobs=${JOBS:-10000}
work=$(mktemp -d "${TMPDIR:-/tmp}/scr-bench.XXXXXX")
storage=$(mktemp -d /dev/shm/scr-bench.XXXXXX)
trap 'rm -rf "$work" "$storage"' EXIT
median() { sort -g | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }

# one_run NAME VARIABLE=VALUE...: seconds of each checkpoint but the first.
one_run() {
    local name=$1 && shift
    rm -rf "$storage/nodes" "$work/prefix" "$work/metrics" && mkdir "$work/prefix" "$work/metrics"
    (cd "$work/prefix" && exec env SCR_PREFIX="$work/prefix" SCR_JOB_ID=bench SCR_CACHE_BYPASS=0 SCR_FLUSH=0 SCR_DEBUG=0 CALLS="$work/$name.calls" "$@" \
        "$here/scripts/run-on-nodes" --mpi openmpi --limit 120 --nodes "$storage/nodes" --hosts n0:1,n1:1,n2:1,n3:1 \
        "$work/rank" "$work/checkpoint" 4096 "$checkpoints") >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
    sed -n 's/^phase=start-to-complete .* secs=\([0-9.]*\).*/\1/p' "$work/log" | tail -n +2 | median >>"$work/$name"
}
if [ "$pairs" -gt 0 ]; then
    mpicc.openmpi -O2 -o "$work/checkpoint" benches/checkpoint.c -I"$stage/include" -L"$stage/lib" -lscr -Wl,-rpath,"$stage/lib"
    both() { # both PREFIX
        one_run "${1}off" SCR_LOG_ENABLE=0
        one_run "${1}on" SCR_METRICS_DIR="$work/metrics"
    }
    printf '#!/bin/sh\nexec "$@"\n' >"$work/rank" && chmod +x "$work/rank"
    for _ in $(seq "$pairs"); do both ""; done
    paste "$work/off" "$work/on" | awk '{ print $2 / $1 }' | median >"$work/ratio"
    awk -v off="$(median <"$work/off")" -v on="$(median <"$work/on")" -v ratio="$(cat "$work/ratio")" \
        'BEGIN { printf "4 KiB checkpoints: %.3f ms without log and metrics, %.3f ms with them; ratio of pairs %.3f\n", off * 1e3, on * 1e3, ratio }'
    echo "log of $checkpoints checkpoints: $(stat -c %s "$work/prefix/.scr/events") bytes"
    if command -v strace >/dev/null; then
        printf '%s\n' '#!/bin/sh' '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec "$@"' \
            'exec strace -f -c -e trace=%file,write,fstat,close -o "$CALLS" "$@"' >"$work/rank"
        both traced-
        calls() { awk '$4 ~ /^[0-9]+$/ && $NF != "total" { all += $4 } END { print all }' "$work/traced-$1.calls"; }
        awk -v off="$(calls off)" -v on="$(calls on)" -v of="$checkpoints" \
            'BEGIN { printf "system calls of rank 0 on files, per checkpoint: %.1f without, %.1f with them\n", off / of, on / of }'
    fi
fi
if [ "$jobs" -gt 0 ]; then
    # A job that fails three times, with three flushed checkpoints in each run.
    awk 'function say(fields) { at++; printf "2026-11-21T00:%02d:%02d.%06dZ: host=n0, jobid=7%s\n", int(at / 60), at % 60, at, fields }
        function of_run(fields) { say(", run=" run ", " fields) }
        BEGIN {
            for (run = 1; run <= 4; run++) {
                say(", event=RUN_START, note=\"run=" run "\"")
                of_run("user=\"ann\", event=START, procs=8, nodes=4"); of_run("event=COMPUTE_START")
                if (id) { of_run("event=RESTART_START, dset=" id); of_run("event=RESTART_SUCCESS, dset=" id) }
                for (k = 0; k < 3; k++) {
                    id++; size = "dset=" id ", secs=1.000000, bytes=8000000.000000, files=8"
                    of_run("event=COMPUTE_END, secs=1.000000"); of_run("event=CHECKPOINT_START, dset=" id)
                    of_run("xfer=WRITE, from=/dev/shm, to=/dev/shm/1, " size)
                    of_run("xfer=ENCODE, from=/dev/shm, to=/dev/shm/1, " size ", scheme=\"XOR\"")
                    of_run("event=CHECKPOINT_END, dset=" id ", secs=1.000000")
                    of_run("xfer=CHECKPOINT, from=/dev/shm, to=/dev/shm/1, " size)
                    of_run("event=FLUSH_START, dset=" id); of_run("event=FLUSH_SUCCESS, dset=" id)
                    of_run("xfer=FLUSH_SYNC, from=/dev/shm/1, to=/pfs, " size); of_run("event=COMPUTE_START")
                }
                if (run < 4) say(", event=RUN_END, note=\"run=" run ", status=9\""); else of_run("event=HALT, note=\"SCR_FINALIZE_CALLED\"")
            }
        }' >"$work/log"
    seq "$jobs" | sed "s|.*|$work/jobs/&/.scr|" | xargs mkdir -p
    for job in $(seq "$jobs"); do ln "$work/log" "$work/jobs/$job/.scr/events"; done
    began=$(date +%s.%N)
    "$stage/bin/scr" report "$work"/jobs/[0-9]* >"$work/report"
    awk -v began="$began" -v ended="$(date +%s.%N)" -v jobs="$jobs" -v lines="$(wc -l <"$work/log")" \
        'BEGIN { printf "scr report of %d jobs with %d lines each: %.2f s\n", jobs, lines, ended - began }'
fi
