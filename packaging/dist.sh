#!/bin/bash
# dist.sh: packs the sources together with those of all dependencies into target/dist/scr-VERSION.tar.xz. What is unpacked
# from it is built without network.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=scr-$version
rm -rf "target/dist/$name" && mkdir -p "target/dist/$name"
git ls-files -z | xargs -0 cp -P --parents --preserve=mode --target-directory "target/dist/$name"
cd "target/dist/$name"
${CARGO:-cargo} vendor --quiet --locked vendor
mkdir .cargo
cat >.cargo/config.toml <<END
[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
directory = "vendor"

[net]
offline = true
END
# Nothing here is built for Windows, and these are half of all bytes.
find vendor \( -name '*.a' -o -name '*.lib' \) -path 'vendor/win*' -delete
cd ..
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" "$name" |
    xz --threads=0 >"$name.tar.xz.new"
mv "$name.tar.xz.new" "$name.tar.xz"
rm -rf "$name"
echo "target/dist/$name.tar.xz"
