//! How a process ends a flush that it finds, with the lock: the machine that says what it does next. It does nothing itself. Jobs,
//! runs and commands execute it, and so does the small world of the tests, with a death before each step.

use super::Recorded;
use crate::FlushProgress;

/// The wish of a process about a flush that is on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It ends now, one way or the other: a run that begins, once transfers of dead jobs have arrived or stand still, and whoever
    /// has to wait for it ([`After`](super::Verdict::After)). Its job may live (only with `SCR_SHARE_PREFIX=1`, or
    /// where it could not be seen): it is refused when it takes its names, and has its copy in cache.
    End,
    /// It ends if every byte has arrived: `scr poststage`, and the monitor of a node.
    EndArrived,
    /// Its own job has had an error.
    Resolve,
    /// It is taken back, however far it is: its dataset is dropped or deleted, or it is a checkpoint and no output, and somebody went
    /// back over it to one of another name.
    TakeBack,
}

/// How it has ended, or why it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Somebody else has ended it, or it is left as it is.
    NotNow,
    /// Its dataset is complete.
    Complete,
    /// Its dataset was complete, and counts no more.
    CountsNoMore,
    /// It is revoked.
    TakenBack,
}

/// What the process does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Do {
    /// It looks how far the flush is. A flush `fails` of which a file is damaged, or that comes too late.
    Look { fails: bool },
    /// It checks every file before it takes anything, and goes through the steps of [`Close`](super::Close) after the mark: names are
    /// taken, files get them, the dataset counts, and marks and record go.
    Close,
    /// No process closes it any more, also where its dataset has taken its names, or only where it has not.
    Revoke { even_if_taken: bool },
    /// The staging files go, but for those that were saved from caches, of which the dataset can be built once more.
    RemoveStaging(Ended),
    /// The names of a flush that is revoked are free: no staging file of it is left.
    Release,
    /// Its marks go, and then its record.
    Forget(Ended),
    /// Nothing more.
    Stop(Ended),
}

/// What comes of it, if it does not fail for a reason that may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is done.
    Done,
    /// What is stored is itself wrong, or a newer dataset has the names, and how. That another run reads the files of an older one
    /// may pass: the flush stays on record, and the next run, or the next `scr poststage`, tries again.
    Damage(String),
    /// Its dataset has taken its names.
    Refused,
    /// It was closed, and a file lacks its name all the same: after a power failure the index may say more than the folders have.
    LacksName,
    /// It was closed. Its dataset may count no more.
    Ended { counts: bool },
}

impl Found {
    /// What a look finds. A dataset that was saved from a cache is built more than once.
    pub fn of<E>(
        progress: FlushProgress,
        is_saved: bool,
        lacks_a_name: impl FnOnce() -> Result<bool, E>,
    ) -> Result<Self, E> {
        let FlushProgress::Ended { counts } = progress else { return Ok(Self::Done) };
        Ok(match (counts || is_saved) && lacks_a_name()? {
            true => Self::LacksName,
            false => Self::Ended { counts },
        })
    }
}

impl Do {
    /// The first step for a flush with such a record, which has all its marks or not.
    pub fn first(recorded: Recorded, is_marked: bool, wish: Wish) -> Self {
        match (recorded, wish) {
            (Recorded::Nothing, _) => Self::Stop(Ended::NotNow),
            (Recorded::Revoked, _) => Self::RemoveStaging(Ended::TakenBack),
            (Recorded::UnderWay, Wish::TakeBack) => Self::Revoke { even_if_taken: true },
            (Recorded::UnderWay, _) if is_marked => Self::Look { fails: false },
            (Recorded::UnderWay, Wish::EndArrived) => Self::Stop(Ended::NotNow),
            // Its job may only be slow.
            (Recorded::UnderWay, _) => Self::Revoke { even_if_taken: false },
        }
    }

    /// The step after this one.
    pub fn after(self, found: &Found, wish: Wish) -> Self {
        match (self, found) {
            (Self::Look { .. }, Found::Ended { counts: true }) => Self::RemoveStaging(Ended::Complete),
            (Self::Look { .. }, Found::Ended { .. }) => Self::RemoveStaging(Ended::CountsNoMore),
            (Self::Look { fails: true }, _) => Self::Revoke { even_if_taken: true },
            (Self::Look { .. }, _) => Self::Close,
            // Its job may only have been slow, and have closed it meanwhile.
            (Self::Close, Found::Damage(_)) => Self::Look { fails: true },
            (Self::Close, _) => Self::Stop(Ended::Complete),
            // A process that has ended it before may have removed marks already.
            (Self::Revoke { .. }, Found::Refused) => Self::Look { fails: false },
            // Each rank of its job removes its own staging files.
            (Self::Revoke { even_if_taken: false }, _) if wish == Wish::Resolve => {
                Self::Stop(Ended::TakenBack)
            }
            (Self::Revoke { .. }, _) => Self::RemoveStaging(Ended::TakenBack),
            (Self::RemoveStaging(Ended::TakenBack), _) => Self::Release,
            (Self::RemoveStaging(ended), _) => Self::Forget(ended),
            (Self::Release, _) => Self::Forget(Ended::TakenBack),
            (Self::Forget(ended) | Self::Stop(ended), _) => Self::Stop(ended),
        }
    }
}
