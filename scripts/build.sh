#!/bin/bash
# build.sh MPICC PROFILE CARGO_ARGUMENT...: runs cargo for one MPI. There is one target folder. What is bound to an MPI is four small
# crates, of which it has one build at a time: they are built again where the last build was for another MPI.
set -euo pipefail
cd "$(dirname "$0")/.."
mpicc=${1:?which compiler wrapper?} profile=${2:?which profile?}
shift 2
folder=target/$profile
[ "$profile" != dev ] || folder=target/debug
command -v "$mpicc" >/dev/null || { echo "build.sh: there is no $mpicc: name the wrapper of an MPI with MPICC=" >&2 && exit 1; }
# The wrapper, and what it stands for: one name may lead to another MPI later.
bound="$(command -v "$mpicc") $("$mpicc" -show 2>/dev/null || "$mpicc" --version)"
if [ -d "$folder" ] && [ "$(cat "$folder/.mpi" 2>/dev/null)" != "$bound" ]; then
    rm -f "$folder/.mpi" # it counts again once nothing of the other MPI is left
    "${CARGO:-cargo}" clean --quiet --locked --profile "$profile" -p mpi-sys -p mpi -p scr-mpi -p scr-ffi
fi
mkdir -p "$folder" && printf '%s\n' "$bound" >"$folder/.mpi"
command=${1:?which command of cargo?}
shift
# A release has the same bytes wherever its sources, and those of its dependencies, lie.
options=()
if [ "$profile" = release ]; then
    remap=("--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo" "--remap-path-prefix=$(pwd -P)=/usr/src/scr")
    if [ -n "${RUSTFLAGS:-}" ]; then
        export RUSTFLAGS+=" ${remap[*]}"
    else
        options=(--config "build.rustflags=['${remap[0]}', '${remap[1]}']")
    fi
fi
MPICC=$mpicc "${CARGO:-cargo}" "${options[@]}" "$command" --locked --profile "$profile" "$@"
# A later build for another MPI leaves this one's library alone.
kept=$folder/$(scripts/mpi-name "$mpicc")
for file in libscr.so libscr.a examples/comm_suite; do
    [ ! "$folder/$file" -nt "$kept/${file##*/}" ] || install -D "$folder/$file" "$kept/${file##*/}"
done
