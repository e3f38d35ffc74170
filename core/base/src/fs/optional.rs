//! What scr does without where a file system, or its administrator, refuses it. One table says what each operation is for, and
//! what stands in for it. Where a file can get no second name, a lock of the system stands in for the one that takes it, and says so
//! itself.

use rustix::io::Errno;
use std::io;

/// An operation that may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Optional {
    /// To sync the names in a folder.
    SyncFolder,
    /// To set the times of a file.
    SetTimes,
}

impl Optional {
    /// What it is called, and what stands in for it.
    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::SyncFolder => {
                ("sync a folder", "names in it are as safe as the file system keeps them by itself")
            }
            Self::SetTimes => {
                ("set the times of", "copies have the time when they were copied; set SCR_COPY_METADATA=0")
            }
        }
    }

    /// Whether this answer, which stays, is a reason to do without. Times are worth no file.
    pub(super) fn is_refused(self, error: &io::Error) -> bool {
        match self {
            Self::SyncFolder => is_refusal(error),
            Self::SetTimes => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// For the user, once.
    pub(super) fn note(self, path: &std::path::Path, error: &io::Error) -> String {
        let (doing, instead) = self.row();
        format!("cannot {doing} {}: {error}: {instead}", path.display())
    }
}

/// Whether this answer refuses an operation for good: the next file gets the same one.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    use Errno as E;
    matches!(
        E::from_io_error(error),
        Some(E::PERM | E::ACCESS | E::INVAL | E::NOSYS | E::OPNOTSUPP | E::BADF)
    )
}

#[cfg(test)]
mod tests {
    use super::super::{How, RealFiles, Retrying};
    use crate::kit::faulty::{Failure, FaultyFiles, What};
    use std::sync::Arc;

    /// Only EINVAL was known for a folder, and no file could be flushed where times could not be set.
    #[test]
    fn what_a_file_system_refuses_for_good_is_done_without_and_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "1234").unwrap();
        for (what, numbers) in
            [(What::SyncDir, [1, 9, 13, 22, 38, 95]), (What::SetTimes, [1, 5, 13, 20, 39, 95])]
        {
            for number in numbers {
                let faulty = FaultyFiles::new(RealFiles);
                faulty.only(move |done, _| done == what);
                faulty.never_pause();
                faulty.fail_from(1, Failure::Number(number));
                let files = Retrying::around(Arc::new(faulty));
                for _ in 0..2 {
                    match what {
                        What::SyncDir => files.sync_dir(dir.path()).unwrap(),
                        _ => files.set_times(&path, (1, 0), (1, 0)).unwrap(),
                    }
                }
                let notes = files.take_notes();
                assert!(notes.len() == 1 && notes[0].contains("cannot s"), "{what:?} {number}: {notes:?}");
                assert!(files.take_notes().is_empty());
            }
        }
        let faulty = FaultyFiles::new(RealFiles);
        faulty.fail_from(1, Failure::Number(28));
        let files = Retrying::around(Arc::new(faulty));
        assert!(files.sync_dir(dir.path()).is_err(), "a full disk is an error");
        assert!(files.open(&path, How::Update).unwrap().sync().is_err());
    }
}
