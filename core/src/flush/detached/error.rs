//! Why the transfer record of a rank cannot be used.

use scr_base::fs::FsError;
use scr_plugin_api::kvtree::FieldError;
use std::path::PathBuf;

/// Why a transfer record cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// It cannot be read.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A field is missing, or holds something else than it should.
    #[error("{} cannot be used: {error}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: FieldError,
    },
}
