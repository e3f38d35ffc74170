//! Helpers that unit tests of several modules share.

use std::time::{Duration, Instant};

/// Waits until it holds, and fails after a minute.
pub(crate) fn wait_until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it has not come so far");
        std::thread::yield_now();
    }
}
