//! Only root, the user and the owner of the installation may write what we load.
//!
//! The file itself is checked, and the folder that it really lies in, after symbolic links. Folders further up need no
//! check: who can rename them can only put another tree in the way, and the files in that must again belong to one of
//! the three, and be writable by nobody else.

use scr_base::env::{Distrust, Trusted};
use scr_base::fs::{retried, File, Files, How, Kind, Status};
use std::io;
use std::path::{Path, PathBuf};

/// Opens what is really at `path`, if it is a file that only trusted users may write. Gives its path without links as well.
pub(super) fn open(
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
