//! A new index in the place of one that is damaged or lost, from the summaries of the datasets.
//!
//! A summary says what its dataset is, and that it was complete. It does not say what a newer dataset has replaced since. So
//! every dataset of a new index counts as [suspect](scr_core::fetch::is_suspect): its bytes are compared before it is handed out.
//! The damaged index stays beside the new one.

use super::facts::names_of;
use super::{decide::completed, Event, Ledger, LedgerDir, MakeCurrent};
use crate::error::unless_damaged;
use crate::{DatasetDescriptor, Ids, Index, Prefix, PrefixError, Seq, Summary, Withdrawal};
use scr_base::env::local_time;
use scr_base::fs::{At, Files};
use std::time::{Duration, UNIX_EPOCH};

/// Makes a new index. The user is told so. A process that has the lock of the old one `keeps` that one; others only look.
///
/// # Errors
/// A summary cannot be read for a reason that may pass, or the damaged index cannot be kept.
pub(super) fn rebuild(of: LedgerDir<'_>, fault: &Fault, keeps: bool) -> Result<Index, PrefixError> {
    let (LedgerDir { files, prefix }, ids) = (of, of.numbers()?);
    let mut ledger = Ledger { index: Index::new(), ids: ids.clone() };
    let withdrawn = ids.withdrawn();
    for Found { dataset, at } in found(files, prefix, None)? {
        let why = withdrawn.of(&dataset);
        if why == Some(Withdrawal::Removed) {
            continue;
        }
        replaced_by(files, prefix, &ledger.index, &dataset)?.iter().for_each(|event| ledger.apply(event));
        let completed = completed(&ledger.index, &dataset, None, MakeCurrent::Never, &at);
        completed.iter().for_each(|event| ledger.apply(event));
        if why == Some(Withdrawal::Refused) {
            ledger.apply(&Event::Failed { id: dataset.id, at });
        }
    }
    let mut index = ledger.index;
    index.doubt_all(Seq { run: ids.last_run(), id: ids.next() });
    let listed = index.entries().len();
    let path = prefix.index_file();
    let aside = || match keeps {
        true => keep(files, prefix).map(|aside| format!("; it is kept as {}", aside.display())),
        false => Ok(String::new()),
    };
    let what = match fault {
        Fault::Missing => format!("{} is missing", path.display()),
        Fault::Damaged(damage) => damage.fault() + &aside()?,
        Fault::Older(DatasetDescriptor { id, name, .. }) => {
            let name = String::from_utf8_lossy(name);
            format!(
                "{} is an older copy: it knows nothing of dataset {id} `{name}'{}",
                path.display(),
                aside()?
            )
        }
        Fault::Foreign => format!("{} is that of another prefix directory{}", path.display(), aside()?),
    };
    prefix.note(match keeps {
        true => format!(
            "{what}. A new index lists the {listed} datasets whose summaries say that they are complete. The bytes of each are \
             compared before a job restarts from it; `scr index' shows them"
        ),
        false => format!("{what}; `scr index', or the next run, puts a new one in its place"),
    });
    Ok(index)
}

/// Why an index is not used.
pub(super) enum Fault {
    /// There is none, though there are complete datasets.
    Missing,
    Damaged(PrefixError),
    /// It was put back from before this dataset, which is complete.
    Older(DatasetDescriptor),
    Foreign,
}

/// The evidence against an index that can be read, by the numbers of the prefix directory and by the datasets beside it. C SCR
/// keeps the keys that this goes by, also where it takes datasets out.
///
/// # Errors
/// A summary cannot be read for a reason that may pass.
pub(super) fn contradiction(
    files: &dyn Files,
    prefix: &Prefix,
    index: &Index,
    ids: &Ids,
) -> Result<Option<Fault>, PrefixError> {
    if index.prefix_id().zip(ids.prefix_id()).is_some_and(|(its, own)| its != own) {
        return Ok(Some(Fault::Foreign));
    }
    let Some(last) = index.last_listed() else { return Ok(None) };
    let withdrawn = ids.withdrawn();
    let is_withdrawn = |dataset: &_| withdrawn.of(dataset) == Some(Withdrawal::Removed);
    let mut above = found(files, prefix, index.highest_id())?.into_iter().map(|found| found.dataset);
    Ok(above.rfind(|dataset| dataset.seq() > last && !is_withdrawn(dataset)).map(Fault::Older))
}

/// Whether an index is missing where there are complete datasets.
pub(super) fn is_lost(files: &dyn Files, prefix: &Prefix) -> Result<bool, PrefixError> {
    Ok(!found(files, prefix, None)?.is_empty())
}

/// A dataset whose summary says that it is complete, and since when.
struct Found {
    dataset: DatasetDescriptor,
    at: String,
}

/// Those with ids above this one, or all, the oldest first.
fn found(files: &dyn Files, prefix: &Prefix, highest: Option<u64>) -> Result<Vec<Found>, PrefixError> {
    let mut all = Vec::new();
    for id in prefix.dataset_ids(files)?.into_iter().filter(|&id| Some(id) > highest) {
        let summary = unless_damaged(Summary::read(files, prefix, id))?.flatten();
        let Some(Summary { dataset, complete: true }) = summary else { continue };
        // An import that was cut short never counts.
        if files.status(&prefix.import_mark(id)).is_ok() {
            continue;
        }
        let seconds = Summary::written_at(files, prefix, id)?.0;
        let at = local_time(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        all.push(Found { dataset, at });
    }
    all.sort_by_key(|found| found.dataset.seq());
    Ok(all)
}

/// The older datasets of other names that lose a file to this one.
fn replaced_by(
    files: &dyn Files,
    prefix: &Prefix,
    index: &Index,
    dataset: &DatasetDescriptor,
) -> Result<Vec<Event>, PrefixError> {
    let own = names_of(files, prefix, dataset.id)?.unwrap_or_default();
    let mut replaced = Vec::new();
    for other in index.entries().iter().filter(|other| other.name != dataset.name) {
        let theirs = names_of(files, prefix, other.id)?.unwrap_or_default();
        if !own.is_disjoint(&theirs) {
            replaced.push(Event::Replaced(other.id));
        }
    }
    Ok(replaced)
}

/// Gives the damaged index a name that nothing has. A process that dies now leaves none, which is [lost](is_lost) then.
fn keep(files: &dyn Files, prefix: &Prefix) -> Result<std::path::PathBuf, PrefixError> {
    let mut names = (1_u32..).map(|number| prefix.scr_file(&format!("index.scr.damaged.{number}")));
    let is_free = |path: &std::path::PathBuf| files.status(path).is_err();
    let aside = names.find(is_free).unwrap_or_else(|| prefix.scr_file("index.scr.damaged"));
    let path = prefix.index_file();
    files.rename(&path, &aside).at("rename", &path)?;
    Ok(aside)
}
