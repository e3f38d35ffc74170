//! `scr postrun`: what is left to do when a job has come to its end within an allocation. The v1.1 manual's section 11.10.

use super::{say, Asked, PlaceArgs};
use crate::machine::health::{bad_nodes, good_nodes};
use crate::machine::{Allocation, BadNode};
use crate::output::Answer;
use anyhow::Result;
use clap::Args;
use scr_core::env::Env;
use scr_core::log::{Event, Log, Record};
use scr_core::param::{self, Params};
use scr_core::prefix::{FlushEntry, FlushFile, Location, Prefix};

/// Stands under the help text.
pub(crate) const EXIT_CODES: &str =
    "Exit codes: 0 nothing is left in cache that has to be kept, 1 something is, 2 error.";

/// Which job.
#[derive(Args)]
pub(crate) struct PostrunArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

/// Does what is asked.
pub(crate) fn run(args: &PostrunArgs) -> Result<Answer> {
    let asked = Asked::of(&args.place)?;
    if !asked.params.get(&param::ENABLE) {
        return Ok(Answer::Yes);
    }
    let bad = bad_nodes(&asked.allocation, &asked.params, &[], &mut |line| say(line))?;
    let prefix = Prefix::new(asked.params.get(&param::PREFIX));
    let log = Log::of_command(&asked.env, &asked.params, "scr postrun", &prefix);
    finish(&asked.env, &asked.params, &asked.allocation, &bad, &log).map(Answer::from)
}

/// Looks after the datasets that are in cache only. Whether all that had to be kept is safe now.
///
/// # Errors
/// It cannot be found out what is in cache.
pub(super) fn finish(
    env: &Env,
    params: &Params,
    allocation: &Allocation,
    bad: &[BadNode],
    log: &Log,
) -> Result<bool> {
    let prefix = Prefix::new(params.get(&param::PREFIX));
    log.add_entry(Record::event(Event::PostrunStart));
    let wanted = in_cache_only(&FlushFile::read(&*env.files, &prefix)?, &allocation.job_id);
    for entry in &wanted {
        let name = String::from_utf8_lossy(&entry.name);
        say(&format!(
            "the dataset `{name}' is in the cache of the nodes only ({} of them can be used)",
            good_nodes(allocation, bad).len().max(1)
        ));
    }
    log.add_entry(Record::event(Event::PostrunEnd));
    Ok(wanted.is_empty())
}

/// What has to be copied from cache: output, and the newest checkpoint unless a newer one is in the prefix directory. What
/// another allocation has left in the file is gone with its nodes.
fn in_cache_only(file: &FlushFile, job_id: &str) -> Vec<FlushEntry> {
    let mut entries = file.entries();
    entries.retain(|entry| entry.dataset.as_ref().is_none_or(|dataset| dataset.job_id == job_id));
    let newest = entries.iter().find(|entry| entry.checkpoint).map(|entry| entry.id);
    entries.retain(|entry| {
        entry.is_at(Location::Cache)
            && !entry.is_at(Location::Prefix)
            && (entry.output || Some(entry.id) == newest)
    });
    entries
}
