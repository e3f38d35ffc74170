//! Commands that are run for what they say, with a limit to how long that may take.

use anyhow::{bail, Context, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use wait_timeout::ChildExt;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// `None` where it was killed at its limit.
    pub(crate) status: Option<ExitStatus>,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it complained about.
    pub(crate) stderr: String,
}

impl Finished {
    /// Whether it ended well.
    pub(crate) fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Why it did not end well, on one line: the last thing it complained about, or how it ended.
    pub(crate) fn complaint(&self) -> String {
        let Some(status) = self.status else { return "it did not answer in time".to_owned() };
        match self.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
            Some(line) => line.to_owned(),
            None => format!("it ended with {status}"),
        }
    }
}

/// Runs a command, without input; it is killed after the time of `limit`.
///
/// # Errors
/// It cannot be started. How it ended is no error.
pub(crate) fn run(command: &[String], limit: Option<Duration>) -> Result<Finished> {
    let (program, arguments) = command.split_first().context("there is no command to run")?;
    // Files and not pipes: a command that leaves a process behind would keep a pipe open.
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot start `{program}'"))?;
    let status = wait(&mut child, limit)?;
    Ok(Finished { status, stdout: text(&mut stdout)?, stderr: text(&mut stderr)? })
}

/// What a command prints.
///
/// # Errors
/// It cannot be started, fails, or takes too long; the error has its last line.
pub(crate) fn output_of(command: &[String], limit: Option<Duration>) -> Result<String> {
    let finished = run(command, limit)?;
    if !finished.succeeded() {
        bail!("`{}' failed: {}", command.join(" "), finished.complaint());
    }
    Ok(finished.stdout)
}

/// A command that goes on while this process does something else. It is not ended with it.
pub(crate) struct Started {
    child: Child,
    /// What it says and what it complains about.
    said: File,
}

/// Starts a command, without input, in a process group of its own: a signal from the terminal does not reach it.
///
/// # Errors
/// It cannot be started.
pub(crate) fn start(command: &[String]) -> Result<Started> {
    let (program, arguments) = command.split_first().context("there is no command to run")?;
    let said = tempfile::tempfile()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
    let child = command.process_group(0).spawn().with_context(|| format!("cannot start `{program}'"))?;
    Ok(Started { child, said })
}

impl Started {
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it says a line within some time. One that ends says no more.
    pub(crate) fn says_a_line(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let ended = self.has_ended();
            if !ended && text(&mut self.said).is_ok_and(|said| said.contains('\n')) {
                return true;
            }
            if ended || Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The last thing that it said.
    pub(crate) fn complaint(&mut self) -> String {
        let said = text(&mut self.said).unwrap_or_default();
        let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        last.map_or_else(|| "it says nothing".to_owned(), str::to_owned)
    }

    /// Waits for its end, and kills it where that takes too long.
    pub(crate) fn end_within(&mut self, limit: Duration) {
        // What cannot be waited for is gone.
        let _ = wait(&mut self.child, Some(limit));
    }
}

/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);

fn wait(child: &mut Child, limit: Option<Duration>) -> Result<Option<ExitStatus>> {
    let Some(limit) = limit else { return Ok(Some(child.wait()?)) };
    let status = child.wait_timeout(limit)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(status)
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_command_is_taken_by_its_output_or_by_its_last_complaint() {
        let limit = Some(Duration::from_secs(30));
        assert_eq!(output_of(&shell("echo n0; echo noise >&2"), limit).unwrap(), "n0\n");
        let error = output_of(&shell("echo one >&2; echo two >&2; echo >&2; exit 3"), limit).unwrap_err();
        assert!(error.to_string().ends_with("failed: two"), "{error}");
        let error = output_of(&["/no/such/program".to_owned()], limit).unwrap_err();
        assert!(error.to_string().contains("cannot start `/no/such/program'"), "{error}");
    }

    #[test]
    fn a_command_that_goes_on_is_seen_to_speak_and_to_end() {
        let limit = Duration::from_secs(30);
        let mut speaks = start(&shell("echo here; exec sleep 1000")).unwrap();
        assert!(speaks.says_a_line(limit) && !speaks.has_ended());
        speaks.end_within(Duration::ZERO);
        assert!(speaks.has_ended());
        let mut fails = start(&shell("echo no room >&2; exit 1")).unwrap();
        fails.end_within(limit);
        assert!(!fails.says_a_line(limit));
        assert_eq!(fails.complaint(), "no room");
    }

    #[test]
    fn a_command_that_never_ends_is_killed_also_where_it_leaves_a_process_behind() {
        let finished = run(&shell("sleep 5 & exec sleep 1000"), Some(Duration::from_millis(50))).unwrap();
        assert_eq!(finished.complaint(), "it did not answer in time");
        assert!(!finished.succeeded());
    }
}
