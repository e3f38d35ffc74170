//! A flush that runs while the application computes: begun, polled and ended in calls that all ranks make.

use super::file_copy::FileCopy;
use super::folder_owners;
use super::step::StepError;
use super::worker::RunningWorker;
use super::{Flush, FlushError, FlushReport, ToFlush};
use scr_base::fs::Files;
use scr_comm::collective::any;
use scr_comm::{Comm, CommError};
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::{DatasetDescriptor, FileName};
use std::collections::HashSet;
use std::path::PathBuf;

/// A rank's share of a flush under way.
pub(crate) struct RunningFlush {
    pub(super) record: PendingFlush,
    pub(super) copies: Vec<FileCopy>,
    /// Files of this rank that another one copies.
    pub(super) listed: Vec<FileCopy>,
    /// The folders that this rank makes and syncs.
    pub(super) folders: Vec<PathBuf>,
    /// The names, of any rank, that this rank is asked about.
    pub(super) asked: HashSet<FileName>,
    /// The transport's ticket for the copies.
    pub(super) ticket: Option<Vec<u8>>,
    pub(super) running: Running,
}

/// The place where the copying is done.
pub(super) enum Running {
    /// In the call that began the flush.
    InCall,
    /// In a thread of each rank.
    Threads(RunningWorker),
    /// By a transport that continues after the application has ended. Once it was started: whether it could be on this rank.
    Detached(Option<Result<(), StepError>>),
}

impl RunningFlush {
    /// Which of these flushes write a file of a dataset, or have its name. All ranks call it.
    pub(super) fn overlapping<'a>(
        comm: &dyn Comm,
        runs: &[&Self],
        dataset: &DatasetDescriptor,
        names: impl Iterator<Item = &'a FileName>,
    ) -> Result<Vec<usize>, CommError> {
        let asked: Vec<_> = runs.iter().map(|run| &run.asked).collect();
        let shared = folder_owners::overlapping(comm, &asked, names)?;
        let has_name = |place: &usize| runs[*place].record.dataset.name == dataset.name;
        Ok((0..runs.len()).filter(|place| shared.contains(place) || has_name(place)).collect())
    }

    /// Returns when this rank changes nothing any more below the prefix directory but its own staging files.
    pub(crate) fn wait_until_recorded(&self, files: &dyn Files) {
        if let Running::Threads(worker) = &self.running {
            worker.wait_until_recorded(files);
        }
    }
}

impl Flush<'_> {
    /// Begins a flush that continues while the application computes. Not a byte is copied before
    /// [`start_copying`](Self::start_copying). All ranks call it, with the same token.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn begin(&self, what: ToFlush<'_>) -> Result<RunningFlush, FlushError> {
        if !self.transport.survives_job {
            return self.begin_threads(what);
        }
        // It must be on record when the application ends right after.
        let marks = u32::try_from(self.job.nodes.count()).unwrap_or(u32::MAX);
        let run = self.record(what, marks)?;
        Ok(RunningFlush { running: Running::Detached(None), ..run })
    }

    /// Lets the copying begin, unless it has. [`finish`](Self::finish) reports what could not be started. Local.
    pub(crate) fn start_copying(&self, run: &mut RunningFlush) {
        match &mut run.running {
            Running::Threads(worker) => worker.start(),
            Running::Detached(None) => {
                let started = self.start_detached(run);
                run.running = Running::Detached(Some(started));
            }
            Running::Detached(Some(_)) | Running::InCall => (),
        }
    }

    /// Whether any rank still copies, or has not begun to, and no rank has failed. All ranks call it.
    ///
    /// # Errors
    /// The ranks could not talk.
    pub(crate) fn is_running(&self, run: &RunningFlush) -> Result<bool, FlushError> {
        let (running, failed) = self.progress(run)?;
        Ok(running && !failed)
    }

    /// Whether the transport was started on every rank. All ranks call it.
    ///
    /// # Errors
    /// The ranks could not talk.
    pub(crate) fn is_started(&self, run: &RunningFlush) -> Result<bool, FlushError> {
        let started = matches!(run.running, Running::Detached(Some(Ok(()))));
        Ok(!self.job.any(!started)?)
    }

    /// Waits for a flush, and closes it. All ranks call it.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn finish(&self, mut run: RunningFlush) -> Result<FlushReport, FlushError> {
        self.start_copying(&mut run);
        match run.running {
            Running::Threads(_) => self.finish_threads(run),
            Running::Detached(_) | Running::InCall => self.finish_detached(&run),
        }
    }

    /// Whether any rank still copies, and whether any has failed.
    pub(super) fn progress(&self, run: &RunningFlush) -> Result<(bool, bool), FlushError> {
        let (running, failed, unrecorded) = match &run.running {
            Running::Threads(worker) => worker.progress(),
            Running::Detached(_) | Running::InCall => {
                let (running, failed, _) = self.detached_progress(run);
                (running, failed, false)
            }
        };
        let [running, failed, unrecorded] = any(&*self.job.comm, [running, failed, unrecorded])?;
        if let (Running::Threads(worker), false) = (&run.running, unrecorded) {
            worker.all_have_recorded();
        }
        Ok((running, failed))
    }
}
