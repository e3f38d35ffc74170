//! Which ranks share something: a node, a storage device, a power supply.
//!
//! A group is known by its name, such as the node's host name; ranks that give the same name are in it.

use crate::collective::{all_gather, Turn};
use crate::{Comm, Rank, RankValues, Result};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// The group of every rank. A copy takes no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The name of each rank's group.
    groups: Arc<RankValues<String>>,
    /// The first ranks of the groups.
    leaders: Arc<[Rank]>,
}

impl Placement {
    /// Learns the groups of all ranks from the name that each gives. Collective.
    pub fn gather(comm: &dyn Comm, name: &str) -> Result<Self> {
        let all = all_gather(comm, name.as_bytes())?;
        Ok(Self::of(all.map(|place| String::from_utf8_lossy(&all.distinct()[place]).into_owned())))
    }

    /// All ranks are in one group.
    pub fn of_one(name: String, ranks: u32) -> Self {
        Self::of(RankValues::of_all(name, ranks))
    }

    /// The groups of all ranks from their names.
    pub fn of(groups: RankValues<String>) -> Self {
        let mut leaders = vec![None; groups.distinct().len()];
        for (ranks, group) in groups.runs() {
            leaders[group].get_or_insert(Rank(ranks.start));
        }
        Self { groups: Arc::new(groups), leaders: leaders.into_iter().flatten().collect() }
    }

    /// Merges groups whose first ranks are given the same name.
    pub fn join(&self, name: impl Fn(Rank) -> String) -> Self {
        Self::of(self.groups.map(|group| name(self.leaders[group])))
    }

    /// The number of a rank's group; groups are numbered in the order of their first ranks.
    pub fn number(&self, rank: Rank) -> u32 {
        self.groups.place(rank) as u32
    }

    /// The first rank of each group.
    pub fn leaders(&self) -> impl Iterator<Item = Rank> + '_ {
        self.leaders.iter().copied()
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.leaders.len()
    }

    /// Whether there is a group of this name.
    pub fn has(&self, name: &str) -> bool {
        self.groups.distinct().iter().any(|known| known == name)
    }

    /// The name of a rank's group.
    pub fn name(&self, rank: Rank) -> &str {
        self.groups.get(rank)
    }

    /// Whether two ranks are in one group.
    pub fn together(&self, one: Rank, other: Rank) -> bool {
        self.number(one) == self.number(other)
    }

    /// Two ranks that are in one group here and in different ones of `other`.
    pub fn first_apart_in(&self, other: &Self) -> Option<(Rank, Rank)> {
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
    pub fn mates(&self, rank: Rank) -> Vec<Rank> {
        let own = self.groups.place(rank);
        self.groups.runs().filter(|(_, group)| *group == own).flat_map(|(ranks, _)| ranks.map(Rank)).collect()
    }

    /// The first rank of a rank's group.
    pub fn leader(&self, rank: Rank) -> Rank {
        self.leaders[self.groups.place(rank)]
    }

    /// How many ranks of each group may work at a time if `width` may in all: at least one.
    pub fn share(&self, width: u32) -> u32 {
        let groups = u32::try_from(self.count()).unwrap_or(u32::MAX);
        (width / groups.max(1)).max(1)
    }

    /// Lets at most `width` ranks work at a time, spread over the groups. Each group has its share. With more groups than the
    /// width, one rank of each works at a time, and a group begins when the one `width` before it has ended.
    pub fn turn(&self, rank: Rank, width: u32) -> Turn {
        let (width, own, mates) = (width.max(1) as usize, self.groups.place(rank), self.mates(rank));
        let (place, share) = (mates.partition_point(|&mate| mate < rank), self.share(width as u32) as usize);
        let takes_turns = self.count() > width;
        let group_before = || own.checked_sub(width).and_then(|group| self.last_of(group));
        let group_after = || self.leaders.get(own + width).copied();
        Turn {
            after: match place.checked_sub(share) {
                Some(before) => mates.get(before).copied(),
                None => takes_turns.then(group_before).flatten(),
            },
            before: match mates.get(place + share) {
                None if place + 1 == mates.len() => takes_turns.then(group_after).flatten(),
                mate => mate.copied(),
            },
        }
    }

    fn last_of(&self, group: usize) -> Option<Rank> {
        let runs = self.groups.runs().filter(|(_, other)| *other == group);
        runs.last().map(|(ranks, _)| Rank(ranks.end - 1))
    }

    /// Runs of neighbouring ranks and their group, in order.
    pub fn runs(&self) -> impl Iterator<Item = (Range<u32>, usize)> + '_ {
        self.groups.runs()
    }
}

/// How many nodes may be lost, whichever they are, before a dataset is lost with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Survives {
    /// This number of nodes.
    Nodes(u32),
    /// All of them.
    All,
}

/// The nodes that hold a member's part: none if it is lost. `None` if it lies where no node takes it along.
pub type Holders = Option<Vec<usize>>;

impl Survives {
    /// How many nodes may be lost with one redundancy set that does without `losses` of its members. A part that several nodes
    /// hold counts as lost as soon as that many nodes are, so the answer may be too low there, and never too high.
    pub fn of_set(members: &[Holders], losses: u32) -> Self {
        let (mut alone, mut shared, mut lost) = (BTreeMap::<usize, u32>::new(), Vec::new(), 0_u32);
        for holders in members.iter().flatten() {
            match holders.as_slice() {
                [] => lost += 1,
                [node] => *alone.entry(*node).or_default() += 1,
                nodes => shared.push(nodes.len()),
            }
        }
        let mut worst: Vec<u32> = alone.into_values().collect();
        worst.sort_unstable_by_key(|&parts| Reverse(parts));
        let most = worst.len().max(shared.iter().copied().max().unwrap_or(0));
        let lost_with = |nodes: usize| {
            let alone: u32 = worst.iter().take(nodes).sum();
            let shared = shared.iter().filter(|&&holders| holders <= nodes).count();
            lost.saturating_add(alone).saturating_add(u32::try_from(shared).unwrap_or(u32::MAX))
        };
        match (1..=most).find(|&nodes| lost_with(nodes) > losses) {
            Some(nodes) => Self::Nodes(u32::try_from(nodes - 1).unwrap_or(u32::MAX)),
            None => Self::All,
        }
    }

    /// As ranks compare it: the smallest counts for all.
    pub fn to_number(self) -> u64 {
        match self {
            Self::Nodes(nodes) => u64::from(nodes),
            Self::All => u64::MAX,
        }
    }

    /// From that number.
    pub fn of_number(number: u64) -> Self {
        u32::try_from(number).map_or(Self::All, Self::Nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a set is lost with these nodes.
    fn is_lost(members: &[Holders], losses: u32, nodes: u32) -> bool {
        let is_gone = |holders: &&Holders| {
            holders.as_ref().is_some_and(|held| held.iter().all(|node| nodes & 1 << node != 0))
        };
        members.iter().filter(is_gone).count() as u32 > losses
    }

    #[test]
    fn a_set_survives_every_loss_of_so_many_nodes_and_one_more_is_too_much() {
        const NODES: usize = 3;
        let kinds: Vec<Holders> = std::iter::once(None)
            .chain(
                (0..1 << NODES).map(|mask| Some((0..NODES).filter(|node| mask & 1 << node != 0).collect())),
            )
            .collect();
        let count = kinds.len();
        for number in 0..count.pow(4) {
            let members: Vec<_> =
                (0..4).map(|place| kinds[number / count.pow(place) % count].clone()).collect();
            let shares = members.iter().flatten().any(|holders| holders.len() > 1);
            for losses in 0..4 {
                let losses_of = |nodes: u32| {
                    let mut all = (0..1_u32 << NODES).filter(move |mask| mask.count_ones() == nodes);
                    all.any(|mask| is_lost(&members, losses, mask))
                };
                if losses_of(0) {
                    continue;
                }
                let most = (1..=NODES as u32).take_while(|&nodes| !losses_of(nodes)).last().unwrap_or(0);
                let most = if most == NODES as u32 { Survives::All } else { Survives::Nodes(most) };
                let found = Survives::of_set(&members, losses);
                assert!(found == most || shares && found < most, "{members:?} {losses}: {found:?} {most:?}");
            }
        }
        let on_every_node = [Some(vec![0, 1, 2]), None];
        assert_eq!(Survives::of_set(&on_every_node, 0), Survives::Nodes(2));
        assert_eq!(Survives::of_number(Survives::All.to_number()), Survives::All);
    }

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

    /// The ranks that work at a time, one step of all of them after the other.
    fn steps(nodes: &[u32], width: u32) -> Vec<Vec<u32>> {
        let placement = Placement::of(nodes.iter().map(|node| format!("n{node}")).collect());
        let ranks = nodes.len() as u32;
        let turns: Vec<Turn> = (0..ranks).map(|rank| placement.turn(Rank(rank), width)).collect();
        for (rank, turn) in (0..).map(Rank).zip(&turns) {
            assert!(
                turn.before.is_none_or(|next| turns[next.index()].after == Some(rank)),
                "{nodes:?} {width}"
            );
            assert!(
                turn.after.is_none_or(|last| turns[last.index()].before == Some(rank)),
                "{nodes:?} {width}"
            );
        }
        let (mut done, mut steps) = (Vec::new(), Vec::new());
        while done.len() < nodes.len() {
            let may = |rank: &u32| {
                !done.contains(rank) && turns[*rank as usize].after.is_none_or(|last| done.contains(&last.0))
            };
            let now: Vec<u32> = (0..ranks).filter(may).collect();
            assert!(!now.is_empty() && now.len() <= width.max(1) as usize, "{nodes:?} {width}: {now:?}");
            done.extend(&now);
            steps.push(now);
        }
        steps
    }

    #[test]
    fn so_many_work_at_a_time_spread_over_the_groups_and_each_gets_its_turn() {
        let blocks = [0, 0, 0, 1, 1, 1, 2, 2, 2];
        assert_eq!(steps(&blocks, 3), [[0, 3, 6], [1, 4, 7], [2, 5, 8]]);
        assert_eq!(steps(&blocks, 7), [vec![0, 1, 3, 4, 6, 7], vec![2, 5, 8]]);
        assert_eq!(steps(&blocks, 2), [vec![0, 3], vec![1, 4], vec![2, 5], vec![6], vec![7], vec![8]]);
        assert_eq!(steps(&[0, 1, 0, 2, 0], 1), [[0], [2], [4], [1], [3]]);
        assert_eq!(steps(&[0; 5], 2), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(steps(&[0, 1, 2], 0), [[0], [1], [2]]);
        for width in 1..12 {
            steps(&[0, 1, 1, 0, 2, 2, 2, 3, 1, 0, 4], width);
        }
    }
}
