//! Before the first step of a flush: what all ranks have to know of each other. Nothing is changed.

use super::file_copy::{self, FileCopy};
use super::folder_owners;
use super::lists;
use super::pending::PendingFlush;
use super::steps::Step;
use super::{Flush, FlushError, SourceFile};
use crate::comm::collective::any;
use crate::comm::CommError;
use crate::prefix::{DatasetDescriptor, FileName, PrefixFile};
use std::path::{Path, PathBuf};

/// What is known then.
pub(super) struct Plan {
    pub(super) record: PendingFlush,
    pub(super) copies: Vec<FileCopy>,
    /// The folders that this rank looks after.
    pub(super) folders: Vec<PathBuf>,
    /// The files of all ranks, on rank 0.
    pub(super) lists: Option<Vec<Vec<PrefixFile>>>,
    /// Whether any rank's file replaces one that was there before.
    pub(super) may_replace: bool,
}

impl Flush<'_> {
    /// What is to be known before step 1. Nothing is changed.
    pub(super) fn plan(
        &self,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[SourceFile],
    ) -> Result<Plan, FlushError> {
        let mut copies = file_copy::plan(self.prefix.dir(), mine, token);
        let folders = self.share_folders(dataset, &mut copies)?;
        let may_replace = self.may_replace(&copies)?;
        let record = PendingFlush {
            token: token.to_owned(),
            dataset: dataset.clone(),
            ranks: self.comm.size(),
            marks: self.detached.as_ref().map_or(1, |detached| detached.nodes),
            make_current: self.options.make_current,
            replaces: Vec::new(),
        };
        let lists = lists::gather(self.comm, &copies)?;
        Ok(Plan { record, copies, folders, lists, may_replace })
    }

    /// Whether on any rank a file is replaced that was there before. Only then file lists of older datasets need to be
    /// read.
    fn may_replace(&self, copies: &[FileCopy]) -> Result<bool, CommError> {
        let mine = if self.options.in_place {
            self.options.may_replace
        } else {
            copies.iter().any(|copy| self.files.status(&copy.target).is_ok())
        };
        let [any] = any(self.comm, [mine])?;
        Ok(any)
    }

    /// The folders that this rank looks after: each has one rank that does. Two ranks with a file of one name are found out.
    fn share_folders(
        &self,
        dataset: &DatasetDescriptor,
        copies: &mut [FileCopy],
    ) -> Result<Vec<PathBuf>, FlushError> {
        let owners = folder_owners::assign_owners(self.comm, copies.iter().map(|copy| &copy.file.name))?;
        for copy in copies.iter_mut() {
            copy.leads = owners.leads(self.comm.rank(), &copy.file.name);
        }
        let clash = match owners.shared.first_key_value() {
            // In bypass mode all ranks may well have written one file.
            Some((name, other)) if !self.options.in_place => {
                Err(format!("rank {other}, too, wrote a file named {name}; give each rank its own"))
            }
            _ => Ok(()),
        };
        let path = |folder: &Option<FileName>| match folder {
            None => self.prefix.dir().to_owned(),
            Some(folder) => self.prefix.file(folder),
        };
        let shared = clash.map(|()| owners.folders.iter().map(path).collect());
        self.agreed(dataset, Step::Folders, shared)
    }

    /// The folders of this rank's files, where each rank is to make its own.
    pub(super) fn own_folders(&self, copies: &[FileCopy]) -> Vec<PathBuf> {
        let wanted = copies.iter().filter(|_| self.options.own_folders);
        wanted.filter_map(|copy| copy.target.parent()).map(Path::to_owned).collect()
    }
}
