//! The steps that end a flush, in [`Commit::close`], and how one process goes through them.

use super::names::{folders_of, name_file, sync_folders, Staged, BLOCK_BYTES};
use super::{CloseOutcome, Commit, FlushOutcome};
use crate::error::unless_damaged;
use crate::ledger::pending::{self, PendingFlush};
use crate::ledger::{
    expect_lock, By, Close, Closer, Do, Ended, Fence, Found, LedgerDir, Refusal, Request, Whose, Wish,
};
use crate::{staging_file, FileName, FlushProgress, PrefixError, PrefixFile, Rank2File};
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
        let by = if in_place { By::Application } else { record.by() };
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
                let PendingFlush { dataset, sharing, .. } = &mut *record;
                self.ledger.take(dataset, &by, closer, sharing)
            }),
            Close::Commit => self.ledger.complete(record, &by, closer.map(|closer| closer.number), &self.now),
            Close::Forget => {
                // The dataset counts already; what is left of the record is cleared away by the next run. The holder of the
                // lock may be giving the names anew by now.
                if expect_lock(fence, prefix.dir()).is_ok() {
                    let _ = record.forget(self.ledger);
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
    /// Ends it as is wished. Gives how it has ended, and why it was taken back, if it was.
    ///
    /// # Errors
    /// A step has failed for a reason that may pass.
    pub(super) fn run(&self, wish: Wish, now: &str) -> Result<(Ended, String), PrefixError> {
        let is_marked = self.record.all_done(self.ledger)?;
        self.run_from(Do::first(self.record.recorded(), is_marked, wish), wish, now)
    }

    /// The same from one step on.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub(super) fn run_from(&self, first: Do, wish: Wish, now: &str) -> Result<(Ended, String), PrefixError> {
        let (mut next, mut damage) = (first, None);
        loop {
            if let Do::Stop(ended) = next {
                let why = match ended {
                    Ended::CountsNoMore => "its dataset was complete, and counts no more",
                    _ if self.record.revoked => "it was given up, and not all of it was removed",
                    _ => "it was interrupted before all files had arrived",
                };
                let damage = damage.filter(|_| ended == Ended::TakenBack);
                return Ok((ended, damage.unwrap_or_else(|| why.to_owned())));
            }
            let found = self.execute(next, wish, now)?;
            next = next.after(&found, wish);
            if let Found::Damage(fault) = found {
                damage = Some(fault);
            }
        }
    }

    fn execute(&self, what: Do, wish: Wish, now: &str) -> Result<Found, PrefixError> {
        match what {
            Do::Look { .. } => return self.look(),
            Do::Close => match self.check_and_close(now) {
                Err(error) if error.is_damage() => return Ok(Found::Damage(describe(&error))),
                closed => closed?,
            },
            Do::Revoke { even_if_taken } => match self.revoke(even_if_taken) {
                // A file system that is full has no room for a lock, and without all marks no process closes it; unless the one
                // that has the lock by now does.
                Err(_) if wish == Wish::Resolve && !even_if_taken && self.expect_lock().is_ok() => (),
                revoked => return revoked,
            },
            Do::RemoveStaging(_) => self.remove_staging()?,
            Do::Release => _ = self.ledger.transact(&Request::Release(Whose::Ended(&self.record.by())))?,
            Do::Forget(ended) => {
                self.expect_lock()?;
                let revoked = ended == Ended::TakenBack;
                let record = PendingFlush { revoked, ..self.record.clone() };
                record.forget(self.ledger)?;
            }
            Do::Stop(_) => (),
        }
        Ok(Found::Done)
    }

    pub(super) fn resolve(&self, now: &str) -> CloseOutcome {
        match self.run(Wish::Resolve, now) {
            Ok((Ended::Complete, _)) => CloseOutcome::Complete,
            Ok(_) => CloseOutcome::TakenBack,
            Err(error) => CloseOutcome::Unfinished(describe(&error)),
        }
    }

    pub(super) fn end(&self, now: &str, wish: Wish) -> FlushOutcome {
        let PendingFlush { dataset, marks, .. } = self.record.clone();
        match self.run(wish, now) {
            Ok((Ended::Complete, _)) => FlushOutcome::Finalized(dataset),
            Ok((Ended::NotNow, _)) => {
                let done = self.record.done(self.ledger).unwrap_or(0);
                FlushOutcome::Waiting { dataset, done, marks }
            }
            Ok((_, why)) => FlushOutcome::Revoked { dataset, why },
            Err(error) => self.ledger.postponed(&self.record, describe(&error)),
        }
    }

    /// Fails where this process has lost the lock: whoever has it by now may be closing the flush.
    fn expect_lock(&self) -> Result<(), FsError> {
        expect_lock(Some(self.fence), &pending::flush_path(self.ledger.prefix, &self.record.token))
    }

    fn look(&self) -> Result<Found, PrefixError> {
        let (dataset, by) = (&self.record.dataset, &self.record.by());
        let found = Found::of(self.progress()?, by.is_saving(), || self.lacks_a_name())?;
        match found {
            Found::LacksName => self.ledger.transact(&Request::NameAgain { dataset, by })?,
            // The process that did it may have failed to sync the index.
            Found::Ended { .. } => self.ledger.transact(&Request::Confirm)?,
            _ => return Ok(found),
        };
        Ok(found)
    }

    /// How far it is, as the index knows it.
    pub(super) fn progress(&self) -> Result<FlushProgress, PrefixError> {
        Ok(self.ledger.index()?.progress(&self.record.dataset, &self.record.by()))
    }

    /// Whether a file is still in its staging file. After a power failure the index may say more than the folders have.
    fn lacks_a_name(&self) -> Result<bool, PrefixError> {
        let Some(staged) = unless_damaged(self.staged())? else { return Ok(false) };
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
        for mark in record.done_marks(self.ledger)? {
            sums.merge(record.sums_of(self.ledger, mark)?);
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

    /// Checks all files, gives them their names, and lists the dataset.
    fn check_and_close(&self, now: &str) -> Result<(), PrefixError> {
        self.record_checksums()?;
        let mut staged = self.staged()?;
        staged.iter_mut().try_for_each(|file| self.check(file))?;
        let targets = staged.iter().map(|file| &*file.target);
        let folders = folders_of(self.ledger.prefix, targets).into_iter().map(Path::to_owned).collect();
        let (mut record, fence) = (self.record.clone(), Some(self.fence));
        let share = Share { record: &mut record, staged, folders, in_place: false, fence, is_first: true };
        self.ledger.commit(now).close(share, || Ok(()), |_, work| work())
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
            let marked = self.record.marked_at(self.ledger)?;
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
    /// has not done so finds no record. Who has lost the lock revokes nothing.
    pub(super) fn revoke(&self, even_if_taken: bool) -> Result<Found, PrefixError> {
        let (dataset, by) = (&self.record.dataset, &self.record.by());
        let request = Request::TakeBack { dataset, by, even_if_taken };
        match self.ledger.transact_if(&request, &mut |_| Ok(self.expect_lock()?)) {
            Err(PrefixError::Refused(Refusal::Ended { .. })) => Ok(Found::Refused),
            revoked => revoked.map(|_| Found::Done),
        }
    }

    /// Removes the staging files. A process that has taken the lock may have given a file its staging name.
    fn remove_staging(&self) -> Result<(), PrefixError> {
        // Without its lists the staging files are unknown; they stay, and do no harm.
        let staged = unless_damaged(self.staged())?.unwrap_or_default();
        let (LedgerDir { files, prefix }, record) = (self.ledger, &self.record);
        // Lists that were written since do not name containers.
        let (folder, ending) = (prefix.dataset_dir(record.dataset.id), format!(".{}.part", record.token));
        let mut packed = files.list_if_there(&folder)?;
        packed.retain(|name| name.to_string_lossy().ends_with(&ending));
        let packed = packed.iter().map(|name| folder.join(name));
        let all = staged.into_iter().map(|file| file.staging).chain(packed);
        // Files that were saved from the nodes stay, to be built once more.
        for path in all.filter(|_| !record.by().is_saving()) {
            self.expect_lock()?;
            files.remove_if_there(&path)?;
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
