//! How ranks talk to each other.
//!
//! [`Comm`] is point to point and nothing else; whatever is collective stands on it in
//! `collective`, so that it is the same code on every communicator.

/// A rank in the whole run, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Rank {
    /// The rank as a place in a list of all ranks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Keeps messages of different purposes apart. Messages of one tag between two ranks keep their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u16);

/// One message to send.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Whom it goes to; oneself is legal.
    pub to: Rank,
    /// The bytes; they may be none.
    pub bytes: &'a [u8],
}

/// One message to receive, of a length known beforehand.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Whom it comes from.
    pub from: Rank,
    /// Where it goes; exactly as long as what was sent.
    pub bytes: &'a mut [u8],
}

/// What the one who waits for an exchange wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Wait on.
    Wait,
    /// Give up the receives that have not matched, once the sends are done.
    GiveUp,
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All sent, all received.
    Done,
    /// All sent; some receives were given up.
    GivenUp,
}

/// What passed through a communicator so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent by this rank.
    pub messages: u64,
    /// Bytes sent by this rank.
    pub bytes: u64,
}

/// Why a communicator cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Every rank waits for another one.
    #[error("deadlock: {who}")]
    Deadlock {
        /// Who waits for whom.
        who: String,
    },
    /// A message was longer or shorter than agreed.
    #[error("rank {from} sent {found} bytes where {expected} were agreed (tag {tag})")]
    WrongLength {
        /// Who sent it.
        from: Rank,
        /// Bytes that came.
        found: usize,
        /// Bytes that were agreed.
        expected: usize,
        /// On which tag.
        tag: u16,
    },
    /// The MPI library reported an error.
    #[error("{call} failed: {text}")]
    Mpi {
        /// Which call.
        call: &'static str,
        /// The library's own text.
        text: String,
    },
}

/// Point-to-point messages between all ranks of a run. Used by one thread of each rank.
pub trait Comm {
    /// This rank.
    fn rank(&self) -> Rank;

    /// Number of ranks.
    fn size(&self) -> u32;

    /// Sends and receives a batch. While it waits it asks `wish` again and again, with a flag per receive
    /// that tells which have come.
    ///
    /// # Errors
    /// [`CommError`]; the communicator is of no use after it.
    fn exchange(
        &self,
        tag: Tag,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        wish: &mut dyn FnMut(&[bool]) -> Result<Wish, CommError>,
    ) -> Result<Ended, CommError>;

    /// Takes a message with this tag that has arrived and that no receive waits for, whoever sent it.
    ///
    /// # Errors
    /// As for [`exchange`](Self::exchange).
    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError>;

    /// What this rank has sent so far.
    fn traffic(&self) -> Traffic;
}
