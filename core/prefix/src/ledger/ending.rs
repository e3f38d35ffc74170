//! How a process that ends flushes deals with one that it finds: one decision for jobs, runs and commands.

use super::Recorded;
use crate::FlushProgress;
use scr_base::planted::{planted, Bug};

/// The wish of a process about a flush that is on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It ends now, one way or the other.
    End,
    /// It ends if every byte has arrived.
    EndArrived,
    /// Its own job has had an error.
    Resolve,
}

/// The action to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Somebody else has ended it.
    Nothing,
    /// It is left as it is.
    Leave,
    /// Its remains are removed.
    ClearAway,
    /// It is taken back, also where its dataset has taken its names, or only where it has not.
    Revoke { even_if_taken: bool },
    /// Its files get their names.
    RollForward,
}

impl Ending {
    /// The action for a flush with such a record, which has all its marks or not.
    pub fn of(recorded: Recorded, is_marked: bool, wish: Wish) -> Self {
        let is_marked = is_marked && !(wish == Wish::Resolve && planted(Bug::TakenBackAfterMark));
        match (recorded, wish) {
            (Recorded::Nothing, _) => Self::Nothing,
            (Recorded::Revoked, _) => Self::ClearAway,
            (Recorded::UnderWay, _) if is_marked => Self::RollForward,
            (Recorded::UnderWay, Wish::EndArrived) => Self::Leave,
            // Its job may only be slow.
            (Recorded::UnderWay, _) => Self::Revoke { even_if_taken: planted(Bug::TakenBackAfterMark) },
        }
    }
}

/// How far a flush is that is on record, and of which every byte has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is still to be closed.
    NotYet,
    /// It was closed, and a file lacks its name all the same: after a power failure the index may say more than the folders have.
    LacksName,
    /// Its remains are to be removed. Its dataset may count no more.
    Done { counts: bool },
}

impl Ended {
    /// As the ledger says. A dataset that was saved from a cache is built more than once.
    pub fn of<E>(
        progress: FlushProgress,
        is_saved: bool,
        lacks_a_name: impl FnOnce() -> Result<bool, E>,
    ) -> Result<Self, E> {
        let FlushProgress::Ended { counts } = progress else { return Ok(Self::NotYet) };
        Ok(match (counts || is_saved) && lacks_a_name()? {
            true => Self::LacksName,
            false => Self::Done { counts },
        })
    }
}
