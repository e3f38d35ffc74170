//! The ordered tree that C SCR calls a hash: every file of ours, and every record on the wire, is one.
//!
//! A tree is an ordered list of keys, each with a tree below it. A value is a key that has nothing below
//! it: `FILES = 2` is the key `FILES` with the single key `2` below. Keys are any bytes without NUL, since
//! paths are.
//!
//! | part | what it is |
//! |---|---|
//! | [`KvTree`] | the tree in memory |
//! | `children` | the keys of one level |
//! | `packed` | the packed form, for messages and inside files |
//! | `file` | the file form: header, packed tree, CRC32 |
//! | `text` | the print for people |

mod children;
mod file;
mod packed;
#[cfg(test)]
#[path = "tests/strategy.rs"]
mod strategy;
mod text;

pub use packed::{MAX_DEPTH, MEMORY_FACTOR};

use children::Children;
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// An ordered tree of byte strings.
///
/// A key ends at its first NUL byte, as it does in the packed form; what follows is cut off. Two trees are equal
/// where they hold the same keys, in whichever order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvTree {
    children: Children,
}

/// A field that is missing, or holds something else than it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The key is not there.
    #[error("the field {key} is missing")]
    Missing {
        /// Which.
        key: String,
    },
    /// The value is not of the expected kind.
    #[error("the field {key} holds `{found}', which is not {expected}")]
    Malformed {
        /// Which.
        key: String,
        /// Its value.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
}

/// Why bytes are not the packed form of a tree, or not its file form. Offsets count from the first byte.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The file form has the first version, and this release reads the second.
    #[error("the file has format version {0}, and this release reads version {1}")]
    Version(u16, u16),
    /// What is wrong.
    #[error("{0}")]
    Fault(String),
}

/// That something holds of the bytes of a tree.
fn expect(holds: bool, fault: impl FnOnce() -> String) -> Result<(), FormError> {
    holds.then_some(()).ok_or_else(|| FormError::Fault(fault()))
}

impl FieldError {
    /// That `key` holds something else than what is expected.
    pub fn malformed(key: impl Into<String>, found: impl Into<String>, expected: &'static str) -> Self {
        Self::Malformed { key: key.into(), found: found.into(), expected }
    }
}

impl KvTree {
    /// A tree with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of keys at this level.
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Whether there is no key at this level.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tree below `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&KvTree> {
        self.children.get(key.as_ref())
    }

    /// The tree below `key`, put there empty if it was not.
    pub fn child(&mut self, key: impl AsRef<[u8]>) -> &mut KvTree {
        self.children.or_default(until_nul(key.as_ref()))
    }

    /// The tree below `key` and `value`, put there empty if it was not: `DSET/<id>`, `FILE/<name>`.
    pub fn entry(&mut self, key: impl AsRef<[u8]>, value: impl Display) -> &mut KvTree {
        self.child(key).child(value.to_string())
    }

    /// The tree below `key` and `value`.
    pub fn find(&self, key: impl AsRef<[u8]>, value: impl Display) -> Option<&KvTree> {
        self.get(key)?.get(value.to_string())
    }

    /// Whether `key` is there.
    pub fn has(&self, key: impl AsRef<[u8]>) -> bool {
        self.get(key).is_some()
    }

    /// Puts `tree` below `key`, instead of what was there.
    pub fn put(&mut self, key: impl AsRef<[u8]>, tree: KvTree) {
        *self.child(key) = tree;
    }

    /// Makes `value` the one value of `key`.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl Display) {
        self.set_bytes(key, value.to_string());
    }

    /// As [`set`](Self::set), if there is a value.
    pub fn set_known(&mut self, key: impl AsRef<[u8]>, value: Option<impl Display>) {
        value.into_iter().for_each(|value| self.set(&key, value));
    }

    /// Makes `value`, any bytes without NUL, the one value of `key`.
    pub fn set_bytes(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let mut leaf = KvTree::new();
        leaf.child(value);
        self.put(key, leaf);
    }

    /// The value of `key`: the first key below it.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.get(key)?.keys().next()
    }

    /// The value of `key` as a path; an empty value counts as absent.
    pub fn path(&self, key: impl AsRef<[u8]>) -> Option<PathBuf> {
        let value = self.value(key).filter(|value| !value.is_empty())?;
        Some(OsStr::from_bytes(value).into())
    }

    /// The value of `key` as text; a value that is not UTF-8 counts as absent.
    pub fn text(&self, key: impl AsRef<[u8]>) -> Option<&str> {
        std::str::from_utf8(self.value(key)?).ok()
    }

    /// The value of `key` read as a `T`, or `None` where there is none.
    ///
    /// # Errors
    /// [`FieldError::Malformed`] where there is a value that is no `T`.
    pub fn parse<T: FromStr>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>, FieldError> {
        let Some(value) = self.value(key.as_ref()) else { return Ok(None) };
        let text = std::str::from_utf8(value).map_or_else(|_| String::from_utf8_lossy(value), Cow::Borrowed);
        text.parse().map(Some).map_err(|_| {
            FieldError::malformed(String::from_utf8_lossy(key.as_ref()), text, std::any::type_name::<T>())
        })
    }

    /// The value of `key` read as a `T`.
    ///
    /// # Errors
    /// [`FieldError`] where there is none or it is no `T`.
    pub fn require<T: FromStr>(&self, key: impl AsRef<[u8]>) -> Result<T, FieldError> {
        self.parse(key.as_ref())?
            .ok_or_else(|| FieldError::Missing { key: String::from_utf8_lossy(key.as_ref()).into_owned() })
    }

    /// Makes a value that only scr reads, as JSON, the one value of `key`.
    ///
    /// # Panics
    /// It cannot be written, as a path that is not UTF-8.
    pub fn set_json(&mut self, key: impl AsRef<[u8]>, value: &impl Serialize) {
        self.set_bytes(key, serde_json::to_vec(value).expect("its keys are texts, and its paths any bytes"));
    }

    /// The value of `key` as [`set_json`](Self::set_json) wrote it.
    ///
    /// # Errors
    /// [`FieldError`] where there is none or it is something else.
    pub fn json<T: DeserializeOwned>(&self, key: &str) -> Result<T, FieldError> {
        let text: String = self.require(key)?;
        let value = serde_json::from_str(&text);
        value.map_err(|error| FieldError::malformed(key, error.to_string(), "what this release writes there"))
    }

    /// Takes `key` and all below it away.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Option<KvTree> {
        self.children.remove(key.as_ref())
    }

    /// Adds everything in `other`, level by level.
    pub fn merge(&mut self, other: KvTree) {
        for (key, tree) in other.children.into_iter() {
            self.child(key).merge(tree);
        }
    }

    /// The keys at this level with their trees, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &KvTree)> {
        self.children.iter()
    }

    /// The keys at this level, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|(key, _)| key)
    }

    /// The keys at this level that are a `T`, in order.
    pub fn keys_as<'a, T: FromStr + 'a>(&'a self) -> impl Iterator<Item = T> + 'a {
        self.keys().filter_map(|key| std::str::from_utf8(key).ok()?.parse().ok())
    }
}

/// The part of a key that the packed form can hold.
fn until_nul(key: &[u8]) -> &[u8] {
    key.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_key_below_and_setting_it_again_replaces_it() {
        let mut tree = KvTree::new();
        tree.set("FILES", 1);
        tree.set("FILES", 2);
        assert_eq!(tree.text("FILES"), Some("2"));
        assert_eq!(tree.get("FILES").map(KvTree::len), Some(1));
    }

    #[test]
    fn a_path_may_be_any_bytes_and_an_empty_one_is_absent() {
        let mut tree = KvTree::new();
        tree.set_bytes("FILE", b"/a\xff");
        tree.set("CA", "");
        assert_eq!(tree.path("FILE").unwrap().as_os_str().as_bytes(), b"/a\xff");
        assert_eq!((tree.path("CA"), tree.path("KEY")), (None, None));
    }

    #[test]
    fn a_field_that_is_missing_or_no_number_is_named_in_the_error() {
        let mut tree = KvTree::new();
        assert_eq!(tree.require::<u64>("SIZE").unwrap_err().to_string(), "the field SIZE is missing");
        tree.set("SIZE", "big");
        let error = tree.require::<u64>("SIZE").unwrap_err().to_string();
        assert_eq!(error, "the field SIZE holds `big', which is not u64");
    }

    #[test]
    fn merging_adds_level_by_level_and_keeps_what_was_there() {
        let mut tree = KvTree::new();
        tree.entry("RANK", 0).set("FILES", 1);
        let mut other = KvTree::new();
        other.entry("RANK", 0).set("SIZE", 5);
        other.entry("RANK", 1).set("FILES", 2);
        tree.merge(other);
        assert_eq!(tree.find("RANK", 0).and_then(|rank| rank.text("FILES")), Some("1"));
        assert_eq!(tree.find("RANK", 0).and_then(|rank| rank.text("SIZE")), Some("5"));
        assert_eq!(tree.get("RANK").map(|ranks| ranks.keys_as::<u32>().collect()), Some(vec![0, 1]));
    }

    #[test]
    fn a_key_ends_at_its_first_nul() {
        let mut tree = KvTree::new();
        tree.set_bytes("NAME", b"ckpt\0.1");
        assert_eq!(tree.value("NAME"), Some(&b"ckpt"[..]));
    }
}
