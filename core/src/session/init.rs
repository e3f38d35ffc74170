//! The start of a session. See `SCR_Init` in docs/user/c-api.md.
//!
//! Datasets in cache are recovered first. If there is no checkpoint among them, one is fetched from the prefix directory.

use super::auto::AutoInterval;
use super::need_checkpoint::CheckpointTimes;
use super::other_nodes::remove_left_copies;
use super::other_ranks::mend_copy;
use super::route::Folders;
use super::settings_report::report_settings;
use super::{Error, Phase, Session};
use crate::cache::filemap::Claim;
use crate::cache::flush_file::{Left, News};
use crate::cache::part::MAX_ID;
use crate::cache::{bases, Cache, CachedDataset};
use crate::delete;
use crate::error::Doing as _;
use crate::fetch::{as_many_ranks, Fetcher};
use crate::flush::{load_transports, resolve_pending_flushes, Flushes, LeftWhole, SharedSlots};
use crate::halt::HaltConditions;
use crate::holdings::Standing;
use crate::job::Job;
use crate::log::{Event, Record};
use crate::metrics::Metrics;
use crate::rebuild::{self, Rebuild, Restored};
use crate::redundancy::background::Background;
use crate::redundancy::repair::shortened;
use crate::redundancy::schemes::Schemes;
use crate::restart::{compare_flushed, first_cached, newest_cached, PrefixState, Restart, Unread};
use crate::typed::{broadcast_value, first_value};
use scr_base::env::Env;
use scr_base::fs::Durability;
use scr_base::message::Reporter;
use scr_comm::placement::Survives;
use scr_comm::watched::Watched;
use scr_comm::{Comm, CommError, Rank};
use scr_config::descriptor::protects;
use scr_config::param::{self, AppConfig, Origin};
use scr_plugin_api::Call;
use scr_prefix::{
    tidy, DatasetDescriptor, FlushEntry, LastRun, Location, OtherRun, PrefixError, Running, Seq, Withdrawal,
};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

impl Session {
    /// Begins a session. Collective over all ranks of `comm`.
    ///
    /// # Errors
    /// [`Error`]: the settings cannot be used, a folder cannot be made, or SCR is disabled. The same on all ranks.
    pub fn init(comm: Rc<dyn Comm>, env: Env, app: &AppConfig) -> Result<Self, Error> {
        Self::begin(watched(comm, &env, "SCR_Init"), env, app, false)
    }

    /// Begins the session that takes the place of one that has lost ranks, which was dropped before. Ranks that had none call
    /// [`init`](Self::init) instead. Collective over all ranks of `comm`.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn recover(comm: Rc<dyn Comm>, env: Env, app: &AppConfig) -> Result<Self, Error> {
        Self::begin(watched(comm, &env, "SCR_Recover"), env, app, true)
    }

    /// The communicator of the session, for who tells the others that this rank takes no more part.
    pub fn comm(&self) -> Rc<dyn Comm> {
        Rc::clone(&self.job.comm)
    }

    /// This rank leaves the others, which may be in a call that it does not make: some may have died, or they are out of step.
    /// Only to be dropped after that: threads end then, and all that the session holds is free.
    pub fn leave(&self) {
        self.job.comm.abandon();
        self.background.leave();
    }

    fn begin(comm: Rc<dyn Comm>, env: Env, app: &AppConfig, recovers: bool) -> Result<Self, Error> {
        let _call = Call::begin();
        env.files.forget_unread();
        let (mut session, is_shared) = Self::open(comm, env, app, recovers)?;
        let (control, host) = (session.cache.control(), &session.schemes.plugins.host);
        let left_whole = resolve_pending_flushes(&session.job, control, host, &session.running)?;
        if session.job.purges_prefix() {
            delete::all(&session.job)?;
            rebuild::purge(&session.job, &session.cache, None)?;
        }
        let before = prepare_prefix(&session.job, &session.running, app)?;
        let found = session.find_first(is_shared, left_whole);
        let (job, run) = (&session.job, run_of(&session.job));
        let record = match (&found, before) {
            // Commands find by it what another allocation has in cache.
            (Err(_), before) => before.filter(|before| before.job_id != run.job_id),
            // What nodes of earlier runs have left is not the newest.
            (Ok(()), Some(before)) if before.all_nodes() != run.nodes => {
                session.restart.seq(&session.cache).map(|_| run)
            }
            _ => None,
        };
        record.iter().for_each(|run| job.report_failed(run.write(job.files(), &job.prefix).map(drop)));
        found?;
        session.schemes.load(&session.job, &session.cache)?;
        load_transports(&session.job, &session.cache, &session.schemes)?;
        session.background.start(&session.job, &session.cache.open)?;
        session.slide_windows()?;
        session.count_from_restart();
        session.with_flushes(Flushes::flush_recovered)?;
        session.times = CheckpointTimes::new(session.job.elapsed());
        session.start_computing();
        session.write_metrics(true);
        Ok(session)
    }

    /// A session of a run that is known to others, with an open cache, that has found no dataset yet; and whether another run of
    /// the allocation has the same cache.
    fn open(comm: Rc<dyn Comm>, env: Env, app: &AppConfig, recovers: bool) -> Result<(Self, bool), Error> {
        let mut job = Job::begin(comm, env, app, recovers)?;
        let (running, is_shared) = begin_running(&job)?;
        job.run.is_second = running.is_second;
        let mut schemes = Schemes::new(&job)?;
        job.log.add_database(job.rank(), &job.params, &schemes.plugins.host);
        let cache = Cache::open(&mut job)?;
        bases::record(&job);
        schemes.place_ranks(&mut job)?;
        let began = job.elapsed();
        report_start(&mut job);
        let session = Self {
            job,
            cache,
            schemes,
            running,
            phase: Phase::Idle,
            restart: Restart::default(),
            last_checkpoint: 0,
            times: CheckpointTimes::new(began),
            auto: AutoInterval::default(),
            last_names: None,
            flushes: Flushes::default(),
            background: Background::default(),
            folders: Folders::default(),
            halt: HaltConditions::default(),
            computing_since: began,
            earlier: BTreeSet::new(),
            unread: BTreeSet::new(),
            is_redundancy_unread: false,
            metrics: None,
            last_completed: None,
            changed: None,
            of_other_ranks: Vec::new(),
            lending: None,
        };
        Ok((session, is_shared))
    }

    /// Finds the checkpoint to restart from, and loads it.
    fn find_first(&mut self, is_shared: bool, left_whole: LeftWhole) -> Result<(), Error> {
        self.halt.begin(&self.job)?;
        self.metrics = Metrics::begin(&self.job);
        self.job.expect_no_warning()?;
        let in_prefix = self.find_datasets(is_shared)?;
        self.cache.warn_of_full_stores(&self.job);
        compare_flushed(&self.job, &mut self.cache, &in_prefix)?;
        self.with_flushes(Flushes::flush_restored)?;
        self.load_first(&in_prefix, left_whole)
    }

    /// Loads the checkpoint to restart from, or says why there is none.
    fn load_first(&mut self, in_prefix: &PrefixState, left_whole: LeftWhole) -> Result<(), Error> {
        let unused = in_prefix.unused(&self.cache);
        let takes_over = self.takes_over();
        let Self { job, cache, schemes, restart, of_other_ranks, .. } = self;
        let mut from = Fetcher::new(job, cache, schemes);
        if !takes_over {
            from.of_other_size = of_other_ranks.iter().map(|other| other.what.clone()).collect();
        }
        restart.find_first(&mut from, in_prefix)?;
        while mend_copy(restart, &from, of_other_ranks)? {
            // A newer one has come to the prefix directory.
            restart.find_again(&mut from)?;
            restart.leave_spent(&mut from)?;
        }
        let loaded = restart.seq(from.cache);
        from.cache.release_of_other_ranks(job, loaded)?;
        let is_found = loaded.is_some();
        restart.report_passed_over(job, from.cache, in_prefix);
        let first = in_prefix.first.as_ref().map(|first| first.seq);
        if !is_found || loaded < first {
            // What a run has not found it has looked for in its own prefix directory, and not where that was away.
            let is_there = || job.run.wait_for_prefix(job.files(), &job.prefix);
            job.on_first(is_there).doing("finding the checkpoint to restart from")?;
        }
        if !is_found && job.params.get(&param::FETCH) && !job.purges_prefix() {
            left_whole.refuse(job)?;
        }
        let is_left = |seq| in_prefix.is_chosen && first < Some(seq) || restart.has_given_up(seq);
        self.unread = in_prefix.listed_names(|seq| !is_found || loaded < Some(seq) && !is_left(seq));
        if !is_found {
            expect_all_read(job, &restart.unread)?;
        }
        match (is_found, from.of_other_size(), unused) {
            (false, Some(what), Some(_)) => {
                let cure = format!("; to restart from it, end this run and {}", as_many_ranks(job));
                self.starts_without(&what, &cure, &self.unread)?;
            }
            (false, None, Some(why)) => self.starts_without(why, "", &self.unread)?,
            (_, Some(_), _) => from.report_left_alone(),
            (false, None, None) => job.report.info("there is no checkpoint to restart from"),
            (true, None, _) => (),
        }
        Ok(())
    }

    /// Brings back what is in cache, and finds out which ids are taken. Gives what the prefix directory has.
    fn find_datasets(&mut self, is_shared: bool) -> Result<PrefixState, Error> {
        let began = self.job.elapsed();
        let purges = rebuild::cache_purge(&self.job.params).is_some() && !self.job.is_recovery;
        let mut in_prefix = PrefixState::read(&self.job)?;
        let purged = match purges {
            true => rebuild::purge(&self.job, &self.cache, Some(&in_prefix))?,
            false => Vec::new(),
        };
        let Self { job, cache, schemes, .. } = &*self;
        let is_dropped = |dataset: &_| in_prefix.withdrawn(dataset) == Some(Withdrawal::Removed);
        let is_saved = |dataset: &DatasetDescriptor| in_prefix.has(dataset.seq(), &dataset.name);
        let mut found = rebuild::all(Rebuild { job, cache, schemes, is_shared }, is_dropped, is_saved)?;
        let (seen, own) = (found.highest_run, &self.job.run);
        if seen > own.number || seen == own.number && own.is_counted {
            // The records in the prefix directory were lost, or are an older copy.
            self.job.count_run(seen)?;
        }
        if found.whole.len() < found.seen.len() {
            // One that lies in place and did not come back is marked as failed.
            in_prefix = PrefixState::read(&self.job)?;
        }
        // Nobody misses those: what the nodes had and the user has had deleted has been named.
        if let Some(flush) = &mut in_prefix.flush {
            purged.iter().for_each(|id| flush.remove_location(*id, Location::Cache));
        }
        let highest = found.highest.max(in_prefix.highest);
        if highest >= MAX_ID {
            return Err(Error::Refused(format!(
                "the dataset id {highest} is in use, in cache or in the index of the prefix directory, and none above {MAX_ID} \
                 is possible; remove that dataset"
            )));
        }
        self.cache.count_ids_from(highest);
        if self.takes_over() {
            self.take_over(&mut found, &mut in_prefix, is_shared)?;
        }
        self.of_other_ranks = std::mem::take(&mut found.of_other_ranks);
        in_prefix.is_any_left = found.is_any_left;
        self.earlier = in_prefix.good_names();
        found.whole.into_iter().rev().for_each(|restored| self.insert(restored));
        self.offer_none_refused(&in_prefix);
        self.restart.unread.extend(found.not_tried);
        let newest = first_cached(&self.job, &self.cache).map(CachedDataset::seq);
        let newest = newest.max(in_prefix.first.as_ref().map(|first| first.seq)).unwrap_or_default();
        let is_saved = &|entry: &FlushEntry| in_prefix.has(entry.seq(), &entry.name);
        let (seen, twins, listed) = (&found.seen, &found.of_twins, in_prefix.flush.as_ref());
        let is_known = &|entry: &FlushEntry| is_saved(entry) || in_prefix.withdrawn(entry).is_some();
        let strange = (&**twins, &*found.of_other_release);
        let missing = self.cache.report_missing(&self.job, listed, seen, strange, newest, is_known);
        let replaced = found
            .is_any_replaced
            .then(|| Err("they belong to another prefix directory, which was here before".to_owned()));
        match first_value(&*self.job.comm, missing.as_ref())?.or(replaced) {
            // A user who has the caches deleted begins without it.
            Some(Ok(unread)) if !purges => _ = self.restart.unread.insert(unread),
            Some(Err(why)) if newest == Seq::default() => {
                self.starts_without(&why, "", &in_prefix.listed_names(|_| true))?;
            }
            _ => (),
        }
        self.cache.forget_in_place(&self.job);
        in_prefix.mark_flushed(&self.job, &mut self.cache);
        self.cache.keep_stale(&self.job, found.stale, found.left, found.changed)?;
        let is_other_job = self.running.is_second;
        let is_gone = &|entry: &FlushEntry| {
            let withdrawn = in_prefix.withdrawn(entry);
            let is_unwanted = |why| why == Withdrawal::Removed || entry.is_only_checkpoint();
            let is_of_twin = found.of_twins.contains(&entry.id);
            is_of_twin || withdrawn.is_some_and(is_unwanted) || in_prefix.is_replaced(entry.seq())
        };
        let damaged = &*found.damaged;
        let left = Left { newest, is_purged: purges, is_saved, is_gone, damaged, is_other_job };
        self.find_what_survives()?;
        self.cache.list(&self.job, News::Begun(left));
        self.cache.measure_newest(&self.job)?;
        let how = match first_cached(&self.job, &self.cache) {
            Some(newest) => {
                format!("succeeded for checkpoint {}", newest.record.dataset.checkpoint_id.unwrap_or(0))
            }
            None if found.seen.is_empty() => return Ok(in_prefix),
            None => "failed".to_owned(),
        };
        let took = (self.job.elapsed() - began).as_secs_f64();
        self.job.report.info(&format!("Scalable restart {how}, took {took:.6} secs"));
        Ok(in_prefix)
    }
}

impl Session {
    /// There are checkpoints, and this run begins with none of them, which is reported with what can be done, or refused.
    ///
    /// # Errors
    /// The user wants no such run.
    pub(super) fn starts_without(
        &self,
        why: &str,
        cure: &str,
        unread: &BTreeSet<Vec<u8>>,
    ) -> Result<(), Error> {
        let (job, what) = (&self.job, format!("there are checkpoints, but {why}"));
        if job.params.get(&param::REQUIRE_RESTART) {
            return Err(Error::Refused(format!(
                "{what}: with SCR_REQUIRE_RESTART=1 the run does not start without a checkpoint"
            )));
        }
        if job.rank() != Rank(0) {
            return Ok(());
        }
        let quoted = |name: &Vec<u8>| {
            let only = self.ranks_of_kept(name).map_or("", |_| " (only with SCR_REPLACE_OTHER_RANKS=1)");
            format!("`{}'{only}", String::from_utf8_lossy(name))
        };
        let names: Vec<_> = unread.iter().rev().map(quoted).collect();
        let over = if names.is_empty() { "" } else { ", and may write over " };
        let names = shortened(&names, SHOWN);
        job.report.error(&format!(
            "{what}: the run starts without a checkpoint{over}{names}{cure}; SCR_REQUIRE_RESTART=1 makes that an error of SCR_Init"
        ));
        Ok(())
    }

    /// Enters a dataset that an earlier run has left in cache.
    fn insert(&mut self, restored: Restored) {
        let store = self.cache.store_index(&restored.record.protection.store);
        let number = restored.record.dataset.checkpoint_id.unwrap_or(0);
        self.last_checkpoint = self.last_checkpoint.max(number);
        let claim = Claim::lay(self.job.files(), &restored.part.filemap());
        let standing = if restored.refused { Standing::Refused } else { Standing::Kept };
        let verified = restored.verified;
        let cached = CachedDataset::new(restored.record, restored.part, claim, store);
        self.cache.insert(CachedDataset { standing, verified, ..cached });
        self.is_redundancy_unread = true;
    }

    /// Offers nothing that an application has refused, also on nodes that were away.
    fn offer_none_refused(&mut self, in_prefix: &PrefixState) {
        let is_refused = |of: &DatasetDescriptor| of.checkpoint && in_prefix.withdrawn(of).is_some();
        let refused = self.cache.datasets_mut().iter_mut().filter(|of| is_refused(&of.record.dataset));
        refused.for_each(|cached| cached.set_standing(Standing::Refused));
    }

    /// Finds out how many nodes may be lost without the loss of what earlier runs have left in cache. Collective.
    fn find_what_survives(&mut self) -> Result<(), CommError> {
        let Self { job, cache, schemes, .. } = self;
        let is_own = |cached: &CachedDataset| !cached.is_of_other_ranks();
        let own = cache.datasets().iter().filter(|cached| is_own(cached));
        let survive = schemes.survive_now(job, cache, own.map(|cached| &cached.record))?;
        let datasets = cache.datasets_mut().iter_mut().filter(|cached| is_own(cached)).zip(survive);
        datasets.for_each(|(cached, survives)| cached.survives = Some(survives));
        let is_weak = |newest: &&CachedDataset| {
            let protection = &newest.record.protection;
            let has_scheme = !protection.bypass && protects(&protection.scheme);
            has_scheme && newest.holding().is_unflushed() && newest.survives_now() == Some(Survives::Nodes(0))
        };
        // It has a scheme, which cannot be used, or the ranks run so that it would be lost with a node.
        if let Some(newest) = newest_cached(job, cache, |_| true).filter(is_weak) {
            let why = match schemes.plugins.scheme(job, &newest.record.protection) {
                Ok(_) => "some ranks have none on another node that protects them".to_owned(),
                Err(error) => error.agreed()?.to_string(),
            };
            job.report.warn(&format!(
                "`{}' in cache is not protected against the loss of a node: {why}; the next checkpoint is protected as this run's \
                 nodes allow",
                newest.record.dataset.name_text()
            ));
        }
        Ok(())
    }
}

/// Tells the user and the log that the run has begun.
fn report_start(job: &mut Job) {
    report_settings(job);
    let (processes, nodes) = (u64::from(job.comm.size()), job.nodes.count() as u64);
    if job.is_recovery {
        job.report.notice(&format!(
            "the session goes on with {processes} ranks on {nodes} nodes, from what the others have left"
        ));
    }
    job.begin_log();
    let start = Record::event(Event::Start).run(processes, nodes);
    job.log.add_entry(start.until(job.params.get(&param::END_TIME)));
}

/// The communicator, with a report of ranks that do not come.
fn watched(comm: Rc<dyn Comm>, env: &Env, call: &'static str) -> Rc<dyn Comm> {
    let report = Reporter::new(env.output.clone(), comm.rank(), &env.host, 0);
    let clock = env.clock.clone();
    let watched = Watched::new(comm, move || clock.elapsed(), move |text| report.warn_here(text));
    watched.watch().into_iter().for_each(|watch| watch.begin(call));
    Rc::new(watched)
}

/// A message names so many checkpoints.
const SHOWN: usize = 3;

/// A run that has found no checkpoint must not begin from nothing where one may lie in a place that could not be read: `unread`
/// are those that are known. Collective.
///
/// # Errors
/// There is such a place.
pub(super) fn expect_all_read(job: &Job, unread: &BTreeSet<Unread>) -> Result<(), Error> {
    let names: Vec<_> = unread.iter().rev().map(|(_, name)| &**name).collect();
    let which = match &*names {
        [] => "not all that may be a checkpoint could be read".to_owned(),
        _ => format!("{} could not be brought back", names.join(", ")),
    };
    let why = job.files().unread().map(|why| format!("{why}: "));
    let is_known = !unread.is_empty() && job.rank() == Rank(0);
    let own = why.or(is_known.then(String::new)).map_or(Ok(()), |why| {
        Err(format!(
            "{why}{which}, and there is no other checkpoint to restart from; start the job again once that \
             is corrected; to begin without it, start in another prefix directory, or once with SCR_CACHE_PURGE=1 if it is in \
             cache"
        ))
    });
    job.agree(own).doing("finding the checkpoint to restart from")
}

/// Registers this job in the prefix directory. Another one that may run there at the same time is warned of: its flushes under way
/// look as if it had died, and of two datasets of one name one is lost. Returns whether the other one is of the same allocation,
/// and so has the same cache. Collective.
///
/// # Errors
/// Another part of this launch has begun in the prefix directory: each would restart from what the other has written. Or another
/// job lives there without any doubt; a lock alone may outlive its job.
fn begin_running(job: &Job) -> Result<(Running, bool), Error> {
    let (running, other) = if job.rank() == Rank(0) { claim_prefix(job) } else { (Running::default(), None) };
    let claimed = other.as_ref().and_then(|other| claimed_by_part(job, other));
    let own = other.map(|other| (other.line, claimed));
    let other: Option<(String, Option<String>)> =
        broadcast_value(&*job.comm, (job.rank() == Rank(0)).then_some(own))?;
    let Some((line, claimed)) = other else { return Ok((running, false)) };
    if let Some(why) = claimed {
        return Err(Error::Config(why));
    }
    let node = job.nodes.name(job.rank());
    let is_first = job.nodes.leader(job.rank()) == job.rank();
    let is_asked = is_first && !job.is_recovery && !job.params.get(&param::SHARE_PREFIX);
    let lives = || OtherRun::of(&line).lives_on(job.files(), &job.prefix, node);
    if job.any(is_asked && lasts(job, lives))? {
        return Err(Error::Config(format!(
            "{}, or end the other one; SCR_SHARE_PREFIX=1 lets both run",
            of_other_job(job, &line)
        )));
    }
    warn_of_other_job(job, &line);
    let is_ours = OtherRun::of(&line).allocation() == Some(&*job.params.get(&param::JOB_ID));
    Ok((running, is_ours))
}

/// Why a part of a launch cannot begin beside another run. One that began before the processes of this launch did is of an
/// earlier launch, whose last process may just be ending. Processes that others have spawned are younger than those, with which
/// they are parts of one launch. A process that is alone for MPI may be a part too, if the launcher is that of another MPI.
fn claimed_by_part(job: &Job, other: &OtherRun) -> Option<String> {
    let launched = job.env.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = launched.saturating_sub(CLOCKS_DIFFER).as_secs();
    let is_part = job.is_part() || other.is_spawned || job.launched == 1;
    (job.comm.is_spawned() || is_part && other.began.is_none_or(|began| began >= since)).then(|| {
        let cure = match job.params.origin(&param::PREFIX) == &Origin::Environment {
            true => "SCR_PREFIX of the environment wins over SCR_Config, so let each part set that variable itself",
            false => "let each part call SCR_Config with SCR_PREFIX=... before SCR_Init or SCR_Init_comm",
        };
        format!(
            "another part of this launch, or another job, uses the prefix directory {} ({}): each part, such as what MPI_Comm_spawn \
             starts, needs a prefix directory of its own, and so does what the launcher of another MPI has started; {cure}",
            job.prefix.dir().display(),
            other.line,
        )
    })
}

/// The clocks of two nodes may differ by so much.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5);

fn claim_prefix(job: &Job) -> (Running, Option<OtherRun>) {
    if job.is_recovery {
        // Others may know that rank 0 of the session before has died while the system still takes its process down, and what it
        // has locked.
        lasts(job, || !OtherRun::under_way(job.files(), &job.prefix).0.is_empty());
    }
    let (id, node, time) = (job.params.get(&param::JOB_ID), job.nodes.name(Rank(0)), job.local_time());
    let process = std::process::id();
    let is_spawned = job.comm.is_spawned();
    let spawned = if is_spawned { ", which MPI_Comm_spawn has started" } else { "" };
    let line = format!("allocation {id}, rank 0 is process {process} on {node}{spawned}, since {time}");
    Running::begin(job.files(), &job.prefix, &line, job.env.seconds(), is_spawned)
}

/// Whether something that the end of a process ends holds for five seconds.
fn lasts(job: &Job, holds: impl Fn() -> bool) -> bool {
    (0..MOST_PAUSES).all(|_| {
        let still = holds();
        if still {
            job.files().pause(PAUSE);
        }
        still
    })
}

const PAUSE: Duration = Duration::from_millis(50);
const MOST_PAUSES: u32 = 100;

/// Warns of another job in the prefix directory, which its line describes.
pub(super) fn warn_of_other_job(job: &Job, other: &str) {
    job.report.warn(&of_other_job(job, other));
}

fn of_other_job(job: &Job, other: &str) -> String {
    format!(
        "another job uses the prefix directory {} at the same time ({other}): they share an index, end each other's flushes, \
         and of two datasets or files of one name one is lost. Give each a prefix directory of its own (SCR_PREFIX)",
        job.prefix.dir().display()
    )
}

/// Writes the files under the prefix directory that commands read. Gives the record of the run before, on rank 0 only.
fn prepare_prefix(job: &Job, running: &Running, app: &AppConfig) -> Result<Option<LastRun>, Error> {
    job.report.info(&format!("NPROCS={}", job.comm.size()));
    job.report.info(&format!("NNODES={}", job.nodes.count()));
    let write = || {
        write_for_commands(job, running, app).or_else(|error| job.accept_want_of_room(error).map(|()| None))
    };
    let before = job.do_on_first(write).doing("writing to the folder .scr of the prefix directory")?;
    Ok(before.flatten())
}

fn write_for_commands(job: &Job, running: &Running, app: &AppConfig) -> Result<Option<LastRun>, PrefixError> {
    let written = run_of(job).begin(job.files(), &job.prefix)?;
    let (conf, path) = (app.to_text(), job.prefix.dir().join(param::APP_CONF));
    job.files().write_atomic(&path, conf.as_bytes(), 0o666, Durability::Unsynced)?;
    for folder in [job.prefix.scr_dir(), SharedSlots::folder(&job.prefix)] {
        tidy(job.files(), &folder, &path);
    }
    if !running.is_second {
        remove_left_copies(job.files(), &job.prefix)?;
    }
    warn_of_locks(job, running, written.caution());
    Ok(written.value)
}

/// This run, for those who look at it.
fn run_of(job: &Job) -> LastRun {
    let seconds = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    let leaders = job.nodes.leaders();
    LastRun {
        job_id: job.params.get(&param::JOB_ID),
        nodes: leaders.map(|rank| job.nodes.name(rank).to_owned()).collect(),
        ranks: job.comm.size(),
        any_ranks: job.params.get(&param::RESTART_OTHER_RANKS),
        began: seconds(job.env.seconds()),
        flush_every: job.params.get(&param::FLUSH),
        end: job.params.get(&param::END_TIME).map(seconds),
        prefix: Some(job.prefix.dir().display().to_string()),
        ..LastRun::default()
    }
}

/// Warns, once, if the file system of the prefix directory does not keep jobs and commands apart. `caution` is what the user has
/// to mind where the index is changed.
fn warn_of_locks(job: &Job, running: &Running, caution: Option<&str>) {
    let dir = job.prefix.dir().display();
    if let Some(caution) = caution {
        job.report.warn(&format!("the index of {dir}: {caution}"));
    } else if running.no_locks {
        job.report.warn(&format!(
            "the file system of {dir} has no locks: scr cannot see whether another job uses this directory, and a change by \
             `scr halt' is lost if the job writes at the same moment. Mount it with locks (Lustre: -o flock), or set SCR_PREFIX \
             to a directory on a file system that has them"
        ));
    }
}
