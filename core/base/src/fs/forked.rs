//! Locks stay with the process that took them.
//!
//! A lock of the system belongs to the open file, and a child of a fork has that file open too until it executes a program. A
//! child that outlives its parent would keep the lock, and everybody would take the dead parent for a running one. So the system
//! calls a function of this module in each child, which gives up the files with locks there.

use rustix::fs::fstat;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::Once;

/// The files that this process may have locked. In a child no lock may be waited for, so there is no list.
static LOCKED: [Place; MOST_LOCKED] = [const { Place::empty() }; MOST_LOCKED];

/// A child keeps the locks of further files.
const MOST_LOCKED: usize = 1024;
const NONE: i32 = -1;

/// A place for a file: its number, and device and inode, since the application may have closed it and got the number.
struct Place {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

/// That the children of this process give up a file. To be dropped before the file is closed.
pub(super) struct GivenUp(Option<&'static Place>);

/// Lets the children of this process give up a file.
pub(super) fn give_up(file: BorrowedFd<'_>) -> GivenUp {
    static REGISTERED: Once = Once::new();
    // SAFETY: `in_child` may run in the child of a process with several threads: it calls only functions that may be called by
    // handlers of signals, and touches no memory but atomic numbers and its own. The function stays where it is as long as the
    // library does, and the system forgets it when the library is unloaded.
    REGISTERED.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
    let Ok(found) = fstat(file) else { return GivenUp(None) };
    let place = LOCKED.iter().find(|place| place.reserve());
    if let Some(place) = place {
        place.device.store(found.st_dev, Ordering::Relaxed);
        place.inode.store(found.st_ino, Ordering::Relaxed);
        place.number.store(file.as_raw_fd(), Ordering::Release);
    }
    GivenUp(place)
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.number.store(NONE, Ordering::Release);
        }
    }
}

impl Place {
    const fn empty() -> Self {
        Self { number: AtomicI32::new(NONE), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    /// Whether it was free, and is no longer.
    fn reserve(&self) -> bool {
        self.number.compare_exchange(NONE, RESERVED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A place whose file is just being written into it.
const RESERVED: i32 = -2;

/// Runs in a child. The descriptors stay valid, for a file that does nothing.
extern "C" fn in_child() {
    // SAFETY: each call gets a string that ends with a NUL byte, memory for what it writes, or numbers. The numbers that are
    // replaced belong to files of this module's users, who may go on to use them: every use then fails, or has no effect.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for place in &LOCKED {
            let number = place.number.swap(RESERVED, Ordering::AcqRel);
            let mut found = MaybeUninit::<libc::stat>::zeroed();
            if number < 0 || libc::fstat(number, found.as_mut_ptr()) != 0 {
                continue;
            }
            let found = found.assume_init();
            let known = (place.device.load(Ordering::Relaxed), place.inode.load(Ordering::Relaxed));
            if known == (found.st_dev, found.st_ino) {
                libc::dup3(null, number, libc::O_CLOEXEC);
            }
        }
        libc::close(null);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests make real files")]

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
        // A process that another test starts has the closed descriptor too, until it executes its program.
        crate::kit::descriptors::wait_until(|| held.try_lock() == LockAttempt::Taken);
        assert!(held.try_lock() == LockAttempt::Taken);
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
        crate::kit::descriptors::wait_until(|| open().try_lock() == LockAttempt::Taken);
        of_parent.write_all(b"!").unwrap();
        // SAFETY: only numbers are passed, and no status is wanted.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }

    /// The child of an application found its file to be /dev/null.
    #[test]
    fn a_child_keeps_a_file_of_the_application_that_has_the_number_of_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("theirs");
        let lock = RealFiles.open(&dir.path().join("lock"), How::Ensure(0o600)).unwrap();
        assert!(lock.try_lock() == LockAttempt::Taken);
        let number = std::os::fd::AsRawFd::as_raw_fd(&lock.descriptor().unwrap());
        crate::kit::descriptors::give_away(number, std::fs::File::create(&path).unwrap());
        // SAFETY: the child calls only functions that may be called by handlers of signals.
        let child = match unsafe { libc::fork() } {
            // SAFETY: the bytes live for ever, and the process ends here.
            0 => unsafe {
                libc::write(number, b"child".as_ptr().cast(), 5);
                libc::_exit(0);
            },
            child => child,
        };
        // SAFETY: only numbers are passed, and no status is wanted.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        assert_eq!(std::fs::read(&path).unwrap(), b"child");
        drop(lock);
        assert!(crate::kit::descriptors::closes(number, &path));
    }
}
