//! How far a command is, for people and for processes that wait for it.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A bar on standard error, and only if that is a terminal.
pub(crate) fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let look = "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left: {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(look) {
        bar.set_style(style);
    }
    bar
}

/// Prints a line now and then while a command makes progress. `scr postrun` kills a command on a node once none of the
/// nodes has printed anything for too long.
pub(crate) struct Heartbeat {
    is_on: bool,
    last: Mutex<(Instant, u64)>,
}

impl Heartbeat {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, last: Mutex::new((Instant::now(), 0)) }
    }

    /// Reports progress where `moved` gives another number of bytes than before.
    pub(crate) fn report(&self, moved: impl FnOnce() -> u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_on || last.0.elapsed() < BETWEEN_BEATS {
            return;
        }
        let bytes = moved();
        if bytes != last.1 {
            // Without a reader nobody waits.
            drop(crate::output::print(&format!("{bytes} bytes moved\n")));
        }
        *last = (Instant::now(), bytes);
    }
}

const BETWEEN_BEATS: Duration = Duration::from_secs(5);
