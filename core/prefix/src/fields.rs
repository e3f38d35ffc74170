//! How C SCR writes yes and no, times, and checksums; and how values of ours are written.

use scr_base::ensure;
use scr_base::fs::{At, FsError};
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use std::ops::RangeInclusive;
use std::path::Path;

/// The version of a file's form, which is one of those that this release reads.
pub(crate) fn expect_version(tree: &KvTree, path: &Path, known: RangeInclusive<u64>) -> Result<u64, FsError> {
    let found = tree.require("VERSION").at("use", path)?;
    let other = || FsError::Version { path: path.to_owned(), found, reads: known.clone() };
    ensure(known.contains(&found), other).map(|()| found)
}

/// Yes is 1, no is 0; C SCR takes any number but 0 for yes.
pub(crate) fn set_flag(tree: &mut KvTree, key: &str, value: bool) {
    tree.set(key, u8::from(value));
}

/// A yes or no, where it is written.
pub(crate) fn flag(tree: &KvTree, key: &str) -> Result<Option<bool>, FieldError> {
    Ok(tree.parse::<i64>(key)?.map(|value| value != 0))
}

/// A checksum, if there is one, in hexadecimal digits after `0x`.
pub fn set_crc(tree: &mut KvTree, crc: impl Into<Option<u32>>) {
    tree.set_known("CRC", crc.into().map(|crc| format!("{crc:#x}")));
}

/// A checksum, where it is written.
pub(crate) fn crc(tree: &KvTree) -> Result<Option<u32>, FieldError> {
    let Some(text) = tree.parse::<String>("CRC")? else { return Ok(None) };
    let value = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        // C leaves the `0x` away where the number is 0.
        None => text.parse().ok(),
    };
    value.map(Some).ok_or(FieldError::malformed("CRC", text, "a checksum"))
}

/// The ids among the keys of a tree, ascending. Only the way we write an id counts, or one could be listed twice.
pub(crate) fn ids(tree: Option<&KvTree>) -> Vec<u64> {
    let texts = tree.into_iter().flat_map(KvTree::keys).filter_map(|key| std::str::from_utf8(key).ok());
    let mut ids: Vec<u64> =
        texts.filter_map(|text| text.parse().ok().filter(|id: &u64| id.to_string() == text)).collect();
    ids.sort_unstable();
    ids
}

/// Changes the entry of an id, and says whether it is there.
pub(crate) fn alter(tree: &mut KvTree, key: &str, id: u64, change: impl FnOnce(&mut KvTree)) -> bool {
    let known = tree.find(key, id).is_some();
    if known {
        change(tree.entry(key, id));
    }
    known
}

/// Makes text the value of a key, and takes the key away where there is no text.
pub(crate) fn set_text(tree: &mut KvTree, key: &str, value: &str) {
    set_or_remove(tree, key, Some(value).filter(|value| !value.is_empty()));
}

/// Sets a key, or takes it away.
pub(crate) fn set_or_remove(tree: &mut KvTree, key: &str, value: Option<impl std::fmt::Display>) {
    match value {
        Some(value) => tree.set(key, value),
        None => {
            tree.remove(key);
        }
    }
}

/// A tree in a value of ours.
pub mod packed {
    use scr_plugin_api::KvTree;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(tree: &KvTree, to: S) -> Result<S::Ok, S::Error> {
        tree.pack().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<KvTree, D::Error> {
        KvTree::unpack(&Vec::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Bytes in a value of ours, as a character for each: they need not be UTF-8.
pub mod as_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&bytes.iter().copied().map(char::from).collect::<String>())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        text.chars().map(|one| u8::try_from(one).map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_comes_back_and_anything_else_is_refused() {
        let mut tree = KvTree::new();
        assert_eq!(crc(&tree), Ok(None));
        for value in [0, 1, 0xdead_beef, u32::MAX] {
            set_crc(&mut tree, value);
            assert_eq!(crc(&tree), Ok(Some(value)));
        }
        tree.set("CRC", 0);
        assert_eq!(crc(&tree), Ok(Some(0)));
        for text in ["0x", "0x1ffffffff", "-1", "dead"] {
            tree.set("CRC", text);
            assert!(crc(&tree).is_err(), "{text}");
        }
    }

    #[test]
    fn ids_come_sorted_and_what_is_none_is_passed_over() {
        let mut tree = KvTree::new();
        for key in [&b"12"[..], b"3", b"003", b"+3", b"-3", b"x", b"\xff", b"", b"99999999999999999999"] {
            tree.child(key);
        }
        assert_eq!(ids(Some(&tree)), [3, 12]);
        assert!(ids(None).is_empty());
    }

    #[test]
    fn any_number_but_zero_is_a_yes() {
        let mut tree = KvTree::new();
        assert_eq!(flag(&tree, "A"), Ok(None));
        for (text, value) in [("0", false), ("1", true), ("-1", true)] {
            tree.set("A", text);
            assert_eq!(flag(&tree, "A"), Ok(Some(value)));
        }
        tree.set("A", "yes");
        assert!(flag(&tree, "A").is_err());
    }
}
