//! The names in a folder.
//!
//! What `std::fs::read_dir` gives panics when it is dropped, if the system fails to close the folder.

use rustix::fd::OwnedFd;
use rustix::fs::{open, Dir, Mode, OFlags};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The names in an open folder, sorted: all of them, or an error.
///
/// # Errors
/// The system's error.
pub fn names_in(folder: OwnedFd) -> io::Result<Vec<PathBuf>> {
    let names =
        Dir::new(folder)?.map(|entry| Ok(PathBuf::from(OsStr::from_bytes(entry?.file_name().to_bytes()))));
    let is_name = |name: &io::Result<PathBuf>| {
        !name.as_ref().is_ok_and(|name| name == Path::new(".") || name == Path::new(".."))
    };
    let mut names = names.filter(is_name).collect::<io::Result<Vec<_>>>()?;
    // By their bytes: to compare two paths is to parse both.
    names.sort_unstable_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok(names)
}

/// The paths of what is in a folder, sorted: all of them, or an error.
///
/// # Errors
/// The system's error.
pub fn paths_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let names = names_in(open(folder, flags, Mode::empty())?)?;
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
