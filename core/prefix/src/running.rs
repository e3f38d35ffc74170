//! `running`: which jobs run in a prefix directory now, so that two jobs at the same time are both warned.
//!
//! Rank 0 holds a lock of the system on the file during the run, so any end of the run releases it, and nothing stale is trusted.
//! A job that finds the file locked appends its line, and the first job sees that the file has grown. It locks the first free one
//! of `running.2`, `running.3` and so on for itself, so what it counts on does not end with the first job.
//! If no file can be created, there is no warning. If the file system has no locks, the job says that.

use super::Prefix;
use scr_base::fs::{keep_from_readers, At, File, Files, FsError, How, LockAttempt, LOCKABLE};
use std::io;
use std::path::{Path, PathBuf};

/// The registration of a run, until it is dropped.
#[derive(Default)]
pub struct Running {
    lock: Option<RunLock>,
    /// Whether another run may have begun before this one that has not ended.
    pub is_second: bool,
    /// Whether the file system of the prefix directory has no locks.
    pub no_locks: bool,
}

struct RunLock {
    path: PathBuf,
    /// The file, with the lock on it.
    file: Box<dyn File>,
    /// How much of it has been read.
    read: u64,
}

/// Another run that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherRun {
    /// As it describes itself.
    pub line: String,
    /// When it began, in seconds since the epoch. `None` if it is just beginning, or could not write that.
    pub began: Option<u64>,
    /// Whether `MPI_Comm_spawn` has started it.
    pub is_spawned: bool,
}

impl OtherRun {
    /// Its allocation.
    pub fn allocation(&self) -> Option<&str> {
        Some(self.line.strip_prefix("allocation ")?.split_once(PROCESS)?.0)
    }

    /// The number of the process of its rank 0, and the node of that.
    pub fn process(&self) -> Option<(u32, &str)> {
        let (process, rest) = self.line.split_once(PROCESS)?.1.split_once(" on ")?;
        Some((process.parse().ok()?, rest.split(',').next()?))
    }

    /// Whether it lives on this node beyond doubt: its process has one of the files open, and nobody has killed it.
    pub fn lives_on(&self, files: &dyn Files, prefix: &Prefix, node: &str) -> bool {
        let Some((process, on)) = self.process() else { return false };
        let mut open = paths(prefix).map_while(|path| files.open(&path, How::Read).ok());
        // A process of another container may have the number of this one.
        on == node && process != std::process::id() && open.any(|file| file.is_open_in(process))
    }

    /// The runs that have begun in a prefix directory, and may have ended since.
    pub fn begun(files: &dyn Files, prefix: &Prefix) -> Vec<Self> {
        let open = paths(prefix).map_while(|path| files.open(&path, How::Read).ok());
        open.map(|file| Self::of(&line_at(&*file, 0))).collect()
    }

    /// The runs that are under way in a prefix directory, and whether those are all: there may be no locks, or a file cannot be opened.
    pub fn under_way(files: &dyn Files, prefix: &Prefix) -> (Vec<Self>, bool) {
        let mut runs = Vec::new();
        for path in paths(prefix) {
            let locked = |how| files.open(&path, how).map(|file| (file.try_lock(), file));
            let by_reader = locked(How::Read).ok().filter(|(locked, _)| *locked != LockAttempt::NoLocks);
            match by_reader.map_or_else(|| locked(How::Update), Ok) {
                Ok((LockAttempt::Taken, _)) => {}
                Ok((LockAttempt::Held, file)) => runs.push(Self::of(&line_at(&*file, 0))),
                Ok((LockAttempt::NoLocks, _)) => return (runs, false),
                Err(error) => return (runs, error.kind() == io::ErrorKind::NotFound),
            }
        }
        (runs, true)
    }

    /// From the line of a run.
    pub fn of(text: &str) -> Self {
        let mut fields = text.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        Self { line: next().to_owned(), began: next().parse().ok(), is_spawned: next() == SPAWNED }
    }
}

impl Running {
    /// Says that a run has begun, described by one line, when, in seconds since the epoch, and whether `MPI_Comm_spawn` has started
    /// it. Gives another one that has not ended. Never waits.
    pub fn begin(
        files: &dyn Files,
        prefix: &Prefix,
        line: &str,
        began: u64,
        is_spawned: bool,
    ) -> (Self, Option<OtherRun>) {
        let (mut running, mut other) = (Self::default(), None);
        let spawned = if is_spawned { format!("\t{SPAWNED}") } else { String::new() };
        for path in paths(prefix) {
            match running.register(files, &path, &format!("{line}\t{began}{spawned}\n")) {
                Ok(found) => other = other.or(found),
                Err(error) => {
                    // Whether more runs hold the files that follow is not known.
                    running.is_second |= running.is_known() && error.kind() != io::ErrorKind::NotFound;
                    break;
                }
            }
        }
        (running, other)
    }

    /// Locks one of the files, if this run has none yet. Gives the run that has locked it.
    fn register(&mut self, files: &dyn Files, path: &Path, line: &str) -> io::Result<Option<OtherRun>> {
        let how = if self.is_known() { How::Update } else { How::Ensure(LOCKABLE) };
        let to_write = files.open(path, how)?;
        keep_from_readers(&*to_write, &to_write.status()?);
        let to_read = files.open(path, How::Read)?;
        // A file that stays open to be written keeps its file system from being made read-only; but NFS locks no other.
        let by_reader = to_read.try_lock();
        let holds_reader = by_reader != LockAttempt::NoLocks;
        let locked = if holds_reader { by_reader } else { to_write.try_lock() };
        if locked == LockAttempt::NoLocks {
            self.no_locks = true;
            return Err(io::ErrorKind::Unsupported.into());
        }
        if locked == LockAttempt::Held {
            self.is_second = true;
            let first = line_at(&*to_read, 0);
            // If this fails, the other one gets no warning.
            let _ = to_read.status().and_then(|status| to_write.write_at(status.len, line.as_bytes()));
            return Ok(Some(OtherRun::of(&first)));
        }
        if !self.is_known() {
            // Without it another run is warned as well, with fewer words.
            let written = to_write.set_len(0).and_then(|()| to_write.write_at(0, line.as_bytes()));
            let file = if holds_reader { to_read } else { to_write };
            let path = path.to_owned();
            self.lock = Some(RunLock { path, file, read: written.map_or(u64::MAX, |()| line.len() as u64) });
        }
        Ok(None)
    }

    /// Whether a run may be under way: one is, or that cannot be found out.
    pub fn may_be_any(files: &dyn Files, prefix: &Prefix) -> bool {
        let (runs, is_all) = OtherRun::under_way(files, prefix);
        !runs.is_empty() || !is_all
    }

    /// Whether this run and others learn of each other.
    pub fn is_known(&self) -> bool {
        self.lock.is_some()
    }

    /// # Errors
    /// The application has closed the file, and others take this run for one that has ended.
    pub fn expect_known(&self) -> Result<(), FsError> {
        let mut lock = self.lock.iter();
        lock.try_for_each(|lock| lock.file.descriptor().map(drop).at("keep the lock of", &lock.path))
    }

    /// The line of a run that has begun since this was asked last, if this one has a lock.
    pub fn newcomer(&mut self) -> Option<String> {
        let claim = self.lock.as_mut()?;
        let len = claim.file.status().ok()?.len;
        let from = std::mem::replace(&mut claim.read, len);
        (len > from).then(|| OtherRun::of(&line_at(&*claim.file, from)).line)
    }
}

/// The files that runs lock. Each exists only if those before it do.
fn paths(prefix: &Prefix) -> impl Iterator<Item = PathBuf> + '_ {
    let later = (2..=MOST_RUNS).map(|number| format!("{RUNNING}.{number}"));
    std::iter::once(RUNNING.to_owned()).chain(later).map(|name| prefix.scr_file(&name))
}

fn line_at(file: &dyn File, from: u64) -> String {
    let mut text = vec![0; LONGEST];
    let len = file.read_at(from, &mut text).unwrap_or(0);
    String::from_utf8_lossy(&text[..len]).lines().next().unwrap_or_default().to_owned()
}

const RUNNING: &str = "running";
const SPAWNED: &str = "spawned";
/// In the line of a run, before the number of the process of rank 0 and ` on ` its node.
const PROCESS: &str = ", rank 0 is process ";
/// How many runs at the same time learn of each other.
const MOST_RUNS: u32 = 100;
/// The longest part of a line that is read.
const LONGEST: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::{is_of_closed_file, RealFiles};
    use scr_test_kit::descriptors::{closes, give_away, open_below};

    /// The next run takes it for one that has ended.
    #[test]
    fn a_run_whose_lock_the_application_has_closed_is_not_known_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        prefix.make_scr_dir(&RealFiles).unwrap();
        let (running, _) = Running::begin(&RealFiles, &prefix, "a run", 1, false);
        running.expect_known().unwrap();
        let theirs = dir.path().join("theirs");
        let numbers = open_below(&prefix.scr_file(RUNNING));
        assert_eq!(numbers.len(), 1);
        give_away(numbers[0], std::fs::File::create(&theirs).unwrap());
        assert!(!Running::may_be_any(&RealFiles, &prefix));
        let error = running.expect_known().unwrap_err();
        assert!(is_of_closed_file(&error), "{error}");
        assert!(error.to_string().starts_with("cannot keep the lock of "), "{error}");
        drop(running);
        assert!(closes(numbers[0], &theirs));
    }
}
