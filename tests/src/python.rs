//! A Python with mpi4py and numpy for an MPI: a virtual environment in the build folder, made once.

use crate::mpi::{skip, starts, Mpi};
use crate::programs::{compile, target};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter. `None`, and the test is skipped, where there is no Python with virtual environments.
pub fn python(mpi: Mpi, test: &str) -> Option<PathBuf> {
    let folder = target(mpi).join("python");
    let interpreter = folder.join("with-mpi");
    if starts(Command::new(&interpreter).args(["-c", "import mpi4py, numpy"])) {
        return Some(interpreter);
    }
    if !starts(Command::new("python3").args(["-c", "import venv, ensurepip"])) {
        skip(test, "python3 with venv");
        return None;
    }
    compile(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    compile(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "mpi4py", "numpy"]));
    write_wrapper(&interpreter, &folder, mpi).expect("the build folder can be written to");
    Some(interpreter)
}

/// mpi4py's wheel looks for MPICH's library under the name of its ABI, which Debian does not install.
fn write_wrapper(interpreter: &Path, folder: &Path, mpi: Mpi) -> std::io::Result<()> {
    let library = match mpi {
        Mpi::OpenMpi => "libmpi.so.40",
        Mpi::Mpich => "libmpich.so.12",
    };
    let found = Command::new("gcc").arg(format!("-print-file-name={library}")).output()?.stdout;
    let libraries = folder.join("mpi");
    std::fs::create_dir_all(&libraries)?;
    let name = if mpi == Mpi::Mpich { "libmpi.so.12" } else { library };
    symlink(String::from_utf8_lossy(&found).trim(), libraries.join(name))?;
    let script = format!(
        "#!/bin/sh\nexport MPI4PY_MPIABI={} LD_LIBRARY_PATH='{}'\nexec '{}' \"$@\"\n",
        mpi.name(),
        libraries.display(),
        folder.join("bin/python3").display()
    );
    std::fs::write(interpreter, script)?;
    std::fs::set_permissions(interpreter, std::fs::Permissions::from_mode(0o755))
}
