//! Locks that stay open after a panic of a thread that has held them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is under a lock. Only for what no panic can leave half changed.
pub fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
