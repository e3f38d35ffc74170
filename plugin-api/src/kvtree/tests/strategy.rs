//! Random trees for property tests.

use super::KvTree;
use proptest::collection::vec;
use proptest::prelude::*;

/// Trees of up to six levels with keys of any bytes but NUL, now and then empty.
pub(super) fn tree() -> impl Strategy<Value = KvTree> {
    let leaf = Just(KvTree::new());
    leaf.prop_recursive(6, 64, 6, |below| vec((vec(1..=u8::MAX, 0..6), below), 0..6).prop_map(gather))
}

fn gather(elements: Vec<(Vec<u8>, KvTree)>) -> KvTree {
    let mut tree = KvTree::new();
    for (key, below) in elements {
        tree.put(key, below);
    }
    tree
}
