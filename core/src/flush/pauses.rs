//! How long to wait in all.

use std::time::Duration;

/// How long something is waited for that gets on, or does not.
pub(super) struct WaitLimit {
    /// In all.
    most: Duration,
    /// Without any progress.
    most_standing: Duration,
    began: Duration,
    /// When it was last seen to have got on, and how far it was then.
    moved: (Duration, u64),
}

impl WaitLimit {
    pub(super) fn begin(most: Duration, most_standing: Duration, now: Duration, moved: u64) -> Self {
        Self { most, most_standing, began: now, moved: (now, moved) }
    }

    pub(super) fn lasts(&mut self, now: Duration, moved: u64) -> bool {
        if moved != self.moved.1 {
            self.moved = (now, moved);
        }
        now.saturating_sub(self.began) < self.most && now.saturating_sub(self.moved.0) < self.most_standing
    }
}
