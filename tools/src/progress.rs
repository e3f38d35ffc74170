//! The progress of a command, for people and for processes that wait for it.

use crate::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;

/// Progress on standard error, where that is a terminal. It is cleared when this value is dropped.
pub(crate) struct Progress(ProgressBar);

/// The bar that is on the terminal now, so that messages do not run into it.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

impl Progress {
    /// Shows that a step is under way whose length is not known, or not yet.
    pub(crate) fn new(step: impl Into<Cow<'static, str>>) -> Self {
        let bar = ProgressBar::new_spinner().with_message(step);
        // By hand: a thread that ticks ends the process where none can be made.
        bar.tick();
        *held(&SHOWN) = Some(bar.clone());
        Self(bar)
    }

    pub(crate) fn set_step(&self, step: impl Into<Cow<'static, str>>) {
        self.0.set_message(step);
    }

    /// Makes a bar of it.
    pub(crate) fn set_length(&self, bytes: u64) {
        if self.0.length() == Some(bytes) {
            return;
        }
        let look = "{bar:24} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left: {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(look) {
            self.0.set_style(style);
        }
        self.0.set_length(bytes);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        *held(&SHOWN) = None;
    }
}

/// Prints while no progress is on the terminal.
pub(crate) fn suspend(print: impl FnOnce()) {
    let shown = held(&SHOWN).clone();
    match shown {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
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
        let mut last = held(&self.last);
        if !self.is_on || last.0.elapsed() < BETWEEN_BEATS {
            return;
        }
        let bytes = moved();
        if bytes != last.1 {
            // Without a reader nobody waits.
            drop(crate::output::print(format!("{bytes} bytes moved\n")));
        }
        *last = (Instant::now(), bytes);
    }
}

const BETWEEN_BEATS: Duration = Duration::from_secs(5);
