//! Nobody but root, the user and the owner of the installation may write what we load.
//!
//! The file itself is checked, and the folder that it really lies in, after symbolic links. Folders further up need no
//! check: who can rename them can only put another tree in the way, and the files in that must again belong to one of
//! the three, and be writable by nobody else.

use crate::env::{Distrust, Trusted};
use crate::fs::Files;
use std::path::Path;

/// Checks the folder that the file at `real`, a path without links, lies in.
pub(super) fn check_folder_of(trusted: &Trusted, files: &dyn Files, real: &Path) -> Result<(), TrustError> {
    let folder = real.parent().unwrap_or(Path::new("/"));
    let status = files.status(folder).map_err(TrustError::Unreadable)?;
    Ok(trusted.check(folder, &status)?)
}

/// Either it is not trusted, or that cannot be found out.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error(transparent)]
    Distrust(#[from] Distrust),
    #[error("cannot look at the folder: {0}")]
    Unreadable(std::io::Error),
}
