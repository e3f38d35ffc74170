//! Takes a dataset out of the index without a job. See the guide's `scr index --drop`.

use crate::flush::catalog::Catalog;
use crate::flush::closing;
use crate::fs::Files;
use crate::prefix::{
    FlushEntry, FlushFile, Ids, Index, IndexEntry, Location, Prefix, PrefixError, Seq, Withdrawal,
};

/// What was known of a dataset that was dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Whether anything was.
    pub found: bool,
    /// The ids of the datasets of its name that a cache may have.
    pub in_cache: Vec<u64>,
    /// Further information for the user.
    pub caution: Option<&'static str>,
}

/// Takes the datasets of a name out of the index and out of the flush file, and ends their flushes. No run restarts from a copy in
/// cache either, unless the dataset is listed again first. The files stay.
///
/// # Errors
/// A flush could not be rolled back, a file of the prefix directory cannot be read or changed, or a run reads files of the name in
/// place.
pub fn drop_dataset(files: &dyn Files, prefix: &Prefix, name: &[u8]) -> Result<Dropped, PrefixError> {
    let mut listed = Index::read(files, prefix)?.entries();
    listed.retain(|entry| entry.name == name);
    Catalog { files, prefix }.refuse_held(&listed, 0)?;
    let mut known = match FlushFile::read(files, prefix) {
        Err(error) if error.is_damage() => Vec::new(),
        flush => flush?.entries(),
    };
    known.retain(|entry| entry.name == name);
    let seqs: Vec<Seq> =
        listed.iter().map(IndexEntry::seq).chain(known.iter().map(FlushEntry::seq)).collect();
    if !seqs.is_empty() {
        Ids::record_withdrawn(files, prefix, &seqs, Withdrawal::Removed, None)?;
    }
    let dropped = closing::drop_name(files, prefix, name, 0)?;
    let caution = dropped.caution();
    let mut found = dropped.value;
    if !known.is_empty() {
        found |= FlushFile::update(files, prefix, |flush| flush.drop_name(name))?;
    }
    known.retain(|entry| entry.is_at(Location::Cache));
    Ok(Dropped { found, in_cache: known.iter().map(|entry| entry.id).collect(), caution })
}
