//! Which rank reads, and compares, which files of a dataset: each its own, or a block of them where another number of ranks wrote
//! it.

use scr_comm::Rank;
use std::ops::Range;

/// The number of ranks that wrote a dataset, and the number that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Readers {
    pub(super) writers: u32,
    pub(super) readers: u32,
}

impl Readers {
    /// The rank that reads the files of one of those that wrote the dataset.
    pub(super) fn of(self, writer: Rank) -> Rank {
        let place = u64::from(writer.0) * u64::from(self.readers) / u64::from(self.writers.max(1));
        Rank(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// The ranks whose files a rank reads.
    pub(super) fn writers_of(self, reader: Rank) -> Range<u32> {
        let first = |reader: u64| {
            let place = (reader * u64::from(self.writers)).div_ceil(u64::from(self.readers.max(1)));
            u32::try_from(place).unwrap_or(u32::MAX)
        };
        let reader = u64::from(reader.0);
        first(reader)..first(reader + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_each_rank_have_one_reader_and_the_readers_share_them_evenly() {
        for (writers, readers) in (1..=9).flat_map(|writers| (1..=9).map(move |readers| (writers, readers))) {
            let all = Readers { writers, readers };
            let lists: Vec<_> = (0..readers).map(|reader| all.writers_of(Rank(reader))).collect();
            let expected: Vec<u32> = (0..writers).collect();
            assert_eq!(lists.iter().cloned().flatten().collect::<Vec<_>>(), expected, "{all:?}");
            for (reader, list) in (0..).zip(&lists) {
                assert!(list.clone().all(|writer| all.of(Rank(writer)) == Rank(reader)), "{all:?}");
                assert!(list.len() <= (writers.div_ceil(readers)) as usize, "{all:?}");
            }
        }
    }
}
