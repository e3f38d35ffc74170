//! Combines the filemaps of a scavenged dataset: which ranks wrote it, and which parts are known.

use super::filemap::{read_all, ScavengedMap};
use crate::cache::record::{DatasetKey, RankRecord};
use scr_base::fs::{Files, FsError};
use scr_comm::Rank;
use scr_prefix::Prefix;
use std::collections::{BTreeMap, BTreeSet};

/// A scavenged dataset.
#[derive(Debug)]
pub struct Scan {
    /// The records of ranks: their own, or those that a neighbour has kept. Not of each: a damaged filemap may claim any number
    /// of them.
    records: BTreeMap<Rank, RankRecord>,
    /// The ranks whose own filemap was scavenged.
    pub(super) own: BTreeSet<Rank>,
    /// Any record; what it says of the whole dataset all of them say.
    pub any: RankRecord,
    /// Filemaps that are useless, and why.
    pub(super) passed_over: Vec<String>,
}

impl Scan {
    /// Reads the filemaps of a dataset; `None` if there is no usable one.
    pub fn read(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Option<Self>, FsError> {
        let (maps, passed_over) = read_all(files, prefix, id)?;
        Ok(Self::of(&maps.iter().collect::<Vec<_>>(), passed_over))
    }

    /// The scan of these filemaps. An id may have been used twice where ids could not be reserved; the newer dataset counts.
    pub fn of(maps: &[&ScavengedMap], mut passed_over: Vec<String>) -> Option<Self> {
        let records = maps.iter().map(|map| &map.record);
        let any = records.max_by_key(|record| DatasetKey::of(record)).cloned()?;
        let (ours, others): (Vec<&ScavengedMap>, Vec<_>) =
            maps.iter().partition(|map| belong(&any, &map.record));
        passed_over.extend(others.iter().map(|map| {
            let rank = map.record.rank;
            format!("the filemap of rank {rank} is that of another dataset with this id, and is ignored")
        }));
        let kept = ours.iter().flat_map(|map| &map.neighbours).filter(|record| belong(&any, record));
        // The own record of a rank counts more than one that another has kept.
        let all = kept.chain(ours.iter().map(|map| &map.record));
        let records = all.map(|record| (record.rank, record.clone())).collect();
        let own = ours.iter().map(|map| map.record.rank).collect();
        Some(Self { records, own, any, passed_over })
    }

    /// Every record that is known, by rank.
    pub fn records(&self) -> impl Iterator<Item = &RankRecord> {
        self.records.values()
    }

    /// The record of a rank's part.
    pub(super) fn record(&self, rank: Rank) -> Option<&RankRecord> {
        self.records.get(&rank)
    }
}

/// Whether two records are of one dataset.
fn belong(one: &RankRecord, other: &RankRecord) -> bool {
    one.begun == other.begun
        && one.ranks() == other.ranks()
        && one.dataset.id == other.dataset.id
        && one.dataset.name == other.dataset.name
        && one.protection == other.protection
}
