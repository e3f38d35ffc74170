//! Which datasets to delete from the prefix directory: one by name or number, all, or those outside the window.

use super::Deleting;
use crate::cache::Cache;
use crate::comm::collective::{any, broadcast_tree};
use crate::comm::{CommError, Rank};
use crate::error::Error;
use crate::job::Job;
use crate::ledger::Request;
use crate::param;
use crate::prefix::{DatasetDescriptor, Index, IndexEntry, PrefixError};
use scr_plugin_api::KvTree;

/// Deletes a dataset with all its files from the prefix directory. Collective.
///
/// # Errors
/// A file cannot be removed, or another run reads them in place. The same on all ranks.
fn dataset(job: &Job, id: u64) -> Result<(), Error> {
    let (node, run) = (job.nodes.name(job.rank()), job.run.number);
    let deleting = Deleting { comm: &*job.comm, files: job.files(), node, prefix: &job.prefix, run };
    let note = deleting
        .run(id)
        .map_err(|error| error.doing(format!("deleting dataset {id} from the prefix directory")))?;
    if let Some(note) = note {
        job.report.warn(&format!("dataset {id} is deleted from the index, but {note}"));
    }
    Ok(())
}

/// Deletes every dataset from the prefix directory, or none if another run reads one of them in place. The copies of output in cache
/// are not flushed again. Collective. See the guide's `SCR_PREFIX_PURGE`.
///
/// # Errors
/// As for [`dataset`], or the index cannot be read.
pub(crate) fn all(job: &Job) -> Result<(), Error> {
    let ledger = job.ledger();
    let doing = "purging the prefix directory";
    let listed = listed(job, doing, |index| {
        let entries = index.entries();
        ledger.refuse_held(&entries, job.run.number)?;
        Ok(entries.iter().map(|entry| entry.id).collect())
    })?;
    let recorded = match job.rank() {
        Rank(0) if !listed.is_empty() => ledger.transact(&Request::Purge(&listed)).map(drop),
        _ => Ok(()),
    };
    job.agree(recorded).map_err(|error| error.doing(doing))?;
    listed.iter().try_for_each(|&id| dataset(job, id))?;
    job.report.info(&format!("Deleted {} datasets from the prefix directory", listed.len()));
    Ok(())
}

/// Deletes all datasets of a name from the prefix directory, and says whether there was any. Collective.
///
/// # Errors
/// As for [`all`].
pub(crate) fn named(job: &Job, name: &[u8]) -> Result<bool, Error> {
    let listed = listed(job, READING, |index| {
        let mut ids = index.others_named(name, 0);
        ids.extend(index.entry(0).filter(|entry| entry.name == name).map(|entry| entry.id));
        Ok(ids)
    })?;
    listed.iter().try_for_each(|&id| dataset(job, id))?;
    Ok(!listed.is_empty())
}

/// Deletes the checkpoints that are too many in the prefix directory, now that dataset `newest` is there. If one cannot be
/// deleted, or the index not be read, that is reported. One that this run could not read does not count, and stays: a later run may
/// restart from it. One that another run reads in place stays too. Collective. See the guide's `SCR_PREFIX_SIZE`.
///
/// # Errors
/// The ranks cannot talk.
pub(crate) fn slide_window(job: &Job, cache: &mut Cache, newest: u64) -> Result<(), Error> {
    let size = job.params.get(&param::PREFIX_SIZE);
    let Some(size) = usize::try_from(size).ok().filter(|&size| size > 0) else { return Ok(()) };
    let ledger = job.ledger();
    let is_held =
        |index: &Index, id: u64| index.entry(id).is_some_and(|entry| ledger.is_held(&entry, job.run.number));
    let goes = |index: &Index| {
        let surplus = surplus(index, size, newest, |id| cache.could_read(id));
        Ok(surplus.into_iter().filter(|&id| !is_held(index, id)).collect())
    };
    let surplus = match listed(job, READING, goes) {
        Err(Error::Comm(error)) => return Err(error.into()),
        Err(error) => {
            job.report.error(&crate::describe(&error));
            return Ok(());
        }
        Ok(surplus) => surplus,
    };
    for id in surplus {
        if !cache.may_delete_in_prefix(id) {
            continue;
        }
        match dataset(job, id) {
            Err(Error::Comm(error)) => return Err(error.into()),
            Err(error) => {
                // The next flush tries again, and nothing has to be said again.
                if cache.is_first_undeleted(id) {
                    let why = crate::describe(&error);
                    job.report.error(&format!("{why}; it stays, and this is not said of it again"));
                }
                if !is_still_whole(job, id)? {
                    cache.lose_copy(id);
                }
            }
            Ok(()) => {
                job.report.info(&format!("Deleting dataset {id} from the prefix directory"));
                cache.leave_prefix(job, id);
            }
        }
    }
    Ok(())
}

/// Whether a dataset still counts that could not be deleted. Collective.
fn is_still_whole(job: &Job, id: u64) -> Result<bool, CommError> {
    let counts = |index: &Index| index.entry(id).is_some_and(|entry| entry.is_valid());
    let is_lost = job.rank() == Rank(0) && !job.ledger().look(counts).unwrap_or(true);
    let [is_lost] = any(&*job.comm, [is_lost])?;
    Ok(!is_lost)
}

/// Ids that rank 0 finds in the index, on all ranks.
fn listed(
    job: &Job,
    doing: &str,
    find: impl FnOnce(&Index) -> Result<Vec<u64>, PrefixError>,
) -> Result<Vec<u64>, Error> {
    let own = match job.rank() {
        Rank(0) => job.ledger().index().and_then(|index| find(&index)),
        _ => Ok(Vec::new()),
    };
    let own = job.agree(own).map_err(|error| error.doing(doing))?;
    let mut tree = KvTree::new();
    for id in own {
        tree.child(id.to_string());
    }
    Ok(broadcast_tree(&*job.comm, Rank(0), &tree)?.keys_as().collect())
}

const READING: &str = "reading the index of the prefix directory";

/// The checkpoints that are older than the `size` newest ones that count, which `could_read` says. Output stays, and so do the
/// current one and what another number of ranks wrote.
fn surplus(index: &Index, size: usize, newest: u64, could_read: impl Fn(u64) -> bool) -> Vec<u64> {
    let entries = index.entries();
    let Some(newest) = index.entry(newest).map(|entry| entry.restart_point()) else { return Vec::new() };
    let counting = entries.iter().filter(|entry| {
        entry.is_candidate() && newest.replaces(entry.restart_point()) && could_read(entry.id)
    });
    let Some(oldest) = counting.map(IndexEntry::restart_point).nth(size - 1) else { return Vec::new() };
    entries
        .iter()
        .filter(|entry| {
            entry.seq() < oldest.seq
                && newest.replaces(entry.restart_point())
                && !entry.current
                && entry.dataset.as_ref().is_some_and(DatasetDescriptor::is_only_checkpoint)
        })
        .map(|entry| entry.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_keeps_the_newest_that_count_and_all_output() {
        let mut index = Index::new();
        for id in 1..=6 {
            let name = format!("ckpt.{id}").into_bytes();
            let output = id == 2;
            let dataset = DatasetDescriptor { id, name, checkpoint: true, output, ..Default::default() };
            index.record(&dataset, true);
        }
        index.mark_failed(5, "now");
        let plain = DatasetDescriptor { id: 7, name: b"out".to_vec(), output: true, ..Default::default() };
        index.record(&plain, true);
        assert_eq!(surplus(&index, 2, 6, |_| true), [3, 1]);
        assert_eq!(surplus(&index, 2, 4, |_| true), [1], "of those before it");
        assert_eq!(surplus(&index, 3, 6, |_| true), [1]);
        assert_eq!(surplus(&index, 2, 6, |id| id != 4), [1], "the two newest that could be read");
        assert!(surplus(&index, 9, 6, |_| true).is_empty());
    }

    /// Two starts with the wrong number of ranks took the only checkpoint of the right number away.
    #[test]
    fn the_window_leaves_alone_what_another_number_of_ranks_wrote() {
        let mut index = Index::new();
        for (id, ranks) in [(1, Some(4)), (2, Some(3)), (3, Some(4)), (4, Some(3)), (5, Some(3)), (6, None)] {
            let name = format!("ckpt.{id}").into_bytes();
            index
                .record(&DatasetDescriptor { id, name, checkpoint: true, ranks, ..Default::default() }, true);
        }
        assert_eq!(surplus(&index, 1, 5, |_| true), [4, 2]);
        assert_eq!(surplus(&index, 1, 6, |_| true), [5, 4, 3, 2, 1], "C SCR does not say how many");
    }
}
