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
    /// Only this thread, and in any folder.
    thread: Option<&'static str>,
}

/// A call of one rank, or of what it has started.
pub const fn on_rank(rank: u32, call: &'static str, path: &'static str, nth: u32) -> Call {
    Call { rank: Some(rank), call, path, nth, thread: None }
}

/// A call of each process of a job.
pub const fn on_all(call: &'static str, path: &'static str, nth: u32) -> Call {
    Call { rank: None, call, path, nth, thread: None }
}

impl Call {
    /// Only a call of the thread with this name, of a file in any folder.
    pub const fn of_thread(self, name: &'static str) -> Self {
        Self { thread: Some(name), ..self }
    }

    /// The environment of a job in which this happens at the call.
    pub fn variables(self, act: &str) -> Vec<(&'static str, String)> {
        let text = str::to_owned;
        let mut variables = vec![("LD_PRELOAD", library().display().to_string()), ("AT_DO", text(act))];
        variables.extend([("AT_CALL", text(self.call)), ("AT_PATH", text(self.path))]);
        variables.push(("AT_NTH", self.nth.to_string()));
        variables.extend(self.rank.map(|rank| ("AT_RANK", rank.to_string())));
        if let Some(name) = self.thread {
            variables.extend([("AT_THREAD", text(name)), ("AT_BELOW", text("/"))]);
        }
        variables
    }
}

impl Job<'_> {
    /// This happens at a call, as `AT_DO` in `at_call.c` has it.
    pub fn at(self, at: Call, act: &str) -> Self {
        at.variables(act).into_iter().fold(self, |job, (name, value)| job.env(name, value))
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
