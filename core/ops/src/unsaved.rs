//! Which datasets would be lost with a cache directory.

use scr_base::fs::{Files, FsError, MAX_TREE_BYTES};
use scr_core::cache::filemap::{Filemap, PartState};
use scr_core::cache::node_dir;
use scr_core::cache::owner::Owner;
use scr_core::cache::part::{look_through, PartDir};
use scr_core::cache::record::RankRecord;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{
    DatasetDescriptor, FlushFile, Index, IndexEntry, Location, Prefix, PrefixError, PrefixId, RestartPoint,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A dataset that is in cache, and not known to be in its prefix directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsaved {
    /// Its number.
    pub id: u64,
    /// Its name, empty if it is not known.
    pub name: String,
    /// The prefix directory it belongs to, where that is known.
    pub prefix: Option<PathBuf>,
}

/// The datasets that would be lost with a cache directory. A checkpoint is not lost where its prefix directory has a newer one to
/// restart from, of its run or its allocation: a run of another allocation has not seen it, and began further back. Datasets that
/// cannot be read count as not saved.
///
/// # Errors
/// The directory cannot be listed.
pub fn unsaved(files: &dyn Files, cache: &Path) -> Result<Vec<Unsaved>, FsError> {
    let mut found = BTreeMap::new();
    for folder in node_dir::places(files, cache)? {
        let mut content = look_through(files, &folder);
        if let Some(error) = content.errors.pop() {
            return Err(error);
        }
        for (id, rank) in content.parts {
            let map = files.read_all(&PartDir::new(&folder, id, rank).filemap(), MAX_TREE_BYTES);
            let map = map.map(|bytes| Filemap::parse(&bytes)).unwrap_or_default();
            let is_incomplete =
                matches!(map.state, PartState::Arriving | PartState::Open | PartState::Refused);
            if !is_incomplete && !map.record.as_ref().is_some_and(|record| is_saved(files, record)) {
                let entry = found.entry(id).or_insert((String::new(), None));
                if let Some(record) = map.record {
                    let prefix = PathBuf::from(OsStr::from_bytes(&record.prefix));
                    *entry = (String::from_utf8_lossy(&record.dataset.name).into_owned(), Some(prefix));
                }
            }
        }
    }
    Ok(found.into_iter().map(|(id, (name, prefix))| Unsaved { id, name, prefix }).collect())
}

/// Adds datasets that were found in cache to the contents of a flush file that could not be written or is gone. It leaves out
/// dropped datasets, datasets that the prefix directory has, and checkpoints that it has newer ones of. Gives how many were
/// added. Nothing is written.
///
/// # Errors
/// The prefix directory cannot be read.
pub fn add_unlisted(
    files: &dyn Files,
    prefix: &Prefix,
    flush: &mut FlushFile,
    found: &[DatasetDescriptor],
) -> Result<usize, PrefixError> {
    let ledger = LedgerDir::new(files, prefix);
    let (index, withdrawn) = (ledger.index_as_it_is()?, ledger.numbers()?.withdrawn());
    let listed = flush.entries();
    let is_unlisted = |dataset: &&DatasetDescriptor| {
        listed.iter().all(|entry| entry.id != dataset.id)
            && withdrawn.why(dataset.seq(), dataset.is_only_checkpoint()).is_none()
            && !has(&index, dataset.id, dataset, dataset.restart_point(), |_| true)
    };
    let unlisted: Vec<_> = found.iter().filter(is_unlisted).collect();
    unlisted.iter().for_each(|dataset| flush.record(dataset, Location::Cache));
    Ok(unlisted.len())
}

/// Whether the prefix directory has the dataset, or a newer checkpoint in its place.
fn is_saved(files: &dyn Files, record: &RankRecord) -> bool {
    let prefix = Prefix::new(Path::new(OsStr::from_bytes(&record.prefix)));
    let Ok(index) = LedgerDir::new(files, &prefix).index_as_it_is() else { return false };
    let is_there = |id: Option<PrefixId>| Owner::of(record, files, &prefix, id.as_ref()) == Owner::This;
    if !PrefixId::read(files, &prefix).is_ok_and(is_there) {
        return false;
    }
    let dataset = &record.dataset;
    has(&index, record.id_in_prefix, dataset, record.restart_point(), |newer| {
        let job_id = newer.dataset.as_ref().map(|newer| &newer.job_id);
        newer.run == dataset.run || job_id.is_none_or(|job_id| *job_id == dataset.job_id)
    })
}

/// Whether an index has a dataset, which has this number there, or a newer checkpoint in its place that counts.
fn has(
    index: &Index,
    id: u64,
    dataset: &DatasetDescriptor,
    point: RestartPoint,
    counts: impl Fn(&IndexEntry) -> bool,
) -> bool {
    index.entries().iter().any(|entry| {
        let is_it = entry.id == id && entry.name == dataset.name && entry.is_valid();
        let is_newer = entry.is_candidate() && entry.restart_point().replaces(point);
        is_it || dataset.is_only_checkpoint() && is_newer && counts(entry)
    })
}
