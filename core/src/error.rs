//! The errors of a call of the interface.

use scr_base::fs::FsError;
use scr_comm::{Collective, CollectiveError, CommError, RankErrors};
use std::fmt::Display;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call is not legal now; the hint is the call that should come first. Nothing has changed.
    #[error("{call} is not legal {now}; {hint}")]
    State { call: &'static str, now: &'static str, hint: &'static str },
    /// An argument cannot be used: which, what is wrong with it, and what would be right. Nothing has changed.
    #[error("{0}")]
    Argument(String),
    /// A file of a checkpoint does not come to this rank, or not with the bytes that were recorded.
    #[error("{0}")]
    Unread(String),
    /// A file or folder of this rank could not be used.
    #[error(transparent)]
    Files(#[from] FsError),
    /// The settings do not allow a start, or a dataset: the same on all ranks, but for settings that did not reach this one.
    #[error("the configuration cannot be used: {0}")]
    Config(String),
    /// `SCR_ENABLE=0`.
    #[error("SCR is disabled by SCR_ENABLE=0")]
    Disabled,
    /// A phase failed on some ranks, and so on all.
    #[error("{doing} failed: {why}")]
    Phase { doing: String, why: RankErrors },
    /// The dataset cannot be used; the same on all ranks.
    #[error("{0}")]
    Refused(String),
    /// The ranks can no longer talk to each other.
    #[error("the ranks can no longer talk to each other")]
    Comm(#[from] CommError),
}

/// Names the step of a call in which the ranks agreed on an error.
pub(crate) trait Doing<T> {
    /// What came of a step of a call, with the name of the step in its error.
    fn doing(self, doing: impl Display) -> Result<T, Error>;
}

impl<T> Doing<T> for Collective<T> {
    fn doing(self, doing: impl Display) -> Result<T, Error> {
        self.map_err(|error| match error {
            CollectiveError::Ranks(why) => Error::Phase { doing: doing.to_string(), why },
            CollectiveError::Comm(error) => error.into(),
        })
    }
}
