//! The start of a session. See the guide's `SCR_Init` and "Scalable restart".
//!
//! What is in cache is brought back first; a checkpoint comes from the prefix directory where cache has none.

use super::datasets::ROOT;
use super::flushed::Known;
use super::moving::FlushState;
use super::restart::Loaded;
use super::{advice::Advice, Error, Phase, Session};
use crate::cache::part::MAX_ID;
use crate::cache::Cache;
use crate::cache::CachedDataset;
use crate::comm::collective::broadcast_tree;
use crate::comm::Comm;
use crate::env::Env;
use crate::error::Doing;
use crate::fs::Durability;
use crate::job::Job;
use crate::param::{self, AppConfig};
use crate::prefix::{tidy, Index, Nodes, PrefixError, Restarted, Running};
use crate::rebuild::{self, Rebuild};
use crate::redundancy::schemes::Schemes;
use scr_plugin_api::KvTree;

impl Session {
    /// Begins a session. Collective over all ranks of `comm`.
    ///
    /// # Errors
    /// [`Error`]: the settings cannot be used, a folder cannot be made, or SCR is disabled. The same on all ranks.
    pub fn init(comm: Box<dyn Comm>, env: Env, app: &AppConfig) -> Result<Self, Error> {
        let job = Job::begin(comm, env, app)?;
        let mut schemes = Schemes::new(&job);
        job.log.add_database(job.rank(), &job.params, schemes.plugin_host());
        let cache = Cache::open(&job)?;
        schemes.choose_sets(&job, &cache)?;
        let began = job.elapsed();
        let mut session = Self {
            job,
            cache,
            schemes,
            running: Running::default(),
            phase: Phase::Idle,
            loaded: None,
            last_checkpoint: 0,
            advice: Advice::new(began),
            flushes: FlushState::default(),
            exit_wanted: None,
            computing_since: began,
            halt_logged: false,
        };
        super::listing::list_settings(&session.job);
        session.log_start();
        session.tell_other_jobs();
        session.settle_prefix(app)?;
        session.look_at_halt()?;
        let known = session.find_datasets()?;
        session.cache.renew_flush_file(&session.job);
        session.flush_restored()?;
        session.load_first(&known)?;
        session.advice = Advice::new(session.job.elapsed());
        session.log_compute_start();
        Ok(session)
    }

    /// Says that this job runs in the prefix directory, and whether another one does at the same time: what is under way of that
    /// one's flushes looks as if it had died, and what has the same name in both is lost to one of them.
    fn tell_other_jobs(&mut self) {
        let job = &self.job;
        if job.rank() != ROOT {
            return;
        }
        let (id, node, time) = (job.params.get(&param::JOB_ID), job.nodes.name(ROOT), job.local_time());
        let line = format!("allocation {id}, rank 0 on {node}, since {time}");
        let (running, other) = Running::begin(job.files(), &job.prefix, &line);
        if let Some(other) = other {
            job.report.warn(&format!(
                "another job uses the prefix directory {} at the same time ({other}): they share an index, end each other's \
                 flushes, and of two datasets or files of one name one is lost. Give each a prefix directory of its own (SCR_PREFIX)",
                job.prefix.dir().display()
            ));
        }
        self.running = running;
    }

    /// What rank 0 does in the prefix directory before anything else: pending flushes are settled, and the files that the
    /// commands read are written.
    fn settle_prefix(&mut self, app: &AppConfig) -> Result<(), Error> {
        self.settle_flushes()?;
        if self.job.params.get(&param::PREFIX_PURGE) {
            self.purge_prefix()?;
        }
        let job = &self.job;
        job.report.info(&format!("NPROCS={}", job.comm.size()));
        job.report.info(&format!("NNODES={}", job.nodes.count()));
        let written = if job.rank() == ROOT { self.write_for_commands(app) } else { Ok(()) };
        let written = written.or_else(|error| self.expect_only_room_lacks(&error));
        job.agree(written).doing(|| "writing to the folder .scr of the prefix directory".to_owned())
    }

    /// Without room a run begins all the same: there may be some at the next flush, and what is in cache can be restarted
    /// from without.
    fn expect_only_room_lacks(&self, error: &PrefixError) -> Result<(), String> {
        let why = crate::describe(error);
        if error.is_for_want_of_room() {
            let what = "the run begins all the same: make room before the next flush";
            self.job.report.error(&format!("{why}; {what}"));
            return Ok(());
        }
        if error.is_for_want_of_permission() {
            return Err(format!(
                "{why}; nothing could be kept there: let SCR_PREFIX name a folder that can be written to"
            ));
        }
        Err(why)
    }

    fn write_for_commands(&self, app: &AppConfig) -> Result<(), PrefixError> {
        let job = &self.job;
        let nodes = u32::try_from(job.nodes.count()).unwrap_or(u32::MAX);
        Nodes(nodes).write(job.files(), &job.prefix)?;
        let (conf, path) = (app.to_text(), job.prefix.app_conf_file());
        job.files().write_atomic(&path, conf.as_bytes(), 0o666, Durability::Unsynced)?;
        tidy(job.files(), &job.prefix.scr_dir(), &path);
        if let Some(caution) =
            Index::exclusion(job.files(), &job.prefix).ok().and_then(|update| update.caution())
        {
            job.report.warn(&format!("the index of {}: {caution}", job.prefix.dir().display()));
        }
        Ok(())
    }

    /// Brings back what is in cache, and learns which ids are taken. Gives what is known of the prefix directory.
    fn find_datasets(&mut self) -> Result<Known, Error> {
        let began = self.job.elapsed();
        let purge = self.job.params.get(&param::CACHE_PURGE) || !self.job.params.get(&param::DISTRIBUTE);
        if purge {
            rebuild::purge(&self.job, &self.cache)?;
        }
        let found = rebuild::all(Rebuild { job: &self.job, cache: &self.cache, schemes: &self.schemes })?;
        let known = self.known_in_prefix()?;
        for restored in found.whole.into_iter().rev() {
            let store = self.cache.store_index(&restored.record.protection.store);
            self.last_checkpoint =
                self.last_checkpoint.max(restored.record.dataset.checkpoint_id.unwrap_or(0));
            let cached = CachedDataset::new(restored.record, restored.part, store);
            self.cache.insert(CachedDataset { listed: true, refused: restored.refused, ..cached });
        }
        if !purge {
            let newest = self.newest_cached(None).map_or(0, |newest| newest.id).max(known.first.unwrap_or(0));
            self.cache.report_missing(&self.job, &found.seen, newest);
        }
        self.settle_flushed(&known);
        self.cache.keep_stale(found.stale);
        let highest = found.highest.max(known.highest);
        if highest >= MAX_ID {
            return Err(Error::Refused(format!(
                "the dataset id {highest} is in use, in cache or in the index of the prefix directory, and none above {MAX_ID} \
                 is possible; remove that dataset"
            )));
        }
        self.cache.count_ids_from(highest);
        self.cache.measure_newest(&self.job)?;
        if let Some(newest) = self.cache.datasets().iter().rev().find(|cached| cached.is_restartable()) {
            let took = (self.job.elapsed() - began).as_secs_f64();
            let checkpoint = newest.record.dataset.checkpoint_id.unwrap_or(0);
            self.job.report.info(&format!(
                "Scalable restart succeeded for checkpoint {checkpoint}, took {took:.6} secs"
            ));
        }
        Ok(known)
    }

    /// Finds the checkpoint to restart from: the one that the user names, or else the newest.
    fn load_first(&mut self, known: &Known) -> Result<(), Error> {
        let wanted = self.job.params.get(&param::CURRENT).map(String::into_bytes);
        if let Some(name) = &wanted {
            self.load_wanted(name)?;
        }
        if self.loaded.is_none() {
            self.load_newer(known)?;
        }
        if self.loaded.is_none() {
            self.load_next(None)?;
        }
        let Some(loaded) = self.loaded.clone().filter(|loaded| Some(&loaded.name) == wanted.as_ref()) else {
            return Ok(());
        };
        self.note_wanted(&loaded)?;
        self.drop_newer(loaded.id_in_prefix)
    }

    /// Loads the checkpoint of this name before newer ones in cache, unless they were made after a restart from it in this
    /// very allocation: a job that fails again and again must not begin anew each time.
    fn load_wanted(&mut self, name: &[u8]) -> Result<(), Error> {
        let since = self.restarted_from(name)?;
        let newest = self.newest_cached(None);
        if let Some(newer) = newest.as_ref().filter(|newest| since.is_some_and(|since| newest.id >= since)) {
            self.job.report.notice(&format!(
                "SCR_CURRENT={} was restarted from before in this allocation: going on from `{}', which is newer",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(&newer.name)
            ));
            return Ok(());
        }
        self.loaded = self.newest_cached_where(|cached| cached.record.dataset.name == name);
        // With nothing in cache the usual way leads to it first.
        if self.loaded.is_none() && newest.is_some() && self.job.params.get(&param::FETCH) {
            self.loaded = self.fetch_wanted()?;
        }
        self.go_on_from_loaded();
        Ok(())
    }

    /// Fetches what is newer in the prefix directory than all that is in cache: a run may have gone on where this cache was not
    /// there, and these nodes know nothing of it. What the user has made current, though older, does not count as newer; that is told.
    fn load_newer(&mut self, known: &Known) -> Result<(), Error> {
        let Some((cached, first)) = self.newest_cached(None).zip(known.first) else { return Ok(()) };
        let unsaid = self.job.params.get(&param::CURRENT).is_none();
        if let Some(chosen) = known.chosen.as_ref().filter(|_| unsaid && first < cached.id_in_prefix) {
            let chosen = String::from_utf8_lossy(chosen);
            self.job.report.notice(&format!(
                "the index calls `{chosen}' current, but `{}' in cache is newer and is restarted from; to go back all the \
                 same, start with SCR_CURRENT={chosen}",
                String::from_utf8_lossy(&cached.name)
            ));
        }
        if first <= cached.id_in_prefix || !self.job.params.get(&param::FETCH) {
            return Ok(());
        }
        self.job.report.notice(&format!(
            "dataset {first} in the prefix directory is newer than `{}', the newest checkpoint in cache",
            String::from_utf8_lossy(&cached.name)
        ));
        self.loaded = self.fetch_newest(None, Some(cached.id_in_prefix))?;
        self.go_on_from_loaded();
        Ok(())
    }

    /// The first dataset id that was given out after the last restart from this name in this allocation, where there
    /// was one.
    fn restarted_from(&self, name: &[u8]) -> Result<Option<u64>, Error> {
        let mut tree = KvTree::new();
        if self.job.rank() == ROOT {
            match Restarted::read(self.job.files(), &self.job.prefix) {
                Ok(Some(last)) if last.name == name && last.job_id == self.job.params.get(&param::JOB_ID) => {
                    tree.set("NEXT", last.next_id);
                }
                Ok(_) => (),
                Err(error) => self.job.report.error(&crate::describe(&error)),
            }
        }
        let tree = broadcast_tree(&*self.job.comm, ROOT, &tree)?;
        Ok(tree.parse("NEXT").ok().flatten())
    }

    /// Notes that the job has restarted from what the user has named, and makes it the current one.
    fn note_wanted(&self, loaded: &Loaded) -> Result<(), Error> {
        if self.job.rank() != ROOT {
            return Ok(());
        }
        let (files, prefix) = (self.job.files(), &self.job.prefix);
        let job_id = self.job.params.get(&param::JOB_ID);
        let last = Restarted { job_id, name: loaded.name.clone(), next_id: self.cache.next_id() };
        let noted = last
            .write(files, prefix)
            .and_then(|()| Index::update(files, prefix, |index| _ = index.set_current(&loaded.name)));
        if let Err(error) = noted {
            self.job.report.error(&crate::describe(&error));
        }
        Ok(())
    }

    /// Loads the newest checkpoint before `refused`, or the newest of all: from cache, or else from the prefix directory.
    pub(super) fn load_next(&mut self, refused: Option<&Loaded>) -> Result<(), Error> {
        let cached = self.newest_cached(refused.map(|refused| refused.id));
        let below = refused.map(|refused| refused.id_in_prefix);
        let wanted = self.job.params.get(&param::FETCH);
        if wanted {
            // Once the application has refused a checkpoint, one in the prefix directory may be the newest left.
            let above =
                if below.is_some() { cached.as_ref().map(|loaded| loaded.id_in_prefix) } else { None };
            if cached.is_none() || above.is_some() {
                let fetched = self.fetch_newest(below, above)?;
                self.loaded = fetched.or(cached);
                self.go_on_from_loaded();
                return Ok(());
            }
        }
        self.loaded = cached;
        self.go_on_from_loaded();
        Ok(())
    }

    /// New checkpoints are counted on from the one that is loaded.
    fn go_on_from_loaded(&mut self) {
        let at = self.loaded.as_ref().and_then(|loaded| self.cache.position(loaded.id));
        let count = at.and_then(|at| self.cache.datasets()[at].record.dataset.checkpoint_id);
        self.last_checkpoint = count.unwrap_or(self.last_checkpoint);
    }

    pub(super) fn newest_cached(&self, below: Option<u64>) -> Option<Loaded> {
        self.newest_cached_where(|cached| below.is_none_or(|below| cached.id() < below))
    }

    fn newest_cached_where(&self, wanted: impl Fn(&CachedDataset) -> bool) -> Option<Loaded> {
        // Where all files are read in the prefix directory, they must have got there.
        let global = self.job.params.get(&param::GLOBAL_RESTART);
        self.cache
            .datasets()
            .iter()
            .filter(|cached| cached.is_restartable() && wanted(cached))
            .filter(|cached| !global || cached.is_flushed() && !cached.superseded)
            .max_by_key(|cached| cached.id())
            .map(|cached| Loaded {
                id: cached.id(),
                id_in_prefix: cached.record.id_in_prefix,
                name: cached.record.dataset.name.clone(),
            })
    }
}
