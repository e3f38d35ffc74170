#!/bin/bash
# flush.sh: measures flushes from memory to disk and fetches back, four ranks on four pretend nodes under Open MPI. Before each
# checkpoint dd copies the same bytes to the same disk, four files at a time, synced: each flush is compared with
# the dd right before it (`safe' from the last rank's last byte on, `flush' by itself), so that a disk which is slow for a while is so for
# both. With `async' every second checkpoint is not flushed (`none'), and each that is flushed is compared with the one before it. It
# uses the tree that `make stage MPICC=mpicc.openmpi` puts under target/stage/openmpi.
#
# SIZES="64 256"  MiB per rank
# WAYS="sync pthread async agent"  the ways to flush; `agent' is asynchronous, too
# CHECKPOINTS=8 ROUNDS=1 FETCHES=2  how many of each; the tables have medians
# DISK=FOLDER     where the prefix directory lies (TMPDIR)
# STAGE=FOLDER    another installed tree
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
stage=${STAGE:-$here/target/stage/openmpi}
sizes=${SIZES:-64 256} ways=${WAYS:-sync pthread async}
checkpoints=${CHECKPOINTS:-8} rounds=${ROUNDS:-1} fetches=${FETCHES:-2}
hosts=n0:1,n1:1,n2:1,n3:1

work=$(mktemp -d "${DISK:-${TMPDIR:-/tmp}}/scr-bench.XXXXXX")
nodes=$(mktemp -d /dev/shm/scr-bench.XXXXXX)
prefix=$work/prefix log=$work/log turns=$work/turns
trap 'rm -rf "$work" "$nodes"' EXIT
mpicc.openmpi -O2 -o "$work/flush" benches/flush.c -I"$stage/include" -L"$stage/lib" -lscr -Wl,-rpath,"$stage/lib"
export SCR_PREFIX=$prefix SCR_JOB_ID=bench SCR_CACHE_BYPASS=0 SCR_COPY_TYPE=SINGLE SCR_DEBUG=1

job() { # job BYTES CHECKPOINTS: one run; what it said is in $log.
    (cd "$prefix" && exec "$here/scripts/run-on-nodes" --mpi openmpi --limit 120 --nodes "$nodes" --hosts $hosts \
        "$work/flush" "$@") >"$log" 2>&1
}
failed() { cat "$log" >&2 && exit 1; }
afresh() { rm -rf "${nodes:?}"/n? "${prefix:?}" "$turns" && mkdir "$prefix" "$turns" && sync -f "$work"; }
now() { echo "${EPOCHREALTIME/,/.}"; }
since() { echo "$(now) - $1" | bc -l; } # since THEN

# The same bytes from memory to disk, or back, four at a time.
dd_round() { # dd_round FROM TO OPTION...
    local from=$1 to=$2 copies=()
    for i in 0 1 2 3; do
        dd if="$from/dd.$i" of="$to/dd.$i" bs=1M status=none "${@:3}" &
        copies+=($!)
    done
    wait "${copies[@]}"
}
# Before each checkpoint of a job, which runs meanwhile; nothing of before is left on the disk.
dd_before_each() { # dd_before_each MIB: seconds, one a line
    local began
    for ((turn = 1; turn <= checkpoints; turn++)); do
        until [ -e "$turns/ask.$turn" ]; do
            [ ! -e "$turns/over" ] || return 0
            sleep 0.01
        done
        rm -rf "$prefix"/bench.* && sync -f "$work"
        began=$(now)
        dd_round "$nodes" "$work" conv=fsync
        since "$began"
        rm -f "$work"/dd.? && sync -f "$work"
        touch "$turns/go.$turn"
    done
}
dd_reads() {
    local began
    dd_round "$nodes" "$work" conv=fsync
    forget
    began=$(now)
    dd_round "$work" "$nodes"
    echo "$1 dd fetch $(since "$began")" >>"$work/times"
    rm -f "$work"/dd.?
}
# What was written is read from the disk again; without root it may come from memory.
forget() { sync && { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || true; }
# Of flushes that the application waits for: the seconds that C SCR gives the bandwidth of, without the old checkpoint's leaving.
flushes() { sed -n 's/.*scr_flush_sync: \([0-9.]*\) secs.*/\1/p' "$log"; }
secs() { sed -n "s/^phase=$1 secs=//p" "$log"; } # secs PHASE: one a line

flush() { # flush MIB WAY
    case $2 in
    sync) export SCR_FLUSH=1 SCR_FLUSH_ASYNC=0 SCR_FLUSH_TYPE=SYNC ;;
    pthread) export SCR_FLUSH=1 SCR_FLUSH_ASYNC=0 SCR_FLUSH_TYPE=PTHREAD ;;
    async) export SCR_FLUSH=2 SCR_FLUSH_ASYNC=1 SCR_FLUSH_TYPE=PTHREAD ;;
    agent) export SCR_FLUSH=2 SCR_FLUSH_ASYNC=1 SCR_FLUSH_TYPE=AGENT ;;
    esac
    afresh
    { BENCH_TURNS=$turns job $(($1 << 20)) "$checkpoints" || touch "$turns/failed"; touch "$turns/over"; } &
    dd_before_each "$1" >"$work/dd"
    wait
    [ ! -e "$turns/failed" ] || failed
    # Of each checkpoint: its number, what dd took, the phases.
    paste -d ' ' <(seq "$checkpoints") "$work/dd" <(secs start) <(secs write) <(secs complete) <(secs visible) <(secs safe) <(flushes) |
        awk -v mib="$1" -v way="$2" -v every="$SCR_FLUSH" '{
            flushed = $1 % every == 0
            print mib, "dd", "safe", $2
            split("start write complete visible", phases, " ")
            for (at = 1; at <= 4; at++) print mib, flushed ? way : "none", phases[at], $(at + 2)
            if (flushed) {
                print mib, way, "safe", $7, $2 / $7
                if (every == 1) print mib, way, "flush", $8, $2 / $8
                if (every > 1) print mib, way, "cost", $6 - before, $6 / before
            }
            before = $6
        }' >>"$work/times"
}

fetch() { # fetch MIB
    for ((time = 0; time < fetches; time++)); do
        rm -rf "${nodes:?}"/n?
        forget
        SCR_FLUSH=0 job $(($1 << 20)) 0 && grep -q '^restarted=1' "$log" || failed
        echo "$1 scr fetch $(secs init)" >>"$work/times"
    done
}

touch "$work/times"
for ((round = 0; round < rounds; round++)); do
    for mib in $sizes; do
        for i in 0 1 2 3; do head -c $((mib << 20)) /dev/urandom >"$nodes/dd.$i"; done
        for way in $ways; do flush "$mib" "$way"; done
        [ "$fetches" = 0 ] || { dd_reads "$mib" && fetch "$mib"; }
        rm -f "$nodes"/dd.?
    done
done

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: $(nproc) processors, ${model:-unknown}, Linux $(uname -r); prefix directory on $(stat -f -c %T "$work")"
echo "job: 4 ranks on 4 pretend nodes, one file per rank, SINGLE; bytes are those of all ranks, seconds the median"
echo "ratio: of safe, the speed as a part of that of the dd right before; of cost, what was visible as a multiple of what it was"
echo "       without a flush right before; the median of all such pairs, and their quartiles"
echo
sort -s -k1,1n -k2,3 -k4,4g "$work/times" | awk '
    function sort(list, n,    i, j, value) {
        for (i = 2; i <= n; i++) {
            value = list[i]
            for (j = i - 1; j > 0 && list[j] > value; j--) list[j + 1] = list[j]
            list[j + 1] = value
        }
    }
    function part(list, n, of,    at) { at = 1 + (n - 1) * of; return (list[int(at)] + list[int(at + 0.5)]) / 2 }
    function row(    f, ratio, speed) {
        split(before, f, " ")
        sort(ratios, m)
        ratio = m ? sprintf("%6.2f (%.2f-%.2f)", part(ratios, m, 0.5), part(ratios, m, 0.25), part(ratios, m, 0.75)) : ""
        speed = f[3] == "cost" ? "" : sprintf("%.2f", 4 * f[1] / 1024 / part(times, n, 0.5))
        printf "%-8s %-8s %-9s %3d %9.4f %9.4f %9.4f %7s %s\n", f[1], f[2], f[3], n, part(times, n, 0.5), times[1], times[n], speed, ratio
        n = m = 0
    }
    BEGIN { printf "%-8s %-8s %-9s %3s %9s %9s %9s %7s %s\n", "MiB/rank", "way", "phase", "n", "secs", "least", "most", "GiB/s", "ratio" }
    { key = $1 " " $2 " " $3 }
    key != before && n > 0 { row() }
    { before = key; times[++n] = $4; if (NF > 4) ratios[++m] = $5 }
    END { if (n > 0) row() }'
