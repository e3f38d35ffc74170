//! The result of a command, and where its text goes.

use crate::colour;
use crate::progress;
use anyhow::{Context, Result};
use scr_base::codes::coded;
use scr_base::env::to_stderr;
pub(crate) use scr_base::message::count;
use scr_base::message::without_error_numbers;
use scr_config::param;
use scr_plugin_api::held;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Mutex;

/// The exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Yes, or done.
    Yes,
    /// No.
    No,
    /// The exit code of the program that was run.
    Code(u8),
}

impl From<bool> for Answer {
    fn from(yes: bool) -> Self {
        match yes {
            true => Answer::Yes,
            false => Answer::No,
        }
    }
}

/// The version of the JSON that commands print. It grows when something that was there changes; fields may be added.
pub(crate) const JSON_VERSION: u32 = 1;

/// Prints what was asked for.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<Answer> {
    scr_base::env::print(text.as_ref())?;
    Ok(Answer::Yes)
}

/// Prints what was asked for, each on a line of its own.
pub(crate) fn print_lines(lines: impl IntoIterator<Item: Display>) -> Result<Answer> {
    print(lines.into_iter().map(|line| format!("{line}\n")).collect::<String>())
}

/// The fields of all these objects in one.
pub(crate) fn merged(objects: impl IntoIterator<Item = Value>) -> Value {
    objects.into_iter().filter_map(|object| object.as_object().cloned()).flatten().collect()
}

/// Prints what was asked for: the fields of `json` for programs, or else the text for people. The answer is `yes` or no.
pub(crate) fn show(as_json: bool, json: Value, text: impl AsRef<[u8]>, yes: bool) -> Result<Answer> {
    if !as_json {
        print(text)?;
        return Ok(Answer::from(yes));
    }
    let mut fields = Map::from_iter([("version".to_owned(), JSON_VERSION.into())]);
    match json {
        Value::Object(more) => fields.extend(more),
        other => _ = fields.insert("value".to_owned(), other),
    }
    print(format!("{:#}\n", Value::Object(fields)))?;
    Ok(Answer::from(yes))
}

/// The result, with the JSON of a command that failed; its text goes to standard error, as for every command.
pub(crate) fn or_show_error<T>(as_json: bool, result: Result<T>) -> Result<T> {
    if let Err(error) = &result {
        let text = without_error_numbers(&format!("{error:#}"));
        show(as_json, serde_json::json!({ "error": text }), "", false)?;
    }
    result
}

/// Prints a line, which is a no if there is none or it is empty.
pub(crate) fn print_line(line: Option<impl Display>) -> Result<Answer> {
    let line = line.map(|line| line.to_string()).filter(|line| !line.is_empty());
    print_lines(&line)?;
    Ok(Answer::from(line.is_some()))
}

/// From now on messages begin with this name.
pub(crate) fn speak_as(name: &'static str) {
    *held(&NAME) = name;
}

static NAME: Mutex<&str> = Mutex::new("scr");

/// Prints a message to standard error.
pub(crate) fn warn(message: impl Display) {
    #[cfg(test)]
    tests::WARNINGS.with_borrow_mut(|all| all.push(message.to_string()));
    let name = format!("{}:", held(&NAME));
    let name = if colour::has(&io::stderr()) { colour::bold(&name) } else { name };
    print_to_stderr(format_args!("{name} {}", coded("", &message.to_string())));
}

/// Prints a line to standard error. A missing reader is no error.
pub(crate) fn print_to_stderr(line: impl Display) {
    let line = without_error_numbers(&line.to_string());
    progress::suspend(|| to_stderr(&line));
}

/// Numbers in a list.
pub(crate) fn joined(numbers: impl IntoIterator<Item: Display>, between: &str) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(between)
}

/// The name that a mistyped one most likely means, if it is none of those that are known.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let meant = param::nearest(name, known).filter(|meant| meant != name)?;
    Some(format!("did you mean `{}'?", on_one_line(&meant)))
}

/// Says what cannot be done, and where.
pub(crate) trait OrCannot<T> {
    fn or_cannot(self, do_what: &str, path: &Path) -> Result<T>;
}

impl<T, E> OrCannot<T> for Result<T, E>
where
    Result<T, E>: Context<T, E>,
{
    fn or_cannot(self, do_what: &str, path: &Path) -> Result<T> {
        self.with_context(|| format!("cannot {do_what} {}", path.display()))
    }
}

/// Whether the reader of standard output has gone.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// The text without what would break a line or move the cursor: names of datasets may hold anything.
pub(crate) fn on_one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    thread_local! {
        /// The messages of this thread.
        pub(crate) static WARNINGS: std::cell::RefCell<Vec<String>> = std::cell::RefCell::default();
    }

    #[test]
    fn only_a_closed_pipe_counts_as_one() {
        let error = |kind| anyhow::Error::from(io::Error::from(kind)).context("printing");
        assert!(is_closed_pipe(&error(ErrorKind::BrokenPipe)));
        assert!(
            !is_closed_pipe(&error(ErrorKind::StorageFull)) && !is_closed_pipe(&anyhow::anyhow!("other"))
        );
    }
}
