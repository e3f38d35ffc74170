//! Why a file could not be copied, and the error at the plugin boundary.

use scr_plugin_api::{PluginError, PluginErrorKind};
use std::io;
use std::path::PathBuf;

/// Why a file could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// What is to be copied, or what lies at its destination, is not what it should be.
    #[error(transparent)]
    Unfit(#[from] PluginError),
    /// The source is longer or shorter than it must be, from the start or since it was opened.
    #[error("the file to copy, {}, has {found} bytes where {expected} were recorded", path.display())]
    WrongSize {
        /// The source.
        path: PathBuf,
        /// How many bytes the host said.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// A call of the system failed.
    #[error("{action} {} failed at byte {offset}: {cause}", path.display())]
    Io {
        /// The operation: opening, reading, writing.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The offset in it.
        offset: u64,
        /// The error of the system, with its number.
        cause: io::Error,
    },
    /// Somebody asked to stop.
    #[error("copying to {} was cancelled at byte {offset}", path.display())]
    Cancelled {
        /// The destination.
        path: PathBuf,
        /// How far it was.
        offset: u64,
    },
}

impl CopyError {
    /// Whether the same copy may succeed a moment later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io { cause, .. } if scr_plugin_api::may_pass(cause))
    }
}

impl From<CopyError> for PluginError {
    /// A source that is not what it was recorded to be is `Corrupt`, so that a host can distinguish it from a failure that may
    /// pass.
    fn from(error: CopyError) -> Self {
        let kind = match &error {
            CopyError::Unfit(error) => error.kind,
            CopyError::WrongSize { .. } => PluginErrorKind::Corrupt,
            CopyError::Io { .. } => PluginErrorKind::Io,
            CopyError::Cancelled { .. } => PluginErrorKind::Cancelled,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_and_where() {
        let path = PathBuf::from("/pfs/out");
        let cause = || io::Error::from_raw_os_error(28);
        let cases = [
            (
                CopyError::WrongSize { path: path.clone(), expected: 5, found: 3 },
                PluginErrorKind::Corrupt,
                "the file to copy, /pfs/out, has 3 bytes where 5 were recorded",
            ),
            (
                CopyError::Io { action: "writing", path: path.clone(), offset: 4096, cause: cause() },
                PluginErrorKind::Io,
                "writing /pfs/out failed at byte 4096: No space left on device (os error 28)",
            ),
            (
                CopyError::Cancelled { path, offset: 7 },
                PluginErrorKind::Cancelled,
                "copying to /pfs/out was cancelled at byte 7",
            ),
        ];
        for (error, kind, text) in cases {
            assert_eq!(PluginError::from(error), PluginError::new(kind, text));
        }
    }
}
