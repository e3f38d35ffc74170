//! Fetch: copies a dataset from the prefix directory into cache, or finds it whole in place.
//!
//! Nothing is trusted: the summary, the file lists, every size, and every recorded checksum are checked. A damaged dataset is
//! marked in the index, so that no run tries it again. A wrong number of ranks, a full cache or a transient error is reported
//! and marks nothing.
//!
//! | part | what it is |
//! |---|---|
//! | `into_cache` | a checkpoint becomes a dataset in cache |
//! | `copy` | one file from the prefix directory into cache |
//! | `aggregated` | files that lie in containers |
//! | `readers` | which rank reads what another number of ranks wrote |
//! | `shared` | a file of several ranks of a node is read once |

mod aggregated;
mod into_cache;
mod readers;
mod shared;
#[cfg(test)]
mod tests;

pub(crate) use into_cache::{as_many_ranks, Fetcher, Search, Wanted};
pub(crate) use shared::Mates;

use crate::cache::record::FileRecord;
use crate::error::Error;
use crate::flush::folder_owners::{self, FolderOwners};
use crate::typed::{broadcast_value, route_values};
use readers::Readers;
use scr_base::describe;
use scr_base::fs::copy::{Attributes, Copy};
use scr_base::fs::verify::{checksum, compare, open_whole, FileError};
use scr_base::fs::{retried, Files};
use scr_comm::collective::{agree_at, all_reduce, any, in_turn, Op};
use scr_comm::placement::Placement;
use scr_comm::{AnyError, CollectiveError, Comm, CommError, Rank, RankErrors};
pub(crate) use scr_prefix::ledger::Candidate;
use scr_prefix::ledger::{self, Candidates, Committed, Doubts, LedgerDir, Proof, Request};
use scr_prefix::rank2file::{self, Leaf};
use scr_prefix::{
    DatasetDescriptor, FileName, Index, Overwritten, Prefix, PrefixError, PrefixFile, Seq, Summary,
};
use serde::{Deserialize, Serialize};
use shared::Mine;
use std::path::{Path, PathBuf};

/// How to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// How many ranks copy at a time: `SCR_FETCH_WIDTH`.
    pub(crate) width: u32,
    /// Bytes per block: `SCR_FILE_BUF_SIZE`.
    pub(crate) block_bytes: u64,
    /// The files stay where they are: `SCR_FETCH_BYPASS`.
    pub(crate) bypass: bool,
    /// Whether checksums are compared with those recorded: `SCR_CRC_ON_FLUSH`. They always are for a dataset whose files may have
    /// been replaced.
    pub(crate) checksums: bool,
    /// Whether copies get the times and permissions of their sources: `SCR_COPY_METADATA`.
    pub(crate) metadata: bool,
    /// Whether the index calls it current from then on. It must not where a newer one failed for a reason that may pass, or later
    /// runs would restart from this one. A newer one that has become the current one meanwhile stays it in any case.
    pub(crate) make_current: bool,
    /// Whether ranks read files of other ranks: `SCR_GLOBAL_RESTART`. So they must lie under their names.
    pub(crate) global: bool,
    /// The number of ranks that wrote the dataset, if it is another one than that of this run, and is meant: the files stay where
    /// they are.
    pub(crate) writers: Option<u32>,
}

/// Data that a rank needs to fetch.
#[derive(Clone, Copy)]
pub(crate) struct Fetch<'a> {
    pub(crate) comm: &'a dyn Comm,
    pub(crate) files: &'a dyn Files,
    /// Name of this node, for messages.
    pub(crate) node: &'a str,
    /// The prefix directory.
    pub(crate) prefix: &'a Prefix,
    /// The time, as the index writes it.
    pub(crate) now: &'a str,
    /// Which rank reads a file for others; without it, every rank reads all its files.
    pub(crate) mates: Option<Mates<'a>>,
    pub(crate) options: Options,
    /// Whether this rank still sees the prefix directory of the run, and not an empty folder where it was mounted.
    pub(crate) is_there: &'a dyn Fn() -> bool,
    /// Whether a dataset that is found damaged is marked so. It must have been found so before: the directory may have been away.
    pub(crate) marks: bool,
}

/// A dataset that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// Its properties.
    pub(crate) dataset: DatasetDescriptor,
    /// This rank's files: with the checksum of what was copied, or in bypass mode the one that was recorded, if any.
    pub(crate) files: Vec<FileRecord>,
    /// Whether every file of every rank was compared with its checksum. Without, at least the sizes were right.
    pub(crate) verified: bool,
    /// Further information for the user, on rank 0.
    pub(crate) warning: Option<String>,
}

/// Why a dataset was not fetched, the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// It is itself damaged, and marked so in the index where that could be written.
    #[error("dataset {dataset} is damaged and is marked as failed: {account}")]
    Damaged {
        /// Its name.
        dataset: String,
        /// The findings of the ranks.
        account: String,
    },
    /// Another number of ranks wrote it.
    #[error(
        "dataset {dataset} was written by {found} ranks and this run has {expected}; \
         run with {found} ranks to restart from it"
    )]
    Ranks {
        /// Its name.
        dataset: String,
        /// How many ranks wrote it.
        found: u32,
        /// How many ranks this run has.
        expected: u32,
    },
    /// It may be good, and is not marked.
    #[error("dataset {dataset} was not fetched: {account}")]
    NotFetched {
        /// Its name.
        dataset: String,
        /// The findings of the ranks, or what to do.
        account: String,
        /// Why.
        why: NotFetched,
    },
    /// Another process has replaced files of it, or has dropped it: the index lists others by now.
    #[error("another process has replaced or dropped dataset {dataset} meanwhile")]
    Replaced {
        /// Its name.
        dataset: String,
    },
    /// It could not be brought into cache on some ranks.
    #[error(transparent)]
    Cache(RankErrors),
    /// The list of datasets cannot be used.
    #[error("the list of datasets cannot be used: {why}")]
    Index {
        /// Why.
        why: String,
        /// Whether it is damaged, so that a retry cannot help.
        is_damaged: bool,
    },
    /// The ranks could not talk.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// Why a dataset was not fetched that may be good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotFetched {
    /// A later dataset may have written over its files, or they may still be its own.
    Unproven,
    /// Something failed that may pass. A copy of a file may have had no room on any rank.
    Failed { no_room: bool },
    /// Its files lie in containers, and this run reads in place.
    InContainers,
}

/// Something failed that may pass, and not for want of room.
const FAILED: NotFetched = NotFetched::Failed { no_room: false };

impl From<CollectiveError> for FetchError {
    fn from(error: CollectiveError) -> Self {
        match error {
            CollectiveError::Ranks(why) => Self::Cache(why),
            CollectiveError::Comm(error) => Self::Comm(error),
        }
    }
}

impl From<FetchError> for Error {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Comm(error) => error.into(),
            other => Self::Refused(other.to_string()),
        }
    }
}

/// The facts that are recorded of a dataset: its description; this rank's files, or the leaves of the lists of all files; and when
/// it was recorded as complete, on the clock of its file system: seconds and nanoseconds.
type Read<T> = (DatasetDescriptor, Vec<T>, (i64, u32));

/// How the bytes of a dataset are verified.
struct Rules<'a> {
    /// Whether the checksum of a file is compared with the recorded one.
    sums: &'a dyn Fn(&FileName) -> bool,
    /// The moment since which files without a checksum must not have changed, if there is no record of which files may have been
    /// written over.
    unchanged_since: Option<(i64, u32)>,
    /// Place of the dataset.
    owner: Seq,
}

/// Chooses where in cache a file goes, and records it there, before a byte of it is written.
pub(crate) type ChoosePlace<'a> =
    dyn FnMut(&DatasetDescriptor, &PrefixFile) -> Result<PathBuf, FileError> + 'a;

impl Fetch<'_> {
    /// Fetches a dataset. All ranks call it. `place` is not asked in bypass mode. After an error what was placed
    /// is for the caller to remove.
    ///
    /// # Errors
    /// [`FetchError`], the same on all ranks.
    pub(crate) fn dataset(
        &self,
        candidate: &Candidate,
        place: &mut ChoosePlace<'_>,
    ) -> Result<Fetched, FetchError> {
        self.whole(candidate, place).or_else(|error| Err(self.record_failure(candidate, error)?))
    }

    fn whole(&self, candidate: &Candidate, place: &mut ChoosePlace<'_>) -> Result<Fetched, FetchError> {
        let (dataset, mine, listed) = self.learn(candidate)?;
        let checks = self.options.checksums || candidate.suspect;
        let owners = if self.options.bypass && checks {
            folder_owners::assign_owners(self.comm, mine.iter().map(|mine| &mine.file.name))?
        } else {
            FolderOwners::default()
        };
        // If many ranks read a file in place, the first one checks the bytes.
        let sums = |name: &FileName| checks && owners.leads(self.comm.rank(), name);
        let unchanged_since = candidate.by_time.then_some(listed);
        let rules = Rules { sums: &sums, unchanged_since, owner: candidate.seq };
        let outcome = self.bring(&dataset, &mine, place, &rules)?;
        let outcome = self.compare_totals(&dataset, outcome)?;
        let is = |what: fn(&FileError) -> bool| outcome.as_ref().is_err_and(what);
        let is_unproven =
            is(|error| matches!(error, FileError::Unproven { .. } | FileError::GivenOut { .. }));
        let found = [is(FileError::is_damage), is_unproven, is(FileError::is_for_want_of_room)];
        let [damaged, unproven, no_room] = any(self.comm, found)?;
        let why = if unproven { NotFetched::Unproven } else { NotFetched::Failed { no_room } };
        let files = self.agree_on_outcome(candidate, Some(why).filter(|_| !damaged), outcome)?;
        let lacking = mine.iter().any(|mine| mine.within.is_none() && (mine.file.crc.is_none() || !checks));
        let (is_whole, warning) =
            if self.comm.rank() == Rank(0) { self.record_success(candidate) } else { (true, None) };
        let [lacking, is_replaced] = any(self.comm, [lacking, !is_whole])?;
        if is_replaced {
            return Err(FetchError::Replaced { dataset: candidate.name_text() });
        }
        Ok(Fetched { dataset, files, verified: !lacking, warning })
    }

    fn ledger(&self) -> LedgerDir<'_> {
        LedgerDir { files: self.files, prefix: self.prefix }
    }

    /// Rank 0 reads what is recorded of it, but for the leaves of the file lists; every rank gets the descriptor and its own
    /// files.
    fn learn(&self, candidate: &Candidate) -> Result<Read<Mine>, FetchError> {
        let mut leaves = Vec::new();
        let read = || {
            let (dataset, read, listed) = self.read(candidate)?;
            leaves = read;
            Ok((dataset, listed))
        };
        let head = (self.comm.rank() == Rank(0)).then(read);
        let head: Result<_, Refusal> = broadcast_value(self.comm, head)?;
        let (dataset, listed) =
            head.map_err(|refusal| refusal.into_error(candidate.name_text(), self.comm.size()))?;
        if dataset.aggregated && (self.options.bypass || self.options.global) {
            return Err(self.not_in_place(candidate));
        }
        let listed_files = self.read_lists(candidate, &leaves)?;
        let mine = self.read_containers(candidate, &dataset, listed_files)?;
        Ok((dataset, mine, listed))
    }

    fn readers(&self) -> Readers {
        let readers = self.comm.size();
        Readers { writers: self.options.writers.unwrap_or(readers), readers }
    }

    /// The rank that a leaf is named after reads it, or who reads the files of that one, and sends the readers of all ranks in it
    /// their files.
    fn read_lists(&self, candidate: &Candidate, leaves: &[Leaf]) -> Result<Vec<Mine>, FetchError> {
        let id = candidate.seq.id;
        let malformed = |from| CommError::Malformed { from, what: "a list of files" };
        let (mut lists, mut read) = (Vec::new(), Ok(()));
        let to_readers = leaves.iter().map(|leaf| (self.readers().of(leaf.reader), leaf.to_message()));
        for (from, message) in route_values(self.comm, &to_readers.collect::<Vec<_>>())? {
            let leaf = Leaf::from_message(self.prefix, id, &message).ok_or_else(|| malformed(from))?;
            match leaf.read(self.files) {
                Ok(more) => lists.extend(more),
                Err(error) => read = Err(error),
            }
        }
        let lists = self.lists_for_ranks(&lists);
        self.distribute(candidate, lists, read)
    }

    /// Sends the lists of the ranks that wrote the dataset to their readers. Gives those of this rank, which must have each once.
    fn distribute(
        &self,
        candidate: &Candidate,
        lists: Vec<(Rank, Vec<Mine>)>,
        read: Result<(), PrefixError>,
    ) -> Result<Vec<Mine>, FetchError> {
        let (id, readers) = (candidate.seq.id, self.readers());
        let lists: Vec<_> = lists.into_iter().map(|list| (readers.of(list.0), list)).collect();
        let came: Vec<(Rank, (Rank, Vec<Mine>))> = route_values(self.comm, &lists)?;
        let mut writers: Vec<u32> = came.iter().map(|(_, (writer, _))| writer.0).collect();
        writers.sort_unstable();
        let unlisted = !writers.iter().copied().eq(readers.writers_of(self.comm.rank()));
        let damaged = read.as_ref().is_err_and(PrefixError::is_damage);
        let [unread, unlisted_any, damaged] = any(self.comm, [read.is_err(), unlisted, damaged])?;
        if unread || unlisted_any {
            // A rank in a leaf that could not be read has nothing to say.
            let found =
                read.and_then(
                    |()| if unlisted && !unread { Err(self.unlisted(id, &writers)) } else { Ok(()) },
                );
            let why = (!damaged && unread).then_some(FAILED);
            return self.agree_on_outcome(candidate, why, found).map(|()| Vec::new());
        }
        Ok(came.into_iter().flat_map(|(_, (_, list))| list).collect())
    }

    /// The lists have a rank whose files this one reads not at all, or twice.
    fn unlisted(&self, id: u64, writers: &[u32]) -> PrefixError {
        let (ranks, mut all) = (self.readers().writers, self.readers().writers_of(self.comm.rank()));
        let missing = all.find(|writer| !writers.contains(writer)).map(Rank);
        let twice =
            || writers.windows(2).find(|two| two[0] == two[1]).map_or(self.comm.rank(), |two| Rank(two[0]));
        let reason = match missing {
            Some(first) => rank2file::ranks_missing(1, ranks, first),
            None => rank2file::rank_twice(twice()),
        };
        rank2file::fault(&self.prefix.rank2file(id), reason)
    }

    /// The descriptor, the leaves of the file lists, and when the dataset was recorded as complete.
    fn read(&self, candidate: &Candidate) -> Result<Read<Leaf>, Refusal> {
        let id = candidate.seq.id;
        let summary = Summary::require(self.files, self.prefix, id)?;
        let path = self.prefix.summary_file(id);
        if !summary.complete {
            return Err(Refusal::Damage(format!("{} says that it is not complete", path.display())));
        }
        if summary.dataset.name != candidate.name {
            // Index and summary contradict each other, and either may be wrong.
            let name = String::from_utf8_lossy(&summary.dataset.name);
            return Err(Refusal::Passing(format!("{} is that of the dataset `{name}'", path.display())));
        }
        let leaves = rank2file::leaves(self.files, self.prefix, id)?;
        match leaves.iter().map(|leaf| leaf.ranks).find(|&ranks| ranks != self.readers().writers) {
            Some(found) => Err(Refusal::Ranks(found)),
            None => Ok((summary.dataset, leaves, Summary::written_at(self.files, self.prefix, id)?)),
        }
    }

    /// This rank's files, copied or, in bypass mode, read where they lie. Those that another rank of the node copies come once
    /// all others are there.
    fn bring(
        &self,
        dataset: &DatasetDescriptor,
        mine: &[Mine],
        place: &mut ChoosePlace<'_>,
        rules: &Rules<'_>,
    ) -> Result<Result<Vec<FileRecord>, FileError>, CommError> {
        let all_together = || Placement::of_one(String::new(), self.comm.size());
        let nodes = self.mates.map_or_else(all_together, |mates| mates.nodes.clone());
        let turn = nodes.turn(self.comm.rank(), self.options.width);
        let bypass = self.options.bypass;
        let mut place = |file: &PrefixFile| if bypass { Ok(None) } else { place(dataset, file).map(Some) };
        let own = mine.iter().filter(|mine| mine.copied_by.is_none());
        let mut outcome = in_turn(self.comm, turn, || {
            let mut open = None;
            let mut bring = |mine: &Mine| match &mine.within {
                None => {
                    let path = place(&mine.file)?;
                    // As a whole: an open file may have to be opened again.
                    retried(self.files, |_| self.bring_one(rules, &mine.file, path.as_deref()))
                }
                Some(within) => self.bring_member(&mine.file, within, place(&mine.file)?, &mut open),
            };
            own.map(&mut bring).collect::<Result<Vec<_>, _>>()
        })?;
        let shared = mine.iter().filter_map(|mine| mine.copied_by.zip(Some(&mine.file)));
        let [is_shared, failed] = any(self.comm, [shared.clone().next().is_some(), outcome.is_err()])?;
        if let Some(mates) = self.mates.filter(|_| is_shared && !failed) {
            let taken = in_turn(self.comm, turn, || {
                let take = |(rank, file): (Rank, &PrefixFile)| {
                    let copy = (mates.path_of)(rank, &file.name);
                    let path = place(file)?.unwrap_or_else(|| self.prefix.file(&file.name));
                    self.take(rules, file, &copy, &path)
                };
                shared.map(take).collect::<Result<Vec<_>, _>>()
            })?;
            outcome = outcome.and_then(|mut own| {
                own.extend(taken?);
                Ok(own)
            });
        }
        Ok(outcome)
    }

    /// One file, copied to `path`, or read where it lies. If files may have been written over, one without a checksum must be
    /// unchanged since the dataset was complete.
    fn bring_one(
        &self,
        rules: &Rules<'_>,
        file: &PrefixFile,
        path: Option<&Path>,
    ) -> Result<FileRecord, FileError> {
        let source = self.prefix.file(&file.name);
        if file.name.is_container() {
            // The summary says that there is none: one of the two is that of another flush.
            return Err(FileError::NotAFile { path: source });
        }
        let (open, status) = open_whole(self.files, &source, file.bytes)?;
        let overwritten = Overwritten::since(self.files, self.prefix, &file.name, rules.owner)?;
        let is_changed = rules.unchanged_since.is_some_and(|since| status.mtime > since);
        let doubts = Doubts { is_given_out: overwritten, is_changed, is_suspect: (rules.sums)(&file.name) };
        let expected = match doubts.proof(file.crc.is_some()) {
            Proof::GivenOut => return Err(FileError::GivenOut { path: source }),
            Proof::Changed => return Err(FileError::Unproven { path: source }),
            Proof::Checksum => file.crc,
            Proof::Nothing => None,
        };
        let (name, bytes, mode, mtime) = (file.name.clone(), status.len, status.mode, status.mtime);
        let mut fetched = FileRecord { name, bytes, mode, mtime, crc: file.crc };
        let Options { block_bytes, metadata, .. } = self.options;
        if let Some(path) = path {
            let copy = Copy { files: self.files, block_bytes, metadata, progress: &|_| () };
            let wanted = Attributes { bytes, mode, mtime, atime: status.atime };
            let crc = copy.run(&*open, &source, path, &wanted)?;
            compare(&source, expected, Some(crc))?;
            fetched.crc = Some(crc);
        } else if expected.is_some() {
            // The application is about to read these very bytes.
            compare(&source, expected, Some(checksum(&*open, &source, block_bytes)?))?;
        }
        Ok(fetched)
    }

    /// If the lists hold no sizes, as C SCR writes them, at least the sum must be right.
    fn compare_totals(
        &self,
        dataset: &DatasetDescriptor,
        outcome: Result<Vec<FileRecord>, FileError>,
    ) -> Result<Result<Vec<FileRecord>, FileError>, CommError> {
        let files = outcome.as_deref().unwrap_or_default();
        let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        let own = [files.len() as u64, bytes, u64::from(outcome.is_err())];
        let [files, bytes, failed] = all_reduce(self.comm, own, Op::Sum)?;
        let differs = dataset.files.is_some_and(|expected| expected != files)
            || dataset.bytes.is_some_and(|expected| expected != bytes);
        if failed == 0 && differs && self.comm.rank() == Rank(0) {
            let expected = (dataset.files.unwrap_or(files), dataset.bytes.unwrap_or(bytes));
            return Ok(Err(FileError::Totals { expected, found: (files, bytes) }));
        }
        Ok(outcome)
    }

    /// One outcome for all. A dataset that could not be fetched is damaged, unless there is another reason.
    fn agree_on_outcome<T>(
        &self,
        candidate: &Candidate,
        why: Option<NotFetched>,
        outcome: Result<T, impl Into<AnyError>>,
    ) -> Result<T, FetchError> {
        agree_at(self.comm, self.node, outcome).or_else(|error| {
            let (dataset, account) = (candidate.name_text(), error.agreed()?.to_string());
            Err(match why {
                Some(why) => FetchError::NotFetched { dataset, account, why },
                None => FetchError::Damaged { dataset, account },
            })
        })
    }

    /// Marks damaged files, unless they were no more the dataset's when they were read. What a rank has seen that does not see the
    /// directory of the run says nothing of the dataset.
    fn record_failure(&self, candidate: &Candidate, error: FetchError) -> Result<FetchError, CommError> {
        let is_damaged = matches!(error, FetchError::Damaged { .. });
        if !is_damaged && !matches!(error, FetchError::NotFetched { .. }) {
            return Ok(error);
        }
        if any(self.comm, [!(self.is_there)()])? == [true] {
            return Ok(match error {
                FetchError::Damaged { dataset, account } => {
                    FetchError::NotFetched { dataset, account, why: FAILED }
                }
                other => other,
            });
        }
        if is_damaged && !self.marks {
            return Ok(error);
        }
        let is_whole = |index: &Index| index.is_whole(candidate.seq.id, &candidate.name);
        let still_whole = || match is_damaged {
            true => {
                let (id, name) = (candidate.seq.id, Some(&*candidate.name));
                is_whole_after(self.ledger().transact(&Request::Fail { id, name, now: self.now }))
            }
            false => self.ledger().look(is_whole),
        };
        // If the prefix cannot be written, the next run finds the damage again.
        let is_replaced = self.comm.rank() == Rank(0) && !still_whole().unwrap_or(true);
        let [is_replaced] = any(self.comm, [is_replaced])?;
        Ok(if is_replaced { FetchError::Replaced { dataset: candidate.name_text() } } else { error })
    }

    /// A flush takes the names of this dataset in the index before it gives them to files. So all that was read belongs to it if
    /// it is still whole there.
    fn record_success(&self, candidate: &Candidate) -> (bool, Option<String>) {
        let is_whole = |index: &Index| index.is_whole(candidate.seq.id, &candidate.name);
        let (seq, name, make_current) = (candidate.seq, &candidate.name, self.options.make_current);
        let fetched = Request::Fetched { seq, name, make_current, now: self.now };
        let recorded = is_whole_after(self.ledger().transact(&fetched));
        recorded.map(|is_whole| (is_whole, None)).unwrap_or_else(|error| {
            let is_whole = self.ledger().look(is_whole).unwrap_or(true);
            let why = describe(&error);
            (is_whole, Some(format!("the fetch could not be recorded in the index: {why}")))
        })
    }
}

/// The datasets to try, in their order: rank 0 reads the index, and gives them to all ranks. `wanted` is the name in `SCR_CURRENT`.
///
/// # Errors
/// The index is damaged or cannot be read, or the ranks could not talk.
fn candidates(
    comm: &dyn Comm,
    files: &dyn Files,
    prefix: &Prefix,
    wanted: Option<&[u8]>,
) -> Result<Candidates, FetchError> {
    let read = || {
        let index = LedgerDir::new(files, prefix).index();
        let listed = index.map(|index| ledger::in_order(&index, wanted));
        listed.map_err(|error| (describe(&error), error.is_damage()))
    };
    let read = broadcast_value(comm, (comm.rank() == Rank(0)).then(read))?;
    read.map_err(|(why, is_damaged): (String, bool)| FetchError::Index { why, is_damaged })
}

/// Whether a dataset was still whole when something was recorded of it.
fn is_whole_after(recorded: Result<Committed, PrefixError>) -> Result<bool, PrefixError> {
    match recorded {
        Err(PrefixError::Refused(ledger::Refusal::Ended { .. })) => Ok(false),
        recorded => recorded.map(|_| true),
    }
}

/// Why rank 0 does not even begin.
#[derive(Serialize, Deserialize)]
enum Refusal {
    Damage(String),
    Ranks(u32),
    Passing(String),
}

impl From<PrefixError> for Refusal {
    fn from(error: PrefixError) -> Self {
        let kind = if error.is_damage() { Self::Damage } else { Self::Passing };
        kind(describe(&error))
    }
}

impl Refusal {
    fn into_error(self, dataset: String, expected: u32) -> FetchError {
        match self {
            Self::Damage(account) => FetchError::Damaged { dataset, account },
            Self::Ranks(found) => FetchError::Ranks { dataset, found, expected },
            Self::Passing(account) => FetchError::NotFetched { dataset, account, why: FAILED },
        }
    }
}
