//! The ordered tree that C SCR calls a hash: every file of ours, and every record on the wire, is one.
//!
//! A tree is an ordered list of keys, each with a tree below it. A value is a key that has nothing below
//! it: `FILES = 2` is the key `FILES` with the single key `2` below. Keys are any bytes without NUL, since
//! paths are.

use indexmap::IndexMap;
use std::fmt::Display;
use std::str::FromStr;

/// An ordered tree of byte strings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvTree {
    children: IndexMap<Vec<u8>, KvTree>,
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
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: &'static str,
    },
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
        self.children.is_empty()
    }

    /// The tree below `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&KvTree> {
        self.children.get(key.as_ref())
    }

    /// The tree below `key`, put there empty if it was not.
    pub fn child(&mut self, key: impl AsRef<[u8]>) -> &mut KvTree {
        self.children.entry(key.as_ref().to_vec()).or_default()
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
        self.children.contains_key(key.as_ref())
    }

    /// Puts `tree` below `key`, instead of what was there.
    pub fn put(&mut self, key: impl AsRef<[u8]>, tree: KvTree) {
        self.children.insert(key.as_ref().to_vec(), tree);
    }

    /// Makes `value` the one value of `key`.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl Display) {
        self.set_bytes(key, value.to_string());
    }

    /// Makes `value`, any bytes without NUL, the one value of `key`.
    pub fn set_bytes(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let mut leaf = KvTree::new();
        leaf.child(value);
        self.put(key, leaf);
    }

    /// The value of `key`: the first key below it.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.get(key)?.children.keys().next().map(Vec::as_slice)
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
        let text = String::from_utf8_lossy(value);
        text.parse().map(Some).map_err(|_| FieldError::Malformed {
            key: String::from_utf8_lossy(key.as_ref()).into_owned(),
            found: text.into_owned(),
            expected: std::any::type_name::<T>(),
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

    /// Takes `key` and all below it away.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Option<KvTree> {
        self.children.shift_remove(key.as_ref())
    }

    /// Adds everything in `other`, level by level.
    pub fn merge(&mut self, other: KvTree) {
        for (key, tree) in other.children {
            self.children.entry(key).or_default().merge(tree);
        }
    }

    /// The keys at this level with their trees, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &KvTree)> {
        self.children.iter().map(|(key, tree)| (key.as_slice(), tree))
    }

    /// The keys at this level, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.children.keys().map(Vec::as_slice)
    }

    /// The keys at this level that are a `T`, in order.
    pub fn keys_as<'a, T: FromStr + 'a>(&'a self) -> impl Iterator<Item = T> + 'a {
        self.keys().filter_map(|key| std::str::from_utf8(key).ok()?.parse().ok())
    }
}
