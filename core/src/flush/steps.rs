//! The steps of a flush, in their order. All ranks go through them together; after each they agree, and an error of one is the
//! error of all.

use super::file_copy::{self, FileCopy};
use super::folder_owners::assign_owners;
use super::lists;
use super::plan::Plan;
use super::running::RunningFlush;
use super::step::{Step, StepError};
use super::throttle::Throttle;
use super::{Flush, FlushError, FlushReport, ToFlush};
use crate::typed::broadcast_value;
use scr_comm::collective::{all_reduce, any, barrier, Op};
use scr_comm::{CommError, Rank};
use scr_plugin_api::KvTree;
use scr_prefix::commit::{make_folders, sync_folders, CloseOutcome, Share};
use scr_prefix::ledger::Refusal;
use scr_prefix::{Index, Overwritten, PrefixError};
use std::path::PathBuf;

impl Flush<'_> {
    /// Flushes and waits for the end. All ranks call it, with the same token. `refuse` is called on a rank that could not sync a
    /// file in place, before any other rank knows.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn sync(&self, what: ToFlush<'_>, refuse: &dyn Fn()) -> Result<FlushReport, FlushError> {
        let mut run = self.record(what, 1)?;
        if self.options.in_place {
            let arrived = self.sync_in_place(&mut run, refuse);
            return self.close(&mut run, arrived);
        }
        let copied = self.throttled(|| self.copy(&mut run)).unwrap_or(Err(StepError::Cancelled));
        let arrived = self.agreed(what.dataset, Step::Copying, copied);
        self.close(&mut run, arrived)
    }

    /// Step 1: from here on the flush is on record, to be closed once there are this many marks. All ranks call it.
    pub(super) fn record(&self, what: ToFlush<'_>, marks: u32) -> Result<RunningFlush, FlushError> {
        let dataset = what.dataset;
        let Plan { mut run, folders_to_make, lists } = self.plan(what, marks)?;
        self.agreed(dataset, Step::Folders, make_folders(self.files(), &folders_to_make))?;
        let in_place = self.options.in_place;
        let ledger = self.job.ledger();
        let recorded = lists.map_or(Ok(()), |lists| match in_place {
            true => self.job.commit().in_turn(None, || ledger.record_in_place(&run.record.dataset, &lists)),
            false => ledger.record_pending(&mut run.record, &lists),
        });
        let newer = match &recorded {
            Err(PrefixError::Refused(Refusal::Superseded { newer })) => {
                Some(*newer).filter(|newer| self.is_complete(*newer))
            }
            _ => None,
        };
        match self.agreed(dataset, Step::Recording, recorded) {
            Ok(()) => Ok(run),
            Err(error) => {
                let newer = broadcast_value(&*self.job.comm, (self.job.rank() == Rank(0)).then_some(newer))?;
                let error = newer.map_or(error, |newer| {
                    let dataset = dataset.name_text();
                    FlushError::Superseded { dataset, newer }
                });
                self.resolve_failed(&run, error).map(|()| run)
            }
        }
    }

    /// Whether the prefix directory has it. One that is only under way may yet be taken back.
    fn is_complete(&self, id: u64) -> bool {
        let is_valid = |index: &Index| index.entry(id).is_some_and(|entry| entry.is_valid());
        self.job.ledger().look(is_valid).unwrap_or(false)
    }

    /// Step 2: the transport fills the staging files, and what came is checked.
    fn copy(&self, run: &mut RunningFlush) -> Result<(), StepError> {
        let ticket = self.start_transport(run)?;
        run.ticket = Some(ticket.clone());
        let (name, transport) = (&*self.transport.name, &**self.transport());
        let ended = transport.wait(&ticket)?;
        file_copy::take_in(self.files(), (name, transport), ended, &mut run.copies, &ticket, &self.options)
    }

    /// Makes the staging files and starts the transport.
    pub(super) fn start_transport(&self, run: &mut RunningFlush) -> Result<Vec<u8>, StepError> {
        let token = format!("{}.{}", run.record.token, self.job.rank());
        file_copy::start(self.files(), &**self.transport(), &mut run.copies, token, &self.options)
    }

    /// Step 2 for files that are in place. A checksum is taken once every rank has synced what it wrote, as one file
    /// may have been written by many.
    fn sync_in_place(&self, run: &mut RunningFlush, refuse: &dyn Fn()) -> Result<(), FlushError> {
        let (files, prefix, options) = (self.files(), &self.job.prefix, &self.options);
        let mut arrived =
            self.throttled(|| file_copy::sync_in_place(files, prefix, &run.copies, &run.folders, options));
        let is_unsynced = matches!(arrived, Some(Err(StepError::Unsynced(_))));
        if is_unsynced {
            refuse();
        }
        if options.checksums {
            barrier(&*self.job.comm)?;
            let summed = self.throttled(|| file_copy::sum_in_place(files, &mut run.copies, options));
            arrived = arrived.map(|arrived| arrived.and(summed.unwrap_or(Err(StepError::Cancelled))));
        }
        let dataset = &run.record.dataset;
        match self.agreed(dataset, Step::Copying, arrived.unwrap_or(Err(StepError::Cancelled))) {
            Err(FlushError::Failed { dataset, account, .. }) if self.job.any(is_unsynced)? => {
                Err(FlushError::Unsynced { dataset, account })
            }
            other => other,
        }
    }

    /// Does `work` while this rank has its slots.
    fn throttled<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        Throttle::new(self.job, self.control, self.options.width).run(self.files(), &|| false, work)
    }

    /// Steps 3 to 5, once all ranks know whether all has arrived.
    pub(super) fn close(
        &self,
        run: &mut RunningFlush,
        arrived: Result<(), FlushError>,
    ) -> Result<FlushReport, FlushError> {
        let mut has_news = false;
        if let Err(error) = arrived.and_then(|()| self.mark_and_close(run, &mut has_news)) {
            self.resolve_failed(run, error)?;
        }
        let all = run.copies.iter().chain(&run.listed);
        let sums = || all.filter_map(|copy| Some((copy.file.name.clone(), copy.crc?))).collect();
        let sums = has_news.then(sums);
        Ok(FlushReport { sums, ..self.report(&run.copies)? })
    }

    /// The names of the staging files are synced, and there are file lists with checksums that were not known before, and the
    /// mark that all is there. From here on the flush is only rolled forward. Says whether there are such checksums.
    fn mark_and_close(&self, run: &mut RunningFlush, has_news: &mut bool) -> Result<(), FlushError> {
        let (files, prefix, in_place) = (self.files(), &self.job.prefix, self.options.in_place);
        if !in_place {
            let folders = run.folders.iter().map(PathBuf::as_path);
            let synced = sync_folders(files, prefix, folders);
            self.agreed(&run.record.dataset, Step::SyncingFolders, synced)?;
        }
        *has_news = self.share_checksums(run)?;
        let leaf = if *has_news {
            let mine = lists::of(run.copies.iter().chain(&run.listed));
            self.write_other_leaves(&run.record.dataset, Step::MarkingDone, &mine)?
        } else {
            None
        };
        let mark = || {
            if let Some(leaf) = leaf {
                self.job.ledger().write_leaf(run.record.dataset.id, &leaf)?;
            }
            if !in_place {
                run.record.mark_done(self.job.ledger(), 0, &KvTree::new())?;
            }
            Ok(())
        };
        let staged = run.copies.iter().filter(|_| !in_place).map(FileCopy::staged).collect();
        // Those of files in place are synced already.
        let folders = if in_place { Vec::new() } else { run.folders.clone() };
        let mut record = run.record.clone();
        let is_first = self.job.rank() == Rank(0);
        let share = Share { record: &mut record, staged, folders, in_place, fence: None, is_first };
        self.job
            .commit()
            .close(share, mark, |group, work| self.agreed(&run.record.dataset, Step::of(group), work()))?;
        let in_place = run.copies.iter().filter(|_| in_place && self.options.may_replace);
        in_place.for_each(|copy| Overwritten::forget(files, prefix, &copy.file.name));
        Ok(())
    }

    /// Finds out whether there are checksums that were not known before. If many ranks have a file, one of them has taken its
    /// checksum, and all learn it.
    fn share_checksums(&self, run: &mut RunningFlush) -> Result<bool, CommError> {
        let comm = &*self.job.comm;
        let news = run.copies.iter().any(|copy| copy.file.crc.is_none() && copy.crc.is_some());
        let mine = lists::of(run.copies.iter().chain(&run.listed));
        let lacking = mine.iter().any(|file| file.crc.is_none());
        let [news, lacking] = any(comm, [news, lacking])?;
        if news && lacking {
            let known = assign_owners(comm, mine.into_iter())?.sums;
            for copy in run.copies.iter_mut().chain(&mut run.listed) {
                copy.crc = copy.crc.or(copy.file.crc).or_else(|| known.get(&copy.file.name).copied());
            }
        }
        Ok(news)
    }

    /// Ends a flush after an error: if all of it is marked as done, it is rolled forward; otherwise it is rolled back. The next
    /// run removes what cannot be removed now.
    pub(super) fn resolve_failed(&self, run: &RunningFlush, error: FlushError) -> Result<(), FlushError> {
        if self.options.in_place {
            return Err(error);
        }
        if let (Some(ticket), FlushError::Failed { .. }) = (&run.ticket, &error) {
            let _ = self.transport().cancel(ticket);
        }
        let record = &run.record;
        let outcome = (self.job.rank() == Rank(0)).then(|| self.job.commit().resolve(record));
        let outcome = broadcast_value(&*self.job.comm, outcome)?;
        self.forget_record(run);
        match outcome {
            CloseOutcome::Complete => Ok(()),
            CloseOutcome::Unfinished(why) => {
                Err(FlushError::Unfinished { dataset: record.dataset.name_text(), why })
            }
            CloseOutcome::TakenBack => {
                let left = self.job.any(!file_copy::remove_staging(self.files(), &run.copies))?;
                // A file system that was full has had no room for the lock before.
                if self.job.rank() == Rank(0) {
                    self.job.commit().forget(record, !left);
                }
                Err(error)
            }
        }
    }

    pub(super) fn report(&self, copies: &[FileCopy]) -> Result<FlushReport, FlushError> {
        let bytes = copies.iter().fold(0_u64, |sum, copy| sum.saturating_add(copy.file.bytes));
        let [files, bytes] = all_reduce(&*self.job.comm, [copies.len() as u64, bytes], Op::Sum)?;
        Ok(FlushReport { files, bytes, sums: None })
    }
}
