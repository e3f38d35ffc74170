#!/bin/bash
# install.sh MPI PREFIX: copies what was built with this MPI into a tree that may be moved as a whole.
set -euo pipefail
cd "$(dirname "$0")/.."
mpi=${1:?which MPI?} prefix=${2:?where to?}
built=target/release
umask 022 # plugins that others may write are refused

put() { # put MODE FILE FOLDER
    install -d "$prefix/$3" && install -m "$1" "$2" "$prefix/$3/"
}
put 755 "target/$mpi/release/libscr.so" lib
put 644 ffi/include/scr.h include
if [ -x "$built/scr" ]; then
    put 755 "$built/scr" bin
    for classic in scr_check_node scr_copy scr_env scr_flush_file scr_glob_hosts scr_halt scr_index scr_list_down_nodes scr_postrun scr_poststage scr_prerun \
        scr_retries_halt scr_run scr_aprun scr_flux scr_jsrun scr_lrun scr_mpiexec scr_mpirun scr_srun; do
        ln -sf scr "$prefix/bin/$classic"
    done
    "$prefix/bin/scr" pages "$prefix" # manual pages and completions, also for the links
fi
# Every plugin of the project has a manifest here and a library of its own.
install -d "$prefix/lib/scr/plugins" "$prefix/etc/scr/plugins.d"
for manifest in etc/plugins.d/*.toml; do
    [ -e "$manifest" ] || continue
    library=$built/libscr_$(basename "$manifest" .toml).so
    put 644 "$manifest" etc/scr/plugins.d
    put 755 "$library" lib/scr/plugins
done
for kind in resource-managers launchers; do
    for manifest in etc/"$kind"/*.toml; do put 644 "$manifest" "share/doc/scr/etc/$kind"; done
done
if [ -e etc/scr.conf ] && [ ! -e "$prefix/etc/scr.conf" ]; then
    put 644 etc/scr.conf etc # what the site has written there stays
fi
# The pages keep their folders, so that their links to each other resolve.
for page in README.md CHANGELOG.md CONTRIBUTING.md LICENSE-* docs/*.md docs/*/*.md docs/images/*.svg; do
    [ ! -e "$page" ] || put 644 "$page" "share/doc/scr/$(dirname "$page")"
done
if [ -e etc/modulefiles/scr ]; then
    put 644 etc/modulefiles/scr share/doc/scr/etc/modulefiles
fi
# What the pages link to: an unchanged sample, the header, example programs.
put 644 etc/scr.conf share/doc/scr/etc
install -d "$prefix/share/doc/scr/ffi/include"
ln -sf ../../../../../include/scr.h "$prefix/share/doc/scr/ffi/include/scr.h"
put 644 examples/heat2d.c share/doc/scr/examples
for file in examples/vendor-scheme/*.* examples/vendor-scheme/src/*.rs; do
    put 644 "$file" "share/doc/scr/$(dirname "$file")"
done
