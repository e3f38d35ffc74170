#!/bin/bash
# install.sh MPI PREFIX [BUILT]: copies what was built with this MPI into a tree that may be moved as a whole. BUILT is the folder
# that it was built in. What was not built is left out. DESTDIR is the part of PREFIX that the tree will not lie in.
# install.sh --uninstall PREFIX: removes it again, but for files of others and a scr.conf that was changed.
#
# LIBDIR, LIBEXECDIR, SYSCONFDIR and DATADIR name folders as GNU's standards do. The tree is found from bin/scr or libscr.so,
# so only some can be had. FORTRAN=no: compiles no module for gfortran; FORTRAN=yes: ends where gfortran cannot.
set -euo pipefail
cd "$(dirname "$0")/.."
mpi=${1:?which MPI?} final=${2:?where to?} built=${3:-target/release}
[[ $final = /* ]] || final=$PWD/$final
list=share/scr/installed # the files of the tree; absolute ones lie outside
remove() { # remove: the files whose names are read, and the folders that are empty then
    while IFS= read -r file; do
        [[ $file = /* ]] || file=$final/$file
        if [[ $file = */etc/scr.conf && $file != */share/doc/* ]] && ! cmp -s etc/scr.conf "$file"; then
            [ ! -e "$file" ] || echo "install.sh: $file was changed, and stays" >&2
            continue
        fi
        rm -f "$file"
        folder=${file%/*}
        while [ "$folder" != "$final" ] && rmdir "$folder" 2>/dev/null; do folder=${folder%/*}; done
    done
}
if [ "$mpi" = --uninstall ]; then
    if ! files=$(cat "$final/$list" 2>/dev/null); then
        echo "install.sh: there is no list of what was installed, $final/$list" >&2
        exit 1
    fi
    remove <<<"$files"
    rmdir "$final" 2>/dev/null || true
    exit
fi
stage=$(mktemp -d) && trap 'rm -rf "$stage"' EXIT
prefix=$stage/tree # moved as a whole in the end
root=${final#"${DESTDIR:-}"} # where it will lie
folder() { # folder VARIABLE DEFAULT ALLOWED...: below the tree
    local chosen=${!1:-$2} allowed=${*:2}
    chosen=${chosen#"$root/"}
    if [[ " $allowed " != *" $chosen "* ]]; then
        echo "install.sh: $1 can be ${allowed// / or } for a tree in $root, and not $chosen: the tree would not be found" >&2
        return 1
    fi
    echo "$chosen"
}
etc_of_root=etc
if [ "$root" = /usr ]; then etc_of_root=/etc; fi
lib=$(folder LIBDIR lib lib64)
etc=$(folder SYSCONFDIR $etc_of_root)
folder DATADIR share >/dev/null
libexec=${LIBEXECDIR:-libexec} libexec=${libexec#"$root/"}
if [[ $libexec = /* ]]; then echo "install.sh: LIBEXECDIR has to lie below $root, and not be $libexec" >&2 && exit 1; fi
umask 022 # plugins that others may write are refused

put() { # put MODE FILE FOLDER
    install -d "$(place "$3")" && install -m "$1" "$2" "$(place "$3")/"
}
place() { # place FOLDER: below the tree, if it is not absolute
    if [[ $1 = /* ]]; then echo "$stage/outside$1"; else echo "$prefix/$1"; fi
}
put 755 "$built/$mpi/libscr.so" $lib
put 644 ffi/include/scr.h include
put 644 ffi/include/scr.hpp include
compile() { # compile ARGUMENT...: with the options of whoever builds
    # shellcheck disable=SC2086 # options of the compiler are several words
    ${CC:-cc} -std=c99 ${CFLAGS:--O2} -fPIC -fno-lto -Iffi/include "$@"
}
# libscr.a is one object that has the names of libscr.so and no others, so that those of Rust meet none of the program. It knows
# its folder. Without a section for each function it is half as large, and quickly linked.
install_static() {
    local names=$stage/names
    nm -D --defined-only "$built/$mpi/libscr.so" | sed 's/.* //' >"$names"
    sed 's/^/-Wl,-u,/' "$names" >"$stage/roots"
    {
        echo 'SECTIONS { .eh_frame : { KEEP(*(.eh_frame)) }'
        for section in text rodata data.rel.ro gcc_except_table; do echo ".$section : { *(.$section .$section.*) }"; done
        echo '}'
    } >"$stage/sections"
    echo "const char scr_folder_of_archive[] = \"$root/$lib\";" | compile -xc -c - -o "$stage/folder.o"
    compile -r -nostdlib -Wl,--gc-sections,--force-group-allocation,-S,-T,"$stage/sections" "@$stage/roots" \
        "$stage/folder.o" "$built/$mpi/libscr.a" -o "$stage/scr.o"
    objcopy --strip-unneeded --keep-global-symbols="$names" -R .llvmbc -R .llvmcmd "$stage/scr.o" # bitcode of the compiler's own libraries
    compile -c ffi/fortran/scrf.c -o "$stage/scrf.o"
    for name in scr scrf; do ar rcs "$prefix/$lib/lib$name.a" "$stage/$name.o"; done
}
install_static
install_fortran() { # libscrf.so finds libscr.so beside itself, wherever the tree is moved
    # shellcheck disable=SC2086 # options of the linker are several words
    compile -shared -Wl,-soname,libscrf.so -Wl,-rpath,'$ORIGIN' ${LDFLAGS:-} "$stage/scrf.o" -o "$prefix/$lib/libscrf.so" \
        -L"$prefix/$lib" -lscr
    put 644 ffi/fortran/scrf.h include
    put 644 ffi/fortran/scr.f90 include # a module file belongs to one compiler; this is for all others
    if [ "${FORTRAN:-auto}" != no ] && ! gfortran -fsyntax-only -J "$prefix/include" ffi/fortran/scr.f90; then
        echo "install.sh: gfortran makes no module, so include/scr.mod is left out (FORTRAN=no asks for none)" >&2
        [ "${FORTRAN:-auto}" != yes ]
    fi
}
install_fortran
for file in scr.py setup.py pyproject.toml README.md; do put 644 "ffi/python/$file" share/scr/python; done
for file in Cargo.toml build.rs README.md src/lib.rs src/raw.rs examples/heat2d.rs; do
    put 644 "ffi/rust/$file" "share/scr/rust/$(dirname "$file")"
done
fill() { # fill FILE FOLDER: with what this tree is
    install -d "$prefix/$2" && sed "s|@MPI@|$mpi|g; s|@LIB@|$lib|g; s|@SCR@|$root|g" "$1" >"$prefix/$2/$(basename "$1")"
}
for name in scr scrf; do fill ffi/pkgconfig/$name.pc $lib/pkgconfig; done
for file in scr-config.cmake scr-config-version.cmake; do fill "ffi/cmake/$file" $lib/cmake/scr; done
for example in heat2d.c heat2d.cpp heat2d.f heat2d.f90 heat2d.py heat_recover.c test_api.c test_ckpt.cpp test_ckpt.F test_ckpt.F90 \
    Makefile README.md; do
    put 644 "examples/$example" share/scr/examples
done
for example in run.py melt.create melt.settings; do put 644 "examples/lammps/$example" share/scr/lammps; done
# A copy of the examples finds the tree that they came from.
sed -i "s|^INSTALLED =.*|INSTALLED = $root|" "$prefix/share/scr/examples/Makefile"
if [ -x "$built/scr" ]; then
    put 755 "$built/scr" bin
    for classic in scr_check_node scr_ckpt_interval scr_copy scr_crc32 scr_env scr_flush_file scr_glob_hosts \
        scr_halt scr_halt_cntl scr_hostlist scr_index scr_inspect scr_kill_jobstep scr_list_dir scr_list_down_nodes \
        scr_log_event scr_log_transfer scr_nodelist scr_nodes_file scr_postrun scr_poststage scr_prerun scr_print \
        scr_rebuild_partner scr_rebuild_rs scr_rebuild_xor scr_retries_halt scr_run scr_should_exit scr_test_runtime \
        kvtree_print scr_aprun scr_flux scr_jsrun scr_lrun scr_mpiexec scr_mpirun scr_srun; do
        ln -sf scr "$prefix/bin/$classic"
    done
    "$prefix/bin/scr" pages "$prefix" # manual pages and completions, also for the links
fi
# Pretend nodes, to try things with: the command in bin finds its helpers beside the file that it leads to.
for file in run-on-nodes mpi-launcher pretend-mode pretend-node pretend-rank; do put 755 "scripts/$file" $libexec/scr; done
sed -i "s/^mpi=openmpi /mpi=$mpi /" "$prefix/$libexec/scr/run-on-nodes"
install -d "$prefix/bin" && ln -sf ../$libexec/scr/run-on-nodes "$prefix/bin/run-on-nodes"
# Every plugin of the project has a manifest here and a library of its own.
install -d "$prefix/$lib/scr/plugins"
for manifest in etc/plugins.d/*.toml; do
    library=$built/libscr_$(basename "$manifest" .toml).so
    [ -e "$library" ] || continue
    put 644 "$manifest" $etc/scr/plugins.d
    put 755 "$library" $lib/scr/plugins
done
for kind in resource-managers launchers; do
    for manifest in etc/"$kind"/*.toml; do put 644 "$manifest" "share/doc/scr/etc/$kind"; done
done
put 644 etc/scr.conf $etc
for machine in etc/machines/*.toml; do put 644 "$machine" share/scr/machines; done
put 644 etc/grafana/scr.json share/scr/grafana
# An epilog has no PATH: the scripts name the tree, where it will lie.
for script in prolog epilog; do
    fill "etc/$script.sh" share/scr/slurm
    chmod 755 "$prefix/share/scr/slurm/$script.sh"
done
# The pages keep their folders, so that their links to each other resolve.
for page in README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE-* docs/*.md docs/*/*.md docs/images/*; do
    [ ! -e "$page" ] || put 644 "$page" "share/doc/scr/$(dirname "$page")"
done
if command -v mdbook >/dev/null; then scripts/book.sh "$prefix/share/doc/scr/html"; fi # the same pages as a site
fill etc/modulefiles/scr share/doc/scr/etc/modulefiles # finds the tree it lies in
scripts/plugin-crates.sh "$prefix/share/scr/crates"
# The files that the pages link to: an unchanged sample, the header, example programs.
put 644 etc/scr.conf share/doc/scr/etc
install -d "$prefix/share/doc/scr/ffi/include"
ln -sf ../../../../../include/scr.h "$prefix/share/doc/scr/ffi/include/scr.h"
for example in heat2d.c heat_recover.c; do put 644 "examples/$example" share/doc/scr/examples; done
put 644 examples/lammps/run.py share/doc/scr/examples/lammps
for file in examples/vendor-scheme/*.* examples/vendor-scheme/src/*.rs; do
    put 644 "$file" "share/doc/scr/$(dirname "$file")"
done

# Into its place: running jobs keep the files that they have open. What the site has written into scr.conf stays, and folders that
# are there keep their modes. What an older version had besides goes.
install -d "$stage/outside"
{ (cd "$prefix" && find . ! -type d -printf '%P\n') && (cd "$stage/outside" && find . ! -type d -printf '/%P\n'); } | sort >"$stage/list"
if [ -z "${DESTDIR:-}" ]; then # packages have lists of their own
    if [ -e "$final/$list" ]; then comm -13 "$stage/list" "$final/$list" | remove; fi
    echo $list >>"$stage/list" && sort -o "$stage/list" "$stage/list"
    install -d "$prefix/${list%/*}" && cp "$stage/list" "$prefix/$list"
fi
copy() { # copy FROM TO
    local kept=()
    if [ -e "$2/${etc#/}/scr.conf" ]; then kept=(--exclude "./${etc#/}/scr.conf"); fi
    install -d "$2" && tar -C "$1" "${kept[@]}" -cf - . | tar -C "$2" --no-overwrite-dir -xf -
}
copy "$prefix" "$final"
copy "$stage/outside" "${DESTDIR:-}/"
