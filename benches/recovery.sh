#!/bin/bash
# recovery.sh: measures the time from the death of a rank, or of a node, to the end of the first step that is computed again: in
# the same job with SCR_Recover, and in a second launch. Four ranks on four pretend nodes run heat_recover under an MPI with ULFM,
# the same one for every way, with all files in memory. Each job must have the answer of the first one. It uses the tree that
# `make stage MPICC=mpicc.openmpi` makes.
#
# ULFM_MPI=target/ulfm-mpi  the MPI; `make test-ulfm` installs Open MPI 5 there
# MIB=64                    MiB per rank
# ROUNDS=6                  how many rounds; the ways alternate
#
# spare: a process that waits takes the place of the dead one, on its node or, where that is lost, on another one. shrink: three
# ranks go on. launch, launch-3: the launcher ends, and starts four or three ranks again, on an empty node in place of a lost one.
# ended: the launcher has ended. done: rank 0 has done the step. All times are CLOCK_REALTIME of the machine, from just before the
# signal. With a node its storage goes, too. Until an MPI notices that a real node does not answer takes longer.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C # for EPOCHREALTIME
here=$PWD stage=${STAGE:-$PWD/target/stage/openmpi} mpi=${ULFM_MPI:-$PWD/target/ulfm-mpi} mib=${MIB:-64}
[ -x "$mpi/bin/mpirun" ] || { echo "there is no $mpi/bin/mpirun: set ULFM_MPI, or run \`make test-ulfm'" >&2 && exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/scr-bench.XXXXXX")
nodes=$(mktemp -d /dev/shm/scr-bench.XXXXXX)
trap 'rm -rf "$work" "$nodes"' EXIT
"$mpi/bin/mpicc" -O2 -o "$work/heat" examples/heat_recover.c -I"$stage/include" -L"$stage/lib" -lscr \
    -Wl,-rpath,"$stage/lib" -Wl,-rpath-link,"$mpi/lib"
# The plate of all ranks together has rows of so many points of 8 bytes.
size=$(awk -v bytes=$((mib << 22)) 'BEGIN { print int(sqrt(bytes / 8) + 0.5) }')
steps=30 every=5
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LD_LIBRARY_PATH=$mpi/lib PRETEND_NODES=$nodes
export SCR_PREFIX=$work/prefix SCR_JOB_ID=bench SCR_DEBUG=1 SCR_CACHE_BYPASS=0 SCR_FLUSH=0 SCR_COPY_TYPE=XOR SCR_REPORT=0
export SCR_CACHE_BASE='$PRETEND_STORAGE' SCR_CNTL_BASE='$PRETEND_STORAGE'

fail() { # fail WORDS: with what the job has said
    cat "$work/log" >&2
    echo "recovery.sh: $*" >&2
    exit 1
}
# Each rank says which process it is.
cat >"$work/rank" <<END
#!/bin/bash
echo \$\$ >$work/pid.\$OMPI_COMM_WORLD_RANK
exec "$here/scripts/pretend-rank" "$work/heat" "\$@"
END
chmod +x "$work/rank"

# launch NODES SPARES OPTION...: in the background; NODES has one for each rank. MPI need not look for networks, which takes a
# second.
launch() {
    local ranks=$1 spares=$2
    shift 2
    export PRETEND_RANKS=$ranks
    (cd "$work/prefix" && exec timeout --kill-after 5 60 "$mpi/bin/mpirun" "$@" --map-by :oversubscribe --bind-to none \
        --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl self,sm,tcp -n "$(wc -w <<<"$ranks")" "$work/rank" --size "$size" \
        --steps $steps --every $every --spares "$spares") >>"$work/log" 2>&1 &
    launcher=$!
}
# Waits for the end of the job, and gives how it was. Once Open MPI 5.0 has ended a process for a fault of its own (see
# "Send error after request freed" in the guide), the others may wait for ever.
ends() {
    while kill -0 "$launcher" 2>/dev/null; do
        ! grep -q 'error after request freed' "$work/log" || kill "$launcher" || :
        sleep 0.05
    done
    wait "$launcher"
}
# Waits for the second checkpoint: then the first one leaves. What the job says may come late.
until_second() {
    local found
    until found=$(find "$nodes/n0" -name 'scr.dataset.*' 2>/dev/null) && [ -n "$found" ] && ! grep -q '\.1$' <<<"$found"; do
        kill -0 "$launcher" 2>/dev/null || fail "the job has ended before its second checkpoint"
        sleep 0.02
    done
}
# bytes_of WHAT FIND-OPTION...: adds them up in all parts of the newest checkpoint, to the table.
bytes_of() {
    local what=$1 newest
    shift
    newest=$(find "$nodes" -type d -name 'scr.dataset.*' | sed 's/.*dataset.//' | sort -n | tail -n 1)
    find "$nodes" -path "*/scr.dataset.$newest/*" -type f "$@" -printf '%s\n' |
        awk -v what="$what" '{ sum += $1 } END { print what, sum + 0 }' >>"$work/bytes"
}
one() { # one KIND WAY: KIND is rank or node. Gives whether Open MPI has let the job go on
    local nodes_before='n0 n1 n2 n3' nodes_after='n0 n1 n2 n3' spares=0 ulfm=(--with-ft ulfm --mca async_mpi_finalize 1)
    case $1-$2 in
    rank-spare) nodes_before+=' n3' spares=1 ;;
    node-spare) nodes_before+=' n4' spares=1 ;;
    node-launch) nodes_after='n0 n1 n2 n4' ;;
    *-launch-3) nodes_after='n0 n1 n2' ;;
    esac
    [[ $2 != launch* ]] || ulfm=()
    rm -rf "${nodes:?}"/* "$work/prefix" "$work/log"
    mkdir "$work/prefix"
    : >"$work/log"
    launch "$nodes_before" $spares "${ulfm[@]}"
    until_second
    if [ ! -s "$work/bytes" ]; then
        bytes_of checkpoint -name '*.heat' && bytes_of redundancy ! -name '*.heat'
        find "$nodes" -name '.spare_*' -printf '%s\n' | awk '{ sum += $1 } END { print "spare", sum + 0 }' >>"$work/bytes"
    fi
    local killed=$EPOCHREALTIME
    kill -KILL "$(cat "$work/pid.3")" || fail "rank 3 cannot be killed"
    # At once; the bytes are removed when nobody measures.
    [ "$1" = rank ] || mv "$nodes/n3" "$nodes/lost"
    if [[ $2 == launch* ]]; then
        wait "$launcher" && fail "the job has not died"
        echo "$1 $2 ended $EPOCHREALTIME $killed" >>"$work/raw"
        launch "$nodes_after" 0
    fi
    if ! ends; then
        grep -q 'error after request freed' "$work/log" || fail "the job has failed"
        echo "$1 $2" >>"$work/ended"
        return 1
    fi
    [ "$(grep -c 'is done at' "$work/log")" = 2 ] || fail "the job has not died once"
    echo "$1 $2 done $(sed -n 's/.*is done at //p' "$work/log" | tail -n 1) $killed" >>"$work/raw"
    grep -q 'from step [1-9]' "$work/log" || fail "it has begun anew"
    local answer
    answer=$(sed -n 's/.*the answer has checksum //p' "$work/log")
    [ "$answer" = "${right:=$answer}" ] || fail "the answer is $answer and not $right"
}
for ((round = 0; round < ${ROUNDS:-6}; round++)); do
    for kind in rank node; do
        for way in spare shrink launch launch-3; do until one $kind $way; do :; done; done
    done
done
echo "machine: $(nproc) processors, Linux $(uname -r); XOR, $mib MiB per rank; seconds after the death, median (least to most)"
awk '{ printf "%s %s %s %.6f\n", $1, $2, $3, $4 - $5 }' "$work/raw" | sort -k1,3 -k4,4n | awk '
    function row() { if (n) printf "%-5s %-9s %-6s %.3f (%.3f to %.3f, %d)\n", key[1], key[2], key[3], \
                     (t[int((n + 1) / 2)] + t[int(n / 2) + 1]) / 2, t[1], t[n], n }
    { k = $1 " " $2 " " $3; if (k != last) { row(); n = 0; split(k, key, " "); last = k } t[++n] = $4 }
    END { row() }'
[ ! -e "$work/ended" ] || echo "jobs that Open MPI ended though they could go on, beside these: $(wc -l <"$work/ended")"
awk '{ bytes[$1] = $2 } END {
    printf "memory for protection: %d bytes beside %d of the checkpoint: %.4f\n", bytes["redundancy"], bytes["checkpoint"],
        bytes["redundancy"] / bytes["checkpoint"]
    printf "the redundancy before, whose memory the next one takes: %d\n", bytes["spare"] }' "$work/bytes"
