//! What the prefix directory has of a dataset in cache.

use super::Standing;

/// The copy of a cached dataset in the prefix directory. A dataset that was superseded stays so: a newer one has its name or one of
/// its files there, or it is output that the user has purged. It must not be copied there, nor be read there. It is given back only
/// if the newer one was written in place, and has failed.
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
        match in_containers {
            true => Self::Containers,
            false => Self::Files,
        }
    }

    /// The copy that the index lists, if it counts. One that could not be read does not: the dataset is flushed again, unless the
    /// application has refused it.
    pub(crate) fn listed(in_containers: bool, has_failed: bool, standing: Standing) -> Option<Self> {
        let counts = !has_failed || standing == Standing::Refused;
        counts.then(|| Self::whole(in_containers))
    }

    pub fn in_words(self) -> &'static str {
        match self {
            Self::Missing => "not in the prefix directory",
            Self::UnderWay { .. } => "on its way to the prefix directory",
            Self::Files => "in the prefix directory",
            Self::Containers => "in containers in the prefix directory",
            Self::Superseded => "replaced by a newer dataset with its name or its files",
        }
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
        *self = Self::UnderWay { is_superseded: self.is_superseded() };
    }

    /// A flush has ended, and has left this.
    pub(crate) fn end(&mut self, left: Self) {
        *self = if self.is_superseded() { Self::Superseded } else { left };
    }

    /// A newer dataset has its name, or one of its files.
    pub(crate) fn supersede(&mut self) {
        *self = if self.is_under_way() { Self::UnderWay { is_superseded: true } } else { Self::Superseded };
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

#[cfg(test)]
mod tests {
    use super::InPrefix;

    /// Three reasons were collected, and what a later line found took their place.
    #[test]
    fn what_was_superseded_stays_so_whatever_is_found_or_flushed_then() {
        let events: [fn(&mut InPrefix); 6] = [
            InPrefix::begin,
            |copy| copy.end(InPrefix::Files),
            |copy| copy.end(InPrefix::Containers),
            |copy| copy.end(InPrefix::Missing),
            InPrefix::lose,
            InPrefix::supersede,
        ];
        let under_way = InPrefix::UnderWay { is_superseded: false };
        let mut reached =
            vec![InPrefix::Missing, under_way, InPrefix::Files, InPrefix::Containers, InPrefix::Superseded];
        reached.iter_mut().for_each(InPrefix::supersede);
        for _ in 0..4 {
            let next = |copy: &InPrefix| {
                events.map(|event| {
                    let mut copy = *copy;
                    event(&mut copy);
                    copy
                })
            };
            reached = reached.iter().flat_map(next).collect();
            assert!(reached.iter().all(|copy| copy.is_superseded() && !copy.is_whole()), "{reached:?}");
        }
    }
}
