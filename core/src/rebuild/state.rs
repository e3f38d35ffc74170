//! What all ranks together know of a cached dataset before anything is done to it.

use super::parts::LocalPart;
use crate::cache::filemap::State;
use crate::cache::record::DatasetKey;
use crate::comm::collective::{all_reduce, Op};
use crate::comm::CommError;
use crate::job::Job;
use crate::redundancy::repair::first_known;

/// How far a dataset has come, as all ranks together know it.
pub(super) struct DatasetState {
    pub(super) complete: bool,
    pub(super) refused: bool,
    pub(super) open: bool,
    pub(super) prepared: bool,
    /// How many ranks wrote it; `None` where the records disagree.
    pub(super) ranks: Option<u32>,
}

impl DatasetState {
    pub(super) fn take(job: &Job, local: &[&LocalPart]) -> Result<Self, CommError> {
        // A damaged filemap that got no further than open is not unfinished but lost.
        let counted = |part: &&&LocalPart| !(part.map.damaged && part.map.state == State::Open);
        let any = |states: &[State]| {
            u64::from(local.iter().filter(counted).any(|part| states.contains(&part.map.state)))
        };
        let ranks = || local.iter().filter_map(|part| part.ranks()).map(u64::from);
        let mut facts = [
            any(&[State::Complete, State::Refused]),
            any(&[State::Refused]),
            any(&[State::Open]),
            any(&[State::Prepared, State::Complete, State::Refused]),
            ranks().max().unwrap_or(0),
            ranks().min().map_or(0, |least| u64::MAX - least),
        ];
        all_reduce(&*job.comm, &mut facts, Op::Max)?;
        let [complete, refused, open, prepared, most, least] = facts;
        let one = (most == u64::MAX - least).then(|| u32::try_from(most).ok()).flatten();
        Ok(Self {
            complete: complete > 0,
            refused: refused > 0,
            open: open > 0,
            prepared: prepared > 0,
            ranks: one,
        })
    }

    /// The dataset as messages name it, the same on all ranks.
    pub(super) fn label(
        &self,
        job: &Job,
        key: DatasetKey,
        local: &[&LocalPart],
    ) -> Result<String, CommError> {
        let name =
            local.iter().find_map(|part| part.map.record.as_ref()).map(|record| record.dataset.name.clone());
        let name = first_known(&*job.comm, name)?;
        Ok(format!("dataset {} `{}'", key.id, String::from_utf8_lossy(&name)))
    }
}
