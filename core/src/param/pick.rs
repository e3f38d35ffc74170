//! Which of the settings of a parameter counts: the first that is allowed and has a usable value. What is wrong with the others
//! is told all the same.

use super::expand::Variables;
use super::file::Setting;
use super::origin::{Origin, Place};
use super::problem::{Cause, Problem};
use super::table::{self, Info};
use super::value::Datum;
use crate::env::Env;
use std::collections::{BTreeMap, BTreeSet};

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

    /// The line that keeps users from setting this parameter.
    pub(super) fn by(&self, name: &str) -> Option<&Place> {
        self.0.get(name)
    }

    /// Whether a setting counts; one that does not is told.
    pub(super) fn allow(&self, setting: &Setting, problems: &mut Vec<Problem>) -> bool {
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
            // What is the same for all was expanded where it was read.
            _ if info.scope.is_shared() => (setting.value.clone(), Vec::new()),
            Origin::Default => (setting.value.clone(), Vec::new()),
            _ => Variables::of(env).expand_as(info.kind, &setting.value),
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

/// The variables that a value names and that are not set, as problems.
pub(super) fn undefined<'a>(
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
