//! A communicator of a thread that another thread of its rank may end.

use super::{Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, Traffic, WaitControl};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// All exchanges fail once it is cancelled, soon after that.
pub(crate) struct Cancellable {
    comm: Box<dyn Comm>,
    is_cancelled: Arc<AtomicBool>,
}

impl Cancellable {
    /// It is cancelled when the flag is set.
    pub(crate) fn new(comm: Box<dyn Comm>, is_cancelled: Arc<AtomicBool>) -> Self {
        Self { comm, is_cancelled }
    }

    fn expect_wanted(&self) -> Result<(), CommError> {
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Err(CommError::Unfit { why: "the session has ended" }),
            false => Ok(()),
        }
    }
}

impl Comm for Cancellable {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn exchange(
        &self,
        tag: Tag,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        check_cancel: &mut dyn FnMut(&[bool]) -> Result<WaitControl, CommError>,
    ) -> Result<ExchangeEnd, CommError> {
        self.expect_wanted()?;
        self.comm.exchange(tag, sends, receives, &mut |come| {
            self.expect_wanted()?;
            check_cancel(come)
        })
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
        self.comm.take(tag)
    }

    fn traffic(&self) -> Traffic {
        self.comm.traffic()
    }
}
