//! The value: what is known of every dataset under a prefix directory, and how an event changes it.

use super::Event;
use crate::{Ids, Index, PrefixId, Withdrawn};
use std::ops::Deref;

/// The contents of `index.scr` and `ids.scr`. It reads like its [`Index`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    pub(super) index: Index,
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
    pub(crate) fn apply(&mut self, event: &Event) {
        let Self { index, ids } = self;
        match event {
            Event::RunBegan { number, prefix, .. } => ids.begin_run(*number, prefix),
            Event::Marked { prefix, last } => index.mark(prefix, *last),
            Event::NextId { next, .. } => ids.set_next(*next),
            Event::Listed(dataset) => index.record(dataset, false),
            Event::Took { dataset, by, closer } => index.take(dataset, by, closer.as_deref()),
            Event::Replaced(id) => _ = index.set_complete(*id, false),
            Event::Completed { dataset, by, at } => {
                index.record(dataset, true);
                index.mark_flushed(dataset.id, at);
                by.iter().for_each(|by| _ = index.mark_flushed_by(dataset.id, by));
            }
            Event::Released(id) => index.release(*id),
            Event::Revoked(_) => (),
            Event::Held { id, run } => index.hold(*id, *run),
            Event::LetGo { run } => index.release_held(*run),
            Event::Left(id) => _ = index.drop_id(*id),
            Event::NameLeft(name) => _ = index.drop_name(name),
            Event::DeletionBegan(id) => index.begin_deletion(*id),
            Event::Fetched { id, at } => _ = index.mark_fetched(*id, at),
            Event::Failed { id, at } => _ = index.mark_failed(*id, at),
            Event::Current(name) => _ = index.set_current(name),
            Event::Withdrawn { seq, why } => ids.withdraw(*seq, *why),
            Event::WentBack(over) => ids.go_back(*over),
            Event::Purged(id) => ids.purge(*id),
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
                | Self::WentBack(_)
                | Self::Purged(_)
        )
    }
}
