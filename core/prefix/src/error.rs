//! Errors of a file below the prefix directory.

use crate::ledger::Refusal;
use scr_base::fs::verify::FileError;
use scr_base::fs::FsError;
use std::path::PathBuf;

/// Why a file below the prefix directory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PrefixError {
    /// The file itself.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A file of a dataset is not what was recorded.
    #[error(transparent)]
    File(FileError),
    /// It is damaged, and there is a way out.
    #[error("{}; {advice}", scr_base::describe(fault))]
    Damaged { fault: FsError, advice: &'static str },
    /// An index is damaged, and the new one that would take its place cannot be written.
    #[error("{}; no new index can take its place: {}", damage.fault(), scr_base::describe(why))]
    Unhealed { damage: Box<PrefixError>, why: Box<PrefixError> },
    /// Another directory is in its place, or none.
    #[error(
        "the prefix directory {} of this run is not there, or another directory is in its place: give it its name back, mount its \
         file system on this node, or let SCR_PREFIX name a folder that all nodes share",
        dir.display()
    )]
    Elsewhere { dir: PathBuf },
    /// A file that must be there is missing.
    #[error("{} is missing", path.display())]
    Missing { path: PathBuf },
    /// The ledger refuses what was asked for.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An older dataset is getting the same names, and could not be finished first.
    #[error("the flush {token} is giving files the same names, and could not be finished first: {why}")]
    NotItsTurn { token: String, why: String },
    /// The lists of another dataset cannot be read, and it may have files of this one.
    #[error(
        "whether dataset {id} `{name}' has files of it is not known: {why}; if that stays so, `scr index --drop {name}' gives \
         dataset {id} up"
    )]
    OfOther { id: u64, name: String, why: String },
    /// A folder, or a file, is not as it must be; the fault, and what to do, follow the path.
    #[error("{} {fault}", path.display())]
    Unusable { path: PathBuf, fault: String },
}

impl PrefixError {
    /// `fault` follows the path.
    pub fn unusable(path: impl Into<PathBuf>, fault: impl Into<String>) -> Self {
        Self::Unusable { path: path.into(), fault: fault.into() }
    }

    /// The same with what to do where the file is damaged.
    pub(super) fn of_file(fault: FsError, advice: &'static str) -> Self {
        match fault.is_damage() {
            true => PrefixError::Damaged { fault, advice },
            false => PrefixError::Fs(fault),
        }
    }

    /// The fault, for a message that says itself what becomes of the file.
    pub(crate) fn fault(&self) -> String {
        match self {
            PrefixError::Damaged { fault, .. } => scr_base::describe(fault),
            other => scr_base::describe(other),
        }
    }

    /// Whether there is no room for what was to be written, for everybody or for this user.
    pub fn is_for_want_of_room(&self) -> bool {
        matches!(self, PrefixError::Fs(error) if error.is_for_want_of_room())
    }

    /// Whether this user may not write there, or nobody may.
    pub fn is_for_want_of_permission(&self) -> bool {
        matches!(self, PrefixError::Fs(error) if error.is_for_want_of_permission())
    }

    /// Whether one dataset is refused, and another one may not be.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NotItsTurn { .. })
    }

    /// Whether what is stored is itself wrong, so that a retry cannot help.
    pub fn is_damage(&self) -> bool {
        match self {
            PrefixError::Fs(error) => error.is_damage(),
            PrefixError::File(error) => error.is_damage(),
            PrefixError::NotItsTurn { .. }
            | PrefixError::OfOther { .. }
            | PrefixError::Refused(Refusal::InUse { .. } | Refusal::Written { .. })
            | PrefixError::Elsewhere { .. } => false,
            _ => true,
        }
    }
}

/// `None` where what is stored is itself wrong.
pub(crate) fn unless_damaged<T>(read: Result<T, PrefixError>) -> Result<Option<T>, PrefixError> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        other => other.map(Some),
    }
}

impl From<FileError> for PrefixError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Fs(error) => Self::Fs(error),
            error => Self::File(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_and_where() {
        let path = || PathBuf::from("/p/.scr/index.scr");
        let errors = [
            FsError::Version { path: path(), found: 3, reads: 2..=2 }.into(),
            PrefixError::unusable(path(), "describes dataset 3, and dataset 2 should be there"),
            PrefixError::Missing { path: path() },
            crate::rank2file::fault(&path(), crate::rank2file::rank_twice(scr_comm::Rank(7))),
        ];
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "/p/.scr/index.scr was written by another release of scr (format version 3, and this one reads 2)",
                "/p/.scr/index.scr describes dataset 3, and dataset 2 should be there",
                "/p/.scr/index.scr is missing",
                "/p/.scr/index.scr cannot be used: rank 7 is listed twice",
            ]
        );
        // The first is what a later release has written.
        let damage: Vec<_> = errors.iter().map(PrefixError::is_damage).collect();
        assert_eq!(damage, [false, true, true, true]);
    }
}
