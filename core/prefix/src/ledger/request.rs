//! Requests to the ledger, the events that change it, and the reasons to refuse a request.

use super::By;
use crate::{Between, DatasetDescriptor, Index, IndexEntry, PrefixError, PrefixId, Seq, Withdrawal};
use serde::{Deserialize, Serialize};

/// A change that a job or a command asks for.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// A run begins. Its number is higher than each that was seen.
    BeginRun { seen: u64 },
    /// A run needs so many ids of datasets, none below the first.
    Reserve { at_least: u64, count: u64 },
    /// It has not used those from `next` on.
    GiveBack { next: u64, end: u64 },
    /// The flush of a dataset is about to be on record.
    Begin(&'a DatasetDescriptor),
    /// A dataset is known that is not whole.
    List(&'a DatasetDescriptor),
    /// The application is about to write a dataset where it will stay. Its files are not known yet.
    BeginInPlace(&'a DatasetDescriptor),
    /// Every byte of a dataset has arrived, or is about to be written in place: its files are about to get their names. With a
    /// `closer`, that process gives the names, and not the ranks of the job.
    TakeNames { dataset: &'a DatasetDescriptor, by: &'a By, closer: Option<&'a str> },
    /// Every file has its name.
    Complete {
        dataset: &'a DatasetDescriptor,
        by: &'a By,
        closer: Option<&'a str>,
        make_current: MakeCurrent,
        now: &'a str,
    },
    /// The files of a dataset were found whole where they lie.
    ListWhole { dataset: &'a DatasetDescriptor, make_current: MakeCurrent, now: &'a str },
    /// A flush has made its dataset complete, and a file lacks its name all the same.
    NameAgain { dataset: &'a DatasetDescriptor, by: &'a By },
    /// A flush is given up, also where its dataset has taken its names, or only where it has not.
    TakeBack { dataset: &'a DatasetDescriptor, by: &'a By, even_if_taken: bool },
    /// Names or files are not in use any more.
    Release(Whose<'a>),
    /// A run is about to read the files of a dataset where they lie.
    Hold { id: u64, name: &'a [u8], run: u64 },
    /// The datasets leave the index, and their files stay.
    Drop { which: Dropping<'a>, run: u64 },
    /// No run may restart from these datasets, and those of the index that are meant, whatever any cache has of them. Those of
    /// the run `alone` are left out while no later run has begun: no other one can have copies of them. If they have a
    /// name, nor from an older one of that name, or one that a run `before` this one wrote, of which nobody may know any more:
    /// then no such run may be under way, which could still write one.
    Withdraw { seqs: &'a [Seq], which: Option<Dropping<'a>>, alone: Option<u64>, before: Option<u64> },
    /// Somebody has gone back over all checkpoints between two places.
    GoBack(Between),
    /// The datasets are about to be deleted, and copies of output in cache are not to come back.
    Purge(&'a [u64]),
    /// The application begins to restart from the checkpoint of this id and name, or it has written one.
    Attempt(Option<(u64, &'a [u8])>),
    /// The files of a dataset are about to be deleted.
    BeginDeletion { id: u64, run: u64 },
    /// They are gone.
    EndDeletion { id: u64 },
    /// A dataset was read whole.
    Fetched { seq: Seq, name: &'a [u8], make_current: bool, now: &'a str },
    /// A dataset is damaged. With a name, only if it still has it.
    Fail { id: u64, name: Option<&'a [u8]>, now: &'a str },
    /// The application could not restart from a dataset; the index lists it, or another one under its number or name.
    Refuse { seq: Seq, is_listed: bool, alone: Option<u64>, now: &'a str },
    /// The dataset of this name is the one to restart from first.
    MakeCurrent(&'a [u8]),
    /// The index may not be durable as it is.
    Confirm,
}

impl Request<'_> {
    /// Whether the numbers that are taken matter, and what was withdrawn: `ids.scr`.
    pub(super) fn concerns_ids(&self) -> bool {
        matches!(
            self,
            Self::BeginRun { .. }
                | Self::Reserve { .. }
                | Self::GiveBack { .. }
                | Self::TakeNames { .. }
                | Self::Complete { .. }
                | Self::Withdraw { .. }
                | Self::Drop { .. }
                | Self::GoBack(_)
                | Self::Purge(_)
                | Self::Attempt(_)
                | Self::Refuse { .. }
        )
    }

    /// Whether the datasets matter: `index.scr`.
    pub(super) fn concerns_index(&self) -> bool {
        !matches!(
            self,
            Self::Reserve { .. }
                | Self::GiveBack { .. }
                | Self::GoBack(_)
                | Self::Purge(_)
                | Self::Attempt(_)
        )
    }

    /// The datasets of which it matters who is at work on them, or reads them.
    pub(super) fn concerned(&self, index: &Index) -> Vec<IndexEntry> {
        let of_id = |id| index.entry(id).into_iter().collect();
        match self {
            Self::BeginInPlace(_) => index.entries(),
            Self::List(DatasetDescriptor { id, .. }) | Self::BeginDeletion { id, .. } => of_id(*id),
            Self::Drop { which, .. } => {
                index.entries().into_iter().filter(|entry| which.means(entry)).collect()
            }
            _ if self.wants_files().is_some() => index.entries(),
            _ => Vec::new(),
        }
    }

    /// The dataset of which it matters whether others have a file in common with it.
    pub(super) fn wants_files(&self) -> Option<&DatasetDescriptor> {
        match self {
            Self::Begin(dataset) | Self::TakeNames { dataset, .. } | Self::ListWhole { dataset, .. } => {
                Some(dataset)
            }
            _ => None,
        }
    }
}

/// The user of names or files that does not use them any more.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'a> {
    /// The application that writes this dataset in place.
    Writer(u64),
    /// A run that reads files where they lie.
    Reader(u64),
    /// A flush that is revoked, and no staging file of it is left; or the process that deletes, for one that has taken its lock
    /// over.
    Ended(&'a By),
    /// Applications of earlier runs: all that read in place, and with `writers` those that write there.
    Earlier { writers: bool },
}

/// Which datasets of the index are dropped or withdrawn.
#[derive(Debug, Clone, Copy)]
pub enum Dropping<'a> {
    /// All of a name.
    Named(&'a [u8]),
    /// Those of a name that had these places when a command began: what gets the name later is none of them.
    These { name: &'a [u8], seqs: &'a [Seq] },
    /// Every checkpoint newer than this place.
    CheckpointsAfter(Seq),
}

/// Whether a dataset becomes the current one once it is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MakeCurrent {
    #[default]
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

/// A change of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A run has this number, in the prefix directory with this id. Datasets without a number belong to runs up to `last`.
    RunBegan { number: u64, prefix: PrefixId, last: u64 },
    /// The index lacks the id of the prefix directory, or numbers of runs.
    Marked { prefix: PrefixId, last: u64 },
    /// The first dataset id that is free.
    NextId { first: u64, next: u64 },
    /// The dataset is listed as incomplete.
    Listed(DatasetDescriptor),
    /// The name refers to this dataset.
    Named { name: Vec<u8>, id: u64 },
    /// Name and files belong to the dataset, which is not complete.
    Took { id: u64, by: By, closer: Option<String> },
    /// The dataset is not complete: its name or a file of it belongs to a newer one, or is about to be removed.
    Replaced(u64),
    /// The dataset is complete.
    Completed { dataset: DatasetDescriptor, by: Option<By>, at: String },
    /// No process gives files the names of the dataset any more.
    Released(u64),
    /// The record of a flush is revoked: no process closes it any more.
    Revoked(By),
    /// A run reads files of the dataset where they lie, and of no other one.
    Held { id: u64, run: u64 },
    /// A run does not read files any more.
    LetGo { run: u64 },
    /// The dataset has left the index.
    Left(u64),
    /// One that has left was begun and never complete: it may have replaced files of older ones. Whether it is recorded which.
    BegunLeft { seq: Seq, is_recorded: bool },
    /// The name is nobody's.
    NameLeft(Vec<u8>),
    /// The dataset was read whole.
    Fetched { id: u64, at: String },
    /// The dataset is damaged, or was refused.
    Failed { id: u64, at: String },
    /// The dataset of this name is current.
    Current(Vec<u8>),
    /// No dataset is.
    NoCurrent,
    /// No run may restart from the dataset at this place.
    Withdrawn { seq: Seq, why: Withdrawal },
    /// Nor from one of this name before this place.
    NameWithdrawn { name: Vec<u8>, before: Seq },
    /// Nor from a checkpoint between these.
    WentBack(Between),
    /// Output of this id is not flushed again.
    Purged(u64),
    /// One more restart from a checkpoint counts, or none counts any more.
    Attempted(Option<(u64, Vec<u8>)>),
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// These events make it come true. There may be none.
    Commit(Vec<Event>),
    /// This flush, or this deletion, has to end first.
    After(By),
    /// It may not be.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This newer dataset has the name, or a file; or an older one that counts, where the other one was refused.
    #[error(
        "its name or files of it belong to dataset {newer}, which is newer, or which a job can restart from"
    )]
    Superseded { newer: u64 },
    /// Output would replace files of this checkpoint.
    #[error(
        "files of it belong to dataset {id}, which a job can restart from and which is kept; give each dataset files with names of \
         its own"
    )]
    RestartPoint { id: u64 },
    /// Another run reads files of this dataset where they lie.
    #[error(
        "another run reads the files of dataset {id} where they lie; they are not replaced, deleted or dropped before it has ended"
    )]
    InUse { id: u64 },
    /// The application of another run writes this dataset, which has the same name.
    #[error(
        "another job writes a dataset of this name, number {id}, and both would have bytes of each other; give each job a prefix \
         directory of its own (SCR_PREFIX)"
    )]
    Written { id: u64 },
    /// Another dataset has the same number.
    #[error(
        "the index has another dataset under the number {id}, `{}', which is not replaced",
        String::from_utf8_lossy(name)
    )]
    NumberTaken { id: u64, name: Vec<u8> },
    /// Somebody else has ended, dropped or replaced the dataset.
    #[error("somebody else has ended, dropped or replaced dataset {id} meanwhile")]
    Ended { id: u64 },
    /// Another process closes the flush.
    #[error("another process closes the flush")]
    OtherCloser,
}

impl Refusal {
    /// The same as an error of the prefix directory.
    pub(super) fn into_error(self, prefix: &crate::Prefix) -> PrefixError {
        match self {
            Self::OtherCloser => scr_base::fs::FsError::LockLost { path: prefix.index_file() }.into(),
            refusal => refusal.into(),
        }
    }
}
