#!/bin/bash
# try.sh: builds the Debian packages without network, in a clean root of this machine's release of Debian, installs them in
# another one, and runs try-job.sh there. Needs root and debootstrap. The roots are in target/deb; `base' and `build' stay
# for the next time.
set -euo pipefail
cd "$(dirname "$0")/../.."
# What is mounted below is gone with this process.
[ -n "${SCR_TRY:-}" ] || SCR_TRY=1 exec unshare --mount --propagation private "$0"
packaging/debian/source.sh
cd target/deb
release=$(. /etc/os-release && echo "$VERSION_CODENAME")

new_root() { # new_root NAME: a root of its own, with Debian's base system
    rm -rf "./$1.new" && cp -a base "$1.new" && mv "$1.new" "$1"
}
in_root() { # in_root NAME COMMAND...: runs a command as on a machine with this root
    local root=$1
    shift
    mountpoint -q "$root" || {
        mount --bind "$root" "$root" # what runs in it may change how its mounts propagate
        mount -t proc proc "$root/proc"
        mount -t tmpfs dev "$root/dev"
        mkdir "$root/dev/shm" "$root/dev/pts"
        mount -t tmpfs shm "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        for device in null zero full random urandom tty; do
            touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"
        done
    }
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
}

as_builder() { # as_builder COMMAND...: in the root `build', as an ordinary user without network
    in_root build unshare --net setpriv --reuid nobody --regid nogroup --clear-groups env HOME=/build "$@"
}

if [ ! -d base ]; then
    rm -rf base.new && debootstrap --variant=minbase "$release" base.new
    mirror=$(sed -n 's/^deb \(http[^ ]*\).*/\1/p' base.new/etc/apt/sources.list)
    printf 'deb %s main\n' "$mirror $release-updates" "$mirror-security $release-security" >>base.new/etc/apt/sources.list
    apt-config dump | grep '^Acquire::' >base.new/etc/apt/apt.conf.d/50of-this-machine
    mv base.new base
fi

[ -d build ] || new_root build
in_root build apt-get -qq update
in_root build apt-get -qq install --no-install-recommends build-essential lintian >build.log
rm -rf build/build && mkdir build/build && cp scr_*.dsc scr_*.tar.xz build/build
in_root build sh -c 'cd build && dpkg-source --extract scr_*.dsc scr && chown -R nobody .'
in_root build sh -c 'apt-get -qq build-dep --no-install-recommends ./build/scr' >>build.log
as_builder sh -c 'cd build/scr && dpkg-buildpackage -us -uc -b' >>build.log 2>&1 || { tail -n 50 build.log && exit 1; }
as_builder sh -c 'cd build && lintian --fail-on error scr_*.dsc scr_*.changes'
rm -f ./*.deb && cp build/build/*.deb .

rm -rf clean && new_root clean
mkdir clean/packages && cp ./*.deb clean/packages
cp ../../packaging/debian/try-job.sh clean/
in_root clean sh -c 'apt-get -qq update && cd packages &&
    apt-get -qq install --no-install-recommends ./*.deb g++ gfortran pkg-config openmpi-bin mpich' >clean.log
for mpi in openmpi mpich; do in_root clean ./try-job.sh $mpi; done
echo "the Debian packages passed"
