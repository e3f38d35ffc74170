//! Whole files: read with a limit, and written so that a reader sees the old one or the new one.

use super::error::{unless_missing, At};
use super::owned::{STICKY, WORLD_WRITES};
use super::{retried, unique_number, File, Files, FsError, How, Kind, Status};
use crate::ensure;
use scr_plugin_api::grow;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The user who may give files to other users.
const ROOT: u32 = 0;
/// The number of attempts.
const MAX_TEMPORARIES: u32 = 10;

/// The durability of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Bytes and names are on stable storage before the call returns: for the prefix directory.
    Synced,
    /// Nothing: for the cache, where the loss of the node loses the file anyway.
    Unsynced,
    /// Nothing, and the file has its mode whatever the umask: for what others read meanwhile.
    Shown,
}

impl dyn Files + '_ {
    /// All bytes of a file that has at most `limit`.
    ///
    /// # Errors
    /// [`FsError::Io`], and [`FsError::TooLarge`].
    pub fn read_all(&self, path: &Path, limit: u64) -> Result<Vec<u8>, FsError> {
        retried(self, |files| read_open(&*files.open(path, How::Read).at("open", path)?, path, limit))
    }

    /// As `read_all`, or `None` where there is no such file.
    ///
    /// # Errors
    /// As for `read_all`.
    pub fn read_if_there(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
        self.if_there(path, || self.read_all(path, limit))
    }

    /// `None` where something is not there, as two answers say. A checkpoint that is taken for missing is lost, and a network
    /// file system may remember for seconds that there was nothing: to open the folder makes it look again.
    pub(super) fn if_there<T>(
        &self,
        path: &Path,
        ask: impl Fn() -> Result<T, FsError>,
    ) -> Result<Option<T>, FsError> {
        let answer = unless_missing(ask())?;
        if answer.is_some() {
            return Ok(answer);
        }
        drop(self.open(folder_of(path), How::Folder));
        unless_missing(ask())
    }

    /// The text of a file such as `/proc/meminfo` in which the system describes itself, if it does.
    pub fn read_about_system(&self, path: impl AsRef<Path>) -> Option<String> {
        String::from_utf8(self.read_all(path.as_ref(), 1 << 24).ok()?).ok()
    }

    /// Makes a file hold `bytes` in one step: under a temporary name first, then renamed. A new file gets `mode`
    /// less the umask, unless it is to be shown. After an error the old file is as it was.
    ///
    /// # Errors
    /// [`FsError::Io`]; where only the last sync failed, the new file is there and may yet be lost.
    pub fn write_atomic(
        &self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        wait: Durability,
    ) -> Result<(), FsError> {
        self.write_fenced(path, bytes, mode, wait, &|| true)
    }

    /// As `write_atomic`, if `may_replace` still says so once the new file is written.
    ///
    /// # Errors
    /// As there, and [`FsError::LockLost`].
    pub fn write_fenced(
        &self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        wait: Durability,
        may_replace: &dyn Fn() -> bool,
    ) -> Result<(), FsError> {
        retried(self, |files| {
            let (temporary, file) = files.create_temporary(path, mode)?;
            let written = files
                .take_over_access(&*file, path)
                .and_then(|()| fill(&*file, &temporary, bytes, mode, wait))
                .and_then(|()| ensure(may_replace(), || FsError::lock_lost(path)))
                .and_then(|()| {
                    let renamed = files.rename(&temporary, path).at("rename a new file to", path);
                    // The process that has taken the lock has removed the new file.
                    renamed.map_err(|error| match error.is_not_found() && !may_replace() {
                        true => FsError::lock_lost(path),
                        false => error,
                    })
                });
            if let Err(error) = written {
                // The first error is the one to report.
                let _ = files.remove_file(&temporary);
                return Err(error);
            }
            if wait == Durability::Synced {
                let folder = folder_of(path);
                files.sync_dir(folder).at("sync", folder)?;
            }
            Ok(())
        })
    }

    /// What root makes in the folder of a user belongs to the user: the user's next job is to change it.
    pub(super) fn give_to_owner_of_folder(&self, file: &dyn File, path: &Path) -> Result<(), FsError> {
        let made = file.status().at("inspect the new", path)?;
        match self.status(folder_of(path)) {
            Ok(folder) if made.uid == ROOT && folder.uid != ROOT => {
                file.set_owner(folder.uid, folder.gid).at("set the owner of the new", path)
            }
            _ => Ok(()),
        }
    }

    /// A file that root writes in the folder of a user belongs to the user, and one that it replaces keeps its owner and mode:
    /// the next job of the user is to read and replace it. Where everybody may write, anybody can have put a file there: it lends
    /// nothing, unless it is the folder's owner's.
    fn take_over_access(&self, file: &dyn File, path: &Path) -> Result<(), FsError> {
        if file.status().at("inspect the new", path)?.uid != ROOT {
            return Ok(());
        }
        let Ok(folder) = self.status(folder_of(path)) else { return Ok(()) };
        let is_shared = folder.mode & (WORLD_WRITES | STICKY) != 0;
        let lends = |found: &Status| found.kind == Kind::File && (found.uid == folder.uid || !is_shared);
        let replaced = self.status(path).ok().filter(lends);
        let owned = replaced.unwrap_or(folder);
        if owned.uid == ROOT {
            return Ok(());
        }
        file.set_owner(owned.uid, owned.gid).at("set the owner of the new", path)?;
        match replaced {
            Some(replaced) => file.set_mode(replaced.mode).at("set the permissions of the new", path),
            None => Ok(()),
        }
    }

    /// Removes what others have begun to write for a file: they can replace it no more.
    ///
    /// # Errors
    /// [`FsError::Io`].
    pub fn remove_unfinished(&self, path: &Path) -> Result<(), FsError> {
        let (folder, beginning) = (folder_of(path), temporary_of(path));
        for name in self.list_if_there(folder)? {
            if name.as_os_str().as_bytes().starts_with(beginning.as_bytes()) {
                self.remove_if_there(&folder.join(name))?;
            }
        }
        Ok(())
    }

    /// A temporary file has a random number, so that no writer renames that of another one. Files of dead writers are ignored;
    /// under the prefix directory `prefix::tidy` removes them.
    fn create_temporary(&self, path: &Path, mode: u32) -> Result<(PathBuf, Box<dyn File>), FsError> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..MAX_TEMPORARIES {
            let mut name = temporary_of(path);
            name.push(unique_number().to_string());
            let temporary = path.with_file_name(name);
            match self.open(&temporary, How::Create(mode)) {
                Ok(file) => return Ok((temporary, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error).at("create", &temporary),
            }
        }
        Err(last).at("find a temporary name for", path)
    }
}

/// All bytes of an open file that has at most `limit`. Its status may be wrong: files of the kernel have no length there,
/// and others may grow.
pub(super) fn read_open(file: &dyn File, path: &Path, limit: u64) -> Result<Vec<u8>, FsError> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let too_large = |found| FsError::TooLarge { path: path.to_owned(), found, most: limit };
    let check = |found| ensure(found <= limit, || too_large(found));
    let Status { kind, len: found, .. } = file.status().at("look at", path)?;
    ensure(kind == Kind::File, || FsError::NotAFile { path: path.to_owned() })?;
    check(found)?;
    let mut bytes = Vec::new();
    let mut room = if found == 0 { UNKNOWN } else { usize::try_from(found).unwrap_or(most) };
    loop {
        // One byte more: only what ends before it is known to be whole.
        let (done, end) = (bytes.len(), room.min(most).saturating_add(1));
        grow(&mut bytes, end).at("read", path)?;
        let read = file.read_at(done as u64, &mut bytes[done..]).at("read", path)?;
        bytes.truncate(done + read);
        check(bytes.len() as u64)?;
        if bytes.len() < end {
            return Ok(bytes);
        }
        room = room.saturating_mul(2);
    }
}

/// Room for the first bytes of a file without a length.
const UNKNOWN: usize = 4096;

/// The folder that a path lies in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn fill(file: &dyn File, path: &Path, bytes: &[u8], mode: u32, wait: Durability) -> Result<(), FsError> {
    file.write_at(0, bytes).at("write", path)?;
    match wait {
        Durability::Synced => file.sync().at("sync", path),
        Durability::Unsynced => Ok(()),
        Durability::Shown => file.set_mode(mode).at("set the permissions of", path),
    }
}

/// The common beginning of the names of all temporary files for a file.
fn temporary_of(path: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp.");
    name
}

#[cfg(test)]
mod tests {
    use super::super::RealFiles;
    use super::*;
    use crate::kit::faulty::FaultyFiles;
    use std::fs;

    const REAL: &dyn Files = &RealFiles;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_other_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.scr");
        for text in ["a long first text", "short", ""] {
            REAL.write_atomic(&path, text.as_bytes(), 0o600, Durability::Synced).unwrap();
            assert_eq!(REAL.read_all(&path, 100).unwrap(), text.as_bytes());
        }
        assert_eq!(REAL.list(dir.path()).unwrap(), [PathBuf::from("index.scr")]);
    }

    /// A command that root ran under a strict umask left files that the user's next job could not read.
    /// Root's `scr halt` kept the user's own job from reading it.
    #[test]
    fn a_file_that_root_makes_to_be_changed_in_place_belongs_to_the_owner_of_its_folder() {
        use std::os::unix::fs::{chown, MetadataExt};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("halt.scr");
        let files: &dyn Files = &RealFiles;
        let is_root = chown(dir.path(), Some(1234), Some(1234)).is_ok();
        files.update_locked(&path, |tree| tree.set("A", 1)).unwrap();
        let uid = fs::metadata(&path).unwrap().uid();
        assert_eq!(uid, if is_root { 1234 } else { fs::metadata(dir.path()).unwrap().uid() });
    }

    #[test]
    fn a_file_that_root_replaces_keeps_its_owner_and_mode() {
        use std::os::unix::fs::{chown, MetadataExt};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.scr");
        fs::write(&path, "old").unwrap();
        // Without the right to do so the files are those of the tester, and stay so.
        let given = [dir.path(), &path].map(|path| chown(path, Some(1234), Some(1234)));
        let access = || fs::metadata(&path).map(|found| (found.uid(), found.gid(), found.mode())).unwrap();
        let before = access();
        assert_eq!(given.iter().all(Result::is_ok), before.0 == 1234);
        REAL.write_atomic(&path, b"new", 0o600, Durability::Synced).unwrap();
        assert_eq!((access(), fs::read(&path).unwrap()), (before, b"new".to_vec()));
        fs::remove_file(&path).unwrap();
        REAL.write_atomic(&path, b"new", 0o600, Durability::Synced).unwrap();
        assert_eq!(access().0, before.0);
    }

    /// Root gave its metrics to the user who had put a file of that name into the folder first, and who then wrote what he liked.
    #[test]
    fn a_file_that_another_user_has_put_where_everybody_may_write_lends_its_owner_and_mode_to_nobody() {
        use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scr.root.1.n0.prom");
        let set_mode =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(&path, "planted").unwrap();
        if chown(&path, Some(4711), Some(4711)).is_err() {
            println!("skipped: only root can give a file to another user");
            return;
        }
        for shared in [0o1777, 0o777, 0o1775] {
            set_mode(dir.path(), shared);
            fs::write(&path, "planted").unwrap();
            chown(&path, Some(4711), Some(4711)).unwrap();
            set_mode(&path, 0o666);
            REAL.write_atomic(&path, b"new", 0o644, Durability::Unsynced).unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.uid(), found.mode() & 0o022), (0, 0), "in a folder of mode {shared:o}");
        }
    }

    #[test]
    fn a_leftover_of_a_writer_that_died_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".a.tmp.0"), "half").unwrap();
        REAL.write_atomic(&dir.path().join("a"), b"whole", 0o600, Durability::Unsynced).unwrap();
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"whole");
    }

    #[test]
    fn a_file_over_the_limit_is_refused_and_a_missing_one_is_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert!(REAL.read_if_there(&path, 3).unwrap().is_none());
        assert!(REAL.read_all(&path, 3).unwrap_err().is_not_found());
        fs::write(&path, "1234").unwrap();
        let error = REAL.read_all(&path, 3).unwrap_err();
        assert!(matches!(error, FsError::TooLarge { found: 4, most: 3, .. }), "{error}");
        assert_eq!(REAL.read_all(&path, 4).unwrap(), b"1234");
        assert!(REAL.read_all(dir.path(), 1 << 20).is_err(), "a folder is no file");
    }

    /// They were read as empty, as the length that they have says.
    #[test]
    fn files_of_the_kernel_are_read_to_their_end() {
        let version = Path::new("/proc/version");
        assert_eq!(REAL.read_all(version, 1 << 20).unwrap(), fs::read(version).unwrap());
        let kernel = tempfile::tempdir().unwrap();
        let files = FaultyFiles::new(RealFiles);
        files.pretend_memory(kernel.path());
        fs::create_dir(kernel.path().join("proc")).unwrap();
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            fs::write(kernel.path().join("proc/long"), &bytes).unwrap();
            let read = |most| (&files as &dyn Files).read_all(Path::new("/proc/long"), most);
            assert_eq!(read(len).unwrap(), bytes);
            assert_eq!(read(1 << 20).unwrap(), bytes);
            if len > 0 {
                let error = read(len - 1).unwrap_err();
                assert!(matches!(error, FsError::TooLarge { .. }), "{error}");
            }
        }
    }

    #[test]
    fn writers_at_the_same_time_leave_one_of_their_texts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::thread::scope(|scope| {
            for writer in 0..8_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        REAL.write_atomic(path, &[writer; 1000], 0o600, Durability::Unsynced).unwrap();
                    }
                });
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() == 1000 && bytes.iter().all(|&byte| byte == bytes[0]));
        assert_eq!(REAL.list(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn wherever_the_disk_is_full_or_the_world_stops_the_file_is_the_old_or_the_new_one() {
        for stop in [false, true] {
            for at in 1.. {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("a");
                fs::write(&path, "old").unwrap();
                let files = FaultyFiles::new(RealFiles);
                if stop {
                    files.stop_at(at);
                } else {
                    files.fail_from(at, io::ErrorKind::StorageFull);
                }
                let result = (&files as &dyn Files).write_atomic(&path, b"new", 0o600, Durability::Synced);
                let found = fs::read(&path).unwrap();
                assert!(found == b"old" || found == b"new", "stop {stop} at {at}: {found:?}");
                if result.is_ok() {
                    assert_eq!(found, b"new");
                    assert_eq!(at, 6, "create, write, sync, rename, sync of the folder");
                    break;
                }
            }
        }
    }
}
