//! `scr status`: how a job is doing, in at most twelve rows: whether it is protected, and what a failure would cost now. It
//! works for a job that runs, has died or has finished.
//!
//! - `gather`: the facts, from the files of the prefix directory and from the nodes
//! - `judge`: what follows from them, a pure function
//! - `render`: that as text and as JSON
//!
//! Exit codes: 0 the loss of a node costs no checkpoint, 1 it does, or there is none, or that is not known, 2 an error. With
//! `--all`, the end of the allocation counts where the job does not run.

mod gather;
mod judge;
mod render;

use crate::prelude::*;
use crate::run::{JobArgs, PlacedJob};
use crate::table::output_columns;
pub(crate) use gather::loss_of;
use gather::Facts;
use judge::{Badness, Judged};
use scr_base::parallel::at_a_time;
use std::io::{ErrorKind, IsTerminal};

/// Which job, and how to answer.
#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    place: PlacedJob,
    /// Say in a line each how the jobs of these prefix directories are doing, the worst first
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["dir", "prefix", "why", "watch"])]
    all: Vec<PathBuf>,
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
    let job = args.place.job();
    if !args.all.is_empty() {
        return all(args, &job);
    }
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

/// A job among many: how bad it is, its line, and the same for programs.
type OfMany = (Badness, Vec<String>, Value);

fn all(args: &StatusArgs, job: &JobArgs) -> Result<Answer> {
    let of_dir = |dir: &Path| -> Result<OfMany> {
        let (mut env, _, overrides) = job.or_in(Some(dir)).environment()?;
        let prefix = environment::prefix(&mut env, Some(dir))?;
        expect_used(&prefix)?;
        let facts = Facts::gather(&env, &prefix, &overrides, !args.offline);
        let judged = Judged::of(&facts);
        Ok((judged.badness(&facts), render::row(&facts, &judged).to_vec(), render::json(&facts, &judged)))
    };
    let processors = environment::env()?.processors;
    let mut rows = at_a_time(processors.clamp(1, 16), &once_each(args.all.clone()), |dir: &PathBuf| {
        of_dir(dir).unwrap_or_else(|error| {
            let (dir, why) = (dir.display().to_string(), describe(&*error));
            let json = json!({ "prefix": dir, "safe": false, "error": why });
            (Badness::UNREAD, vec![String::new(), "error".to_owned(), why, String::new(), dir], json)
        })
    });
    rows.sort_by_key(|(badness, ..)| std::cmp::Reverse(*badness));
    let is_safe = rows.iter().all(|(badness, ..)| !badness.is_unsafe);
    let (lines, jobs): (Vec<_>, Vec<_>) = rows.into_iter().map(|(_, line, json)| (line, json)).unzip();
    let table = Table::of(&["JOB", "STATE", "PROTECTED", "AT RISK", "PREFIX"], lines);
    show(args.json, json!({ "jobs": jobs }), table.text(), is_safe)
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
    let text = render::text(facts, judged, output_columns()) + &why.collect::<String>();
    show(args.json, render::json(facts, judged), text, judged.is_safe())
}
