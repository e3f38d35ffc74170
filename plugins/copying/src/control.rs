//! What the one who copies and the one who waits share: a wish to stop, and how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared between the threads that copy and those that ask about the copy.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    done: AtomicU64,
}

impl Control {
    /// Nothing done, and nobody wants it to stop.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the copy to stop before its next block.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether the copy should stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Counts so many more bytes as done.
    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many bytes are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}
