//! The lock of the process that marks, closes or takes back flushes below a prefix directory, or deletes there.

use super::pauses::Pauses;
use scr_base::fs::{Files, FsError};
use scr_prefix::ledger::Fence;
use scr_prefix::Prefix;
use std::path::Path;
use std::time::Duration;

/// Does `work` unless another process takes its time to mark, end or take back a flush below this prefix.
pub(crate) fn try_alone<R>(
    files: &dyn Files,
    prefix: &Prefix,
    work: impl FnOnce(Fence<'_>) -> R,
) -> Result<Option<R>, FsError> {
    let (mut work, mut value) = (Some(work), None);
    let mut once = |fence: Fence<'_>| value = work.take().map(|work| work(fence));
    if_soon_free(files, &prefix.scr_file(LOCK), &mut once)?;
    Ok(value)
}

/// Does `work` if a lock is free within a moment, and returns whether it did. A longer holder may be stuck in a
/// file-system call.
pub(crate) fn if_soon_free(
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

/// Does `work` while no other process marks, closes or rolls back a flush below this prefix.
pub(crate) fn alone<R>(
    files: &dyn Files,
    prefix: &Prefix,
    work: impl FnOnce(Fence<'_>) -> R,
) -> Result<R, FsError> {
    Ok(files.exclusively_for_long(&prefix.scr_file(LOCK), work)?.value)
}

/// The process holds this name, below the prefix's `.scr`.
const LOCK: &str = "finalize.lock";
/// Together these are most of a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
const MOST_LOOKS: u32 = 50;
