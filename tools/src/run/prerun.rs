//! `scr prerun`: what has to be there before the first run of a job. The v1.1 manual's section 11.3.3.

use super::agents::{self, Agents};
use super::{say, Asked, PlaceArgs};
use crate::machine::health;
use crate::output::Answer;
use crate::world;
use anyhow::{Context, Result};
use clap::Args;
use scr_core::env::Env;
use scr_core::param::{self, Params};
use scr_core::prefix::Prefix;
use std::io::Write;

/// Stands under the help text.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 a job can be started, 2 it cannot.";

/// Which job.
#[derive(Args)]
pub(crate) struct PrerunArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

/// Does what is asked.
pub(crate) fn run(args: &PrerunArgs) -> Result<Answer> {
    let (env, _) = args.place.world()?;
    let params = world::params(&env);
    if params.get(&param::ENABLE) {
        prepare(&env, &params)?;
        if agents::are_used(&params) {
            let Asked { allocation, .. } = Asked::of(&args.place)?;
            // They stay when this process ends; `scr postrun` lets them end.
            Agents::default().see_to(&params, &allocation, &allocation.nodes);
        }
    }
    Ok(Answer::Yes)
}

/// Makes the hidden folder of the prefix directory, and sees that files can be written there. The parameters that name
/// nodes are read, so that a slip in them is told before a job has waited.
///
/// # Errors
/// The prefix directory is of no use.
pub(super) fn prepare(env: &Env, params: &Params) -> Result<()> {
    health::excluded(params)?;
    let prefix = Prefix::new(params.get(&param::PREFIX));
    let in_vain = || format!("the prefix directory {} is of no use", prefix.dir().display());
    let is_new = !prefix.is_there(&*env.files);
    prefix.make_scr_dir(&*env.files).with_context(in_vain)?;
    if is_new {
        say(&prefix.was_made());
    }
    let mut probe = tempfile::NamedTempFile::new_in(prefix.scr_dir()).with_context(in_vain)?;
    probe.write_all(b"scr prerun\n").and_then(|()| probe.flush()).with_context(in_vain)
}
