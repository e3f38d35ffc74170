//! The facts about the world beside the ledger that the decision may ask for.

use super::pending::{self, FoundRecord};
use super::LedgerDir;
use crate::{
    DatasetDescriptor, FileName, Index, IndexEntry, Prefix, PrefixError, PrefixFile, Rank2File, Running,
    IN_PLACE,
};
use scr_base::fs::Files;
use std::collections::{HashMap, HashSet};

/// Facts, each asked for only where it matters. The answers may come from files, so each can fail.
pub trait Facts {
    /// Why it could not be found out.
    type Error;

    /// Whether a run may be under way in the prefix directory.
    fn may_run(&mut self) -> Result<bool, Self::Error>;

    /// The record of the flush of this token.
    fn recorded(&mut self, token: &str) -> Result<Recorded, Self::Error>;

    /// The name of a dataset other than this one that has its number, and whose flush is on record.
    fn other_of_number(&mut self, dataset: &DatasetDescriptor) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Whether a dataset has a file in common with another one.
    fn shares(&mut self, id: u64, other: &IndexEntry) -> Result<bool, Self::Error>;
}

/// The kind of record that there is of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Recorded {
    /// Nothing, or nothing that anybody could use.
    #[default]
    Nothing,
    /// Somebody may still close it.
    UnderWay,
    /// It is given up, and no process closes it any more. Its staging files may be left, and a rank of its job may still give one
    /// of them its name.
    Revoked,
}

/// The facts under a prefix directory.
pub(super) struct FactsOfFiles<'a> {
    pub(super) ledger: LedgerDir<'a>,
    pub(super) sharing: &'a mut CommonFiles,
}

impl Facts for FactsOfFiles<'_> {
    type Error = PrefixError;

    fn may_run(&mut self) -> Result<bool, PrefixError> {
        Ok(Running::may_be_any(self.ledger.files, self.ledger.prefix))
    }

    fn recorded(&mut self, token: &str) -> Result<Recorded, PrefixError> {
        match pending::find_left(self.ledger, token) {
            Err(error) if !error.is_damage() => Err(error.into()),
            // No process can close it, or clear it away, with such a record.
            Err(_) => Ok(Recorded::Nothing),
            Ok(found) => Ok(found.map_or(Recorded::Nothing, |record| record.recorded())),
        }
    }

    fn other_of_number(&mut self, dataset: &DatasetDescriptor) -> Result<Option<Vec<u8>>, PrefixError> {
        for found in pending::list(self.ledger)? {
            // One that cannot be read does not keep all others from being flushed.
            let FoundRecord::Usable(record) = found else { continue };
            let is_another = record.dataset.id == dataset.id && !record.dataset.is_same(dataset);
            if !record.revoked && is_another {
                return Ok(Some(record.dataset.name));
            }
        }
        Ok(None)
    }

    fn shares(&mut self, id: u64, other: &IndexEntry) -> Result<bool, PrefixError> {
        self.sharing.with(self.ledger.files, self.ledger.prefix, id, other)
    }
}

/// Which other datasets have a file in common with one, as far as that was found out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommonFiles {
    own: Option<HashSet<FileName>>,
    /// By number and time of the flush.
    known: HashMap<(u64, Option<String>), bool>,
    /// Whether it was asked for all that count.
    pub(super) is_complete: bool,
}

impl CommonFiles {
    /// For a dataset with these files.
    pub fn of(lists: &[Vec<PrefixFile>]) -> Self {
        let own = lists.iter().flatten().map(|file| file.name.clone()).collect();
        Self { own: Some(own), ..Self::default() }
    }

    /// For a dataset of which no file was there before: it has none in common with one that is complete.
    pub(super) fn of_new_files(index: &Index) -> Self {
        let complete = index.entries().into_iter().filter(IndexEntry::is_valid);
        let known = complete.map(|other| ((other.id, other.flushed), false)).collect();
        Self { known, is_complete: true, ..Self::default() }
    }

    /// Forgets the names of the files, of which there may be many: what was found out stays.
    pub(super) fn forget_names(&mut self) {
        self.own = None;
    }

    /// Whether dataset `id` shares a file with the other. One whose lists cannot be read cannot be restarted from either; but an
    /// application that writes in place has listed nothing yet, and what it writes is not known.
    fn with(
        &mut self,
        files: &dyn Files,
        prefix: &Prefix,
        id: u64,
        other: &IndexEntry,
    ) -> Result<bool, PrefixError> {
        let key = (other.id, other.flushed.clone());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let shares = match names_of(files, prefix, other.id)? {
            Some(theirs) => {
                if self.own.is_none() {
                    self.own = Some(names_of(files, prefix, id)?.unwrap_or_default());
                }
                !self.own.as_ref().is_some_and(|own| own.is_disjoint(&theirs))
            }
            None => return Ok(!other.complete && other.taken.as_deref() == Some(IN_PLACE)),
        };
        self.known.insert(key, shares);
        Ok(shares)
    }
}

/// The names of the files of a dataset; `None` where its lists are missing or damaged.
pub(super) fn names_of(
    files: &dyn Files,
    prefix: &Prefix,
    id: u64,
) -> Result<Option<HashSet<FileName>>, PrefixError> {
    match Rank2File::read(files, prefix, id) {
        Ok(lists) => Ok(Some(lists.by_rank().iter().flatten().map(|file| file.name.clone()).collect())),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}
