//! Locks stay with the process that took them.
//!
//! A lock of the system belongs to the open file, and a child of a fork has that file open too until it executes a program. A child
//! that outlives its parent would keep the lock, and everybody would take the dead parent for a running one. So the system calls
//! a function of this module in each child, which gives up the files with locks there.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::Once;

/// The descriptors of files that this process may have locked. In a child no lock may be waited for, so there is no list.
static LOCKED: [AtomicI32; MOST_LOCKED] = [const { AtomicI32::new(NONE) }; MOST_LOCKED];

/// A child keeps the locks of further files.
const MOST_LOCKED: usize = 1024;
const NONE: i32 = -1;

/// Lets the children of this process give up a file. It must be [forgotten](forget) before it is closed.
pub(super) fn keep(file: BorrowedFd<'_>) {
    static REGISTERED: Once = Once::new();
    // SAFETY: `give_up` may run in the child of a process with several threads: it calls only functions that may be called by
    // handlers of signals, and touches no memory but atomic numbers. The function stays where it is as long as the library does,
    // and the system forgets it when the library is unloaded.
    REGISTERED.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(give_up)) });
    replace(NONE, file.as_raw_fd());
}

/// The file is about to be closed, and its number will be that of another one.
pub(super) fn forget(file: BorrowedFd<'_>) {
    replace(file.as_raw_fd(), NONE);
}

fn replace(old: i32, new: i32) {
    let is_replaced =
        |place: &AtomicI32| place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let _ = LOCKED.iter().any(is_replaced);
}

/// Runs in a child. The descriptors stay valid, for a file that does nothing.
extern "C" fn give_up() {
    // SAFETY: each call gets a string that ends with a NUL byte, or numbers. The numbers that are replaced belong to files of this
    // module's users, who may go on to use them: every use then fails, or has no effect.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for file in LOCKED.iter().map(|place| place.swap(NONE, Ordering::AcqRel)).filter(|&file| file != NONE)
        {
            libc::dup3(null, file, libc::O_CLOEXEC);
        }
        libc::close(null);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make real files")]
mod tests {
    use super::super::{Files, How, RealFiles};
    use crate::fs::LockAttempt;
    use std::io::Write;

    /// The next run was told of another job in its prefix directory, which was dead.
    #[test]
    fn a_child_that_outlives_its_parent_keeps_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || RealFiles.open(&path, How::Ensure(0o600)).unwrap();
        let closed = open();
        assert!(closed.try_lock() == LockAttempt::Taken);
        drop(closed);
        let (of_child, mut of_parent) = std::io::pipe().unwrap();
        let held = open();
        assert!(held.try_lock() == LockAttempt::Taken && held.try_lock() == LockAttempt::Taken);
        // SAFETY: the child calls only functions that may be called by handlers of signals.
        let child = match unsafe { libc::fork() } {
            0 => {
                let mut byte = 0_u8;
                // SAFETY: the memory is a byte of the child's own, which lives until the last call, and no other code of the child
                // uses the descriptor that is closed.
                unsafe {
                    // The other end is that of the parent alone: its end ends the child too.
                    libc::close(std::os::fd::AsRawFd::as_raw_fd(&of_parent));
                    libc::read(std::os::fd::AsRawFd::as_raw_fd(&of_child), (&raw mut byte).cast(), 1);
                    libc::_exit(0);
                }
            }
            child => child,
        };
        assert!(child > 0);
        assert!(open().try_lock() != LockAttempt::Taken, "the parent keeps it");
        drop(held);
        crate::testing::wait_until(|| open().try_lock() == LockAttempt::Taken);
        of_parent.write_all(b"!").unwrap();
        // SAFETY: only numbers are passed, and no status is wanted.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }
}
