//! A TOML file that describes a machine: its numbers with their units, and errors that name the file, the line and the key.

use anyhow::{anyhow, bail, Context, Error, Result};
use scr_config::param::{nearest, Kind};
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// The text of a file, and its name for errors.
pub(super) struct Document<'a> {
    path: &'a Path,
    text: &'a str,
}

/// A table of a file.
pub(super) struct Section<'a> {
    document: &'a Document<'a>,
    table: &'a DeTable<'a>,
    /// Its name with the dots before a key, for errors.
    prefix: String,
    at: usize,
}

/// The allowed values of a number.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    pub(super) least: f64,
    pub(super) most: f64,
    /// In words.
    pub(super) what: &'static str,
}

/// Seconds: up to a hundred thousand years.
pub(super) const SECONDS: Allowed =
    Allowed { least: 0.0, most: 3.2e12, what: "seconds, or a time such as \"30m\" or \"5years\"" };
/// A time between two failures.
pub(super) const GAP: Allowed = Allowed { least: 1e-3, ..SECONDS };
/// Bytes.
pub(super) const BYTES: Allowed =
    Allowed { least: 1.0, most: 1e18, what: "bytes, or a size such as \"2GB\"" };
/// Failures per second.
pub(super) const RATE: Allowed = Allowed { least: 0.0, most: 1e3, what: "failures per second" };
/// A part of a whole.
pub(super) const SHARE: Allowed = Allowed { least: 0.0, most: 1.0, what: "a share" };

impl<'a> Document<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Self {
        Self { path, text }
    }

    /// The tables of the file.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, error.message())
        })
    }

    pub(super) fn root(&'a self, table: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        Section { document: self, table: table.get_ref(), prefix: String::new(), at: 0 }
    }

    fn error(&self, at: usize, text: impl std::fmt::Display) -> Error {
        let line = self.text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        anyhow!("{}:{line}: {text}", self.path.display())
    }

    /// The text at `span`, shortened.
    fn quoted(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        first.chars().filter(|letter| !letter.is_control()).take(60).collect()
    }
}

impl<'a> Section<'a> {
    /// Refuses keys that are not known, and names the nearest known one.
    pub(super) fn only(self, known: &[&str]) -> Result<Self> {
        let unknown = self.table.keys().find(|key| !known.contains(&key.get_ref().as_ref()));
        let Some(key) = unknown else { return Ok(self) };
        let name: &str = key.get_ref();
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}'?"),
            None => format!("known are {}", known.join(", ")),
        };
        let name: String = name.chars().filter(|letter| !letter.is_control()).take(60).collect();
        Err(self.document.error(key.span().start, format!("unknown key `{}{name}'; {hint}", self.prefix)))
    }

    /// An error of this table as a whole.
    pub(super) fn error(&self, text: impl std::fmt::Display) -> Error {
        self.document.error(self.at, text)
    }

    /// An error of one of its keys.
    pub(super) fn error_of(&self, key: &str, text: impl std::fmt::Display) -> Error {
        let at = self.table.get(key).map_or(self.at, |value| value.span().start);
        self.document.error(at, format!("`{}{key}' {text}", self.prefix))
    }

    /// The value of a key that may be missing.
    pub(super) fn optional<T>(
        &self,
        key: &str,
        read: impl Fn(&Self, &str) -> Result<T>,
    ) -> Result<Option<T>> {
        self.table.get(key).map(|_| read(self, key)).transpose()
    }

    fn value(&self, key: &str, what: &str) -> Result<&'a Spanned<DeValue<'a>>> {
        self.table
            .get(key)
            .ok_or_else(|| self.error(format!("the key `{}{key}' is missing: {what}", self.prefix)))
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, what: &str) -> Error {
        let found = self.document.quoted(value.span());
        self.document
            .error(value.span().start, format!("`{}{key}' is {found}; it must be {what}", self.prefix))
    }

    /// A number in its range; text is read as a time or as a size where the number is one.
    pub(super) fn number(&self, key: &str, allowed: Allowed) -> Result<f64> {
        let value = self.value(key, allowed.what)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => {
                i128::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
            }
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::String(text) if allowed.what == SECONDS.what => {
                crate::time::length(text).ok().map(|time| time.as_secs_f64())
            }
            DeValue::String(text) if allowed.what == BYTES.what => {
                Kind::Bytes { least: 0 }.value::<u64>(text).map(|bytes| bytes as f64)
            }
            _ => None,
        };
        let in_range =
            number.filter(|number| number.is_finite() && (allowed.least..=allowed.most).contains(number));
        in_range.ok_or_else(|| {
            let Allowed { least, most, what } = allowed;
            self.wrong(key, value, &format!("{what}, from {least} to {most}"))
        })
    }

    /// A whole number in its range.
    pub(super) fn whole(&self, key: &str, least: u64, most: u64) -> Result<u64> {
        let what = format!("a whole number from {least} to {most}");
        let value = self.value(key, &what)?;
        let DeValue::Integer(number) = value.get_ref() else { bail!(self.wrong(key, value, &what)) };
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| self.wrong(key, value, &what))
    }

    pub(super) fn text(&self, key: &str) -> Result<String> {
        let value = self.value(key, "a text")?;
        let text = value.get_ref().as_str().ok_or_else(|| self.wrong(key, value, "a text"))?;
        Ok(text.to_owned())
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        let value = self.value(key, "true or false")?;
        value.get_ref().as_bool().ok_or_else(|| self.wrong(key, value, "true or false"))
    }

    /// The table of a key, empty where it is missing.
    pub(super) fn section(&self, key: &str) -> Result<Option<Section<'a>>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let table = value.get_ref().as_table();
        let table =
            table.ok_or_else(|| self.wrong(key, value, &format!("a table [{}{key}]", self.prefix)))?;
        Ok(Some(self.below(key, table, value.span().start)))
    }

    /// The tables of a key, in their order.
    pub(super) fn sections(&self, key: &str) -> Result<Vec<Section<'a>>> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(key, value, &format!("tables [[{}{key}]]", self.prefix));
        let tables = value.get_ref().as_array().ok_or_else(wrong)?;
        let below = |value: &'a Spanned<DeValue<'a>>| {
            let table = value.get_ref().as_table().with_context(|| wrong().to_string())?;
            Ok(self.below(key, table, value.span().start))
        };
        tables.iter().map(below).collect()
    }

    fn below(&self, key: &str, table: &'a DeTable<'a>, at: usize) -> Section<'a> {
        Section { document: self.document, table, prefix: format!("{}{key}.", self.prefix), at }
    }
}
