#!/bin/bash
# try-job.sh MPI: with the installed packages alone, heat2d in C and Fortran under this MPI loses a rank and its node, restarts
# and computes the answer of an undisturbed run, bit for bit. SCR_DIR names another tree than that of the Debian packages.
set -euo pipefail
mpi=${1:?which MPI?}
work=$(mktemp -d)
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export SCR_CACHE_BYPASS=0 SCR_FLUSH=0 SCR_COPY_TYPE=XOR SCR_DEBUG=1
size=64 steps=60 every=10

run() { # run PROGRAM ARGUMENT...: on four nodes, in the folder of the program
    (cd "$1" && shift && run-on-nodes --limit 300 --mpi "$mpi" --nodes nodes --hosts n0:1,n1:1,n2:1,n3:1 "$@") >>"$1.log" 2>&1
}
die() {
    tail -n 40 ./*.log >&2 || true
    echo "try-job.sh: $mpi: $*" >&2 && exit 1
}
survives() { # survives PROGRAM ARGUMENTS-OF-KILLED -- ARGUMENTS-OF-BOTH
    local program=$1 killed=()
    shift
    while [ "$1" != -- ]; do killed+=("$1") && shift; done
    shift
    run "$program" ./heat2d "$@" "${killed[@]}" && die "$program was to die"
    grep -q 'checkpoint heat.000030 is complete' "$program.log" || die "$program made no checkpoint"
    [ -z "$(find "$program" -name '*.heat' -not -path '*/nodes/*')" ] || die "$program wrote to the prefix directory"
    rm -r "$program/nodes/n1"
    run "$program" ./heat2d "$@" || die "$program failed after the loss of a node"
    grep -q 'restarted from heat.000030' "$program.log" || die "$program did not restart from its checkpoint"
    cmp plain.out "$program/heat.out" || die "the answer of $program is wrong"
    echo "$mpi: heat2d in $program restarted after the loss of a node, and its answer is right"
}

SCR_DIR=${SCR_DIR:-/usr/lib/$(gcc -print-multiarch)/scr/$mpi} scrf=${SCRF:-scrf-$mpi}
PATH=$SCR_DIR/bin:$PATH
cp "$SCR_DIR"/share/scr/examples/heat2d.* .
mkdir c fortran77 fortran90
# As docs/user/languages.md has it, and by the names in pkg-config's own folder; Fortran 77 holds the library.
PKG_CONFIG_PATH=$SCR_DIR/lib/pkgconfig sh -c "mpicc.$mpi -DUSE_SCR heat2d.c -o c/heat2d \$(pkg-config --cflags --libs scr)"
mpif90.$mpi heat2d.f -o fortran77/heat2d -Wl,-Bstatic $(pkg-config --static --cflags --libs "$scrf")
mpif90.$mpi heat2d.f90 -o fortran90/heat2d $(pkg-config --cflags --libs "$scrf")
[ "$(ldd fortran90/heat2d | grep -o '/.*/libscr.so')" -ef "$SCR_DIR/lib/libscr.so" ] || die "the program finds another library"

run c ./heat2d --no-scr --size $size --steps $steps --every $every --result ../plain.out || die "the plain run failed"
survives c --kill-rank 1 --kill-step 35 -- --size $size --steps $steps --every $every --result heat.out
survives fortran77 1 35 -- $size $steps $every heat.out
survives fortran90 1 35 -- $size $steps $every heat.out

scr doctor >doctor.log || die "scr doctor finds faults"
rm -r "$work"
