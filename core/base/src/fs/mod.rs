//! The file layer: every file operation of the runtime goes through [`Files`].
//!
//! So a test can make any single operation fail, or stop the world after it.
//!
//! | part | what it is |
//! |---|---|
//! | [`Files`], [`File`] | the seam itself: single operations of the system |
//! | `real` | the real file system, the one place of core that touches it |
//! | `in_use` | what only the system knows of an open file: who else has it open |
//! | `limit` | how many files may be open at once |
//! | `forked` | what a child of a fork gives up: the locks |
//! | `lock` | the lock of the system on an open file, as the build selects it |
//! | `whole` | whole files: read, write so that a reader sees the old or the new one |
//! | `copy` | one file copied, with its checksum |
//! | `permissions` | those of a copy in another folder |
//! | `range` | a part of a file, read like a file |
//! | `folders` | folders made with their parents; removal of paths that may not exist, and of whole trees |
//! | `owned` | directories in places that all users share: checked, held open, and used through their descriptors |
//! | `held` | the real file system with such directories |
//! | `retrying` | the file layer that repeats what fails with an error that may pass |
//! | `trees` | KVTree files, also changed in place under a lock |
//! | `optional` | what a file system may refuse, and what stands in for it |
//! | `exclusive` | mutual exclusion, even if no lock of the system works |
//! | `pauses` | how long to wait between two looks at a file |
//! | `entry_name` | names of entries of a directory, from elsewhere |
//! | `error` | errors of all of these |

pub mod copy;
mod entry_name;
mod error;
mod exclusive;
mod folders;
mod forked;
mod held;
mod in_use;
mod limit;
mod lock;
mod owned;
mod pauses;
pub mod permissions;
mod range;
mod real;
mod retrying;
mod trees;
pub mod verify;
mod whole;

pub use entry_name::EntryName;
pub use error::{is_unmapped, unless_missing, versions, At, FsError, MayPass, NO_VERSION, UNMAPPED};
pub use limit::{expect_inodes, is_of_closed_file};
pub use lock::{keep_from_readers, LockAttempt, LOCKABLE};
pub use owned::OwnedDir;
pub use pauses::{Pauses, LEAST_PAUSE};
pub use range::FileRange;
pub use real::{HeldMemory, RealFiles};
pub use retrying::{retried, Retrying};
pub use scr_plugin_api::zeroed;
pub use trees::{Updated, MAX_TREE_BYTES};
pub use whole::Durability;

use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link, not followed.
    Link,
    /// Anything else.
    Other,
}

impl Kind {
    /// As messages say it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "a file",
            Kind::Dir => "a folder",
            Kind::Link => "a symbolic link",
            Kind::Other => "neither file nor folder",
        }
    }
}

/// The processes that have a file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// This process: bytes may be in its memory that are missing in the file.
    ThisProcess,
    /// Other processes only. One that was started meanwhile has all open files of this process.
    Others,
}

/// The status of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its kind.
    pub kind: Kind,
    /// Its length in bytes.
    pub len: u64,
    /// Permission bits with the type of the file, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access, change and modification time: seconds and nanoseconds since the epoch.
    pub atime: (i64, u32),
    /// As above.
    pub ctime: (i64, u32),
    /// As above.
    pub mtime: (i64, u32),
    /// Device and inode: equal for two paths to the same file.
    pub identity: (u64, u64),
    /// How many names it has.
    pub links: u64,
}

/// The room of a file system for more files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this user may still write. `None` where the file system has no limit of its own.
    pub free: Option<u64>,
    /// Whether it keeps its files in memory.
    pub in_memory: bool,
}

/// How to open a file. Permission bits of new files are less those of the process's umask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// To read what is there.
    Read,
    /// To read what is there, unless it is a symbolic link.
    ReadNoLink,
    /// To read and write what is there.
    Update,
    /// To write a file that must not be there yet, with these permission bits. Readable too.
    Create(u32),
    /// To write an empty file, emptied if it was there, with these permission bits if it was not. Readable too.
    Replace(u32),
    /// To append to a file that may be there, with these permission bits if it was not.
    Append(u32),
    /// To read and write a file that is made if it is not there, with these permission bits. Not emptied.
    Ensure(u32),
    /// A folder that is there: to look at it, to hold it, or to sync it.
    Folder,
}

/// An open file. Reading and writing at a place may be done from several threads at once.
pub trait File: Send + Sync {
    /// The file that this one stands before, which does what this one does not do itself.
    ///
    /// # Errors
    /// There is none: what this one does not do is not supported.
    fn inner(&self) -> io::Result<&dyn File> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Reads at `offset` into `buffer`; gives how many bytes came, less than asked only at the end of the file.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`. Not on a file that was opened to append.
    ///
    /// # Errors
    /// The system's error.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner()?.write_at(offset, bytes)
    }
    /// Writes all of `bytes` at the end, in one call of the system.
    ///
    /// # Errors
    /// The system's error.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.inner()?.append(bytes)
    }
    /// Makes the file this long.
    ///
    /// # Errors
    /// The system's error.
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner()?.set_len(len)
    }
    /// The status of the file.
    ///
    /// # Errors
    /// The system's error.
    fn status(&self) -> io::Result<Status>;
    /// Returns once the bytes and the length are on stable storage; of a folder, the names in it.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self) -> io::Result<()> {
        self.inner()?.sync()
    }
    /// Sets the permission bits.
    ///
    /// # Errors
    /// The system's error.
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.inner()?.set_mode(mode)
    }
    /// Takes the exclusive lock (flock), held until the file is closed, if nobody has it. Never waits.
    fn try_lock(&self) -> LockAttempt {
        self.inner().map_or(LockAttempt::NoLocks, File::try_lock)
    }
    /// Sets the times of the last access and of the last change: seconds and nanoseconds since the epoch.
    ///
    /// # Errors
    /// The system's error.
    fn set_times(&self, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        self.inner()?.set_times(accessed, changed)
    }
    /// Sets owner and group, which only a privileged process may.
    ///
    /// # Errors
    /// The system's error.
    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.inner()?.set_owner(uid, gid)
    }
    /// The descriptor, to be used at once: what the dynamic linker is to load must be a file of the system.
    ///
    /// # Errors
    /// There is none, or the application has closed it.
    fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.inner()?.descriptor()
    }
}

/// The file system.
pub trait Files: Send + Sync {
    /// The layer that this one stands before, where there is one. It does what this one does not do itself, of that which a layer
    /// need not do.
    fn inner(&self) -> Option<&dyn Files> {
        None
    }
    /// Opens a file. Never follows a symbolic link in the last part of the path when it creates.
    ///
    /// # Errors
    /// The system's error, as for all that follows.
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn File>>;
    /// The status of a path; a symbolic link is not followed.
    ///
    /// # Errors
    /// The system's error.
    fn status(&self, path: &Path) -> io::Result<Status>;
    /// When a file or a folder was made: seconds and nanoseconds since the epoch. A new one may get the number of one that is
    /// gone, but not this time as well. `None` where the file system does not say.
    ///
    /// # Errors
    /// The system's error.
    fn born(&self, path: &Path) -> io::Result<Option<(i64, u32)>> {
        let _ = path;
        Ok(None)
    }
    /// Makes one folder with these permission bits, less those of the process's umask.
    ///
    /// # Errors
    /// The system's error.
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Removes a file or a symbolic link.
    ///
    /// # Errors
    /// The system's error.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    ///
    /// # Errors
    /// The system's error.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Renames, replacing what was at `to`.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a second name for a file; fails where `to` is there already.
    ///
    /// # Errors
    /// The system's error.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Sets the times of the last access and the last change of a file: seconds and nanoseconds since the epoch. A symbolic
    /// link is not followed.
    ///
    /// # Errors
    /// The error that the system reports.
    fn set_times(&self, path: &Path, accessed: (i64, u32), changed: (i64, u32)) -> io::Result<()> {
        self.open(path, How::Update)?.set_times(accessed, changed)
    }
    /// Returns once the names in a folder are on stable storage. An error of opening it loses nothing, and may be repeated.
    ///
    /// # Errors
    /// The system's error.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.open(path, How::Folder)?.sync()
    }
    /// A hold on the memory of a file in a file system that is in memory: what removes the file gives its memory back only when
    /// the hold is dropped. `None` where that would be of no use, or not safe: a network file system would keep the name.
    fn hold_memory(&self, path: &Path) -> Option<HeldMemory> {
        self.inner()?.hold_memory(path)
    }
    /// The room of the file system of a path for more files.
    ///
    /// # Errors
    /// The system's error.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// The absolute path without any symbolic link, `.` or `..` that leads to what is there. A file layer that
    /// knows no links gives the path as it is.
    ///
    /// # Errors
    /// The system's error.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.status(path).map(|_| path.to_owned())
    }
    /// This file layer, but for what lies below `path`: that is reached through the open folder `dir`, as long as it `is_meant`,
    /// and no link there is followed. `None` where the layer has no descriptors.
    fn through(&self, path: &Path, dir: Arc<dyn File>, is_meant: Option<IsMeant>) -> Option<Arc<dyn Files>> {
        let _ = (path, dir, is_meant);
        None
    }
    /// The directory `path`, through which this layer reaches what lies below it, was removed and has been made again: from
    /// now on all layers that were made of this one reach it through `dir`.
    fn hold_instead(&self, path: &Path, dir: Arc<dyn File>) {
        if let Some(inner) = self.inner() {
            inner.hold_instead(path, dir);
        }
    }
    /// The permissions that the system takes away from new files of this process, where that is known.
    fn umask(&self) -> u32 {
        self.inner().map_or(0, Files::umask)
    }
    /// A text that all processes that see each other's locks share, and no other machine has; empty if it is
    /// not known.
    fn machine(&self) -> Vec<u8> {
        self.inner().map(Files::machine).unwrap_or_default()
    }
    /// Lets other processes continue for a while.
    fn pause(&self, time: Duration) {
        self.inner().map_or_else(std::thread::yield_now, |inner| inner.pause(time));
    }
    /// Tells the user what this process waits for.
    fn notice(&self, line: &str) {
        self.inner().into_iter().for_each(|inner| inner.notice(line));
    }
    /// The layer below this one, if this one repeats what fails with an error that may pass.
    fn without_retries(&self) -> Option<&dyn Files> {
        None
    }
    /// What could not be read for an error that may pass, and has not been read since, where a layer knows that.
    fn unread(&self) -> Option<String> {
        None
    }
    /// Nobody asks for what could not be read until now any more.
    fn forget_unread(&self) {}
    /// What the user is to be told of operations that a file system has refused, each once.
    fn take_notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Looks, before each operation in an open folder, whether that of this identity is still the one that is meant. Gives the one that
/// is instead; an error says that none is, and the operation fails.
pub type IsMeant = Arc<dyn Fn(Option<(u64, u64)>) -> io::Result<Option<Arc<dyn File>>> + Send + Sync>;

/// A random number for a name that nobody else gives, in any process.
pub fn unique_number() -> u64 {
    RandomState::new().build_hasher().finish()
}
