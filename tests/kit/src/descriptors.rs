//! Helpers that unit tests of several modules share.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Waits until it holds, and fails after a minute.
pub fn wait_until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it has not come so far");
        std::thread::yield_now();
    }
}

/// The numbers under which this process has open what lies below a path.
pub fn open_below(path: &Path) -> Vec<RawFd> {
    let below = path.canonicalize().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_below = |link: PathBuf| link.starts_with(&below);
    let ours = open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_below));
    ours.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// Does what an application does that closes a file of scr and opens one of its own: the number stands for that then.
pub fn give_away(number: RawFd, to: impl AsFd) {
    // SAFETY: only numbers are passed. Who owns the first one is to notice that.
    assert_eq!(unsafe { libc::dup3(to.as_fd().as_raw_fd(), number, libc::O_CLOEXEC) }, number);
}

/// Whether a number stands for what lies at a path. It is closed then, as the application would.
pub fn closes(number: RawFd, path: &Path) -> bool {
    let is_open = std::fs::read_link(format!("/proc/self/fd/{number}"))
        .is_ok_and(|link| link == path.canonicalize().unwrap());
    // SAFETY: nothing owns the number, since it was given away.
    is_open && unsafe { libc::close(number) } == 0
}
