//! `scr run`: starts a job, and starts it again when it fails, within one allocation. The user guide's chapter "Run a job".
//!
//! `scr_srun ARGUMENTS` is `scr run srun ARGUMENTS`, and so on for the other launchers. Exit code: that of the last run; 1
//! where the job was not started at all, 2 where it could not be.
//!
//! - `decide`: whether to start
//! - `command`: the launcher's command line, with the nodes to use
//! - `supervise`: one run, from its start to its end
//! - `watchdog`: a run that hangs
//! - `agents`: the agents of the nodes, where they are job steps
//! - `prerun`, `postrun`: what comes before and after, also as commands of their own
//! - `queries`: `scr env`, `list-down-nodes`, `retries-halt` and `glob-hosts`, for scripts that do all this themselves

mod agents;
mod command;
mod decide;
mod job;
pub(crate) mod postrun;
pub(crate) mod prerun;
pub(crate) mod queries;
mod supervise;
mod watchdog;

use crate::machine::Wish;
use crate::output::{print_to_stderr, Answer};
use crate::world;
use anyhow::{Context, Result};
use clap::Args;
use decide::Stop;
use job::Job;
use scr_core::env::Env;
use scr_core::param::{self, Params};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands under the help text.
pub(crate) const EXIT_CODES: &str =
    "Exit codes: that of the last run; 1 where the job was not started, 2 where it could not be.";

/// Programs that a classic name such as `scr_srun` stands for.
pub(crate) const LAUNCHERS: &[&str] = &["aprun", "flux", "jsrun", "lrun", "mpiexec", "mpirun", "srun"];

/// What to start, and what to know before.
#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Seconds to wait before the job is started again. Without it: what the resource manager's description says
    #[arg(long, value_name = "SECONDS")]
    pause: Option<u64>,
    /// The launcher with its arguments, the program and its arguments
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
pub(crate) struct PlaceArgs {
    /// The prefix directory. Without it: SCR_PREFIX, or else the current folder
    #[arg(short, long, value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
    /// The resource manager. Without it: the one whose variables are set
    #[arg(long, value_name = "NAME")]
    resource_manager: Option<String>,
    /// A file with the nodes of the job, one on each line. Without it: SCR_NODELIST, or what the resource manager says
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
}

impl PlaceArgs {
    /// The world with the prefix directory that is given, and what is asked of the allocation.
    pub(crate) fn world(&self) -> Result<(Env, Wish)> {
        let mut env = world::env()?;
        if let Some(dir) = &self.prefix {
            let dir = param::normalise(&env.current_dir.join(dir));
            let dir = dir.to_str().context("the name of the prefix directory is not UTF-8")?;
            env.variables.insert(param::PREFIX.info().name.to_owned(), dir.to_owned());
        }
        let wish = Wish { resource_manager: self.resource_manager.clone(), hostfile: self.hostfile.clone() };
        Ok((env, wish))
    }
}

/// Says a line for the user, on standard error: what the job prints is the job's.
pub(super) fn say(line: &str) {
    print_to_stderr(format_args!("scr run: {line}"));
}

/// Does what is asked.
pub(crate) fn run(args: &RunArgs) -> Result<Answer> {
    let (env, wish) = args.place.world()?;
    let params = world::params(&env);
    if !params.get(&param::ENABLE) {
        say("SCR_ENABLE is 0: the job is started once, without anything else");
        return plain(&args.command);
    }
    let mut job = Job::prepare(&env, &params, &wish, &args.command, args.pause)?;
    prerun::prepare(&env, &params)?;
    let stopped = job.run();
    if let Ok(stop) = &stopped {
        tell(&job, stop);
    }
    // Also where a run could not be started: there may be something of an earlier one.
    if let Err(error) = postrun::finish(&env, &params, job.allocation(), job.bad(), job.log()) {
        say(&format!("what the job left in cache could not be looked after: {error:#}"));
    }
    job.end_agents();
    stopped.map(|_| job.answer())
}

/// Why the job is not started any more, unless all went as the user wanted.
fn tell(job: &Job<'_>, stop: &Stop) {
    if job.is_worth_a_word(stop) {
        say(&stop.to_string());
    }
    if matches!(stop, Stop::Halted(_)) && job.never_started() {
        say(&format!("to run on all the same, remove {}", job.halt_file().display()));
    }
}

/// The command as it is.
fn plain(command: &[OsString]) -> Result<Answer> {
    let (program, arguments) = command.split_first().context("there is nothing to start")?;
    let status = Command::new(program).args(arguments).status();
    let status = status.with_context(|| format!("cannot start {}", Path::new(program).display()))?;
    Ok(Answer::Code(supervise::exit_code(status)))
}

/// What the commands of this folder ask for together.
pub(crate) struct Asked {
    pub(crate) env: Env,
    pub(crate) params: Params,
    pub(crate) allocation: crate::machine::Allocation,
}

impl Asked {
    /// The allocation of the job that is given.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) fn of(place: &PlaceArgs) -> Result<Self> {
        let (env, wish) = place.world()?;
        let params = world::params(&env);
        let manifests = crate::machine::Manifests::load(&env)?;
        let allocation =
            crate::machine::Allocation::find(&env, &params, &manifests, &wish, &mut |line| say(line))?;
        Ok(Self { env, params, allocation })
    }
}
