//! Which MPIs there are, and how a test with a missing MPI is skipped.

use crate::programs::repository;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Command, Stdio};

/// An MPI that jobs are tested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mpi {
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
}

impl Mpi {
    /// Its name in the build folders and for the scripts.
    pub fn name(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }

    /// Its compiler wrapper.
    pub fn compiler(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "mpicc.openmpi",
            Mpi::Mpich => "mpicc.mpich",
        }
    }

    /// Its compiler wrapper for a language: `cc`, `cxx`, `f77` or `f90`.
    pub fn compiler_of(self, language: &str) -> String {
        format!("mpi{language}.{}", self.name())
    }

    fn is_there(self) -> bool {
        let launcher = repository().join("scripts/mpi-launcher");
        starts(Command::new(self.compiler()).arg("--version"))
            && starts(Command::new(launcher).arg(self.name()))
    }
}

/// Runs `body` under the first MPI that is there, or under all with `SCR_TEST_EVERY_MPI=1`.
pub fn run_on_any(test: &str, body: impl Fn(Mpi)) {
    let there: Vec<Mpi> = [Mpi::OpenMpi, Mpi::Mpich].into_iter().filter(|mpi| mpi.is_there()).collect();
    if there.is_empty() {
        skip(test, Mpi::OpenMpi.compiler());
    }
    let is_every = std::env::var("SCR_TEST_EVERY_MPI").is_ok_and(|value| value == "1");
    there.into_iter().take(if is_every { 2 } else { 1 }).for_each(body);
}

/// Runs `body` if the MPI is there.
pub fn run_if_there(mpi: Mpi, test: &str, body: impl FnOnce(Mpi)) {
    if mpi.is_there() {
        body(mpi);
    } else {
        skip(test, mpi.compiler());
    }
}

/// Runs `body` if there is such a compiler.
pub fn with_compiler(compiler: &str, test: &str, body: impl FnOnce()) {
    if starts(Command::new(compiler).arg("--version")) {
        body();
    } else {
        skip(test, compiler);
    }
}

/// Runs `body` if there is such a program, which `scripts/deps.sh` does not install.
pub fn with_optional(program: &str, test: &str, body: impl FnOnce()) {
    if starts(Command::new(program).arg("--version")) {
        body();
    } else {
        record_skip(test, program);
    }
}

/// Whether Debian's LAMMPS is there, with its module for the system's Python; a test that needs it is skipped otherwise.
pub fn has_lammps(test: &str) -> bool {
    let script = "import ctypes, lammps, mpi4py; ctypes.CDLL('liblammps.so')";
    let there = starts(Command::new("lmp").arg("-help"))
        && starts(Command::new("/usr/bin/python3").args(["-c", script]));
    if !there {
        record_skip(test, "LAMMPS (scripts/deps.sh lammps)");
    }
    there
}

/// Whether this machine can pretend to have nodes with host names of their own; a test that needs them is skipped otherwise.
pub fn has_namespaces(test: &str) -> bool {
    let there = pretends_by_namespaces();
    if !there {
        record_skip(test, "a namespace for each node");
    }
    there
}

/// Whether a node is a namespace, and not only a name.
pub(crate) fn pretends_by_namespaces() -> bool {
    let mode = std::env::var("PRETEND_MODE").ok().unwrap_or_else(|| {
        let asked = Command::new(repository().join("scripts/pretend-mode")).output();
        asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    });
    mode.trim() == "namespaces"
}

/// Ends a test that needs nodes with host names of their own, where there are none.
#[macro_export]
macro_rules! needs_namespaces {
    () => {
        if !$crate::has_namespaces(module_path!()) {
            return;
        }
    };
}

/// As root, a missing program fails the test, since it could have been installed. Anybody else gets a skip, which
/// is printed and counted: one line in the file that `SCR_TESTS_SKIPPED` names.
pub(crate) fn skip(test: &str, missing: &str) {
    assert!(!rustix::process::geteuid().is_root(), "{missing} is not there; run `scripts/deps.sh tests`");
    record_skip(test, missing);
}

/// Prints and counts a test that is skipped because something is missing that nobody installs by itself.
pub fn record_skip(test: &str, missing: &str) {
    let line = format!("skipped: {test}: {missing} is not there\n");
    print!("{line}");
    if let Some(list) = std::env::var_os("SCR_TESTS_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(list);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the list of skipped tests can be written");
    }
}

pub(crate) fn starts(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Makes a test under Open MPI and one under MPICH of each function: `fn name(mpi: Mpi) { ... }`.
#[macro_export]
macro_rules! on_each_mpi {
    ($( $(#[$attribute:meta])* fn $name:ident($mpi:ident: Mpi) $body:block )+) => {$(
        #[cfg(test)]
        mod $name {
            use super::*;

            fn body($mpi: $crate::Mpi) $body

            $(#[$attribute])*
            #[test]
            fn openmpi() {
                $crate::run_if_there($crate::Mpi::OpenMpi, stringify!($name), body);
            }

            $(#[$attribute])*
            #[test]
            fn mpich() {
                $crate::run_if_there($crate::Mpi::Mpich, stringify!($name), body);
            }
        }
    )+};
}

/// Makes one test of each function that tries what no MPI has a part in: see [`run_on_any`](crate::run_on_any).
#[macro_export]
macro_rules! on_any_mpi {
    ($( $(#[$attribute:meta])* fn $name:ident($mpi:ident: Mpi) $body:block )+) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            fn body($mpi: $crate::Mpi) $body

            $crate::run_on_any(stringify!($name), body);
        }
    )+};
}
