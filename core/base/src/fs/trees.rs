//! KVTree files: read, replaced whole, and changed in place under a lock.
//!
//! `halt.scr` is shared with commands, also of C SCR, that may wait for its lock. After a rename they would hold the old file, so
//! `halt.scr` is written in place. `write_tree` replaces every other file.

use super::error::{unless_missing, At};
use super::whole::read_open;
use super::{keep_from_readers, Durability, File, Files, FsError, How, LockAttempt, LOCKABLE};
use scr_plugin_api::KvTree;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The most bytes that a KVTree file may have. The largest are lists of files, of which there is one for about a
/// thousand ranks.
pub const MAX_TREE_BYTES: u64 = 1 << 28;

/// How often a file may be replaced under our hands before we give up.
const MAX_REOPENS: u32 = 100;
/// Between two looks whether a lock is free.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// The number of looks before it gives up, after some ten seconds: work under such a lock takes a moment.
const MOST_LOOKS: u32 = 2_000;
/// The number of looks before a reader reads without the lock, after a second.
const MOST_LOOKS_TO_READ: u32 = 200;

/// The result of changing a file in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated<R> {
    /// The result of the change.
    pub value: R,
    /// False where the file system has no locks, so that another's change at the same moment may be lost.
    pub locked: bool,
    /// Whether others were kept out on all machines; what locks of the system reach depends on the file system.
    pub everywhere: bool,
}

impl<R> Updated<R> {
    /// The duty of the user if the file system does not keep others out on all machines.
    pub fn caution(&self) -> Option<&'static str> {
        match (self.locked, self.everywhere) {
            (true, true) => None,
            (true, false) => Some(
                "the file system has no hard links, and a lock had to do, which may not reach other machines: make sure that \
                 nobody changes the same from there",
            ),
            (false, _) => Some(
                "the file system has neither hard links nor locks: make sure that nobody else changes the same at the same time",
            ),
        }
    }
}

impl dyn Files + '_ {
    /// The tree in a file, or `None` where there is no such file.
    ///
    /// # Errors
    /// [`FsError::Tree`] or [`FsError::TooLarge`] for a damaged one, [`FsError::Version`], [`FsError::Io`].
    pub fn read_tree(&self, path: &Path) -> Result<Option<KvTree>, FsError> {
        let Some(bytes) = self.read_if_there(path, MAX_TREE_BYTES)? else { return Ok(None) };
        KvTree::from_file_bytes(&bytes).at("use", path).map(Some)
    }

    /// Makes a file hold `tree`, in one step.
    ///
    /// # Errors
    /// As for `write_atomic`.
    pub fn write_tree(&self, path: &Path, tree: &KvTree, mode: u32, wait: Durability) -> Result<(), FsError> {
        self.write_atomic(path, &tree.to_file_bytes(), mode, wait)
    }

    /// Like `read_tree`, for a file that is changed in place: waits for its lock, takes an empty
    /// file for an empty tree, and ignores the remaining bytes of an older, longer tree. A process that keeps the lock for longer
    /// has been stopped, or was on a machine that is gone: it changes nothing now, and no call of a job waits for it.
    ///
    /// # Errors
    /// As for `read_tree`.
    pub fn read_locked(&self, path: &Path) -> Result<Option<KvTree>, FsError> {
        // NFS gives an exclusive lock to writers only. A process that may not write reads without.
        let opened = match self.open_locked(path, How::Update, true) {
            Err(error) if error.is_for_want_of_permission() => self.open_locked(path, How::Read, true),
            other => other,
        };
        unless_missing(opened)?.map(|(file, _)| read_in_place(&*file, path)).transpose()
    }

    /// Changes the tree in a file in place: waits for its lock, reads, changes, writes and syncs. A file that is
    /// not there is made. A tree that is not changed is not written, unless the file is empty.
    ///
    /// # Errors
    /// As for `read_tree`; a damaged file is left as it is.
    pub fn update_locked<R>(
        &self,
        path: &Path,
        change: impl FnOnce(&mut KvTree) -> R,
    ) -> Result<Updated<R>, FsError> {
        let (file, locked) = self.open_locked(path, How::Ensure(LOCKABLE), false)?;
        let mut tree = read_in_place(&*file, path)?;
        let before =
            if file.status().at("look at", path)?.len == 0 { Vec::new() } else { tree.to_file_bytes() };
        let value = change(&mut tree);
        let after = tree.to_file_bytes();
        if before.is_empty() {
            self.give_to_owner_of_folder(&*file, path)?;
        }
        if after != before {
            // Shortened last: a reader stops at the length in the header, so it never sees a torn tree.
            file.write_at(0, &after).at("write", path)?;
            file.set_len(after.len() as u64).at("shorten", path)?;
            file.sync().at("sync", path)?;
        }
        Ok(Updated { value, locked, everywhere: false })
    }

    /// Opens and locks; begins again where somebody replaced the file while we waited.
    fn open_locked(&self, path: &Path, how: How, to_read: bool) -> Result<(Box<dyn File>, bool), FsError> {
        let most_looks = if to_read { MOST_LOOKS_TO_READ } else { MOST_LOOKS };
        for _ in 0..MAX_REOPENS {
            let file = self.open(path, how).at("open", path)?;
            let opened = file.status().at("look at", path)?;
            let locked = match self.wait_for_lock(path, &*file, most_looks) {
                Some(locked) => locked,
                None if to_read => false,
                None => return Err(kept_locked(path)),
            };
            match self.status(path) {
                Ok(now) if now.identity == opened.identity => {
                    keep_from_readers(&*file, &opened);
                    return Ok((file, locked));
                }
                // A link to the file has an identity of its own, and it was opened through it.
                Ok(now) if now.kind == super::Kind::Link => return Ok((file, locked)),
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => return Err(error).at("look at", path),
            }
        }
        Err(keeps_changing(path, MAX_REOPENS))
    }

    /// Waits for the lock of an open file, but not forever: a job must not hang because a holder of the lock was stopped. Returns
    /// whether it got the lock, or `None` if another process keeps it. It is no error if the file system has no locks, or none
    /// for readers.
    pub(super) fn wait_for_lock(&self, path: &Path, file: &dyn File, most_looks: u32) -> Option<bool> {
        for look in 0..most_looks {
            match file.try_lock() {
                LockAttempt::Taken => return Some(true),
                LockAttempt::Held if look + 1 < most_looks => self.pause_for(path, look),
                LockAttempt::Held => (),
                LockAttempt::NoLocks => return Some(false),
            }
        }
        None
    }
}

pub(super) fn kept_locked(path: &Path) -> FsError {
    FsError::refused(path, "is kept locked by another process; end that one, which may have been stopped")
}

pub(super) fn keeps_changing(path: &Path, tries: u32) -> FsError {
    FsError::refused(path, format!("was replaced {tries} times while its lock was waited for; try again"))
}

fn read_in_place(file: &dyn File, path: &Path) -> Result<KvTree, FsError> {
    let bytes = read_open(file, path, MAX_TREE_BYTES)?;
    if bytes.is_empty() {
        return Ok(KvTree::new());
    }
    Ok(KvTree::from_file_prefix(&bytes).at("use", path)?.0)
}

#[cfg(test)]
mod tests {
    use super::super::RealFiles;
    use super::*;
    use crate::kit::descriptors::wait_until;
    use crate::kit::faulty::{FaultyFiles, What};
    use std::fs;

    const REAL: &dyn Files = &RealFiles;

    fn tree(value: &str) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("ExitReason", value);
        tree
    }

    #[test]
    fn a_tree_that_is_written_is_read_and_a_missing_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert_eq!(REAL.read_tree(&path).unwrap(), None);
        REAL.write_tree(&path, &tree("x"), 0o600, Durability::Synced).unwrap();
        assert_eq!(REAL.read_tree(&path).unwrap(), Some(tree("x")));
    }

    #[test]
    fn an_empty_or_damaged_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.scr");
        for bytes in [&b""[..], b"#!/bin/sh\necho hello, world\n", &tree("x").to_file_bytes()[..30]] {
            fs::write(&path, bytes).unwrap();
            let error = REAL.read_tree(&path).unwrap_err();
            assert!(error.is_damage());
            assert!(error.to_string().ends_with("index.scr is damaged or not a file of SCR"), "{error}");
        }
    }

    #[test]
    fn a_file_too_large_to_be_a_tree_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(REAL.read_tree(&path), Err(FsError::TooLarge { .. })));
        assert!(matches!(REAL.read_locked(&path), Err(FsError::TooLarge { .. })));
    }

    /// A job asked for its halt conditions while a command was stopped that had just locked them, and stood still with it.
    #[test]
    fn a_lock_that_is_never_released_keeps_no_reader_out_and_a_change_fails_after_a_limited_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        // Written without a lock: a process that another test starts would have it too, until it executes its program.
        REAL.write_tree(&path, &tree("x"), 0o600, Durability::Unsynced).unwrap();
        let kept = REAL.open(&path, How::Update).unwrap();
        assert_eq!(kept.try_lock(), LockAttempt::Taken);
        let hasty = FaultyFiles::new(RealFiles);
        hasty.never_pause();
        let files: &dyn Files = &hasty;
        assert_eq!(files.read_locked(&path).unwrap(), Some(tree("x")));
        let error = files.update_locked(&path, |tree| tree.set("ExitReason", "y")).unwrap_err();
        assert!(error.to_string().contains("halt.scr is kept locked by another process"), "{error}");
        drop(kept);
        assert!(REAL.read_locked(&path).unwrap().is_some());
    }

    #[test]
    fn a_change_in_place_keeps_the_file_and_what_it_held() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        assert!(REAL.update_locked(&path, |tree| tree.set("A", "a long value")).unwrap().locked);
        let before = REAL.status(&path).unwrap().identity;
        let updated = REAL.update_locked(&path, |tree| {
            tree.set("B", 1);
            tree.remove("A")
        });
        assert!(updated.unwrap().value.is_some());
        assert_eq!(REAL.status(&path).unwrap().identity, before);
        let read = REAL.read_tree(&path).unwrap().unwrap();
        assert_eq!((read.text("B"), read.has("A")), (Some("1"), false));
    }

    #[test]
    fn a_change_that_changes_nothing_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        REAL.write_tree(&path, &tree("x"), 0o600, Durability::Unsynced).unwrap();
        let files = FaultyFiles::new(RealFiles);
        (&files as &dyn Files).update_locked(&path, |tree| tree.set("ExitReason", "x")).unwrap();
        assert_eq!(files.mutations(), 1, "opening counts, since it may create");
    }

    #[test]
    fn an_empty_file_and_one_with_old_bytes_after_the_tree_are_read_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        assert_eq!(REAL.read_locked(&path).unwrap(), None);
        fs::write(&path, "").unwrap();
        assert_eq!(REAL.read_locked(&path).unwrap(), Some(KvTree::new()));
        fs::write(&path, [tree("x").to_file_bytes(), b"old".to_vec()].concat()).unwrap();
        assert_eq!(REAL.read_locked(&path).unwrap(), Some(tree("x")));
    }

    #[test]
    fn a_damaged_file_is_not_changed_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        fs::write(&path, "not a tree, but somebody's bytes").unwrap();
        assert!(REAL.update_locked(&path, |tree| tree.set("A", 1)).unwrap_err().is_damage());
        assert_eq!(fs::read(&path).unwrap(), b"not a tree, but somebody's bytes");
    }

    #[test]
    fn no_change_is_lost_when_many_change_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let change = |tree: &mut KvTree| {
                            let count: u32 = tree.parse("COUNT").unwrap().unwrap_or(0);
                            tree.set("COUNT", count + 1);
                        };
                        REAL.update_locked(&path, change).unwrap();
                    }
                });
            }
        });
        assert_eq!(REAL.read_locked(&path).unwrap().unwrap().text("COUNT"), Some("200"));
    }

    #[test]
    fn a_waiter_whose_file_was_renamed_over_changes_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        REAL.write_tree(&path, &tree("old"), 0o600, Durability::Unsynced).unwrap();
        let (held, _) = REAL.open_locked(&path, How::Update, false).unwrap();
        let files = FaultyFiles::new(RealFiles);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let files: &dyn Files = &files;
                files.update_locked(&path, |tree| tree.set("B", 1))
            });
            // It has opened the old file by then.
            wait_until(|| files.count(What::Lock) >= 1);
            REAL.write_tree(&path, &tree("new"), 0o600, Durability::Unsynced).unwrap();
            drop(held);
            waiter.join().unwrap().unwrap();
        });
        let read = REAL.read_locked(&path).unwrap().unwrap();
        assert_eq!((read.text("ExitReason"), read.text("B")), (Some("new"), Some("1")));
    }

    #[test]
    fn a_writer_that_dies_in_place_leaves_the_old_tree_or_the_new_one() {
        for at in 1.. {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("halt.scr");
            REAL.write_tree(&path, &tree("a reason of some length"), 0o600, Durability::Unsynced).unwrap();
            let files = FaultyFiles::new(RealFiles);
            files.stop_at(at);
            let result = (&files as &dyn Files).update_locked(&path, |tree| tree.set("ExitReason", "x"));
            let found = REAL.read_locked(&path).unwrap().unwrap();
            assert!(found == tree("x") || found == tree("a reason of some length"), "at {at}: {found}");
            if result.is_ok() {
                assert_eq!(at, 5, "open, write, shorten, sync");
                break;
            }
        }
    }
}
