//! Errors of file operations, with the path and the operation.

use super::limit;
use super::retrying::{says_nothing, Look};
use scr_plugin_api::kvtree::{FieldError, FormError};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// An error after which the same may succeed a moment later, as [`scr_plugin_api::may_pass`] decides.
pub trait MayPass {
    /// Whether it is one.
    fn may_pass(&self) -> bool;
}

impl MayPass for io::Error {
    fn may_pass(&self) -> bool {
        // One that was passed on as the system's has its number inside.
        match self.get_ref().and_then(|inner| inner.downcast_ref::<FsError>()) {
            Some(inner) => inner.may_pass(),
            None => scr_plugin_api::may_pass(self),
        }
    }
}

impl MayPass for FsError {
    fn may_pass(&self) -> bool {
        matches!(self, FsError::Io { source, .. } if source.may_pass())
    }
}

/// Why a file or a folder could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The system reported an error.
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// A file is larger than a file of its kind may be.
    #[error("{} has {found} bytes, and at most {most} are read of such a file", path.display())]
    TooLarge { path: PathBuf, found: u64, most: u64 },
    /// Something else is in a file's place.
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    /// A file holds no tree, or a damaged one.
    #[error("{} is damaged or not a file of SCR", path.display())]
    Tree { path: PathBuf, source: FormError },
    /// The form of a file has another version.
    #[error(
        "{} was written by another release of scr (format version {found}, and this one reads {})", path.display(),
        versions(reads)
    )]
    Version { path: PathBuf, found: u64, reads: RangeInclusive<u64> },
    /// A file is a tree, but a field of it is missing or malformed.
    #[error("cannot {doing} {}", path.display())]
    Field { doing: &'static str, path: PathBuf, source: Box<FieldError> },
    /// It is not as it must be; the fault, and what to do, follow the path.
    #[error("{} {fault}", path.display())]
    Refused { path: PathBuf, fault: String },
    /// A base in which anybody can replace what others have made.
    #[error(
        "everybody may write to {} and it has no sticky bit, so any user could replace what is made there; \
         set the bit (chmod +t) or choose another base folder", path.display()
    )]
    Unprotected { path: PathBuf },
    /// A part of another dataset lies where one is to be rebuilt.
    #[error("{} is the filemap of another dataset: {by}", path.display())]
    Occupied { path: PathBuf, by: String },
    /// An earlier sync of a file, or of a folder that it lies in, has failed: the next one would succeed without what was lost.
    #[error(
        "{} could not be synced before, so less of it may be stored than is read; copy it under another name (cp -a) and \
         rename the copy", path.display()
    )]
    Unsynced { path: PathBuf },
    /// The lock was broken while this process had it, since it seemed dead.
    #[error("{} was not changed: this process was stopped for so long that another one took its lock; try again", path.display())]
    LockLost { path: PathBuf },
}

/// Whether a user stands for all whom this process cannot know.
pub fn is_unmapped(uid: u32) -> bool {
    uid == 65_534
}

/// The remedy where a file seems to be such a user's: nobody can give it to another one here.
pub const UNMAPPED: &str =
    "that is nobody: its file system, or a container, maps the users, and no owner can be given there; \
     use a folder on another file system, or start without that map";

impl FsError {
    /// `fault` follows the path.
    pub fn refused(path: &Path, fault: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), fault: fault.into() }
    }

    /// Why a file was not changed under a lock that does not seem to be this process's any more: it has to open the lock to look.
    pub fn lock_lost(path: &Path) -> Self {
        match limit::exhausted() {
            Some(source) => Self::Io { doing: "change", path: path.to_owned(), source },
            None => Self::LockLost { path: path.to_owned() },
        }
    }

    /// The kind of the system's error, where it is one.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            FsError::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Whether this user may not write there, or nobody may.
    pub fn is_for_want_of_permission(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem))
    }

    /// Whether there is no room for what was to be written, for everybody or for this user.
    pub fn is_for_want_of_room(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Whether the thing asked for is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }

    /// Whether it says something of what was asked for, and not of this process or of the way there.
    pub fn is_answer(&self) -> bool {
        !matches!(self, FsError::Io { source, .. } if says_nothing(Look::List, source))
    }

    /// Whether what is stored is itself wrong, so that a retry cannot help.
    pub fn is_damage(&self) -> bool {
        match self {
            // A file of a later release is valid for that release.
            Self::Version { found, reads, .. } => found < reads.start(),
            Self::Tree { .. } | Self::Field { .. } | Self::TooLarge { .. } | Self::NotAFile { .. } => true,
            _ => false,
        }
    }
}

/// For code that passes on the system's errors: the kind is kept, and the whole error is what it holds.
impl From<FsError> for io::Error {
    fn from(error: FsError) -> Self {
        io::Error::new(error.kind().unwrap_or(io::ErrorKind::InvalidData), error)
    }
}

/// `None` where something is not there.
pub fn unless_missing<T>(done: Result<T, FsError>) -> Result<Option<T>, FsError> {
    match done {
        Err(error) if error.is_not_found() => Ok(None),
        done => done.map(Some),
    }
}

/// Adds to an error what was done and to which path.
pub trait At<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FsError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FsError> {
        self.map_err(|source| FsError::Io {
            doing,
            path: path.to_owned(),
            source: limit::explained(source, path),
        })
    }
}

impl<T> At<T> for Result<T, FieldError> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FsError> {
        self.map_err(|source| FsError::Field { doing, path: path.to_owned(), source: Box::new(source) })
    }
}

/// From here on a version is damage: no release is that far away.
pub const NO_VERSION: u16 = 32;

/// Versions of a format, as users are told.
pub fn versions(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first} to {last}"),
    }
}

impl<T> At<T> for Result<T, FormError> {
    fn at(self, _: &'static str, path: &Path) -> Result<T, FsError> {
        self.map_err(|source| match (path.to_owned(), source) {
            (path, FormError::Version(found, expected)) if found < NO_VERSION => {
                FsError::Version { path, found: found.into(), reads: expected.into()..=expected.into() }
            }
            (path, source) => FsError::Tree { path, source },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::KvTree;
    use std::error::Error;

    #[test]
    fn an_error_of_the_system_is_the_source_and_not_the_text() {
        let error =
            Err::<(), _>(io::Error::from(io::ErrorKind::NotFound)).at("open", Path::new("/a")).unwrap_err();
        assert_eq!(error.to_string(), "cannot open /a");
        assert!(error.source().is_some());
        assert!(error.is_not_found());
        assert!(!error.is_damage());
        let error = io::Error::from(error);
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::NotFound, "cannot open /a".to_owned()));
    }

    #[test]
    fn every_error_says_what_where_and_what_now() {
        let path = || PathBuf::from("/dev/shm/user1");
        let errors = [
            FsError::TooLarge { path: path(), found: 9, most: 8 },
            FsError::Tree { path: path(), source: KvTree::from_file_bytes(&[]).unwrap_err() },
            FsError::Field {
                doing: "use",
                path: path(),
                source: Box::new(FieldError::Missing { key: "VERSION".to_owned() }),
            },
            FsError::refused(&path(), "is needed as a folder and is a symbolic link; move it away"),
            super::super::owned::not_ours(&path(), 0, 1000),
            super::super::owned::not_ours(&path(), 65_534, 0),
            super::super::trees::keeps_changing(&path(), 3),
            FsError::Unsynced { path: path() },
        ];
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "/dev/shm/user1 has 9 bytes, and at most 8 are read of such a file",
                "/dev/shm/user1 is damaged or not a file of SCR",
                "cannot use /dev/shm/user1",
                "/dev/shm/user1 is needed as a folder and is a symbolic link; move it away",
                "/dev/shm/user1 belongs to user 0, and only user 1000 may own it; \
                 have it removed or choose another base folder",
                "/dev/shm/user1 belongs to user 65534, and only user 0 may own it; that is nobody: its file system, or a \
                 container, maps the users, and no owner can be given there; use a folder on another file system, or start \
                 without that map",
                "/dev/shm/user1 was replaced 3 times while its lock was waited for; try again",
                "/dev/shm/user1 could not be synced before, so less of it may be stored than is read; \
                 copy it under another name (cp -a) and rename the copy",
            ]
        );
    }
}
