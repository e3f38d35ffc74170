//! Files below the prefix directory that jobs, agents and commands change at the same time: `index.scr`, `flush.scr`, `ids.scr` and
//! `nodes.scr`. (`halt.scr` is not one: C SCR locks and changes that file itself.)
//!
//! A reader gets one of three results: the file is absent, its contents, or it cannot be read. `fs::retrying` repeats what
//! fails with a transient error, so that a file that the server did not deliver is never taken for a missing one.
//!
//! The only way to change one is with the one lock of the prefix directory, [`locked`]: it is read again, changed, and replaced
//! in one step. The lock of a process that looks dead is broken, and that process may only have been stopped.
//! So whoever has the lock first removes what others have begun to write, and checks that the lock is still its own between
//! writing the new file and renaming it. A process that wakes up too late finds either its lock or its new file gone, and can
//! never put an old state in the place of a newer one.
//!
//! A file is read each time, and parsed only if its bytes are not those that this process has left there: an index may list
//! thousands of datasets.

use super::{Prefix, PrefixError, FILE_MODE};
use scr_base::fs::{At, Durability, Files, FsError, Updated, MAX_TREE_BYTES};
use scr_plugin_api::{held, KvTree};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The holder of this lock may change the shared files of a prefix directory.
const LOCK: &str = "index.lock";
/// A process that loses its lock so often is of no use.
const MOST_TRIES: u32 = 5;

/// A file that several processes change.
pub(crate) trait Shared: Default {
    /// Its durability.
    const WAIT: Durability;

    /// Its name.
    const NAME: &'static str;

    /// Its path.
    fn path(prefix: &Prefix) -> PathBuf {
        prefix.scr_file(Self::NAME)
    }

    /// As it is written.
    fn tree_mut(&mut self) -> &mut KvTree;

    /// Takes in what was read; `path` is for the error.
    fn from_tree(tree: KvTree, _path: &Path) -> Result<Self, PrefixError> {
        let mut file = Self::default();
        *file.tree_mut() = tree;
        Ok(file)
    }

    /// The same error with what to do about it.
    fn advise(error: FsError) -> PrefixError {
        error.into()
    }
}

/// The knowledge of this process about the shared files.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<Left>>);

#[derive(Default)]
struct Left {
    /// The bytes of each file as this process has left it, and the tree that they contain.
    files: HashMap<PathBuf, (Vec<u8>, KvTree)>,
    /// The messages that the user is still to get.
    notes: Vec<String>,
}

impl Known {
    /// Takes out the tree of a file, if the file still has the bytes that this process has left there.
    fn take(&self, path: &Path, bytes: &[u8]) -> Option<KvTree> {
        held(&self.0).files.remove(path).filter(|(known, _)| known == bytes).map(|(_, tree)| tree)
    }

    fn leave(&self, path: PathBuf, bytes: Vec<u8>, tree: KvTree) {
        held(&self.0).files.insert(path, (bytes, tree));
    }

    /// The same thing may come up at each read of a file.
    pub(super) fn note(&self, note: String) {
        let notes = &mut held(&self.0).notes;
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut held(&self.0).notes)
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Known")
    }
}

/// A file that was read.
struct ReadFile<T> {
    bytes: Vec<u8>,
    content: T,
    /// Whether this process has left it so.
    is_known: bool,
}

fn find<T: Shared>(files: &dyn Files, prefix: &Prefix) -> Result<Option<ReadFile<T>>, PrefixError> {
    let path = T::path(prefix);
    let found = files.read_if_there(&path, MAX_TREE_BYTES);
    let Some(bytes) = found.map_err(T::advise)? else { return Ok(None) };
    let known = prefix.known.take(&path, &bytes);
    let is_known = known.is_some();
    let tree = known.map_or_else(|| KvTree::from_file_bytes(&bytes), Ok);
    let tree = tree.at("use", &path).map_err(T::advise)?;
    Ok(Some(ReadFile { bytes, content: T::from_tree(tree, &path)?, is_known }))
}

/// The contents of a file; `None` if there is none.
pub(crate) fn read<T: Shared>(files: &dyn Files, prefix: &Prefix) -> Result<Option<T>, PrefixError> {
    let Some(mut found) = find::<T>(files, prefix)? else { return Ok(None) };
    if found.is_known {
        prefix.known.leave(T::path(prefix), found.bytes, found.content.tree_mut().clone());
    }
    Ok(Some(found.content))
}

/// Does `work` with the contents of a file, or with the default if there is none.
pub(crate) fn look<T: Shared, R>(
    files: &dyn Files,
    prefix: &Prefix,
    work: impl FnOnce(&T) -> R,
) -> Result<R, PrefixError> {
    let Some(mut found) = find::<T>(files, prefix)? else { return Ok(work(&T::default())) };
    let value = work(&found.content);
    if found.is_known {
        prefix.known.leave(T::path(prefix), found.bytes, std::mem::take(found.content.tree_mut()));
    }
    Ok(value)
}

/// The shared files of a prefix directory, while no other process changes any of them.
pub(crate) struct Locked<'a> {
    files: &'a dyn Files,
    prefix: &'a Prefix,
    is_ours: &'a dyn Fn() -> bool,
}

/// A file as it was read with the lock.
pub(crate) struct Held<T> {
    pub(crate) content: T,
    /// The bytes that this process knows to be safe.
    safe: Option<Vec<u8>>,
}

impl<T> Held<T> {
    /// In place of one that cannot be used.
    pub(crate) fn new(content: T) -> Self {
        Self { content, safe: None }
    }
}

impl Locked<'_> {
    /// Whether the lock was not broken meanwhile, since this process seemed dead.
    pub(crate) fn is_ours(&self) -> bool {
        (self.is_ours)()
    }

    /// Reads a file. Files that other processes have begun to write in its place are removed.
    pub(crate) fn read<T: Shared>(&self) -> Result<Held<T>, PrefixError> {
        self.files.remove_unfinished(&T::path(self.prefix))?;
        Ok(match find::<T>(self.files, self.prefix)? {
            Some(ReadFile { bytes, content, is_known: true }) => Held { content, safe: Some(bytes) },
            // The process that has left it may have failed to sync it, and the change be there already.
            Some(found) if T::WAIT == Durability::Synced => Held { content: found.content, safe: None },
            // Packed anew it may be other bytes, and says the same.
            found => {
                let mut content = found.map(|found| found.content).unwrap_or_default();
                let packed = content.tree_mut().to_file_bytes();
                Held { content, safe: Some(packed) }
            }
        })
    }

    /// Replaces a file, unless it is the same and safe.
    pub(crate) fn write<T: Shared>(&self, held: Held<T>) -> Result<(), PrefixError> {
        let (path, Held { mut content, safe }) = (T::path(self.prefix), held);
        let after = content.tree_mut().to_file_bytes();
        if safe.as_ref() != Some(&after) {
            self.files.write_fenced(&path, &after, FILE_MODE, T::WAIT, self.is_ours)?;
        }
        self.prefix.known.leave(path, after, std::mem::take(content.tree_mut()));
        Ok(())
    }
}

/// Does `work` while no other process changes any of the shared files.
pub(crate) fn locked<R>(
    files: &dyn Files,
    prefix: &Prefix,
    work: impl FnOnce(&Locked<'_>) -> R,
) -> Result<Updated<R>, PrefixError> {
    Ok(files.exclusively(&lock(prefix), |is_ours| work(&Locked { files, prefix, is_ours }))?)
}

/// Does `work`. A process that was stopped until another one took its lock tries again: what it has read is not true any more.
pub(crate) fn repeated<R>(mut work: impl FnMut() -> Result<R, PrefixError>) -> Result<R, PrefixError> {
    let mut tries = 1;
    loop {
        match work() {
            Err(PrefixError::Fs(FsError::LockLost { .. })) if tries < MOST_TRIES => tries += 1,
            other => return other,
        }
    }
}

/// Reads, changes and writes a file while no other process changes any of the shared files. With `renew`, a damaged one is
/// replaced by a new one.
pub(super) fn update<T: Shared, R>(
    files: &dyn Files,
    prefix: &Prefix,
    renew: bool,
    change: impl FnOnce(&mut T) -> R,
) -> Result<Updated<R>, PrefixError> {
    let Updated { value, locked, everywhere } = locked(files, prefix, |locked| {
        let mut held = match locked.read::<T>() {
            Err(error) if renew && error.is_damage() => Held::new(T::default()),
            read => read?,
        };
        let value = change(&mut held.content);
        locked.write(held).map(|()| value)
    })?;
    Ok(Updated { value: value?, locked, everywhere })
}

fn lock(prefix: &Prefix) -> PathBuf {
    prefix.scr_file(LOCK)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{let_look_dead, scratch, ChangeIndex as _};
    use super::super::{DatasetDescriptor, FlushFile, Index, Location};
    use super::*;
    use scr_base::fs::{How, RealFiles};
    use scr_test_kit::faulty::{FaultyFiles, What};
    use std::io::ErrorKind;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;

    fn dataset(id: u64) -> DatasetDescriptor {
        let name = format!("ckpt.{id}").into_bytes();
        DatasetDescriptor { id, name, checkpoint: true, ..DatasetDescriptor::default() }
    }

    fn indexed(id: u64) -> (tempfile::TempDir, Prefix) {
        let (dir, prefix) = scratch();
        Index::update(&RealFiles, &prefix, |index| index.record(&dataset(id), true)).unwrap();
        (dir, prefix)
    }

    #[test]
    fn a_passing_error_is_retried_and_a_lasting_one_is_never_an_empty_file() {
        let (_dir, prefix) = indexed(1);
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what == What::Read && path.ends_with("index.scr"));
        files.count_all();
        files.never_pause();
        files.fail_once(1, ErrorKind::TimedOut);
        assert!(Index::read(&files, &prefix).unwrap().entry(1).is_some());
        files.fail_from(1, ErrorKind::TimedOut);
        assert!(!Index::read(&files, &prefix).unwrap_err().is_damage());
        assert!(Index::update(&files, &prefix, |index| index.record(&dataset(2), true)).is_err());
        files.heal();
        assert_eq!(Index::read(&RealFiles, &prefix).unwrap().highest_id(), Some(1));
    }

    #[test]
    fn a_process_that_was_stopped_anywhere_cannot_put_an_old_state_over_a_newer_one() {
        // The other process comes at each operation of the first, which then continues.
        for at in 1.. {
            let (_dir, prefix) = indexed(1);
            let files = FaultyFiles::new(RealFiles);
            let (theirs, lock) = (prefix.clone(), lock(&prefix));
            let came = Arc::new(AtomicBool::new(false));
            let comes = Arc::clone(&came);
            files.interrupt_at(at, move || {
                if !lock.exists() {
                    return;
                }
                let_look_dead(&lock);
                Index::update(&RealFiles, &theirs, |index| index.record(&dataset(2), true)).unwrap();
                comes.store(true, Ordering::SeqCst);
            });
            let first = Index::update(&files, &prefix, |index| index.record(&dataset(3), true));
            let after = Index::read(&RealFiles, &prefix).unwrap();
            assert_eq!(came.load(Ordering::SeqCst), after.entry(2).is_some(), "at {at}");
            assert!(after.entry(1).is_some(), "at {at}");
            assert_eq!(first.is_ok(), after.entry(3).is_some(), "at {at}");
            if !files.was_interrupted() {
                assert!(at > 5, "nothing was interrupted");
                break;
            }
        }
    }

    #[test]
    fn what_others_change_is_seen_and_what_nobody_has_changed_is_not_parsed_again() {
        let (_dir, prefix) = indexed(1);
        let path = prefix.index_file();
        let left = || held(&prefix.known.0).files.get(&path).map(|(bytes, _)| bytes.clone());
        let there = || std::fs::read(&path).unwrap();
        assert_eq!(left(), Some(there()));
        assert!(Index::read(&RealFiles, &prefix).unwrap().entry(1).is_some());
        let looked = look(&RealFiles, &prefix, Index::highest_id);
        assert_eq!((looked.unwrap(), left()), (Some(1), Some(there())));
        // A process that this one knows nothing of, and then this one on top of it.
        let theirs = Prefix::new(prefix.dir());
        Index::update(&RealFiles, &theirs, |index| index.record(&dataset(2), true)).unwrap();
        assert_eq!(Index::read(&RealFiles, &prefix).unwrap().highest_id(), Some(2));
        Index::update(&RealFiles, &theirs, |index| index.record(&dataset(3), true)).unwrap();
        Index::update(&RealFiles, &prefix, |index| index.record(&dataset(4), true)).unwrap();
        let index = Index::read(&RealFiles, &prefix).unwrap();
        assert_eq!(index.entries().iter().map(|entry| entry.id).collect::<Vec<_>>(), [4, 3, 2, 1]);
        assert_eq!(left(), Some(there()));
        // A change that could not be written is not known as if it had been.
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what == What::Write && path.to_string_lossy().contains("index.scr.tmp"));
        files.fail_from(1, ErrorKind::StorageFull);
        assert!(Index::update(&files, &prefix, |index| index.record(&dataset(5), true)).is_err());
        assert_eq!(left(), None);
        assert_eq!(Index::read(&RealFiles, &prefix).unwrap().highest_id(), Some(4));
        std::fs::write(&path, "damaged").unwrap();
        assert!(Index::read(&RealFiles, &prefix).unwrap_err().is_damage());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Index::read(&RealFiles, &prefix).unwrap().highest_id(), None);
    }

    /// As after a power failure: with nothing in cache nothing was written, and every later change of the run failed.
    #[test]
    fn a_damaged_flush_file_is_begun_anew_though_there_is_nothing_to_record() {
        let (_dir, prefix) = scratch();
        RealFiles.open(&prefix.flush_file(), How::Create(0o644)).unwrap();
        FlushFile::update(&RealFiles, &prefix, |_| ()).unwrap();
        FlushFile::update(&RealFiles, &prefix, |file| file.record(&dataset(1), Location::Cache)).unwrap();
        assert!(FlushFile::read(&RealFiles, &prefix).unwrap().entry(1).is_some());
    }

    #[test]
    fn no_change_of_the_flush_file_is_lost_where_many_change_it() {
        let (_dir, prefix) = scratch();
        std::thread::scope(|scope| {
            for writer in 0..4_u64 {
                let prefix = &prefix;
                scope.spawn(move || {
                    for number in 0..10 {
                        let dataset = dataset(writer * 10 + number);
                        FlushFile::update(&RealFiles, prefix, |file| file.record(&dataset, Location::Cache))
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(FlushFile::read(&RealFiles, &prefix).unwrap().entries().len(), 40);
    }
}
