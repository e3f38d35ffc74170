#!/bin/bash
# behind.sh: measures what an application waits for with ENCODE=SYNC and with ENCODE=ASYNC, in alternating pairs, four ranks on four
# pretend nodes under Open MPI, with all files in memory. It uses the tree that `make stage MPICC=mpicc.openmpi` makes.
#
# SCHEME=XOR MIB=64         which scheme, and MiB per rank
# PAIRS=6 CHECKPOINTS=6     how many pairs, and checkpoints in each run, of which the first is left out
# SECONDS_BETWEEN=0.5       how long a rank computes after each checkpoint: processor seconds where it is busy
#
# waits: from SCR_Start_output until SCR_Complete_output has returned. whole: the same and the computing after it, which shows what
# the threads take from it. protected: from SCR_Complete_output on, as the threads say.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD stage=${STAGE:-$PWD/target/stage/openmpi}
bytes=$((${MIB:-64} << 20)) pairs=${PAIRS:-6} checkpoints=${CHECKPOINTS:-6} between=${SECONDS_BETWEEN:-0.5}
work=$(mktemp -d "${TMPDIR:-/tmp}/scr-bench.XXXXXX")
nodes=$(mktemp -d /dev/shm/scr-bench.XXXXXX)
trap 'rm -rf "$work" "$nodes"' EXIT
mpicc.openmpi -O2 -o "$work/checkpoint" benches/checkpoint.c -I"$stage/include" -L"$stage/lib" -lscr -Wl,-rpath,"$stage/lib"
export SCR_PREFIX=$work/prefix SCR_JOB_ID=bench SCR_DEBUG=1 SCR_CACHE_BYPASS=0 SCR_FLUSH=0 SCR_SET_FAILURES=2 SCR_COPY_TYPE=${SCHEME:-XOR}

one() { # one WAY ASYNC: a run; its times go to the table
    rm -rf "${nodes:?}"/* "$work/prefix"
    mkdir "$work/prefix"
    if ! (cd "$work/prefix" && SCR_ENCODE_ASYNC=$2 exec "$here/scripts/run-on-nodes" --mpi openmpi --limit 120 --nodes "$nodes" \
        --hosts n0:1,n1:1,n2:1,n3:1 "$work/checkpoint" "$bytes" "$checkpoints" "$between" "$1") >"$work/log" 2>&1; then
        cat "$work/log" >&2
        exit 1
    fi
    awk -v way="$1 $([ "$2" = 1 ] && echo ASYNC || echo SYNC)" '
        /^phase=start-to-complete/ { split($3, it, "="); waits = it[2]; if (seen++) print way, "waits", waits }
        /^phase=compute/ { split($3, it, "="); if (seen > 1) print way, "whole", waits + it[2] }
        /is protected: / { print way, "protected", $(NF - 1) }' "$work/log" >>"$work/times"
}
for ((pair = 0; pair < pairs; pair++)); do
    for way in idle busy; do one $way 0 && one $way 1; done
done
echo "machine: $(nproc) processors, Linux $(uname -r); ${SCHEME:-XOR}, ${MIB:-64} MiB per rank; seconds, median (least to most)"
sort -k1,3 -k4,4n "$work/times" | awk '
    function row() { if (n) printf "%-5s %-6s %-10s %.4f (%.4f to %.4f, %d)\n", key[1], key[2], key[3], \
                     (t[int((n + 1) / 2)] + t[int(n / 2) + 1]) / 2, t[1], t[n], n }
    { k = $1 " " $2 " " $3; if (k != last) { row(); n = 0; split(k, key, " "); last = k } t[++n] = $4 }
    END { row() }'
