//! The paths of the files of a scavenged dataset: under the prefix directory, each at its own path.
//!
//! A path may belong to a complete dataset, since applications reuse names. That dataset stays valid until the new one is known
//! to be whole. Until then the new file is beside it under a hidden name, like those of a flush.

use super::filemap::redundancy_name;
use crate::cache::place::PartPlace;
use crate::cache::record::{FileRecord, RankRecord};
use crate::comm::Rank;
use crate::flush::catalog::Catalog;
use crate::fs::{Files, Kind};
use crate::prefix::{staging_file, FileName, Prefix, PrefixError};
use std::collections::HashSet;
use std::path::PathBuf;

/// The names of a dataset whose files lie beside their own paths.
#[derive(Debug, Default)]
pub(super) struct Apart(HashSet<FileName>);

impl Apart {
    /// Of these names of dataset `id`: those that belong to another complete dataset, and those that were put apart before.
    pub(super) fn find<'n>(
        files: &dyn Files,
        prefix: &Prefix,
        id: u64,
        names: impl Iterator<Item = &'n FileName>,
    ) -> Result<Self, PrefixError> {
        let names: Vec<_> = names.collect();
        prefix.refuse_links(files, names.iter().copied())?;
        let is_file = |path: PathBuf| files.status(&path).is_ok_and(|status| status.kind != Kind::Dir);
        let mut apart = HashSet::new();
        let mut taken = HashSet::new();
        for name in names {
            if is_file(hidden(prefix, id, name)) {
                apart.insert(name.clone());
            } else if is_file(prefix.file(name)) {
                taken.insert(name.clone());
            }
        }
        if taken.is_empty() {
            return Ok(Self(apart));
        }
        let claimed = Catalog { files, prefix }.names_of_others(id)?;
        apart.extend(taken.into_iter().filter(|name| claimed.contains(name)));
        Ok(Self(apart))
    }
}

/// One rank's part of a scavenged dataset.
pub(super) struct ScavengedPart<'a> {
    pub(super) prefix: &'a Prefix,
    pub(super) apart: &'a Apart,
    /// The dataset's number in the prefix directory.
    pub(super) id: u64,
    pub(super) rank: Rank,
}

impl PartPlace for ScavengedPart<'_> {
    fn file(&self, _: &RankRecord, file: &FileRecord) -> PathBuf {
        if self.apart.0.contains(&file.name) {
            hidden(self.prefix, self.id, &file.name)
        } else {
            self.prefix.file(&file.name)
        }
    }

    fn file_being_rebuilt(&self, record: &RankRecord, number: usize) -> PathBuf {
        staging_file(&self.prefix.file(&record.files[number].name), &format!("rebuilding.{}", self.id))
    }

    fn redundancy(&self) -> PathBuf {
        self.prefix.dataset_dir(self.id).join(redundancy_name(self.rank))
    }

    fn redundancy_being_rebuilt(&self) -> PathBuf {
        self.redundancy().with_extension("rebuild")
    }
}

/// The token of the end of a scavenge among the flushes under way: hidden files have it in their names.
pub(super) fn token(id: u64) -> String {
    format!("scavenged.{id}")
}

/// The name of a file while a node copies it: it gets its own name after its last byte.
pub(super) fn being_copied(path: &std::path::Path, id: u64, node: &str) -> PathBuf {
    staging_file(path, &format!("{}.{}", copying(id), node.replace('/', "_")))
}

/// Stands in the names of files that are being copied.
pub(super) fn copying(id: u64) -> String {
    format!("copying.{id}")
}

fn hidden(prefix: &Prefix, id: u64, name: &FileName) -> PathBuf {
    staging_file(&prefix.file(name), &token(id))
}
