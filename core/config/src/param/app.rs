//! `SCR_Config`: parameters that the application sets, unsets and queries. See docs/user/c-api.md.
//!
//! A string is one request: `SCR_FLUSH=10` sets, `SCR_FLUSH=` unsets, `SCR_FLUSH` asks; `CKPT=0 TYPE=XOR` sets,
//! `CKPT=0 TYPE` asks. The settings are kept as text lines in the prefix directory, so that the commands see them.

use super::file::{
    check_keys, is_text, limited, load, parse, readable, unknown, Form, Setting, Source, DESCRIPTORS,
};
use super::line::{quoted, words, Pair, Words};
use super::origin::Origin;
use super::problem::{Cause, ConfigError, Problem};
use super::table::{find, Scope};
use super::value::Kind;
use scr_base::ensure;
use scr_base::env::{Distrust, Env};
use std::fmt::Write as _;
use std::path::Path;

/// The file with the settings of the application, below the prefix directory.
pub const APP_CONF: &str = ".scr/app.conf";

/// The settings of the application so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppConfig {
    pub(super) settings: Source,
    /// Why the file is not trusted that they were read from.
    pub(super) distrust: Option<Distrust>,
}

/// The request in a string given to `SCR_Config`.
#[derive(Debug, Clone, PartialEq)]
pub struct Request(pub(super) Action);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Keys with an empty value are unset.
    Set(Setting),
    /// A parameter, or all descriptor lines of a kind.
    Unset(String),
    Query(Query),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Query {
    pub(super) name: String,
    /// Which descriptor line, and which of its keys.
    pub(super) item: Option<(String, String)>,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// The text is no request, or names something that cannot be set this way.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let action = limited(text.as_bytes()).and_then(|()| action(text)).map_err(refused)?;
        match &action {
            Action::Set(setting) => check(setting).map_err(refused)?,
            Action::Unset(name) | Action::Query(Query { name, .. }) => {
                unknown(name).map_or(Ok(()), Err).map_err(refused)?;
            }
        }
        Ok(Self(action))
    }

    /// Whether it asks and changes nothing.
    pub fn is_query(&self) -> bool {
        matches!(self.0, Action::Query(_))
    }
}

impl AppConfig {
    /// Sets or unsets a parameter, which gives `None`; or gives what the application itself has set. Needs no
    /// session. The last setting of a parameter counts.
    ///
    /// # Errors
    /// As for [`Request::parse`]; nothing is changed then.
    pub fn apply(&mut self, text: &str) -> Result<Option<String>, ConfigError> {
        match Request::parse(text)?.0 {
            Action::Set(setting) => self.set(&setting),
            Action::Unset(name) => self.settings.retain(|setting| setting.name != name),
            Action::Query(query) => return Ok(self.own(&query)),
        }
        Ok(None)
    }

    /// As lines of a file, see [`APP_CONF`]. Without secrets: every user who may read the prefix directory may read the file.
    pub fn to_text(&self) -> String {
        let is_secret = |name: &str| find(name).is_some_and(|info| info.kind == Kind::Secret);
        let mut text = String::new();
        for setting in self.settings.iter().filter(|setting| !is_secret(&setting.name)) {
            let _ = write!(text, "{}={}", setting.name, quoted(&setting.value));
            for item in &setting.items {
                let _ = write!(text, " {}={}", item.key, quoted(&item.value));
            }
            text.push('\n');
        }
        text
    }

    /// From the lines of a file, and what is wrong with them.
    pub fn from_text(bytes: &[u8], path: &Path) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let settings = parse(bytes, path, |_| Origin::Application, &mut problems);
        (Self { settings, distrust: None }, problems)
    }

    /// The settings of the application in the last run in this prefix directory. Empty if the file cannot be read.
    pub(super) fn of_last_run(env: &Env, prefix: &Path) -> Self {
        let path = prefix.join(APP_CONF);
        let loaded = load(Form::Settings, env, &path, |_| Origin::Application, &mut Vec::new());
        let (settings, distrust) = loaded.unwrap_or_default();
        Self { settings, distrust }
    }

    fn set(&mut self, setting: &Setting) {
        let is_unset = |pair: &Pair| pair.value.is_empty();
        let mut kept = setting.clone();
        kept.items.retain(|pair| !is_unset(pair));
        let only_unsets = !setting.items.is_empty() && kept.items.is_empty();
        if !only_unsets {
            self.settings.add(kept);
        }
        if let Some(own) = self.settings.get_mut(&setting.name, &setting.value) {
            own.items.retain(|own| !setting.items.iter().any(|pair| is_unset(pair) && pair.key == own.key));
        }
    }

    pub(super) fn own(&self, query: &Query) -> Option<String> {
        match &query.item {
            Some((id, key)) => {
                let setting = self.settings.get(&query.name, id)?;
                setting.items.iter().find(|pair| pair.key == *key).map(|pair| pair.value.clone())
            }
            None => join(self.settings.iter().filter(|s| s.name == query.name).map(|s| s.value.as_str())),
        }
    }
}

/// The values in order, separated by blanks; `None` where there is none.
pub(super) fn join<'a>(values: impl Iterator<Item = &'a str>) -> Option<String> {
    let values: Vec<_> = values.collect();
    (!values.is_empty()).then(|| values.join(" "))
}

pub(super) fn refused(cause: impl Into<Cause>) -> ConfigError {
    Problem::new(&Origin::Application, cause).into()
}

fn action(text: &str) -> Result<Action, Cause> {
    ensure(is_text(text), || Cause::NotText)?;
    let end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
    let (name, tail) = text.split_at(end);
    if name.is_empty() {
        return Err(if text.is_empty() { Cause::NoEquals { text: String::new() } } else { Cause::NoKey });
    }
    if tail.trim().is_empty() {
        return Ok(Action::Query(Query { name: name.to_string(), item: None }));
    }
    if DESCRIPTORS.contains(&name) {
        return descriptor(words(text)?);
    }
    let Some(value) = tail.trim_start().strip_prefix('=') else {
        return Err(Cause::NoEquals { text: text.to_string() });
    };
    let value = simple_value(name, value.trim())?;
    if value.is_empty() {
        return Ok(Action::Unset(name.to_string()));
    }
    Ok(Action::Set(Setting::new(name, &value, Origin::Application)))
}

/// All that follows the `=`: a path that an application puts there may hold blanks without quotes around it.
fn simple_value(name: &str, text: &str) -> Result<String, Cause> {
    let Ok(Words { pairs, rest }) = words(&format!("{name}={text}")) else {
        // A quote somewhere inside is a letter like any other.
        if let Some(quote) = text.chars().next().filter(|c| "\"'".contains(*c)) {
            return Err(Cause::Unterminated { quote, name: name.to_string() });
        }
        return Ok(text.to_string());
    };
    if let Some(other) = pairs.iter().skip(1).find(|pair| unknown(&pair.key).is_none()) {
        let rest = format!("{}={}", other.key, other.value);
        return Err(Cause::AfterValue { name: name.to_string(), rest });
    }
    match (pairs.into_iter().as_slice(), rest) {
        ([only], None) => Ok(only.value.clone()),
        _ => Ok(text.to_string()),
    }
}

fn descriptor(words: Words) -> Result<Action, Cause> {
    let mut pairs = words.pairs.into_iter();
    let Some(first) = pairs.next() else {
        return Err(Cause::NoEquals { text: words.rest.unwrap_or_default() });
    };
    let mut setting = Setting::new(&first.key, &first.value, Origin::Application);
    setting.items = pairs.collect();
    check_keys(&setting)?;
    match words.rest {
        Some(key) if setting.items.is_empty() && !key.contains(char::is_whitespace) => {
            Ok(Action::Query(Query { name: first.key, item: Some((first.value, key)) }))
        }
        Some(text) => Err(Cause::NoEquals { text }),
        None if setting.value.is_empty() && setting.items.is_empty() => Ok(Action::Unset(first.key)),
        None if setting.value.is_empty() => Err(Cause::Empty { name: first.key }),
        None => Ok(Action::Set(setting)),
    }
}

/// Whether a setting can be made this way, and makes sense as far as can be seen before variables are replaced.
fn check(setting: &Setting) -> Result<(), Cause> {
    unknown(&setting.name).map_or(Ok(()), Err)?;
    let is_name = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if let Some(pair) = setting.items.iter().find(|pair| !is_name(&pair.key)) {
        return Err(Cause::malformed(&setting.name, &pair.key, "a name of letters, digits and _"));
    }
    let Some(info) = find(&setting.name) else { return Ok(()) };
    ensure(info.scope != Scope::SystemFile, || info.wrong_place())?;
    readable(setting)
}

#[cfg(test)]
mod tests {
    use super::super::params::Params;
    use super::super::settings::Settings;
    use super::super::tests::world_of;
    use super::*;
    use proptest::prelude::*;

    fn applied(texts: &[&str]) -> AppConfig {
        let mut config = AppConfig::default();
        for text in texts {
            assert_eq!(config.apply(text), Ok(None), "{text}");
        }
        config
    }

    fn own(config: &AppConfig, text: &str) -> Option<String> {
        config.clone().apply(text).unwrap()
    }

    fn error(text: &str) -> String {
        AppConfig::default().apply(text).unwrap_err().to_string()
    }

    #[test]
    fn the_guides_examples_are_understood() {
        let config =
            applied(&["SCR_FLUSH=10", "SCR_PREFIX=\"/my/dir/with/=/sign\"", "CKPT=0 TYPE=XOR SET_SIZE=16"]);
        assert_eq!(own(&config, "SCR_FLUSH").as_deref(), Some("10"));
        assert_eq!(own(&config, "SCR_PREFIX").as_deref(), Some("/my/dir/with/=/sign"));
        assert_eq!(own(&config, "CKPT=0 TYPE").as_deref(), Some("XOR"));
        assert_eq!(own(&config, "CKPT=0 SET_SIZE").as_deref(), Some("16"));
        assert_eq!(own(&config, "CKPT=1 TYPE"), None);
        assert_eq!(own(&config, "CKPT").as_deref(), Some("0"));
    }

    #[test]
    fn the_last_setting_counts_and_an_empty_value_unsets() {
        let mut config = applied(&["SCR_FLUSH=10", "SCR_FLUSH=20"]);
        assert_eq!(own(&config, "SCR_FLUSH").as_deref(), Some("20"));
        config.apply("SCR_FLUSH=").unwrap();
        assert_eq!(own(&config, "SCR_FLUSH"), None);
        assert_eq!(config, AppConfig::default());
    }

    #[test]
    fn a_key_of_a_descriptor_is_changed_and_unset_alone() {
        let mut config = applied(&["CKPT=0 TYPE=XOR SET_SIZE=16", "CKPT=0 SET_SIZE=4", "CKPT=1 TYPE=RS"]);
        assert_eq!(own(&config, "CKPT=0 SET_SIZE").as_deref(), Some("4"));
        config.apply("CKPT=0 TYPE=").unwrap();
        assert_eq!(own(&config, "CKPT=0 TYPE"), None);
        assert_eq!(own(&config, "CKPT=0 SET_SIZE").as_deref(), Some("4"));
        config.apply("CKPT=2 TYPE=").unwrap();
        assert_eq!(own(&config, "CKPT").as_deref(), Some("0 1"));
        config.apply("CKPT=").unwrap();
        assert_eq!(own(&config, "CKPT"), None);
    }

    #[test]
    fn a_path_with_blanks_needs_no_quotes() {
        let config = applied(&["SCR_PREFIX=/my dir/with = and it's blanks ", "SCR_CURRENT = ckpt 5"]);
        assert_eq!(own(&config, "SCR_PREFIX").as_deref(), Some("/my dir/with = and it's blanks"));
        assert_eq!(own(&config, "SCR_CURRENT").as_deref(), Some("ckpt 5"));
    }

    #[test]
    fn mistakes_are_refused_with_a_reason_and_change_nothing() {
        let cases = [
            ("SCR_FLSUH=1", "did you mean SCR_FLUSH?"),
            ("SCR_FLSUH", "did you mean SCR_FLUSH?"),
            ("SCR_FLUSH=ten", "not a whole number"),
            ("SCR_FLUSH=-1", "not 0 or more"),
            ("SCR_FLUSH=1 SCR_DEBUG=1", "SCR_DEBUG=1"),
            ("SCR_FLUSH 1", "has no `='"),
            ("SCR_LOCKED=SCR_FLUSH", "only in the system configuration file"),
            ("SCR_PREFIX=\"/open", "opened and not closed"),
            ("=1", "has no name"),
            ("", "has no `='"),
            ("CKPT=0 TYPE SET_SIZE", "has no `='"),
            ("CKPT= TYPE=XOR", "no value"),
            ("CKPT=0 A\"B=1", "not a name"),
            ("SCR_HOP_DISTANCE=1", "former version"),
            ("SCR_CURRENT=a\nb", "control characters"),
        ];
        for (text, reason) in cases {
            let error = error(text);
            assert!(error.starts_with("SCR_Config: ") && error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_query_gives_what_counts_with_and_without_a_session() {
        let files = [("/opt/scr/etc/scr.conf", "SCR_FLUSH=7\nCKPT=0 STORE=/tmp/$USER\n")];
        let env = world_of(&files).with_variable("SCR_DEBUG", "2").env();
        let config = applied(&["SCR_FLUSH=9", "SCR_DEBUG=1"]);
        let (params, _) = Params::resolve(&Settings::load(&env, &config), &env);
        for params in [None, Some(&params)] {
            let query = |text| config.query(params, &env, text).unwrap();
            assert_eq!(query("SCR_FLUSH").as_deref(), Some("9"));
            assert_eq!(query("SCR_DEBUG").as_deref(), Some("2"));
            assert_eq!(query("CKPT=0 STORE").as_deref(), Some("/tmp/user1"));
            assert_eq!(query("SCR_CACHE_SIZE"), None, "nobody has set it");
            assert!(config.query(params, &env, "SCR_FLUSH=1").is_err());
        }
        // As with C SCR: which of them would it be?
        let ask = |config: &AppConfig| config.query(None, &env, "CKPT").map_err(|error| error.to_string());
        assert_eq!(ask(&config), Ok(Some("0".to_owned())));
        let error = ask(&applied(&["CKPT=1 TYPE=XOR", "CKPT=0 TYPE=RS"])).unwrap_err();
        assert!(error.contains("several CKPT lines") && error.contains("`CKPT="), "{error}");
        assert_eq!(ask(&applied(&[])), Ok(Some("0".to_owned())), "of the file");
    }

    #[test]
    fn a_variable_without_a_value_is_an_empty_value_and_no_setting_is_none() {
        let env = world_of(&[]).env();
        let config = applied(&["SCR_CURRENT=$UNSET", "CKPT=0 NOTE=$UNSET", "SCR_FLUSH=9"]);
        let (params, _) = Params::resolve(&Settings::load(&env, &config), &env);
        for params in [None, Some(&params)] {
            let query = |text| config.query(params, &env, text).unwrap();
            assert_eq!(query("SCR_CURRENT").as_deref(), Some(""));
            assert_eq!(query("CKPT=0 NOTE").as_deref(), Some(""));
            assert_eq!((query("SCR_JOB_NAME"), query("SCR_FLUSH").as_deref()), (None, Some("9")));
        }
    }

    #[test]
    fn settings_are_kept_as_lines_and_read_back() {
        let config = applied(&[
            "SCR_FLUSH=9",
            "SCR_PREFIX=/a dir/#1",
            "SCR_CURRENT=it's \"5\"",
            "CKPT=0 TYPE=XOR STORE='/my store'",
        ]);
        let expected =
            "SCR_FLUSH=9\nSCR_PREFIX=\"/a dir/#1\"\nSCR_CURRENT='it'\"'\"'s \"5\"'\nCKPT=0 TYPE=XOR STORE=\"/my store\"\n";
        assert_eq!(config.to_text(), expected);
        assert_eq!(AppConfig::from_text(expected.as_bytes(), Path::new(APP_CONF)), (config, vec![]));
    }

    #[test]
    fn a_password_counts_and_is_not_kept_in_the_prefix_directory() {
        let config = applied(&["SCR_LOG_DB_PASS=hunter2", "SCR_LOG_DB_USER=scr"]);
        assert_eq!(config.to_text(), "SCR_LOG_DB_USER=scr\n");
        let env = world_of(&[]).env();
        let (params, _) = Params::resolve(&Settings::load(&env, &config), &env);
        assert_eq!(params.get(&crate::param::LOG_DB_PASS).as_deref(), Some("hunter2"));
    }

    #[test]
    fn requests_are_distinguished() {
        assert!(Request::parse("SCR_FLUSH").unwrap().is_query());
        assert!(Request::parse("CKPT=0 TYPE").unwrap().is_query());
        assert!(!Request::parse("SCR_FLUSH=").unwrap().is_query());
        assert!(!Request::parse("CKPT=0").unwrap().is_query());
    }

    proptest! {
        #[test]
        fn any_text_is_answered_or_refused_and_what_is_kept_reads_back(
            text in prop_oneof![".{0,80}", "SCR_CURRENT=.{0,40}", "CKPT=0 .{0,40}", "STORE=[ -~]{0,60}"]
        ) {
            let mut config = AppConfig::default();
            if config.apply(&text).is_ok() {
                let (read, problems) = AppConfig::from_text(config.to_text().as_bytes(), Path::new(APP_CONF));
                prop_assert_eq!(problems, vec![]);
                prop_assert_eq!(read, config);
            }
        }
    }
}
