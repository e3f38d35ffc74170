//! A communicator of a thread beside the application's, which limits what that thread does, and may end it.

use super::{Ask, Comm, CommError, Exchanged, Incomings, Outgoing, Rank, Result, Sends, Tag};
use scr_base::ensure;
use scr_plugin_api::pace::{Account, Limits, Pace};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The decisions of another thread of the rank.
#[derive(Debug, Default)]
pub struct Control {
    is_cancelled: AtomicBool,
    pace: Pace,
}

/// All exchanges fail soon after it is cancelled. Each is followed by a pause that keeps its thread within the limits: of the
/// bytes sent to other ranks, and of the processor time.
pub struct Controlled {
    comm: Box<dyn Comm>,
    control: Arc<Control>,
    account: RefCell<Account>,
}

impl Control {
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Limits from now on. A pause ends when there are none any more.
    pub fn limit(&self, limits: Limits) {
        self.pace.set(limits);
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    fn expect_wanted(&self) -> Result<()> {
        ensure(!self.is_cancelled(), || CommError::Unfit { why: "the session has ended" })
    }
}

impl Controlled {
    /// For the thread that calls this.
    pub fn new(comm: Box<dyn Comm>, control: Arc<Control>) -> Self {
        Self { comm, control, account: RefCell::new(Account::open()) }
    }

    fn pay(&self, sends: &[Outgoing<'_>]) {
        let others = sends.iter().filter(|send| send.to != self.comm.rank());
        let bytes = others.map(|send| send.bytes.len() as u64).sum();
        self.account.borrow_mut().pay(&self.control.pace, bytes, || self.control.is_cancelled());
    }
}

impl Comm for Controlled {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn exchange(&self, tag: Tag, sends: Sends<'_>, receives: Incomings<'_, '_>, ask: Ask<'_>) -> Exchanged {
        self.control.expect_wanted()?;
        let ended = self.comm.exchange(tag, sends, receives, &mut |come| {
            self.control.expect_wanted()?;
            ask(come)
        })?;
        self.pay(sends);
        Ok(ended)
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>> {
        self.comm.take(tag)
    }

    fn inner(&self) -> Option<&dyn Comm> {
        Some(&*self.comm)
    }
}
