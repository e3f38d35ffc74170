//! A rank's list of files, as a message between ranks.

use super::file_copy::FileCopy;
use crate::typed::{pack, unpack};
use scr_comm::{collective, Comm, CommError, Rank};
use scr_prefix::rank2file::LeafLists;
use scr_prefix::PrefixFile;

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
    let all = collective::gather_to_leaders(comm, ranks_per_leaf, pack(&mine)?)?;
    let by_rank = all.map(|all| unpack_all(first, all)).transpose()?;
    Ok(by_rank.map(|by_rank| LeafLists { first, ranks: comm.size(), by_rank }))
}

/// The lists of all ranks, on rank 0.
pub(super) fn gather_all(
    comm: &dyn Comm,
    mine: &[PrefixFile],
) -> Result<Option<Vec<Vec<PrefixFile>>>, CommError> {
    let all = collective::gather(comm, Rank(0), pack(&mine)?)?;
    all.map(|all| unpack_all(Rank(0), all)).transpose()
}

fn unpack_all(first: Rank, all: Vec<Vec<u8>>) -> Result<Vec<Vec<PrefixFile>>, CommError> {
    (first.0..).zip(all).map(|(rank, list)| unpack(Rank(rank), &list)).collect()
}
