//! Scavenge: saves datasets that a job has left in the caches of its nodes to the prefix directory, rebuilds lost parts there,
//! and lists them, without the job and without MPI. See the user guide's sections "Fetch, flush, and scavenge" and "Manage
//! datasets".
//!
//! [`Copier`] runs on each node and copies the parts of a dataset in its cache. [`Builder`] runs once, anywhere: ranks are
//! threads, and the same code as in a job rebuilds lost parts. A dataset is listed as complete only if every byte of every rank
//! matches its record. After a crash at any moment, the build can be repeated.
//!
//! | part | what it is |
//! |---|---|
//! | `filemap` | `<rank>.scrfilemap`: the record of a rank's part |
//! | `place` | the paths of scavenged files |
//! | `copy` | from the cache of a node to the prefix directory |
//! | `scan` | combines the filemaps of a dataset |
//! | `repair` | lost parts are rebuilt by threads |
//! | `build` | completes a dataset and lists it in the index |
//! | `saving` | which datasets `scr postrun` saves, and which it leaves |
//! | `unsaved` | which datasets would be lost with a cache directory |
//! | `dropping` | takes a dataset out of the index |
//! | `deleting` | the same, with its files |
//! | `extract` | writes files out of their containers |
//! | `import` | files that were not written through scr become a dataset |
//! | `inspect` | which datasets in the caches of the nodes can be made whole |
//! | `relist` | adds a whole dataset to an index that has lost it |

mod build;
mod copy;
mod deleting;
mod dropping;
mod extract;
pub(crate) mod filemap;
mod import;
mod inspect;
mod place;
mod relist;
mod repair;
mod saving;
mod scan;
mod unsaved;

pub use build::{BuildError, Builder, Built, Outcome};
pub use copy::{Copied, CopiedPart, Copier};
pub use deleting::{delete_dataset, DeleteError, Deleted};
pub use dropping::{drop_dataset, drop_later, Dropped};
pub use extract::{extract, ExtractError, Extracted};
pub use import::{Import, ImportError, Imported};
pub use inspect::{inspect, Inspected, Inventory};
pub use saving::{Fate, JobEnd, Saving, Why};
pub use unsaved::{add_unlisted, unsaved, Unsaved};
