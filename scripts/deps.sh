#!/bin/bash
# Sees to what scr is built from, beside a Rust toolchain, gcc and make: both MPIs, and libclang for their bindings.
# deps.sh tests: also what only the tests need. deps.sh slurm: what `make test-slurm` needs besides.
# Installs what is missing where it may (Debian's apt, as root); says what to install where it may not.
set -euo pipefail
cd "$(dirname "$0")/.."
for_tests=${1:-}

need() { # need COMMAND WHAT: stops if there is no such command
    command -v "$1" >/dev/null || { echo "scr: $1 is missing: install $2" >&2 && exit 1; }
}
need cargo "Rust (https://rustup.rs)"
need gcc "gcc"
need make "make"

has_libclang() { # bindgen loads it while building; it is searched for as bindgen does
    [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null ||
        compgen -G '/usr/lib/*/libclang*.so*' >/dev/null || compgen -G '/usr/lib64/libclang*.so*' >/dev/null ||
        command -v llvm-config >/dev/null
}
has_clang_headers() { # stddef.h and its like, which do not come with libclang itself
    [ -n "${BINDGEN_EXTRA_CLANG_ARGS:-}" ] || compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' >/dev/null ||
        compgen -G '/usr/lib*/clang/*/include/stddef.h' >/dev/null
}
missing_packages() {
    [ "$(scripts/mpi-name mpicc.openmpi)" = openmpi ] || echo libopenmpi-dev
    command -v mpirun.openmpi >/dev/null || echo openmpi-bin
    [ "$(scripts/mpi-name mpicc.mpich)" = mpich ] || echo libmpich-dev
    command -v mpiexec.hydra >/dev/null || echo mpich
    [ "$for_tests" != tests ] || command -v g++ >/dev/null || echo g++
    [ "$for_tests" != tests ] || command -v mariadbd >/dev/null || echo mariadb-server
    [ "$for_tests" != slurm ] || command -v slurmctld >/dev/null || echo slurmctld slurmd slurm-client munge
    has_libclang && has_clang_headers || clang_packages
}
clang_packages() { # the two that are needed of the release's default version; libclang-dev would bring ten times more
    local version
    version=$(apt-cache depends libclang-dev 2>/dev/null | sed -n 's/.*Depends: libclang-\([0-9]*\)-dev.*/\1/p' | head -n 1)
    if [ -n "$version" ]; then
        echo "libclang1-$version libclang-common-$version-dev"
    else
        echo libclang-dev
    fi
}

packages=$(missing_packages | xargs)
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "scr: installing what is missing"
    apt-get update -qq
    packages=$(missing_packages | xargs) # a fresh machine has no package lists before
    echo "scr: apt-get install $packages"
    # shellcheck disable=SC2086 # one word per package
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
elif command -v "${MPICC:-$(scripts/find-mpicc)}" >/dev/null && has_libclang; then
    # One MPI is enough to build and to run; the tests say which they skip.
    echo "scr: going on without: $packages" >&2
else
    echo "scr: please install (or have your administrator install): $packages" >&2
    echo "scr: these are Debian's names; needed are one MPI with its compiler wrapper, and libclang" >&2
    exit 1
fi
