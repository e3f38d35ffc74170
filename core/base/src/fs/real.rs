//! The real file system: the one place where core touches it.
//!
//! Every open has `O_CLOEXEC`; one that may create has `O_NOFOLLOW`, so that a link that somebody put in the way
//! is not written through; one that only reads has `O_NONBLOCK`, so that a named pipe in the way does not hang us.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "all other code uses the file system through this file"
)]

use super::held::{HeldDir, HeldDirs, Holding};
use super::{forked, lock, File, Files, How, IsMeant, Kind, LockAttempt, Space, Status};
use crate::env::to_stderr;
use rustix::fs::{
    fdatasync, fstat, fstatfs, fsync, ftruncate, futimens, linkat, mkdirat, renameat, statat, statx,
    unlinkat, utimensat, AtFlags, FileType, Mode, OFlags, Stat, StatFs, StatxFlags, Timespec, Timestamps,
};
use rustix::io::{pread, pwrite, write, Errno};
use rustix::process::geteuid;
use scr_plugin_api::{names_in, uninterrupted, write_all, Handle};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl Holding for RealFiles {
    fn held(&self) -> &[Arc<HeldDir>] {
        &[]
    }
}

impl<T: Holding> Files for T {
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        let (flags, mode) = flags_of(how);
        Ok(Box::new(RealFile::new(self.place(path)?.open(flags, mode)?.into(), how)?))
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        let status = |folder: BorrowedFd<'_>, name: &OsStr| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        self.place(path)?.at(|folder, name| Ok(status_of(&status(folder, name)?)))
    }

    fn born(&self, path: &Path) -> io::Result<Option<(i64, u32)>> {
        self.place(path)?.at(birth)
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.name(path)?.at(|folder, name| Ok(mkdirat(folder, name, Mode::from_raw_mode(mode))?))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        names_in(self.place(path)?.open(OFlags::DIRECTORY, 0)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.name(path)?.at(|folder, name| Ok(unlinkat(folder, name, AtFlags::empty())?))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let place = self.name(path)?;
        place.at(|folder, name| Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?))?;
        place.forget();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.name(from)?.with(&self.name(to)?, |old, from, new, to| renameat(old, from, new, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let none = AtFlags::empty();
        self.name(from)?.with(&self.name(to)?, |old, from, new, to| linkat(old, from, new, to, none))
    }

    fn set_times(&self, path: &Path, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        let (times, itself) = (timestamps(accessed, changed), AtFlags::SYMLINK_NOFOLLOW);
        self.name(path)?.at(|folder, name| Ok(utimensat(folder, name, &times, itself)?))
    }

    fn hold_memory(&self, path: &Path) -> Option<HeldMemory> {
        let file = self.place(path).ok()?.open(OFlags::PATH | OFlags::NOFOLLOW, 0).ok()?;
        let is_in_memory = fstatfs(&file).is_ok_and(|system| space_of(&system).in_memory);
        Handle::new(file).ok().filter(|_| is_in_memory)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        Ok(space_of(&self.place(path)?.file_system()?))
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        match self.place(path).is_ok_and(|place| place.is_held()) {
            // No link is followed there.
            true if self.status(path)?.kind == Kind::Link => Err(Errno::LOOP.into()),
            true => Ok(path.to_owned()),
            false => fs::canonicalize(path),
        }
    }

    fn through(&self, path: &Path, dir: Arc<dyn File>, is_meant: Option<IsMeant>) -> Option<Arc<dyn Files>> {
        Some(Arc::new(HeldDirs::new(self.held(), path, dir, is_meant)?))
    }

    fn hold_instead(&self, path: &Path, dir: Arc<dyn File>) {
        self.held().iter().for_each(|held| held.hold_instead(path, &dir));
    }

    fn umask(&self) -> u32 {
        static UMASK: OnceLock<u32> = OnceLock::new();
        *UMASK.get_or_init(|| {
            let status = about_system("/proc/self/status");
            let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
            umask.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
        })
    }

    fn machine(&self) -> Vec<u8> {
        static BOOT: OnceLock<Vec<u8>> = OnceLock::new();
        BOOT.get_or_init(|| about_system("/proc/sys/kernel/random/boot_id").into_bytes()).clone()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn notice(&self, line: &str) {
        to_stderr(&format!("scr: {line}"));
    }
}

/// What a file below `/proc` says; empty where that cannot be read.
pub(super) fn about_system(path: impl AsRef<Path>) -> String {
    (&RealFiles as &dyn Files).read_about_system(path).unwrap_or_default()
}

/// When what is below a folder was made. A link is not followed.
fn birth(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<(i64, u32)>> {
    match statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME) {
        Ok(found) if found.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            Ok(Some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec)))
        }
        Ok(_) | Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn space_of(system: &StatFs) -> Space {
    let block = u64::try_from(system.f_frsize).unwrap_or(0);
    let blocks = if geteuid().is_root() { system.f_bfree } else { system.f_bavail };
    // One in memory that may grow without limit has no blocks.
    let free = (system.f_blocks > 0).then(|| blocks.saturating_mul(block));
    Space { free, in_memory: [TMPFS, RAMFS].contains(&i128::from(system.f_type)) }
}

/// A file that is only held, so that its memory stays.
pub type HeldMemory = Handle<OwnedFd>;

/// File systems that keep their files in memory, by their numbers in the kernel.
const TMPFS: i128 = 0x0102_1994;
const RAMFS: i128 = 0x8584_58f6;

/// A file that is open.
struct RealFile {
    /// Once it may be locked, that is forgotten before the file is closed.
    given_up: OnceLock<forked::GivenUp>,
    file: Handle<fs::File>,
    how: How,
}

impl RealFile {
    fn new(file: fs::File, how: How) -> io::Result<Self> {
        Ok(Self { given_up: OnceLock::new(), file: Handle::new(file)?, how })
    }

    fn appends(&self) -> bool {
        matches!(self.how, How::Append(_))
    }
}

impl File for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (file, mut done) = (self.file.get()?, 0);
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let place = offset.checked_add(done as u64).ok_or(io::ErrorKind::InvalidInput)?;
            match uninterrupted(|| Ok(pread(file, &mut *rest, place)?))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.appends() {
            // Linux would append, wherever we ask it to write.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = self.file.get()?;
        write_all(bytes, |rest, done| Ok(pwrite(file, rest, offset.saturating_add(done))?))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.get()?;
        if self.appends() {
            write_all(bytes, |rest, _| Ok(write(file, rest)?))
        } else {
            self.write_at(file.metadata()?.len(), bytes)
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let file = self.file.get()?;
        uninterrupted(|| Ok(ftruncate(file, len)?))
    }

    fn status(&self) -> io::Result<Status> {
        Ok(status_of(&fstat(self.file.get()?)?))
    }

    fn sync(&self) -> io::Result<()> {
        let file = self.file.get()?;
        uninterrupted(|| match self.how {
            How::Folder => Ok(fsync(file)?),
            _ => Ok(fdatasync(file)?),
        })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.get()?.set_permissions(Permissions::from_mode(mode))
    }

    fn try_lock(&self) -> LockAttempt {
        let Ok(file) = self.file.get() else { return LockAttempt::NoLocks };
        self.given_up.get_or_init(|| forked::give_up(file.as_fd()));
        lock::KIND.attempt(file)
    }

    fn set_times(&self, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        Ok(futimens(self.file.get()?, &timestamps(accessed, changed))?)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(self.file.get()?, Some(uid), Some(gid))
    }

    fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.file.get().map(AsFd::as_fd)
    }
}

fn timestamps(accessed: (i64, u32), changed: (i64, u32)) -> Timestamps {
    let time = |(tv_sec, nanoseconds): (i64, u32)| Timespec { tv_sec, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time(accessed), last_modification: time(changed) }
}

/// How the system is asked to open a file, and the permission bits of a new one.
fn flags_of(how: How) -> (OFlags, u32) {
    let there = OFlags::NONBLOCK | OFlags::NOCTTY;
    let new = there | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CREATE;
    match how {
        How::Read => (there, 0),
        How::ReadNoLink => (there | OFlags::NOFOLLOW, 0),
        How::Update => (there | OFlags::RDWR, 0),
        How::Folder => (there | OFlags::DIRECTORY, 0),
        How::Create(mode) => (new | OFlags::EXCL, mode),
        How::Replace(mode) => (new | OFlags::TRUNC, mode),
        How::Append(mode) => (new | OFlags::APPEND, mode),
        How::Ensure(mode) => (new, mode),
    }
}

/// The widths of the fields differ between processors.
fn status_of(stat: &Stat) -> Status {
    fn wide(field: impl Into<u64>) -> u64 {
        field.into()
    }
    Status {
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        len: stat.st_size.max(0).unsigned_abs(),
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        atime: (stat.st_atime, nanoseconds(stat.st_atime_nsec)),
        ctime: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        mtime: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
        identity: (stat.st_dev, stat.st_ino),
        links: wide(stat.st_nlink),
    }
}

/// The system promises less than a second; a file system that lies gets zero.
fn nanoseconds(value: impl TryInto<u32>) -> u32 {
    value.try_into().ok().filter(|&value| value < 1_000_000_000).unwrap_or(0)
}

fn kind(of: FileType) -> Kind {
    match of {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::is_of_closed_file;
    use crate::kit::descriptors::{closes, give_away, wait_until};
    use rustix::fs::{mknodat, FileType as NodeType, Mode, CWD};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn bytes_written_at_an_offset_are_read_there() {
        let dir = folder();
        let file = RealFiles.open(&dir.path().join("a"), How::Create(0o600)).unwrap();
        file.write_at(3, b"abc").unwrap();
        let mut buffer = [9; 10];
        assert_eq!(file.read_at(0, &mut buffer).unwrap(), 6);
        assert_eq!(&buffer[..6], b"\0\0\0abc");
        assert_eq!(file.read_at(100, &mut buffer).unwrap(), 0);
        file.set_len(4).unwrap();
        assert_eq!(file.status().unwrap().len, 4);
        file.sync().unwrap();
    }

    #[test]
    fn creating_refuses_what_is_there_and_replacing_empties_it() {
        let dir = folder();
        let path = dir.path().join("a");
        fs::write(&path, "old").unwrap();
        let error = RealFiles.open(&path, How::Create(0o600)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        RealFiles.open(&path, How::Ensure(0o600)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        RealFiles.open(&path, How::Replace(0o600)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn nothing_is_created_or_written_through_a_link() {
        let dir = folder();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        for how in [How::Create(0o600), How::Replace(0o600), How::Append(0o600), How::Ensure(0o600)] {
            assert!(RealFiles.open(&link, how).is_err(), "{how:?}");
        }
        assert_eq!(fs::read(&target).unwrap(), b"kept");
    }

    #[test]
    fn appending_goes_to_the_end_and_nowhere_else() {
        let dir = folder();
        let path = dir.path().join("a");
        let file = RealFiles.open(&path, How::Append(0o600)).unwrap();
        file.append(b"one ").unwrap();
        RealFiles.open(&path, How::Append(0o600)).unwrap().append(b"two ").unwrap();
        RealFiles.open(&path, How::Update).unwrap().append(b"three").unwrap();
        assert!(file.write_at(0, b"x").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"one two three");
    }

    #[test]
    fn a_named_pipe_in_the_way_does_not_hang_the_reader() {
        let dir = folder();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, NodeType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(RealFiles.status(&path).unwrap().kind, Kind::Other);
        let pipe = RealFiles.open(&path, How::Read).unwrap();
        assert_eq!(pipe.status().unwrap().kind, Kind::Other);
    }

    #[test]
    fn the_lock_is_free_again_once_the_file_is_closed() {
        let dir = folder();
        let path = dir.path().join("a");
        let first = RealFiles.open(&path, How::Ensure(0o600)).unwrap();
        let second = RealFiles.open(&path, How::Update).unwrap();
        assert_eq!((first.try_lock(), second.try_lock()), (LockAttempt::Taken, LockAttempt::Held));
        drop(first);
        // A process that another test starts has the descriptor too, until it executes its program.
        wait_until(|| second.try_lock() == LockAttempt::Taken);
    }

    #[test]
    fn names_come_sorted_and_links_are_not_followed() {
        let dir = folder();
        RealFiles.make_dir(&dir.path().join("b"), 0o700).unwrap();
        fs::write(dir.path().join("a"), "12").unwrap();
        symlink("a", dir.path().join("c")).unwrap();
        assert_eq!(RealFiles.list(dir.path()).unwrap(), ["a", "b", "c"].map(PathBuf::from));
        let status = |name: &str| RealFiles.status(&dir.path().join(name)).unwrap();
        assert_eq!((status("a").kind, status("a").len), (Kind::File, 2));
        assert_eq!((status("b").kind, status("b").mode & 0o777), (Kind::Dir, 0o700));
        assert_eq!(status("c").kind, Kind::Link);
        RealFiles.link(&dir.path().join("a"), &dir.path().join("d")).unwrap();
        assert_eq!(status("a").identity, status("d").identity);
        RealFiles.sync_dir(dir.path()).unwrap();
        assert!(RealFiles.space(dir.path()).unwrap().free.is_none_or(|free| free > 0));
    }

    /// scr wrote into it, and closed it in the end.
    #[test]
    fn a_file_of_the_application_that_has_the_number_of_ours_is_left_alone() {
        let dir = folder();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        fs::write(&ours, "ours").unwrap();
        fs::write(&theirs, "theirs").unwrap();
        let before = RealFiles.status(&theirs).unwrap();
        for how in [How::Update, How::Append(0o600), How::Read] {
            let file = RealFiles.open(&ours, how).unwrap();
            let number = file.descriptor().unwrap().as_raw_fd();
            let of_application = fs::OpenOptions::new().read(true).write(true).open(&theirs).unwrap();
            give_away(number, &of_application);
            let results = [
                file.read_at(0, &mut [0; 3]).map(drop),
                file.append(b"more"),
                file.set_len(1),
                file.status().map(drop),
                file.sync(),
                file.set_mode(0o777),
                file.set_times((1, 0), (1, 0)),
                file.descriptor().map(drop),
            ];
            for result in results {
                assert!(is_of_closed_file(&result.unwrap_err()), "{how:?}");
            }
            assert!(file.write_at(0, b"wrong").is_err());
            assert_eq!(file.try_lock(), LockAttempt::NoLocks);
            let looks = RealFiles.open(&theirs, How::Update).unwrap();
            assert_eq!(looks.try_lock(), LockAttempt::Taken, "nobody has locked it");
            drop(file);
            assert!(closes(number, &theirs), "{how:?}");
        }
        assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
        let after = RealFiles.status(&theirs).unwrap();
        assert_eq!((after.mode, after.mtime), (before.mode, before.mtime));
    }
}
