//! Work for several threads.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does the work for each item, for `width` of them at a time, and gives the results in the order of the items.
pub(crate) fn at_a_time<T: Sync, R: Send>(width: u32, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
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
