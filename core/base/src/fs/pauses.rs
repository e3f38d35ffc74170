//! How long to wait between two polls.

use super::Files;
use std::time::Duration;

/// The shortest time between two looks at something.
pub const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// Pauses that double, up to a limit.
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// The first one is the shortest.
    pub fn up_to(longest: Duration) -> Self {
        Self { next: LEAST_PAUSE, longest }
    }

    /// Pauses once.
    pub fn wait(&mut self, files: &dyn Files) {
        files.pause(self.next);
        self.next = (self.next * 2).min(self.longest);
    }
}
