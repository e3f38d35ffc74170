//! `unsynced/`: files and folders in place whose bytes, or whose names, could not be synced. Ours alone.
//!
//! ```text
//! unsynced/<digest of the path>.<inode>: empty
//! ```
//!
//! A sync that fails once and succeeds the second time proves nothing: the system reports an error once, and may have dropped what it
//! could not write. So a command that lists what lies in place syncs each file and each name once. What could not be synced is
//! recorded, and refused until a new file, or folder, has the name.

use super::overwritten::digest;
use super::{Prefix, DIR_MODE, FILE_MODE};
use crate::fs::{At, Durability, File, Files, FsError, Status};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The records below a prefix directory.
#[derive(Clone, Copy)]
pub(crate) struct Unsynced<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) prefix: &'a Prefix,
}

impl Unsynced<'_> {
    /// Syncs the bytes of an open file, once.
    ///
    /// # Errors
    /// It cannot be synced, now or before: [`FsError::Unsynced`].
    pub(crate) fn sync(self, path: &Path, file: &dyn File) -> Result<(), FsError> {
        let found = file.status().at("look at", path)?;
        self.refuse_found(path, &found)?;
        file.sync().at("sync", path).or_else(|error| {
            self.record_found(path, &found)?;
            Err(error)
        })
    }

    /// Refuses what could not be synced before.
    ///
    /// # Errors
    /// [`FsError::Unsynced`], or it cannot be found out.
    pub(crate) fn refuse(self, path: &Path) -> Result<(), FsError> {
        self.refuse_found(path, &self.files.status(path).at("look at", path)?)
    }

    /// Records, durably, that the name of a file or a folder could not be synced.
    ///
    /// # Errors
    /// It cannot be recorded.
    pub(crate) fn record(self, path: &Path) -> Result<(), FsError> {
        self.record_found(path, &self.files.status(path).at("look at", path)?)
    }

    fn refuse_found(self, path: &Path, found: &Status) -> Result<(), FsError> {
        match self.files.status(&self.mark(path, found)) {
            Ok(_) => Err(FsError::Unsynced { path: path.to_owned() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).at("look for a record of", path),
        }
    }

    fn record_found(self, path: &Path, found: &Status) -> Result<(), FsError> {
        let mark = self.mark(path, found);
        self.files.make_dirs(mark.parent().unwrap_or(&mark), DIR_MODE, Durability::Synced)?;
        self.files.write_atomic(&mark, b"", FILE_MODE, Durability::Synced)
    }

    /// Another client may know the file system by another number, but not the file.
    fn mark(self, path: &Path, found: &Status) -> PathBuf {
        let below = path.strip_prefix(self.prefix.dir()).unwrap_or(path);
        let name = format!("{}.{}", digest(below.as_os_str().as_bytes()), found.identity.1);
        self.prefix.scr_file("unsynced").join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::scratch;
    use super::*;
    use crate::fs::faulty::{FaultyFiles, What};
    use crate::fs::{How, RealFiles};
    use std::fs;

    #[test]
    fn what_could_not_be_synced_is_refused_until_another_file_has_its_name() {
        let (_dir, prefix) = scratch();
        prefix.make_scr_dir(&RealFiles).unwrap();
        let path = prefix.dir().join("f");
        fs::write(&path, "bytes").unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what == What::Sync && path.ends_with("f"));
        files.fail_once(1, ErrorKind::Other);
        let unsynced = Unsynced { files: &files, prefix: &prefix };
        let sync = || unsynced.sync(&path, &*files.open(&path, How::Read).unwrap());
        assert!(matches!(sync(), Err(FsError::Io { .. })));
        for _ in 0..2 {
            assert!(matches!(sync(), Err(FsError::Unsynced { .. })));
            assert!(matches!(unsynced.refuse(&path), Err(FsError::Unsynced { .. })));
        }
        fs::write(prefix.dir().join("g"), "bytes").unwrap();
        unsynced.refuse(&prefix.dir().join("g")).unwrap();
        fs::rename(prefix.dir().join("g"), &path).unwrap();
        sync().unwrap();
        assert_eq!(files.mutations(), 2, "what is refused is not synced");
    }
}
