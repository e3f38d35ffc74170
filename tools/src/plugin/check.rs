//! `scr plugin check FILE`: from the outside, then in a process of its own.
//!
//! The part of `scr plugin check` that runs in a process of its own: it loads the library and tries it.

use super::ask;
use super::CheckArgs;
use crate::machine::print_answer;
use crate::prelude::*;
use anyhow::Error;
use scr_core::plugin::{
    check_library, load, CheckedLibrary, FoundPlugin, Manifest, OpenPlugin, PluginKind, Trusted,
};
use scr_plugin_api::abi::LoadedPlugin;
use scr_plugin_api::Scheme as _;

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

    /// Adds a step, with the outcome in words, and gives the outcome where it was good.
    fn add<T>(&mut self, step: &str, outcome: Result<T>, in_words: impl FnOnce(&T) -> String) -> Option<T> {
        let text = outcome.as_ref().map_or_else(|error| format!("{error:#}"), in_words);
        self.good &= outcome.is_ok();
        self.steps.push(Step { step: step.to_owned(), good: outcome.is_ok(), text });
        outcome.ok()
    }
}

pub(super) fn run(args: &CheckArgs) -> Result<Answer> {
    if args.here {
        return run_here(&args.file);
    }
    let report = or_show_error(args.json, environment::env().and_then(|env| examine(&env, args)))?;
    show(args.json, serde_json::to_value(&report)?, text(&report), report.good)
}

fn examine(env: &Env, args: &CheckArgs) -> Result<CheckReport> {
    let mut report = CheckReport::new();
    let checked = match manifest_of(&args.file)? {
        Some(path) => {
            report.manifest = Some(path.display().to_string());
            let in_words = |FoundPlugin { manifest, .. }: &FoundPlugin| {
                format!("the {} {} {}", manifest.kind, manifest.name, manifest.version)
            };
            let Some(found) = report.add("manifest", read(env, &path), in_words) else { return Ok(report) };
            report.library = Some(found.library.display().to_string());
            found.check(env).map_err(Error::from)
        }
        None => {
            let library = std::path::absolute(&args.file)?;
            report.library = Some(library.display().to_string());
            check_library(&*env.files, &library, &Trusted::by(env)).map_err(Error::from)
        }
    };
    let in_words =
        |checked: &CheckedLibrary| format!("{}, sha256 {}", amount(checked.status.len), checked.sha256);
    if report.add("file", checked, in_words).is_some() {
        load_apart(&mut report, args.timeout)?;
    }
    Ok(report)
}

/// The manifest that `file` is, or that lies beside it and names it as its library.
pub(super) fn manifest_of(file: &Path) -> Result<Option<PathBuf>> {
    ensure!(file.exists(), "there is no file {}", file.display());
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

fn read(env: &Env, manifest: &Path) -> Result<FoundPlugin> {
    let (found, notes) = FoundPlugin::at(env, manifest)?;
    // A running job ignores what it does not know; here somebody asks whether all is well.
    ensure!(notes.is_empty(), notes.join("; "));
    Ok(found)
}

/// Loads the library in a process of its own, and adds what that finds out.
fn load_apart(report: &mut CheckReport, limit: Duration) -> Result<()> {
    let Some(file) = report.manifest.as_ref().or(report.library.as_ref()) else { return Ok(()) };
    match ask::<CheckReport>(["check", "--here", file], Some(limit))? {
        Ok(inside) => {
            report.good &= inside.good;
            report.steps.extend(inside.steps);
        }
        Err(how) => _ = report.add("load", Err(anyhow!("loading it {how}")), String::clone),
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
        false => {
            let library = check_library(&*env.files, file, &Trusted::by(&env))?;
            report.add("load", load(&*env.files, &library).map_err(Error::msg), loaded);
        }
    }
    print_answer(&report)?;
    Ok(Answer::from(report.good))
}

fn loaded(plugin: &LoadedPlugin) -> String {
    let (oldest, newest) = plugin.formats();
    let kinds = [
        (plugin.has_scheme(), "a scheme"),
        (plugin.has_transport(), "a transport"),
        (plugin.has_log(), "a log sink"),
    ];
    let kinds = joined(kinds.iter().filter(|(has, _)| *has).map(|(_, kind)| kind), " and ");
    let version = plugin.api_version();
    format!("{kinds}, plugin interface {version}, formats {oldest} to {newest}")
}

fn try_plugin(env: &Env, manifest: &Path, report: &mut CheckReport) -> Result<()> {
    let opened = FoundPlugin::at(env, manifest)?.0.open(env);
    let in_words = |open: &OpenPlugin| {
        let (oldest, newest) = open.formats();
        format!("fits its manifest, formats {oldest} to {newest}")
    };
    if let Some(open) = report.add("load", opened.map_err(Error::from), in_words) {
        report.add("make", make(&open), String::clone);
    }
    Ok(())
}

/// Makes what the plugin is for with the defaults of its options, and asks it something that touches no file.
fn make(open: &OpenPlugin) -> Result<String> {
    let options = open.manifest.options([])?;
    match open.manifest.kind {
        PluginKind::Scheme => make_scheme(open, &options),
        PluginKind::Transport => {
            open.transport(&options)?;
            Ok("a transport with its defaults".to_owned())
        }
        // Only a configuration knows the destination of its entries, and a sink may well refuse to have none.
        PluginKind::Log => Ok(match open.log_sink(&options) {
            Ok(_) => "a log sink with its defaults".to_owned(),
            Err(error) => format!("its defaults are not enough: {}", describe(&error)),
        }),
    }
}

fn make_scheme(open: &OpenPlugin, options: &KvTree) -> Result<String> {
    let scheme = open.scheme(options)?;
    let sizes = 1..=8_u32;
    let survives: Vec<_> =
        sizes.filter_map(|size| Some((size, scheme.losses_survived(size).ok()?))).collect();
    match (survives.first(), survives.last()) {
        (Some((least, few)), Some((most, many))) => Ok(format!(
            "with its defaults a set of {least} survives {few}, a set of {most} survives {many} losses"
        )),
        _ => bail!("with its defaults it refuses sets of every size from 1 to 8"),
    }
}
