//! The memory of a file, borrowed instead of copied.
//!
//! Access to a mapping ends in `SIGBUS` if the file has been truncated meanwhile, if its device fails, or if a hole cannot be
//! filled. So a file is mapped only if none of that can happen, and otherwise read and written as usual:
//!
//! - It is on tmpfs: its bytes are memory already, and no device can fail.
//! - This process holds a lease on it (`F_SETLEASE`). The system grants one only while nobody else has the file open for writing
//!   (or, for a write lease, open at all), by any mapping or descriptor. From then on, a process that opens or truncates the file
//!   waits in the system until the lease is given back, or for `/proc/sys/fs/lease-break-time` (45 seconds). While somebody
//!   waits, nothing more is borrowed, and each borrow lasts for one block only, until the messages that carry it have ended. It is
//!   assumed that this takes less than that time. If it took longer, a waiting process would go on: one that truncates the file
//!   would end the access in `SIGBUS`. Only processes of the same user can open the file. The signal that announces a waiting
//!   process is one that is ignored by default.
//! - It has memory for every byte, and the system has populated the pages (`MADV_POPULATE_READ`) right before they are borrowed.
//!   That call returns an error where an access would end the process. A Linux before 5.14, which does not know the call, returns
//!   an error too.
//!
//! Mapping and unmapping pages costs about as much as copying them, and more if they are small. So only files with large pages
//! are mapped ([`super::RealFiles`] looks). The mapping stays with the open file, without a lease and without any access, and the
//! next write over the file finds its pages mapped.
#![expect(clippy::disallowed_types, reason = "the lease has a `Handle`")]

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{fstat, fstatfs, FileType};
use scr_plugin_api::Handle;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of the bytes of an open file in memory, from the first time that it is mapped; it says nothing of whether they may
/// be touched.
pub(super) type Mapping = Mutex<Option<Arc<MmapRaw>>>;

/// The bytes of an open file as memory.
pub struct Mapped {
    map: Arc<MmapRaw>,
    lease: Lease,
    /// The ranges that are borrowed for writing; empty for a file that is borrowed for reading.
    borrowed: Mutex<Vec<Range<usize>>>,
}

/// Bytes of a file, borrowed exclusively for writing. They keep their contents until overwritten.
pub struct MappedRange<'a> {
    mapped: &'a Mapped,
    range: Range<usize>,
}

impl Mapped {
    /// A file of `len` bytes that is open to be read only, or one that is open to be written as well, and what was mapped of
    /// it before. `None` where it would not be safe.
    pub(super) fn new(file: &File, len: u64, kind: LeaseKind, mapping: &Mapping) -> Option<Self> {
        let length = usize::try_from(len).ok()?;
        let is_in_memory = fstatfs(file).is_ok_and(|system| system.f_type == libc::TMPFS_MAGIC);
        if !is_in_memory || length == 0 {
            return None;
        }
        let lease = Lease::take(file.as_fd(), kind).ok()?;
        // Only now can the length and the memory not change any more.
        let status = fstat(file).ok()?;
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        let has_memory = u64::try_from(status.st_blocks).is_ok_and(|blocks| blocks >= len.div_ceil(BLOCK));
        if !is_file || u64::try_from(status.st_size) != Ok(len) || !has_memory {
            return None;
        }
        let mut mapping = mapping.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mapping.take().filter(|map| map.len() == length);
        let map = known.map_or_else(|| map(file, length, kind).map(Arc::new), Ok).ok()?;
        *mapping = Some(Arc::clone(&map));
        Some(Self { map, lease, borrowed: Mutex::default() })
    }

    /// A part of a file that is open to be read only.
    pub fn borrow(&self, range: Range<usize>) -> Option<&[u8]> {
        if self.lease.kind != LeaseKind::Read || !self.is_there(&range) {
            return None;
        }
        // SAFETY: `is_there` has seen that the range lies within the mapping, which lives as long as `self`, and that its
        // bytes are there. The lease keeps everybody from changing or shortening the file for as long as a borrow may last (see
        // the module), and nothing here writes.
        Some(unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(range.start), range.len()) })
    }

    /// A part of a file that is open to be written, unless some of it is borrowed already.
    pub fn borrow_mut(&self, range: Range<usize>) -> Option<MappedRange<'_>> {
        let mut borrowed = self.borrowed();
        if self.lease.kind != LeaseKind::Write || overlaps(&borrowed, &range) || !self.is_there(&range) {
            return None;
        }
        borrowed.push(range.clone());
        Some(MappedRange { mapped: self, range })
    }

    /// Whether some of this part is borrowed to be written.
    pub fn is_borrowed(&self, range: &Range<usize>) -> bool {
        overlaps(&self.borrowed(), range)
    }

    fn is_there(&self, range: &Range<usize>) -> bool {
        range.start <= range.end
            && range.end <= self.map.len()
            && self.lease.is_held()
            && self.map.advise_range(Advice::PopulateRead, range.start, range.len()).is_ok()
    }

    fn borrowed(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.borrowed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn map(file: &File, length: usize, kind: LeaseKind) -> io::Result<MmapRaw> {
    let mut options = MmapOptions::new();
    match kind {
        LeaseKind::Read => options.len(length).map_raw_read_only(file),
        LeaseKind::Write => options.len(length).map_raw(file),
    }
}

fn overlaps(borrowed: &[Range<usize>], range: &Range<usize>) -> bool {
    borrowed.iter().any(|other| other.start < range.end && range.start < other.end)
}

impl MappedRange<'_> {
    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the range lies within the mapping, which outlives `self` and whose pages were there when it was borrowed.
        // The lease keeps all other openers of the file away for as long as a borrow may last (see the module), and no other
        // range overlaps this one.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.mapped.map.as_mut_ptr().add(self.range.start),
                self.range.len(),
            )
        }
    }
}

impl Drop for MappedRange<'_> {
    fn drop(&mut self) {
        let mut borrowed = self.mapped.borrowed();
        if let Some(at) = borrowed.iter().position(|range| *range == self.range) {
            borrowed.swap_remove(at);
        }
    }
}

/// Whether anybody, in any process, has the file open to write. `None` where leases are not available.
pub(super) fn is_open_to_write(file: BorrowedFd<'_>) -> Option<bool> {
    match Lease::take(file, LeaseKind::Read) {
        Ok(_) => Some(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(true),
        Err(_) => None,
    }
}

/// The processes that a lease excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseKind {
    /// Those that open the file for writing.
    Read,
    /// Those that open the file at all.
    Write,
}

/// A lease on an open file, given back when it is dropped.
struct Lease {
    file: Handle<OwnedFd>,
    kind: LeaseKind,
}

impl Lease {
    fn take(file: BorrowedFd<'_>, kind: LeaseKind) -> io::Result<Self> {
        let lease = Self { file: Handle::new(file.try_clone_to_owned()?)?, kind };
        // Before the lease exists, the signal has to be a harmless one, and after that it is sent to nobody.
        lease.control(F_SETSIG, libc::SIGURG)?;
        lease.control(libc::F_SETLEASE, lease.number())?;
        lease.control(libc::F_SETOWN, 0)?;
        Ok(lease)
    }

    /// Whether nobody waits for it to be given back.
    fn is_held(&self) -> bool {
        self.control(libc::F_GETLEASE, 0).is_ok_and(|kind| kind == self.number())
    }

    fn number(&self) -> i32 {
        match self.kind {
            LeaseKind::Read => libc::F_RDLCK,
            LeaseKind::Write => libc::F_WRLCK,
        }
    }

    fn control(&self, command: i32, argument: i32) -> io::Result<i32> {
        let file = self.file.get()?;
        // SAFETY: the descriptor is open, and all commands used here take a number.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error()),
            value => Ok(value),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A lease that is not held any more needs not be given back.
        let _ = self.control(libc::F_SETLEASE, libc::F_UNLCK);
    }
}

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Sets the signal that announces a waiting process; the same number on all processors that Linux now runs on, but missing in
/// the bindings.
const F_SETSIG: i32 = 10;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make and look at real files")]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use tempfile::TempDir;

    const LEN: usize = 3 * 4096 + 5;

    /// A file in memory.
    fn in_memory() -> (TempDir, PathBuf) {
        let dir = TempDir::new_in("/dev/shm").expect("these tests need a file system in memory at /dev/shm");
        let path = dir.path().join("file");
        fs::write(&path, content()).unwrap();
        (dir, path)
    }

    fn content() -> Vec<u8> {
        (0..LEN).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    fn to_read(path: &Path) -> Option<Mapped> {
        Mapped::new(&File::open(path).unwrap(), LEN as u64, LeaseKind::Read, &Mapping::default())
    }

    fn to_write(file: &File) -> Option<Mapped> {
        Mapped::new(file, LEN as u64, LeaseKind::Write, &Mapping::default())
    }

    fn open_to_update(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn borrowed_bytes_equal_the_file_and_end_with_it() {
        let (_dir, path) = in_memory();
        let mapped = to_read(&path).unwrap();
        assert_eq!(mapped.borrow(4000..LEN).unwrap(), &content()[4000..]);
        assert!(mapped.borrow(1..LEN + 1).is_none(), "there is no such byte");
        assert!(mapped.borrow_mut(0..1).is_none(), "it was opened to be read");
    }

    #[test]
    fn writes_to_a_mapped_range_reach_the_file_and_ranges_never_overlap() {
        let (_dir, path) = in_memory();
        let mapped = to_write(&open_to_update(&path)).unwrap();
        let mut range = mapped.borrow_mut(100..200).unwrap();
        assert!(mapped.borrow_mut(199..201).is_none() && mapped.is_borrowed(&(0..101)));
        range.bytes().fill(9);
        drop(mapped.borrow_mut(200..300).unwrap());
        drop(range);
        assert!(!mapped.is_borrowed(&(0..LEN)) && mapped.borrow_mut(150..250).is_some());
        drop(mapped);
        let mut expected = content();
        expected[100..200].fill(9);
        assert!(fs::read(&path).unwrap() == expected);
    }

    #[test]
    fn a_file_that_is_open_elsewhere_to_be_written_is_not_mapped() {
        let (_dir, path) = in_memory();
        let writer = open_to_update(&path);
        assert!(to_read(&path).is_none());
        drop(writer);
        assert!(to_read(&path).is_some());
        let reader = File::open(&path).unwrap();
        let writer = open_to_update(&path);
        assert!(to_write(&reader).is_none());
        drop(reader);
        assert!(to_write(&writer).is_some());
    }

    #[test]
    fn a_file_of_another_length_or_with_a_hole_is_not_mapped() {
        let (_dir, path) = in_memory();
        let longer = LEN as u64 + 1;
        assert!(Mapped::new(&open_to_update(&path), longer, LeaseKind::Write, &Mapping::default()).is_none());
        fs::write(&path, "").unwrap();
        open_to_update(&path).write_all_at(b"x", LEN as u64 - 1).unwrap();
        assert!(to_read(&path).is_none());
    }

    #[test]
    fn a_mapping_that_was_kept_is_borrowed_again_only_with_a_new_lease_and_while_the_file_is_as_long() {
        let (_dir, path) = in_memory();
        let (file, mapping) = (open_to_update(&path), Mapping::default());
        let map = || Mapped::new(&file, LEN as u64, LeaseKind::Write, &mapping);
        let first = map().unwrap().map.as_ptr();
        assert_eq!(map().unwrap().map.as_ptr(), first, "it is mapped once");
        let other = open_to_update(&path);
        assert!(map().is_none(), "somebody else has it open");
        other.set_len(LEN as u64 - 4096).unwrap();
        drop(other);
        assert!(map().is_none(), "it is shorter, and to touch what was its end would be the end");
        file.set_len(LEN as u64).unwrap();
        assert!(map().is_none(), "a page of it is a hole");
        fs::write(&path, content()).unwrap();
        let mapped = map().unwrap();
        assert!(mapped.borrow_mut(0..LEN).unwrap().bytes() == content());
    }

    #[test]
    fn a_file_outside_of_tmpfs_is_not_mapped() {
        let binary = File::open("/proc/self/status").unwrap();
        assert!(Mapped::new(&binary, 100, LeaseKind::Read, &Mapping::default()).is_none());
    }

    #[test]
    fn a_truncation_waits_for_the_lease_and_stops_further_borrows() {
        let (_dir, path) = in_memory();
        std::thread::scope(|scope| {
            let mapped = to_read(&path).unwrap();
            let before = mapped.borrow(0..LEN).unwrap();
            let truncating = scope.spawn(|| File::create(&path).unwrap());
            while mapped.borrow(0..1).is_some() {
                std::thread::yield_now();
            }
            // The waiting thread has done nothing yet, and the signal has not ended the process.
            assert!(before == content() && !truncating.is_finished());
            drop(mapped);
            assert_eq!(truncating.join().unwrap().metadata().unwrap().len(), 0);
        });
    }
}
