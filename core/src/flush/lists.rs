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

/// The lists of neighbouring ranks, such as those of a leaf, on the first of them. All ranks call it.
pub(super) fn gather(
    comm: &dyn Comm,
    mine: &[PrefixFile],
    many: u32,
) -> Result<Option<LeafLists>, CommError> {
    let first = collective::leader_of(comm.rank(), many);
    let Some(all) = collective::gather_to_leaders(comm, many, pack(&mine)?)? else { return Ok(None) };
    let lists = (first.0..).zip(all).map(|(rank, list)| unpack(Rank(rank), &list));
    Ok(Some(LeafLists { first, ranks: comm.size(), by_rank: lists.collect::<Result<_, _>>()? }))
}

/// More neighbours than a job has ranks: rank 0 gets all lists.
pub(super) const ALL: u32 = 1 << 31;
