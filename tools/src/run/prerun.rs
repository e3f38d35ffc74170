//! `scr prerun`: prepares a prefix directory before the first run of a job. The v1.1 manual's section 11.3.3.

use super::agents::{self, Agents};
use super::{warn, IgnoredOptions, JobArgs, JobContext};
use crate::environment;
use crate::machine::health;
use crate::output::{print, Answer};
use anyhow::{Context, Result};
use clap::Args;
use scr_core::env::Env;
use scr_core::param::{self, Params};
use scr_core::prefix::Prefix;
use std::io::Write;

/// Text below the help.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 a job can be started, 2 it cannot.";

/// Which job.
#[derive(Args)]
pub(crate) struct PrerunArgs {
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    _ignored: IgnoredOptions,
}

/// Runs the command.
pub(crate) fn run(args: &PrerunArgs) -> Result<Answer> {
    let (env, _) = args.job.environment()?;
    let params = environment::params(&env);
    if params.get(&param::ENABLE) {
        let JobContext { allocation, .. } = JobContext::of(&args.job)?;
        prepare(&env, &params)?;
        if agents::are_configured(&params) {
            // They stay when this process ends; `scr postrun` ends them.
            Agents::default().start_missing(&params, &allocation, &allocation.nodes);
        }
        print(format!("{} is ready for a job\n", params.get(&param::PREFIX).display()))?;
    }
    Ok(Answer::Yes)
}

/// Makes the hidden folder of the prefix directory, and sees that files can be written there. The parameters that name
/// nodes are read, so that a mistake in them is reported before a job has waited.
///
/// # Errors
/// The prefix directory is useless.
pub(super) fn prepare(env: &Env, params: &Params) -> Result<()> {
    health::excluded(params)?;
    let prefix = Prefix::new(params.get(&param::PREFIX));
    let in_vain = || format!("cannot use the prefix directory {}", prefix.dir().display());
    let is_new = !prefix.is_there(&*env.files);
    prefix.make_scr_dir(&*env.files).with_context(in_vain)?;
    if is_new {
        warn(&prefix.was_made());
    }
    let mut probe = tempfile::NamedTempFile::new_in(prefix.scr_dir()).with_context(in_vain)?;
    probe.write_all(b"scr prerun\n").and_then(|()| probe.flush()).with_context(in_vain)
}
