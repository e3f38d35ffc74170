//! The packed form of a tree: the number of keys, then for each key its bytes, a NUL, and the packed tree below it.
//!
//! Numbers are 32 bits, most significant byte first. The reader trusts
//! nothing: no byte string makes it panic, recurse without bound, or take more than [`MEMORY_FACTOR`] times its own memory.

use super::{expect, FormError, KvTree};

/// How many levels of keys a packed tree may have. C SCR's deepest has about ten.
pub const MAX_DEPTH: usize = 100;

/// A tree takes at most so many times the memory of its packed form, also while it is read.
pub const MEMORY_FACTOR: usize = 24;

/// The shortest packed element: an empty key with its NUL, and the count of an empty tree.
const SHORTEST_ELEMENT: usize = 5;

impl KvTree {
    /// The packed form. A tree of more than [`MAX_DEPTH`] levels can be packed, but nobody unpacks it.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.pack_into(&mut bytes);
        bytes
    }

    /// Appends the packed form to `bytes`.
    pub fn pack_into(&self, bytes: &mut Vec<u8>) {
        // A greater number of keys does not fit into memory, but should it ever, the count and the elements still agree.
        let count = u32::try_from(self.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&count.to_be_bytes());
        for (key, below) in self.iter().take(count as usize) {
            bytes.extend_from_slice(key);
            bytes.push(0);
            below.pack_into(bytes);
        }
    }

    /// The tree whose packed form `bytes` is, down to the last byte.
    ///
    /// # Errors
    /// [`FormError`], for anything that [`pack`](Self::pack) does not write.
    pub fn unpack(bytes: &[u8]) -> Result<KvTree, FormError> {
        let mut reader = Reader { bytes, offset: 0 };
        let tree = reader.tree(0)?;
        let (used, given) = (reader.offset, bytes.len());
        expect(used == given, || format!("the packed tree ends after {used} bytes, and {given} were given"))?;
        Ok(tree)
    }
}

/// A place in bytes that nobody vouches for.
struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    fn tree(&mut self, depth: usize) -> Result<KvTree, FormError> {
        let offset = self.offset;
        let count = self.count()?;
        let too_deep = || format!("the packed tree has more than {MAX_DEPTH} levels at byte {offset}");
        expect(count == 0 || depth < MAX_DEPTH, too_deep)?;
        let mut tree = KvTree::new();
        for _ in 0..count {
            let offset = self.offset;
            let key = self.key()?;
            expect(!tree.has(key), || {
                format!(
                    "the key `{}' at byte {offset} occurs twice on its level",
                    String::from_utf8_lossy(key)
                )
            })?;
            let below = self.tree(depth + 1)?;
            tree.put(key, below);
        }
        tree.children.shrink();
        Ok(tree)
    }

    /// The count is checked against the bytes left, but no room is made for it: nested counts could each
    /// claim all that is left.
    fn count(&mut self) -> Result<u32, FormError> {
        let (offset, rest) = (self.offset, self.rest());
        let cut_short = || {
            let left = rest.len();
            format!("the packed tree is cut short: a count of 4 bytes is expected at byte {offset}, and {left} are left")
        };
        let (count, after) = rest.split_first_chunk::<4>().ok_or_else(|| FormError::Fault(cut_short()))?;
        let (found, most) = (u32::from_be_bytes(*count), after.len() / SHORTEST_ELEMENT);
        expect(found as usize <= most, || {
            format!("the count at byte {offset} claims {found} keys, and the rest of the bytes has room for {most}")
        })?;
        self.offset += count.len();
        Ok(found)
    }

    fn key(&mut self) -> Result<&'a [u8], FormError> {
        let rest = self.rest();
        let end = rest.iter().position(|&byte| byte == 0);
        let (key, offset) = (end.and_then(|end| rest.get(..end)), self.offset);
        let key = key.ok_or_else(|| FormError::Fault(format!("the key at byte {offset} has no end")))?;
        self.offset += key.len() + 1;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvtree::strategy;
    use proptest::prelude::*;

    #[test]
    fn an_empty_tree_is_a_count_of_zero() {
        assert_eq!(KvTree::new().pack(), [0, 0, 0, 0]);
        assert_eq!(KvTree::unpack(&[0, 0, 0, 0]), Ok(KvTree::new()));
    }

    #[test]
    fn a_value_packs_as_a_key_below_a_key() {
        let mut tree = KvTree::new();
        tree.set("A", 4);
        assert_eq!(tree.pack(), b"\0\0\0\x01A\0\0\0\0\x014\0\0\0\0\0");
    }

    #[test]
    fn every_kind_of_damage_says_where_and_what() {
        let cut_short = |at: usize, left: usize| {
            format!(
                "the packed tree is cut short: a count of 4 bytes is expected at byte {at}, and {left} are left"
            )
        };
        let too_large = |most: usize| {
            format!(
                "the count at byte 0 claims 4294967295 keys, and the rest of the bytes has room for {most}"
            )
        };
        let cases: [(&[u8], String); 8] = [
            (b"", cut_short(0, 0)),
            (b"\0\0\0", cut_short(0, 3)),
            (b"\0\0\0\x01ABCDEFG", "the key at byte 4 has no end".to_owned()),
            (b"\0\0\0\x01ABCD\0\0\0", cut_short(9, 2)),
            (b"\xff\xff\xff\xff", too_large(0)),
            (b"\xff\xff\xff\xffA\0\0\0\0\0", too_large(1)),
            (b"\0\0\0\0!", "the packed tree ends after 4 bytes, and 5 were given".to_owned()),
            (
                b"\0\0\0\x02A\0\0\0\0\0A\0\0\0\0\0",
                "the key `A' at byte 10 occurs twice on its level".to_owned(),
            ),
        ];
        for (bytes, error) in cases {
            assert_eq!(KvTree::unpack(bytes), Err(FormError::Fault(error)), "{bytes:?}");
        }
    }

    #[test]
    fn a_million_levels_are_refused_without_a_stack_overflow() {
        let bytes = [0, 0, 0, 1, b'A', 0].repeat(1_000_000);
        let error = KvTree::unpack(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "the packed tree has more than 100 levels at byte 600");
    }

    #[test]
    fn the_deepest_tree_that_is_allowed_comes_back() {
        let mut tree = KvTree::new();
        (0..MAX_DEPTH).fold(&mut tree, |below, level| below.child(level.to_string()));
        assert_eq!(KvTree::unpack(&tree.pack()), Ok(tree));
    }

    proptest! {
        #[test]
        fn packed_trees_come_back_in_the_same_order(tree in strategy::tree(), tail: Vec<u8>) {
            let packed = tree.pack();
            let read = KvTree::unpack(&packed).unwrap();
            prop_assert_eq!(read.pack(), packed.clone());
            prop_assert_eq!(&read, &tree);
            let longer = [packed.as_slice(), &tail].concat();
            prop_assert_eq!(KvTree::unpack(&longer).is_ok(), tail.is_empty());
        }

        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes: Vec<u8>) {
            if let Ok(tree) = KvTree::unpack(&bytes) {
                prop_assert_eq!(tree.pack(), bytes);
            }
        }

        #[test]
        fn damaged_bytes_give_a_value_or_an_error(tree in strategy::tree(), at: usize, new: u8, cut: usize) {
            let mut bytes = tree.pack();
            let len = bytes.len();
            bytes[at % len] = new;
            bytes.truncate(len - cut % len);
            if let Ok(tree) = KvTree::unpack(&bytes) {
                prop_assert_eq!(tree.pack(), bytes);
            }
        }

        #[test]
        fn every_shortened_form_is_an_error(tree in strategy::tree(), cut: usize) {
            let bytes = tree.pack();
            prop_assert!(KvTree::unpack(&bytes[..cut % bytes.len()]).is_err());
        }
    }
}
