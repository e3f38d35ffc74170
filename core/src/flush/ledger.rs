//! Index, summary and file lists, as a flush changes them. Only rank 0, or who ends a flush for it, does.

use crate::fs::Files;
use crate::prefix::{DatasetDescriptor, Index, Prefix, PrefixError, PrefixFile, Rank2File, Summary};

/// What is recorded of the datasets under one prefix.
#[derive(Clone, Copy)]
pub(crate) struct Ledger<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) prefix: &'a Prefix,
}

impl Ledger<'_> {
    /// Lists the files and, as incomplete, the dataset, before a byte of it moves. Where the dataset's name stands for
    /// one that is complete, that one stays listed until [`take_over_name`](Self::take_over_name): not a
    /// file of it has been touched. With files that are in place already it is too late for that.
    pub(crate) fn open(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
        in_place: bool,
    ) -> Result<(), PrefixError> {
        let index = Index::read(self.files, self.prefix)?;
        let is_valid = |id| index.entry(id).is_some_and(|entry| entry.is_valid());
        let taken = index.id_of(&dataset.name).is_some_and(is_valid);
        if in_place || !taken {
            self.prefix.make_scr_dir(self.files)?;
            self.take_over_name(dataset)?;
        }
        self.write_lists(dataset, lists)
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

    /// From here on the name stands for this dataset, which is not complete.
    pub(crate) fn take_over_name(&self, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        Index::update(self.files, self.prefix, |index| index.record(dataset, false))
    }

    /// Every byte is safe and has its name: the dataset counts from here on.
    pub(crate) fn close(
        &self,
        dataset: &DatasetDescriptor,
        make_current: bool,
        now: &str,
    ) -> Result<(), PrefixError> {
        Summary { dataset: dataset.clone(), complete: true }.write(self.files, self.prefix)?;
        Index::update(self.files, self.prefix, |index| {
            index.record(dataset, true);
            index.mark_flushed(dataset.id, now);
            if make_current {
                index.set_current(&dataset.name);
            }
        })
    }
}
