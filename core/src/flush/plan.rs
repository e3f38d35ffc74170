//! Before the first step of a flush: the ranks exchange names, folders and lists. No file is changed.

use super::file_copy::{self, FileCopy};
use super::folder_owners;
use super::lists;
use super::pending::PendingFlush;
use super::step::{Step, StepError};
use super::{Flush, FlushError, SourceFile};
use crate::comm::collective::any;
use crate::fs::{At, Kind, Status};
use crate::prefix::{DatasetDescriptor, FileName, PrefixFile};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The result of the exchange.
pub(super) struct Plan {
    pub(super) record: PendingFlush,
    pub(super) copies: Vec<FileCopy>,
    /// Files of this rank that another one copies.
    pub(super) listed: Vec<FileCopy>,
    /// The folders that this rank makes for all, and syncs.
    pub(super) folders: Vec<PathBuf>,
    /// Those, and the folders of its own files where each rank makes them.
    pub(super) folders_to_make: Vec<PathBuf>,
    /// The files of all ranks, on rank 0.
    pub(super) lists: Option<Vec<Vec<PrefixFile>>>,
    /// Whether any rank's file replaces one that was there before.
    pub(super) may_replace: bool,
    /// The names that this rank is asked about.
    pub(super) asked: HashSet<Vec<u8>>,
}

impl Flush<'_> {
    /// Makes the plan, before step 1. The flush can be closed once there are this many marks.
    pub(super) fn plan(
        &self,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[SourceFile],
        marks: u32,
    ) -> Result<Plan, FlushError> {
        let mut copies = file_copy::plan(self.job.prefix.dir(), mine, token);
        let (folders, asked) = self.assign_folders(dataset, &mut copies)?;
        let may_replace = self.may_replace(dataset, &copies)?;
        let record = self.pending(token, dataset, marks);
        let lists = lists::gather(&*self.job.comm, copies.iter())?;
        // Of the ranks that have written one file, the first copies it. In place each has bytes of its own to sync.
        let (copies, listed): (Vec<_>, Vec<_>) =
            copies.into_iter().partition(|copy| copy.leads || self.options.in_place);
        if any(&*self.job.comm, [!listed.is_empty()])? == [true] {
            let alike = lists.as_ref().map_or(Ok(()), |lists| lists::expect_alike(lists));
            self.agreed(dataset, Step::Folders, alike)?;
        }
        let own = copies.iter().filter(|_| self.options.own_folders);
        let own = own.filter_map(|copy| copy.target.parent()).map(Path::to_owned);
        let folders_to_make = own.chain(folders.iter().cloned()).collect();
        Ok(Plan { record, copies, listed, folders, folders_to_make, lists, may_replace, asked })
    }

    /// The record of a flush.
    pub(super) fn pending(&self, token: &str, dataset: &DatasetDescriptor, marks: u32) -> PendingFlush {
        PendingFlush {
            token: token.to_owned(),
            dataset: dataset.clone(),
            ranks: self.job.comm.size(),
            marks,
            make_current: self.options.make_current,
            replaces: Vec::new(),
        }
    }

    /// Whether on any rank a file is replaced that was there before. Only then file lists of older datasets need to be
    /// read. What is no file cannot be replaced, and the flush would never come to its end.
    fn may_replace(&self, dataset: &DatasetDescriptor, copies: &[FileCopy]) -> Result<bool, FlushError> {
        let mine = if self.options.in_place {
            Ok(self.options.may_replace)
        } else {
            let there = copies.iter().map(|copy| self.status_of_target(&copy.target));
            there.collect::<Result<Vec<_>, _>>().map(|there| there.iter().any(Option::is_some))
        };
        let mine = self.agreed(dataset, Step::Renaming, mine)?;
        let [any] = any(&*self.job.comm, [mine])?;
        Ok(any)
    }

    fn status_of_target(&self, target: &Path) -> Result<Option<Status>, StepError> {
        match self.files().status(target) {
            Ok(status) if status.kind == Kind::Dir => Err(StepError::InTheWay { path: target.to_owned() }),
            Ok(status) => Ok(Some(status)),
            // A problem with the folder is found when it is made.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Ok(Err(error).at("look at", target)?),
        }
    }

    /// The folders that this rank makes and syncs: each has one rank that does. Finds out who is first to have a file.
    fn assign_folders(
        &self,
        dataset: &DatasetDescriptor,
        copies: &mut [FileCopy],
    ) -> Result<(Vec<PathBuf>, HashSet<Vec<u8>>), FlushError> {
        let me = self.job.rank();
        let names = copies.iter().map(|copy| &copy.file.name);
        let owners = folder_owners::assign_owners(&*self.job.comm, names)?;
        for copy in copies.iter_mut() {
            copy.leads = owners.leads(me, &copy.file.name);
        }
        let mut own = owners.folders.iter().flatten();
        let real = own.try_for_each(|folder| self.job.prefix.refuse_link(self.files(), folder));
        self.agreed(dataset, Step::Folders, real.map_err(StepError::from))?;
        let prefix = self.job.prefix.dir();
        let path = |folder: &Option<FileName>| match folder {
            None => prefix.to_owned(),
            Some(name) => name.below(prefix),
        };
        Ok((owners.folders.iter().map(path).collect(), owners.asked))
    }
}
