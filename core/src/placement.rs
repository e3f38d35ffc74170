//! Which ranks share something: a node, a storage device, a power supply.
//!
//! A group is known by its name, such as the node's host name; ranks that give the same name are in it.

use crate::comm::collective::all_gather;
use crate::comm::{Comm, CommError, Rank};
use std::collections::HashMap;

/// The group of every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Names of the groups, in the order of their first ranks.
    names: Vec<String>,
    /// Their first ranks.
    leaders: Vec<Rank>,
    /// For each rank the number of its group.
    of: Vec<u32>,
}

impl Placement {
    /// Learns the groups of all ranks from the name that each gives. Collective.
    pub(crate) fn gather(comm: &dyn Comm, name: &str) -> Result<Self, CommError> {
        let all = all_gather(comm, name.as_bytes().to_vec())?;
        Ok(Self::of_names(all.iter().map(|name| String::from_utf8_lossy(name).into_owned())))
    }

    /// The groups of all ranks from the names that they give, in the order of ranks.
    pub(crate) fn of_names(all: impl Iterator<Item = String>) -> Self {
        let (mut names, mut leaders) = (Vec::new(), Vec::new());
        let mut numbers = HashMap::new();
        let of = all
            .zip(0..)
            .map(|(name, rank)| {
                *numbers.entry(name).or_insert_with_key(|name| {
                    names.push(name.clone());
                    leaders.push(Rank(rank));
                    names.len() as u32 - 1
                })
            })
            .collect();
        Self { names, leaders, of }
    }

    /// The number of each rank's group.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.of
    }

    /// How many groups there are.
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// Whether there is a group of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The name of a rank's group.
    pub(crate) fn name(&self, rank: Rank) -> &str {
        &self.names[self.of[rank.index()] as usize]
    }

    /// Whether two ranks are in one group.
    pub(crate) fn together(&self, one: Rank, other: Rank) -> bool {
        self.of[one.index()] == self.of[other.index()]
    }

    /// Two ranks that are in one group here and in different ones of `other`.
    pub(crate) fn first_apart_in(&self, other: &Self) -> Option<(Rank, Rank)> {
        let mut leaders = HashMap::new();
        (0..self.of.len() as u32).map(Rank).find_map(|rank| {
            let leader = *leaders.entry(self.of[rank.index()]).or_insert(rank);
            (!other.together(leader, rank)).then_some((leader, rank))
        })
    }

    /// The ranks of a rank's group, in order; the first of them leads it.
    pub(crate) fn mates(&self, rank: Rank) -> Vec<Rank> {
        (0..self.of.len() as u32).map(Rank).filter(|&other| self.together(rank, other)).collect()
    }

    /// The first rank of a rank's group.
    pub(crate) fn leader(&self, rank: Rank) -> Rank {
        self.leaders[self.of[rank.index()] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_give_the_same_name_are_together() {
        let names = ["n1", "n0", "n1", "n2"].map(str::to_owned);
        let nodes = Placement::of_names(names.into_iter());
        assert_eq!(nodes.count(), 3);
        assert_eq!(nodes.numbers(), [0, 1, 0, 2]);
        assert_eq!(nodes.mates(Rank(2)), [Rank(0), Rank(2)]);
        assert_eq!((nodes.leader(Rank(2)), nodes.leader(Rank(1))), (Rank(0), Rank(1)));
        assert_eq!(nodes.name(Rank(3)), "n2");
        let racks = Placement::of_names(["r0", "r1", "r0", "r1"].map(str::to_owned).into_iter());
        assert_eq!(nodes.first_apart_in(&racks), None);
        assert_eq!(racks.first_apart_in(&nodes), Some((Rank(1), Rank(3))));
    }
}
