//! Which ranks protect each other. See the user guide's `SCR_SET_SIZE` and `GROUP`.
//!
//! A set takes its members from different failure groups. Sets are of the minimum size or larger, and as
//! even as can be, where there are groups enough; a rank is left alone only where nobody else can join it.

use super::error::RedundancyError;
use crate::comm::set::{SetComm, SetError};
use crate::comm::{Comm, Rank};
use std::error::Error;

/// The sets of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sets {
    sets: Vec<Vec<Rank>>,
    /// For each rank its set and its place in it.
    place: Vec<(usize, u32)>,
}

/// One rank's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the set.
    pub(crate) set: usize,
    /// Members of the set, in order.
    pub(crate) members: Vec<Rank>,
}

impl Sets {
    /// Chooses sets for ranks of which `groups` names the failure group, with at least `minimum` members
    /// each where there are groups enough.
    ///
    /// The ranks of a group stand in a column; row `i` has the `i`-th rank of every group that has one. A
    /// row holds no two ranks of a group, so it is cut into sets. A row with a single rank would leave it
    /// alone: it joins a set that has none of its group yet.
    pub(crate) fn choose(groups: &[u32], minimum: u32) -> Self {
        let mut sets = Vec::new();
        let mut alone = Vec::new();
        for row in rows(groups) {
            if row.len() == 1 {
                alone.extend(row);
            } else {
                cut(&row, minimum.max(2) as usize, &mut sets);
            }
        }
        for rank in alone {
            seat(rank, groups, &mut sets);
        }
        let mut place = vec![(0, 0); groups.len()];
        for (set, members) in sets.iter().enumerate() {
            for (at, rank) in members.iter().enumerate() {
                place[rank.index()] = (set, at as u32);
            }
        }
        Self { sets, place }
    }

    /// The set of a rank.
    pub(crate) fn of(&self, rank: Rank) -> Place {
        let (set, _) = self.place[rank.index()];
        Place { set, members: self.sets[set].clone() }
    }

    /// Ranks that are in a set of their own, which no scheme can protect.
    pub(crate) fn unprotected(&self) -> usize {
        self.sets.iter().filter(|members| members.len() == 1).count()
    }
}

/// The ranks by their order within their group: first all the first ones, then the second ones.
fn rows(groups: &[u32]) -> Vec<Vec<Rank>> {
    let mut seen = std::collections::HashMap::new();
    let mut rows: Vec<Vec<Rank>> = Vec::new();
    for (rank, group) in groups.iter().enumerate() {
        let row = seen.entry(*group).or_insert(0_usize);
        if *row == rows.len() {
            rows.push(Vec::new());
        }
        rows[*row].push(Rank(rank as u32));
        *row += 1;
    }
    rows
}

/// Cuts a row into sets of at least `minimum`, as even as can be.
fn cut(row: &[Rank], minimum: usize, sets: &mut Vec<Vec<Rank>>) {
    let count = (row.len() / minimum).max(1);
    let (each, longer) = (row.len() / count, row.len() % count);
    let mut at = 0;
    for set in 0..count {
        let size = each + usize::from(set < longer);
        sets.push(row[at..at + size].to_vec());
        at += size;
    }
}

/// Finds a seat for a rank that its row left alone: the smallest set without a member of its group. A set that has
/// one may still help: a member of another group, from a set of three or more, comes to sit with it.
fn seat(rank: Rank, groups: &[u32], sets: &mut Vec<Vec<Rank>>) {
    let group = groups[rank.index()];
    let foreign = |other: &Rank| groups[other.index()] != group;
    if let Some(set) = sets.iter_mut().filter(|set| set.iter().all(foreign)).min_by_key(|set| set.len()) {
        set.push(rank);
        return;
    }
    let donor =
        sets.iter_mut().filter(|set| set.len() > 2 && set.iter().any(foreign)).max_by_key(|set| set.len());
    if let Some(set) = donor {
        let at = set.iter().rposition(foreign).expect("the filter has seen one");
        let partner = set.remove(at);
        sets.push(vec![partner, rank]);
        return;
    }
    sets.push(vec![rank]);
}

/// Does `work` in the set of these members, of which this rank is one, and ends the set: the error of one is the error of all.
/// Every member calls it.
pub(crate) fn in_set<T>(
    comm: &dyn Comm,
    members: &[Rank],
    work: impl FnOnce(&SetComm<'_>) -> Result<T, RedundancyError>,
) -> Result<T, RedundancyError> {
    let set = SetComm::new(comm, members.to_vec(), CHANNEL)?;
    let outcome = work(&set);
    let ended = set.finish(outcome.as_ref().map(drop).map_err(|error| error as &dyn Error));
    match (outcome, ended) {
        // The end of the set has only the text of this error.
        (Err(own), Err(SetError::Failed { .. })) => Err(own),
        (_, Err(error)) => Err(error.into()),
        (outcome, Ok(())) => outcome,
    }
}

/// Keeps the sets' messages apart from other messages.
const CHANNEL: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(groups: &[u32], minimum: u32) -> Vec<usize> {
        let sets = Sets::choose(groups, minimum);
        let mut seen = vec![false; groups.len()];
        for members in &sets.sets {
            let mut held: Vec<u32> = members.iter().map(|rank| groups[rank.index()]).collect();
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len(), members.len(), "two members of one group in {members:?}");
            for rank in members {
                assert!(!std::mem::replace(&mut seen[rank.index()], true), "{rank} is in two sets");
            }
        }
        assert!(seen.iter().all(|&is_seen| is_seen), "a rank is in no set");
        for rank in 0..groups.len() as u32 {
            assert!(sets.of(Rank(rank)).members.contains(&Rank(rank)));
        }
        sets.sets.iter().map(Vec::len).collect()
    }

    #[test]
    fn two_ranks_on_each_of_four_nodes_make_two_sets_of_four() {
        assert_eq!(check(&[0, 0, 1, 1, 2, 2, 3, 3], 8), [4, 4]);
    }

    #[test]
    fn the_set_size_is_a_minimum_and_sets_are_even() {
        let groups: Vec<u32> = (0..17).collect();
        assert_eq!(check(&groups, 8), [9, 8]);
        assert_eq!(check(&groups, 4), [5, 4, 4, 4]);
        assert_eq!(check(&groups, 20), [17]);
    }

    #[test]
    fn on_one_node_everyone_is_alone() {
        assert_eq!(check(&[0, 0, 0], 8), [1, 1, 1]);
        assert_eq!(Sets::choose(&[0, 0, 0], 8).unprotected(), 3);
    }

    #[test]
    fn a_rank_whose_row_is_short_joins_a_set_without_its_group() {
        // Node 0 has three ranks, the others one each: the two that are left over cannot all be joined.
        assert_eq!(check(&[0, 0, 0, 1, 2, 3], 2).iter().filter(|&&size| size == 1).count(), 0);
    }

    proptest! {
        #[test]
        fn in_any_grouping_no_set_holds_two_of_one_group_and_all_ranks_have_one(
            groups in proptest::collection::vec(0_u32..12, 1..80),
            minimum in 1_u32..20,
        ) {
            check(&groups, minimum);
        }
    }

    #[test]
    fn every_uneven_placement_is_covered_once_and_keeps_groups_apart() {
        for nodes in 1..6_u32 {
            for extra in 0..4_u32 {
                let mut groups = Vec::new();
                for node in 0..nodes {
                    for _ in 0..=((node * 7 + extra) % 3) {
                        groups.push(node);
                    }
                }
                for minimum in 1..6 {
                    check(&groups, minimum);
                }
            }
        }
    }
}
