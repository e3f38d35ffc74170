//! A communicator of threads in the place of some ranks of a run, for a command that rebuilds their parts.
//!
//! Collectives count its ranks from 0. Redundancy sets and errors name the ranks of the run.

use super::thread::ThreadComm;
use super::{Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, Traffic, WaitControl};
use std::sync::Arc;

/// One of the threads.
pub struct StandIns {
    comm: ThreadComm,
    /// For each rank of the communicator the rank of the run, in ascending order.
    ranks: Arc<[Rank]>,
}

impl StandIns {
    /// Each rank of `comm` stands for the rank at its place in `ranks`, which are in ascending order.
    pub fn new(comm: ThreadComm, ranks: Arc<[Rank]>) -> Self {
        Self { comm, ranks }
    }
}

impl Comm for StandIns {
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
        self.comm.exchange(tag, sends, receives, check_cancel)
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
        self.comm.take(tag)
    }

    fn traffic(&self) -> Traffic {
        self.comm.traffic()
    }

    fn stands_for(&self, rank: Rank) -> Rank {
        self.ranks.get(rank.index()).copied().unwrap_or(rank)
    }

    fn stand_in(&self, rank: Rank) -> Option<Rank> {
        let place = self.ranks.binary_search(&rank).ok()?;
        u32::try_from(place).ok().map(Rank)
    }
}
