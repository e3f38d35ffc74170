//! Why a rank's part of a dataset could not be protected or rebuilt.

use crate::cache::verify::Damage;
use scr_base::fs::FsError;
use scr_comm::set::SetError;
use scr_plugin_api::{PluginError, PluginErrorKind};
use std::path::PathBuf;

impl RedundancyError {
    /// Whether another member of the set has given up, and knows why.
    pub(super) fn is_of_another_member(&self) -> bool {
        match self {
            Self::Set(error) => matches!(error, SetError::Aborted { .. }),
            Self::Scheme(error) => error.kind == PluginErrorKind::Aborted,
            _ => false,
        }
    }

    /// Whether it says that data is lost or is not what was recorded, and not only that something could not be done here and now.
    pub(super) fn is_loss(&self) -> bool {
        match self {
            Self::Files(error) => matches!(error, FsError::Occupied { .. }),
            Self::Scheme(error) => {
                matches!(error.kind, PluginErrorKind::Corrupt | PluginErrorKind::TooManyLost)
            }
            Self::Set(_) | Self::UnreadableRecord { .. } => false,
            _ => true,
        }
    }
}

/// Why a rank's part of a dataset could not be protected or rebuilt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RedundancyError {
    /// The rank's part is not what was recorded.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A file cannot be made or written.
    #[error(transparent)]
    Files(#[from] FsError),
    /// The application has changed a file that was complete.
    #[error("{} has changed since SCR_Complete_output; an application may write a file only before that call", .0.display())]
    Changed(PathBuf),
    /// The scheme has failed.
    #[error(transparent)]
    Scheme(#[from] PluginError),
    /// The set has failed.
    #[error(transparent)]
    Set(#[from] SetError),
    /// The parts that are left do not give the lost ones, or not the same redundancy as before.
    #[error("{0}")]
    Lost(String),
    /// A neighbour sent something that is no record.
    #[error("member {member} of the redundancy set sent a record that cannot be read")]
    UnreadableRecord {
        /// Which.
        member: u32,
    },
}
