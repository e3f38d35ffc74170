//! Which rank has which parts of the cached datasets: every rank learns which of its own parts exist, and where.

use crate::cache::filemap::{Filemap, PartState};
use crate::cache::part::PartDir;
use crate::cache::place;
use crate::cache::record::{DatasetKey, RankRecord};
use crate::cache::stale::{StalePart, UnusableDataset};
use crate::comm::collective::route_trees;
use crate::comm::{Comm, CommError, Rank};
use crate::fs::Files;
use crate::planted::{planted, Bug};
use scr_plugin_api::KvTree;
use std::collections::BTreeMap;

/// A part in a cache that this rank can reach, and which it reports.
#[derive(Debug, Clone)]
pub(crate) struct LocalPart {
    pub(crate) owner: Rank,
    pub(crate) part: PartDir,
    pub(crate) map: Filemap,
    /// Whether its files are all there, with their right lengths.
    pub(crate) whole: bool,
}

/// The information that a rank gets on its own part.
#[derive(Debug, Clone)]
pub(crate) struct PartReport {
    /// The rank that reports it.
    pub(crate) holder: Rank,
    /// Whether the holder has all the files, with their right lengths.
    pub(crate) whole: bool,
    /// Faults of its files, if it has any.
    pub(crate) flaw: Option<String>,
    /// The record.
    pub(crate) record: RankRecord,
}

impl LocalPart {
    /// The dataset, where the filemap says it.
    pub(crate) fn key(&self) -> Option<DatasetKey> {
        self.map.record.as_ref().map(DatasetKey::of)
    }

    /// As a part of a dataset that cannot be rebuilt.
    pub(super) fn stale(&self) -> StalePart {
        StalePart::new(self.part.clone(), self.map.record.as_ref())
    }

    /// The dataset, as one that this run cannot use.
    pub(super) fn unusable_dataset(&self) -> Option<UnusableDataset> {
        let record = self.map.record.as_ref()?;
        Some(UnusableDataset { seq: record.seq(), dataset: record.dataset.clone() })
    }

    /// How many ranks wrote the dataset, where the filemap says it.
    pub(crate) fn ranks(&self) -> Option<u32> {
        self.map.record.as_ref().map(|record| record.ranks)
    }

    /// Of two copies of a part the better one has the larger value.
    pub(super) fn quality(&self) -> (bool, bool, PartState) {
        (self.whole, !self.map.damaged, self.map.state)
    }

    /// Faults of its files, if the part was prepared.
    fn flaw(&self, files: &dyn Files) -> Option<String> {
        let record = self.map.record.as_ref()?;
        let expected = if record.protection.bypass {
            place::first_flaw_in_place(files, record)
        } else {
            place::first_flaw(files, &self.part, record)
        };
        expected.err().map(|flaw| crate::describe(&flaw))
    }
}

/// Finds out which parts are whole, and sends every owner the list of its parts and of the records that are kept for it. Parts
/// of ranks that this run does not have are skipped. Collective.
pub(crate) fn exchange(
    comm: &dyn Comm,
    files: &dyn Files,
    local: &mut [LocalPart],
) -> Result<BTreeMap<DatasetKey, Vec<PartReport>>, CommError> {
    let mut messages: Vec<(Rank, KvTree)> = Vec::new();
    for part in local.iter_mut().filter(|part| part.map.state >= PartState::Prepared) {
        let flaw = part.flaw(files);
        part.whole = part.map.record.is_some() && flaw.is_none();
        let own = part.map.record.iter().map(|record| (record, part.whole));
        let kept = part.map.neighbours.iter().map(|record| (record, false));
        for ((record, whole), flaw) in own.zip([flaw]).chain(kept.map(|kept| (kept, None))) {
            if record.rank.0 < comm.size() {
                let mut report = KvTree::new();
                report.set("WHOLE", u8::from(whole));
                if let Some(flaw) = flaw {
                    report.set("FLAW", flaw);
                }
                report.put("RECORD", record.to_tree());
                messages.push((record.rank, report));
            }
        }
    }
    let mut reports: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (holder, tree) in route_trees(comm, messages)? {
        let Some(record) = tree.get("RECORD").and_then(|record| RankRecord::from_tree(record).ok()) else {
            continue;
        };
        let key = DatasetKey::of(&record);
        let (whole, flaw) = (tree.text("WHOLE") == Some("1"), tree.text("FLAW").map(str::to_owned));
        reports.entry(key).or_default().push(PartReport { holder, whole, flaw, record });
    }
    Ok(reports)
}

/// The copy and the record that a rank uses: a whole copy, its own before another's, and any record.
pub(crate) fn choose(me: Rank, reports: &[PartReport]) -> (Option<&PartReport>, Option<&RankRecord>) {
    let whole = reports
        .iter()
        .filter(|report| report.whole || planted(Bug::WorseCopyCounts))
        .min_by_key(|report| (report.holder != me, report.holder));
    (whole, whole.or(reports.first()).map(|report| &report.record))
}
