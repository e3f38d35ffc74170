//! The settings that rank 0 reads for all ranks: its environment, the files and `SCR_Config`.
//!
//! Only rank 0 asks the file system; the others get the same settings from it. Values that all ranks share, such
//! as the prefix directory and most parameters, are expanded here with the variables of rank 0: ranks with different
//! numbers would not take the same steps. Values that may differ from node to node keep their variables.

use super::app::AppConfig;
use super::expand::expand_as;
use super::file::{is_text, load, unknown, Form, Setting, Source};
use super::origin::{as_os_str, FileLine, Origin};
use super::problem::{Cause, Problem};
use super::resolve::{expanded, Locks, Parameter, Resolver};
use super::safe::{counts, drop_untrusted, refused_variable};
use super::table::{self, find, DefaultValue, Scope, FOREIGN, TABLE};
use super::value::{normalise, FromValue, Value};
use scr_base::build::SYSTEM_FILE;
use scr_base::env::{Distrust, Env};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The user's file that a job finds in its prefix directory.
const USER_FILE: &str = ".scrconf";

/// The settings of a run, the same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    prefix: FoundPrefix,
    /// The first one of a name counts.
    settings: Vec<Setting>,
    /// They are not sent to other ranks.
    #[serde(skip)]
    problems: Vec<Problem>,
}

/// The one parameter that rank 0 resolves for all: the user file lies in this directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct FoundPrefix {
    /// It need not be UTF-8.
    #[serde(with = "as_os_str")]
    dir: PathBuf,
    text: Option<String>,
    origin: Origin,
}

impl Settings {
    /// Reads the environment and the files. For rank 0, and for commands.
    ///
    /// Never fails: [`problems`](Self::problems) has what is wrong, and the next source counts.
    pub fn load(env: &Env, app: &AppConfig) -> Self {
        let mut reader = Reader::new(env);
        let system = reader.system_settings();
        reader.read(app, None, system)
    }

    /// The settings of a job that starts here, with those that its application made in the last run. For commands.
    pub fn with_last_run(env: &Env) -> Self {
        let without = Self::load(env, &AppConfig::default());
        Self::load(env, &AppConfig::of_last_run(env, without.prefix()))
    }

    /// Whether a parameter of the environment counts where a file is checked: the name of the node, and the path of the plugins.
    pub fn is_checked_with(name: &str) -> bool {
        [table::NODE_NAME.info().name, table::PLUGIN_PATH.info().name].contains(&name)
    }

    /// The settings of one file in a job without any other, to check it before there is a job. From the environment, only
    /// variables that are not parameters count, and [some that are](Self::is_checked_with). A user's file is read with the
    /// system file, whose locks and descriptors apply to it, and a `.scrconf` as by a job in its folder.
    pub fn of_file(env: &Env, file: &Path, whose: FileOf) -> Self {
        let mut env = env.clone();
        env.variables.retain(|name, _| !name.starts_with("SCR_") || Self::is_checked_with(name));
        let folder = file.parent().filter(|_| whose == FileOf::User && file.ends_with(USER_FILE));
        if let Some(folder) = folder.filter(|_| env.files.status(file).is_ok()) {
            env.current_dir = normalise(&env.current_dir.join(folder));
            return Self::load(&env, &AppConfig::default());
        }
        let mut reader = Reader::new(&env);
        let origin: OriginOf = match whose {
            FileOf::User => Origin::UserFile,
            FileOf::Site => Origin::SystemFile,
        };
        let named = origin(FileLine { file: file.into(), line: 0 });
        let found = reader.load_existing(Form::Settings, file, origin, &named);
        let (user, system) = match whose {
            // The user cannot fix what is wrong there.
            FileOf::User => (found, Reader::new(&env).system_settings()),
            FileOf::Site => (Source::default(), found),
        };
        reader.read(&AppConfig::default(), Some(user), system)
    }

    /// The settings where nobody has set anything, for what works without a job.
    pub fn of_defaults(env: &Env) -> Self {
        let env = Env { variables: BTreeMap::new(), ..env.clone() };
        Reader::new(&env).read(&AppConfig::default(), Some(Source::default()), Source::default())
    }

    /// The problems of what was read.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The prefix directory: absolute, without `.` and `..`.
    pub fn prefix(&self) -> &Path {
        &self.prefix.dir
    }

    /// The same as a parameter.
    pub(super) fn prefix_parameter(&self) -> Parameter {
        let FoundPrefix { dir, text, origin } = self.prefix.clone();
        let (value, shared) = (Value::Path(dir), text.clone());
        Parameter { info: table::PREFIX.info(), value, text, origin, shared }
    }

    /// The prefix directory that a rank means: by its own variable, or else by the setting of all, as seen from its own folder.
    pub fn prefix_meant_in(&self, env: &Env) -> PathBuf {
        let info = table::PREFIX.info();
        let is_locked = Locks::of(self.iter(), &mut Vec::new()).by(info.name).is_some();
        let own = env.variable(info.name).filter(|value| !is_locked && is_text(value) && counts(info, env));
        let own = own.map(|value| expand_as(env, info.kind, value).0);
        let of_all = || self.prefix.text.clone().filter(|_| self.prefix.origin.is_set());
        normalise(&env.current_dir.join(own.or_else(of_all).unwrap_or_default()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
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

/// Makes the origin of a line of a file.
type OriginOf = fn(FileLine) -> Origin;

/// Reads the sources, and collects what is wrong with them.
struct Reader<'a> {
    env: &'a Env,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn new(env: &'a Env) -> Self {
        Self { env, problems: Vec::new() }
    }

    /// `user` is the user's file if it has been read; otherwise `SCR_CONF_FILE` names it, or it is in the prefix directory.
    fn read(mut self, app: &AppConfig, user: Option<Source>, system: Source) -> Settings {
        let environment = self.environment();
        let mut is_named = user.is_some();
        let mut sources = [environment, user.unwrap_or_default(), app.settings.clone(), system];
        sources.iter_mut().for_each(|source| self.expand_shared(source));
        is_named = is_named || self.take_named_file(&mut sources, 0);
        let safe = safe_prefixes(self.env, &sources, app.distrust.is_some());
        if let Some(distrust) = &app.distrust {
            // The directory in which a job without those settings would look for them.
            let others = [sources[0].clone(), sources[1].clone(), sources[3].clone()];
            let found_in = FoundPrefix::of(Reader::new(self.env).resolve(table::PREFIX.info(), &others));
            let problems = &mut self.problems;
            drop_untrusted(self.env, &safe, &mut sources[2], Some(distrust), &found_in.dir, problems);
        }
        is_named = is_named || self.take_named_file(&mut sources, 2);
        let prefix = FoundPrefix::of(self.resolve(table::PREFIX.info(), &sources));
        if !is_named {
            sources[1] = self.user_file_in(&prefix.dir, &safe);
        }
        sources.iter_mut().for_each(|source| self.drop_misplaced(source));
        let groups = self.groups(&sources);
        let mut settings: Vec<_> = sources.iter().flat_map(Source::iter).cloned().collect();
        settings.extend(groups.iter().cloned().chain(defaults(self.env)));
        Settings { prefix, settings, problems: self.problems }
    }

    fn report(&mut self, origin: &Origin, cause: impl Into<Cause>) {
        self.problems.push(Problem::new(origin, cause));
    }

    /// Reads a file; that it does not exist is a problem of the place that `names` it.
    fn load_existing(&mut self, form: Form, file: &Path, origin: OriginOf, names: &Origin) -> Source {
        if let Some(source) = self.load(form, file, origin) {
            return source;
        }
        let reason = "there is no such file".to_string();
        self.report(names, Cause::Unreadable { file: file.to_path_buf(), reason });
        Source::default()
    }

    /// Reads a file in which everything counts, whoever may write it.
    fn load(&mut self, form: Form, file: &Path, origin: OriginOf) -> Option<Source> {
        let (source, distrust) = load(form, self.env, file, origin, &mut self.problems)?;
        if let Some(why @ Distrust::Mode { .. }) = distrust {
            let whole = origin(FileLine { file: file.into(), line: 0 });
            self.report(&whole, format!("any user may change what this file sets: {why}"));
        }
        Some(source)
    }

    /// The settings of the site.
    fn system_settings(&mut self) -> Source {
        let file = system_file(self.env);
        file.and_then(|file| self.load(Form::Settings, &file, Origin::SystemFile)).unwrap_or_default()
    }

    /// Reads the user file that `SCR_CONF_FILE` names in source `from`, if it does. It must exist.
    fn take_named_file(&mut self, sources: &mut [Source; 4], from: usize) -> bool {
        let Some(setting) = sources[from].get(table::CONF_FILE.info().name, "") else { return false };
        let file = normalise(&self.env.current_dir.join(&setting.value));
        let mut user = self.load_existing(Form::Settings, &file, Origin::UserFile, &setting.origin);
        self.expand_shared(&mut user);
        sources[1] = user;
        true
    }

    /// What `SCR_GROUPS_FILE` says of the groups; a `GROUPS` line elsewhere counts before it.
    fn groups(&mut self, sources: &[Source; 4]) -> Source {
        let Parameter { value: Value::Path(file), origin: names, .. } =
            self.resolve(table::GROUPS_FILE.info(), sources)
        else {
            return Source::default();
        };
        let origin =
            if matches!(names, Origin::SystemFile(_)) { Origin::SystemFile } else { Origin::UserFile };
        self.load_existing(Form::Groups, &file, origin, &names)
    }

    /// The parameters among the variables. Reports variables that look like a parameter and are not.
    fn environment(&mut self) -> Source {
        let (env, mut settings) = (self.env, Source::default());
        let is_meant =
            |name: &&String| name.starts_with("SCR_") || find(&name.to_ascii_uppercase()).is_some();
        for name in env.variables.keys().filter(is_meant) {
            let Some(value) = env.variable(name) else { continue };
            let cause = match find(name) {
                // Each rank has its own, and reports it.
                Some(info) if info.scope == Scope::Rank || !info.scope.is_shared() && !is_text(value) => None,
                Some(_) if !is_text(value) => Some(Cause::ValueNotText { name: name.clone() }),
                Some(info) if !counts(info, env) => Some(refused_variable(info)),
                Some(_) => {
                    settings.add(Setting::new(name, value, Origin::Environment));
                    None
                }
                None if FOREIGN.split(' ').any(|foreign| name.starts_with(foreign)) => None,
                None => unknown(name),
            };
            cause.into_iter().for_each(|cause| self.report(&Origin::Environment, cause));
        }
        settings
    }

    /// Replaces the variables in values that all ranks share.
    fn expand_shared(&mut self, source: &mut Source) {
        let mut lost = Vec::new();
        for setting in source.iter_mut() {
            let Some(info) = find(&setting.name).filter(|info| info.scope.is_shared()) else { continue };
            match expanded(info, setting, self.env, &mut self.problems) {
                Some(text) => setting.value = text,
                None => lost.push(info.name),
            }
        }
        source.retain(|setting| !lost.contains(&setting.name.as_str()));
    }

    /// A parameter that rank 0 needs while it still reads.
    fn resolve(&mut self, info: &'static table::Info, sources: &[Source]) -> Parameter {
        let settings: Vec<_> = sources.iter().filter_map(|source| source.get(info.name, "")).collect();
        // Problems of the locks are reported where all parameters are resolved.
        let locks = Locks::of(sources.iter().flat_map(Source::iter), &mut Vec::new());
        let mut resolver = Resolver { env: self.env, locks, problems: Vec::new() };
        let found = resolver.parameter(info, &settings);
        self.problems.append(&mut resolver.problems);
        found
    }

    /// The user file in the prefix directory.
    fn user_file_in(&mut self, prefix: &Path, safe: &[PathBuf]) -> Source {
        let file = prefix.join(USER_FILE);
        let loaded = load(Form::Settings, self.env, &file, Origin::UserFile, &mut self.problems);
        let (mut user, distrust) = loaded.unwrap_or_default();
        drop_untrusted(self.env, safe, &mut user, distrust.as_ref(), prefix, &mut self.problems);
        self.expand_shared(&mut user);
        self.check_prefix(&user, prefix);
        user
    }

    /// The file that was found in the prefix directory cannot name another one.
    fn check_prefix(&mut self, user: &Source, prefix: &Path) {
        let Some(setting) = user.get(table::PREFIX.info().name, "") else { return };
        let found = normalise(&self.env.current_dir.join(&setting.value));
        if found != prefix {
            let (found, prefix) = (found.display(), prefix.display());
            let cause = format!(
                "SCR_PREFIX cannot be changed to {found} by the file found in {prefix}; set it in the environment"
            );
            self.report(&setting.origin, cause);
        }
    }

    /// Removes settings that are not allowed in this source.
    fn drop_misplaced(&mut self, source: &mut Source) {
        source.retain(|setting| {
            let Some(info) = find(&setting.name) else { return true };
            let allowed = match info.scope {
                Scope::OutsideFiles => matches!(setting.origin, Origin::Environment | Origin::Application),
                Scope::SystemFile => matches!(setting.origin, Origin::SystemFile(_)),
                _ => true,
            };
            if !allowed {
                self.report(&setting.origin, info.wrong_place());
            }
            allowed
        });
    }
}

impl FoundPrefix {
    fn of(Parameter { value, text, origin, .. }: Parameter) -> Self {
        // The parameter has a default, and the table gives it this kind.
        let dir = if let Value::Path(dir) = value { dir } else { PathBuf::from("/") };
        Self { dir, text, origin }
    }
}

/// `etc/scr.conf` of the installation, or what the build says.
fn system_file(env: &Env) -> Option<PathBuf> {
    let of_installation = || Some(env.etc()?.join("scr.conf"));
    SYSTEM_FILE.map(PathBuf::from).or_else(of_installation)
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

/// The directories of `SCR_SAFE_PREFIX`. A file that is itself not trusted cannot name any.
fn safe_prefixes(env: &Env, sources: &[Source; 4], skip_app: bool) -> Vec<PathBuf> {
    let mut sources = sources.clone();
    if skip_app {
        sources[2] = Source::default();
    }
    // Its problems are reported with those of all parameters.
    let found = Reader::new(env).resolve(table::SAFE_PREFIX.info(), &sources);
    Vec::from_value(&found.value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{world, world_of, world_of_user};
    use super::super::Params;
    use super::*;
    use crate::descriptor::Descriptors;
    use scr_base::Rank;
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
    fn the_system_file_of_an_installation_in_usr_lies_in_etc() {
        for (tree, file) in [("/usr", "/etc/scr.conf"), ("/usr/local", "/usr/local/etc/scr.conf")] {
            let env = world_of(&[(file, "SCR_DEBUG=7\n")]).with_install_dir(tree).env();
            let settings = Settings::load(&env, &AppConfig::default());
            let (params, _) = Params::resolve(&settings, &env);
            assert_eq!(params.get(&table::DEBUG), 7, "{tree}");
        }
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

    #[test]
    fn a_file_of_groups_gives_lines_that_others_go_before() {
        let topology = "SwitchName=s1 \\\nNodes=n[1-2] LinkSpeed=9\nswitchname=s2 nodes=n3\nSwitchName=top Switches=s[1-2]\n\
                        BlockName=b1 Nodes=n7\nBlockSizes=3\nn[4-5] RACK=r1 # near\nGROUPS=n6 RACK=r2\nn8 RACK\n";
        let files = [
            ("/opt/scr/etc/scr.conf", "SCR_GROUPS_FILE=/etc/topology.conf\nGROUPS=n3 SWITCH=own\n"),
            ("/etc/topology.conf", topology),
        ];
        let env = world_of(&files).env();
        let settings = Settings::load(&env, &AppConfig::default());
        let (params, _) = Params::resolve(&settings, &env);
        let groups = Descriptors::build(&params, &mut Vec::new()).unwrap().groups;
        let value = |group, node| groups.value(group, node, Rank(0)).ok();
        let found = ["n1", "n2", "n3", "n4"].map(|node| value("SWITCH", node));
        assert_eq!(found, [Some("s1"), Some("s1"), Some("own"), None].map(|name| name.map(str::to_owned)));
        assert_eq!(["n5", "n6"].map(|node| value("RACK", node).unwrap()), ["r1", "r2"]);
        assert_eq!(value("BLOCK", "n7").as_deref(), Some("b1"));
        let problems: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        assert!(problems.len() == 1 && problems[0].starts_with("/etc/topology.conf:9: "), "{problems:?}");
        // It was as good as no file.
        let empty = world_of(&[("/empty", "# none\n\n")]).with_variable("SCR_GROUPS_FILE", "/empty").env();
        let problems = Settings::load(&empty, &AppConfig::default()).problems().to_vec();
        assert_eq!(problems[0].to_string(), "/empty: the file has no group of nodes; it is ignored");
        let missing = world().with_variable("SCR_GROUPS_FILE", "/nowhere").env();
        let problems = Settings::load(&missing, &AppConfig::default()).problems().to_vec();
        assert!(
            problems[0].to_string().contains("/nowhere cannot be read: there is no such file"),
            "{problems:?}"
        );
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
            .with_variable("SCR_LAUNCH_DIR", "/launch")
            .with_variable("SCRATCH", "/s")
            .with_variable("scr_flush", "1")
            .with_variable("scr_dir", "/mine")
            .env();
        let settings = Settings::load(&env, &AppConfig::default());
        let messages: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        let expected = [
            "environment: there is no parameter SCR_CACHE_SZIE, did you mean SCR_CACHE_SIZE?",
            "environment: there is no parameter scr_flush, did you mean SCR_FLUSH?",
        ];
        assert_eq!(messages, expected);
    }
}
