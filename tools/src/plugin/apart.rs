//! Runs checks in a separate process.
//!
//! A library runs code as soon as it is loaded, and that code may crash, hang or end the process. So it is loaded in a child, and
//! only a printed answer counts: an exit code of 0 alone proves nothing.

use crate::environment;
use crate::machine::process;
use crate::output::print;
use anyhow::{Context, Result};
use scr_base::message::span;
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Begins the line of the answer, among all that a library may print.
const ANSWER: &str = "scr-plugin-answer: ";

/// Has `scr plugin` with these arguments answer in a process of its own, within the limit if there is one. Gives the answer, or how
/// the process ended without one.
pub(super) fn ask<T: DeserializeOwned>(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    limit: Option<Duration>,
) -> Result<Result<T, String>> {
    // A file and not a pipe: a child that prints a lot waits for nobody, and nobody waits for a child of it that goes on.
    let mut output = process::file_for_output()?;
    let mut command = Command::new(environment::program()?);
    command.arg("plugin").args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?);
    let mut child = command.spawn().context("cannot start a process to load the library in")?;
    let status = match limit {
        Some(limit) => process::wait(&mut child, limit)?,
        None => Some(child.wait()?),
    };
    let Some(status) = status else {
        return Ok(Err(format!("did not end within {}", span(limit.unwrap_or_default()))));
    };
    let text = process::text(&mut output)?;
    let answer = text.lines().rev().find_map(|line| line.strip_prefix(ANSWER));
    let answer = answer.and_then(|json| serde_json::from_str(json).ok());
    Ok(answer.ok_or_else(|| how_it_ended(status)))
}

/// Answers, in the child.
pub(super) fn answer<T: Serialize>(answer: &T) -> Result<()> {
    print(format!("\n{ANSWER}{}\n", serde_json::to_string(answer)?))
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended the process with signal {signal}"),
        (None, Some(code)) => format!("ended the process with exit code {code}"),
        (None, None) => "ended the process".to_owned(),
    }
}
