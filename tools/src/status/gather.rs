//! The facts about a job: what it has written in the prefix directory, and what its nodes say.
//!
//! Nothing is changed, and a file that cannot be read takes nothing else away: it is reported, and the facts are those of the
//! others.

use crate::environment;
use crate::inspect::{ask, inventory_here};
use crate::log::last_failure;
use crate::machine::health::nodes_with_data;
use crate::machine::Overrides;
use crate::run::JobContext;
use anyhow::{Context, Result};
use scr_base::env::Env;
use scr_comm::placement::Survives;
use scr_config::descriptor::hostlist::is_same_node;
use scr_config::param;
use scr_core::flush::{flushes_under_way, FlushUnderWay};
use scr_ops::{add_unlisted, inspect, Inspected, JobEnd, Saving};
use scr_plugin_api::LogEntry;
use scr_prefix::ledger::LedgerDir;
use scr_prefix::{
    DatasetDescriptor, FlushEntry, FlushFile, Halt, HaltDue, Index, IndexEntry, KnownEnd, LastRun, Location,
    Prefix, RestartPoint, RunState, Seq,
};
use serde::Serialize;
use std::time::Duration;

/// All that is known of a job.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Seconds since the epoch. So are all times here.
    pub(super) now: i64,
    pub(super) prefix: String,
    pub(super) state: State,
    /// The last run, if it has recorded itself.
    pub(super) run: Option<LastRun>,
    /// The checkpoints in cache that a job can restart from, the newest first.
    pub(super) cached: Vec<Checkpoint>,
    /// The newest checkpoint that the job has put into cache and that is not whole there any more, and why.
    pub(super) unusable: Option<(String, String)>,
    /// The newest checkpoint in the prefix directory that it can restart from.
    pub(super) saved: Option<Checkpoint>,
    /// The newest ones in cache and in the prefix directory that another number of ranks wrote, which the job cannot read.
    pub(super) of_others: [Option<Checkpoint>; 2],
    /// Whether it is not known what the prefix directory has.
    pub(super) is_index_unread: bool,
    /// The datasets that `scr postrun` saves, and the checkpoints that it leaves in cache as the settings ask for that.
    pub(super) saves: Vec<String>,
    pub(super) leaves: Vec<String>,
    /// Whether checkpoints go straight to the prefix directory.
    pub(super) is_bypass: bool,
    /// When the last checkpoint was begun, and how long after the one before it was complete.
    pub(super) pace: Option<(i64, Duration)>,
    pub(super) flushes: Vec<FlushUnderWay>,
    pub(super) halt: Option<HaltDue>,
    pub(super) last_error: Option<LogEntry>,
    /// The answers of the nodes; `None` if they were not asked.
    pub(super) nodes: Option<Answers>,
    /// When the job last changed where its datasets are.
    pub(super) recorded: Option<i64>,
    /// The facts that could not be found out, and why.
    pub(super) trouble: Vec<String>,
}

/// Whether the job runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Running,
    /// It has called `SCR_Finalize`.
    Finished,
    /// It has called it since its allocation was about to end.
    Stopped,
    /// It has not called it.
    Died,
    /// No run has recorded itself.
    #[default]
    #[serde(rename = "none")]
    NoRun,
    /// That cannot be found out here.
    Unknown,
}

impl State {
    /// Whether the job may be at work.
    pub(super) fn may_run(self) -> bool {
        matches!(self, Self::Running | Self::Unknown)
    }

    /// Whether the job has been at work, and is not any more.
    pub(super) fn has_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Stopped | Self::Died)
    }
}

/// A checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) seq: Seq,
    pub(super) name: String,
    /// Its number among the checkpoints of the job.
    pub(super) number: Option<u64>,
    pub(super) created: Option<i64>,
    pub(super) bytes: Option<u64>,
    /// How many nodes may be lost, where that is known.
    pub(super) survives: Option<Survives>,
    pub(super) scheme: String,
    /// Whether the scheme has not protected it yet.
    pub(super) is_local: bool,
    /// How many ranks' parts are lost and can be rebuilt, of how many.
    pub(super) lost: usize,
    pub(super) ranks: Option<u32>,
}

/// The answers of the nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// Those that have answered, and the room that they have.
    pub(super) room: Vec<(String, Option<u64>)>,
    /// Those that have not, and why.
    pub(super) silent: Vec<(String, String)>,
}

impl Checkpoint {
    fn of(name: &[u8], seq: Seq, dataset: Option<&DatasetDescriptor>) -> Self {
        let dataset = dataset.cloned().unwrap_or_default();
        let seconds = i64::try_from(dataset.created / 1_000_000).ok().filter(|&seconds| seconds > 0);
        Self {
            seq,
            name: String::from_utf8_lossy(name).into_owned(),
            number: dataset.checkpoint_id,
            created: seconds,
            bytes: dataset.bytes,
            ranks: dataset.ranks,
            ..Self::default()
        }
    }

    /// As the job has recorded it.
    fn recorded(entry: &FlushEntry) -> Self {
        let kept = &entry.in_cache;
        Self {
            survives: kept.survives,
            scheme: kept.scheme.clone().unwrap_or_default(),
            is_local: kept.is_local,
            ..Self::of(&entry.name, entry.seq(), entry.dataset.as_ref())
        }
    }

    /// As it is on the nodes.
    fn inspected(found: &Inspected) -> Self {
        let seq = Seq { id: found.id, ..found.dataset.seq() };
        Self {
            survives: found.survives,
            scheme: found.scheme.clone().unwrap_or_default(),
            is_local: found.is_local,
            lost: found.lost.len(),
            ranks: Some(found.ranks),
            ..Self::of(&found.dataset.name, seq, Some(&found.dataset))
        }
    }
}

impl Facts {
    /// Finds out what there is to know of the job of a prefix directory.
    pub(super) fn gather(env: &Env, prefix: &Prefix, overrides: &Overrides, asks_nodes: bool) -> Self {
        let files = &*env.files;
        let mut facts = Self { now: environment::now(env), ..Self::default() };
        facts.prefix = prefix.dir().display().to_string();
        facts.run = facts.known(LastRun::read(files, prefix)).flatten();
        let halt = facts.known(Halt::read(files, prefix)).flatten();
        facts.state = state(RunState::find(files, prefix), halt.as_ref(), facts.run.is_some());
        facts.halt = halt.as_ref().and_then(|halt| facts.halt_due(halt));
        facts.flushes = facts.known(flushes_under_way(files, prefix)).unwrap_or_default();
        let flush = facts.known(FlushFile::read(files, prefix)).unwrap_or_default();
        facts.recorded = files.status(&prefix.flush_file()).ok().map(|status| status.mtime.0);
        match facts.known(LedgerDir::new(files, prefix).index_as_it_is()) {
            Some(index) => facts.take_saved(&index),
            None => facts.is_index_unread = true,
        }
        let params = environment::params_of(env, prefix);
        let job_id = match &facts.run {
            Some(run) => run.job_id.clone(),
            None => params.get(&param::JOB_ID),
        };
        let end = JobEnd::read(files, prefix, &job_id, params.get(&param::FLUSH));
        let mut unsaved = FlushFile::read_as_it_is(files, prefix, None).unwrap_or_default();
        let saving = Saving::of(&unsaved, &job_id, &end);
        let is_in_cache_only = !saving.left.is_empty() || !saving.saved(|_| true).is_empty();
        let found = match asks_nodes && (facts.state != State::Finished || is_in_cache_only) {
            true => facts.ask_nodes(env, prefix, overrides),
            false => None,
        };
        if let Some(found) = found.as_ref().filter(|_| end.may_lack_entries()) {
            let whole = found.iter().filter(|found| found.beyond_repair.is_none());
            let whole: Vec<_> = whole.map(|found| found.dataset.clone()).collect();
            // Files that cannot be read were reported before.
            let _ = add_unlisted(files, prefix, &mut unsaved, &whole);
        }
        facts.take_saving(&Saving::of(&unsaved, &job_id, &end), found.as_deref());
        facts.take_cached(&flush, found.as_deref());
        facts.last_error = facts.known(last_failure(env, prefix, &job_id)).flatten();
        facts
    }

    /// The value, or what is to be said of its absence.
    fn known<T, E: Into<anyhow::Error>>(&mut self, found: Result<T, E>) -> Option<T> {
        found.map_err(|error| self.trouble.push(format!("{:#}", error.into()))).ok()
    }

    /// When a job is to halt. That the last run has finished stops only the next one.
    fn halt_due(&self, halt: &Halt) -> Option<HaltDue> {
        let reason = halt.exit_reason.clone().filter(|_| !halt.is_finalized());
        let rest = Halt { exit_reason: reason, ..halt.clone() };
        let (job_id, time) = self.run.as_ref().map_or(("", None), |run| (run.job_id.as_str(), run.end));
        rest.due(self.now, KnownEnd { job_id, time })
    }

    /// Whether a job like the last one can restart from a checkpoint, as far as it depends on who wrote it.
    fn can_read(&self, point: RestartPoint) -> bool {
        self.run.as_ref().is_none_or(|run| run.can_read(point))
    }

    /// The newest checkpoint of an index that the job can restart from.
    fn take_saved(&mut self, index: &Index) {
        let (own, others): (Vec<_>, Vec<_>) =
            index.candidates().into_iter().partition(|entry| self.can_read(entry.restart_point()));
        let checkpoint = |entry: &IndexEntry| {
            let known = Checkpoint::of(&entry.name, entry.seq(), entry.dataset.as_ref());
            Checkpoint { survives: Some(Survives::All), ..known }
        };
        self.saved = own.first().map(checkpoint);
        self.of_others[1] = others.first().map(checkpoint);
    }

    /// Records what `scr postrun` does, if it finds the datasets that the nodes have `found`, or else those that they have had.
    fn take_saving(&mut self, saving: &Saving, found: Option<&[Inspected]>) {
        let is_silent = self.is_silent();
        let is_whole = |dataset: &FlushEntry| match found {
            Some(found) => found.iter().any(|found| found.id == dataset.id && found.beyond_repair.is_none()),
            None => !is_silent && dataset.in_cache.damage.is_none(),
        };
        self.saves = saving.saved(is_whole).into_iter().map(name).collect();
        self.leaves = saving.left.iter().map(name).collect();
    }

    /// Whether nodes were asked, and none has answered.
    fn is_silent(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.room.is_empty())
    }

    /// The datasets that the nodes have, if any node answers.
    fn ask_nodes(&mut self, env: &Env, prefix: &Prefix, overrides: &Overrides) -> Option<Vec<Inspected>> {
        let job = self.known(context(env, overrides, self.run.as_ref()))?;
        let mut answers = Answers::default();
        let mut inventories = Vec::new();
        let host = job.params.get(&param::NODE_NAME);
        let all = match job.allocation.is_here_alone() {
            true => vec![(
                host,
                inventory_here(&job.env, &job.params, prefix, &[]).map_err(|error| format!("{error:#}")),
            )],
            false => {
                let up = nodes_with_data(&job.allocation, &mut |_| ());
                let down = job.allocation.nodes.iter().filter(|node| !up.contains(node));
                let why = format!("{} reports it down", job.allocation.manager.name);
                answers.silent.extend(down.map(|node| (node.clone(), why.clone())));
                let found = self.known(ask(&job.allocation, &job.params, &up, &[], LONGEST))?;
                up.into_iter()
                    .zip(found.into_iter().map(|found| found.map(|(inventory, _)| inventory)))
                    .collect()
            }
        };
        for (node, answer) in all {
            match answer {
                Ok(inventory) => {
                    answers.room.push((node, inventory.room()));
                    inventories.push(inventory);
                }
                Err(why) => answers.silent.push((node, why)),
            }
        }
        answers.room.sort_by_key(|(_, room)| room.unwrap_or(u64::MAX));
        self.nodes = Some(answers);
        let plugins = environment::plugin_host_of(&job.env, &job.params, None);
        (!inventories.is_empty()).then(|| inspect(inventories, &plugins))
    }

    /// Records the checkpoints in cache: as the nodes have `found` them, or else as the job has recorded them.
    fn take_cached(&mut self, flush: &FlushFile, found: Option<&[Inspected]>) {
        let mut recorded = flush.entries();
        let job_id = self.run.as_ref().map(|run| run.job_id.as_str());
        let is_own = |entry: &FlushEntry| entry.allocation().zip(job_id).is_none_or(|(of, own)| of == own);
        recorded.retain(|entry| entry.checkpoint && entry.is_at(Location::Cache) && is_own(entry));
        let (mut recorded, others): (Vec<_>, Vec<_>) =
            recorded.into_iter().partition(|entry| self.can_read(entry.restart_point()));
        let is_on_nodes = |entry: &&FlushEntry| entry.is_on_nodes();
        self.of_others[0] = others.iter().find(is_on_nodes).map(Checkpoint::recorded);
        let is_bypass = |entry: &FlushEntry| {
            entry.in_cache.scheme.is_none() && entry.in_cache.survives == Some(Survives::All)
        };
        self.pace = recorded.first().and_then(|entry| {
            let begun = Checkpoint::recorded(entry).created?;
            Some((begun, entry.in_cache.after?))
        });
        self.is_bypass = recorded.first().is_some_and(is_bypass);
        recorded.retain(|entry| !is_bypass(entry));
        let Some(found) = found else {
            let whole = recorded.iter().filter(|entry| entry.in_cache.damage.is_none());
            self.cached = whole.map(Checkpoint::recorded).collect();
            if self.state.has_ended() && self.is_silent() {
                // The allocation may be gone, with all that its nodes had.
                self.cached.iter_mut().for_each(|checkpoint| checkpoint.survives = None);
            }
            let damaged = recorded.first().and_then(|newest| Some((newest, newest.in_cache.damage.clone()?)));
            self.unusable = damaged.map(|(entry, why)| (name(entry), why));
            return;
        };
        let found = found.iter().filter(|found| found.dataset.checkpoint && found.scheme.is_some());
        let (whole, others): (Vec<_>, Vec<_>) = found.partition(|found| found.beyond_repair.is_none());
        let (whole, of_others): (Vec<_>, Vec<_>) =
            whole.into_iter().partition(|found| self.can_read(found.restart_point()));
        self.of_others[0] = of_others.first().map(|found| Checkpoint::inspected(found));
        self.cached = whole.iter().map(|found| Checkpoint::inspected(found)).collect();
        let is_missing = |entry: &&FlushEntry| {
            let is_older = |found: &&Inspected| found.dataset.seq() < entry.seq();
            whole.iter().all(is_older)
        };
        let missing = recorded.iter().find(is_missing);
        self.unusable = missing.map(|entry| {
            let why = others.iter().find(|found| found.dataset.id == entry.id);
            let why = why.and_then(|found| found.beyond_repair.clone());
            let why = why.unwrap_or_else(|| "no node that answers has any part of it".to_owned());
            (name(entry), why)
        });
    }
}

fn name(entry: &FlushEntry) -> String {
    String::from_utf8_lossy(&entry.name).into_owned()
}

fn state(run: RunState, halt: Option<&Halt>, is_recorded: bool) -> State {
    match (run, halt.filter(|halt| halt.is_finalized())) {
        (RunState::Running, _) => State::Running,
        (_, Some(halt)) if halt.stopped_in_time => State::Stopped,
        (_, Some(_)) => State::Finished,
        (RunState::Unknown, None) => State::Unknown,
        (RunState::NotRunning, None) if is_recorded => State::Died,
        (RunState::NotRunning, None) => State::NoRun,
    }
}

/// The job to ask the nodes of: that of the allocation here, or else of the one that the last run has recorded.
fn context(env: &Env, overrides: &Overrides, run: Option<&LastRun>) -> Result<JobContext> {
    let here = JobContext::in_env(env.clone(), overrides);
    let Some(run) = run else { return here.context("the nodes of the job are not known") };
    let is_its = |job: &JobContext| {
        let is_here =
            |node: &String| *node == job.params.get(&param::NODE_NAME) || is_same_node(node, &job.env.host);
        let is_alone = job.allocation.is_here_alone();
        job.allocation.job_id == run.job_id && (!is_alone || run.nodes.iter().all(is_here))
    };
    match here {
        Ok(job) if is_its(&job) => Ok(job),
        _ => {
            let mut env = env.clone();
            let id = environment::as_setting(&run.job_id);
            env.variables.insert(param::JOB_ID.info().name.to_owned(), id);
            JobContext::in_env(env, &Overrides { nodes: Some(run.nodes.clone()), ..overrides.clone() })
        }
    }
}

/// How long a node may take to answer. A look must not take long, and one that does not answer now may be asked again.
const LONGEST: Duration = Duration::from_secs(30);
