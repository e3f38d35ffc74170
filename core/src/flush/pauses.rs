//! How long to wait between two polls.

use crate::fs::Files;
use std::time::Duration;

/// The shortest time between two looks at something.
pub(super) const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// Pauses that double, up to a limit.
pub(super) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(super) fn up_to(longest: Duration) -> Self {
        Self { next: LEAST_PAUSE, longest }
    }

    pub(super) fn wait(&mut self, files: &dyn Files) {
        files.pause(self.next);
        self.next = (self.next * 2).min(self.longest);
    }
}
