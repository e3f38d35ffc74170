//! The parameters and descriptor lines of one rank.
//!
//! Sources count in this order: environment, user file, `SCR_Config`, system file, default. A value that cannot be
//! used is reported, and the next source counts.

use super::check::contradictions;
use super::expand::expand_path;
use super::file::{Setting, CKPT, DESCRIPTORS};
use super::line::Pair;
use super::origin::{FileLine, Origin};
use super::problem::Problem;
use super::resolve::{undefined, Locks, Parameter, Resolver};
use super::settings::Settings;
use super::table::{self, Param, PREFIX, TABLE};
use super::value::{FromValue, Value};
use scr_base::env::Env;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::path::PathBuf;

/// The effective parameters of one rank.
#[derive(Debug, Clone)]
pub struct Params {
    /// One per row of the table.
    values: Vec<Parameter>,
    lines: Vec<Line>,
    locks: Locks,
}

/// A descriptor line with its variables replaced.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub name: String,
    pub value: String,
    /// The value before variables were replaced, the same on all ranks.
    pub(crate) shared: String,
    pub(crate) items: Vec<Pair>,
    pub origin: Origin,
}

impl Params {
    /// The parameters of this rank, and the problems of the settings. On the rank that read them, that includes
    /// the problems of the files.
    pub fn resolve(settings: &Settings, env: &Env) -> (Self, Vec<Problem>) {
        let mut problems = settings.problems().to_vec();
        let locks = Locks::of(settings.iter(), &mut problems);
        let mut by_name: BTreeMap<&str, Vec<&Setting>> = BTreeMap::new();
        for setting in settings.iter() {
            by_name.entry(&setting.name).or_default().push(setting);
        }
        let of = |name: &str| by_name.get(name).map_or(&[][..], Vec::as_slice);
        let mut resolver = Resolver { env, locks, problems };
        let values = TABLE.iter().map(|info| match info.name == PREFIX.info().name {
            true => settings.prefix_parameter(),
            false => resolver.parameter(info, of(info.name)),
        });
        let values = with_transport(values.collect());
        let lines = DESCRIPTORS.iter().flat_map(|name| lines(name, of(name), &mut resolver)).collect();
        let Resolver { locks, mut problems, .. } = resolver;
        let params = Self { values, lines, locks };
        problems.extend(contradictions(&params));
        (params, problems)
    }

    /// The value of a parameter.
    pub fn get<T: FromValue>(&self, param: &Param<T>) -> T {
        // The tests of the table show that every accepted value is of the constant's type.
        self.values.get(param.index).and_then(|found| T::from_value(&found.value)).unwrap_or_default()
    }

    /// The place where the value of a parameter was set.
    pub fn origin<T>(&self, param: &Param<T>) -> &Origin {
        self.values.get(param.index).map_or(&Origin::Default, |found| &found.origin)
    }

    /// Every parameter in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.values.iter()
    }

    /// The parameter of this name.
    pub fn named(&self, name: &str) -> Option<&Parameter> {
        self.iter().find(|parameter| parameter.info.name == name)
    }

    /// The line of the system file that keeps users from setting this parameter.
    pub fn locked(&self, name: &str) -> Option<&FileLine> {
        self.locks.by(name)
    }

    /// A parameter's text before variables were replaced, the same on all ranks.
    pub(crate) fn shared(&self, param: &Param<PathBuf>) -> String {
        self.values.get(param.index).and_then(|found| found.shared.clone()).unwrap_or_default()
    }

    /// The descriptor lines that start with `name`.
    pub fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.name == name)
    }
}

/// The values, with a transport that copies while the application computes where that is asked for and nobody names one.
fn with_transport(mut values: Vec<Parameter>) -> Vec<Parameter> {
    let is_asynchronous = values[table::FLUSH_ASYNC.index].value == Value::Bool(true);
    let transport = &mut values[table::FLUSH_TYPE.index];
    if is_asynchronous && !transport.is_set() {
        let text = Some(ASYNCHRONOUS.to_owned());
        transport.value = Value::Text(ASYNCHRONOUS.to_owned());
        (transport.shared, transport.text) = (text.clone(), text);
    }
    values
}

/// The transport of asynchronous flushes for which nobody names one.
const ASYNCHRONOUS: &str = "PTHREAD";

/// The descriptor lines of a name that count. CKPT lines belong together, so they come from one source; of the STORE
/// and GROUPS lines, the first source that describes a store or a host counts for it.
fn lines(name: &str, settings: &[&Setting], resolver: &mut Resolver<'_>) -> Vec<Line> {
    let allowed: Vec<_> = settings.iter().copied().filter(|setting| resolver.allows(setting)).collect();
    let mut sources = BTreeMap::new();
    let counts = |setting: &&Setting| {
        let source = discriminant(&setting.origin);
        let described = match name {
            CKPT => "",
            // `/ssd/` of one source is `/ssd` of another.
            _ => setting.value.trim_end_matches('/'),
        };
        *sources.entry(described.to_owned()).or_insert(source) == source
    };
    let counting = allowed.into_iter().filter(counts);
    counting.map(|setting| Line::of(setting, resolver.env, &mut resolver.problems)).collect()
}

impl Line {
    fn of(setting: &Setting, env: &Env, problems: &mut Vec<Problem>) -> Self {
        let mut expand = |title: &str, text: &str, line: u32| {
            let (expanded, missing) = expand_path(env, text);
            problems.extend(undefined(title, missing, &setting.origin.at_line(line)));
            expanded
        };
        let value = expand(&setting.name, &setting.value, 0);
        let items = setting.items.iter().map(|pair| {
            let title = format!("{}={} {}", setting.name, setting.value, pair.key);
            Pair { value: expand(&title, &pair.value, pair.line), ..pair.clone() }
        });
        let items = items.collect();
        let (name, shared, origin) = (setting.name.clone(), setting.value.clone(), setting.origin.clone());
        Self { name, value, shared, items, origin }
    }

    /// The value of a key.
    pub fn item(&self, key: &str) -> Option<&Pair> {
        self.items.iter().find(|item| item.key == key)
    }

    /// The place where a key was set. A descriptor may be described on several lines.
    pub fn origin_of(&self, key: &str) -> Origin {
        self.origin.at_line(self.item(key).map_or(0, |item| item.line))
    }

    /// The line and one of its keys, for messages.
    pub(crate) fn title(&self, key: &str) -> String {
        format!("{}={} {key}", self.name, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{self, DefaultValue, Scope};
    use super::super::tests::{world, world_of};
    use super::super::value::Kind;
    use super::super::AppConfig;
    use super::*;
    use scr_test_kit::TestEnv;
    use std::path::Path;

    const SYSTEM: &str = "/opt/scr/etc/scr.conf";
    const USER: &str = "/pfs/run1/.scrconf";

    fn resolved(world: &TestEnv, app: &[&str]) -> (Params, Vec<Problem>) {
        let mut config = AppConfig::default();
        for text in app {
            config.apply(text).unwrap();
        }
        Params::resolve(&Settings::load(&world.env(), &config), &world.env())
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
                Kind::Path | Kind::AbsolutePath | Kind::Paths => "/somewhere/else",
                Kind::Bytes { .. } => "8192",
                Kind::Bool if info.default == DefaultValue::Text("1") => "0",
                Kind::Bool => "1",
                Kind::Name { .. } => "ACME",
                _ => "7",
            };
            let line = format!("{}={text}\n", info.name);
            let value_of = |world: TestEnv| {
                let (params, _) = resolved(&world, &[]);
                let effective = params.named(info.name).unwrap();
                (effective.text.clone(), effective.origin.clone())
            };
            let environment = value_of(world().with_variable(info.name, text));
            assert_eq!(environment, (Some(text.to_string()), Origin::Environment), "{}", info.name);
            for file in [USER, SYSTEM] {
                let (value, origin) = value_of(world_of(&[(file, &line)]));
                let allowed = info.scope != Scope::OutsideFiles;
                assert_eq!(value.as_deref() == Some(text), allowed, "{} in {file}", info.name);
                assert_eq!(origin.place().is_some(), allowed, "{} in {file}", info.name);
            }
        }
    }

    #[test]
    fn a_malformed_value_is_reported_and_the_next_source_applies() {
        let files = [(USER, "\nSCR_CACHE_SIZE=ten\n"), (SYSTEM, "SCR_CACHE_SIZE=3\n")];
        let (params, problems) = resolved(&world_of(&files), &[]);
        assert_eq!(params.get(&table::CACHE_SIZE), 3);
        let expected =
            format!("{USER}:2: SCR_CACHE_SIZE holds `ten', which is not a whole number; it is ignored");
        assert_eq!(texts(&problems), [expected]);
    }

    /// The first value was forgotten, and the default counted.
    #[test]
    fn a_value_that_cannot_be_used_takes_the_place_of_none_in_the_same_file() {
        for second in ["-1", "ten", "99999999999999999999999"] {
            let text = format!("SCR_FLUSH=20\nSCR_FLUSH={second}\n");
            let (params, problems) = resolved(&world_of(&[(USER, &text)]), &[]);
            assert_eq!(params.get(&table::FLUSH), 20, "{second}");
            assert!(
                matches!(&texts(&problems)[..], [one] if one.starts_with(&format!("{USER}:2: SCR_FLUSH")))
            );
        }
    }

    #[test]
    fn a_site_can_lock_a_parameter_and_says_so() {
        let files =
            [(SYSTEM, "SCR_LOCKED=SCR_CACHE_BASE,SCR_FLUSH\nSCR_CACHE_BASE=/ssd\n"), (USER, "SCR_FLUSH=1\n")];
        let (params, problems) = resolved(&world_of(&files).with_variable("SCR_CACHE_BASE", "/home/me"), &[]);
        assert_eq!(params.get(&table::CACHE_BASE), Path::new("/ssd"));
        assert_eq!(params.get(&table::FLUSH), 10);
        let locked =
            |problem: &Problem| problem.to_string().contains("is set by the site and cannot be changed");
        assert_eq!(problems.iter().filter(|problem| locked(problem)).count(), 2);
        assert!(problems.iter().all(locked), "{problems:?}");
    }

    #[test]
    fn only_the_system_file_can_lock_and_only_the_environment_names_the_user_file() {
        let files = [(USER, "SCR_LOCKED=SCR_FLUSH\nSCR_CONF_FILE=/x\n")];
        let (params, problems) = resolved(&world_of(&files).with_variable("SCR_FLUSH", "1"), &[]);
        assert_eq!(params.get(&table::FLUSH), 1);
        assert_eq!(problems.len(), 2);
        assert!(problems.iter().all(|problem| problem.to_string().contains("cannot be set here, only")));
    }

    #[test]
    fn variables_are_expanded_on_each_rank() {
        let zero = world_of(&[(SYSTEM, "SCR_CACHE_BASE=/tmp/$SCR_NODE_NAME\n")])
            .with_variable("SCR_NODE_NAME", "n0");
        let raw = Settings::load(&zero.env(), &AppConfig::default());
        let raw: Settings = serde_json::from_str(&serde_json::to_string(&raw).unwrap()).unwrap();
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
        let raw = Settings::load(&zero.env(), &AppConfig::default());
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
    fn a_parameter_that_is_not_utf8_is_reported_by_name_and_ignored() {
        for name in ["SCR_PREFIX", "SCR_CACHE_BASE", "SCR_NODE_NAME", "SCR_JOB_NAME", "SCR_LOG_DB_PASS"] {
            for value in ["/tmp/a\nb", "/tmp/caf\u{fffd}"] {
                let (params, problems) = resolved(&world().with_variable(name, value), &[]);
                let is_replaced = ["SCR_JOB_NAME", "SCR_LOG_DB_PASS"].contains(&name);
                let so = if is_replaced { "it is ignored" } else { "no other value may take its place" };
                let what = "is not UTF-8 text, or holds control characters";
                assert_eq!(texts(&problems), [format!("environment: {name} {what}; {so}")]);
                assert_eq!(problems[0].stops(), !is_replaced);
                assert!(!params.named(name).unwrap().is_set(), "{name}");
            }
        }
    }

    #[test]
    fn an_unset_variable_is_reported_by_name_and_place() {
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
        assert!(
            problems[0].to_string().contains("SCR_COPY_TYPE=LOCAL is of a former version"),
            "{problems:?}"
        );
    }

    #[test]
    fn checkpoint_lines_come_from_one_source_and_stores_from_all() {
        let files = [
            (SYSTEM, "CKPT=0 TYPE=RS\nCKPT=1 INTERVAL=2\nSTORE=/ssd COUNT=3\nSTORE=/shm COUNT=1\n"),
            (USER, "CKPT=0 TYPE=XOR\nSTORE=/ssd/ COUNT=5\n"),
        ];
        let (params, _) = resolved(&world_of(&files), &[]);
        assert_eq!(params.lines("CKPT").count(), 1);
        let stores: Vec<_> =
            params.lines("STORE").map(|s| (s.value.as_str(), s.items[0].value.as_str())).collect();
        assert_eq!(stores, [("/ssd/", "5"), ("/shm", "1")]);
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
