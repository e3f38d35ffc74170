//! What the prefix directory has of a dataset in cache.

use super::Standing;
use scr_base::planted::{planted, Bug};

/// The copy of a cached dataset in the prefix directory. A dataset that was superseded stays so: a newer one has its name or one of
/// its files there, or it is output that the user has purged. It must not be copied there, nor be read there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InPrefix {
    /// No complete copy.
    #[default]
    Missing,
    /// A flush is writing one while the application computes. What it writes may have been superseded meanwhile.
    UnderWay { is_superseded: bool },
    /// A complete copy, whose files lie there under their names.
    Files,
    /// A complete copy in containers. It keeps that form: nothing writes other lists of files over its own, which would cost it
    /// if the flush were interrupted.
    Containers,
    /// None, and none any more.
    Superseded,
}

impl InPrefix {
    /// A complete copy.
    pub fn whole(in_containers: bool) -> Self {
        if in_containers {
            Self::Containers
        } else {
            Self::Files
        }
    }

    /// The copy that the index lists, if it counts. One that could not be read does not: the dataset is flushed again, unless the
    /// application has refused it.
    pub(crate) fn listed(in_containers: bool, has_failed: bool, standing: Standing) -> Option<Self> {
        let counts = !has_failed || standing == Standing::Refused || planted(Bug::FailedCountsAsFlushed);
        counts.then(|| Self::whole(in_containers))
    }

    pub fn is_whole(self) -> bool {
        matches!(self, Self::Files | Self::Containers)
    }

    /// Whether it is complete, and its files lie under their names.
    pub fn has_files(self) -> bool {
        self == Self::Files
    }

    pub(crate) fn is_under_way(self) -> bool {
        matches!(self, Self::UnderWay { .. })
    }

    pub fn is_superseded(self) -> bool {
        matches!(self, Self::Superseded | Self::UnderWay { is_superseded: true })
    }

    /// A flush begins to copy it.
    pub(crate) fn begin(&mut self) {
        let early = planted(Bug::FlushedBeforeArrived);
        *self = if early { Self::Files } else { Self::UnderWay { is_superseded: self.is_superseded() } };
    }

    /// A flush has ended, and has left this.
    pub(crate) fn end(&mut self, left: Self) {
        *self = if self.is_superseded() { Self::Superseded } else { left };
    }

    /// A newer dataset has its name, or one of its files.
    pub(crate) fn supersede(&mut self) {
        let under_way = Self::UnderWay { is_superseded: true };
        if !planted(Bug::ReplacedCountsAsFlushed) {
            *self = if self.is_under_way() { under_way } else { Self::Superseded };
        }
    }

    /// The copy is whole no more. A flush that is under way writes another one.
    pub(crate) fn lose(&mut self) {
        if self.is_whole() {
            *self = Self::Missing;
        }
    }

    /// The newer dataset that was given its files has failed.
    pub(crate) fn give_back(&mut self) {
        *self = if self.is_under_way() { Self::UnderWay { is_superseded: false } } else { Self::Missing };
    }
}
