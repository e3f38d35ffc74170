//! Flushes that go on detached the application, and are ended without it.
//!
//! A transport whose copies survive the job is only begun by the application. Each rank leaves an *record* in the
//! control directory of its node, `detached.<token>.<rank>`: what is copied where, what every file has to be, and the
//! transport's ticket. Whoever looks after the records of a node ([`poll_transfers`]: the agent, `scr poststage`, or the
//! application itself as long as it is there) asks the transport how far it is, compares what came with what was
//! recorded, and once all files of the node have arrived leaves the node's `done.<token>.<node>`. Who finds that of
//! all nodes finishes the flush.
//!
//! | part | what it is |
//! |---|---|
//! | `record` | what a rank leaves detached |
//! | `monitor` | looks after what was left, with the application or without |
//!
//! Here is what the application does about such a flush as long as it is there.

mod monitor;
pub(crate) mod record;

pub(crate) use monitor::{poll_some, Which};
pub use monitor::{poll_transfers, OpenTransport, PollResult, Transports};

use super::closing;
use super::pending::PendingFlush;
use super::steps::Step;
use super::FlushOutcome;
use super::{Flush, FlushError, FlushReport, Started};
use crate::comm::collective::any;
use crate::comm::{CommError, Rank};
use crate::prefix::Index;
use crate::Described;
use record::{State, TransferRecord};
use scr_plugin_api::{CopyState, KvTree, Transport};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What is needed for a flush to go on without the application.
#[derive(Clone)]
pub(crate) struct Detached<'a> {
    /// The control directory of this node.
    pub(crate) control: &'a Path,
    /// The transport's name, and the options it was made with.
    pub(crate) transport: &'a str,
    pub(crate) transport_options: &'a KvTree,
    /// The transport again, for whoever looks after the flush.
    pub(crate) shared: &'a Arc<dyn Transport>,
    /// The number of this node, and how many there are.
    pub(crate) node: u32,
    pub(crate) nodes: u32,
    /// The ranks of this node, in order.
    pub(crate) mates: Vec<Rank>,
    /// Between two looks at it.
    pub(crate) pause: Duration,
}

impl Flush<'_> {
    /// Whether the part of any rank is on its way, or still to be set off, and whether any has failed.
    pub(super) fn ask_all_behind(&self, started: &Started) -> Result<(bool, bool), CommError> {
        let (running, failed) = match &started.ticket {
            None => (true, false),
            Some(Ok(_)) => self.look_behind(started),
            Some(Err(_)) => (false, true),
        };
        let [running, failed] = any(self.comm, [running, failed])?;
        Ok((running, failed))
    }

    /// Waits until the files of all nodes have arrived, or those of one cannot, and has the flush ended by whoever is first: this, or
    /// what goes on detached it.
    pub(super) fn finish_behind(&self, started: &Started) -> Result<FlushReport, FlushError> {
        let dataset = &started.record.dataset;
        let pause = self.detached.as_ref().map_or(Duration::ZERO, |detached| detached.pause);
        let failed = loop {
            let (running, failed) = self.ask_all_behind(started)?;
            if failed || !running {
                break failed;
            }
            self.files.pause(pause);
        };
        // What still moves where another rank has failed is of no use, and is stopped below.
        let arrived = self.arrived_behind(started, failed);
        let closed = self.agreed(dataset, Step::Copying, arrived).and_then(|()| {
            let closed = self.on_rank_0(|| self.close_behind(&started.record));
            self.agreed(dataset, Step::Closing, closed)?;
            self.report(&started.copies)
        });
        self.or_clear_away(started, closed)
    }

    /// Looks after the parts of all ranks of a node, on the first of them, and says whether any is still on its way, and whether one
    /// has failed. What cannot be looked after is not waited for.
    fn look_behind(&self, started: &Started) -> (bool, bool) {
        let leads = |detached: &&Detached<'_>| detached.mates.first() == Some(&self.comm.rank());
        let Some(detached) = self.detached.as_ref().filter(leads) else { return (false, false) };
        let open = |_: &str, _: &KvTree| Ok(Arc::clone(detached.shared));
        let which = Which::Of(&started.record.token);
        let looked = poll_some(self.files, detached.control, &open, &self.now, which);
        (looked.left && looked.wrong.is_empty(), looked.failed)
    }

    /// How the part of this rank has ended. It need not have ended where any has failed.
    fn arrived_behind(&self, started: &Started, failed: bool) -> Result<(), String> {
        let Some(detached) = &self.detached else { return Ok(()) };
        let ticket = started.given_ticket()?;
        let token = &started.record.token;
        match record::state(self.files, detached.control, token, self.comm.rank().0)? {
            // Where it is forgotten the flush is over, and what became of it stands under the prefix directory.
            None | Some(State::Arrived) => Ok(()),
            Some(State::Failed(why)) => Err(why),
            Some(State::Moving) if failed => Ok(()),
            Some(State::Moving) => match self.transport.poll(ticket) {
                Ok(CopyState::Failed(error)) | Err(error) => Err(error.to_string()),
                Ok(_) => Err(format!("{} could not be looked after", detached.control.display())),
            },
        }
    }

    /// Ends a flush whose files have all arrived, unless that was done already.
    fn close_behind(&self, record: &PendingFlush) -> Result<(), String> {
        match closing::finalize_one(self.files, self.prefix, &record.token, &self.now)? {
            Some(FlushOutcome::Finalized(_)) => Ok(()),
            Some(other) => Err(other.to_string()),
            None => {
                let index = Index::read(self.files, self.prefix).described()?;
                let complete = index.entry(record.dataset.id).is_some_and(|entry| entry.complete);
                complete.then_some(()).ok_or_else(|| "it was taken back by somebody else".to_owned())
            }
        }
    }

    /// Leaves word of what is to be done without this process.
    pub(super) fn leave_errand(&self, started: &Started, ticket: &[u8]) -> Result<(), String> {
        let Some(detached) = &self.detached else { return Ok(()) };
        let record = TransferRecord {
            token: started.record.token.clone(),
            prefix: self.prefix.dir().to_owned(),
            rank: self.comm.rank().0,
            node: detached.node,
            mates: detached.mates.iter().map(|rank| rank.0).collect(),
            transport: detached.transport.to_owned(),
            transport_options: detached.transport_options.clone(),
            ticket: ticket.to_vec(),
            copies: started.copies.clone(),
            options: self.options,
            state: State::Moving,
        };
        let left = record.write(self.files, detached.control).described();
        if left.is_err() {
            let _ = self.transport.cancel(ticket);
        }
        left
    }

    /// After an error: nobody has to do anything any more.
    pub(super) fn forget_errand(&self, token: &str) {
        if let Some(detached) = &self.detached {
            let _ = record::remove(self.files, detached.control, token, self.comm.rank().0);
        }
    }
}
