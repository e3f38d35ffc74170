#!/bin/bash
# source.sh: makes the Debian source package, target/deb/scr_VERSION.dsc with its two archives, and its unpacked tree.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=$(basename "$(packaging/dist.sh)" .tar.xz)
mkdir -p target/deb
cd target/deb
rm -rf scr[-_]*
cp "../dist/$release.tar.xz" "${release/-/_}.orig.tar.xz"
tar -xJf "../dist/$release.tar.xz"
cp -r "$release/packaging/debian" "$release/debian"
dpkg-source --build "$release"
