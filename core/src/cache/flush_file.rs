//! The flush file, which lists the datasets in cache for commands. Rank 0 writes it.

use super::dataset::CachedDataset;
use super::Cache;
use crate::holdings::Lies;
use crate::job::Job;
use crate::restart::Unread;
use scr_comm::Rank;
use scr_config::param;
use scr_prefix::{FlushEntry, FlushFile, Location, RestartPoint, Seq};
use std::collections::BTreeSet;

impl Cache {
    /// Reports the checkpoint that an earlier run has left only in cache, if no node of this run has anything of it: the job is
    /// about to repeat work. `seen` are the ids of which any node has something, and `newest` is the place of what would be
    /// restarted from. It has been said which ids belong to the other one of two copies of the prefix directory (`of_twins`), and
    /// which this release cannot read (`of_other_release`). Those that are `known` the index has whole, or nobody wants. Rank 0
    /// knows whether there is one. Gives which, if another release wrote it, or else why the run cannot restart from it.
    pub(crate) fn report_missing(
        &self,
        job: &Job,
        file: Option<&FlushFile>,
        seen: &[u64],
        (of_twins, of_other_release): (&[u64], &[u64]),
        newest: Seq,
        is_known: &dyn Fn(&FlushEntry) -> bool,
    ) -> Option<Result<Unread, String>> {
        let why = |why: &str| Some(Err(why.to_owned()));
        if job.rank() != Rank(0) {
            return None;
        }
        let Some(file) = file else { return why("flush.scr, which lists those in cache only, is damaged") };
        let is_missing = |entry: &FlushEntry| {
            let only_cached = entry.is_at(Location::Cache) && !entry.is_at(Location::Prefix);
            only_cached
                && !is_known(entry)
                && entry.checkpoint
                && entry.seq() > newest
                && !seen.contains(&entry.id)
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
            job.report.warn(&format!(
                "dataset {} `{name}' was complete and is lost: it was only in cache, and had to make room there for a newer \
                 checkpoint, which was never completed. `scr index --drop {name}' forgets it",
                lost.id
            ));
            return why("the newest one has left the cache for one that was never completed");
        }
        let missing = missing?;
        if of_twins.contains(&missing.id) {
            return why("the one in cache belongs to another prefix directory with the id of this one");
        }
        if of_other_release.contains(&missing.id) && other_allocation(job, &missing).is_none() {
            return Some(Ok((missing.seq(), missing.name_text())));
        }
        why(self.report_in_cache_only(job, &missing))
    }

    /// Says where a checkpoint is that this run does not see, and what to do. Gives why the run cannot restart from it.
    fn report_in_cache_only(&self, job: &Job, missing: &FlushEntry) -> &'static str {
        let (id, name) = (missing.id, String::from_utf8_lossy(&missing.name));
        if let Some(other) = other_allocation(job, missing) {
            job.report.warn(&format!(
                "dataset {id} `{name}' is only in the cache of allocation {other}, which this run does not look at; if its nodes \
                 are still there, end this run, and start it on them with SCR_JOB_ID={other}, or save the dataset first with \
                 SCR_JOB_ID={other} scr postrun"
            ));
            return "another allocation has one in its cache only";
        }
        let user = job.params.get(&param::USER_NAME);
        job.report.warn(&format!(
            "dataset {id} `{name}' of an earlier run is in cache only, and no node of this run has anything of it in {}; if its \
             nodes are only away, or it lies in another folder there, end this run, and start it on them with the SCR_CACHE_BASE \
             and STORE lines of the run that wrote it; if the job was called by another user name then, set SCR_USER_NAME to \
             that; this run is called {user}. Until this job has completed a newer checkpoint, `scr postrun' saves it",
            self.stores().iter().map(|store| store.name.as_str()).collect::<Vec<_>>().join(" or ")
        ));
        "an earlier run has left one in cache that no node of this run has"
    }

    /// Makes the flush file say what is in cache now, and what the datasets there do not say: the only place where a run changes
    /// it. If it cannot be written, the run continues, and the next call that can writes all. A damaged one is replaced.
    pub(crate) fn list(&mut self, job: &Job, news: News<'_>) {
        let listed = self.to_be_listed();
        let recorded = match job.rank() {
            Rank(0) => FlushFile::update(job.files(), &job.prefix, |flush| {
                flush.set_prefix_id(job.run.prefix.as_ref());
                self.write_into(flush, job, &listed, &news);
            }),
            _ => Ok(()),
        };
        match recorded {
            Ok(()) => (self.listed, self.lost, self.is_unlisted) = (listed, Vec::new(), false),
            Err(_) if std::mem::replace(&mut self.is_unlisted, true) => (),
            Err(error) => job.report.error(&format!(
                "flush.scr, which lists the datasets in cache, cannot be written: {}. Until it can be, a later run that does not see \
                 this cache does not know of the checkpoints there, and begins without them, even with SCR_REQUIRE_RESTART=1; make \
                 room in the prefix directory, or let this user write there",
                scr_base::describe(&error)
            )),
        }
    }

    /// The same where a dataset counts now, and in the same step that another one is about to leave its store: the file is on the
    /// parallel file system, where every write takes long.
    pub(crate) fn list_counting(&mut self, job: &Job, store: usize) {
        let leaving = self.victim(store, self.limit_after(store)).map(|victim| victim.id);
        // Which one is to leave depends on how the flushes end.
        let is_quiet = !self.datasets.iter().any(|cached| cached.prefix.is_under_way());
        let is_others = |id: &u64| self.dataset(*id).is_some_and(|leaving| leaving.claim.is_others());
        self.leaving = leaving.filter(|id| is_quiet && !is_others(id));
        self.list(job, News::None);
    }

    /// The same where one that was expected to leave has stayed, or an earlier call could not say all.
    pub(crate) fn list_stayed(&mut self, job: &Job) {
        self.leaving = None;
        if self.listed != self.to_be_listed() {
            self.list(job, News::None);
        }
    }

    /// The same where datasets have left.
    pub(crate) fn list_left(&mut self, job: &Job) {
        if !(self.lost.is_empty() && self.listed.is_subset(&self.to_be_listed())) {
            self.list(job, News::None);
        }
    }

    /// A dataset has left. If it was the newest checkpoint, and is nowhere else, later runs are to say so.
    pub(super) fn note_left(&mut self, cached: &CachedDataset) {
        let is_newer = |other: &CachedDataset| other.holding().counts() && other.seq() > cached.seq();
        let held = cached.holding();
        let was_here = held.cache != Lies::InPlace && !held.is_of_others;
        let is_wanted = was_here && held.is_wanted() && !held.prefix.is_whole();
        if is_wanted && !self.datasets.iter().any(is_newer) {
            self.lost.push(cached.record.dataset.clone());
        }
    }

    /// The ids under which datasets are to be listed as in cache.
    fn to_be_listed(&self) -> BTreeSet<u64> {
        let stay = self.datasets.iter().filter(|cached| Some(cached.id()) != self.leaving);
        stay.map(|cached| cached.record.dataset.id).chain(self.lent.iter().copied()).collect()
    }

    /// The contents of the file, which also has datasets that only other runs know. A checkpoint of this allocation of which this
    /// run has found nothing leaves it once a newer one of its name counts.
    fn write_into(&self, flush: &mut FlushFile, job: &Job, listed: &BTreeSet<u64>, news: &News<'_>) {
        if let News::Begun(left) = news {
            self.write_begun(flush, job, left, listed);
        }
        self.listed.difference(listed).for_each(|&id| flush.remove_location(id, Location::Cache));
        let stay = self.datasets.iter().filter(|cached| listed.contains(&cached.record.dataset.id));
        stay.for_each(|cached| cached.list_in(flush));
        self.lost.iter().for_each(|lost| flush.record_lost(lost));
        let counting = || self.datasets.iter().filter(|cached| cached.holding().counts());
        let is_newer = |newer: &CachedDataset, older: &FlushEntry| {
            newer.record.restart_point().replaces(older.restart_point())
        };
        flush.forget_lost(|lost| counting().any(|newer| is_newer(newer, lost)));
        let is_named_again = |entry: &FlushEntry| {
            let is_unseen = !listed.contains(&entry.id) && other_allocation(job, entry).is_none();
            let has_its_name = |newer: &CachedDataset| newer.record.dataset.name == entry.name;
            is_unseen
                && entry.is_only_checkpoint()
                && counting().any(|newer| has_its_name(newer) && is_newer(newer, entry))
        };
        let is_given_up = |entry: &FlushEntry| matches!(news, News::GivenUp(is_it) if is_it(entry));
        let left = flush.entries().into_iter().filter(|entry| is_named_again(entry) || is_given_up(entry));
        left.for_each(|entry| flush.remove_location(entry.id, Location::Cache));
        flush.forget_lost(is_given_up);
        match *news {
            News::FlushInCall(dataset) => _ = flush.add_location(dataset, Location::SyncFlushing),
            News::Replaced { dataset, newer } => flush.record_replaced(dataset, newer),
            News::None | News::Begun(_) | News::GivenUp(_) => (),
        }
    }

    /// Entries of datasets that this run cannot use or does not see stay if they are newer than the one to restart from: `scr
    /// postrun` saves them, or says what is lost. Only what this run completes takes their place. The newest of the older ones stay,
    /// too: whoever drops one by its name must find its place, as nodes that are away may have it. One that another number of ranks
    /// wrote is not older than what this run restarts from. An entry also leaves if a newer dataset has its name in the prefix
    /// directory: nobody could save it.
    fn write_begun(&self, flush: &mut FlushFile, job: &Job, left: &Left<'_>, listed: &BTreeSet<u64>) {
        let newest = RestartPoint { seq: left.newest, ..job.descriptor_of_job().restart_point() };
        let is_wanted = |entry: &FlushEntry| entry.is_still_wanted(|older| newest.replaces(older));
        let saved = flush.entries().into_iter().filter(|entry| (left.is_saved)(entry));
        saved.for_each(|entry| _ = flush.add_location(entry.id, Location::Prefix));
        let mut passed_over = 0;
        for entry in flush.entries() {
            let is_passed_over = entry.is_unsaved_before(newest.seq.run);
            let (is_elsewhere, is_gone) = (other_allocation(job, &entry).is_some(), (left.is_gone)(&entry));
            passed_over += usize::from(is_passed_over && !is_gone);
            let is_kept = is_wanted(&entry) || is_passed_over && passed_over <= MOST_PASSED_OVER;
            let is_left = is_kept && (is_elsewhere || !left.is_purged);
            if !listed.contains(&entry.id) && (is_gone || !is_left) {
                flush.remove_location(entry.id, Location::Cache);
            }
            let damaged = left.damaged.iter().find(|(seq, _)| *seq == entry.seq());
            damaged.into_iter().for_each(|(_, why)| flush.record_damage(entry.id, why));
            if !left.is_other_job {
                flush.end_flush(entry.id, false);
            }
        }
        flush.forget_lost(|lost| left.is_purged || newest.replaces(lost.restart_point()));
    }
}

/// What has happened that the datasets in cache do not say.
#[derive(Clone, Copy)]
pub(crate) enum News<'a> {
    /// Nothing.
    None,
    /// The run has begun, and has found these.
    Begun(Left<'a>),
    /// The application waits for the flush of this dataset, and a watchdog allows more time.
    FlushInCall(u64),
    /// A dataset was not flushed, as a newer one has its files: later runs neither try nor say it again.
    Replaced { dataset: u64, newer: u64 },
    /// The user or the application has given these up: nobody is to save them.
    GivenUp(&'a dyn Fn(&FlushEntry) -> bool),
}

/// The datasets that a run has found and that are not its own.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    /// The place of the checkpoint to restart from.
    pub(crate) newest: Seq,
    /// Whether the cache of this allocation was purged.
    pub(crate) is_purged: bool,
    /// Which datasets the index has whole.
    pub(crate) is_saved: &'a dyn Fn(&FlushEntry) -> bool,
    /// Which datasets were dropped, or have lost their name, or files, to a newer one in the prefix directory.
    pub(crate) is_gone: &'a dyn Fn(&FlushEntry) -> bool,
    /// Those in which this run has found wrong bytes, and why it could not bring them back.
    pub(crate) damaged: &'a [(Seq, String)],
    /// Whether another job runs in the prefix directory, whose flushes may be under way.
    pub(crate) is_other_job: bool,
}

/// The file remembers this many checkpoints in caches that runs do not see and have passed over.
const MOST_PASSED_OVER: usize = 16;

/// The id of the allocation that has a dataset, if it is another one.
fn other_allocation<'e>(job: &Job, entry: &'e FlushEntry) -> Option<&'e str> {
    entry.allocation().filter(|of| *of != job.params.get(&param::JOB_ID))
}
