//! Work for several threads.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

/// Starts a thread that continues while the application does. It takes no signals: those of the process are for threads of the
/// application, which may block one at any time.
///
/// # Errors
/// The system gives no thread.
pub fn start<T: Send + 'static>(
    thread: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread begins with the mask of the one that starts it.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = thread.spawn(work);
    mask.thread_set_mask()?;
    started
}

/// Does the work for each item in a thread of its own, all at the same time, and gives the results in the order of the items. The
/// threads take no signals, as those of [`start`].
///
/// # Errors
/// The system gives no thread. Those that have begun have ended.
pub fn each<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> io::Result<Vec<R>> {
    std::thread::scope(|scope| {
        let work = &work;
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let spawn = |item| Builder::new().spawn_scoped(scope, move || work(item));
        let started: io::Result<Vec<_>> = items.into_iter().map(spawn).collect();
        mask.thread_set_mask()?;
        // A panic of a thread continues in the caller.
        let end = |thread: std::thread::ScopedJoinHandle<'_, R>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        Ok(started?.into_iter().map(end).collect())
    })
}

/// Does the work for each item, for `width` of them at a time, and gives the results in the order of the items.
pub fn at_a_time<T: Sync, R: Send>(width: u32, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
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
        // A panic of a thread continues in the caller.
        let theirs =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        all.extend(theirs.flatten());
        all
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;

    #[test]
    fn a_thread_takes_no_signal_and_who_starts_it_takes_those_that_it_did_before() {
        let mut before = SigSet::empty();
        before.add(Signal::SIGUSR2);
        before.thread_set_mask().unwrap();
        let mask = || SigSet::thread_get_mask().unwrap();
        let of_thread = start(Builder::new(), mask).unwrap().join().unwrap();
        for signal in [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2] {
            assert!(of_thread.contains(signal), "{signal}");
        }
        assert_eq!(mask(), before);
    }
}
