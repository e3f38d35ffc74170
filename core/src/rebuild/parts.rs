//! The parts of datasets that are in cache when a run starts: which there are, which rank has which, and what all ranks together
//! know of a dataset by them. See docs/user/concepts.md.
//!
//! The first rank that reaches a store searches it, with the data of other nodes if several see the same folder. It assigns each
//! part that it finds to its owner, if the owner reaches it, and the other parts in turn. So one rank reports each part, and every
//! rank learns which of its own parts exist, and where.

use crate::cache::filemap::{Filemap, PartState};
use crate::cache::loss::{loss_in_either, Loss, Lost};
use crate::cache::node_dir;
use crate::cache::part::{find_parts, PartDir};
use crate::cache::record::{DatasetKey, RankRecord};
use crate::cache::stale::StalePart;
use crate::cache::{Cache, StoreInUse};
use crate::job::Job;
use crate::typed::{first_value, route_values};
use scr_base::fs::{EntryName, Files};
use scr_comm::collective::{all_reduce, Op};
use scr_comm::{Comm, CommError, Rank};
use scr_prefix::DatasetDescriptor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

/// Looks through all stores. A folder that cannot be read counts as empty, with a message. Gives the parts that this rank reports,
/// and the highest dataset id that it has seen in use. Collective.
pub(crate) fn scan(job: &Job, cache: &Cache) -> Result<(Vec<LocalPart>, u64), CommError> {
    let mut highest = 0;
    let mut dealt = Vec::new();
    for (number, store) in cache.stores().iter().enumerate() {
        if store.placement.leader(job.rank()) == job.rank() {
            deal(job, number, store, &mut dealt, &mut highest);
        }
    }
    let found = route_values(&*job.comm, &dealt)?.into_iter();
    Ok((found.filter_map(|(_, found)| read(job, cache, found)).collect(), highest))
}

/// A part that was found: the place of its store, the name of a folder below that, the number of the dataset, and the rank.
type Dealt = (usize, Option<Vec<u8>>, u64, u32);

fn deal(job: &Job, number: usize, store: &StoreInUse, dealt: &mut Vec<(Rank, Dealt)>, highest: &mut u64) {
    let mates = store.placement.mates(job.rank());
    let mut next = mates.iter().cycle();
    let places = node_dir::places(job.files(), store.root.path()).unwrap_or_else(|error| {
        job.report.error_here(&scr_base::describe(&error));
        vec![store.cache.clone()]
    });
    for place in places {
        // No rank writes into the folder of another node.
        let here: &[Rank] = if place == store.cache { &mates } else { &[] };
        let found = find_parts(job.files(), &place, here);
        found.errors.iter().for_each(|error| job.report.error_here(&scr_base::describe(error)));
        *highest = found.ids.iter().copied().fold(*highest, u64::max);
        for (id, owner) in found.parts {
            let speaker = if mates.binary_search(&owner).is_ok() { Some(&owner) } else { next.next() };
            let speaker = *speaker.expect("the leader is one of the ranks that share the store");
            // Another node may know the same folder by another path.
            let folder = place.file_name().filter(|_| place != store.root.path());
            dealt.push((speaker, (number, folder.map(|name| name.as_bytes().to_vec()), id, owner.0)));
        }
    }
}

fn read(job: &Job, cache: &Cache, (store, folder, id, owner): Dealt) -> Option<LocalPart> {
    let store = cache.stores().get(store)?;
    let folder = match folder {
        Some(name) => EntryName::parse(&name)?.below(store.root.path()),
        None => store.root.path().to_owned(),
    };
    let owner = Rank(owner);
    let part = PartDir::new(&folder, id, owner);
    // It is listed, so an answer that it is not there counts if it is given twice.
    let map = Filemap::read(job.files(), &part).or_else(|_| Filemap::read(job.files(), &part));
    let path = part.filemap();
    let flaw = match &map {
        Err(error) => Some(scr_base::describe(error)),
        Ok(Filemap { other_release: Some(_), .. }) => None,
        Ok(map) => map.damaged.then(|| format!("{} is damaged", path.display())),
    };
    if let Some(flaw) = flaw {
        job.report.error_here(&format!("{flaw}: what it records counts as lost"));
    }
    let map = map.unwrap_or_else(|_| Filemap { damaged: true, ..Filemap::default() });
    Some(LocalPart { owner, part, map, is_inspected: false, loss: None })
}

/// A part in a cache that this rank can reach, and which it reports.
#[derive(Debug, Clone)]
pub(crate) struct LocalPart {
    pub(crate) owner: Rank,
    pub(crate) part: PartDir,
    pub(crate) map: Filemap,
    /// Whether it is known what it lacks. Until then, and if it was never prepared, it counts for nothing.
    pub(crate) is_inspected: bool,
    /// Its loss, as far as the lengths of its files show it.
    pub(crate) loss: Option<Loss>,
}

/// The information that a rank gets on its own part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PartReport {
    /// The rank that reports it.
    pub(crate) holder: Rank,
    /// Whether the holder has all the files, with their right lengths. The redundancy may be lost.
    pub(crate) has_data: bool,
    /// Its loss, if the holder has the part.
    pub(crate) loss: Option<Loss>,
    /// The record.
    pub(crate) record: RankRecord,
}

impl LocalPart {
    /// The dataset, where the filemap says it.
    pub(crate) fn key(&self) -> Option<DatasetKey> {
        self.map.record.as_ref().map(DatasetKey::of)
    }

    /// The path of its prefix directory, where the filemap says it.
    pub(super) fn prefix(&self) -> Option<&Vec<u8>> {
        self.map.record.as_ref().map(|record| &record.prefix)
    }

    /// As a part of a dataset that cannot be rebuilt.
    pub(super) fn stale(&self) -> StalePart {
        StalePart::new(self.part.clone(), self.map.record.as_ref())
    }

    /// The dataset as the prefix directory knows it, where the filemap says it.
    pub(super) fn dataset(&self) -> Option<DatasetDescriptor> {
        self.map.record.as_ref().map(|record| record.dataset.clone())
    }

    /// Removes it, unless another running job has it.
    pub(super) fn remove_unless_held(&self, job: &Job) {
        if !self.part.is_held(job.files()) {
            job.report_failed(self.part.remove(job.files()));
        }
    }

    /// How many ranks have parts of the dataset, where the filemap says it.
    pub(crate) fn ranks(&self) -> Option<u32> {
        self.map.record.as_ref().map(RankRecord::ranks)
    }

    /// Whether its files are all there, with their right lengths. Its redundancy may be lost.
    fn has_data(&self) -> bool {
        let lacks_data = self.loss.as_ref().is_some_and(|loss| loss.lost == Lost::Data);
        self.is_inspected && self.map.record.is_some() && !lacks_data
    }

    /// The better one of two copies of a part has the larger value.
    pub(super) fn quality(&self) -> (bool, bool, bool, PartState) {
        (self.has_data(), self.loss.is_none(), !self.map.damaged, self.map.state)
    }

    /// As it is once it is known what it lacks.
    pub(super) fn inspected(&self, files: &dyn Files) -> Self {
        let mut part = self.clone();
        if part.map.state >= PartState::Prepared {
            part.inspect(files);
        }
        part
    }

    /// Finds out what a part lacks that was prepared.
    fn inspect(&mut self, files: &dyn Files) {
        self.is_inspected = true;
        self.loss = self.map.record.as_ref().and_then(|record| loss_in_either(files, &self.part, record));
    }
}

/// Finds out which parts are whole, and sends every owner the list of its parts and of the records that are kept for it. Parts
/// of ranks that this run does not have are skipped. Collective.
pub(crate) fn exchange(
    comm: &dyn Comm,
    files: &dyn Files,
    local: &mut [LocalPart],
) -> Result<BTreeMap<DatasetKey, Vec<PartReport>>, CommError> {
    let mut messages = Vec::new();
    for part in local.iter_mut().filter(|part| part.map.state >= PartState::Prepared) {
        part.inspect(files);
        let own = part.map.record.iter().map(|record| (record, part.has_data(), part.loss.as_ref()));
        let kept = part.map.neighbours.iter().map(|record| (record, false, None));
        for (record, has_data, loss) in own.chain(kept) {
            if record.rank.0 < comm.size() {
                let (holder, loss, record) = (comm.rank(), loss.cloned(), record.clone());
                messages.push((record.rank, PartReport { holder, has_data, loss, record }));
            }
        }
    }
    let mut reports: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (_, report) in route_values(comm, &messages)? {
        reports.entry(DatasetKey::of(&report.record)).or_default().push(report);
    }
    Ok(reports)
}

/// The copy and the record that a rank uses: a copy with all data, its own before another's, and any record.
pub(crate) fn choose(me: Rank, reports: &[PartReport]) -> (Option<&PartReport>, Option<&RankRecord>) {
    let copy = reports
        .iter()
        .filter(|report| report.has_data)
        .min_by_key(|report| (report.holder != me, report.holder, report.loss.is_some()));
    (copy, copy.or(reports.first()).map(|report| &report.record))
}

/// How far a dataset has come, by all its remaining parts.
pub struct DatasetState {
    pub(super) complete: bool,
    pub refused: bool,
    open: bool,
    prepared: bool,
    /// How many ranks wrote it; `None` where the records disagree.
    pub(super) ranks: Option<u32>,
}

/// The facts from some parts; the facts of all of them are the maximum of each number.
type Facts = [u64; 6];

impl DatasetState {
    /// As all ranks together know it. Collective.
    pub(super) fn take(job: &Job, local: &[&LocalPart]) -> Result<Self, CommError> {
        let parts: Vec<_> = local.iter().map(|part| (counted_state(&part.map), part.ranks())).collect();
        Ok(Self::from_facts(all_reduce(&*job.comm, facts(&parts), Op::Max)?))
    }

    /// The state of these parts: how far each has come, and how many ranks wrote it.
    pub fn of(parts: &[(PartState, Option<u32>)]) -> Self {
        Self::from_facts(facts(parts))
    }

    fn from_facts([complete, refused, open, prepared, most, least]: Facts) -> Self {
        let one = (most == u64::MAX - least).then(|| u32::try_from(most).ok()).flatten();
        Self {
            complete: complete > 0,
            refused: refused > 0,
            open: open > 0,
            prepared: prepared > 0,
            ranks: one,
        }
    }

    /// Whether it was certainly never complete, for a run of this many ranks. A dataset with an open part was not, whoever wrote
    /// it. One without a prepared part may have prepared ones on other nodes if another number of ranks wrote it.
    pub fn is_unfinished(&self, ranks: u32) -> bool {
        !self.complete && (self.open || self.ranks == Some(ranks) && !self.prepared)
    }

    /// The dataset as messages name it, the same on all ranks.
    pub(super) fn label(
        &self,
        job: &Job,
        key: DatasetKey,
        local: &[&LocalPart],
    ) -> Result<String, CommError> {
        let record = local.iter().find_map(|part| part.map.record.as_ref());
        let known = first_value(&*job.comm, record.map(RankRecord::label).as_ref())?;
        Ok(known.unwrap_or_else(|| format!("dataset {}", key.dataset)))
    }
}

/// How far a part has come. A damaged filemap that got no further than open is not unfinished but lost.
pub fn counted_state(map: &Filemap) -> PartState {
    if map.damaged && map.state == PartState::Open {
        PartState::Unknown
    } else {
        map.state
    }
}

fn facts(parts: &[(PartState, Option<u32>)]) -> Facts {
    let any = |states: &[PartState]| u64::from(parts.iter().any(|(state, _)| states.contains(state)));
    let ranks = || parts.iter().filter_map(|(_, ranks)| *ranks).map(u64::from);
    [
        any(&[PartState::Complete, PartState::Refused]),
        any(&[PartState::Refused]),
        any(&[PartState::Open]),
        any(&[PartState::Prepared, PartState::Complete, PartState::Refused]),
        ranks().max().unwrap_or(0),
        ranks().min().map_or(0, |least| u64::MAX - least),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::record::tests::sample;

    /// All that two other ranks and the rank itself can report.
    #[test]
    fn no_copy_counts_that_has_lost_data_where_another_one_has_all() {
        for held in 0..64_u32 {
            let reports: Vec<_> = (0..3_u32).filter(|holder| held >> (2 * holder) & 1 != 0).collect();
            let of = |holder: &u32| PartReport {
                holder: Rank(*holder),
                has_data: held >> (2 * holder + 1) & 1 != 0,
                loss: None,
                record: sample(2),
            };
            let reports: Vec<_> = reports.iter().map(of).collect();
            let (copy, record) = choose(Rank(2), &reports);
            let is_any = reports.iter().any(|report| report.has_data);
            assert!(copy.is_some() == is_any && copy.is_none_or(|copy| copy.has_data), "{held:b}");
            assert_eq!(record.is_some(), !reports.is_empty());
        }
    }

    #[test]
    fn a_rank_uses_its_own_copy_if_that_has_all_data_or_else_that_of_the_first_rank() {
        let report = |holder, has_data| PartReport {
            holder: Rank(holder),
            has_data,
            loss: None,
            record: RankRecord { node: format!("node{holder}"), ..sample(2) },
        };
        let chosen = |reports: &[PartReport]| {
            let (copy, record) = choose(Rank(2), reports);
            (copy.map(|copy| copy.holder.0), record.map(|record| record.node.clone()))
        };
        let node = |holder: u32| Some(format!("node{holder}"));
        assert_eq!(chosen(&[report(0, true), report(2, true), report(3, true)]), (Some(2), node(2)));
        assert_eq!(chosen(&[report(3, true), report(2, false), report(1, true)]), (Some(1), node(1)));
        assert_eq!(chosen(&[report(2, false), report(3, true)]), (Some(3), node(3)));
        assert_eq!(chosen(&[report(1, false), report(2, false)]), (None, node(1)), "a record at least");
        assert_eq!(chosen(&[]), (None, None));
    }
}
