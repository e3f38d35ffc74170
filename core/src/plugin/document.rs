//! A TOML file, read key by key, so that every complaint has its line and a key that nobody asked for is noticed.

use crate::param::nearest;
use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no text of a sensible size.
    #[error("{} is no manifest: {reason}", path.display())]
    NotText {
        /// Which.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// It is not TOML.
    #[error("{}:{line}: {text}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What the parser expected.
        text: String,
    },
    /// A key is missing.
    #[error("{}:{line}: the key `{key}' is missing; it is {expected}", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
        /// Line where the table begins, from 1.
        line: usize,
        /// The key.
        key: String,
        /// What should be there.
        expected: &'static str,
    },
    /// A key holds something of another type.
    #[error("{}:{line}: `{key}' should be {expected}, and it is {found}", path.display())]
    WrongType {
        /// Which.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A key holds a value that is not allowed.
    #[error("{}:{line}: `{key}' is `{found}', and should be {allowed}", path.display())]
    NotAllowed {
        /// Which.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// What is there.
        found: String,
        /// What may be there.
        allowed: String,
    },
}

/// A TOML file and where it came from.
pub(super) struct Document<'a> {
    path: &'a Path,
    text: &'a str,
    table: DeTable<'a>,
}

/// One table of a document. It remembers which keys it was asked for.
pub(super) struct Section<'a> {
    document: &'a Document<'a>,
    table: &'a DeTable<'a>,
    begin: usize,
    asked: RefCell<Vec<&'static str>>,
}

/// A value with its place.
pub(super) struct Value<'a> {
    section: &'a Section<'a>,
    key: &'static str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Document<'a> {
    pub(super) fn parse(path: &'a Path, text: &'a str) -> Result<Self, ManifestError> {
        let table = DeTable::parse(text).map_err(|error| ManifestError::Syntax {
            path: path.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            text: error.message().lines().collect::<Vec<_>>().join(", "),
        })?;
        Ok(Self { path, text, table: table.into_inner() })
    }

    /// The table that the whole file is.
    pub(super) fn root(&'a self) -> Section<'a> {
        self.section(&self.table, 0)
    }

    fn section(&'a self, table: &'a DeTable<'a>, begin: usize) -> Section<'a> {
        Section { document: self, table, begin, asked: RefCell::default() }
    }

    fn line_of(&self, offset: usize) -> usize {
        line_of(self.text, offset)
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

impl<'a> Section<'a> {
    /// The value of a key, if it is there.
    pub(super) fn get(&'a self, key: &'static str) -> Option<Value<'a>> {
        self.asked.borrow_mut().push(key);
        let value = self.table.get(key)?;
        Some(Value { section: self, key, value })
    }

    /// The value of a key that must be there; `expected` says what it is for.
    pub(super) fn require(
        &'a self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<Value<'a>, ManifestError> {
        self.get(key).ok_or_else(|| ManifestError::Missing {
            path: self.document.path.to_owned(),
            line: self.document.line_of(self.begin),
            key: key.to_owned(),
            expected,
        })
    }

    /// A line for every key that nobody asked for.
    pub(super) fn unknown_keys(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let unknown = self.table.keys().filter(|key| !asked.contains(&key.get_ref().as_ref()));
        unknown
            .map(|key| {
                let name = key.get_ref();
                let hint = nearest(name, asked.iter().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}'?"));
                let line = self.document.line_of(key.span().start);
                format!("{}:{line}: the unknown key `{name}' is ignored{hint}", self.document.path.display())
            })
            .collect()
    }
}

impl<'a> Value<'a> {
    pub(super) fn text(&self) -> Result<&'a str, ManifestError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong_type("a text in quotes")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, ManifestError> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.wrong_type("true or false")),
        }
    }

    pub(super) fn integer(&self) -> Result<i64, ManifestError> {
        let DeValue::Integer(value) = self.value.get_ref() else {
            return Err(self.wrong_type("a whole number"));
        };
        i64::from_str_radix(value.as_str(), value.radix())
            .map_err(|_| self.not_allowed("a whole number below 2^63".to_owned()))
    }

    /// Whatever single value it is, as a user would write it in a configuration line.
    pub(super) fn plain(&self) -> Result<String, ManifestError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(_) => Ok(self.integer()?.to_string()),
            DeValue::Boolean(value) => Ok(u8::from(*value).to_string()),
            _ => Err(self.wrong_type("a text, a whole number or true or false")),
        }
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(_))
    }

    pub(super) fn is_integer(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Integer(_))
    }

    pub(super) fn table(&self) -> Result<Section<'a>, ManifestError> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(self.section_of(table, &self.value.span())),
            _ => Err(self.wrong_type("a table")),
        }
    }

    pub(super) fn tables(&self) -> Result<Vec<Section<'a>>, ManifestError> {
        let DeValue::Array(values) = self.value.get_ref() else {
            return Err(self.wrong_type("a list of tables, each beginning with its name in [[ ]]"));
        };
        let table = |value: &'a Spanned<DeValue<'a>>| match value.get_ref() {
            DeValue::Table(table) => Ok(self.section_of(table, &value.span())),
            _ => Err(self.wrong_type("a list of nothing but tables")),
        };
        values.iter().map(table).collect()
    }

    pub(super) fn texts(&self) -> Result<Vec<String>, ManifestError> {
        let DeValue::Array(values) = self.value.get_ref() else {
            return Err(self.wrong_type("a list of texts"));
        };
        let text = |value: &Spanned<DeValue<'a>>| match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.wrong_type("a list of nothing but texts")),
        };
        values.iter().map(text).collect()
    }

    fn section_of(&self, table: &'a DeTable<'a>, place: &Range<usize>) -> Section<'a> {
        self.section.document.section(table, place.start)
    }

    fn line(&self) -> usize {
        self.section.document.line_of(self.value.span().start)
    }

    fn wrong_type(&self, expected: &'static str) -> ManifestError {
        ManifestError::WrongType {
            path: self.section.document.path.to_owned(),
            line: self.line(),
            key: self.key.to_owned(),
            expected,
            found: type_name(self.value.get_ref()),
        }
    }

    pub(super) fn not_allowed(&self, allowed: String) -> ManifestError {
        let whole = self.section.document.text.get(self.value.span()).unwrap_or("");
        ManifestError::NotAllowed {
            path: self.section.document.path.to_owned(),
            line: self.line(),
            key: self.key.to_owned(),
            found: shown(whole.trim_matches(['"', '\''])),
            allowed,
        }
    }
}

/// A value on one line, and not the whole of it where it is long.
fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.lines().next().unwrap_or("");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or("")),
        None if line.len() < text.len() => format!("{line}..."),
        None => line.to_owned(),
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a decimal point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
