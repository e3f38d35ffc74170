//! TOML files that people write: errors name the file, the line and the key, and say what may stand there.

use crate::param::nearest;
use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// The text of a file, and its name for errors.
pub struct Document<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

/// A table of a file.
pub struct Section<'a> {
    document: &'a Document<'a>,
    table: &'a DeTable<'a>,
    /// Its name with the dots before a key, for errors.
    prefix: String,
    at: usize,
}

/// What may stand at a key.
pub struct Form<'f, T> {
    /// In words.
    what: Cow<'f, str>,
    read: Reads<'f, T>,
}

/// `None` for what may not stand there.
type Reads<'f, T> = Box<dyn Fn(&DeValue<'_>) -> Option<T> + 'f>;

/// Why a file is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {text}", path.display())]
pub struct DocumentError {
    path: PathBuf,
    /// From 1.
    line: usize,
    text: String,
}

impl<'a> Document<'a> {
    /// The tables of the file.
    ///
    /// # Errors
    /// It is not TOML.
    pub fn parse(&self) -> Result<Spanned<DeTable<'a>>, DocumentError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, error.message().lines().collect::<Vec<_>>().join(", "))
        })
    }

    /// The table that holds all others.
    pub fn root(&'a self, table: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        Section { document: self, table: table.get_ref(), prefix: String::new(), at: 0 }
    }

    fn error(&self, at: usize, text: impl Display) -> DocumentError {
        let line = self.text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        DocumentError { path: self.path.to_owned(), line, text: text.to_string() }
    }
}

impl<'a> Section<'a> {
    /// A line for each key that is not known, to be told and ignored.
    pub fn ignored(&self, known: &[&str]) -> Vec<String> {
        self.unknown(known, " is ignored").iter().map(ToString::to_string).collect()
    }

    /// Refuses keys that are not known.
    ///
    /// # Errors
    /// There is one.
    pub fn only(self, known: &[&str]) -> Result<Self, DocumentError> {
        self.unknown(known, "").into_iter().next().map_or(Ok(self), Err)
    }

    /// The keys that are not known, with the nearest known ones.
    fn unknown(&self, known: &[&str], so: &str) -> Vec<DocumentError> {
        let unknown = self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        let errors = unknown.map(|key| {
            let hint = match nearest(key.get_ref(), known.iter().copied()) {
                Some(near) => format!("did you mean `{near}'?"),
                None => format!("known are {}", known.join(", ")),
            };
            let text = format!("unknown key `{}{}'{so}; {hint}", self.prefix, short(key.get_ref()));
            self.document.error(key.span().start, text)
        });
        errors.collect()
    }

    /// An error of this table as a whole.
    pub fn error(&self, text: impl Display) -> DocumentError {
        self.document.error(self.at, text)
    }

    /// An error of one of its keys.
    pub fn error_of(&self, key: &str, text: impl Display) -> DocumentError {
        let at = self.table.get(key).map_or(self.at, |value| value.span().start);
        self.document.error(at, format!("`{}{key}' {text}", self.prefix))
    }

    /// Something else has to stand at a key.
    pub fn wrong(&self, key: &str, what: &str) -> DocumentError {
        let found = self.table.get(key).and_then(|value| self.document.text.get(value.span()));
        self.error_of(key, format!("is {}; it must be {what}", short(found.unwrap_or_default())))
    }

    /// Whether there is such a key.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The value of a key that may be missing.
    ///
    /// # Errors
    /// It is of another form.
    pub fn optional<T>(&self, key: &str, form: &Form<'_, T>) -> Result<Option<T>, DocumentError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        (form.read)(value.get_ref()).map(Some).ok_or_else(|| self.wrong(key, &form.what))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// It is missing, or of another form.
    pub fn required<T>(&self, key: &str, form: &Form<'_, T>) -> Result<T, DocumentError> {
        let missing = || self.error(format_args!("the key `{}{key}' is missing: {}", self.prefix, form.what));
        self.optional(key, form)?.ok_or_else(missing)
    }

    /// The table of a key, where there is one.
    ///
    /// # Errors
    /// It is no table.
    pub fn section(&self, key: &str) -> Result<Option<Self>, DocumentError> {
        let wrong = || self.wrong(key, &format!("a table [{}{key}]", self.prefix));
        self.table.get(key).map(|value| self.below(key, value).ok_or_else(wrong)).transpose()
    }

    /// The tables of a key, in their order.
    ///
    /// # Errors
    /// It holds something else.
    pub fn sections(&self, key: &str) -> Result<Vec<Self>, DocumentError> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let tables =
            value.get_ref().as_array().and_then(|all| all.iter().map(|one| self.below(key, one)).collect());
        tables.ok_or_else(|| self.wrong(key, &format!("tables [[{}{key}]]", self.prefix)))
    }

    fn below(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Option<Self> {
        let table = value.get_ref().as_table()?;
        let prefix = format!("{}{key}.", self.prefix);
        Some(Self { document: self.document, table, prefix, at: value.span().start })
    }
}

impl<'f, T> Form<'f, T> {
    /// What `read` takes, and how messages call that.
    pub fn new(what: impl Into<Cow<'f, str>>, read: impl Fn(&DeValue<'_>) -> Option<T> + 'f) -> Self {
        Self { what: what.into(), read: Box::new(read) }
    }

    /// The same under another name.
    #[must_use]
    pub fn called(self, what: &'f str) -> Self {
        Self { what: what.into(), ..self }
    }
}

/// A text that `read` takes.
pub fn text<'f, T>(what: &'f str, read: impl Fn(&str) -> Option<T> + 'f) -> Form<'f, T> {
    Form::new(what, move |value| read(value.as_str()?))
}

/// One of these words.
pub fn one_of<T: Copy>(words: &'static [(&'static str, T)]) -> Form<'static, T> {
    let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let find = move |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    Form::new(format!("one of {}", known.join(", ")), move |value| find(value.as_str()?))
}

/// True or false.
pub fn flag() -> Form<'static, bool> {
    Form::new("true or false", |value| match value {
        DeValue::Boolean(is_true) => Some(*is_true),
        _ => None,
    })
}

/// A whole number in its range.
pub fn whole<T: TryFrom<i128> + PartialOrd + Display + 'static>(least: T, most: T) -> Form<'static, T> {
    let what = format!("a whole number from {least} to {most}");
    Form::new(what, move |value| {
        T::try_from(integer(value)?).ok().filter(|number| (&least..=&most).contains(&number))
    })
}

/// A single value, as a user would write it in a configuration line.
pub fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Boolean(value) => Some(u8::from(*value).to_string()),
        value => Some(i64::try_from(integer(value)?).ok()?.to_string()),
    }
}

/// A whole number.
pub fn integer(value: &DeValue<'_>) -> Option<i128> {
    let number = value.as_integer()?;
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Text of the file on one short line.
fn short(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    first.chars().filter(|letter| !letter.is_control()).take(60).collect()
}
