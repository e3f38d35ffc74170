//! The steps of a flush, in their order. All ranks go through them together; after each they agree, and an error of one is the
//! error of all.

use super::finalize;
use super::ledger::Ledger;
use super::lists;
use super::movers::{self, Mover};
use super::pending::Pending;
use super::plan::Plan;
use super::turns;
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
            turns::in_turn(self.comm, self.options.width, || {
                self.start_movers(&mut started);
                self.wait_for_movers(&mut started)
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
        let Plan { mut record, movers, folders, lists, may_replace } = plan;
        let in_place = self.options.in_place;
        let made = make_folders(self.files, &self.own_folders(&movers));
        let made = made.and_then(|()| make_folders(self.files, &folders));
        self.agreed(dataset, Step::Folders, made)?;
        let ledger = self.ledger();
        let recorded =
            lists.map_or(Ok(()), |lists| ledger.announce(&mut record, &lists, in_place, may_replace));
        let started = Started { record, movers, folders, ticket: None, background: None };
        let recorded = recorded.described();
        let recorded = self.agreed(dataset, Step::Recording, recorded);
        self.or_clear_away(&started, recorded)?;
        Ok(started)
    }

    /// Step 2, its beginning. An error is kept until all ranks are asked.
    pub(super) fn start_movers(&self, started: &mut Started) {
        if self.options.in_place {
            return;
        }
        let token = format!("{}.{}", started.record.token, self.comm.rank());
        let ticket = movers::start(self.files, self.transport, &mut started.movers, token, &self.options);
        let ticket = ticket.map_err(|error| error.to_string());
        started.ticket = Some(ticket.and_then(|ticket| self.leave_errand(started, &ticket).map(|()| ticket)));
    }

    /// Step 2, its end.
    fn wait_for_movers(&self, started: &mut Started) -> Result<(), String> {
        let ticket = started.given_ticket()?.to_vec();
        movers::finish(self.files, self.transport, &mut started.movers, &ticket, &self.options)
            .map_err(|error| error.to_string())
    }

    /// Step 2 for files that are in place. A checksum is taken once every rank has synced what it wrote, as one file
    /// may have been written by many.
    fn settle_in_place(&self, started: &mut Started) -> Result<Result<(), String>, CommError> {
        let (comm, width) = (self.comm, self.options.width);
        let synced = turns::in_turn(comm, width, || movers::sync_in_place(self.files, &started.movers))?;
        let mut arrived = synced.map_err(|error| error.to_string());
        if self.options.checksums {
            barrier(comm)?;
            let summed = turns::in_turn(comm, width, || {
                movers::sum_in_place(self.files, &mut started.movers, &self.options)
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
            let renamed = movers::rename(self.files, &started.movers);
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
        self.report(&started.movers)
    }

    /// Step 3: file lists with checksums that were not known before, then the mark that all is there, then the
    /// name leaves the older dataset that it may have stood for.
    fn seal(&self, started: &Started) -> Result<(), FlushError> {
        let news = started.movers.iter().any(|mover| mover.file.crc.is_none() && mover.crc.is_some());
        let [news] = any(self.comm, [news])?;
        let lists = if news { lists::gather(self.comm, &started.movers)? } else { None };
        let record = &started.record;
        let sealed = self.on_rank_0(|| {
            let ledger = self.ledger();
            if let Some(lists) = lists {
                ledger.write_lists(&record.dataset, &lists).described()?;
            }
            if !self.options.in_place {
                record.mark_done(self.files, self.prefix, 0, &KvTree::new()).described()?;
            }
            ledger.take_over_name(&record.dataset, &record.replaces).described()
        });
        self.agreed(&record.dataset, Step::Sealing, sealed)
    }

    /// Step 5, on rank 0.
    fn close(&self, record: &Pending) -> Result<(), String> {
        let ledger = self.ledger();
        ledger.close(&record.dataset, record.make_current, &self.now).described()?;
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
            finalize::alone(self.files, self.prefix, || started.record.revoke(self.files, self.prefix))
                .described()?
                .described()
        };
        let revoked = self.on_rank_0(revoke);
        // The marks go before the files, so that nobody takes the rest for a whole.
        let _ = barrier(self.comm);
        let left = any(self.comm, [!movers::remove_parts(self.files, &started.movers)]);
        // A full file system has had no room for the lock before.
        let revoked = revoked.or_else(|_| self.on_rank_0(revoke));
        // What is left is found by the next run through the record.
        if revoked.is_ok() && left == Ok([false]) {
            let _ = self.on_rank_0(|| started.record.forget(self.files, self.prefix));
        }
        self.forget_errand(&started.record.token);
    }

    pub(super) fn report(&self, movers: &[Mover]) -> Result<FlushReport, FlushError> {
        let bytes = movers.iter().fold(0_u64, |sum, mover| sum.saturating_add(mover.file.bytes));
        let mut sums = [movers.len() as u64, bytes];
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

    fn ledger(&self) -> Ledger<'_> {
        Ledger { files: self.files, prefix: self.prefix }
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
