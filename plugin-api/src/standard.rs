//! The numbers 0, 1 and 2 are never files of scr.
//!
//! An application, or who started it, may have closed one of them. The system gives the lowest free number to what is opened next,
//! and what the application prints goes to that number. If it were a file or a socket of scr, the text would stand in there.

use crate::handle::{Call, Handle};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{fcntl_dupfd_cloexec, fcntl_getfd};
use std::io;
use std::os::fd::{IntoRawFd, RawFd};

/// The lowest number that is no standard stream.
const FIRST: RawFd = 3;

/// Does what opens something, with no number below 3 free meanwhile.
///
/// So what is opened never has such a number, not even for a moment in which another thread prints, and a child that is started
/// gets the streams that it was given. A whole [`Call`] is such a time, whatever opens something in it; this is for
/// threads of scr, which run between calls. If two of them open at the same moment, one may find the number free that the other
/// gives back: then it is the [`Handle`] that moves.
pub fn above_standard<T>(open: impl FnOnce() -> T) -> T {
    let _held = (!Call::is_under_way()).then(Held::begin);
    open()
}

/// The numbers below 3 that were free.
///
/// What holds them can be neither read nor written, as if they were closed. They are free again afterwards, since the application
/// may want one of them for a file of its own.
#[derive(Debug)]
pub(crate) struct Held(
    #[expect(dead_code, reason = "they are open as long as this lives")] Vec<Handle<OwnedFd>>,
);

impl Held {
    pub(crate) fn begin() -> Self {
        let mut held = Vec::new();
        while is_one_closed() {
            match rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(place) if is_standard(place.as_fd()) => match Handle::where_it_is(place) {
                    Ok(place) => held.push(place),
                    Err(_) => break,
                },
                // Another thread was faster, or no more may be open.
                _ => break,
            }
        }
        Self(held)
    }
}

/// What was opened, with a number that is no standard stream's.
pub(crate) fn raised<T: AsFd + IntoRawFd + From<OwnedFd>>(file: T) -> io::Result<T> {
    if is_standard(file.as_fd()) {
        return Ok(fcntl_dupfd_cloexec(&file, FIRST)?.into());
    }
    Ok(file)
}

fn is_standard(file: BorrowedFd<'_>) -> bool {
    file.as_raw_fd() < FIRST
}

fn is_one_closed() -> bool {
    use rustix::stdio::{stderr, stdin, stdout};
    [stdin(), stdout(), stderr()].iter().any(|stream| fcntl_getfd(stream).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::is_alone;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixDatagram;
    use std::process::{Command, Stdio};

    const NAME: &str = "standard::tests::what_is_opened_while_streams_are_closed_takes_none_of_their_numbers";

    fn is_above<T: AsFd + IntoRawFd + From<OwnedFd>>(opened: T) {
        assert!(is_standard(opened.as_fd()), "the system gives the lowest number");
        let handle = Handle::new(opened).unwrap();
        assert!(!is_standard(handle.get().unwrap().as_fd()));
    }

    /// What the application printed stood in files of scr.
    #[test]
    fn what_is_opened_while_streams_are_closed_takes_none_of_their_numbers() {
        // The streams are those of the process: another one, which runs this test alone, closes them.
        if !is_alone(NAME) {
            return;
        }
        for number in [0, 2] {
            // SAFETY: nothing owns them.
            unsafe { rustix::io::close(number) };
        }
        is_above(File::open("/proc/self/exe").unwrap());
        is_above(TcpListener::bind(("127.0.0.1", 0)).unwrap());
        is_above(UnixDatagram::unbound().unwrap());
        is_above(std::io::pipe().unwrap().1);
        let (other, number) = above_standard(|| {
            let other = File::open("/").unwrap();
            // What the application prints meanwhile goes nowhere.
            assert!(rustix::io::write(rustix::stdio::stderr(), b"lost").is_err());
            let number = other.as_raw_fd();
            (other, number)
        });
        assert!(number >= FIRST);
        {
            let _call = Call::begin();
            let theirs = File::open("/").unwrap();
            assert!(!is_standard(theirs.as_fd()), "another library opened it");
        }
        assert_eq!(
            [rustix::stdio::stdin(), rustix::stdio::stderr()].map(|at| fcntl_getfd(at).is_err()),
            [true; 2]
        );
        drop(other);
        let mut sh = Command::new("sh");
        sh.args(["-c", "cat; echo said >&2"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = above_standard(|| sh.spawn()).unwrap();
        child.stdin.take().unwrap().write_all(b"heard").unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((out.as_str(), err.as_str()), ("heard", "said\n"));
        child.wait().unwrap();
    }
}
