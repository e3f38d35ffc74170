//! The lock of the process that marks, closes or takes back flushes below a prefix directory, or deletes there.

use crate::ledger::{Fence, LedgerDir};
use scr_base::fs::{Files, FsError, Pauses};
use std::path::Path;
use std::time::Duration;

impl LedgerDir<'_> {
    /// Does `work` while no other process marks, closes or rolls back a flush below this prefix.
    ///
    /// # Errors
    /// The lock cannot be used, or as `work` says.
    pub fn alone<R, E: From<FsError>>(self, work: impl FnOnce(Fence<'_>) -> Result<R, E>) -> Result<R, E> {
        self.files.exclusively_for_long(&self.prefix.scr_file(LOCK), work)?.value
    }

    /// The same unless another process takes its time to do so.
    ///
    /// # Errors
    /// As for [`alone`](Self::alone).
    pub fn try_alone<R, E: From<FsError>>(
        self,
        work: impl FnOnce(Fence<'_>) -> Result<R, E>,
    ) -> Result<Option<R>, E> {
        let (mut work, mut value) = (Some(work), None);
        let mut once = |fence: Fence<'_>| value = work.take().map(|work| work(fence));
        if_soon_free(self.files, &self.prefix.scr_file(LOCK), &mut once)?;
        value.transpose()
    }
}

/// Does `work` if a lock is free within a moment, and returns whether it did. A longer holder may be stuck in a
/// file-system call.
///
/// # Errors
/// The lock cannot be used.
pub fn if_soon_free(
    files: &dyn Files,
    lock: &Path,
    work: &mut dyn FnMut(Fence<'_>),
) -> Result<bool, FsError> {
    let mut pauses = Pauses::up_to(LONGEST_PAUSE);
    for _ in 0..MOST_LOOKS {
        if files.if_free(lock, work)? {
            return Ok(true);
        }
        pauses.wait(files);
    }
    Ok(false)
}

/// The process holds this name, below the prefix's `.scr`.
const LOCK: &str = "finalize.lock";
/// Together these are most of a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
const MOST_LOOKS: u32 = 50;
