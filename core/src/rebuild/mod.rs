//! A restart within an allocation: finds the datasets in cache, brings their parts to their ranks and makes them whole.
//!
//! The steps are those of the guide's "Scalable restart":
//!
//! | part | what it does |
//! |---|---|
//! | `scan` | finds the parts in the caches of the nodes |
//! | `parts` | tells every rank where its own parts are |
//! | `state` | what all ranks together know of a dataset |
//! | `recover` | decides what becomes of a dataset, and rebuilds it |
//! | `transfer` | copies files to the nodes that their ranks run on now |

mod parts;
mod recover;
mod scan;
mod state;
mod transfer;

use crate::cache::node_dir;
use crate::cache::part::PartDir;
use crate::cache::record::DatasetKey;
use crate::cache::stale::StalePart;
use crate::cache::Cache;
use crate::comm::collective::{all_reduce, barrier, Op};
use crate::comm::CommError;
use crate::job::Job;
use crate::redundancy::schemes::Schemes;
use parts::LocalPart;
use recover::{Recovered, Restored, Unrecovered};

/// What datasets in cache are brought back with.
#[derive(Clone, Copy)]
pub(crate) struct Rebuild<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cache: &'a Cache,
    pub(crate) schemes: &'a Schemes,
    /// Whether another job of this allocation runs in the prefix directory. What is not complete in cache may be its own then.
    pub(crate) is_shared: bool,
}

/// What a run finds in cache.
#[derive(Default)]
pub(crate) struct Found {
    /// Datasets that are whole, newest first.
    pub(crate) whole: Vec<Restored>,
    /// What is left of datasets that cannot be rebuilt, as far as this rank speaks for it.
    pub(crate) stale: Vec<StalePart>,
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
    let (mut ours, damaged) = ours(job, scan.parts);
    let reports = parts::exchange(&*job.comm, job.files(), &mut ours)?;
    let mut below: Option<DatasetKey> = None;
    let mut occupied = None;
    while let Some(key) = next_key(job, &ours, below)? {
        let local: Vec<&LocalPart> = ours.iter().filter(|part| part.key() == Some(key)).collect();
        below = Some(key);
        found.seen.push(key.id);
        if occupied == Some(key.id) {
            // A newer copy with the same id has these folders. It is not touched for an older one.
            let size = job.comm.size();
            let own = local.into_iter().filter(|part| part.ranks() == Some(size));
            let apart: Vec<_> =
                own.filter(|part| !is_whole_again(&found, &part.part)).map(LocalPart::stale).collect();
            found.stale.extend(apart);
            continue;
        }
        let reports = reports.get(&key).map_or(&[][..], Vec::as_slice);
        match recover::recover(on, key, &local, reports)? {
            Recovered::Restored(restored) => found.whole.push(*restored),
            Recovered::Unrecovered(Unrecovered::TooMuchLost) => {
                found.stale.extend(local.into_iter().map(LocalPart::stale));
            }
            Recovered::Unrecovered(Unrecovered::OtherSize | Unrecovered::InUse) => (),
            Recovered::Removed => continue,
        }
        occupied = Some(key.id);
    }
    let lost: Vec<_> =
        damaged.iter().filter(|part| !is_whole_again(&found, &part.part)).map(LocalPart::stale).collect();
    found.stale.extend(lost);
    let mut highest = [found.highest];
    all_reduce(&*job.comm, &mut highest, Op::Max)?;
    found.highest = highest[0];
    Ok(found)
}

/// Removes from cache the datasets of this prefix directory, and parts whose filemaps say nothing. Collective.
pub(crate) fn purge(job: &Job, cache: &Cache) -> Result<(), CommError> {
    purge_where(job, cache, |_| true)
}

/// Removes from cache the records of datasets whose files lie in the prefix directory. Collective.
pub(crate) fn purge_bypass(job: &Job, cache: &Cache) -> Result<(), CommError> {
    purge_where(job, cache, |part| part.map.record.as_ref().is_some_and(|record| record.protection.bypass))
}

fn purge_where(job: &Job, cache: &Cache, goes: impl Fn(&LocalPart) -> bool) -> Result<(), CommError> {
    let (ours, unknown) = ours(job, scan::scan(job, cache)?.parts);
    for part in ours.iter().chain(&unknown).filter(|part| goes(part)) {
        if let Err(error) = part.part.remove(job.files()) {
            job.report.error_here(&crate::describe(&error));
        }
    }
    barrier(&*job.comm)
}

/// The parts that belong to this prefix directory, and those whose filemaps say nothing. Parts of another prefix directory
/// are neither restarted from nor removed. Neither are parts whose filemaps say nothing in the folder of a node that is
/// not in this run: another job may just be beginning them.
fn ours(job: &Job, parts: Vec<LocalPart>) -> (Vec<LocalPart>, Vec<LocalPart>) {
    let (known, mut unknown): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part.map.record.is_some());
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
fn next_key(
    job: &Job,
    local: &[LocalPart],
    below: Option<DatasetKey>,
) -> Result<Option<DatasetKey>, CommError> {
    let keys =
        || local.iter().filter_map(LocalPart::key).filter(|key| below.is_none_or(|below| *key < below));
    let mut id = [keys().map(|key| key.id.saturating_add(1)).max().unwrap_or(0)];
    all_reduce(&*job.comm, &mut id, Op::Max)?;
    let Some(id) = id[0].checked_sub(1) else { return Ok(None) };
    let mut begun = [keys().filter(|key| key.id == id).map(|key| key.begun).max().unwrap_or(0)];
    all_reduce(&*job.comm, &mut begun, Op::Max)?;
    Ok(Some(DatasetKey { id, begun: begun[0] }))
}
