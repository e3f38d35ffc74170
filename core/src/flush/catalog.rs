//! Index, summary and file lists, as a flush changes them. Only rank 0 does, or the process that closes a flush for it; but the
//! first rank of a leaf of the file lists writes that leaf.

use super::pending::PendingFlush;
use crate::fs::Files;
use crate::planted::{planted, Bug};
use crate::prefix::rank2file::LeafLists;
use crate::prefix::{
    DatasetDescriptor, FileName, Index, Prefix, PrefixError, PrefixFile, Rank2File, Summary,
};
use std::collections::HashSet;

/// What rank 0 records of the files of a flush. The other leaves are there by then.
#[derive(Debug, Clone)]
pub(crate) struct RecordedLists {
    /// The first leaf.
    pub(crate) first: LeafLists,
    pub(crate) ranks_per_leaf: u32,
    /// The files of all ranks, if any of them may replace one of an older dataset.
    pub(crate) replacing: Option<Vec<Vec<PrefixFile>>>,
}

/// Whether a dataset becomes the current one once it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MakeCurrent {
    Never,
    /// Unless a newer checkpoint is complete.
    IfNewest,
    /// The user has gone back to it.
    Always,
}

impl From<bool> for MakeCurrent {
    fn from(is_wanted: bool) -> Self {
        if is_wanted {
            Self::IfNewest
        } else {
            Self::Never
        }
    }
}

/// The records of the datasets under one prefix.
#[derive(Clone, Copy)]
pub(crate) struct Catalog<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) prefix: &'a Prefix,
}

impl Catalog<'_> {
    /// Writes the record of a flush, before a byte is copied, and the datasets that it replaces. A dataset that is already in
    /// place gets no record.
    pub(crate) fn record_pending(
        &self,
        record: &mut PendingFlush,
        lists: &RecordedLists,
        in_place: bool,
    ) -> Result<(), PrefixError> {
        if let Some(all) = &lists.replacing {
            record.replaces = self.sharing(&record.dataset, all)?;
        }
        // What is in place has replaced its files already.
        let newer = if in_place { None } else { self.newer_owner(&record.dataset, &record.replaces)? };
        if let Some(newer) = newer {
            return Err(PrefixError::Superseded { newer });
        }
        self.open(&record.dataset, in_place, &record.replaces)?;
        let (id, ranks) = (record.dataset.id, lists.first.ranks);
        self.write_leaf(id, &lists.first)?;
        Rank2File::write_maps(self.files, self.prefix, id, ranks, lists.ranks_per_leaf)?;
        if in_place {
            return Ok(());
        }
        Ok(record.write(self.files, self.prefix)?)
    }

    /// A newer dataset that is complete and has the name of this one, or is among those that share a file with it. One that comes
    /// late does not replace them: a restart would take its files for those of the newer one.
    pub(crate) fn newer_owner(
        &self,
        dataset: &DatasetDescriptor,
        sharing: &[u64],
    ) -> Result<Option<u64>, PrefixError> {
        let index = Index::read(self.files, self.prefix)?;
        let own = index.seq_of(dataset);
        let is_newer = |id: &u64| index.entry(*id).is_some_and(|other| other.is_valid() && other.seq() > own);
        let named_so = index.id_of(&dataset.name);
        let newer = named_so.into_iter().chain(sharing.iter().copied()).find(is_newer);
        Ok(newer.filter(|_| !planted(Bug::LateFlushReplacesNewer)))
    }

    /// Lists the dataset as incomplete, before a byte of it moves. Where the dataset's name refers to
    /// one that is complete, that one stays listed until [`invalidate_previous`](Self::invalidate_previous): not a
    /// file of it has been touched. With files that are in place already it is too late for that, and for those that
    /// it `replaces`.
    fn open(&self, dataset: &DatasetDescriptor, in_place: bool, replaces: &[u64]) -> Result<(), PrefixError> {
        if in_place || planted(Bug::NameTakenBeforeCopied) {
            self.prefix.make_scr_dir(self.files)?;
            self.invalidate_previous(dataset, replaces)
        } else {
            self.list_incomplete(dataset)
        }
    }

    /// Lists the files of the ranks of a leaf.
    pub(crate) fn write_leaf(&self, id: u64, leaf: &LeafLists) -> Result<(), PrefixError> {
        self.prefix.make_dataset_dir(self.files, id)?;
        leaf.write(self.files, self.prefix, id)
    }

    /// Lists a dataset as incomplete, unless its name refers to one that is complete, or to a newer one.
    pub(crate) fn list_incomplete(&self, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        self.prefix.make_scr_dir(self.files)?;
        Index::update(self.files, self.prefix, |index| {
            let owner = index.id_of(&dataset.name).and_then(|id| index.entry(id));
            if owner.is_none_or(|owner| !owner.is_valid() && owner.seq() <= index.seq_of(dataset)) {
                index.record(dataset, false);
            }
        })
    }

    /// Names of files that belong to complete datasets other than `id`.
    pub(crate) fn names_of_others(&self, id: u64) -> Result<HashSet<FileName>, PrefixError> {
        let mut names = HashSet::new();
        let index = Index::read(self.files, self.prefix)?;
        for other in index.entries().iter().filter(|entry| entry.is_valid() && entry.id != id) {
            match Rank2File::read(self.files, self.prefix, other.id) {
                Ok(lists) => names.extend(lists.by_rank().iter().flatten().map(|file| file.name.clone())),
                // No run can restart from it, and its files are still unknown.
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }

    /// Lists the files of every rank.
    pub(crate) fn write_lists(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
    ) -> Result<(), PrefixError> {
        self.prefix.make_dataset_dir(self.files, dataset.id)?;
        Rank2File::new(lists.to_vec()).write(self.files, self.prefix, dataset.id)
    }

    /// From here on the name refers to this dataset, which is not complete; nor are those any more that have files
    /// which it replaces.
    pub(crate) fn invalidate_previous(
        &self,
        dataset: &DatasetDescriptor,
        replaces: &[u64],
    ) -> Result<(), PrefixError> {
        Index::update(self.files, self.prefix, |index| {
            index.record(dataset, false);
            for &id in replaces {
                index.set_complete(id, false);
            }
        })
    }

    /// The application begins to write a dataset in place: from here on the name stands for it. Gives whether the index has others
    /// that are complete, or never were: those may lie in place without being listed yet.
    pub(crate) fn begin_in_place(&self, dataset: &DatasetDescriptor) -> Result<bool, PrefixError> {
        Index::update(self.files, self.prefix, |index| {
            index.record(dataset, false);
            let mut others = index.entries().into_iter().filter(|entry| entry.id != dataset.id);
            others.any(|entry| entry.is_valid() || entry.flushed.is_none())
        })
    }

    /// The complete datasets of other names that have a file in common with `lists`: once such a file is replaced, they
    /// are whole no more. One whose lists cannot be read cannot be restarted from either.
    pub(crate) fn sharing(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
    ) -> Result<Vec<u64>, PrefixError> {
        let names: HashSet<&FileName> = lists.iter().flatten().map(|file| &file.name).collect();
        let index = Index::read(self.files, self.prefix)?;
        let others =
            index.entries().into_iter().filter(|entry| entry.is_valid() && entry.name != dataset.name);
        let mut sharing = Vec::new();
        for other in others.filter(|entry| entry.id != dataset.id) {
            match Rank2File::read(self.files, self.prefix, other.id) {
                Ok(lists) => {
                    if lists.by_rank().iter().flatten().any(|file| names.contains(&file.name)) {
                        sharing.push(other.id);
                    }
                }
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sharing)
    }

    /// Every byte is safe and has its name: the dataset counts from here on.
    pub(crate) fn commit(&self, record: &PendingFlush, now: &str) -> Result<(), PrefixError> {
        self.commit_if(&record.dataset, record.make_current, now, |_| Ok(()))
    }

    /// As [`commit`](Self::commit), unless the index, which nobody else changes meanwhile, speaks against it.
    pub(crate) fn commit_if<E: From<PrefixError>>(
        &self,
        dataset: &DatasetDescriptor,
        make_current: MakeCurrent,
        now: &str,
        check: impl FnOnce(&Index) -> Result<(), E>,
    ) -> Result<(), E> {
        Summary { dataset: dataset.clone(), complete: true }.write(self.files, self.prefix)?;
        Index::update(self.files, self.prefix, |index| {
            check(index)?;
            index.record(dataset, true);
            index.mark_flushed(dataset.id, now);
            let becomes_current = match make_current {
                MakeCurrent::Never => false,
                MakeCurrent::IfNewest => index.newer_candidates(index.seq_of(dataset)).is_empty(),
                MakeCurrent::Always => true,
            };
            if becomes_current {
                index.set_current(&dataset.name);
            }
            Ok(())
        })?
    }
}
