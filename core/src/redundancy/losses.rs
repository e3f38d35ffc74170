//! What the ranks of a dataset have lost, and what each set does about it.

use crate::cache::verify::Lost;
use crate::comm::collective::{all_reduce, Op};
use crate::comm::{Comm, CommError, Rank};
use scr_plugin_api::Scheme;
use std::collections::BTreeMap;

/// The ranks that lack something of a dataset, each with what it lacks.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<Rank, Lost>);

/// What a set does with the parts of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It has lost nothing.
    Read,
    /// No member lacks data: the redundancy is computed from it once more.
    ProtectAnew,
    /// The parts of the members that lack anything are rebuilt from the others.
    Rebuild,
}

impl Losses {
    /// What all ranks have lost, from what each has lost itself. Collective.
    pub(super) fn gather(comm: &dyn Comm, own: Option<Lost>) -> Result<Self, CommError> {
        let size = comm.size();
        let half = size.div_ceil(64) as usize;
        // One bit of each rank whose redundancy is lost, and then one of each whose data is.
        let mut words = vec![0_u64; 2 * half];
        let (word, bit) = (comm.rank().index() / 64, 1 << (comm.rank().0 % 64));
        match own {
            None => (),
            Some(Lost::Redundancy) => words[word] |= bit,
            Some(Lost::Data) => words[half + word] |= bit,
        }
        all_reduce(comm, &mut words, Op::Or)?;
        let (redundancy, data) = words.split_at(half);
        let has = |words: &[u64], rank: u32| words[(rank / 64) as usize] >> (rank % 64) & 1 == 1;
        let lost = |rank: u32| match (has(data, rank), has(redundancy, rank)) {
            (true, _) => Some(Lost::Data),
            (false, true) => Some(Lost::Redundancy),
            (false, false) => None,
        };
        Ok((0..size).filter_map(|rank| Some((comm.stands_for(Rank(rank)), lost(rank)?))).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether any rank lacks data.
    pub(super) fn is_data_lost(&self) -> bool {
        self.0.values().any(|lost| *lost == Lost::Data)
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.0.contains_key(&rank)
    }

    /// What the set of these ranks does.
    pub(super) fn remedy(&self, members: &[Rank]) -> Remedy {
        match members.iter().filter_map(|member| self.0.get(member)).max() {
            None => Remedy::Read,
            Some(Lost::Redundancy) => Remedy::ProtectAnew,
            Some(Lost::Data) => Remedy::Rebuild,
        }
    }

    /// For each of these ranks whether it takes part without its bytes.
    pub(super) fn pattern(&self, members: &[Rank]) -> Vec<bool> {
        members.iter().map(|member| self.has(*member)).collect()
    }

    /// Whether the set of these ranks can do without what it has lost.
    pub(crate) fn leave_enough(&self, members: &[Rank], scheme: &dyn Scheme) -> bool {
        self.remedy(members) != Remedy::Rebuild || scheme.recoverable(&self.pattern(members))
    }
}

impl FromIterator<(Rank, Lost)> for Losses {
    fn from_iter<I: IntoIterator<Item = (Rank, Lost)>>(losses: I) -> Self {
        Self(losses.into_iter().collect())
    }
}
