//! The lock of the system on an open file: flock, unless the build says otherwise. Both kinds belong to the open file and
//! not to the process, so they hold between the ranks of one process too, and end with its last descriptor.

use crate::build::FILE_LOCK;
use nix::fcntl::{fcntl, FcntlArg};
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// The kind of locks of this build.
const KIND: Kind = Kind::named(FILE_LOCK);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flock,
    /// Those of fcntl, in the form that belongs to the open file.
    Fcntl,
    /// None: as on a file system that has no locks.
    None,
}

impl Kind {
    const fn named(name: Option<&str>) -> Self {
        match name {
            None => Kind::Flock,
            Some(name) => match name.as_bytes() {
                b"FLOCK" => Kind::Flock,
                b"FCNTL" => Kind::Fcntl,
                b"NONE" => Kind::None,
                _ => panic!("SCR_FILE_LOCK must be FLOCK, FCNTL or NONE"),
            },
        }
    }

    fn attempt(self, file: &File) -> io::Result<bool> {
        let done = match self {
            Kind::Flock => flock(file, FlockOperation::NonBlockingLockExclusive),
            Kind::Fcntl => whole(file),
            Kind::None => Err(Errno::NOLCK),
        };
        match done {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Takes the exclusive lock if nobody has it.
pub(super) fn attempt(file: &File) -> io::Result<bool> {
    KIND.attempt(file)
}

/// The whole file, however long it gets.
fn whole(file: &File) -> Result<(), Errno> {
    static WHOLE: libc::flock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&WHOLE))
        .map(drop)
        .map_err(|error| Errno::from_raw_os_error(error as i32))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make real files")]
mod tests {
    use super::*;
    use crate::testing::wait_until;

    #[test]
    fn one_of_two_has_the_lock_and_the_other_gets_it_after_it_even_in_one_process() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [Kind::Flock, Kind::Fcntl] {
            let path = folder.path().join(format!("{kind:?}"));
            let (first, second) = (File::create(&path).unwrap(), File::create(&path).unwrap());
            assert!(kind.attempt(&first).unwrap(), "{kind:?}");
            assert!(!kind.attempt(&second).unwrap(), "{kind:?}");
            drop(first);
            // A process that another test starts has the descriptor too, until it executes its program.
            wait_until(|| kind.attempt(&second).unwrap());
        }
    }

    #[test]
    fn a_build_without_locks_looks_like_a_file_system_without_them() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Errno::from_io_error(&Kind::None.attempt(&file).unwrap_err()), Some(Errno::NOLCK));
    }

    #[test]
    fn the_build_names_the_kind_as_c_scr_does() {
        let kinds = [None, Some("FLOCK"), Some("FCNTL"), Some("NONE")].map(Kind::named);
        assert_eq!(kinds, [Kind::Flock, Kind::Flock, Kind::Fcntl, Kind::None]);
    }
}
