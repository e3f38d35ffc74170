//! `scr plugin check FILE`: from the outside, then in a process of its own.

use super::apart::ask;
use super::report::{CheckReport, Step};
use super::{isolated, CheckArgs};
use crate::environment;
use crate::output::{or_show_error, show, Answer};
use crate::table::Table;
use anyhow::{bail, Result};
use scr_base::describe;
use scr_base::env::Env;
use scr_base::message::amount;
use scr_core::plugin::{check_library, CheckedLibrary, FoundPlugin, Manifest, Trusted};
use scr_plugin_api::paths_in;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) fn run(args: &CheckArgs) -> Result<Answer> {
    if args.here {
        return isolated::run(&args.file);
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
    let in_words = |checked: CheckedLibrary| format!("{}, sha256 {}", amount(checked.bytes), checked.sha256);
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
