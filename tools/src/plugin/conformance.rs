//! `scr plugin conformance FILE`: puts a plugin through the conformance kit, in a process of its own.

use super::ask;
use super::check::manifest_of;
use super::ConformanceArgs;
use crate::machine::print_answer;
use crate::prelude::*;
use scr_conformance::scheme::Limits;
use scr_conformance::Report;
use scr_core::plugin::{FoundPlugin, OpenPlugin, PluginKind, PluginLoadError};
use scr_plugin_api::Scheme;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError};

pub(super) fn run(args: &ConformanceArgs) -> Result<Answer> {
    if args.here {
        scr_conformance::note_in(std::io::stdin().as_fd().try_clone_to_owned()?.into());
        let outcome = examine(args).map_err(|error| format!("{error:#}"));
        print_answer(&outcome)?;
        return Ok(Answer::from(outcome.is_ok_and(|report| report.passed())));
    }
    let timeout = args.timeout.as_secs().to_string();
    let arguments = ["conformance", "--here", "--timeout", &timeout].map(OsStr::new);
    let arguments =
        arguments.into_iter().chain([args.file.as_os_str()]).chain(args.options.iter().map(OsStr::new));
    match ask::<Result<Report, String>>(arguments, None)? {
        Ok(Ok(report)) => {
            let text: String = report.checks.iter().map(ToString::to_string).collect();
            let passed = report.passed();
            show(args.json, json!({ "passed": passed, "checks": report.checks }), text, passed)
        }
        Ok(Err(why)) => bail!("{} was not tried: {why}", args.file.display()),
        Err(how) => {
            warn(format_args!("the kit could not finish: trying {} {how}", args.file.display()));
            Ok(Answer::No)
        }
    }
}

fn examine(args: &ConformanceArgs) -> Result<Report> {
    let manifest = manifest_of(&args.file)?;
    let manifest = manifest.with_context(|| format!("{} has no manifest beside it", args.file.display()))?;
    let env = environment::env()?;
    let limit = args.timeout;
    let open =
        within(limit, "loading it", || -> Result<_> { Ok(FoundPlugin::at(&env, &manifest)?.0.open(&env)?) })?;
    let options = open.manifest.options(pairs(&args.options)?)?;
    match open.manifest.kind {
        PluginKind::Scheme => scheme(&open, &options, limit),
        PluginKind::Transport => transport(&open, &options, limit),
        PluginKind::Log => bail!("there are no rules to try a log sink against; `scr plugin check` loads it"),
    }
}

fn pairs(options: &[String]) -> Result<Vec<(&str, &str)>> {
    let why = |option: &str| format!("`{option}' is not of the form NAME=VALUE");
    options.iter().map(|option| option.split_once('=').with_context(|| why(option))).collect()
}

/// Does what the plugin may never return from. After the limit this process says so and ends.
fn within<T>(limit: Duration, what: &'static str, work: impl FnOnce() -> T) -> T {
    let (done, wait) = mpsc::channel::<()>();
    // Without a thread there is no limit.
    let _ = std::thread::Builder::new().spawn(move || {
        if wait.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            warn(format_args!("{what} has not returned within {}", span(limit)));
            // The other process gets no answer.
            std::process::exit(1);
        }
    });
    let result = work();
    drop(done);
    result
}

/// The kit makes one for every member of every set, or for every rule; whether it can be made at all is asked before.
fn maker<T>(limit: Duration, new: impl Fn() -> Result<T, PluginLoadError>) -> Result<impl Fn() -> T> {
    let new = move || within(limit, "making one with its options", &new);
    new()?;
    Ok(move || new().unwrap_or_else(|error| panic!("it was made before, and now: {}", describe(&error))))
}

fn scheme(open: &OpenPlugin, options: &KvTree, limit: Duration) -> Result<Report> {
    let make = maker(limit, || Ok(Box::new(open.scheme(options)?) as Box<dyn Scheme>))?;
    let tolerates = tolerates(open, options)?;
    let limits = Limits { format: open.formats().1, call: limit, tolerates, ..Limits::default() };
    Ok(scr_conformance::scheme::run(&make, &limits))
}

/// The promise in the manifest: a number, or the option that holds it.
fn tolerates(open: &OpenPlugin, options: &KvTree) -> Result<Option<u32>> {
    let Some(text) = open.manifest.capabilities.tolerates.as_deref() else { return Ok(None) };
    let number = options.text(text).unwrap_or(text);
    let number = number.parse().with_context(|| {
        format!("`tolerates' of the manifest is `{text}', which is neither a number nor an option with one")
    })?;
    Ok(Some(number))
}

fn transport(open: &OpenPlugin, options: &KvTree, limit: Duration) -> Result<Report> {
    let make = maker(limit, || open.transport(options))?;
    let survives = open.manifest.capabilities.survives_job;
    let report = scr_conformance::transport::run_within(&make, survives, limit);
    report.context("cannot make a folder to copy in")
}
