//! Runs checks in a separate process.
//!
//! A library runs code as soon as it is loaded, and that code may crash, hang or end the process. So it is loaded in a child, and
//! only a printed answer counts: an exit code of 0 alone proves nothing.

use crate::environment;
use crate::output::print;
use anyhow::{anyhow, Context, Result};
use scr_base::message::span;
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use wait_timeout::ChildExt;

/// Begins the line of the answer, among all that a library may print.
const ANSWER: &str = "scr-plugin-answer: ";

/// The result of a child.
pub(super) enum Given<T> {
    /// An answer.
    Answer(T),
    /// None, and this is how it ended.
    Nothing(String),
}

/// Has `scr plugin` with these arguments answer in a process of its own, within the limit if there is one.
pub(super) fn ask<T: DeserializeOwned>(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    limit: Option<Duration>,
) -> Result<Given<T>> {
    let mut command = Command::new(environment::program()?);
    command.arg("plugin").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start a process to load the library in")?;
    let (status, text) = wait(&mut child, limit)?;
    let answer = text.lines().rev().find_map(|line| line.strip_prefix(ANSWER));
    Ok(match (answer.and_then(|json| serde_json::from_str(json).ok()), status, limit) {
        (Some(answer), ..) => Given::Answer(answer),
        (None, Some(status), _) => Given::Nothing(how_it_ended(status)),
        (None, None, limit) => {
            Given::Nothing(format!("did not end within {}", span(limit.unwrap_or_default())))
        }
    })
}

/// Answers, in the child.
pub(super) fn answer<T: Serialize>(answer: &T) -> Result<()> {
    print(format!("\n{ANSWER}{}\n", serde_json::to_string(answer)?))
}

/// How the child ended, `None` if it had to be ended, and what it printed.
fn wait(child: &mut Child, limit: Option<Duration>) -> Result<(Option<ExitStatus>, String)> {
    let mut pipe = child.stdout.take().context("the child has no output")?;
    // Read while waiting: a child that prints a lot would wait for us. A child of the child may hold the pipe
    // open forever, so after a timeout nobody waits for the reader.
    let read = move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    };
    let reader = std::thread::Builder::new().spawn(read).context("cannot start a thread")?;
    let status = match limit {
        Some(limit) => child.wait_timeout(limit)?,
        None => Some(child.wait()?),
    };
    if status.is_none() {
        child.kill()?;
        child.wait()?;
        return Ok((None, String::new()));
    }
    let text = reader.join().map_err(|_| anyhow!("reading the child's output failed"))??;
    Ok((status, text))
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended the process with signal {signal}"),
        (None, Some(code)) => format!("ended the process with exit code {code}"),
        (None, None) => "ended the process".to_owned(),
    }
}
