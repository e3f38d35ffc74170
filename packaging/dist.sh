#!/bin/bash
# dist.sh: packs the sources together with those of all dependencies into target/dist/scr-VERSION.tar.xz. What is unpacked
# from it is built without network. The recipes for Spack and EasyBuild lie beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=scr-$version
when=$(git log -1 --format=%ct)
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
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" "$name" |
    xz --threads=2 >"$name.tar.xz.new"
mv "$name.tar.xz.new" "$name.tar.xz"
rm -rf "$name" spack
# The recipes that name the checksum, beside the archive.
sum=$(sha256sum <"$name.tar.xz")
cp -r ../../packaging/spack ../../packaging/easybuild/*.eb .
sed -i "s/@SHA256@/${sum%% *}/" spack/spack_repo/scr/packages/scr/package.py ./*.eb
echo "target/dist/$name.tar.xz"
