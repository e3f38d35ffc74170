//! Operations of all ranks together, over any communicator.
//!
//! All ranks call the same functions in the same order. Each sends a number of messages that grows like the
//! logarithm of the number of ranks. All messages have one tag and are received by sender, so ranks may
//! run ahead of each other as far as they like.

pub use super::agree::{agree, agree_at, first_differing};
use super::frame::{self, Reader, Writer};
pub use super::route::route;
use super::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, RankValues, Result, Tag, Watch};
use scr_base::ensure;
use std::ops::Range;

/// How values of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The sum, or the largest number there is where the sum is larger.
    Sum,
}

/// Returns when all ranks have called it.
///
/// # Errors
/// [`CommError`] of the communicator.
pub fn barrier(comm: &dyn Comm) -> Result<()> {
    for distance in distances(comm) {
        let (to, from) = neighbours(comm, distance);
        let mut nothing = [Incoming { from, bytes: &mut [] }];
        exchange_all(comm, COLLECTIVE, &[Outgoing { to, bytes: &[] }], &mut nothing)?;
    }
    Ok(())
}

/// Gives all ranks the bytes of `root`; those that the others give do not matter.
///
/// # Errors
/// [`CommError`] of the communicator.
pub fn broadcast(comm: &dyn Comm, root: Rank, bytes: Vec<u8>) -> Result<Vec<u8>> {
    pass_down(comm, &Tree::new(comm, root)?, bytes)
}

/// Gives some ranks, the same list of `mates` on each of them, the bytes of the first. A rank that is not listed keeps its own.
///
/// # Errors
/// [`CommError`] of the communicator.
pub fn broadcast_among(comm: &dyn Comm, mates: &[Rank], bytes: Vec<u8>) -> Result<Vec<u8>> {
    let Some(place) = mates.iter().position(|&mate| mate == comm.rank()) else { return Ok(bytes) };
    pass_down(comm, &Tree::of(place, mates.len(), |place| mates[place]), bytes)
}

fn pass_down(comm: &dyn Comm, tree: &Tree, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let bytes = match tree.parent {
        None => bytes,
        Some(parent) => frame::receive(comm, COLLECTIVE, parent)?,
    };
    // The child with the largest subtree first, since it has the most to pass on.
    let sends: Vec<(Rank, &[u8])> =
        tree.children.iter().rev().map(|&child| (child, bytes.as_slice())).collect();
    frame::send(comm, COLLECTIVE, &sends)?;
    Ok(bytes)
}

/// Combines the values of all ranks, place by place. All get the result.
///
/// # Errors
/// [`CommError`] of the communicator; [`CommError::WrongLength`] where ranks give different numbers of values.
pub fn all_reduce<V: AsMut<[u64]>>(comm: &dyn Comm, mut values: V, op: Op) -> Result<V> {
    reduce(comm, values.as_mut(), op)?;
    comm.watch().into_iter().for_each(Watch::all_have_come);
    Ok(values)
}

fn reduce(comm: &dyn Comm, values: &mut [u64], op: Op) -> Result<()> {
    let (me, size) = (comm.rank().0, comm.size());
    // Ranks beyond a power of two give their values to a neighbour, and get the result from it.
    let power = 1 << size.ilog2();
    let extra = size - power;
    if me < 2 * extra && me.is_multiple_of(2) {
        swap_values(comm, Some(Rank(me + 1)), None, values)?;
        values.copy_from_slice(&swap_values(comm, None, Some(Rank(me + 1)), values)?);
        return Ok(());
    }
    if me < 2 * extra {
        op.merge(values, &swap_values(comm, None, Some(Rank(me - 1)), values)?);
    }
    let place = if me < 2 * extra { me / 2 } else { me - extra };
    for bit in (0..power.ilog2()).map(|round| 1 << round) {
        let other = place ^ bit;
        let other = Rank(if other < extra { 2 * other + 1 } else { other + extra });
        let theirs = swap_values(comm, Some(other), Some(other), values)?;
        op.merge(values, &theirs);
    }
    if me < 2 * extra {
        swap_values(comm, Some(Rank(me - 1)), None, values)?;
    }
    Ok(())
}

/// When a rank does what only some may do at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The rank that it waits for.
    pub after: Option<Rank>,
    /// The rank that waits for it.
    pub before: Option<Rank>,
}

/// Does `work` when it is this rank's turn. A slow rank delays only those after it. Unlike lock files, a process of another job
/// cannot hold it up.
///
/// # Errors
/// [`CommError`] of the communicator.
pub fn in_turn<T>(comm: &dyn Comm, turn: Turn, work: impl FnOnce() -> T) -> Result<T> {
    if let Some(from) = turn.after {
        exchange_all(comm, COLLECTIVE, &[], &mut [Incoming { from, bytes: &mut [] }])?;
    }
    let value = work();
    if let Some(to) = turn.before {
        exchange_all(comm, COLLECTIVE, &[Outgoing { to, bytes: &[] }], &mut [])?;
    }
    Ok(value)
}

/// Which of these are so on any rank; the same on all.
///
/// # Errors
/// As for [`all_reduce`].
pub fn any<const N: usize>(comm: &dyn Comm, mine: [bool; N]) -> Result<[bool; N]> {
    Ok(all_reduce(comm, mine.map(u64::from), Op::Max)?.map(|word| word != 0))
}

/// The first rank of which this is so; the same on all.
///
/// # Errors
/// As for [`all_reduce`].
pub fn first_rank(comm: &dyn Comm, mine: bool) -> Result<Option<Rank>> {
    let own = if mine { u64::from(comm.rank().0) } else { u64::MAX };
    let [first] = all_reduce(comm, [own], Op::Min)?;
    Ok(u32::try_from(first).ok().map(Rank))
}

/// Gives `root` the bytes of all ranks, by rank; the others get `None`.
///
/// # Errors
/// [`CommError`] of the communicator.
pub fn gather(comm: &dyn Comm, root: Rank, bytes: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
    gather_over(comm, &Tree::new(comm, root)?, 0..comm.size(), bytes)
}

/// Gives every first of `many` neighbouring ranks the bytes of these, by rank; the others get `None`. `many` is a power of two.
///
/// # Errors
/// [`CommError`] of the communicator.
pub fn gather_to_leaders(comm: &dyn Comm, many: u32, bytes: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
    let leader = leader_of(comm.rank(), many);
    let group = leader.0..leader.0.saturating_add(many).min(comm.size());
    // Below the ranks whose number lacks the lower bits, each part of the tree is such a group.
    let mut tree = Tree::new(comm, Rank(0))?;
    tree.parent = tree.parent.filter(|parent| group.contains(&parent.0));
    tree.children.retain(|child| group.contains(&child.0));
    gather_over(comm, &tree, group, bytes)
}

/// The first of the `many` neighbours that a rank stands among.
pub fn leader_of(rank: Rank, many: u32) -> Rank {
    Rank(rank.0 - rank.0 % many)
}

/// Gives the root of a tree the bytes of the ranks in it.
fn gather_over(
    comm: &dyn Comm,
    tree: &Tree,
    ranks: Range<u32>,
    bytes: Vec<u8>,
) -> Result<Option<Vec<Vec<u8>>>> {
    let mut parts = Writer::default();
    parts.number(comm.rank().0);
    parts.bytes(&bytes);
    drop(bytes);
    let mut parts = parts.0;
    for &child in &tree.children {
        parts.extend(frame::receive(comm, COLLECTIVE, child)?);
    }
    match tree.parent {
        Some(parent) => frame::send(comm, COLLECTIVE, &[(parent, &parts)]).map(|()| None),
        None => sorted_by_rank(ranks, &parts).map(Some),
    }
}

/// Gives all ranks the values of all ranks. Messages have room for each different value and for each run of neighbours that
/// share one, so the cost grows with the number of nodes, not of ranks.
///
/// # Errors
/// [`CommError`] of the communicator.
pub fn all_gather(comm: &dyn Comm, value: &[u8]) -> Result<RankValues<Vec<u8>>> {
    let root = Rank(0);
    let tree = Tree::new(comm, root)?;
    // A child and all below it are neighbours, as many as its lowest bit says, and follow those of the child before.
    let mut parts = vec![RankValues::of_all(value.to_vec(), 1)];
    for &child in &tree.children {
        let ranks = (1 << child.0.trailing_zeros()).min(comm.size() - child.0);
        parts.push(received(child, ranks, &frame::receive(comm, COLLECTIVE, child)?)?);
    }
    let gathered = RankValues::concat(&parts).pack();
    if let Some(parent) = tree.parent {
        frame::send(comm, COLLECTIVE, &[(parent, &gathered)])?;
    }
    received(root, comm.size(), &broadcast(comm, root, gathered)?)
}

fn received(from: Rank, size: u32, packed: &[u8]) -> Result<RankValues<Vec<u8>>> {
    RankValues::unpack(packed, size).ok_or(CommError::Malformed { from, what: "what it gathered" })
}

impl Op {
    fn merge(self, mine: &mut [u64], theirs: &[u64]) {
        for (mine, &theirs) in mine.iter_mut().zip(theirs) {
            *mine = match self {
                Op::Min => (*mine).min(theirs),
                Op::Max => (*mine).max(theirs),
                Op::Sum => mine.saturating_add(theirs),
            };
        }
    }
}

/// 1, 2, 4 and so on: how far apart ranks are that talk in one round.
pub(super) fn distances(comm: &dyn Comm) -> impl Iterator<Item = u32> {
    let size = comm.size();
    (0..u32::BITS).map(|round| 1 << round).take_while(move |&distance| distance < size)
}

/// The ranks that lie `distance` after and before this one, round the ring.
pub(super) fn neighbours(comm: &dyn Comm, distance: u32) -> (Rank, Rank) {
    let (me, size) = (comm.rank().0, comm.size());
    (Rank(back(me, size - distance, size)), Rank(back(me, distance, size)))
}

/// The place that lies `distance` before this one, round a ring of so many.
pub(super) fn back(place: u32, distance: u32, size: u32) -> u32 {
    place.checked_sub(distance).unwrap_or_else(|| place + (size - distance))
}

/// A rank's place in the binomial tree under a root.
pub(super) struct Tree {
    pub(super) parent: Option<Rank>,
    /// Nearest first.
    pub(super) children: Vec<Rank>,
}

impl Tree {
    pub(super) fn new(comm: &dyn Comm, root: Rank) -> Result<Self> {
        let size = comm.size();
        ensure(root.0 < size, || CommError::NoSuchRank { rank: root, size })?;
        // Counted from the root.
        let place = back(comm.rank().0, root.0, size);
        let rank_at = |place: usize| Rank(back(place as u32, size - root.0, size));
        Ok(Self::of(place as usize, size as usize, rank_at))
    }

    /// The parent and the children of a place in the binomial tree over `size` places.
    fn of(place: usize, size: usize, rank_at: impl Fn(usize) -> Rank) -> Self {
        // The parent lacks the lowest bit, and the children have one more below it.
        let bits = (0..usize::BITS).map(|round| 1 << round).take_while(|&bit| bit < size && place & bit == 0);
        let children = bits.map(|bit| place + bit).filter(|&child| child < size).map(&rank_at).collect();
        Self { parent: (place > 0).then(|| rank_at(place & place.wrapping_sub(1))), children }
    }
}

pub(super) fn sorted_by_rank(ranks: Range<u32>, parts: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut all: Vec<Option<Vec<u8>>> = vec![None; ranks.len()];
    let malformed = || CommError::Malformed { from: Rank(ranks.start), what: "what was gathered" };
    let mut reader = Reader(parts);
    while !reader.0.is_empty() {
        let rank = reader.number().ok_or_else(malformed)?;
        let bytes = reader.bytes().ok_or_else(malformed)?;
        let place = rank.checked_sub(ranks.start).map(|place| Rank(place).index());
        *place.and_then(|place| all.get_mut(place)).ok_or_else(malformed)? = Some(bytes.to_vec());
    }
    all.into_iter().collect::<Option<_>>().ok_or_else(malformed)
}

/// Sends values, receives as many, or both.
fn swap_values(comm: &dyn Comm, to: Option<Rank>, from: Option<Rank>, values: &[u64]) -> Result<Vec<u64>> {
    let mine: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut theirs = vec![0; if from.is_some() { mine.len() } else { 0 }];
    let sends: Vec<Outgoing<'_>> = to.iter().map(|&to| Outgoing { to, bytes: &mine }).collect();
    let mut receive = from.map(|from| Incoming { from, bytes: &mut theirs });
    exchange_all(comm, COLLECTIVE, &sends, receive.as_mut_slice())?;
    let (theirs, _) = theirs.as_chunks();
    Ok(theirs.iter().map(|&value| u64::from_le_bytes(value)).collect())
}

/// The tag of everything here.
pub const COLLECTIVE: Tag = Tag(1);
