//! The datasets to try, which rank 0 reads from the index for all ranks.

use super::FetchError;
use scr_base::describe;
use scr_base::fs::Files;
use scr_comm::collective::broadcast_tree;
use scr_comm::{Comm, CommError, Rank};
use scr_plugin_api::KvTree;
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
    let mut tree = KvTree::new();
    if comm.rank() == Rank(0) {
        match LedgerDir::new(files, prefix).index() {
            Ok(index) => tree = in_order(&index, wanted).to_tree(),
            Err(error) => {
                tree.set("ERROR", describe(&error));
                tree.set("DAMAGED", u8::from(error.is_damage()));
            }
        }
    }
    let tree = broadcast_tree(comm, Rank(0), &tree)?;
    match tree.text("ERROR") {
        Some(error) => {
            Err(FetchError::Index { why: error.to_owned(), is_damaged: tree.text("DAMAGED") == Some("1") })
        }
        None => Candidates::from_tree(&tree)
            .ok_or_else(|| CommError::Malformed { from: Rank(0), what: "a list of datasets" }.into()),
    }
}
