//! A rank's list of files, as a message between ranks.

use super::file_copy::FileCopy;
use super::step::StepError;
use crate::comm::{collective, Comm, CommError, Rank};
use crate::prefix::{FileName, PrefixFile};
use scr_plugin_api::KvTree;
use std::collections::HashMap;

/// Every rank's file list, on rank 0.
pub(super) fn gather<'a>(
    comm: &dyn Comm,
    copies: impl Iterator<Item = &'a FileCopy>,
) -> Result<Option<Vec<Vec<PrefixFile>>>, CommError> {
    let entries = copies.map(|copy| PrefixFile {
        name: copy.file.name.clone(),
        bytes: Some(copy.file.bytes),
        crc: copy.crc.or(copy.file.crc),
    });
    let packed = to_tree(&entries.collect::<Vec<_>>()).pack();
    let Some(all) = collective::gather(comm, Rank(0), packed)? else { return Ok(None) };
    let unpack = |(rank, bytes): (u32, Vec<u8>)| {
        KvTree::unpack(&bytes)
            .ok()
            .and_then(|tree| from_tree(&tree))
            .ok_or(CommError::Malformed { from: Rank(rank), what: "a list of files" })
    };
    let mut lists = (0..).zip(all).map(unpack).collect::<Result<Vec<_>, _>>()?;
    share_checksums(&mut lists);
    Ok(Some(lists))
}

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
            name: FileName::parse(entry.value("NAME")?).ok()?,
            bytes: entry.parse("SIZE").ok()?,
            crc: entry.parse("CRC").ok()?,
        })
    };
    tree.iter().map(|(_, entry)| file(entry)).collect()
}

/// Expects that ranks that have a file of one name have the same file.
pub(super) fn expect_alike(lists: &[Vec<PrefixFile>]) -> Result<(), StepError> {
    let mut known: HashMap<&FileName, (Rank, &PrefixFile)> = HashMap::new();
    for (rank, list) in (0..).map(Rank).zip(lists) {
        for file in list {
            let &mut (first, other) = known.entry(&file.name).or_insert((rank, file));
            if file.bytes != other.bytes || file.crc != other.crc {
                return Err(StepError::SharedName { name: file.name.clone(), ranks: [first, rank] });
            }
        }
    }
    Ok(())
}

/// Of a file that many ranks have, one took the checksum.
fn share_checksums(lists: &mut [Vec<PrefixFile>]) {
    if lists.iter().flatten().all(|file| file.crc.is_some()) {
        return;
    }
    let known: HashMap<FileName, u32> =
        lists.iter().flatten().filter_map(|file| Some((file.name.clone(), file.crc?))).collect();
    for file in lists.iter_mut().flatten() {
        file.crc = file.crc.or_else(|| known.get(&file.name).copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_in_its_order() {
        let file = |name: &str, bytes, crc| PrefixFile { name: name.parse().unwrap(), bytes, crc };
        let list =
            vec![file("z", Some(u64::MAX), Some(0)), file("a/b", None, None), file("\n", Some(0), None)];
        assert_eq!(from_tree(&to_tree(&list)), Some(list));
        assert_eq!(from_tree(&to_tree(&[])), Some(vec![]));
    }
}
