//! What is wrong with a setting, where it was made, and what to do about it.
//!
//! A [`Problem`] is told and the run goes on with the next source or the default. The same thing as a
//! [`ConfigError`] stops the run.

use super::table::{find, TABLE};
use super::value::Kind;
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which file.
    pub file: PathBuf,
    /// Which line, from 1; 0 stands for the whole file.
    pub line: u32,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// An environment variable of the same name.
    Environment,
    /// The user's configuration file.
    UserFile(Place),
    /// The application, through `SCR_Config`.
    Application,
    /// The site's configuration file.
    SystemFile(Place),
    /// The descriptor that a dataset was written with.
    Dataset,
    /// Who built the library: another default than usual.
    Build,
    /// Nobody: the default.
    Default,
}

impl Origin {
    /// Whether somebody has set it.
    pub fn is_set(&self) -> bool {
        !matches!(self, Origin::Build | Origin::Default)
    }

    /// The line of the file, where it comes from one.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Origin::UserFile(place) | Origin::SystemFile(place) => Some(place),
            _ => None,
        }
    }
}

/// Something wrong with a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Where the setting was made.
    pub origin: Origin,
    /// What is wrong.
    pub cause: Cause,
}

/// Something wrong with the configuration that the run cannot go on with.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{0}")]
pub struct ConfigError(Box<Problem>);

impl ConfigError {
    /// What it is, and where.
    pub fn problem(&self) -> &Problem {
        &self.0
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

/// What is wrong. The texts end with what happens now, or with what to do.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Cause {
    /// No parameter has this name.
    #[error("there is no parameter {}{}", show(name), suggest(nearest))]
    UnknownName {
        /// The name.
        name: String,
        /// The known name that is most like it.
        nearest: Option<String>,
    },
    /// A key of a descriptor line looks like a mistyped one; it is taken for an option of a plugin.
    #[error("{line} has no key {}{}; it is passed to the plugin as an option", show(key), suggest(nearest))]
    UnknownKey {
        /// `STORE` or `CKPT`.
        line: String,
        /// The key.
        key: String,
        /// The known key that is most like it.
        nearest: Option<String>,
    },
    /// A name of former versions.
    #[error("{name} is of a former version and has no effect; {advice}")]
    Retired {
        /// The name.
        name: String,
        /// What to use instead.
        advice: &'static str,
    },
    /// A value that former versions had.
    #[error("{name}={former} is of a former version and means {now} today; write {name}={now}")]
    Renamed {
        /// The parameter or key.
        name: String,
        /// The value that was found.
        former: String,
        /// What it means.
        now: String,
    },
    /// The value does not read as what it should be.
    #[error("{name} holds `{}', which is not {expected}; it is passed over", show(found))]
    Malformed {
        /// The parameter or key.
        name: String,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// The value is too small or too large.
    #[error("{name} holds {}, which is not {}; it is passed over", show(found), range(found, least, most))]
    OutOfRange {
        /// The parameter or key.
        name: String,
        /// What it holds.
        found: String,
        /// Smallest allowed.
        least: String,
        /// Largest allowed.
        most: String,
    },
    /// There is a name but no value.
    #[error("{} has no value and counts as not set; remove the line or give a value", show(name))]
    Empty {
        /// The parameter or key.
        name: String,
    },
    /// The value names a variable that is not set.
    #[error(
        "{name} uses {}, which is not set and counts as empty; set it or write \\$ for a plain $",
        of_value(name, variable)
    )]
    Undefined {
        /// The parameter or key.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The same thing was set before in the same file.
    #[error("{} is set a second time, after {earlier}; the later one counts", show(name))]
    Duplicate {
        /// The parameter or key.
        name: String,
        /// Where it was set first.
        earlier: Place,
    },
    /// The same thing is described twice.
    #[error("{} is described a second time, after {earlier}; the line is passed over", show(name))]
    Twice {
        /// What.
        name: String,
        /// Where it was described first.
        earlier: Place,
    },
    /// A line, or what is left of it, has no `=`.
    #[error("`{}' has no `=', write KEY=value; it is passed over", show(text))]
    NoEquals {
        /// The text.
        text: String,
    },
    /// Something follows the value.
    #[error("`{}' after the value of {} is passed over; put a value with blanks in quotes, and each parameter on a line of its own", show(rest), show(name))]
    AfterValue {
        /// The parameter.
        name: String,
        /// What follows.
        rest: String,
    },
    /// A parameter is to be changed where it can only be asked for.
    #[error("`{}' sets a parameter, which is possible before SCR_Init only; it is passed over", show(text))]
    NotAQuery {
        /// What was asked.
        text: String,
    },
    /// A quote is not closed.
    #[error("a {quote} is opened and not closed; the line is passed over")]
    Unterminated {
        /// Which quote.
        quote: char,
    },
    /// A line starts with `=`.
    #[error("a value stands without a name before its `='; the line is passed over")]
    NoKey,
    /// A line is not UTF-8, or holds control characters.
    #[error("the setting is not UTF-8 text, or holds control characters; it is passed over")]
    NotText,
    /// A variable is not UTF-8, or holds control characters.
    #[error("{name} is not UTF-8 text, or holds control characters; it is passed over")]
    VariableNotText {
        /// The variable.
        name: String,
    },
    /// What a setting names cannot be used, such as a plugin that is not there or does not take its options.
    #[error("{name}: {why}")]
    Unusable {
        /// The line or parameter.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A file cannot be read.
    #[error("the file {} cannot be read: {reason}; its settings do not count", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// What the system reports.
        reason: String,
    },
    /// The parameter can be set, but not here.
    #[error("{name} cannot be set here, only {allowed}; it is passed over")]
    WrongPlace {
        /// The parameter.
        name: String,
        /// Where it can be set.
        allowed: &'static str,
    },
    /// The prefix directory cannot be changed by the file that was found in it.
    #[error("SCR_PREFIX cannot be changed to {} by the file found in {}; set it in the environment", found.display(), prefix.display())]
    PrefixMoved {
        /// What the file says.
        found: PathBuf,
        /// The prefix directory.
        prefix: PathBuf,
    },
    /// The site does not let users set this parameter.
    #[error("{name} is set by the site and cannot be changed (locked by {by}); it is passed over")]
    Locked {
        /// The parameter.
        name: String,
        /// The line that locks it.
        by: Place,
    },
    /// Two settings that do not go together.
    #[error("{first} and {second} contradict each other: {why}; {now}")]
    Contradiction {
        /// One setting with its value.
        first: String,
        /// The other with its value.
        second: String,
        /// Why they contradict each other.
        why: &'static str,
        /// What happens, or what to do.
        now: &'static str,
    },
    /// The numbers of the checkpoint descriptors are not 0, 1, 2 and so on.
    #[error(
        "the CKPT descriptors are numbered {found} and not from 0 without a gap; they are used in this order"
    )]
    Numbering {
        /// The numbers in order.
        found: String,
    },
    /// Two descriptors have the same interval.
    #[error("CKPT={index} and CKPT={other} both have INTERVAL={interval}, so CKPT={index} is never chosen; give it another interval")]
    SameInterval {
        /// The one that is never chosen.
        index: u32,
        /// The one that is.
        other: u32,
        /// The interval.
        interval: u64,
    },
    /// Two descriptors are marked for output.
    #[error("CKPT={index} and CKPT={other} both have OUTPUT=1; CKPT={other} is used for output")]
    TwoOutputs {
        /// The one whose mark is passed over.
        index: u32,
        /// The one that is used.
        other: u32,
    },
    /// No descriptor can hold any checkpoint.
    #[error("no CKPT descriptor in use has INTERVAL=1; give one of them INTERVAL=1, so that every checkpoint has one")]
    NoIntervalOne,
    /// Descriptors are asked for, and there is none.
    #[error("SCR_COPY_TYPE=FILE asks for CKPT descriptors and there is none; add CKPT=0 TYPE=XOR, or set SCR_COPY_TYPE=XOR")]
    NoDescriptors,
    /// There are descriptors, and they are not used.
    #[error("the CKPT descriptors are not used with SCR_COPY_TYPE={copy_type}; set SCR_COPY_TYPE=FILE to use them")]
    LinesUnused {
        /// The value of SCR_COPY_TYPE.
        copy_type: String,
    },
    /// No group has this name.
    #[error(
        "{name} names the group {}, which is not defined; the groups are {known}{}",
        show(group),
        suggest(nearest)
    )]
    UnknownGroup {
        /// The parameter or key.
        name: String,
        /// The group.
        group: String,
        /// The names that are.
        known: String,
        /// The one that is most like it.
        nearest: Option<String>,
    },
    /// No store has this path.
    #[error("CKPT={index} names the store {}, which is not described; the stores are {known}{}; add STORE={store}", show(store), suggest(nearest))]
    UnknownStore {
        /// The descriptor.
        index: u32,
        /// The store.
        store: String,
        /// The paths that are.
        known: String,
        /// The one that is most like it.
        nearest: Option<String>,
    },
    /// The store is there but may not be used.
    #[error("{name} names the store {store}, which has ENABLED=0; enable the store or name another one")]
    StoreDisabled {
        /// The parameter or descriptor.
        name: String,
        /// The store.
        store: String,
    },
    /// More failures are to be survived than a set has members to spare.
    #[error("{name} asks for SET_FAILURES={failures} with SET_SIZE={set_size}, but a set cannot survive the loss of all its members; {used} is used")]
    TooManyFailures {
        /// The parameter or descriptor.
        name: String,
        /// What it asks for.
        failures: u32,
        /// The size of its sets.
        set_size: u32,
        /// What is used.
        used: u32,
    },
    /// The store keeps no dataset, but datasets go there.
    #[error("{name} keeps no dataset in {store} (a count of 0) and does not bypass the cache either; bypass is used, set BYPASS=1 or a count of at least 1")]
    NoRoom {
        /// The parameter or descriptor.
        name: String,
        /// The store.
        store: String,
    },
    /// A group that scr makes itself is defined.
    #[error("the group {group} is made by scr itself and cannot be defined; the entry is passed over")]
    BuiltInGroup {
        /// Which.
        group: String,
    },
    /// A line without what it has to say.
    #[error("{name} is not an absolute path; the line is passed over")]
    NotAbsolute {
        /// The line.
        name: String,
    },
    /// A host has no line of groups.
    #[error(
        "rank {rank} runs on {host}, for which there is no GROUPS line; add GROUPS={host} with its groups"
    )]
    HostWithoutGroups {
        /// The host.
        host: String,
        /// A rank on it.
        rank: u32,
    },
    /// The line of a host lacks a group.
    #[error("the GROUPS line of {host} (rank {rank}) has no value for {group}; add {group}=value to it")]
    GroupNotOnHost {
        /// The host.
        host: String,
        /// A rank on it.
        rank: u32,
        /// The group.
        group: String,
    },
}

impl Problem {
    pub(crate) fn new(origin: &Origin, cause: Cause) -> Self {
        Self { origin: origin.clone(), cause }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => self.file.display().fmt(f),
            line => write!(f, "{}:{line}", self.file.display()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Environment => f.write_str("environment"),
            Origin::UserFile(place) | Origin::SystemFile(place) => place.fmt(f),
            Origin::Application => f.write_str("SCR_Config"),
            Origin::Dataset => f.write_str("dataset"),
            Origin::Build => f.write_str("build"),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.cause)
    }
}

/// What a user wrote, on one short line whatever it was, and without what is secret in it.
fn show(text: &str) -> String {
    const LONGEST: usize = 120;
    let mut shown = String::new();
    if let Some(before) = before_secret(text) {
        return show(before) + " ...";
    }
    for c in text.chars().take(LONGEST) {
        // Also what is there and cannot be seen, such as a blank without width.
        if c.escape_debug().len() > 1 && !"\"'\\".contains(c) {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}

/// What is allowed; the largest number that a computer holds is told to those alone who have gone beyond.
fn range(found: &str, least: &str, most: &str) -> String {
    if found.starts_with('-') && most == u64::MAX.to_string() {
        format!("{least} or more")
    } else {
        format!("within {least} to {most}")
    }
}

/// What comes before a secret: up to the name of a parameter that holds one, or a name that may stand for it.
fn before_secret(text: &str) -> Option<&str> {
    let is_end = |c: char| c.is_whitespace() || "=:".contains(c);
    let mut start = 0;
    while let Some(length) = text.get(start..)?.find(is_end) {
        let end = start + length;
        if is_secret(text.get(start..end)?) {
            return text.get(..end);
        }
        start = end + text.get(end..)?.chars().next()?.len_utf8();
    }
    None
}

/// Whether a name stands for a parameter whose value is not to be shown, be it mistyped.
fn is_secret(name: &str) -> bool {
    let likely = nearest(name, TABLE.iter().map(|info| info.name));
    likely.and_then(|name| find(&name)).is_some_and(|info| info.kind == Kind::Secret)
}

/// A variable in the value of a parameter; in what is secret a `$` may just be a part of it.
fn of_value(name: &str, variable: &str) -> String {
    if is_secret(name) {
        "a variable".to_owned()
    } else {
        format!("${variable}")
    }
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean {name}?")).unwrap_or_default()
}

/// The name that a mistyped one most likely stands for: few letters apart for its length, upper or lower case.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let wanted = name.to_ascii_uppercase();
    let (distance, nearest) = known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &candidate.to_ascii_uppercase()), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= (wanted.chars().count() / 4).max(1)).then(|| nearest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = ["SCR_CACHE_SIZE", "SCR_CACHE_BASE", "SCR_FLUSH"];
        assert_eq!(nearest("SCR_CACHE_SZIE", known).as_deref(), Some("SCR_CACHE_SIZE"));
        assert_eq!(nearest("scr_flush", known).as_deref(), Some("SCR_FLUSH"));
        assert_eq!(nearest("SCR_SOMETHING_ELSE", known), None);
        assert_eq!(nearest(&"A".repeat(100_000), known), None);
    }

    #[test]
    fn what_a_user_wrote_is_shown_short_and_on_one_line() {
        assert_eq!(show("a\nb\u{7}'\"\\é"), "a\\nb\\u{7}'\"\\é");
        assert_eq!(show("SCR_FLUSH\u{200b}"), "SCR_FLUSH\\u{200b}");
        assert_eq!(show(&"x".repeat(10_000)).len(), 123);
    }

    #[test]
    fn what_is_secret_is_not_shown_wherever_it_stands() {
        let text = |text: &str| Cause::NoEquals { text: text.into() }.to_string();
        for line in ["SCR_LOG_DB_PASS hunter2", "scr_log_db_pass: hunter2", "export SCR_LOG_DB_PAS=hunter2"] {
            assert!(!text(line).contains("hunter2"), "{}", text(line));
        }
        assert_eq!(
            text("SCR_LOG_DB_PASS"),
            "`SCR_LOG_DB_PASS' has no `=', write KEY=value; it is passed over"
        );
        assert_eq!(
            text("SCR_LOG_DB_USER me"),
            "`SCR_LOG_DB_USER me' has no `=', write KEY=value; it is passed over"
        );
        let rest = "SCR_FLUSH=1 SCR_LOG_DB_PASS=hunter2".into();
        let after = Cause::AfterValue { name: "SCR_DEBUG".into(), rest }.to_string();
        assert!(after.starts_with("`SCR_FLUSH=1 SCR_LOG_DB_PASS ...' after"), "{after}");
        let undefined = Cause::Undefined { name: "SCR_LOG_DB_PASS".into(), variable: "hunter2".into() };
        assert!(
            undefined.to_string().starts_with("SCR_LOG_DB_PASS uses a variable, which is not set"),
            "{undefined}"
        );
    }

    #[test]
    fn a_problem_says_where_what_and_what_now() {
        let place = Place { file: "/p/.scrconf".into(), line: 7 };
        let cause = Cause::UnknownName { name: "SCR_FLSH".into(), nearest: Some("SCR_FLUSH".into()) };
        let problem = Problem::new(&Origin::UserFile(place), cause);
        assert_eq!(
            problem.to_string(),
            "/p/.scrconf:7: there is no parameter SCR_FLSH, did you mean SCR_FLUSH?"
        );
    }
}
