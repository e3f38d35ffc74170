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
//! | `relist` | a dataset that is whole comes back into an index that has lost it |

mod build;
mod copy;
mod filemap;
mod place;
mod relist;
mod repair;
mod scan;
mod unsaved;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use build::{BuildError, Builder, Built, Outcome};
pub use copy::{Copied, CopiedPart, Copier};
pub use unsaved::{unsaved, Unsaved};

/// Does the work for each item, for so many at a time. What comes of them is in their order.
fn at_a_time<T: Sync, R: Send>(width: u32, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some((at, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((at, work(item)));
        }
        done
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..width).zip(items.iter().skip(1)).map(|_| scope.spawn(worker)).collect();
        let mut all = worker();
        // A panic of a thread goes on in the caller.
        let theirs =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        all.extend(theirs.flatten());
        all
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, done)| done).collect()
}
