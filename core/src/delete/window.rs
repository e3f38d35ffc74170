//! Which datasets to delete from the prefix directory: one by name or number, all, or those outside the window.

use super::Deleting;
use crate::cache::Cache;
use crate::error::{Doing as _, Error};
use crate::job::Job;
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::ledger::{beyond_window, Request};
use scr_prefix::{Index, PrefixError};

/// Deletes a dataset with all its files from the prefix directory. Collective.
///
/// # Errors
/// A file cannot be removed, or another run reads them in place. The same on all ranks.
fn dataset(job: &Job, id: u64) -> Result<(), Error> {
    let (node, run) = (job.nodes.name(job.rank()), job.run.number);
    let deleting = Deleting { comm: &*job.comm, files: job.files(), node, prefix: &job.prefix, run };
    let note = deleting.run(id).doing(format_args!("deleting dataset {id} from the prefix directory"))?;
    if let Some(note) = note {
        job.report.warn(&format!("dataset {id} is deleted from the index, but {note}"));
    }
    Ok(())
}

/// Deletes every dataset from the prefix directory, or none if another run reads one of them in place. The copies of output in
/// cache are not flushed again. Collective. See `SCR_PREFIX_PURGE` in docs/user/parameters.md.
///
/// # Errors
/// As for [`dataset`], or the index cannot be read, or the user wants no run without a checkpoint.
pub(crate) fn all(job: &Job) -> Result<(), Error> {
    let ledger = job.ledger();
    let doing = "purging the prefix directory";
    let listed = listed(job, doing, |index| {
        let entries = index.entries();
        ledger.refuse_held(&entries, job.run.number)?;
        Ok(entries.iter().map(|entry| entry.id).collect())
    })?;
    if listed.is_empty() {
        return Ok(());
    }
    report_setting(job, "SCR_PREFIX_PURGE=1", "all datasets from the prefix directory", true)?;
    job.do_on_first(|| ledger.transact(&Request::Purge(&listed))).doing(doing)?;
    listed.iter().try_for_each(|&id| dataset(job, id))
}

/// Says that a setting is about to delete something, which the run may need to restart.
///
/// # Errors
/// It may, and the user wants no run without a checkpoint.
pub(crate) fn report_setting(job: &Job, setting: &str, what: &str, is_needed: bool) -> Result<(), Error> {
    if is_needed && job.params.get(&param::REQUIRE_RESTART) {
        return Err(Error::Refused(format!(
            "{setting} would delete {what}: with SCR_REQUIRE_RESTART=1 the run does not start without a checkpoint that it could \
             restart from; unset one of the two"
        )));
    }
    job.report.warn(&format!("{setting} deletes {what}"));
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
/// deleted, or the index not be read, that is reported. One that this run could not read does not count, and stays: a later run
/// may restart from it. One that another run reads in place stays too. Collective.
/// See `SCR_PREFIX_SIZE` in docs/user/parameters.md.
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
        let surplus = beyond_window(index, size, newest, |id| !cache.unread.contains(&id));
        Ok(surplus.into_iter().filter(|&id| !is_held(index, id)).collect())
    };
    let surplus = match listed(job, READING, goes) {
        Err(Error::Comm(error)) => return Err(error.into()),
        Err(error) => {
            job.report.error(&scr_base::describe(&error));
            return Ok(());
        }
        Ok(surplus) => surplus,
    };
    for id in surplus {
        if cache.arrives_in_prefix(id) {
            continue;
        }
        match dataset(job, id) {
            Err(Error::Comm(error)) => return Err(error.into()),
            Err(error) => {
                // The next flush tries again, and nothing has to be said again.
                if cache.undeleted.insert(id) {
                    let why = scr_base::describe(&error);
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
    Ok(!job.any(is_lost)?)
}

/// Ids that rank 0 finds in the index, on all ranks.
fn listed(
    job: &Job,
    doing: &str,
    find: impl FnOnce(&Index) -> Result<Vec<u64>, PrefixError>,
) -> Result<Vec<u64>, Error> {
    job.on_first(|| job.ledger().index().and_then(|index| find(&index))).doing(doing)
}

const READING: &str = "reading the index of the prefix directory";
