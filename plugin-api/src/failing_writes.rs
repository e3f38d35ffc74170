//! Writes that the system would answer with a signal that ends the process.
//!
//! | signal | a write |
//! |---|---|
//! | SIGXFSZ | past the limit of the process on the size of its files (`ulimit -f`, and batch systems) |
//! | SIGPIPE | to a pipe that nobody reads, such as a standard output that ends early |
//!
//! If the signal is blocked, the write is an error. scr writes files that are larger than the application's own, for instance
//! redundancy and containers, so a limit that the application keeps may be too low for it.

use rustix::io::Errno;
use rustix::process::{getrlimit, Resource};
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

/// As long as this lives, no write ends the process, in this thread and in those that it starts.
///
/// Afterwards the application finds its signals as it has left them. A child that the standard library starts gets no signal
/// blocked.
#[must_use]
#[derive(Debug)]
pub struct WritesFail {
    blocked_before: [bool; 2],
    pending_before: [bool; 2],
    _of_this_thread: PhantomData<*const ()>,
}

const SIGNALS: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

impl WritesFail {
    /// Blocks the signals.
    pub fn begin() -> Self {
        let both = set_of(SIGNALS.into_iter());
        // SAFETY: both sets live until the call has ended; only the mask of this thread changes.
        let block = |before| unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const both, before) };
        Self { blocked_before: which(block), pending_before: pending(), _of_this_thread: PhantomData }
    }
}

impl Drop for WritesFail {
    fn drop(&mut self) {
        let sent = SIGNALS.into_iter().zip(pending()).zip(self.pending_before);
        for ((signal, _), _) in sent.filter(|((_, is_pending), was_pending)| *is_pending && !was_pending) {
            let (set, at_once) = (set_of([signal].into_iter()), libc::timespec { tv_sec: 0, tv_nsec: 0 });
            // SAFETY: the set and the time live until the call has ended; nothing is asked about the signal.
            unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) };
        }
        let ours = SIGNALS.into_iter().zip(self.blocked_before).filter(|(_, was_blocked)| !was_blocked);
        let set = set_of(ours.map(|(signal, _)| signal));
        // SAFETY: the set lives until the call has ended; the former mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
    }
}

fn pending() -> [bool; 2] {
    // SAFETY: the set lives until the call has ended.
    which(|set| unsafe { libc::sigpending(set) })
}

/// Which of the signals are in the set that `fill` fills, which gives 0 if it has.
fn which(fill: impl FnOnce(*mut libc::sigset_t) -> libc::c_int) -> [bool; 2] {
    let mut set = set_of(std::iter::empty());
    let is_filled = fill(&raw mut set) == 0;
    // SAFETY: the set was initialised when it was made.
    SIGNALS.map(|signal| is_filled && unsafe { libc::sigismember(&raw const set, signal) } == 1)
}

fn set_of(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set, and cannot fail; the numbers are those of signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        signals.for_each(|signal| _ = libc::sigaddset(set.as_mut_ptr(), signal));
        set.assume_init()
    }
}

/// The error of a file, with the limit where that is the reason.
pub fn with_limit(error: io::Error) -> io::Error {
    match getrlimit(Resource::Fsize).current {
        Some(most) if Errno::from_io_error(&error) == Some(Errno::FBIG) => {
            io::Error::other(TooLarge { most })
        }
        _ => error,
    }
}

/// A file would be larger than the process may make one.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process may write no file with more than {most} bytes; raise that limit before the job starts (ulimit -f, and for the \
     hard limit limits.conf or the batch system)"
)]
struct TooLarge {
    most: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::is_alone;
    use crate::Call;
    use rustix::process::{setrlimit, Rlimit};
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt;

    const NAME: &str = "failing_writes::tests::a_write_past_the_limit_is_an_error_that_names_the_limit";

    /// It ended the application.
    #[test]
    fn a_write_past_the_limit_is_an_error_that_names_the_limit() {
        // The limit is one of the process: another one, which runs this test alone, has the low one.
        let path = std::env::temp_dir().join(format!("scr-file-size.{}", std::process::id()));
        if !is_alone(NAME) {
            return;
        }
        let file = File::create(&path).unwrap();
        setrlimit(Resource::Fsize, Rlimit { current: Some(4096), ..getrlimit(Resource::Fsize) }).unwrap();
        let too_large = |file: &File| {
            for error in [file.write_all_at(&[1; 8192], 0).unwrap_err(), file.set_len(1 << 20).unwrap_err()] {
                let text = with_limit(error).to_string();
                assert!(
                    text.starts_with("this process may write no file with more than 4096 bytes"),
                    "{text}"
                );
            }
        };
        {
            let _call = Call::begin();
            drop(Call::begin());
            too_large(&file);
            std::thread::scope(|scope| scope.spawn(|| too_large(&file)).join().unwrap());
            assert!(pending()[0]);
        }
        assert!(!pending()[0], "the application gets a signal that is not its own");
        // SAFETY: the set lives until the call has ended, and no mask is given.
        let blocked = which(|mask| unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask) });
        assert_eq!(blocked, [false; 2]);
        {
            let _application = WritesFail::begin();
            too_large(&file);
            drop(Call::begin());
            assert!(pending()[0], "this one is its own");
        }
        std::fs::remove_file(path).unwrap();
    }

    const OF_PIPES: &str = "failing_writes::tests::a_write_to_a_pipe_that_nobody_reads_is_an_error";

    /// It ended the application: `srun ... | head`.
    #[test]
    fn a_write_to_a_pipe_that_nobody_reads_is_an_error() {
        // Programs in Rust ignore the signal: another process gives it back its meaning.
        if !is_alone(OF_PIPES) {
            return;
        }
        // SAFETY: the default action is no function.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        {
            let _call = Call::begin();
            let (reader, mut writer) = std::io::pipe().unwrap();
            drop(reader);
            assert_eq!(writer.write_all(b"a line").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert!(pending()[1]);
        }
        assert!(!pending()[1], "the application gets a signal that is not its own");
    }
}
