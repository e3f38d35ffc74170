//! Runs a job once: starts it, watches it, and ends it where it must.

use anyhow::{Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait_timeout::ChildExt;

/// Signals that end the job, SIGHUP among them unless `nohup` has it ignored. A second one ends this process at once.
pub(super) struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Catches them from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn catch() -> Result<Self> {
        let received = Arc::new(AtomicBool::new(false));
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            flag::register_conditional_shutdown(signal, 128 + signal, received.clone())
                .and_then(|_| flag::register(signal, received.clone()))
                .context("cannot take note of signals")?;
        }
        Ok(Self(received))
    }

    /// Whether one was received.
    pub(super) fn received(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for this time, or until one is received.
    pub(super) fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.received() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

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

/// How often to look at signals, and whether the run is to be ended.
const TICK: Duration = Duration::from_millis(50);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a launcher may take to end.
const GRACE: Duration = Duration::from_secs(30);

/// Runs a command to its end. It is ended early where `poll` gives a reason.
///
/// # Errors
/// It cannot be started.
pub(super) fn supervise(
    words: &[OsString],
    variables: &[(String, String)],
    signals: &Signals,
    poll: &mut dyn FnMut() -> Option<KillReason>,
) -> Result<RunOutcome> {
    let (program, arguments) = words.split_first().context("there is nothing to start")?;
    let child = Command::new(program).args(arguments).envs(variables.iter().cloned()).spawn();
    let mut child = child.with_context(|| format!("cannot start {}", Path::new(program).display()))?;
    let (mut by, mut asked_to_end): (_, Option<Instant>) = (None, None);
    let mut last_poll = Instant::now();
    loop {
        if let Some(status) = child.wait_timeout(TICK)? {
            let code = exit_code(status);
            // A run that had to be ended has failed, whatever its launcher says.
            return Ok(RunOutcome { code: if by.is_some() { code.max(1) } else { code }, by });
        }
        match asked_to_end {
            Some(since) if since.elapsed() > GRACE => child.kill()?,
            Some(_) => (),
            None => {
                if last_poll.elapsed() > POLL_INTERVAL {
                    last_poll = Instant::now();
                    by = poll();
                }
                if by.is_some() || signals.received() {
                    terminate(&child)?;
                    asked_to_end = Some(Instant::now());
                }
            }
        }
    }
}

/// Asks a launcher to end its run.
fn terminate(child: &Child) -> Result<()> {
    match kill_process(Pid::from_child(child), Signal::TERM) {
        // It has ended meanwhile.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("cannot end the run"),
    }
}

/// As shells count.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
