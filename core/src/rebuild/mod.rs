//! A restart within an allocation: finds the datasets in cache, moves their parts to their ranks, and rebuilds lost parts.
//!
//! The steps are those of docs/user/concepts.md:
//!
//! | part | what it does |
//! |---|---|
//! | `parts` | finds the parts in the caches of the nodes, and what all ranks together know of a dataset |
//! | `recover` | decides whether to delete, keep or rebuild a dataset, and rebuilds it |
//! | `transfer` | copies files to the nodes that their ranks run on now |
//! | `writers` | the same for what another number of ranks wrote, with threads in their place |

pub mod parts;
mod recover;
mod transfer;
mod writers;

pub(crate) use transfer::Stream;
pub(crate) use writers::bring_back;

use crate::cache::filemap::PartState;
use crate::cache::loss::Loss;
use crate::cache::node_dir;
use crate::cache::owner::Owner;
use crate::cache::part::PartDir;
use crate::cache::record::{DatasetKey, FileRecord, RankRecord};
use crate::cache::stale::StalePart;
use crate::cache::verify::{PartFiles, Verified};
use crate::cache::{Cache, CachedDataset};
use crate::delete::report_setting;
use crate::error::Error;
use crate::job::Job;
use crate::redundancy::repair::shortened;
use crate::redundancy::schemes::Schemes;
use crate::restart::{PrefixState, Unread};
use crate::typed::{broadcast_value, first_value, route_values};
use parts::LocalPart;
pub(crate) use recover::Restored;
use recover::{Recovered, Unrecovered};
use scr_comm::collective::{all_reduce, barrier, Op};
use scr_comm::{Comm, CommError, Rank};
use scr_config::param::{self, Origin, Params};
use scr_prefix::{rank2file, DatasetDescriptor, PrefixFile, Seq};
use std::collections::{BTreeMap, BTreeSet};

/// Data for the recovery of datasets in cache.
#[derive(Clone, Copy)]
pub(crate) struct Rebuild<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cache: &'a Cache,
    pub(crate) schemes: &'a Schemes,
    /// Whether another job of this allocation runs in the prefix directory. Incomplete datasets in cache may then be its own.
    pub(crate) is_shared: bool,
}

/// The datasets that a run finds in cache.
#[derive(Default)]
pub(crate) struct FoundDatasets {
    /// Datasets that are whole, newest first.
    pub(crate) whole: Vec<Restored>,
    /// Remaining parts of datasets that cannot be rebuilt, as far as this rank reports them.
    pub(crate) stale: Vec<StalePart>,
    /// The datasets that this run cannot use, as far as this rank speaks for them.
    pub(crate) left: Vec<DatasetDescriptor>,
    /// Those in which ranks have found wrong bytes, and why they could not be brought back; the same on all ranks.
    pub(crate) damaged: Vec<(Seq, String)>,
    /// The places of datasets that this rank has read or written in place, and that were not found there as they were.
    pub(crate) changed: BTreeSet<Seq>,
    /// The ids of all datasets that any node has something of; the same on all ranks.
    pub(crate) seen: Vec<u64>,
    /// The ids of those that belong to another prefix directory with the id of this one; the same on all ranks.
    pub(crate) of_twins: Vec<u64>,
    /// The numbers in cache of those of which another release of scr wrote parts; the same on all ranks.
    pub(crate) of_other_release: Vec<u64>,
    /// Whether there are any that belong to a prefix directory which was at this path before.
    pub(crate) is_any_replaced: bool,
    /// The checkpoints of which nothing is known to be lost, and that could not be brought back; the same on all ranks.
    pub(crate) not_tried: Vec<Unread>,
    /// Whether there is a dataset that could not be recovered; the same on all ranks.
    pub(crate) is_any_left: bool,
    /// Those that another number of ranks wrote, newest first; the same on all ranks.
    pub(crate) of_other_ranks: Vec<OfOtherRanks>,
    /// The highest dataset id in use in any store, whichever prefix it belongs to.
    pub(crate) highest: u64,
    /// The highest number of a run that has left anything of this prefix directory; the same on all ranks.
    pub(crate) highest_run: u64,
}

/// A dataset that another number of ranks wrote.
pub(crate) struct OfOtherRanks {
    /// That it was, with both numbers.
    pub(crate) what: String,
    /// The record of any part of it.
    pub(crate) record: RankRecord,
    /// Whether the application has refused it.
    pub(crate) refused: bool,
    /// Whether the prefix directory has a copy of it as well, as far as this run knows.
    pub(crate) has_copy: bool,
    /// Whether this run reads it in the caches.
    pub(crate) is_read_here: bool,
    /// The parts of it that this rank reports.
    parts: Vec<LocalPart>,
}

impl OfOtherRanks {
    /// Packs what one rank knows, to be sent to all.
    fn of(job: &Job, what: String, refused: bool, local: &[&LocalPart]) -> Result<Option<Self>, CommError> {
        let own = local.iter().find_map(|part| part.map.record.as_ref());
        let record = first_value(&*job.comm, own)?;
        let parts = local.iter().map(|part| (*part).clone()).collect();
        let (has_copy, is_read_here) = (false, false);
        Ok(record.map(|record| Self { what, record, refused, has_copy, is_read_here, parts }))
    }

    /// The parts of it that this rank reports, and those that it has since it was brought `back`.
    pub(crate) fn take_parts(&mut self, back: &[(RankRecord, PartDir)]) -> Vec<StalePart> {
        let known = std::mem::take(&mut self.parts);
        let rebuilt = back.iter().filter(|(_, part)| known.iter().all(|known| known.part != *part));
        let rebuilt = rebuilt.map(|(record, part)| StalePart::new(part.clone(), Some(record)));
        known.iter().map(LocalPart::stale).chain(rebuilt).collect()
    }
}

impl FoundDatasets {
    fn note_in_place(&mut self, local: &[&LocalPart]) {
        let records = local.iter().filter_map(|part| part.map.record.as_ref());
        let in_place = records.filter(|record| record.protection.bypass);
        self.changed.extend(in_place.map(RankRecord::seq));
    }

    /// Keeps parts that nobody can use, but for those whose places are of datasets that are whole again.
    fn keep_stale<'p>(&mut self, parts: impl Iterator<Item = &'p LocalPart>) {
        let is_whole = |part: &LocalPart| self.whole.iter().any(|restored| restored.part == part.part);
        self.stale.extend(parts.filter(|part| !is_whole(part)).map(LocalPart::stale));
    }

    /// Keeps what is there of a dataset that did not come back. Collective.
    fn keep_unrecovered(
        &mut self,
        job: &Job,
        key: DatasetKey,
        why: Unrecovered,
        local: &[&LocalPart],
    ) -> Result<(), CommError> {
        match why {
            Unrecovered::InUse => return Ok(()),
            Unrecovered::NotTried => {
                let checkpoint = local.iter().filter_map(|part| part.map.record.as_ref());
                let checkpoint = checkpoint.map(|record| &record.dataset).find(|dataset| dataset.checkpoint);
                let name = first_value(&*job.comm, checkpoint.map(DatasetDescriptor::name_text).as_ref())?;
                self.not_tried.extend(name.map(|name| (key.seq(), name)));
            }
            Unrecovered::TooMuchLost { damage, .. } => {
                self.damaged.extend(damage.map(|why| (key.seq(), why)));
                self.stale.extend(local.iter().map(|part| part.stale()));
            }
            Unrecovered::OfOtherRanks { what, refused } => {
                self.of_other_ranks.extend(OfOtherRanks::of(job, what, refused, local)?);
            }
        }
        self.is_any_left = true;
        self.left.extend(local.iter().filter_map(|part| part.dataset()));
        Ok(())
    }
}

/// Finds the datasets in cache that belong to this prefix directory and brings them back, but for those that somebody has
/// dropped: their parts leave. Collective.
pub(crate) fn all(
    on: Rebuild<'_>,
    is_dropped: impl Fn(&DatasetDescriptor) -> bool,
    is_saved: impl Fn(&DatasetDescriptor) -> bool,
) -> Result<FoundDatasets, CommError> {
    let job = on.job;
    let (parts, highest) = parts::scan(job, on.cache)?;
    let mut found = FoundDatasets { highest, ..FoundDatasets::default() };
    let sorted = sort(job, parts)?;
    let Sorted { mut ours, damaged, replaced, of_twins, of_others, of_other_release, borrowed } = sorted;
    // This run finds out by itself what it reads there.
    borrowed.iter().for_each(|part| part.remove_unless_held(job));
    let dropped = ours.extract_if(.., |part| part.dataset().as_ref().is_some_and(&is_dropped));
    dropped.for_each(|part| part.remove_unless_held(job));
    let records = ours.iter_mut().filter_map(|part| part.map.record.as_mut());
    records.filter(|record| is_saved(&record.dataset)).for_each(|record| take_listed_sums(job, record));
    found.is_any_replaced = report_replaced(job, &replaced)?;
    found.of_twins = report_twins(job, &of_twins)?;
    found.of_other_release = report_other_release(job, &of_other_release)?;
    if !on.is_shared {
        found.stale.extend(replaced.iter().map(LocalPart::stale));
    }
    let reports = parts::exchange(&*job.comm, job.files(), &mut ours)?;
    let mut below: Option<DatasetKey> = None;
    let (mut occupied, mut lost) = (BTreeSet::new(), BTreeSet::new());
    while let Some(key) = next_key(job, &ours, below)? {
        let local: Vec<&LocalPart> = ours.iter().filter(|part| part.key() == Some(key)).collect();
        below = Some(key);
        found.seen.push(key.dataset);
        let is_of_other = |newer: &DatasetKey| newer.id == key.id && newer.run != key.run;
        if occupied.contains(&key.id) || lost.iter().any(is_of_other) {
            // A newer dataset or copy with the same id has these folders. It is not touched for an older one.
            found.left.extend(local.iter().filter_map(|part| part.dataset()));
            let size = job.comm.size();
            found.keep_stale(local.into_iter().filter(|part| part.ranks() == Some(size)));
            continue;
        }
        let reports = reports.get(&key).map_or(&[][..], Vec::as_slice);
        on.schemes.plugins.forget_failures();
        let is_mixed = found.of_other_release.contains(&key.id);
        match recover::recover(on, key, &local, reports, (&lost, is_mixed))? {
            Recovered::Restored(restored) => found.whole.push(*restored),
            Recovered::Removed => {
                found.note_in_place(&local);
                continue;
            }
            Recovered::Unrecovered(why) => {
                // It must not hide an older copy of the same dataset, which nobody has refused. The nodes of another job may
                // have the rest of it.
                let makes_way =
                    !on.is_shared && matches!(why, Unrecovered::TooMuchLost { refused: false, .. });
                found.note_in_place(&local);
                found.keep_unrecovered(job, key, why, &local)?;
                if makes_way {
                    lost.insert(key);
                    continue;
                }
            }
        }
        occupied.insert(key.id);
    }
    if found.seen.is_empty() {
        report_others(job, of_others)?;
    }
    found.keep_stale(damaged.iter());
    let run = ours.iter().filter_map(LocalPart::key).map(|key| key.run).max().unwrap_or(0);
    [found.highest, found.highest_run] = all_reduce(&*job.comm, [found.highest, run], Op::Max)?;
    Ok(found)
}

/// Where no scheme has taken checksums, those of the copy in the prefix directory tell whether the bytes in cache are right: a
/// command may have saved it. Without the list nothing can be told.
fn take_listed_sums(job: &Job, record: &mut RankRecord) {
    if record.protection.bypass || record.files.iter().all(|file| file.crc.is_some()) {
        return;
    }
    let listed =
        rank2file::of_rank(job.files(), &job.prefix, record.dataset.id, record.rank).unwrap_or_default();
    for file in &mut record.files {
        let is_it = |listed: &&PrefixFile| listed.name == file.name && listed.bytes == Some(file.bytes);
        file.crc = file.crc.or(listed.iter().find(is_it).and_then(|listed| listed.crc));
    }
}

/// Reads the redundancy that the restart did not need. Gives the damage that this rank has found, by dataset; `None` if no rank
/// has found any. Collective.
pub(crate) fn damaged_redundancy(job: &Job, cache: &Cache) -> Result<Option<BTreeMap<u64, Loss>>, CommError> {
    let unread = cache.datasets().iter().filter(|cached| cached.verified == Verified::Files);
    let damage = unread.filter_map(|cached| {
        let (part, record) = (&cached.part, &cached.record);
        let error = PartFiles { files: job.files(), part, record }.verify_redundancy(job.processors).err()?;
        let loss = error.loss();
        job.report.error_here(&format!("{}: {}; its redundancy counts as lost", record.label(), loss.why));
        Some((cached.id(), loss))
    });
    let damage: BTreeMap<u64, Loss> = damage.collect();
    Ok(job.any(!damage.is_empty())?.then_some(damage))
}

/// Repairs the parts in which ranks have found damage. Collective.
pub(crate) fn damaged(on: Rebuild<'_>, damage: &BTreeMap<u64, Loss>) -> Result<(), CommError> {
    on.cache.datasets().iter().try_for_each(|cached| {
        recover::recover_damaged(on, cached, damage.get(&cached.id()).cloned()).map(drop)
    })
}

/// Brings back a dataset of which ranks have changed files. Gives whether it is whole again. Collective.
pub(crate) fn changed(
    on: Rebuild<'_>,
    cached: &CachedDataset,
    loss: Option<Loss>,
) -> Result<bool, CommError> {
    let outcome = recover::recover_damaged(on, cached, loss)?;
    Ok(!matches!(outcome, Some(Recovered::Unrecovered(Unrecovered::TooMuchLost { .. }))))
}

/// Removes from cache the datasets of this prefix directory, and parts whose filemaps say nothing, but for those that another job
/// is writing; or, without what the prefix directory has, only the records of datasets whose files lie there. Gives the ids of the
/// datasets that the nodes had. Collective.
///
/// # Errors
/// The run would restart from one that is nowhere else, and the user wants no run without.
pub(crate) fn purge(job: &Job, cache: &Cache, in_prefix: Option<&PrefixState>) -> Result<Vec<u64>, Error> {
    let lies_there = |part: &LocalPart| part.map.record.iter().any(|record| record.protection.bypass);
    let Sorted { ours, damaged, replaced, borrowed, .. } = sort(job, parts::scan(job, cache)?.0)?;
    if let Some(in_prefix) = in_prefix {
        report_only_copies(job, ours.iter().chain(&replaced), in_prefix)?;
    }
    let found = Listed::of(job, &ours)?;
    let all = ours.iter().chain(&damaged).chain(&replaced).chain(&borrowed);
    all.filter(|part| in_prefix.is_some() || lies_there(part)).for_each(|part| part.remove_unless_held(job));
    barrier(&*job.comm)?;
    Ok(found.map(|found| found.ids).unwrap_or_default())
}

/// The setting by which a run that begins deletes what it has in cache, if there is one.
pub fn cache_purge(params: &Params) -> Option<&'static str> {
    let purges = params.get(&param::CACHE_PURGE).then_some("SCR_CACHE_PURGE=1");
    purges.or((!params.get(&param::DISTRIBUTE)).then_some("SCR_DISTRIBUTE=0"))
}

/// Names the newest of the checkpoints of which a setting is about to delete the only copy. Collective.
///
/// # Errors
/// As for [`purge`].
fn report_only_copies<'p>(
    job: &Job,
    parts: impl Iterator<Item = &'p LocalPart>,
    in_prefix: &PrefixState,
) -> Result<(), Error> {
    let is_only_copy = |part: &&LocalPart| {
        let is_complete = matches!(part.map.state, PartState::Prepared | PartState::Complete);
        is_complete && part.map.record.as_ref().is_some_and(|record| in_prefix.lacks(record))
    };
    let only: Vec<_> = parts.filter(is_only_copy).cloned().collect();
    let Some(Listed { newest, record, .. }) = Listed::of(job, &only)? else { return Ok(()) };
    let setting = cache_purge(&job.params).unwrap_or_default();
    let is_first = in_prefix.first.as_ref().is_none_or(|first| first.seq < record.seq());
    report_setting(job, setting, &format!("the only copy of {newest}"), is_first)
}

/// The parts in cache that this run may use or remove.
#[derive(Default)]
struct Sorted {
    /// They belong to this prefix directory.
    ours: Vec<LocalPart>,
    /// Their filemaps say nothing.
    damaged: Vec<LocalPart>,
    /// They belong to a prefix directory that another one has taken the place of.
    replaced: Vec<LocalPart>,
    /// They belong to one at another path, with the id of this one.
    of_twins: Vec<LocalPart>,
    /// They belong to another one.
    of_others: Vec<LocalPart>,
    /// Another release of scr wrote them. Whose they are is not known.
    of_other_release: Vec<LocalPart>,
    /// With these a run has read in the prefix directory what another number of ranks wrote.
    borrowed: Vec<LocalPart>,
}

/// Parts of another prefix directory are neither restarted from nor removed. Neither are parts whose filemaps say nothing in the
/// folder of a node that is not in this run: another job may just be beginning them. Collective.
fn sort(job: &Job, parts: Vec<LocalPart>) -> Result<Sorted, CommError> {
    let mut sorted = Sorted::default();
    for part in parts {
        match part.map.record.as_ref().map(|record| (Owner::in_job(record, job), record.read_by)) {
            Some((Owner::This, Some(_))) => sorted.borrowed.push(part),
            Some((Owner::This, None)) => sorted.ours.push(part),
            Some((Owner::Predecessor, _)) => sorted.replaced.push(part),
            Some((Owner::Twin, _)) => sorted.of_twins.push(part),
            Some((Owner::Other, _)) => sorted.of_others.push(part),
            None if part.map.other_release.is_some() => sorted.of_other_release.push(part),
            None => sorted.damaged.push(part),
        }
    }
    sorted.leave_to_twins(&*job.comm)?;
    sorted.ours.iter_mut().for_each(|part| part.map.belong_to(&job.prefix));
    let suffix = node_dir::suffix_of(job);
    sorted.damaged.retain(|part| {
        let folder = part.part.dataset().parent();
        let node = folder.and_then(|folder| node_dir::node_of(job.files(), folder));
        node.is_none_or(|node| node.strip_suffix(&suffix).is_some_and(|node| job.nodes.has(node)))
    });
    Ok(sorted)
}

impl Sorted {
    /// A path may lead elsewhere on another node. A dataset that one node leaves to the directory at a path is left to it by all
    /// nodes: a dataset is used as a whole or not at all. Collective.
    fn leave_to_twins(&mut self, comm: &dyn Comm) -> Result<(), CommError> {
        let mut left: BTreeSet<Vec<u8>> = BTreeSet::new();
        loop {
            let mut paths = self.of_twins.iter().filter_map(LocalPart::prefix);
            let path = first_value(comm, paths.find(|path| !left.contains(*path)))?;
            let Some(path) = path else { return Ok(()) };
            let is_of_it = |part: &mut LocalPart| part.prefix() == Some(&path);
            self.of_twins.extend(self.ours.extract_if(.., is_of_it));
            left.insert(path);
        }
    }
}

/// Names what another release of scr wrote, and who has it. Gives the numbers of the datasets. Collective.
fn report_other_release(job: &Job, parts: &[LocalPart]) -> Result<Vec<u64>, CommError> {
    let own = |part: &LocalPart| Some((Rank(0), (part.part.id()?, part.map.other_release.clone()?)));
    let all = route_values(&*job.comm, &parts.iter().filter_map(own).collect::<Vec<_>>())?;
    let ids: BTreeSet<u64> = all.iter().map(|(_, (id, _))| *id).collect();
    let ids = broadcast_value(&*job.comm, (job.rank() == Rank(0)).then_some(ids))?;
    if let Some((_, (_, form))) = all.first() {
        let place = |(rank, _): &(Rank, _)| format!("rank {rank} on {}", job.nodes.name(*rank));
        let mut ranks: Vec<_> = all.iter().map(place).collect();
        ranks.dedup();
        let labels: Vec<_> = ids.iter().map(|id| format!("dataset {id}")).collect();
        job.report.error(&format!(
            "{}: {} was written by another release of scr ({form}): what it records stays, and that release's `scr postrun' \
             saves it",
            shortened(&ranks, 3),
            shortened(&labels, 3)
        ));
    }
    Ok(ids.into_iter().collect())
}

/// Warns of datasets whose prefix directory was removed or moved away, and another one made in its place. Collective.
fn report_replaced(job: &Job, replaced: &[LocalPart]) -> Result<bool, CommError> {
    let Some(listed) = Listed::of(job, replaced)? else { return Ok(false) };
    let is_here = |file: &FileRecord| job.files().status(&job.prefix.file(&file.name)).is_ok();
    let fate = match listed.record.protection.bypass {
        true if listed.record.files.iter().any(is_here) => {
            "Its files are not in cache but in place: `scr index --import' makes a dataset of them"
        }
        true => "Its files are not here: to restart from it, put that directory back",
        false => {
            "Its remains leave the cache once a new checkpoint is complete: put the directory back before"
        }
    };
    let (belonging, own) = (listed.belonging, job.prefix.dir().display());
    job.report.warn(&format!(
        "{belonging} to another prefix directory, which was at {own} before this one: the run does not restart from it. {fate}"
    ));
    Ok(true)
}

/// Warns of datasets that belong to another prefix directory, one of which is a copy of the other. Gives their ids. Collective.
fn report_twins(job: &Job, of_twins: &[LocalPart]) -> Result<Vec<u64>, CommError> {
    let Some(listed) = Listed::of(job, of_twins)? else { return Ok(Vec::new()) };
    let (own, other) = (job.prefix.dir().display(), listed.prefix);
    job.report.warn(&format!(
        "{} to the prefix directory {other}, which is still there. {own} has the same id, as a copy of it has: the run does not use \
         what {other} has in cache. To restart from that, start the job there; if {own} is to take its place, move it away first",
        listed.belonging
    ));
    Ok(listed.ids)
}

/// Says where the job may have been meant to start, if nobody has named the prefix directory. Collective.
fn report_others(job: &Job, mut of_others: Vec<LocalPart>) -> Result<(), CommError> {
    let is_default = job.params.origin(&param::PREFIX) == &Origin::Default;
    let has_left = |record: &RankRecord| Owner::has_left(record, job.files());
    // What lay in a directory that is not there any more went with it.
    let is_lost = |record: &RankRecord| record.protection.bypass && has_left(record);
    of_others.retain(|part| is_default && !part.map.record.as_ref().is_some_and(is_lost));
    let Some(Listed { newest, prefix, record, .. }) = Listed::of(job, &of_others)? else { return Ok(()) };
    let place = if has_left(&record) { "where that directory is now" } else { "there, or set SCR_PREFIX" };
    job.report.notice(&format!(
        "{newest} in cache belongs to the prefix directory {prefix}, and this run uses the current one, {}: to restart from it, start the job \
         {place}",
        job.prefix.dir().display()
    ));
    Ok(())
}

/// Parts of other prefix directories, as messages name them.
struct Listed {
    /// The newest dataset.
    newest: String,
    /// The same, and how many more there are.
    belonging: String,
    /// Its record on one rank.
    record: RankRecord,
    /// The path of the prefix directory of the newest one.
    prefix: String,
    /// The ids of all of them.
    ids: Vec<u64>,
}

impl Listed {
    /// `None` if there are none on any rank. Collective.
    fn of(job: &Job, parts: &[LocalPart]) -> Result<Option<Self>, CommError> {
        let mut keys = Vec::new();
        while let Some(key) = next_key(job, parts, keys.last().copied())? {
            keys.push(key);
        }
        let Some(newest) = keys.first() else { return Ok(None) };
        let mut records = parts.iter().filter_map(|part| part.map.record.as_ref());
        let record = records.find(|record| DatasetKey::of(record) == *newest);
        let Some(record) = first_value(&*job.comm, record)? else { return Ok(None) };
        let others = match keys.len() - 1 {
            0 => "belongs".to_owned(),
            more => format!("and {more} more in cache belong"),
        };
        let newest = format!("dataset {} `{}'", newest.id, String::from_utf8_lossy(&record.dataset.name));
        Ok(Some(Self {
            belonging: format!("{newest} {others}"),
            newest,
            prefix: String::from_utf8_lossy(&record.prefix).into_owned(),
            record,
            ids: keys.iter().map(|key| key.dataset).collect(),
        }))
    }
}

/// The newest dataset below `below` of which any rank holds a part; the same on all ranks.
fn next_key(
    job: &Job,
    local: &[LocalPart],
    below: Option<DatasetKey>,
) -> Result<Option<DatasetKey>, CommError> {
    let below = |key: &DatasetKey| below.is_none_or(|below| *key < below);
    let keys = local.iter().filter_map(LocalPart::key).filter(below);
    let mut left: Vec<_> = keys.map(|key| [key.run, key.id, key.begun, key.dataset]).collect();
    let mut highest = [0; 4];
    for (at, number) in highest.iter_mut().enumerate() {
        let own = left.iter().map(|key| key[at].saturating_add(1)).max().unwrap_or(0);
        let [most] = all_reduce(&*job.comm, [own], Op::Max)?;
        let Some(most) = most.checked_sub(1) else { return Ok(None) };
        left.retain(|key| key[at] == most);
        *number = most;
    }
    let [run, id, begun, dataset] = highest;
    Ok(Some(DatasetKey { run, id, begun, dataset }))
}
