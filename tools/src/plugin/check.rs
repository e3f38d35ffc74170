//! `scr plugin check FILE`: from the outside, then in a process of its own.
//!
//! A library runs code as soon as it is loaded, and that code may crash, hang or end the process. So it is loaded in a
//! child, and only an answer in words counts: that the child ended well says nothing.

use super::isolated::ANSWER;
use super::report::CheckReport;
use super::CheckArgs;
use crate::environment;
use crate::output::{show, show_error, Answer};
use crate::table::Table;
use anyhow::{bail, Context, Result};
use scr_core::describe;
use scr_core::env::Env;
use scr_core::plugin::{check_library, Manifest, Trusted};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use wait_timeout::ChildExt;

pub(super) fn run(args: &CheckArgs) -> Result<Answer> {
    let report = environment::env().and_then(|env| examine(&env, args));
    match &report {
        Ok(report) => show(args.json, serde_json::to_value(report)?, text(report))?,
        Err(error) => show_error(args.json, error)?,
    }
    report.map(|report| Answer::from(report.good))
}

fn examine(env: &Env, args: &CheckArgs) -> Result<CheckReport> {
    let (manifest, library) = files_of(&args.file)?;
    let mut report = CheckReport::new();
    report.manifest = manifest.as_ref().map(|path| path.display().to_string());
    let mut named = None;
    if let Some(path) = &manifest {
        let parsed = read_manifest(path);
        let outcome = parsed.as_ref().map(summary).map_err(Clone::clone);
        if !report.add("manifest", outcome) {
            return Ok(report);
        }
        named = parsed.ok().map(|manifest| library_beside(path, &manifest));
    }
    let Some(library) = library.or(named) else { bail!("the manifest names no library") };
    report.library = Some(library.display().to_string());
    let checked = check_library(&*env.files, &library, &Trusted::by(env));
    let checked = checked.map_err(|error| describe(&error));
    let outcome = checked.map(|checked| format!("{} bytes, sha256 {}", checked.bytes, checked.sha256));
    if report.add("file", outcome) {
        load_apart(&mut report, &library, manifest.as_deref(), Duration::from_secs(args.timeout))?;
    }
    Ok(report)
}

/// The manifest and the library that `file` stands for: a manifest names its library, a library has its manifest
/// beside it.
pub(super) fn files_of(file: &Path) -> Result<(Option<PathBuf>, Option<PathBuf>)> {
    if !file.exists() {
        bail!("there is no file {}", file.display());
    }
    let file = std::path::absolute(file)?;
    Ok(match file.extension().is_some_and(|extension| extension == "toml") {
        true => (Some(file), None),
        false => (manifest_of(&file), Some(file)),
    })
}

fn read_manifest(path: &Path) -> Result<Manifest, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let (manifest, notes) = Manifest::parse(path, &text).map_err(|error| error.to_string())?;
    match notes.as_slice() {
        [] => Ok(manifest),
        // A running job passes over what it does not know; here somebody asks whether all is well.
        notes => Err(notes.join("; ")),
    }
}

fn summary(manifest: &Manifest) -> String {
    format!("the {} {} {}", manifest.kind, manifest.name, manifest.version)
}

/// The manifest beside a library that names it.
fn manifest_of(library: &Path) -> Option<PathBuf> {
    let mut manifests: Vec<_> = std::fs::read_dir(library.parent()?).ok()?.filter_map(Result::ok).collect();
    manifests.sort_by_key(std::fs::DirEntry::file_name);
    let manifests = manifests.into_iter().map(|entry| entry.path());
    manifests.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).find(|path| {
        let Ok(text) = std::fs::read_to_string(path) else { return false };
        Manifest::parse(path, &text).is_ok_and(|(manifest, _)| library_beside(path, &manifest) == library)
    })
}

/// The library that a manifest names: beside it, or where an installation keeps libraries.
pub(super) fn library_beside(path: &Path, manifest: &Manifest) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new("."));
    let beside = folder.join(&manifest.library);
    let installed =
        folder.ancestors().nth(3).map(|root| root.join("lib/scr/plugins").join(&manifest.library));
    match installed {
        Some(installed) if folder.ends_with("etc/scr/plugins.d") && !beside.exists() => installed,
        _ => beside,
    }
}

/// Loads the library in a process of its own, and adds what that finds out.
fn load_apart(
    report: &mut CheckReport,
    library: &Path,
    manifest: Option<&Path>,
    limit: Duration,
) -> Result<()> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["plugin", "isolated"]).arg(library);
    if let Some(manifest) = manifest {
        command.arg("--manifest").arg(manifest);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process to load it in")?;
    let (status, text) = wait(&mut child, limit)?;
    let answer = text.lines().rev().find_map(|line| line.strip_prefix(ANSWER));
    match answer.and_then(|json| serde_json::from_str::<CheckReport>(json).ok()) {
        Some(isolated) => {
            report.good &= isolated.good;
            report.steps.extend(isolated.steps);
        }
        None => {
            let ended =
                status.map_or_else(|| format!("did not end within {} s", limit.as_secs()), how_it_ended);
            report.add("load", Err(format!("loading it {ended}")));
        }
    }
    Ok(())
}

/// How the child ended, `None` if it had to be ended, and what it printed.
fn wait(child: &mut Child, limit: Duration) -> Result<(Option<ExitStatus>, String)> {
    let mut pipe = child.stdout.take().context("the child has no output")?;
    // Read while waiting: a child that prints a lot would wait for us. A child of the child may hold the pipe
    // open for ever, so after a timeout nobody waits for the reader.
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    let status = child.wait_timeout(limit)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
        return Ok((None, String::new()));
    }
    let text = reader.join().map_err(|_| anyhow::anyhow!("reading the child's output failed"))??;
    Ok((status, text))
}

/// How a process ended.
pub(super) fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended the process with signal {signal}"),
        (None, Some(code)) => format!("ended the process with exit code {code}"),
        (None, None) => "ended the process".to_owned(),
    }
}

fn text(report: &CheckReport) -> String {
    let mut table = Table::default();
    for step in &report.steps {
        // As wide for every answer, for scripts that cut columns.
        let (verdict, name) = (if step.good { "good" } else { "BAD " }, format!("{:8}", step.step));
        table.row([verdict, &name, &step.text]);
    }
    table.text()
}
