//! Completes a scavenged dataset: rebuilds lost parts, gives every file its name, writes summary and file lists, and lists it in
//! the index. See `scr_index --build` in docs/user/datasets.md.

use super::place::{copying, hidden, token, ScavengedPart};
use super::repair::ScavengedRepair;
use super::scan::Scan;
use crate::cache::part::PartPlace;
use crate::cache::record::RankRecord;
use crate::plugin::PluginHost;
use scr_base::env::Env;
use scr_base::fs::copy::copy_anew;
use scr_base::fs::{At, Files, FsError, How};
use scr_comm::Rank;
use scr_prefix::commit::{sync_names, unused_name};
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::ledger::{CommonFiles, LedgerDir};
use scr_prefix::{
    tidy, DatasetDescriptor, IndexEntry, Prefix, PrefixError, PrefixFile, Rank2File, Summary, Unsynced,
    Withdrawal, Withdrawn,
};
use std::collections::{BTreeMap, BTreeSet};

/// Builds datasets of one prefix directory.
#[derive(Clone, Copy)]
pub struct Builder<'a> {
    pub(super) env: &'a Env,
    pub(super) prefix: &'a Prefix,
    pub(super) plugins: &'a PluginHost,
    pub(super) level: u64,
    /// Whether the index gets a dataset that is not whole, as incomplete.
    pub(super) lists_incomplete: bool,
    /// Whether files count that have changed since their dataset was complete: the user knows that only their times have.
    pub trusts_times: bool,
    /// Whether what was saved from a cache takes the place of a copy that failed.
    pub(crate) replaces_failed: bool,
    /// Whether nobody has asked for the dataset, and one that is withdrawn stays out of the index.
    pub(super) unless_withdrawn: bool,
    /// The damage for which parts in cache could not be copied, by their ranks.
    pub damaged: Option<&'a BTreeMap<u32, String>>,
}

/// The fate of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Its number.
    pub id: u64,
    /// Its name, empty if it is not known.
    pub name: Vec<u8>,
    /// How it went.
    pub outcome: Outcome,
    /// Further information for the user.
    pub notes: Vec<String>,
}

/// How building a dataset went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was complete before, and nothing was done.
    Already,
    /// It was whole and is listed now; `verified` if every file was compared with a checksum.
    Listed { files: u64, bytes: u64, verified: bool },
    /// It was scavenged, and is whole and listed now, with the parts of the ranks that were `rebuilt`.
    Completed { rebuilt: Vec<u32>, files: u64, bytes: u64 },
    /// It is not whole, and counts for nothing.
    Incomplete { why: String },
}

/// The dataset whose summary and file lists are there and can be read.
pub(super) fn described(files: &dyn Files, prefix: &Prefix, id: u64) -> Option<DatasetDescriptor> {
    let summary = Summary::read(files, prefix, id).ok().flatten().filter(|summary| summary.complete)?;
    Rank2File::read(files, prefix, id).ok().map(|_| summary.dataset)
}

impl Outcome {
    /// Whether a job may use the dataset now.
    pub fn is_complete(&self) -> bool {
        !matches!(self, Self::Incomplete { .. })
    }
}

/// Why nothing could be said of a dataset.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Nothing is known of it.
    #[error("{why}")]
    Unknown { id: Option<u64>, why: String },
    /// The prefix directory cannot be read or written.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A step failed on every byte being known to be right.
    #[error("{0}")]
    Step(String),
}

const TO_TRY_AGAIN: &str = "take it out of the index and build it again to try once more";

const TO_SAVE_AGAIN: &str =
    "if nodes have the dataset in cache, save it with `scr copy' on each of them, and build it again";

impl<'a> Builder<'a> {
    /// A builder; `level` is `SCR_DEBUG`.
    pub fn new(env: &'a Env, prefix: &'a Prefix, plugins: &'a PluginHost, level: u64) -> Self {
        Self {
            env,
            prefix,
            plugins,
            level,
            lists_incomplete: true,
            trusts_times: false,
            replaces_failed: false,
            unless_withdrawn: false,
            damaged: None,
        }
    }

    pub(super) fn files(&self) -> &'a dyn Files {
        &*self.env.files
    }

    pub(super) fn ledger(&self) -> LedgerDir<'a> {
        LedgerDir { files: self.files(), prefix: self.prefix }
    }

    pub(super) fn list_incomplete(&self, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        match self.lists_incomplete {
            true => self.ledger().list_incomplete(dataset),
            false => Ok(()),
        }
    }

    /// The datasets of which anything is known, the newest first.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn datasets(&self) -> Result<Vec<u64>, BuildError> {
        let mut ids = self.prefix.dataset_ids(self.files())?;
        ids.reverse();
        Ok(ids)
    }

    /// Why a dataset stays out of the index, unless the user builds it by its number or adds it by its name: it was withdrawn, and
    /// nobody has listed it since.
    ///
    /// # Errors
    /// Its records cannot be read.
    pub fn withdrawn(&self, id: u64) -> Result<Option<String>, BuildError> {
        let (withdrawn, index) = (self.ledger().numbers()?.withdrawn(), self.ledger().index()?);
        if withdrawn == Withdrawn::default() || index.entry(id).is_some() {
            return Ok(None);
        }
        let dataset = match Summary::read(self.files(), self.prefix, id).ok().flatten() {
            Some(summary) => Some(summary.dataset),
            None => Scan::read(self.files(), self.prefix, id)?.map(|scan| scan.any.dataset.clone()),
        };
        let Some(dataset) = dataset else {
            // Its deletion was killed.
            let folder = self.prefix.dataset_dir(id);
            let left = format!("dataset {id} was deleted; remove what is left of it, {}", folder.display());
            return Ok(withdrawn.has_removed(id).then_some(left));
        };
        let Some(why) = withdrawn.of(&dataset) else { return Ok(None) };
        let what = match why {
            Withdrawal::Removed => "was dropped, deleted or gone back over",
            Withdrawal::Refused => {
                "is one that the application could not restart from, or that somebody went back over"
            }
        };
        let name = String::from_utf8_lossy(&dataset.name);
        Ok(Some(format!(
            "dataset {id} `{name}' {what}, and stays out of the index; `scr index --build {id}' lists it again if its \
             files are there"
        )))
    }

    fn withdrawal(&self, dataset: &DatasetDescriptor) -> Result<Option<Withdrawal>, PrefixError> {
        Ok(self.ledger().numbers()?.withdrawn().of(dataset))
    }

    /// What a build goes by that begins now: who builds a withdrawn dataset all the same has asked for it.
    pub(super) fn accepted(&self, dataset: &DatasetDescriptor) -> Result<Option<Withdrawal>, PrefixError> {
        match self.unless_withdrawn {
            true => Ok(None),
            false => self.withdrawal(dataset),
        }
    }

    /// Expects that nobody has withdrawn a dataset since its building began.
    pub(super) fn expect_wanted(
        &self,
        dataset: &DatasetDescriptor,
        accepted: Option<Withdrawal>,
    ) -> Result<(), BuildError> {
        let now = self.withdrawal(dataset)?;
        let is_new = now.is_some() && now != accepted && self.ledger().index()?.entry(dataset.id).is_none();
        let why = || BuildError::Step("it was dropped or deleted meanwhile".to_owned());
        (!is_new).then_some(()).ok_or_else(why)
    }

    /// Makes a dataset complete that somebody asks for, if it can be done, and lists it. One process at a time does so with a
    /// dataset.
    ///
    /// # Errors
    /// [`BuildError`]; what could be done is done, and may be repeated.
    pub fn build(&self, id: u64) -> Result<Built, BuildError> {
        let folder = self.prefix.dataset_dir(id);
        if self.files().status(&folder).is_err() {
            let why = format!(
                "there is no dataset {id}: {} is not there; save it with `scr copy' on the nodes that have it, or build all datasets \
                 with `scr index --build'",
                folder.display()
            );
            return Err(BuildError::Unknown { id: Some(id), why });
        }
        let lock = folder.join("build.lock");
        let updated = self.files().exclusively_for_long(&lock, |_| {
            for folder in [&folder, &self.prefix.scr_dir()] {
                tidy(self.files(), folder, &lock);
            }
            self.build_alone(id)
        })?;
        let caution = updated.caution();
        let mut built = updated.value?;
        built.notes.extend(caution.map(str::to_owned));
        Ok(built)
    }

    /// The same unless it is [withdrawn](Self::withdrawn), or somebody withdraws it meanwhile: then it gives why.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub fn build_unless_withdrawn(&self, id: u64) -> Result<Result<Built, String>, BuildError> {
        match self.withdrawn(id)? {
            Some(why) => Ok(Err(why)),
            None => Builder { unless_withdrawn: true, ..*self }.build(id).map(Ok),
        }
    }

    fn build_alone(&self, id: u64) -> Result<Built, BuildError> {
        // A build that died here may have given some files their names.
        self.ledger().commit(self.env.local_time()).end_earlier(&token(id))?;
        let entry = self.ledger().index()?.entry(id);
        let scan = Scan::read(self.files(), self.prefix, id)?;
        if let Some(entry) = &entry {
            let built = |outcome| Built { id, name: entry.name.clone(), outcome, notes: Vec::new() };
            if entry.is_valid() && described(self.files(), self.prefix, id).is_some() {
                match (Rank2File::loss(self.files(), self.prefix, id)?, &scan) {
                    (None, _) if self.trusts_times => return self.relist(id, Some(entry)),
                    (None, _) => return Ok(built(Outcome::Already)),
                    // Files that were saved since from cache take the place of lost ones.
                    (Some(_), Some(scan)) if self.has_files(scan) => {}
                    (Some(why), _) => {
                        let why = format!("{why}; {TO_SAVE_AGAIN}");
                        return Ok(built(Outcome::Incomplete { why }));
                    }
                }
            }
            if let Some(time) = entry.failed.as_ref().filter(|_| !self.replaces_failed) {
                let has_copies = scan.as_ref().is_some_and(|scan| self.has_files(scan));
                if let Some(why) = self.why_failed(entry, time, has_copies)? {
                    return Ok(built(Outcome::Incomplete { why }));
                }
            }
        }
        match scan {
            // Its files have their names, and were perhaps taken out of the index since.
            Some(scan) if self.has_files(&scan) || described(self.files(), self.prefix, id).is_none() => {
                self.complete(&scan)
            }
            _ => self.relist(id, entry.as_ref()),
        }
    }

    /// Why a dataset stays marked as failed. `None` if its files are damaged, and what was saved since from cache takes their
    /// place.
    fn why_failed(
        &self,
        entry: &IndexEntry,
        time: &str,
        has_copies: bool,
    ) -> Result<Option<String>, BuildError> {
        let over = entry.dataset.as_ref().and_then(DatasetDescriptor::if_gone_back_over);
        let withdrawn = self.ledger().numbers()?.withdrawn();
        let (why, cure) = match withdrawn.why(entry.seq(), &entry.name, over) {
            Some(Withdrawal::Refused) => (
                "as the application could not restart from it, or somebody went back over it".to_owned(),
                TO_TRY_AGAIN,
            ),
            Some(Withdrawal::Removed) => ("and was dropped".to_owned(), TO_TRY_AGAIN),
            None if has_copies => return Ok(None),
            None => match self.damage(entry)? {
                Some(damage) => (format!("as it is damaged: {damage}"), TO_SAVE_AGAIN),
                None => ("and its files are as they were written".to_owned(), TO_TRY_AGAIN),
            },
        };
        Ok(Some(format!("it was marked as failed on {time}, {why}; {cure}")))
    }

    /// Whether a file of a scavenged dataset is where the scavenge puts it. Once a dataset is complete, its filemaps stay alone.
    fn has_files(&self, scan: &Scan) -> bool {
        scan.records().any(|record| {
            let part = ScavengedPart { prefix: self.prefix, id: record.dataset.id, rank: record.rank };
            record.files.iter().any(|file| self.files().status(&part.file(record, file)).is_ok())
        })
    }

    /// Makes a scavenged dataset whole and lists it.
    fn complete(&self, scan: &Scan) -> Result<Built, BuildError> {
        let (id, name) = (scan.any.dataset.id, scan.any.dataset.name.clone());
        let label = format!("dataset {id} `{}'", String::from_utf8_lossy(&name));
        let names = scan.records().flat_map(|record| record.files.iter().map(|file| &file.name));
        self.prefix.expect_all_unlinked(self.files(), self.env.uid, names)?;
        let accepted = self.accepted(&scan.any.dataset.clone())?;
        let outcome = match (ScavengedRepair { builder: self, scan, label: &label }).run() {
            Ok(rebuilt) => self.list(scan, &rebuilt, accepted)?,
            Err(error) => {
                self.list_incomplete(&scan.any.dataset.clone())?;
                let why = error.why;
                if !error.is_loss {
                    return Err(BuildError::Step(why));
                }
                Outcome::Incomplete { why }
            }
        };
        Ok(Built { id, name, outcome, notes: scan.passed_over.clone() })
    }

    /// Every byte is right: the files get their names, and the dataset counts.
    fn list(
        &self,
        scan: &Scan,
        rebuilt: &[Rank],
        accepted: Option<Withdrawal>,
    ) -> Result<Outcome, BuildError> {
        let lists: Vec<Vec<PrefixFile>> = scan.records().map(RankRecord::listed).collect();
        let mut dataset = scan.any.dataset.clone();
        let files = lists.iter().map(Vec::len).sum::<usize>() as u64;
        let bytes = scan.records().fold(0_u64, |sum, record| sum.saturating_add(record.data_bytes()));
        (dataset.files, dataset.bytes, dataset.complete) = (Some(files), Some(bytes), Some(true));
        let catalog = self.ledger();
        self.sync(scan)?;
        let record = PendingFlush {
            token: token(dataset.id),
            ranks: scan.any.ranks(),
            // All bytes are there already.
            marks: 0,
            make_current: dataset.checkpoint.into(),
            revoked: false,
            sharing: CommonFiles::of(&lists),
            dataset,
        };
        catalog.write_lists(&record.dataset, &lists)?;
        record.write(catalog)?;
        // Whoever withdraws it from here on finds the record, and takes it back.
        if let Err(error) = self.expect_wanted(&record.dataset, accepted) {
            catalog.abandon(|other| other.seq() == record.dataset.seq())?;
            return match error {
                BuildError::Step(why) => Ok(Outcome::Incomplete { why }),
                error => Err(error),
            };
        }
        let commit = catalog.commit(self.env.local_time());
        let dataset = record.dataset.clone();
        let finished = commit.finish(record);
        if let Some(why) = finished.map_err(|error| BuildError::Step(scr_base::describe(&error)))? {
            return Ok(Outcome::Incomplete { why });
        }
        // The dataset is complete, so the files of interrupted copies are useless.
        hidden(self.files(), self.prefix, scan).iter().for_each(|path| _ = self.files().remove_file(path));
        // The next run would end it, and say that a dataset was rolled back that is complete.
        let _ = commit.end_flushes_of(&dataset);
        Ok(Outcome::Completed { rebuilt: rebuilt.iter().map(|rank| rank.0).collect(), files, bytes })
    }

    /// Rebuilt files have not been synced, and the processes that copied the others may have died. A file that cannot be synced
    /// is copied anew.
    fn sync(&self, scan: &Scan) -> Result<(), BuildError> {
        let (files, prefix) = (self.files(), self.prefix);
        let mut paths = BTreeSet::new();
        for record in scan.records() {
            let part = ScavengedPart { prefix: self.prefix, id: record.dataset.id, rank: record.rank };
            for file in &record.files {
                let path = part.file(record, file);
                let open = files.open(&path, How::Read).at("open", &path);
                let synced = open.and_then(|open| Unsynced { files, prefix }.sync(&path, &*open));
                if record.protection.bypass {
                    synced?;
                } else if synced.is_err() {
                    let temporary = unused_name(&path, &copying(record.dataset.id));
                    copy_anew(files, &path, &path, &temporary, file.bytes, file.crc)
                        .map_err(|error| BuildError::Step(scr_base::describe(&error)))?;
                }
                paths.insert(path);
            }
        }
        Ok(sync_names(files, prefix, &paths)?)
    }
}
