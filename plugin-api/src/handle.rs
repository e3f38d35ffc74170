//! Open files of scr in the process of an application.
//!
//! All of a process share its descriptors, and an application may close one that it has not opened: `closefrom`, or a loop over
//! all numbers. The next file that it opens gets the number. So nothing that is open for longer than a call may be used or closed
//! by its number alone, and a [`Handle`] is what owns it: it looks first whether the number still stands for what it has opened.
//! That takes about a microsecond, and asks no file server. While a thread of the application is in a [`Call`], it closes nothing,
//! so one look lasts until the call ends.
//!
//! It cannot help against another thread that closes a number between that look and the use.

use crate::failing_writes::WritesFail;
use crate::standard::{self, Held};
use rustix::fs::{fcntl_getfl, fstat, makedev, statx, AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file, a socket or a folder that belongs to scr, whatever the application closes and opens.
///
/// Dropping it closes it, unless the application has done so.
///
/// Its number is never that of standard input, output or error: see [`above_standard`](crate::above_standard).
pub struct Handle<T: AsFd + IntoRawFd> {
    /// There until it is dropped.
    file: Option<T>,
    identity: Identity,
    /// The call in which it was looked at last.
    seen_in: AtomicU64,
}

/// A call of the application into scr, in the thread that made it, as long as this lives. A call within a call is a part of it.
///
/// Nothing that is written meanwhile ends the application, and nothing that is opened takes the number of a closed standard stream,
/// in whatever library.
#[must_use]
#[derive(Debug)]
pub struct Call {
    is_outermost: bool,
    /// What is written must not end the application, and what is opened must not take the numbers that it prints to.
    _meanwhile: Option<(WritesFail, Held)>,
}

impl Call {
    /// The call begins.
    pub fn begin() -> Self {
        let is_outermost = CALL.get() == NO_CALL;
        if is_outermost {
            CALL.set(CALLS.fetch_add(1, Ordering::Relaxed));
        }
        Self { is_outermost, _meanwhile: is_outermost.then(|| (WritesFail::begin(), Held::begin())) }
    }

    /// Whether this thread is in one.
    pub(crate) fn is_under_way() -> bool {
        this_call() != NO_CALL
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_outermost {
            CALL.set(NO_CALL);
        }
    }
}

thread_local!(static CALL: Cell<u64> = const { Cell::new(NO_CALL) });
/// No other call of any thread has the same number.
static CALLS: AtomicU64 = AtomicU64::new(NO_CALL + 1);
const NO_CALL: u64 = 0;

/// What tells an open file from others: device and inode, which a socket and a pipe have too, and how it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    flags: OFlags,
}

impl<T: AsFd + IntoRawFd> Handle<T> {
    /// Owns what has just been opened.
    ///
    /// # Errors
    /// The system does not tell what it is, or has no other number for it.
    pub fn new(file: T) -> io::Result<Self>
    where
        T: From<OwnedFd>,
    {
        Self::where_it_is(standard::raised(file)?)
    }

    /// The same with the number that it has, which may be one that the application prints to.
    pub(crate) fn where_it_is(file: T) -> io::Result<Self> {
        let identity = Identity::of(file.as_fd())?;
        Ok(Self { file: Some(file), identity, seen_in: AtomicU64::new(this_call()) })
    }

    /// What was opened, to be used at once.
    ///
    /// # Errors
    /// [`Closed`]: it is not open any more.
    pub fn get(&self) -> io::Result<&T> {
        let (file, call) = (self.file(), this_call());
        if call != NO_CALL && self.seen_in.load(Ordering::Relaxed) == call {
            return Ok(file);
        }
        match Identity::of(file.as_fd()) {
            Ok(identity) if identity == self.identity => {
                self.seen_in.store(call, Ordering::Relaxed);
                Ok(file)
            }
            Ok(_) => Err(io::Error::other(Closed { is_reused: true })),
            Err(Errno::BADF) => Err(io::Error::other(Closed { is_reused: false })),
            Err(error) => Err(error.into()),
        }
    }

    fn file(&self) -> &T {
        self.file.as_ref().expect("it is there until it is dropped")
    }
}

/// A thread that ends may drop what it has open when its own variables are gone.
fn this_call() -> u64 {
    CALL.try_with(Cell::get).unwrap_or(NO_CALL)
}

impl<T: AsFd + IntoRawFd> Drop for Handle<T> {
    fn drop(&mut self) {
        let is_ours = self.get().is_ok();
        if let Some(file) = self.file.take().filter(|_| !is_ours) {
            // The number belongs to somebody else, or to nobody.
            let _ = file.into_raw_fd();
        }
    }
}

impl<T: AsFd + IntoRawFd + fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(self.file()).finish()
    }
}

impl Identity {
    fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        // A file server is not asked: it might not answer, and what is open keeps its identity.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let (device, inode) = match statx(file, c"", flags, StatxFlags::INO) {
            Ok(found) => (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino),
            Err(Errno::BADF) => return Err(Errno::BADF),
            // Any other error says nothing about the number: a kernel or a container that does not know the call, no memory. A
            // socket that stayed open for it would keep its peers waiting.
            Err(_) => fstat(file).map(|found| (found.st_dev, found.st_ino))?,
        };
        Ok(Self { device, inode, flags: fcntl_getfl(file)?.intersection(FIXED) })
    }
}

/// The flags of an open file that nobody can change. An application that opens a folder of scr by itself has mostly others.
const FIXED: OFlags = OFlags::RWMODE.union(OFlags::PATH).union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// A file that scr keeps open was closed by the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a file that scr keeps open was closed by somebody else{}; an application may close only what it has opened, so closefrom() \
     and loops over all descriptors have to come before SCR_Init, or after SCR_Finalize",
    if *is_reused { ", and its number stands for another file now, which scr leaves alone" } else { "" }
)]
pub struct Closed {
    /// Whether another file has its number by now.
    pub is_reused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, FromRawFd, RawFd};
    use std::os::unix::net::UnixDatagram;

    /// Gives the number of what is open to another file, in one step: another thread of these tests takes no number in between.
    fn give_away(number: RawFd, to: &File) {
        // SAFETY: it is forgotten before it could close the number twice.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(to, &mut taken).unwrap();
        let _ = taken.into_raw_fd();
    }

    fn is_open(number: RawFd, path: &std::path::Path) -> bool {
        fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|link| link == path)
    }

    /// scr made folders in those of the application, and closed its files.
    fn is_left_alone<T: AsFd + AsRawFd + IntoRawFd + From<OwnedFd>>(opened: T) {
        let dir = std::env::temp_dir().join(format!("scr-handle.{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let number = opened.as_raw_fd();
        let path = fs::canonicalize(&dir).unwrap().join(number.to_string());
        let other = File::create(&path).unwrap();
        let handle = Handle::new(opened).unwrap();
        assert_eq!(handle.get().unwrap().as_raw_fd(), number);
        give_away(number, &other);
        let error = handle.get().err().unwrap().to_string();
        assert!(
            error.contains("was closed by somebody else, and its number stands for another file now"),
            "{error}"
        );
        assert!(error.contains("before SCR_Init, or after SCR_Finalize") && !error.contains('\n'), "{error}");
        drop(handle);
        assert!(is_open(number, &path), "it is the application's to close");
        fs::remove_file(path).unwrap();
        let _ = fs::remove_dir(dir);
        // SAFETY: nothing else owns the number.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    #[test]
    fn a_number_that_the_application_has_taken_is_neither_used_nor_closed() {
        let file = || File::open("/proc/self/exe").unwrap();
        is_left_alone(file());
        is_left_alone(File::open("/").unwrap());
        is_left_alone(OwnedFd::from(file()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        is_left_alone(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        is_left_alone(listener);
        is_left_alone(UnixDatagram::unbound().unwrap());
        is_left_alone(std::io::pipe().unwrap().1);
    }

    /// As one that syncs the folder in which its files are.
    #[test]
    fn the_same_folder_opened_in_another_way_is_not_ours() {
        let held =
            rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        let number = held.as_raw_fd();
        let handle = Handle::new(held).unwrap();
        give_away(number, &File::open("/").unwrap());
        assert!(handle.get().is_err());
        drop(handle);
        assert!(is_open(number, std::path::Path::new("/")));
        // SAFETY: nothing else owns the number.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    #[test]
    fn a_handle_is_looked_at_once_in_each_call_of_each_thread() {
        let looks = |handle: &Handle<File>, other: &File| {
            let number = handle.get().unwrap().as_raw_fd();
            let ours = handle.get().unwrap().try_clone().unwrap();
            give_away(number, other);
            let is_seen = handle.get().is_err();
            give_away(number, &ours);
            is_seen
        };
        let other = File::open("/").unwrap();
        let handle = Handle::new(File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(looks(&handle, &other), "the application is at work");
        for _ in 0..2 {
            let call = Call::begin();
            drop(Call::begin());
            assert!(!looks(&handle, &other), "a call within it does not end it");
            std::thread::scope(|scope| {
                assert!(scope.spawn(|| looks(&handle, &other)).join().unwrap(), "a thread is in no call");
            });
            drop(call);
            assert!(looks(&handle, &other), "the call is over");
            let number = handle.get().unwrap().as_raw_fd();
            let ours = handle.get().unwrap().try_clone().unwrap();
            give_away(number, &other);
            let _call = Call::begin();
            assert!(handle.get().is_err(), "it is another call");
            give_away(number, &ours);
        }
    }

    #[test]
    fn what_was_closed_is_an_error_and_is_not_closed_again() {
        let file = File::open("/proc/self/exe").unwrap();
        let number = file.as_raw_fd();
        let handle = Handle::new(file).unwrap();
        // SAFETY: the handle is to find that out.
        unsafe { rustix::io::close(number) };
        assert!(handle.get().err().unwrap().to_string().starts_with("a file that scr keeps open was closed"));
    }

    #[test]
    fn one_of_two_sockets_is_not_the_other_and_flags_that_change_do_not_matter() {
        let (one, other) = UnixDatagram::pair().unwrap();
        assert_ne!(Identity::of(one.as_fd()), Identity::of(other.as_fd()));
        let handle = Handle::new(one).unwrap();
        handle.get().unwrap().set_nonblocking(true).unwrap();
        handle.get().unwrap().send(b"still ours").unwrap();
        let (reads, writes) = std::io::pipe().unwrap();
        let handle = Handle::new(writes).unwrap();
        handle.get().unwrap().write_all(b"so is a pipe").unwrap();
        drop((handle, reads));
    }
}
