//! The users whose files this process trusts: those of root, of the user and of the owner of the installation, where nobody else
//! can change them. A program with more rights than its user does not trust that user.

use super::Env;
use crate::ensure;
use crate::fs::{is_unmapped, Kind, Status, UNMAPPED};
use std::path::{Path, PathBuf};

/// The users whose files are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    uids: Vec<u32>,
}

/// Why a file or folder is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// It belongs to somebody else.
    #[error(
        "{} belongs to user {uid}, who is neither root nor you nor the owner of the installation; {}", path.display(),
        if is_unmapped(*uid) { UNMAPPED } else { "copy it to a folder of yours" }
    )]
    Owner { path: PathBuf, uid: u32 },
    /// Others may write it.
    #[error("{} may be written by others (mode {:04o}); run chmod go-w on it", path.display(), mode & 0o7777)]
    Mode { path: PathBuf, mode: u32 },
}

impl Trusted {
    /// Root, the user, and the owner of the installation: each could replace the runtime itself as well. If the program has more
    /// rights than its user, that user could not and is not trusted.
    pub fn by(env: &Env) -> Self {
        let user = (!env.is_privileged).then_some(env.uid);
        let owner =
            env.install_dir.as_ref().and_then(|dir| env.files.status(dir).ok()).map(|status| status.uid);
        Self { uids: [Some(0), user, owner].into_iter().flatten().collect() }
    }

    /// Checks the status of a path that is to be loaded as code: nobody but its owner may write it.
    ///
    /// # Errors
    /// [`Distrust`].
    pub fn check(&self, path: &Path, status: &Status) -> Result<(), Distrust> {
        self.check_against(path, status, OTHERS_AND_GROUP_WRITE)
    }

    /// Checks the file with this status and the directory that it was found in. The group may write both: it is the
    /// user who gives files to a group. In a directory with the sticky bit nobody can replace the file of another.
    ///
    /// # Errors
    /// [`Distrust`] with the path of the file or of the directory.
    pub fn check_in(&self, dir: &Path, file: &Path, status: &Status, env: &Env) -> Result<(), Distrust> {
        // Nobody can write a link.
        let forbidden = if status.kind == Kind::Link { 0 } else { OTHERS_WRITE };
        self.check_against(file, status, forbidden)?;
        let real = env.files.real_path(dir).unwrap_or_else(|_| dir.to_owned());
        match env.files.status(&real) {
            Ok(status) if status.mode & STICKY != 0 => self.check_against(&real, &status, 0),
            Ok(status) => self.check_against(&real, &status, OTHERS_WRITE),
            // The file was read a moment ago, and now somebody has moved the directory.
            Err(_) => Err(Distrust::Mode { path: real, mode: 0 }),
        }
    }

    fn check_against(&self, path: &Path, status: &Status, forbidden: u32) -> Result<(), Distrust> {
        let (uid, mode) = (status.uid, status.mode);
        ensure(self.uids.contains(&uid), || Distrust::Owner { path: path.to_owned(), uid })?;
        ensure(mode & forbidden == 0, || Distrust::Mode { path: path.to_owned(), mode })
    }
}

const OTHERS_WRITE: u32 = 0o002;
const OTHERS_AND_GROUP_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

#[cfg(test)]
mod tests {
    use super::*;

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
        // A copy in a folder of this user would be nobody's as well.
        let text = verdict(65_534, 0o100644).unwrap_err().to_string();
        assert!(text.ends_with(crate::fs::UNMAPPED), "{text}");
    }
}
