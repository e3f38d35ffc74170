//! Which of the datasets in cache are also in the prefix directory: according to the index and, if the application reads them
//! there, to their bytes; and whether what the application has read there was the dataset's all the time.
//!
//! Nothing keeps another job from writing its own checkpoints over files that this one reads in place: an application that writes
//! there cannot wait. But each file is recorded before it is given out to be written over, and the index says which datasets have
//! lost files before such a record goes. So whoever has read all files, and finds neither then, has read the right bytes.
//!
//! The index cannot say that of a dataset in place that was never listed. Its files then must be as they were when the run began:
//! unchanged since they were recorded.

use super::{Restart, Unread};
use crate::cache::record::{FileRecord, RankRecord};
use crate::cache::{Cache, CachedDataset};
use crate::error::{Doing as _, Error};
use crate::holdings::InPrefix;
use crate::job::Job;
use scr_base::fs::verify::{expect_bytes, FileError};
use scr_base::fs::{At, FsError};
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::ledger::{self, Candidate};
use scr_prefix::{
    DatasetDescriptor, FlushEntry, FlushFile, IndexEntry, Overwritten, PrefixError, Seq, Summary, Withdrawal,
    Withdrawn,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The state of the prefix directory, the same on all ranks.
#[derive(Serialize, Deserialize)]
pub(crate) struct PrefixState {
    /// The highest id that is in use there.
    pub(crate) highest: u64,
    /// The checkpoint that would be fetched first.
    pub(crate) first: Option<Candidate>,
    /// Whether somebody has made it current though newer ones are complete there.
    pub(crate) is_chosen: bool,
    /// The datasets that are complete.
    complete: Vec<Known>,
    /// The datasets that were purged from there.
    purged: Vec<u64>,
    /// Those that no run can flush any more, as newer ones have their names, or files of them.
    replaced: Vec<Seq>,
    /// The datasets that are not to come back from cache.
    withdrawn: Withdrawn,
    /// The newest one that was begun there and is not complete.
    last_begun: Option<Seq>,
    /// Those that were complete there once and are no more: files of them were replaced or deleted.
    lost: Vec<Known>,
    /// The names of the checkpoints that other numbers of ranks have left in a cache.
    of_other_ranks: BTreeSet<Vec<u8>>,
    /// Whether there is a dataset in cache that could not be recovered.
    pub(crate) is_any_left: bool,
    /// The flush file, where rank 0 has found one that is not damaged.
    #[serde(skip)]
    pub(crate) flush: Option<FlushFile>,
}

/// A dataset that the index knows.
#[derive(Serialize, Deserialize)]
struct Known {
    seq: Seq,
    name: Vec<u8>,
    /// When it was started, where that is known: two datasets may have been given one id, where a node was away.
    created: u64,
    checkpoint: bool,
    /// Whether a run could not read it.
    failed: bool,
    /// Whether another dataset has its name.
    superseded: bool,
    /// Whether its files lie in containers.
    aggregated: bool,
}

impl Known {
    fn of(entry: IndexEntry) -> Self {
        let dataset = entry.dataset.as_ref();
        Self {
            seq: entry.seq(),
            created: dataset.map_or(0, |dataset| dataset.created),
            checkpoint: dataset.is_none_or(|dataset| dataset.checkpoint),
            failed: entry.failed.is_some(),
            superseded: entry.superseded,
            aggregated: dataset.is_some_and(|dataset| dataset.aggregated),
            name: entry.name,
        }
    }

    fn is(&self, dataset: &DatasetDescriptor) -> bool {
        let known = self.created != 0 && dataset.created != 0;
        self.name == dataset.name && (!known || self.created == dataset.created)
    }
}

impl PrefixState {
    /// Reads the prefix directory on rank 0, and reports damage. Collective.
    ///
    /// # Errors
    /// A file there cannot be read: a run that took it for missing would start fresh and ignore existing datasets.
    pub(crate) fn read(job: &Job) -> Result<Self, Error> {
        job.on_first(|| look_into_prefix(job)).doing("reading what the prefix directory has")
    }

    /// The names of the checkpoints that a run with the right number of ranks can restart from.
    pub(crate) fn good_names(&self) -> BTreeSet<Vec<u8>> {
        let good = self.complete.iter().filter(|known| known.checkpoint && !known.failed);
        good.map(|known| &known.name).chain(&self.of_other_ranks).cloned().collect()
    }

    /// The names of those of all listed checkpoints that `is_meant`, whether a run can read them or not. Rank 0 alone knows those
    /// in cache.
    pub(crate) fn listed_names(&self, is_meant: impl Fn(Seq) -> bool) -> BTreeSet<Vec<u8>> {
        let in_cache = self.flush.iter().flat_map(FlushFile::entries);
        let in_cache =
            in_cache.filter(|entry| entry.is_cached_checkpoint() && self.withdrawn(entry).is_none());
        let in_cache = in_cache.map(|entry| (entry.seq(), entry.dataset.name));
        let in_prefix = self.complete.iter().filter(|known| known.checkpoint && !known.superseded);
        let all = in_prefix.map(|known| (known.seq, known.name.clone())).chain(in_cache);
        all.filter(|(seq, _)| is_meant(*seq)).map(|(_, name)| name).collect()
    }

    /// Whether this very dataset is complete there.
    pub(crate) fn has(&self, seq: Seq, name: &[u8]) -> bool {
        let is_it = |known: &Known| known.seq == seq && known.name == name;
        self.complete.iter().any(|known| is_it(known) && !known.failed && !known.superseded)
    }

    /// Whether this is a checkpoint that lies in cache only, and that runs may restart from.
    pub(crate) fn lacks(&self, RankRecord { dataset, protection, .. }: &RankRecord) -> bool {
        let lies_there = protection.bypass || self.has(dataset.seq(), &dataset.name);
        dataset.checkpoint && !lies_there && self.withdrawn(dataset).is_none()
    }

    /// Whether this very dataset is marked as failed there.
    pub(crate) fn has_failed(&self, seq: Seq, name: &[u8]) -> bool {
        self.complete.iter().any(|known| known.seq == seq && known.name == name && known.failed)
    }

    /// The place of the checkpoint that a name stands for, if a run with the right number of ranks can restart from it.
    pub(super) fn place_of(&self, name: &[u8]) -> Option<Seq> {
        let good = self.complete.iter().filter(|known| known.checkpoint && !known.failed);
        good.filter(|known| known.name == name).map(|known| known.seq).max()
    }

    /// Why a run that restarts from nothing does so though there are checkpoints.
    pub(crate) fn unused(&self, cache: &Cache) -> Option<&'static str> {
        if self.complete.iter().any(|known| known.checkpoint) {
            return Some("this run could not use any of those in the index");
        }
        let in_cache = || cache.datasets().iter().any(|cached| cached.record.dataset.checkpoint);
        (self.is_any_left || in_cache()).then_some("this run could not use what is in cache")
    }

    /// Why the dataset at this place is not to come back from cache, if so. One that is listed, and did not fail, has been listed
    /// again since.
    pub(crate) fn withdrawn(&self, dataset: &DatasetDescriptor) -> Option<Withdrawal> {
        self.withdrawn_at(dataset.seq(), &dataset.name, dataset.if_gone_back_over())
    }

    /// The same for the one of this name at this place.
    pub(crate) fn withdrawn_at(&self, seq: Seq, name: &[u8], over: Option<Withdrawal>) -> Option<Withdrawal> {
        let is_it = |known: &Known| known.seq == seq && !known.failed && !known.superseded;
        self.withdrawn.why(seq, name, over).filter(|_| !self.complete.iter().any(is_it))
    }

    /// Whether no run can flush the dataset at this place any more, for a newer one that is complete there.
    pub(crate) fn is_replaced(&self, seq: Seq) -> bool {
        self.replaced.contains(&seq)
    }

    /// Marks the datasets in cache that are in the prefix directory, and those that must not get there any more: their name
    /// or their number refers to another one.
    pub(crate) fn mark_flushed(&self, job: &Job, cache: &mut Cache) {
        for cached in cache.datasets_mut() {
            let listed = self.complete.iter().find(|other| other.seq.id == cached.record.dataset.id);
            cached.prefix = self.copy_of(cached, listed);
            if let Some(other) = listed.filter(|listed| !listed.is(&cached.record.dataset)) {
                job.report.warn(&format!(
                    "{} in cache is not the dataset `{}' that the index of the prefix directory has under this number: it \
                     will not be flushed. It was written while nodes were away on which this one lies",
                    cached.record.label(),
                    String::from_utf8_lossy(&other.name)
                ));
            }
        }
        let names: Vec<_> =
            self.complete.iter().map(|other| (other.seq, other.name.clone(), !other.failed)).collect();
        cache.mark_superseded(&names);
    }

    /// What the prefix directory has of a dataset in cache. `listed` is what the index has under its number.
    fn copy_of(&self, cached: &CachedDataset, listed: Option<&Known>) -> InPrefix {
        let (own, id, dataset) = (cached.seq(), cached.record.dataset.id, &cached.record.dataset);
        let copy = listed.and_then(|same| InPrefix::listed(same.aggregated, same.failed, cached.standing));
        // A checkpoint that is left in cache may be the only one, so it is flushed like any other.
        let is_purged = self.purged.contains(&id) && !dataset.checkpoint;
        // A dataset that is also in cache is flushed again.
        let lies_there = cached.record.protection.bypass;
        let is_gone = |lost: &Known| {
            let is_it = (lost.seq.id, lost.created) == (id, dataset.created);
            // The entry of the older one has left the index.
            is_it || lost.name == dataset.name && lost.seq > own
        };
        match (listed, copy) {
            (Some(other), _) if !other.is(dataset) => InPrefix::Superseded,
            (_, Some(copy)) => copy,
            _ if is_purged || self.is_replaced(own) => InPrefix::Superseded,
            _ if lies_there && self.lost.iter().any(is_gone) => InPrefix::Superseded,
            _ => InPrefix::Missing,
        }
    }
}

fn look_into_prefix(job: &Job) -> Result<PrefixState, PrefixError> {
    let (files, prefix) = (job.files(), &job.prefix);
    let index = job.ledger().index()?;
    let flush = FlushFile::read_undamaged(files, prefix)?;
    let ids = prefix.dataset_ids(files)?;
    let listed = index.highest_id().max(flush.as_ref().and_then(FlushFile::highest_id)).unwrap_or(0);
    let order = ledger::in_order(&index, None).list;
    let numbers = job.ledger().numbers()?;
    let entries = flush.as_ref().map(FlushFile::entries).unwrap_or_default();
    let replaced = entries.iter().filter(|entry| entry.replaced_in(&index).is_some());
    let is_of_others = |entry: &&FlushEntry| {
        entry.is_cached_checkpoint() && entry.restart_point().ranks != Some(job.comm.size())
    };
    let known = index.entries().into_iter().filter(|entry| entry.complete || entry.flushed.is_some());
    let (complete, lost): (Vec<_>, Vec<_>) = known.partition(|entry| entry.complete);
    Ok(PrefixState {
        highest: ids.into_iter().fold(listed, u64::max),
        is_chosen: order.first().is_some_and(|first| order.iter().any(|other| other.seq > first.seq)),
        first: order.into_iter().next(),
        complete: complete.into_iter().map(Known::of).collect(),
        purged: numbers.purged(),
        replaced: replaced.map(|entry| entry.seq()).collect(),
        withdrawn: numbers.withdrawn(),
        last_begun: index.last_begun(),
        lost: lost.into_iter().map(Known::of).collect(),
        of_other_ranks: entries.iter().filter(is_of_others).map(|entry| entry.name.clone()).collect(),
        is_any_left: false,
        flush,
    })
}

/// A dataset that an earlier run has flushed counts as not flushed if a file of it has been given to a newer dataset since, which
/// has failed. If the application reads in the prefix directory, it also has to equal what is in cache. Files in containers are
/// given to nobody. Collective.
pub(crate) fn compare_flushed(job: &Job, cache: &mut Cache, in_prefix: &PrefixState) -> Result<(), Error> {
    let global = job.params.get(&param::GLOBAL_RESTART);
    for at in 0..cache.datasets().len() {
        let cached = &cache.datasets()[at];
        if !cached.prefix.has_files() || cached.record.protection.bypass {
            continue;
        }
        let suspect = ledger::is_suspect(in_prefix.last_begun, cached.seq());
        let same = match (global, suspect) {
            (true, _) => is_same_in_prefix(job, &cached.record, suspect).map_err(PrefixError::from),
            (false, true) => expect_not_given_out(job, &cached.record).map_err(PrefixError::from),
            (false, false) => expect_summary(job, &cached.record),
        };
        if let Err(error) = job.agree(same) {
            let why = error.agreed()?;
            let label = cached.record.label();
            job.report.warn(&format!("{label} is to be flushed again from cache: {why}"));
            cache.datasets_mut()[at].prefix.lose();
        }
    }
    Ok(())
}

/// Rank 0 looks: without it no run fetches the dataset, and nobody else may notice before the caches are gone.
fn expect_summary(job: &Job, record: &RankRecord) -> Result<(), PrefixError> {
    let look = || Summary::require(job.files(), &job.prefix, record.dataset.id);
    match (job.rank() == Rank(0)).then(look) {
        Some(Err(error)) if error.is_damage() => Err(error),
        _ => Ok(()),
    }
}

fn expect_not_given_out(job: &Job, record: &RankRecord) -> Result<(), FileError> {
    record.files.iter().try_for_each(|file| {
        match Overwritten::since(job.files(), &job.prefix, &file.name, record.seq())? {
            true => Err(FileError::GivenOut { path: record.prefix_path(file) }),
            false => Ok(()),
        }
    })
}

/// If files of it are `suspect`, only checksums prove that they were not replaced.
fn is_same_in_prefix(job: &Job, record: &RankRecord, suspect: bool) -> Result<(), FileError> {
    let block_bytes = job.params.get(&param::FILE_BUF_SIZE);
    let checksums = job.params.get(&param::CRC_ON_FLUSH);
    record.files.iter().try_for_each(|file| {
        let (files, path) = (job.files(), record.prefix_path(file));
        let overwritten = suspect || Overwritten::since(files, &job.prefix, &file.name, record.seq())?;
        if overwritten && file.crc.is_none() {
            return Err(FileError::Unproven { path });
        }
        let crc = file.crc.filter(|_| checksums || overwritten);
        expect_bytes(files, &path, file.bytes, crc, block_bytes)
    })
}

/// Why the bytes that the application has read may be those of two datasets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplacedError {
    /// Somebody was given a file of it.
    #[error("another job was given {} to write over while this one read it; {CURE}", path.display())]
    GivenOut { path: PathBuf },
    /// It was never listed, so only its time tells.
    #[error("{} was changed while this job read it; {CURE}", path.display())]
    Changed { path: PathBuf },
    /// Its name or its files belong to another dataset, or it was deleted.
    #[error("another job or a command has replaced or removed it while this job read its files; {CURE}")]
    NotWhole,
    #[error("whether another job has written over its files cannot be found out")]
    Unknown(#[source] PrefixError),
}

const UNREAD: &str = "this run could not read it. To restart from it, end this run before it writes a checkpoint, correct what an \
                      earlier message names, and start again";

const CURE: &str = "give each job a prefix directory of its own (SCR_PREFIX)";

impl From<FsError> for ReplacedError {
    fn from(error: FsError) -> Self {
        Self::Unknown(error.into())
    }
}

impl Restart {
    /// Says which checkpoint is newer than the one that is loaded and was not read, by this run or by an earlier one.
    pub(crate) fn report_passed_over(&self, job: &Job, cache: &Cache, in_prefix: &PrefixState) {
        let is_kept = |Known { seq, name, .. }: &&Known| {
            in_prefix.withdrawn_at(*seq, name, Some(Withdrawal::Removed)).is_none()
        };
        let failed =
            in_prefix.complete.iter().filter(|known| known.checkpoint && known.failed && !known.superseded);
        let failed = failed.filter(is_kept).map(|Known { seq, name, .. }| {
            let cure = format!("`scr index --build {}' compares them and lists it again", seq.id);
            let why = format!("it was found damaged. If its files are back, {cure}");
            (*seq, String::from_utf8_lossy(name).into_owned(), why)
        });
        // It has been said why one in cache is not read in the prefix directory, and if there is none the run does not begin.
        let is_away = |(seq, _): &&Unread| cache.datasets().iter().all(|cached| cached.seq() != *seq);
        let unread = self.unread.iter().filter(|unread| self.loaded.is_some() && is_away(unread));
        let unread = unread.map(|(seq, name)| (*seq, name.clone(), UNREAD.to_owned()));
        let newest = failed.chain(unread).filter(|(seq, ..)| !self.has_given_up(*seq)).max();
        let loaded = self.seq(cache);
        if let Some((Seq { id, .. }, name, why)) = newest.filter(|(seq, ..)| Some(*seq) > loaded) {
            job.report.warn(&format!("dataset {id} `{name}' is newer, and is passed over: {why}"));
        }
        let own = job.params.get(&param::JOB_ID);
        let mut listed = in_prefix.flush.iter().flat_map(FlushFile::entries);
        let entry = listed.find(|entry| Some(entry.seq()) == loaded);
        let other = entry.as_ref().and_then(|entry| entry.allocation()).filter(|of| *of != own);
        let older = cache.datasets().iter().filter(|cached| Some(cached.seq()) < loaded);
        // One that has lost its name cannot be named.
        let only =
            older.filter(|cached| in_prefix.lacks(&cached.record) && !in_prefix.is_replaced(cached.seq()));
        if let (Some(other), Some(only)) = (other, only.max_by_key(|cached| cached.seq())) {
            job.report.warn(&format!(
                "{} is in cache only, and is passed over: allocation {other} has gone on from a checkpoint before. To restart from it, \
                 end this run before it writes a checkpoint, and start with SCR_CURRENT={}",
                only.record.label(),
                only.record.dataset.name_text()
            ));
        }
    }

    /// Expects that the application has read nothing that another process was given to write over. All ranks have read their
    /// files. Collective, if it has read in the prefix directory.
    ///
    /// # Errors
    /// The ranks cannot talk. The inner error is that of this rank.
    pub(crate) fn expect_kept(
        &self,
        job: &Job,
        cache: &Cache,
    ) -> Result<Result<(), ReplacedError>, CommError> {
        let Some(cached) = self.checkpoint(cache).filter(|cached| cached.is_read_in_prefix(job)) else {
            return Ok(Ok(()));
        };
        let kept = cached.record.files.iter().try_for_each(|file| expect_kept(job, cached, file));
        // A record of a file goes after the index has changed: so the index is asked once all ranks have looked for records.
        let is_given_out = job.any(kept.is_err())?;
        Ok(match job.rank() {
            Rank(0) if !is_given_out => expect_whole(job, cached),
            _ => kept,
        })
    }
}

fn expect_whole(job: &Job, cached: &CachedDataset) -> Result<(), ReplacedError> {
    let checkpoint = cached.checkpoint();
    let is_kept = !cached.prefix.is_whole()
        || job
            .ledger()
            .look(|index| index.is_whole(checkpoint.seq.id, &checkpoint.name))
            .map_err(ReplacedError::Unknown)?;
    is_kept.then_some(()).ok_or(ReplacedError::NotWhole)
}

/// The record of a file may be older than this run. Then its checksum was right when the dataset was offered, and still is.
fn expect_kept(job: &Job, cached: &CachedDataset, file: &FileRecord) -> Result<(), ReplacedError> {
    let (files, record) = (job.files(), &cached.record);
    let is_given_out = Overwritten::since(files, &job.prefix, &file.name, record.seq())?;
    if !is_given_out && cached.prefix.is_whole() {
        return Ok(());
    }
    let path = record.prefix_path(file);
    let is_untouched =
        !record.protection.bypass || files.status(&path).at("look at", &path)?.mtime == file.mtime;
    if !is_given_out {
        return is_untouched.then_some(()).ok_or(ReplacedError::Changed { path });
    }
    let block_bytes = job.params.get(&param::FILE_BUF_SIZE);
    let is_proven = is_untouched
        && file.crc.is_some()
        && expect_bytes(files, &path, file.bytes, file.crc, block_bytes).is_ok();
    is_proven.then_some(()).ok_or(ReplacedError::GivenOut { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a node was away, two datasets may have been given one number, and even one name.
    #[test]
    fn a_dataset_in_cache_is_the_one_of_its_number_only_if_name_and_time_say_so() {
        let is = |created, name: &str, other| {
            let known = Known {
                seq: Seq { run: 1, id: 4 },
                name: b"ckpt.4".to_vec(),
                created,
                checkpoint: true,
                failed: false,
                superseded: false,
                aggregated: false,
            };
            let name = name.as_bytes().to_vec();
            known.is(&DatasetDescriptor { id: 4, name, created: other, ..Default::default() })
        };
        assert!(is(17, "ckpt.4", 17) && !is(17, "ckpt.4", 18) && !is(17, "ckpt.5", 17));
        // C SCR does not say when.
        assert!(is(0, "ckpt.4", 18) && is(17, "ckpt.4", 0) && !is(0, "ckpt.5", 18));
    }
}
