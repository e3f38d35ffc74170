//! In which order things are done that a death may interrupt: as data. Jobs and commands execute these orders, and the small
//! world of the tests goes through them with a death before each step.

use scr_base::planted::{planted, Bug};

/// A step of closing a flush of which every byte is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// It is marked: from here on it is only rolled forward.
    Mark,
    /// Names and files belong to its dataset from here on.
    Take,
    /// The files get their names.
    Name,
    /// The names are synced.
    Sync,
    /// The dataset counts.
    Commit,
    /// The record of the flush goes.
    Forget,
}

impl Close {
    /// The order for staging files, or for files in place. Those who close the flush agree after each group.
    pub fn order(in_place: bool) -> &'static [&'static [Self]] {
        match in_place {
            true => &[&[Self::Mark], &[Self::Sync], &[Self::Commit]],
            false if planted(Bug::RenamesNotSynced) => {
                &[&[Self::Mark, Self::Take], &[Self::Name], &[Self::Commit, Self::Forget]]
            }
            false if planted(Bug::CommittedBeforeNamed) => {
                &[&[Self::Mark, Self::Take, Self::Commit], &[Self::Name], &[Self::Sync], &[Self::Forget]]
            }
            false => {
                &[&[Self::Mark, Self::Take], &[Self::Name], &[Self::Sync], &[Self::Commit, Self::Forget]]
            }
        }
    }
}

/// Why datasets leave for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    Dropped,
    Deleted,
    /// The user has gone back to an older one.
    WentBack,
}

/// A step by which they leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It is recorded that no run restarts from a copy in a cache, also on nodes that are away.
    Record,
    /// They leave the index, and where they are deleted their files go.
    Index,
    /// They leave the caches of this run, or the list of what is in caches.
    Cache,
}

impl Leave {
    /// The order.
    pub fn order(why: Leaving) -> &'static [Self] {
        let stays_in_cache = match why {
            Leaving::Dropped => planted(Bug::DroppedStaysInCache),
            Leaving::Deleted => planted(Bug::DeletedStaysInCache),
            Leaving::WentBack => planted(Bug::NewerStayAfterCurrent),
        };
        match stays_in_cache {
            true => &[Self::Index],
            false => &[Self::Record, Self::Index, Self::Cache],
        }
    }
}
