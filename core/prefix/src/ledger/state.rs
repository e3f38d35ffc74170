//! The value: what is known of every dataset under a prefix directory, and how an event changes it.

use super::Event;
use crate::{Ids, Index, PrefixId, Withdrawn};
use std::ops::Deref;

/// The contents of `index.scr` and `ids.scr`. It reads like its [`Index`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    pub index: Index,
    pub(super) ids: Ids,
}

impl Deref for Ledger {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

impl Ledger {
    /// The datasets.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// The datasets that no run may restart from, unless they are listed.
    pub(crate) fn withdrawn(&self) -> Withdrawn {
        self.ids.withdrawn()
    }

    /// The number of the last run that is known.
    pub(crate) fn last_run(&self) -> u64 {
        self.ids.last_run().max(self.index.highest_run())
    }

    /// The first dataset id that no run has reserved.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.next()
    }

    /// The random id of the prefix directory, if it has one.
    pub(crate) fn prefix_id(&self) -> Option<PrefixId> {
        self.ids.prefix_id().or_else(|| self.index.prefix_id())
    }

    /// Makes an event part of what is known.
    pub fn apply(&mut self, event: &Event) {
        let Self { index, ids } = self;
        match event {
            Event::RunBegan { number, prefix, .. } => ids.begin_run(*number, prefix),
            Event::NextId { next, .. } => ids.set_next(*next),
            Event::Withdrawn { seq, why } => ids.withdraw(*seq, *why),
            Event::NameWithdrawn { name, before } => ids.withdraw_name(name, *before),
            Event::WentBack(over) => ids.go_back(*over),
            Event::Purged(id) => ids.purge(*id),
            Event::Attempted(of) => ids.count_attempt(of.as_ref().map(|(id, name)| (*id, &**name))),
            of_index => index.apply(of_index),
        }
    }
}

impl Event {
    /// Whether it changes `index.scr`.
    pub(super) fn changes_index(&self) -> bool {
        !self.changes_ids() && !matches!(self, Self::Revoked(_))
    }

    /// Whether it changes `ids.scr`.
    pub(super) fn changes_ids(&self) -> bool {
        matches!(
            self,
            Self::RunBegan { .. }
                | Self::NextId { .. }
                | Self::Withdrawn { .. }
                | Self::NameWithdrawn { .. }
                | Self::WentBack(_)
                | Self::Purged(_)
                | Self::Attempted(_)
        )
    }
}
