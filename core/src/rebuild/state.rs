//! The knowledge of all ranks together on a cached dataset, before anything is done to it.

use super::parts::LocalPart;
use crate::cache::filemap::{Filemap, PartState};
use crate::cache::record::{DatasetKey, RankRecord};
use crate::job::Job;
use crate::typed::first_value;
use scr_comm::collective::{all_reduce, Op};
use scr_comm::CommError;

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
        let mut facts = facts(&parts);
        all_reduce(&*job.comm, &mut facts, Op::Max)?;
        Ok(Self::from_facts(facts))
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
        Ok(known.unwrap_or_else(|| format!("dataset {}", key.id)))
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
