//! The steps around a dataset in cache: what follows when one is complete, and what leaves for it.

use super::{Error, OutputFlags, Session};
use crate::cache::record::RankRecord;
use crate::cache::{CachedDataset, Limit};
use crate::comm::Rank;

impl Session {
    /// After a dataset has become complete: it is flushed if it is due, surplus leaves, and the halt conditions are checked.
    pub(super) fn after_complete(&mut self, dataset: CachedDataset, flags: OutputFlags) -> Result<(), Error> {
        let (id, store) = (dataset.id(), dataset.store);
        self.cache.add_complete(&self.job, dataset)?;
        self.cache.record_in_cache(&self.job, id, self.cache.next_victim(store));
        let flushed = self.flush_complete(id);
        self.cache.evict_flushed_output(&self.job);
        self.evict_surplus(store)?;
        if flags.checkpoint {
            self.count_checkpoint()?;
        }
        self.start_copying();
        flushed
    }

    /// Lets the oldest datasets leave until a store keeps no more than its count.
    fn evict_surplus(&mut self, store: usize) -> Result<(), Error> {
        self.evict_to(store, self.cache.limit_after(store))?;
        self.cache.record_stayed(&self.job);
        Ok(())
    }

    /// Lets old datasets leave before a new one is begun, since the store has no room for both.
    pub(super) fn make_room(&mut self, store: &str) -> Result<(), Error> {
        let store = self.cache.store_index(store);
        let limit = self.cache.limit_before(&self.job, store);
        self.evict_to(store, limit)
    }

    fn evict_to(&mut self, store: usize, limit: Limit) -> Result<(), Error> {
        while let Some(victim) = self.cache.victim(store, limit) {
            if victim.being_flushed {
                self.finish_flush()?;
            } else {
                self.cache.evict(&self.job, victim.id);
            }
        }
        Ok(())
    }

    /// Removes this rank's part of a dataset that has come to nothing.
    pub(super) fn drop_part(&self, record: &RankRecord) {
        self.cache.remove_part(&self.job, &self.cache.part_of(&self.job, record));
    }
}

/// The first rank, which alone writes files that are shared by all.
pub(super) const ROOT: Rank = Rank(0);
