//! The steps of a flush, in their order. All ranks go through them together; after each they agree, and an error of one is the
//! error of all.

use super::catalog::Catalog;
use super::closing;
use super::file_copy::{self, FileCopy};
use super::lists;
use super::pending::PendingFlush;
use super::plan::Plan;
use super::throttle;
use super::{Flush, FlushError, FlushReport, SourceFile, Started};
use crate::comm::collective::{agree_at, all_reduce, any, barrier, Op};
use crate::comm::{AnyError, CommError, Rank};
use crate::fs::{At, Durability, Files};
use crate::prefix::{DatasetDescriptor, DIR_MODE};
use crate::Described;
use scr_plugin_api::KvTree;
use std::path::PathBuf;

impl Flush<'_> {
    /// Flushes and waits for the end. All ranks call it, with the same token.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn sync(
        &self,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[SourceFile],
    ) -> Result<FlushReport, FlushError> {
        let mut started = self.announce(token, dataset, mine)?;
        let copied = if self.options.in_place {
            self.settle_in_place(&mut started)?
        } else {
            throttle::in_turn(self.comm, self.options.width, || {
                self.start_transport(&mut started);
                self.wait_for_transport(&mut started)
            })?
        };
        let arrived = self.agreed(dataset, Step::Copying, copied);
        self.conclude(&started, arrived)
    }

    /// Step 1: from here on the flush is on record. All ranks call it, with the same token.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn announce(
        &self,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[SourceFile],
    ) -> Result<Started, FlushError> {
        let plan = self.plan(token, dataset, mine)?;
        let Plan { mut record, copies, folders, lists, may_replace } = plan;
        let in_place = self.options.in_place;
        let made = make_folders(self.files, &self.own_folders(&copies));
        let made = made.and_then(|()| make_folders(self.files, &folders));
        self.agreed(dataset, Step::Folders, made)?;
        let catalog = self.catalog();
        let recorded =
            lists.map_or(Ok(()), |lists| catalog.announce(&mut record, &lists, in_place, may_replace));
        let started = Started { record, copies, folders, ticket: None, worker: None };
        let recorded = recorded.described();
        let recorded = self.agreed(dataset, Step::Recording, recorded);
        self.or_clear_away(&started, recorded)?;
        Ok(started)
    }

    /// Step 2, its beginning. An error is kept until all ranks are asked.
    pub(super) fn start_transport(&self, started: &mut Started) {
        if self.options.in_place {
            return;
        }
        let token = format!("{}.{}", started.record.token, self.comm.rank());
        let ticket = file_copy::start(self.files, self.transport, &mut started.copies, token, &self.options);
        let ticket = ticket.map_err(|error| error.to_string());
        started.ticket = Some(ticket.and_then(|ticket| self.leave_errand(started, &ticket).map(|()| ticket)));
    }

    /// Step 2, its end.
    fn wait_for_transport(&self, started: &mut Started) -> Result<(), String> {
        let ticket = started.given_ticket()?.to_vec();
        file_copy::finish(self.files, self.transport, &mut started.copies, &ticket, &self.options)
            .map_err(|error| error.to_string())
    }

    /// Step 2 for files that are in place. A checksum is taken once every rank has synced what it wrote, as one file
    /// may have been written by many.
    fn settle_in_place(&self, started: &mut Started) -> Result<Result<(), String>, CommError> {
        let (comm, width) = (self.comm, self.options.width);
        let synced =
            throttle::in_turn(comm, width, || file_copy::sync_in_place(self.files, &started.copies))?;
        let mut arrived = synced.map_err(|error| error.to_string());
        if self.options.checksums {
            barrier(comm)?;
            let summed = throttle::in_turn(comm, width, || {
                file_copy::sum_in_place(self.files, &mut started.copies, &self.options)
            })?;
            arrived = arrived.and(summed.map_err(|error| error.to_string()));
        }
        Ok(arrived)
    }

    /// Steps 3 to 5, once all ranks know whether all has arrived.
    pub(super) fn conclude(
        &self,
        started: &Started,
        arrived: Result<(), FlushError>,
    ) -> Result<FlushReport, FlushError> {
        self.or_clear_away(started, arrived.and_then(|()| self.try_to_conclude(started)))
    }

    /// After an error on any rank nothing is left of a flush.
    pub(super) fn or_clear_away<T>(
        &self,
        started: &Started,
        outcome: Result<T, FlushError>,
    ) -> Result<T, FlushError> {
        if outcome.is_err() {
            self.clear_away(started);
        }
        outcome
    }

    fn try_to_conclude(&self, started: &Started) -> Result<FlushReport, FlushError> {
        let dataset = &started.record.dataset;
        self.seal(started)?;
        if !self.options.in_place {
            let renamed = file_copy::rename(self.files, &started.copies);
            self.agreed(dataset, Step::Renaming, renamed)?;
        }
        let synced = started
            .folders
            .iter()
            .try_for_each(|folder| self.files.sync_dir(folder).at("sync", folder))
            .described();
        self.agreed(dataset, Step::SyncingFolders, synced)?;
        let closed = self.on_rank_0(|| self.close(&started.record));
        self.agreed(dataset, Step::Closing, closed)?;
        self.report(&started.copies)
    }

    /// Step 3: file lists with checksums that were not known before, then the mark that all is there, then the
    /// name leaves the older dataset that it may have stood for.
    fn seal(&self, started: &Started) -> Result<(), FlushError> {
        let news = started.copies.iter().any(|copy| copy.file.crc.is_none() && copy.crc.is_some());
        let [news] = any(self.comm, [news])?;
        let lists = if news { lists::gather(self.comm, &started.copies)? } else { None };
        let record = &started.record;
        let sealed = self.on_rank_0(|| {
            let catalog = self.catalog();
            if let Some(lists) = lists {
                catalog.write_lists(&record.dataset, &lists).described()?;
            }
            if !self.options.in_place {
                record.mark_done(self.files, self.prefix, 0, &KvTree::new()).described()?;
            }
            catalog.invalidate_previous(&record.dataset, &record.replaces).described()
        });
        self.agreed(&record.dataset, Step::Sealing, sealed)
    }

    /// Step 5, on rank 0.
    fn close(&self, record: &PendingFlush) -> Result<(), String> {
        let catalog = self.catalog();
        catalog.close(&record.dataset, record.make_current, &self.now).described()?;
        if !self.options.in_place {
            // The dataset counts already; what is left of the record is cleared away by the next run.
            let _ = record.forget(self.files, self.prefix);
        }
        Ok(())
    }

    /// After an error on any rank. What cannot be removed now is removed by the next run.
    fn clear_away(&self, started: &Started) {
        if self.options.in_place {
            return;
        }
        if let Some(Ok(ticket)) = &started.ticket {
            let _ = self.transport.cancel(ticket);
        }
        let revoke = || {
            closing::alone(self.files, self.prefix, || started.record.revoke(self.files, self.prefix))
                .described()?
                .described()
        };
        let revoked = self.on_rank_0(revoke);
        // The marks go before the files, so that nobody takes the rest for a whole.
        let _ = barrier(self.comm);
        let left = any(self.comm, [!file_copy::remove_staging(self.files, &started.copies)]);
        // A full file system has had no room for the lock before.
        let revoked = revoked.or_else(|_| self.on_rank_0(revoke));
        // What is left is found by the next run through the record.
        if revoked.is_ok() && left == Ok([false]) {
            let _ = self.on_rank_0(|| started.record.forget(self.files, self.prefix));
        }
        self.forget_errand(&started.record.token);
    }

    pub(super) fn report(&self, copies: &[FileCopy]) -> Result<FlushReport, FlushError> {
        let bytes = copies.iter().fold(0_u64, |sum, copy| sum.saturating_add(copy.file.bytes));
        let mut sums = [copies.len() as u64, bytes];
        all_reduce(self.comm, &mut sums, Op::Sum)?;
        Ok(FlushReport { files: sums[0], bytes: sums[1] })
    }

    pub(super) fn on_rank_0<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        if self.comm.rank() == Rank(0) {
            work()
        } else {
            Ok(())
        }
    }

    pub(super) fn agreed<T, E: Into<AnyError>>(
        &self,
        dataset: &DatasetDescriptor,
        step: Step,
        result: Result<T, E>,
    ) -> Result<T, FlushError> {
        agree_at(self.comm, self.node, result).or_else(|error| {
            Err(FlushError::Failed {
                dataset: String::from_utf8_lossy(&dataset.name).into_owned(),
                step: step.name(),
                account: error.agreed()?.to_string(),
            })
        })
    }

    fn catalog(&self) -> Catalog<'_> {
        Catalog { files: self.files, prefix: self.prefix }
    }
}

/// Makes folders, durably.
pub(super) fn make_folders(files: &dyn Files, folders: &[PathBuf]) -> Result<(), String> {
    folders.iter().try_for_each(|folder| files.make_dirs(folder, DIR_MODE, Durability::Synced).described())
}

/// What all ranks agree on, in its order, as messages name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Folders,
    Recording,
    Copying,
    Sealing,
    Renaming,
    SyncingFolders,
    Closing,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Folders => "making the folders",
            Self::Recording => "recording what is to come",
            Self::Copying => "copying",
            Self::Sealing => "recording that all is there",
            Self::Renaming => "renaming the files",
            Self::SyncingFolders => "syncing the folders",
            Self::Closing => "listing the dataset as complete",
        }
    }
}
