//! A complete dataset in cache, as one rank knows it.

use super::filemap::{Claim, Entry, Journal};
use super::part::PartDir;
use super::record::{FileRecord, RankRecord};
use super::verify::Verified;
use crate::job::Job;
use scr_base::fs::{At, Files};
use scr_comm::placement::Survives;
use scr_config::param;
use scr_prefix::{DatasetDescriptor, InCache, Seq};
use std::borrow::Cow;
use std::time::Duration;

/// Why no run restarts from a dataset that is refused.
const REFUSED: &str = "the application could not restart from it, or has changed its files";

/// This rank's part of a complete dataset, and what has become of the dataset.
pub(crate) struct CachedDataset {
    pub(crate) record: RankRecord,
    pub(crate) part: PartDir,
    /// That this run counts on the part, unless another one does.
    pub(crate) claim: Claim,
    /// Place of its store in the list.
    pub(crate) store: usize,
    /// Its copy in the prefix directory.
    pub(crate) copy: PrefixCopy,
    /// Whether a newer dataset has its name or one of its files, or it is output that the user has purged. Then it must not be
    /// copied to the prefix directory, nor be read there.
    pub(crate) superseded: bool,
    /// Whether it is one to restart from.
    pub(crate) standing: Standing,
    /// Whether the flush file says that it is in cache.
    pub(crate) listed: bool,
    /// Whether any file in the prefix directory may have replaced one that was there before.
    pub(crate) may_replace: bool,
    /// How much of this rank's part equals its record.
    pub(crate) verified: Verified,
    /// How many nodes may be lost, once that is known.
    pub(crate) survives: Option<Survives>,
    /// How long after the checkpoint before it, in this run, it was complete.
    pub(crate) after: Option<Duration>,
    /// Bytes of the redundancy file that this rank has yet to make, about; while it is local.
    pub(crate) owed: u64,
}

/// A checkpoint in cache that a run can restart from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckpointId {
    pub(crate) id: u64,
    /// Its place among all datasets, with the id that it has in the index: another one if that was taken in cache.
    pub(crate) seq: Seq,
    pub(crate) name: Vec<u8>,
}

impl CheckpointId {
    /// Its name, for messages.
    pub(crate) fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// The standing of a cached checkpoint as one to restart from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Standing {
    /// Nothing.
    #[default]
    Kept,
    /// The user went back to it, and no checkpoint was written since. Its flush makes it the current one.
    Chosen,
    /// The user or the application went back to a checkpoint before it. It is flushed only where it is output as well.
    WentBack,
    /// The application could not restart from it, or somebody has withdrawn it. That is for good.
    Refused,
}

/// The copy of a cached dataset in the prefix directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrefixCopy {
    /// No complete copy.
    Missing,
    /// A flush is writing one while the application computes.
    UnderWay,
    /// A complete copy.
    Complete,
    /// A complete copy in containers. It keeps that form: nothing writes other lists of files over its
    /// own, which would cost it if the flush were interrupted.
    InContainers,
}

impl PrefixCopy {
    /// A complete copy, `in_containers` or not.
    pub(crate) fn complete(in_containers: bool) -> Self {
        if in_containers {
            Self::InContainers
        } else {
            Self::Complete
        }
    }
}

impl CachedDataset {
    /// A dataset that has just become complete, or has been found in cache.
    pub(crate) fn new(record: RankRecord, part: PartDir, claim: Claim, store: usize) -> Self {
        Self {
            record,
            part,
            claim,
            store,
            copy: PrefixCopy::Missing,
            superseded: false,
            standing: Standing::Kept,
            listed: false,
            may_replace: true,
            verified: Verified::All,
            survives: None,
            after: None,
            owed: 0,
        }
    }

    /// The record of it in the flush file, for those who look at the job from outside.
    pub(super) fn in_cache(&self) -> InCache {
        let protection = &self.record.protection;
        let scheme = (!protection.bypass).then(|| protection.scheme.clone());
        let (is_local, survives) = (self.is_local(), self.survives_now());
        let damage = self.is_refused().then(|| REFUSED.to_owned());
        InCache { bypass: protection.bypass, scheme, is_local, survives, after: self.after, damage }
    }

    /// The dataset as the flush file lists it: if another number of ranks wrote it, with their parts.
    pub(super) fn listed_dataset(&self) -> Cow<'_, DatasetDescriptor> {
        match self.is_of_other_ranks() {
            true => Cow::Owned(self.record.dataset_in_prefix()),
            false => Cow::Borrowed(&self.record.dataset),
        }
    }

    /// Its id.
    pub(crate) fn id(&self) -> u64 {
        self.record.dataset.id
    }

    /// Its place among all datasets of the prefix directory.
    pub(crate) fn seq(&self) -> Seq {
        self.record.seq()
    }

    /// Its name as a checkpoint.
    pub(crate) fn checkpoint(&self) -> CheckpointId {
        CheckpointId { id: self.id(), seq: self.seq(), name: self.record.dataset.name.clone() }
    }

    /// The bytes of this rank's part in cache, also those that it takes once it is protected. A file that ranks have linked
    /// counts for each of them in part, and once in all.
    pub(crate) fn cache_bytes(&self, files: &dyn Files) -> u64 {
        let redundancy = self.record.redundancy.map_or(self.owed, |file| file.bytes);
        if self.record.protection.bypass {
            return redundancy;
        }
        let share = |file: &FileRecord| {
            let links = files.status(&self.part.file(&file.name)).map_or(1, |status| status.links);
            file.bytes.div_ceil(links.max(1))
        };
        self.record.files.iter().map(share).fold(redundancy, u64::saturating_add)
    }

    /// How many nodes may be lost now, where that is known.
    pub(crate) fn survives_now(&self) -> Option<Survives> {
        if self.is_local() {
            return Some(Survives::Nodes(0));
        }
        self.survives
    }

    /// Whether it is complete and its scheme has not protected it yet.
    pub(crate) fn is_local(&self) -> bool {
        self.record.local.is_some()
    }

    /// Whether a complete copy is in the prefix directory.
    pub(crate) fn is_flushed(&self) -> bool {
        matches!(self.copy, PrefixCopy::Complete | PrefixCopy::InContainers)
    }

    /// Whether a complete copy is in the prefix directory, and its files lie there under their names.
    pub(crate) fn has_files_in_prefix(&self) -> bool {
        self.copy == PrefixCopy::Complete
    }

    /// Whether a flush is copying it.
    pub(crate) fn is_being_flushed(&self) -> bool {
        self.copy == PrefixCopy::UnderWay
    }

    /// Whether it has yet to get to the prefix directory, with the files that its ranks have here.
    pub(crate) fn is_unflushed(&self) -> bool {
        !self.is_flushed() && !self.superseded && !self.is_of_other_ranks()
    }

    /// Whether another number of ranks wrote it, and its files lie in the parts of those in the caches. This run's parts of it
    /// only hold what ranks have got from other nodes.
    pub(crate) fn is_of_other_ranks(&self) -> bool {
        self.record.read_by.is_some() && !self.record.protection.bypass
    }

    /// Changes what has been said of it, unless it was refused.
    pub(crate) fn set_standing(&mut self, standing: Standing) {
        if self.standing != Standing::Refused {
            self.standing = standing;
        }
    }

    /// Whether no run may restart from it.
    pub(crate) fn is_refused(&self) -> bool {
        self.standing == Standing::Refused
    }

    /// Whether the user or the application went back to a checkpoint before it.
    pub(crate) fn is_gone_back_over(&self) -> bool {
        self.standing == Standing::WentBack
    }

    /// Whether the application reads it in the prefix directory.
    pub(crate) fn is_read_in_prefix(&self, job: &Job) -> bool {
        self.record.protection.bypass || job.params.get(&param::GLOBAL_RESTART)
    }

    /// Whether it is output that exists only in cache, which must not be lost.
    pub(crate) fn must_stay(&self) -> bool {
        self.record.dataset.output && self.is_unflushed()
    }

    /// Records in this rank's part that no run may restart from the dataset. Gives whether that is recorded; why not is reported.
    pub(crate) fn record_refused(&self, job: &Job) -> bool {
        let path = self.part.filemap();
        let recorded = Journal::reopen(job.files(), &path)
            .and_then(|journal| journal.append(job.files(), &Entry::Refused).at("write", &path));
        recorded.map_err(|error| job.report.error_here(&scr_base::describe(&error))).is_ok()
    }

    /// Whether a run can restart from it. The files of a bypass dataset may be gone once a newer dataset has its name; if they
    /// are still there, it is fetched.
    pub(crate) fn is_restartable(&self) -> bool {
        let is_overwritten = self.record.protection.bypass && self.superseded;
        self.record.dataset.checkpoint && !self.is_refused() && !is_overwritten
    }

    /// Whether older ones may leave for it: a run can restart from it, it is protected and, where its files lie in the prefix
    /// directory, the index has it.
    pub(crate) fn counts(&self) -> bool {
        self.is_restartable() && !self.is_local() && (!self.record.protection.bypass || self.is_flushed())
    }
}
