//! The facts about a job: what it has written in the prefix directory, and what its nodes say.
//!
//! Nothing is changed, and a file that cannot be read takes nothing else away: it is reported, and the facts are those of the
//! others.

use crate::inspect::{ask, first_silent};
use crate::log::last_failure;
use crate::machine::{pretend, up_and_down, Overrides};
use crate::prelude::*;
use crate::run::JobContext;
use scr_config::descriptor::hostlist::is_same_node;
use scr_core::cache::owner::Owner;
use scr_core::flush::{flushes_under_way, FlushUnderWay};
use scr_core::holdings::{next, Goal, Holding};
use scr_core::plugin::PluginHost;
use scr_core::rebuild::cache_purge;
use scr_ops::{holdings, inspect, is_list_lost, may_lack_entries, Copy, Found, Held, Inspected, Saving};
use scr_plugin_api::LogEntry;
use scr_prefix::ledger::{self, Candidate};
use scr_prefix::{
    Ended, FlushEntry, HaltDue, Index, KnownEnd, LastRun, Location, OtherRun, Overwritten, PrefixFile,
    Rank2File, RestartPoint, Restarted,
};

/// All that is known of a job.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Seconds since the epoch. So are all times here.
    pub(super) now: i64,
    pub(super) prefix: String,
    pub(super) state: State,
    /// The last run, if it has recorded itself.
    pub(super) run: Option<LastRun>,
    /// The runs of other jobs that are under way there, as they describe themselves.
    pub(super) others: Vec<String>,
    /// The checkpoints in cache that a job can restart from, the newest first.
    pub(super) cached: Vec<Held>,
    /// The newest checkpoint that the job has put into cache, if nobody can say that a job restarts from it there.
    pub(super) unusable: Option<Held>,
    /// The newest checkpoint in the prefix directory that it can restart from.
    pub(super) saved: Option<Held>,
    /// The newest ones in cache and in the prefix directory that another number of ranks wrote, which the job cannot read.
    pub(super) of_others: [Option<Held>; 2],
    /// The place of each dataset in cache, and of that checkpoint, and why it counts or not; the newest first.
    pub(super) why: Vec<String>,
    /// Whether the application reads checkpoints in the prefix directory.
    pub(super) reads_in_prefix: bool,
    /// Whether no run is to start without a checkpoint.
    pub(super) requires_restart: bool,
    /// The settings by which the next run takes nothing from the caches, and nothing from the prefix directory.
    pub(super) bars: [Option<String>; 2],
    /// The checkpoint that the next run gives up, as too many restarts from it have begun, and the setting that says so.
    pub(super) spent: Option<(u64, String)>,
    /// The checkpoint that the next run goes back to, by `SCR_CURRENT`.
    pub(super) wish: Option<Vec<u8>>,
    /// Whether it is not known what the prefix directory has.
    pub(super) is_index_unread: bool,
    /// The datasets that `scr postrun` saves.
    pub(super) saves: Vec<String>,
    /// Whether checkpoints go straight to the prefix directory.
    pub(super) is_bypass: bool,
    /// When the last checkpoint was begun, and how long after the one before it was complete.
    pub(super) pace: Option<(i64, Duration)>,
    pub(super) flushes: Vec<FlushUnderWay>,
    pub(super) halt: Option<HaltDue>,
    pub(super) last_error: Option<LogEntry>,
    /// The answers of the nodes; `None` if they were not asked.
    pub(super) nodes: Option<Answers>,
    /// Whether what a job has recorded of its caches is lost, and no node has said what it has.
    pub(super) lacks_list: bool,
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
    /// A halt condition has ended it.
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

/// The answers of the nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// Those that have answered, and the room that they have.
    pub(super) room: Vec<(String, Option<u64>)>,
    /// Those that have not, and why.
    pub(super) silent: Vec<(String, String)>,
}

/// When a checkpoint was begun, if that is known.
pub(super) fn created(checkpoint: &Held) -> Option<i64> {
    i64::try_from(checkpoint.entry.dataset.created / 1_000_000).ok().filter(|&seconds| seconds > 0)
}

impl Facts {
    /// Finds out what there is to know of the job of a prefix directory. While a run replaces a checkpoint, the nodes may be between
    /// two states: what seems to be lost is looked at again.
    pub(super) fn gather(env: &Env, prefix: &Prefix, overrides: &Overrides, asks_nodes: bool) -> Self {
        let look = || Self::look(env, prefix, overrides, asks_nodes);
        let in_between = |facts: &Self| facts.state.may_run() && facts.lacks_parts_of_nodes_that_answer();
        let looks = std::iter::repeat_with(look).take(MOST_LOOKS - 1).find(|facts| !in_between(facts));
        looks.unwrap_or_else(look)
    }

    fn look(env: &Env, prefix: &Prefix, overrides: &Overrides, asks_nodes: bool) -> Self {
        let files = &*env.files;
        let mut facts = Self { now: environment::now(env), ..Self::default() };
        facts.prefix = prefix.dir().display().to_string();
        let is_here = |_: &LastRun| Owner::original(files, prefix).is_none();
        facts.run = facts.known(LastRun::read(files, prefix)).flatten().filter(is_here);
        let halt = facts.known(Halt::read(files, prefix)).flatten();
        let (runs, is_all) = OtherRun::under_way(files, prefix);
        let own = facts.run.as_ref().map(|run| &*run.job_id);
        let is_other = |one: &OtherRun| own.is_some_and(|own| one.allocation().is_some_and(|of| of != own));
        let (others, runs): (Vec<_>, Vec<_>) = runs.into_iter().partition(is_other);
        facts.others = others.into_iter().map(|other| other.line).collect();
        let runs = if runs.is_empty() { is_all.then_some(false) } else { Some(true) };
        facts.state = state(runs, halt.as_ref(), facts.run.as_ref());
        facts.halt = halt.as_ref().and_then(|halt| facts.halt_due(halt));
        facts.flushes = facts.known(flushes_under_way(files, prefix)).unwrap_or_default();
        let flush = facts.known(FlushFile::read(files, prefix)).unwrap_or_default();
        facts.recorded = files.status(&prefix.flush_file()).ok().map(|status| status.mtime.0);
        let index = facts.known(LedgerDir::new(files, prefix).index_of_run(!facts.state.may_run()));
        facts.trouble.extend(prefix.take_notes());
        facts.is_index_unread = index.is_none();
        let params = environment::params_of(env, prefix);
        facts.reads_in_prefix = params.get(&param::GLOBAL_RESTART);
        facts.requires_restart = params.get(&param::REQUIRE_RESTART);
        let given = params.get(&param::JOB_ID);
        let job_id = facts.run.as_ref().map_or_else(|| given.clone(), |run| run.job_id.clone());
        let is_next = params.origin(&param::JOB_ID).is_set() && !facts.state.may_run();
        let next_id = if is_next { given } else { job_id.clone() };
        let other = (next_id != job_id).then(|| format!("SCR_JOB_ID={next_id}"));
        let unfetched = (!params.get(&param::FETCH)).then(|| "SCR_FETCH=0".to_owned());
        let purged = params.get(&param::PREFIX_PURGE).then(|| "SCR_PREFIX_PURGE=1".to_owned());
        facts.bars = [cache_purge(&params).map(str::to_owned).or(other), purged.or(unfetched)];
        let may_lack = may_lack_entries(files, prefix, &job_id);
        let recorded = holdings(files, prefix, &flush, index.as_ref(), None);
        let saving = Saving::of(&recorded, &job_id, may_lack);
        let is_in_cache_only = !saving.saved(|_| true).is_empty();
        let is_lost = is_list_lost(files, prefix);
        // Elsewhere the nodes of a job that has finished may be those of another one by now.
        let may_leave = facts.state != State::Finished || pretend::are_noted(files, prefix);
        let may_leave = may_leave || is_in_cache_only || is_lost;
        let found = if asks_nodes { facts.ask_nodes(env, overrides, may_leave) } else { None };
        facts.lacks_list = is_lost && facts.nodes.as_ref().is_none_or(|nodes| nodes.room.is_empty());
        let (user, silent) = (params.get(&param::USER_NAME), facts.first_silent());
        let (user, job_id, silent) = (&*user, &*job_id, silent.as_deref());
        let found = found.as_deref().map(|datasets| Found { datasets, user, job_id, silent });
        let all =
            found.map_or(recorded, |found| holdings(files, prefix, &flush, index.as_ref(), Some(found)));
        if params.get(&param::SCAVENGE) {
            facts.take_saving(&Saving::of(&all, &next_id, may_lack), &all);
        }
        let loss = |candidate: &Candidate| loss_of(files, prefix, candidate);
        let numbers = facts.known(LedgerDir::new(files, prefix).numbers()).unwrap_or_default();
        let most = params.get(&param::RESTART_ATTEMPTS);
        let is_spent = |held: &&Held| numbers.are_attempts_spent(held.entry.id, &held.entry.name, most);
        facts.spent = all.iter().find(is_spent).map(|held| {
            let name = held.entry.name_text();
            (held.entry.id, format!("SCR_RESTART_ATTEMPTS={most}, spent on {name}"))
        });
        facts.take_cached(&all);
        let is_of_next =
            |held: &&Held| held.entry.is_cached_checkpoint() && held.entry.allocation() == Some(&*next_id);
        if let Some(unseen) = all.iter().find(is_of_next).filter(|_| next_id != job_id) {
            let why = format!("it is in the cache of allocation {next_id}, which was not asked");
            facts.unusable = Some(Held { copy: Copy::Unknown(why), ..unseen.clone() });
        }
        let newest = facts.cached.first().map(|held| held.entry.seq()).filter(|_| facts.bars[0].is_none());
        let listed = index.as_ref().and_then(|index| Some(ledger::in_order(index, None).list.first()?.seq));
        let newest = newest.max(listed.filter(|_| facts.bars[1].is_none()));
        facts.wish = params.get(&param::CURRENT).map(String::into_bytes).filter(|name| {
            let last = facts.known(Restarted::read(files, prefix)).flatten();
            let last = last.filter(|last| last.is_of(name, &next_id));
            // A job goes on from what it has written since it went back.
            last.is_none_or(|last| newest < Some(last.next))
        });
        index.iter().for_each(|index| facts.take_saved(index, &all, &loss));
        let saved = facts.saved.as_ref().map(|saved| saved.entry.id);
        let why = all.iter().filter(|held| held.entry.is_at(Location::Cache) || Some(held.entry.id) == saved);
        facts.why = why.map(|held| format!("{}: {}", held.entry.name_text(), held.in_words())).collect();
        facts.last_error = facts.known(last_failure(env, prefix, job_id)).flatten();
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
        // The next run is in another allocation once that one is over.
        let time = time.filter(|time| self.state.may_run() || *time > self.now);
        rest.due(self.now, KnownEnd { job_id, time })
    }

    /// That a run has no checkpoint, and how many ranks or which settings keep it from those that are there.
    pub(super) fn no_checkpoint(&self, is_left: &str) -> String {
        let is_other = self.of_others.iter().any(Option::is_some);
        let of = self.run.as_ref().filter(|_| is_other).map(|run| format!(" of {} ranks", run.ranks));
        format!("no checkpoint{}{is_left}{}", of.unwrap_or_default(), self.by_bars())
    }

    /// The settings that keep a run from checkpoints.
    pub(super) fn by_bars(&self) -> String {
        let bars = joined(self.bars.iter().flatten().chain(self.spent.iter().map(|(_, why)| why)), " and ");
        let bars = Some(bars).filter(|bars| !bars.is_empty());
        bars.map_or_else(String::new, |bars| format!(" for a run with {bars}"))
    }

    /// Whether the next run may restart from it, as far as it depends on the restarts that have begun.
    pub(super) fn may_try(&self, held: &Held) -> bool {
        self.spent.as_ref().is_none_or(|(spent, _)| *spent != held.entry.id)
    }

    /// Whether a job like the last one can restart from a checkpoint, as far as it depends on who wrote it.
    fn can_read(&self, point: RestartPoint) -> bool {
        self.run.as_ref().is_none_or(|run| run.can_read(point))
    }

    /// The checkpoint that a run would restart from in the prefix directory. One whose files are not there is said to be lost.
    fn take_saved(&mut self, index: &Index, all: &[Held], loss: &dyn Fn(&Candidate) -> Option<String>) {
        let mut candidates = ledger::in_order(index, self.wish.as_deref()).list;
        loop {
            self.take_saved_of(&candidates, all);
            let saved = self.saved.as_ref().map(|saved| saved.entry.seq());
            let chosen = candidates.iter().position(|candidate| Some(candidate.seq) == saved);
            let Some((at, why)) = chosen.and_then(|at| Some((at, loss(&candidates[at])?))) else { return };
            candidates.remove(at);
            self.trouble.push(why);
        }
    }

    fn take_saved_of(&mut self, candidates: &[Candidate], all: &[Held]) {
        let is_it =
            |candidate: &Candidate, held: &Held| held.entry.id == candidate.seq.id && self.may_try(held);
        let of = |candidate: &Candidate| all.iter().find(|held| is_it(candidate, held));
        let (own, others): (Vec<_>, Vec<_>) =
            candidates.iter().filter_map(of).partition(|held| self.can_read(held.entry.restart_point()));
        let first = own.first().map(|held| held.entry.seq()).unwrap_or_default();
        let in_index = |held: &Held| Holding::listed(held.entry.seq(), first);
        let listed = |held: &&Held| Holding { prefix: held.holding().prefix, ..in_index(held) };
        let holdings: Vec<_> = own.iter().map(listed).collect();
        let next = next(&holdings, Goal::Restart { in_prefix: self.reads_in_prefix });
        self.saved = own.iter().find(|held| Some(listed(held)) == next).map(|held| held.in_prefix());
        self.of_others[1] = others.first().map(|held| held.in_prefix());
    }

    /// Records what `scr postrun` does, if it finds the datasets that the nodes have, or else those that they have had.
    fn take_saving(&mut self, saving: &Saving, all: &[Held]) {
        let is_silent = self.is_silent();
        let is_whole = |dataset: &FlushEntry| {
            !is_silent && all.iter().any(|held| held.entry.id == dataset.id && held.copy.is_whole())
        };
        self.saves = saving.saved(is_whole).iter().map(|(dataset, _)| dataset.name_text()).collect();
    }

    fn lacks_parts_of_nodes_that_answer(&self) -> bool {
        let answer = self.nodes.as_ref().is_some_and(|nodes| nodes.silent.is_empty());
        let lacks = |held: &Held| matches!(held.copy, Copy::Lost(_) | Copy::Whole { lost: 1.., .. });
        answer && self.cached.iter().chain(&self.unusable).any(lacks)
    }

    /// Whether nodes were asked, and none has answered.
    fn is_silent(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.room.is_empty())
    }

    /// A node that has not said what it has, and why.
    pub(super) fn first_silent(&self) -> Option<String> {
        first_silent(&self.nodes.as_ref()?.silent)
    }

    /// The datasets that the nodes have, if any node answers. Asks none elsewhere unless it `may_leave` the allocation.
    fn ask_nodes(&mut self, env: &Env, overrides: &Overrides, may_leave: bool) -> Option<Vec<Inspected>> {
        let job = self.known(job(env, overrides, self.run.as_ref(), may_leave))??;
        let down = || job.allocation.reported_down().unwrap_or_default();
        let (up, down) = up_and_down(&job.allocation, job.params.get(&param::NODE_NAME), down);
        let why = format!("did not answer: {} reports it down", job.allocation.manager.name);
        let down = down.into_iter().map(|node| (node, why.clone()));
        let found = self.known(ask(&job.allocation, &up, &[], LONGEST))?;
        let mut room: Vec<_> = found.inventories.iter().map(|(node, has)| (node.clone(), has.room)).collect();
        room.sort_by_key(|(_, room)| room.unwrap_or(u64::MAX));
        self.nodes = Some(Answers { room, silent: down.chain(found.silent).collect() });
        let plugins = PluginHost::configured(&job.env, &job.params);
        let inventories = found.inventories;
        (!inventories.is_empty()).then(|| inspect(inventories.into_values().collect(), &plugins))
    }

    /// Records the checkpoints in cache, as the nodes have them, or else as the job has recorded them.
    fn take_cached(&mut self, all: &[Held]) {
        let job_id = self.run.as_ref().map(|run| run.job_id.as_str());
        // A run takes what it has not fetched, and is in the prefix directory, off the list.
        let is_fetched = |held: &Held| held.is_in_prefix() && held.copy != Copy::None;
        let is_own = |held: &Held| {
            held.entry.allocation().zip(job_id).is_none_or(|(of, own)| of == own) || is_fetched(held)
        };
        let cached = all.iter().filter(|held| held.entry.is_cached_checkpoint() && is_own(held));
        let (mut cached, others): (Vec<_>, Vec<_>) =
            cached.partition(|held| self.can_read(held.entry.restart_point()));
        let is_whole = |held: &Held| held.entry.is_on_nodes() && held.copy.is_whole();
        self.of_others[0] = others.into_iter().find(|held| is_whole(held)).cloned();
        let newest = cached.first().map(|held| (created(held), &held.entry.in_cache));
        self.pace = newest.and_then(|(begun, kept)| begun.zip(kept.after));
        self.is_bypass = newest.is_some_and(|(_, kept)| kept.bypass);
        cached.retain(|held| held.entry.is_on_nodes());
        self.cached = cached.iter().filter(|held| is_whole(held)).map(|&held| held.clone()).collect();
        self.unusable = cached.first().filter(|held| !held.copy.is_whole()).map(|&held| held.clone());
        if self.state.has_ended() && self.is_silent() {
            // The allocation may be gone, with all that its nodes had.
            self.cached.iter_mut().for_each(|held| held.entry.in_cache.survives = None);
        }
    }
}

/// That no run may be able to read a checkpoint in the prefix directory, and why.
pub(crate) fn loss_of(files: &dyn Files, prefix: &Prefix, candidate: &Candidate) -> Option<String> {
    let what = format!("`{}' in the prefix directory may be unreadable", candidate.name_text());
    why_lost(files, prefix, candidate).map(|why| format!("{what}: {why}"))
}

/// As far as its lists, the lengths of its files and the records of those tell that were given to later datasets.
fn why_lost(files: &dyn Files, prefix: &Prefix, candidate: &Candidate) -> Option<String> {
    let id = candidate.seq.id;
    // What a later release has written is lost for this one.
    let loss = Rank2File::loss(files, prefix, id).unwrap_or_else(|error| Some(describe(&error)));
    if loss.is_some() {
        return loss;
    }
    let lists = candidate.suspect.then(|| Rank2File::read(files, prefix, id).ok())??;
    let is_given_out =
        |file: &&PrefixFile| Overwritten::since(files, prefix, &file.name, candidate.seq).unwrap_or(false);
    let file = lists.by_rank().iter().flatten().find(is_given_out)?;
    Some(format!("{} was given to the application to write over, for a later dataset", file.name))
}

/// C SCR says only in the halt file that the job has finished.
fn state(runs: Option<bool>, halt: Option<&Halt>, run: Option<&LastRun>) -> State {
    match (runs, run.and_then(|run| run.ended.as_ref())) {
        (Some(true), _) => State::Running,
        (_, Some(Ended::Halted(_))) => State::Stopped,
        (_, Some(Ended::Finished)) => State::Finished,
        (_, None) if halt.is_some_and(Halt::is_finalized) => State::Finished,
        (None, None) => State::Unknown,
        (Some(false), None) if run.is_some() => State::Died,
        (Some(false), None) => State::NoRun,
    }
}

/// The job to ask the nodes of: that of the allocation here, or else of the one that the last run has recorded.
fn job(env: &Env, given: &Overrides, run: Option<&LastRun>, may_leave: bool) -> Result<Option<JobContext>> {
    let find = |env: Env, given: &Overrides| {
        let params = environment::params(&env);
        JobContext::find(env, params, given)
    };
    let here = find(env.clone(), given);
    let Some(run) = run else { return here.context("the nodes of the job are not known").map(Some) };
    let is_its = |job: &JobContext| {
        let is_here =
            |node: &String| *node == job.params.get(&param::NODE_NAME) || is_same_node(node, &job.env.host);
        let is_alone = job.allocation.is_here_alone();
        job.allocation.job_id == run.job_id && (!is_alone || run.nodes.iter().all(is_here))
    };
    match here {
        Ok(job) if is_its(&job) => Ok(Some(job)),
        _ if !may_leave => Ok(None),
        _ => {
            let mut env = env.clone();
            let id = environment::as_setting(&run.job_id);
            env.variables.insert(param::JOB_ID.info().name.to_owned(), id);
            find(env, &Overrides { nodes: Some(run.all_nodes()), ..given.clone() }).map(Some)
        }
    }
}

/// How long a node may take to answer. A look must not take long, and one that does not answer now may be asked again.
const LONGEST: Duration = Duration::from_secs(30);
/// How often to look at a run that may be replacing a checkpoint.
const MOST_LOOKS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_prefix::DatasetDescriptor;
    use scr_test_kit::fixtures::ChangeIndex as _;

    /// A run passes over what lies in containers if its ranks read in the prefix directory, and takes what the index calls current.
    #[test]
    fn the_checkpoint_in_the_prefix_directory_is_the_one_that_a_run_takes() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        for (containers, current, reads_in_prefix, expected) in [
            (None, None, true, Some(7)),
            (Some(7), None, false, Some(7)),
            (Some(7), None, true, Some(6)),
            (None, Some("ckpt.5"), false, Some(5)),
            (Some(5), Some("ckpt.5"), true, Some(7)),
        ] {
            let mut index = Index::new();
            for id in 5..=7 {
                let (name, aggregated) = (format!("ckpt.{id}").into_bytes(), containers == Some(id));
                let dataset =
                    DatasetDescriptor { id, name, aggregated, checkpoint: true, ..Default::default() };
                index.record(&dataset, true);
            }
            current.into_iter().for_each(|name| assert!(index.set_current(name.as_bytes())));
            let all = holdings(&RealFiles, &prefix, &FlushFile::default(), Some(&index), None);
            let mut facts = Facts { reads_in_prefix, ..Facts::default() };
            facts.take_saved(&index, &all, &|_| None);
            assert_eq!(facts.saved.map(|saved| saved.entry.id), expected, "{containers:?} {current:?}");
        }
    }
}
