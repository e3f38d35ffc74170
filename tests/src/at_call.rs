//! Something happens at a chosen call of the system below the prefix directory: see `tests/programs/at_call.c`.

use crate::job::Job;
use crate::programs::{compile, repository};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A call of the system below the prefix directory: the nth of its kind with this text in its path.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    rank: Option<u32>,
    call: &'static str,
    path: &'static str,
    nth: u32,
}

/// A call of one rank, or of what it has started.
pub const fn on_rank(rank: u32, call: &'static str, path: &'static str, nth: u32) -> Call {
    Call { rank: Some(rank), call, path, nth }
}

/// A call of each process of a job.
pub const fn on_all(call: &'static str, path: &'static str, nth: u32) -> Call {
    Call { rank: None, call, path, nth }
}

impl Job<'_> {
    /// This happens at a call, as `AT_DO` in `at_call.c` has it.
    pub fn at(self, at: Call, act: &str) -> Self {
        let job = self.env("LD_PRELOAD", library().display()).env("AT_NTH", at.nth).env("AT_DO", act);
        let job = job.env("AT_CALL", at.call).env("AT_PATH", at.path);
        match at.rank {
            Some(rank) => job.env("AT_RANK", rank),
            None => job,
        }
    }
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = repository().join("target/at_call.so");
        let fresh = library.with_extension("new");
        let source = repository().join("tests/programs/at_call.c");
        let mut command = Command::new("gcc");
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        compile(command.arg(&fresh).arg(source).arg("-ldl"));
        std::fs::rename(&fresh, &library).expect("a compiled library can be renamed");
        library
    })
}
