//! Checkpoints that another number of ranks has left in cache. If the application can restart from them, the newest one is
//! brought back in the caches, by threads that stand for the ranks that wrote it, and read there: see
//! [`other_nodes`](super::other_nodes). If that cannot be done, the ranks of the run make it whole in the prefix directory, as `scr
//! postrun` does, and read it there. See the guide's "Restart".
//!
//! Nothing leaves the cache for that: as many ranks as wrote it can restart from it as before, until a newer checkpoint is
//! complete.

use super::other_nodes::Lending;
use super::{Error, Session};
use crate::cache::filemap::Claim;
use crate::cache::part::PartDir;
use crate::cache::record::RankRecord;
use crate::cache::stale::StalePart;
use crate::cache::{Cache, CachedDataset};
use crate::fetch::Fetcher;
use crate::flush::is_due_at_start;
use crate::holdings::InPrefix;
use crate::job::Job;
use crate::rebuild::{self, BroughtBack, FoundDatasets, OtherSize, Rebuild};
use crate::redundancy::schemes::Schemes;
use crate::restart::{newest_cached, PrefixState, Restart};
use crate::scavenge::{Builder, Copier, Outcome};
use scr_base::env::Link;
use scr_comm::collective::{all_reduce, barrier, Op};
use scr_comm::placement::Survives;
use scr_comm::{Collective, CollectiveError, CommError, Rank, RankErrors};
use scr_config::param;
use scr_prefix::{DatasetDescriptor, Seq};
use std::sync::Arc;

/// A checkpoint that another number of ranks wrote, and that this run reads in the caches.
pub(super) struct TakenOver {
    pub(super) seq: Seq,
    what: String,
    /// The record of any part of it.
    record: RankRecord,
    /// The ranks that have the parts of those who wrote it, in their order.
    pub(super) hosts: Vec<Rank>,
    /// The parts that this rank has.
    pub(super) parts: Arc<Vec<(RankRecord, PartDir)>>,
    /// Claims that keep others from removing the parts.
    claims: Vec<Claim>,
}

impl Session {
    /// Whether what another number of ranks has left in cache is taken over.
    pub(super) fn takes_over(&self) -> bool {
        self.reads_other_ranks() && self.job.params.get(&param::FETCH)
    }

    /// Takes over the checkpoints that another number of ranks wrote as older ones of this run: the newest one is brought back in
    /// the caches, or made whole in the prefix directory, and the parts in cache leave once a newer one is complete. Collective.
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
        let newest = own.map(|whole| whole.record.seq()).max();
        let others = std::mem::take(&mut found.of_other_size);
        let taken = self.take_each(&others, &mut found.parts_of_other_size, in_prefix, newest, is_shared);
        found.of_other_size = others;
        let Saved { seqs: saved, is_any_new } = taken?;
        if is_any_new {
            *in_prefix = PrefixState::read(&self.job)?;
        }
        // Output that is nowhere else stays for those who wrote it.
        let checkpoints = found.of_other_size.iter().map(|other| &other.record);
        let checkpoints = checkpoints.filter(|record| record.dataset.is_only_checkpoint());
        let checkpoints: Vec<Seq> = checkpoints.map(RankRecord::seq).collect();
        for mut part in std::mem::take(&mut found.parts_of_other_size) {
            part.is_saved = part.is_at(&saved);
            if part.is_saved || part.is_at(&checkpoints) {
                self.cache.keep_of_other_ranks(part);
            }
        }
        Ok(())
    }

    /// Takes over the newest of these checkpoints that can be, if it is newer than `newest` and than what is in the prefix
    /// directory; and the one that the user has named. Gives those that the prefix directory has now. Collective.
    fn take_each(
        &mut self,
        others: &[OtherSize],
        parts: &mut Vec<StalePart>,
        in_prefix: &PrefixState,
        mut newest: Option<Seq>,
        is_shared: bool,
    ) -> Result<Saved, Error> {
        let mut saved = Saved::default();
        let first = in_prefix.first.as_ref().map(|first| first.seq);
        let named = self.job.params.get(&param::CURRENT).map(String::into_bytes);
        for other in others.iter().filter(|other| !other.refused && other.record.dataset.checkpoint) {
            let record = &other.record;
            let (seq, name) = (record.seq(), &record.dataset.name);
            if in_prefix.withdrawn(seq, record.dataset.is_only_checkpoint()).is_some() {
                continue;
            }
            let is_there = in_prefix.has(seq, name);
            let is_newest = Some(seq) > newest && (Some(seq) > first || is_there && Some(seq) == first);
            let is_wanted = is_newest || named.as_deref() == Some(&**name);
            let is_read_here = is_wanted && self.bring_back(other, parts, is_shared)?;
            let is_due = if is_read_here { is_due_at_start(&self.job, record) } else { is_wanted };
            let is_new =
                !is_there && is_due && save(&self.job, &self.cache, &self.schemes, &other.what, record)?;
            saved.is_any_new |= is_new;
            // The copy of a checkpoint that is read in the caches is not compared.
            saved.seqs.extend(Some(seq).filter(|_| (is_there || is_new) && !is_read_here));
            if is_read_here || is_new {
                newest = newest.max(Some(seq));
            }
        }
        Ok(saved)
    }

    /// Brings back a checkpoint in the caches, and enters it as one of this run. Gives whether that was done; why not is
    /// reported. Collective.
    fn bring_back(
        &mut self,
        other: &OtherSize,
        parts: &mut Vec<StalePart>,
        is_shared: bool,
    ) -> Result<bool, Error> {
        let Self { job, cache, schemes, .. } = self;
        let record = &other.record;
        if !can_be_lent(job, record) {
            return Ok(false);
        }
        let began = job.elapsed();
        let back = rebuild::bring_back(Rebuild { job, cache, schemes, is_shared }, other);
        let entered = back.and_then(|back| Ok((enter(job, cache, record, back.survives)?, back)));
        let (cached, back) = match entered {
            Ok(entered) => entered,
            Err(CollectiveError::Comm(error)) => return Err(error.into()),
            Err(CollectiveError::Ranks(why)) => {
                job.report.warn(&not_read_here(record, &why));
                return Ok(false);
            }
        };
        let took = (job.elapsed() - began).as_secs_f64();
        job.report
            .notice(&format!("{}: it is read in the caches of the nodes, after {took:.3} s", other.what));
        cache.insert_lent(cached);
        let taken = TakenOver::of(job, other, back);
        for (record, part) in taken.parts.iter() {
            let is_known = parts.iter().any(|known| known.part == *part);
            parts.extend((!is_known).then(|| StalePart::new(part.clone(), Some(record))));
        }
        self.taken_over.push(taken);
        Ok(true)
    }

    /// The ranks lend each other the files of the checkpoint that the application is about to read, if any rank may read any file
    /// and they lie on several nodes. If they cannot, what another number of ranks wrote is read in the prefix directory after
    /// all. Collective.
    pub(super) fn prepare_lending(&mut self) -> Result<(), Error> {
        let wanted = self.to_be_lent();
        let is_begun =
            |wanted: &ToBeLent| self.lending.as_ref().is_some_and(|lending| lending.seq == wanted.seq);
        if wanted.as_ref().is_some_and(is_begun) {
            return Ok(());
        }
        self.remove_copies();
        let Some(wanted) = wanted else { return Ok(()) };
        let (seq, taken_over) = (wanted.seq, wanted.taken_over.clone());
        match self.begin_lending(wanted) {
            Ok(begun) => self.lending = Some(begun),
            Err(CollectiveError::Comm(error)) => return Err(error.into()),
            Err(CollectiveError::Ranks(why)) => match taken_over {
                Some(record) => {
                    self.job.report.warn(&not_read_here(&record, &why));
                    self.save_taken(seq)?;
                    self.read_in_prefix(seq)?;
                }
                None => self.job.report.warn(&format!(
                    "SCR_RESTART_OTHER_RANKS=1: files in the caches of other nodes cannot be read: {why}"
                )),
            },
        }
        Ok(())
    }

    /// The checkpoint that the application is about to read, if its files are to go from node to node.
    fn to_be_lent(&self) -> Option<ToBeLent> {
        let Self { job, cache, restart, taken_over, .. } = self;
        let cached = restart.checkpoint(cache).filter(|_| job.nodes.count() > 1)?;
        let (seq, part) = (cached.seq(), cached.part.clone());
        if cached.is_of_other_ranks() {
            let taken = taken_over.iter().find(|taken| taken.seq == seq)?;
            let parts = Arc::clone(&taken.parts);
            return Some(ToBeLent { seq, part, parts, taken_over: Some(taken.record.clone()) });
        }
        let is_lent = self.reads_other_ranks() && lies_in_caches(job, &cached.record);
        let parts = Arc::new(vec![(cached.record.clone(), part.clone())]);
        is_lent.then_some(ToBeLent { seq, part, parts, taken_over: None })
    }

    fn begin_lending(&mut self, wanted: ToBeLent) -> Collective<Lending> {
        let Self { job, cache, .. } = self;
        let ToBeLent { seq, part, parts, taken_over } = wanted;
        if taken_over.is_some() {
            return Lending::begin(job, seq, parts, &part);
        }
        let begun = parts.first().map(|(record, _)| begin_part_for_copies(job, cache, record));
        let (_, part, claim) = begun.expect("a rank has a part of its own checkpoint")?;
        let lending = Lending::begin(job, seq, parts, &part);
        match lending {
            Ok(lending) => Ok(lending.owning(part, claim)),
            Err(error) => {
                cache.remove_part(job, &part);
                Err(error)
            }
        }
    }

    /// The lending ends, if there is one. All ranks read the copies no more.
    pub(super) fn remove_copies(&mut self) {
        self.lending.take().into_iter().for_each(|lending| lending.end(&self.job));
    }

    /// The parts of those who wrote a checkpoint may leave for one that is about to be written.
    pub(super) fn end_lending(&mut self) {
        self.remove_copies();
        self.taken_over.iter_mut().for_each(|taken| taken.claims.clear());
    }

    /// Moves the reading of checkpoints from the caches to the prefix directory, where each is made whole if it is not. The parts
    /// of those who wrote it make room once every byte of it is right there. Gives whether any has. Collective.
    pub(super) fn make_room_of_others(&mut self) -> Result<bool, Error> {
        let lent = self.cache.datasets().iter().filter(|cached| cached.is_of_other_ranks());
        let lent: Vec<(Seq, bool)> = lent.map(|cached| (cached.seq(), cached.prefix.is_whole())).collect();
        if lent.is_empty() {
            return Ok(false);
        }
        for (seq, is_saved) in lent {
            let was_loaded = self.has_loaded(seq);
            if !(is_saved || self.save_taken(seq)?) {
                continue;
            }
            self.read_in_prefix(seq)?;
            // The copy there had not been compared. One that is damaged is made whole once more.
            if is_saved && was_loaded && !self.has_loaded(seq) && self.save_taken(seq)? {
                self.read_in_prefix(seq)?;
            }
            if self.has_loaded(seq) {
                self.cache.keep_saved(seq);
            }
        }
        let loaded = self.restart.checkpoint(&self.cache).map(CachedDataset::seq);
        self.cache.release_of_other_ranks(&self.job, loaded)?;
        Ok(self.cache.clear_remains(&self.job)?)
    }

    /// Whether this is the checkpoint that the run restarts from.
    fn has_loaded(&self, seq: Seq) -> bool {
        self.restart.checkpoint(&self.cache).is_some_and(|cached| cached.seq() == seq)
    }

    /// A checkpoint that this run has read in the caches is read in the prefix directory, if it is right there. Collective.
    fn read_in_prefix(&mut self, seq: Seq) -> Result<(), Error> {
        self.cache.evict_taken(&self.job, seq);
        let mut from = Fetcher::new(&self.job, &mut self.cache, &self.schemes);
        self.restart.find_again(&mut from)?;
        self.count_from_restart();
        Ok(())
    }

    /// If the newest checkpoint is one that another number of ranks wrote, it must not be lost with the cache when a run ends.
    /// Collective.
    pub(super) fn save_last(&mut self) -> Result<(), Error> {
        if self.job.params.get(&param::FLUSH) == 0 {
            return Ok(());
        }
        let newest = newest_cached(&self.job, &self.cache, |cached| !cached.is_gone_back_over());
        let newest = newest.and_then(|newest| self.cache.dataset(newest.id));
        let is_only_here =
            |newest: &&CachedDataset| newest.is_of_other_ranks() && newest.prefix == InPrefix::Missing;
        let newest = newest.filter(is_only_here);
        if let Some(seq) = newest.map(CachedDataset::seq) {
            self.save_taken(seq)?;
        }
        Ok(())
    }

    /// Makes a checkpoint whole in the prefix directory that this run reads in the caches. Gives whether it is there now.
    /// Collective.
    fn save_taken(&mut self, seq: Seq) -> Result<bool, CommError> {
        let Some(taken) = self.taken_over.iter().find(|taken| taken.seq == seq) else { return Ok(false) };
        save(&self.job, &self.cache, &self.schemes, &taken.what, &taken.record)
    }
}

/// A checkpoint whose files go from node to node.
struct ToBeLent {
    seq: Seq,
    /// This rank's part of it.
    part: PartDir,
    /// The parts that this rank lends.
    parts: Arc<Vec<(RankRecord, PartDir)>>,
    /// The record of any part of it, if another number of ranks wrote it.
    taken_over: Option<RankRecord>,
}

/// The checkpoints that the prefix directory has.
#[derive(Default)]
struct Saved {
    seqs: Vec<Seq>,
    /// Whether any of them was made whole there.
    is_any_new: bool,
}

impl TakenOver {
    fn of(job: &Job, other: &OtherSize, back: BroughtBack) -> Self {
        let claims = back.parts.iter().map(|part| Claim::lay(job.files(), &part.part.filemap())).collect();
        let parts = back.parts.into_iter().map(|restored| (restored.record, restored.part));
        Self {
            seq: other.record.seq(),
            what: other.what.clone(),
            record: other.record.clone(),
            hosts: back.hosts,
            parts: Arc::new(parts.collect()),
            claims,
        }
    }
}

/// Whether a dataset of another number of ranks may be read in the caches of the nodes.
fn can_be_lent(job: &Job, record: &RankRecord) -> bool {
    record.dataset.is_only_checkpoint() && lies_in_caches(job, record)
}

/// Whether the files of a dataset lie in the caches of the nodes, and the user wants them to be read there.
fn lies_in_caches(job: &Job, record: &RankRecord) -> bool {
    !record.protection.bypass && job.env.link == Link::Tcp && !job.params.get(&param::GLOBAL_RESTART)
}

fn not_read_here(record: &RankRecord, why: &RankErrors) -> String {
    let label = record.label();
    format!("{label} is not read in the caches of the nodes, but by way of the prefix directory: {why}")
}

/// Enters a dataset that another number of ranks wrote, with parts of this run. Collective.
fn enter(
    job: &Job,
    cache: &mut Cache,
    theirs: &RankRecord,
    survives: Survives,
) -> Result<CachedDataset, CollectiveError> {
    let (record, part, claim) = begin_part_for_copies(job, cache, theirs)?;
    let store = cache.store_index(&record.protection.store);
    Ok(CachedDataset { survives: Some(survives), ..CachedDataset::new(record, part, claim, store) })
}

/// Begins parts for what ranks get from other nodes of a dataset that they read. They have a number of their own, and never become
/// complete: the next run removes them. Collective.
fn begin_part_for_copies(
    job: &Job,
    cache: &mut Cache,
    theirs: &RankRecord,
) -> Collective<(RankRecord, PartDir, Claim)> {
    let mut begun = [if job.rank() == Rank(0) { job.micros() } else { 0 }];
    all_reduce(&*job.comm, &mut begun, Op::Max)?;
    let dataset = DatasetDescriptor { id: cache.take_id(job)?, ..theirs.dataset.clone() };
    let set = (vec![job.rank()], vec![job.nodes.name(job.rank()).to_owned()]);
    let mut record = RankRecord {
        id_in_prefix: theirs.id_in_prefix,
        read_by: Some(job.comm.size()),
        begun: begun[0],
        ..RankRecord::begun(job, dataset, theirs.protection.clone(), set)
    };
    let (part, journal) = cache.begin(job, &mut record, || Ok(()), |record, id| record.dataset.id = id)?;
    Ok((record, part, journal.into_claim()))
}

/// Finds the checkpoint to restart from. If the copy in the prefix directory of one that lies in cache turns out to be damaged,
/// it is made whole there once more: otherwise the run would begin with an older one, or with none. Collective.
///
/// # Errors
/// As for [`Restart::find_first`], or the prefix directory cannot be read.
pub(super) fn find_first(
    restart: &mut Restart,
    from: &mut Fetcher<'_>,
    in_prefix: &PrefixState,
    others: &[OtherSize],
) -> Result<(), Error> {
    restart.find_first(from, in_prefix)?;
    for other in others.iter().filter(|other| !other.refused && other.record.dataset.checkpoint) {
        let (seq, name) = (other.record.seq(), &other.record.dataset.name);
        let loaded = restart.checkpoint(from.cache).map(CachedDataset::seq);
        if loaded >= Some(seq) || restart.has_given_up(seq) || !in_prefix.has(seq, name) {
            continue;
        }
        let now = PrefixState::read(from.job)?;
        if now.has_failed(seq, name)
            && now.withdrawn(seq, other.record.dataset.is_only_checkpoint()).is_none()
            && save(from.job, from.cache, from.schemes, &other.what, &other.record)?
        {
            restart.find_newer(from)?;
        }
    }
    Ok(())
}

/// Copies what the nodes have of a checkpoint to the prefix directory, and completes it there. Gives whether it is complete now,
/// and reports why not. Collective.
fn save(
    job: &Job,
    cache: &Cache,
    schemes: &Schemes,
    what: &str,
    record: &RankRecord,
) -> Result<bool, CommError> {
    let label = record.label();
    job.report
        .notice(&format!("{what}: it is in cache only, and is made whole in the prefix directory first"));
    let began = job.elapsed();
    copy(job, cache, record.dataset.id);
    barrier(&*job.comm)?;
    let built = match job.rank() {
        Rank(0) => build(job, schemes, record.id_in_prefix),
        _ => Ok(()),
    };
    match job.agree(built) {
        Ok(()) => {
            let took = (job.elapsed() - began).as_secs_f64();
            job.report.notice(&format!("{label} is complete in the prefix directory, after {took:.3} s"));
            Ok(true)
        }
        Err(CollectiveError::Comm(error)) => Err(error),
        Err(CollectiveError::Ranks(why)) => {
            job.report.error(&format!(
                "{label} cannot be made whole in the prefix directory: {why}. If other nodes have parts of it, end this run, save it \
                 from all of them with `scr postrun', and start again. It stays in cache until a newer checkpoint is complete"
            ));
            Ok(false)
        }
    }
}

/// The first rank of those that see a store copies all that lies in it. A part that cannot be copied counts as lost.
fn copy(job: &Job, cache: &Cache, id: u64) {
    let led = cache.stores().iter().filter(|store| store.placement.leader(job.rank()) == job.rank());
    let folders: Vec<_> = led.map(|store| store.root.clone()).collect();
    if folders.is_empty() {
        return;
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
        Err(error) => job.report.error_here(&scr_base::describe(&error)),
        Ok(copied) => {
            let wrong = copied.parts.iter().flat_map(|part| &part.wrong).chain(&copied.passed_over);
            wrong.for_each(|wrong| job.report.warn_here(&format!("{wrong}: it counts as lost")));
        }
    }
}

fn build(job: &Job, schemes: &Schemes, id: u64) -> Result<(), String> {
    // As for as many ranks as wrote it, a copy that failed does not count. The caller asks for no refused dataset.
    let built = Builder::new(&job.env, &job.prefix, schemes.plugin_host(), 0).replacing_failed().build(id);
    match built.map_err(|error| scr_base::describe(&error))?.outcome {
        Outcome::Incomplete { why } => Err(why),
        Outcome::Already | Outcome::Listed { .. } | Outcome::Completed { .. } => Ok(()),
    }
}
