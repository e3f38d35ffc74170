//! How ranks communicate.
//!
//! [`Comm`] is point to point only. [`collective`] builds all collectives on it, so that they are the same code on every
//! communicator. There are three: [`thread`], with ranks as threads of one process, [`tcp`], and the one over MPI, in a
//! crate of its own.
//! [`set`] is a redundancy set on either: some of the ranks, with a protocol that lets any of them give up.
//!
//! | part | what it is |
//! |---|---|
//! | `collective` | operations of all ranks; `agree`: how they agree on one outcome; `route`: messages to receivers that do not expect them |
//! | `frame` | messages of a length that the receiver does not know |
//! | `values` | a value of every rank, short where neighbours share one |
//! | `receives` | the receives of an exchange; `mail`: what no receive has taken |
//! | `awaited` | messages that a rank waits for, so that `take` leaves them alone |
//! | `set` | a redundancy set |
//! | `controlled` | the communicator of a thread that another thread limits and ends |
//! | `tcp` | ranks that talk over TCP |
//! | `thread` | ranks as threads of one process, which may stand for some ranks of a run; `world`: what those share |
//! | `watched` | which ranks have not come, where a call waits for them |

#![allow(
    missing_docs,
    reason = "only crates of scr call this one: a name that says everything needs no sentence"
)]
// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod agree;
mod awaited;
pub mod collective;
pub mod controlled;
mod frame;
mod mail;
pub mod placement;
mod receives;
mod route;
pub mod set;
pub mod tcp;
pub mod thread;
mod values;
pub mod watched;
mod world;

pub use agree::{AnyError, Collective, CollectiveError, RankError, RankErrors};
pub use awaited::Awaited;
pub use mail::Mail;
pub use values::RankValues;
pub use watched::Watch;

use scr_base::ensure;
pub use scr_base::Rank;

/// Keeps messages of different purposes apart. Messages of one tag between two ranks keep their order.
///
/// The tags in use: 1 by [`collective`], 2 by ranks that give up, 1024 and up by the channels of [`set`]. The others are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u16);

impl Tag {
    /// The largest tag that every MPI library allows.
    pub const MAX: Tag = Tag(32767);
}

/// One message to send.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The receiver; oneself is legal.
    pub to: Rank,
    /// The bytes; they may be none.
    pub bytes: &'a [u8],
}

/// One message to receive, of a length known beforehand.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The sender.
    pub from: Rank,
    /// The buffer for it, exactly as long as the message.
    pub bytes: &'a mut [u8],
}

/// Whether to continue to wait for an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitControl {
    /// Wait on.
    Wait,
    /// Give up the receives that have not matched, and return once the sends are done.
    GiveUp,
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// All sent, all received.
    Done,
    /// All sent; some receives were given up.
    GivenUp,
}

/// The messages that an exchange sends.
pub type Sends<'a> = &'a [Outgoing<'a>];
/// Those that it receives.
pub type Incomings<'a, 'b> = &'a mut [Incoming<'b>];
/// What it asks while it waits, with one flag per receive that is set once it is complete.
pub type Ask<'a> = &'a mut dyn FnMut(&[bool]) -> Result<WaitControl>;
/// How it has ended.
pub type Exchanged = Result<ExchangeEnd>;
/// The result of a call that sends or receives.
pub type Result<T, E = CommError> = std::result::Result<T, E>;

/// The traffic of a communicator so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent by this rank.
    pub messages: u64,
    /// Bytes sent by this rank.
    pub bytes: u64,
}

impl Traffic {
    /// With these messages, too.
    #[must_use]
    pub fn with(self, sends: &[Outgoing<'_>]) -> Self {
        let bytes: u64 = sends.iter().map(|send| send.bytes.len() as u64).sum();
        Self { messages: self.messages + sends.len() as u64, bytes: self.bytes + bytes }
    }
}

/// Why a communicator cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// Every rank waits for another one.
    #[error("deadlock: {who}")]
    Deadlock { who: String },
    /// A message was longer or shorter than agreed.
    #[error("rank {from} sent {found} bytes where {expected} were agreed (tag {tag}): do all ranks make the same calls?")]
    WrongLength { from: Rank, found: usize, expected: usize, tag: u16 },
    /// A rank that is not there was named.
    #[error("there is no rank {rank} among {size}")]
    NoSuchRank { rank: Rank, size: u32 },
    /// A tag that not every communicator can carry.
    #[error("tag {tag} is above {}, the largest allowed", Tag::MAX.0)]
    NoSuchTag { tag: u16 },
    /// A rank sent something else than was agreed; both must run the same version.
    #[error("rank {from} sent {what} that cannot be read; do all ranks run the same version?")]
    Malformed { from: Rank, what: &'static str },
    /// MPI is not in a state to be called.
    #[error("MPI cannot be used: {why}")]
    Unusable { why: &'static str },
    /// The application has given a communicator that no messages can be sent on.
    #[error("{why}")]
    Unfit { why: &'static str },
    /// A rank has ended, or cannot be reached.
    #[error("the connection to rank {rank} is lost: {why}")]
    Lost { rank: Rank, why: String },
    /// A call of the system has failed.
    #[error("{what}")]
    Socket { what: String },
    /// The communicator was given up because ranks of it have died.
    #[error("{}; call SCR_Recover with a communicator of those that are left, or end the job", died(.ranks))]
    RanksDied { ranks: Vec<Rank> },
    /// The MPI library reported an error.
    #[error("{call} failed: {text}")]
    Mpi { call: &'static str, text: String },
}

fn died(ranks: &[Rank]) -> String {
    match ranks {
        [] => "a rank has died, or has left".to_owned(),
        [one] => format!("rank {one} has died"),
        ranks => format!("{} have died", watched::shown(ranks.iter().map(ToString::to_string))),
    }
}

/// Point-to-point messages between all ranks of a run. Used by one thread of each rank.
pub trait Comm {
    /// This rank.
    fn rank(&self) -> Rank;

    /// Number of ranks.
    fn size(&self) -> u32;

    /// Sends and receives a batch. While it waits it calls `ask` repeatedly; it may skip the call if it need not wait. It returns when the sends are done: that may be when
    /// they are received, but sends to this rank itself are done at once.
    ///
    /// After [`WaitControl::GiveUp`] no more receives match, but it continues to ask until the sends are done, so that
    /// `ask` can take what others send meanwhile; then it asks a last time with the final flags. `ask`
    /// may call [`take`](Self::take), and `exchange` with another tag. It should take all there is: it may
    /// be asked again only when something more has come.
    ///
    /// # Errors
    /// [`CommError`]; the communicator is useless after it, except after [`CommError::WrongLength`]: then the
    /// message counts as received, and the rest of the batch was done as usual. Invalid ranks and tags are
    /// errors before anything is sent.
    fn exchange(&self, tag: Tag, sends: Sends<'_>, receives: Incomings<'_, '_>, ask: Ask<'_>) -> Exchanged;

    /// Takes a message with this tag from any rank that has arrived and that no receive waits for.
    ///
    /// # Errors
    /// As for [`exchange`](Self::exchange).
    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>>;

    /// The traffic that this rank has sent so far.
    fn traffic(&self) -> Traffic {
        self.inner().map(Comm::traffic).unwrap_or_default()
    }

    /// The communicator that this one stands before, where there is one. It answers what this one does not answer itself.
    fn inner(&self) -> Option<&dyn Comm> {
        None
    }

    /// Number of processes that were started together, of which the ranks may be a part.
    fn launch_size(&self) -> u32 {
        self.inner().map_or_else(|| self.size(), Comm::launch_size)
    }

    /// Whether other processes of the job have started this one.
    fn is_spawned(&self) -> bool {
        self.inner().is_some_and(Comm::is_spawned)
    }

    /// The rank of a run that a rank of this communicator stands for: itself, but where threads stand in for ranks.
    fn stands_for(&self, rank: Rank) -> Rank {
        self.inner().map_or(rank, |inner| inner.stands_for(rank))
    }

    /// The rank of this communicator that stands for a rank of a run, where one does.
    fn stand_in(&self, rank: Rank) -> Option<Rank> {
        self.inner().map_or((rank.0 < self.size()).then_some(rank), |inner| inner.stand_in(rank))
    }

    /// Nothing is sent or received here any more. Other ranks may have sent what nobody has received, and may wait for this one:
    /// they return if the communicator can make them.
    fn abandon(&self) {
        self.inner().into_iter().for_each(Comm::abandon);
    }

    /// The watch for ranks that do not come, if there is one.
    fn watch(&self) -> Option<&Watch> {
        None
    }

    /// The rank of the run that this rank stands for.
    fn own_rank(&self) -> Rank {
        self.stands_for(self.rank())
    }
}

/// Reads bytes as each kind of message in turn, for those who damage them.
pub fn parse_messages(bytes: &[u8]) {
    use std::hint::black_box;
    black_box(agree::unpack(bytes, Rank(0))).ok();
    black_box(route::unpack(bytes, &mut Vec::new(), 4));
    black_box(collective::sorted_by_rank(4..8, bytes)).ok();
    black_box(set::fin::Fin::unpack(bytes));
    if let Some(head) = bytes.first_chunk::<{ frame::HEAD }>() {
        black_box(frame::Body::begin(head, Rank(0))).map(drop).ok();
    }
}

/// Sends and receives a batch, however long it takes.
///
/// # Errors
/// As for [`Comm::exchange`].
pub fn exchange_all(comm: &dyn Comm, tag: Tag, sends: Sends<'_>, receives: Incomings<'_, '_>) -> Result<()> {
    comm.exchange(tag, sends, receives, &mut |_| Ok(WaitControl::Wait)).map(drop)
}

/// The checks of every communicator before it sends anything.
pub fn check(size: u32, tag: Tag, sends: Sends<'_>, receives: &[Incoming<'_>]) -> Result<()> {
    ensure(tag.0 <= Tag::MAX.0, || CommError::NoSuchTag { tag: tag.0 })?;
    let mut named = sends.iter().map(|send| send.to).chain(receives.iter().map(|receive| receive.from));
    named.try_for_each(|rank| ensure(rank.0 < size, || CommError::NoSuchRank { rank, size }))
}
