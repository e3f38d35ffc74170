//! `scr postrun`: saves what a job has left in cache when it has ended within an allocation. The v1.1 manual's section 11.10.
//!
//! It waits for detached flushes and finishes them. Then it saves the datasets that are only in the caches of the nodes:
//! `scr copy` runs on every node that is left, and the parts of lost nodes are rebuilt in the prefix directory.

use super::{agents, IgnoredOptions, JobArgs, JobContext};
use crate::environment;
use crate::inspect::{ask, inventory_here};
use crate::machine::health::{answering, command_here, nodes_with_data};
use crate::machine::process::{Activity, Finished, Limit};
use crate::machine::Allocation;
use crate::output::{self, print, Answer};
use crate::poststage;
use crate::report;
use anyhow::Result;
use clap::Args;
use scr_core::env::Env;
use scr_core::log::{Event, Log, Record};
use scr_core::param::{self, Params};
use scr_core::prefix::{FlushEntry, FlushFile, Halt, LastRun, Location, Prefix, RestartPoint};
use scr_core::scavenge::{add_unlisted, inspect, Builder, Built, Inventory, Outcome};
use std::cell::OnceCell;
use std::time::Duration;

/// Text below the help.
pub(crate) const EXIT_CODES: &str =
    "Exit codes: 0 no dataset that must be kept is in cache only, 1 one is, 2 error.";

/// Which job.
#[derive(Args)]
pub(crate) struct PostrunArgs {
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    _ignored: IgnoredOptions,
}

/// Runs the command.
pub(crate) fn run(args: &PostrunArgs) -> Result<Answer> {
    let job = JobContext::of(&args.job)?;
    if !job.params.get(&param::ENABLE) {
        return Ok(Answer::Yes);
    }
    let prefix = environment::prefix(&job.env, Some(&job.params.get(&param::PREFIX)))?;
    if !environment::was_used(&prefix) {
        print(format!("{}: there is nothing to save\n", environment::unused(&prefix)))?;
        return Ok(Answer::Yes);
    }
    let log = Log::of_command(&job.env, &job.params, "scr postrun", &prefix);
    let outcome = finish(&job.env, &job.params, &job.allocation, &log, |line| output::warn(line))?;
    if outcome.is_safe && outcome.saved == 0 {
        print("no dataset is in cache only: there is nothing to save\n")?;
    }
    let block = report::block(&job.env, &job.params, &job.allocation.job_id);
    print(block.iter().flatten().map(|line| format!("{line}\n")).collect::<String>())?;
    Ok(Answer::from(outcome.is_safe))
}

/// The outcome for the datasets that a job had left in cache only.
pub(super) struct PostrunOutcome {
    /// Whether everything that has to be kept is in the prefix directory.
    is_safe: bool,
    /// How many datasets were to be saved.
    saved: usize,
}

/// A printer of lines for the user, with the name of the command that the user has called.
type Say = fn(&str);

/// Saves the datasets that are in cache only, and says so with `warn`.
///
/// # Errors
/// It cannot be found out what is in cache.
pub(super) fn finish(
    env: &Env,
    params: &Params,
    allocation: &Allocation,
    log: &Log,
    warn: Say,
) -> Result<PostrunOutcome> {
    let prefix = Prefix::at(&*env.files, &params.get(&param::PREFIX));
    log.add_entry(Record::event(Event::PostrunStart));
    let scavenge = Scavenge { env, prefix: &prefix, allocation, nodes: OnceCell::new(), log, warn };
    scavenge.end_flushes(agents::are_configured(params) && allocation.wants_agent_steps())?;
    let halt = Halt::read(&*env.files, &prefix).ok().flatten();
    let has_finished = halt.is_some_and(|halt| halt.is_finalized());
    let mut flush = FlushFile::read_as_it_is(&*env.files, &prefix, None)?;
    // Without a run no node has anything.
    if !has_finished && LastRun::read(&*env.files, &prefix).is_ok_and(|run| run.is_some()) {
        scavenge.add_unlisted(params, &mut flush);
    }
    let unsaved = Unsaved::of(&flush, &allocation.job_id);
    let saved = unsaved.output.len() + unsaved.checkpoints.len() + usize::from(unsaved.passed_over.is_some());
    let mut safe =
        unsaved.output.iter().map(|dataset| scavenge.save(dataset)).fold(true, |all, one| all & one);
    // An application that has called SCR_Finalize has flushed what the settings ask for.
    let is_finished = params.get(&param::FLUSH) == 0 && has_finished;
    let mut dealt_with: Vec<RestartPoint> = Vec::new();
    for checkpoint in &unsaved.checkpoints {
        let point = checkpoint.restart_point();
        if dealt_with.iter().any(|newer| newer.replaces(point)) {
            continue;
        }
        if is_finished {
            warn(&given_up(checkpoint));
        } else if !scavenge.save(checkpoint) {
            // An older one is better than none.
            safe = false;
            continue;
        }
        dealt_with.push(point);
    }
    if let Some(newest) = &unsaved.passed_over {
        warn(&passed_over(newest));
        safe &= scavenge.save(newest);
    }
    for dataset in &unsaved.elsewhere {
        warn(&out_of_reach(dataset));
        safe = false;
    }
    log.add_entry(Record::event(Event::PostrunEnd));
    Ok(PostrunOutcome { is_safe: safe, saved })
}

/// The datasets that the settings of a finished application leave in cache.
fn given_up(dataset: &FlushEntry) -> String {
    format!(
        "dataset {id} `{}' {}, and is not saved: the application has finished, and SCR_FLUSH=0; to save it all \
         the same, run `scr copy --id {id}' on every node and then `scr index --build {id}'",
        String::from_utf8_lossy(&dataset.name),
        dataset.where_unlisted(),
        id = dataset.id
    )
}

/// Why a checkpoint is saved though there are newer ones.
fn passed_over(dataset: &FlushEntry) -> String {
    format!(
        "a run of another allocation has gone on from a checkpoint before dataset {} `{}', which was in cache only; that one is \
         saved too, and to restart from it, start with SCR_CURRENT={1}",
        dataset.id,
        String::from_utf8_lossy(&dataset.name)
    )
}

/// The advice on a dataset that another allocation has in cache.
fn out_of_reach(dataset: &FlushEntry) -> String {
    let job_id = dataset.dataset.as_ref().map_or("", |dataset| &dataset.job_id);
    format!(
        "dataset {} `{}' is only in the cache of allocation {job_id}; if its nodes are still there, save it with \
         SCR_JOB_ID={job_id} in the environment of this command; if they are gone, it is lost, and `scr index --drop' with \
         its name forgets it",
        dataset.id,
        String::from_utf8_lossy(&dataset.name)
    )
}

/// The datasets that are in cache only.
#[derive(Debug, PartialEq, Eq)]
struct Unsaved {
    /// Output.
    output: Vec<FlushEntry>,
    /// Checkpoints that are newer than those in the prefix directory, the newest first.
    checkpoints: Vec<FlushEntry>,
    /// The newest of the checkpoints that a run of another allocation did not see, and has written newer ones.
    passed_over: Option<FlushEntry>,
    /// Those that another allocation has recorded, and only the nodes of that one may still have.
    elsewhere: Vec<FlushEntry>,
}

impl Unsaved {
    fn of(file: &FlushFile, job_id: &str) -> Self {
        let mut entries = file.entries();
        let is_ours =
            |entry: &FlushEntry| entry.dataset.as_ref().is_none_or(|dataset| dataset.job_id == job_id);
        // No copy can take the place of a newer dataset: a run has said so.
        entries.retain(|entry| entry.replaced_by.is_none() || entry.is_at(Location::Prefix));
        entries.retain(|entry| entry.is_at(Location::Prefix) || entry.is_at(Location::Cache));
        let checkpoints = entries.iter().filter(|entry| entry.checkpoint);
        let flushed: Vec<_> = checkpoints.filter(|entry| entry.is_at(Location::Prefix)).collect();
        let replacing =
            |older: RestartPoint| flushed.iter().find(|newer| newer.restart_point().replaces(older));
        // A later dataset that its own allocation has flushed takes its place.
        let own = |entry: &&FlushEntry| entry.checkpoint && is_ours(entry);
        let is_passed_over = |entry: &&FlushEntry| {
            let newer = replacing(entry.restart_point());
            !entry.output && newer.is_some_and(|newer| entry.is_passed_over(newer))
        };
        let passed_over = entries.iter().find(own).filter(is_passed_over).cloned();
        let is_wanted = |entry: &&FlushEntry| entry.is_still_wanted(|older| replacing(older).is_some());
        let (own, elsewhere): (Vec<_>, Vec<_>) = entries.iter().filter(is_wanted).cloned().partition(is_ours);
        let (output, others): (Vec<_>, Vec<_>) = own.into_iter().partition(|entry| entry.output);
        let checkpoints = others.into_iter().filter(|entry| entry.checkpoint).collect();
        Self { output, checkpoints, passed_over, elsewhere }
    }
}

/// Brings datasets from the nodes to the prefix directory.
struct Scavenge<'a> {
    env: &'a Env,
    prefix: &'a Prefix,
    allocation: &'a Allocation,
    nodes: OnceCell<Vec<String>>,
    log: &'a Log,
    warn: Say,
}

impl Scavenge<'_> {
    /// The nodes that answer. Whether a job could run there does not matter for what they hold.
    fn nodes(&self) -> &[String] {
        let warn = &mut |line: &str| (self.warn)(line);
        self.nodes.get_or_init(|| match self.allocation.is_here_alone() {
            true => vec![self.env.host.clone()],
            false => answering(self.allocation, nodes_with_data(self.allocation, warn), warn),
        })
    }

    /// Adds what the nodes have and the flush file does not say: a job that had no room in the prefix directory could not write it. A
    /// node that does not answer has nothing.
    fn add_unlisted(&self, params: &Params, flush: &mut FlushFile) {
        let inventories: Vec<Inventory> = match self.allocation.is_here_alone() {
            true => inventory_here(self.env, params, self.prefix, &[]).into_iter().collect(),
            false => {
                let answers =
                    ask(self.allocation, params, self.nodes(), &[], LONGEST_LOOK).unwrap_or_default();
                answers.into_iter().flatten().map(|(inventory, _)| inventory).collect()
            }
        };
        let found = inspect(inventories, &environment::plugin_host(self.env, None));
        let whole = found.into_iter().filter(|found| found.beyond_repair.is_none());
        let whole: Vec<_> = whole.map(|found| found.dataset).collect();
        match add_unlisted(&*self.env.files, self.prefix, flush, &whole) {
            Ok(0) => (),
            Ok(_) => (self.warn)(&format!(
                "{} lacks datasets that the nodes have",
                self.prefix.flush_file().display()
            )),
            Err(error) => (self.warn)(&format!("what only the nodes know is not saved: {error}")),
        }
    }

    /// Waits for the copies that agents still make, and finishes the flushes whose data has arrived. Agents that were
    /// started for the job end.
    fn end_flushes(&self, has_agents: bool) -> Result<()> {
        let entries = FlushFile::read(&*self.env.files, self.prefix)?.entries();
        let goes_on = entries.iter().any(|entry| entry.is_at(Location::Flushing));
        if goes_on {
            (self.warn)("waiting for flushes that are under way");
        }
        if goes_on || has_agents {
            self.on_nodes(&["agent", "--drain", "--heartbeat"]).iter().for_each(|line| (self.warn)(line));
        }
        let report = poststage::end(self.env, self.prefix)?;
        report.errors.iter().chain(&report.lines).for_each(|line| (self.warn)(line));
        Ok(())
    }

    /// Saves a dataset and reports how that went. Returns whether it is complete in the prefix directory now.
    fn save(&self, dataset: &FlushEntry) -> bool {
        let label = format!("dataset {} `{}'", dataset.id, String::from_utf8_lossy(&dataset.name));
        let nodes = match self.nodes().len() {
            1 => "1 node".to_owned(),
            many => format!("{many} nodes"),
        };
        (self.warn)(&format!("{label} {}: saving it from {nodes}", dataset.where_unlisted()));
        let record = |event| Record::event(event).id(dataset.id).named(&dataset.name);
        self.log.add_entry(record(Event::ScavengeStart));
        let began = self.env.clock.elapsed();
        let warnings = self.copy(dataset.id);
        let took = || self.env.clock.elapsed().saturating_sub(began);
        match self.build(dataset.id) {
            Ok(how) => {
                (self.warn)(&format!("{label} is complete in {}{how}", self.prefix.dir().display()));
                self.log.add_entry(record(Event::ScavengeSuccess).took(took()));
                true
            }
            Err(error) => {
                warnings.iter().for_each(|line| (self.warn)(line));
                (self.warn)(&format!(
                    "{label} could not be saved: {error:#}; if it is lost for good, `scr index --drop' with its name forgets it"
                ));
                self.log.add_entry(record(Event::ScavengeFail).note(format!("{error:#}")).took(took()));
                false
            }
        }
    }

    /// Lets every node copy what it has, and gives the failures. They may be harmless: a node without a part has nothing
    /// to copy.
    fn copy(&self, id: u64) -> Vec<String> {
        let Some(prefix) = self.prefix.dir().to_str() else { return vec![NOT_UTF8.to_owned()] };
        self.on_nodes(&["copy", "--heartbeat", "--id", &id.to_string(), "--prefix", prefix])
    }

    /// Runs a subcommand of scr on every node, and gives the failures. It may take as long as data moves on one of them.
    fn on_nodes(&self, arguments: &[&str]) -> Vec<String> {
        let Some(scr) = command_here() else { return vec![NOT_UTF8.to_owned()] };
        let command: Vec<String> =
            std::iter::once(scr.as_str()).chain(arguments.iter().copied()).map(str::to_owned).collect();
        let activity = Activity::new(LONGEST_IDLE);
        let answers = self.allocation.on_nodes().run(self.nodes(), &command, Limit::Idle(&activity));
        let failure = |(node, answer): (&String, Result<Finished>)| match answer {
            Ok(answer) if answer.succeeded() => None,
            Ok(answer) => Some(format!("node {node}: {}", answer.failure())),
            Err(error) => Some(format!("node {node}: {error:#}")),
        };
        self.nodes().iter().zip(answers).filter_map(failure).collect()
    }

    /// Completes the dataset from what the nodes have copied, and gives what was rebuilt.
    fn build(&self, id: u64) -> Result<String> {
        let plugins = environment::plugin_host(self.env, None);
        let Built { outcome, .. } = Builder::new(self.env, self.prefix, &plugins, 0).build(id)?;
        match outcome {
            Outcome::Incomplete { why } => anyhow::bail!("{why}"),
            Outcome::Completed { rebuilt, .. } if !rebuilt.is_empty() => {
                let ranks: Vec<_> = rebuilt.iter().map(ToString::to_string).collect();
                Ok(format!("; the parts of ranks {} were rebuilt", ranks.join(", ")))
            }
            _ => Ok(String::new()),
        }
    }
}

/// A file system may need minutes to fail over; after this time without a byte moved on any node it is not waited for.
/// A node that has not said what it has after this time is not waited for.
const LONGEST_LOOK: Duration = Duration::from_secs(60);
const LONGEST_IDLE: Duration = Duration::from_secs(600);
const NOT_UTF8: &str = "the name of a folder is not UTF-8";

#[cfg(test)]
mod tests {
    use super::*;
    use scr_core::prefix::DatasetDescriptor;

    fn ids(entries: &[FlushEntry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.id).collect()
    }

    /// The command said that there was nothing to save.
    #[test]
    fn a_checkpoint_that_another_allocation_has_passed_over_is_unsaved() {
        let mut file = FlushFile::default();
        let mut add = |run, id, job: &str, location| {
            let job_id = job.to_owned();
            let dataset = DatasetDescriptor { id, run, checkpoint: true, job_id, ..Default::default() };
            file.record(&dataset, location);
        };
        add(1, 8, "7", Location::Prefix);
        add(1, 9, "7", Location::Cache);
        add(2, 10, "8", Location::Prefix);
        let passed_over = |file: &FlushFile, job: &str| Unsaved::of(file, job).passed_over.map(|it| it.id);
        assert_eq!((passed_over(&file, "7"), passed_over(&file, "8")), (Some(9), None));
        assert!(Unsaved::of(&file, "7").checkpoints.is_empty());
        assert!(Unsaved::of(&file, "8").elsewhere.is_empty(), "the later one goes on without it");
        let mut later = file.clone();
        let own = DatasetDescriptor {
            id: 11,
            run: 3,
            checkpoint: true,
            job_id: "7".to_owned(),
            ..Default::default()
        };
        later.record(&own, Location::Prefix);
        assert_eq!(passed_over(&later, "7"), None, "its own allocation has gone on");
    }

    /// A job that was started once with too few ranks had nothing to save.
    #[test]
    fn a_checkpoint_of_another_number_of_ranks_does_not_take_the_place_of_one() {
        let mut file = FlushFile::default();
        let of = |id, ranks| DatasetDescriptor { id, ranks, checkpoint: true, ..Default::default() };
        file.record(&of(1, Some(4)), Location::Prefix);
        file.record(&of(2, Some(4)), Location::Cache);
        file.record(&of(3, Some(3)), Location::Prefix);
        assert_eq!(ids(&Unsaved::of(&file, "").checkpoints), [2]);
        assert_eq!(ids(&Unsaved::of(&file, "other").elsewhere), [2]);
        file.record(&of(4, None), Location::Prefix);
        assert!(Unsaved::of(&file, "").checkpoints.is_empty(), "C SCR does not say how many");
    }

    #[test]
    fn a_checkpoint_that_any_number_of_ranks_can_read_takes_the_place_of_all_older_ones() {
        let mut file = FlushFile::default();
        let of =
            |id, ranks| DatasetDescriptor { id, ranks: Some(ranks), checkpoint: true, ..Default::default() };
        file.record(&of(1, 4), Location::Cache);
        file.record(&of(2, 3), Location::Cache);
        file.record(&DatasetDescriptor { any_ranks: true, ..of(3, 2) }, Location::Prefix);
        assert!(Unsaved::of(&file, "").checkpoints.is_empty());
        file.record(&of(4, 2), Location::Prefix);
        file.record(&DatasetDescriptor { any_ranks: true, ..of(5, 3) }, Location::Cache);
        file.record(&of(6, 2), Location::Prefix);
        assert_eq!(
            ids(&Unsaved::of(&file, "").checkpoints),
            [5],
            "one that only two ranks can read does not"
        );
    }

    #[test]
    fn unsaved_are_output_and_the_checkpoints_after_the_last_one_that_was_flushed() {
        let mut file = FlushFile::default();
        let mut add = |id, checkpoint, output, job: &str, location| {
            let job_id = job.to_owned();
            let dataset = DatasetDescriptor { id, checkpoint, output, job_id, ..Default::default() };
            file.record(&dataset, location);
        };
        add(1, false, true, "7", Location::Cache);
        add(2, true, false, "7", Location::Cache);
        add(3, true, false, "6", Location::Prefix);
        add(4, false, true, "7", Location::Prefix);
        add(5, true, false, "7", Location::Cache);
        add(6, true, true, "7", Location::Cache);
        add(7, true, false, "7", Location::Cache);
        add(8, true, false, "6", Location::Cache);
        let unsaved = Unsaved::of(&file, "7");
        assert_eq!((ids(&unsaved.output), ids(&unsaved.checkpoints)), (vec![6, 1], vec![7, 5]));
        // With the id of no job, or of another one, nothing may be called safe.
        assert_eq!(ids(&unsaved.elsewhere), [8]);
        assert_eq!(ids(&Unsaved::of(&file, "defjobid").elsewhere), [8, 7, 6, 5, 1]);
        // Each command tried again to save it, in vain.
        file.record_replaced(6, 9);
        assert_eq!(ids(&Unsaved::of(&file, "7").output), [1]);
        let unsaved = Unsaved::of(&FlushFile::default(), "7");
        assert_eq!((unsaved.output.len(), unsaved.checkpoints.len()), (0, 0));
    }
}
