//! The state that a copying and a waiting thread share: a request to stop, and the progress.

use crate::CopyError;
use scr_plugin_api::pace::Pace;
use scr_plugin_api::CopyItem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// Shared between the threads that copy and those that ask about the copy.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    done: AtomicU64,
    /// How fast it may be.
    pub(crate) pace: Arc<Pace>,
}

impl Control {
    /// Nothing done, and nobody wants it to stop. No faster than this.
    pub fn paced(pace: Arc<Pace>) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Asks the copy to stop before its next block.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether the copy should stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Fails if the copy of this file should stop, which has come to this offset.
    pub(crate) fn check(&self, item: &CopyItem, offset: u64) -> Result<(), CopyError> {
        match self.is_cancelled() {
            true => Err(CopyError::Cancelled { path: item.destination.clone(), offset }),
            false => Ok(()),
        }
    }

    /// Counts so many more bytes as done.
    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes of a try that has failed are not done after all.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How many bytes are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}
