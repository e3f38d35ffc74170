//! The CRC32 of a file that is read in pieces and has holes.
//!
//! A hole counts as the zeros that a reader would see, without a zero being read: the checksum of 2n zeros is
//! that of n zeros joined with itself, so a hole of a terabyte takes some forty steps.

use crc32fast::Hasher;

/// A checksum that grows as the file is read; none where none was asked for.
#[derive(Debug, Default)]
pub(crate) struct Checksum {
    hasher: Option<Hasher>,
}

impl Checksum {
    pub(crate) fn new(wanted: bool) -> Self {
        Self { hasher: wanted.then(Hasher::new) }
    }

    /// Goes on from the checksum of so many bytes that were read before.
    pub(crate) fn resumed(wanted: bool, crc: u32, bytes: u64) -> Self {
        Self { hasher: wanted.then(|| Hasher::new_with_initial_len(crc, bytes)) }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }

    pub(crate) fn add_zeros(&mut self, count: u64) {
        if let Some(hasher) = &mut self.hasher {
            add_zeros(hasher, count);
        }
    }

    pub(crate) fn value(self) -> Option<u32> {
        self.hasher.map(Hasher::finalize)
    }
}

fn add_zeros(hasher: &mut Hasher, mut count: u64) {
    let mut piece = Hasher::new();
    piece.update(&[0]);
    while count > 0 {
        if count & 1 == 1 {
            hasher.combine(&piece);
        }
        count >>= 1;
        let same = piece.clone();
        piece.combine(&same);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_count_as_zeros() {
        for count in [0_usize, 1, 2, 3, 4095, 4096, 1_000_003] {
            let mut checksum = Checksum::new(true);
            checksum.add(b"before");
            checksum.add_zeros(count as u64);
            checksum.add(b"after");
            let plain = [b"before".as_slice(), &vec![0; count], b"after"].concat();
            assert_eq!(checksum.value(), Some(crc32fast::hash(&plain)), "{count} zeros");
        }
    }

    #[test]
    fn none_is_taken_where_none_is_wanted() {
        let mut checksum = Checksum::new(false);
        checksum.add(b"bytes");
        checksum.add_zeros(5);
        assert_eq!(checksum.value(), None);
    }
}
