//! `unsynced/`: files and folders in place whose bytes, or whose names, could not be synced. Ours alone.
//!
//! ```text
//! unsynced/<digest of the path>.<inode>: when the file was made, or empty
//! ```
//!
//! A sync that fails once and succeeds the second time proves nothing: the system reports an error once, and may have dropped
//! what it could not write. So a command that lists what lies in place syncs each file and each name once. A file or name that
//! could not be synced is recorded, and refused until a new file, or folder, has the name. A new one may get the inode of one
//! that is gone, and then the record goes. The time of the last change would not tell them apart: another mode changes that too.

use super::overwritten::digest;
use super::{Prefix, DIR_MODE, FILE_MODE};
use scr_base::fs::{At, Durability, File, Files, FsError, Status};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The records below a prefix directory.
#[derive(Clone, Copy)]
pub struct Unsynced<'a> {
    pub files: &'a dyn Files,
    pub prefix: &'a Prefix,
}

impl Unsynced<'_> {
    /// Syncs the bytes of an open file, once.
    ///
    /// # Errors
    /// It cannot be synced, now or before: [`FsError::Unsynced`].
    pub fn sync(self, path: &Path, file: &dyn File) -> Result<(), FsError> {
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
    pub fn refuse(self, path: &Path) -> Result<(), FsError> {
        self.refuse_found(path, &self.files.status(path).at("look at", path)?)
    }

    /// Records, durably, that the name of a file or a folder could not be synced.
    ///
    /// # Errors
    /// It cannot be recorded.
    pub fn record(self, path: &Path) -> Result<(), FsError> {
        self.record_found(path, &self.files.status(path).at("look at", path)?)
    }

    fn refuse_found(self, path: &Path, found: &Status) -> Result<(), FsError> {
        let mark = self.mark(path, found);
        let Some(recorded) = self.files.read_if_there(&mark, MOST_BYTES)? else { return Ok(()) };
        let own = self.born(path)?;
        if own.is_empty() || recorded.is_empty() || own == recorded {
            return Err(FsError::Unsynced { path: path.to_owned() });
        }
        self.files.remove_if_there(&mark).map(drop)
    }

    /// When it was made, as the record says it; empty where the file system does not say.
    fn born(self, path: &Path) -> Result<Vec<u8>, FsError> {
        let born = self.files.born(path).at("look at", path)?;
        Ok(born.map(|(seconds, nanos)| format!("{seconds}.{nanos:09}").into_bytes()).unwrap_or_default())
    }

    fn record_found(self, path: &Path, found: &Status) -> Result<(), FsError> {
        let mark = self.mark(path, found);
        self.files.make_dirs(mark.parent().unwrap_or(&mark), DIR_MODE, Durability::Synced)?;
        self.files.write_atomic(&mark, &self.born(path)?, FILE_MODE, Durability::Synced)
    }

    /// Another client may know the file system by another number, but not the file.
    fn mark(self, path: &Path, found: &Status) -> PathBuf {
        let below = path.strip_prefix(self.prefix.dir()).unwrap_or(path);
        let name = format!("{}.{}", digest(below.as_os_str().as_bytes()), found.identity.1);
        self.prefix.scr_file("unsynced").join(name)
    }
}

/// A record is shorter.
const MOST_BYTES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::super::fixtures::scratch;
    use super::*;
    use scr_base::fs::{How, RealFiles};
    use scr_test_kit::faulty::{FaultyFiles, What};
    use std::fs;
    use std::io::ErrorKind;

    /// The new file was refused for ever if it had got the inode of the one that was removed.
    #[test]
    fn a_new_file_with_the_inode_of_one_that_could_not_be_synced_is_not_refused() {
        let (_dir, prefix) = scratch();
        prefix.make_scr_dir(&RealFiles).unwrap();
        let path = prefix.dir().join("f");
        fs::write(&path, "bytes").unwrap();
        let unsynced = Unsynced { files: &RealFiles, prefix: &prefix };
        unsynced.record(&path).unwrap();
        let marks = || {
            let names = fs::read_dir(prefix.scr_file("unsynced")).unwrap();
            names.map(|name| name.unwrap().path()).collect::<Vec<_>>()
        };
        // Another mode makes no other file of it.
        let mut mode = fs::metadata(&path).unwrap().permissions();
        mode.set_readonly(true);
        fs::set_permissions(&path, mode).unwrap();
        assert!(matches!(unsynced.refuse(&path), Err(FsError::Unsynced { .. })));
        let mark = marks().remove(0);
        let born = fs::read(&mark).unwrap();
        assert_eq!(born.is_empty(), RealFiles.born(&path).unwrap().is_none());
        // As that of a file with the same inode that was made at another time, and as a file system that does not say when.
        fs::write(&mark, "").unwrap();
        assert!(matches!(unsynced.refuse(&path), Err(FsError::Unsynced { .. })));
        fs::write(&mark, "1.500000000").unwrap();
        assert_eq!(unsynced.refuse(&path).is_ok(), !born.is_empty());
        assert_eq!(marks().is_empty(), !born.is_empty());
    }

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
