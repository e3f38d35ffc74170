//! The signals that `scr run` receives. Each one that would end this process and can be caught is taken note of, so that
//! `scr postrun` runs in the end in any case.
//!
//! SIGINT, SIGTERM, SIGHUP and SIGQUIT end the job. Other signals are for the job: batch systems send SIGUSR1, SIGUSR2 or
//! SIGXCPU some time before they end it. The launcher gets them as they are, and knows how to pass them on to the ranks.

use crate::prelude::*;
use rustix::process::Signal;
use signal_hook::consts::FORBIDDEN;
use signal_hook::consts::{
    SIGBUS, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,
    SIGWINCH,
};
use signal_hook::flag;
use signal_hook::low_level::signal_name;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request that the user or the batch system has made with signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// This signal ends the job.
    End(i32),
    /// This signal is for the job, which may end: the launcher gets it as it is.
    PassOn(Signal),
}

impl Request {
    /// The name of the signal.
    pub(super) fn name(self) -> String {
        let signal = match self {
            Self::End(signal) => signal,
            Self::PassOn(signal) => signal.as_raw(),
        };
        signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
    }
}

/// The signals that were received.
pub(super) struct Signals {
    /// Those that are caught, and whether each was received since somebody looked.
    caught: BTreeMap<i32, Arc<AtomicBool>>,
    /// The first that ends the job, or else the last that was passed on.
    request: RefCell<Option<Request>>,
}

impl Signals {
    /// Catches all signals from now on. A second SIGINT ends this process at once: a person is waiting.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn catch() -> Result<Self> {
        let ignored = ignored();
        let is_ignored = |signal: &i32| ignored >> (signal - 1) & 1 == 1;
        let signals = (1..=LAST).filter(|signal| !LEFT_ALONE.contains(signal) && !FORBIDDEN.contains(signal));
        let mut caught = BTreeMap::new();
        for signal in signals.filter(|signal| !is_ignored(signal)) {
            let received = Arc::new(AtomicBool::new(false));
            let mut registered = Ok(());
            if signal == SIGINT {
                let is_second = Arc::new(AtomicBool::new(false));
                registered = flag::register_conditional_shutdown(signal, 128 + signal, is_second.clone())
                    .and_then(|_| flag::register(signal, is_second))
                    .map(drop);
            }
            registered
                .and_then(|()| flag::register(signal, received.clone()).map(drop))
                .with_context(|| format!("cannot catch signal {signal}"))?;
            caught.insert(signal, received);
        }
        Ok(Self { caught, request: RefCell::default() })
    }

    /// The signals that were received since the last look.
    pub(super) fn look(&self) -> Vec<Request> {
        let received = self.caught.iter().filter(|(_, received)| received.swap(false, Ordering::Relaxed));
        let requests: Vec<_> = received.map(|(signal, _)| request(*signal)).collect();
        let mut strongest = self.request.borrow_mut();
        for request in &requests {
            if !matches!(*strongest, Some(Request::End(_))) {
                *strongest = Some(*request);
            }
        }
        requests
    }

    /// The request made so far: after it, the job is not started again.
    pub(super) fn request(&self) -> Option<Request> {
        self.look();
        *self.request.borrow()
    }

    /// Waits for this time, or until a signal is received.
    pub(super) fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        while self.request().is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}

/// Which request a signal is. A launcher has no use for the real-time ones.
fn request(signal: i32) -> Request {
    match Signal::from_named_raw(signal) {
        Some(known) if ![SIGINT, SIGTERM, SIGHUP, SIGQUIT].contains(&signal) => Request::PassOn(known),
        _ => Request::End(signal),
    }
}

/// The signals that this process was started with as ignored, such as SIGHUP under `nohup`: a bit for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The highest signal of Linux.
const LAST: i32 = 64;
/// Signals that do not end a process, that the libraries of this process use, or that are a fault of this process.
const LEFT_ALONE: &[i32] =
    &[SIGBUS, SIGCHLD, SIGCONT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, OF_LIBC, OF_LIBC + 1];
/// The first of two signals that the C library keeps for itself.
const OF_LIBC: i32 = 32;
/// How often to look.
pub(super) const TICK: Duration = Duration::from_millis(50);
