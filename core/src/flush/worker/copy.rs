//! One rank's part of an asynchronous flush, as its thread does it: the announcement, the copy, and the look at what came.
//!
//! The order is that of every flush: no rank makes a file before rank 0 has the flush on record, synced. Threads tell each other by
//! [`Signs`] below the prefix directory; where all ranks happen to be in a call, they are told there as well.

use super::thread::{Flags, Shared};
use super::Pauses;
use crate::flush::catalog::Catalog;
use crate::flush::file_copy::{self, FileCopy};
use crate::flush::pending::PendingFlush;
use crate::flush::steps::{make_folders, Step};
use crate::flush::throttle::Signs;
use crate::flush::Options;
use crate::fs::Files;
use crate::prefix::{Prefix, PrefixFile};
use crate::{describe, Described};
use rustix::process::setpriority_process;
use scr_plugin_api::Transport;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a rank's part needs: all its own, for a thread to have it.
pub(super) struct Task {
    pub(super) files: Arc<dyn Files>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) prefix: Prefix,
    pub(super) options: Options,
    pub(super) rank: u32,
    pub(super) record: PendingFlush,
    pub(super) copies: Vec<FileCopy>,
    /// The folders that this rank makes.
    pub(super) folders: Vec<PathBuf>,
    /// The files of all ranks, on rank 0.
    pub(super) lists: Option<Vec<Vec<PrefixFile>>>,
    /// Whether any rank's file replaces one that was there before.
    pub(super) may_replace: bool,
}

/// How a rank's part has ended.
pub(super) struct FlushOutcome {
    pub(super) record: PendingFlush,
    pub(super) copies: Vec<FileCopy>,
    /// What the transport gave, where it was asked.
    pub(super) ticket: Option<Vec<u8>>,
    pub(super) outcome: Result<(), Failure>,
}

/// Why a rank's part has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    At(Step, String),
    /// Another rank's has, or nobody waits for it any more.
    Cancelled,
}

/// Does a rank's part.
pub(super) struct Worker {
    pub(super) task: Task,
    pub(super) shared: Arc<Shared>,
}

impl Worker {
    pub(super) fn run(mut self) -> FlushOutcome {
        // The application comes first wherever both want a processor; the transport's threads are made by this one, and are alike.
        let _ = setpriority_process(None, NICE);
        let outcome = self.announce().and_then(|()| self.copy());
        if matches!(outcome, Err(Failure::At(..))) {
            self.shared.lock().failed = true;
        }
        let ticket = self.shared.lock().ticket.take();
        FlushOutcome { record: self.task.record, copies: self.task.copies, ticket, outcome }
    }

    /// Step 1, as far as it is this rank's.
    fn announce(&mut self) -> Result<(), Failure> {
        let signs = self.signs();
        let Task { files, prefix, folders, lists, options, record, may_replace, .. } = &mut self.task;
        make_folders(&**files, folders).map_err(|why| Failure::At(Step::Folders, why))?;
        if let Some(lists) = lists.take() {
            let catalog = Catalog { files: &**files, prefix };
            let recorded = catalog.announce(record, &lists, options.in_place, *may_replace);
            let told = recorded.described();
            told.and_then(|()| signs.begin(&**files).described())
                .map_err(|why| Failure::At(Step::Recording, why))?;
        }
        self.shared.lock().announced = true;
        Ok(())
    }

    /// Step 2, when it is this rank's turn.
    fn copy(&mut self) -> Result<(), Failure> {
        let failed = |why: String| Failure::At(Step::Copying, why);
        let signs = self.signs();
        self.wait_for(&signs.awaited(), signs.is_first())?;
        for copy in &self.task.copies {
            self.wait_for(copy.target.parent().unwrap_or(&copy.target), true)?;
        }
        let Task { files, transport, options, rank, record, copies, .. } = &mut self.task;
        signs.take(&**files);
        let token = format!("{}.{rank}", record.token);
        let ticket = file_copy::start(&**files, &**transport, copies, token, options)
            .map_err(|error| failed(error.to_string()))?;
        let cancelled = {
            let mut told = self.shared.lock();
            told.ticket = Some(ticket.clone());
            told.cancelled
        };
        if cancelled {
            // What cannot be stopped is waited for.
            let _ = transport.cancel(&ticket);
            let _ = transport.wait(&ticket);
            return Err(Failure::Cancelled);
        }
        let arrived = file_copy::finish(&**files, &**transport, copies, &ticket, options);
        arrived.map_err(|error| failed(error.to_string()))?;
        signs.pass(&**files).map_err(|error| failed(describe(&error)))
    }

    /// Until something is there. What all have announced needs no sign.
    fn wait_for(&self, path: &Path, by_call: bool) -> Result<(), Failure> {
        let mut pauses = Pauses::up_to(LONGEST_PAUSE);
        loop {
            match *self.shared.lock() {
                Flags { cancelled: true, .. } => return Err(Failure::Cancelled),
                Flags { all_announced: true, .. } if by_call => return Ok(()),
                _ => (),
            }
            match self.task.files.status(path) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => pauses.wait(&*self.task.files),
                Err(error) => {
                    let why = format!("cannot look at {}: {error}", path.display());
                    return Err(Failure::At(Step::Copying, why));
                }
            }
        }
    }

    fn signs(&self) -> Signs {
        let Task { prefix, record, rank, options, .. } = &self.task;
        Signs::new(prefix, &record.token, *rank, record.ranks, options.width)
    }
}

/// Between two looks for a sign, at the most: thousands of ranks may be looking.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Of the thread: a third of the weight of the application's own where both want a processor. With much less, an application that computes without
/// end, or waits for messages in a loop, would keep its flush from going on.
const NICE: i32 = 5;
