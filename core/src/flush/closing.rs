//! Ending what a dead application left: its flushes are finished, or cleared away.
//!
//! A flush whose copies were all done lies on disk whole, under hidden names. Naming the files, and listing the
//! dataset, is repeated here until it has been done; it does not matter how far the application had come. A
//! flush without all its marks is cleared away, before one of its names is used again. So is one that comes too late:
//! a newer dataset that is complete keeps its files, and stays the current one.
//!
//! One process at a time does so, on whichever node: a lock that also works between nodes keeps the others out, and
//! who comes later finds the flush gone.

use super::catalog::Catalog;
use super::outcome::FlushOutcome;
use super::pending::{self, PendingFlush};
use crate::fs::verify::{expect_bytes, expect_size, FileError};
use crate::fs::{At, Files};
use crate::prefix::{staging_file, FlushFile, Index, Location, Prefix, PrefixError, PrefixFile, Rank2File};
use crate::{describe, Described};
use scr_plugin_api::KvTree;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Ends every flush found under way below a prefix: what has not arrived is taken back. One process calls it, while no
/// flush of its own is under way there.
///
/// # Errors
/// The folder could not be listed.
pub(crate) fn finalize_pending(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    end_all(files, prefix, now, Missing::Revoke)
}

/// Finishes every flush below a prefix whose data has arrived, though the application has died or never called again.
/// What has not all arrived is left as it is. `now` is the time as the index writes it. Only for when no application
/// runs that ends its flushes itself.
///
/// # Errors
/// The folder could not be listed.
pub fn finalize_arrived(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    end_all(files, prefix, now, Missing::Leave)
}

/// Finishes the flush of this token if its data has arrived; `None` if nothing is under way by that token (any more).
pub(crate) fn finalize_one(
    files: &dyn Files,
    prefix: &Prefix,
    token: &str,
    now: &str,
) -> Result<Option<FlushOutcome>, String> {
    let Some(record) = pending::find(files, prefix, token)? else { return Ok(None) };
    Ok(end_alone(files, prefix, &record, now, Missing::Leave))
}

/// Does `work` while nobody else marks, ends or takes back a flush below this prefix.
pub(crate) fn alone<R>(
    files: &dyn Files,
    prefix: &Prefix,
    work: impl FnOnce() -> R,
) -> Result<R, PrefixError> {
    Ok(files.exclusively_for_long(&prefix.scr_file(LOCK), work)?.value)
}

/// What to do about a flush that has not all arrived.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    Revoke,
    Leave,
}

fn end_all(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
    missing: Missing,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    let pending::Found { pending, unusable } = pending::list(files, prefix)?;
    let mut ended: Vec<_> =
        unusable.into_iter().map(|(path, why)| FlushOutcome::Unusable { path, why }).collect();
    ended.extend(pending.iter().filter_map(|record| end_alone(files, prefix, record, now, missing)));
    Ok(ended)
}

/// Ends a flush of which every byte is known to be right: the files get their names, and the dataset is listed. Its record and
/// its lists are on disk, so that it is ended by the next run if this process is not.
pub(crate) fn finish(
    files: &dyn Files,
    prefix: &Prefix,
    record: PendingFlush,
    now: &str,
) -> Result<(), String> {
    let finished = alone(files, prefix, || {
        let finalizer = Finalizer { files, prefix, record };
        let expected = finalizer.expected().described()?;
        finalizer.finish(&expected, now)
    });
    finished.described()?
}

fn end_alone(
    files: &dyn Files,
    prefix: &Prefix,
    record: &PendingFlush,
    now: &str,
    missing: Missing,
) -> Option<FlushOutcome> {
    let dataset = record.dataset.clone();
    let ended = alone(files, prefix, || {
        // Somebody may have ended it while this process waited for its turn.
        match pending::find(files, prefix, &record.token) {
            Ok(Some(record)) => Some(Finalizer { files, prefix, record }.end(now, missing)),
            Ok(None) => None,
            Err(why) => Some(FlushOutcome::Postponed { dataset: dataset.clone(), why }),
        }
    });
    ended.unwrap_or_else(|error| Some(FlushOutcome::Postponed { dataset, why: describe(&error) }))
}

struct Finalizer<'a> {
    files: &'a dyn Files,
    prefix: &'a Prefix,
    record: PendingFlush,
}

/// One file of the flush.
struct Expected {
    target: PathBuf,
    staging: PathBuf,
    bytes: u64,
    crc: Option<u32>,
}

impl Finalizer<'_> {
    fn end(&self, now: &str, missing: Missing) -> FlushOutcome {
        let dataset = self.record.dataset.clone();
        let ended = match self.record.done(self.files, self.prefix) {
            Ok(done) if done < self.record.marks && missing == Missing::Leave => {
                return FlushOutcome::Waiting { dataset, done, marks: self.record.marks };
            }
            Ok(done) if done < self.record.marks => {
                let why = "it was interrupted before all files had arrived".to_owned();
                self.clear_away().map(|()| Some(why))
            }
            Ok(_) => self.finish_or_clear_away(now),
            Err(error) => Err(describe(&error)),
        };
        match ended {
            Ok(None) => FlushOutcome::Finalized(dataset),
            Ok(Some(why)) => FlushOutcome::Revoked { dataset, why },
            Err(why) => FlushOutcome::Postponed { dataset, why },
        }
    }

    /// Finishes it, or clears it away and says why.
    fn finish_or_clear_away(&self, now: &str) -> Result<Option<String>, String> {
        let index = Index::read(self.files, self.prefix).described()?;
        if index.entry(self.record.dataset.id).is_some_and(|entry| entry.is_valid()) {
            // All was done but to forget it.
            return self.clear_away().map(|()| None);
        }
        let expected = match self.note_checksums().and_then(|()| self.expected()) {
            Ok(expected) => expected,
            Err(error) if error.is_damage() => return self.clear_away().map(|()| Some(describe(&error))),
            Err(error) => return Err(describe(&error)),
        };
        if let Some(newer) = self.newer_owner(&index).described()? {
            let why = format!("dataset {newer}, which is newer, is complete under the same names");
            return self.clear_away().map(|()| Some(why));
        }
        match expected.iter().try_for_each(|file| self.check(file)) {
            Ok(()) => self.finish(&expected, now).map(|()| None),
            Err(error) if error.is_damage() => self.clear_away().map(|()| Some(describe(&error))),
            Err(error) => Err(describe(&error)),
        }
    }

    /// Writes the file lists again with the checksums that the copies have found and that were not known before.
    fn note_checksums(&self) -> Result<(), PrefixError> {
        let (files, prefix, record) = (self.files, self.prefix, &self.record);
        let mut sums = KvTree::new();
        for mark in record.done_marks(files, prefix)? {
            sums.merge(record.sums_of(files, prefix, mark)?);
        }
        if sums.is_empty() {
            return Ok(());
        }
        let mut lists = Rank2File::read(files, prefix, record.dataset.id)?.by_rank().to_vec();
        let mut news = false;
        for file in lists.iter_mut().flatten().filter(|file| file.crc.is_none()) {
            file.crc = sums.parse(&file.name).ok().flatten();
            news |= file.crc.is_some();
        }
        if news {
            Catalog { files, prefix }.write_lists(&record.dataset, &lists)?;
        }
        Ok(())
    }

    fn finish(&self, expected: &[Expected], now: &str) -> Result<(), String> {
        let catalog = Catalog { files: self.files, prefix: self.prefix };
        catalog.invalidate_previous(&self.record.dataset, &self.record.replaces).described()?;
        let mut folders = BTreeSet::new();
        for file in expected {
            match self.files.rename(&file.staging, &file.target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => other.at("rename a new file to", &file.target).described()?,
            }
            folders.extend(file.target.parent());
        }
        for folder in folders {
            self.files.sync_dir(folder).at("sync", folder).described()?;
        }
        let record = &self.record;
        let index = Index::read(self.files, self.prefix).described()?;
        let newest = index.candidates(None).iter().all(|entry| entry.id <= record.dataset.id);
        catalog.close(&record.dataset, record.make_current && newest, now).described()?;
        // For the commands: what cannot be noted is looked at once more.
        let _ = FlushFile::update(self.files, self.prefix, |flush| {
            flush.add_location(record.dataset.id, Location::Prefix);
            Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(record.dataset.id, way));
        });
        record.forget(self.files, self.prefix).described()
    }

    /// A newer dataset that is complete and has the name, or one of the files: to finish now would replace them.
    fn newer_owner(&self, index: &Index) -> Result<Option<u64>, PrefixError> {
        let dataset = &self.record.dataset;
        let newer = |id: &u64| *id > dataset.id && index.entry(*id).is_some_and(|entry| entry.is_valid());
        if let Some(id) = index.id_of(&dataset.name).filter(newer) {
            return Ok(Some(id));
        }
        let catalog = Catalog { files: self.files, prefix: self.prefix };
        let lists = Rank2File::read(self.files, self.prefix, dataset.id)?;
        Ok(catalog.sharing(dataset, lists.by_rank())?.into_iter().find(newer))
    }

    /// Either the hidden file is there, or it has its name already. In the latter case its checksum must tell it
    /// from a file of the same name and size of an older dataset.
    fn check(&self, file: &Expected) -> Result<(), FileError> {
        match expect_size(self.files, &file.staging, file.bytes) {
            Err(FileError::Missing { .. }) => {}
            other => return other,
        }
        if file.crc.is_none() {
            return Err(FileError::Missing { path: file.staging.clone() });
        }
        expect_bytes(self.files, &file.target, file.bytes, file.crc, BLOCK_BYTES)
    }

    fn clear_away(&self) -> Result<(), String> {
        self.record.revoke(self.files, self.prefix).described()?;
        // Without its lists nobody knows the hidden files; they stay, and do no harm.
        for file in self.expected().unwrap_or_default() {
            self.files.remove_if_there(&file.staging).described()?;
        }
        self.record.forget(self.files, self.prefix).described()
    }

    fn expected(&self) -> Result<Vec<Expected>, PrefixError> {
        let id = self.record.dataset.id;
        let lists = Rank2File::read(self.files, self.prefix, id)?;
        let expected = |file: &PrefixFile| {
            let target = self.prefix.file(&file.name);
            let staging = staging_file(&target, &self.record.token);
            Some(Expected { staging, target, bytes: file.bytes?, crc: file.crc })
        };
        let all: Option<Vec<_>> = lists.by_rank().iter().flatten().map(expected).collect();
        // A flush of ours always says how long its files are.
        all.ok_or_else(|| PrefixError::Missing { path: self.prefix.rank2file(id) })
    }
}

const BLOCK_BYTES: u64 = 1 << 20;
/// Whoever ends or marks flushes has this name, below the prefix's `.scr`.
const LOCK: &str = "finalize.lock";
