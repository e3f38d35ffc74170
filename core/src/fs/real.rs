//! The real file system: the one place where core touches it.
//!
//! Every open has `O_CLOEXEC`; one that may create has `O_NOFOLLOW`, so that a link that somebody put in the way
//! is not written through; one that only reads has `O_NONBLOCK`, so that a named pipe in the way does not hang us.
#![expect(clippy::disallowed_methods, reason = "all other code uses the file system through this file")]

use super::held::HeldDirs;
use super::limit::open_with_room;
use super::mapped::{LeaseKind, Mapped, Mapping};
use super::{lock, mapped, File, Files, How, Kind, Status};
use rustix::fs::{futimens, statvfs, utimensat, AtFlags, OFlags, Timespec, Timestamps, CWD};
use std::fs::{self, DirBuilder, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>> {
        open_file(path, how, true)
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        fs::symlink_metadata(path).map(|data| status(&data))
    }

    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().mode(mode).create(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let names = fs::read_dir(path)?.map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn set_times(&self, path: &Path, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        Ok(utimensat(CWD, path, &timestamps(accessed, changed), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let dir = OpenOptions::new().read(true).custom_flags(flags(OFlags::DIRECTORY)).open(path)?;
        match dir.sync_all() {
            // Some network file systems cannot sync a folder; their names are on the server already.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let numbers = statvfs(path)?;
        Ok(numbers.f_bavail.saturating_mul(numbers.f_frsize))
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn through(&self, path: &Path, dir: Arc<dyn File>) -> Option<Arc<dyn Files>> {
        HeldDirs::default().through(path, dir)
    }

    fn machine(&self) -> Vec<u8> {
        fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Opens a file; with `follow`, through a link where nothing is created.
pub(super) fn open_file(path: &Path, how: How, follow: bool) -> io::Result<Box<dyn File>> {
    let file = open_with_room(|| options(how, follow).open(path))?;
    Ok(Box::new(RealFile { file, how, mapping: Mapping::default() }))
}

struct RealFile {
    file: fs::File,
    how: How,
    mapping: Mapping,
}

impl RealFile {
    fn appends(&self) -> bool {
        matches!(self.how, How::Append(_))
    }

    /// By the list of open files, where leases are not available, as on network file systems and for files of others.
    fn is_written_by_this_process(&self) -> bool {
        let Ok(own) = self.file.metadata() else { return false };
        let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        open.filter(|entry| {
            fs::metadata(entry.path()).is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
        })
        .any(|entry| {
            let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name()))
                .unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok());
            flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
        })
    }
}

impl File for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let place = offset.checked_add(done as u64).ok_or(io::ErrorKind::InvalidInput)?;
            match self.file.read_at(rest, place) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.appends() {
            // Linux would append, wherever we ask it to write.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.write_all_at(bytes, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if self.appends() {
            (&self.file).write_all(bytes)
        } else {
            self.file.write_all_at(bytes, self.file.metadata()?.len())
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn status(&self) -> io::Result<Status> {
        self.file.metadata().map(|data| status(&data))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    fn try_lock(&self) -> io::Result<bool> {
        lock::attempt(&self.file)
    }

    fn set_times(&self, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        Ok(futimens(&self.file, &timestamps(accessed, changed))?)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid))
    }

    fn is_open_to_write(&self) -> bool {
        mapped::is_open_to_write(&self.file).unwrap_or_else(|| self.is_written_by_this_process())
    }

    fn map(&self, len: u64) -> Option<Mapped> {
        let kind = match self.how {
            How::Read => LeaseKind::Read,
            How::Append(_) | How::Folder => return None,
            _ => LeaseKind::Write,
        };
        Mapped::new(&self.file, len, kind, &self.mapping)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

pub(super) fn timestamps(accessed: (i64, u32), changed: (i64, u32)) -> Timestamps {
    let time = |(tv_sec, nanoseconds): (i64, u32)| Timespec { tv_sec, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time(accessed), last_modification: time(changed) }
}

fn options(how: How, follow: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let there = link | OFlags::NONBLOCK | OFlags::NOCTTY;
    match how {
        How::Read => options.read(true).custom_flags(flags(there)),
        How::Update => options.read(true).write(true).custom_flags(flags(there)),
        How::Folder => options.read(true).custom_flags(flags(there | OFlags::DIRECTORY)),
        How::Create(mode) => creating(&mut options, mode).write(true).create_new(true),
        How::Replace(mode) => creating(&mut options, mode).write(true).create(true).truncate(true),
        How::Append(mode) => creating(&mut options, mode).append(true).create(true),
        How::Ensure(mode) => creating(&mut options, mode).write(true).create(true).truncate(false),
    };
    options
}

fn creating(options: &mut OpenOptions, mode: u32) -> &mut OpenOptions {
    options.read(true).mode(mode).custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY))
}

/// The standard library wants the flags signed; no flag is the sign bit.
fn flags(flags: OFlags) -> i32 {
    i32::from_ne_bytes(flags.bits().to_ne_bytes())
}

fn status(data: &Metadata) -> Status {
    Status {
        kind: kind(data.file_type()),
        len: data.len(),
        mode: data.mode(),
        uid: data.uid(),
        gid: data.gid(),
        atime: (data.atime(), nanoseconds(data.atime_nsec())),
        ctime: (data.ctime(), nanoseconds(data.ctime_nsec())),
        mtime: (data.mtime(), nanoseconds(data.mtime_nsec())),
        identity: (data.dev(), data.ino()),
        links: data.nlink(),
    }
}

/// The system promises less than a second; a file system that lies gets zero.
fn nanoseconds(value: i64) -> u32 {
    u32::try_from(value).ok().filter(|&value| value < 1_000_000_000).unwrap_or(0)
}

fn kind(of: FileType) -> Kind {
    if of.is_file() {
        Kind::File
    } else if of.is_dir() {
        Kind::Dir
    } else if of.is_symlink() {
        Kind::Link
    } else {
        debug_assert!(of.is_fifo() || of.is_socket() || of.is_char_device() || of.is_block_device());
        Kind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mknodat, FileType as NodeType, Mode, CWD};
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
        assert!(first.try_lock().unwrap() && !second.try_lock().unwrap());
        drop(first);
        assert!(second.try_lock().unwrap());
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
        assert!(RealFiles.free_bytes(dir.path()).unwrap() > 0);
    }
}
