//! Checkpoints that another number of ranks has left in cache. If the application can restart from them, the newest one is
//! brought back in the caches, by threads that stand for the ranks that wrote it, and read there: see
//! [`other_nodes`](super::other_nodes). If that cannot be done, the ranks of the run make it whole in the prefix directory, as
//! `scr postrun` does, and read it there. See docs/user/other-ranks.md.
//!
//! Nothing leaves the cache for that: as many ranks as wrote it can restart from it as before, until a newer checkpoint is
//! complete.

use super::other_nodes::Lending;
use super::{Error, Session};
use crate::cache::dataset::HeldParts;
use crate::cache::filemap::Claim;
use crate::cache::part::PartDir;
use crate::cache::record::RankRecord;
use crate::cache::{Cache, CachedDataset};
use crate::fetch::Fetcher;
use crate::flush::is_due_at_start;
use crate::holdings::{due_of_others, next, Goal, Holding};
use crate::job::Job;
use crate::rebuild::{self, FoundDatasets, OfOtherRanks, Rebuild};
use crate::redundancy::schemes::Schemes;
use crate::restart::{PrefixState, Restart};
use crate::scavenge::{Builder, Copier, Outcome};
use scr_base::env::Link;
use scr_comm::{Collective, CommError, RankErrors};
use scr_config::param;
use scr_prefix::Seq;
use std::sync::Arc;

impl Session {
    /// Whether what another number of ranks has left in cache is taken over.
    pub(super) fn takes_over(&self) -> bool {
        self.reads_other_ranks() && self.job.params.get(&param::FETCH)
    }

    /// Takes over the checkpoints that another number of ranks wrote as older ones of this run. The newest one, if it is newer
    /// than what this run has in cache and in the prefix directory, and the one that the user has named are brought back in the
    /// caches, or made whole in the prefix directory. The parts in cache leave once a newer one is complete. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk, or the prefix directory cannot be read.
    pub(super) fn take_over(
        &mut self,
        found: &mut FoundDatasets,
        in_prefix: &mut PrefixState,
        is_shared: bool,
    ) -> Result<(), Error> {
        let own = found.whole.iter().filter(|whole| whole.record.dataset.checkpoint && !whole.refused);
        let mut all: Vec<_> = own.map(|whole| Holding::checkpoint(whole.record.seq())).collect();
        let first = in_prefix.first.as_ref().map(|first| first.seq);
        let named = self.job.params.get(&param::CURRENT).map(String::into_bytes);
        let mut is_any_new = false;
        for other in &mut found.of_other_ranks {
            let (seq, dataset) = (other.record.seq(), &other.record.dataset);
            let is_withdrawn = in_prefix.withdrawn(dataset).is_some();
            let counts = dataset.checkpoint && !other.refused && !is_withdrawn;
            other.has_copy = counts && in_prefix.has(seq, &dataset.name);
            let this = Holding { is_of_others: true, ..Holding::checkpoint(seq) };
            // Its own copy may be the first there.
            let there = first.filter(|&first| !(other.has_copy && first == seq)).map(Holding::checkpoint);
            let with_this: Vec<_> = [this].into_iter().chain(there).chain(all.iter().copied()).collect();
            let is_newest = next(&with_this, Goal::Restart { in_prefix: false }) == Some(this);
            let is_wanted = counts && (is_newest || named.as_deref() == Some(&*dataset.name));
            let here = if is_wanted { self.bring_back(other, is_shared)? } else { None };
            other.is_read_here = here.is_some();
            let is_due = is_wanted && (here.is_none() || is_due_at_start(&self.job, &other.record));
            let is_new = is_due
                && !other.has_copy
                && save(&self.job, &self.cache, &self.schemes, (other, &mut self.restart))?;
            (other.has_copy, is_any_new) = (other.has_copy || is_new, is_any_new || is_new);
            all.extend(Some(this).filter(|_| other.is_read_here || is_new));
            self.keep_parts(other, here.as_ref());
        }
        if is_any_new {
            *in_prefix = PrefixState::read(&self.job)?;
        }
        Ok(())
    }

    /// Brings back a checkpoint in the caches, and enters it as one of this run. Gives the parts of it that this rank has then, if
    /// that was done; why not is reported. Collective.
    fn bring_back(&mut self, other: &OfOtherRanks, is_shared: bool) -> Result<Option<HeldParts>, CommError> {
        let Self { job, cache, schemes, .. } = self;
        let record = &other.record;
        if !(record.dataset.is_only_checkpoint() && lies_in_caches(job, record)) {
            return Ok(None);
        }
        let began = job.elapsed();
        let back = rebuild::bring_back(Rebuild { job, cache, schemes, is_shared }, other);
        let cached = back.and_then(|(others, survives)| {
            let (record, part, claim) = begin_part_for_copies(job, cache, record)?;
            let store = cache.store_index(&record.protection.store);
            let cached = CachedDataset::new(record, part, claim, store);
            Ok(CachedDataset { survives: Some(survives), others: Some(others), ..cached })
        });
        let cached = match cached {
            Ok(cached) => cached,
            Err(error) => {
                job.report.warn(&not_read_here(record, &error.agreed()?));
                return Ok(None);
            }
        };
        let took = (job.elapsed() - began).as_secs_f64();
        job.report
            .notice(&format!("{}: it is read in the caches of the nodes, after {took:.3} s", other.what));
        let here = cached.others.as_ref().map(|others| Arc::clone(&others.here));
        cache.insert_lent(cached);
        Ok(here)
    }

    /// Keeps the parts of a dataset that another number of ranks wrote until a newer checkpoint counts. Output that is nowhere
    /// else stays for those who wrote it.
    fn keep_parts(&mut self, other: &mut OfOtherRanks, here: Option<&HeldParts>) {
        // The copy of a checkpoint that is read in the caches is not compared.
        let is_saved = other.has_copy && !other.is_read_here;
        if is_saved || other.record.dataset.is_only_checkpoint() {
            let parts = other.take_parts(here.map_or(&[][..], |here| here.as_slice()));
            self.cache.keep_of_other_ranks(parts, is_saved);
        }
    }

    /// The ranks lend each other the files of the checkpoint that the application is about to read, if any rank may read any file
    /// and they lie on several nodes. If they cannot, what another number of ranks wrote is read in the prefix directory after
    /// all. Collective.
    pub(super) fn prepare_lending(&mut self) -> Result<(), Error> {
        let wanted = self.to_be_lent().map(|cached| (cached.id(), cached.seq()));
        let begun = self.lending.as_ref().map(|lending| lending.seq);
        if wanted.is_some_and(|(_, seq)| begun == Some(seq)) {
            return Ok(());
        }
        self.remove_copies();
        let Some((id, seq)) = wanted else { return Ok(()) };
        let why = match begin_lending(&self.job, &mut self.cache, id) {
            Ok(begun) => {
                self.lending = Some(begun);
                return Ok(());
            }
            Err(error) => error.agreed()?,
        };
        match self.cache.dataset(id).filter(|cached| cached.is_of_other_ranks()) {
            Some(cached) => {
                self.job.report.warn(&not_read_here(&cached.record, &why));
                self.save_read_here(seq)?;
                self.read_in_prefix(id)?;
            }
            None => self.job.report.warn(&format!(
                "SCR_RESTART_OTHER_RANKS=1: files in the caches of other nodes cannot be read: {why}"
            )),
        }
        Ok(())
    }

    /// The checkpoint that the application is about to read, if its files are to go from node to node.
    fn to_be_lent(&self) -> Option<&CachedDataset> {
        let cached = self.restart.checkpoint(&self.cache).filter(|_| self.job.nodes.count() > 1);
        cached.filter(|cached| {
            let may_be_of_any = || self.reads_other_ranks() && lies_in_caches(&self.job, &cached.record);
            cached.is_of_other_ranks() || may_be_of_any()
        })
    }

    /// The lending ends, if there is one. All ranks read the copies no more.
    pub(super) fn remove_copies(&mut self) {
        self.lending.take().into_iter().for_each(|lending| lending.end(&self.job));
    }

    /// Moves the reading of checkpoints from the caches to the prefix directory, where each is made whole if it is not. The parts
    /// of those who wrote it make room once every byte of it is right there. Gives whether any has. Collective.
    pub(super) fn make_room_of_others(&mut self) -> Result<bool, Error> {
        let lent = self.cache.datasets().iter().filter(|cached| cached.is_of_other_ranks());
        let lent: Vec<_> = lent.map(|cached| (cached.id(), cached.seq(), cached.prefix.is_whole())).collect();
        if lent.is_empty() {
            return Ok(false);
        }
        for (id, seq, is_saved) in lent {
            if is_saved || self.save_read_here(seq)? {
                self.read_in_prefix(id)?;
                if self.restart.seq(&self.cache) == Some(seq) {
                    self.cache.keep_saved(seq);
                }
            }
        }
        self.cache.release_of_other_ranks(&self.job, self.restart.seq(&self.cache))?;
        Ok(self.cache.clear_remains(&self.job)?)
    }

    /// A checkpoint that this run has read in the caches is read in the prefix directory, if it is right there. Collective.
    fn read_in_prefix(&mut self, id: u64) -> Result<(), Error> {
        let Self { job, cache, schemes, restart, of_other_ranks, .. } = self;
        cache.evict(job, id);
        let mut from = Fetcher::new(job, cache, schemes);
        restart.find_again(&mut from)?;
        while mend_copy(restart, &from, of_other_ranks)? {
            restart.find_again(&mut from)?;
        }
        self.count_from_restart();
        Ok(())
    }

    /// If the newest checkpoint is one that another number of ranks wrote, it must not be lost with the cache when a run ends.
    /// Collective.
    pub(super) fn save_last(&mut self) -> Result<(), Error> {
        if self.job.params.get(&param::FLUSH) == 0 {
            return Ok(());
        }
        if let Some(seq) = due_of_others(&self.cache.holdings()) {
            self.save_read_here(seq)?;
        }
        Ok(())
    }

    /// Makes a checkpoint whole in the prefix directory that this run reads in the caches. Gives whether it is there now.
    /// Collective.
    fn save_read_here(&mut self, seq: Seq) -> Result<bool, CommError> {
        let is_it = |other: &&mut OfOtherRanks| other.is_read_here && other.record.seq() == seq;
        let Some(other) = self.of_other_ranks.iter_mut().find(is_it) else { return Ok(false) };
        let is_saved = save(&self.job, &self.cache, &self.schemes, (other, &mut self.restart))?;
        other.has_copy |= is_saved;
        Ok(is_saved)
    }
}

/// Whether the files of a dataset lie in the caches of the nodes, and the user wants them to be read there.
fn lies_in_caches(job: &Job, record: &RankRecord) -> bool {
    !record.protection.bypass && job.env.link == Link::Tcp && !job.params.get(&param::GLOBAL_RESTART)
}

fn not_read_here(record: &RankRecord, why: &RankErrors) -> String {
    let label = record.label();
    format!("{label} is not read in the caches of the nodes, but by way of the prefix directory: {why}")
}

/// Each rank lends the files of the parts of a dataset that it has. Collective.
fn begin_lending(job: &Job, cache: &mut Cache, id: u64) -> Collective<Lending> {
    let cached = cache.dataset(id).expect("it is the checkpoint that the application is about to read");
    let seq = cached.seq();
    if let Some(others) = &cached.others {
        return Lending::begin(job, seq, Arc::clone(&others.here), &cached.part);
    }
    let here = Arc::new(vec![(cached.record.clone(), cached.part.clone())]);
    let (_, part, claim) = begin_part_for_copies(job, cache, &here[0].0)?;
    let begun = Lending::begin(job, seq, here, &part);
    let mut lending = begun.inspect_err(|_| cache.remove_part(job, &part))?;
    lending.own = Some((part, claim));
    Ok(lending)
}

/// Begins parts for what ranks get from other nodes of a dataset that they read. They have a number of their own, and never become
/// complete: the next run removes them. Collective.
fn begin_part_for_copies(
    job: &Job,
    cache: &mut Cache,
    theirs: &RankRecord,
) -> Collective<(RankRecord, PartDir, Claim)> {
    let begun = job.number_of_first(|| job.micros())?;
    let set = (vec![job.rank()], vec![job.nodes.name(job.rank()).to_owned()]);
    let mut record = RankRecord {
        cache_id: cache.take_id(job)?,
        read_by: Some(job.comm.size()),
        begun,
        ..RankRecord::begun(job, theirs.dataset.clone(), theirs.protection.clone(), set)
    };
    let (part, journal) = cache.begin(job, &mut record, || Ok(()), |record, id| record.cache_id = id)?;
    Ok((record, part, journal.into_claim()))
}

/// If the copy in the prefix directory of a checkpoint that lies in cache has turned out to be damaged, and the run would begin
/// with an older one, or with none, it is made whole there once more. Gives whether one was. Collective.
///
/// # Errors
/// The ranks cannot talk, or the prefix directory cannot be read.
pub(super) fn mend_copy(
    restart: &mut Restart,
    from: &Fetcher<'_>,
    others: &mut [OfOtherRanks],
) -> Result<bool, Error> {
    let loaded = restart.seq(from.cache);
    for other in others {
        let (seq, dataset) = (other.record.seq(), &other.record.dataset);
        if !other.has_copy || loaded >= Some(seq) || restart.has_given_up(seq) {
            continue;
        }
        let now = PrefixState::read(from.job)?;
        if now.has_failed(seq, &dataset.name)
            && now.withdrawn(dataset).is_none()
            && save(from.job, from.cache, from.schemes, (other, restart))?
        {
            // Once is enough.
            other.has_copy = false;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies what the nodes have of a checkpoint to the prefix directory, and completes it there. Gives whether it is complete now,
/// and reports why not; if it could only not be done here and now, no run begins from nothing for it. Collective.
fn save(
    job: &Job,
    cache: &Cache,
    schemes: &Schemes,
    (other, restart): (&OfOtherRanks, &mut Restart),
) -> Result<bool, CommError> {
    let OfOtherRanks { what, record, .. } = other;
    let label = record.label();
    job.report
        .notice(&format!("{what}: it is in cache only, and is made whole in the prefix directory first"));
    let began = job.elapsed();
    let has_failed = job.any(!copy(job, cache, record.dataset.id))?;
    let (why, is_lost) = match job.on_first(|| build(job, schemes, record.dataset.id)) {
        Ok(None) => {
            let took = (job.elapsed() - began).as_secs_f64();
            job.report.notice(&format!("{label} is complete in the prefix directory, after {took:.3} s"));
            return Ok(true);
        }
        Ok(Some(missing)) => (missing, !has_failed),
        Err(error) => (error.agreed()?.to_string(), false),
    };
    if !is_lost {
        restart.unread.insert((record.seq(), record.dataset.name_text()));
    }
    job.report.error(&format!(
        "{label} cannot be made whole in the prefix directory: {why}. If other nodes have parts of it, end this run, save it from \
         all of them with `scr postrun', and start again. It stays in cache until a newer checkpoint is complete"
    ));
    Ok(false)
}

/// The first rank of those that see a store copies all that lies in it. A part that cannot be copied counts as lost. Gives whether
/// what is missing afterwards is known to be lost.
fn copy(job: &Job, cache: &Cache, id: u64) -> bool {
    let led = cache.stores().iter().filter(|store| store.placement.leader(job.rank()) == job.rank());
    let folders: Vec<_> = led.map(|store| store.root.clone()).collect();
    if folders.is_empty() {
        return true;
    }
    let copier = Copier {
        files: job.files(),
        prefix: &job.prefix,
        uid: job.env.uid,
        node: job.nodes.name(job.rank()),
        block_bytes: job.params.get(&param::FILE_BUF_SIZE),
        width: job.processors,
        progress: &|_, _| (),
    };
    match copier.dataset(&folders, id) {
        Err(error) => {
            job.report.error_here(&scr_base::describe(&error));
            false
        }
        Ok(copied) => {
            let wrong = copied.parts.iter().flat_map(|part| &part.wrong).chain(&copied.passed_over);
            wrong.for_each(|wrong| job.report.warn_here(&format!("{wrong}: it counts as lost")));
            !copied.parts.iter().any(|part| part.may_be_there)
        }
    }
}

/// Completes what was copied; gives what is missing for that.
fn build(job: &Job, schemes: &Schemes, id: u64) -> Result<Option<String>, String> {
    // As for as many ranks as wrote it, a copy that failed does not count. The caller asks for no refused dataset.
    let mut builder = Builder::new(&job.env, &job.prefix, &schemes.plugins.host, 0);
    builder.replaces_failed = true;
    match builder.build(id).map_err(|error| scr_base::describe(&error))?.outcome {
        Outcome::Incomplete { why } => Ok(Some(why)),
        Outcome::Already | Outcome::Listed { .. } | Outcome::Completed { .. } => Ok(None),
    }
}
