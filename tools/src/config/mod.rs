//! `scr config`: what counts for a job that starts here, and where it comes from; what a parameter means; what is wrong
//! with a file. See docs/user/configuration.md.
//!
//! - `show`: all of them, as a table and as JSON, or one in full
//!
//! With `--check` files before there is a job: each is read alone, as a user's file beside the system file or as a system file.

mod show;

use crate::prelude::*;
use scr_comm::Rank;
use scr_config::descriptor::Descriptors;
use scr_config::param::{FileOf, Origin, Param, Problem, Settings};
use scr_core::plugin::{check_plugins, PluginHost};
use scr_core::{check_interface, descriptors};
use std::os::unix::fs::PermissionsExt;

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
        return check_files(&env, &args.check, args.system, args.json);
    }
    let configuration = Configuration::of(&env, &Settings::with_last_run(&env));
    let prefix = configuration.params.get(&param::PREFIX);
    if !prefix.is_dir() {
        warn(format_args!(
            "there is no folder {}; a job that starts with this prefix directory makes it",
            prefix.display()
        ));
    }
    match &args.explain {
        Some(name) => show::explain(&configuration, name, args.json),
        None => show::run(&configuration, args.set, args.json),
    }
}

/// What is to be said of the configuration of a job that starts here, and whether it is a mistake.
pub(crate) fn problems(env: &Env) -> Vec<(bool, String)> {
    let findings = Configuration::of(env, &Settings::with_last_run(env)).findings;
    let text = |finding: &Finding| match finding.effect {
        Effect::None => (false, finding.problem.to_string()),
        _ => (true, finding.text()),
    };
    findings.iter().map(text).collect()
}

/// Something that is wrong.
struct Finding {
    problem: Problem,
    effect: Effect,
}

/// Its effect on a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Perhaps nothing: it depends on the host.
    None,
    Ignored,
    /// No job starts with it.
    Stops,
}

impl Finding {
    /// Whether it is a mistake on every host.
    fn is_mistake(&self) -> bool {
        self.effect != Effect::None
    }

    fn text(&self) -> String {
        match self.effect {
            Effect::None => format!("{} (note)", self.problem),
            Effect::Ignored => self.problem.to_string(),
            Effect::Stops => format!("{} (no job starts with this)", self.problem),
        }
    }

    /// The same for programs.
    fn json(&self) -> Value {
        json!({
            "from": origin_json(&self.problem.origin),
            "text": self.problem.cause.to_string(),
            "stops": self.effect == Effect::Stops,
            "note": !self.is_mistake(),
        })
    }
}

/// The place of a setting, for programs.
fn origin_json(origin: &Origin) -> Value {
    let source = match origin {
        Origin::Environment => "environment",
        Origin::UserFile(_) => "user file",
        Origin::Application => "application",
        Origin::SystemFile(_) => "system file",
        Origin::Build => "build",
        Origin::Default => "default",
    };
    let mut json = json!({ "source": source });
    if let Some(place) = origin.place() {
        json["file"] = place.file.display().to_string().into();
        if place.line > 0 {
            json["line"] = place.line.into();
        }
    }
    json
}

fn jsons(findings: &[Finding]) -> Vec<Value> {
    findings.iter().map(Finding::json).collect()
}

/// Parameters and descriptors, and what is wrong with them.
struct Configuration {
    params: Params,
    /// `None` where no job starts with this configuration.
    descriptors: Option<Descriptors>,
    findings: Vec<Finding>,
}

impl Configuration {
    /// The configuration of these settings. The manifests of plugins are read, their libraries are not opened.
    fn of(env: &Env, settings: &Settings) -> Self {
        let (params, mut problems) = Params::resolve(settings, env);
        let (descriptors, mut fatal) = descriptors(env, &params, &mut problems);
        // Settings that are valid and probably unwanted.
        problems.extend(readable_password(&params));
        let mut notes = missing_folders(&params);
        notes.extend(check_interface(env, &params));
        let (list, info, nodes) = match params.get(&param::NODELIST) {
            Some(list) => {
                (&mut problems, param::NODELIST.info(), hostlist::expand(&list).unwrap_or_default())
            }
            None => (&mut notes, param::NODE_NAME.info(), vec![params.get(&param::NODE_NAME)]),
        };
        let origin = params.named(info.name).map_or(&Origin::Default, |named| &named.origin);
        let why = nodes_without_groups(&descriptors, &nodes).into_iter();
        list.extend(why.map(|why| problem(origin, info.name, &why)));
        fatal.extend(problems.extract_if(.., |problem| problem.stops()));
        let is_good = fatal.is_empty();
        problems.extend(check_plugins(
            &PluginHost::configured(env, &params),
            &params,
            &descriptors,
            &mut fatal,
        ));
        let all = [(Effect::Stops, fatal), (Effect::Ignored, problems), (Effect::None, notes)].into_iter();
        let mut findings: Vec<_> = all
            .flat_map(|(effect, all)| all.into_iter().map(move |problem| Finding { problem, effect }))
            .collect();
        findings.sort_by(|one, other| one.problem.origin.place().cmp(&other.problem.origin.place()));
        Self { params, descriptors: is_good.then_some(descriptors), findings }
    }
}

/// Checks the files. The answer is yes where nothing is wrong with any.
fn check_files(env: &Env, files: &[PathBuf], system: bool, json: bool) -> Result<Answer> {
    let whose = if system { FileOf::Site } else { FileOf::User };
    let mut names = param::TABLE.iter().map(|info| info.name).filter(|name| !Settings::is_checked_with(name));
    if let Some(name) = names.find(|name| env.variable(name).is_some()) {
        warn(format_args!(
            "{name} of the environment, and what else it sets, is not read; `scr config' reads all"
        ));
    }
    let checked: Vec<_> = files.iter().map(|file| (file, problems_in(env, file, whose))).collect();
    let is_valid = checked.iter().all(|(_, findings)| !findings.iter().any(Finding::is_mistake));
    let rows = checked.iter();
    let rows =
        rows.map(|(file, found)| json!({ "file": file.display().to_string(), "problems": jsons(found) }));
    let report = json!({ "valid": is_valid, "files": rows.collect::<Vec<_>>() });
    let text: String = checked.iter().map(|(file, findings)| of_file(file, findings)).collect();
    show(json, report, text, is_valid)
}

fn problems_in(env: &Env, file: &Path, whose: FileOf) -> Vec<Finding> {
    let mut findings = Configuration::of(env, &Settings::of_file(env, file, whose)).findings;
    // A problem of the system file cannot be fixed in a user's file.
    findings
        .retain(|finding| whose == FileOf::Site || !matches!(finding.problem.origin, Origin::SystemFile(_)));
    findings
}

fn of_file(file: &Path, findings: &[Finding]) -> String {
    let file = file.display();
    let lines: String = findings.iter().map(|finding| finding.text() + "\n").collect();
    match findings.iter().filter(|finding| finding.is_mistake()).count() as u64 {
        0 => format!("{lines}{file}: nothing is wrong\n"),
        many => format!("{lines}{file}: {}\n", count(many, "problem")),
    }
}

fn problem(origin: &Origin, name: &str, why: &str) -> Problem {
    Problem::new(origin, format!("{name}: {why}"))
}

/// A password that others can read.
fn readable_password(params: &Params) -> Option<Problem> {
    params.get(&param::LOG_DB_PASS)?;
    let origin = params.origin(&param::LOG_DB_PASS);
    let file = &origin.place()?.file;
    let mode = file.metadata().ok()?.permissions().mode();
    let why = format!("others can read the password in {0}; run `chmod go-r {0}'", file.display());
    (mode & OTHERS_READ != 0).then(|| problem(origin, param::LOG_DB_PASS.info().name, &why))
}

/// What is to be said of the nodes of a job that lack a group in use: `SCR_Init` fails on them.
pub(crate) fn nodes_without_groups(descriptors: &Descriptors, nodes: &[String]) -> Vec<String> {
    let used = descriptors.redundancy.all().into_iter().map(|redundancy| &redundancy.group);
    let used: BTreeSet<_> = used.chain(descriptors.enabled().map(|store| &store.group)).collect();
    let why = |group: &String| {
        let is_missing = |node: &&String| descriptors.groups.value(group, node, Rank(0)).is_err();
        let missing: Vec<_> = nodes.iter().filter(is_missing).cloned().collect();
        let nodes = hostlist::compress(&missing);
        (!missing.is_empty()).then(|| {
            format!("{nodes} has no {group}, a group in use: SCR_Init fails there; add GROUPS={nodes} {group}=value")
        })
    };
    // One that is not defined at all is said elsewhere.
    used.into_iter().filter(|group| descriptors.groups.has(group)).filter_map(why).collect()
}

/// Folders that a file sets and that are not there: they may be on the nodes.
fn missing_folders(params: &Params) -> Vec<Problem> {
    let of = |base: &Param<PathBuf>| {
        (base.info(), params.origin(base), params.get(base), "a job makes it where it may")
    };
    let metrics = &param::METRICS_DIR;
    let dir = params.get(metrics).map(|dir| (metrics.info(), params.origin(metrics), dir, "no job makes it"));
    let missing = [of(&param::CACHE_BASE), of(&param::CNTL_BASE)].into_iter().chain(dir);
    let missing = missing.filter(|(_, origin, dir, _)| origin.place().is_some() && !dir.exists());
    let why = |dir: &Path, so| format!("there is no folder {} on this host; {so}", dir.display());
    missing.map(|(info, origin, dir, so)| problem(origin, info.name, &why(&dir, so))).collect()
}

const OTHERS_READ: u32 = 0o044;
