#!/bin/bash
# build.sh: makes the RPM packages, target/rpm/RPMS and SRPMS. Where rpm is not the system's own (Debian), it is told what the
# wrappers of both MPIs are called, and asks for no packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=$(packaging/dist.sh)
options=(--define "_topdir $PWD/target/rpm")
if [ -e /etc/debian_version ]; then
    options+=(--nodeps --define "mpicc_openmpi mpicc.openmpi" --define "mpicc_mpich mpicc.mpich")
fi
rm -rf target/rpm && mkdir -p target/rpm/SOURCES
cp "$archive" target/rpm/SOURCES
rpmbuild -ba "${options[@]}" packaging/rpm/scr.spec
