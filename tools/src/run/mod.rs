//! `scr run`: starts a job, and starts it again when it fails, within one allocation. See docs/user/running.md.
//!
//! `scr_srun ARGUMENTS` is `scr run srun ARGUMENTS`, and so on for the other launchers. Exit code: that of the last run; 1
//! where the job was not started at all, 2 where it could not be.
//!
//! - `restart_policy`: whether to start
//! - `supervise`: one run, from its start to its end
//! - `signals`: what this command does with signals
//! - `watchdog`: a run that hangs
//! - `prerun`, `postrun`: what comes before and after, also as commands of their own
//! - `small`: small commands for scripts
//! - `queries`: `scr env`, `list-down-nodes`, `retries-halt` and `glob-hosts`, for scripts that do all this themselves

mod job;
pub(crate) mod postrun;
pub(crate) mod prerun;
pub(crate) mod queries;
mod restart_policy;
mod signals;
pub(crate) mod small;
mod supervise;
mod watchdog;

use crate::machine::{command_here, process, Allocation, Manifests, Overrides, Started};
use crate::output::speak_as;
use crate::prelude::*;
use crate::report;
use job::Job;
use restart_policy::StopReason;
use scr_config::descriptor::Store;
use scr_prefix::OtherRun;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The command to start, and how.
#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// How long to wait before a restart [default: as the description of the resource manager says]
    #[arg(long, value_name = "SECONDS", value_parser = time::length)]
    pause: Option<Duration>,
    /// The launcher with its arguments, then the program with its arguments
    #[arg(
        value_name = "LAUNCHER ARGUMENTS PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true
    )]
    command: Vec<OsString>,
}

/// Which job and which nodes.
#[derive(Args, Clone, Default)]
pub(crate) struct JobArgs {
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// The same, with the prefix directory in either place.
#[derive(Args)]
pub(crate) struct PlacedJob {
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(value_name = "DIR", conflicts_with = "prefix")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    job: JobArgs,
}

impl PlacedJob {
    /// The job.
    pub(crate) fn job(&self) -> JobArgs {
        self.job.or_in(self.dir.as_deref())
    }
}

/// Which job, for what comes before and after its runs.
#[derive(Args)]
pub(crate) struct AroundArgs {
    #[command(flatten)]
    place: PlacedJob,
    /// Accepted for scripts of C SCR, and ignored: the launcher does not matter here
    #[arg(short = 'j', long = "joblauncher", value_name = "LAUNCHER", hide = true)]
    _launcher: Option<String>,
}

impl JobArgs {
    /// The same with the prefix directory that is given in another place.
    pub(crate) fn or_in(&self, dir: Option<&Path>) -> Self {
        Self { prefix: dir.map(Path::to_owned).or_else(|| self.prefix.clone()), ..self.clone() }
    }

    /// The environment with the prefix directory that is given, its parameters, and what is given of the allocation.
    pub(crate) fn environment(&self) -> Result<(Env, Params, Overrides)> {
        let env = environment::env_at(self.prefix.as_deref())?;
        let params = environment::params_with_places(&env)?;
        Ok((env, params, self.overrides.clone()))
    }
}

/// `scr run`.
pub(crate) fn run(args: &RunArgs) -> Result<Answer> {
    refuse_option(args.command.first())?;
    // Before the halt conditions are read, which would hide a mistyped name.
    let program = args.command.first().context("there is nothing to start")?;
    ensure!(process::is_program(program), "cannot start {}: there is no such program", program.display());
    let (env, params, overrides) = args.job.environment()?;
    speak_as("scr run");
    if !params.get(&param::ENABLE) {
        warn("SCR_ENABLE is 0: the job is started once, without anything else");
        return plain(&args.command);
    }
    let facts = JobContext::find(env, params, &overrides)?;
    let begun = OtherRun::begun(&*facts.env.files, &facts.prefix);
    let mut job = Job::prepare(facts, &args.command, args.pause)?;
    let is_talkative = job.facts.params.get(&param::DEBUG) >= 1;
    let say = |what| is_talkative.then(|| warn(what));
    say("scr_prerun: Started");
    prerun::prepare(&job.facts)?;
    let stopped = job.run();
    if let Ok(stop) = &stopped {
        if job.is_worth_a_word(stop) {
            warn(stop);
        }
        if let (StopReason::Halted(reason), true) = (stop, job.runs == 0) {
            warn(reason.cure(job.facts.prefix.dir()));
        }
    }
    say("scr_postrun: Started");
    // Pretend nodes are known once the job has run.
    let after =
        job.facts.allocation.is_here_alone().then(|| JobContext::on(&args.job, None, true).ok()).flatten();
    let after = after.as_ref().unwrap_or(&job.facts);
    // A run that was there before, and goes on, has kept those of this command from the prefix directory.
    let may_share = after.params.get(&param::SHARE_PREFIX);
    let is_other = |run: &OtherRun| {
        let is_ours = run.allocation() == Some(&*after.allocation.job_id);
        (is_ours || !may_share) && begun.iter().any(|before| before.line == run.line)
    };
    // Also where a run could not be started: there may be something of an earlier one.
    let finish = |()| postrun::finish(after, &job.log, false);
    if let Err(error) = postrun::expect_ended(after, is_other).and_then(finish) {
        warn(format_args!("the datasets that the job left in cache could not be saved: {error:#}"));
    }
    job.agents.end();
    report::block(&job.facts).iter().flatten().for_each(warn);
    stopped.map(|_| job.answer())
}

/// A word with a dash in place of the launcher is a mistyped option.
fn refuse_option(first: Option<&OsString>) -> Result<()> {
    let Some(word) = first.and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) else {
        return Ok(());
    };
    let name = word.split('=').next().unwrap_or(word);
    let known = RunArgs::augment_args(clap::Command::new("run"));
    let known: Vec<_> =
        known.get_arguments().filter_map(|known| known.get_long()).map(|long| format!("--{long}")).collect();
    let meant = did_you_mean(name, known.iter().map(String::as_str));
    let meant = meant.map_or_else(String::new, |meant| format!("; {meant}"));
    bail!("there is no option `{name}'{meant}; options of the launcher come after it")
}

/// The command as it is, in the place of this process, so that all signals reach it.
fn plain(command: &[OsString]) -> Result<Answer> {
    let (program, arguments) = command.split_first().context("there is nothing to start")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).or_cannot("start", Path::new(program))
}

/// The facts of a job that the commands of this folder need.
pub(crate) struct JobContext {
    pub(crate) env: Env,
    pub(crate) params: Params,
    pub(crate) prefix: Prefix,
    pub(crate) allocation: Allocation,
    manifests: Manifests,
}

impl JobContext {
    /// The allocation of the job that is given, with these nodes, where some are given. One that `has_run` may have been on
    /// pretend nodes.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) fn on(job: &JobArgs, nodes: Option<Vec<String>>, has_run: bool) -> Result<Self> {
        let (env, params, overrides) = job.environment()?;
        Self::find(env, params, &Overrides { nodes, has_run, ..overrides })
    }

    /// The job of this environment, with its parameters.
    ///
    /// # Errors
    /// As for [`on`](Self::on).
    pub(crate) fn find(env: Env, params: Params, overrides: &Overrides) -> Result<Self> {
        let manifests = Manifests::load(&env)?;
        let allocation = Allocation::find(&env, &params, &manifests, overrides)?;
        let prefix = Prefix::new(params.get(&param::PREFIX));
        Ok(Self { env, params, prefix, allocation, manifests })
    }
}

/// The agents that this process has started, by their nodes: each in a job step of its own, so that they outlive the application's
/// step under a resource manager that ends all processes of a step.
///
/// They are started here only if the settings let agents flush and the resource manager's description asks for steps.
/// Elsewhere the first process of a node that flushes starts the agent.
#[derive(Default)]
struct Agents {
    steps: BTreeMap<String, Started>,
}

/// Whether the settings of a job let agents flush.
fn are_configured(params: &Params) -> bool {
    let is_agent = |transport: &str| transport.eq_ignore_ascii_case(AGENT);
    let of_store = |store: &Store| is_agent(&store.flush_by().transport);
    let by_store = || environment::descriptors(params).is_ok_and(|all| all.stores.iter().any(of_store));
    params.get(&param::FLUSH_ASYNC) && (is_agent(&params.get(&param::FLUSH_TYPE)) || by_store())
}

impl Agents {
    /// Starts an agent on each of these nodes that has none, where agents need job steps of their own, and waits for them.
    /// If that fails it warns; the application starts an agent there.
    fn start_missing(&mut self, job: &JobContext, nodes: &[String]) {
        let JobContext { params, allocation, .. } = job;
        if !allocation.wants_agent_steps() || !are_configured(params) {
            return;
        }
        let Ok(command) = command_here(&["agent"]) else { return };
        self.steps.retain(|_, step| !step.has_ended());
        let new: Vec<_> = nodes.iter().filter(|node| !self.steps.contains_key(*node)).cloned().collect();
        for node in &new {
            match allocation.on_nodes().start(node, &command) {
                Ok(step) => _ = self.steps.insert(node.clone(), step),
                Err(error) => warn(format_args!("no agent on node {node}: {error:#}")),
            }
        }
        let until = Instant::now() + START_TIMEOUT;
        for (node, step) in self.steps.iter_mut().filter(|(node, _)| new.contains(node)) {
            if !step.prints_a_line(until.saturating_duration_since(Instant::now())) {
                warn(format_args!("no agent on node {node}: {}", step.failure()));
            }
        }
    }

    /// Ends the agents that are still there. They have been asked to end.
    fn end(&mut self) {
        let until = Instant::now() + END_TIMEOUT;
        let end = |step: &mut Started| step.end_within(until.saturating_duration_since(Instant::now()));
        self.steps.values_mut().for_each(end);
        self.steps.clear();
    }
}

/// The transport that agents copy for.
const AGENT: &str = "AGENT";
/// How long to wait for agents that start, and for those that have been asked to end.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(10);
