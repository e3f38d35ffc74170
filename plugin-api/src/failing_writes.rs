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
    ours: [Option<libc::c_int>; 2],
    pending: [bool; 2],
    _of_this_thread: PhantomData<*const ()>,
}

const SIGNALS: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

impl WritesFail {
    /// Blocks the signals.
    pub fn begin() -> Self {
        let ours = SIGNALS.map(|signal| (!block(signal)).then_some(signal));
        Self { ours, pending: SIGNALS.map(is_pending), _of_this_thread: PhantomData }
    }
}

impl Drop for WritesFail {
    fn drop(&mut self) {
        for (signal, was_pending) in SIGNALS.into_iter().zip(self.pending) {
            let set = only(signal);
            if !was_pending && is_pending(signal) {
                let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: the set and the time live until the call has ended; nothing is asked about the signal.
                unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) };
            }
            if self.ours.contains(&Some(signal)) {
                // SAFETY: the set lives until the call has ended; the former mask is not asked for.
                unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
            }
        }
    }
}

/// Gives whether it was blocked before.
fn block(signal: libc::c_int) -> bool {
    let set = only(signal);
    // SAFETY: both sets live until the call has ended; only the mask of this thread changes.
    fills_with(signal, |before| unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before) })
}

fn is_pending(signal: libc::c_int) -> bool {
    // SAFETY: the set lives until the call has ended.
    fills_with(signal, |pending| unsafe { libc::sigpending(pending) })
}

/// Whether a signal is in the set that `fill` fills, which gives 0 if it has.
fn fills_with(signal: libc::c_int, fill: impl FnOnce(*mut libc::sigset_t) -> libc::c_int) -> bool {
    let mut set = no_signal();
    // SAFETY: the set was initialised when it was made.
    fill(&raw mut set) == 0 && unsafe { libc::sigismember(&raw const set, signal) } == 1
}

fn only(signal: libc::c_int) -> libc::sigset_t {
    let mut set = no_signal();
    // SAFETY: the set is initialised, and the number is that of a signal.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    set
}

fn no_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call initialises the set, and cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
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
            assert!(is_pending(libc::SIGXFSZ));
        }
        assert!(!is_pending(libc::SIGXFSZ), "the application gets a signal that is not its own");
        assert!(!fills_with(libc::SIGXFSZ, |mask| unsafe {
            // SAFETY: the set lives until the call has ended, and no mask is given.
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask)
        }));
        {
            let _application = WritesFail::begin();
            too_large(&file);
            drop(Call::begin());
            assert!(is_pending(libc::SIGXFSZ), "this one is its own");
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
            assert!(is_pending(libc::SIGPIPE));
        }
        assert!(!is_pending(libc::SIGPIPE), "the application gets a signal that is not its own");
    }
}
