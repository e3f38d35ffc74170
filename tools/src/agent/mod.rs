//! `scr agent`: the process of a node that executes the transfer files of the transport `AGENT`, also after the application has
//! ended. See the developer manual's "Transfer file" and its daemon `scr_transfer`.
//!
//! There is one for each node and allocation. It is started as its own job step, or detached: by the first process of the
//! application that finds none, or by a script. It ends by itself; see [`mod@run`] for the rule. Exit codes: 0 done, 1 no (an
//! agent is there already, or none is), 2 an error.
//!
//! - `run`: the work of the process
//! - `detach`: detaches it from its parent
//! - `status`: its progress

mod detach;
mod run;
mod status;

pub(crate) use status::under_way;

use crate::environment;
use crate::output::{print, warn, Answer};
use crate::progress::Heartbeat;
use anyhow::{Context, Result};
use clap::Args;
use scr_agent::{AgentPresence, Transfer};
use scr_base::env::Env;
use scr_base::fs::OwnedDir;
use scr_core::make_control_dir;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Text below the help.
pub(crate) const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 an agent runs already, or with --stop or --status none runs, 2 error.";

/// The action. Without an option: be the agent of this node until there is nothing left and the job is over.
#[derive(Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    action: Action,
    /// The control directory [default: that of a job started here]
    #[arg(long, value_name = "DIR")]
    control: Option<PathBuf>,
    /// How many files to copy at a time, each of another process
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Leave the session of the process that started the agent; for --detach
    #[arg(long, hide = true)]
    own_session: bool,
    /// Print a line from time to time while data moves, for a waiting process
    #[arg(long, hide = true, requires = "drain")]
    heartbeat: bool,
    /// Print the status as JSON
    #[arg(long, requires = "status")]
    json: bool,
}

/// At most one of these.
#[derive(Args)]
#[group(multiple = false)]
struct Action {
    /// Start an agent on this node that outlives this process and the job step, and return once it runs
    #[arg(long)]
    detach: bool,
    /// Return once everything is copied, by the running agent or by this process; then the agent ends
    #[arg(long)]
    drain: bool,
    /// End the agent now; another one can copy the rest
    #[arg(long)]
    stop: bool,
    /// Show whether an agent runs, and its progress
    #[arg(long)]
    status: bool,
}

/// Runs the command.
pub(crate) fn run(args: &AgentArgs) -> Result<Answer> {
    let env = environment::env()?;
    let control = control(&env, args)?;
    let threads = usize::try_from(args.threads)?;
    match &args.action {
        Action { detach: true, .. } => detach::detach(control.path(), args.threads),
        Action { drain: true, .. } => {
            let heartbeat = Heartbeat::new(args.heartbeat);
            request(control.path(), run::DRAIN, &heartbeat)?;
            // If none runs, one that was killed may still have left something.
            run::until(&env, &control, threads, run::Until::NothingIsLeft, &heartbeat)?;
            print_line(&format!(
                "nothing is left to copy for {}, and no agent runs",
                control.path().display()
            ));
            Ok(Answer::Yes)
        }
        Action { stop: true, .. } => {
            let process = AgentPresence::find(control.path());
            request(control.path(), run::EXIT, &Heartbeat::new(false))?;
            let control = control.path().display();
            print_line(&match process {
                Some(process) => format!("the agent for {control} has ended, process {process}"),
                None => format!("no agent runs for {control}"),
            });
            Ok(Answer::from(process.is_some()))
        }
        Action { status: true, .. } => status::run(control.path(), args.json),
        _ => {
            if args.own_session {
                detach::leave_session();
            }
            let became =
                run::until(&env, &control, threads, run::Until::TheJobIsOver, &Heartbeat::new(false))?;
            if !became {
                warn(format_args!("an agent runs already for {}", control.path().display()));
            }
            Ok(Answer::from(became))
        }
    }
}

/// The control directory, made where it is not there.
fn control(env: &Env, args: &AgentArgs) -> Result<OwnedDir> {
    let control = match &args.control {
        Some(control) => OwnedDir::at(&*env.files, &std::path::absolute(control)?, env.uid),
        None => make_control_dir(env, &environment::params(env)),
    };
    control.context("the control directory cannot be used")
}

/// Asks the agent that runs, if one does, to end, and waits until it has ended.
fn request(control: &Path, name: &str, heartbeat: &Heartbeat) -> Result<()> {
    let path = control.join(name);
    while AgentPresence::find(control).is_some() {
        // An agent that has just started removes the requests that it finds.
        if !path.exists() {
            std::fs::write(&path, b"").with_context(|| format!("cannot write {}", path.display()))?;
        }
        heartbeat.report(|| bytes_written(control));
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The bytes that all transfers of this node have written so far.
fn bytes_written(control: &Path) -> u64 {
    let transfers = scr_agent::list(control).into_iter().filter_map(|path| Transfer::read(&path).ok()?);
    transfers.map(|transfer| transfer.written()).sum()
}

/// Prints a line for the process that started the agent.
fn print_line(line: &str) {
    // The reader may be gone.
    drop(print(format!("scr agent: {line}\n")));
}

/// How often to look.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that begins removes the requests that it finds: they were meant for another one.
    #[test]
    fn a_stop_request_is_renewed_until_the_agent_has_ended() {
        let control = tempfile::tempdir().unwrap();
        let (control, path) = (control.path(), control.path().join(run::DRAIN));
        let agent = AgentPresence::become_one(control).unwrap().unwrap();
        std::thread::scope(|scope| {
            let drains = scope.spawn(|| request(control, run::DRAIN, &Heartbeat::new(false)).unwrap());
            for _ in 0..2 {
                let began = std::time::Instant::now();
                while std::fs::remove_file(&path).is_err() {
                    assert!(
                        began.elapsed() < Duration::from_secs(60) && !drains.is_finished(),
                        "nobody requests"
                    );
                    std::thread::yield_now();
                }
            }
            drop(agent);
            drains.join().unwrap();
        });
    }
}
