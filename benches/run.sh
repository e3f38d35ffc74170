#!/bin/bash
# run.sh: measures checkpoints and restarts of a real job, four ranks on four pretend nodes under Open MPI, with all files in
# memory, and ends with a table. It uses the tree that `make stage MPICC=mpicc.openmpi` puts under target/stage/openmpi.
#
# SCHEMES="PARTNER XOR RS"  which schemes; RS keeps two parity chunks per stripe
# SIZES="64 256"            MiB per rank
# CHECKPOINTS=9 RESTARTS=5  how many of each; the table has medians
# SMALL=100                 how many checkpoints of 4 KiB per rank; 0 for none
# TRANSPORT=tcp|shared      what lies between the nodes: TCP over the loopback, or the shared memory of one host, where
#                           one rank copies out of another one's memory if the system allows it
# STORE=FOLDER              where the storage of the nodes lies instead, such as a file system on a block device
# PAGES=small|huge          of which pages the nodes' memory is; huge ones take root to mount, and a system that has them
# STAGE=FOLDER              another installed tree
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
stage=${STAGE:-$here/target/stage/openmpi}
schemes=${SCHEMES:-PARTNER XOR RS} sizes=${SIZES-64 256}
transport=${TRANSPORT:-tcp} pages=${PAGES:-small} checkpoints=${CHECKPOINTS:-9} restarts=${RESTARTS:-5} small=${SMALL:-100}
hosts=n0:1,n1:1,n2:1,n3:1
[ "$pages" = small ] || [ -z "${STORE:-}" ] || { echo "PAGES=$pages is for memory, and STORE for all else" >&2 && exit 2; }

# Nodes and prefix directory lie in memory. A node has a /dev/shm of its own, so all else must be elsewhere.
work=$(mktemp -d "${TMPDIR:-/tmp}/scr-bench.XXXXXX")
storage=$(mktemp -d "${STORE:-/dev/shm}/scr-bench.XXXXXX")
nodes=$storage/nodes prefix=$work/prefix log=$work/log
mkdir "$prefix"
mounted=no
finish() {
    [ $mounted = no ] || umount "$prefix"
    [ "$pages" = small ] || umount "$storage"
    rm -rf "$work" "$storage"
}
trap finish EXIT
case $pages in
small) ;;
huge) mount -t tmpfs -o huge=within_size scr-bench "$storage" || pages=small ;;
*) echo "PAGES=$pages: they are small or huge" >&2 && exit 2 ;;
esac
mount -t tmpfs scr-bench "$prefix" 2>/dev/null && mounted=yes || echo "the prefix directory is not in memory: that takes root" >&2
mpicc.openmpi -O3 -o "$work/plain" benches/plain.c
mpicc.openmpi -O2 -o "$work/checkpoint" benches/checkpoint.c -I"$stage/include" -L"$stage/lib" -lscr -Wl,-rpath,"$stage/lib"

# Where a rank of `plain' writes: to its node's /dev/shm, or where nodes are only names, to the folder of all of them.
plain_in=/dev/shm
case $transport in
tcp) ;;
shared)
    plain_in=$nodes
    export PRETEND_MODE=names PRETEND_SINGLE_COPY=cma
    ;;
*) echo "TRANSPORT=$transport: it is tcp or shared" >&2 && exit 2 ;;
esac
export SCR_PREFIX=$prefix SCR_JOB_ID=bench SCR_DEBUG=1 SCR_CACHE_BYPASS=0 SCR_FLUSH=0 SCR_SET_FAILURES=2

# on_nodes COMMAND...: one run; what it said is in $log.
on_nodes() {
    if ! (cd "$prefix" && exec "$here/scripts/run-on-nodes" --mpi openmpi --limit 120 --nodes "$nodes" --hosts $hosts "$@") \
        >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
}
job() { on_nodes "$work/checkpoint" "$@"; } # job BYTES CHECKPOINTS
afresh() { rm -rf "${nodes:?}" "${prefix:?}"/{*,.scr*}; }
lose() { for node; do rm -rf "${nodes:?}/$node"; done; }

# note SCHEME SIZE PHASE AS: adds the times of a phase of the last run to the table, under another name.
note() { sed -n "s/^phase=$3 bytes=\([0-9]*\) secs=\([0-9.]*\) .*/$1 $2 $4 \1 \2/p" "$log" >>"$work/times"; }

# sent SCHEME SIZE AS: what rank 0 sent for its last checkpoint, where it says so.
sent() {
    sed -n 's/.*start to complete: rank 0 sent \([0-9]*\) messages, \([0-9]*\) bytes.*/\1 \2/p' "$log" |
        tail -n 1 | sed "s/^/$1 $2 $3 /" >>"$work/sent"
}

restart() { # restart SCHEME SIZE BYTES NODE...: again and again, after the loss of these nodes
    local scheme=$1 size=$2 bytes=$3
    shift 3
    for ((time = 0; time < restarts; time++)); do
        lose "$@"
        job "$bytes" 0
        grep -q '^restarted=1' "$log" || { cat "$log" >&2 && exit 1; }
        note "$scheme" "$size" init "restart,$#-lost"
    done
}

measure() { # measure SCHEME SIZE BYTES CHECKPOINTS
    export SCR_COPY_TYPE=$1
    afresh
    job "$3" "$4"
    note "$1" "$2" memcpy memcpy
    note "$1" "$2" write write
    note "$1" "$2" encode encode
    # The part of it that C SCR gives the bandwidth of: without leaving the old checkpoint.
    sed -n "s/.*scr_reddesc_apply: \([0-9.]*\) secs.*/$1 $2 apply $((4 * $3)) \1/p" "$log" >>"$work/times"
    note "$1" "$2" start-to-complete start-to-complete
    sent "$1" "$2" start-to-complete
}

# What the plain way of protecting takes, without checksums and records, and what it takes only to read and to write.
plain() { # plain SIZE BYTES
    afresh
    mkdir -p "$nodes"
    on_nodes "$work/plain" "$plain_in" "$2" "$checkpoints"
    for scheme in $schemes; do
        for way in plain least; do note "$scheme" "$1" "$scheme,$way" "encode,$way"; done
    done
}

# The transport that MPI takes between the nodes, by its own account.
transport() {
    afresh
    OMPI_MCA_btl_base_verbose=1 job 1 0
    sed -n 's/.*Using \([a-z]*\) btl for send to.*/\1/p' "$log" | grep -v '^self$' | sort -u | paste -sd,
}

touch "$work/times" "$work/sent"
via=$(transport)
for mib in $sizes; do plain "${mib}MiB" $((mib << 20)); done
for scheme in $schemes; do
    for mib in $sizes; do
        measure "$scheme" "${mib}MiB" $((mib << 20)) "$checkpoints"
        restart "$scheme" "${mib}MiB" $((mib << 20)) n1
        [ "$scheme" != RS ] || restart "$scheme" "${mib}MiB" $((mib << 20)) n1 n2
    done
    [ "$small" = 0 ] || measure "$scheme" 4KiB 4096 "$small"
done

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: $(nproc) processors, ${model:-unknown}, Linux $(uname -r)"
echo "MPI: $(ompi_info --version | head -n 1), mpi_yield_when_idle 1, btl between nodes: ${via:-unknown}"
echo "job: 4 ranks on 4 pretend nodes, one file per rank, in ${STORE:-memory of $pages pages}; bytes are those of all ranks, seconds the median"
echo
sort -s -k1,3 -k5,5n "$work/times" | awk -v sent="$work/sent" '
    function row() {
        half = (times[int((n + 1) / 2)] + times[int(n / 2) + 1]) / 2
        if (phase == "memcpy") copy[scheme " " size] = half
        keys[++rows] = scheme " " size " " phase " " bytes
        secs[rows] = half; least[rows] = times[1]; most[rows] = times[n]
    }
    BEGIN { while ((getline line < sent) > 0) { split(line, f, " "); said[f[1] " " f[2] " " f[3]] = f[4] " " f[5] } }
    { key = $1 " " $2 " " $3 }
    key != before && n > 0 { row(); n = 0 }
    { before = key; scheme = $1; size = $2; phase = $3; bytes = $4; times[++n] = $5 }
    END {
        if (n > 0) row()
        printf "%-8s %-7s %-18s %11s %9s %9s %9s %7s %8s %9s %12s\n", "scheme", "size", "phase", "bytes", "secs", "least", "most",
            "GB/s", "memcpy/", "messages", "bytes sent"
        for (at = 1; at <= rows; at++) {
            split(keys[at], f, " ")
            split(said[f[1] " " f[2] " " f[3]], s, " ")
            printf "%-8s %-7s %-18s %11d %9.6f %9.6f %9.6f %7.2f %8.2f %9s %12s\n", f[1], f[2], f[3], f[4], secs[at], least[at],
                most[at], f[4] / secs[at] / 1e9, secs[at] / copy[f[1] " " f[2]], s[1], s[2]
        }
    }'
