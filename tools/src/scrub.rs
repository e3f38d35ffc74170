//! `scr scrub`: reads everything that was recorded of datasets, in cache or in a prefix directory, and compares it.
//!
//! Nothing is changed, and no job need run. Exit codes: 0 nothing is wrong, 1 something is, 2 it could not be checked.
//!
//! - `targets`: where to look
//! - `report`: what was found, as text and as JSON

mod report;
mod targets;

use crate::environment;
use crate::output::{or_show_error, show, Answer};
use crate::progress::Progress;
use anyhow::{bail, Context, Result};
use clap::Args;
use report::ScrubReport;
use scr_base::env::Env;
use scr_base::fs::Files;
use scr_ops::scrub::{Plan, Wanted};
use std::path::PathBuf;
use targets::Target;

/// Text below the help.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 nothing is wrong, 1 something is, 2 error.";

/// The places to look, and the form of the answer.
#[derive(Args)]
pub(crate) struct ScrubArgs {
    /// A cache directory of this node, or a folder above it; may be repeated
    #[arg(long, value_name = "DIR")]
    cache: Vec<PathBuf>,
    /// A prefix directory; may be repeated [default without --cache: what a job started here would use]
    #[arg(long, value_name = "DIR")]
    prefix: Vec<PathBuf>,
    /// Only the dataset with this name or id
    #[arg(long, value_name = "NAME|ID")]
    dataset: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ScrubArgs) -> Result<Answer> {
    let report = or_show_error(args.json, environment::env().and_then(|env| scrub(&env, args)))?;
    show(args.json, report.json(), report.text())?;
    Ok(Answer::from(report.is_intact()))
}

fn scrub(env: &Env, args: &ScrubArgs) -> Result<ScrubReport> {
    let wanted = args.dataset.clone().map_or(Wanted::All, Wanted::One);
    let (targets, files) = targets::find(env, args)?;
    let files = &*files;
    let progress = Progress::new("reading what is recorded");
    let mut plans = Vec::new();
    for target in targets {
        let plan = plan(files, &target, &wanted)?;
        plans.push((target, plan));
    }
    if let Some(name) = &args.dataset {
        if plans.iter().all(|(_, plan)| plan.is_empty()) {
            let mut targets: Vec<_> = plans.iter().take(3).map(|(target, _)| target.to_string()).collect();
            targets.extend(
                plans.len().checked_sub(3).filter(|&more| more > 0).map(|more| format!("and {more} more")),
            );
            bail!("there is no dataset `{name}' in {}", targets.join(", "));
        }
    }
    progress.set_length(plans.iter().map(|(_, plan)| plan.bytes()).sum());
    let mut report = ScrubReport::default();
    for (target, plan) in plans {
        progress.set_step(target.to_string());
        let found = plan.run(files, &mut |bytes| progress.add(bytes));
        report.0.push((target, found));
    }
    Ok(report)
}

fn plan(files: &dyn Files, target: &Target, wanted: &Wanted) -> Result<Plan> {
    let plan = match target {
        Target::Cache(dir) => Plan::of_cache(files, dir, wanted),
        Target::Prefix(dir) => Plan::of_prefix(files, dir, wanted),
    };
    plan.with_context(|| format!("cannot look at {target}"))
}
