//! Combines the filemaps of a scavenged dataset: which ranks wrote it, and which parts are known.

use super::filemap::{read_all, ScavengedMap};
use crate::cache::record::{DatasetKey, RankRecord};
use scr_base::fs::{Files, FsError};
use scr_comm::Rank;
use scr_prefix::Prefix;
use std::collections::BTreeMap;

/// A scavenged dataset.
#[derive(Debug)]
pub struct Scan {
    /// The knowledge about parts of ranks. Not about each: a damaged filemap may claim any number of them.
    parts: BTreeMap<Rank, Known>,
    /// Any record; what it says of the whole dataset all of them say.
    pub any: RankRecord,
    /// Filemaps that are useless, and why.
    pub(super) passed_over: Vec<String>,
}

/// The knowledge about a rank's part.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Its record: its own, or the one that a neighbour has kept.
    pub(super) record: Option<RankRecord>,
    /// Whether its own filemap was scavenged.
    pub(super) own: bool,
}

/// For a rank without any record.
static NOTHING: Known = Known { record: None, own: false };

impl Scan {
    /// Reads the filemaps of a dataset; `None` if there is no usable one.
    pub fn read(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Option<Self>, FsError> {
        let found = read_all(files, prefix, id)?;
        let passed_over: Vec<String> = found
            .unusable
            .iter()
            .map(|(path, why)| format!("{} cannot be used: {}", path.display(), scr_base::describe(why)))
            .collect();
        Ok(Self::of(&found.maps, passed_over))
    }

    /// The scan of these filemaps. An id may have been used twice where ids could not be reserved; the newer dataset counts.
    pub fn of(maps: &[ScavengedMap], mut passed_over: Vec<String>) -> Option<Self> {
        let records = maps.iter().map(|map| &map.record);
        let any = records.max_by_key(|record| DatasetKey::of(record)).cloned()?;
        let mut parts: BTreeMap<Rank, Known> = BTreeMap::new();
        let (ours, others): (Vec<_>, Vec<_>) = maps.iter().partition(|map| belong(&any, &map.record));
        passed_over.extend(others.iter().map(|map| stranger(map)));
        for neighbour in ours.iter().flat_map(|map| &map.neighbours).filter(|record| belong(&any, record)) {
            parts.entry(neighbour.rank).or_default().record = Some(neighbour.clone());
        }
        for map in ours {
            parts.insert(map.record.rank, Known { record: Some(map.record.clone()), own: true });
        }
        Some(Self { parts, any, passed_over })
    }

    /// Every record that is known, by rank.
    pub fn records(&self) -> impl Iterator<Item = &RankRecord> {
        self.parts.values().filter_map(|known| known.record.as_ref())
    }

    /// The knowledge about a rank's part.
    pub(super) fn part(&self, rank: Rank) -> &Known {
        self.parts.get(&rank).unwrap_or(&NOTHING)
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

fn stranger(map: &ScavengedMap) -> String {
    format!("the filemap of rank {} is that of another dataset with this id, and is ignored", map.record.rank)
}
