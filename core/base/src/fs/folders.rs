//! Folders: made with their parents, and removed with their contents.

use super::error::{unless_missing, At};
use super::whole::folder_of;
use super::{retried, Durability, Files, FsError, Kind, MayPass, Status};
use crate::ensure;
use std::io;
use std::path::{Path, PathBuf};

/// How many times others may remove a folder while it is made with its parents.
const MOST_REMOVED: usize = 100;
const IN_DOUBT: &str = "the file system says that there is one, and that there is none";

impl dyn Files + '_ {
    /// Makes a folder with its parents, where they are not there; those made get `mode` less the umask. Links to
    /// folders count as folders.
    ///
    /// # Errors
    /// [`FsError::Io`], or [`FsError::Refused`] if something else is in its place.
    pub fn make_dirs(&self, path: &Path, mode: u32, wait: Durability) -> Result<(), FsError> {
        let mut missing = vec![path];
        // A parent that we have seen may have been removed again. But in a place like /proc nobody can make anything, and the
        // system says that the parent is missing.
        let mut tries = path.components().count() + MOST_REMOVED;
        while let Some(&next) = missing.last() {
            let mut has_failed = false;
            let made = retried(self, |files| {
                files.make_dir(next, mode).inspect_err(|error| has_failed |= error.may_pass())
            });
            match made {
                Err(error) if error.kind() == io::ErrorKind::NotFound && has_parent(next) && tries > 0 => {
                    tries -= 1;
                    missing.push(folder_of(next));
                }
                made => {
                    // A try whose answer was lost may have made it.
                    let is_new = made.is_ok() || has_failed;
                    made.or_else(|error| self.accept_folder(next, error))?;
                    if is_new && wait == Durability::Synced {
                        let folder = folder_of(next);
                        let synced = self.sync_dir(folder).at("sync", folder);
                        // The system may have lost the name, and the next sync would succeed: it has to be made anew.
                        synced.inspect_err(|_| _ = self.remove_dir(next))?;
                    }
                    missing.pop();
                }
            }
        }
        Ok(())
    }

    /// If the folder exists, any error of making it is ignored.
    fn accept_folder(&self, path: &Path, error: io::Error) -> Result<(), FsError> {
        // With the dot a link is followed, as it should be here.
        let folder = path.join(".");
        let is_there = retried(self, |_| {
            let found = self.if_there(path, || self.status(&folder).at("look at", path));
            if found.is_ok_and(|status| status.is_some_and(|status| status.kind == Kind::Dir)) {
                return Ok(true);
            }
            match (self.status(path), error.kind()) {
                (Ok(status), _) if status.kind != Kind::Dir => Err(in_the_way(path, &status)),
                // Over NFS a node may not see for a while what another one has made.
                (Err(absent), io::ErrorKind::AlreadyExists) if absent.kind() == io::ErrorKind::NotFound => {
                    Err(io::Error::new(io::ErrorKind::TimedOut, IN_DOUBT)).at("make the folder", path)
                }
                _ => Ok(false),
            }
        })?;
        ensure(is_there, || error).at("make the folder", path)
    }

    /// Removes a file or a link; returns whether it was there.
    ///
    /// # Errors
    /// [`FsError::Io`].
    pub fn remove_if_there(&self, path: &Path) -> Result<bool, FsError> {
        unless_missing(self.remove_file(path).at("remove", path)).map(|removed| removed.is_some())
    }

    /// The names in a folder, sorted; none where there is no such folder.
    ///
    /// # Errors
    /// [`FsError::Io`].
    pub fn list_if_there(&self, path: &Path) -> Result<Vec<PathBuf>, FsError> {
        self.if_there(path, || self.list(path).at("list", path)).map(Option::unwrap_or_default)
    }

    /// Removes a file, a link or a folder with all that is in it; links are removed, not followed. A path that does not exist
    /// counts as removed. Goes on after an error, so that as much as can be is removed.
    ///
    /// # Errors
    /// [`FsError::Io`], the first one.
    pub fn remove_tree(&self, path: &Path) -> Result<(), FsError> {
        let mut folders = Vec::new();
        let mut first = Ok(());
        let mut todo = vec![path.to_owned()];
        while let Some(path) = todo.pop() {
            match self.remove_or_list(&path) {
                Ok(None) => (),
                Ok(Some(names)) => {
                    todo.extend(names.iter().map(|name| path.join(name)));
                    folders.push(path);
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        // A folder was met before what is in it.
        for folder in folders.iter().rev() {
            // Somebody else may have removed it in the meantime.
            let removed = unless_missing(self.remove_dir(folder).at("remove the folder", folder));
            first = first.and(removed.map(drop));
        }
        first
    }

    /// Removes what is no folder; gives the names in a folder.
    fn remove_or_list(&self, path: &Path) -> Result<Option<Vec<PathBuf>>, FsError> {
        match unless_missing(self.status(path).at("look at", path))?.map(|status| status.kind) {
            None => Ok(None),
            Some(Kind::Dir) => unless_missing(self.list(path).at("list the folder", path)),
            Some(_) => self.remove_if_there(path).map(|_| None),
        }
    }
}

fn has_parent(path: &Path) -> bool {
    path.parent().is_some_and(|parent| !parent.as_os_str().is_empty())
}

pub(super) fn in_the_way(path: &Path, status: &Status) -> FsError {
    FsError::refused(path, format!("is needed as a folder and is {}; move it away", status.kind.name()))
}

#[cfg(test)]
mod tests {
    use super::super::RealFiles;
    use super::*;
    use crate::kit::faulty::{FaultyFiles, Operation, What};
    use std::fs;
    use std::os::unix::fs::symlink;

    const REAL: &dyn Files = &RealFiles;

    fn mode(path: &Path) -> u32 {
        REAL.status(path).unwrap().mode & 0o7777
    }

    #[test]
    fn parents_are_made_and_what_is_there_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        for wait in [Durability::Synced, Durability::Unsynced] {
            REAL.make_dirs(&path, 0o700, wait).unwrap();
            assert_eq!(mode(&path), 0o700);
        }
        REAL.make_dirs(Path::new("/"), 0o700, Durability::Unsynced).unwrap();
    }

    /// The next call found it, and did not sync its name.
    #[test]
    fn a_folder_whose_name_was_not_synced_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        for at in [3, 5] {
            let files = FaultyFiles::new(RealFiles);
            files.fail_once(at, io::ErrorKind::TimedOut);
            let make = || (&files as &dyn Files).make_dirs(&path, 0o700, Durability::Synced);
            make().unwrap_err();
            make().unwrap();
            let all = files.operations();
            let last = |what| all.iter().rposition(|done| done.what == what && !done.failed).unwrap();
            let is_made = |done: &Operation| done.what == What::MakeDir && done.path == path;
            assert!(all.iter().rposition(is_made).unwrap() < last(What::SyncDir), "{all:?}");
            assert_eq!(all.iter().filter(|done| done.what == What::SyncDir && !done.failed).count(), 2);
            REAL.remove_tree(&dir.path().join("a")).unwrap();
        }
    }

    /// Only a folder that was said to be made was synced.
    #[test]
    fn a_folder_whose_making_was_not_answered_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let files = FaultyFiles::new(RealFiles);
        files.never_pause();
        files.fail_once(1, io::ErrorKind::TimedOut);
        let made = path.clone();
        files.interrupt_at(1, move || fs::create_dir(made).unwrap());
        (&files as &dyn Files).make_dirs(&path, 0o700, Durability::Synced).unwrap();
        assert_eq!(files.count(What::SyncDir), 1);
    }

    /// Each node that did not see yet what another one had made failed its flush.
    #[test]
    fn a_folder_that_is_not_shown_yet_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::create_dir(&path).unwrap();
        let hidden = |looks: u64| {
            let files = FaultyFiles::new(RealFiles);
            files.never_pause();
            files.count_all();
            files.only(|what, _| what == What::Status);
            files.fail_for(1, looks, io::ErrorKind::NotFound);
            (&files as &dyn Files).make_dirs(&path, 0o700, Durability::Synced)
        };
        hidden(9).unwrap();
        let error = hidden(1000).unwrap_err();
        assert!(error.to_string().contains("cannot make the folder"), "{error}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_without_an_endless_search() {
        let error = REAL.make_dirs(Path::new("/proc/nothing/here"), 0o700, Durability::Unsynced).unwrap_err();
        assert!(error.to_string().starts_with("cannot make the folder /proc/nothing"), "{error}");
    }

    #[test]
    fn a_link_to_a_folder_is_a_folder_for_shared_use() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        REAL.make_dirs(&dir.path().join("link/a"), 0o700, Durability::Unsynced).unwrap();
        assert!(dir.path().join("real/a").is_dir());
    }

    #[test]
    fn a_file_or_a_dangling_link_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        symlink("nowhere", dir.path().join("link")).unwrap();
        let error = REAL.make_dirs(&dir.path().join("file"), 0o700, Durability::Unsynced).unwrap_err();
        assert!(
            error.to_string().ends_with("file is needed as a folder and is a file; move it away"),
            "{error}"
        );
        let error = REAL.make_dirs(&dir.path().join("link"), 0o700, Durability::Unsynced).unwrap_err();
        assert!(error.to_string().contains("a symbolic link"), "{error}");
        assert!(REAL.make_dirs(&dir.path().join("file/a"), 0o700, Durability::Unsynced).is_err());
    }

    #[test]
    fn a_tree_goes_with_all_in_it_and_a_link_out_of_it_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(dir.path().join("kept")).unwrap();
        fs::write(dir.path().join("kept/file"), "").unwrap();
        fs::write(tree.join("a/b/file"), "").unwrap();
        symlink("../kept", tree.join("link")).unwrap();
        REAL.remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(dir.path().join("kept/file").exists());
        REAL.remove_tree(&tree).unwrap();
    }

    #[test]
    fn removing_continues_after_an_error_and_returns_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("a"), "").unwrap();
        fs::write(tree.join("b"), "").unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.fail_once(1, io::ErrorKind::PermissionDenied);
        let error = (&files as &dyn Files).remove_tree(&tree).unwrap_err();
        assert!(error.to_string().starts_with("cannot remove "), "{error}");
        assert_eq!(REAL.list(&tree).unwrap().len(), 1);
    }
}
