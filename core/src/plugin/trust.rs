//! Nobody but root, the user and the owner of the installation may write what we load.
//!
//! Looked at is the file itself and the folder that it really lies in, after symbolic links. Folders further up
//! need no look: who can rename them can only put another tree in the way, and what lies in that must again
//! belong to one of the three, and be writable by nobody else.

use crate::env::Env;
use crate::fs::{Files, Status};
use std::path::{Path, PathBuf};

/// Whose files may be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    uids: Vec<u32>,
}

/// Why a file or folder is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// It belongs to somebody else.
    #[error("{} belongs to user {uid}, who is neither root nor you nor the owner of the installation; copy it to a folder of yours", path.display())]
    Owner {
        /// What.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may write it.
    #[error("{} may be written by others (mode {:04o}); run chmod go-w on it", path.display(), mode & 0o7777)]
    Mode {
        /// What.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

impl Trusted {
    /// Root, the user, and the owner of the installation: who could replace the runtime itself as well.
    pub fn by(env: &Env) -> Self {
        let owner =
            env.install_dir.as_ref().and_then(|dir| env.files.status(dir).ok()).map(|status| status.uid);
        Self { uids: [Some(0), Some(env.uid), owner].into_iter().flatten().collect() }
    }

    /// Checks what is known of a path.
    ///
    /// # Errors
    /// [`Distrust`].
    pub fn check(&self, path: &Path, status: &Status) -> Result<(), Distrust> {
        if !self.uids.contains(&status.uid) {
            return Err(Distrust::Owner { path: path.to_owned(), uid: status.uid });
        }
        if status.mode & OTHERS_WRITE != 0 {
            return Err(Distrust::Mode { path: path.to_owned(), mode: status.mode });
        }
        Ok(())
    }

    /// Checks the folder that the file at `real`, a path without links, lies in.
    pub(super) fn check_folder_of(&self, files: &dyn Files, real: &Path) -> Result<(), TrustError> {
        let folder = real.parent().unwrap_or(Path::new("/"));
        let status = files.status(folder).map_err(TrustError::Unreadable)?;
        Ok(self.check(folder, &status)?)
    }
}

/// Writing by the group or by everybody.
const OTHERS_WRITE: u32 = 0o022;

/// Either it is not trusted, or that cannot be found out.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error(transparent)]
    Distrust(#[from] Distrust),
    #[error("cannot look at the folder: {0}")]
    Unreadable(std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Kind;

    fn status(uid: u32, mode: u32) -> Status {
        let times = (0, 0);
        let (atime, ctime, mtime) = (times, times, times);
        Status {
            kind: Kind::File,
            len: 1,
            mode,
            uid,
            gid: 7,
            atime,
            ctime,
            mtime,
            identity: (1, 1),
            links: 1,
        }
    }

    fn verdict(uid: u32, mode: u32) -> Result<(), Distrust> {
        Trusted { uids: vec![0, 1000] }.check(Path::new("/p/libscr_a.so"), &status(uid, mode))
    }

    #[test]
    fn roots_and_the_users_own_files_are_trusted_unless_others_may_write_them() {
        for mode in [0o100644, 0o100755, 0o100600, 0o40755] {
            assert_eq!((verdict(0, mode), verdict(1000, mode)), (Ok(()), Ok(())));
        }
        for mode in [0o100666, 0o100664, 0o41777, 0o40775] {
            assert!(verdict(0, mode).is_err() && verdict(1000, mode).is_err(), "{mode:o}");
        }
    }

    #[test]
    fn the_message_says_what_is_wrong_and_what_to_do() {
        let text = verdict(1000, 0o100666).unwrap_err().to_string();
        assert_eq!(text, "/p/libscr_a.so may be written by others (mode 0666); run chmod go-w on it");
        let text = verdict(4711, 0o100644).unwrap_err().to_string();
        assert!(
            text.starts_with("/p/libscr_a.so belongs to user 4711, who is neither root nor you"),
            "{text}"
        );
    }
}
