#!/bin/bash
# flush.sh: measures flushes from memory to disk and fetches back, four ranks on four pretend nodes under Open MPI, and dd of
# the same bytes in the same run. It ends with a table. It uses the tree that `make stage MPICC=mpicc.openmpi` puts under
# target/openmpi/stage.
#
# SIZES="64 256"  MiB per rank
# WAYS="none sync pthread async"  without a flush, and the ways to flush
# CHECKPOINTS=5 ROUNDS=1 FETCHES=2  how many of each; the table has medians
# DISK=FOLDER     where the prefix directory lies (TMPDIR)
# STAGE=FOLDER    another installed tree
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
stage=${STAGE:-$here/target/openmpi/stage}
sizes=${SIZES:-64 256} ways=${WAYS:-none sync pthread async}
checkpoints=${CHECKPOINTS:-5} rounds=${ROUNDS:-1} fetches=${FETCHES:-2}
hosts=n0:1,n1:1,n2:1,n3:1

work=$(mktemp -d "${DISK:-${TMPDIR:-/tmp}}/scr-bench.XXXXXX")
nodes=$(mktemp -d /dev/shm/scr-bench.XXXXXX)
prefix=$work/prefix log=$work/log
trap 'rm -rf "$work" "$nodes"' EXIT
mpicc.openmpi -O2 -o "$work/flush" benches/flush.c -I"$stage/include" -L"$stage/lib" -lscr -Wl,-rpath,"$stage/lib"
export SCR_PREFIX=$prefix SCR_JOB_ID=bench SCR_CACHE_BYPASS=0 SCR_COPY_TYPE=SINGLE

job() { # job BYTES CHECKPOINTS: one run; what it said is in $log.
    if ! (cd "$prefix" && exec "$here/scripts/run-on-nodes" --mpi openmpi --limit 120 --nodes "$nodes" --hosts $hosts \
        "$work/flush" "$@") >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
}
afresh() { rm -rf "${nodes:?}"/* "${prefix:?}" && mkdir "$prefix" && sync -f "$work"; }
note() { sed -n "s/^phase=$3 secs=\([0-9.]*\)/$2 $1 $4 \1/p" "$log" >>"$work/times"; } # note WAY SIZE PHASE AS
now() { date +%s.%N; }
spent() { echo "$1 $2 $3 $(echo "$(now) - $4" | bc)" >>"$work/times"; } # spent SIZE WAY PHASE SINCE

# The same bytes from memory to disk, four at a time.
dd_writes() {
    afresh
    for i in 0 1 2 3; do head -c $(($1 << 20)) /dev/urandom >"$nodes/dd.$i"; done
    for ((time = 0; time < 3; time++)); do
        rm -f "$work"/dd.* && sync -f "$work"
        local began
        began=$(now)
        for i in 0 1 2 3; do dd if="$nodes/dd.$i" of="$work/dd.$i" bs=1M conv=fsync status=none & done
        wait
        spent "$1" dd safe "$began"
    done
}
dd_reads() {
    local began
    forget
    began=$(now)
    for i in 0 1 2 3; do dd if="$work/dd.$i" of="$nodes/dd.$i" bs=1M status=none & done
    wait
    spent "$1" dd fetch "$began"
    rm -f "$work"/dd.* "$nodes"/dd.*
}
# What was written is read from the disk again; without root it may come from memory.
forget() { sync && { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || true; }

flush() { # flush MIB WAY
    case $2 in
    none) export SCR_FLUSH=0 SCR_FLUSH_ASYNC=0 SCR_FLUSH_TYPE=SYNC ;;
    sync) export SCR_FLUSH=1 SCR_FLUSH_ASYNC=0 SCR_FLUSH_TYPE=SYNC ;;
    pthread) export SCR_FLUSH=1 SCR_FLUSH_ASYNC=0 SCR_FLUSH_TYPE=PTHREAD ;;
    async) export SCR_FLUSH=1 SCR_FLUSH_ASYNC=1 SCR_FLUSH_TYPE=PTHREAD ;;
    esac
    afresh
    job $(($1 << 20)) "$checkpoints"
    for phase in start write complete visible; do note "$2" "$1" $phase $phase; done
    [ "$2" = none ] || note "$2" "$1" safe safe
}

fetch() { # fetch MIB
    for ((time = 0; time < fetches; time++)); do
        rm -rf "${nodes:?}"/n?
        forget
        SCR_FLUSH=0 job $(($1 << 20)) 0
        grep -q '^restarted=1' "$log" || { cat "$log" >&2 && exit 1; }
        note fetch "$1" init fetch
    done
}

touch "$work/times"
for ((round = 0; round < rounds; round++)); do
    for mib in $sizes; do
        dd_writes "$mib"
        dd_reads "$mib"
        for way in $ways; do flush "$mib" "$way"; done
        case " $ways " in *sync*) fetch "$mib" ;; esac
    done
done

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: $(nproc) processors, ${model:-unknown}, Linux $(uname -r); prefix directory on $(stat -f -c %T "$work")"
echo "job: 4 ranks on 4 pretend nodes, one file per rank, SINGLE; bytes are those of all ranks, seconds the median"
echo
sort -s -k1,1n -k2,3 -k4,4n "$work/times" | awk '
    function row() {
        half = (times[int((n + 1) / 2)] + times[int(n / 2) + 1]) / 2
        split(before, f, " ")
        if (f[2] == "dd") disk[f[1] f[3]] = half
        keys[++rows] = before
        secs[rows] = half; least[rows] = times[1]; most[rows] = times[n]; count[rows] = n
    }
    { key = $1 " " $2 " " $3 }
    key != before && n > 0 { row(); n = 0 }
    { before = key; times[++n] = $4 }
    END {
        if (n > 0) row()
        printf "%-8s %-8s %-9s %3s %9s %9s %9s %7s %8s\n", "MiB/rank", "way", "phase", "n", "secs", "least", "most", "GiB/s", "of dd"
        for (at = 1; at <= rows; at++) {
            split(keys[at], f, " ")
            ratio = (f[1] f[3]) in disk ? sprintf("%8.2f", disk[f[1] f[3]] / secs[at]) : ""
            printf "%-8s %-8s %-9s %3d %9.4f %9.4f %9.4f %7.2f %8s\n", f[1], f[2], f[3], count[at], secs[at], least[at], most[at],
                4 * f[1] / 1024 / secs[at], ratio
        }
    }'
