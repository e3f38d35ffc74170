#!/bin/bash
# Sees to what scr is built from: a Rust toolchain, gcc, both MPIs, and libclang for their bindings.
# deps.sh tests: also what only the tests need. deps.sh slurm, deps.sh deb, deps.sh rpm, deps.sh lammps: what
# `make test-slurm', `make test-deb', `make test-rpm', `make test-lammps' need.
# Installs what is missing where it may (as root, by apt, dnf or zypper); says what to install where it may not.
set -euo pipefail
cd "$(dirname "$0")/.."
for_tests=${1:-}

has_libclang() { # bindgen loads it while building; it is searched for as bindgen does
    [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null ||
        compgen -G '/usr/lib/*/libclang*.so*' >/dev/null || compgen -G '/usr/lib64/libclang*.so*' >/dev/null ||
        command -v llvm-config >/dev/null
}
has_clang_headers() { # stddef.h and its like, which do not come with libclang itself
    [ -n "${BINDGEN_EXTRA_CLANG_ARGS:-}" ] || compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' >/dev/null ||
        compgen -G '/usr/lib*/clang/*/include/stddef.h' >/dev/null
}
least_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
is_new_enough() { # is_new_enough VERSION
    printf '%s\n' "$least_rust" "$1" | sort --version-sort --check=quiet
}
has_rust() {
    command -v cargo >/dev/null && is_new_enough "$(cargo --version | cut -d ' ' -f 2)"
}
# The names in this script are Debian's.
manager=$(basename "$(command -v apt-get dnf zypper | head -n 1 || true)")
names() { # names: of the packages that are read, as this system has them; nothing where another package brings it
    local name
    for name in $(cat); do
        case $manager:$name in
        dnf:g++ | zypper:g++) echo gcc-c++ ;;
        dnf:gfortran) echo gcc-gfortran ;;
        zypper:gfortran) echo gcc-fortran ;;
        dnf:libc6-dev | zypper:libc6-dev) echo glibc-devel ;;
        dnf:libclang-dev | zypper:libclang-dev) echo clang-devel ;;
        dnf:libmpich-dev | zypper:libmpich-dev) echo mpich-devel ;;
        dnf:libopenmpi-dev) echo openmpi-devel ;;
        zypper:libopenmpi-dev) echo openmpi4-devel ;;
        dnf:openmpi-bin) echo openmpi ;;
        zypper:openmpi-bin) echo openmpi4 ;;
        zypper:mariadb-server) echo mariadb ;;
        dnf:rpm | zypper:rpm) echo rpm-build ;;
        dnf:pkg-config | zypper:pkg-config) echo pkgconf-pkg-config ;;
        dnf:python3-dev | zypper:python3-dev) echo python3-devel ;;
        dnf:prometheus) echo golang-github-prometheus ;;
        zypper:prometheus) echo golang-github-prometheus-prometheus ;;
        dnf:prometheus-node-exporter) echo node-exporter ;;
        zypper:prometheus-node-exporter) echo golang-github-prometheus-node_exporter ;;
        dnf:python3-venv | zypper:python3-venv) ;;
        *) echo "$name" ;;
        esac
    done
}
has_mpi() { # has_mpi NAME LAUNCHER: Debian has a suffix for each MPI, the others a folder
    local folder
    [ "$(scripts/mpi-name "mpicc.$1")" != "$1" ] || ! command -v "$2" >/dev/null || return 0
    for folder in /usr/lib64/"$1"*/bin /usr/lib64/mpi/gcc/"$1"*/bin; do
        [ "$(scripts/mpi-name "$folder/mpicc")" != "$1" ] || return 0
    done
    return 1
}
rust_package() { # Debian 12 has one beside its own that is new enough, for browsers
    local name version
    [ "$manager" = apt-get ] || { echo cargo && return; }
    for name in cargo cargo-web; do
        version=$(apt-cache policy $name 2>/dev/null | sed -n 's/^ *Candidate: \([0-9].*\)/\1/p')
        ! is_new_enough "$version" || { echo $name && return; }
    done
}
missing_packages() {
    has_rust || rust_package
    command -v gcc >/dev/null || echo gcc libc6-dev
    has_mpi openmpi mpirun.openmpi || echo libopenmpi-dev openmpi-bin
    has_mpi mpich mpiexec.hydra || echo libmpich-dev mpich
    [ "$for_tests" != tests ] || command -v g++ >/dev/null || echo g++
    [ "$for_tests" != tests ] || command -v mariadbd >/dev/null || echo mariadb-server
    [ "$for_tests" != tests ] || command -v gfortran >/dev/null || echo gfortran
    [ "$for_tests" != tests ] || command -v cmake >/dev/null || echo cmake
    [ "$for_tests" != tests ] || command -v pkg-config >/dev/null || echo pkg-config
    [ "$for_tests" != tests ] || has_python || echo python3-venv python3-dev
    [ "$for_tests" != tests ] || command -v promtool >/dev/null || echo prometheus
    [ "$for_tests" != tests ] || command -v prometheus-node-exporter >/dev/null || echo prometheus-node-exporter
    [ "$for_tests" != tests ] || command -v chromium >/dev/null || echo chromium
    # Only newer releases have it. If it is missing, the tests of the book are skipped: to compile it takes minutes (make book).
    [ "$for_tests" != tests ] || command -v mdbook >/dev/null || ! has_candidate mdbook || echo mdbook
    [ "$for_tests" != slurm ] || command -v slurmctld >/dev/null || echo slurmctld slurmd slurm-client munge
    [ "$for_tests" != deb ] || command -v debootstrap >/dev/null || echo debootstrap
    [ "$for_tests" != deb ] || command -v dpkg-source >/dev/null || echo dpkg-dev
    [ "$for_tests" != rpm ] || command -v rpmbuild >/dev/null || echo rpm
    [ "$for_tests" != lammps ] || has_lammps || echo lammps python3-lammps liblammps-dev python3-mpi4py
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

has_candidate() { # has_candidate PACKAGE: whether this release has it
    apt-cache policy "$1" 2>/dev/null | grep -q '^ *Candidate: [0-9]'
}

has_python() { # mpi4py is compiled for each MPI in a virtual environment
    python3 -c 'import venv, ensurepip' 2>/dev/null
}

has_lammps() { # its module looks for the library by a name that only the package for developers has
    command -v lmp >/dev/null &&
        /usr/bin/python3 -c 'import ctypes, lammps, mpi4py; ctypes.CDLL("liblammps.so")' 2>/dev/null
}

has_compilers() {
    has_rust && command -v gcc >/dev/null
}

# Tests start servers of their own. No service that comes with a package is to run besides, now or after the next boot.
install_without_services() { # install_without_services PACKAGE...
    case $manager in
    dnf) dnf install -y -q --setopt=install_weak_deps=False "$@" && return ;;
    zypper) zypper --quiet --non-interactive install --no-recommends "$@" && return ;;
    esac
    local policy=/usr/sbin/policy-rc.d package
    if [ ! -e "$policy" ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    for package in "$@"; do
        case $package in
        prometheus | prometheus-node-exporter)
            ! command -v systemctl >/dev/null || systemctl disable --quiet "$package" 2>/dev/null || true
            ;;
        esac
    done
}

packages=$(missing_packages | names | xargs)
if [ -z "$packages" ] && has_compilers; then exit 0; fi
if [ "$(id -u)" = 0 ] && [ -n "$manager" ]; then
    echo "scr: installing what is missing"
    if [ "$manager" = apt-get ]; then
        apt-get update -qq
        packages=$(missing_packages | xargs) # a fresh machine has no package lists before
    fi
    echo "scr: $manager install $packages"
    # shellcheck disable=SC2086 # one word per package
    install_without_services $packages || {
        [ "$manager" != dnf ] || echo "scr: on RHEL and its kin, some of these are in EPEL, which needs CRB" >&2
        exit 1
    }
elif has_compilers && command -v "${MPICC:-$(scripts/find-mpicc)}" >/dev/null && has_libclang; then
    # One MPI is enough to build and to run; the tests say which they skip.
    echo "scr: going on without: $packages" >&2
else
    echo "scr: please install (or have your administrator install): $packages" >&2
    [ -n "$manager" ] || echo "scr: these are Debian's names" >&2
    echo "scr: needed are gcc, one MPI with its compiler wrapper, and libclang" >&2
    has_rust || echo "scr: and Rust $least_rust or newer, which https://rustup.rs has for every system" >&2
    exit 1
fi
has_rust || {
    echo "scr: Rust $least_rust or newer is needed, which this release has no package of: see https://rustup.rs" >&2
    exit 1
}
