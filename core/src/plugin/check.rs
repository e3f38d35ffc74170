//! A library is looked at before the dynamic linker touches it, through one descriptor that is then the one loaded.

use super::elf::{self, ElfProblem};
use super::trust::{check_folder_of, TrustError};
use crate::env::{Distrust, Trusted};
use crate::fs::{File, Files, How, Kind};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

/// A library that may be loaded: it stays open, so what was checked is what will be loaded.
pub struct CheckedLibrary {
    pub(super) file: Box<dyn File>,
    /// Where it really lies, after symbolic links.
    pub path: PathBuf,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    pub(super) identity: (u64, u64),
}

/// Why a library is not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// It cannot be read.
    #[error("cannot read the library {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is a folder, a pipe or the like.
    #[error("the library {} is {found}, not a file", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Others may write it.
    #[error("the library {} is refused: {reason}", path.display())]
    Distrusted {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: Distrust,
    },
    /// It is too large to be one.
    #[error("the library {} has {found} bytes, more than the {MAX_LIBRARY_BYTES} that a plugin may have", path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
    },
    /// It is no whole library for this machine.
    #[error("the library {} cannot be loaded: {problem}", path.display())]
    Elf {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: ElfProblem,
    },
}

const MAX_LIBRARY_BYTES: u64 = 1 << 30;

/// Opens the library at `path` and checks it, without loading anything.
///
/// # Errors
/// [`CheckError`] with the path and the reason.
pub fn check_library(
    files: &dyn Files,
    path: &Path,
    trusted: &Trusted,
) -> Result<CheckedLibrary, CheckError> {
    let (file, real, status) = open(files, path, trusted)?;
    if status.len > MAX_LIBRARY_BYTES {
        return Err(CheckError::TooLarge { path: real, found: status.len });
    }
    let bytes = read_all(&*file, status.len)
        .map_err(|source| CheckError::Unreadable { path: real.clone(), source })?;
    elf::check(&bytes).map_err(|problem| CheckError::Elf { path: real.clone(), problem })?;
    let sha256 = hexadecimal(&Sha256::digest(&bytes));
    let bytes = bytes.len() as u64;
    Ok(CheckedLibrary { file, path: real, bytes, sha256, identity: status.identity })
}

/// Opens what is really at `path`, if it is a file that only trusted users may write.
fn open(
    files: &dyn Files,
    path: &Path,
    trusted: &Trusted,
) -> Result<(Box<dyn File>, PathBuf, crate::fs::Status), CheckError> {
    let unreadable = |source| CheckError::Unreadable { path: path.to_owned(), source };
    let real = files.real_path(path).map_err(unreadable)?;
    let file = files.open(&real, How::Read).map_err(unreadable)?;
    let status = file.status().map_err(unreadable)?;
    if let Some(found) = not_a_file(status.kind) {
        return Err(CheckError::NotAFile { path: real, found });
    }
    let distrusted = |reason| CheckError::Distrusted { path: real.clone(), reason };
    trusted.check(&real, &status).map_err(distrusted)?;
    check_folder_of(trusted, files, &real).map_err(|error| match error {
        TrustError::Distrust(reason) => distrusted(reason),
        TrustError::Unreadable(source) => unreadable(source),
    })?;
    Ok((file, real, status))
}

/// What it is instead of a file.
pub(super) fn not_a_file(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::File => None,
        Kind::Dir => Some("a folder"),
        Kind::Link => Some("a symbolic link"),
        Kind::Other => Some("a device or a pipe"),
    }
}

/// All bytes of a file that had `len` of them when it was looked at.
fn read_all(file: &dyn File, len: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = vec![0; len];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
