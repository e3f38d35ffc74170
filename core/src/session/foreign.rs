//! Checkpoints that another number of ranks has left in cache only. If the application can restart from them, the ranks that are
//! there make the newest one whole in the prefix directory, as `scr postrun` does, and read it there. See the guide's "Restart".
//!
//! Nothing leaves the cache for that: as many ranks as wrote it can restart from it as before, until a newer checkpoint is complete.

use super::{Error, Session};
use crate::cache::record::RankRecord;
use crate::cache::{Cache, CachedDataset};
use crate::comm::collective::barrier;
use crate::comm::{CollectiveError, CommError, Rank};
use crate::fetch::Fetcher;
use crate::job::Job;
use crate::param;
use crate::prefix::Seq;
use crate::rebuild::{FoundDatasets, OtherSize};
use crate::redundancy::schemes::Schemes;
use crate::restart::{PrefixState, Restart};
use crate::scavenge::{Builder, Copier, Outcome};

impl Session {
    /// Whether what another number of ranks has left in cache is taken over.
    pub(super) fn takes_over(&self) -> bool {
        self.reads_other_ranks() && self.job.params.get(&param::FETCH)
    }

    /// What another number of ranks wrote counts as an older checkpoint of this run: the newest one is made whole in the prefix
    /// directory, from where it is read, and the parts in cache leave once a newer one is complete. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk, or the prefix directory cannot be read.
    pub(super) fn take_over(
        &mut self,
        found: &mut FoundDatasets,
        in_prefix: &mut PrefixState,
    ) -> Result<(), Error> {
        let own = found.whole.iter().filter(|whole| whole.record.dataset.checkpoint && !whole.refused);
        let newest = own.map(|whole| whole.record.seq()).max();
        let saved = self.make_whole(&found.of_other_size, in_prefix, newest)?;
        if !saved.is_empty() {
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

    /// Makes the newest of these checkpoints whole in the prefix directory that can be made so, if it is newer than `newest` and than
    /// what is there; and the one that the user has named. Gives the places of those that are there now. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    fn make_whole(
        &self,
        others: &[OtherSize],
        in_prefix: &PrefixState,
        newest: Option<Seq>,
    ) -> Result<Vec<Seq>, CommError> {
        let (job, mut saved) = (&self.job, Vec::new());
        let mut newest = newest.max(in_prefix.first.as_ref().map(|first| first.seq));
        let named = job.params.get(&param::CURRENT).map(String::into_bytes);
        for other in others.iter().filter(|other| !other.refused && other.record.dataset.checkpoint) {
            let record = &other.record;
            if in_prefix.withdrawn(record.seq(), record.dataset.is_only_checkpoint()).is_some() {
                continue;
            }
            let is_named = named.as_deref() == Some(&*record.dataset.name);
            if in_prefix.has(record.seq(), &record.dataset.name) {
                saved.push(record.seq());
                continue;
            }
            let is_wanted = newest.is_none_or(|newest| record.seq() > newest) || is_named;
            if is_wanted && save(job, &self.cache, &self.schemes, other)? {
                saved.push(record.seq());
                newest = newest.max(Some(record.seq()));
            }
        }
        Ok(saved)
    }
}

/// Finds the checkpoint to restart from. If the copy in the prefix directory of one that lies in cache turns out to be damaged, it is
/// made whole there once more: otherwise the run would begin with an older one, or with none. Collective.
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
            && save(from.job, from.cache, from.schemes, other)?
        {
            restart.find_newer(from)?;
        }
    }
    Ok(())
}

/// Copies what the nodes have of a checkpoint to the prefix directory, and completes it there. Gives whether it is complete now,
/// and reports why not. Collective.
fn save(job: &Job, cache: &Cache, schemes: &Schemes, other: &OtherSize) -> Result<bool, CommError> {
    let label = other.record.label();
    let what = &other.what;
    job.report
        .notice(&format!("{what}: it is in cache only, and is made whole in the prefix directory first"));
    let began = job.elapsed();
    copy(job, cache, other.record.dataset.id);
    barrier(&*job.comm)?;
    let built = match job.rank() {
        Rank(0) => build(job, schemes, other.record.id_in_prefix),
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
                "{label} cannot be made whole in the prefix directory: {why}. It stays in cache until a newer checkpoint is complete"
            ));
            Ok(false)
        }
    }
}

/// The first rank of those that see a store copies all that lies in it. What cannot be copied counts as lost.
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
        Err(error) => job.report.error_here(&crate::describe(&error)),
        Ok(copied) => {
            let wrong = copied.parts.iter().flat_map(|part| &part.wrong).chain(&copied.passed_over);
            wrong.for_each(|wrong| job.report.warn_here(&format!("{wrong}: it counts as lost")));
        }
    }
}

fn build(job: &Job, schemes: &Schemes, id: u64) -> Result<(), String> {
    // As for as many ranks as wrote it, a copy that failed does not count. What was refused is not asked for.
    let built = Builder::new(&job.env, &job.prefix, schemes.plugin_host(), 0).replacing_failed().build(id);
    match built.map_err(|error| crate::describe(&error))?.outcome {
        Outcome::Incomplete { why } => Err(why),
        Outcome::Already | Outcome::Listed { .. } | Outcome::Completed { .. } => Ok(()),
    }
}
