#!/bin/bash
# demo.sh MPI: a job of four ranks on four pretend nodes loses a rank and its node, restarts, and computes the answer
# of an undisturbed run, bit for bit. Uses the tree that `make demo` has put under target/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
mpi=${1:?which MPI?}
here=$PWD
stage=$PWD/target/demo
mpicc=${MPICC:-$(scripts/find-mpicc)}
export PRETEND_MODE=${PRETEND_MODE:-$(scripts/pretend-mode)}
victim=2 kill_step=470 every=50 steps=600
hosts=n0:1,n1:1,n2:1,n3:1

work=$(mktemp -d "${TMPDIR:-/tmp}/scr-demo.XXXXXX")
# The nodes' storage is memory wherever there is some.
nodes=$(mktemp -d /dev/shm/scr-demo.XXXXXX 2>/dev/null || mktemp -d "$work/nodes.XXXXXX")
finish() {
    local status=$?
    rm -rf "$nodes"
    if [ $status = 0 ]; then rm -rf "$work"; else echo "scr demo: FAILED; the output of the runs is kept in $work" >&2; fi
}
trap finish EXIT

say() { printf '\n==> %s\n' "$*"; }
die() { echo "scr demo: $*" >&2 && exit 1; }
indented() { sed -u 's/^/    /'; }

# job NAME ARGUMENT...: runs heat2d; its exit status is the launcher's.
job() {
    local name=$1 status=0
    shift
    : >"$work/$name.log" # so that it can be watched from the start
    (cd "$work/prefix" && exec "$here/scripts/run-on-nodes" --mpi "$mpi" --limit 60 --nodes "$nodes" \
        --hosts "$hosts" "$@" --steps $steps --every $every --size 768 --pause-ms 4 --result "$work/$name.result") \
        >"$work/$name.log" 2>&1 &
    local pid=$!
    tail -n +1 -s 0.1 -f --pid=$pid "$work/$name.log" | shown | indented
    wait $pid || status=$?
    return $status
}
# Only the lines that belong to the story.
shown() { grep --line-buffered -E '^heat2d:|^SCR .*(ERROR|WARNING|NOTE|lost|missing|rebuil|recover|restart)' || true; }

export SCR_PREFIX=$work/prefix SCR_JOB_ID=demo SCR_DEBUG=1
export SCR_COPY_TYPE=XOR SCR_CACHE_BYPASS=0 SCR_FLUSH=0
mkdir "$work/prefix"
"$mpicc" -O2 -o "$work/heat2d-plain" examples/heat2d.c
"$mpicc" -O2 -DUSE_SCR -I"$stage/include" -o "$work/heat2d" examples/heat2d.c -L"$stage/lib" -lscr -Wl,-rpath,"$stage/lib"

echo "scr demo: heat2d, 4 ranks on 4 pretend nodes ($PRETEND_MODE), $mpi; cache in $nodes"

say "1/4  an undisturbed run without scr"
job plain "$work/heat2d-plain" || die "the plain run failed with status $?: see $work/plain.log"

say "2/4  the same with scr: checkpoints on the nodes, XOR across them; rank $victim dies after step $kill_step"
if job killed "$work/heat2d" --kill-rank $victim --kill-step $kill_step; then
    die "the job should have died, but it succeeded"
fi
last=$(sed -n 's/^heat2d: checkpoint \(.*\) is complete$/\1/p' "$work/killed.log" | tail -n 1)
[ -n "$last" ] || die "the job died before its first checkpoint was complete: see $work/killed.log"
echo "    the job is dead; its last complete checkpoint is $last, and none of it is in the prefix directory:"
saved=$(find "$work/prefix" -name '*.heat' | wc -l)
[ "$saved" = 0 ] || die "there are $saved checkpoint files in $work/prefix; expected none"
echo "    $saved checkpoint files under the prefix"

say "3/4  node n$victim is lost: everything that it stored is wiped"
[ -d "$nodes/n$victim" ] || die "node n$victim has stored nothing"
(cd "$nodes" && find "n$victim" -type f -printf '    lost: %p (%s bytes)\n' | sort)
rm -rf "${nodes:?}/n$victim"

say "4/4  restart in the same allocation"
job restarted "$work/heat2d" || die "the restarted run failed with status $?: see $work/restarted.log"
step=$((10#${last#heat.}))
grep -q "^heat2d: restarted from $last at step $step\$" "$work/restarted.log" ||
    die "the job did not restart from $last: see $work/restarted.log"

say "result"
cmp "$work/plain.result" "$work/restarted.result" || die "the answers differ"
echo "    resumed at step $step, the last complete checkpoint; $((kill_step - step)) steps were computed a second time"
echo "    the answer equals that of the undisturbed run in all $(stat -c %s "$work/plain.result") bytes"
echo "scr demo: PASSED"
