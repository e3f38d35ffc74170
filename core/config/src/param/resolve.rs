//! One parameter on one rank: of all settings of it, the first that is allowed and usable counts.
//!
//! Problems of the other settings are reported as well.

use super::expand::expand_as;
use super::file::{is_text, unknown, Setting};
use super::origin::{FileLine, Origin};
use super::problem::{Cause, Problem};
use super::quote::of_value;
use super::safe::counts;
use super::table::{self, DefaultValue, Info};
use super::value::{normalise, Kind, Value};
use scr_base::env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A parameter with its value on this rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its row in the table.
    pub info: &'static Info,
    /// Its value.
    pub value: Value,
    /// Its value as it was set, with variables replaced; `None` where it has none.
    pub text: Option<String>,
    /// The place where it was set.
    pub origin: Origin,
    /// Its text on all ranks: variables are not replaced, and this rank's own environment does not count.
    pub(super) shared: Option<String>,
}

impl Parameter {
    /// Whether somebody has set it.
    pub fn is_set(&self) -> bool {
        self.origin.is_set()
    }

    fn by_default(info: &'static Info, env: &Env) -> Self {
        let text = match info.default {
            DefaultValue::Text(text) | DefaultValue::Built(text) | DefaultValue::VariablesOr(_, text) => {
                Some(text.to_string())
            }
            DefaultValue::Host => Some(env.host.clone()),
            DefaultValue::User => Some(env.user.clone()),
            DefaultValue::CurrentDir => Some(normalise(&env.current_dir).display().to_string()),
            DefaultValue::Unset | DefaultValue::Variables(_) => None,
        };
        let value = match (info.default, &text) {
            // The path need not be UTF-8.
            (DefaultValue::CurrentDir, _) => Some(Value::Path(normalise(&env.current_dir))),
            (_, text) => text.as_ref().and_then(|text| info.kind.read(text, &env.current_dir).ok()),
        };
        let origin = match info.default {
            DefaultValue::Built(_) => Origin::Build,
            _ => Origin::Default,
        };
        Self { info, value: value.unwrap_or(Value::Unset), shared: text.clone(), text, origin }
    }
}

/// The value for people: a switch as 0 or 1, a size in bytes, a secret as stars.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Unset => f.write_str("(unset)"),
            _ if self.info.kind == Kind::Secret => f.write_str("***"),
            Value::Bool(value) => u8::from(*value).fmt(f),
            Value::Count(value) => value.fmt(f),
            Value::Whole(value) => value.fmt(f),
            Value::Seconds(value) => value.as_secs().fmt(f),
            Value::Number(value) => write!(f, "{value:.6}"),
            Value::Text(value) => f.write_str(value),
            Value::Path(value) => value.display().fmt(f),
            Value::Ports(first, last) => write!(f, "{first}-{last}"),
            Value::Paths(values) => {
                let values: Vec<_> = values.iter().map(|value| value.display().to_string()).collect();
                f.write_str(&values.join(":"))
            }
        }
    }
}

/// The parameters that the site does not let users set.
#[derive(Debug, Clone, Default)]
pub(super) struct Locks(BTreeMap<String, FileLine>);

impl Locks {
    /// From the lines `SCR_LOCKED=...` of the system file.
    pub(super) fn of<'a>(settings: impl Iterator<Item = &'a Setting>, problems: &mut Vec<Problem>) -> Self {
        let mut locks = BTreeMap::new();
        for setting in settings.filter(|setting| setting.name == table::LOCKED.info().name) {
            let Origin::SystemFile(place) = &setting.origin else { continue };
            let names = setting.value.split(|c: char| c == ',' || c.is_whitespace());
            for name in names.filter(|name| !name.is_empty()) {
                problems.extend(unknown(name).map(|cause| Problem::new(&setting.origin, cause)));
                locks.insert(name.to_string(), place.clone());
            }
        }
        Self(locks)
    }

    /// The line that keeps users from setting this parameter.
    pub(super) fn by(&self, name: &str) -> Option<&FileLine> {
        self.0.get(name)
    }
}

/// Makes values of settings, with the variables of this rank.
pub(super) struct Resolver<'a> {
    pub(super) env: &'a Env,
    pub(super) locks: Locks,
    pub(super) problems: Vec<Problem>,
}

impl Resolver<'_> {
    fn report(&mut self, origin: &Origin, cause: impl Into<Cause>) {
        self.problems.push(Problem::new(origin, cause));
    }

    /// A parameter on this rank. `settings` are those of it, the first one that is usable counts.
    pub(super) fn parameter(&mut self, info: &'static Info, settings: &[&Setting]) -> Parameter {
        let own = self.env.variable(info.name).filter(|_| !info.scope.is_shared() && counts(info, self.env));
        let own = own.filter(|value| {
            if !is_text(value) {
                self.report(&Origin::Environment, Cause::ValueNotText { name: info.name.to_string() });
            }
            is_text(value)
        });
        let own = own.map(|value| Setting::new(info.name, value, Origin::Environment));
        let (mut found, mut shared) = (None, None);
        for setting in own.iter().chain(settings.iter().copied()) {
            let is_own = own.as_ref().is_some_and(|own| std::ptr::eq(own, setting));
            // The variable of rank 0, where this rank has its own; rank 0 reports what is wrong with it.
            let is_replaced = own.is_some() && !is_own && setting.origin == Origin::Environment;
            let before = self.problems.len();
            let usable = self.usable(info, setting);
            if is_replaced {
                self.problems.truncate(before);
            }
            let Some((value, text)) = usable else { continue };
            if !is_own && shared.is_none() {
                shared = Some(setting.value.clone());
            }
            if !is_replaced && found.is_none() {
                found = Some((value, text, setting.origin.clone()));
            }
        }
        let mut parameter = Parameter::by_default(info, self.env);
        parameter.shared = shared.or(parameter.shared);
        if let Some((value, text, origin)) = found {
            parameter = Parameter { value, text: Some(text), origin, ..parameter };
        }
        parameter
    }

    /// The value and the text of a setting, where it is allowed and its value can be used.
    fn usable(&mut self, info: &Info, setting: &Setting) -> Option<(Value, String)> {
        if !self.allows(setting) {
            return None;
        }
        // Rank 0 has expanded what is the same on all ranks.
        let text = match setting.origin {
            _ if info.scope.is_shared() => setting.value.clone(),
            Origin::Default => setting.value.clone(),
            _ => expanded(info, setting, self.env, &mut self.problems)?,
        };
        let name = info.name;
        let (value, cause) = match info.kind.read(&text, &self.env.current_dir) {
            Ok(_) if text.is_empty() => (None, Some(Cause::Empty { name: name.to_string() })),
            Ok(Value::Text(scheme)) if name == table::COPY_TYPE.info().name => {
                let (scheme, renamed) = scheme_name(name, scheme);
                (Some(Value::Text(scheme)), renamed)
            }
            Ok(value) => (Some(value), None),
            Err(rejected) => (None, Some(Cause::rejected(rejected, name, &text))),
        };
        cause.into_iter().for_each(|cause| self.report(&setting.origin, cause));
        Some((value?, text))
    }

    /// Whether a setting counts; reports one that does not.
    pub(super) fn allows(&mut self, setting: &Setting) -> bool {
        let Some(by) = self.locks.by(&setting.name) else { return true };
        if matches!(setting.origin, Origin::SystemFile(_) | Origin::Build | Origin::Default) {
            return true;
        }
        let name = &setting.name;
        let cause =
            format!("{name} is set by the site and cannot be changed (locked by {by}); it is ignored");
        self.report(&setting.origin, cause);
        false
    }
}

/// The value of a setting with its variables replaced. Reports those that are not set; `None` where nothing is left of it.
pub(super) fn expanded(
    info: &Info,
    setting: &Setting,
    env: &Env,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let (text, missing) = expand_as(env, info.kind, &setting.value);
    if let Some(variable) = missing.first().filter(|_| text.is_empty()).cloned() {
        let cause = Cause::NothingLeft { name: info.name.to_string(), variable };
        problems.push(Problem::new(&setting.origin, cause));
        return None;
    }
    problems.extend(undefined(info.name, missing, &setting.origin));
    Some(text)
}

/// The variables that a value names and that are not set, as problems.
pub(super) fn undefined<'a>(
    name: &'a str,
    missing: Vec<String>,
    origin: &'a Origin,
) -> impl Iterator<Item = Problem> + 'a {
    let missing: BTreeSet<_> = missing.into_iter().collect();
    missing.into_iter().map(move |variable| {
        let cause = format!(
            "{name} uses {}, which is not set and counts as empty; set it or write \\$ for a plain $",
            of_value(name, &variable)
        );
        Problem::new(origin, cause)
    })
}

/// The name of a scheme. The name LOCAL of version 1 is replaced by SINGLE and reported.
pub(crate) fn scheme_name(name: &str, text: String) -> (String, Option<Cause>) {
    if !text.eq_ignore_ascii_case("LOCAL") {
        return (text, None);
    }
    let cause = format!("{name}={text} is of a former version and means SINGLE today; write {name}=SINGLE");
    ("SINGLE".to_string(), Some(cause.into()))
}
