//! `scr config`: what counts for a job that starts here, and where it comes from; what a parameter means; what is wrong
//! with a file. See the user guide's section "Configure a job".
//!
//! - `configuration`: parameters, descriptors and what is wrong, from the sources that a job reads
//! - `cautions`: settings that are valid and probably unwanted
//! - `show`: all of them, as a table and as JSON
//! - `explain`: one of them in full
//! - `check`: files before there is a job
//! - `finding`: what is wrong, as lines and as JSON

mod cautions;
mod check;
mod configuration;
mod explain;
mod finding;
mod show;

use crate::environment;
use crate::output::{warn, Answer};
use anyhow::Result;
use clap::Args;
use configuration::Configuration;
use scr_base::env::Env;
use scr_config::param;
use std::path::PathBuf;

/// Text below the help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 shown, or no problem was found; 1 a file has a problem, or there is no parameter of that name; 2 error.";

/// The choice between showing, explaining and checking.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// Explain a parameter: meaning, default, who may set it, value, and the source of the value
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    explain: Option<String>,
    /// Check configuration files without a job, and report problems with file and line
    #[arg(long, value_name = "FILE", num_args = 1..)]
    check: Vec<PathBuf>,
    /// Check the files as system files, which may set and lock parameters that users may not
    #[arg(long, requires = "check")]
    system: bool,
    /// Show only parameters that are set
    #[arg(long, conflicts_with_all = ["check", "explain"])]
    set: bool,
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    prefix: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ConfigArgs) -> Result<Answer> {
    let env = environment::env_at(args.prefix.as_deref())?;
    if !args.check.is_empty() {
        return check::run(&env, &args.check, args.system, args.json);
    }
    let configuration = Configuration::of(&env, &environment::settings(&env));
    let prefix = configuration.params.get(&param::PREFIX);
    if !prefix.is_dir() {
        warn(format_args!(
            "there is no folder {}; a job that starts with this prefix directory makes it",
            prefix.display()
        ));
    }
    match &args.explain {
        Some(name) => explain::run(&configuration, name, args.json),
        None => show::run(&configuration, args.set, args.json),
    }
}

/// The mistakes in the configuration of a job that starts here, a line each.
pub(crate) fn problems(env: &Env) -> Vec<String> {
    let configuration = Configuration::of(env, &environment::settings(env));
    configuration.findings.iter().map(finding::Finding::text).collect()
}
