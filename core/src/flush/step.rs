//! The steps that all ranks of a flush agree on, and the errors of a rank in one of them.

use super::{Flush, FlushError};
use scr_base::fs::verify::FileError;
use scr_base::fs::FsError;
use scr_comm::{AnyError, Rank};
use scr_plugin_api::PluginError;
use scr_prefix::ledger::Close;
use scr_prefix::{DatasetDescriptor, FileName, PrefixError};
use std::path::PathBuf;
use std::time::Duration;

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
    /// Two ranks have different files of one name.
    #[error("ranks {} and {} have different files named {name}; give each rank its own", ranks[0], ranks[1])]
    SharedName {
        /// The file.
        name: FileName,
        /// The two.
        ranks: [Rank; 2],
    },
    /// A rank has a file where another one has a folder.
    #[error(
        "rank {} has a file named {name}, and rank {} files in a folder of that name; give each its own",
        ranks[0],
        ranks[1]
    )]
    FolderOfOthers {
        /// The name.
        name: FileName,
        /// The two.
        ranks: [Rank; 2],
    },
    /// The file system takes two names for one.
    #[error(
        "the file system of the prefix directory takes {} and {} for one file, as it ignores case; give each another name",
        names[0],
        names[1]
    )]
    Twins {
        /// The two.
        names: [FileName; 2],
    },
    /// A folder lies where a file of the dataset belongs.
    #[error("{} is a folder, and a file of that name is to be written", path.display())]
    InTheWay {
        /// The folder.
        path: PathBuf,
    },
    /// No thread could be started for the flush.
    #[error("no thread could be started: {0}")]
    Thread(std::io::Error),
    /// The thread of the flush panicked.
    #[error("the thread of the flush panicked, which is an error in this library")]
    Panicked,
    /// Another rank failed, or the flush is not wanted any more.
    #[error("it was cancelled")]
    Cancelled,
    /// A transfer monitor found an error; its record has only the text.
    #[error("{0}")]
    Transfer(String),
    /// The transfers of this node could not be polled.
    #[error("the transfers in {} could not be polled", control.display())]
    Unpolled {
        /// Its control directory.
        control: PathBuf,
    },
    /// The transfers of this node do not get on.
    #[error("nothing has been copied for {} s: the agent hangs, or a file system", waited.as_secs())]
    Standing {
        /// So long.
        waited: Duration,
    },
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
                dataset: label(dataset),
                step: step.name(),
                account: error.agreed()?.to_string(),
            })
        })
    }
}

/// A dataset as errors name it.
pub(super) fn label(dataset: &DatasetDescriptor) -> String {
    String::from_utf8_lossy(&dataset.name).into_owned()
}
