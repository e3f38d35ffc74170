//! Which datasets stay in cache, and which are evicted: `SCR_CACHE_SIZE`, the `COUNT` and `EVICT` of a store, and its free room.
//!
//! If the store has room for both, an old dataset is evicted only after a new one is complete. Otherwise the old one is evicted
//! first, with one warning. The cache only names the dataset to evict: a flush that is copying it has to end first, and only
//! its owner can end it.

use super::dataset::CachedDataset;
use super::part::{remove_spare, spare_bytes, PartDir};
use super::record::RankRecord;
use super::room::{self, LimitedBy, Room};
use super::shared_files::with_names_of;
use super::stale::StalePart;
use super::{Cache, StoreInUse, RECORDING};
use crate::error::{Doing as _, Error};
use crate::holdings::{next, waits, Goal, Holding, Lies, Limit, Standing};
use crate::job::Job;
use scr_base::fs::verify::expect_bytes;
use scr_base::fs::Files;
use scr_base::message::amount;
use scr_comm::collective::{all_reduce, barrier, broadcast, first_rank, Op};
use scr_comm::{CommError, Incoming, Outgoing, Rank, Tag, WaitControl};
use scr_config::descriptor::Evict;
use scr_config::param;
use scr_prefix::ledger::Request;
use scr_prefix::Seq;

/// Why a store has no room for the old datasets and a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Crowded {
    /// So it was said.
    Always,
    /// A dataset has failed there.
    WasFull,
    /// By what it has now.
    Now(Room),
}

/// Which datasets had files in the prefix directory that another one is given.
#[derive(Debug, Default)]
pub(crate) struct FilesGiven {
    /// A newer one, which keeps them.
    pub(crate) newer: Option<u64>,
    /// Older ones, which have lost them. They are still there if they also lie in cache.
    pub(crate) replaced: Vec<u64>,
}

impl Cache {
    /// How many datasets a store keeps beside none that is being written.
    pub(crate) fn limit_after(&self, store: usize) -> Limit {
        Limit::after(self.stores[store].count)
    }

    /// How many datasets a store keeps while another one is written to it, where it is crowded on any rank. The rank that is to
    /// `warn` says once why, and that a failure in between may leave nothing.
    pub(crate) fn limit_before(&mut self, job: &Job, store: usize, warn: Option<Crowded>) -> Limit {
        let there = self.count_in(store);
        let here = &mut self.stores[store];
        let limit = Limit::before(here.count, there);
        let is_first = !std::mem::replace(&mut here.warned_crowded, true);
        if let Some(crowded) = warn.filter(|_| is_first) {
            let why = match crowded {
                Crowded::Always => "EVICT=before is set".to_owned(),
                Crowded::WasFull => "a dataset has failed there for want of room".to_owned(),
                Crowded::Now(room) => format!("it has no room for both ({})", here.room_text(job, &room)),
            };
            let left = if limit.is_none() { "no dataset" } else { "fewer datasets" };
            job.report.warn_here(&format!(
                "the store {} evicts an old dataset before the new one is complete, as {why}: \
                 a failure in between leaves {left} in cache. {CLEAN}",
                here.name
            ));
        }
        self.remove_spare(job, store);
        limit
    }

    /// Whether a store that has been full keeps no dataset while another one is written to it, which may fail as one has before.
    pub(crate) fn may_be_left_empty(&self, store: usize) -> bool {
        let here = &self.stores[store];
        here.was_full && Limit::before(here.count, self.count_in(store)).is_none()
    }

    /// What decides over each dataset, oldest first.
    pub(crate) fn holdings(&self) -> Vec<Holding> {
        let of = |cached: &CachedDataset| {
            let held = cached.holding();
            let outlives = held.cache == Lies::Weak && self.outlives_nodes(&cached.record.protection.store);
            let cache = if outlives { Lies::Strong } else { held.cache };
            Holding { cache, is_offered: self.is_offered(cached), ..held }
        };
        self.datasets.iter().map(of).collect()
    }

    /// Expects that all ranks know the same of the datasets, since each decides by itself. In tests only. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn expect_alike(&self, job: &Job) -> Result<(), CommError> {
        let own = format!("{:?}", self.holdings());
        let first = broadcast(&*job.comm, Rank(0), own.clone().into_bytes())?;
        assert_eq!(String::from_utf8_lossy(&first), own, "rank 0 and rank {} differ", job.rank());
        Ok(())
    }

    /// Where the datasets from a place on are, and what was said of them, the newest first.
    pub(crate) fn in_words(&self, from: Seq) -> Vec<String> {
        let known = self.datasets.iter().zip(self.holdings()).rev().filter(|(_, held)| held.seq >= from);
        known
            .map(|(cached, held)| format!("{}: {}", cached.checkpoint().name_text(), held.in_words()))
            .collect()
    }

    /// The dataset to evict next from a store that keeps more than its limit. A flush that copies it has to end first, and if that
    /// fails it may have to stay.
    pub(crate) fn victim(&self, store: usize, limit: Limit) -> Option<Holding> {
        next(&self.holdings(), Goal::Room { store, limit })
    }

    /// Whether a dataset that is local stays beside those that count.
    pub(crate) fn waits(&self, cached: &CachedDataset) -> bool {
        waits(&self.holdings(), &cached.holding())
    }

    /// Removes the remains of datasets that no run can rebuild now, as the room is needed. Gives whether there were any.
    /// Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn clear_remains(&mut self, job: &Job) -> Result<bool, CommError> {
        if !std::mem::take(&mut self.has_remains) {
            return Ok(false);
        }
        let remains = std::mem::take(&mut self.stale);
        self.clear(job, &remains)
    }

    /// Removes these parts for want of room. Gives whether any rank had any. Collective.
    fn clear(&self, job: &Job, remains: &[StalePart]) -> Result<bool, CommError> {
        let Some(first) = first_rank(&*job.comm, !remains.is_empty())? else { return Ok(false) };
        let newest = remains.iter().filter_map(|stale| Some((stale.seq?, stale.is_saved))).max();
        if let Some((newest, is_saved)) = newest.filter(|_| first == job.rank()) {
            let why = match is_saved {
                true => "another number of ranks wrote it, and it is in the prefix directory as well",
                false => "too much of it is lost for it to be rebuilt",
            };
            let id = newest.id;
            job.report
                .warn_here(&format!("what is left of dataset {id} leaves the cache for want of room: {why}"));
        }
        self.remove_stale(job, remains);
        Ok(true)
    }

    /// Lets something leave for a checkpoint that is fetched and has no room: what is left of it, then what is left of others
    /// that no run can rebuild, and then a dataset that no run can restart from, or that is in the prefix directory as well. The
    /// newest checkpoint that a run can restart from stays, and so does the newest one before it, which takes its place if it
    /// cannot be fetched even then. Gives whether anything has left. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn make_way(&mut self, job: &Job, store: usize, fetched: Seq) -> Result<bool, CommError> {
        let stale = std::mem::take(&mut self.stale).into_iter();
        let (same, others): (Vec<_>, Vec<_>) = stale.partition(|stale| stale.seq == Some(fetched));
        self.stale = others;
        self.has_remains = job.any(!self.stale.is_empty())?;
        if self.clear(job, &same)? || self.clear_remains(job)? {
            return Ok(true);
        }
        let Some(spare) = next(&self.holdings(), Goal::Way { store, fetched }) else { return Ok(false) };
        self.evict(job, spare.id);
        Ok(true)
    }

    /// Whether leftovers occupy the room that the checkpoint about to be fetched needs: in memory the job would be killed for it.
    /// Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn do_remains_crowd(&self, job: &Job, store: usize) -> Result<bool, CommError> {
        if !self.has_remains {
            return Ok(false);
        }
        let needed = room::expected(self.stores[store].last_bytes);
        job.any(self.less_than(needed, job, store)?.is_some())
    }

    /// Whether a new dataset does not fit beside the old ones and the remains of others, and why. Only the first rank of a node
    /// looks at the store itself.
    pub(crate) fn crowded(&self, job: &Job, store: usize) -> Option<Crowded> {
        let (here, there) = (&self.stores[store], self.count_in(store));
        let is_full = there >= here.count.max(1) || self.has_remains;
        match here.evict {
            Evict::After if !self.has_remains => return None,
            Evict::Before => return is_full.then_some(Crowded::Always),
            Evict::Auto | Evict::After if here.was_full => return is_full.then_some(Crowded::WasFull),
            Evict::Auto | Evict::After => (),
        }
        let there = there + u64::from(self.has_remains);
        if there == 0 || here.placement.leader(job.rank()) != job.rank() {
            return None;
        }
        let (files, expected) = (job.files(), room::expected(here.last_bytes));
        // Those that are local take more yet, about as much on each rank of the node.
        let mates = here.placement.mates(job.rank()).len() as u64;
        let local = self.datasets.iter().filter(|cached| cached.store == store);
        let owed = local.fold(0, |sum: u64, cached| sum.saturating_add(cached.owed)).saturating_mul(mates);
        // A file that is kept to be written over is room as well.
        let fits = |room: &Room| {
            let needed = expected.saturating_add(owed);
            room.bytes >= needed || room.bytes.saturating_add(spare_bytes(files, &here.cache)) >= needed
        };
        let left = here.size.map(|size| size.saturating_sub(here.last_bytes.saturating_mul(there)));
        let of_size = left.filter(|left| *left < expected);
        of_size
            .map(|bytes| Room { bytes, by: LimitedBy::Size })
            .or_else(|| here.room(files, expected.saturating_add(owed)).filter(|room| !fits(room)))
            .map(Crowded::Now)
    }

    /// After a failure: from now on old datasets leave a store that ran full before new ones are written. Collective.
    pub(crate) fn check_if_full(&mut self, job: &Job, store: usize, written: u64) -> Result<(), CommError> {
        let full = self.less_than(written.max(FULL), job, store)?;
        let Some(first) = first_rank(&*job.comm, full.is_some())? else { return Ok(()) };
        // As many as there are now were too many for one more.
        let there = self.count_in(store);
        let here = &mut self.stores[store];
        here.count = here.count.min(there.max(1));
        let is_first = !std::mem::replace(&mut here.was_full, true) && first == job.rank();
        if let Some(room) = full.filter(|_| is_first) {
            let next = match here.evict {
                Evict::After => "EVICT=after is set, so old datasets stay until a new one is complete",
                _ => "from now on an old dataset leaves it before a new one is written",
            };
            let (name, node) = (&here.name, job.nodes.name(job.rank()));
            job.report.warn_here(&format!("the store {name} is full ({room} on {node}): {next}. {CLEAN}"));
        }
        Ok(())
    }

    /// Whether a store has run full on any node. Collective.
    pub(crate) fn is_full(&self, job: &Job, store: usize) -> Result<bool, CommError> {
        job.any(self.less_than(FULL, job, store)?.is_some())
    }

    /// The room of a store where that is less. Collective.
    fn less_than(&self, bytes: u64, job: &Job, store: usize) -> Result<Option<Room>, CommError> {
        self.wait_until_freed(job)?;
        Ok(self.stores[store].room(job.files(), bytes).filter(|room| room.bytes < bytes))
    }

    /// Returns when the memory of all that has left the caches of the nodes is there again. Collective.
    pub(crate) fn wait_until_freed(&self, job: &Job) -> Result<(), CommError> {
        self.freeing.wait();
        barrier(&*job.comm)
    }

    /// Records the bytes that the newest dataset takes in each store, or took of which only remains are there. Collective.
    pub(crate) fn measure_newest(&mut self, job: &Job) -> Result<(), CommError> {
        for store in 0..self.stores.len() {
            let here = self.datasets.iter().filter(|cached| cached.store == store);
            let newest = here.max_by_key(|cached| cached.seq());
            let bytes = match newest {
                Some(cached) if cached.is_of_other_ranks() => {
                    let parts = self.of_other_ranks.iter().filter(|part| part.is_at(&[cached.seq()]));
                    parts.fold(0, |sum: u64, part| sum.saturating_add(part.bytes))
                }
                Some(cached) => cached.cache_bytes(job.files()),
                None => self.bytes_of_remains(),
            };
            self.record_bytes(job, store, bytes)?;
        }
        Ok(())
    }

    /// Records the bytes that the last dataset took in a store; the first rank of those that share it adds them up. Collective.
    pub(crate) fn record_bytes(&mut self, job: &Job, store: usize, own: u64) -> Result<(), CommError> {
        let here = &mut self.stores[store];
        if here.placement.count() == 1 {
            [here.last_bytes] = all_reduce(&*job.comm, [own], Op::Sum)?;
            return Ok(());
        }
        let mates = here.placement.mates(job.rank());
        let own_bytes = own.to_be_bytes();
        let leads = mates[0] == job.rank();
        let others = if leads { &mates[1..] } else { &[][..] };
        let mut theirs = vec![[0_u8; 8]; others.len()];
        let mut receives: Vec<_> =
            others.iter().zip(&mut theirs).map(|(&from, bytes)| Incoming { from, bytes }).collect();
        let send = [Outgoing { to: mates[0], bytes: &own_bytes }];
        let sends: &[Outgoing<'_>] = if leads { &[] } else { &send };
        if mates.len() > 1 {
            job.comm.exchange(TAG, sends, &mut receives, &mut |_| Ok(WaitControl::Wait))?;
        }
        let bytes = theirs.iter().map(|bytes| u64::from_be_bytes(*bytes));
        here.last_bytes = bytes.fold(own, u64::saturating_add);
        Ok(())
    }

    /// Removes a dataset from cache, unless another running job counts on it: then this run only forgets it. No flush may be
    /// copying it.
    pub(crate) fn evict(&mut self, job: &Job, id: u64) {
        self.remove(job, id);
        self.freeing.wait();
        self.list_left(job);
    }

    /// The same, but the flush file still [lists](Self::list_left) it, and memory that it takes may be free only some time after.
    /// So what needs it has to [wait](Self::wait_until_freed).
    pub(crate) fn remove(&mut self, job: &Job, id: u64) {
        let Some(at) = self.datasets.iter().position(|cached| cached.id() == id) else { return };
        let mut cached = self.datasets.remove(at);
        if cached.claim.is_others() {
            self.listed.remove(&cached.record.dataset.id);
            let label = cached.record.label();
            return job.report.notice(&format!("{label} stays in cache: another running job has it as well"));
        }
        // On NFS an open file keeps its folder from being removed.
        drop(std::mem::take(&mut cached.claim));
        job.report.info(&format!("Deleting {} from cache", cached.record.label()));
        verify_before_delete(job, &cached);
        let files = job.files();
        let store = &self.stores[cached.store];
        let is_ours = cached.part.dataset().parent() == Some(&store.cache);
        let keeps = cached.record.redundancy.is_some() && !store.warned_crowded && is_ours;
        let large = cached.record.files.iter().filter(|file| file.bytes >= WORTH_A_THREAD);
        let large = large.map(|file| cached.part.file(&file.name));
        let removed = self.freeing.after(files, large, || match keeps {
            true => cached.part.remove_but_spare(files, &cached.record),
            false => cached.part.remove(files),
        });
        job.report_failed(removed);
        self.open.close_removed();
        self.note_left(&cached);
    }

    /// A writer of files in the prefix directory calls this before they count: the application has been given the paths of
    /// `owner`, or a flush is about to copy it there. Older datasets that lie there with one of its files are given up there:
    /// those that lie nowhere else leave. If a newer one has such a file, nothing is given up: `owner` must not be written there.
    /// Collective.
    ///
    /// # Errors
    /// As for [`withdraw`](Self::withdraw).
    pub(crate) fn give_files_to(&mut self, job: &Job, owner: &RankRecord) -> Result<FilesGiven, Error> {
        // For a dataset that lies in cache too, the index says later whether a flush has replaced files.
        let in_place = owner.protection.bypass;
        let lies_there = |cached: &&CachedDataset| {
            cached.record.protection.bypass || in_place && cached.prefix.has_files()
        };
        let others = self.datasets.iter().filter(|cached| cached.id() != owner.cache_id);
        let others: Vec<_> =
            others.filter(|cached| !cached.prefix.is_superseded()).filter(lies_there).collect();
        if others.is_empty() {
            return Ok(FilesGiven::default());
        }
        let names = owner.files.iter().map(|file| &file.name);
        let records: Vec<_> = others.iter().map(|cached| &cached.record).collect();
        let sharing = with_names_of(&*job.comm, names, &records)?.into_iter().map(|place| others[place]);
        let (newer, older): (Vec<_>, Vec<_>) = sharing.partition(|cached| cached.seq() > owner.seq());
        if let Some(newer) = newer.iter().find(|cached| !cached.is_refused()) {
            return Ok(FilesGiven { newer: Some(newer.record.dataset.id), ..FilesGiven::default() });
        }
        let in_place = older.iter().filter(|cached| cached.record.protection.bypass);
        let in_place: Vec<u64> = in_place.map(|cached| cached.id()).collect();
        let older: Vec<u64> = older.into_iter().map(CachedDataset::id).collect();
        older.iter().for_each(|&id| self.supersede(id));
        self.withdraw(job, &in_place)?;
        Ok(FilesGiven { newer: None, replaced: older })
    }

    /// The dataset that was given their files has failed: they are to get to the prefix directory again.
    pub(crate) fn give_files_back(&mut self, given: &FilesGiven) {
        for cached in self.datasets.iter_mut().filter(|cached| given.replaced.contains(&cached.id())) {
            cached.prefix.give_back();
        }
    }

    /// Evicts datasets that no run may restart from any more. All ranks record that before the first part goes: otherwise a rank
    /// that dies meanwhile, or whose cache cannot be written, leaves a part that counts, and redundancy brings the whole dataset
    /// back. A rank that cannot record it in its part has it recorded in the prefix directory. Collective.
    ///
    /// # Errors
    /// It could be recorded in neither place. Nothing has left the cache then.
    pub(crate) fn withdraw(&mut self, job: &Job, ids: &[u64]) -> Result<(), Error> {
        let there: Vec<&CachedDataset> = ids.iter().filter_map(|&id| self.dataset(id)).collect();
        if there.is_empty() {
            return Ok(());
        }
        let unrecorded = there.iter().filter(|cached| !cached.record_refused(job)).count();
        if job.any(unrecorded > 0)? {
            let seqs: Vec<Seq> = there.iter().map(|cached| cached.seq()).collect();
            let request = Request::Withdraw { seqs: &seqs, which: None, alone: None, before: None };
            job.do_on_first(|| job.ledger().transact(&request)).doing(RECORDING)?;
        }
        for &id in ids {
            self.dataset_mut(id).into_iter().for_each(|cached| cached.set_standing(Standing::Refused));
            self.remove(job, id);
        }
        self.freeing.wait();
        self.list_left(job);
        Ok(())
    }

    /// Evicts output-only datasets that are flushed, unless the application is about to read one.
    pub(crate) fn evict_flushed_output(&mut self, job: &Job) {
        let is_done = |cached: &CachedDataset| {
            let held = cached.holding();
            let stays = self.is_offered(cached) || held.is_unflushed() || held.prefix.is_under_way();
            !stays && held.is_output && !held.is_checkpoint
        };
        self.ids_of(is_done).into_iter().for_each(|id| self.evict(job, id));
    }

    /// Removes this rank's part of a dataset that has failed. If that fails, the next start does it.
    pub(crate) fn remove_part(&self, job: &Job, part: &PartDir) {
        job.report_failed(part.remove(job.files()));
    }

    /// Frees the memory that is kept for the redundancy files of new datasets.
    pub(crate) fn remove_spares(&self, job: &Job) {
        (0..self.stores.len()).for_each(|store| self.remove_spare(job, store));
    }

    fn remove_spare(&self, job: &Job, store: usize) {
        job.report_failed(remove_spare(job.files(), &self.stores[store].cache, job.rank()));
        self.open.close_removed();
    }

    /// The bytes of the newest dataset of which this rank has found remains.
    fn bytes_of_remains(&self) -> u64 {
        let newest = self.stale.iter().filter_map(|stale| stale.seq).max();
        let its = self.stale.iter().filter(|stale| stale.seq.is_some() && stale.seq == newest);
        its.fold(0, |sum, stale| sum.saturating_add(stale.bytes))
    }

    pub(super) fn count_in(&self, store: usize) -> u64 {
        self.datasets.iter().filter(|cached| cached.store == store).count() as u64
    }
}

impl StoreInUse {
    /// The bytes that may still be written; an answer above `enough` may be too low.
    pub(crate) fn room(&self, files: &dyn Files, enough: u64) -> Option<Room> {
        room::room(files, &self.cache, &self.memory, enough)
    }

    /// The room that the next dataset needs, and the room that was found, on the node of this rank.
    fn room_text(&self, job: &Job, found: &Room) -> String {
        let needed = match room::expected(self.last_bytes) {
            0 => "the size of a dataset is not known yet".to_owned(),
            needed => format!("a dataset needs about {}", amount(needed)),
        };
        format!("{needed}, and {found} on {}", job.nodes.name(job.rank()))
    }
}

/// With `SCR_CRC_ON_DELETE` a part is read once more before it is deleted. That finds a device that changes bytes before a
/// checkpoint is needed that lies on it.
fn verify_before_delete(job: &Job, cached: &CachedDataset) {
    let record = &cached.record;
    if !job.params.get(&param::CRC_ON_DELETE) || record.protection.bypass {
        return;
    }
    let block_bytes = job.params.get(&param::FILE_BUF_SIZE);
    let data = record.files.iter().map(|file| (cached.part.file(&file.name), file.bytes, file.crc));
    let redundancy = record.redundancy.map(|file| (cached.part.redundancy(), file.bytes, Some(file.crc)));
    let verified = data
        .chain(redundancy)
        .try_for_each(|(path, bytes, crc)| expect_bytes(job.files(), &path, bytes, crc, block_bytes));
    if let Err(error) = verified {
        job.report.error_here(&format!(
            "{}: the length or the CRC32 of a file is wrong: {error}. It is deleted from cache anyway; check what stores {}, newer datasets may be damaged too",
            record.label(),
            cached.part.dataset().display()
        ));
    }
}

const TAG: Tag = Tag(42);
/// The ways to make room.
const CLEAN: &str = "`scr clean --dead' removes what jobs that are over have left on a node";
/// With less room than this a store counts as full.
const FULL: u64 = 1 << 20;
/// Bytes of a file whose memory a thread gives back.
const WORTH_A_THREAD: u64 = 1 << 20;
