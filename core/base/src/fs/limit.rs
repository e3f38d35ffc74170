//! How many files may be open at once.
//!
//! The files of a rank are open together while they are protected, checked or rebuilt. Systems keep the soft limit low, often at
//! 1024, for programs that call `select`. A process may raise it to the hard limit.

use rustix::fs::{statvfs, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use scr_plugin_api::{above_standard, with_limit, Closed};
use std::error::Error;
use std::io;
use std::path::Path;

/// Opens a file; where no more may be open, the limit is raised as far as it goes, and it is tried once more.
/// The application does not print to what is opened.
pub(super) fn open_with_room<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let open = || above_standard(&open);
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

/// An error of the system at a path, with what can be done about it where it is that no more files may be open, or made.
pub(super) fn explained(error: io::Error, path: &Path) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => io::Error::other(TooManyOpen { most: getrlimit(Resource::Nofile).current }),
        _ if error.kind() == io::ErrorKind::StorageFull => expect_inodes(path).err().unwrap_or(error),
        _ => with_limit(error),
    }
}

/// Fails if no more files can be made on the file system of a path, which need not be there.
///
/// # Errors
/// All inodes are in use.
pub fn expect_inodes(path: &Path) -> io::Result<()> {
    match path.ancestors().find_map(|there| statvfs(there).ok()) {
        Some(system) if system.f_files > 0 && system.f_favail == 0 => {
            Err(io::Error::new(io::ErrorKind::StorageFull, NoInodes))
        }
        _ => Ok(()),
    }
}

/// Whether it says that no more files may be open, in this process or in all.
pub(super) fn is_of_too_many_open(error: &io::Error) -> bool {
    let is_explained = error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<TooManyOpen>);
    is_explained || matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// The error, if this process can open no file at this moment as too many are open.
pub(super) fn exhausted() -> Option<io::Error> {
    let any = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    any.err().filter(|&error| error == Errno::MFILE).map(|error| explained(error.into(), Path::new("/")))
}

/// Whether it follows from an error that says that the application has closed a file of scr.
pub fn is_of_closed_file(error: &(dyn Error + 'static)) -> bool {
    let of_system = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    of_system.is_some_and(<dyn Error + Send + Sync>::is::<Closed>)
        || error.source().is_some_and(is_of_closed_file)
}

/// No more files may be open.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process may have {} files open at once, and has them; raise that limit before the job starts (ulimit -n, and for the \
     hard limit limits.conf or the batch system), or close files", most.map_or("no more".to_owned(), |most| most.to_string())
)]
struct TooManyOpen {
    most: Option<u64>,
}

/// No more files can be made.
#[derive(Debug, thiserror::Error)]
#[error("all inodes of its file system are in use, whatever room is left (df -i): remove files there")]
struct NoInodes;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::error::At;
    use crate::fs::{Durability, Files, How, RealFiles};
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

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Above(#[from] super::super::FsError);

    #[test]
    fn a_file_that_somebody_has_closed_is_recognised_below_all_errors() {
        let of = |error: io::Error| {
            let error = Err::<(), _>(error).at("write", std::path::Path::new("/a")).unwrap_err();
            (crate::describe(&error), is_of_closed_file(&Above::from(error)))
        };
        let (text, is_closed) = of(io::Error::other(Closed { is_reused: false }));
        assert!(
            text.starts_with("cannot write /a: a file that scr keeps open was closed") && is_closed,
            "{text}"
        );
        assert!(!of(Errno::IO.into()).1);
    }

    const FEW: &str = "fs::limit::tests::where_no_more_files_may_be_open_the_error_gives_the_limit";

    /// It said that the process had been stopped until another one took its lock.
    #[test]
    fn where_no_more_files_may_be_open_the_error_gives_the_limit() {
        if getrlimit(Resource::Nofile).maximum.is_none_or(|hard| hard > SOFT) {
            let again = format!("ulimit -n {SOFT}; exec /proc/$PPID/exe --exact {FEW}");
            let output = Command::new("sh").args(["-c", &again]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (files, lock): (&dyn Files, _) = (&RealFiles, dir.path().join("lock"));
        let expect = |text: &str| {
            assert!(text.contains(&format!("this process may have {SOFT} files open at once")), "{text}");
            assert!(text.contains("ulimit -n") && !text.contains("stopped"), "{text}");
        };
        let changed = files.exclusively(&lock, |is_ours| {
            let target = dir.path().join("index");
            let mut open = Vec::new();
            let full = loop {
                match files.open(&lock, How::Read).at("open", &lock) {
                    Ok(file) => open.push(file),
                    Err(error) => break error,
                }
            };
            expect(&crate::describe(&full));
            // With room for the new file, and none to look at the lock.
            open.pop();
            let error =
                files.write_fenced(&target, b"new", 0o600, Durability::Unsynced, is_ours).unwrap_err();
            expect(&crate::describe(&error));
            assert!(!target.exists());
            drop(open);
            files.write_fenced(&target, b"new", 0o600, Durability::Unsynced, is_ours)
        });
        changed.unwrap().value.unwrap();
    }
}
