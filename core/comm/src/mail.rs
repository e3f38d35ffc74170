//! The messages that no receive has taken.

use super::{Rank, Tag};
use std::collections::{BTreeMap, VecDeque};

/// Messages that have come, by tag and sender.
#[derive(Default)]
pub struct Mail {
    queues: BTreeMap<(u16, Rank), VecDeque<Vec<u8>>>,
    /// How many have ever come.
    pub(crate) come: u64,
}

impl Mail {
    pub fn deliver(&mut self, from: Rank, tag: Tag, bytes: Vec<u8>) {
        self.queues.entry((tag.0, from)).or_default().push_back(bytes);
        self.come += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn has(&self, from: Rank, tag: Tag) -> bool {
        self.queues.contains_key(&(tag.0, from))
    }

    /// The oldest message of a rank with this tag.
    pub fn take_from(&mut self, from: Rank, tag: Tag) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(&(tag.0, from))?;
        let bytes = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&(tag.0, from));
        }
        bytes
    }

    /// A message with this tag, of a rank that is not waited for.
    pub fn take(&mut self, tag: Tag, is_awaited: impl Fn(Rank) -> bool) -> Option<(Rank, Vec<u8>)> {
        let mut with_tag = self.queues.range((tag.0, Rank(0))..=(tag.0, Rank(u32::MAX)));
        let from = with_tag.find_map(|((_, from), _)| (!is_awaited(*from)).then_some(*from))?;
        Some((from, self.take_from(from, tag)?))
    }

    /// The sender and the tag of each.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Rank, Tag)> + '_ {
        self.queues.iter().flat_map(|(&(tag, from), queue)| queue.iter().map(move |_| (from, Tag(tag))))
    }
}
