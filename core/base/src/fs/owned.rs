//! Directories that another user could have planted: control and cache directories in places that all users share.
//!
//! In such a place anybody may create the name that scr is going to use, or put a symbolic link there. So an [`OwnedDir`] is
//! opened part by part from the base that the site configured. No link is followed below the base, and each part must belong to
//! the user and be closed to other users. If another user has created the name first, the user gets a directory of another name.
//! From then on everything in it is reached through its descriptor, whatever happens to its path.

use super::error::{is_unmapped, unless_missing, At, UNMAPPED};
use super::folders::in_the_way;
use super::{retried, Durability, File, Files, FsError, How, Kind, Status};
use crate::ensure;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Permission bits of a private directory.
const PRIVATE: u32 = 0o700;
/// Permission bits that users other than the owner have.
const OTHERS: u32 = 0o077;
/// Those with which others can write.
const OTHERS_WRITE: u32 = 0o022;
/// Everybody may write.
pub(super) const WORLD_WRITES: u32 = 0o002;
/// Only its owner may rename or remove what is in the directory.
pub(super) const STICKY: u32 = 0o1000;

/// The number of further names to try if other users have taken the user's own.
const MOST_TAKEN: u32 = 16;

/// A directory of this user that nobody else can write to, open.
#[derive(Clone)]
pub struct OwnedDir {
    path: PathBuf,
    dir: Arc<dyn File>,
    files: Arc<dyn Files>,
}

/// How to handle a part of the path that is missing, or open to other users.
#[derive(Clone, Copy, PartialEq)]
enum Parts {
    /// It is made, and closed.
    Make,
    /// The directory is not used.
    Expect,
    /// Nothing is made: whether it could be is the question.
    Ask,
}

impl OwnedDir {
    /// Makes `base` with its parents for everybody to read, then each part of `below` for the user `uid` alone.
    ///
    /// # Errors
    /// [`FsError::Refused`] and [`FsError::Unprotected`] for what is in the way, or where `below` has a part other than a plain
    /// name; [`FsError::Io`].
    pub fn make(files: &dyn Files, base: &Path, below: &Path, uid: u32) -> Result<Self, FsError> {
        files.make_dirs(base, 0o755, Durability::Unsynced)?;
        Self::descend(files, base, below, uid, Parts::Make)
    }

    /// As [`make`](Self::make), below a base that must be there already.
    ///
    /// # Errors
    /// As there, and where the base is not there.
    pub fn make_in(files: &dyn Files, base: &Path, below: &Path, uid: u32) -> Result<Self, FsError> {
        let fault =
            "is not there, and MKDIR=0 says that SCR does not make it; make or mount it, or set MKDIR=1";
        let is_there = files.status(&base.join(".")).is_ok_and(|status| status.kind == Kind::Dir);
        ensure(is_there, || FsError::refused(base, fault))?;
        Self::descend(files, base, below, uid, Parts::Make)
    }

    /// The directory `below` a base, where it is there. `below` begins with the name of the user. A container or a wrapper may
    /// have given a job another name than a command has, so a directory of this user with another name will do, where that one is
    /// not there.
    ///
    /// # Errors
    /// As for [`make`](Self::make); also where it could have been changed by other users.
    pub fn find(files: &dyn Files, base: &Path, below: &Path, uid: u32) -> Result<Option<Self>, FsError> {
        let found = unless_missing(Self::descend(files, base, below, uid, Parts::Expect))?;
        found.map_or_else(|| Self::find_by_owner(files, base, below, uid), |found| Ok(Some(found)))
    }

    /// Whether [`make`](Self::make) would find nothing in the way. Makes nothing.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub fn expect_free(files: &dyn Files, base: &Path, below: &Path, uid: u32) -> Result<(), FsError> {
        unless_missing(Self::descend(files, base, below, uid, Parts::Ask)).map(drop)
    }

    fn find_by_owner(
        files: &dyn Files,
        base: &Path,
        below: &Path,
        uid: u32,
    ) -> Result<Option<Self>, FsError> {
        let rest: PathBuf = below.components().skip(1).collect();
        let holds_job = |found: &Self| {
            let names = found.files.list(&found.path).unwrap_or_default();
            names.iter().any(|name| name.as_os_str().as_encoded_bytes().starts_with(b"scr."))
        };
        let names = match files.list(base).at("list", base) {
            Err(error) if !error.is_answer() => return Err(error),
            listed => listed.unwrap_or_default(),
        };
        Ok(names.into_iter().find_map(|name| {
            let user = Self::descend(files, base, &name, uid, Parts::Expect).ok().filter(holds_job)?;
            match rest.as_os_str().is_empty() {
                true => Some(user),
                false => Self::descend(files, base, &name.join(&rest), uid, Parts::Expect).ok(),
            }
        }))
    }

    /// The directory at a path that the user has named. Links are followed to it, and not in it.
    ///
    /// # Errors
    /// As for [`find`](Self::find), and where it is not there.
    pub fn at(files: &dyn Files, path: &Path, uid: u32) -> Result<Self, FsError> {
        let dir = files.open(path, How::Folder).at("open the directory", path)?;
        let status = dir.status().at("look at", path)?;
        expect_owned(path, &status, uid)?;
        expect_closed(path, &status)?;
        Self::hold(files, path.to_owned(), dir)
    }

    /// Makes a directory below this one.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub fn make_below(&self, below: &Path, uid: u32) -> Result<Self, FsError> {
        Self::descend(&*self.files, &self.path, below, uid, Parts::Make)
    }

    /// The directory of this name in this one, where it is there.
    ///
    /// # Errors
    /// As for [`find`](Self::find).
    pub fn find_below(&self, name: &Path, uid: u32) -> Result<Option<Self>, FsError> {
        unless_missing(Self::descend(&*self.files, &self.path, name, uid, Parts::Expect))
    }

    /// Its name in messages, and for [`files`](Self::files).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file layer in which everything below [`path`](Self::path) is reached through the open directory, and no link
    /// there is followed. Other paths lead where they always do.
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// Whether it was removed since it was opened.
    pub fn is_gone(&self) -> bool {
        self.dir.status().is_ok_and(|status| status.links == 0)
    }

    /// Lets a layer that holds a directory of this path, which is gone, hold this one instead.
    pub fn replace_in(&self, files: &dyn Files) {
        files.hold_instead(&self.path, Arc::clone(&self.dir));
    }

    /// The same layer above another one, which may hold other directories.
    pub fn held_in(&self, files: &dyn Files) -> Arc<dyn Files> {
        files.through(&self.path, Arc::clone(&self.dir), None).unwrap_or_else(|| Arc::clone(&self.files))
    }

    fn descend(
        files: &dyn Files,
        base: &Path,
        below: &Path,
        uid: u32,
        parts: Parts,
    ) -> Result<Self, FsError> {
        let dir = files.open(base, How::Folder).at("open the directory", base)?;
        let status = dir.status().at("look at", base)?;
        let is_protected = status.mode & WORLD_WRITES == 0 || status.mode & STICKY != 0;
        ensure(is_protected, || FsError::Unprotected { path: base.to_owned() })?;
        let mut at = Self::hold(files, base.to_owned(), dir)?;
        for (depth, part) in below.components().enumerate() {
            let Component::Normal(name) = part else {
                return Err(FsError::refused(below, format!("does not lie below {}", base.display())));
            };
            let is_shared = depth == 0 && status.mode & WORLD_WRITES != 0;
            let name = if is_shared { at.free_name(name, uid, parts) } else { name.into() };
            at = at.step(files, &name, uid, parts)?;
        }
        Ok(at)
    }

    /// The name of the user's directory in a base that everybody may write to: `<user>`, or `<user>.1` and so on if other users
    /// have made the former. A directory that the user has already comes first, so that all processes and all commands use the
    /// same one, whatever others make and remove meanwhile.
    fn free_name(&self, name: &OsStr, uid: u32, parts: Parts) -> PathBuf {
        let further = (1..=MOST_TAKEN).map(|number| {
            let mut further = name.to_owned();
            further.push(format!(".{number}"));
            PathBuf::from(further)
        });
        let names: Vec<PathBuf> = std::iter::once(name.into()).chain(further).collect();
        let status = |name: &PathBuf| self.files.status(&self.path.join(name));
        let is_ours = |found: Status| found.kind == Kind::Dir && found.uid == uid;
        // Another process of this user may have made it meanwhile.
        let can_be_ours = |name: &&PathBuf| match status(name) {
            Ok(found) => is_ours(found),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let ours = names.iter().find(|name| status(name).is_ok_and(is_ours));
        let new = || names.iter().find(can_be_ours).filter(|_| parts != Parts::Expect);
        // If none can be had, the error names the owner of the first.
        ours.or_else(new).unwrap_or(&names[0]).clone()
    }

    /// The directory `name` in this one. `files` does not know of this one, so that a base is not held for longer.
    fn step(&self, files: &dyn Files, name: &Path, uid: u32, parts: Parts) -> Result<Self, FsError> {
        let path = self.path.join(name);
        if parts == Parts::Make {
            match retried(&*self.files, |files| files.make_dir(&path, PRIVATE)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error).at("make the folder", &path);
                }
                _ => (),
            }
        }
        // The error says whose it is.
        expect_owned(&path, &self.files.status(&path).at("look at", &path)?, uid)?;
        let dir = self.files.open(&path, How::Folder).at("open the directory", &path)?;
        let status = dir.status().at("look at", &path)?;
        expect_owned(&path, &status, uid)?;
        match parts {
            Parts::Make if status.mode & OTHERS != 0 => {
                dir.set_mode(PRIVATE).at("close to other users", &path)?;
            }
            Parts::Make | Parts::Ask => (),
            Parts::Expect => expect_closed(&path, &status)?,
        }
        Self::hold(files, path, dir)
    }

    fn hold(files: &dyn Files, path: PathBuf, dir: Box<dyn File>) -> Result<Self, FsError> {
        let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
        let dir: Arc<dyn File> = dir.into();
        let files =
            files.through(&path, Arc::clone(&dir), None).ok_or_else(unsupported).at("hold open", &path)?;
        Ok(Self { path, dir, files })
    }
}

impl std::fmt::Debug for OwnedDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedDir({})", self.path.display())
    }
}

fn expect_owned(path: &Path, status: &Status, uid: u32) -> Result<(), FsError> {
    ensure(status.kind == Kind::Dir, || in_the_way(path, status))?;
    ensure(status.uid == uid, || not_ours(path, status.uid, uid))
}

pub(super) fn not_ours(path: &Path, found: u32, expected: u32) -> FsError {
    let remedy = if is_unmapped(found) { UNMAPPED } else { "have it removed or choose another base folder" };
    FsError::refused(path, format!("belongs to user {found}, and only user {expected} may own it; {remedy}"))
}

fn expect_closed(path: &Path, status: &Status) -> Result<(), FsError> {
    let fault = || {
        format!(
            "may be written by other users (mode {:04o}), so what is in it is not used; look at what is in it, then close it with \
             chmod 700",
            status.mode & 0o7777
        )
    };
    ensure(status.mode & OTHERS_WRITE == 0, || FsError::refused(path, fault()))
}

#[cfg(test)]
mod tests {
    use super::super::RealFiles;
    use super::*;
    use crate::kit::descriptors::{closes, give_away, open_below};
    use crate::kit::faulty::{FaultyFiles, What};
    use std::fs;
    use std::os::unix::fs::{chown, symlink, PermissionsExt};

    const REAL: &dyn Files = &RealFiles;

    fn uid() -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn mode(path: &Path) -> u32 {
        REAL.status(path).unwrap().mode & 0o7777
    }

    /// No command found anything of a job in a container with another USER.
    #[test]
    fn a_directory_of_the_user_is_found_under_another_name() {
        let base = tempfile::tempdir().unwrap();
        let make = |below: &str| OwnedDir::make(REAL, base.path(), Path::new(below), uid()).unwrap();
        let find = |below: &str| OwnedDir::find(REAL, base.path(), Path::new(below), uid()).unwrap();
        make("build");
        make("ann/scr.7");
        make("ann/other");
        assert!(find("bob/scr.7").unwrap().path().ends_with("ann/scr.7"));
        assert!(find("bob").unwrap().path().ends_with("ann"), "it holds a job");
        assert!(find("bob/scr.8").is_none());
        make("bob/scr.7");
        assert!(find("bob/scr.7").unwrap().path().ends_with("bob/scr.7"), "its own name comes first");
        let planted = base.path().join("carl");
        fs::create_dir_all(planted.join("scr.9")).unwrap();
        if chown(&planted, Some(4_000_000), None).is_ok() {
            assert!(find("bob/scr.9").is_none(), "of another user");
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Whether a folder is refused that belongs to this user.
    fn is_of(error: &FsError, user: u32) -> bool {
        error.to_string().contains(&format!(" belongs to user {user}, and only user "))
    }

    fn make(base: &Path, below: &str) -> Result<OwnedDir, FsError> {
        OwnedDir::make(REAL, base, Path::new(below), uid())
    }

    #[test]
    fn a_private_folder_is_closed_to_others_from_the_base_down() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        let made = make(&base, "user1/scr.5132").unwrap();
        assert_eq!(made.path(), base.join("user1/scr.5132"));
        assert_eq!((mode(&base.join("user1")), mode(made.path())), (0o700, 0o700));
        assert_eq!(make(&base, "user1/scr.5132").unwrap().path(), made.path());
        let found = OwnedDir::find(REAL, &base, Path::new("user1/scr.5132"), uid()).unwrap().unwrap();
        assert_eq!(found.path(), made.path());
        assert!(OwnedDir::find(REAL, &base, Path::new("user1/scr.1"), uid()).unwrap().is_none());
    }

    #[test]
    fn a_folder_of_our_own_that_is_open_to_others_is_closed_by_a_job_and_refused_by_a_command() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user1");
        fs::create_dir(&user).unwrap();
        set_mode(&user, 0o777);
        let error = OwnedDir::find(REAL, dir.path(), Path::new("user1"), uid()).unwrap_err();
        assert!(error.to_string().contains("may be written by other users (mode 0777), so"), "{error}");
        assert!(OwnedDir::at(REAL, &user, uid()).is_err());
        make(dir.path(), "user1").unwrap();
        assert_eq!(mode(&user), 0o700);
        assert!(OwnedDir::at(REAL, &user, uid()).is_ok());
    }

    #[test]
    fn another_users_folder_and_a_link_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("user1")).unwrap();
        let error = OwnedDir::make(REAL, dir.path(), Path::new("user1"), uid() + 1).unwrap_err();
        assert!(is_of(&error, uid()), "{error}");
        symlink("user1", dir.path().join("link")).unwrap();
        let error = make(dir.path(), "link/a").unwrap_err();
        assert!(
            error.to_string().ends_with("is needed as a folder and is a symbolic link; move it away"),
            "{error}"
        );
        assert!(!dir.path().join("user1/a").exists());
    }

    #[test]
    fn asking_whether_a_folder_can_be_made_answers_like_making_it_and_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o1777);
        let ask = |below: &str, uid| OwnedDir::expect_free(REAL, dir.path(), Path::new(below), uid);
        ask("user1/scr.1", uid()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::create_dir(dir.path().join("user1")).unwrap();
        ask("user1/scr.1", uid()).unwrap();
        ask("user1/scr.1", uid() + 1).unwrap();
        for number in 1..=MOST_TAKEN {
            fs::create_dir(dir.path().join(format!("user1.{number}"))).unwrap();
        }
        let error = ask("user1/scr.1", uid() + 1).unwrap_err();
        assert!(is_of(&error, uid()), "{error}");
        set_mode(dir.path(), 0o777);
        assert!(matches!(ask("user1/scr.1", uid()), Err(FsError::Unprotected { .. })));
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
        set_mode(&theirs, 0o777);
        chown(&theirs, Some(4711), None).unwrap();
        let error = make(dir.path(), "user1/scr.5132").unwrap_err();
        assert!(error.to_string().contains("belongs to user 4711, and only user 0 may own it"), "{error}");
        assert!(mode(&theirs) == 0o777 && !theirs.join("scr.5132").exists(), "it was changed");
        assert!(OwnedDir::at(REAL, &theirs, uid()).is_err());
        // The contents of a folder of our own are checked as well.
        let ours = dir.path().join("user2");
        fs::create_dir_all(ours.join("scr.5132")).unwrap();
        chown(ours.join("scr.5132"), Some(4711), None).unwrap();
        let error = make(dir.path(), "user2/scr.5132").unwrap_err();
        assert!(is_of(&error, 4711), "{error}");
        let error = OwnedDir::find(REAL, dir.path(), Path::new("user2/scr.5132"), uid()).unwrap_err();
        assert!(is_of(&error, 4711), "{error}");
    }

    /// The second one took the name of the first for that of another user, and the ranks of one node had two directories.
    #[test]
    fn two_processes_that_begin_at_once_make_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o1777);
        let user = dir.path().join("user1");
        for at in 1.. {
            let faulty = FaultyFiles::new(RealFiles);
            faulty.count_all();
            let base = dir.path().to_owned();
            faulty.interrupt_at(at, move || drop(make(&base, "user1/scr.1").unwrap()));
            let made = OwnedDir::make(&faulty, dir.path(), Path::new("user1/scr.1"), uid()).unwrap();
            assert_eq!(made.path(), user.join("scr.1"), "interrupted at {at}");
            fs::remove_dir_all(&user).unwrap();
            if !faulty.was_interrupted() {
                assert!(at > u64::from(MOST_TAKEN), "{at} operations were interrupted");
                break;
            }
        }
    }

    #[test]
    fn a_user_whose_name_is_taken_gets_another_directory_and_finds_it_again() {
        if uid() != 0 {
            println!("skipped: only root can give a folder to another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o1777);
        let take = |name: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            chown(dir.path().join(name), Some(4711), None).unwrap();
        };
        let find = || OwnedDir::find(REAL, dir.path(), Path::new("user1/scr.1"), uid());
        take("user1");
        assert!(is_of(&find().unwrap_err(), 4711), "a command says why there is nothing");
        symlink("/", dir.path().join("user1.1")).unwrap();
        let other = dir.path().join("user1.2/scr.1");
        assert_eq!(make(dir.path(), "user1/scr.1").unwrap().path(), other);
        assert_eq!(find().unwrap().unwrap().path(), other);
        // Even if others change the names before it.
        fs::remove_dir(dir.path().join("user1")).unwrap();
        fs::remove_file(dir.path().join("user1.1")).unwrap();
        assert_eq!(make(dir.path(), "user1/scr.1").unwrap().path(), other);
        assert_eq!(find().unwrap().unwrap().path(), other);
        take("user2");
        (1..=MOST_TAKEN).for_each(|number| take(&format!("user2.{number}")));
        assert!(is_of(&make(dir.path(), "user2").unwrap_err(), 4711));
        // In a directory that only some may write to, nobody plants anything.
        set_mode(dir.path(), 0o755);
        assert!(is_of(&make(dir.path(), "user2").unwrap_err(), 4711));
    }

    #[test]
    fn a_base_in_which_everybody_can_replace_what_others_made_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o777);
        assert!(matches!(make(dir.path(), "user1"), Err(FsError::Unprotected { .. })));
        set_mode(dir.path(), 0o1777);
        make(dir.path(), "user1").unwrap();
    }

    #[test]
    fn a_private_folder_lies_below_its_base() {
        let dir = tempfile::tempdir().unwrap();
        for below in ["../a", "/a", "a/../../b"] {
            let error = make(dir.path(), below).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{below} does not lie below /")), "{error}");
        }
    }

    #[test]
    fn a_later_replacement_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let owned = make(dir.path(), "user1/scr.1").unwrap();
        let path = owned.path().join("a");
        fs::rename(dir.path().join("user1"), dir.path().join("moved")).unwrap();
        fs::create_dir_all(owned.path()).unwrap();
        fs::write(&path, "planted").unwrap();
        let files = owned.files();
        assert_eq!(files.status(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        files.open(&path, How::Create(0o600)).unwrap().write_at(0, b"ours").unwrap();
        files.set_times(&path, (1, 2), (3, 4)).unwrap();
        assert_eq!(files.status(&path).unwrap().mtime, (3, 4));
        files.make_dir(&owned.path().join("sub"), 0o700).unwrap();
        files.rename(&path, &owned.path().join("sub/b")).unwrap();
        files.link(&owned.path().join("sub/b"), &owned.path().join("c")).unwrap();
        files.sync_dir(owned.path()).unwrap();
        assert_eq!(files.list(owned.path()).unwrap(), ["c", "sub"].map(PathBuf::from));
        assert_eq!(fs::read(dir.path().join("moved/scr.1/sub/b")).unwrap(), b"ours");
        files.remove_file(&owned.path().join("c")).unwrap();
        assert!(files.space(owned.path()).unwrap().free.is_none_or(|free| free > 0));
        assert_eq!(fs::read(&path).unwrap(), b"planted");
    }

    #[test]
    fn no_link_below_it_is_followed_and_one_elsewhere_is() {
        let dir = tempfile::tempdir().unwrap();
        let owned = make(dir.path(), "user1").unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        fs::write(dir.path().join("other/secret"), "x").unwrap();
        symlink(dir.path().join("other"), owned.path().join("dir")).unwrap();
        symlink(dir.path().join("other/secret"), owned.path().join("file")).unwrap();
        symlink("other", dir.path().join("link")).unwrap();
        let files = owned.files();
        for path in ["dir/secret", "file", "dir"] {
            assert!(files.open(&owned.path().join(path), How::Read).is_err(), "{path}");
        }
        assert!(files.list(&owned.path().join("dir")).is_err());
        assert!(files.make_dir(&owned.path().join("dir/a"), 0o700).is_err());
        assert_eq!(files.status(&owned.path().join("file")).unwrap().kind, Kind::Link);
        files.set_times(&owned.path().join("file"), (1, 2), (3, 4)).unwrap();
        assert_eq!(files.status(&owned.path().join("file")).unwrap().mtime, (3, 4));
        assert_ne!(files.status(&dir.path().join("other/secret")).unwrap().mtime, (3, 4));
        assert!(files.open(&dir.path().join("link/secret"), How::Read).is_ok());
    }

    /// As another job of the allocation does that starts or ends meanwhile.
    #[test]
    fn a_folder_that_others_remove_and_make_again_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let owned = make(dir.path(), "user1").unwrap();
        let (files, folder) = (owned.files(), owned.path().join("a/b"));
        let path = folder.join("file");
        fs::create_dir_all(&folder).unwrap();
        files.open(&path, How::Create(0o600)).unwrap();
        for round in 0..3 {
            fs::remove_dir_all(owned.path().join("a")).unwrap();
            assert!(files.status(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
            fs::create_dir_all(&folder).unwrap();
            match round {
                0 => drop(files.open(&path, How::Create(0o600)).unwrap()),
                1 => files.make_dir(&path, 0o700).unwrap(),
                _ => {
                    fs::write(owned.path().join("from"), "x").unwrap();
                    files.rename(&owned.path().join("from"), &path).unwrap();
                }
            }
            assert!(path.exists() && files.status(&path).is_ok(), "round {round}");
        }
        assert_eq!(files.list(&folder).unwrap(), [PathBuf::from("file")]);
    }

    #[test]
    fn a_folder_that_a_link_has_replaced_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (owned, files) =
            make(dir.path(), "user1").map(|owned| (owned.clone(), Arc::clone(owned.files()))).unwrap();
        let (folder, elsewhere) = (owned.path().join("a"), dir.path().join("elsewhere"));
        for folder in [&folder, &elsewhere] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
        }
        assert!(files.status(&folder.join("file")).is_ok());
        fs::remove_dir_all(&folder).unwrap();
        symlink(&elsewhere, &folder).unwrap();
        assert!(files.status(&folder.join("file")).is_err());
        assert!(files.remove_file(&folder.join("file")).is_err() && elsewhere.join("file").exists());
    }

    #[test]
    fn two_directories_are_held_by_one_layer_and_faults_still_have_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        let one = OwnedDir::make(&faulty, &dir.path().join("b"), Path::new("one"), uid()).unwrap();
        let two = OwnedDir::make(&**one.files(), &dir.path().join("b"), Path::new("two"), uid()).unwrap();
        fs::rename(dir.path().join("b"), dir.path().join("moved")).unwrap();
        faulty.heal();
        for owned in [&one, &two] {
            two.files().open(&owned.path().join("x"), How::Create(0o600)).unwrap();
        }
        assert!(dir.path().join("moved/one/x").exists() && dir.path().join("moved/two/x").exists());
        let operations = faulty.operations();
        assert_eq!(operations.len(), 2);
        assert!(operations[0].what == What::OpenToWrite && operations[0].path == one.path().join("x"));
    }

    /// scr made the folders of its datasets in those of the application.
    #[test]
    fn nothing_is_made_in_a_folder_of_the_application_that_has_the_number_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let (base, theirs) = (dir.path().join("base"), dir.path().join("theirs"));
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), "theirs").unwrap();
        let owned = make(&base, "user/scr.7").unwrap();
        let at = |name: &str| owned.path().join(name);
        owned.files().make_dir(&at("a"), 0o700).unwrap();
        owned.files().make_dir(&at("a/b"), 0o700).unwrap();
        fs::write(at("a/b/file"), "ours").unwrap();
        assert!(owned.files().status(&at("a/b/file")).is_ok());
        let numbers = open_below(&base);
        assert!(numbers.len() >= 3, "the directory, and folders in it that stay open: {numbers:?}");
        for &number in &numbers {
            give_away(number, fs::File::open(&theirs).unwrap());
        }
        let files = owned.files();
        let results = [
            files.make_dir(&at("c"), 0o700),
            files.make_dir(&at("a/b/c"), 0o700),
            files.open(&at("new"), How::Create(0o600)).map(drop),
            files.open(&at("a/file"), How::Ensure(0o600)).map(drop),
            files.remove_file(&at("file")),
            files.remove_file(&at("a/b/file")),
            files.rename(&at("a/b/file"), &at("a/b/other")),
            files.link(&at("a/b/file"), &at("other")),
            files.list(owned.path()).map(drop),
            files.status(&at("a/b/file")).map(drop),
            files.space(owned.path()).map(drop),
        ];
        for result in results {
            assert!(crate::fs::is_of_closed_file(&result.unwrap_err()));
        }
        assert!(!owned.is_gone(), "nobody makes it again");
        drop(owned);
        assert!(numbers.iter().all(|&number| closes(number, &theirs)), "they are the application's to close");
        assert_eq!(REAL.list(&theirs).unwrap(), [Path::new("file")]);
        assert_eq!(fs::read(theirs.join("file")).unwrap(), b"theirs");
        assert_eq!(fs::read(base.join("user/scr.7/a/b/file")).unwrap(), b"ours");
    }
}
