#!/bin/bash
# try.sh: builds the RPM packages, unpacks them above this system, in a mount namespace, and runs try-job.sh of the
# Debian packages there, under each MPI. Needs root. Nothing is left of it outside of target/rpm.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -n "${RPM_TRY:-}" ] || { packaging/rpm/build.sh && RPM_TRY=1 exec unshare --mount --propagation private "$0"; }
cd target/rpm
packages=(RPMS/*/scr-*.rpm)
said=$(rpm --query --package --provides "${packages[@]}")
if grep -q 'libscr_' <<<"$said"; then echo "try.sh: plugins are provided as libraries: $said" >&2 && exit 1; fi

mount -t tmpfs layers "$(mktemp --directory --tmpdir=. layers.XXX)" && cd layers.*
for package in "${packages[@]}"; do rpm2archive "../$package" && tar -xzf "../$package.tgz"; done
mkdir work-etc work-usr
for folder in etc usr; do mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$folder,workdir=work-$folder" /$folder; done
cd ../../../packaging/debian
for mpi in openmpi mpich; do SCR_DIR=/usr/lib64/$mpi/scr PKG_CONFIG_PATH=/usr/lib64/$mpi/lib/pkgconfig SCRF=scrf ./try-job.sh $mpi; done
echo "the RPM packages passed"
