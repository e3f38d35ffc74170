//! Adds a dataset that is whole in the prefix directory to an index that does not have it, or has lost its entry.
//!
//! The summary may be outdated: a newer dataset that uses the same names replaces files. So sizes are always compared. If another
//! dataset may have replaced a file, or no record says that this one was ever complete, its checksums have to match too. If a
//! newer dataset was begun and is not complete, a file without one must not have changed since this one was complete.

use super::build::{BuildError, Builder, Built, Outcome};
use scr_base::fs::verify::{checksum, compare, open_whole, FileError};
use scr_base::fs::{Durability, FsError};
use scr_base::{describe, ensure};
use scr_prefix::container::{read_all, totals};
use scr_prefix::ledger::{self, Refusal};
use scr_prefix::{
    DatasetDescriptor, FileName, IndexEntry, Overwritten, PrefixError, PrefixFile, Rank2File, Summary,
    Withdrawal, FILE_MODE,
};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

impl Builder<'_> {
    /// Lists a dataset that was taken out of the index, by its name. The index stays as it is if the dataset is not whole.
    /// See `scr_index --add` in docs/user/datasets.md.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn add(&self, name: &[u8]) -> Result<Built, BuildError> {
        let index = self.ledger().index()?;
        let listed = index.id_of(name).and_then(|id| index.entry(id)).filter(IndexEntry::is_valid);
        if let Some(entry) = listed.filter(|_| !self.trusts_times) {
            let IndexEntry { id, name, .. } = entry;
            return Ok(Built { id, name, outcome: Outcome::Already, notes: Vec::new() });
        }
        for id in self.datasets()? {
            match Summary::read(self.files(), self.prefix, id) {
                Ok(Some(summary)) if summary.dataset.name == name => {
                    return Builder { lists_incomplete: false, ..*self }.build(id);
                }
                // An unreadable summary counts as that of another dataset.
                _ => {}
            }
        }
        let why = format!(
            "no summary below {} is that of a dataset named `{}'; `scr index --import' makes a dataset of files",
            self.prefix.scr_dir().display(),
            String::from_utf8_lossy(name)
        );
        Err(BuildError::Unknown { id: None, why })
    }

    /// Lists a dataset that was never scavenged, if it is whole.
    pub(super) fn relist(&self, id: u64, entry: Option<&IndexEntry>) -> Result<Built, BuildError> {
        let name = entry.map(|entry| entry.name.clone()).unwrap_or_default();
        let mut built = Built { id, name, outcome: Outcome::Already, notes: Vec::new() };
        if self.files().status(&self.prefix.import_mark(id)).is_ok() {
            let why = format!(
                "its import was cut short; import the files again, and remove {}",
                self.prefix.dataset_dir(id).display()
            );
            built.outcome = Outcome::Incomplete { why };
            return Ok(built);
        }
        let why = match self.evidence(id, entry) {
            Ok(evidence) => {
                built.name.clone_from(&evidence.dataset.name);
                let accepted = self.accepted(&evidence.dataset)?;
                match self.examine(&evidence, &self.newer_names(&evidence.dataset)?) {
                    Ok(verified) => {
                        built.outcome = self.list_whole(&evidence, verified, accepted)?;
                        if self.trusts_times && built.outcome.is_complete() {
                            // From now on its files must not change.
                            let (files, path) = (self.files(), self.prefix.summary_file(id));
                            if let Some(tree) = files.read_tree(&path)? {
                                files.write_tree(&path, &tree, FILE_MODE, Durability::Synced)?;
                            }
                        }
                        return Ok(built);
                    }
                    Err(error) => {
                        self.list_incomplete(&evidence.dataset)?;
                        describe(&*error)
                    }
                }
            }
            Err(error) if error.is_damage() => describe(&error),
            Err(error) => return Err(error.into()),
        };
        built.outcome = Outcome::Incomplete { why };
        Ok(built)
    }

    /// The damage to the files of a dataset, if there is any.
    pub(super) fn damage(&self, entry: &IndexEntry) -> Result<Option<String>, BuildError> {
        match self.evidence(entry.id, Some(entry)) {
            Ok(evidence) => {
                let examined = self.examine(&evidence, &self.newer_names(&evidence.dataset)?);
                Ok(examined.err().map(|error| describe(&*error)))
            }
            Err(error) if error.is_damage() => Ok(Some(describe(&error))),
            Err(error) => Err(error.into()),
        }
    }

    fn evidence(&self, id: u64, entry: Option<&IndexEntry>) -> Result<Evidence, PrefixError> {
        let (files, prefix) = (self.files(), self.prefix);
        let lists = Rank2File::read(files, prefix, id)?;
        let summary = match Summary::read(files, prefix, id) {
            Err(error) if error.is_damage() => None,
            other => other?,
        };
        let described = summary.is_some();
        let said_complete =
            summary.as_ref().map_or(entry.is_some_and(|entry| entry.complete), |summary| summary.complete);
        let dataset = summary.map(|summary| summary.dataset).or_else(|| entry?.dataset.clone());
        let dataset = dataset.ok_or_else(|| PrefixError::Missing { path: prefix.summary_file(id) })?;
        let mut doubted = entry.is_some_and(|entry| !entry.complete) || !said_complete;
        let mut unchanged_since = None;
        let index = self.ledger().index()?;
        if ledger::is_suspect(index.last_begun(), index.seq_of(&dataset)) {
            doubted |= !described;
            let proves = described && !self.trusts_times;
            unchanged_since = proves.then(|| Summary::written_at(files, prefix, id)).transpose()?;
        }
        Ok(Evidence { dataset, lists, described, doubted, unchanged_since })
    }

    /// Compares all files with what is recorded. Returns whether every one has the right checksum, or what is wrong.
    fn examine(&self, evidence: &Evidence, newer: &HashMap<Newer, u64>) -> Result<bool, NotWhole> {
        if let Some(&newer) = newer.get(&Newer::Dataset(evidence.dataset.name.clone())) {
            return Err(format!("its name belongs to dataset {newer}, which is newer").into());
        }
        let mut seen = HashSet::new();
        let (mut verified, mut count, mut bytes) = (true, 0_u64, 0_u64);
        for file in evidence.lists.by_rank().iter().flatten() {
            let (name, proven) = (&file.name, file.crc.is_some());
            let overwritten = Overwritten::since(self.files(), self.prefix, name, evidence.dataset.seq())?;
            if overwritten && !proven {
                let what = "was given to the application to write over, for a later dataset";
                return Err(format!("{name} {what}, and has no checksum to prove it").into());
            }
            let (length, changed) = self.compare(file, seen.insert(name))?;
            (count, bytes) = (count + 1, bytes.saturating_add(length));
            verified &= proven;
            let doubt = match newer.get(&Newer::File(name.clone())) {
                _ if proven => continue,
                Some(newer) => format!("dataset {newer}, which is newer, may have replaced {name}"),
                None if evidence.doubted => {
                    format!("nothing says that it was ever complete, and {name} has no checksum to prove it")
                }
                None if evidence.unchanged_since.is_some_and(|since| changed > since) => format!(
                    "{name} has changed since the dataset was complete, and has no checksum to prove it; if only its time has \
                     changed, as a copy or `touch' does, run `scr index --add NAME --trust-times'"
                ),
                None => continue,
            };
            return Err(doubt.into());
        }
        let dataset = &evidence.dataset;
        if dataset.aggregated {
            (count, bytes) = totals(&read_all(self.files(), self.prefix, dataset, &evidence.lists)?);
        }
        let expected = (dataset.files.unwrap_or(count), dataset.bytes.unwrap_or(bytes));
        let found = (count, bytes);
        ensure(expected == found, || FileError::Totals { expected, found })?;
        Ok(verified)
    }

    /// Compares a file with what is recorded of it, and gives its length and when it was changed. A file of several ranks is read
    /// once.
    fn compare(&self, file: &PrefixFile, read: bool) -> Result<(u64, (i64, u32)), FileError> {
        let path = self.prefix.file(&file.name);
        let (open, status) = open_whole(self.files(), &path, file.bytes)?;
        if let Some(crc) = file.crc.filter(|_| read) {
            compare(&path, Some(crc), Some(checksum(&*open, &path, BLOCK_BYTES)?))?;
        }
        Ok((status.len, status.mtime))
    }

    /// The names of newer datasets and of their files, as far as they are known.
    fn newer_names(&self, dataset: &DatasetDescriptor) -> Result<HashMap<Newer, u64>, BuildError> {
        let mut names = HashMap::new();
        let index = self.ledger().index()?;
        let own = index.seq_of(dataset);
        let is_newer =
            |other: &u64| index.entry(*other).map_or(*other > dataset.id, |entry| entry.seq() > own);
        for entry in index.entries().into_iter().filter(|entry| entry.seq() > own) {
            names.insert(Newer::Dataset(entry.name), entry.id);
        }
        for other in self.datasets()?.into_iter().filter(is_newer) {
            if let Ok(lists) = Rank2File::read(self.files(), self.prefix, other) {
                names.extend(
                    lists.by_rank().iter().flatten().map(|file| (Newer::File(file.name.clone()), other)),
                );
            }
        }
        Ok(names)
    }

    fn list_whole(
        &self,
        evidence: &Evidence,
        verified: bool,
        accepted: Option<Withdrawal>,
    ) -> Result<Outcome, BuildError> {
        let dataset = &evidence.dataset;
        // A summary is written when a flush ends, so its time is that of the flush.
        let status =
            self.files().status(&self.prefix.summary_file(dataset.id)).ok().filter(|_| evidence.described);
        let written = status.and_then(|status| u64::try_from(status.mtime.0).ok());
        let time =
            written.map_or_else(|| self.env.clock.now(), |secs| UNIX_EPOCH + Duration::from_secs(secs));
        let (lists, now) = (evidence.lists.by_rank(), scr_base::env::local_time(time));
        let expect_wanted = |_: &_| self.expect_wanted(dataset, accepted);
        let listed = self.ledger().commit(now).list_in_place(dataset, lists, expect_wanted);
        match listed {
            Err(
                why @ (BuildError::Prefix(PrefixError::Refused(Refusal::Superseded { .. }))
                | BuildError::Step(_)
                | BuildError::Fs(FsError::Unsynced { .. })),
            ) => return Ok(Outcome::Incomplete { why: why.to_string() }),
            listed => listed?,
        }
        let files = evidence.lists.files() as u64;
        let bytes = dataset.bytes.or_else(|| evidence.lists.bytes()).unwrap_or(0);
        Ok(Outcome::Listed { files, bytes, verified })
    }
}

/// The records of a flushed dataset.
struct Evidence {
    dataset: DatasetDescriptor,
    lists: Rank2File,
    /// Whether its summary is there.
    described: bool,
    /// Whether anything says that it is not complete, or nothing that it is.
    doubted: bool,
    /// When a newer dataset was begun and is not complete, which may have replaced files: when this one was complete.
    unchanged_since: Option<(i64, u32)>,
}

/// Why a dataset is not whole, as far as it is known.
type NotWhole = Box<dyn std::error::Error>;

/// A name that a newer dataset has.
#[derive(PartialEq, Eq, Hash)]
enum Newer {
    Dataset(Vec<u8>),
    File(FileName),
}

const BLOCK_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flush::tests::stage::{through, Stage, OPTIONS};
    use crate::flush::Options;
    use crate::plugin::PluginHost;
    use scr_prefix::ledger::LedgerDir;

    use scr_base::fs::RealFiles;
    use scr_prefix::ledger::Dropping;
    use scr_prefix::Index;
    use scr_test_kit::fixtures::ChangeIndex as _;
    use scr_test_kit::TestEnv;
    use std::sync::Arc;

    fn add(stage: &Stage) -> Outcome {
        LedgerDir::new(&RealFiles, &stage.prefix).drop_datasets(Dropping::Named(b"a"), 0).unwrap();
        add_listed(stage, false)
    }

    fn add_listed(stage: &Stage, trusts_times: bool) -> Outcome {
        let env = TestEnv::new(Arc::new(RealFiles), stage.prefix.dir()).env();
        let host = PluginHost::new(&env, None);
        let builder = Builder { trusts_times, ..Builder::new(&env, &stage.prefix, &host, 0) };
        builder.add(b"a").unwrap().outcome
    }

    /// It was listed, and its time was made young: from then on nobody doubted its files.
    #[test]
    fn a_file_without_a_checksum_that_changed_after_its_dataset_is_not_listed_if_a_newer_one_was_begun() {
        let stage = Stage::new(2);
        let mut cached = stage.cache(1, "a");
        cached.by_rank.iter_mut().flatten().for_each(|file| file.record.crc = None);
        let options = Options { checksums: false, metadata: false, ..OPTIONS };
        stage.flush_with(&RealFiles, &through(&RealFiles), "1.x", &cached, options).unwrap();
        let summary = stage.prefix.summary_file(1);
        let written = std::fs::metadata(&summary).unwrap().modified().unwrap();
        let file = cached.by_rank[1].iter().find(|file| file.bytes > 0).unwrap();
        let path = stage.prefix.file(&file.name);
        let replaced = std::fs::File::options().write(true).open(&path).unwrap();
        replaced.set_modified(written + Duration::from_secs(1)).unwrap();
        // Nothing says that anybody has begun to replace its files.
        assert!(matches!(add(&stage), Outcome::Listed { verified: false, .. }));
        assert_eq!(std::fs::metadata(&summary).unwrap().modified().unwrap(), written);
        let newer = stage.cache(2, "b").dataset;
        Index::update(&RealFiles, &stage.prefix, |index| index.record(&newer, false)).unwrap();
        let Outcome::Incomplete { why } = add(&stage) else { panic!("it was listed") };
        assert!(why.contains("has changed since the dataset was complete"), "{why}");
        replaced.set_modified(written - Duration::from_secs(1)).unwrap();
        assert!(add(&stage).is_complete());
        // It may have replaced files all the same.
        replaced.set_modified(written + Duration::from_secs(1)).unwrap();
        LedgerDir::new(&RealFiles, &stage.prefix).drop_datasets(Dropping::Named(b"b"), 0).unwrap();
        assert!(matches!(add(&stage), Outcome::Incomplete { .. }));
        // The user knows that nobody has. From then on it counts again, until it changes once more.
        assert!(matches!(add_listed(&stage, true), Outcome::Listed { verified: false, .. }));
        replaced.set_modified(written).unwrap();
        assert!(add(&stage).is_complete());
        // It settles the doubt about one that is listed as well, and does not list one that is not whole.
        replaced.set_modified(std::time::SystemTime::now()).unwrap();
        assert!(matches!(add_listed(&stage, true), Outcome::Listed { .. }));
        let renewed = std::fs::metadata(&summary).unwrap().modified().unwrap();
        assert!(renewed >= replaced.metadata().unwrap().modified().unwrap());
        let whole = replaced.metadata().unwrap().len();
        replaced.set_len(whole - 1).unwrap();
        assert!(matches!(add_listed(&stage, true), Outcome::Incomplete { .. }));
        replaced.set_len(whole).unwrap();
        let by = cached.dataset.seq();
        let by = scr_prefix::Seq { id: by.id + 1, ..by };
        Overwritten::record(&RealFiles, &stage.prefix, &file.name, by).unwrap();
        assert!(matches!(add_listed(&stage, true), Outcome::Incomplete { .. }));
    }
}
