//! Which rank has which parts of the cached datasets: every rank learns which of its own parts exist, and where.

use crate::cache::filemap::{Filemap, PartState};
use crate::cache::loss::{Loss, Lost};
use crate::cache::part::PartDir;
use crate::cache::place;
use crate::cache::record::{DatasetKey, RankRecord};
use crate::cache::stale::StalePart;
use crate::job::Job;
use crate::typed::route_values;
use scr_base::fs::Files;
use scr_comm::{Comm, CommError, Rank};
use scr_prefix::DatasetDescriptor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
        self.map.record.as_ref().map(RankRecord::dataset_in_prefix)
    }

    /// Whether it only says what a run has read in the prefix directory that another number of ranks wrote.
    pub(super) fn is_borrowed(&self) -> bool {
        self.map.record.as_ref().is_some_and(|record| record.read_by.is_some())
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
        self.loss = self.map.record.as_ref().and_then(|record| match record.protection.bypass {
            true => place::loss_in_place(files, record),
            false => place::visible_loss(files, &self.part, record),
        });
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
