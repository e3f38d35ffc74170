//! `scr status`: how a job is doing, in at most twelve lines: whether it is protected, and what a failure would cost now. It
//! works for a job that runs, has died or has finished.
//!
//! - `gather`: the facts, from the files of the prefix directory and from the nodes
//! - `judge`: what follows from them, a pure function
//! - `render`: that as text and as JSON
//!
//! Exit codes: 0 the loss of a node costs no checkpoint, 1 it does, or there is none, or that is not known, 2 an error.

mod gather;
mod judge;
mod render;

use crate::prelude::*;
use crate::run::JobArgs;
use gather::Facts;
use judge::Judged;
use std::io::{ErrorKind, IsTerminal};

/// Which job, and how to answer.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(value_name = "DIR", conflicts_with = "prefix")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    job: JobArgs,
    /// Ask no node: say only what the prefix directory knows
    #[arg(long)]
    offline: bool,
    /// Say of each dataset in cache, and of the checkpoint that a run would read in the prefix directory, where it is, and why it
    /// counts or not
    #[arg(long)]
    why: bool,
    /// Print it again every so many seconds, until no job runs
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5",
          value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &StatusArgs) -> Result<Answer> {
    let job = args.job.or_in(args.dir.as_deref());
    let (mut env, _, overrides) = job.environment()?;
    let prefix = environment::prefix(&mut env, job.prefix.as_deref())?;
    expect_used(&prefix)?;
    loop {
        let facts = Facts::gather(&env, &prefix, &overrides, !args.offline);
        let judged = Judged::of(&facts);
        let shown = print_status(args, &facts, &judged)?;
        match args.watch {
            Some(seconds) if facts.state.may_run() => {
                std::thread::sleep(Duration::from_secs(seconds));
            }
            _ => return Ok(shown),
        }
    }
}

/// Refuses a folder that no job has used: its name may be mistyped.
fn expect_used(prefix: &Prefix) -> Result<()> {
    let scr_dir = prefix.scr_dir();
    match paths_in(&scr_dir) {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            bail!("{}; correct the name that was given, or SCR_PREFIX", environment::unused(prefix))
        }
        Err(error) => {
            bail!("cannot look into {}: {error}; ask as the user of the job", scr_dir.display())
        }
    }
}

fn print_status(args: &StatusArgs, facts: &Facts, judged: &Judged<'_>) -> Result<Answer> {
    facts.trouble.iter().for_each(crate::output::warn);
    if args.watch.is_some() && !args.json && std::io::stdout().is_terminal() {
        // The cursor goes home, and what stood below goes.
        print("\x1b[H\x1b[2J")?;
    }
    let why = facts.why.iter().filter(|_| args.why).map(|line| on_one_line(line) + "\n");
    let text = render::text(facts, judged) + &why.collect::<String>();
    show(args.json, render::json(facts, judged), text, judged.is_safe())
}
