//! Errors of the system that may pass, and how long to wait for that. Host and plugins follow this one rule.
//!
//! A network file system that has lost its server for a moment answers with any number: each has its own. So the rule lists
//! the *definite* answers, which say something about the file, the user, or what was asked. Any other answer, and any number
//! that nobody knows, says something about the way to the file, which may be free again a moment later.

use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// The answers that stay what they are, however often one asks.
const DEFINITE: [Errno; 26] = [
    // It is not there, or it is.
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::NODEV,
    Errno::NXIO,
    // This user may not.
    Errno::PERM,
    Errno::ACCESS,
    Errno::ROFS,
    // There is no room.
    Errno::NOSPC,
    Errno::DQUOT,
    Errno::FBIG,
    Errno::MLINK,
    Errno::NOMEM,
    Errno::MFILE,
    Errno::NFILE,
    // It is something else.
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::LOOP,
    Errno::XDEV,
    Errno::SPIPE,
    // Nobody can do that.
    Errno::NAMETOOLONG,
    Errno::OVERFLOW,
    Errno::NOSYS,
    Errno::OPNOTSUPP,
    Errno::NOTTY,
    Errno::INVAL,
];

/// Before the second, the third and the fourth try.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];

/// Whether the same may succeed a moment later. An error without a number is not the system's: it stays, unless time ran out.
pub fn may_pass(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(number) => DEFINITE.iter().all(|definite| definite.raw_os_error() != number),
        None => error.kind() == io::ErrorKind::TimedOut,
    }
}

/// Does something again, after a pause, as long as it fails with an error that may pass: four times at most.
///
/// # Errors
/// Those of `work`: the first that stays, or the one of the last try.
pub fn repeat<T, E>(
    may_pass: impl Fn(&E) -> bool,
    mut pause: impl FnMut(Duration),
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for time in PAUSES {
        match work() {
            Err(error) if may_pass(&error) => pause(time),
            other => return other,
        }
    }
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_about_the_file_itself_stays() {
        let passes = |number| may_pass(&io::Error::from_raw_os_error(number));
        // EIO, EAGAIN, EINTR, EBUSY, ENOTCONN, ESHUTDOWN, ETIMEDOUT, EHOSTDOWN, ESTALE, EREMOTEIO, ECOMM; then some without a name.
        // A client of NFS gives EBADF for an open file that it could not recover; a new one works.
        for number in [9, 5, 11, 4, 16, 107, 108, 110, 112, 116, 121, 70, 523, 4095] {
            assert!(passes(number), "{number}");
        }
        for number in [1, 2, 12, 13, 17, 20, 21, 22, 24, 28, 30, 36, 38, 39, 40, 95, 122] {
            assert!(!passes(number), "{number}");
        }
        assert!(may_pass(&io::ErrorKind::TimedOut.into()) && !may_pass(&io::ErrorKind::InvalidData.into()));
    }

    #[test]
    fn what_may_pass_is_tried_four_times() {
        let tried = |number: i32, fails: u32| {
            let (mut tries, mut pauses) = (0, Vec::new());
            let done = repeat(
                may_pass,
                |time| pauses.push(time),
                || {
                    tries += 1;
                    if tries > fails {
                        Ok(())
                    } else {
                        Err(io::Error::from_raw_os_error(number))
                    }
                },
            );
            assert_eq!(pauses, PAUSES[..pauses.len()]);
            (tries, done.is_ok())
        };
        assert_eq!([tried(108, 0), tried(108, 3), tried(108, 4)], [(1, true), (4, true), (4, false)]);
        assert_eq!(tried(2, 1), (1, false));
    }
}
