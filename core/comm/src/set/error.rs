//! Why a set failed.

use crate::{CommError, Rank};
use scr_plugin_api::{PluginError, PluginErrorKind};

/// Why a set did not get to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// Another member gave up.
    #[error("rank {rank} gave up: {text}")]
    Aborted {
        /// Which member.
        member: u32,
        /// Its rank in the whole run.
        rank: Rank,
        /// Why.
        text: String,
    },
    /// This member gave up.
    #[error("{text}")]
    Failed {
        /// Why.
        text: String,
    },
    /// All was well, but a member had sent something that this one did not ask for.
    #[error("rank {rank} (member {member}) sent {messages} messages that were never received")]
    Unclaimed {
        /// Which member sent them.
        member: u32,
        /// Its rank in the whole run.
        rank: Rank,
        /// How many there were.
        messages: u64,
    },
    /// A member that is not there was named.
    #[error("there is no member {member} in a set of {size}")]
    NoSuchMember {
        /// Which.
        member: u32,
        /// How many there are.
        size: u32,
    },
    /// The list of members cannot be a set.
    #[error("cannot make a set on channel {channel}: {why}")]
    NoSet {
        /// The channel asked for.
        channel: u16,
        /// The problem.
        why: &'static str,
    },
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
