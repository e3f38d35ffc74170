//! Runs a job once: starts it, watches it, and ends it where it must.

use super::signals::{Request, Signals, TICK};
use crate::prelude::*;
use rustix::process::{kill_process, Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use wait_timeout::ChildExt;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunOutcome {
    /// Its exit code; 128 and the signal where one has ended it.
    pub(super) code: u8,
    /// Why it was ended, where it did not end by itself or by a signal.
    pub(super) by: Option<KillReason>,
}

/// Why this command ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillReason {
    /// Nothing had happened for so long.
    Hung(Duration),
    /// The user wants the job to halt at once.
    Halted,
}

/// How often to ask whether the run is to be ended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a launcher may take to end.
const GRACE: Duration = Duration::from_secs(30);

/// Runs a command to its end, and passes signals on to it. It is ended early where `poll`, which is told
/// whether the launcher is suspended, gives a reason.
///
/// # Errors
/// It cannot be started.
pub(super) fn supervise(
    words: &[OsString],
    variables: &[(String, String)],
    signals: &Signals,
    poll: &mut dyn FnMut(bool) -> Option<KillReason>,
) -> Result<RunOutcome> {
    let (program, arguments) = words.split_first().context("there is nothing to start")?;
    let child = Command::new(program).args(arguments).envs(variables.iter().cloned()).spawn();
    let mut child = child.or_cannot("start", Path::new(program))?;
    let (mut by, mut asked_to_end): (_, Option<Instant>) = (None, None);
    let mut last_poll = Instant::now();
    loop {
        if let Some(status) = child.wait_timeout(TICK)? {
            // As shells count.
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            // A run that had to be ended has failed, whatever its launcher says.
            return Ok(RunOutcome { code: if by.is_some() { code.max(1) } else { code }, by });
        }
        let requests = signals.look();
        for request in &requests {
            if let Request::PassOn(signal) = request {
                send(&child, *signal)?;
            }
        }
        match asked_to_end {
            Some(since) if since.elapsed() > GRACE => child.kill()?,
            Some(_) => (),
            None => {
                if last_poll.elapsed() > POLL_INTERVAL {
                    last_poll = Instant::now();
                    by = poll(is_suspended(&child));
                }
                if by.is_some() || requests.iter().any(|request| matches!(request, Request::End(_))) {
                    send(&child, Signal::TERM)?;
                    asked_to_end = Some(Instant::now());
                }
            }
        }
    }
}

/// Whether a launcher is stopped, such as by a batch system that lets another job run.
fn is_suspended(child: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // The name of the program comes before, in parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['T', 't']))
}

/// Sends a signal to a launcher.
fn send(child: &Child, signal: Signal) -> Result<()> {
    match kill_process(Pid::from_child(child), signal) {
        // It has ended meanwhile.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("cannot send a signal to the launcher"),
    }
}
