//! A Python with mpi4py for an MPI: a virtual environment in the build folder, made once.

use crate::mpi::{skip, starts, Mpi};
use crate::programs::{compile, target};
use std::path::PathBuf;
use std::process::Command;

/// The interpreter. `None`, and the test is skipped, where there is no Python or mpi4py cannot be built.
pub fn python(mpi: Mpi, test: &str) -> Option<PathBuf> {
    let folder = target(mpi).join("python");
    let interpreter = folder.join("bin/python3");
    let works =
        |interpreter: &PathBuf| starts(Command::new(interpreter).args(["-c", "import mpi4py, numpy"]));
    if works(&interpreter) {
        return Some(interpreter);
    }
    if !starts(Command::new("python3").args(["-c", "import venv, ensurepip"])) {
        skip(test, "python3 with venv");
        return None;
    }
    compile(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    // mpi4py belongs to one MPI: it is compiled for it.
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--no-binary", "mpi4py", "mpi4py", "numpy"]).env("MPICC", mpi.compiler());
    compile(&mut pip);
    Some(interpreter)
}
