//! The settings that rank 0 reads for all ranks: its environment, the files and `SCR_Config`.
//!
//! Only rank 0 asks the file system; the others get the same settings from it. Values that all ranks share, such
//! as the prefix directory and most parameters, are expanded here with the variables of rank 0: ranks with different
//! numbers would not take the same steps. Values that may differ from node to node keep their variables.

use super::app::AppConfig;
use super::expand::expand_as;
use super::file::{is_text, load, unknown, Setting, Source};
use super::origin::{FileLine, Origin};
use super::problem::{Cause, Problem};
use super::resolve::{nothing_left, resolve_one, undefined, Locks, Parameter};
use super::safe::{counts, refused_variable, SafePrefixes};
use super::table::{self, find, DefaultValue, Scope, FOREIGN, TABLE};
use super::value::{normalise, Value};
use scr_base::build::SYSTEM_FILE;
use scr_base::env::{Env, Trusted};
use scr_base::fs::Status;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The settings of a run, the same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Sent", from = "Sent")]
pub struct Settings {
    /// The one parameter that rank 0 resolves for all: the user file lies in this directory.
    pub(super) prefix: Parameter,
    /// The first one of a name counts.
    settings: Vec<Setting>,
    problems: Vec<Problem>,
}

impl Settings {
    /// Reads the environment and the files. For rank 0, and for commands.
    ///
    /// Never fails: [`problems`](Self::problems) has what is wrong, and the next source counts.
    pub fn load(env: &Env, app: &AppConfig) -> Self {
        let mut problems = Vec::new();
        let system = system_settings(env, &mut problems);
        Self::of_sources(env, app, None, system, problems)
    }

    /// The settings of a job that starts here, with those that its application made in the last run. For commands.
    pub fn with_last_run(env: &Env) -> Self {
        let without = Self::load(env, &AppConfig::default());
        Self::load(env, &AppConfig::of_last_run(env, without.prefix()))
    }

    /// The settings of one file in a job without any other, to check it before there is a job. From the environment, only
    /// variables that are not parameters count, the name of the node, and the path of the plugins. A user's file is read with the
    /// system file, whose locks and descriptors apply to it.
    pub fn of_file(env: &Env, file: &Path, whose: FileOf) -> Self {
        let mut env = env.clone();
        let counts = [table::NODE_NAME.info().name, table::PLUGIN_PATH.info().name];
        env.variables.retain(|name, _| !name.starts_with("SCR_") || counts.contains(&name.as_str()));
        let mut problems = Vec::new();
        let origin: fn(FileLine) -> Origin = match whose {
            FileOf::User => Origin::UserFile,
            FileOf::Site => Origin::SystemFile,
        };
        let whole = origin(FileLine { file: file.into(), line: 0 });
        let found = load_existing(&env, file, origin, &whole, &mut problems);
        let (user, system) = match whose {
            // The user cannot fix what is wrong there.
            FileOf::User => (found, system_settings(&env, &mut Vec::new())),
            FileOf::Site => (Source::default(), found),
        };
        Self::of_sources(&env, &AppConfig::default(), Some(user), system, problems)
    }

    /// The settings where nobody has set anything, for what works without a job.
    pub fn of_defaults(env: &Env) -> Self {
        let env = Env { variables: BTreeMap::new(), ..env.clone() };
        Self::of_sources(&env, &AppConfig::default(), Some(Source::default()), Source::default(), Vec::new())
    }

    /// `user` is the user's file if it has been read; otherwise `SCR_CONF_FILE` names it, or it is in the prefix directory.
    fn of_sources(
        env: &Env,
        app: &AppConfig,
        user: Option<Source>,
        system: Source,
        mut problems: Vec<Problem>,
    ) -> Self {
        let environment = environment(env, &mut problems);
        let mut is_named = user.is_some();
        let mut sources = [environment, user.unwrap_or_default(), app.source().clone(), system];
        sources.iter_mut().for_each(|source| expand_shared(source, env, &mut problems));
        is_named = is_named || take_named_file(&mut sources, 0, env, &mut problems);
        let safe = safe_prefixes(env, &sources, app.distrust().is_some());
        if let Some(distrust) = app.distrust() {
            // The directory in which a job without those settings would look for them.
            let others = [sources[0].clone(), sources[1].clone(), sources[3].clone()];
            let found_in = resolve_one_of(table::PREFIX.info(), env, &others, &mut Vec::new());
            safe.apply(&mut sources[2], Some(distrust), dir_of(&found_in), &mut problems);
        }
        is_named = is_named || take_named_file(&mut sources, 2, env, &mut problems);
        let prefix = resolve_one_of(table::PREFIX.info(), env, &sources, &mut problems);
        if !is_named {
            sources[1] = user_file_in(dir_of(&prefix), env, &safe, &mut problems);
        }
        for source in &mut sources {
            drop_misplaced(source, &mut problems);
        }
        let mut settings: Vec<_> = sources.iter().flat_map(Source::iter).cloned().collect();
        settings.extend(defaults(env));
        Self { prefix, settings, problems }
    }

    /// The problems of what was read. They are not sent to other ranks.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The prefix directory: absolute, without `.` and `..`.
    pub fn prefix(&self) -> &Path {
        dir_of(&self.prefix)
    }

    /// The prefix directory that a rank means: by its own variable, or else by the setting of all, as seen from its own folder.
    pub fn prefix_meant_in(&self, env: &Env) -> PathBuf {
        let info = table::PREFIX.info();
        let is_locked = Locks::of(self.iter(), &mut Vec::new()).by(info.name).is_some();
        let own = env.variable(info.name).filter(|value| !is_locked && is_text(value) && counts(info, env));
        let own = own.map(|value| expand_as(env, info.kind, value).0);
        let of_all = || self.prefix.text.clone().filter(|_| self.prefix.is_set());
        normalise(&env.current_dir.join(own.or_else(of_all).unwrap_or_default()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }
}

/// What the other ranks get.
#[derive(Serialize, Deserialize)]
struct Sent {
    /// It need not be UTF-8.
    prefix: OsString,
    text: Option<String>,
    origin: Origin,
    settings: Vec<Setting>,
}

impl From<Settings> for Sent {
    fn from(Settings { prefix, settings, .. }: Settings) -> Self {
        let dir = dir_of(&prefix).as_os_str().to_owned();
        Self { prefix: dir, text: prefix.text, origin: prefix.origin, settings }
    }
}

impl From<Sent> for Settings {
    fn from(Sent { prefix, text, origin, settings }: Sent) -> Self {
        let (value, shared) = (Value::Path(prefix.into()), text.clone());
        let prefix = Parameter { info: table::PREFIX.info(), value, text, origin, shared };
        Self { prefix, settings, problems: Vec::new() }
    }
}

fn dir_of(prefix: &Parameter) -> &Path {
    match &prefix.value {
        Value::Path(dir) => dir,
        // The parameter has a default, and the table gives it this kind.
        _ => Path::new("/"),
    }
}

/// The owner of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOf {
    /// A user's.
    User,
    /// The site's: the system file.
    Site,
}

/// Reads a file; that it does not exist is a problem of the place that `names` it.
fn load_existing(
    env: &Env,
    file: &Path,
    origin: fn(FileLine) -> Origin,
    names: &Origin,
    problems: &mut Vec<Problem>,
) -> Source {
    let loaded = load(&*env.files, file, origin, problems);
    loaded.map(|(source, _)| source).unwrap_or_else(|| {
        let reason = "there is no such file".to_string();
        problems.push(Problem::new(names, Cause::Unreadable { file: file.to_path_buf(), reason }));
        Source::default()
    })
}

/// The settings of the site.
fn system_settings(env: &Env, problems: &mut Vec<Problem>) -> Source {
    let loaded = system_file(env).and_then(|file| load(&*env.files, &file, Origin::SystemFile, problems));
    loaded.map(|(source, _)| source).unwrap_or_default()
}

/// `etc/scr.conf` of the installation, or what the build says.
fn system_file(env: &Env) -> Option<PathBuf> {
    match SYSTEM_FILE {
        Some(file) => Some(PathBuf::from(file)),
        None => Some(env.install_dir.as_ref()?.join("etc/scr.conf")),
    }
}

/// Reads the user file that `SCR_CONF_FILE` names in source `from`, if it does. It must exist.
fn take_named_file(sources: &mut [Source; 4], from: usize, env: &Env, problems: &mut Vec<Problem>) -> bool {
    let Some(setting) = sources[from].get(table::CONF_FILE.info().name, "") else { return false };
    let file = normalise(&env.current_dir.join(&setting.value));
    let mut user = load_existing(env, &file, Origin::UserFile, &setting.origin, problems);
    expand_shared(&mut user, env, problems);
    sources[1] = user;
    true
}

/// The parameters among the variables. Reports variables that look like a parameter and are not.
fn environment(env: &Env, problems: &mut Vec<Problem>) -> Source {
    let mut settings = Source::default();
    for name in env.variables.keys().filter(|name| name.starts_with("SCR_")) {
        let Some(value) = env.variable(name) else { continue };
        let cause = match find(name) {
            // Each rank has its own, and reports it.
            Some(info) if info.scope == Scope::Rank || !info.scope.is_shared() && !is_text(value) => continue,
            Some(_) if !is_text(value) => Some(Cause::ValueNotText { name: name.clone() }),
            Some(info) if !counts(info, env) => {
                problems.extend(refused_variable(info, env));
                continue;
            }
            Some(_) => {
                settings.add(Setting::new(name, value, Origin::Environment));
                continue;
            }
            None if FOREIGN.contains(&name.as_str()) || name.starts_with("SCR_TEST") => None,
            None => unknown(name),
        };
        problems.extend(cause.map(|cause| Problem::new(&Origin::Environment, cause)));
    }
    settings
}

/// Replaces the variables in values that all ranks share.
fn expand_shared(source: &mut Source, env: &Env, problems: &mut Vec<Problem>) {
    let mut lost = Vec::new();
    for setting in source.iter_mut() {
        let Some(info) = find(&setting.name).filter(|info| info.scope.is_shared()) else { continue };
        let (text, missing) = expand_as(env, info.kind, &setting.value);
        match nothing_left(info.name, &text, &missing, &setting.origin) {
            Some(problem) => {
                problems.push(problem);
                lost.push(info.name);
            }
            None => problems.extend(undefined(&setting.name, missing, &setting.origin)),
        }
        setting.value = text;
    }
    source.retain(|setting| !lost.contains(&setting.name.as_str()));
}

/// Defaults that rank 0 takes from its environment.
fn defaults(env: &Env) -> impl Iterator<Item = Setting> + '_ {
    let first = |names: &[&str]| names.iter().find_map(|name| env.variable(name));
    TABLE.iter().filter_map(move |info| {
        let value = match info.default {
            DefaultValue::Variables(names) | DefaultValue::VariablesOr(names, _) => first(names)?,
            DefaultValue::User => &env.user,
            DefaultValue::Unset
            | DefaultValue::Text(_)
            | DefaultValue::Built(_)
            | DefaultValue::CurrentDir
            | DefaultValue::Host => return None,
        };
        Some(Setting::new(info.name, value, Origin::Default))
    })
}

/// A parameter that rank 0 needs while it still reads.
fn resolve_one_of(
    info: &'static table::Info,
    env: &Env,
    sources: &[Source],
    problems: &mut Vec<Problem>,
) -> Parameter {
    let settings: Vec<_> = sources.iter().filter_map(|source| source.get(info.name, "")).collect();
    // Problems of the locks are reported where all parameters are resolved.
    let locks = Locks::of(sources.iter().flat_map(Source::iter), &mut Vec::new());
    resolve_one(info, &settings, &locks, env, problems)
}

/// The directories of `SCR_SAFE_PREFIX`. A file that is itself not trusted cannot name any.
fn safe_prefixes(env: &Env, sources: &[Source; 4], skip_app: bool) -> SafePrefixes {
    let [environment, user, app, system] = sources.clone();
    let app = if skip_app { Source::default() } else { app };
    // Its problems are reported with those of all parameters.
    let found =
        resolve_one_of(table::SAFE_PREFIX.info(), env, &[environment, user, app, system], &mut Vec::new());
    let dirs = if let Value::Paths(dirs) = found.value { dirs } else { Vec::new() };
    SafePrefixes { dirs, by_environment: !env.is_privileged }
}

/// The user file in the prefix directory.
fn user_file_in(prefix: &Path, env: &Env, safe: &SafePrefixes, problems: &mut Vec<Problem>) -> Source {
    let file = prefix.join(".scrconf");
    let loaded = load(&*env.files, &file, Origin::UserFile, problems);
    let Some((mut user, status)) = loaded else { return Source::default() };
    let check = |status: &Status| Trusted::by(env).check_in(prefix, &file, status, env).err();
    safe.apply(&mut user, status.as_ref().and_then(check).as_ref(), prefix, problems);
    expand_shared(&mut user, env, problems);
    check_prefix(env, &user, prefix, problems);
    user
}

/// The file that was found in the prefix directory cannot name another one.
fn check_prefix(env: &Env, user: &Source, prefix: &Path, problems: &mut Vec<Problem>) {
    let Some(setting) = user.get(table::PREFIX.info().name, "") else { return };
    let found = normalise(&env.current_dir.join(&setting.value));
    if found != prefix {
        let (found, prefix) = (found.display(), prefix.display());
        let cause = format!(
            "SCR_PREFIX cannot be changed to {found} by the file found in {prefix}; set it in the environment"
        );
        problems.push(Problem::new(&setting.origin, cause));
    }
}

/// Removes settings that are not allowed in this source.
fn drop_misplaced(source: &mut Source, problems: &mut Vec<Problem>) {
    source.retain(|setting| {
        let Some(info) = find(&setting.name) else { return true };
        let allowed = match info.scope {
            Scope::OutsideFiles => matches!(setting.origin, Origin::Environment | Origin::Application),
            Scope::SystemFile => matches!(setting.origin, Origin::SystemFile(_)),
            Scope::Anywhere | Scope::Node | Scope::Rank => true,
        };
        if !allowed {
            problems.push(Problem::new(&setting.origin, info.wrong_place()));
        }
        allowed
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::{world, world_of, world_of_user};
    use super::super::Params;
    use super::*;
    use scr_test_kit::TestEnv;

    #[test]
    fn settings_arrive_as_they_were_sent() {
        let files = [
            ("/opt/scr/etc/scr.conf", "STORE=/ssd GROUP=NODE COUNT=3\nSCR_DEBUG=1\n"),
            ("/pfs/run1/.scrconf", "CKPT=0 STORE=/tmp/$SCR_NODE_NAME\n"),
        ];
        let env = world_of(&files).with_variable("SCR_FLUSH", "2").with_variable("SLURM_JOB_ID", "77").env();
        let settings = Settings::load(&env, &AppConfig::default());
        assert_eq!(settings.problems(), []);
        let packed = serde_json::to_vec(&settings).unwrap();
        assert_eq!(serde_json::from_slice::<Settings>(&packed).unwrap(), settings);
    }

    #[test]
    fn something_else_is_refused() {
        assert!(serde_json::from_str::<Settings>("{}").is_err());
        let text = serde_json::to_string(&Settings::load(&world().env(), &AppConfig::default())).unwrap();
        assert!(serde_json::from_str::<Settings>(&text).is_ok());
        assert!(serde_json::from_str::<Settings>(&text.replace("\"Default\"", "\"Moon\"")).is_err());
    }

    #[test]
    fn the_prefix_is_absolute_and_plain() {
        let prefix = |value: &str| {
            let env = world().with_variable("SCR_PREFIX", value).with_variable("JOB", "x").env();
            Settings::load(&env, &AppConfig::default()).prefix().to_path_buf()
        };
        assert_eq!(prefix("/a/b/../c/./"), Path::new("/a/c"));
        assert_eq!(prefix("sub/../other"), Path::new("/pfs/run1/other"));
        assert_eq!(prefix("$JOB"), Path::new("/pfs/run1/x"));
        assert_eq!(prefix(""), Path::new("/pfs/run1"));
    }

    #[test]
    fn the_file_in_the_prefix_cannot_move_the_prefix() {
        let env = world_of(&[("/pfs/run1/.scrconf", "SCR_PREFIX=/elsewhere\n")]).env();
        let settings = Settings::load(&env, &AppConfig::default());
        assert_eq!(settings.prefix(), Path::new("/pfs/run1"));
        let [Problem { cause, .. }] = settings.problems() else { panic!("{:?}", settings.problems()) };
        assert!(cause.to_string().starts_with("SCR_PREFIX cannot be changed to /elsewhere by"), "{cause}");
    }

    #[test]
    fn a_named_user_file_replaces_the_one_in_the_prefix_and_may_set_the_prefix() {
        let files = [("/home/u/my.conf", "SCR_PREFIX=/pfs/run2"), ("/pfs/run2/.scrconf", "SCR_DEBUG=2")];
        let env = world_of(&files)
            .with_variable("HOME", "/home/u")
            .with_variable("SCR_CONF_FILE", "~/my.conf")
            .env();
        let settings = Settings::load(&env, &AppConfig::default());
        assert_eq!(settings.prefix(), Path::new("/pfs/run2"));
        assert!(settings.iter().all(|setting| setting.name != "SCR_DEBUG"));
    }

    #[test]
    fn the_application_may_name_the_user_file_and_the_environment_goes_before_it() {
        let files = [("/mine.conf", "SCR_FLUSH=3\nSCR_DEBUG=1\n"), ("/theirs.conf", "SCR_FLUSH=4\n")];
        let mut app = AppConfig::default();
        app.apply("SCR_CONF_FILE=/mine.conf").unwrap();
        app.apply("SCR_DEBUG=2").unwrap();
        let flush_and_debug = |world: TestEnv| {
            let env = world.env();
            let (params, problems) = Params::resolve(&Settings::load(&env, &app), &env);
            (params.get(&table::FLUSH), params.get(&table::DEBUG), problems.len())
        };
        assert_eq!(flush_and_debug(world_of(&files)), (3, 1, 0), "a user file goes before the application");
        assert_eq!(
            flush_and_debug(world_of(&files).with_variable("SCR_CONF_FILE", "/theirs.conf")),
            (4, 2, 0)
        );
        assert_eq!(flush_and_debug(world_of(&[])), (10, 2, 1), "a file that is not there is reported");
    }

    /// The names that `SCR_Config` gave in the last run are kept in the prefix directory, where anybody may have put them.
    #[test]
    fn the_application_of_another_user_names_no_file() {
        let files = [("/pfs/run1/.scr/app.conf", "SCR_CONF_FILE=/x.conf\n"), ("/x.conf", "SCR_FLUSH=3\n")];
        let flush = |world: TestEnv| {
            let env = world.env();
            Params::resolve(&Settings::with_last_run(&env), &env).0.get(&table::FLUSH)
        };
        assert_eq!(flush(world_of_user(0, 0, &files)), 3);
        assert_eq!(flush(world_of_user(4711, 0, &files)), 10);
    }

    #[test]
    fn a_user_file_that_is_missing_or_no_file_is_reported() {
        for (files, reason) in
            [(&[][..], "no such file"), (&[("/x.conf", "(folder)")][..], "not a regular file")]
        {
            let env = world_of(files).with_variable("SCR_CONF_FILE", "/x.conf").env();
            let settings = Settings::load(&env, &AppConfig::default());
            assert_eq!(settings.problems().len(), 1);
            let text = settings.problems()[0].to_string();
            assert!(text.contains("/x.conf") && text.contains(reason), "{text}");
        }
    }

    /// It was searched for in a folder named `~`.
    #[test]
    fn a_user_file_in_an_unknown_home_is_reported() {
        let env = world_of(&[]).with_variable("SCR_CONF_FILE", "~/my.conf").env();
        let settings = Settings::load(&env, &AppConfig::default());
        let messages: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        let expected = [
            "environment: SCR_CONF_FILE uses $HOME, which is not set and counts as empty; set it or write \\$ for a plain $",
            "environment: the file /my.conf cannot be read: there is no such file; its settings do not count",
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn unknown_variables_are_reported_and_those_of_others_are_not() {
        let env = world()
            .with_variable("SCR_CACHE_SZIE", "2")
            .with_variable("SCR_INSTALL_DIR", "/opt/scr")
            .with_variable("SCRATCH", "/s")
            .env();
        let settings = Settings::load(&env, &AppConfig::default());
        assert_eq!(settings.problems().len(), 1);
        let expected = "environment: there is no parameter SCR_CACHE_SZIE, did you mean SCR_CACHE_SIZE?";
        assert_eq!(settings.problems()[0].to_string(), expected);
    }
}
