//! The keys of one level of a tree, in order.
//!
//! Most levels have only a few keys. A map for each of them would take a hundred times the memory of the bytes that it was read
//! from, so only a level with many keys is a map.

use super::KvTree;
use indexmap::IndexMap;

/// More keys than this are looked up in a map.
const MOST_FEW: usize = 16;

/// The keys of one level with the trees below them.
#[derive(Debug, Clone)]
pub(super) enum Children {
    Few(Vec<(Box<[u8]>, KvTree)>),
    Many(Box<IndexMap<Box<[u8]>, KvTree>>),
}

impl Default for Children {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Children {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&KvTree> {
        match self {
            Self::Few(few) => few.iter().find(|(own, _)| **own == *key).map(|(_, tree)| tree),
            Self::Many(many) => many.get(key),
        }
    }

    /// The tree below `key`, put there empty if it was not.
    pub(super) fn or_default(&mut self, key: &[u8]) -> &mut KvTree {
        if let Self::Few(few) = self {
            if few.len() == MOST_FEW && !few.iter().any(|(own, _)| **own == *key) {
                let mut many = IndexMap::with_capacity(2 * MOST_FEW);
                many.extend(few.drain(..));
                *self = Self::Many(Box::new(many));
            }
        }
        match self {
            Self::Few(few) => {
                let known = few.iter().position(|(own, _)| **own == *key);
                let at = known.unwrap_or_else(|| {
                    few.reserve_exact(1);
                    few.push((key.into(), KvTree::default()));
                    few.len() - 1
                });
                &mut few[at].1
            }
            Self::Many(many) => many.entry(key.into()).or_default(),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<KvTree> {
        match self {
            Self::Few(few) => {
                let at = few.iter().position(|(own, _)| **own == *key)?;
                Some(few.remove(at).1)
            }
            Self::Many(many) => many.shift_remove(key),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &KvTree)> {
        let (few, many) = match self {
            Self::Few(few) => (few.as_slice(), None),
            Self::Many(many) => (&[][..], Some(many)),
        };
        let few = few.iter().map(|(key, tree)| (&**key, tree));
        few.chain(many.into_iter().flat_map(|many| many.iter()).map(|(key, tree)| (&**key, tree)))
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (Box<[u8]>, KvTree)> {
        let (few, many) = match self {
            Self::Few(few) => (few, None),
            Self::Many(many) => (Vec::new(), Some(many)),
        };
        few.into_iter().chain(many.into_iter().flat_map(|many| many.into_iter()))
    }

    /// Gives back the memory that was taken for further keys.
    pub(super) fn shrink(&mut self) {
        if let Self::Many(many) = self {
            many.shrink_to_fit();
        }
    }
}

/// The same keys, in whichever order.
impl PartialEq for Children {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(key, tree)| other.get(key) == Some(tree))
    }
}

impl Eq for Children {}
