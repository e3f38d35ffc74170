//! A flush that goes on while the application computes: it is set off, asked for, and ended, in calls that all ranks make.
//! What is at work meanwhile is a thread of each rank (`worker`), or something that outlives the application (`detached`).

use super::file_copy::FileCopy;
use super::pending::PendingFlush;
use super::worker::RunningWorker;
use super::{Flush, FlushError, FlushReport};
use crate::comm::collective::any;
use crate::fs::Files;
use std::path::PathBuf;

/// A flush under way.
#[derive(Debug)]
pub(crate) struct Started {
    pub(super) record: PendingFlush,
    pub(super) copies: Vec<FileCopy>,
    /// The folders that this rank looks after.
    pub(super) folders: Vec<PathBuf>,
    /// What the transport gave, or why it did not; nothing before it was asked.
    pub(super) ticket: Option<Result<Vec<u8>, String>>,
    /// This rank's part, where a thread does it.
    pub(super) worker: Option<RunningWorker>,
}

impl Started {
    /// Returns when the announcement, which may be made in the worker, has been made or has failed, as far as it is this rank's.
    pub(crate) fn wait_until_recorded(&self, files: &dyn Files) {
        if let Some(worker) = &self.worker {
            worker.wait_until_recorded(files);
        }
    }

    /// What the transport gave.
    pub(super) fn given_ticket(&self) -> Result<&[u8], String> {
        match &self.ticket {
            Some(Ok(ticket)) => Ok(ticket),
            Some(Err(why)) => Err(why.clone()),
            None => Err("the copy was not started".to_owned()),
        }
    }
}

impl Flush<'_> {
    /// Sets the transport to work on a flush that was [announced](Self::announce), and returns meanwhile. Local. What
    /// the transport could not even start is told by [`finish`](Self::finish).
    pub(crate) fn start_copying(&self, started: &mut Started) {
        match &mut started.worker {
            Some(worker) => worker.start_copying(),
            None if started.ticket.is_none() => self.start_transport(started),
            None => (),
        }
    }

    /// Whether the transport is at work on any rank, or still to be set off. All ranks call it.
    ///
    /// # Errors
    /// The ranks could not talk.
    pub(crate) fn is_running(&self, started: &Started) -> Result<bool, FlushError> {
        let (running, failed) = match &started.worker {
            Some(worker) => self.ask_all(worker)?,
            None => self.ask_all_behind(started)?,
        };
        Ok(running && !failed)
    }

    /// Whether the transport of every rank was set to work. All ranks call it.
    ///
    /// # Errors
    /// The ranks could not talk.
    pub(crate) fn has_begun(&self, started: &Started) -> Result<bool, FlushError> {
        let [missing] = any(self.comm, [!matches!(started.ticket, Some(Ok(_)))])?;
        Ok(!missing)
    }

    /// Waits for a flush that was begun, and ends it. All ranks call it.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn finish(&self, mut started: Started) -> Result<FlushReport, FlushError> {
        if let Some(mut worker) = started.worker.take() {
            worker.start_copying();
            return self.finish_background(started, worker);
        }
        self.start_copying(&mut started);
        self.finish_behind(&started)
    }
}
