//! So many ranks at a time, and no more: `SCR_FLUSH_WIDTH` and `SCR_FETCH_WIDTH`.
//!
//! Each rank waits for the one `width` before it. Ranks that are in the same call tell each other; the threads of an asynchronous flush, which may
//! not, leave signs below the prefix directory. Processes that outlive the application, and of which any may die unseen, wait for nobody in particular:
//! they take one of `width` places.

use crate::comm::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, Tag};
use crate::fs::{At, Files, FsError, How};
use crate::prefix::{Prefix, DIR_MODE, FILE_MODE};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Does the work when it is this rank's turn: at most `width` ranks are at it at any moment. Each rank waits for the
/// one `width` before it, so a slow rank holds up only those detached it. All ranks call it.
pub(crate) fn in_turn<T>(comm: &dyn Comm, width: u32, work: impl FnOnce() -> T) -> Result<T, CommError> {
    let (me, width) = (comm.rank().0, width.max(1));
    if let Some(before) = me.checked_sub(width) {
        exchange_all(comm, TURN, &[], &mut [Incoming { from: Rank(before), bytes: &mut [] }])?;
    }
    let value = work();
    if let Some(after) = me.checked_add(width).filter(|&after| after < comm.size()) {
        exchange_all(comm, TURN, &[Outgoing { to: Rank(after), bytes: &[] }], &mut [])?;
    }
    Ok(value)
}

const TURN: Tag = Tag(41);

/// The signs that the ranks of one flush give each other: empty files in a folder of their own, `.scr/turns.<token>`. Nothing is lost with them, so
/// they are not synced.
pub(crate) struct Signs {
    folder: PathBuf,
    me: u32,
    ranks: u32,
    width: u32,
}

impl Signs {
    pub(crate) fn new(prefix: &Prefix, token: &str, me: u32, ranks: u32, width: u32) -> Self {
        Self { folder: prefix.scr_file(&format!("turns.{token}")), me, ranks, width: width.max(1) }
    }

    /// From here on the first ranks may copy. Rank 0 says so.
    pub(crate) fn begin(&self, files: &dyn Files) -> Result<(), FsError> {
        files.make_dir(&self.folder, DIR_MODE).at("make the folder", &self.folder)?;
        leave(files, &self.folder.join(BEGUN))
    }

    /// Whether this rank waits for nobody but rank 0.
    pub(crate) fn is_first(&self) -> bool {
        self.me < self.width
    }

    /// What this rank waits for.
    pub(crate) fn awaited(&self) -> PathBuf {
        let before = self.me.checked_sub(self.width);
        self.folder.join(before.map_or_else(|| BEGUN.to_owned(), |rank| rank.to_string()))
    }

    /// This rank's turn has come; what it waited for is of no use any more.
    pub(crate) fn take(&self, files: &dyn Files) {
        if !self.is_first() {
            // What is left goes with the folder.
            let _ = files.remove_file(&self.awaited());
        }
    }

    /// This rank is done, and the one that waits for it may begin.
    pub(crate) fn pass(&self, files: &dyn Files) -> Result<(), FsError> {
        match self.me.checked_add(self.width) {
            Some(after) if after < self.ranks => leave(files, &self.folder.join(self.me.to_string())),
            _ => Ok(()),
        }
    }

    /// Removes all signs of a flush. No rank of it leaves any now.
    pub(crate) fn clear(files: &dyn Files, prefix: &Prefix, token: &str) -> Result<(), FsError> {
        files.remove_tree(&Self::new(prefix, token, 0, 0, 1).folder)
    }
}

fn leave(files: &dyn Files, path: &Path) -> Result<(), FsError> {
    files.open(path, How::Create(FILE_MODE)).at("create", path).map(drop)
}

/// The sign of rank 0; those of the others are their numbers.
const BEGUN: &str = "begun";

/// The places in a folder that all nodes see, each of which one process has at a time: a lock file with its number. A process that dies gives its place
/// back without a word; see `if_free`.
#[derive(Clone, Copy)]
pub struct SharedSlots<'a> {
    /// Sees the folder.
    pub files: &'a dyn Files,
    /// It is there only while anybody has, or had, a place.
    pub folder: &'a Path,
    /// How many.
    pub count: u32,
}

impl SharedSlots<'_> {
    /// The folder for what is copied to a prefix directory.
    pub(crate) fn folder(prefix: &Prefix) -> PathBuf {
        prefix.scr_file("turns")
    }

    /// Does `work` if a place is free, and gives whether it was done. Where the folder cannot be used nobody is held up.
    pub fn take(&self, work: &mut dyn FnMut()) -> bool {
        let done = match self.files.make_dir(self.folder, DIR_MODE) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => None,
            _ => self.try_take(work),
        };
        let done = done.unwrap_or_else(|| {
            work();
            true
        });
        if done {
            // As long as others have a place it is not empty, and stays.
            let _ = self.files.remove_dir(self.folder);
        }
        done
    }

    /// Nothing where the folder cannot be used.
    fn try_take(&self, work: &mut dyn FnMut()) -> Option<bool> {
        let names = match self.files.list(self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Some(false),
            other => other.ok()?,
        };
        let taken: HashSet<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
        // Those who look at the same moment begin at different places.
        let count = self.count.max(1);
        let first = u32::try_from(RandomState::new().hash_one(()) % u64::from(count)).unwrap_or(0);
        let places = (first..count).chain(0..first);
        // Of those that are taken one is looked at, whether its owner is dead.
        let worth = places.filter(|place| *place == first || !taken.contains(place));
        for place in worth {
            match self.files.if_free(&self.folder.join(place.to_string()), work) {
                Ok(false) => (),
                Ok(true) => return Some(true),
                // Somebody has just removed the folder, as nobody had a place in it.
                Err(error) if error.is_not_found() => return Some(false),
                Err(_) => return None,
            }
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::thread::run;
    use crate::fs::RealFiles;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn never_are_more_at_work_than_there_are_places_and_the_dead_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("turns");
        for count in [1, 3] {
            let (now, most, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
            std::fs::create_dir(&folder).unwrap();
            // Its owner was killed.
            std::fs::write(folder.join("0"), RealFiles.machine()).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let places = SharedSlots { files: &RealFiles, folder: &folder, count };
                        let mut work = || {
                            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            std::thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                        };
                        for _ in 0..10 {
                            while !places.take(&mut work) {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
            });
            let most = most.load(Ordering::SeqCst);
            assert!(most <= count, "{most} at a time where {count} may");
            assert_eq!(done.load(Ordering::SeqCst), 80);
            let left = std::fs::read_dir(&folder).map(Iterator::count);
            assert!(left.is_err() || count > 1 && folder.join("0").exists(), "{left:?}");
            let _ = std::fs::remove_dir_all(&folder);
        }
    }

    #[test]
    fn nobody_is_held_up_where_the_places_cannot_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let mut times = 0;
        for folder in [dir.path().join("gone/turns"), dir.path().join("file")] {
            std::fs::write(dir.path().join("file"), "").unwrap();
            assert!(SharedSlots { files: &RealFiles, folder: &folder, count: 1 }.take(&mut || times += 1));
        }
        assert_eq!(times, 2);
    }

    #[test]
    fn never_are_more_at_work_than_allowed_and_everybody_gets_a_turn() {
        for (ranks, width) in [(1, 1), (5, 1), (16, 3), (4, 256), (3, 0)] {
            let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
            let work = || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
            };
            run(ranks, |comm| in_turn(&comm, width, work).unwrap()).unwrap();
            assert!(most.load(Ordering::SeqCst) <= width.max(1));
        }
    }
}
