//! A redundancy scheme, as its author writes it and as the runtime calls it.
//!
//! The runtime chooses the sets, creates the files, computes checksums and agrees on the outcome. The scheme computes the
//! redundancy of each member, so that the set survives the loss of some members, and rebuilds lost bytes.
//! See docs/user/concepts.md.

use crate::{Bytes, PluginError};

/// A redundancy scheme with its options already applied.
pub trait Scheme: Send + Sync {
    /// How many members a set of `set_size` may lose, whichever they are.
    ///
    /// # Errors
    /// [`Refused`](crate::PluginErrorKind::Refused) where the options make no sense for that size.
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError>;

    /// Whether exactly this pattern of losses can be undone. Some schemes survive lucky patterns of more
    /// losses than they promise.
    fn recoverable(&self, lost: &[bool]) -> bool {
        let size = u32::try_from(lost.len()).unwrap_or(u32::MAX);
        let count = lost.iter().filter(|&&is_lost| is_lost).count();
        self.losses_survived(size).is_ok_and(|most| count <= most as usize)
    }

    /// How many bytes of redundancy the member `shape.rank` will keep.
    ///
    /// # Errors
    /// As for [`losses_survived`](Self::losses_survived).
    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError>;

    /// Computes the redundancy of every member from every member's data. Called on all members at once.
    ///
    /// # Errors
    /// Any error on any member fails the call on all of them.
    fn protect(&self, set: &dyn Set) -> Result<(), PluginError>;

    /// Brings back the data and the redundancy of the members for which [`Set::lost`] holds. `format` is
    /// the on-disk format that the redundancy was written in. Called on all members at once.
    ///
    /// # Errors
    /// [`TooManyLost`](crate::PluginErrorKind::TooManyLost) where it cannot be done; never invented data.
    fn rebuild(&self, set: &dyn Set, format: u32) -> Result<(), PluginError>;
}

/// The facts of a set that are known before any byte is read.
#[derive(Debug, Clone, Copy)]
pub struct SetShape<'a> {
    /// The member asked about, counted from 0 within the set.
    pub rank: u32,
    /// Bytes of data of every member.
    pub data_lens: &'a [u64],
}

/// One redundancy set, for the duration of one call. Used by the calling thread only.
pub trait Set {
    /// This member, counted from 0 within the set.
    fn rank(&self) -> u32;
    /// Number of members.
    fn size(&self) -> u32;
    /// The rank in the whole run of a member.
    fn world_rank(&self, member: u32) -> u32;
    /// Id of the dataset that is protected or rebuilt.
    fn dataset(&self) -> u64;
    /// Bytes of data of a member, the same on all members.
    fn data_len(&self, member: u32) -> u64;
    /// Whether a member has lost its data and its redundancy; the same on all members.
    fn lost(&self, member: u32) -> bool;
    /// Sends and receives one batch of messages, and returns when all of it is done. Messages between the
    /// same two members arrive in the order they were sent.
    ///
    /// # Errors
    /// [`Aborted`](crate::PluginErrorKind::Aborted) as soon as another member has given up.
    fn exchange(&self, sends: &[SendTo<'_>], receives: &mut [ReceiveFrom<'_>]) -> Result<(), PluginError>;
    /// The largest of the values that the members give. Called on all members.
    ///
    /// # Errors
    /// As for [`exchange`](Self::exchange).
    fn max(&self, value: u64) -> Result<u64, PluginError>;
    /// This member's data: its files end to end.
    fn data(&self) -> &dyn Bytes;
    /// This member's redundancy, of the length that [`Scheme::redundancy_len`] gave.
    fn redundancy(&self) -> &dyn Bytes;
    /// A line for the log, with the rank and the node added by the host.
    fn log(&self, level: Level, text: &str);
    /// How many processors there are for this member, its own thread included: with one, a second thread only takes
    /// turns with the first. Members may get different numbers.
    fn processors(&self) -> u32 {
        1
    }
    /// How many bytes the messages of a scheme should have at most; the same on all members, but not the same when redundancy
    /// is made and when something is rebuilt from it. See `SCR_MPI_BUF_SIZE`. Since 1.1.
    fn message_bytes(&self) -> u64 {
        MESSAGE_BYTES
    }
}

/// Bytes of a message at most where nobody says otherwise.
pub const MESSAGE_BYTES: u64 = 512 << 10;

/// One message of a batch to send.
#[derive(Debug, Clone, Copy)]
pub struct SendTo<'a> {
    /// The member it goes to.
    pub to: u32,
    /// The bytes; they may be empty.
    pub bytes: &'a [u8],
}

/// One message of a batch to receive, of a length known beforehand.
#[derive(Debug)]
pub struct ReceiveFrom<'a> {
    /// The member it comes from.
    pub from: u32,
    /// The buffer for it, exactly as long as the message.
    pub bytes: &'a mut [u8],
}

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error,
    /// Going on, but with less than was asked for.
    Warn,
    /// For users, at `SCR_DEBUG=1`.
    Info,
    /// For developers, at `SCR_DEBUG=2`.
    Debug,
}
