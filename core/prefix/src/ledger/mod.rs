//! The ledger: the life of every dataset under a prefix directory is one value, and one function changes it.
//!
//! [`Ledger`] is that value: what `index.scr` and `ids.scr` say. `decide` is that function. It is pure: it gets the ledger, a
//! `Request` and `Facts` about the world beside the two files, and gives the `Event`s to record, or a reason against them.
//! `Ledger::apply` makes an event part of the value. A flush, a fetch or a deletion moves bytes and names, and asks here.
//!
//! | part | responsibility |
//! |---|---|
//! | `request` | what can be asked for, what can happen, and why it may not |
//! | `decide` | the function |
//! | `candidates` | which datasets a fetch tries, and in which order |
//! | `ending` | the machine: what a process does next that ends a flush |
//! | `steps` | in which order a flush is closed, and datasets leave |
//! | `doubt` | which files may have been written over, and what proves the others |
//! | `state` | the value, and how an event changes it |
//! | `life` | who gives files the names of a dataset, and what becomes of it |
//! | `facts` | what the function knows about the world |
//! | `dir` | the two files: the only code that reads and writes them, under the one lock |
//! | `pending` | the record of a flush under way |
//! | `window` | which checkpoints `SCR_PREFIX_SIZE` has deleted |
//! | `heal` | a new index in the place of a damaged one |
//! | `tests/world` | the small world in which the ten promises are checked for every interleaving |

mod candidates;
mod decide;
mod dir;
mod doubt;
mod ending;
mod facts;
mod heal;
mod life;
pub mod pending;
mod request;
mod state;
mod steps;
#[cfg(test)]
mod tests;
mod window;

pub use candidates::{in_order, is_suspect, output, Candidate, Candidates};
pub(crate) use decide::decide;
pub use decide::{left, listed};
pub use dir::LedgerDir;
pub use dir::{Committed, RecordedLists, Turn};
pub use doubt::{has_newer, is_recorded, Doubts, Proof};
pub use ending::{Do, Ended, Found, Wish};
pub use facts::{CommonFiles, Facts, Recorded};
pub use life::{By, Life};
pub use request::{Dropping, Event, MakeCurrent, Refusal, Request, Verdict, Whose};
pub use state::Ledger;
pub use steps::{Close, Leave};
pub use window::beyond_window;

use scr_base::fs::FsError;
use std::path::Path;

/// Whether the lock is still that of this process, or was broken, since it seemed dead.
pub type Fence<'a> = &'a dyn Fn() -> bool;

/// Fails where a process with the lock has lost it: whoever has it by now may be changing the same.
pub fn expect_lock(fence: Option<Fence<'_>>, to_change: &Path) -> Result<(), FsError> {
    match fence.is_some_and(|is_ours| !is_ours()) {
        true => Err(FsError::lock_lost(to_change)),
        false => Ok(()),
    }
}

/// A process that closes the flush of a job.
#[derive(Clone, Copy)]
pub struct Closer<'a> {
    /// Its random number.
    pub number: &'a str,
    pub has_lock: Fence<'a>,
}
