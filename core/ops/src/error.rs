//! Why a command has not done what it was asked for.

use scr_base::fs::verify::FileError;
use scr_base::fs::FsError;
use scr_comm::thread::RunError;
use scr_comm::CollectiveError;
use scr_prefix::{FileNameError, PrefixError};

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum OpsError {
    #[error("the index has no complete dataset named `{0}'")]
    NoDataset(String),
    /// What was given cannot be used. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    FileName(#[from] FileNameError),
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A file cannot be removed, or a run reads files of the dataset in place.
    #[error(transparent)]
    Ranks(#[from] CollectiveError),
    /// The thread in the place of a rank has failed.
    #[error(transparent)]
    Thread(#[from] RunError),
}
