//! Before the first step of a flush: the ranks exchange names, folders and lists. The only files that are written are leaves of
//! the lists.

use super::file_copy::{self, FileCopy};
use super::folder_owners::{self, FolderOwners};
use super::lists;
use super::running::{Running, RunningFlush};
use super::step::{Step, StepError};
use super::{Flush, FlushError, ToFlush};
use scr_base::fs::{At, Kind, Status};
use scr_comm::Rank;
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::ledger::{CommonFiles, RecordedLists};
use scr_prefix::rank2file::LeafLists;
use scr_prefix::{DatasetDescriptor, FileName, PrefixFile};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The result of the exchange.
pub(super) struct Plan {
    /// This rank's share of the flush.
    pub(super) run: RunningFlush,
    /// The folders that this rank makes for all, and those of its own files where each rank makes them.
    pub(super) folders_to_make: Vec<PathBuf>,
    /// The lists of the files that rank 0 records.
    pub(super) lists: Option<RecordedLists>,
}

impl Flush<'_> {
    /// Makes the plan, before step 1. The flush can be closed once there are this many marks.
    pub(super) fn plan(&self, what: ToFlush<'_>, marks: u32) -> Result<Plan, FlushError> {
        let ToFlush { token, dataset, mine } = what;
        let mut copies = file_copy::plan(self.job.prefix.dir(), mine, token);
        let owners = self.assign_folders(dataset, &mut copies)?;
        let may_replace = self.may_replace(dataset, &copies, &owners)?;
        let record = self.pending(what, marks);
        let lists = self.record_lists(dataset, &lists::of(copies.iter()), may_replace)?;
        // If several ranks have written one file, the first copies it. In place each has bytes of its own to sync.
        let (copies, listed): (Vec<_>, Vec<_>) =
            copies.into_iter().partition(|copy| copy.leads || self.options.in_place);
        let own = copies.iter().filter(|_| self.options.own_folders);
        let own = own.filter_map(|copy| copy.target.parent()).map(Path::to_owned);
        let folders: Vec<_> = owners.folders.iter().map(|folder| self.folder(folder)).collect();
        let folders_to_make = own.chain(folders.iter().cloned()).collect();
        let (asked, ticket, running) = (owners.asked, None, Running::InCall);
        let run = RunningFlush { record, copies, listed, folders, asked, ticket, running };
        Ok(Plan { run, folders_to_make, lists })
    }

    /// Writes the file lists but for what rank 0 records.
    fn record_lists(
        &self,
        dataset: &DatasetDescriptor,
        mine: &[PrefixFile],
        may_replace: bool,
    ) -> Result<Option<RecordedLists>, FlushError> {
        let comm = &*self.job.comm;
        let replacing = if may_replace { lists::gather(comm, mine, lists::ALL)? } else { None };
        if comm.size() > self.options.ranks_per_leaf {
            // Another dataset may have the number, and the lists that go by it.
            let listed = match self.job.rank() {
                Rank(0) => self.job.ledger().list_incomplete(dataset),
                _ => Ok(()),
            };
            self.agreed(dataset, Step::Recording, listed)?;
        }
        let first = self.write_other_leaves(dataset, Step::Recording, mine)?;
        let ranks_per_leaf = self.options.ranks_per_leaf;
        let replacing = replacing.map(|all| all.by_rank);
        Ok(first.map(|first| RecordedLists { first, ranks_per_leaf, replacing }))
    }

    /// Writes all leaves but the first, each on its first rank, and gives rank 0 the first one.
    pub(super) fn write_other_leaves(
        &self,
        dataset: &DatasetDescriptor,
        step: Step,
        mine: &[PrefixFile],
    ) -> Result<Option<LeafLists>, FlushError> {
        let ranks_per_leaf = self.options.ranks_per_leaf;
        let leaf = lists::gather(&*self.job.comm, mine, ranks_per_leaf)?;
        let (first, other): (Vec<_>, Vec<_>) = leaf.into_iter().partition(|leaf| leaf.first == Rank(0));
        if self.job.comm.size() > ranks_per_leaf {
            let written = other.iter().try_for_each(|leaf| self.job.ledger().write_leaf(dataset.id, leaf));
            self.agreed(dataset, step, written)?;
        }
        Ok(first.into_iter().next())
    }

    /// The record of a flush.
    pub(super) fn pending(&self, what: ToFlush<'_>, marks: u32) -> PendingFlush {
        PendingFlush {
            token: what.token.to_owned(),
            dataset: what.dataset.clone(),
            ranks: self.job.comm.size(),
            marks,
            make_current: self.options.make_current,
            revoked: false,
            sharing: CommonFiles::default(),
        }
    }

    /// Whether on any rank a file is replaced that was there before. Only then file lists of older datasets need to be
    /// read. Anything but a file cannot be replaced, and the flush would never finish. If all folders with files are new,
    /// no rank looks for its files.
    fn may_replace(
        &self,
        dataset: &DatasetDescriptor,
        copies: &[FileCopy],
        owners: &FolderOwners,
    ) -> Result<bool, FlushError> {
        let status = |folder| self.files().status(&self.folder(folder));
        let is_new = |folder| status(folder).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let possible = match self.options.in_place {
            true => self.options.may_replace,
            false => !owners.with_files.iter().all(is_new),
        };
        let possible = self.job.any(possible)?;
        if self.options.in_place || !possible {
            return Ok(possible);
        }
        let there = copies.iter().map(|copy| self.status_of_target(&copy.target));
        let there = there.collect::<Result<Vec<_>, _>>().map(|there| there.iter().any(Option::is_some));
        Ok(self.job.any(self.agreed(dataset, Step::Renaming, there)?)?)
    }

    fn status_of_target(&self, target: &Path) -> Result<Option<Status>, StepError> {
        match self.files().status(target) {
            Ok(status) if status.kind == Kind::Dir => Err(StepError::Other(format!(
                "{} is a folder, and a file of that name is to be written",
                target.display()
            ))),
            Ok(status) => Ok(Some(status)),
            // A problem with the folder is found when it is made.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Ok(Err(error).at("look at", target)?),
        }
    }

    /// Whether the file system of the prefix directory does: its hidden folder has another name there too.
    fn ignores_case(&self) -> bool {
        let identity = |path: &Path| self.files().status(path).ok().map(|status| status.identity);
        let path = self.job.prefix.scr_dir();
        identity(&path.with_file_name(".SCR")).is_some_and(|other| identity(&path) == Some(other))
    }

    fn folder(&self, name: &Option<FileName>) -> PathBuf {
        let prefix = self.job.prefix.dir();
        name.as_ref().map_or_else(|| prefix.to_owned(), |name| name.below(prefix))
    }

    /// Assigns each folder to one rank, which makes and syncs it. Finds out which rank is the first to have a file.
    fn assign_folders(
        &self,
        dataset: &DatasetDescriptor,
        copies: &mut [FileCopy],
    ) -> Result<FolderOwners, FlushError> {
        let me = self.job.rank();
        let owners = folder_owners::assign_owners(&*self.job.comm, lists::of(copies.iter()).into_iter())?;
        for copy in copies.iter_mut() {
            copy.leads = owners.leads(me, &copy.file.name);
            copy.file.record.crc = copy.file.crc.or_else(|| owners.sums.get(&copy.file.name).copied());
        }
        let alike = match (owners.differing.clone(), owners.is_folder.clone()) {
            (Some((name, first)), _) => Err(format!(
                "ranks {first} and {me} have different files named {name}; give each rank its own"
            )),
            (None, Some((name, other))) => Err(format!(
                "rank {me} has a file named {name}, and rank {other} files in a folder of that name; give each its own"
            )),
            (None, None) => match owners.twins.clone().filter(|_| self.ignores_case()) {
                Some([one, other]) => Err(format!(
                    "the file system of the prefix directory takes {one} and {other} for one file, as it ignores case; give each \
                     another name"
                )),
                None => Ok(()),
            },
        };
        let mut own = owners.folders.iter().flatten();
        let real = alike.map_err(StepError::Other).and_then(|()| {
            Ok(own.try_for_each(|folder| {
                self.job.prefix.expect_unlinked(self.files(), self.job.env.uid, folder)
            })?)
        });
        self.agreed(dataset, Step::Folders, real)?;
        Ok(owners)
    }
}
