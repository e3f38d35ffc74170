//! The datasets to try, which rank 0 reads from the index for all ranks.

use super::FetchError;
use crate::typed::broadcast_value;
use scr_base::describe;
use scr_base::fs::Files;
use scr_comm::{Comm, Rank};
use scr_prefix::ledger::{in_order, Candidates, LedgerDir};
use scr_prefix::Prefix;

/// Reads the index on rank 0, and gives all ranks the datasets to try. `wanted` is the name in `SCR_CURRENT`.
///
/// # Errors
/// The index is damaged or cannot be read, or the ranks could not talk.
pub(crate) fn candidates(
    comm: &dyn Comm,
    files: &dyn Files,
    prefix: &Prefix,
    wanted: Option<&[u8]>,
) -> Result<Candidates, FetchError> {
    let read = || {
        let index = LedgerDir::new(files, prefix).index();
        index.map(|index| in_order(&index, wanted)).map_err(|error| (describe(&error), error.is_damage()))
    };
    let read = broadcast_value(comm, (comm.rank() == Rank(0)).then(read))?;
    read.map_err(|(why, is_damaged): (String, bool)| FetchError::Index { why, is_damaged })
}
