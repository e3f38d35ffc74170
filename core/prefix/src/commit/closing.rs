//! The steps that end a flush, in [`Commit::close`], and how one process goes through them.

use super::names::{folders_of, name_file, sync_folders, Staged, BLOCK_BYTES};
use super::{CloseOutcome, Commit, FlushOutcome};
use crate::ledger::pending::{self, PendingFlush};
use crate::ledger::{
    expect_lock, Close, Closer, Ended, Ending, Fence, LedgerDir, Refusal, Request, Whose, Wish, SAVED,
};
use crate::{
    staging_file, FileName, FlushFile, FlushProgress, Location, PrefixError, PrefixFile, Rank2File, IN_PLACE,
};
use scr_base::describe;
use scr_base::fs::verify::{expect_bytes, expect_size, FileError};
use scr_base::fs::{unique_number, At, FsError};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The part of a flush that a process closes.
pub struct Share<'a> {
    /// The same on all.
    pub record: &'a mut PendingFlush,
    pub staged: Vec<Staged>,
    pub folders: Vec<PathBuf>,
    /// Whether the files have their names already, and the dataset has taken them.
    pub in_place: bool,
    /// The lock that the process has.
    pub fence: Option<Fence<'a>>,
    /// Whether this is the one of those who close it that changes the index.
    pub is_first: bool,
}

impl Commit<'_> {
    /// Closes a flush of which every byte is safe in staging files, or in place, in the order of [`Close`]. `mark` makes the mark,
    /// if that is still to be done. If the ranks of a job close it, `each` does a group of steps and agrees with the others.
    ///
    /// # Errors
    /// What `each` makes of an error in a step.
    pub fn close<E>(
        &self,
        share: Share<'_>,
        mark: impl FnOnce() -> Result<(), PrefixError>,
        each: impl Fn(&[Close], &mut dyn FnMut() -> Result<(), PrefixError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Share { record, staged, folders, in_place, fence, is_first } = share;
        let LedgerDir { files, prefix } = self.ledger;
        let by = if in_place { IN_PLACE.to_owned() } else { record.token.clone() };
        let number = format!("{:x}", unique_number());
        let closer = fence.map(|has_lock| Closer { number: &number, has_lock });
        let mut mark = Some(mark);
        let mut step = |step: &Close| match step {
            Close::Name => staged.iter().try_for_each(|file| name_file(files, fence, file)),
            Close::Sync => Ok(sync_folders(files, prefix, folders.iter().map(PathBuf::as_path))?),
            _ if !is_first => Ok(()),
            Close::Mark => mark.take().map_or(Ok(()), |mark| mark()),
            // Name and files belong to the dataset from here on.
            Close::Take => self.in_turn(fence, || {
                let PendingFlush { dataset, token, sharing, .. } = &mut *record;
                self.ledger.take(dataset, token, closer, sharing)
            }),
            Close::Commit => self.ledger.complete(record, &by, closer.map(|closer| closer.number), &self.now),
            Close::Forget => {
                // The dataset counts already; what is left of the record is cleared away by the next run. The holder of the
                // lock may be giving the names anew by now.
                if expect_lock(fence, prefix.dir()).is_ok() {
                    let _ = record.forget(files, prefix);
                }
                Ok(())
            }
        };
        let mut groups = Close::order(in_place).iter();
        groups.try_for_each(|group| each(group, &mut || group.iter().try_for_each(&mut step)))
    }
}

/// A flush that this process ends, with the lock.
pub(super) struct Closing<'a> {
    pub(super) ledger: LedgerDir<'a>,
    pub(super) record: PendingFlush,
    pub(super) fence: Fence<'a>,
}

impl Closing<'_> {
    pub(super) fn resolve(&self, now: &str) -> CloseOutcome {
        let even_if_taken = match self.record.all_done(self.ledger.files, self.ledger.prefix) {
            Err(error) => return CloseOutcome::Unfinished(describe(&error)),
            Ok(is_marked) => match Ending::of(self.record.recorded(), is_marked, Wish::Resolve) {
                Ending::RollForward | Ending::Leave => return self.roll_forward(now),
                Ending::Nothing | Ending::ClearAway => return CloseOutcome::TakenBack,
                Ending::Revoke { even_if_taken } => even_if_taken,
            },
        };
        match self.revoke(even_if_taken) {
            // A process that has ended it before may have removed marks already.
            Ok(false) => self.roll_forward(now),
            // The process that has the lock by now may close it.
            Err(error) if self.expect_lock().is_err() => CloseOutcome::Unfinished(describe(&error)),
            // A file system that is full has no room for a lock. Without all marks no process closes it.
            Ok(true) | Err(_) => CloseOutcome::TakenBack,
        }
    }

    fn roll_forward(&self, now: &str) -> CloseOutcome {
        match self.finish_or_take_back(now) {
            Ok(None) => CloseOutcome::Complete,
            Ok(Some(_)) => CloseOutcome::TakenBack,
            Err(error) => CloseOutcome::Unfinished(describe(&error)),
        }
    }

    /// Fails where this process has lost the lock: whoever has it by now may be closing the flush.
    fn expect_lock(&self) -> Result<(), FsError> {
        expect_lock(Some(self.fence), &pending::flush_path(self.ledger.prefix, &self.record.token))
    }

    pub(super) fn end(&self, now: &str, wish: Wish) -> FlushOutcome {
        let dataset = self.record.dataset.clone();
        let taken_back = |why: &str| self.clear_away_revoked().map(|()| Some(why.to_owned()));
        let done = self.record.done(self.ledger.files, self.ledger.prefix);
        let ended = done.map_err(PrefixError::from).and_then(|done| {
            let (recorded, marks) = (self.record.recorded(), self.record.marks);
            match Ending::of(recorded, done >= marks, wish) {
                Ending::Nothing | Ending::Leave => {
                    return Ok(FlushOutcome::Waiting { dataset: dataset.clone(), done, marks })
                }
                Ending::ClearAway => Ok(taken_back("it was given up, and not all of it was removed")?),
                Ending::Revoke { even_if_taken } if self.revoke(even_if_taken)? => {
                    Ok(taken_back("it was interrupted before all files had arrived")?)
                }
                Ending::Revoke { .. } | Ending::RollForward => self.finish_or_take_back(now),
            }
            .map(|ended| match ended {
                None => FlushOutcome::Finalized(dataset.clone()),
                Some(why) => FlushOutcome::Revoked { dataset: dataset.clone(), why },
            })
        });
        ended.unwrap_or_else(|error| self.ledger.postponed(&self.record, describe(&error)))
    }

    /// Finishes it; or takes it back, and says why.
    pub(super) fn finish_or_take_back(&self, now: &str) -> Result<Option<String>, PrefixError> {
        if let Some(ended) = self.clear_away_if_ended()? {
            return Ok(ended);
        }
        let staged = self.record_checksums().and_then(|()| self.staged());
        let finished = staged.and_then(|mut staged| {
            staged.iter_mut().try_for_each(|file| self.check(file))?;
            self.finish(staged, now)
        });
        match finished {
            Ok(()) => Ok(None),
            Err(error) if error.is_damage() => match self.clear_away_if_ended()? {
                // Its job was only slow.
                Some(ended) => Ok(ended),
                None => self.take_back().map(|()| Some(describe(&error))),
            },
            Err(error) => Err(error),
        }
    }

    /// Forgets a flush of which all else was done, and says why its dataset does not count, if it does not.
    fn clear_away_if_ended(&self) -> Result<Option<Option<String>>, PrefixError> {
        let PendingFlush { dataset, token: by, .. } = &self.record;
        let counts = match Ended::of(self.progress()?, self.is_saved(), || self.lacks_a_name())? {
            Ended::NotYet => return Ok(None),
            Ended::LacksName => {
                self.ledger.transact(&Request::NameAgain { dataset, by })?;
                return Ok(None);
            }
            Ended::Done { counts } => counts,
        };
        // The process that did it may have failed to sync the index.
        self.ledger.transact(&Request::Confirm)?;
        self.remove_staging()?;
        self.forget(&self.record)?;
        Ok(Some((!counts).then(|| "its dataset was complete, and counts no more".to_owned())))
    }

    /// How far it is, as the index knows it.
    pub(super) fn progress(&self) -> Result<FlushProgress, PrefixError> {
        Ok(self.ledger.index()?.progress(&self.record.dataset, &self.record.token))
    }

    fn is_saved(&self) -> bool {
        self.record.token.starts_with(SAVED)
    }

    /// Whether a file is still in its staging file. After a power failure the index may say more than the folders have.
    fn lacks_a_name(&self) -> Result<bool, PrefixError> {
        let staged = match self.staged() {
            Err(error) if error.is_damage() => return Ok(false),
            staged => staged?,
        };
        for file in staged {
            match expect_size(self.ledger.files, &file.staging, file.bytes) {
                Err(error) if error.is_damage() => (),
                found => return Ok(found.map(|()| true)?),
            }
        }
        Ok(false)
    }

    /// Writes the file lists again with the checksums that the transports have found and that were not known before.
    fn record_checksums(&self) -> Result<(), PrefixError> {
        let (files, prefix, record) = (self.ledger.files, self.ledger.prefix, &self.record);
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
            self.ledger.write_lists(&record.dataset, &lists)?;
        }
        Ok(())
    }

    /// Closes it, with all files.
    fn finish(&self, staged: Vec<Staged>, now: &str) -> Result<(), PrefixError> {
        let (files, prefix) = (self.ledger.files, self.ledger.prefix);
        let targets = staged.iter().map(|file| &*file.target);
        let folders = folders_of(prefix, targets).into_iter().map(Path::to_owned).collect();
        let (mut record, fence) = (self.record.clone(), Some(self.fence));
        let id = record.dataset.id;
        let share = Share { record: &mut record, staged, folders, in_place: false, fence, is_first: true };
        self.ledger.commit(now).close(share, || Ok(()), |_, work| work())?;
        // For the commands: if this cannot be recorded, they check the flush once more.
        let _ = FlushFile::update(files, prefix, |flush| {
            flush.add_location(id, Location::Prefix);
            Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(id, way));
        });
        Ok(())
    }

    /// Either the staging file is there, or it has its name already. In the latter case its checksum must distinguish it
    /// from a file of the same name and size of an older dataset; without a checksum its ctime must, which a rename changes.
    fn check(&self, file: &mut Staged) -> Result<(), PrefixError> {
        match expect_size(self.ledger.files, &file.staging, file.bytes) {
            Err(FileError::Missing { .. }) => {}
            other => return Ok(other?),
        }
        expect_bytes(self.ledger.files, &file.target, file.bytes, file.crc, BLOCK_BYTES)?;
        if file.crc.is_none() {
            let marked = self.record.marked_at(self.ledger.files, self.ledger.prefix)?;
            let changed = self.ledger.files.status(&file.target).at("look at", &file.target)?.ctime;
            if changed < marked {
                return Err(FileError::Missing { path: file.staging.clone() }.into());
            }
        }
        // That takes reading it, and is not done twice.
        file.crc = None;
        Ok(())
    }

    /// From here on nobody closes it, and what there is can be removed. That is decided where a dataset takes its name: one that
    /// has not done so finds no record. Gives whether it is revoked; who has lost the lock revokes nothing.
    pub(super) fn revoke(&self, even_if_taken: bool) -> Result<bool, PrefixError> {
        let PendingFlush { dataset, token: by, .. } = &self.record;
        let request = Request::TakeBack { dataset, by, even_if_taken };
        match self.ledger.transact_if(&request, &mut |_| Ok(self.expect_lock()?)) {
            Err(PrefixError::Refused(Refusal::Ended { .. })) => Ok(false),
            revoked => revoked.map(|_| true),
        }
    }

    pub(super) fn take_back(&self) -> Result<(), PrefixError> {
        if !self.record.revoked {
            self.revoke(true)?;
        }
        self.clear_away_revoked()
    }

    /// Removes what is left of a flush that is revoked.
    fn clear_away_revoked(&self) -> Result<(), PrefixError> {
        self.remove_staging()?;
        self.forget_revoked()
    }

    /// Frees the names that it has taken, and forgets it. No staging file is left.
    pub(super) fn forget_revoked(&self) -> Result<(), PrefixError> {
        self.ledger.transact(&Request::Release(Whose::Flush(&self.record.token)))?;
        self.forget(&PendingFlush { revoked: true, ..self.record.clone() })
    }

    fn forget(&self, record: &PendingFlush) -> Result<(), PrefixError> {
        self.expect_lock()?;
        Ok(record.forget(self.ledger.files, self.ledger.prefix)?)
    }

    /// Removes the staging files. A process that has taken the lock may have given a file its staging name.
    fn remove_staging(&self) -> Result<(), PrefixError> {
        let staged = match self.staged() {
            // Without its lists the staging files are unknown; they stay, and do no harm.
            Err(error) if error.is_damage() => Vec::new(),
            staged => staged?,
        };
        // Files that were saved from the nodes stay, to be built once more.
        for file in staged.iter().filter(|_| !self.is_saved()) {
            self.expect_lock()?;
            self.ledger.files.remove_if_there(&file.staging)?;
        }
        Ok(())
    }

    /// Each file once, though several ranks may share it.
    fn staged(&self) -> Result<Vec<Staged>, PrefixError> {
        let id = self.record.dataset.id;
        let lists = Rank2File::read(self.ledger.files, self.ledger.prefix, id)?;
        let staged = |(name, file): (&FileName, &PrefixFile)| {
            let target = self.ledger.prefix.file(name);
            let staging = staging_file(&target, &self.record.token);
            Some(Staged { staging, target, bytes: file.bytes?, crc: file.crc })
        };
        // Each rank that has a file lists it, and the lists agree.
        let by_name: BTreeMap<_, _> =
            lists.by_rank().iter().flatten().map(|file| (&file.name, file)).collect();
        let all: Option<Vec<_>> = by_name.into_iter().map(staged).collect();
        // A flush of ours always says how long its files are.
        all.ok_or_else(|| PrefixError::Missing { path: self.ledger.prefix.rank2file(id) })
    }
}
