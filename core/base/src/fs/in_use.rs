//! What only the system knows of an open file, by its descriptor: who else has it open, and how it lies there. Of a file without a
//! descriptor nothing is known.

use super::real::about_system;
use super::{File, Writer};
use rustix::fs::{fgetxattr, fstat, major, minor, stat, Stat};
use scr_plugin_api::paths_in;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

impl dyn File + '_ {
    /// Whether it has an access control list, of which the bits for the group are the mask.
    pub fn has_access_list(&self) -> bool {
        let none: &mut [u8] = &mut [];
        self.descriptor().is_ok_and(|file| fgetxattr(file, "system.posix_acl_access", none).is_ok())
    }

    /// Whether the file takes less room than it has bytes.
    pub fn has_holes(&self) -> bool {
        self.found().is_some_and(|found| found.st_blocks < found.st_size / 512)
    }

    /// The processes that have the file open for writing, as far as the system tells. Only for a file that was opened for
    /// reading.
    pub fn writer(&self) -> Option<Writer> {
        let is_ours = || is_written_by_this_process(&self.found()?);
        match is_open_to_write(self.descriptor().ok()?) {
            Some(false) => None,
            Some(true) if is_ours() == Some(false) => Some(Writer::Others),
            Some(true) => Some(Writer::ThisProcess),
            // Leases are not available, as on network file systems and for files of others.
            None => (is_ours() == Some(true)).then_some(Writer::ThisProcess),
        }
    }

    /// The number and the name of another process that has the file open for writing. It looks at all processes.
    pub fn other_writer(&self) -> Option<String> {
        let own = self.found()?;
        let number = |process: &Path| process.file_name()?.to_str()?.parse::<u32>().ok();
        let is_other =
            |process: &&PathBuf| number(process).is_some_and(|number| number != std::process::id());
        let processes = paths_in(Path::new("/proc")).ok()?;
        let mut others = processes.iter().filter(is_other);
        let other = others.find(|process| has_open_to_write(process, &own) == Some(true))?;
        let program = about_system(other.join("comm"));
        Some(format!("{} ({})", number(other)?, program.trim()))
    }

    /// Whether a process of this machine, which nobody has killed, has the file open.
    pub fn is_open_in(&self, process: u32) -> bool {
        let process = Path::new("/proc").join(process.to_string());
        let status = about_system(process.join("status"));
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let is_killed = |hex: &str| u64::from_str_radix(hex.trim(), 16).is_ok_and(|set| set & KILLED != 0);
        let is_open = |own| open_in(&process, &own).is_some_and(|mut open| open.next().is_some());
        !pending.is_some_and(is_killed) && self.found().is_some_and(is_open)
    }

    fn found(&self) -> Option<Stat> {
        fstat(self.descriptor().ok()?).ok()
    }
}

/// Whether anybody, in any process, has the file open to write: the system grants no lease on such a file. `None` where leases are
/// not available.
fn is_open_to_write(file: BorrowedFd<'_>) -> Option<bool> {
    let control = |command, argument: i32| {
        // SAFETY: the descriptor is open, and all commands used here take a number.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // Who opens the file while the lease is held waits, which a signal announces: one that is ignored by default.
    match control(F_SETSIG, libc::SIGURG).and_then(|()| control(libc::F_SETLEASE, libc::F_RDLCK)) {
        Ok(()) => {
            // It needs not be given back if the file is closed meanwhile.
            let _ = control(libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(true),
        Err(_) => None,
    }
}

/// Whether this process has the file open for writing, or mapped. `None` if that cannot be found out.
fn is_written_by_this_process(file: &Stat) -> Option<bool> {
    Some(has_open_to_write(Path::new("/proc/self"), file)? || is_mapped_to_write(file))
}

/// Where the process of this folder below `/proc` has a file open. `None` if its open files cannot be listed.
fn open_in<'f>(process: &Path, file: &'f Stat) -> Option<impl Iterator<Item = PathBuf> + use<'f>> {
    let is_it = |number: &PathBuf| {
        stat(number).is_ok_and(|other| (other.st_dev, other.st_ino) == (file.st_dev, file.st_ino))
    };
    Some(paths_in(&process.join("fd")).ok()?.into_iter().filter(is_it))
}

/// Whether the process of this folder below `/proc` has a file open for writing. `None` if its open files cannot be listed.
fn has_open_to_write(process: &Path, file: &Stat) -> Option<bool> {
    let mut same = open_in(process, file)?;
    Some(same.any(|number| {
        let number = number.file_name().unwrap_or_default();
        let info = about_system(process.join("fdinfo").join(number));
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
    }))
}

/// Whether this process has a file mapped so that it can write there.
fn is_mapped_to_write(file: &Stat) -> bool {
    let device = format!("{:02x}:{:02x}", major(file.st_dev), minor(file.st_dev));
    let maps = about_system("/proc/self/maps");
    maps.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_shared = words.next().is_some_and(|rights| rights.contains('w') && rights.ends_with('s'));
        is_shared && words.nth(1) == Some(&device) && words.next() == Some(&file.st_ino.to_string())
    })
}

/// The same number on all processors that Linux now runs on, but missing in the bindings.
const F_SETSIG: i32 = 10;

/// SIGKILL in a set of signals.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Files, How, RealFiles};
    use crate::kit::descriptors::wait_until;

    #[test]
    fn a_file_has_a_writer_as_long_as_it_is_open_to_be_written() {
        let dir = tempfile::TempDir::new_in("/dev/shm")
            .expect("a file system in memory, where leases are available");
        let path = dir.path().join("file");
        let writer = RealFiles.open(&path, How::Create(0o600)).unwrap();
        let file = RealFiles.open(&path, How::Read).unwrap();
        assert_eq!(file.writer(), Some(Writer::ThisProcess));
        drop(writer);
        // A process that another test starts has the descriptor too, until it executes its program.
        wait_until(|| file.writer().is_none());
        let _reader = RealFiles.open(&path, How::Read).unwrap();
        assert_eq!(file.writer(), None);
        let _writer = RealFiles.open(&path, How::Update).expect("no lease is left that it would wait for");
    }
}
