//! Which ranks protect each other. See docs/user/configuration.md.
//!
//! A set takes its members from different failure groups. With enough groups, sets have the minimum size or more, as even as
//! possible, and never fewer members than their scheme takes. A rank is alone in its set only if it can join no such set.

use super::error::RedundancyError;
use scr_comm::placement::Placement;
use scr_comm::set::{SetComm, SetError};
use scr_comm::{Comm, Rank};
use std::error::Error;
use std::ops::Range;

/// The set of one rank, as all its members choose it, each by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnSet {
    /// The ranks in it, this one among them, in the same order on all of them.
    pub(crate) members: Vec<Rank>,
    /// How many ranks of the job are in a set of their own, which no scheme can protect.
    pub(crate) unprotected: usize,
}

impl OwnSet {
    /// Chooses the set of the rank `me`, with at least `minimum` members where there are failure groups enough. `least` is the
    /// size of the smallest set that the scheme takes, but for a rank on its own.
    ///
    /// The ranks of a group form a column; row `i` has the `i`-th rank of every group that has one. A
    /// row holds no two ranks of a group, so it is cut into sets. A row that is too short would leave its ranks
    /// alone: each joins a set that has none of its group yet.
    pub(crate) fn choose(groups: &Placement, minimum: u32, least: u32, me: Rank) -> Self {
        let [minimum, least] = [minimum, least].map(|size| size.max(2) as usize);
        let columns = Columns::of(groups);
        let [long, all] = columns.rows(least);
        let alone: Vec<Rank> = (long..all).flat_map(|row| columns.row(row)).collect();
        if alone.is_empty() {
            let sets = cut(&columns.row(columns.row_of(me, groups)), minimum);
            return Self { members: own(sets, me), unprotected: 0 };
        }
        if long == 0 {
            return Self { members: vec![me], unprotected: alone.len() };
        }
        let mut sets: Vec<_> = (0..long).flat_map(|row| cut(&columns.row(row), minimum)).collect();
        for rank in alone {
            seat(rank, least, groups, &mut sets);
        }
        let unprotected = sets.iter().filter(|members| members.len() == 1).count();
        Self { members: own(sets, me), unprotected }
    }
}

fn own(sets: Vec<Vec<Rank>>, me: Rank) -> Vec<Rank> {
    sets.into_iter().find(|members| members.contains(&me)).expect("every rank is in a row")
}

/// The ranks of each group, in order, as runs of neighbours.
struct Columns(Vec<Vec<Range<u32>>>);

impl Columns {
    fn of(groups: &Placement) -> Self {
        let mut columns = vec![Vec::new(); groups.count()];
        groups.runs().for_each(|(ranks, group)| columns[group].push(ranks));
        Self(columns)
    }

    /// The ranks that come at this place in their group.
    fn row(&self, at: usize) -> Vec<Rank> {
        let mut row: Vec<Rank> = self.0.iter().filter_map(|column| nth(column, at)).collect();
        row.sort_unstable();
        row
    }

    /// The place of a rank in its group.
    fn row_of(&self, rank: Rank, groups: &Placement) -> usize {
        let before = |ranks: &Range<u32>| (ranks.start..ranks.end.min(rank.0)).len();
        self.0[groups.number(rank) as usize].iter().map(before).sum()
    }

    /// How many rows have at least `least` ranks, which are the first ones, and how many there are.
    fn rows(&self, least: usize) -> [usize; 2] {
        let sizes = self.0.iter().map(|column| column.iter().map(Range::len).sum());
        let mut sizes: Vec<usize> = sizes.collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let size = |place: usize| sizes.get(place).copied().unwrap_or(0);
        [size(least - 1), size(0)]
    }
}

/// A group's rank at this place.
fn nth(column: &[Range<u32>], mut at: usize) -> Option<Rank> {
    column.iter().find_map(|ranks| {
        let found = ranks.clone().nth(at).map(Rank);
        at = at.saturating_sub(ranks.len());
        found
    })
}

/// Cuts a row into sets of at least `minimum`, as even as can be.
fn cut(row: &[Rank], minimum: usize) -> Vec<Vec<Rank>> {
    let count = (row.len() / minimum).max(1);
    let (each, longer) = (row.len() / count, row.len() % count);
    let (longer, others) = row.split_at(longer * (each + 1));
    longer.chunks(each + 1).chain(others.chunks(each.max(1))).map(<[Rank]>::to_vec).collect()
}

/// Finds a seat for a rank that its row left alone: in the smallest set without a member of its group. If all have one, members
/// of other groups come to sit with it, from sets that have more than the scheme takes.
fn seat(rank: Rank, least: usize, groups: &Placement, sets: &mut Vec<Vec<Rank>>) {
    let foreign = |other: &Rank| !groups.together(rank, *other);
    let may_join = |set: &&mut Vec<Rank>| set.len() >= least && set.iter().all(foreign);
    if let Some(set) = sets.iter_mut().filter(may_join).min_by_key(|set| set.len()) {
        set.push(rank);
        return;
    }
    // Each with the set that it comes from, and its place there.
    let mut guests: Vec<(usize, usize, Rank)> = Vec::new();
    while guests.len() + 1 < least {
        let may_come = |other: &Rank| {
            foreign(other) && guests.iter().all(|(_, _, guest)| !groups.together(*guest, *other))
        };
        let donors = sets.iter().enumerate().filter(|(_, set)| set.len() > least && set.iter().any(may_come));
        let Some((donor, set)) = donors.max_by_key(|(_, set)| set.len()) else { break };
        let at = set.iter().rposition(may_come).expect("the filter has seen one");
        guests.push((donor, at, sets[donor].remove(at)));
    }
    if guests.len() + 1 < least {
        guests.drain(..).rev().for_each(|(donor, at, guest)| sets[donor].insert(at, guest));
    }
    sets.push(guests.into_iter().map(|(_, _, guest)| guest).chain([rank]).collect());
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

    fn choose(groups: &[u32], minimum: u32, least: u32) -> Vec<OwnSet> {
        let placement = Placement::of(groups.iter().map(ToString::to_string).collect());
        let ranks = (0..groups.len() as u32).map(Rank);
        ranks.map(|me| OwnSet::choose(&placement, minimum, least, me)).collect()
    }

    /// The sizes of the sets, in the order of their first ranks.
    fn check(groups: &[u32], minimum: u32) -> Vec<usize> {
        check_with(groups, minimum, 2)
    }

    fn check_with(groups: &[u32], minimum: u32, least: u32) -> Vec<usize> {
        let sets = choose(groups, minimum, least);
        for (set, rank) in sets.iter().zip((0..).map(Rank)) {
            let mut held: Vec<u32> = set.members.iter().map(|rank| groups[rank.index()]).collect();
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len(), set.members.len(), "two members of one group in {set:?}");
            assert!(set.members.contains(&rank));
            assert!(
                set.members.iter().all(|member| sets[member.index()] == *set),
                "members differ in {set:?}"
            );
        }
        let alone = sets.iter().filter(|set| set.members.len() == 1).count();
        assert!(sets.iter().all(|set| set.unprotected == alone));
        let firsts = sets.iter().zip((0..).map(Rank)).filter(|(set, rank)| set.members[0] == *rank);
        firsts.map(|(set, _)| set.members.len()).collect()
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
        assert_eq!(choose(&[0, 0, 0], 8, 2)[0].unprotected, 3);
    }

    #[test]
    fn a_rank_whose_row_is_short_joins_a_set_without_its_group() {
        // Node 0 has three ranks, the others one each: the two that are left over cannot all be joined.
        assert_eq!(check(&[0, 0, 0, 1, 2, 3], 2).iter().filter(|&&size| size == 1).count(), 0);
    }

    /// The ranks of nodes with so many ranks each.
    fn on_nodes(ranks: &[usize]) -> Vec<u32> {
        (0..).zip(ranks).flat_map(|(node, &count)| vec![node; count]).collect()
    }

    #[test]
    fn no_set_is_smaller_than_the_scheme_takes_where_there_are_groups_enough() {
        assert_eq!(check_with(&on_nodes(&[3, 2, 2, 2]), 8, 3), [3, 3, 3]);
        assert_eq!(check_with(&on_nodes(&[3, 1, 1]), 8, 3), [3, 1, 1]);
        assert_eq!(check_with(&on_nodes(&[3, 2, 1]), 8, 3), [3, 1, 1, 1]);
        assert_eq!(check_with(&on_nodes(&[2, 1, 1, 1]), 8, 4), [4, 1]);
        // No more ranks leave their sets than the one that is alone needs.
        let mut sizes = check_with(&on_nodes(&[3, 2, 2, 2, 2, 2]), 8, 3);
        sizes.sort_unstable();
        assert_eq!(sizes, [3, 5, 5]);
        // Here no set is large enough.
        assert_eq!(check_with(&on_nodes(&[2, 2]), 8, 3), [1; 4]);
    }

    proptest! {
        #[test]
        fn in_any_grouping_no_set_holds_two_of_one_group_and_all_ranks_have_one(
            groups in proptest::collection::vec(0_u32..12, 1..80),
            minimum in 1_u32..20,
            least in 2_u32..6,
        ) {
            let sizes = check_with(&groups, minimum.max(least), least);
            let is_taken = |&size: &usize| size == 1 || size >= least as usize;
            prop_assert!(sizes.iter().all(is_taken), "{:?}", sizes);
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
