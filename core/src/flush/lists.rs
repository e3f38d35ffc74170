//! A rank's list of files, on its way between ranks.

use crate::prefix::PrefixFile;
use scr_plugin_api::KvTree;

/// To be sent.
pub(crate) fn to_tree(list: &[PrefixFile]) -> KvTree {
    let mut tree = KvTree::new();
    for (place, file) in list.iter().enumerate() {
        let entry = tree.child(place.to_string());
        entry.set_bytes("NAME", &file.name);
        if let Some(bytes) = file.bytes {
            entry.set("SIZE", bytes);
        }
        if let Some(crc) = file.crc {
            entry.set("CRC", crc);
        }
    }
    tree
}

/// As it came.
pub(crate) fn from_tree(tree: &KvTree) -> Option<Vec<PrefixFile>> {
    let file = |entry: &KvTree| {
        Some(PrefixFile {
            name: entry.value("NAME")?.to_vec(),
            bytes: entry.parse("SIZE").ok()?,
            crc: entry.parse("CRC").ok()?,
        })
    };
    tree.iter().map(|(_, entry)| file(entry)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_in_its_order() {
        let file = |name: &str, bytes, crc| PrefixFile { name: name.into(), bytes, crc };
        let list =
            vec![file("z", Some(u64::MAX), Some(0)), file("a/b", None, None), file("\n", Some(0), None)];
        assert_eq!(from_tree(&to_tree(&list)), Some(list));
        assert_eq!(from_tree(&to_tree(&[])), Some(vec![]));
    }
}
