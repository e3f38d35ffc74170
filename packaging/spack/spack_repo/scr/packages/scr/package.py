# Copyright the authors of scr
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""For Spack 1.0 or newer. `make dist' copies this repository to target/dist/spack, with the checksum of the archive that
lies beside it there."""

import os
import pathlib

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *

_DIST = pathlib.Path(__file__).resolve().parents[5]


class Scr(MakefilePackage):
    """scr saves and restores the state of MPI applications. Checkpoints go to the memory or the local disks of the
    compute nodes, a redundancy scheme protects them against the loss of nodes, and some are copied to the parallel file
    system. It has the interface of LLNL's SCR library."""

    homepage = "https://scr.invalid/"
    url = f"file://{_DIST}/scr-1.0.0.tar.xz"
    test_requires_compiler = True

    license("MIT OR Apache-2.0")

    version("1.0.0", sha256="@SHA256@")

    variant("fortran", default=True, description="Compile the Fortran module with gfortran, where that is the compiler")
    variant("cache_base", default="/dev/shm", description="Where nodes keep checkpoints unless SCR_CACHE_BASE says")
    variant("cntl_base", default="/dev/shm", description="Where nodes keep records unless SCR_CNTL_BASE says")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("mpi")
    depends_on("rust@1.88:", type="build")
    depends_on("llvm+clang", type="build")  # libclang, for the bindings to MPI

    sanity_check_is_file = ["bin/scr", "include/scr.h", "lib/libscr.so", "lib/libscrf.so", "etc/scr.conf"]

    def setup_build_environment(self, env):
        # An external LLVM has it in a folder of its version. If none is found, its users search themselves.
        names = ["libclang.so*", "libclang-*.so*"]
        found = find(self.spec["llvm"].prefix, names)
        if found:
            env.set("LIBCLANG_PATH", os.path.dirname(found[0]))
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def setup_run_environment(self, env):
        env.set("SCR_DIR", self.prefix)
        env.set("SCR_ROOT", self.prefix)
        env.prepend_path("PYTHONPATH", self.prefix.share.scr.python)

    def make_options(self):
        """The same for every call of make, without the step that looks for packages."""
        bases = [f"SCR_{name.upper()}={self.spec.variants[name].value}" for name in ("cache_base", "cntl_base")]
        return ["--old-file", "deps", f"MPICC={self.spec['mpi'].mpicc}", *bases]

    @property
    def build_targets(self):
        return [*self.make_options(), "build"]

    @property
    def install_targets(self):
        fortran = "auto" if self.spec.satisfies("+fortran") else "no"
        options = ["--old-file", "build", f"PREFIX={self.prefix}", f"FORTRAN={fortran}"]
        return [*self.make_options(), *options, "install"]

    def test_plugins(self):
        """find the plugins of the tree"""
        scr = Executable(self.prefix.bin.scr)
        assert "PARTNER" in scr("plugin", "list", output=str.split, error=str.split)

    def test_heat2d(self):
        """compile an installed example and run it on one rank"""
        install_tree(self.prefix.share.scr.examples, ".")
        make = Executable(self.spec["gmake"].prefix.bin.make) if "gmake" in self.spec else which("make", required=True)
        make("heat2d", f"SCR_DIR={self.prefix}", f"MPICC={self.spec['mpi'].mpicc}")
        Executable("./heat2d")("--size", "64", "--steps", "20", "--every", "10", "--result", "heat.out")
