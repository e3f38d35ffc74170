//! The messages that the exchanges of a rank wait for while they `ask`, so that `take` leaves them alone.

use std::cell::RefCell;

use super::{Rank, Tag};

/// Senders that are waited for, with the tag, for all exchanges that are under way.
#[derive(Default)]
pub struct Awaited(RefCell<Vec<(Tag, Rank)>>);

impl Awaited {
    /// Calls `ask` while the messages of the ranks in `from` are waited for.
    pub fn while_waiting_for<R>(
        &self,
        tag: Tag,
        from: impl Iterator<Item = Rank>,
        ask: impl FnOnce() -> R,
    ) -> R {
        let _back = Back { awaited: self, depth: self.0.borrow().len() };
        self.0.borrow_mut().extend(from.map(|from| (tag, from)));
        ask()
    }

    pub fn is_awaited(&self, tag: Tag, from: Rank) -> bool {
        self.0.borrow().contains(&(tag, from))
    }

    /// Whether anything is waited for with this tag.
    pub fn is_used(&self, tag: Tag) -> bool {
        self.0.borrow().iter().any(|(other, _)| *other == tag)
    }
}

/// Puts things back also when `ask` panics.
struct Back<'a> {
    awaited: &'a Awaited,
    depth: usize,
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.awaited.0.borrow_mut().truncate(self.depth);
    }
}
