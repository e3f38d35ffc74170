//! Options on their way across: a packed tree.

use crate::{KvTree, PluginError, PluginErrorKind};

/// The tree as bytes: the number of keys (big-endian), then for each key its text, a NUL and what is below it.
pub(super) fn pack(tree: &KvTree) -> Vec<u8> {
    let mut bytes = u32::try_from(tree.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    for (key, below) in tree.iter() {
        bytes.extend_from_slice(key);
        bytes.push(0);
        bytes.extend_from_slice(&pack(below));
    }
    bytes
}

/// The tree that was packed.
pub(super) fn unpack(bytes: &[u8]) -> Result<KvTree, PluginError> {
    let mut rest = bytes;
    take(&mut rest)
        .filter(|_| rest.is_empty())
        .ok_or_else(|| PluginError::new(PluginErrorKind::Fault, "the options that the host sent are garbled"))
}

fn take(rest: &mut &[u8]) -> Option<KvTree> {
    let (count, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    let mut tree = KvTree::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let end = rest.iter().position(|&byte| byte == 0)?;
        let key = rest.get(..end)?;
        *rest = rest.get(end + 1..)?;
        tree.put(key, take(rest)?);
    }
    Some(tree)
}
