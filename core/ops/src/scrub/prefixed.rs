//! The files that the index, the summaries and the file lists of a prefix directory record.

use super::{is_wanted, Dataset, Item, ItemKind, Plan, Read, Verdict};
use scr_base::fs::{At, Files, FsError};
use scr_prefix::container::{read_all, totals};
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{IndexEntry, Prefix, PrefixError, Rank2File, Summary};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl Plan {
    /// The records of a prefix directory.
    ///
    /// # Errors
    /// It has no folder `.scr`, or that cannot be read.
    pub fn of_prefix(files: &dyn Files, dir: &Path, wanted: Option<&str>) -> Result<Self, FsError> {
        let prefix = Prefix::new(dir);
        files.list(&prefix.scr_dir()).at("list", &prefix.scr_dir())?;
        let mut plan = Self::default();
        let entries = match LedgerDir::new(files, &prefix).index_as_it_is() {
            Ok(index) => index.entries(),
            Err(error) => {
                let now = "no dataset can be fetched; add each again with `scr_index --add'";
                let found = scr_base::describe(&error);
                plan.general.push(wrong(prefix.index_file(), ItemKind::Index, found, now));
                return Ok(plan);
            }
        };
        for entry in entries.into_iter().rev() {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if is_wanted(wanted, entry.id, &name) {
                plan.datasets.push(planned(files, &prefix, &entry, name));
            }
        }
        Ok(plan)
    }
}

fn planned(files: &dyn Files, prefix: &Prefix, entry: &IndexEntry, name: String) -> (Dataset, Vec<Read>) {
    let mut dataset = Dataset { id: entry.id, name, state: state(entry), ..Dataset::default() };
    // A dataset that was never complete, or is overwritten, is known not to be whole.
    if !entry.complete || entry.superseded {
        return (dataset, Vec::new());
    }
    let summary = look_at_summary(files, prefix, entry.id);
    let is_intact = summary.verdict == Verdict::Intact;
    dataset.items.push(summary);
    match Rank2File::read(files, prefix, entry.id) {
        Ok(lists) => {
            dataset.items.push(compare_totals(files, prefix, entry, &lists));
            return (dataset, reads(prefix, &lists));
        }
        // If the folder of the dataset is gone, once is enough.
        Err(_) if !is_intact && files.status(&prefix.dataset_dir(entry.id)).is_err() => (),
        Err(error) => {
            let path = prefix.rank2file(entry.id);
            dataset.items.push(wrong(path, ItemKind::FileList, scr_base::describe(&error), REFUSED));
        }
    }
    (dataset, Vec::new())
}

fn state(entry: &IndexEntry) -> String {
    let words = [
        (!entry.complete, "incomplete"),
        (entry.superseded, "overwritten by a later one of its name"),
        (entry.failed.is_some(), "failed before"),
        (entry.current, "complete, current"),
    ];
    words.iter().find(|(holds, _)| *holds).map_or("complete", |(_, word)| word).to_owned()
}

fn look_at_summary(files: &dyn Files, prefix: &Prefix, id: u64) -> Item {
    let path = prefix.summary_file(id);
    let found = match Summary::read(files, prefix, id) {
        Ok(Some(summary)) if summary.complete => return item(path, ItemKind::Summary, Verdict::Intact),
        Ok(Some(_)) => {
            format!("{} says that the dataset is not complete, and the index that it is", path.display())
        }
        Ok(None) => format!("{} is missing", path.display()),
        Err(error) => scr_base::describe(&error),
    };
    wrong(path, ItemKind::Summary, found, REFUSED)
}

/// The lists must have as many files, and as many bytes, as the index says.
fn compare_totals(files: &dyn Files, prefix: &Prefix, entry: &IndexEntry, lists: &Rank2File) -> Item {
    let path = prefix.rank2file(entry.id);
    let dataset = entry.dataset.as_ref();
    let mut listed = (lists.files() as u64, lists.bytes());
    if let Some(dataset) = dataset.filter(|dataset| dataset.aggregated) {
        match read_all(files, prefix, dataset, lists) {
            Ok(containers) => {
                let (files, bytes) = totals(&containers);
                listed = (files, Some(bytes));
            }
            // It is read as a whole too, and then it is said once what is missing.
            Err(PrefixError::Missing { .. }) => return item(path, ItemKind::FileList, Verdict::Intact),
            Err(error) => return wrong(path, ItemKind::FileList, scr_base::describe(&error), REFUSED),
        }
    }
    let (files, bytes) = dataset.map_or((None, None), |dataset| (dataset.files, dataset.bytes));
    let same_files = files.is_none_or(|files| files == listed.0);
    let same_bytes = bytes.zip(listed.1).is_none_or(|(bytes, listed)| bytes == listed);
    if same_files && same_bytes {
        return item(path, ItemKind::FileList, Verdict::Intact);
    }
    let found = format!(
        "{} lists {} files with {} bytes, and the index has {} files with {} bytes",
        path.display(),
        listed.0,
        or_unknown(listed.1),
        or_unknown(files),
        or_unknown(bytes),
    );
    wrong(path, ItemKind::FileList, found, REFUSED)
}

/// All files; one that ranks share is read once.
fn reads(prefix: &Prefix, lists: &Rank2File) -> Vec<Read> {
    let mut seen = BTreeSet::new();
    let by_rank = lists.by_rank().iter().zip(0_u32..);
    let all = by_rank.flat_map(|(list, rank)| list.iter().map(move |file| (file, rank)));
    all.filter(|(file, _)| seen.insert(file.name.clone()))
        .map(|(file, rank)| Read {
            path: prefix.file(&file.name),
            kind: ItemKind::Data,
            rank,
            bytes: file.bytes,
            crc: file.crc,
            now: REFUSED.to_owned(),
        })
        .collect()
}

fn item(path: PathBuf, kind: ItemKind, verdict: Verdict) -> Item {
    Item { path, kind, rank: None, bytes: 0, verdict }
}

fn wrong(path: PathBuf, kind: ItemKind, found: String, now: &str) -> Item {
    item(path, kind, Verdict::Wrong { found, now: now.to_owned() })
}

fn or_unknown(count: Option<u64>) -> String {
    count.map_or("an unknown number of".to_owned(), |count| count.to_string())
}

const REFUSED: &str =
    "a fetch refuses this dataset and takes an older one; put a good copy in its place, or drop it";
