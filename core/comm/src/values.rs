//! A value of every rank, stored compactly where neighbouring ranks have the same, as the ranks of a node do.

use super::frame::{Reader, Writer};
use super::Rank;
use std::collections::HashMap;
use std::hash::Hash;

/// A value of every rank, from rank 0 on. It takes room for each value and for each run of neighbours that share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankValues<T> {
    /// Each value once, in the order of the first ranks that have them.
    values: Vec<T>,
    /// The first rank of each run, in order, and the place of its value.
    runs: Vec<(u32, u32)>,
    size: u32,
}

impl<T> RankValues<T> {
    /// The same value for so many ranks.
    pub fn of_all(value: T, size: u32) -> Self {
        Self { values: vec![value], runs: vec![(0, 0)], size }
    }

    /// Each value once, in the order of the first ranks that have them.
    pub fn distinct(&self) -> &[T] {
        &self.values
    }

    /// The place of a rank's value among the distinct ones.
    pub fn place(&self, rank: Rank) -> usize {
        let run = self.runs.partition_point(|(first, _)| *first <= rank.0);
        self.runs[run - 1].1 as usize
    }

    /// A rank's value.
    pub fn get(&self, rank: Rank) -> &T {
        &self.values[self.place(rank)]
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The runs in order: their ranks, and the place of their value.
    pub fn runs(&self) -> impl Iterator<Item = (std::ops::Range<u32>, usize)> + '_ {
        let ends = self.runs.iter().skip(1).map(|(first, _)| *first).chain([self.size]);
        self.runs.iter().zip(ends).map(|(&(first, place), end)| (first..end, place as usize))
    }

    /// Other values, each made of the place of a distinct one.
    pub fn map<U: Eq + Hash + Clone>(&self, value: impl Fn(usize) -> U) -> RankValues<U> {
        let mut builder = Builder::default();
        builder.append(self, value);
        builder.made
    }
}

impl RankValues<Vec<u8>> {
    /// The ranks of all parts, one part after the other.
    pub(super) fn concat(parts: &[Self]) -> Self {
        let mut builder = Builder::default();
        parts.iter().for_each(|part| builder.append(part, |place| part.values[place].clone()));
        builder.made
    }

    pub(super) fn pack(&self) -> Vec<u8> {
        let mut packed = Writer::default();
        packed.number(self.values.len() as u32);
        self.values.iter().for_each(|value| packed.bytes(value));
        for (ranks, place) in self.runs() {
            packed.number(ranks.len() as u32);
            packed.number(place as u32);
        }
        packed.0
    }

    /// The reverse of [`Self::pack`] for `size` ranks; `None` if it did not make this.
    pub(super) fn unpack(packed: &[u8], size: u32) -> Option<Self> {
        let mut reader = Reader(packed);
        let count = reader.number()?;
        let values = (0..count).map(|_| reader.bytes().map(<[u8]>::to_vec)).collect::<Option<Vec<_>>>()?;
        let (mut runs, mut known) = (Vec::new(), 0_u32);
        while !reader.0.is_empty() {
            let (length, place) = (reader.number()?, reader.number()?);
            if length == 0 || place >= count {
                return None;
            }
            runs.push((known, place));
            known = known.checked_add(length)?;
        }
        (known == size).then_some(Self { values, runs, size })
    }
}

/// Values in the making, rank after rank.
struct Builder<T> {
    places: HashMap<T, u32>,
    made: RankValues<T>,
}

impl<T> Default for Builder<T> {
    fn default() -> Self {
        Self { places: HashMap::new(), made: RankValues { values: Vec::new(), runs: Vec::new(), size: 0 } }
    }
}

impl<T: Eq + Hash + Clone> Builder<T> {
    /// The next ranks have the values made of the places of those of `part`.
    fn append<U>(&mut self, part: &RankValues<U>, value: impl Fn(usize) -> T) {
        let places: Vec<u32> = (0..part.values.len()).map(|place| self.place(value(place))).collect();
        part.runs().for_each(|(ranks, place)| self.run(ranks.len() as u32, places[place]));
    }

    /// The place of a value.
    fn place(&mut self, value: T) -> u32 {
        *self.places.entry(value).or_insert_with_key(|value| {
            self.made.values.push(value.clone());
            self.made.values.len() as u32 - 1
        })
    }

    /// The next ranks have the value of this place.
    fn run(&mut self, length: u32, place: u32) {
        if self.made.runs.last().is_none_or(|(_, last)| *last != place) {
            self.made.runs.push((self.made.size, place));
        }
        self.made.size += length;
    }
}

impl<T: Eq + Hash + Clone> FromIterator<T> for RankValues<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut builder = Builder::default();
        for value in all {
            let place = builder.place(value);
            builder.run(1, place);
        }
        builder.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(letters: &str) -> RankValues<Vec<u8>> {
        letters.bytes().map(|letter| vec![letter]).collect()
    }

    #[test]
    fn neighbours_with_one_value_take_the_room_of_one() {
        let values = of("aaaabbbba");
        assert_eq!(values.distinct(), [b"a", b"b"]);
        assert_eq!(values.runs().collect::<Vec<_>>(), [(0..4, 0), (4..8, 1), (8..9, 0)]);
        assert_eq!(values.map(|_| 7), RankValues::of_all(7, 9));
    }

    #[test]
    fn truncated_bytes_and_other_sizes_are_refused() {
        let packed = of("aabbbc").pack();
        assert!(RankValues::unpack(&packed, 7).is_none());
        for length in 0..packed.len() {
            assert!(RankValues::unpack(&packed[..length], 6).is_none(), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn every_rank_has_its_value_however_the_parts_are_cut(
            (letters, cut) in "[a-d]{1,30}".prop_flat_map(|letters| { let most = letters.len(); (Just(letters), 0..=most) }),
        ) {
            let (before, after) = letters.split_at(cut);
            let parts: Vec<_> = [before, after].into_iter().filter(|part| !part.is_empty()).map(of).collect();
            let all = RankValues::concat(&parts);
            prop_assert_eq!(&all, &of(&letters));
            let letter = |rank: usize| all.get(Rank(rank as u32))[0];
            prop_assert!(letters.bytes().enumerate().all(|(rank, own)| letter(rank) == own));
            prop_assert_eq!(RankValues::unpack(&all.pack(), all.size()), Some(all));
        }
    }
}
