//! A restart within an allocation: what is left in cache is found, brought to its owners and made whole.
//!
//! The steps are those of the guide's "Scalable restart": [`scan`] finds the parts, [`claims`] tells every rank what
//! there is of its own, [`survey`] what all know together, [`recover`] decides and rebuilds, [`moves`] carries files to the nodes their ranks run on.

pub(crate) mod claims;
mod moves;
pub(crate) mod recover;
mod scan;
mod survey;

use crate::cache::node_dir;
use crate::cache::part::PartDir;
use crate::cache::record::{DatasetKey, Protection, RankRecord};
use crate::cache::stale::StalePart;
use crate::cache::Cache;
use crate::comm::collective::{all_reduce, barrier, Op};
use crate::comm::{Collective, CommError};
use crate::fs::{Files, Kind};
use crate::job::Job;
use crate::redundancy::mend::SchemeSource;
use crate::redundancy::schemes::Schemes;
use claims::Held;
use recover::{Kept, Recovered, Restored};
use scr_plugin_api::Scheme;
use std::sync::Arc;

/// What datasets in cache are brought back with.
#[derive(Clone, Copy)]
pub(crate) struct Rebuild<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cache: &'a Cache,
    pub(crate) schemes: &'a Schemes,
}

impl SchemeSource for Rebuild<'_> {
    fn scheme(&self, protection: &Protection) -> Collective<Arc<dyn Scheme>> {
        self.schemes.scheme(self.job, protection)
    }
}

/// What a run finds in cache.
#[derive(Default)]
pub(crate) struct Found {
    /// Datasets that are whole, newest first.
    pub(crate) whole: Vec<Restored>,
    /// What is left of datasets that cannot be brought back, as far as this rank speaks for it.
    pub(crate) kept: Vec<StalePart>,
    /// The ids of all datasets that any node has something of; the same on all ranks.
    pub(crate) seen: Vec<u64>,
    /// The highest dataset id in use in any store, whichever prefix it belongs to.
    pub(crate) highest: u64,
}

/// Finds the datasets in cache that belong to this prefix directory and brings them back. Collective.
pub(crate) fn all(on: Rebuild<'_>) -> Result<Found, CommError> {
    let job = on.job;
    let scan = scan::scan(job, on.cache)?;
    let mut found = Found { highest: scan.highest, ..Found::default() };
    let (ours, damaged) = ours(job, scan.held);
    let claims = claims::exchange(&*job.comm, job.files(), &ours)?;
    let mut below: Option<DatasetKey> = None;
    let mut occupied = None;
    while let Some(key) = next_key(job, &ours, below)? {
        let held: Vec<&Held> = ours.iter().filter(|part| part.key() == Some(key)).collect();
        below = Some(key);
        found.seen.push(key.id);
        if occupied == Some(key.id) {
            // Its folders are those of a newer copy with the same id, which is not to be touched for an older one.
            let size = job.comm.size();
            let own = held.into_iter().filter(|part| part.ranks() == Some(size));
            let apart: Vec<_> =
                own.filter(|part| !is_whole_again(&found, &part.part)).map(Held::stale).collect();
            found.kept.extend(apart);
            continue;
        }
        let told = claims.get(&key).map_or(&[][..], Vec::as_slice);
        match recover::recover(on, key, &held, told)? {
            Recovered::Restored(restored) => found.whole.push(*restored),
            Recovered::Kept(Kept::Unrecoverable) => {
                found.kept.extend(held.into_iter().map(Held::stale));
            }
            Recovered::Kept(Kept::OtherSize) => (),
            Recovered::Removed => continue,
        }
        occupied = Some(key.id);
    }
    let lost: Vec<_> =
        damaged.iter().filter(|part| !is_whole_again(&found, &part.part)).map(Held::stale).collect();
    found.kept.extend(lost);
    let mut highest = [found.highest];
    all_reduce(&*job.comm, &mut highest, Op::Max)?;
    found.highest = highest[0];
    Ok(found)
}

/// Removes from cache whatever belongs to this prefix directory, and what nobody can tell of. Collective.
pub(crate) fn purge(job: &Job, cache: &Cache) -> Result<(), CommError> {
    purge_where(job, cache, |_| true)
}

/// Removes from cache what is known of datasets whose files lie in the prefix directory. Collective.
pub(crate) fn purge_bypass(job: &Job, cache: &Cache) -> Result<(), CommError> {
    purge_where(job, cache, |part| part.map.record.as_ref().is_some_and(|record| record.protection.bypass))
}

fn purge_where(job: &Job, cache: &Cache, goes: impl Fn(&Held) -> bool) -> Result<(), CommError> {
    let (ours, unknown) = ours(job, scan::scan(job, cache)?.held);
    for part in ours.iter().chain(&unknown).filter(|part| goes(part)) {
        if let Err(error) = part.part.remove(job.files()) {
            job.report.error_here(&crate::describe(&error));
        }
    }
    barrier(&*job.comm)
}

/// Whether the files of a bypass dataset are in the prefix directory as they were written. Nobody has read them to take a
/// checksum, so one that was written to since counts as lost, whatever its length: a later dataset may have begun to
/// replace it.
fn in_place(files: &dyn Files, record: &RankRecord) -> bool {
    record.files.iter().all(|file| {
        let status = files.status(&record.prefix_path(file));
        status.is_ok_and(|status| {
            status.kind == Kind::File && status.len == file.bytes && status.mtime == file.mtime
        })
    })
}

/// The parts that belong to this prefix directory, and those of which nobody can tell. Parts of another prefix
/// directory are neither restarted from nor removed; nor is what nobody can tell of in the folder of a node that does not
/// take part, where another job may just be beginning it.
fn ours(job: &Job, held: Vec<Held>) -> (Vec<Held>, Vec<Held>) {
    let (known, mut unknown): (Vec<_>, Vec<_>) = held.into_iter().partition(|part| part.map.record.is_some());
    let ours = known
        .into_iter()
        .filter(|part| part.map.record.as_ref().is_some_and(|record| record.prefix == job.prefix_bytes()));
    unknown.retain(|part| {
        let folder = part.part.dataset().parent();
        let node = folder.and_then(|folder| node_dir::node_of(job.files(), folder));
        node.is_none_or(|node| job.nodes.has(&node))
    });
    (ours.collect(), unknown)
}

fn is_whole_again(found: &Found, part: &PartDir) -> bool {
    found.whole.iter().any(|restored| restored.part == *part)
}

/// The newest dataset below `below` of which any rank holds a part; the same on all ranks.
fn next_key(job: &Job, held: &[Held], below: Option<DatasetKey>) -> Result<Option<DatasetKey>, CommError> {
    let keys = || held.iter().filter_map(Held::key).filter(|key| below.is_none_or(|below| *key < below));
    let mut id = [keys().map(|key| key.id.saturating_add(1)).max().unwrap_or(0)];
    all_reduce(&*job.comm, &mut id, Op::Max)?;
    let Some(id) = id[0].checked_sub(1) else { return Ok(None) };
    let mut begun = [keys().filter(|key| key.id == id).map(|key| key.begun).max().unwrap_or(0)];
    all_reduce(&*job.comm, &mut begun, Op::Max)?;
    Ok(Some(DatasetKey { id, begun: begun[0] }))
}
