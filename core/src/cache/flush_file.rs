//! The flush file, which lists the datasets in cache for commands. Rank 0 writes it.

use super::dataset::CachedDataset;
use super::Cache;
use crate::job::Job;
use scr_comm::Rank;
use scr_config::param;
use scr_prefix::{FlushEntry, FlushFile, Location, RestartPoint, Seq};

impl Cache {
    /// Reports the checkpoint that an earlier run has left only in cache, if no node of this run has anything of it: the job is
    /// about to repeat work. `seen` are the ids of which any node has something, `of_twins` those that belong to the other one of
    /// two copies of the prefix directory, which has been said, and `newest` the place of what would be restarted from. Rank 0
    /// knows whether there is one, and gives why the run cannot restart from it.
    pub(crate) fn report_missing(
        &self,
        job: &Job,
        seen: &[u64],
        of_twins: &[u64],
        newest: Seq,
    ) -> Option<&'static str> {
        if job.rank() != Rank(0) {
            return None;
        }
        let file = match FlushFile::read(job.files(), &job.prefix) {
            Err(error) if error.is_damage() => {
                return Some("flush.scr, which lists those in cache only, is damaged")
            }
            // That it cannot be read is reported where it is renewed.
            read => read.ok()?,
        };
        let is_missing = |entry: &FlushEntry| {
            let only_cached = entry.is_at(Location::Cache) && !entry.is_at(Location::Prefix);
            only_cached && entry.checkpoint && entry.seq() > newest && !seen.contains(&entry.id)
        };
        let is_newer = |lost: &FlushEntry| {
            let size = job.comm.size();
            let is_for_us = lost.restart_point().ranks.is_none_or(|ranks| ranks == size);
            (is_for_us || job.params.get(&param::RESTART_OTHER_RANKS)) && lost.seq() > newest
        };
        let lost = file.lost().into_iter().find(is_newer);
        let missing = file.entries().into_iter().find(is_missing);
        if let Some(lost) =
            lost.filter(|lost| missing.as_ref().is_none_or(|missing| missing.seq() < lost.seq()))
        {
            let name = String::from_utf8_lossy(&lost.name);
            job.report.notice(&format!(
                "dataset {} `{name}' was complete and is lost: it was only in cache, and had to make room there for a newer \
                 checkpoint, which was never completed. `scr index --drop {name}' forgets it",
                lost.id
            ));
            return Some("the newest one has left the cache for one that was never completed");
        }
        let missing = missing?;
        if of_twins.contains(&missing.id) {
            return Some("the one in cache belongs to another prefix directory with the id of this one");
        }
        Some(self.report_in_cache_only(job, &missing))
    }

    /// Says where a checkpoint is that this run does not see, and what to do. Gives why the run cannot restart from it.
    fn report_in_cache_only(&self, job: &Job, missing: &FlushEntry) -> &'static str {
        let (id, name) = (missing.id, String::from_utf8_lossy(&missing.name));
        if let Some(other) = other_allocation(job, missing) {
            job.report.notice(&format!(
                "dataset {id} `{name}' is only in the cache of allocation {other}, which this run does not look at; if its nodes \
                 are still there, end this run, and start it on them with SCR_JOB_ID={other}, or save the dataset first with \
                 SCR_JOB_ID={other} scr postrun"
            ));
            return "another allocation has one in its cache only";
        }
        let user = job.params.get(&param::USER_NAME);
        job.report.notice(&format!(
            "dataset {id} `{name}' of an earlier run is in cache only, and no node of this run has anything of it in {}; if its \
             nodes are only away, or it lies in another folder there, end this run, and start it on them with the SCR_CACHE_BASE \
             and STORE lines of the run that wrote it; if the job was called by another user name then, set SCR_USER_NAME to \
             that; this run is called {user}. Until this job has completed a newer checkpoint, `scr postrun' saves it",
            self.stores().iter().map(|store| store.name.as_str()).collect::<Vec<_>>().join(" or ")
        ));
        "an earlier run has left one in cache that no node of this run has"
    }

    /// Makes the flush file list the datasets that are in cache now, also those that this run cannot use or does not see, and
    /// that are newer than the one to restart from, which is at `newest`: `scr postrun` saves them, or says what is lost. Only
    /// what this run completes takes their place. Entries of datasets that only another allocation has in cache stay, except a
    /// checkpoint that is older than that one in the same run. The newest of the entries that were passed over stay, too. One
    /// that another number of ranks wrote is not older than what this run restarts from. An entry also leaves if a newer dataset
    /// has its name in the prefix directory: nobody could save it.
    pub(crate) fn renew_flush_file(&mut self, job: &Job, newest: Seq, left: &Left<'_>) {
        let renewed = change_flush_file(job, true, |flush| {
            let newest = RestartPoint { seq: newest, ..job.descriptor_of_job().restart_point() };
            let is_wanted = |entry: &FlushEntry| entry.is_still_wanted(|older| newest.replaces(older));
            let mut passed_over = 0;
            for entry in flush.entries() {
                let is_replaced = (left.is_replaced)(&entry);
                let is_elsewhere = !is_replaced && other_allocation(job, &entry).is_some() && {
                    let is_passed_over = entry.is_unsaved_before(newest.seq.run);
                    passed_over += usize::from(is_passed_over);
                    is_wanted(&entry) || is_passed_over && passed_over <= MOST_PASSED_OVER
                };
                let is_left = !left.is_purged && !is_replaced && is_wanted(&entry);
                let is_left = is_left && !(left.is_withdrawn)(&entry);
                if self.dataset(entry.id).is_none() && !is_elsewhere && !is_left {
                    flush.remove_location(entry.id, Location::Cache);
                }
                let damaged = left.damaged.iter().find(|(seq, _)| *seq == entry.seq());
                damaged.into_iter().for_each(|(_, why)| flush.record_damage(entry.id, why));
                if !left.is_other_job {
                    flush.end_flush(entry.id, false);
                }
            }
            self.datasets.iter().for_each(|cached| cached.list_in(flush));
            flush.forget_lost(|lost| left.is_purged || newest.replaces(lost.restart_point()));
        });
        self.datasets.iter_mut().for_each(|cached| cached.listed = renewed);
    }

    /// Records what is in cache, and in the same step that `leaving` is about to leave: the file is on the parallel file system,
    /// where every write takes long. It also records what an earlier call could not record, and everything if the file is
    /// damaged. A checkpoint of this allocation of which this run has found nothing leaves the file once a newer one of its name
    /// counts.
    pub(crate) fn record_in_cache(&mut self, job: &Job, leaving: Option<u64>) {
        let leaving =
            leaving.filter(|&id| !self.dataset(id).is_some_and(|leaving| leaving.claim.is_others()));
        let stays = |cached: &CachedDataset| Some(cached.id()) != leaving;
        let recorded = change_flush_file(job, true, |flush| {
            self.datasets.iter().filter(|cached| stays(cached)).for_each(|cached| cached.list_in(flush));
            leaving.into_iter().for_each(|id| flush.remove_location(id, Location::Cache));
            let counting = || self.datasets.iter().filter(|cached| cached.holding().counts());
            let is_newer = |newer: &CachedDataset, older: &FlushEntry| {
                newer.record.restart_point().replaces(older.restart_point())
            };
            flush.forget_lost(|lost| counting().any(|newer| is_newer(newer, lost)));
            let is_named_again = |entry: &FlushEntry| {
                let is_unseen = self.dataset(entry.id).is_none() && other_allocation(job, entry).is_none();
                let has_its_name = |newer: &CachedDataset| newer.record.dataset.name == entry.name;
                is_unseen
                    && entry.is_only_checkpoint()
                    && counting().any(|newer| has_its_name(newer) && is_newer(newer, entry))
            };
            let named_again = flush.entries().into_iter().filter(is_named_again);
            named_again.for_each(|entry| flush.remove_location(entry.id, Location::Cache));
        });
        if recorded {
            self.datasets.iter_mut().for_each(|cached| cached.listed = stays(cached));
        }
    }

    /// Records how a dataset in cache stands now.
    pub(crate) fn relist(&self, job: &Job, id: u64) {
        let Some(cached) = self.dataset(id) else { return };
        update_flush_file(job, |flush| cached.list_in(flush));
    }

    /// Records those that were expected to leave and have stayed.
    pub(crate) fn record_stayed(&mut self, job: &Job) {
        if self.datasets.iter().any(|cached| !cached.listed) {
            self.record_in_cache(job, None);
        }
    }

    /// Records that a dataset has left. If it was the newest checkpoint, and is nowhere else, later runs are to say so.
    pub(super) fn record_evicted(&self, job: &Job, cached: &CachedDataset) {
        if cached.is_of_other_ranks() {
            // The parts of those who wrote it have not left.
            return;
        }
        let is_newer = |other: &CachedDataset| other.holding().counts() && other.seq() > cached.seq();
        let held = cached.holding();
        let is_wanted = held.counts() && held.is_wanted() && !held.prefix.is_whole();
        if is_wanted && !self.datasets.iter().any(is_newer) {
            update_flush_file(job, |flush| flush.record_lost(&cached.record.dataset));
        } else if cached.listed {
            update_flush_file(job, |flush| flush.remove_location(cached.id(), Location::Cache));
        }
    }
}

/// The datasets that a run has found and that are not its own.
pub(crate) struct Left<'a> {
    /// Whether the cache of this allocation was purged.
    pub(crate) is_purged: bool,
    /// Which datasets were dropped.
    pub(crate) is_withdrawn: &'a dyn Fn(&FlushEntry) -> bool,
    /// Which datasets have lost their name, or files, to a newer one that is in the prefix directory.
    pub(crate) is_replaced: &'a dyn Fn(&FlushEntry) -> bool,
    /// Those in which this run has found wrong bytes, and why it could not bring them back.
    pub(crate) damaged: &'a [(Seq, String)],
    /// Whether another job runs in the prefix directory, whose flushes may be under way.
    pub(crate) is_other_job: bool,
}

/// The file remembers this many checkpoints in caches of other allocations that runs have passed over.
const MOST_PASSED_OVER: usize = 16;

/// The id of the allocation that has a dataset, if it is another one.
fn other_allocation<'e>(job: &Job, entry: &'e FlushEntry) -> Option<&'e str> {
    entry.allocation().filter(|of| *of != job.params.get(&param::JOB_ID))
}

/// Changes the flush file. It is only for commands: if it cannot be written, the run continues.
pub(crate) fn update_flush_file(job: &Job, change: impl FnOnce(&mut FlushFile)) {
    change_flush_file(job, false, change);
}

/// The same, where a damaged one `is_renewed`. Gives whether it was changed.
fn change_flush_file(job: &Job, is_renewed: bool, change: impl FnOnce(&mut FlushFile)) -> bool {
    if job.rank() != Rank(0) {
        return true;
    }
    let change = |flush: &mut FlushFile| {
        flush.set_prefix_id(job.run.prefix.as_ref());
        change(flush);
    };
    let changed = match is_renewed {
        true => FlushFile::renew(job.files(), &job.prefix, change),
        false => FlushFile::update(job.files(), &job.prefix, change),
    };
    changed.inspect_err(|error| job.report.error(&scr_base::describe(error))).is_ok()
}
