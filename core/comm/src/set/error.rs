//! Why a set failed.

use crate::{CommError, Rank};
use scr_plugin_api::{PluginError, PluginErrorKind};

/// Why a set did not get to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// Another member gave up.
    #[error("rank {rank} gave up: {text}")]
    Aborted { member: u32, rank: Rank, text: String },
    /// This member gave up.
    #[error("{text}")]
    Failed { text: String },
    /// All was well, but a member had sent something that this one did not ask for.
    #[error("rank {rank} (member {member}) sent {messages} messages that were never received")]
    Unclaimed { member: u32, rank: Rank, messages: u64 },
    /// A member that is not there was named.
    #[error("there is no member {member} in a set of {size}")]
    NoSuchMember { member: u32, size: u32 },
    /// The list of members cannot be a set.
    #[error("cannot make a set on channel {channel}: {why}")]
    NoSet { channel: u16, why: &'static str },
    /// The communicator failed.
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl From<SetError> for PluginError {
    fn from(error: SetError) -> Self {
        let kind = match &error {
            SetError::Aborted { .. }
            | SetError::Comm(
                CommError::Deadlock { .. } | CommError::RanksDied { .. } | CommError::Mpi { .. },
            ) => PluginErrorKind::Aborted,
            _ => PluginErrorKind::Fault,
        };
        PluginError::new(kind, error.to_string())
    }
}
