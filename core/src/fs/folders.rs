//! Folders: made with their parents, made private in places that all users share, and removed with all in them.
//!
//! In a shared place such as `/dev/shm` anybody may put something in our way. So of a private folder every part
//! below the base is looked at without following links, and must be a folder of our own.

use super::error::At;
use super::whole::folder_of;
use super::{Durability, Files, FsError, How, Kind, Status};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Permission bits of a private folder.
const PRIVATE: u32 = 0o700;
/// So often a folder may be removed by others while it is made with its parents.
const MOST_REMOVED: usize = 100;
/// Permission bits that others than the owner have.
const OTHERS: u32 = 0o077;

impl dyn Files + '_ {
    /// Makes a folder with its parents, where they are not there; those made get `mode` less the umask. Links to
    /// folders count as folders.
    ///
    /// # Errors
    /// [`FsError::Io`], or [`FsError::NotAFolder`] for what is in the way.
    pub fn make_dirs(&self, path: &Path, mode: u32, wait: Durability) -> Result<(), FsError> {
        let mut missing = vec![path];
        // A parent that we have seen may have been removed again. But in a place like /proc nobody can make anything, and the
        // system says that the parent is missing.
        let mut tries = path.components().count() + MOST_REMOVED;
        while let Some(&next) = missing.last() {
            match self.make_dir(next, mode) {
                Ok(()) => {
                    if wait == Durability::Synced {
                        let folder = folder_of(next);
                        self.sync_dir(folder).at("sync", folder)?;
                    }
                    missing.pop();
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && has_parent(next) && tries > 0 => {
                    tries -= 1;
                    missing.push(folder_of(next));
                }
                Err(error) => {
                    self.accept_folder(next, error)?;
                    missing.pop();
                }
            }
        }
        Ok(())
    }

    /// Whatever made the making fail, a folder that is there already will do.
    fn accept_folder(&self, path: &Path, error: io::Error) -> Result<(), FsError> {
        // With the dot a link is followed, as it should be here.
        if self.status(&path.join(".")).is_ok_and(|status| status.kind == Kind::Dir) {
            return Ok(());
        }
        match self.status(path) {
            Ok(status) if status.kind != Kind::Dir => Err(in_the_way(path, &status)),
            _ => Err(error).at("make the folder", path),
        }
    }

    /// Makes `base` with its parents for everybody to read, then each part of `below` for the user `uid` alone:
    /// mode 0700, no link followed, nobody else's folder used. Gives the whole path.
    ///
    /// # Errors
    /// [`FsError::NotAFolder`] and [`FsError::NotOurs`] for what is in the way; [`FsError::NotBelow`] where `below`
    /// has a part other than a plain name; [`FsError::Io`].
    pub fn make_private_dirs(&self, base: &Path, below: &Path, uid: u32) -> Result<PathBuf, FsError> {
        self.make_dirs(base, 0o755, Durability::Unsynced)?;
        self.make_private_dirs_in(base, below, uid)
    }

    /// As `make_private_dirs`, in a base folder that must be there already.
    ///
    /// # Errors
    /// As there, and [`FsError::NoBase`].
    pub fn make_private_dirs_in(&self, base: &Path, below: &Path, uid: u32) -> Result<PathBuf, FsError> {
        if !self.status(&base.join(".")).is_ok_and(|status| status.kind == Kind::Dir) {
            return Err(FsError::NoBase { path: base.to_owned() });
        }
        let mut path = base.to_owned();
        for part in below.components() {
            let Component::Normal(name) = part else {
                return Err(FsError::NotBelow { path: below.to_owned(), base: base.to_owned() });
            };
            path.push(name);
            self.make_private_dir(&path, uid)?;
        }
        Ok(path)
    }

    fn make_private_dir(&self, path: &Path, uid: u32) -> Result<(), FsError> {
        match self.make_dir(path, PRIVATE) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).at("make the folder", path);
            }
            _ => (),
        }
        let status = self.status(path).at("look at", path)?;
        if status.kind != Kind::Dir {
            return Err(in_the_way(path, &status));
        }
        if status.uid != uid {
            return Err(FsError::NotOurs { path: path.to_owned(), found: status.uid, expected: uid });
        }
        if status.mode & OTHERS != 0 {
            let dir = self.open(path, How::Read).at("open", path)?;
            dir.set_mode(PRIVATE).at("close to other users", path)?;
        }
        Ok(())
    }

    /// Removes a file or a link; gives whether it was there.
    ///
    /// # Errors
    /// [`FsError::Io`].
    pub fn remove_if_there(&self, path: &Path) -> Result<bool, FsError> {
        match self.remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.at("remove", path).map(|()| true),
        }
    }

    /// The names in a folder, sorted; none where there is no such folder.
    ///
    /// # Errors
    /// [`FsError::Io`].
    pub fn list_if_there(&self, path: &Path) -> Result<Vec<PathBuf>, FsError> {
        match self.list(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.at("list", path),
        }
    }

    /// Removes a file, a link or a folder with all that is in it; links are removed, not followed. What is not
    /// there is removed already. Goes on after an error, so that as much as can be is removed.
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
            first = first.and(gone(self.remove_dir(folder)).at("remove the folder", folder));
        }
        first
    }

    /// Removes what is no folder; gives the names in a folder.
    fn remove_or_list(&self, path: &Path) -> Result<Option<Vec<PathBuf>>, FsError> {
        match self.status(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(status) if status.kind == Kind::Dir => match self.list(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                other => other.at("list the folder", path).map(Some),
            },
            Ok(_) => self.remove_if_there(path).map(|_| None),
            Err(error) => Err(error).at("look at", path),
        }
    }
}

/// Somebody else may have removed it in the meantime.
fn gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn has_parent(path: &Path) -> bool {
    path.parent().is_some_and(|parent| !parent.as_os_str().is_empty())
}

fn in_the_way(path: &Path, status: &Status) -> FsError {
    let found = match status.kind {
        Kind::File => "a file",
        Kind::Dir => "a folder",
        Kind::Link => "a symbolic link",
        Kind::Other => "neither file nor folder",
    };
    FsError::NotAFolder { path: path.to_owned(), found }
}

#[cfg(test)]
mod tests {
    use super::super::faulty::FaultyFiles;
    use super::super::RealFiles;
    use super::*;
    use std::fs;
    use std::os::unix::fs::{symlink, PermissionsExt};

    const REAL: &dyn Files = &RealFiles;

    fn uid() -> u32 {
        rustix::process::getuid().as_raw()
    }

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

    #[test]
    fn where_nobody_can_make_a_folder_it_is_an_error_and_no_endless_search_for_its_parent() {
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
    fn a_private_folder_is_closed_to_others_from_the_base_down() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        let made = REAL.make_private_dirs(&base, Path::new("user1/scr.5132"), uid()).unwrap();
        assert_eq!(made, base.join("user1/scr.5132"));
        assert_eq!((mode(&base.join("user1")), mode(&made)), (0o700, 0o700));
        assert_eq!(REAL.make_private_dirs(&base, Path::new("user1/scr.5132"), uid()).unwrap(), made);
    }

    #[test]
    fn a_folder_of_our_own_that_is_open_to_others_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user1");
        fs::create_dir(&user).unwrap();
        fs::set_permissions(&user, fs::Permissions::from_mode(0o777)).unwrap();
        REAL.make_private_dirs(dir.path(), Path::new("user1"), uid()).unwrap();
        assert_eq!(mode(&user), 0o700);
    }

    #[test]
    fn another_users_folder_and_a_link_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("user1")).unwrap();
        let error = REAL.make_private_dirs(dir.path(), Path::new("user1"), uid() + 1).unwrap_err();
        assert!(matches!(error, FsError::NotOurs { found, .. } if found == uid()), "{error}");
        symlink("user1", dir.path().join("link")).unwrap();
        let error = REAL.make_private_dirs(dir.path(), Path::new("link/a"), uid()).unwrap_err();
        assert!(matches!(error, FsError::NotAFolder { found: "a symbolic link", .. }), "{error}");
        assert!(!dir.path().join("user1/a").exists());
    }

    #[test]
    fn even_root_uses_no_folder_that_another_user_has_put_there() {
        if uid() != 0 {
            println!("skipped: only root can give a folder to another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("user1");
        fs::create_dir(&theirs).unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(&theirs, Some(4711), None).unwrap();
        let error = REAL.make_private_dirs(dir.path(), Path::new("user1/scr.5132"), 0).unwrap_err();
        assert!(error.to_string().contains("belongs to user 4711, and only user 0 may own it"), "{error}");
        assert!(mode(&theirs) == 0o777 && !theirs.join("scr.5132").exists(), "it was changed");
        // What lies in a folder of our own is looked at as well.
        let ours = dir.path().join("user2");
        fs::create_dir_all(ours.join("scr.5132")).unwrap();
        std::os::unix::fs::chown(ours.join("scr.5132"), Some(4711), None).unwrap();
        let error = REAL.make_private_dirs(dir.path(), Path::new("user2/scr.5132"), 0).unwrap_err();
        assert!(matches!(error, FsError::NotOurs { found: 4711, .. }), "{error}");
    }

    #[test]
    fn a_private_folder_lies_below_its_base() {
        let dir = tempfile::tempdir().unwrap();
        for below in ["../a", "/a", "a/../../b"] {
            let error = REAL.make_private_dirs(dir.path(), Path::new(below), uid()).unwrap_err();
            assert!(matches!(error, FsError::NotBelow { .. }), "{below}: {error}");
        }
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
    fn removing_goes_on_after_an_error_and_tells_the_first() {
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
