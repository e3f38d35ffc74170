//! In which order things are done that a death may interrupt: as data. Jobs and commands execute these orders, and the small
//! world of the tests goes through them with a death before each step.

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
            false => {
                &[&[Self::Mark, Self::Take], &[Self::Name], &[Self::Sync], &[Self::Commit, Self::Forget]]
            }
        }
    }
}

/// A step by which datasets leave for good.
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
    pub const ORDER: &[Self] = &[Self::Record, Self::Index, Self::Cache];
}
