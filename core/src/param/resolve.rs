//! The effective value of every parameter on one rank, and where it comes from.
//!
//! The first source that has a usable value counts: environment, user file, `SCR_Config`, system file, default. A
//! value that cannot be used is told and the next source counts.

use super::check::contradictions;
use super::expand::Variables;
use super::file::{is_text, Setting, CKPT, DESCRIPTORS};
use super::line::Pair;
use super::origin::Origin;
use super::params::{Item, Line, Params, Resolved};
use super::pick::{pick, undefined, Locks};
use super::problem::Problem;
use super::raw::RawSettings;
use super::table::{Info, Preset, Scope, TABLE};
use super::value::Datum;
use crate::env::Env;
use std::collections::BTreeMap;
use std::mem::discriminant;

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
        // What is no text was told where rank 0 read it.
        Scope::Node | Scope::Rank => env.variable(info.name).filter(|value| is_text(value)),
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
        let mut seen = BTreeMap::new();
        for setting in allowed {
            let source = discriminant(&setting.origin);
            let counts = match *name {
                CKPT => Some(source) == first,
                // `/ssd/` of one source is `/ssd` of another.
                _ => *seen.entry(setting.value.trim_end_matches('/')).or_insert(source) == source,
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
        let (expanded, missing) = Variables::of(env).expand_path(text);
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
    use super::super::problem::Cause;
    use super::super::testing::{world, world_of};
    use super::super::value::Kind;
    use super::super::{table, AppConfig};
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
    fn a_parameter_in_the_environment_that_is_no_text_is_told_by_name_and_passed_over() {
        for name in ["SCR_PREFIX", "SCR_CACHE_BASE", "SCR_NODE_NAME", "SCR_JOB_NAME", "SCR_LOG_DB_PASS"] {
            for value in ["/tmp/a\nb", "/tmp/caf\u{fffd}"] {
                let (params, problems) = resolved(&world().with_variable(name, value), &[]);
                let told = format!(
                    "environment: {name} is not UTF-8 text, or holds control characters; it is passed over"
                );
                assert_eq!(texts(&problems), [told]);
                assert!(!params.named(name).unwrap().is_set(), "{name}");
            }
        }
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
