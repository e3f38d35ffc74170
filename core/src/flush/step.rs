//! The steps that all ranks of a flush agree on, and the errors of a rank in one of them.

use super::{Flush, FlushError};
use scr_base::fs::verify::FileError;
use scr_base::fs::FsError;
use scr_comm::AnyError;
use scr_plugin_api::PluginError;
use scr_prefix::ledger::Close;
use scr_prefix::{DatasetDescriptor, PrefixError};

/// The steps in their order, as messages name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Folders,
    Recording,
    Copying,
    MarkingDone,
    Renaming,
    SyncingFolders,
    Committing,
}

impl Step {
    /// A group of steps that close a flush.
    pub(super) fn of(group: &[Close]) -> Self {
        match group.first() {
            Some(Close::Name) => Self::Renaming,
            Some(Close::Sync) => Self::SyncingFolders,
            Some(Close::Commit | Close::Forget) => Self::Committing,
            Some(Close::Mark | Close::Take) | None => Self::MarkingDone,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Folders => "making the folders",
            Self::Recording => "recording what is to come",
            Self::Copying => "copying",
            Self::MarkingDone => "recording that all is there",
            Self::Renaming => "renaming the files",
            Self::SyncingFolders => "syncing the folders",
            Self::Committing => "listing the dataset as complete",
        }
    }
}

/// Why a rank failed in a step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// One of its files.
    #[error(transparent)]
    File(FileError),
    /// A folder, or a file of the flush itself.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A file that is in place, or its folder, could not be synced: the system may have lost bytes or names, and take them for
    /// written from now on.
    #[error(transparent)]
    Unsynced(FsError),
    /// Index, lists or summary.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The transport.
    #[error(transparent)]
    Transport(#[from] PluginError),
    /// Another rank failed, or the flush is not wanted any more.
    #[error("it was cancelled")]
    Cancelled,
    /// Of which only the text is of use.
    #[error("{0}")]
    Other(String),
}

impl From<FileError> for StepError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Fs(error) => Self::Fs(error),
            error => Self::File(error),
        }
    }
}

impl Flush<'_> {
    /// Makes one outcome of a step on all ranks.
    pub(super) fn agreed<T, E: Into<AnyError>>(
        &self,
        dataset: &DatasetDescriptor,
        step: Step,
        result: Result<T, E>,
    ) -> Result<T, FlushError> {
        self.job.agree(result).or_else(|error| {
            Err(FlushError::Failed {
                dataset: dataset.name_text(),
                step: step.name(),
                account: error.agreed()?.to_string(),
            })
        })
    }
}
