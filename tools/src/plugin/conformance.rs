//! `scr plugin conformance FILE`: puts a plugin through the conformance kit, in a process of its own.

use super::check::{files_of, how_it_ended, library_beside};
use super::report::ConformanceReport;
use super::ConformanceArgs;
use crate::environment;
use crate::output::{show, warn, Answer};
use anyhow::{bail, Context, Result};
use scr_conformance::scheme::Limits;
use scr_core::plugin::{check_library, Manifest, OpenPlugin, PluginKind, Trusted};
use scr_plugin_api::KvTree;
use std::process::Command;

pub(super) fn run(args: &ConformanceArgs) -> Result<Answer> {
    if args.here {
        return examine(args);
    }
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["plugin", "conformance", "--here"]).arg(&args.file).args(&args.options);
    if args.json {
        command.arg("--json");
    }
    let status = command.status().context("cannot start a process to try it in")?;
    match status.code() {
        Some(0) => Ok(Answer::Yes),
        Some(1) => Ok(Answer::No),
        // It has said why.
        Some(2) => bail!("{} was not tried", args.file.display()),
        _ => {
            warn(format_args!("trying it {}", how_it_ended(status)));
            Ok(Answer::No)
        }
    }
}

fn examine(args: &ConformanceArgs) -> Result<Answer> {
    let open = open(args)?;
    let options = open.options(pairs(&args.options)?)?;
    let report = match open.manifest.kind {
        PluginKind::Scheme => scheme(&open, &options)?,
        PluginKind::Transport => transport(&open, &options)?,
        PluginKind::Log => bail!("there are no rules to try a log sink against; `scr plugin check` loads it"),
    };
    show(args.json, serde_json::to_value(&report)?, report.text())?;
    Ok(Answer::from(report.passed))
}

fn open(args: &ConformanceArgs) -> Result<OpenPlugin> {
    let env = environment::env()?;
    let (path, library) = files_of(&args.file)?;
    let path = path.with_context(|| format!("{} has no manifest beside it", args.file.display()))?;
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (manifest, _) = Manifest::parse(&path, &text)?;
    let library = library.unwrap_or_else(|| library_beside(&path, &manifest));
    let checked = check_library(&*env.files, &library, &Trusted::by(&env))?;
    Ok(OpenPlugin::load(&manifest, &path, &checked)?)
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
