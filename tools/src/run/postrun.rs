//! `scr postrun`: saves what a job has left in cache when it has ended within an allocation. See docs/user/save-a-dead-job.md.
//!
//! It waits for detached flushes and finishes them. Then it saves the datasets that are only in the caches of the nodes:
//! `scr copy` runs on every node that is left, and the parts of lost nodes are rebuilt in the prefix directory.

use super::{are_configured, AroundArgs, JobContext};
use crate::copy::warnings;
use crate::inspect::{ask, first_silent};
use crate::machine::{
    asked, command_here, nodes_with_data, up_and_down, Activity, Allocation, Finished, Limit,
};
use crate::poststage;
use crate::prelude::*;
use crate::report;
use scr_core::flush::flushes_under_way;
use scr_core::log::{Event, Log, Record};
use scr_core::scavenge::{Builder, Built, Copied, Outcome};
use scr_ops::{
    holdings, inspect, is_list_lost, may_lack_entries, of_another, Found, Inspected, Plan, Saving,
};
use scr_prefix::{FlushEntry, LastRun, Location, OtherRun};
use std::cell::{Cell, OnceCell};

/// Which job.
#[derive(Args)]
pub(crate) struct PostrunArgs {
    #[command(flatten)]
    around: AroundArgs,
    /// The job has ended, though a process of it is still there
    #[arg(long)]
    ended: bool,
}

/// Runs the command.
pub(crate) fn run(args: &PostrunArgs) -> Result<Answer> {
    let mut job = JobContext::on(&args.around.place.job(), None, true)?;
    if !job.params.get(&param::ENABLE) {
        return Ok(Answer::Yes);
    }
    let prefix = environment::prefix(&mut job.env, Some(&job.params.get(&param::PREFIX)))?;
    if !environment::was_used(&prefix) {
        warn(format_args!("{}: there is nothing to save", environment::unused(&prefix)));
        return Ok(Answer::Yes);
    }
    if !args.ended {
        expect_ended(&job, |run| run.allocation() == Some(&*job.allocation.job_id))?;
    }
    let log = Log::of_command(&job.env, &job.params, "scr postrun", &prefix);
    let is_safe = finish(&job, &log, true)?;
    report::block(&job).iter().flatten().for_each(warn);
    Ok(Answer::from(is_safe))
}

/// Fails where a run that `is_meant` goes on, as the node of its rank 0 says, or its lock where nobody has recorded the nodes of
/// that allocation. One that is just ending is waited for.
pub(super) fn expect_ended(
    JobContext { env, params, prefix, allocation, .. }: &JobContext,
    is_meant: impl Fn(&OtherRun) -> bool,
) -> Result<()> {
    let (id, until) = (&*allocation.job_id, Instant::now() + LONGEST_END);
    // No other name becomes a word of a command.
    let (mut all, _) = up_and_down(allocation, params.get(&param::NODE_NAME), Vec::new);
    let files = &*env.files;
    let last = LastRun::read(files, prefix).ok().flatten();
    let is_other = last.as_ref().is_some_and(|run| run.job_id != id);
    all.extend(last.filter(|_| !is_other).iter().flat_map(LastRun::all_nodes));
    loop {
        let begun = OtherRun::begun(files, prefix).into_iter().filter(&is_meant);
        let nodes: Vec<_> = begun.filter_map(|run| hostlist::find(run.process()?.1, &all).cloned()).collect();
        let answers = ask(allocation, &nodes, &[], LONGEST_LOOK).unwrap_or_default();
        let held = if is_other { OtherRun::under_way(files, prefix).0 } else { Vec::new() };
        let held = held.into_iter().map(|run| run.line);
        let runs = answers.inventories.into_values().flat_map(|inventory| inventory.runs).chain(held);
        let Some(run) = runs.map(|run| OtherRun::of(&run)).find(&is_meant) else { return Ok(()) };
        ensure!(
            Instant::now() < until,
            "job {} has not ended, and nothing is saved ({}): run `scr postrun' once it has ended; with --ended it saves all the same",
            run.allocation().unwrap_or(id),
            run.line
        );
        std::thread::sleep(LONGEST_END / 50);
    }
}

/// Saves the datasets that a job has left in cache only, and returns whether everything that has to be kept is in the prefix
/// directory. Says also that there is nothing to save, if that is wanted.
///
/// # Errors
/// It cannot be found out what is in cache.
pub(super) fn finish(job: &JobContext, log: &Log, says_nothing: bool) -> Result<bool> {
    let JobContext { params, allocation, .. } = job;
    let (mut env, prefix) = (job.env.clone(), Prefix::at(&*job.env.files, job.prefix.dir()));
    environment::hold(&mut env, prefix.dir())?;
    let env = &env;
    let (nodes, has_begun) = (OnceCell::new(), Cell::new(false));
    let (user, job_id) = (&*params.get(&param::USER_NAME), &*allocation.job_id);
    let scavenge = Scavenge { env, prefix: &prefix, user, allocation, nodes, log, has_begun };
    scavenge.end_flushes(are_configured(params) && allocation.wants_agent_steps())?;
    if !params.get(&param::SCAVENGE) {
        warn("SCR_SCAVENGE=0: what the job has left in cache only is not saved");
        return Ok(true);
    }
    let may_lack = may_lack_entries(&*env.files, &prefix, &allocation.job_id);
    let (found, silent) = if may_lack { scavenge.look() } else { Default::default() };
    let found = may_lack.then_some(Found { datasets: &found, user, job_id, silent: None });
    let flush = FlushFile::read_undamaged(&*env.files, &prefix)?.unwrap_or_default();
    // A damaged index is replaced by a new one.
    let index = LedgerDir::new(&*env.files, &prefix).index()?;
    let holdings = holdings(&*env.files, &prefix, &flush, Some(&index), found);
    prefix.take_notes().iter().for_each(warn);
    let saving = Saving::of(&holdings, job_id, may_lack);
    if holdings.iter().any(|held| !held.is_listed && saving.fate(held.entry.id).is_some()) {
        warn(format_args!("{} lacks datasets that the nodes have", prefix.flush_file().display()));
    }
    let no_answer = || scavenge.nodes().is_empty().then(|| "no node answers".to_owned());
    let silent = if is_list_lost(&*env.files, &prefix) { silent.or_else(no_answer) } else { None };
    if let Some(silent) = &silent {
        warn(format_args!(
            "{} is lost, and {silent}: it is not known what is in cache only; try again as long as the nodes are there",
            prefix.flush_file().display()
        ));
    }
    let is_known = silent.is_none();
    let is_safe = saving.carry_out(|dataset, plan| {
        let (id, name, job_id) = (dataset.id, dataset.name_text(), &dataset.dataset.job_id);
        match plan {
            Plan::PassedOver => warn(format_args!(
                "a run of another allocation has gone on from a checkpoint before dataset {id} `{name}', which was in cache only; that \
                 one is saved too, and to restart from it, start with SCR_CURRENT={name}"
            )),
            Plan::Elsewhere => warn(format_args!(
                "dataset {id} `{name}' is only in the cache of allocation {job_id}; if its nodes are still there, save it with \
                 SCR_JOB_ID={job_id} in the environment of this command; if they are gone, it is lost, and `scr index --drop' with \
                 its name forgets it"
            )),
            Plan::Output | Plan::Newest => (),
        }
        plan != Plan::Elsewhere && scavenge.save(dataset)
    });
    if scavenge.has_begun.get() {
        log.add_entry(Record::event(Event::PostrunEnd));
    }
    if says_nothing && is_known && saving.0.is_empty() {
        let asked = scavenge.nodes.get().map_or_else(String::new, |nodes| format!(" ({})", asked(nodes)));
        warn(format_args!("no dataset is in cache only: there is nothing to save{asked}"));
    }
    Ok(is_safe && is_known)
}

/// Brings datasets from the nodes to the prefix directory.
struct Scavenge<'a> {
    env: &'a Env,
    prefix: &'a Prefix,
    user: &'a str,
    allocation: &'a Allocation,
    nodes: OnceCell<Vec<String>>,
    log: &'a Log,
    has_begun: Cell<bool>,
}

impl Scavenge<'_> {
    /// The work begins. Where there is none, nothing is logged: a job that ended long ago would seem to have gone on until now.
    fn begin(&self) {
        if !self.has_begun.replace(true) {
            self.log.add_entry(Record::event(Event::PostrunStart));
        }
    }

    /// The nodes that answer. Whether a job could run there does not matter for what they hold.
    fn nodes(&self) -> &[String] {
        self.nodes.get_or_init(|| {
            let mut nodes = nodes_with_data(self.allocation, self.env.host.clone());
            let answers = ask(self.allocation, &nodes, &[], LONGEST_LOOK).unwrap_or_default();
            nodes.retain(|node| answers.inventories.contains_key(node));
            for (node, why) in answers.silent.iter().filter(|(node, _)| !nodes.contains(node)) {
                warn(format_args!("node {node} is not asked for what it holds: it {why}"));
            }
            nodes
        })
    }

    /// Finds what the nodes have, and which one has something that could not be read: a job that had no room in the prefix
    /// directory could not write it to the flush file. A node that does not answer has nothing.
    fn look(&self) -> (Vec<Inspected>, Option<String>) {
        let mut answers = ask(self.allocation, self.nodes(), &[], LONGEST_LOOK).unwrap_or_default();
        answers.silent.retain(|(node, _)| answers.inventories.contains_key(node));
        let (inventories, silent) = (answers.inventories.into_values().collect(), answers.silent);
        (inspect(inventories, &environment::plugin_host(self.env)), first_silent(&silent))
    }

    /// Waits for the copies that agents still make, and finishes the flushes whose data has arrived. Agents that were
    /// started for the job end.
    fn end_flushes(&self, has_agents: bool) -> Result<()> {
        let (files, prefix) = (&*self.env.files, self.prefix);
        let entries = FlushFile::read_undamaged(files, prefix)?.unwrap_or_default();
        let is_begun = |id| entries.entry(id).is_some_and(|entry| entry.is_at(Location::Flushing));
        let goes_on = flushes_under_way(files, prefix)?.iter().any(|flush| is_begun(flush.dataset.id));
        if goes_on {
            self.begin();
            warn("waiting for flushes that are under way");
        }
        if goes_on || has_agents {
            for (node, ended) in self.on_nodes(&["agent", "--drain", "--heartbeat"]) {
                let why = ended.and_then(Finished::expect_success).err();
                why.iter().for_each(|why| warn(format_args!("node {node}: {why:#}")));
            }
        }
        let report = poststage::end(self.env, self.prefix)?;
        report.errors.iter().chain(&report.lines).for_each(warn);
        Ok(())
    }

    /// Saves a dataset and reports how that went. Returns whether it is complete in the prefix directory now.
    fn save(&self, dataset: &FlushEntry) -> bool {
        let label = format!("dataset {} `{}'", dataset.id, dataset.name_text());
        let is_seen = || self.look().0.iter().any(|found| found.dataset.id == dataset.id);
        if let Some(why) = of_another(dataset, self.user).filter(|_| !is_seen()) {
            warn(format_args!("{label} could not be saved: {why}"));
            return false;
        }
        let nodes = count(self.nodes().len() as u64, "node");
        warn(format_args!("{label} {}: saving it from {nodes}", dataset.where_unlisted()));
        self.begin();
        let record = |event| Record::event(event).id(dataset.id).named(&dataset.name);
        self.log.add_entry(record(Event::ScavengeStart));
        let began = self.env.clock.elapsed();
        let (damaged, failures) = self.copy(dataset.id);
        let took = || self.env.clock.elapsed().saturating_sub(began);
        match self.build(dataset.id, &damaged) {
            Ok(how) => {
                warn(format_args!("{label} is complete in {}{how}", self.prefix.dir().display()));
                self.log.add_entry(record(Event::ScavengeSuccess).took(took()));
                true
            }
            Err(error) => {
                failures.iter().for_each(warn);
                // By its name the newer dataset that has it would be dropped.
                let index = LedgerDir::new(&*self.env.files, self.prefix).index();
                let is_free =
                    index.is_ok_and(|index| index.others_named(&dataset.name, dataset.id).is_empty());
                let (found, silent) = self.look();
                let found = found.into_iter().find(|found| found.dataset.id == dataset.id);
                let is_whole = damaged.is_empty() && found.as_ref().is_some_and(Inspected::is_whole);
                let last = LastRun::read(&*self.env.files, self.prefix).ok().flatten();
                let is_known = last.is_none_or(|run| run.job_id == self.allocation.job_id)
                    || !self.allocation.is_here_alone();
                let cure = match (is_whole, is_free) {
                    (true, _) => "; the nodes still have it whole",
                    _ if !is_known => {
                        "; the nodes of its allocation are not on record: name them in SCR_NODELIST"
                    }
                    (false, true) => "; if it is lost for good, `scr index --drop' with its name forgets it",
                    (false, false) => "",
                };
                // What nodes have and could not copy is missing in the prefix directory only.
                let error = match failures.first().filter(|_| is_whole) {
                    Some(why) => why.split(" [SCR-").next().unwrap_or(why).to_owned(),
                    None => format!("{error:#}"),
                };
                let why = match (found, silent) {
                    (Some(Inspected { unknown: Some(why), .. }), _) | (None, Some(why)) => why,
                    (Some(_), Some(silent)) => format!("{error}; {silent}"),
                    (_, None) => format!("{error}{cure}"),
                };
                warn(format_args!("{label} could not be saved: {why}"));
                self.log.add_entry(record(Event::ScavengeFail).note(error).took(took()));
                false
            }
        }
    }

    /// Lets every node copy its parts. Gives the damage of parts in cache by their ranks, and what else could not be copied.
    fn copy(&self, id: u64) -> (BTreeMap<u32, String>, Vec<String>) {
        let (mut damaged, mut failures) = (BTreeMap::new(), Vec::new());
        let (id, prefix) = (id.to_string(), &self.allocation.prefix);
        for (node, answer) in self.on_nodes(&["copy", "--heartbeat", "--id", &id, "--prefix", prefix]) {
            let copied = answer.and_then(|answer| answer.answer::<Copied>().map_err(anyhow::Error::msg));
            let mut copied = copied.unwrap_or_else(|why| {
                failures.push(format!("node {node}: {why:#}"));
                Copied::default()
            });
            let lost = copied.parts.extract_if(.., |part| !part.wrong.is_empty() && !part.may_be_there);
            damaged.extend(lost.map(|part| (part.rank, part.wrong.join(", "))));
            failures.extend(warnings(&copied).iter().map(|why| format!("node {node}: {why}")));
        }
        (damaged, failures)
    }

    /// Runs a subcommand of scr on every node. It may take as long as data moves on one of them.
    fn on_nodes(&self, arguments: &[&str]) -> Vec<(&String, Result<Finished>)> {
        let (activity, on_nodes) = (Activity::new(LONGEST_IDLE), self.allocation.on_nodes());
        let run = |command: Vec<_>| on_nodes.run(self.nodes(), &command, Limit::Idle(&activity));
        // Where this fails, no node has been reached either.
        let answers = command_here(arguments).map(run).unwrap_or_default();
        self.nodes().iter().zip(answers).collect()
    }

    /// Completes the dataset from what the nodes have copied, and gives what was rebuilt.
    fn build(&self, id: u64, damaged: &BTreeMap<u32, String>) -> Result<String> {
        let plugins = environment::plugin_host(self.env);
        let mut builder = Builder::new(self.env, self.prefix, &plugins, 0);
        builder.damaged = Some(damaged);
        let Built { outcome, .. } = builder.build_unless_withdrawn(id)?.map_err(anyhow::Error::msg)?;
        match outcome {
            Outcome::Incomplete { why } => anyhow::bail!("{why}"),
            Outcome::Completed { rebuilt, .. } if !rebuilt.is_empty() => {
                Ok(format!("; the parts of ranks {} were rebuilt", joined(rebuilt, ", ")))
            }
            _ => Ok(String::new()),
        }
    }
}

/// A node that has not said what it has after this time is not waited for.
const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// The processes of a job that was killed need some time to end.
const LONGEST_END: Duration = Duration::from_secs(5);
/// A file system may need minutes to fail over; after this time without a byte moved on any node it is not waited for.
const LONGEST_IDLE: Duration = Duration::from_secs(600);
