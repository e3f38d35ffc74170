//! The file form of a tree: a header of 20 bytes, the packed tree, and a CRC32 of all bytes before it.
//!
//! | bytes | field | value |
//! |---|---|---|
//! | 0-3 | magic number | `95 1f c3 f5` |
//! | 4-5 | file type | 1, a tree |
//! | 6-7 | file version | 1 |
//! | 8-15 | file size | bytes from the first of the header to the last of the CRC32 |
//! | 16-19 | flags | bit 0: a CRC32 follows the tree |
//! | 20- | packed tree | see `packed` |
//! | last 4 | CRC32 | polynomial, start and end as zlib has them |
//!
//! Numbers have their most significant byte first, as in C SCR's files.

use super::{expect, FormError, KvTree};

const MAGIC: u32 = 0x951f_c3f5;
const TYPE_TREE: u16 = 1;
const VERSION: u16 = 1;
const FLAG_CRC: u32 = 1;
const HEADER_LEN: usize = 20;
const CRC_LEN: usize = 4;

impl KvTree {
    /// The file form, with a CRC32.
    pub fn to_file_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC.to_be_bytes());
        bytes.extend_from_slice(&TYPE_TREE.to_be_bytes());
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&0_u64.to_be_bytes());
        bytes.extend_from_slice(&FLAG_CRC.to_be_bytes());
        self.pack_into(&mut bytes);
        let size = (bytes.len() + CRC_LEN) as u64;
        for (place, byte) in bytes.iter_mut().skip(8).zip(size.to_be_bytes()) {
            *place = byte;
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// The tree whose file form `bytes` is, down to the last byte.
    ///
    /// # Errors
    /// [`FormError`]; where the file has a CRC32, any flipped bit is found.
    pub fn from_file_bytes(bytes: &[u8]) -> Result<KvTree, FormError> {
        let (tree, used) = Self::from_file_prefix(bytes)?;
        expect(used == bytes.len(), || wrong_size(bytes, used as u64))?;
        Ok(tree)
    }

    /// The tree whose file form `bytes` begins with, and how many bytes it takes.
    ///
    /// For files that hold more than a tree, and for those that are written in place: a writer that dies between
    /// writing and shortening leaves bytes of the old tree after the new one.
    ///
    /// # Errors
    /// As for [`from_file_bytes`](Self::from_file_bytes), except that anything may follow.
    pub fn from_file_prefix(bytes: &[u8]) -> Result<(KvTree, usize), FormError> {
        let (size, flags) = header(bytes)?;
        let file = usize::try_from(size).ok().and_then(|size| bytes.get(..size));
        let file = file.ok_or_else(|| FormError::Fault(wrong_size(bytes, size)))?;
        let crc_len = if flags & FLAG_CRC == 0 { 0 } else { CRC_LEN };
        let end = file.len().checked_sub(crc_len).filter(|&end| end >= HEADER_LEN);
        let end = end.ok_or_else(|| FormError::Fault(too_short(file, HEADER_LEN + crc_len)))?;
        let (checked, stored) = file.split_at(end);
        if let Ok(stored) = stored.try_into() {
            let (found, expected) = (crc32fast::hash(checked), u32::from_be_bytes(stored));
            expect(found == expected, || {
                format!(
                    "the file's bytes have CRC32 {found:#010x}, and {expected:#010x} was stored with them"
                )
            })?;
        }
        let unknown = || format!("the file has flags {flags:#x}, and this release knows {FLAG_CRC:#x}");
        expect(flags & !FLAG_CRC == 0, unknown)?;
        let tree = Self::unpack(checked.get(HEADER_LEN..).unwrap_or_default());
        let no_tree = |why| {
            FormError::Fault(format!("the file's header is right, but what follows is not a tree: {why}"))
        };
        Ok((tree.map_err(no_tree)?, file.len()))
    }
}

fn wrong_size(bytes: &[u8], expected: u64) -> String {
    format!("the file has {} bytes, and its header says {expected}", bytes.len())
}

fn too_short(bytes: &[u8], least: usize) -> String {
    format!("the file has {} bytes, and its header alone takes {least}", bytes.len())
}

/// The size and the flags that the header gives.
fn header(bytes: &[u8]) -> Result<(u64, u32), FormError> {
    let header = bytes.first_chunk::<HEADER_LEN>();
    let header = header.ok_or_else(|| FormError::Fault(too_short(bytes, HEADER_LEN)))?;
    let [m0, m1, m2, m3, t0, t1, v0, v1, size @ .., f0, f1, f2, f3] = *header;
    let magic = u32::from_be_bytes([m0, m1, m2, m3]);
    expect(magic == MAGIC, || {
        format!("the file begins with {magic:#010x} where an SCR file begins with {MAGIC:#010x}")
    })?;
    let kind = u16::from_be_bytes([t0, t1]);
    expect(kind == TYPE_TREE, || format!("the file is of type {kind}, and a tree is of type {TYPE_TREE}"))?;
    let found = u16::from_be_bytes([v0, v1]);
    if found != VERSION {
        return Err(FormError::Version(found, VERSION));
    }
    Ok((u64::from_be_bytes(size), u32::from_be_bytes([f0, f1, f2, f3])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvtree::strategy;
    use proptest::prelude::*;

    /// A file with `change` made to it and its CRC32 put right again.
    fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut tree = KvTree::new();
        tree.set("NODES", 4);
        let mut bytes = tree.to_file_bytes();
        bytes.truncate(bytes.len() - CRC_LEN);
        change(&mut bytes);
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn every_kind_of_damage_has_its_own_error() {
        let good = resealed(|_| ());
        assert!(KvTree::from_file_bytes(&good).is_ok());
        let message = |bytes: &[u8]| KvTree::from_file_bytes(bytes).unwrap_err().to_string();
        assert_eq!(message(&[]), "the file has 0 bytes, and its header alone takes 20");
        assert_eq!(message(&good[..19]), "the file has 19 bytes, and its header alone takes 20");
        assert_eq!(
            message(&resealed(|bytes| bytes[0] = b'#')),
            "the file begins with 0x231fc3f5 where an SCR file begins with 0x951fc3f5"
        );
        assert_eq!(
            message(&resealed(|bytes| bytes[5] = 2)),
            "the file is of type 2, and a tree is of type 1"
        );
        assert_eq!(
            message(&resealed(|bytes| bytes[7] = 3)),
            "the file has format version 3, and this release reads version 1"
        );
        assert_eq!(message(&good[..43]), "the file has 43 bytes, and its header says 44");
        assert_eq!(message(&[&good[..], b"!"].concat()), "the file has 45 bytes, and its header says 44");
        assert_eq!(
            message(&resealed(|bytes| bytes[19] = 3)),
            "the file has flags 0x3, and this release knows 0x1"
        );
        assert!(
            message(&[&good[..43], b"!"].concat()).starts_with("the file's bytes have CRC32 0xcb4f2fc1, and")
        );
    }

    #[test]
    fn a_header_with_an_impossible_length_is_refused() {
        for size in [0, 19, 20, 23, u64::MAX] {
            let bytes = resealed(|bytes| bytes[8..16].copy_from_slice(&size.to_be_bytes()));
            assert!(KvTree::from_file_bytes(&bytes).is_err(), "{size}");
        }
    }

    #[test]
    fn a_tree_that_is_none_under_a_right_checksum_names_the_cause() {
        let bytes = resealed(|bytes| bytes[23] = 9);
        let error = KvTree::from_file_bytes(&bytes).unwrap_err();
        let expected =
            "the file's header is right, but what follows is not a tree: the count at byte 0 claims 9 keys";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn a_file_without_a_checksum_is_read() {
        let mut bytes = resealed(|_| ());
        bytes.truncate(bytes.len() - CRC_LEN);
        bytes[15] -= 4;
        bytes[19] = 0;
        assert_eq!(KvTree::from_file_bytes(&bytes).unwrap().text("NODES"), Some("4"));
    }

    #[test]
    fn bytes_of_an_older_longer_tree_are_skipped_on_request() {
        let bytes = [resealed(|_| ()), b"left over".to_vec()].concat();
        let (tree, used) = KvTree::from_file_prefix(&bytes).unwrap();
        assert_eq!((tree.text("NODES"), used), (Some("4"), 44));
    }

    proptest! {
        #[test]
        fn file_bytes_read_back_the_same(tree in strategy::tree()) {
            let bytes = tree.to_file_bytes();
            let read = KvTree::from_file_bytes(&bytes).unwrap();
            prop_assert_eq!(read.to_file_bytes(), bytes);
            prop_assert_eq!(read, tree);
        }

        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes: Vec<u8>) {
            prop_assert!(KvTree::from_file_bytes(&bytes).is_err());
        }

        #[test]
        fn any_bytes_after_a_right_header_give_a_value_or_an_error(rest: Vec<u8>, flags in 0..4_u32, size: u8) {
            let mut bytes = MAGIC.to_be_bytes().to_vec();
            bytes.extend_from_slice(&[0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, size]);
            bytes.extend_from_slice(&flags.to_be_bytes());
            bytes.extend_from_slice(&rest);
            let _ = KvTree::from_file_bytes(&bytes);
        }
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let bytes = resealed(|_| ());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(KvTree::from_file_bytes(&damaged).is_err(), "bit {bit}");
            assert!(KvTree::from_file_prefix(&damaged).is_err(), "bit {bit}");
        }
    }
}
