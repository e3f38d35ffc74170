//! A library is checked before the dynamic linker touches it, through one descriptor that is then the one loaded. Only root, the
//! user and the owner of the installation may write what we load.

use super::elf;
use super::host::PluginLoadError;
use scr_base::ensure;
use scr_base::env::{Distrust, Trusted};
use scr_base::fs::{retried, zeroed, File, Files, How, Kind, Status};
use scr_plugin_api::held;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// A library that may be loaded: it stays open, so what was checked is what will be loaded.
pub struct CheckedLibrary {
    pub(super) file: Box<dyn File>,
    /// Its real path, after symbolic links.
    pub path: PathBuf,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// As it was when it was checked.
    pub status: Status,
}

/// Opens what is really at `path`, if it is a file that only trusted users may write. Gives its path without links as well.
///
/// The file itself is checked, and the folder that it really lies in, after symbolic links. Folders further up need no
/// check: who can rename them can only put another tree in the way, and the files in that must again belong to one of
/// the three, and be writable by nobody else.
pub(super) fn open_trusted(
    files: &dyn Files,
    path: &Path,
    trusted: &Trusted,
) -> Result<(Box<dyn File>, PathBuf, Status), TrustError> {
    let (real, file, status) = retried(files, |files| {
        let real = files.real_path(path)?;
        let file = files.open(&real, How::Read)?;
        let status = file.status()?;
        Ok::<_, io::Error>((real, file, status))
    })?;
    match status.kind {
        Kind::File => (),
        Kind::Dir => return Err(TrustError::NotAFile("a folder")),
        Kind::Link => return Err(TrustError::NotAFile("a symbolic link")),
        Kind::Other => return Err(TrustError::NotAFile("a device or a pipe")),
    }
    trusted.check(&real, &status)?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    trusted.check(folder, &files.status(folder)?)?;
    Ok((file, real, status))
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error("cannot read it: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    #[error(transparent)]
    Distrust(#[from] Distrust),
}

const MAX_LIBRARY_BYTES: u64 = 1 << 30;

/// Opens the library at `path` and checks it, without loading anything.
///
/// # Errors
/// [`PluginLoadError`] with the path and the reason.
pub fn check_library(
    files: &dyn Files,
    path: &Path,
    trusted: &Trusted,
) -> Result<CheckedLibrary, PluginLoadError> {
    let real = || files.real_path(path).unwrap_or_else(|_| path.to_owned());
    let opened = open_trusted(files, path, trusted).map_err(|error| match error {
        TrustError::Unreadable(source) => PluginLoadError::Unreadable { path: path.to_owned(), source },
        TrustError::NotAFile(found) => unfit(&real(), &format!("is {found}, not a file")),
        TrustError::Distrust(reason) => unfit(&real(), &format!("is refused: {reason}")),
    });
    let (file, real, status) = opened?;
    // The dynamic linker opens the very file that was checked, by its number there.
    let numbers = files.status(Path::new("/proc/self/fd"));
    let no_numbers =
        "cannot be loaded, as /proc is not mounted here; mount it, also in a container or a chroot";
    let is_mounted = !numbers.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    ensure(is_mounted, || unfit(&real, no_numbers))?;
    let found = status.len;
    let too_large = || format!("has {found} bytes, more than the {MAX_LIBRARY_BYTES} that a plugin may have");
    ensure(found <= MAX_LIBRARY_BYTES, || unfit(&real, &too_large()))?;
    if let Some(sha256) = known().get(&identity(&status)).cloned() {
        return Ok(CheckedLibrary { file, path: real, sha256, status });
    }
    let bytes = retried(files, |_| read_all(&*file, status.len))
        .map_err(|source| PluginLoadError::Unreadable { path: real.clone(), source })?;
    elf::check(&bytes).map_err(|problem| unfit(&real, &format!("cannot be loaded: {problem}")))?;
    let sha256 = format!("{:x}", Sha256::digest(&bytes));
    known().insert(identity(&status), sha256.clone());
    Ok(CheckedLibrary { file, path: real, sha256, status })
}

fn unfit(library: &Path, why: &str) -> PluginLoadError {
    PluginLoadError::Unusable(format!("the library {} {why}", library.display()))
}

/// The hashes of the libraries that this process has read, by [`identity`]: a library that nothing has changed is read once.
fn known() -> MutexGuard<'static, BTreeMap<String, String>> {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    held(&KNOWN)
}

/// The report of a rank on a library that it has checked, to the ranks of its node: its real path, and which file it is.
pub(super) fn word(library: &CheckedLibrary) -> Vec<u8> {
    let word = (library.path.as_os_str(), &library.sha256, identity(&library.status));
    serde_json::to_vec(&word).unwrap_or_default()
}

/// Opens the library that another rank of this node has checked, without reading it: it must be the very file, unchanged
/// since. `None` if it is not, or if this rank may not trust it.
pub(super) fn checked_by_mate(files: &dyn Files, word: &[u8], trusted: &Trusted) -> Option<CheckedLibrary> {
    let (path, sha256, file_there): (OsString, String, String) = serde_json::from_slice(word).ok()?;
    let path = PathBuf::from(path);
    let file = files.open(&path, How::Read).ok()?;
    let status = file.status().ok()?;
    trusted.check(&path, &status).ok()?;
    let is_the_same = file_there == identity(&status);
    is_the_same.then_some(CheckedLibrary { file, path, sha256, status })
}

/// Which file it is, and everything that changes with its bytes, its owner or its mode.
fn identity(status: &Status) -> String {
    format!("{:?} {} {:?} {:?}", status.identity, status.len, status.mtime, status.ctime)
}

/// All bytes of a file that had `len` of them when it was inspected.
pub(super) fn read_all(file: &dyn File, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = zeroed(len)?;
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}
