//! Flush: copies a dataset from cache to the prefix directory, where it is valid only when every byte is safe.
//!
//! Only the order of the steps protects a dataset from a crash between any two of them:
//! 1. The index lists the dataset as incomplete, the file lists with sizes are written, `flush.<token>` says what is
//!    under way: all synced, before any byte is copied.
//! 2. A transport copies the files to staging files beside the final names, and syncs them.
//! 3. When all have arrived and match the records, a mark says so. From here on any process can close the flush, and it is only
//!    rolled forward.
//! 4. The files get their names, the folders are synced.
//! 5. The summary is written, then the index lists the dataset as complete; only now it counts.
//!
//! An error on any rank is the error of all. Before the mark the staging files are removed, the entry stays incomplete, and the
//! cached dataset is not touched; a name that referred to an older dataset still does. After the mark, the same call, the next
//! one, the next run or `scr poststage` closes the flush.
//!
//! Steps 3 to 5 are those of [`scr_prefix::commit`], for every process that closes a flush.
//!
//! | module | what is in it |
//! |---|---|
//! | `flushes` | all flushes of a run; `policy`: which datasets are flushed, when, and with what |
//! | `earlier_runs` | what earlier runs have left under way |
//! | `aggregate` | the files of a node packed into one, before the first step |
//! | `plan` | what the ranks exchange before the first step |
//! | `steps` | the steps of a flush as all ranks take them; `step`: their names and errors |
//! | `running` | a flush that runs while the application computes |
//! | `worker` | such a flush, done by a thread of each rank |
//! | `detached` | such a flush, done by a transport that outlives the application |
//! | `file_copy` | the files of one rank, from their staging files to their names |
//! | `throttle` | how many ranks copy at a time |
//! | `folder_owners` | which rank makes which folder; finding two writers of one file |
//! | `lists` | the ranks' lists of files, and how they come together in leaves |
//! | `under_way` | how far flushes are, for those who look from outside |

mod aggregate;
pub(crate) mod detached;
mod earlier_runs;
pub(crate) mod file_copy;
mod flushes;
pub(crate) mod folder_owners;
mod host_options;
mod lists;
mod pauses;
mod plan;
mod policy;
mod running;
mod step;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod throttle;
mod under_way;
mod worker;

pub use detached::record::VERSION as RECORD_VERSION;
pub use detached::{poll_transfers, poll_transfers_anew, OpenTransport, PollResult, Transports};
pub(crate) use earlier_runs::{resolve_pending_flushes, LeftWhole};
pub(crate) use flushes::{FlushSite, Flushes};
pub(crate) use policy::{is_due_at_start, load_transports};
pub(crate) use scr_prefix::ledger::MakeCurrent;
pub use throttle::SharedSlots;
pub use under_way::{flushes_under_way, FlushUnderWay};

use crate::cache::record::FileRecord;
use crate::job::Job;
use crate::redundancy::plugins::TransportInUse;
use scr_base::fs::{unique_number, Files};
use scr_comm::CommError;
use scr_config::param::as_os_str;
use scr_plugin_api::Transport;
use scr_prefix::DatasetDescriptor;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Data that a rank needs to flush.
pub(crate) struct Flush<'a> {
    pub(crate) job: &'a Job,
    /// The control directory of this node.
    pub(crate) control: &'a Path,
    pub(crate) transport: TransportInUse,
    pub(crate) options: Options,
}

impl Flush<'_> {
    fn files(&self) -> &dyn Files {
        self.job.files()
    }

    /// That of files that are not in place.
    fn transport(&self) -> &Arc<dyn Transport> {
        self.transport.transport.as_ref().expect("nothing is copied where the files are in place")
    }
}

/// A dataset that is to be flushed.
#[derive(Clone, Copy)]
pub(crate) struct ToFlush<'a> {
    /// The name of its flush.
    pub(crate) token: &'a str,
    pub(crate) dataset: &'a DatasetDescriptor,
    /// The files of this rank.
    pub(crate) mine: &'a [SourceFile],
}

/// One file of this rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceFile {
    /// Its path in cache; unused in bypass mode.
    #[serde(with = "as_os_str")]
    pub(crate) source: PathBuf,
    pub(crate) record: FileRecord,
}

impl std::ops::Deref for SourceFile {
    type Target = FileRecord;

    fn deref(&self) -> &FileRecord {
        &self.record
    }
}

impl SourceFile {
    /// The permission bits that a copy gets: never set-user-id and the like.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o777
    }
}

/// How to flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Options {
    /// The number of ranks that copy at a time: `SCR_FLUSH_WIDTH`.
    pub(crate) width: u32,
    /// Bytes per block: `SCR_FILE_BUF_SIZE`.
    pub(crate) block_bytes: u64,
    /// Whether checksums are taken, compared with those recorded, and kept: `SCR_CRC_ON_FLUSH`.
    pub(crate) checksums: bool,
    /// The files are in place already: bypass mode.
    pub(crate) in_place: bool,
    /// Whether the dataset becomes the current one: checkpoints do.
    pub(crate) make_current: MakeCurrent,
    /// Whether copies get the times and permissions of their sources: `SCR_COPY_METADATA`.
    pub(crate) metadata: bool,
    /// And the owner, which only a privileged process can give away.
    pub(crate) owner: bool,
    /// Whether each rank makes the folders of its own files: `SCR_AXL_MKDIR`.
    pub(crate) own_folders: bool,
    /// For files in place: whether any of them may have replaced one that was there before.
    pub(crate) may_replace: bool,
    /// For files in place: whether their bytes are synced already, as those of a dataset of this run are before it counts
    /// in cache.
    pub(crate) synced: bool,
    /// The number of ranks in a leaf of the file lists, a power of two. The first of them writes the leaf.
    pub(crate) ranks_per_leaf: u32,
}

/// The flushed dataset, the same on all ranks but for the checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlushReport {
    /// Files of all ranks.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The checksums of this rank's files, if those of any rank were not known before.
    pub(crate) sums: Option<folder_owners::Sums>,
}

/// Why a dataset was not flushed, the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlushError {
    /// A step failed on some rank.
    #[error("dataset {dataset} was not flushed, {step} failed: {account}")]
    Failed {
        /// Its name.
        dataset: String,
        /// Which step.
        step: &'static str,
        /// The errors of the ranks.
        account: String,
    },
    /// A newer dataset has its name or files of it: it can never be flushed.
    #[error(
        "dataset {dataset} was not flushed: dataset {newer}, which is newer, has its name or files of it"
    )]
    Superseded {
        /// Its name.
        dataset: String,
        /// The newer one.
        newer: u64,
    },
    /// Its files are in place, and a rank could not sync its own.
    #[error("dataset {dataset} is given up, as its files may not be on stable storage: {account}")]
    Unsynced {
        /// Its name.
        dataset: String,
        /// The messages, by rank.
        account: String,
    },
    /// Every byte is in the prefix directory, but the dataset could not be listed.
    #[error(
        "dataset {dataset} has arrived, but could not be listed: {why}; the next call, the next run or scr poststage \
         tries again"
    )]
    Unfinished {
        /// Its name.
        dataset: String,
        /// The failure.
        why: String,
    },
    /// Somebody else took the flush back.
    #[error("dataset {dataset} was not flushed: somebody else took it back")]
    TakenBack {
        /// Its name.
        dataset: String,
    },
    /// The ranks could not talk.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// A token that no other flush has: the dataset's id, the time, and a random number.
pub(crate) fn new_token(dataset: u64, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{dataset}.{now:x}.{:016x}", unique_number())
}
