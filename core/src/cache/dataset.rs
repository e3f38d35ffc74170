//! A complete dataset in cache, as one rank knows it.

use super::filemap::{Claim, Entry, Journal};
use super::part::PartDir;
use super::record::{FileRecord, RankRecord};
use super::verify::Verified;
use crate::holdings::{Holding, InPrefix, Lies, Standing};
use crate::job::Job;
use scr_base::fs::Files;
use scr_comm::placement::Survives;
use scr_comm::Rank;
use scr_config::descriptor::protects;
use scr_config::param;
use scr_prefix::{FlushFile, InCache, Location, Seq};
use std::sync::Arc;
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
    /// What the prefix directory has of it.
    pub(crate) prefix: InPrefix,
    /// Whether it is one to restart from.
    pub(crate) standing: Standing,
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
    /// The parts of those who wrote it, if they were another number of ranks. This run's part only holds what ranks have got from
    /// other nodes then.
    pub(crate) others: Option<PartsOfOthers>,
}

/// The parts of another number of ranks that a run reads in the caches. Nobody removes them meanwhile.
pub(crate) struct PartsOfOthers {
    /// The ranks that have the parts of those who wrote the dataset, in their order; the same on all ranks.
    pub(crate) hosts: Vec<Rank>,
    /// The parts that this rank has.
    pub(crate) here: HeldParts,
    _claims: Vec<Claim>,
}

/// Parts that a rank has, of which other ranks may read the files.
pub(crate) type HeldParts = Arc<Vec<(RankRecord, PartDir)>>;

impl PartsOfOthers {
    pub(crate) fn claim(files: &dyn Files, hosts: Vec<Rank>, here: Vec<(RankRecord, PartDir)>) -> Self {
        let claims = here.iter().map(|(_, part)| Claim::lay(files, &part.filemap())).collect();
        Self { hosts, here: Arc::new(here), _claims: claims }
    }
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

impl CachedDataset {
    /// A dataset that has just become complete, or has been found in cache.
    pub(crate) fn new(record: RankRecord, part: PartDir, claim: Claim, store: usize) -> Self {
        Self {
            record,
            part,
            claim,
            store,
            prefix: InPrefix::Missing,
            standing: Standing::Kept,
            may_replace: true,
            verified: Verified::All,
            survives: None,
            after: None,
            owed: 0,
            others: None,
        }
    }

    /// Makes the flush file say where it is and how it is kept, for those who look at the job from outside.
    pub(super) fn list_in(&self, flush: &mut FlushFile) {
        let protection = &self.record.protection;
        let scheme = (!protection.bypass).then(|| protection.scheme.clone());
        let (is_local, survives) = (self.is_local(), self.survives_in_cache());
        let damage = self.is_refused().then(|| REFUSED.to_owned());
        let kept =
            InCache { bypass: protection.bypass, scheme, is_local, survives, after: self.after, damage };
        let dataset = &self.record.dataset;
        flush.record_in_cache(dataset, &kept);
        flush.end_flush(dataset.id, self.prefix.is_whole());
        if self.prefix.is_under_way() {
            flush.add_location(dataset.id, Location::Flushing);
        }
    }

    /// What decides over it. What nodes its store outlives, and whether it is offered, only the [`Cache`](super::Cache) knows.
    pub(crate) fn holding(&self) -> Holding {
        let RankRecord { dataset, protection, .. } = &self.record;
        let cache = match protection.bypass {
            true => Lies::InPlace,
            false if self.is_local() => Lies::Local,
            false if protects(&protection.scheme) => Lies::Strong,
            false => Lies::Weak,
        };
        Holding {
            id: self.id(),
            seq: self.seq(),
            store: self.store,
            is_checkpoint: dataset.checkpoint,
            is_output: dataset.output,
            cache,
            prefix: self.prefix,
            standing: self.standing,
            is_of_others: self.is_of_other_ranks(),
            is_offered: false,
        }
    }

    /// Its id in cache.
    pub(crate) fn id(&self) -> u64 {
        self.record.cache_id
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

    /// The losses that it survives now, where that is known.
    pub(crate) fn survives_now(&self) -> Option<Survives> {
        self.prefix.is_whole().then_some(Survives::All).or_else(|| self.survives_in_cache())
    }

    /// The losses that its copy in cache survives.
    fn survives_in_cache(&self) -> Option<Survives> {
        self.is_local().then_some(Survives::Nodes(0)).or(self.survives)
    }

    /// Whether it is complete and its scheme has not protected it yet.
    pub(crate) fn is_local(&self) -> bool {
        self.record.local.is_some()
    }

    /// Whether another number of ranks wrote it, and its files lie in the parts of those in the caches.
    pub(crate) fn is_of_other_ranks(&self) -> bool {
        self.others.is_some()
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

    /// Records in this rank's part that no run may restart from the dataset. Gives whether that is recorded; why not is reported.
    pub(crate) fn record_refused(&self, job: &Job) -> bool {
        let recorded = Journal::add(job.files(), &self.part, &[Entry::Refused]);
        recorded.map_err(|error| job.report.error_here(&scr_base::describe(&error))).is_ok()
    }
}
