//! The effective value of every parameter on one rank, and where it comes from.
//!
//! The first source that has a usable value counts: environment, user file, `SCR_Config`, system file, default. A
//! value that cannot be used is told and the next source counts.

use super::check::contradictions;
use super::expand::Variables;
use super::file::{Setting, CKPT, DESCRIPTORS};
use super::line::Pair;
use super::problem::{Cause, Origin, Place, Problem};
use super::raw::RawSettings;
use super::table::{self, Info, Param, Preset, Scope, TABLE};
use super::value::{Datum, Kind, Rejected, Value};
use crate::env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem::discriminant;
use std::path::PathBuf;

/// The effective parameters of one rank.
#[derive(Debug, Clone)]
pub struct Params {
    /// One per row of the table.
    values: Vec<Resolved>,
    lines: Vec<Line>,
    locks: Locks,
}

/// A parameter with its effective value.
#[derive(Debug, Clone, Copy)]
pub struct Effective<'a> {
    /// The parameter.
    pub info: &'static Info,
    /// Its value.
    pub value: &'a Datum,
    /// Its value as it was set, with variables replaced; `None` where it has none.
    pub text: Option<&'a str>,
    /// Where it comes from.
    pub origin: &'a Origin,
}

/// A descriptor line with its variables replaced.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The value before variables were replaced, which is the same on all ranks.
    pub(crate) shared: String,
    pub(crate) items: Vec<Item>,
    pub(crate) origin: Origin,
}

/// A pair of a descriptor line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) shared: String,
}

#[derive(Debug, Clone)]
struct Resolved {
    datum: Datum,
    text: Option<String>,
    /// Before variables were replaced, and without this rank's own environment.
    shared: Option<String>,
    origin: Origin,
}

impl Params {
    /// The parameters of this rank, and what is wrong with the settings. On the rank that read them, that includes
    /// what was wrong with the files.
    pub fn resolve(raw: &RawSettings, env: &Env) -> (Self, Vec<Problem>) {
        let mut problems = raw.problems().to_vec();
        let locks = Locks::of(raw.settings().iter(), &mut problems);
        let mut by_name: BTreeMap<&str, Vec<&Setting>> = BTreeMap::new();
        for setting in raw.settings() {
            by_name.entry(&setting.name).or_default().push(setting);
        }
        let values = TABLE
            .iter()
            .map(|info| {
                let settings = by_name.get(info.name).map_or(&[][..], Vec::as_slice);
                resolve_one(info, settings, &locks, raw, env, &mut problems)
            })
            .collect();
        let lines = lines(&by_name, &locks, env, &mut problems);
        let params = Self { values, lines, locks };
        problems.extend(contradictions(&params));
        (params, problems)
    }

    /// The value of a parameter.
    pub fn get<T: Value>(&self, param: &Param<T>) -> T {
        // The tests of the table show that whatever is accepted is of the constant's type.
        self.values.get(param.index()).and_then(|value| T::from_datum(&value.datum)).unwrap_or_default()
    }

    /// Where the value of a parameter comes from.
    pub fn origin<T>(&self, param: &Param<T>) -> &Origin {
        self.values.get(param.index()).map_or(&Origin::Default, |value| &value.origin)
    }

    /// Every parameter in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = Effective<'_>> {
        TABLE.iter().zip(&self.values).map(|(info, resolved)| Effective {
            info,
            value: &resolved.datum,
            text: resolved.text.as_deref(),
            origin: &resolved.origin,
        })
    }

    /// The parameter of this name.
    pub fn named(&self, name: &str) -> Option<Effective<'_>> {
        self.iter().find(|effective| effective.info.name == name)
    }

    /// The line of the system file that keeps users from setting this parameter.
    pub fn locked(&self, name: &str) -> Option<&Place> {
        self.locks.0.get(name)
    }

    /// A parameter's text before variables were replaced, the same on all ranks.
    pub(crate) fn shared(&self, param: &Param<PathBuf>) -> String {
        self.values.get(param.index()).and_then(|value| value.shared.clone()).unwrap_or_default()
    }

    /// The descriptor lines that start with `name`.
    pub(crate) fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.name == name)
    }
}

impl Effective<'_> {
    /// Whether it has a value, set or by default.
    pub fn has_value(&self) -> bool {
        *self.value != Datum::Unset
    }

    /// Whether somebody has set it.
    pub fn is_set(&self) -> bool {
        self.origin.is_set()
    }
}

/// The value for people: a switch as 0 or 1, a size in bytes, a secret as stars.
impl fmt::Display for Effective<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Datum::Unset => f.write_str("(unset)"),
            _ if self.info.kind == Kind::Secret => f.write_str("***"),
            Datum::Bool(value) => u8::from(*value).fmt(f),
            Datum::Count(value) => value.fmt(f),
            Datum::Whole(value) => value.fmt(f),
            Datum::Seconds(value) => value.as_secs().fmt(f),
            Datum::Number(value) => write!(f, "{value:.6}"),
            Datum::Text(value) => f.write_str(value),
            Datum::Path(value) => value.display().fmt(f),
            Datum::Paths(values) => {
                let values: Vec<_> = values.iter().map(|value| value.display().to_string()).collect();
                f.write_str(&values.join(":"))
            }
        }
    }
}

impl Line {
    /// The value of a key.
    pub(crate) fn item(&self, key: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.key == key)
    }

    /// The line and one of its keys, for messages.
    pub(crate) fn title(&self, key: &str) -> String {
        format!("{}={} {key}", self.name, self.value)
    }
}

/// What the site does not let users set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Locks(BTreeMap<String, Place>);

impl Locks {
    /// From the lines `SCR_LOCKED=...` of the system file.
    pub(crate) fn of<'a>(settings: impl Iterator<Item = &'a Setting>, problems: &mut Vec<Problem>) -> Self {
        let mut locks = BTreeMap::new();
        for setting in settings.filter(|setting| setting.name == table::LOCKED.info().name) {
            let Origin::SystemFile(place) = &setting.origin else { continue };
            let names =
                setting.value.split(|c: char| c == ',' || c.is_whitespace()).filter(|name| !name.is_empty());
            for name in names {
                problems.extend(super::file::unknown(name).map(|cause| Problem::new(&setting.origin, cause)));
                locks.insert(name.to_string(), place.clone());
            }
        }
        Self(locks)
    }

    /// Whether a setting counts; one that does not is told.
    fn allow(&self, setting: &Setting, problems: &mut Vec<Problem>) -> bool {
        let Some(by) = self.0.get(&setting.name) else { return true };
        if matches!(setting.origin, Origin::SystemFile(_) | Origin::Build | Origin::Default) {
            return true;
        }
        let cause = Cause::Locked { name: setting.name.clone(), by: by.clone() };
        problems.push(Problem::new(&setting.origin, cause));
        false
    }
}

/// A usable value.
pub(crate) struct Picked {
    pub(crate) datum: Datum,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// The first usable one of the settings of a parameter. All of them are looked at, so that every mistake is told.
pub(crate) fn pick<'a>(
    info: &Info,
    settings: impl Iterator<Item = &'a Setting>,
    locks: &Locks,
    env: &Env,
    problems: &mut Vec<Problem>,
) -> Option<Picked> {
    let mut picked = None;
    for setting in settings {
        if !locks.allow(setting, problems) {
            continue;
        }
        let (text, missing) = match setting.origin {
            Origin::Default => (setting.value.clone(), Vec::new()),
            _ => Variables::of(env).expand(&setting.value),
        };
        problems.extend(undefined(info.name, missing, &setting.origin));
        match info.kind.read(&text, &env.current_dir) {
            Ok(datum) if text.is_empty() && datum != Datum::Unset => {
                let cause = Cause::Empty { name: info.name.to_string() };
                problems.push(Problem::new(&setting.origin, cause));
            }
            Ok(datum) => {
                let (datum, renamed) = renamed(info.name, datum);
                problems.extend(renamed.map(|cause| Problem::new(&setting.origin, cause)));
                picked.get_or_insert(Picked { datum, text, origin: setting.origin.clone() });
            }
            Err(rejected) => {
                problems.push(Problem::new(&setting.origin, rejected.cause(info.name.to_string(), text)));
            }
        }
    }
    picked
}

impl Rejected {
    /// As a problem of the parameter or key of this name.
    pub(crate) fn cause(self, name: String, found: String) -> Cause {
        match self {
            Rejected::Malformed(expected) => Cause::Malformed { name, found, expected },
            Rejected::OutOfRange { least, most } => Cause::OutOfRange { name, found, least, most },
        }
    }
}

fn undefined<'a>(
    name: &'a str,
    missing: Vec<String>,
    origin: &'a Origin,
) -> impl Iterator<Item = Problem> + 'a {
    let missing: BTreeSet<_> = missing.into_iter().collect();
    missing
        .into_iter()
        .map(move |variable| Problem::new(origin, Cause::Undefined { name: name.to_string(), variable }))
}

/// What version 1 called LOCAL is SINGLE today.
fn renamed(name: &str, datum: Datum) -> (Datum, Option<Cause>) {
    match datum {
        Datum::Text(text) if name == table::COPY_TYPE.info().name => {
            let (text, cause) = scheme_name(name, text);
            (Datum::Text(text), cause)
        }
        other => (other, None),
    }
}

/// The name of a scheme, where that of a former version is replaced and told.
pub(crate) fn scheme_name(name: &str, text: String) -> (String, Option<Cause>) {
    if !text.eq_ignore_ascii_case("LOCAL") {
        return (text, None);
    }
    let now = "SINGLE".to_string();
    let cause = Cause::Renamed { name: name.to_string(), former: text, now: now.clone() };
    (now, Some(cause))
}

fn resolve_one(
    info: &'static Info,
    settings: &[&Setting],
    locks: &Locks,
    raw: &RawSettings,
    env: &Env,
    problems: &mut Vec<Problem>,
) -> Resolved {
    if info.preset == Preset::CurrentDir {
        let (text, origin) = raw.prefix_as_set();
        let prefix = raw.prefix();
        let shown = text.cloned().unwrap_or_else(|| prefix.display().to_string());
        let datum = Datum::Path(prefix.to_path_buf());
        return Resolved { datum, shared: Some(shown.clone()), text: Some(shown), origin: origin.clone() };
    }
    let own = match info.scope {
        Scope::Node | Scope::Rank => env.variable(info.name),
        Scope::Anywhere | Scope::Environment | Scope::SystemFile => None,
    };
    let own = own.map(|value| Setting::new(info.name, value, Origin::Environment));
    let others = settings.iter().copied().filter(|s| own.is_none() || s.origin != Origin::Environment);
    let picked = pick(info, own.iter().chain(others), locks, env, problems);
    let fallback = preset(info, env);
    let shared = shared(info, settings, locks, env).or_else(|| fallback.clone());
    match picked {
        Some(picked) => {
            Resolved { datum: picked.datum, text: Some(picked.text), shared, origin: picked.origin }
        }
        None => {
            let datum = fallback.as_ref().and_then(|text| info.kind.read(text, &env.current_dir).ok());
            let datum = datum.unwrap_or(Datum::Unset);
            Resolved { datum, text: fallback, shared, origin: unset(info) }
        }
    }
}

/// Where the value comes from if nobody has set it.
fn unset(info: &Info) -> Origin {
    match info.preset {
        Preset::Built(_) => Origin::Build,
        _ => Origin::Default,
    }
}

fn preset(info: &Info, env: &Env) -> Option<String> {
    match info.preset {
        Preset::Text(text) | Preset::Built(text) | Preset::VariablesOr(_, text) => Some(text.to_string()),
        Preset::Host => Some(env.host.clone()),
        Preset::User => Some(env.user.clone()),
        Preset::Unset | Preset::Variables(_) | Preset::CurrentDir => None,
    }
}

/// The text that all ranks see, as it was set.
fn shared(info: &Info, settings: &[&Setting], locks: &Locks, env: &Env) -> Option<String> {
    let mut told_already = Vec::new();
    let usable =
        |setting: &&&Setting| pick(info, std::iter::once(**setting), locks, env, &mut told_already).is_some();
    settings.iter().find(usable).map(|setting| setting.value.clone())
}

/// The descriptor lines that count. CKPT lines belong together, so they come from one source; of the STORE and
/// GROUPS lines, the first source that describes a store or a host counts for it.
fn lines(
    by_name: &BTreeMap<&str, Vec<&Setting>>,
    locks: &Locks,
    env: &Env,
    problems: &mut Vec<Problem>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for name in DESCRIPTORS {
        let settings = by_name.get(name).map_or(&[][..], Vec::as_slice);
        let allowed: Vec<_> = settings.iter().copied().filter(|s| locks.allow(s, problems)).collect();
        let first = allowed.first().map(|setting| discriminant(&setting.origin));
        let mut seen = BTreeSet::new();
        for setting in allowed {
            let counts = match *name {
                CKPT => Some(discriminant(&setting.origin)) == first,
                _ => seen.insert(setting.value.as_str()),
            };
            if counts {
                lines.push(line(setting, env, problems));
            }
        }
    }
    lines
}

fn line(setting: &Setting, env: &Env, problems: &mut Vec<Problem>) -> Line {
    let mut expand = |title: String, text: &str| {
        let (expanded, missing) = Variables::of(env).expand(text);
        problems.extend(undefined(&title, missing, &setting.origin));
        expanded
    };
    let value = expand(setting.name.clone(), &setting.value);
    let mut item = |pair: &Pair| {
        let title = format!("{}={} {}", setting.name, setting.value, pair.key);
        Item { key: pair.key.clone(), value: expand(title, &pair.value), shared: pair.value.clone() }
    };
    let items = setting.items.iter().map(&mut item).collect();
    Line {
        name: setting.name.clone(),
        value,
        shared: setting.value.clone(),
        items,
        origin: setting.origin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{world, world_of};
    use super::super::AppConfig;
    use super::*;
    use crate::env::TestEnv;
    use std::path::Path;

    const SYSTEM: &str = "/opt/scr/etc/scr.conf";
    const USER: &str = "/pfs/run1/.scrconf";

    fn resolved(world: &TestEnv, app: &[&str]) -> (Params, Vec<Problem>) {
        let mut config = AppConfig::default();
        for text in app {
            config.apply(text).unwrap();
        }
        Params::resolve(&RawSettings::load(&world.env(), &config), &world.env())
    }

    fn texts(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_source_goes_before_the_next() {
        let files = [(SYSTEM, "SCR_CACHE_SIZE=3\n"), (USER, "SCR_CACHE_SIZE=5\n")];
        let size = |world: TestEnv, app: &[&str]| {
            let (params, problems) = resolved(&world, app);
            assert_eq!(problems, []);
            (params.get(&table::CACHE_SIZE), params.origin(&table::CACHE_SIZE).to_string())
        };
        assert_eq!(size(world(), &[]), (1, "default".to_string()));
        assert_eq!(size(world_of(&files[..1]), &[]), (3, format!("{SYSTEM}:1")));
        assert_eq!(size(world_of(&files[..1]), &["SCR_CACHE_SIZE=4"]), (4, "SCR_Config".to_string()));
        assert_eq!(size(world_of(&files), &["SCR_CACHE_SIZE=4"]), (5, format!("{USER}:1")));
        let all = world_of(&files).with_variable("SCR_CACHE_SIZE", "6");
        assert_eq!(size(all, &["SCR_CACHE_SIZE=4"]), (6, "environment".to_string()));
    }

    #[test]
    fn every_parameter_can_be_set_from_every_source_it_allows() {
        for info in TABLE.iter().filter(|info| info.scope != Scope::SystemFile && info.name != "SCR_PREFIX") {
            let text = match info.kind {
                Kind::Path | Kind::Paths => "/somewhere/else",
                Kind::Bytes { .. } => "8192",
                Kind::Bool if info.preset == Preset::Text("1") => "0",
                Kind::Bool => "1",
                Kind::Name { .. } => "ACME",
                _ => "7",
            };
            let line = format!("{}={text}\n", info.name);
            let value_of = |world: TestEnv| {
                let (params, _) = resolved(&world, &[]);
                let effective = params.named(info.name).unwrap();
                (effective.text.map(str::to_string), effective.origin.clone())
            };
            let environment = value_of(world().with_variable(info.name, text));
            assert_eq!(environment, (Some(text.to_string()), Origin::Environment), "{}", info.name);
            for file in [USER, SYSTEM] {
                let (value, origin) = value_of(world_of(&[(file, &line)]));
                let allowed = info.scope != Scope::Environment;
                assert_eq!(value.as_deref() == Some(text), allowed, "{} in {file}", info.name);
                assert_eq!(origin.place().is_some(), allowed, "{} in {file}", info.name);
            }
        }
    }

    #[test]
    fn a_malformed_value_is_told_and_the_next_source_counts() {
        let files = [(USER, "\nSCR_CACHE_SIZE=ten\n"), (SYSTEM, "SCR_CACHE_SIZE=3\n")];
        let (params, problems) = resolved(&world_of(&files), &[]);
        assert_eq!(params.get(&table::CACHE_SIZE), 3);
        let expected =
            format!("{USER}:2: SCR_CACHE_SIZE holds `ten', which is not a whole number; it is passed over");
        assert_eq!(texts(&problems), [expected]);
    }

    #[test]
    fn a_site_can_lock_a_parameter_and_says_so() {
        let files =
            [(SYSTEM, "SCR_LOCKED=SCR_CACHE_BASE,SCR_FLUSH\nSCR_CACHE_BASE=/ssd\n"), (USER, "SCR_FLUSH=1\n")];
        let (params, problems) = resolved(&world_of(&files).with_variable("SCR_CACHE_BASE", "/home/me"), &[]);
        assert_eq!(params.get(&table::CACHE_BASE), Path::new("/ssd"));
        assert_eq!(params.get(&table::FLUSH), 10);
        let locked = |problem: &Problem| matches!(problem.cause, Cause::Locked { .. });
        assert_eq!(problems.iter().filter(|problem| locked(problem)).count(), 2);
        assert!(problems.iter().all(locked), "{problems:?}");
    }

    #[test]
    fn only_the_system_file_can_lock_and_only_the_environment_names_the_user_file() {
        let files = [(USER, "SCR_LOCKED=SCR_FLUSH\nSCR_CONF_FILE=/x\n")];
        let (params, problems) = resolved(&world_of(&files).with_variable("SCR_FLUSH", "1"), &[]);
        assert_eq!(params.get(&table::FLUSH), 1);
        assert_eq!(problems.len(), 2);
        assert!(problems.iter().all(|problem| matches!(problem.cause, Cause::WrongPlace { .. })));
    }

    #[test]
    fn variables_are_expanded_on_each_rank() {
        let zero = world_of(&[(SYSTEM, "SCR_CACHE_BASE=/tmp/$SCR_NODE_NAME\n")])
            .with_variable("SCR_NODE_NAME", "n0");
        let raw = RawSettings::load(&zero.env(), &AppConfig::default());
        let raw = RawSettings::from_tree(&raw.to_tree()).unwrap();
        let one = world().with_variable("SCR_NODE_NAME", "n1").env();
        let (params, problems) = Params::resolve(&raw, &one);
        assert_eq!(problems, []);
        assert_eq!(params.get(&table::CACHE_BASE), Path::new("/tmp/n1"));
        assert_eq!(params.shared(&table::CACHE_BASE), "/tmp/$SCR_NODE_NAME");
        assert_eq!(params.get(&table::NODE_NAME), "n1");
    }

    #[test]
    fn the_environment_of_rank_0_counts_for_all_but_a_ranks_own_node_goes_first() {
        let zero = world()
            .with_variable("SCR_FLUSH", "3")
            .with_variable("SCR_CACHE_BASE", "/tmp/n0")
            .with_variable("SCR_CNTL_BASE", "/dev/shm/all")
            .with_variable("SCR_NODE_NAME", "n0")
            .with_variable("SLURM_JOB_ID", "77");
        let raw = RawSettings::load(&zero.env(), &AppConfig::default());
        let one =
            world().with_host("host1").with_user("other", 7).with_variable("SCR_CACHE_BASE", "/tmp/n1").env();
        let (params, problems) = Params::resolve(&raw, &one);
        assert_eq!(problems, []);
        assert_eq!(params.get(&table::FLUSH), 3);
        assert_eq!(params.get(&table::CACHE_BASE), Path::new("/tmp/n1"));
        assert_eq!(params.shared(&table::CACHE_BASE), "/tmp/n0");
        assert_eq!(params.get(&table::CNTL_BASE), Path::new("/dev/shm/all"));
        assert_eq!(params.get(&table::NODE_NAME), "host1");
        assert_eq!(params.get(&table::USER_NAME), "user1");
        assert_eq!(params.get(&table::JOB_ID), "77");
    }

    #[test]
    fn a_variable_that_is_not_set_is_told_by_name_and_place() {
        let (params, problems) = resolved(&world_of(&[(USER, "SCR_CACHE_BASE=/tmp/$NOT_SET\n")]), &[]);
        assert_eq!(params.get(&table::CACHE_BASE), Path::new("/tmp"));
        assert!(texts(&problems)[0]
            .starts_with(&format!("{USER}:1: SCR_CACHE_BASE uses $NOT_SET, which is not set")));
    }

    #[test]
    fn without_a_resource_manager_the_allocation_is_defjobid() {
        let (params, _) = resolved(&world(), &[]);
        assert_eq!(params.get(&table::JOB_ID), "defjobid");
        assert_eq!(params.get(&table::JOB_NAME), None);
        assert_eq!(params.get(&table::PREFIX), Path::new("/pfs/run1"));
    }

    #[test]
    fn local_means_single() {
        let (params, problems) = resolved(&world().with_variable("SCR_COPY_TYPE", "LOCAL"), &[]);
        assert_eq!(params.get(&table::COPY_TYPE), "SINGLE");
        assert!(matches!(problems[0].cause, Cause::Renamed { .. }));
    }

    #[test]
    fn checkpoint_lines_come_from_one_source_and_stores_from_all() {
        let files = [
            (SYSTEM, "CKPT=0 TYPE=RS\nCKPT=1 INTERVAL=2\nSTORE=/ssd COUNT=3\nSTORE=/shm COUNT=1\n"),
            (USER, "CKPT=0 TYPE=XOR\nSTORE=/ssd COUNT=5\n"),
        ];
        let (params, _) = resolved(&world_of(&files), &[]);
        assert_eq!(params.lines("CKPT").count(), 1);
        let stores: Vec<_> =
            params.lines("STORE").map(|s| (s.value.as_str(), s.items[0].value.as_str())).collect();
        assert_eq!(stores, [("/ssd", "5"), ("/shm", "1")]);
    }

    #[test]
    fn a_password_is_never_shown() {
        let (params, _) = resolved(&world().with_variable("SCR_LOG_DB_PASS", "hunter2"), &[]);
        assert_eq!(params.named("SCR_LOG_DB_PASS").unwrap().to_string(), "***");
        assert_eq!(params.get(&table::LOG_DB_PASS).as_deref(), Some("hunter2"));
    }

    #[test]
    fn values_are_shown_as_users_of_the_debug_lines_know_them() {
        let world = world()
            .with_variable("SCR_CACHE_BYPASS", "no")
            .with_variable("SCR_FILE_BUF_SIZE", "32MB")
            .with_variable("SCR_FLUSH_ASYNC_BW", "200MB");
        let (params, _) = resolved(&world, &[]);
        let shown = |name: &str| params.named(name).unwrap().to_string();
        assert_eq!(shown("SCR_CACHE_BYPASS"), "0");
        assert_eq!(shown("SCR_FILE_BUF_SIZE"), "33554432");
        assert_eq!(shown("SCR_FLUSH_ASYNC_BW"), "209715200");
        assert_eq!(shown("SCR_CHECKPOINT_OVERHEAD"), "0.000000");
    }
}
