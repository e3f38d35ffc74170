//! Detaches the agent from the process that has started it: its session, its open files, and its job step as far as possible.

use crate::environment;
use crate::output::{warn, Answer};
use anyhow::{bail, Context, Result};
use nix::sys::signal::SigSet;
use scr_agent::AgentPresence;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An agent that does not show itself for so long hangs, and whoever waits for it shall not.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Returns once an agent runs that does not end with this process. Its messages go to `agent.log` in the control
/// directory.
pub(super) fn detach(control: &Path, threads: u32) -> Result<Answer> {
    if AgentPresence::find(control).is_some() {
        return Ok(Answer::Yes);
    }
    let path = control.join("agent.log");
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = log.with_context(|| format!("cannot write {}", path.display()))?;
    close_on_exec();
    let mut command = Command::new(environment::program()?);
    command
        .args(["agent", "--own-session", "--control"])
        .arg(control)
        .arg("--threads")
        .arg(threads.to_string());
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/");
    let mut child = command.spawn().context("cannot start the agent")?;
    let started = Instant::now();
    loop {
        if AgentPresence::find(control).is_some() {
            return Ok(Answer::Yes);
        }
        if let Some(status) = child.try_wait()? {
            // Another one may have been quicker, or this one was and had nothing to do.
            if status.success() || AgentPresence::find(control).is_some() {
                return Ok(Answer::Yes);
            }
            bail!("the agent has ended with {status}; {} may say why", path.display());
        }
        if started.elapsed() > START_LIMIT {
            drop(child.kill());
            bail!(
                "the agent was not there after {} s; {} may say why",
                START_LIMIT.as_secs(),
                path.display()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The process gets a session of its own, so that no signal to the job reaches it, and takes those that are meant for it:
/// whoever has started it may have blocked them.
pub(super) fn leave_session() {
    take_signals();
    if let Err(error) = rustix::process::setsid() {
        warn(format_args!("the agent has no session of its own: {error}"));
    }
}

fn take_signals() {
    if let Err(error) = SigSet::empty().thread_set_mask() {
        warn(format_args!("signals to the agent stay blocked: {error}"));
    }
}

/// Descriptors that the MPI library has left open belong to the application: its launcher waits until all of it is closed.
#[allow(unsafe_code, reason = "files that are open only as numbers")]
fn close_on_exec() {
    // SAFETY: only a flag of each open file is set; none is closed here, and files of this process all have it already.
    let result = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        warn(format_args!("files of the application stay open in the agent: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_takes_signals_that_whoever_started_it_has_blocked() {
        SigSet::all().thread_set_mask().unwrap();
        take_signals();
        assert_eq!(SigSet::thread_get_mask().unwrap(), SigSet::empty());
    }
}
