//! The facts about the world beside the ledger that a request is decided by. They are values, found out before the decision and
//! under the lock of the ledger; only which files datasets have in common is known before.

use super::pending::{self, FoundRecord};
use super::{By, LedgerDir, Life, Request, Whose};
use crate::error::unless_damaged;
use crate::{
    DatasetDescriptor, FileName, Index, IndexEntry, Prefix, PrefixError, PrefixFile, Rank2File, Running,
};
use scr_base::fs::Files;
use std::collections::{HashMap, HashSet};

/// Facts that a request is decided by, of those that matter to it.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Whether a run may be under way in the prefix directory.
    pub may_run: bool,
    /// The records of flushes.
    pub recorded: HashMap<By, Recorded>,
    /// The name of a dataset other than the one in question that has its number, and whose flush is on record.
    pub of_number: Option<Vec<u8>>,
    /// The datasets that have a file in common with the one in question.
    pub sharing: HashSet<u64>,
}

impl Facts {
    /// Those that matter to a request.
    ///
    /// # Errors
    /// One could not be found out.
    pub(super) fn of<S: Source>(
        source: &mut S,
        index: &Index,
        request: &Request<'_>,
    ) -> Result<Self, S::Error> {
        let (mut facts, others) = (Self::default(), request.concerned(index));
        let own = match request {
            Request::TakeNames { by, .. } | Request::Complete { by, .. } | Request::NameAgain { by, .. } => {
                Some(*by)
            }
            Request::Release(Whose::Ended(by)) => Some(*by),
            _ => None,
        };
        let unfinished = others.iter().filter(|other| !other.is_valid() && !other.superseded);
        let takers = unfinished.filter_map(|other| other.taken.as_ref()).chain(own);
        for by in takers.filter(|by| !matches!(by, By::Application | By::Deletion)) {
            facts.recorded.insert(by.clone(), source.recorded(by)?);
        }
        let asks = |other: &IndexEntry| !other.held.is_empty() || other.taken == Some(By::Application);
        facts.may_run = others.iter().any(asks) && source.may_run()?;
        if let Request::Begin(dataset) | Request::List(dataset) | Request::BeginInPlace(dataset) = *request {
            facts.of_number = source.other_of_number(dataset)?;
        }
        let Some(dataset) = request.wants_files() else { return Ok(facts) };
        for other in &others {
            if facts.files_matter(dataset, other) && source.shares(dataset.id, other)? {
                facts.sharing.insert(other.id);
            }
        }
        Ok(facts)
    }

    /// The record of a flush.
    pub(super) fn recorded(&self, by: &By) -> Recorded {
        self.recorded.get(by).copied().unwrap_or_default()
    }

    /// What becomes of a dataset.
    pub(super) fn life<'e>(&self, entry: &'e IndexEntry) -> Life<'e> {
        let is_under_way = |by: &By| match by {
            By::Application => self.may_run,
            // A process that waits for it learns whether its own lives.
            By::Deletion => true,
            flush => self.recorded(flush) != Recorded::Nothing,
        };
        match &entry.taken {
            _ if entry.is_valid() => Life::Whole,
            Some(by) if !entry.superseded && is_under_way(by) => Life::UnderWay(by),
            _ => Life::Over,
        }
    }

    /// Whether a run other than `run` reads the files of a dataset where they lie.
    pub(super) fn is_read(&self, entry: &IndexEntry, run: u64) -> bool {
        self.may_run && entry.held.iter().any(|&by| by != run)
    }

    /// Whether it matters that a dataset has a file in common with another one. A run keeps its own datasets apart by itself, with
    /// all names that it knows.
    fn files_matter(&self, dataset: &DatasetDescriptor, other: &IndexEntry) -> bool {
        let is_another = other.id != dataset.id && other.name != dataset.name;
        is_another
            && match self.life(other) {
                Life::UnderWay(By::Application) => other.run != dataset.run,
                life => life != Life::Over,
            }
    }
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

/// Where facts are found out. The answers may come from files, so each can fail.
pub(super) trait Source {
    type Error;
    fn may_run(&mut self) -> Result<bool, Self::Error>;
    fn recorded(&mut self, by: &By) -> Result<Recorded, Self::Error>;
    fn other_of_number(&mut self, dataset: &DatasetDescriptor) -> Result<Option<Vec<u8>>, Self::Error>;
    fn shares(&mut self, id: u64, other: &IndexEntry) -> Result<bool, Self::Error>;
}

/// A prefix directory.
pub(super) struct SourceOfFiles<'a> {
    pub(super) ledger: LedgerDir<'a>,
    pub(super) sharing: &'a mut CommonFiles,
}

impl Source for SourceOfFiles<'_> {
    type Error = PrefixError;

    fn may_run(&mut self) -> Result<bool, PrefixError> {
        Ok(Running::may_be_any(self.ledger.files, self.ledger.prefix))
    }

    fn recorded(&mut self, by: &By) -> Result<Recorded, PrefixError> {
        let found = pending::find_left(self.ledger, &by.to_string()).map_err(PrefixError::from);
        // No process can close a flush, or clear it away, with a damaged record.
        Ok(unless_damaged(found)?.flatten().map_or(Recorded::Nothing, |record| record.recorded()))
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
    pub(super) fn with(
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
        let theirs = names_of(files, prefix, other.id).map_err(|error| PrefixError::OfOther {
            id: other.id,
            name: String::from_utf8_lossy(&other.name).into_owned(),
            why: scr_base::describe(&error),
        })?;
        let shares = match theirs {
            Some(theirs) => {
                if self.own.is_none() {
                    self.own = Some(names_of(files, prefix, id)?.unwrap_or_default());
                }
                !self.own.as_ref().is_some_and(|own| own.is_disjoint(&theirs))
            }
            None => return Ok(!other.complete && other.taken == Some(By::Application)),
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
    let lists = unless_damaged(Rank2File::read(files, prefix, id))?;
    Ok(lists.map(|lists| lists.by_rank().iter().flatten().map(|file| file.name.clone()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{scratch, ChangeIndex as _};
    use scr_base::fs::RealFiles;

    /// No flush got through any more, and the message named the new dataset as the one to drop.
    #[test]
    fn lists_of_another_dataset_that_cannot_be_read_are_an_error_that_names_it() {
        let (_dir, prefix) = scratch();
        prefix.make_dataset_dir(&RealFiles, 2).unwrap();
        std::os::unix::fs::symlink("rank2file", prefix.rank2file(2)).unwrap();
        let mut index = Index::default();
        let other = DatasetDescriptor { id: 2, name: b"slot.0".to_vec(), ..DatasetDescriptor::default() };
        index.record(&other, true);
        let other = index.entry(2).unwrap();
        let shares = CommonFiles::of(&[]).with(&RealFiles, &prefix, 3, &other);
        let error = shares.unwrap_err();
        let said = scr_base::codes::coded("ERROR", &error.to_string());
        let expected = "`scr index --drop slot.0' gives dataset 2 up [SCR-417]";
        assert!(!error.is_damage() && said.ends_with(expected), "{said}");
    }
}
