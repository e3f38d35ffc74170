//! Takes datasets out of the index without a job. See docs/user/datasets.md.

use scr_base::fs::Files;
use scr_prefix::ledger::{Dropping, Leave, LedgerDir, Request};
use scr_prefix::{FlushEntry, FlushFile, IndexEntry, Prefix, PrefixError, Running, Seq};

/// The knowledge about a dataset that was dropped.
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
    /// Why files may remain, where it was deleted with them.
    pub notes: Vec<String>,
}

/// Takes the datasets of a name out of the index and out of the flush file, and ends their flushes. No run restarts from a copy
/// in cache either, unless the dataset is listed again first. The files stay.
///
/// # Errors
/// A flush could not be rolled back, a file of the prefix directory cannot be read or changed, or a run reads files of the name
/// in place.
pub fn drop_dataset(files: &dyn Files, prefix: &Prefix, name: &[u8]) -> Result<Dropped, PrefixError> {
    drop_named(files, prefix, name, None, |_| Ok(Vec::new()))
}

/// The same for every dataset, or for those newer than the one of this name, the newest first: checkpoints and output, as C SCR
/// does it. Gives what was known of each; `None` if the index has no dataset of this name.
///
/// # Errors
/// As for [`drop_dataset`]. Newer datasets have been dropped by then.
pub fn drop_later(
    files: &dyn Files,
    prefix: &Prefix,
    name: Option<&[u8]>,
) -> Result<Option<Vec<Dropped>>, PrefixError> {
    let index = LedgerDir { files, prefix }.index()?;
    let place = |name: &[u8]| Some(index.entry(index.id_of(name)?)?.seq());
    let Ok(after) = name.map(|name| place(name).ok_or(())).transpose() else { return Ok(None) };
    let listed = index.entries().into_iter().map(|entry| (entry.seq(), entry.name));
    let known = known(files, prefix)?.into_iter().map(|entry| (entry.seq(), entry.dataset.name));
    let mut later: Vec<(Seq, Vec<u8>)> = listed.chain(known).filter(|(seq, _)| Some(*seq) > after).collect();
    later.sort_unstable_by(|one, other| other.cmp(one));
    let mut dropped: Vec<Dropped> = Vec::new();
    for (_, name) in later {
        if !dropped.iter().any(|other| other.name == name) {
            dropped.push(drop_named(files, prefix, &name, after, |_| Ok::<_, PrefixError>(Vec::new()))?);
        }
    }
    Ok(Some(dropped))
}

/// Those of a name, or only those newer than a place: an older one keeps its name, if that still leads to it. `delete` removes the
/// files of these, and gives why any remain.
pub(super) fn drop_named<E: From<PrefixError>>(
    files: &dyn Files,
    prefix: &Prefix,
    name: &[u8],
    after: Option<Seq>,
    mut delete: impl FnMut(&[u64]) -> Result<Vec<String>, E>,
) -> Result<Dropped, E> {
    let is_meant = |seq: Seq| after.is_none_or(|after| seq > after);
    let ledger = LedgerDir { files, prefix };
    let index = ledger.index()?;
    let mut listed = index.entries();
    listed.retain(|entry| entry.name == name && is_meant(entry.seq()));
    ledger.refuse_held(&listed, 0)?;
    let mut known = known(files, prefix)?;
    known.retain(|entry| entry.name == name && is_meant(entry.seq()));
    let seqs = known.iter().map(|entry| entry.seq()).chain(listed.iter().map(IndexEntry::seq));
    let seqs: Vec<Seq> = seqs.collect();
    let next_run = ledger.last_run(0)?.number + 1;
    // A job may give the name to a new dataset before this command ends.
    let which = Dropping::These { name, seqs: &seqs };
    let (mut found, mut caution, mut notes) = (!listed.is_empty(), None, Vec::new());
    for step in Leave::ORDER {
        match step {
            Leave::Record if seqs.is_empty() => (),
            Leave::Record => {
                let is_alone = !Running::may_be_any(files, prefix);
                ledger.transact(&Request::Withdraw {
                    seqs: &seqs,
                    which: Some(which),
                    alone: None,
                    before: (after.is_none() && is_alone).then_some(next_run),
                })?;
            }
            Leave::Index => {
                let unlisted = known.iter().map(|entry| entry.id).filter(|&id| index.entry(id).is_none());
                let ids: Vec<u64> = listed.iter().map(|entry| entry.id).chain(unlisted).collect();
                notes = delete(&ids)?;
                let (is_any_left, warning) = ledger.drop_datasets(which, 0)?;
                (found, caution) = (found || is_any_left, warning);
            }
            Leave::Cache if known.is_empty() => (),
            Leave::Cache => {
                let is_meant = |entry: &FlushEntry| which.means_described(entry);
                found |= FlushFile::update(files, prefix, |flush| flush.drop_all(is_meant))?;
            }
        }
    }
    known.retain(FlushEntry::is_on_nodes);
    let in_cache = known.iter().map(|entry| entry.id).collect();
    Ok(Dropped { name: name.to_vec(), found, in_cache, caution, notes })
}

/// The datasets of the flush file; none if it is damaged.
fn known(files: &dyn Files, prefix: &Prefix) -> Result<Vec<FlushEntry>, PrefixError> {
    let flush = FlushFile::read_undamaged(files, prefix)?.unwrap_or_default();
    Ok(flush.entries().into_iter().chain(flush.lost()).collect())
}
