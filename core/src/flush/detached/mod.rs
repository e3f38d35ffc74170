//! Flushes that continue without the application, and are closed without it.
//!
//! The application only starts a transport whose copies survive the job. Each rank leaves a *transfer record* in the control
//! directory of its node, `detached.<token>.<rank>`: what to copy where, the length and checksum of every file, and the
//! transport's ticket. A transfer monitor ([`poll_transfers`]: in the agent, in `scr poststage`, or in the application as long as
//! it runs) polls the transport and compares the files that have arrived with the record. Once all files of the node have
//! arrived, it writes the node's mark, `done.<token>.<node>`. The process that finds the marks of all nodes closes the flush.
//!
//! | module | contents |
//! |---|---|
//! | `record` | the transfer record of a rank |
//! | `monitor` | polls the transfers of a node, with the application or without |
//!
//! This file is the application's side of such a flush, as long as the application runs.

mod monitor;
pub(crate) mod record;

pub(crate) use monitor::{poll_some, Here, Which};
pub use monitor::{poll_transfers, poll_transfers_anew, OpenTransport, PollResult, Transports};

use super::pauses::WaitLimit;
use super::running::{Running, RunningFlush};
use super::step::{Step, StepError};
use super::{Flush, FlushError, FlushReport};
use record::{TransferRecord, TransferState};
use scr_base::fs::LEAST_PAUSE;
use scr_comm::collective::{all_reduce, Op};
use scr_config::param;
use scr_plugin_api::{CopyState, KvTree};
use std::sync::Arc;
use std::time::Duration;

impl Flush<'_> {
    /// Starts the transport on this rank, and leaves the record of it.
    pub(super) fn start_detached(&self, run: &mut RunningFlush) -> Result<(), StepError> {
        let ticket = self.start_transport(run)?;
        let (transport, job) = (&self.transport, self.job);
        run.ticket = Some(ticket.clone());
        let record = TransferRecord {
            token: run.record.token.clone(),
            prefix: job.prefix.dir().to_owned(),
            prefix_id: job.run.prefix.clone(),
            rank: job.rank().0,
            node: job.nodes.number(job.rank()),
            mates: job.nodes.mates(job.rank()).iter().map(|rank| rank.0).collect(),
            transport: transport.name.clone(),
            transport_options: transport.options.clone(),
            ticket,
            copies: run.copies.clone(),
            options: self.options,
            state: TransferState::Copying,
            repeated: 0,
            unpolled: 0,
        };
        Ok(record.write(self.files(), self.control)?)
    }

    /// Waits until the files of all nodes have arrived, or those of one cannot, or nothing gets on any more, and has the flush
    /// closed by whoever is first: this, or a monitor elsewhere.
    pub(super) fn finish_detached(&self, run: &RunningFlush) -> Result<FlushReport, FlushError> {
        let pause = Duration::from_micros(self.job.params.get(&param::FLUSH_ASYNC_USLEEP)).max(LEAST_PAUSE);
        // The pauses are the same on all ranks, unlike the clocks.
        let mut waited = Duration::ZERO;
        let (mut limit, mut is_said): (Option<WaitLimit>, bool) = (None, false);
        let arrived = loop {
            let (running, failed, moved) = self.detached_progress(run);
            let own = [u64::from(running), u64::from(failed), moved];
            let [all_running, all_failed, all_moved] = all_reduce(&*self.job.comm, own, Op::Sum)?;
            if all_failed > 0 || all_running == 0 {
                // If another rank has failed, transfers under way are useless, and are stopped.
                break self.detached_arrived(run, all_failed > 0);
            }
            let limit = limit
                .get_or_insert_with(|| WaitLimit::begin(Duration::MAX, MOST_STANDING, waited, all_moved));
            if !limit.lasts(waited, all_moved) {
                let waited = MOST_STANDING.as_secs();
                let why =
                    format!("nothing has been copied for {waited} s: the agent hangs, or a file system");
                break if running { Err(StepError::Other(why)) } else { Ok(()) };
            }
            if waited >= SILENCE && !std::mem::replace(&mut is_said, true) {
                self.job.report.notice(&format!(
                    "waiting for the flush of {}, of which {all_moved} bytes have been copied; it is given up once nothing has moved \
                     for {} s",
                    run.record.dataset.name_text(),
                    MOST_STANDING.as_secs()
                ));
            }
            self.files().pause(pause);
            waited += pause;
        };
        let taken_back = match self.agreed(&run.record.dataset, Step::Copying, arrived) {
            Ok(()) => FlushError::TakenBack { dataset: run.record.dataset.name_text() },
            Err(error) => error,
        };
        self.resolve_failed(run, taken_back)?;
        self.report(&run.copies)
    }

    /// Polls the transfers of a node, on its first rank: whether any is still under way, whether one has failed, and how many
    /// bytes have moved. A transfer that cannot be polled is not waited for.
    pub(super) fn detached_progress(&self, run: &RunningFlush) -> (bool, bool, u64) {
        match &run.running {
            Running::Detached(None) => return (true, false, 0),
            Running::Detached(Some(Err(_))) => return (false, true, 0),
            _ => (),
        }
        let (job, me) = (self.job, self.job.rank());
        if job.nodes.leader(me) != me {
            return (false, false, 0);
        }
        let open = |_: &str, _: &KvTree| Ok(Arc::clone(self.transport()));
        let which = Which::Of(&run.record.token);
        let polled = poll_some(self.files(), self.control, &open, &job.local_time(), which);
        (polled.unfinished && polled.errors.is_empty(), polled.failed, polled.bytes_moved)
    }

    /// How the part of this rank has ended. It need not have ended where any has failed.
    fn detached_arrived(&self, run: &RunningFlush, failed: bool) -> Result<(), StepError> {
        if let Running::Detached(Some(Err(error))) = &run.running {
            return Err(StepError::Other(scr_base::describe(error)));
        }
        let token = &run.record.token;
        let record = record::read(self.files(), self.control, token, self.job.rank().0)?;
        match record.map(|record| record.state) {
            // If it is forgotten, the flush is over, and its outcome stands below the prefix directory.
            None | Some(TransferState::Arrived) => Ok(()),
            Some(TransferState::Failed(why)) => Err(StepError::Other(why)),
            Some(TransferState::Copying) if failed => Ok(()),
            Some(TransferState::Copying) => {
                let ticket = run.ticket.as_deref().unwrap_or_default();
                match self.transport().poll(ticket)? {
                    CopyState::Failed(error) => Err(error.into()),
                    _ => Err(StepError::Other(format!(
                        "the transfers in {} could not be polled",
                        self.control.display()
                    ))),
                }
            }
        }
    }

    /// This flush needs no more work.
    pub(super) fn forget_record(&self, run: &RunningFlush) {
        if matches!(run.running, Running::Detached(_)) {
            let _ = record::remove(self.files(), self.control, &run.record.token, self.job.rank().0);
        }
    }
}

/// After so long the user is told what the application waits for.
const SILENCE: Duration = Duration::from_secs(10);
/// So long an application waits for transfers that do not get on. A congested file system stands still for minutes at times.
const MOST_STANDING: Duration = Duration::from_secs(300);
