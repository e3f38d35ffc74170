//! What scr does without where a file system, or its administrator, refuses it. One table says what each operation is for, and
//! what stands in for it.

use rustix::io::Errno;
use std::io;

/// An operation that may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Optional {
    /// To sync the names in a folder.
    SyncFolder,
    /// To set the times of a file.
    SetTimes,
    /// To give a file a second name, which takes a lock.
    SecondName,
}

impl Optional {
    /// What it is called, and what stands in for it. A lock without second names says that itself.
    fn row(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::SyncFolder => {
                ("sync a folder", Some("names in it are as safe as the file system keeps them by itself"))
            }
            Self::SetTimes => (
                "set the times of",
                Some("copies have the time when they were copied; set SCR_COPY_METADATA=0"),
            ),
            Self::SecondName => ("give a second name to", None),
        }
    }

    /// Whether this answer refuses it for good: the next file gets the same one.
    pub(super) fn is_refused_by(self, error: &io::Error) -> bool {
        use Errno as E;
        let by_all = matches!(
            E::from_io_error(error),
            Some(E::PERM | E::ACCESS | E::INVAL | E::NOSYS | E::OPNOTSUPP | E::BADF)
        );
        let is_name = self == Self::SecondName;
        by_all || is_name && matches!(E::from_io_error(error), Some(E::MLINK | E::XDEV))
    }

    /// For the user, once.
    pub(super) fn note(self, path: &std::path::Path, error: &io::Error) -> Option<String> {
        let (doing, instead) = self.row();
        Some(format!("cannot {doing} {}: {error}: {}", path.display(), instead?))
    }
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
            [(What::SyncDir, [1, 9, 13, 22, 38, 95]), (What::SetTimes, [1, 13, 22, 38, 95, 95])]
        {
            for number in numbers {
                let faulty = FaultyFiles::new(RealFiles);
                faulty.only(move |done, _| done == what);
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
