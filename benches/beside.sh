#!/bin/bash
# beside.sh: measures scr beside C SCR, with the same program on the same pretend nodes, in alternating pairs. C SCR must be
# built for Open MPI. It has no checksums in cache; scr takes checksums of everything. Everything lies in memory.
#
# C_SCR=PREFIX              the tree of C SCR, with include/scr.h and lib/libscr.so
# STAGE=PREFIX              the tree of scr [default: what `make stage MPICC=mpicc.openmpi` puts under target/stage/openmpi]
# SCHEMES="PARTNER XOR RS"  which schemes; RS keeps two parity chunks per stripe
# MIB=256                   MiB per rank; four ranks on four nodes
# PAIRS=10                  how many pairs; the first checkpoint of a run is left out
# TRANSPORT=shared|tcp      what lies between the nodes, see run.sh
#
# Each pair takes new storage. It checkpoints, restarts without the node n1, and restarts again with nothing lost.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
theirs=$(readlink -f "${C_SCR:?names the tree of C SCR}") ours=$(readlink -f "${STAGE:-target/stage/openmpi}")
schemes=${SCHEMES:-PARTNER XOR RS} bytes=$((${MIB:-256} << 20)) pairs=${PAIRS:-10} transport=${TRANSPORT:-shared}
checkpoints=3

work=$(mktemp -d "${TMPDIR:-/tmp}/scr-bench.XXXXXX")
trap 'umount --lazy "$work/memory" && rm -rf "$work"' EXIT
mkdir "$work/memory"
mount -t tmpfs scr-bench "$work/memory"
nodes=$work/memory/nodes prefix=$work/memory/prefix log=$work/log
build() { mpicc.openmpi -O2 -o "$work/$1" benches/checkpoint.c -I"$2/include" -L"$2/lib" -lscr -Wl,-rpath,"$2/lib" -Wl,-rpath-link,"$2/lib"; }
build scr "$ours"
build c-scr "$theirs"

as_on_node=()
case $transport in
tcp) ;;
shared)
    # C SCR takes the name of a node from the system, and the same cache directory on all nodes.
    export PRETEND_MODE=names PRETEND_SINGLE_COPY=cma SCR_CACHE_BASE=$work/node SCR_CNTL_BASE=$work/node
    mkdir "$work/node"
    as_on_node=(unshare --mount --uts sh -c 'hostname $SCR_NODE_NAME && mount --bind $PRETEND_STORAGE "$0" && exec "$@"' "$work/node")
    ;;
*) echo "TRANSPORT=$transport: it is shared or tcp" >&2 && exit 2 ;;
esac
export USER=${USER:-$(id -un)} SCR_PREFIX=$prefix SCR_JOB_ID=bench SCR_DEBUG=1 SCR_CACHE_BYPASS=0 SCR_CACHE_SIZE=1 SCR_FLUSH=0 \
    SCR_SET_FAILURES=2

# job WHICH CHECKPOINTS: one run; what it said is in $log.
job() {
    if ! (cd "$prefix" && exec "$here/scripts/run-on-nodes" --mpi openmpi --limit 120 --nodes "$nodes" \
        --hosts n0:1,n1:1,n2:1,n3:1 "${as_on_node[@]}" "$work/$1" "$bytes" "$2") >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    [ "$2" != 0 ] || grep -q '^restarted=1' "$log" || { cat "$log" >&2 && exit 1; }
}

# note SCHEME PAIR WHICH AS: adds the last time that comes on standard input to the times.
note() { tail -n 1 | sed "s/^/$1 $4 $2 $3 /" >>"$work/times"; }
phase() { sed -n "s/^phase=$1 .*secs=\([0-9.]*\) .*/\1/p" "$log"; }

one_of_pair() { # one_of_pair SCHEME PAIR WHICH
    export SCR_COPY_TYPE=$1
    rm -rf "$nodes" "$prefix"
    mkdir "$prefix"
    job "$3" "$checkpoints"
    phase encode | note "$@" encode
    phase start-to-complete | note "$@" start-to-complete
    sed -n 's/.*scr_reddesc_apply: \([0-9.]*\) secs.*/\1/p' "$log" | note "$@" apply
    rm -rf "$nodes/n1"
    job "$3" 0
    phase init | note "$@" one-lost
    job "$3" 0
    phase init | note "$@" nothing-lost
}

: >"$work/times"
for scheme in $schemes; do
    for ((pair = 0; pair < pairs; pair++)); do
        for which in scr c-scr; do one_of_pair "$scheme" "$pair" $which; done
    done
done

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: $(nproc) processors, ${model:-unknown}, Linux $(uname -r); $(ompi_info --version | head -n 1), $transport"
echo "milliseconds: median (least to most) of $pairs; ratio: median (least to most) of those of the pairs"
awk '
    function sorted(list, n,  i, j, v) {
        for (i = 2; i <= n; i++) {
            v = list[i]
            for (j = i - 1; j > 0 && list[j] > v; j--) list[j + 1] = list[j]
            list[j + 1] = v
        }
    }
    function median(list, n) { return (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2 }
    function summary(list, n, unit) {
        sorted(list, n)
        return sprintf("%.*f (%.*f to %.*f)", 2 - unit, median(list, n), 2 - unit, list[1], 2 - unit, list[n])
    }
    { key = $1 " " $2 }
    !(key in seen) { seen[key]; keys[++rows] = key }
    { at[key, $4, ++count[key, $4]] = $5 * 1000 }
    END {
        printf "%-8s %-18s %-22s %-22s %s\n", "scheme", "phase", "scr", "C SCR", "ratio"
        for (row = 1; row <= rows; row++) {
            n = count[keys[row], "scr"]
            for (i = 1; i <= n; i++) {
                a[i] = at[keys[row], "scr", i]; b[i] = at[keys[row], "c-scr", i]; r[i] = a[i] / b[i]
            }
            split(keys[row], k, " ")
            printf "%-8s %-18s %-22s %-22s %s\n", k[1], k[2], summary(a, n, 2), summary(b, n, 2), summary(r, n, 0)
        }
    }' "$work/times"
