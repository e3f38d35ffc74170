//! A rank's list of files, as a message between ranks.

use super::file_copy::FileCopy;
use scr_comm::{collective, Comm, CommError, Rank};
use scr_plugin_api::KvTree;
use scr_prefix::rank2file::LeafLists;
use scr_prefix::{FileName, PrefixFile};

/// The list of this rank's files.
pub(super) fn of<'a>(copies: impl Iterator<Item = &'a FileCopy>) -> Vec<PrefixFile> {
    copies
        .map(|copy| PrefixFile {
            name: copy.file.name.clone(),
            bytes: Some(copy.file.bytes),
            crc: copy.crc.or(copy.file.crc),
        })
        .collect()
}

/// The lists of the ranks of a leaf, on the first of them, which writes it. All ranks call it.
pub(super) fn gather(
    comm: &dyn Comm,
    mine: &[PrefixFile],
    ranks_per_leaf: u32,
) -> Result<Option<LeafLists>, CommError> {
    let first = collective::leader_of(comm.rank(), ranks_per_leaf);
    let all = collective::gather_to_leaders(comm, ranks_per_leaf, to_tree(mine).pack())?;
    let by_rank = all.map(|all| unpack_all(first, all)).transpose()?;
    Ok(by_rank.map(|by_rank| LeafLists { first, ranks: comm.size(), by_rank }))
}

/// The lists of all ranks, on rank 0.
pub(super) fn gather_all(
    comm: &dyn Comm,
    mine: &[PrefixFile],
) -> Result<Option<Vec<Vec<PrefixFile>>>, CommError> {
    let all = collective::gather(comm, Rank(0), to_tree(mine).pack())?;
    all.map(|all| unpack_all(Rank(0), all)).transpose()
}

fn unpack_all(first: Rank, all: Vec<Vec<u8>>) -> Result<Vec<Vec<PrefixFile>>, CommError> {
    let unpack = |(rank, bytes): (u32, Vec<u8>)| {
        let list = KvTree::unpack(&bytes).ok().and_then(|tree| from_tree(&tree));
        list.ok_or(CommError::Malformed { from: Rank(rank), what: "a list of files" })
    };
    (first.0..).zip(all).map(unpack).collect()
}

/// To be sent.
pub(crate) fn to_tree(list: &[PrefixFile]) -> KvTree {
    let mut tree = KvTree::new();
    for (place, file) in list.iter().enumerate() {
        let entry = tree.child(place.to_string());
        entry.set_bytes("NAME", &file.name);
        entry.set_known("SIZE", file.bytes);
        entry.set_known("CRC", file.crc);
    }
    tree
}

/// As it came.
pub(crate) fn from_tree(tree: &KvTree) -> Option<Vec<PrefixFile>> {
    let file = |entry: &KvTree| {
        Some(PrefixFile {
            name: FileName::parse_listed(entry.value("NAME")?).ok()?,
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
        let file = |name: &str, bytes, crc| PrefixFile { name: name.parse().unwrap(), bytes, crc };
        let list =
            vec![file("z", Some(u64::MAX), Some(0)), file("a/b", None, None), file("\n", Some(0), None)];
        assert_eq!(from_tree(&to_tree(&list)), Some(list));
        assert_eq!(from_tree(&to_tree(&[])), Some(vec![]));
    }
}
