"""Builds scr from scr-1.0.0.tar.xz, which `make dist' packs and which lies in the folder that spack is called in."""

import os

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Scr(MakefilePackage):
    """scr saves and restores the state of MPI applications. Checkpoints go to the memory or the local disks of the
    compute nodes, a redundancy scheme protects them against the loss of nodes, and some are copied to the parallel file
    system. It has the interface of LLNL's SCR library."""

    manual_download = True
    url = f"file://{os.getcwd()}/scr-1.0.0.tar.xz"

    license("MIT OR Apache-2.0")

    version("1.0.0")

    variant("cache_base", default="/dev/shm", description="Where nodes keep checkpoints unless SCR_CACHE_BASE says")
    variant("cntl_base", default="/dev/shm", description="Where nodes keep records unless SCR_CNTL_BASE says")

    depends_on("c", type="build")
    depends_on("mpi")
    depends_on("rust@1.88:", type="build")
    depends_on("llvm+clang", type="build")  # libclang, for the bindings to MPI

    def setup_build_environment(self, env):
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)

    def setup_run_environment(self, env):
        env.set("SCR_DIR", self.prefix)
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
        return [*self.make_options(), "--old-file", "build", f"PREFIX={self.prefix}", "install"]
