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
    for classic in scr_copy scr_flush_file scr_index; do ln -sf scr "$prefix/bin/$classic"; done
fi
# Every plugin of the project has a manifest here and a library of its own.
install -d "$prefix/lib/scr/plugins" "$prefix/etc/scr/plugins.d"
for manifest in etc/plugins.d/*.toml; do
    [ -e "$manifest" ] || continue
    library=$built/libscr_$(basename "$manifest" .toml).so
    put 644 "$manifest" etc/scr/plugins.d
    put 755 "$library" lib/scr/plugins
done
if [ -e etc/scr.conf ] && [ ! -e "$prefix/etc/scr.conf" ]; then
    put 644 etc/scr.conf etc # what the site has written there stays
fi
# The pages keep their folders, so that their links to each other lead somewhere.
for page in README.md CHANGELOG.md CONTRIBUTING.md LICENSE-* docs/*.md docs/*/*.md; do
    [ ! -e "$page" ] || put 644 "$page" "share/doc/scr/$(dirname "$page")"
done
if [ -e etc/modulefiles/scr ]; then
    put 644 etc/modulefiles/scr share/doc/scr/etc/modulefiles
fi
put 644 examples/heat2d.c share/doc/scr/examples
