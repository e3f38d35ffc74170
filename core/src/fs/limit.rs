//! How many files may be open at once.
//!
//! The files of a rank are open together while they are protected, checked or rebuilt. Systems keep the soft limit low, often at
//! 1024, for programs that call `select`. A process may raise it to the hard limit.

use rustix::io::Errno;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::io;

/// Opens a file; where no more may be open, the limit is raised as far as it goes, and it is tried once more.
pub(super) fn open_with_room<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::MFILE) => {
            let limit = getrlimit(Resource::Nofile);
            // If it cannot be raised, or another thread has done so already, the second attempt fails.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
            open()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Files, How, RealFiles};
    use std::process::Command;

    const SOFT: u64 = 64;
    const NAME: &str = "fs::limit::tests::more_files_are_open_at_once_than_the_soft_limit_allows";

    /// A rank with more files than that could not be protected at all.
    #[test]
    fn more_files_are_open_at_once_than_the_soft_limit_allows() {
        // The limit is one of the process: another one, which runs this test alone, has the low one.
        if getrlimit(Resource::Nofile).current.is_none_or(|soft| soft > SOFT) {
            let again = format!("ulimit -S -n {SOFT}; exec /proc/$PPID/exe --exact {NAME}");
            let output = Command::new("sh").args(["-c", &again]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let open =
            |number: u64| RealFiles.open(&dir.path().join(number.to_string()), How::Create(0o600)).unwrap();
        let files: Vec<_> = (0..2 * SOFT).map(open).collect();
        assert!(files.iter().all(|file| file.status().is_ok()));
    }
}
