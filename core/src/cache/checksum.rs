//! The CRC32 of a file whose pieces are read or written in any order.
//!
//! It joins the checksums of pieces that are read or written anyway. Only pieces that never were, and those that were written
//! over, are left to be read at the end.

use crc32fast::Hasher;
use std::collections::BTreeMap;
use std::ops::Range;

/// Joins the checksums of pieces into that of the whole.
#[derive(Debug, Default)]
pub(crate) struct Checksum {
    /// Disjoint pieces by their start; neighbours of one kind are joined as soon as they touch.
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Debug)]
struct Piece {
    end: u64,
    /// `None` where something else was there when it passed by.
    hasher: Option<Hasher>,
}

impl Checksum {
    /// Takes in the bytes at `offset`. Bytes that passed by before are not counted again.
    pub(crate) fn take_in(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for gap in self.gaps(offset..end) {
            let piece = &bytes[(gap.start - offset) as usize..(gap.end - offset) as usize];
            // The common case, one piece after the other, continues with the same hasher.
            if let Some((_, Piece { end, hasher: Some(hasher) })) =
                self.pieces.range_mut(..gap.start).next_back()
            {
                if *end == gap.start {
                    hasher.update(piece);
                    *end = gap.end;
                    self.join_at(gap.end);
                    continue;
                }
            }
            let mut hasher = Hasher::new();
            hasher.update(piece);
            self.pieces.insert(gap.start, Piece { end: gap.end, hasher: Some(hasher) });
            self.join_at(gap.end);
        }
    }

    /// The same for bytes that were written there. If some of them have passed by before, all of them are read at the end: who
    /// wrote last is known to the file alone.
    pub(crate) fn take_in_written(&mut self, offset: u64, bytes: &[u8]) {
        let range = offset..offset + bytes.len() as u64;
        if self.is_new(&range) {
            self.take_in(offset, bytes);
        } else {
            self.doubt(range);
        }
    }

    /// Nobody knows what is there now. What was summed together with any of it is read at the end too.
    pub(crate) fn doubt(&mut self, range: Range<u64>) {
        let overlap =
            self.pieces.range_mut(..range.end).rev().take_while(|(_, piece)| piece.end > range.start);
        overlap.for_each(|(_, piece)| piece.hasher = None);
        for gap in self.gaps(range) {
            self.pieces.insert(gap.start, Piece { end: gap.end, hasher: None });
        }
    }

    /// Whether no byte of the range has passed by.
    pub(crate) fn is_new(&self, range: &Range<u64>) -> bool {
        self.gaps(range.clone()).first() == Some(range)
    }

    /// Takes what is in doubt for bytes that have never passed by, once nobody writes any more.
    pub(crate) fn forget_doubtful(&mut self) {
        self.pieces.retain(|_, piece| piece.hasher.is_some());
    }

    /// Puts in a piece that did not pass by, with what its bytes hash to.
    pub(crate) fn put(&mut self, piece: Range<u64>, hasher: Hasher) {
        let Range { start, end } = piece;
        let follows = self.pieces.range(..start).next_back().is_some_and(|(_, last)| last.end == start);
        self.pieces.insert(start, Piece { end, hasher: Some(hasher) });
        if follows {
            self.join_at(start);
        }
        self.join_at(end);
    }

    /// Whether no byte has passed by.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The parts of `range` that have not passed by yet, in order.
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.pieces.range(..=range.start).next_back();
        for (&start, piece) in before.into_iter().chain(self.pieces.range(range.start + 1..)) {
            if at >= range.end || start >= range.end {
                break;
            }
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(piece.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// The checksum of the `len` bytes from 0, once there is no gap left.
    pub(crate) fn whole(&self, len: u64) -> Option<u32> {
        if len == 0 {
            return Some(0);
        }
        let first = self.pieces.get(&0)?;
        first.hasher.clone().filter(|_| first.end == len).map(Hasher::finalize)
    }

    /// Joins the piece that ends at `place` with the one that starts there.
    fn join_at(&mut self, place: u64) {
        let Some(next) = self.pieces.remove(&place) else { return };
        let (_, last) = self
            .pieces
            .range_mut(..place)
            .next_back()
            .expect("the caller has just put a piece that ends here");
        match (&mut last.hasher, &next.hasher) {
            (Some(before), Some(after)) => before.combine(after),
            (None, None) => (),
            _ => {
                self.pieces.insert(place, next);
                return;
            }
        }
        last.end = next.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn pieces_in_any_order_give_the_checksum_of_the_whole() {
        let all = bytes(1000);
        let mut sum = Checksum::default();
        for start in [600, 0, 300, 900, 100] {
            let end = (start + 300).min(1000);
            sum.take_in(start as u64, &all[start..end]);
        }
        assert_eq!(sum.whole(1000), Some(crc32fast::hash(&all)));
    }

    #[test]
    fn unread_ranges_are_gaps() {
        let all = bytes(100);
        let mut sum = Checksum::default();
        sum.take_in(10, &all[10..20]);
        sum.take_in(50, &all[50..60]);
        assert_eq!(sum.gaps(0..100), vec![0..10, 20..50, 60..100]);
        assert_eq!(sum.gaps(12..18), vec![]);
        assert_eq!(sum.gaps(15..55), vec![20..50]);
        assert_eq!(sum.whole(100), None);
        for gap in sum.gaps(0..100) {
            sum.take_in(gap.start, &all[gap.start as usize..gap.end as usize]);
        }
        assert_eq!(sum.whole(100), Some(crc32fast::hash(&all)));
    }

    #[test]
    fn pieces_that_were_hashed_elsewhere_fill_the_gaps_in_any_order() {
        let all = bytes(1000);
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let mut sum = Checksum::default();
            sum.take_in(200, &all[200..300]);
            sum.take_in(600, &all[600..700]);
            let gaps = sum.gaps(0..1000);
            assert_eq!(gaps, vec![0..200, 300..600, 700..1000]);
            for gap in order.map(|at: usize| gaps[at].clone()) {
                // In two halves, as two threads would.
                let middle = (gap.start + gap.end) / 2;
                for half in [middle..gap.end, gap.start..middle] {
                    let mut hasher = Hasher::new();
                    hasher.update(&all[half.start as usize..half.end as usize]);
                    sum.put(half, hasher);
                }
            }
            assert_eq!(sum.whole(1000), Some(crc32fast::hash(&all)));
        }
    }

    /// It kept the checksum of what was there first.
    #[test]
    fn what_was_written_over_is_read_again() {
        let all = bytes(1000);
        for (first, second) in
            [(0..1000, 0..1000), (0..500, 100..200), (400..600, 300..500), (200..300, 100..900)]
        {
            let mut sum = Checksum::default();
            sum.take_in_written(first.start, &vec![0; (first.end - first.start) as usize]);
            sum.take_in_written(second.start, &all[second.start as usize..second.end as usize]);
            sum.take_in(0, &all[..50]);
            sum.take_in(950, &all[950..]);
            assert_eq!(sum.whole(1000), None);
            assert!(!sum.is_new(&first) && !sum.is_new(&second), "zeros that are written there are no hole");
            sum.forget_doubtful();
            let gaps = sum.gaps(0..1000);
            let is_read = |at| gaps.iter().any(|gap| gap.contains(&at));
            assert!((first.start.min(second.start)..first.end.max(second.end)).all(is_read), "{first:?}");
            for Range { start, end } in gaps {
                let mut hasher = Hasher::new();
                hasher.update(&all[start as usize..end as usize]);
                sum.put(start..end, hasher);
            }
            assert_eq!(sum.whole(1000), Some(crc32fast::hash(&all)));
        }
    }

    #[test]
    fn an_empty_file_has_the_checksum_of_nothing() {
        assert_eq!(Checksum::default().whole(0), Some(crc32fast::hash(b"")));
    }
}
