//! Scavenge: saves datasets that a job has left in the caches of its nodes to the prefix directory, rebuilds lost parts there,
//! and lists them, without the job and without MPI. See docs/user/save-a-dead-job.md.
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
//! | `relist` | adds a whole dataset to an index that has lost it |
//! | `build` | completes a dataset and lists it in the index |

mod build;
pub mod copy;
pub mod filemap;
mod place;
mod relist;
mod repair;
pub mod scan;

pub use build::{BuildError, Builder, Built, Outcome};
pub use copy::{Copied, CopiedPart, Copier};
pub(crate) use place::hidden;
