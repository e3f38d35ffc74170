//! Takes datasets out of the index without a job. See the guide's `scr index --drop` and `--drop-after`.

use crate::flush::catalog::Catalog;
use crate::flush::closing;
use crate::fs::Files;
use crate::prefix::{
    FlushEntry, FlushFile, Ids, Index, IndexEntry, Location, Prefix, PrefixError, Seq, Withdrawal,
};

/// What was known of a dataset that was dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The name that was looked for.
    pub name: Vec<u8>,
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
    drop_named(files, prefix, name, &|_| true)
}

/// The same for every dataset newer than the one of this name, the newest first: checkpoints and output, as C SCR does it. Gives what
/// was known of each; `None` if the index has no dataset of this name.
///
/// # Errors
/// As for [`drop_dataset`]. Newer datasets have been dropped by then.
pub fn drop_later(
    files: &dyn Files,
    prefix: &Prefix,
    name: &[u8],
) -> Result<Option<Vec<Dropped>>, PrefixError> {
    let index = Index::read(files, prefix)?;
    let Some(chosen) = index.id_of(name).and_then(|id| index.entry(id)) else { return Ok(None) };
    let is_later = |seq| seq > chosen.seq();
    let listed = index.entries().into_iter().map(|entry| (entry.seq(), entry.name));
    let known = known(files, prefix)?.into_iter().map(|entry| (entry.seq(), entry.name));
    let mut later: Vec<(Seq, Vec<u8>)> = listed.chain(known).filter(|(seq, _)| is_later(*seq)).collect();
    later.sort_unstable_by(|one, other| other.cmp(one));
    let mut dropped: Vec<Dropped> = Vec::new();
    for (_, name) in later {
        if !dropped.iter().any(|other| other.name == name) {
            dropped.push(drop_named(files, prefix, &name, &is_later)?);
        }
    }
    Ok(Some(dropped))
}

/// Those of the datasets of a name that are meant. An older one keeps its place in the index, if the name still leads to it.
fn drop_named(
    files: &dyn Files,
    prefix: &Prefix,
    name: &[u8],
    is_meant: &dyn Fn(Seq) -> bool,
) -> Result<Dropped, PrefixError> {
    let index = Index::read(files, prefix)?;
    let is_older_kept =
        index.id_of(name).and_then(|id| index.entry(id)).is_some_and(|entry| !is_meant(entry.seq()));
    let mut listed = index.entries();
    listed.retain(|entry| entry.name == name && is_meant(entry.seq()));
    Catalog { files, prefix }.refuse_held(&listed, 0)?;
    let mut known = known(files, prefix)?;
    known.retain(|entry| entry.name == name && is_meant(entry.seq()));
    let seqs: Vec<Seq> =
        listed.iter().map(IndexEntry::seq).chain(known.iter().map(FlushEntry::seq)).collect();
    if !seqs.is_empty() {
        Ids::record_withdrawn(files, prefix, &seqs, Withdrawal::Removed, None)?;
    }
    let (mut found, caution) = if is_older_kept {
        (closing::abandon_named(files, prefix, name)?, None)
    } else {
        let dropped = closing::drop_name(files, prefix, name, 0)?;
        (dropped.value, dropped.caution())
    };
    if !known.is_empty() {
        found |= FlushFile::update(files, prefix, |flush| {
            flush.drop_all(|entry| entry.name == name && is_meant(entry.seq()))
        })?;
    }
    known.retain(|entry| entry.is_at(Location::Cache));
    let in_cache = known.iter().map(|entry| entry.id).collect();
    Ok(Dropped { name: name.to_vec(), found, in_cache, caution })
}

/// What the flush file says; nothing if it is damaged.
fn known(files: &dyn Files, prefix: &Prefix) -> Result<Vec<FlushEntry>, PrefixError> {
    match FlushFile::read(files, prefix) {
        Err(error) if error.is_damage() => Ok(Vec::new()),
        flush => Ok(flush?.entries()),
    }
}
