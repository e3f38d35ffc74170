//! Scavenge: what a job has left in the caches of its nodes is saved to the prefix directory, made whole there and listed, with
//! neither the job nor MPI. See the user guide's sections "Fetch, flush, and scavenge" and "Manage datasets".
//!
//! [`Copier`] runs on each node and copies what its cache has of a dataset. [`Builder`] runs once, anywhere: ranks are threads,
//! and what is lost is rebuilt by the very code that rebuilds it in a job. A dataset is listed as complete only when
//! every byte of every rank is what was recorded; a crash at any moment leaves something that can be built again.
//!
//! | part | what it is |
//! |---|---|
//! | `filemap` | `<rank>.scrfilemap`: what is known of a rank's part |
//! | `place` | where scavenged files lie |
//! | `copy` | from the cache of a node to the prefix directory |
//! | `scan` | what the filemaps of a dataset say together |
//! | `repair` | lost parts are rebuilt by threads |
//! | `build` | a dataset becomes complete, in the index too |
//! | `unsaved` | which datasets would be lost with a cache directory |
//! | `import` | files that were not written through scr become a dataset |
//! | `inspect` | which datasets in the caches of the nodes can be made whole |
//! | `relist` | a dataset that is whole comes back into an index that has lost it |

mod build;
mod copy;
pub(crate) mod filemap;
mod import;
mod inspect;
mod place;
mod relist;
mod repair;
mod scan;
mod unsaved;

pub use build::{BuildError, Builder, Built, Outcome};
pub use copy::{Copied, CopiedPart, Copier};
pub use import::{Import, ImportError, Imported};
pub use inspect::{inspect, Inspected, Inventory};
pub use unsaved::{unsaved, Unsaved};
