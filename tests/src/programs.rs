//! The C programs that jobs run: compiled against the built tree, once per process and MPI.

use crate::mpi::Mpi;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A program of `tests/programs` or `examples`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// Writes datasets of any shape and checks every byte at a restart.
    CkptTest,
    /// Calls everything wrongly.
    ApiMisuse,
    /// Closes the files of scr.
    ClosesAll,
    /// Has one session after the other, on different communicators.
    Sessions,
    /// Starts others of its kind while it has a session.
    Spawns,
    /// Is coupled with one that uses SCR, and does not use it itself.
    Coupled,
    /// Restarts and copies what it gets to a folder.
    CopyRestart,
    /// One rank comes late to a call.
    Late,
    /// Another number of ranks reads a checkpoint, whose files come from other nodes.
    Lends,
    /// MPI fails on one rank.
    MpiFails,
    /// Ranks write files together.
    MpiIo,
    /// The example.
    Heat2d,
    /// The suite of all communicators, over MPI. Not of C.
    CommSuite,
    /// The `scr` command, one process for each rank.
    Scr,
}

impl Program {
    fn source(self) -> &'static str {
        match self {
            Program::CkptTest => "tests/programs/ckpt_test.c",
            Program::ApiMisuse => "tests/programs/api_misuse.c",
            Program::ClosesAll => "tests/programs/closes_all.c",
            Program::Sessions => "tests/programs/sessions.c",
            Program::Spawns => "tests/programs/spawns.c",
            Program::Coupled => "tests/programs/coupled.c",
            Program::CopyRestart => "tests/programs/copy_restart.c",
            Program::Late => "tests/programs/late.c",
            Program::Lends => "tests/programs/lends.c",
            Program::MpiFails => "tests/programs/mpi_fails.c",
            Program::MpiIo => "tests/programs/mpi_io.c",
            Program::Heat2d => "examples/heat2d.c",
            Program::CommSuite => "ffi/tests/programs/comm_suite.rs",
            Program::Scr => "tools/src/main.rs",
        }
    }

    /// The path of the compiled program.
    pub fn path(self, mpi: Mpi) -> PathBuf {
        static COMPILED: Mutex<Option<HashMap<(Program, Mpi), PathBuf>>> = Mutex::new(None);
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = compiled.get_or_insert_with(HashMap::new);
        compiled.entry((self, mpi)).or_insert_with(|| self.compile(mpi)).clone()
    }

    fn compile(self, mpi: Mpi) -> PathBuf {
        if self == Program::Scr {
            return stage(mpi).join("bin/scr");
        }
        if self == Program::CommSuite {
            return repository().join("target/debug").join(mpi.name()).join("comm_suite");
        }
        let folder = target(mpi).join("programs");
        std::fs::create_dir_all(&folder).expect("the folder for programs can be made");
        let name = Path::new(self.source()).file_stem().unwrap_or_default();
        let (program, fresh) =
            (folder.join(name), folder.join(format!("{}.{}", name.to_string_lossy(), std::process::id())));
        let lib = stage(mpi).join("lib");
        let mut command = Command::new(mpi.compiler());
        command.args([
            "-std=c99",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-pthread",
            "-DUSE_SCR",
            "-o",
        ]);
        command.arg(&fresh).arg(repository().join(self.source())).arg("-I").arg(stage(mpi).join("include"));
        command.arg("-L").arg(&lib).arg("-lscr").arg(format!("-Wl,-rpath,{}", lib.display()));
        compile(&mut command);
        // A program that still runs somewhere keeps its file.
        std::fs::rename(&fresh, &program).expect("a compiled program can be renamed");
        program
    }
}

/// Runs a compiler; panics with its words if it fails.
pub fn compile(command: &mut Command) {
    let output = command.output().expect("the compiler can be started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{words}");
}

/// The installed tree that the jobs use.
pub fn stage(mpi: Mpi) -> PathBuf {
    let stage = repository().join("target/stage").join(mpi.name());
    let there = stage.join("lib/libscr.so").exists();
    assert!(there, "{} is not there: run `make stage MPICC={}`", stage.display(), mpi.compiler());
    stage
}

/// The folder of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new(OsStr::new("/")))
}

/// The build folder of an MPI.
pub fn target(mpi: Mpi) -> PathBuf {
    repository().join("target").join(mpi.name())
}
