//! `scr scrub`: reads everything that was recorded of datasets, in cache or in a prefix directory, and compares it.
//!
//! Nothing is changed, and no job need run. Exit codes: 0 nothing is wrong, 1 something is, 2 it could not be looked at.
//!
//! - `places`: where to look
//! - `report`: what was found, as a table and as JSON

mod places;
mod report;

use crate::output::{print, print_json, Answer};
use crate::progress;
use crate::world;
use anyhow::{bail, Context, Result};
use clap::Args;
use places::Place;
use report::{ErrorReport, ScrubReport};
use scr_core::env::Env;
use scr_core::fs::Files;
use scr_core::scrub::{Plan, Wanted};
use std::path::PathBuf;

/// Stands under the help text.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 nothing is wrong, 1 something is, 2 error.";

/// Where to look, and how to answer.
#[derive(Args)]
pub(crate) struct ScrubArgs {
    /// A cache directory of this node, or a folder above it; may be given more than once
    #[arg(long, value_name = "DIR")]
    cache: Vec<PathBuf>,
    /// A prefix directory; may be given more than once. Without --cache and --prefix: what a job started here would use
    #[arg(long, value_name = "DIR")]
    prefix: Vec<PathBuf>,
    /// Only the dataset of this name or number
    #[arg(long, value_name = "NAME|ID")]
    dataset: Option<String>,
    /// Answers in JSON
    #[arg(long)]
    json: bool,
}

/// Does what is asked.
pub(crate) fn run(args: &ScrubArgs) -> Result<Answer> {
    let report = world::env().and_then(|env| scrub(&env, args));
    match &report {
        Ok(report) if args.json => print_json(report)?,
        Ok(report) => print(&report.in_words())?,
        Err(error) if args.json => print_json(&ErrorReport::new(error))?,
        Err(_) => (),
    }
    report.map(|report| Answer::from(report.sound))
}

fn scrub(env: &Env, args: &ScrubArgs) -> Result<ScrubReport> {
    let wanted = args.dataset.clone().map_or(Wanted::All, Wanted::One);
    let places = places::find(env, args)?;
    let files = &*env.files;
    let mut plans = Vec::new();
    for place in places {
        let plan = plan(files, &place, &wanted)?;
        plans.push((place, plan));
    }
    if let Some(name) = &args.dataset {
        if plans.iter().all(|(_, plan)| plan.is_empty()) {
            let places: Vec<_> = plans.iter().map(|(place, _)| place.to_string()).collect();
            bail!("there is no dataset `{name}' in {}", places.join(", "));
        }
    }
    let bar = progress::bar(plans.iter().map(|(_, plan)| plan.bytes()).sum());
    let mut report = ScrubReport::new();
    for (place, plan) in plans {
        bar.set_message(place.to_string());
        report.add(&place, &plan.run(files, &mut |bytes| bar.inc(bytes)));
    }
    bar.finish_and_clear();
    Ok(report)
}

fn plan(files: &dyn Files, place: &Place, wanted: &Wanted) -> Result<Plan> {
    let plan = match place {
        Place::Cache(dir) => Plan::of_cache(files, dir, wanted),
        Place::Prefix(dir) => Plan::of_prefix(files, dir, wanted),
    };
    plan.with_context(|| format!("cannot look at {place}"))
}
