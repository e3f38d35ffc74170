//! The lock of the system on an open file: flock, unless the build says otherwise. Both kinds belong to the open file and
//! not to the process, so they hold between the ranks of one process too, and end with its last descriptor.
#![expect(clippy::disallowed_types, reason = "it opens nothing")]

use super::{File, Status};
use crate::build::FILE_LOCK;
use nix::fcntl::{fcntl, FcntlArg};
use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use scr_plugin_api::uninterrupted;
use std::fs;
use std::io::{self, ErrorKind};

/// The answer to an attempt to take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockAttempt {
    /// It is held now, until the file is closed.
    Taken,
    /// Somebody else has it.
    Held,
    /// This file system has no locks, or none for a file that is open like this one.
    NoLocks,
}

impl LockAttempt {
    /// File systems say in many ways that they have no locks: Cray DVS with an error that has no name. Only one answer says that
    /// somebody has the lock.
    pub fn of(done: io::Result<()>) -> Self {
        match done {
            Ok(()) => Self::Taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Self::Held,
            Err(_) => Self::NoLocks,
        }
    }
}

/// The kind of locks of this build.
pub(super) const KIND: Kind = Kind::named(FILE_LOCK);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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

    /// Takes the exclusive lock if nobody has it.
    pub(super) fn attempt(self, file: &fs::File) -> LockAttempt {
        LockAttempt::of(uninterrupted(|| match self {
            Kind::Flock => Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?),
            // It may say that somebody has the lock in another way, by which flock says that nobody can have it.
            Kind::Fcntl => {
                Ok(whole(file)
                    .map_err(|error| if error == Errno::ACCESS { Errno::WOULDBLOCK } else { error })?)
            }
            Kind::None => Err(Errno::NOLCK.into()),
        }))
    }
}

/// The permission bits of a new file that processes lock, less those of the umask; see [`keep_from_readers`].
pub const LOCKABLE: u32 = 0o622;

/// Lets only those read a file who may also write it. A process that can open a file can keep its lock, and everybody would wait
/// for another user who may only read.
pub fn keep_from_readers(file: &dyn File, status: &Status) {
    let mode = status.mode & 0o777;
    let writers = mode & 0o022;
    let wanted = mode & 0o700 | writers | writers << 1;
    if mode != wanted {
        // Only the owner may change it.
        let _ = file.set_mode(wanted);
    }
}

/// The whole file, however long it gets.
fn whole(file: &fs::File) -> Result<(), Errno> {
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
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests make real files")]

    use super::super::{Files, How, RealFiles};
    use super::*;
    use crate::kit::descriptors::wait_until;
    use std::fs::File;

    #[test]
    fn one_of_two_has_the_lock_and_the_other_gets_it_after_it_even_in_one_process() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [Kind::Flock, Kind::Fcntl] {
            let path = folder.path().join(format!("{kind:?}"));
            let (first, second) = (File::create(&path).unwrap(), File::create(&path).unwrap());
            assert_eq!(kind.attempt(&first), LockAttempt::Taken, "{kind:?}");
            assert_eq!(kind.attempt(&second), LockAttempt::Held, "{kind:?}");
            drop(first);
            // A process that another test starts has the descriptor too, until it executes its program.
            wait_until(|| kind.attempt(&second) == LockAttempt::Taken);
        }
    }

    #[test]
    fn only_those_who_may_write_a_file_may_open_it_to_lock_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        for (before, after) in
            [(0o644, 0o600), (0o622, 0o666), (0o620, 0o660), (0o664, 0o660), (0o600, 0o600)]
        {
            let file = RealFiles.open(&path, How::Ensure(LOCKABLE)).unwrap();
            file.set_mode(before).unwrap();
            keep_from_readers(&*file, &file.status().unwrap());
            assert_eq!(file.status().unwrap().mode & 0o777, after, "{before:o}");
        }
    }

    #[test]
    fn a_build_without_locks_looks_like_a_file_system_without_them() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Kind::None.attempt(&file), LockAttempt::NoLocks);
    }

    /// `scr halt` failed, a finished job was started again, and each checkpoint gave an error.
    #[test]
    fn every_answer_but_that_somebody_has_the_lock_says_that_there_are_none() {
        const OF_DVS: i32 = 524;
        let answers = [
            Errno::INVAL,
            Errno::PERM,
            Errno::NOSYS,
            Errno::OPNOTSUPP,
            Errno::BADF,
            Errno::IO,
            Errno::ACCESS,
        ];
        for answer in answers.into_iter().chain([Errno::from_raw_os_error(OF_DVS)]) {
            assert_eq!(LockAttempt::of(Err(answer.into())), LockAttempt::NoLocks, "{answer}");
        }
        assert_eq!(LockAttempt::of(Err(Errno::WOULDBLOCK.into())), LockAttempt::Held);
    }

    #[test]
    fn the_build_names_the_kind_as_c_scr_does() {
        let kinds = [None, Some("FLOCK"), Some("FCNTL"), Some("NONE")].map(Kind::named);
        assert_eq!(kinds, [Kind::Flock, Kind::Flock, Kind::Fcntl, Kind::None]);
    }
}
