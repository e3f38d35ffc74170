//! The flushes under way below a prefix directory, for those who look at a job from outside: which datasets, since when, and how
//! much of them has arrived.
//!
//! It reads the records and the lists of the flushes, and looks at the lengths of the staging files. If a dataset has many files,
//! it looks at some, spread over all ranks, so that looking costs the file system little.

use scr_base::fs::{Files, FsError};
use scr_prefix::ledger::pending::{self, PendingFlush};
use scr_prefix::ledger::LedgerDir;
use scr_prefix::rank2file::leaves;
use scr_prefix::{staging_file, DatasetDescriptor, Prefix, PrefixError, PrefixFile};

/// A flush under way.
#[derive(Debug, Clone, PartialEq)]
pub struct FlushUnderWay {
    /// Its dataset.
    pub dataset: DatasetDescriptor,
    /// When it was recorded, in seconds since the epoch by the clock of the file server.
    pub began: i64,
    /// The share of its bytes that has arrived, from 0 to 1, where the files are copied and that can be found out.
    pub arrived: Option<f64>,
}

/// The flushes under way, the oldest dataset first. Remains of those that were given up do not count.
///
/// # Errors
/// The folder of the records cannot be listed.
pub fn flushes_under_way(files: &dyn Files, prefix: &Prefix) -> Result<Vec<FlushUnderWay>, FsError> {
    let found = pending::list(LedgerDir { files, prefix })?.into_iter();
    let known = found.filter_map(|found| found.known().ok().flatten()).filter(|flush| !flush.revoked);
    Ok(known.filter_map(|flush| look(files, prefix, flush)).collect())
}

/// `None` if it has ended meanwhile.
fn look(files: &dyn Files, prefix: &Prefix, flush: PendingFlush) -> Option<FlushUnderWay> {
    let record = files.status(&pending::flush_path(prefix, &flush.token)).ok()?;
    let arrived = match flush.all_done(LedgerDir { files, prefix }) {
        Ok(true) => Some(1.0),
        // The lengths of copies do not say that they are synced, and right.
        _ => arrived(files, prefix, &flush).ok().flatten().map(|share| share.min(0.99)),
    };
    Some(FlushUnderWay { dataset: flush.dataset, began: record.mtime.0, arrived })
}

/// The share that has arrived of those files that are looked at. `None` if none of them is being copied.
fn arrived(files: &dyn Files, prefix: &Prefix, flush: &PendingFlush) -> Result<Option<f64>, PrefixError> {
    let leaves = leaves(files, prefix, flush.dataset.id)?;
    let (mut listed, mut there, mut is_copied) = (0_u64, 0_u64, false);
    for leaf in spread(&leaves, MOST_LEAVES) {
        let lists = leaf.read(files)?;
        let all: Vec<&PrefixFile> = lists.iter().flat_map(|(_, list)| list).collect();
        for file in spread(&all, MOST_FILES) {
            let staging = staging_file(&prefix.file(&file.name), &flush.token);
            let length = file.bytes.unwrap_or(0);
            listed = listed.saturating_add(length);
            let Ok(status) = files.status(&staging) else { continue };
            is_copied = true;
            there = there.saturating_add(status.len.min(length));
        }
    }
    Ok((is_copied && listed > 0).then(|| there as f64 / listed as f64))
}

/// At most so many of these, spread evenly.
fn spread<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(most).max(1))
}

/// A leaf has the files of 1024 ranks.
const MOST_LEAVES: usize = 8;
const MOST_FILES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_plugin_api::KvTree;
    use scr_prefix::ledger::{CommonFiles, MakeCurrent, Request};
    use scr_prefix::{FileName, Rank2File};
    use scr_test_kit::fixtures::scratch;
    use std::fs;

    #[test]
    fn the_share_that_has_arrived_is_that_of_the_staging_files() {
        let (_dir, prefix) = scratch();
        let listed = |name: &str, bytes| {
            vec![PrefixFile {
                name: FileName::parse(name.as_bytes()).unwrap(),
                bytes: Some(bytes),
                crc: None,
            }]
        };
        let dataset = DatasetDescriptor { id: 7, bytes: Some(400), ..Default::default() };
        let flush = PendingFlush {
            token: "7.a.b".to_owned(),
            dataset: dataset.clone(),
            ranks: 2,
            marks: 1,
            make_current: MakeCurrent::IfNewest,
            revoked: false,
            sharing: CommonFiles::default(),
        };
        let arrived = || {
            let found = flushes_under_way(&RealFiles, &prefix).unwrap();
            found.iter().map(|flush| flush.arrived).collect::<Vec<_>>()
        };
        assert_eq!(arrived(), []);
        let ledger = LedgerDir::new(&RealFiles, &prefix);
        flush.write(ledger).unwrap();
        assert_eq!(arrived(), [None], "its lists are not there yet");
        fs::create_dir_all(prefix.dataset_dir(7)).unwrap();
        let lists = Rank2File::new(vec![listed("one", 100), listed("two", 300)]);
        lists.write(&RealFiles, &prefix, 7).unwrap();
        assert_eq!(arrived(), [None], "not a byte is copied yet, or the files are in place");
        let staging = |name: &str| staging_file(&prefix.dir().join(name), &flush.token);
        fs::write(staging("one"), [0; 50]).unwrap();
        assert_eq!(arrived(), [Some(0.125)]);
        fs::write(staging("two"), [0; 5000]).unwrap();
        assert_eq!(arrived(), [Some(0.875)], "no file counts for more than it has");
        let found = flushes_under_way(&RealFiles, &prefix).unwrap().remove(0);
        assert_eq!(found.dataset, dataset);
        flush.mark_done(ledger, 0, &KvTree::new()).unwrap();
        assert_eq!(arrived(), [Some(1.0)]);
        let (dataset, by) = (&flush.dataset, &flush.by());
        ledger.transact(&Request::TakeBack { dataset, by, even_if_taken: false }).unwrap();
        assert_eq!(arrived(), []);
        fs::write(prefix.scr_dir().join("flush.8.damaged"), "x").unwrap();
        assert_eq!(arrived(), [], "a damaged record says nothing");
    }

    #[test]
    fn of_many_files_some_are_looked_at_spread_over_all() {
        for (all, most, expected) in [(0, 4, 0), (3, 4, 3), (4, 4, 4), (5, 4, 3), (1000, 64, 63_usize)] {
            let all: Vec<_> = (0..all).collect();
            assert_eq!(spread(&all, most).count(), expected);
        }
    }
}
