//! Faults of settings, with their place and the cure.
//!
//! A [`Problem`] is reported and the run continues with the next source or the default. The same thing as a
//! [`ConfigError`] stops the run.

use super::origin::Origin;
use super::quote::{of_value, quote, range};
use super::table::{find, Info};
use super::value::Rejected;
use scr_base::ensure;
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// Something wrong with a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The place where the setting was made.
    pub origin: Origin,
    /// The fault.
    pub cause: Cause,
}

/// Puts problems into the order in which people look for them: first those of no file, then file by file and line by line.
pub fn sort(problems: &mut [Problem]) {
    problems.sort_by(|one, other| one.origin.place().cmp(&other.origin.place()));
}

/// The fault of a configuration with which the run cannot continue.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{}", list(.0))]
pub struct ConfigError(Vec<Problem>);

impl ConfigError {
    /// The faults with their places; at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }

    /// The fault without its place.
    pub fn causes(&self) -> String {
        self.0.iter().map(|problem| problem.cause.to_string()).collect::<Vec<_>>().join("; ")
    }

    /// The value, unless there are problems.
    pub fn unless<T>(problems: Vec<Problem>, value: T) -> Result<T, Self> {
        ensure(problems.is_empty(), || Self(problems)).map(|()| value)
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

/// The kind of a problem. The texts end with the consequence, or with a remedy.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Cause {
    /// The value cannot be used.
    #[error("{name} holds {}; it is ignored", in_words(why, found))]
    Rejected { name: String, found: String, why: Rejected },
    /// There is a name but no value.
    #[error("{} has no value and counts as not set; remove the line or give a value", quote(name))]
    Empty { name: String },
    /// The value is nothing but variables that are not set.
    #[error("{name} holds nothing but {}, which is not set; it is ignored", of_value(name, variable))]
    NothingLeft { name: String, variable: String },
    /// A line, or what is left of it, has no `=`.
    #[error("`{}' has no `=', write KEY=value; it is ignored", quote(text))]
    NoEquals { text: String },
    /// Something follows the value.
    #[error(
        "`{}' after the value of {}: the whole line is ignored; put a value with blanks in quotes, and each parameter on a \
         line of its own",
        quote(rest),
        quote(name)
    )]
    AfterValue { name: String, rest: String },
    /// A quote is not closed.
    #[error("a {quote} is opened and not closed; the line is ignored")]
    Unterminated { quote: char, name: String },
    /// A line starts with `=`.
    #[error("a value has no name before its `='; the line is ignored")]
    NoKey,
    /// A line is not UTF-8, or holds control characters.
    #[error("the setting is not UTF-8 text, or holds control characters; it is ignored")]
    NotText,
    /// The value of a parameter is not UTF-8, or holds control characters.
    #[error("{name} is not UTF-8 text, or holds control characters; it is ignored")]
    ValueNotText { name: String },
    /// A file cannot be read.
    #[error("the file {} cannot be read: {reason}; its settings do not count", file.display())]
    Unreadable { file: PathBuf, reason: String },
    /// A fault of which only the message is of use.
    #[error("{0}")]
    Other(String),
}

impl From<String> for Cause {
    fn from(message: String) -> Self {
        Self::Other(message)
    }
}

impl Cause {
    /// The parameter or key whose value is ignored.
    pub fn ignored(&self) -> Option<&str> {
        match self {
            Cause::Rejected { name, .. }
            | Cause::ValueNotText { name }
            | Cause::AfterValue { name, .. }
            | Cause::Unterminated { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The text `found` was rejected as the value of the parameter or key `name`.
    pub(crate) fn rejected(why: Rejected, name: &str, found: &str) -> Self {
        Self::Rejected { name: name.to_owned(), found: found.to_owned(), why }
    }

    /// The same of a text that cannot be parsed as what is `expected`.
    pub(crate) fn malformed(name: &str, found: &str, expected: &str) -> Self {
        Self::rejected(Rejected::Malformed(expected.to_owned()), name, found)
    }
}

/// The value that was found, and what it is not.
fn in_words(why: &Rejected, found: &str) -> String {
    match why {
        Rejected::Malformed(expected) => format!("`{}', which is not {expected}", quote(found)),
        Rejected::OutOfRange { least, most } => {
            format!("{}, which is not {}", quote(found), range(found, least, most))
        }
    }
}

impl Problem {
    pub fn new(origin: &Origin, cause: impl Into<Cause>) -> Self {
        Self { origin: origin.clone(), cause: cause.into() }
    }

    /// Whether no run may start with it: neither the next source nor the default can take the place of what is ignored, or it is
    /// unknown what that is.
    pub fn stops(&self) -> bool {
        let is_irreplaceable = |name| find(name).is_some_and(Info::is_irreplaceable);
        match &self.cause {
            Cause::Unreadable { .. } => true,
            // An application may pass on a variable that is not always set, except for a place.
            Cause::NothingLeft { name, .. } => {
                is_irreplaceable(name) && find(name).is_some_and(|info| info.kind.is_path())
            }
            cause => cause.ignored().is_some_and(is_irreplaceable),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.to_string();
        match cause.strip_suffix("; it is ignored").filter(|_| self.stops()) {
            Some(what) => write!(f, "{}: {what}; no other value may take its place", self.origin),
            None => write!(f, "{}: {cause}", self.origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::origin::FileLine;
    use super::*;

    #[test]
    fn a_secret_is_hidden_wherever_it_occurs() {
        let text = |text: &str| Cause::NoEquals { text: text.into() }.to_string();
        for line in ["SCR_LOG_DB_PASS hunter2", "scr_log_db_pass: hunter2", "export SCR_LOG_DB_PAS=hunter2"] {
            assert!(!text(line).contains("hunter2"), "{}", text(line));
        }
        assert_eq!(text("SCR_LOG_DB_PASS"), "`SCR_LOG_DB_PASS' has no `=', write KEY=value; it is ignored");
        assert_eq!(
            text("SCR_LOG_DB_USER me"),
            "`SCR_LOG_DB_USER me' has no `=', write KEY=value; it is ignored"
        );
        let rest = "SCR_FLUSH=1 SCR_LOG_DB_PASS=hunter2".into();
        let after = Cause::AfterValue { name: "SCR_DEBUG".into(), rest }.to_string();
        assert!(after.starts_with("`SCR_FLUSH=1 SCR_LOG_DB_PASS ...' after"), "{after}");
        let undefined = of_value("SCR_LOG_DB_PASS", "hunter2");
        assert_eq!(undefined, "a variable");
    }

    #[test]
    fn a_problem_says_where_what_and_what_now() {
        let place = FileLine { file: std::path::Path::new("/p/.scrconf").into(), line: 7 };
        let cause = crate::param::unknown("SCR_FLSH").unwrap();
        let problem = Problem::new(&Origin::UserFile(place), cause);
        assert_eq!(
            problem.to_string(),
            "/p/.scrconf:7: there is no parameter SCR_FLSH, did you mean SCR_FLUSH?"
        );
    }
}
