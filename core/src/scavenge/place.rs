//! The paths of the files of a scavenged dataset below the prefix directory: each has a hidden name beside its own, like the
//! staging files of a flush. The dataset gets its names when it is known to be whole, as every other one: see [`scr_prefix::commit`].
//! Files that were written in place are only read, where they lie.

use super::filemap::redundancy_name;
use super::scan::Scan;
use crate::cache::part::PartPlace;
use crate::cache::record::{FileRecord, RankRecord};
use scr_base::fs::{unique_number, Files};
use scr_comm::Rank;
use scr_prefix::ledger::By;
use scr_prefix::{staging_file, Prefix};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
        staging_file(&self.prefix.file(&record.files[number].name), &rebuilding(self.id))
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
pub(super) fn being_copied(path: &Path, id: u64, node: &str) -> PathBuf {
    staging_file(path, &format!("{}.{}.{:x}", copying(id), node.replace('/', "_"), unique_number()))
}

/// Stands in the names of files that are being copied.
pub(super) fn copying(id: u64) -> String {
    format!("copying.{id}")
}

fn rebuilding(id: u64) -> String {
    format!("rebuilding.{id}")
}

/// The files that saving a dataset has left under hidden names, whole or not. Files that were written in place have their own.
pub(crate) fn hidden(files: &dyn Files, prefix: &Prefix, scan: &Scan) -> Vec<PathBuf> {
    let id = scan.any.dataset.id;
    let paths = scan.records().flat_map(|record| record.files.iter().map(|file| record.prefix_path(file)));
    let mut folders: BTreeSet<PathBuf> = paths.filter_map(|path| path.parent().map(Path::to_owned)).collect();
    folders.insert(prefix.dataset_dir(id));
    let marks = [token(id), copying(id), rebuilding(id)].map(|mark| format!(".{mark}."));
    let names = |folder: &PathBuf| files.list(folder).unwrap_or_default().into_iter();
    let all = folders.iter().flat_map(|folder| names(folder).map(|name| folder.join(name)));
    all.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with('.') && name.ends_with(".part") && marks.iter().any(|mark| name.contains(mark))
    })
    .collect()
}
