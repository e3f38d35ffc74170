#!/bin/bash
# plugin-crates.sh FOLDER: puts there what a new plugin is built from without a registry: the crates of scr as a registry would have
# them, and vendor.tar.gz with those of others. It takes what the build has fetched, so it needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${1:?which folder?}" && to=$(cd "$1" && pwd)
crates=(scr-plugin-api scr-base scr-comm scr-conformance)
# Below the sources, so that cargo finds the settings of a packed tree, which has the crates of others in `vendor'.
work=$PWD/target/plugin-crates.$$
rm -rf "$work" && mkdir -p "$work" && trap 'rm -rf "$work"' EXIT

package_own() {
    ${CARGO:-cargo} package --quiet --no-verify --exclude-lockfile --offline --allow-dirty --target-dir "$work/own" \
        "${crates[@]/#/-p}" 2>"$work/log" || { cat "$work/log" >&2 && exit 1; }
    local crate
    for crate in "${crates[@]}"; do
        rm -rf "${to:?}/$crate" && mkdir -p "$to/$crate"
        tar -xzf "$work/own/package/$crate"-[0-9]*.crate --strip-components 1 -C "$to/$crate"
        rm -f "$to/$crate"/{Cargo.toml.orig,.cargo_vcs_info.json} # the latter from a clone only
    done
}

# A crate that needs what plugins need, with the versions that scr is tested with. Prints the Cargo.toml of each crate that is built.
needed() {
    mkdir "$work/all" && touch "$work/all/lib.rs" && cp Cargo.lock "$work/all"
    {
        printf '[workspace]\n[package]\nname = "all"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
        printf '[dependencies]\n' && printf '%s = "1"\n' "${crates[@]}"
        printf '[patch.crates-io]\n'
        local crate
        for crate in "${crates[@]}"; do printf '%s = { path = "%s" }\n' "$crate" "$to/$crate"; done
    } >"$work/all/Cargo.toml"
    local host
    host=$(${RUSTC:-rustc} -vV | sed -n 's/^host: //p')
    ${CARGO:-cargo} metadata --quiet --offline --format-version 1 --filter-platform "$host" --manifest-path "$work/all/Cargo.toml" |
        grep -o '"manifest_path":"[^"]*"' | cut -d '"' -f 4 | grep -v -e "^$work/" -e "^$to/"
}

field() { # field NAME CARGO_TOML: of its package
    sed -n "/^\[package\]/,/^\[[^p]/s/^$1 = \"\(.*\)\"/\1/p" "$2" | head -n 1
}

# Prints `NAME VERSION CHECKSUM' of each crate of a registry.
locked() {
    awk '$1 == "name" { name = $3 } $1 == "version" { version = $3 } $1 == "checksum" { print name, version, $3 }' \
        "$work/all/Cargo.lock" | tr -d '"'
}

copy_others() {
    local manifest name
    needed >"$work/needed"
    while read -r manifest; do
        name=$(field name "$manifest")-$(field version "$manifest")
        cp -r "$(dirname "$manifest")" "$work/vendor/$name"
        (cd "$work/vendor/$name" && rm -rf .cargo* .git* Cargo.toml.orig Cargo.lock)
    done <"$work/needed"
}

# Cargo chooses versions for all systems, and builds for one. Crates for other systems are not there: an empty one has their name,
# and the features that others ask for.
stand_in() { # stand_in NAME VERSION
    local folder=$work/vendor/$1-$2
    mkdir "$folder" && touch "$folder/lib.rs"
    {
        printf '[package]\nname = "%s"\nversion = "%s"\nedition = "2021"\n' "$1" "$2"
        printf 'description = "Empty: the crate of this name is not needed on this system"\n[lib]\npath = "lib.rs"\n[features]\n'
        features_of "$1" | sort -u | sed 's/.*/"&" = []/'
    } >"$folder/Cargo.toml"
}

features_of() { # features_of NAME: those that any of the crates asks for, in its list or as `NAME/FEATURE'
    cat "$work"/vendor/*/Cargo.toml | awk -F '"' -v name="$1" '
        /^\[/ { is_table = index($0, "dependencies." name "]"); is_list = 0 }
        is_table && /^features = \[/ { is_list = 1 }
        { for (i = 2; i <= NF; i += 2) {
            if (is_list) print $i
            else if (split($i, parts, "/") == 2 && (parts[1] == name || parts[1] == name "?")) print parts[2]
        } }
        /\]/ { is_list = 0 }'
}

package_own
mkdir "$work/vendor"
copy_others
locked | while read -r name version checksum; do
    [ -d "$work/vendor/$name-$version" ] || stand_in "$name" "$version"
    printf '{"files":{},"package":"%s"}' "$checksum" >"$work/vendor/$name-$version/.cargo-checksum.json"
done
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$work" vendor | gzip -9n >"$to/vendor.tar.gz.new"
mv "$to/vendor.tar.gz.new" "$to/vendor.tar.gz"
