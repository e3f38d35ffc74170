//! `rank2file` and `rank2file.<level>.<rank>`: which rank wrote which files of a dataset.
//!
//! ```text
//! rank2file        RANKS/<n>  LEVEL/<l>  RANK/<first rank of a part>/{FILE/.<l-1>.<that rank>, OFFSET/0}
//! rank2file.0.<r>  RANKS/<n>  LEVEL/0    RANK/<rank>/FILE/<name below the prefix>/{SIZE/<bytes>, CRC/<0x...>}
//! ```
//!
//! The parts are a tree of uniform depth, so that no rank of a large run reads or writes much. A part is named after its first
//! rank, which reads it. C SCR reads the parts this way too, with one reader of every level at rank 0. C SCR writes neither
//! `SIZE` nor `CRC`, and ignores ours.

mod read;
mod write;

pub use read::{leaves, lists_in, of_rank, parts_in, ranks, Leaf, LeafMessage};
pub(crate) use write::write_maps;
pub use write::FAN_OUT;

use super::{FileName, FileNameFault, Prefix, PrefixError, Summary, MAX_NAME_BYTES};
use scr_base::fs::verify::{open_whole, FileError};
use scr_base::fs::Files;
use scr_base::parallel::at_a_time;
use scr_comm::Rank;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A file of a dataset, as it lies below the prefix directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixFile {
    /// Its name.
    pub name: FileName,
    /// Its length, where it was recorded.
    pub bytes: Option<u64>,
    /// Its CRC32, where it was recorded.
    pub crc: Option<u32>,
}

impl From<&FileName> for PrefixFile {
    fn from(name: &FileName) -> Self {
        Self { name: name.clone(), bytes: None, crc: None }
    }
}

/// The files of every rank. Two ranks may share a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank2File {
    by_rank: Vec<Vec<PrefixFile>>,
}

/// The files of some neighbouring ranks, which are in one leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafLists {
    /// The first of them, which the leaf is named after.
    pub first: Rank,
    /// Number of ranks of the run.
    pub ranks: u32,
    /// Their files, in the order of the ranks.
    pub by_rank: Vec<Vec<PrefixFile>>,
}

impl Rank2File {
    /// The files of every rank, in the order of the ranks.
    pub fn new(by_rank: Vec<Vec<PrefixFile>>) -> Self {
        Self { by_rank }
    }

    /// Reads all parts.
    ///
    /// # Errors
    /// A part is missing or damaged, the parts do not fit together, or a rank is missing.
    pub fn read(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Self, PrefixError> {
        read::read(files, prefix, id)
    }

    /// Writes all parts, and syncs them. The dataset's folder must be there.
    ///
    /// # Errors
    /// A name is not allowed, before anything is written, or a part cannot be written.
    pub fn write(&self, files: &dyn Files, prefix: &Prefix, id: u64) -> Result<(), PrefixError> {
        write::write(files, prefix, id, &self.by_rank, write::FAN_OUT)
    }

    /// Why a dataset that counts as complete is not whole in place, if its summary, its lists or a file are missing, or a file has another
    /// length. The index does not say so: anybody may have removed files since. No byte is read.
    ///
    /// # Errors
    /// The lists that are there cannot be looked at.
    pub fn loss(files: &dyn Files, prefix: &Prefix, id: u64) -> Result<Option<String>, PrefixError> {
        let lists = match Summary::require(files, prefix, id).and_then(|_| Self::read(files, prefix, id)) {
            Err(error) if error.is_damage() => return Ok(Some(scr_base::describe(&error))),
            lists => lists?,
        };
        let all: BTreeMap<_, _> =
            lists.by_rank.iter().flatten().map(|file| (&file.name, file.bytes)).collect();
        let all: Vec<_> = all.into_iter().collect();
        let look = |&(name, bytes): &(&FileName, Option<u64>)| {
            open_whole(files, &prefix.file(name), bytes).map(drop)
        };
        for looked in at_a_time(LOOKS_AT_A_TIME, &all, look) {
            match looked {
                Ok(()) => {}
                Err(FileError::Fs(error)) => return Err(error.into()),
                Err(error) => return Ok(Some(scr_base::describe(&error))),
            }
        }
        Ok(None)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.by_rank.len()
    }

    /// The files of one rank; none for a rank that the run did not have.
    pub fn of(&self, rank: Rank) -> &[PrefixFile] {
        self.by_rank.get(rank.index()).map_or(&[], Vec::as_slice)
    }

    /// The files of every rank, in the order of the ranks.
    pub fn by_rank(&self) -> &[Vec<PrefixFile>] {
        &self.by_rank
    }

    /// Number of files; one that is shared counts for every rank, as in the dataset's `FILES`.
    pub fn files(&self) -> usize {
        self.by_rank.iter().map(Vec::len).sum()
    }

    /// Bytes in all files, where all lengths were recorded.
    pub fn bytes(&self) -> Option<u64> {
        self.by_rank.iter().flatten().try_fold(0_u64, |sum, file| sum.checked_add(file.bytes?))
    }
}

/// More at a time from each of many nodes make a file system no faster.
const LOOKS_AT_A_TIME: u32 = 8;

/// The lists of files do not fit together.
pub fn fault(path: &Path, mut reason: String) -> PrefixError {
    reason.insert_str(0, "cannot be used: ");
    PrefixError::unusable(path, reason)
}

/// Checks that a name refers to one file only.
/// The fault of lists that lack ranks.
pub fn ranks_missing(missing: u32, ranks: u32, first: Rank) -> String {
    format!("{missing} of {ranks} ranks are not listed, the first is rank {first}")
}

/// The fault of lists that have a rank twice.
pub fn rank_twice(rank: Rank) -> String {
    format!("rank {rank} is listed twice")
}

fn other_ranks(found: u32, expected: u32) -> String {
    format!("it was written by {found} ranks where {expected} are expected")
}

#[derive(Default)]
struct Names {
    seen: HashMap<FileName, (Rank, Option<u64>, Option<u32>)>,
}

impl Names {
    fn add(&mut self, rank: Rank, file: &PrefixFile) -> Result<(), String> {
        match self.seen.insert(file.name.clone(), (rank, file.bytes, file.crc)) {
            // An application may write one file from all ranks, but no rank has it twice.
            Some((first, bytes, crc)) if first == rank || (bytes, crc) != (file.bytes, file.crc) => {
                Err(format!(
                    "the file `{}' is listed for rank {first} and for rank {rank}, not with the same size and checksum",
                    file.name
                ))
            }
            _ => Ok(()),
        }
    }
}

/// A name that a list has for a rank, in whichever form.
fn listed_name(rank: Rank, name: &[u8]) -> Result<FileName, String> {
    FileName::parse_listed(name).or_else(|_| FileName::shortened(name)).map_err(|error| match error.fault {
        FileNameFault::TooLong => format!(
            "rank {rank} has a file with a name of {} bytes, and {MAX_NAME_BYTES} are allowed: `{}'",
            name.len(),
            error.name
        ),
        _ => format!(
            "rank {rank} has the file `{}', which is not a path below the prefix directory",
            error.name
        ),
    })
}

#[cfg(test)]
mod tests;
