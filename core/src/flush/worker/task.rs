//! The work of a rank's thread: it records, copies, and checks the files that have arrived.
//!
//! The order is that of every flush: no rank makes a file before the record of the flush is synced. Only one rank of each node
//! polls for the record, syncs its name, which rank 0 may be about to do, and signals it to the others by a file in the control
//! directory. If all ranks happen to be in a call, they learn it there.

use super::flags::{Flags, SharedFlags};
use crate::flush::file_copy::{self, FileCopy};
use crate::flush::step::{Step, StepError};
use crate::flush::throttle::Throttle;
use crate::flush::Options;
use rustix::process::setpriority_process;
use scr_base::fs::{At, Files, How, Pauses};
use scr_plugin_api::{held, Transport};
use scr_prefix::commit::make_folders;
use scr_prefix::ledger::pending::{flush_path, PendingFlush};
use scr_prefix::ledger::{LedgerDir, RecordedLists};
use scr_prefix::Prefix;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A rank's part of a flush: all that it needs, owned by the thread.
pub(super) struct Task {
    pub(super) files: Arc<dyn Files>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) transport_name: String,
    pub(super) prefix: Prefix,
    pub(super) options: Options,
    pub(super) rank: u32,
    /// Whether this rank is the first of its node.
    pub(super) leads: bool,
    pub(super) control: PathBuf,
    pub(super) throttle: Throttle,
    pub(super) record: PendingFlush,
    pub(super) copies: Vec<FileCopy>,
    pub(super) folders_to_make: Vec<PathBuf>,
    /// The lists of the files that rank 0 records.
    pub(super) lists: Option<RecordedLists>,
}

/// The task at its end, and its outcome.
pub(super) type TaskEnd = (Task, Result<(), (Step, StepError)>);

impl Task {
    pub(super) fn run(mut self, flags: &SharedFlags) -> TaskEnd {
        // The application comes first wherever both want a processor; the transport's threads are made by this one, and are
        // alike.
        let _ = setpriority_process(None, NICE);
        let outcome = self.record(flags).and_then(|()| {
            let copied = self.wait_until_recorded(flags).and_then(|()| self.copy(flags));
            copied.map_err(|error| (Step::Copying, error))
        });
        if matches!(&outcome, Err((_, error)) if !matches!(error, StepError::Cancelled)) {
            held(flags).failed = true;
        }
        (self, outcome)
    }

    /// Step 1, as far as it is this rank's.
    fn record(&mut self, flags: &SharedFlags) -> Result<(), (Step, StepError)> {
        let files = &*self.files;
        make_folders(files, &self.folders_to_make).map_err(|error| (Step::Folders, error.into()))?;
        if let Some(lists) = self.lists.take() {
            let ledger = LedgerDir { files, prefix: &self.prefix };
            let recorded = ledger.record_pending(&mut self.record, &lists);
            recorded.map_err(|error| (Step::Recording, error.into()))?;
        }
        held(flags).recorded = true;
        Ok(())
    }

    /// Returns once the flush is on record.
    fn wait_until_recorded(&self, flags: &SharedFlags) -> Result<(), StepError> {
        let of_node = sign(&self.control, &self.record);
        if !self.leads {
            return self.wait_for(&of_node, LONGEST_PAUSE_OF_RANK, flags);
        }
        self.wait_for(&flush_path(&self.prefix, &self.record.token), LONGEST_PAUSE_OF_NODE, flags)?;
        let folder = self.prefix.scr_dir();
        self.files.sync_dir(&folder).at("sync", &folder)?;
        // If it cannot be made, the others learn that in their next call.
        let _ = self.files.open(&of_node, How::Ensure(PRIVATE));
        Ok(())
    }

    /// Returns once a file is there, or all ranks have recorded.
    fn wait_for(&self, path: &Path, longest: Duration, flags: &SharedFlags) -> Result<(), StepError> {
        let mut pauses = Pauses::up_to(longest);
        loop {
            match *held(flags) {
                Flags { cancelled: true, .. } => return Err(StepError::Cancelled),
                Flags { all_recorded: true, .. } => return Ok(()),
                _ => (),
            }
            match self.files.status(path) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => pauses.wait(&*self.files),
                Err(error) => return Ok(Err(error).at("look at", path)?),
            }
        }
    }

    /// Step 2, once this rank has its slots.
    fn copy(&mut self, flags: &SharedFlags) -> Result<(), StepError> {
        let Self { files, transport, transport_name, options, rank, record, copies, throttle, .. } = self;
        let is_cancelled = || held(flags).cancelled;
        let copied = throttle.run(&**files, &is_cancelled, || {
            let token = format!("{}.{rank}", record.token);
            let ticket = file_copy::start(&**files, &**transport, copies, token, options)?;
            let cancelled = {
                let mut flags = held(flags);
                flags.ticket = Some(ticket.clone());
                flags.cancelled
            };
            if cancelled {
                // If it cannot be stopped, wait for it.
                let _ = transport.cancel(&ticket);
                let _ = transport.wait(&ticket);
                return Err(StepError::Cancelled);
            }
            let ended = transport.wait(&ticket)?;
            file_copy::take_in(&**files, (transport_name, &**transport), ended, copies, &ticket, options)
        });
        copied.unwrap_or(Err(StepError::Cancelled))
    }
}

/// The file by which the ranks of a node learn that a flush is on record.
pub(super) fn sign(control: &Path, record: &PendingFlush) -> PathBuf {
    control.join(format!("recorded.{}", record.token))
}

/// Between two looks for the sign at the most: by each rank on its own node, and by one rank of each node below the prefix
/// directory.
const LONGEST_PAUSE_OF_RANK: Duration = Duration::from_millis(16);
const LONGEST_PAUSE_OF_NODE: Duration = Duration::from_millis(200);
/// Private to the owner (mode 0600).
const PRIVATE: u32 = 0o600;
/// The nice value of the thread: a third of the weight of the application's own where both want a processor. With much less, an
/// application that computes without end, or waits for messages in a loop, would keep its flush from going on.
const NICE: i32 = 5;
