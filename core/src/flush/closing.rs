//! Steps 3 to 5 of a flush, from the mark that all has arrived to the index. The ranks, a transfer monitor, the next run, and
//! `scr poststage` all close a flush with this code.
//!
//! A flush with all its marks is whole on disk, in staging files. From then on it is only rolled forward: the files get their
//! names, and the dataset is listed. Any process may repeat these steps. A flush without all its marks is rolled back before one
//! of its names is used again. So is one that is too late: a newer complete dataset keeps its files, and stays the current one.
//!
//! One process at a time closes flushes, on any node. A lock that also works between nodes excludes the others. A process that
//! comes later finds the flush gone.

use super::catalog::Catalog;
use super::outcome::FlushOutcome;
use super::pauses::Pauses;
use super::pending::{self, PendingError, PendingFlush};
use super::step::StepError;
use crate::describe;
use crate::fs::verify::{expect_bytes, expect_size, FileError};
use crate::fs::{At, Files, FsError};
use crate::planted::{planted, Bug};
use crate::prefix::{staging_file, FlushFile, Index, Location, Prefix, PrefixError, PrefixFile, Rank2File};
use scr_plugin_api::KvTree;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ends every flush found under way below a prefix: what has not arrived is rolled back. One process calls it, while no
/// flush of its own is under way there.
///
/// # Errors
/// The folder could not be listed.
pub(crate) fn finalize_pending(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    end_all(files, prefix, now, Missing::TakeBack)
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

/// Finishes the flush of this token if its data has arrived, and gives what became of it where anything is under way by that
/// token. It does not wait long: `None` where another process ends or marks flushes.
pub(crate) fn finalize_now(
    files: &dyn Files,
    prefix: &Prefix,
    token: &str,
    now: &str,
) -> Result<Option<Option<FlushOutcome>>, StepError> {
    let ended = try_alone(files, prefix, || {
        let Some(record) = pending::find(files, prefix, token)? else { return Ok(None) };
        Ok::<_, PendingError>(Some(Closing { files, prefix, record }.end(now, Missing::Leave)))
    })?;
    Ok(ended.transpose()?)
}

/// Does `work` unless another process takes its time to mark, end or take back a flush below this prefix.
pub(crate) fn try_alone<R>(
    files: &dyn Files,
    prefix: &Prefix,
    work: impl FnOnce() -> R,
) -> Result<Option<R>, FsError> {
    let (mut work, mut value) = (Some(work), None);
    if_soon_free(files, &prefix.scr_file(LOCK), &mut || value = work.take().map(|work| work()))?;
    Ok(value)
}

/// Does `work` if a lock is free within a moment, and returns whether it did. Who has it for longer may be stuck in a file
/// system.
pub(super) fn if_soon_free(files: &dyn Files, lock: &Path, work: &mut dyn FnMut()) -> Result<bool, FsError> {
    let mut pauses = Pauses::up_to(LONGEST_PAUSE);
    for _ in 0..MOST_LOOKS {
        if files.if_free(lock, work)? {
            return Ok(true);
        }
        pauses.wait(files);
    }
    Ok(false)
}

/// Together these are most of a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
const MOST_LOOKS: u32 = 50;

/// Does `work` while no other process marks, closes or rolls back a flush below this prefix.
pub(crate) fn alone<R>(files: &dyn Files, prefix: &Prefix, work: impl FnOnce() -> R) -> Result<R, FsError> {
    Ok(files.exclusively_for_long(&prefix.scr_file(LOCK), work)?.value)
}

/// Ends a flush of which every byte is known to be right: the files get their names, and the dataset is listed. Its record and
/// its lists are on disk, so that it is ended by the next run if this process is not.
pub(crate) fn finish(
    files: &dyn Files,
    prefix: &Prefix,
    record: PendingFlush,
    now: &str,
) -> Result<(), StepError> {
    alone(files, prefix, || {
        let closing = Closing { files, prefix, record };
        closing.finish(&closing.staged()?, now)
    })?
}

/// What became of a flush in which something failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CloseOutcome {
    /// The dataset is complete.
    Complete,
    /// Every byte has arrived, but the flush could not be closed, and why.
    Unfinished(String),
    /// It is not closed by anybody any more.
    TakenBack,
}

impl CloseOutcome {
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Complete => COMPLETE.to_owned(),
            Self::TakenBack => String::new(),
            Self::Unfinished(why) => format!("{UNFINISHED}{why}"),
        }
    }

    pub(super) fn from_text(text: &str) -> Self {
        match (text, text.strip_prefix(UNFINISHED)) {
            (COMPLETE, _) => Self::Complete,
            (_, Some(why)) => Self::Unfinished(why.to_owned()),
            _ => Self::TakenBack,
        }
    }
}

const COMPLETE: &str = "complete";
const UNFINISHED: &str = "unfinished: ";

/// After an error in a flush: rolls it forward where all its marks are there, and takes it back otherwise.
pub(super) fn resolve(files: &dyn Files, prefix: &Prefix, record: &PendingFlush, now: &str) -> CloseOutcome {
    let outcome = alone(files, prefix, || match pending::find(files, prefix, &record.token) {
        Ok(Some(found)) => Closing { files, prefix, record: found }.resolve(now),
        Ok(None) => {
            let index = Index::read(files, prefix);
            let entry = index.ok().and_then(|index| index.entry(record.dataset.id));
            let complete = entry.is_some_and(|entry| entry.is_valid());
            if complete {
                CloseOutcome::Complete
            } else {
                CloseOutcome::TakenBack
            }
        }
        Err(error) => resolve_unread(files, prefix, record, describe(&error)),
    });
    outcome.unwrap_or_else(|error| resolve_unread(files, prefix, record, describe(&error)))
}

/// The answer if the lock or the record cannot be used: without all marks no process closes the flush.
fn resolve_unread(files: &dyn Files, prefix: &Prefix, record: &PendingFlush, why: String) -> CloseOutcome {
    match record.all_done(files, prefix) {
        Ok(false) => CloseOutcome::TakenBack,
        _ => CloseOutcome::Unfinished(why),
    }
}

/// Rolls back a flush that is not wanted any more, however far it is.
pub(super) fn abandon(files: &dyn Files, prefix: &Prefix, record: PendingFlush) -> Result<(), StepError> {
    alone(files, prefix, || Closing { files, prefix, record }.take_back())?
}

/// Removes the marks of a flush that was rolled back, and its record where no staging file is left.
pub(super) fn forget(files: &dyn Files, prefix: &Prefix, record: &PendingFlush, none_left: bool) {
    // The next run finds what is left through the record.
    let _ = alone(files, prefix, || match none_left {
        true => record.forget(files, prefix),
        false => record.revoke(files, prefix),
    });
}

/// A file of a flush under its two names.
pub(super) struct Staged {
    pub(super) target: PathBuf,
    pub(super) staging: PathBuf,
    pub(super) bytes: u64,
    pub(super) crc: Option<u32>,
}

/// Gives a file its name, unless somebody else has done so.
pub(super) fn name_file(files: &dyn Files, file: &Staged) -> Result<(), StepError> {
    match files.rename(&file.staging, &file.target) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(expect_bytes(files, &file.target, file.bytes, file.crc, BLOCK_BYTES)?)
        }
        other => Ok(other.at("rename a new file to", &file.target)?),
    }
}

/// The folders that files lie in, up to the prefix directory.
pub(super) fn folders_of<'a>(prefix: &Prefix, paths: impl Iterator<Item = &'a Path>) -> BTreeSet<&'a Path> {
    let above = paths.flat_map(|path| path.ancestors().skip(1));
    above.filter(|folder| folder.starts_with(prefix.dir())).collect()
}

/// Syncs folders, so that the names in them outlive a crash. The prefix directory has its own name in the folder above,
/// which need not be the user's.
pub(super) fn sync_folders<'a>(
    files: &dyn Files,
    prefix: &Prefix,
    folders: impl Iterator<Item = &'a Path>,
) -> Result<(), FsError> {
    for folder in folders.filter(|_| !planted(Bug::RenamesNotSynced)) {
        files.sync_dir(folder).at("sync", folder)?;
        if let Some(above) = folder.parent().filter(|_| folder == prefix.dir()) {
            match files.sync_dir(above) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => (),
                synced => synced.at("sync", above)?,
            }
        }
    }
    Ok(())
}

/// What to do about a flush that has not all arrived.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    TakeBack,
    Leave,
}

fn end_all(
    files: &dyn Files,
    prefix: &Prefix,
    now: &str,
    missing: Missing,
) -> Result<Vec<FlushOutcome>, PrefixError> {
    let pending::Found { pending, unusable } = pending::list(files, prefix)?;
    let unusable = unusable.into_iter();
    let mut ended: Vec<_> =
        unusable.map(|(path, error)| FlushOutcome::Unusable { path, why: describe(&error) }).collect();
    ended.extend(pending.iter().filter_map(|record| end_alone(files, prefix, record, now, missing)));
    Ok(ended)
}

fn end_alone(
    files: &dyn Files,
    prefix: &Prefix,
    record: &PendingFlush,
    now: &str,
    missing: Missing,
) -> Option<FlushOutcome> {
    let dataset = || record.dataset.clone();
    let ended = alone(files, prefix, || {
        // Somebody may have ended it while this process waited for the lock.
        match pending::find(files, prefix, &record.token) {
            Ok(Some(record)) => Some(Closing { files, prefix, record }.end(now, missing)),
            Ok(None) => None,
            Err(error) => Some(FlushOutcome::Postponed { dataset: dataset(), why: describe(&error) }),
        }
    });
    ended.unwrap_or_else(|error| Some(FlushOutcome::Postponed { dataset: dataset(), why: describe(&error) }))
}

/// A flush that this process ends, with the lock.
struct Closing<'a> {
    files: &'a dyn Files,
    prefix: &'a Prefix,
    record: PendingFlush,
}

/// Why a flush was rolled back.
enum TakenBack {
    Late { newer: u64 },
    Damaged(StepError),
}

impl std::fmt::Display for TakenBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late { newer } => {
                write!(f, "dataset {newer}, which is newer, is complete under the same names")
            }
            Self::Damaged(error) => f.write_str(&describe(error)),
        }
    }
}

impl Closing<'_> {
    fn resolve(&self, now: &str) -> CloseOutcome {
        let done = self.record.all_done(self.files, self.prefix);
        match done.map(|done| done && !planted(Bug::TakenBackAfterMark)) {
            // Marks that stay are removed with the record.
            Ok(false) => {
                let _ = self.record.revoke(self.files, self.prefix);
                CloseOutcome::TakenBack
            }
            Ok(true) => match self.finish_or_take_back(now) {
                Ok(None) => CloseOutcome::Complete,
                Ok(Some(_)) => CloseOutcome::TakenBack,
                Err(error) => CloseOutcome::Unfinished(describe(&error)),
            },
            Err(error) => CloseOutcome::Unfinished(describe(&error)),
        }
    }

    fn end(&self, now: &str, missing: Missing) -> FlushOutcome {
        let dataset = self.record.dataset.clone();
        let ended = match self.record.done(self.files, self.prefix) {
            Ok(done) if done < self.record.marks && missing == Missing::Leave => {
                return FlushOutcome::Waiting { dataset, done, marks: self.record.marks };
            }
            Ok(done) if done < self.record.marks => {
                let why = "it was interrupted before all files had arrived".to_owned();
                self.take_back().map(|()| Some(why))
            }
            Ok(_) => self.finish_or_take_back(now).map(|why| why.map(|why| why.to_string())),
            Err(error) => Err(error.into()),
        };
        match ended {
            Ok(None) => FlushOutcome::Finalized(dataset),
            Ok(Some(why)) => FlushOutcome::Revoked { dataset, why },
            Err(error) => FlushOutcome::Postponed { dataset, why: describe(&error) },
        }
    }

    /// Finishes it; or takes it back, and says why.
    fn finish_or_take_back(&self, now: &str) -> Result<Option<TakenBack>, StepError> {
        let index = Index::read(self.files, self.prefix)?;
        if index.entry(self.record.dataset.id).is_some_and(|entry| entry.is_valid()) {
            // All was done but to forget it.
            return self.take_back().map(|()| None);
        }
        let outcome = self.record_checksums().and_then(|()| self.staged()).map_err(StepError::from);
        let outcome = outcome.and_then(|staged| match self.newer_owner()? {
            Some(newer) => Ok(Some(TakenBack::Late { newer })),
            None => {
                staged.iter().try_for_each(|file| self.check(file))?;
                self.finish(&staged, now).map(|()| None)
            }
        });
        match outcome {
            Ok(None) => Ok(None),
            Ok(Some(late)) => self.take_back().map(|()| Some(late)),
            Err(error) if error.is_damage() => self.take_back().map(|()| Some(TakenBack::Damaged(error))),
            Err(error) => Err(error),
        }
    }

    /// Writes the file lists again with the checksums that the transports have found and that were not known before.
    fn record_checksums(&self) -> Result<(), PrefixError> {
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

    /// Steps 4 and 5 for all files.
    fn finish(&self, staged: &[Staged], now: &str) -> Result<(), StepError> {
        let catalog = Catalog { files: self.files, prefix: self.prefix };
        let record = &self.record;
        catalog.invalidate_previous(&record.dataset, &record.replaces)?;
        for file in staged {
            match self.files.rename(&file.staging, &file.target) {
                // It has its name: that was checked.
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                other => other.at("rename a new file to", &file.target)?,
            }
        }
        let folders = folders_of(self.prefix, staged.iter().map(|file| &*file.target));
        sync_folders(self.files, self.prefix, folders.into_iter())?;
        catalog.commit(record, now)?;
        // For the commands: if this cannot be recorded, they check the flush once more.
        let _ = FlushFile::update(self.files, self.prefix, |flush| {
            flush.add_location(record.dataset.id, Location::Prefix);
            Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(record.dataset.id, way));
        });
        // The dataset counts already.
        let _ = record.forget(self.files, self.prefix);
        Ok(())
    }

    /// A newer dataset that is complete and has the name, or one of the files: to finish now would replace them.
    fn newer_owner(&self) -> Result<Option<u64>, PrefixError> {
        let dataset = &self.record.dataset;
        let catalog = Catalog { files: self.files, prefix: self.prefix };
        let lists = Rank2File::read(self.files, self.prefix, dataset.id)?;
        catalog.newer_owner(dataset, &catalog.sharing(dataset, lists.by_rank())?)
    }

    /// Either the staging file is there, or it has its name already. In the latter case its checksum must distinguish it
    /// from a file of the same name and size of an older dataset; without a checksum its ctime must, which a rename changes.
    fn check(&self, file: &Staged) -> Result<(), StepError> {
        match expect_size(self.files, &file.staging, file.bytes) {
            Err(FileError::Missing { .. }) => {}
            other => return Ok(other?),
        }
        expect_bytes(self.files, &file.target, file.bytes, file.crc, BLOCK_BYTES)?;
        if file.crc.is_none() {
            let marked = self.record.marked_at(self.files, self.prefix)?;
            let changed = self.files.status(&file.target).at("look at", &file.target)?.ctime;
            if changed < marked {
                return Err(FileError::Missing { path: file.staging.clone() }.into());
            }
        }
        Ok(())
    }

    fn take_back(&self) -> Result<(), StepError> {
        self.record.revoke(self.files, self.prefix)?;
        // Without its lists the staging files are unknown; they stay, and do no harm.
        for file in self.staged().unwrap_or_default() {
            self.files.remove_if_there(&file.staging)?;
        }
        Ok(self.record.forget(self.files, self.prefix)?)
    }

    fn staged(&self) -> Result<Vec<Staged>, PrefixError> {
        let id = self.record.dataset.id;
        let lists = Rank2File::read(self.files, self.prefix, id)?;
        let staged = |file: &PrefixFile| {
            let target = self.prefix.file(&file.name);
            let staging = staging_file(&target, &self.record.token);
            Some(Staged { staging, target, bytes: file.bytes?, crc: file.crc })
        };
        let all: Option<Vec<_>> = lists.by_rank().iter().flatten().map(staged).collect();
        // A flush of ours always says how long its files are.
        all.ok_or_else(|| PrefixError::Missing { path: self.prefix.rank2file(id) })
    }
}

const BLOCK_BYTES: u64 = 1 << 20;
/// The process that closes or marks flushes holds this name, below the prefix's `.scr`.
const LOCK: &str = "finalize.lock";
