#!/bin/bash
# others.sh: measures a restart from cache of as many ranks as wrote a checkpoint, of half and of twice as many, in alternating rounds,
# on two pretend nodes under Open MPI, with all files in memory. It uses the tree that `make stage MPICC=mpicc.openmpi` makes.
#
# MIB=256                   MiB on each node, which four ranks wrote
# ROUNDS=5                  how many rounds
#
# plain: four ranks read what they wrote. half, twice: two and eight ranks read it, each its share, from the cache of its own node; far:
# from that of the other one. Each way restarts from a checkpoint that no other one has touched.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD stage=${STAGE:-$PWD/target/stage/openmpi} mib=${MIB:-256}
work=$(mktemp -d "${TMPDIR:-/tmp}/scr-bench.XXXXXX")
nodes=$(mktemp -d /dev/shm/scr-bench.XXXXXX)
trap 'rm -rf "$work" "$nodes"' EXIT
mpicc.openmpi -O2 -o "$work/others" benches/others.c -I"$stage/include" -L"$stage/lib" -lscr -Wl,-rpath,"$stage/lib"
export SCR_PREFIX=$work/prefix SCR_JOB_ID=bench SCR_CACHE_BYPASS=0 SCR_FLUSH=0 SCR_COPY_TYPE=${SCHEME:-XOR}
export SCR_RESTART_OTHER_RANKS=1 SCR_DEBUG=1

run() { # run RANKS-PER-NODE ARGUMENT...
    if ! (cd "$work/prefix" && exec "$here/scripts/run-on-nodes" --mpi openmpi --limit 120 --nodes "$nodes" \
        --hosts "n0:$1,n1:$1" "$work/others" "${@:2}") >"$work/log" 2>&1; then
        cat "$work/log" >&2
        exit 1
    fi
}
one() { # one WAY RANKS-PER-NODE NODES-ON
    rm -rf "${nodes:?}"/* "$work/prefix"
    mkdir "$work/prefix"
    run 2 write $(((mib << 20) / 2))
    run "$2" read "$3" 2
    [ "$1" = plain ] || grep -q 'it is read in the caches of the nodes' "$work/log" || { cat "$work/log" >&2 && exit 1; }
    sed -n "s/^seconds=/$1 /p" "$work/log" >>"$work/times"
}
for ((round = 0; round < ${ROUNDS:-5}; round++)); do
    one plain 2 0
    one half 1 0
    one twice 4 0
    one half-far 1 1
    one twice-far 4 1
done
echo "machine: $(nproc) processors, Linux $(uname -r); ${SCHEME:-XOR}, $mib MiB per node; seconds, median (least to most)"
sort -k1,1 -k2,2n "$work/times" | awk '
    function row() { if (n) printf "%-10s %.3f (%.3f to %.3f, %d)\n", last, t[int((n + 1) / 2)], t[1], t[n], n }
    $1 != last { row(); n = 0; last = $1 }
    { t[++n] = $2 }
    END { row() }'
