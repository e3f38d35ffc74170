//! What only the commands do to datasets, without a job and without MPI. See docs/user/save-a-dead-job.md.
//!
//! | part | what it is |
//! |---|---|
//! | `holdings` | the datasets, as far as they are known without a job |
//! | `saving` | which datasets `scr postrun` saves, and which would be lost with a cache directory |
//! | `dropping` | takes a dataset out of the index |
//! | `deleting` | the same, with its files |
//! | `error` | why a command has not done what it was asked for |
//! | `extract` | writes files out of their containers |
//! | `import` | files that were not written through scr become a dataset |
//! | `inspect` | which datasets in the caches of the nodes can be made whole |
//! | [`scrub`] | compares what is stored with its checksums |

#![allow(
    missing_docs,
    reason = "only crates of scr call this one: a name that says everything needs no sentence"
)]
// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod deleting;
mod dropping;
mod error;
mod extract;
mod holdings;
mod import;
mod inspect;

mod saving;
pub mod scrub;
#[cfg(test)]
mod tests;

pub use deleting::delete_dataset;
pub use dropping::{drop_dataset, drop_later, Dropped};
pub use error::OpsError;
pub use extract::{extract, Extracted};
pub use holdings::{holdings, of_another, Copy, Found, Held};
pub use import::{Import, Imported};
pub use inspect::{inspect, Inspected, Inventory};

pub use saving::{is_list_lost, may_lack_entries, unsaved, Plan, Saving};

/// How much of a file is read at a time.
const BLOCK_BYTES: u64 = 1 << 20;
