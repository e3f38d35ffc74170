//! `SCR_Start_output`: all ranks agree on a dataset, and begin it.

use super::{events, Output};
use crate::cache::record::RankRecord;
use crate::cache::{Cache, CachedDataset, CheckpointId, Crowded};
use crate::error::Doing as _;
use crate::flush::Flushes;
use crate::job::{Job, Said};
use crate::redundancy::schemes::Schemes;
use crate::restart::newest_cached;
use crate::session::init::warn_of_other_job;
use crate::session::{Error, OutputFlags, Phase, Retry, Session, MAX_FILENAME};
use scr_comm::collective::{all_reduce, first_rank, Op};
use scr_comm::{Collective, Rank};
use scr_config::descriptor::Redundancy;
use scr_config::param;
use scr_prefix::{
    rank2file, DatasetDescriptor, FlushEntry, FlushFile, IndexEntry, PrefixError, RestartPoint,
};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

impl Session {
    /// Begins a dataset. Collective. See `SCR_Start_output` in docs/user/c-api.md.
    ///
    /// # Errors
    /// [`Error`]; no dataset is begun then, on any rank.
    pub fn start_output(&mut self, name: Option<&[u8]>, flags: OutputFlags) -> Result<(), Error> {
        let _call = self.begin_call("SCR_Start_output");
        let begun = self.begin_output(name, flags);
        if begun.is_err() && matches!(self.phase, Phase::Idle | Phase::Refused) {
            self.phase = Phase::Refused;
            if flags.checkpoint {
                self.times.failed();
            }
        }
        begun
    }

    fn begin_output(&mut self, name: Option<&[u8]>, flags: OutputFlags) -> Result<(), Error> {
        let (started, sent) = (self.job.elapsed(), self.job.comm.traffic());
        self.expect_idle("SCR_Start_output")?;
        self.remove_copies();
        if let Some(other) = self.running.newcomer() {
            warn_of_other_job(&self.job, &other);
        }
        self.poll(Retry::Now)?;
        self.let_protection_catch_up()?;
        self.schemes.plugins.forget_failures();
        self.verify_redundancy()?;
        let (checkpoint, changed) = (self.last_checkpoint.saturating_add(1), self.told_of());
        let wanted = Wanted { name, flags, checkpoint, changed };
        let descriptor = wanted.descriptor(&self.job).clone();
        let store = self.cache.store_index(&descriptor.store);
        let crowded = if descriptor.bypass { None } else { self.cache.crowded(&self.job, store) };
        let agreed = wanted.agree(&self.job, crowded.is_some())?;
        self.expect_restarted(flags)?;
        self.mend(agreed.changed)?;
        if let Some(name) = name {
            self.protect_earlier(name)?;
            if self.unread.remove(name) {
                let name = String::from_utf8_lossy(name);
                self.job.report.warn(&format!(
                    "the new checkpoint `{name}' takes the place of one that was not restarted from"
                ));
            }
        }
        let mut record =
            wanted.record(&self.job, &mut self.cache, &self.schemes, &descriptor, agreed.created)?;
        let is_only =
            |cached: &CachedDataset| cached.holding().is_unflushed() && !cached.record.protection.bypass;
        let only_copy = newest_cached(&self.job, &self.cache, is_only);
        let only_copy = only_copy.map(CachedDataset::checkpoint);
        let has_room = self.find_room(store, crowded, agreed.crowded)?;
        let has_left = |copy: &CheckpointId| self.cache.dataset(copy.id).is_none();
        let made_room = only_copy.filter(has_left).map(|left| left.name_text());
        let is_known = || self.running.expect_known();
        let begun = self.cache.begin(&self.job, &mut record, is_known, |record, id| {
            (record.dataset.id, record.cache_id) = (id, id);
            if name.is_none() {
                record.dataset.name = default_name(id);
            }
        });
        let (part, journal) = begun.doing(format_args!("starting {}", record.label()))?;
        self.job.report.info(&format!("Starting {}", record.label()));
        events::started(&self.job, &record, started.saturating_sub(self.computing_since));
        let is_older_at_risk = self.use_name(&record)?;
        if flags.checkpoint {
            self.last_checkpoint = wanted.checkpoint;
        }
        self.restart.begin_writing();
        let ready = self.job.elapsed();
        self.job.report.info(&format!("scr_start_output: {:.6} secs", (ready - started).as_secs_f64()));
        let output = Output::new(&self.job, record, part, journal, &self.cache);
        let survives = self.schemes.survives(&descriptor);
        let wants_behind = descriptor.encode_async && self.protects_behind(&output.record);
        if wants_behind && !has_room && self.job.is_news(Said::NoRoomBehind) {
            self.job.report.notice(
                "ENCODE=ASYNC (SCR_ENCODE_ASYNC=1): the cache has no room for a new checkpoint beside the protected one, so \
                 SCR_Complete_output waits until the new one is protected",
            );
        }
        // Without the older one, which had to leave, nothing would be protected meanwhile.
        let behind = wants_behind && has_room;
        let output =
            Output { made_room, flags, behind, is_older_at_risk, survives, started, sent, ready, ..output };
        self.phase = Phase::Output(Box::new(output));
        Ok(())
    }

    /// A run that begins to write checkpoints has begun to read the one that it could restart from.
    ///
    /// # Errors
    /// It has not, and the user wants no such run. The same on all ranks.
    fn expect_restarted(&self, flags: OutputFlags) -> Result<(), Error> {
        let Some(checkpoint) = self.restart.untouched().filter(|_| flags.checkpoint) else { return Ok(()) };
        let what = format!(
            "the application begins to write, and has not read `{}', which it could restart from: it has to call SCR_Have_restart \
             and SCR_Start_restart before it reads; SCR_REQUIRE_RESTART=1 makes that an error",
            checkpoint.name_text()
        );
        if self.job.params.get(&param::REQUIRE_RESTART) {
            return Err(Error::Refused(what));
        }
        if self.job.is_news(Said::Unasked) {
            self.job.report.warn(&what);
        }
        Ok(())
    }

    /// Makes room in a store where the old datasets and a new one do not fit, of which the first rank that has said so is known.
    /// Gives whether there was room for both. Collective.
    fn find_room(
        &mut self,
        store: usize,
        mut crowded: Option<Crowded>,
        mut first: Option<Rank>,
    ) -> Result<bool, Error> {
        if first.is_some() {
            // With that an older one leaves.
            if self.background.first().is_some() {
                self.wait_until_protected()?;
            }
            // There may be room then.
            self.cache.wait_until_freed(&self.job)?;
            crowded = self.cache.crowded(&self.job, store);
            first = first_rank(&*self.job.comm, crowded.is_some())?;
        }
        if first.is_some() {
            self.make_room(store, crowded.filter(|_| first == Some(self.job.rank())))?;
        }
        Ok(first.is_none())
    }

    /// Refuses the name of a checkpoint that another number of ranks wrote: a run with that many could not restart from it any
    /// more, and this one has not. Collective.
    fn protect_earlier(&mut self, name: &[u8]) -> Result<(), Error> {
        if !self.protects(name) {
            return Ok(());
        }
        let ranks = self.job.number_of_first(|| self.ranks_of_earlier(name).unwrap_or(0))?;
        let size = u64::from(self.job.comm.size());
        if ranks == 0 || ranks == size {
            self.earlier.remove(name);
            return Ok(());
        }
        Err(Error::Refused(format!(
            "{ranks} ranks wrote the checkpoint `{}', and this run has {size}: with this name nothing would be left of it for a \
             run with {ranks} ranks; use another name, or set SCR_REPLACE_OTHER_RANKS=1 to replace it",
            String::from_utf8_lossy(name),
        )))
    }

    /// Whether another number of ranks may have written a checkpoint of this name, which only they can read.
    fn protects(&self, name: &[u8]) -> bool {
        let params = &self.job.params;
        let is_allowed = params.get(&param::REPLACE_OTHER_RANKS) || params.get(&param::RESTART_OTHER_RANKS);
        self.earlier.contains(name) && !is_allowed
    }

    /// Says that a checkpoint of another number of ranks is about to leave. Local.
    pub(in crate::session) fn warn_of_others(&self, call: &str, name: &[u8]) {
        let is_asked = self.job.rank() == Rank(0);
        if let Some(ranks) = is_asked.then(|| self.ranks_of_kept(name)).flatten() {
            let size = self.job.comm.size();
            self.job.report.warn(&format!(
                "{call}: {ranks} ranks wrote the checkpoint `{}', and this run has {size}: no run restarts from it any more",
                String::from_utf8_lossy(name)
            ));
        }
    }

    /// How many ranks wrote a checkpoint that this run does not write over, since their number is another one. Local, on rank 0.
    pub(in crate::session) fn ranks_of_kept(&self, name: &[u8]) -> Option<u64> {
        let ranks = self.protects(name).then(|| self.ranks_of_earlier(name)).flatten();
        ranks.filter(|&ranks| ranks != u64::from(self.job.comm.size()))
    }

    /// How many ranks wrote the newest checkpoint of this name, in the index or in a cache, if it is still there and that can be
    /// read.
    fn ranks_of_earlier(&self, name: &[u8]) -> Option<u64> {
        let (files, prefix) = (self.job.files(), &self.job.prefix);
        let listed = || {
            let index = self.job.ledger().index().ok()?;
            let entry = index.id_of(name).and_then(|id| index.entry(id)).filter(IndexEntry::is_candidate)?;
            let ranks = rank2file::ranks(files, prefix, entry.id).ok();
            Some(RestartPoint { ranks, ..entry.restart_point() })
        };
        let cached = || {
            let is_it = |entry: &FlushEntry| entry.is_cached_checkpoint() && entry.name == name;
            let entries = FlushFile::read(files, prefix).ok()?.entries();
            entries.iter().find(|entry| is_it(entry)).map(|entry| entry.restart_point())
        };
        let newest = listed().into_iter().chain(cached()).max_by_key(|earlier| earlier.seq)?;
        newest.ranks.map(u64::from)
    }

    /// From here on no older dataset gets this name, or the dataset is not begun. Gives whether its files may replace those of an
    /// older one that counts.
    fn use_name(&mut self, record: &RankRecord) -> Result<bool, Error> {
        if !record.protection.bypass {
            return Ok(false);
        }
        self.end_flushes_before(record)?;
        self.flushes.wait_until_recorded(&self.job);
        let taken = take_name(&self.job, record);
        if taken.is_err() {
            self.cache.remove_part(&self.job, &self.cache.part_of(record));
        }
        taken.doing(format_args!("reserving the name of {} in the index", record.label()))
    }

    /// A flush under way ends first: later it would replace what the application writes.
    fn end_flushes_before(&mut self, record: &RankRecord) -> Result<(), Error> {
        let named_so = |cached: &CachedDataset| cached.record.dataset.name == record.dataset.name;
        let is_in_the_way = |cached: &CachedDataset| {
            cached.prefix.is_under_way() && (!cached.record.protection.bypass || named_so(cached))
        };
        if self.cache.datasets().iter().any(is_in_the_way) {
            self.with_flushes(Flushes::finish_all)?;
        }
        Ok(())
    }
}

/// A dataset that the application wants to begin.
struct Wanted<'a> {
    name: Option<&'a [u8]>,
    flags: OutputFlags,
    /// Its number, if it is a checkpoint.
    checkpoint: u64,
    /// The one before, if this rank has written to it since.
    changed: u64,
}

/// The data that all ranks agree on before a dataset begins.
struct Agreed {
    /// Microseconds since the epoch.
    created: u64,
    /// The first rank whose store has no room for one more.
    crowded: Option<Rank>,
    /// The dataset before, if any rank has written to it since, or else 0.
    changed: u64,
}

impl Wanted<'_> {
    fn descriptor<'j>(&self, job: &'j Job) -> &'j Redundancy {
        let checkpoint = if self.flags.checkpoint { self.checkpoint } else { 0 };
        job.descriptors.redundancy.choose(checkpoint, self.flags.checkpoint, self.flags.output)
    }

    /// Makes sure that all ranks begin the same dataset.
    fn agree(&self, job: &Job, crowded: bool) -> Result<Agreed, Error> {
        let wanted = (self.name, self.flags.checkpoint, self.flags.output);
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(wanted);
        let created = if job.rank() == Rank(0) { job.micros() } else { 0 };
        // The largest of these words is that of the first rank.
        let crowded = if crowded { !u64::from(job.rank().0) } else { 0 };
        let words = [hash, !hash, crowded, created, self.changed];
        let [most, least, crowded, created, changed] = all_reduce(&*job.comm, words, Op::Max)?;
        if most != !least {
            let what = "the ranks gave different names or flags to SCR_Start_output; all must give the same";
            return Err(Error::Argument(what.to_owned()));
        }
        if let Some(len) = self.name.map(<[u8]>::len).filter(|&len| len == 0 || len >= MAX_FILENAME) {
            let most = MAX_FILENAME - 1;
            let what = format!("the name of a dataset has 1 to {most} bytes, and this one has {len}");
            return Err(Error::Argument(what));
        }
        Ok(Agreed { created, crowded: u32::try_from(!crowded).ok().map(Rank), changed })
    }

    /// The record of this rank's part, under a new id.
    fn record(
        &self,
        job: &Job,
        cache: &mut Cache,
        schemes: &Schemes,
        descriptor: &Redundancy,
        created: u64,
    ) -> Result<RankRecord, Error> {
        let protection = schemes.protection_of(job, cache, descriptor).or_else(|error| {
            let why = error.agreed()?;
            Err(Error::Config(format!("no dataset can be started: {why}")))
        })?;
        let id = cache.take_id(job)?;
        let dataset = DatasetDescriptor {
            id,
            run: job.run.number,
            name: self.name.map_or_else(|| default_name(id), <[u8]>::to_vec),
            checkpoint: self.flags.checkpoint,
            output: self.flags.output,
            created,
            checkpoint_id: self.flags.checkpoint.then_some(self.checkpoint),
            ..job.descriptor_of_job()
        };
        Ok(RankRecord::begun(job, dataset, protection, schemes.members(job, descriptor)))
    }
}

/// If the files of a dataset are written in the prefix directory itself, the index lists it as begun before the first path is
/// given out, so that what it may have replaced is checked closely if it is cut short. Gives whether there are others that count,
/// or that nobody has listed yet.
fn take_name(job: &Job, record: &RankRecord) -> Collective<bool> {
    let taken = match job.rank() {
        Rank(0) => job.commit().in_turn(None, || job.ledger().begin_in_place(&record.dataset)),
        _ => Ok(false),
    };
    tell_unsaved(job, &taken);
    Ok(job.any(job.agree(taken)?)?)
}

/// Says once that nothing can be saved any more, until something can: an application may look at no code, and compute for
/// nothing.
fn tell_unsaved(job: &Job, taken: &Result<bool, PrefixError>) {
    let Err(error) = taken else {
        job.said.borrow_mut().remove(&Said::Unsaved);
        return;
    };
    if !error.is_refusal() && job.is_news(Said::Unsaved) {
        job.report.error(&format!(
            "this job can save nothing any more: each dataset is listed in the index of the prefix directory before the \
             application writes its files there, and the index cannot be changed: {}. Correct that while the job runs, or end \
             the job",
            scr_base::describe(error)
        ));
    }
}

/// The name of a dataset that the application gives none.
fn default_name(id: u64) -> Vec<u8> {
    format!("scr.dataset.{id}").into_bytes()
}
