//! The effective parameters of one rank, to be asked: values with their origins, and descriptor lines.

use super::origin::{Origin, Place};
use super::pick::Locks;
use super::table::{Info, Param, TABLE};
use super::value::{Datum, Kind, Value};
use std::fmt;
use std::path::PathBuf;

/// The effective parameters of one rank.
#[derive(Debug, Clone)]
pub struct Params {
    /// One per row of the table.
    pub(super) values: Vec<Resolved>,
    pub(super) lines: Vec<Line>,
    pub(super) locks: Locks,
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

/// What a parameter has come to.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) datum: Datum,
    pub(super) text: Option<String>,
    /// Before variables were replaced, and without this rank's own environment.
    pub(super) shared: Option<String>,
    pub(super) origin: Origin,
}

impl Params {
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
        self.locks.by(name)
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
