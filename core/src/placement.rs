//! Which ranks share something: a node, a storage device, a power supply.
//!
//! A group is known by its name, such as the node's host name; ranks that give the same name are in it.

use crate::comm::collective::all_gather;
use crate::comm::{Comm, CommError, Rank, RankValues};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The group of every rank. A copy takes no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The name of each rank's group.
    groups: Arc<RankValues<String>>,
    /// The first ranks of the groups.
    leaders: Arc<[Rank]>,
}

impl Placement {
    /// Learns the groups of all ranks from the name that each gives. Collective.
    pub(crate) fn gather(comm: &dyn Comm, name: &str) -> Result<Self, CommError> {
        let all = all_gather(comm, name.as_bytes())?;
        Ok(Self::of(all.map(|place| String::from_utf8_lossy(&all.distinct()[place]).into_owned())))
    }

    /// All ranks are in one group.
    pub(crate) fn of_one(name: String, ranks: u32) -> Self {
        Self::of(RankValues::of_all(name, ranks))
    }

    /// The groups of all ranks from their names.
    pub(crate) fn of(groups: RankValues<String>) -> Self {
        let mut leaders = vec![None; groups.distinct().len()];
        for (ranks, group) in groups.runs() {
            leaders[group].get_or_insert(Rank(ranks.start));
        }
        Self { groups: Arc::new(groups), leaders: leaders.into_iter().flatten().collect() }
    }

    /// Merges groups whose first ranks are given the same name.
    pub(crate) fn join(&self, name: impl Fn(Rank) -> String) -> Self {
        Self::of(self.groups.map(|group| name(self.leaders[group])))
    }

    /// The number of a rank's group; groups are numbered in the order of their first ranks.
    pub(crate) fn number(&self, rank: Rank) -> u32 {
        self.groups.place(rank) as u32
    }

    /// How many groups there are.
    pub(crate) fn count(&self) -> usize {
        self.leaders.len()
    }

    /// Whether there is a group of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.groups.distinct().iter().any(|known| known == name)
    }

    /// The name of a rank's group.
    pub(crate) fn name(&self, rank: Rank) -> &str {
        self.groups.get(rank)
    }

    /// Whether two ranks are in one group.
    pub(crate) fn together(&self, one: Rank, other: Rank) -> bool {
        self.number(one) == self.number(other)
    }

    /// Two ranks that are in one group here and in different ones of `other`.
    pub(crate) fn first_apart_in(&self, other: &Self) -> Option<(Rank, Rank)> {
        // From one of these ranks to the next, both groups stay the same.
        let starts = self.groups.runs().chain(other.groups.runs()).map(|(ranks, _)| ranks.start);
        let mut starts: Vec<u32> = starts.collect();
        starts.sort_unstable();
        let mut leaders = HashMap::new();
        starts.into_iter().map(Rank).find_map(|rank| {
            let leader = *leaders.entry(self.number(rank)).or_insert(rank);
            (!other.together(leader, rank)).then_some((leader, rank))
        })
    }

    /// The ranks of a rank's group, in order; the first of them leads it.
    pub(crate) fn mates(&self, rank: Rank) -> Vec<Rank> {
        let own = self.groups.place(rank);
        self.groups.runs().filter(|(_, group)| *group == own).flat_map(|(ranks, _)| ranks.map(Rank)).collect()
    }

    /// The first rank of a rank's group.
    pub(crate) fn leader(&self, rank: Rank) -> Rank {
        self.leaders[self.groups.place(rank)]
    }

    /// Runs of neighbouring ranks and their group, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Range<u32>, usize)> + '_ {
        self.groups.runs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_give_the_same_name_are_together() {
        let of = |names: [&str; 4]| Placement::of(names.map(str::to_owned).into_iter().collect());
        let nodes = of(["n1", "n0", "n1", "n2"]);
        assert_eq!(nodes.count(), 3);
        assert_eq!([0, 1, 2, 3].map(|rank| nodes.number(Rank(rank))), [0, 1, 0, 2]);
        assert_eq!(nodes.mates(Rank(2)), [Rank(0), Rank(2)]);
        assert_eq!((nodes.leader(Rank(2)), nodes.leader(Rank(1))), (Rank(0), Rank(1)));
        assert_eq!(nodes.name(Rank(3)), "n2");
        let racks = of(["r0", "r1", "r0", "r1"]);
        assert_eq!(nodes.first_apart_in(&racks), None);
        assert_eq!(racks.first_apart_in(&nodes), Some((Rank(1), Rank(3))));
        assert_eq!(nodes.join(|leader| racks.name(leader).to_owned()).mates(Rank(1)), [1, 3].map(Rank));
    }
}
