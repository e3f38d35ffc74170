//! `scr plugin check FILE`: from the outside, then in a process of its own.
//!
//! The part of `scr plugin check` that runs in a process of its own: it loads the library and tries it.

use super::CheckArgs;
use super::{answer, ask};
use crate::environment;
use crate::output::{or_show_error, show, Answer};
use crate::table::Table;
use anyhow::{bail, Result};
use scr_base::describe;
use scr_base::env::Env;
use scr_base::message::amount;
use scr_core::plugin::{
    check_library, load, CheckedLibrary, FoundPlugin, Manifest, OpenPlugin, PluginKind, Trusted,
};
use scr_plugin_api::abi::LoadedPlugin;
use scr_plugin_api::{paths_in, KvTree};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The answer of `check`.
#[derive(Debug, Serialize, Deserialize)]
struct CheckReport {
    library: Option<String>,
    manifest: Option<String>,
    good: bool,
    /// The checks made, in order, up to the first that failed.
    steps: Vec<Step>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    step: String,
    good: bool,
    text: String,
}

impl CheckReport {
    fn new() -> Self {
        Self { library: None, manifest: None, good: true, steps: Vec::new() }
    }

    /// Adds a step, and returns whether it was good.
    fn add(&mut self, step: &str, outcome: Result<String, String>) -> bool {
        let good = outcome.is_ok();
        let text = outcome.unwrap_or_else(|error| error);
        self.good &= good;
        self.steps.push(Step { step: step.to_owned(), good, text });
        good
    }
}

pub(super) fn run(args: &CheckArgs) -> Result<Answer> {
    if args.here {
        return run_here(&args.file);
    }
    let report = or_show_error(args.json, environment::env().and_then(|env| examine(&env, args)))?;
    show(args.json, serde_json::to_value(&report)?, text(&report))?;
    Ok(Answer::from(report.good))
}

fn examine(env: &Env, args: &CheckArgs) -> Result<CheckReport> {
    let mut report = CheckReport::new();
    let checked = match manifest_of(&args.file)? {
        Some(path) => {
            report.manifest = Some(path.display().to_string());
            let found = read(env, &path);
            let outcome = found.as_ref().map(|found| summary(&found.manifest)).map_err(Clone::clone);
            if !report.add("manifest", outcome) {
                return Ok(report);
            }
            let Ok(found) = found else { return Ok(report) };
            report.library = Some(found.library.display().to_string());
            found.check(env).map_err(|error| describe(&error))
        }
        None => {
            let library = std::path::absolute(&args.file)?;
            report.library = Some(library.display().to_string());
            check_library(&*env.files, &library, &Trusted::by(env)).map_err(|error| describe(&error))
        }
    };
    let in_words =
        |checked: CheckedLibrary| format!("{}, sha256 {}", amount(checked.status.len), checked.sha256);
    if report.add("file", checked.map(in_words)) {
        load_apart(&mut report, args.timeout)?;
    }
    Ok(report)
}

/// The manifest that `file` is, or that lies beside it and names it as its library.
pub(super) fn manifest_of(file: &Path) -> Result<Option<PathBuf>> {
    if !file.exists() {
        bail!("there is no file {}", file.display());
    }
    let file = std::path::absolute(file)?;
    if is_manifest(&file) {
        return Ok(Some(file));
    }
    let Some(Ok(paths)) = file.parent().map(paths_in) else { return Ok(None) };
    Ok(paths.into_iter().find(|path| is_manifest(path) && names(path, &file)))
}

pub(super) fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

fn names(manifest: &Path, library: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(manifest) else { return false };
    let named = |parsed: &Manifest| manifest.with_file_name(&parsed.library) == library;
    Manifest::parse(manifest, &text).is_ok_and(|(parsed, _)| named(&parsed))
}

fn read(env: &Env, manifest: &Path) -> Result<FoundPlugin, String> {
    let (found, notes) = FoundPlugin::at(env, manifest).map_err(|error| error.to_string())?;
    match notes.as_slice() {
        [] => Ok(found),
        // A running job ignores what it does not know; here somebody asks whether all is well.
        notes => Err(notes.join("; ")),
    }
}

fn summary(manifest: &Manifest) -> String {
    format!("the {} {} {}", manifest.kind, manifest.name, manifest.version)
}

/// Loads the library in a process of its own, and adds what that finds out.
fn load_apart(report: &mut CheckReport, limit: Duration) -> Result<()> {
    let Some(file) = report.manifest.as_ref().or(report.library.as_ref()) else { return Ok(()) };
    match ask::<CheckReport>(["check", "--here", file], Some(limit))? {
        Ok(inside) => {
            report.good &= inside.good;
            report.steps.extend(inside.steps);
        }
        Err(how) => _ = report.add("load", Err(format!("loading it {how}"))),
    }
    Ok(())
}

fn text(report: &CheckReport) -> String {
    // As wide for every answer, for scripts that cut columns.
    let verdict = |step: &Step| if step.good { "good" } else { "BAD " };
    let row = |step: &Step| [verdict(step).to_owned(), format!("{:8}", step.step), step.text.clone()];
    Table::of(&[], report.steps.iter().map(row)).text()
}

/// Tries a manifest with its library, or a library that has no manifest.
pub(super) fn run_here(file: &Path) -> Result<Answer> {
    let mut report = CheckReport::new();
    let env = environment::env()?;
    match is_manifest(file) {
        true => try_plugin(&env, file, &mut report)?,
        false => try_library(&env, file, &mut report)?,
    }
    answer(&report)?;
    Ok(Answer::from(report.good))
}

fn try_library(env: &Env, library: &Path, report: &mut CheckReport) -> Result<()> {
    let library = check_library(&*env.files, library, &Trusted::by(env))?;
    report.add(
        "load",
        load(&*env.files, &library).map(|plugin| loaded(&plugin)).map_err(|error| error.to_string()),
    );
    Ok(())
}

fn loaded(plugin: &LoadedPlugin) -> String {
    let (oldest, newest) = plugin.formats();
    let kinds = [
        (plugin.has_scheme(), "a scheme"),
        (plugin.has_transport(), "a transport"),
        (plugin.has_log(), "a log sink"),
    ];
    let kinds: Vec<_> = kinds.iter().filter(|(has, _)| *has).map(|(_, kind)| *kind).collect();
    let version = plugin.api_version();
    format!("{}, plugin interface {version}, formats {oldest} to {newest}", kinds.join(" and "))
}

fn try_plugin(env: &Env, manifest: &Path, report: &mut CheckReport) -> Result<()> {
    match FoundPlugin::at(env, manifest)?.0.open(env) {
        Ok(open) => {
            let (oldest, newest) = open.formats();
            report.add("load", Ok(format!("fits its manifest, formats {oldest} to {newest}")));
            report.add("make", make(&open));
        }
        Err(error) => {
            report.add("load", Err(describe(&error)));
        }
    }
    Ok(())
}

/// Makes what the plugin is for with the defaults of its options, and asks it something that touches no file.
fn make(open: &OpenPlugin) -> Result<String, String> {
    let options = open.manifest.options([]).map_err(|error| describe(&error))?;
    match open.manifest.kind {
        PluginKind::Scheme => make_scheme(open, &options),
        PluginKind::Transport => open
            .transport(&options)
            .map(|_| "a transport with its defaults".to_owned())
            .map_err(|error| describe(&error)),
        // Only a configuration knows the destination of its entries, and a sink may well refuse to have none.
        PluginKind::Log => Ok(match open.log_sink(&options) {
            Ok(_) => "a log sink with its defaults".to_owned(),
            Err(error) => format!("its defaults are not enough: {}", describe(&error)),
        }),
    }
}

fn make_scheme(open: &OpenPlugin, options: &KvTree) -> Result<String, String> {
    let scheme = open.scheme(options).map_err(|error| describe(&error))?;
    let sizes = 1..=8_u32;
    let survives: Vec<_> =
        sizes.filter_map(|size| Some((size, scheme.losses_survived(size).ok()?))).collect();
    match (survives.first(), survives.last()) {
        (Some((least, few)), Some((most, many))) => Ok(format!(
            "with its defaults a set of {least} survives {few}, a set of {most} survives {many} losses"
        )),
        _ => Err("with its defaults it refuses sets of every size from 1 to 8".to_owned()),
    }
}
