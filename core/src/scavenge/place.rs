//! The paths of the files of a scavenged dataset below the prefix directory: each has a hidden name beside its own, like the
//! staging files of a flush. The dataset gets its names when it is known to be whole, as every other one: see [`scr_prefix::commit`].
//! Files that were written in place are only read, where they lie.

use super::filemap::redundancy_name;
use crate::cache::part::PartPlace;
use crate::cache::record::{FileRecord, RankRecord};
use scr_base::fs::unique_number;
use scr_comm::Rank;
use scr_prefix::ledger::By;
use scr_prefix::{staging_file, Prefix};
use std::path::PathBuf;

/// One rank's part of a scavenged dataset.
pub(super) struct ScavengedPart<'a> {
    pub(super) prefix: &'a Prefix,
    /// The dataset's number in the prefix directory.
    pub(super) id: u64,
    pub(super) rank: Rank,
}

impl PartPlace for ScavengedPart<'_> {
    fn file(&self, record: &RankRecord, file: &FileRecord) -> PathBuf {
        let own = self.prefix.file(&file.name);
        match record.protection.bypass {
            true => own,
            false => staging_file(&own, &token(self.id)),
        }
    }

    fn file_being_rebuilt(&self, record: &RankRecord, number: usize) -> PathBuf {
        staging_file(&self.prefix.file(&record.files[number].name), &format!("rebuilding.{}", self.id))
    }

    fn redundancy(&self) -> PathBuf {
        self.prefix.dataset_dir(self.id).join(redundancy_name(self.rank))
    }
}

/// The token of the end of a scavenge among the flushes under way: hidden files have it in their names.
pub(super) fn token(id: u64) -> String {
    By::Saving(id).to_string()
}

/// The name of a file while a node copies it: it gets its own name after its last byte. No other process that copies it has this
/// one.
pub(super) fn being_copied(path: &std::path::Path, id: u64, node: &str) -> PathBuf {
    staging_file(path, &format!("{}.{}.{:x}", copying(id), node.replace('/', "_"), unique_number()))
}

/// Stands in the names of files that are being copied.
pub(super) fn copying(id: u64) -> String {
    format!("copying.{id}")
}
