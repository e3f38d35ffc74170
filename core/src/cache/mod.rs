//! The cache of a run: its stores, the datasets in them, and where their files lie.
//!
//! | part | what it is |
//! |---|---|
//! | `store` | a store as this rank reaches it |
//! | `control` | the control directory of a node |
//! | `record` | what there is to know of one rank's part of a dataset |
//! | `filemap` | the journal of a part: what was recorded when |
//! | `part` | where a part lies, and how it is removed |
//! | `kept_open` | redundancy files whose memory is used again |
//! | `room` | whether the old dataset and the new one fit at the same time |
//! | `sharing` | which nodes see the same folder |
//! | `node_dir` | their folders in it |

pub(crate) mod control;
pub(crate) mod filemap;
pub(crate) mod kept_open;
pub(crate) mod node_dir;
pub(crate) mod part;
pub(crate) mod record;
pub(crate) mod room;
pub(crate) mod sharing;
mod store;

pub(crate) use store::StoreInUse;

use crate::error::Error;
use crate::job::Job;
use crate::param;
use kept_open::KeptOpen;
use part::PartDir;
use record::RankRecord;
use sharing::Sharing;
use std::path::{Path, PathBuf};

/// The cache of this run, as this rank sees it.
pub(crate) struct Cache {
    pub(crate) stores: Vec<StoreInUse>,
    /// The control directory of this node, where the processes of a job, and those that outlive it, leave each other records.
    control: PathBuf,
    open: KeptOpen,
}

impl Cache {
    /// Makes the control directory, and the job's folders in every store. Collective.
    ///
    /// # Errors
    /// [`Error`]: a folder cannot be made, or the stores are not shared as the settings say. The same on all ranks.
    pub(crate) fn open(job: &Job) -> Result<Self, Error> {
        let sharing = Sharing::new(&*job.comm, job.files(), &job.nodes)?;
        let control = control::open(job, &sharing)?;
        let stores = store::open_all(job, &sharing)?;
        Ok(Self { stores, control, open: KeptOpen::default() })
    }

    /// The stores, in the order of the settings.
    pub(crate) fn stores(&self) -> &[StoreInUse] {
        &self.stores
    }

    /// The control directory of this node.
    pub(crate) fn control(&self) -> &Path {
        &self.control
    }

    /// Redundancy files that are kept open.
    pub(crate) fn kept_open(&self) -> &KeptOpen {
        &self.open
    }

    /// The directory for this rank's new datasets on a store, which may be one that is no longer configured.
    pub(crate) fn dir_of(&self, job: &Job, store: &str) -> PathBuf {
        self.stores.iter().find(|known| known.name == store).map_or_else(
            || Path::new(&param::expanded(store, &job.env)).join(job.job_folder()),
            |known| known.cache.clone(),
        )
    }

    /// Place of a store in the list; one that is not configured counts as the first.
    pub(crate) fn store_index(&self, store: &str) -> usize {
        self.stores.iter().position(|known| known.name == store).unwrap_or(0)
    }

    /// Where this rank's part of a dataset lies.
    pub(crate) fn part_of(&self, job: &Job, record: &RankRecord) -> PartDir {
        PartDir::new(&self.dir_of(job, &record.protection.store), record.dataset.id, record.rank)
    }

    /// Whether all nodes see a store, so that the loss of one takes nothing from it.
    pub(crate) fn outlives_nodes(&self, store: &str) -> bool {
        self.stores.iter().any(|known| known.name == store && known.is_global)
    }
}
