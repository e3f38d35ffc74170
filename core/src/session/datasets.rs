//! The datasets in cache: how many a store keeps, and when an old one leaves.
//!
//! An old dataset leaves only when a new one is complete, wherever the store has room for both. Where it has not, the old
//! one leaves first, and the user is told once.

use super::{Error, OutputFlags, Session};
use crate::cache::part::{remove_spare, spare_bytes, PartDir};
use crate::cache::record::RankRecord;
use crate::cache::room;
use crate::comm::collective::{all_reduce, any, Op};
use crate::comm::{Incoming, Outgoing, Rank, Tag, Wish};
use crate::descriptor::Evict;
use crate::fs::FsError;
use crate::param;
use crate::redundancy::rebuild::{verify, Trust};

/// A complete dataset in cache: this rank's part of it.
pub(super) struct Cached {
    pub(super) record: RankRecord,
    pub(super) part: PartDir,
    /// Place of its store in the context.
    pub(super) store: usize,
    /// Whether a complete copy is in the prefix directory.
    pub(super) flushed: bool,
    /// Whether a newer dataset has its name: see [`settle_names`](Session::settle_names).
    pub(super) superseded: bool,
    /// Whether the application could not restart from it.
    pub(super) refused: bool,
    /// Whether the flush file says that it is in cache.
    pub(super) listed: bool,
    /// Of files that lie in the prefix directory: whether any may have replaced one that was there before.
    pub(super) may_replace: bool,
}

impl Cached {
    pub(super) fn id(&self) -> u64 {
        self.record.dataset.id
    }

    /// A dataset that has just become complete, or is known to be.
    pub(super) fn new(record: RankRecord, part: PartDir, store: usize) -> Self {
        let (flushed, superseded, refused, listed) = (false, false, false, false);
        Self { record, part, store, flushed, superseded, refused, listed, may_replace: true }
    }

    /// Whether it is still to get to the prefix directory.
    pub(super) fn is_unflushed(&self) -> bool {
        !self.flushed && !self.superseded
    }

    /// Output that is nowhere but in cache, which must not be lost.
    pub(super) fn must_stay(&self) -> bool {
        self.record.dataset.output && self.is_unflushed()
    }
}

impl Session {
    /// Takes in a dataset that has just become complete; what has to leave for it leaves.
    pub(super) fn add_complete(
        &mut self,
        record: RankRecord,
        part: PartDir,
        store: usize,
        may_replace: bool,
    ) -> Result<(), Error> {
        self.note_node_bytes(store, record.cache_bytes())?;
        let name = String::from_utf8_lossy(&record.dataset.name).into_owned();
        self.job.report.debug(&format!("dataset {} `{name}' is complete in cache", record.dataset.id));
        self.cached.push(Cached { may_replace, ..Cached::new(record, part, store) });
        self.settle_names(&[]);
        let kept = std::mem::take(&mut self.kept);
        for left in kept.iter().filter(|left| left.is_unchanged(self.job.files())) {
            self.remove_part(&left.part);
        }
        Ok(())
    }

    /// Marks the datasets whose name stands for a newer one, in cache or among those `in_prefix`, which are given by id and
    /// name. They must never be copied over that one's files, nor be read there.
    pub(super) fn settle_names(&mut self, in_prefix: &[(u64, Vec<u8>)]) {
        let in_cache: Vec<(u64, Vec<u8>)> = self
            .cached
            .iter()
            .map(|cached| (cached.record.id_in_prefix, cached.record.dataset.name.clone()))
            .collect();
        for cached in &mut self.cached {
            let (own, name) = (cached.record.id_in_prefix, &cached.record.dataset.name);
            let mut all = in_prefix.iter().chain(&in_cache);
            cached.superseded |= all.any(|(other, named)| *other > own && named == name);
        }
    }

    /// Lets the oldest datasets leave until a store keeps no more than its count.
    pub(super) fn evict_surplus(&mut self, store: usize) -> Result<(), Error> {
        let most = self.cache.stores[store].count.max(1);
        self.evict_down_to(store, most, true)?;
        // What was taken to be leaving and has stayed.
        let unlisted = (0..self.cached.len()).filter(|&at| !self.cached[at].listed);
        unlisted.collect::<Vec<_>>().into_iter().for_each(|at| self.note_in_cache(at, None));
        Ok(())
    }

    /// Which dataset is the next to leave a store that keeps too many, as far as can be told.
    fn leaving(&self, store: usize) -> Option<u64> {
        let full = self.count_in(store) > self.cache.stores[store].count.max(1);
        (full && self.flushes.moving.is_none()).then(|| self.next_to_leave(store, true)).flatten()
    }

    /// Lets old datasets leave before a new one is begun, since the store has no room for both.
    pub(super) fn make_room(&mut self, store: &str) -> Result<(), Error> {
        let index = self.cache.store_index(store);
        if !self.cache.stores[index].warned_crowded {
            self.cache.stores[index].warned_crowded = true;
            let asked = self.cache.stores[index].evict == Evict::Before;
            let why = if asked { "EVICT=before is set" } else { "it has no room for both" };
            self.job.report.warn(&format!(
                "the store {store} gives up an old dataset before the new one is complete, as {why}: \
                 a failure in between leaves no dataset in cache"
            ));
        }
        self.remove_spare(index);
        let most = self.cache.stores[index].count.saturating_sub(1);
        self.evict_down_to(index, most, false)
    }

    /// Whether a new dataset does not fit beside the old ones; only the first rank of a node looks.
    pub(super) fn is_crowded(&self, store: usize) -> bool {
        let here = &self.cache.stores[store];
        let full = self.count_in(store) >= here.count.max(1);
        if !full || here.evict == Evict::After {
            return false;
        }
        if here.evict == Evict::Before || here.was_full {
            return true;
        }
        let leads = here.placement.leader(self.job.rank()) == self.job.rank();
        let (files, expected) = (self.job.files(), room::expected(here.last_bytes));
        let kept = here.last_bytes.saturating_mul(self.count_in(store));
        if here.size.is_some_and(|size| size < kept.saturating_add(expected)) {
            return leads;
        }
        // What is kept to be written over is room as well.
        leads
            && room::room(files, &here.cache).is_some_and(|room| {
                room < expected && room.saturating_add(spare_bytes(files, &here.cache)) < expected
            })
    }

    /// After a failure: where the store ran full, old datasets leave before new ones from now on. Collective.
    pub(super) fn note_if_full(&mut self, store: usize, written: u64) -> Result<(), Error> {
        let here = &self.cache.stores[store];
        let full = room::room(self.job.files(), &here.cache).is_some_and(|room| room < written.max(FULL));
        let [full] = any(&*self.job.comm, [full])?;
        if !full {
            return Ok(());
        }
        // As many as there are now were too many for one more.
        let there = self.count_in(store).max(1);
        let here = &mut self.cache.stores[store];
        here.count = here.count.min(there);
        if !std::mem::replace(&mut here.was_full, true) {
            let name = &self.cache.stores[store].name;
            self.job.report.warn(&format!(
                "the store {name} is full: from now on an old dataset leaves it before a new one is written"
            ));
        }
        Ok(())
    }

    /// What is known of the datasets that an earlier run has left. Collective.
    pub(super) fn note_newest_bytes(&mut self) -> Result<(), Error> {
        for store in 0..self.cache.stores.len() {
            let newest =
                self.cached.iter().filter(|cached| cached.store == store).max_by_key(|cached| cached.id());
            let bytes = newest.map_or(0, |cached| cached.record.cache_bytes());
            self.note_node_bytes(store, bytes)?;
        }
        Ok(())
    }

    /// The bytes that the last dataset took in each store, counted by the first rank of those that share it.
    fn note_node_bytes(&mut self, store: usize, own: u64) -> Result<(), Error> {
        if self.cache.stores[store].placement.count() == 1 {
            let mut sum = [own];
            all_reduce(&*self.job.comm, &mut sum, Op::Sum)?;
            [self.cache.stores[store].last_bytes] = sum;
            return Ok(());
        }
        let mates = self.cache.stores[store].placement.mates(self.job.rank());
        let own_bytes = own.to_be_bytes();
        let leads = mates[0] == self.job.rank();
        let others = if leads { &mates[1..] } else { &[][..] };
        let mut theirs = vec![[0_u8; 8]; others.len()];
        let mut receives: Vec<_> =
            others.iter().zip(&mut theirs).map(|(&from, bytes)| Incoming { from, bytes }).collect();
        let send = [Outgoing { to: mates[0], bytes: &own_bytes }];
        let sends: &[Outgoing<'_>] = if leads { &[] } else { &send };
        if mates.len() > 1 {
            self.job.comm.exchange(TAG, sends, &mut receives, &mut |_| Ok(Wish::Wait))?;
        }
        let sum = theirs.iter().fold(own, |sum, bytes| sum.saturating_add(u64::from_be_bytes(*bytes)));
        self.cache.stores[store].last_bytes = sum;
        Ok(())
    }

    /// The newest checkpoint stays, where it is to be kept; so does output that is nowhere else.
    fn evict_down_to(&mut self, store: usize, most: u64, keep_newest: bool) -> Result<(), Error> {
        while self.count_in(store) > most {
            let Some(id) = self.next_to_leave(store, keep_newest) else { return Ok(()) };
            if Some(id) == self.flushes.moving.as_ref().map(|moving| moving.id) {
                // It may have failed, and then it may have to stay.
                self.finish_flush()?;
            } else if let Some(at) = self.position(id) {
                self.evict(at);
            }
        }
        Ok(())
    }

    fn next_to_leave(&self, store: usize, keep_newest: bool) -> Option<u64> {
        // Also where it would have to get to the prefix directory before a run can read it.
        let restartable = self.cached.iter().filter(|cached| keep_newest && cached.is_restartable());
        let newest = restartable.map(Cached::id).max();
        let moving = self.flushes.moving.as_ref().map(|moving| moving.id);
        let may_go = |cached: &&Cached| {
            let stays = cached.must_stay() && Some(cached.id()) != moving;
            cached.store == store && Some(cached.id()) != newest && !stays
        };
        // What no run can restart from is of the least use.
        let all = self.cached.iter().filter(may_go);
        all.min_by_key(|cached| (cached.is_restartable(), cached.id())).map(Cached::id)
    }

    fn count_in(&self, store: usize) -> u64 {
        self.cached.iter().filter(|cached| cached.store == store).count() as u64
    }

    /// Removes a dataset from cache. It must not be on its way to the prefix directory.
    pub(super) fn evict(&mut self, at: usize) {
        let cached = self.cached.remove(at);
        if self.loaded.as_ref().is_some_and(|loaded| loaded.id == cached.id()) {
            self.loaded = None;
        }
        self.job.report.info(&format!("Deleting {} from cache", super::words::label(&cached.record)));
        self.verify_before_delete(&cached);
        let files = self.job.files();
        let store = &self.cache.stores[cached.store];
        let is_ours = cached.part.dataset().parent() == Some(&store.cache);
        let keeps = cached.record.redundancy.is_some() && !store.warned_crowded && is_ours;
        self.tell(if keeps { cached.part.remove_but_spare(files) } else { cached.part.remove(files) });
        self.cache.kept_open().close_removed();
        self.forget_in_cache(&cached);
    }

    /// With `SCR_CRC_ON_DELETE` a part is read once more before it goes: a device that changes bytes is found so, before a
    /// checkpoint is needed that lies on it. It goes all the same.
    fn verify_before_delete(&self, cached: &Cached) {
        let record = &cached.record;
        if !self.job.params.get(&param::CRC_ON_DELETE) || record.protection.bypass {
            return;
        }
        if let Ok(Trust::Corrupt(what)) | Err(what) = verify(self.job.files(), &cached.part, record) {
            self.job.report.error_here(&format!(
                "{}: {what}. It is deleted from cache all the same; check what stores {}, newer datasets may be damaged too",
                super::words::label(record),
                cached.part.dataset().display()
            ));
        }
    }

    /// Removes this rank's part of a dataset that has come to nothing.
    pub(super) fn drop_part(&self, record: &RankRecord) {
        self.remove_part(&self.part_of(record));
    }

    /// What cannot be removed now is found by the next start.
    pub(super) fn remove_part(&self, part: &PartDir) {
        self.tell(part.remove(self.job.files()));
    }

    /// Gives back what is kept of datasets that have left.
    pub(super) fn remove_spares(&self) {
        (0..self.cache.stores.len()).for_each(|store| self.remove_spare(store));
    }

    fn remove_spare(&self, store: usize) {
        self.tell(remove_spare(self.job.files(), &self.cache.stores[store].cache, self.job.rank()));
        self.cache.kept_open().close_removed();
    }

    fn tell(&self, done: Result<(), FsError>) {
        if let Err(error) = done {
            self.job.report.error_here(&crate::describe(&error));
        }
    }

    /// Where a dataset stands in the list.
    pub(super) fn position(&self, id: u64) -> Option<usize> {
        self.cached.iter().position(|cached| cached.id() == id)
    }

    /// What comes after a dataset has become complete: it is flushed where it is due, surplus leaves, and the halt
    /// conditions are looked at.
    pub(super) fn after_complete(&mut self, flags: OutputFlags) -> Result<(), Error> {
        let at = self.cached.len() - 1;
        let (id, store) = (self.cached[at].id(), self.cached[at].store);
        self.note_in_cache(at, self.leaving(store));
        let flushed = self.flush_complete(id);
        self.release_flushed_output();
        self.evict_surplus(store)?;
        if flags.checkpoint {
            self.count_checkpoint()?;
        }
        self.start_copying();
        flushed
    }
}

/// The first rank, which alone writes files that are shared by all.
pub(super) const ROOT: Rank = Rank(0);
const TAG: Tag = Tag(42);
/// With less room than this a store counts as full.
const FULL: u64 = 1 << 20;
