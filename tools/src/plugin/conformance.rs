//! `scr plugin conformance FILE`: puts a plugin through the conformance kit, in a process of its own.

use super::apart::{answer, ask, Given};
use super::check::manifest_of;
use super::report::ConformanceReport;
use super::ConformanceArgs;
use crate::environment;
use crate::output::{show, warn, Answer};
use anyhow::{bail, Context, Result};
use scr_conformance::scheme::Limits;
use scr_core::plugin::{Found, OpenPlugin, PluginKind};
use scr_plugin_api::KvTree;
use std::ffi::OsStr;

pub(super) fn run(args: &ConformanceArgs) -> Result<Answer> {
    if args.here {
        let outcome = examine(args).map_err(|error| format!("{error:#}"));
        answer(&outcome)?;
        return Ok(Answer::from(outcome.is_ok_and(|report| report.passed)));
    }
    let arguments = [OsStr::new("conformance"), OsStr::new("--here"), args.file.as_os_str()];
    let arguments = arguments.into_iter().chain(args.options.iter().map(OsStr::new));
    match ask::<Result<ConformanceReport, String>>(arguments, None)? {
        Given::Answer(Ok(report)) => {
            show(args.json, serde_json::to_value(&report)?, report.text())?;
            Ok(Answer::from(report.passed))
        }
        Given::Answer(Err(why)) => bail!("{} was not tried: {why}", args.file.display()),
        Given::Nothing(how) => {
            warn(format_args!("the kit could not finish: trying {} {how}", args.file.display()));
            Ok(Answer::No)
        }
    }
}

fn examine(args: &ConformanceArgs) -> Result<ConformanceReport> {
    let manifest = manifest_of(&args.file)?;
    let manifest = manifest.with_context(|| format!("{} has no manifest beside it", args.file.display()))?;
    let env = environment::env()?;
    let open = Found::at(&env, &manifest)?.0.open(&env)?;
    let options = open.options(pairs(&args.options)?)?;
    match open.manifest.kind {
        PluginKind::Scheme => scheme(&open, &options),
        PluginKind::Transport => transport(&open, &options),
        PluginKind::Log => bail!("there are no rules to try a log sink against; `scr plugin check` loads it"),
    }
}

fn pairs(options: &[String]) -> Result<Vec<(&str, &str)>> {
    options
        .iter()
        .map(|option| {
            option.split_once('=').with_context(|| format!("`{option}' is not of the form NAME=VALUE"))
        })
        .collect()
}

fn scheme(open: &OpenPlugin, options: &KvTree) -> Result<ConformanceReport> {
    // The kit makes one for every member of every set; whether it can be made at all is asked before.
    open.scheme(options)?;
    let make = || match open.scheme(options) {
        Ok(scheme) => scheme,
        Err(error) => panic!("the scheme was made before, and now: {}", scr_core::describe(&error)),
    };
    let limits = Limits { format: open.formats().1, ..Limits::default() };
    Ok(ConformanceReport::of_scheme(&scr_conformance::scheme::run(&make, &limits)))
}

fn transport(open: &OpenPlugin, options: &KvTree) -> Result<ConformanceReport> {
    open.transport(options)?;
    let make = || match open.transport(options) {
        Ok(transport) => transport,
        Err(error) => panic!("the transport was made before, and now: {}", scr_core::describe(&error)),
    };
    let survives = open.manifest.capabilities.survives_job;
    let failures = scr_conformance::transport::run_in_a_folder(&make, survives);
    Ok(ConformanceReport::of_transport(&failures.context("cannot make a folder to copy in")?))
}
