//! Rebuilds lost parts of a scavenged dataset with threads in the place of the ranks that wrote it, with the scheme and the
//! code of a restart.

use super::build::Builder;
use super::place::ScavengedPart;
use super::scan::Scan;
use crate::cache::loss::{visible_loss, Loss, Lost};
use crate::cache::part::PartPlace;
use crate::cache::record::{Protection, RankRecord};
use crate::cache::verify::{Extent, PartFiles};
use crate::job::Job;
use crate::plugin::{CheckedScheme, PluginKind};
use crate::redundancy::plugins::readable_scheme;
use crate::redundancy::repair::Repair;
use scr_base::fs::{Durability, Files, FsError};
use scr_base::parallel::at_a_time;
use scr_base::{describe, ensure};
use scr_comm::thread::{self, ThreadComm};
use scr_comm::{Collective, Comm, Rank, RankErrors};
use scr_prefix::DIR_MODE;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Makes a scavenged dataset whole.
pub(super) struct ScavengedRepair<'a> {
    pub(super) builder: &'a Builder<'a>,
    pub(super) scan: &'a Scan,
    /// The dataset as messages name it.
    pub(super) label: &'a str,
}

/// Why a scavenged dataset cannot be made whole.
pub(super) struct RepairError {
    pub(super) why: String,
    /// Whether data is lost, and it is not only that something could not be done here and now.
    pub(super) is_loss: bool,
}

impl<E: std::error::Error> From<E> for RepairError {
    fn from(error: E) -> Self {
        Self { why: describe(&error), is_loss: false }
    }
}

/// The scheme that all parts of a dataset were written with, loaded when the first rank asks for it.
type LoadedScheme = OnceLock<Result<Arc<CheckedScheme>, RankErrors>>;

impl ScavengedRepair<'_> {
    /// Makes every byte of every part what was recorded. Gives the ranks whose parts were rebuilt.
    ///
    /// Only the members of sets with a lost part take part; all other parts are read by as many threads as there are
    /// processors. So a job of any size can be repaired.
    pub(super) fn run(&self) -> Result<Vec<Rank>, RepairError> {
        let ranks = self.scan.any.ranks();
        let known = self.scan.records().count();
        let why = || format!("something is known of the parts of {known} of {ranks} ranks only");
        let is_enough = ranks as usize / FEWEST_KNOWN <= known;
        ensure(is_enough, || RepairError { why: why(), is_loss: true })?;
        let width = self.builder.env.processors;
        let all: Vec<Rank> = (0..ranks).map(Rank).collect();
        let is_whole = |loss: &Loss| loss.lost == Lost::Protection;
        let may_be_whole = at_a_time(width, &all, |&rank| self.loss(rank).as_ref().is_none_or(is_whole));
        let mut sets =
            self.sets_of(all.iter().zip(may_be_whole).filter(|(_, whole)| !whole).map(|(&rank, _)| rank));
        let repaired: BTreeSet<Rank> = sets.iter().flatten().copied().collect();
        let others: Vec<Rank> = all.into_iter().filter(|rank| !repaired.contains(rank)).collect();
        let verified = at_a_time(width, &others, |&rank| self.is_verified(rank));
        sets.extend(
            self.sets_of(
                others.iter().zip(verified).filter(|(_, verified)| !verified).map(|(&rank, _)| rank),
            ),
        );
        let loaded = LoadedScheme::new();
        let mut rebuilt = Vec::new();
        for ranks in batches(sets) {
            rebuilt.extend(self.repair(&ranks.into_iter().collect(), &loaded)?);
        }
        rebuilt.sort_unstable();
        Ok(rebuilt)
    }

    /// The redundancy sets of these ranks. The set of a rank whose record is lost may be known to others of it.
    fn sets_of(&self, lost: impl Iterator<Item = Rank>) -> BTreeSet<Vec<Rank>> {
        let mut sets = BTreeSet::new();
        let mut unknown = BTreeSet::new();
        for rank in lost {
            match self.scan.record(rank) {
                Some(record) => _ = sets.insert(record.members.clone()),
                None => _ = unknown.insert(rank),
            }
        }
        if !unknown.is_empty() {
            let has_unknown =
                |record: &&RankRecord| record.members.iter().any(|member| unknown.contains(member));
            sets.extend(self.scan.records().filter(has_unknown).map(|record| record.members.clone()));
            sets.extend(unknown.iter().map(|&rank| vec![rank]));
        }
        sets
    }

    /// Rebuilds what is lost in the sets of these ranks, with a thread for each.
    fn repair(&self, ranks: &Arc<[Rank]>, loaded: &LoadedScheme) -> Result<Vec<Rank>, RepairError> {
        let threads = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let mut results =
            thread::run(threads, |comm| self.rank(comm.standing_for(Arc::clone(ranks)), loaded))?;
        // One rank may know of a loss that others have only been told of.
        let is_loss = |result: &Result<bool, RepairError>| result.as_ref().is_err_and(|error| error.is_loss);
        if let Some(lost) = results.iter().position(is_loss) {
            results.swap_remove(lost)?;
        }
        let of_rank = |(&rank, result): (&Rank, Result<bool, _>)| {
            result.map(|is_rebuilt| is_rebuilt.then_some(rank)).transpose()
        };
        ranks.iter().zip(results).filter_map(of_rank).collect()
    }

    /// One rank's share; returns whether its part was rebuilt.
    fn rank(&self, comm: ThreadComm, loaded: &LoadedScheme) -> Result<bool, RepairError> {
        let rank = comm.own_rank();
        let job = &Job::of_command(Rc::new(comm), self.builder.env, self.builder.prefix, self.builder.level)?;
        let scheme = &|protection: &Protection| self.scheme(protection, loaded);
        let (label, extent, wrong_bytes, is_lost) = (self.label, Extent::All, Rc::default(), Rc::default());
        let repair = Repair { job, scheme, label, extent, wrong_bytes, is_lost };
        let repaired = self.repair_part(&repair, rank);
        repaired.map_err(|error| RepairError { is_loss: repair.is_lost.get(), ..error.into() })
    }

    fn repair_part(&self, repair: &Repair<'_>, rank: Rank) -> Collective<bool> {
        let (part, known) = (self.part(rank), self.scan.record(rank));
        let loss = self.loss(rank);
        let record = repair.agree_on_record(known, loss.as_ref().map(|loss| loss.lost))?;
        let mut rebuilt = false;
        repair.run(record, &part, loss, &mut || {
            rebuilt = true;
            self.make_room(record, &part)
        })?;
        Ok(rebuilt)
    }

    fn part(&self, rank: Rank) -> ScavengedPart<'_> {
        ScavengedPart { prefix: self.builder.prefix, id: self.scan.any.dataset.id, rank }
    }

    fn scheme(&self, protection: &Protection, loaded: &LoadedScheme) -> Collective<Arc<CheckedScheme>> {
        let load = || {
            let plugin = self.builder.plugins.open(PluginKind::Scheme, &protection.scheme);
            let scheme = plugin.and_then(|plugin| readable_scheme(&plugin, protection));
            scheme.map(Arc::new).map_err(|error| RankErrors::known_to_all(describe(&error)))
        };
        Ok(loaded.get_or_init(load).clone()?)
    }

    /// Why a part is not whole, if so. A file without a known checksum could be any file.
    fn loss(&self, rank: Rank) -> Option<Loss> {
        let own = self.scan.record(rank).filter(|_| self.scan.own.contains(&rank));
        let Some(record) = own else {
            return Some(Loss::of_data("no node has saved it"));
        };
        if let Some(file) = record.files.iter().find(|file| file.crc.is_none()) {
            return Some(Loss::of_data(format!("no checksum of {} is known", file.name)));
        }
        let loss = visible_loss(&*self.builder.env.files, &self.part(rank), record)?;
        let damage = self.builder.damaged.and_then(|damaged| damaged.get(&rank.0).cloned());
        Some(Loss { why: damage.unwrap_or(loss.why), ..loss })
    }

    /// Reads a part. Its set reports what is wrong with it.
    fn is_verified(&self, rank: Rank) -> bool {
        let Some(record) = self.scan.record(rank) else { return false };
        let (files, part) = (&*self.builder.env.files, &self.part(rank));
        PartFiles { files, part, record }.verify(1, Extent::All).is_ok()
    }

    fn make_room(&self, record: &RankRecord, part: &ScavengedPart<'_>) -> Result<(), FsError> {
        let files: &dyn Files = &*self.builder.env.files;
        let mut paths = record.files.iter().map(|file| part.file(record, file));
        paths.try_for_each(|path| {
            files.make_dirs(path.parent().unwrap_or(&path), DIR_MODE, Durability::Synced)
        })
    }
}

/// If fewer than one in this many ranks is known, no scheme rebuilds the others. A damaged record may claim any number of ranks.
const FEWEST_KNOWN: usize = 16;

/// The ranks of these sets, so many at a time as threads are begun for. A set stays together.
fn batches(sets: BTreeSet<Vec<Rank>>) -> Vec<BTreeSet<Rank>> {
    let mut batches: Vec<BTreeSet<Rank>> = Vec::new();
    for set in sets {
        match batches.last_mut() {
            Some(batch) if batch.len() < MOST_THREADS => batch.extend(set),
            _ => batches.push(set.into_iter().collect()),
        }
    }
    batches
}

/// The number of ranks that are worked for at a time, or as many as one set has.
const MOST_THREADS: usize = 1024;
