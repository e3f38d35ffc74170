//! The losses of the ranks of a dataset, and the action of each set.

use crate::cache::loss::Lost;
use crate::typed::{pack, unpack};
use scr_comm::collective::all_gather;
use scr_comm::{Comm, CommError, Rank};
use scr_plugin_api::Scheme;
use std::collections::BTreeMap;

/// The ranks that lack something of a dataset, each with what it lacks.
#[derive(Debug, Default)]
pub struct Losses(BTreeMap<Rank, Lost>);

/// The action of a set on the parts of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It has lost nothing.
    Read,
    /// No member lacks data: the redundancy is computed from it once more.
    ProtectAnew,
    /// No member lacks data, and some have never been protected.
    Protect,
    /// The parts of the members that lack anything are rebuilt from the others.
    Rebuild,
}

impl Losses {
    /// The losses of all ranks, from the loss of each. Collective.
    pub(super) fn gather(comm: &dyn Comm, own: Option<Lost>) -> Result<Self, CommError> {
        // Neighbours that have lost the same, such as nothing, take no more room than one rank.
        let all = all_gather(comm, &pack(&own)?)?;
        let lost = all.distinct().iter().map(|lost| unpack(Rank(0), lost));
        let lost = lost.collect::<Result<Vec<Option<Lost>>, _>>()?;
        let runs = all.runs().filter_map(|(ranks, place)| Some((ranks, lost[place]?)));
        Ok(runs
            .flat_map(|(ranks, lost)| ranks.map(move |rank| (comm.stands_for(Rank(rank)), lost)))
            .collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// How many ranks lack data.
    pub(super) fn without_data(&self) -> usize {
        self.0.values().filter(|lost| **lost == Lost::Data).count()
    }

    /// Whether any rank lacks data.
    pub(super) fn is_data_lost(&self) -> bool {
        self.without_data() > 0
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.0.contains_key(&rank)
    }

    /// The action of the set of these ranks.
    pub(super) fn remedy(&self, members: &[Rank]) -> Remedy {
        match members.iter().filter_map(|member| self.0.get(member)).max() {
            None => Remedy::Read,
            Some(Lost::Redundancy) => Remedy::ProtectAnew,
            Some(Lost::Protection) => Remedy::Protect,
            Some(Lost::Data) => Remedy::Rebuild,
        }
    }

    /// For each of these ranks whether it takes part without its bytes.
    pub(super) fn pattern(&self, members: &[Rank]) -> Vec<bool> {
        members.iter().map(|member| self.has(*member)).collect()
    }

    /// Whether a rank lacks data.
    pub(super) fn lacks_data(&self, rank: Rank) -> bool {
        self.0.get(&rank) == Some(&Lost::Data)
    }

    /// Whether any part is local.
    pub(super) fn is_any_local(&self) -> bool {
        self.0.values().any(|lost| *lost == Lost::Protection)
    }

    /// Whether a part of these ranks is local.
    pub fn has_local(&self, members: &[Rank]) -> bool {
        members.iter().any(|member| self.0.get(member) == Some(&Lost::Protection))
    }

    /// Whether the set of these ranks can do without what it has lost. Nothing can be rebuilt from a local part.
    pub fn leave_enough(&self, members: &[Rank], scheme: &dyn Scheme) -> bool {
        self.remedy(members) != Remedy::Rebuild
            || !self.has_local(members) && scheme.recoverable(&self.pattern(members))
    }
}

impl FromIterator<(Rank, Lost)> for Losses {
    fn from_iter<I: IntoIterator<Item = (Rank, Lost)>>(losses: I) -> Self {
        Self(losses.into_iter().collect())
    }
}
