//! Which datasets would be lost with a cache directory.

use super::holdings::holdings;
use super::saving::Saving;
use scr_base::fs::{Files, FsError, MAX_TREE_BYTES};
use scr_core::cache::filemap::{Filemap, PartState};
use scr_core::cache::node_dir;
use scr_core::cache::owner::Owner;
use scr_core::cache::part::{look_through, PartDir};
use scr_core::cache::record::RankRecord;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{FlushFile, Location, Prefix, PrefixError, PrefixId};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The datasets that would be lost with a cache directory: those that `scr postrun` would save if its job had died, and those of
/// which nothing can be found out, as messages name them.
///
/// # Errors
/// The directory cannot be listed.
pub fn unsaved(files: &dyn Files, cache: &Path) -> Result<Vec<String>, FsError> {
    let mut unknown = BTreeSet::new();
    let mut known: BTreeMap<Vec<u8>, BTreeMap<u64, RankRecord>> = BTreeMap::new();
    for folder in node_dir::places(files, cache)? {
        let mut content = look_through(files, &folder);
        if let Some(error) = content.errors.pop() {
            return Err(error);
        }
        for (id, rank) in content.parts {
            let map = files.read_all(&PartDir::new(&folder, id, rank).filemap(), MAX_TREE_BYTES);
            let map = map.map(|bytes| Filemap::parse(&bytes)).unwrap_or_default();
            match (map.state, map.record) {
                (PartState::Arriving | PartState::Open | PartState::Refused, _) => (),
                (_, Some(record)) => _ = known.entry(record.prefix.clone()).or_default().insert(id, record),
                (_, None) => _ = unknown.insert(id),
            }
        }
    }
    let mut all: Vec<String> = unknown.into_iter().map(|id| format!("dataset {id}")).collect();
    for (prefix, records) in known {
        let prefix = Path::new(OsStr::from_bytes(&prefix));
        let saved = saved(files, &Prefix::new(prefix), &records).unwrap_or_default();
        let lost = records.iter().filter(|(id, _)| !saved.contains(id));
        all.extend(lost.map(|(_, record)| format!("{} of {}", record.label(), prefix.display())));
    }
    Ok(all)
}

/// Those of these datasets that nobody has to save, by their numbers in cache.
fn saved(
    files: &dyn Files,
    prefix: &Prefix,
    records: &BTreeMap<u64, RankRecord>,
) -> Result<Vec<u64>, PrefixError> {
    let (index, id) = (LedgerDir::new(files, prefix).index_as_it_is()?, PrefixId::read(files, prefix)?);
    let is_there = |record: &RankRecord| Owner::of(record, files, prefix, id.as_ref()) == Owner::This;
    let here: Vec<_> = records.iter().filter(|(_, record)| is_there(record)).collect();
    let mut flush = FlushFile::default();
    here.iter().for_each(|(_, record)| flush.record(&record.dataset_in_prefix(), Location::Cache));
    let all = holdings(files, prefix, &flush, Some(&index), None);
    let is_saved = |record: &RankRecord| {
        let lost = Saving::of(&all, &record.dataset.job_id, false).0;
        lost.iter().all(|(lost, _)| lost.id != record.id_in_prefix)
    };
    Ok(here.into_iter().filter(|(_, record)| is_saved(record)).map(|(&id, _)| id).collect())
}
