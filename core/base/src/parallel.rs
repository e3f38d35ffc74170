//! Work for several threads.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Starts a thread that continues while the application does. It takes no signals: those of the process are for threads of the
/// application, which may block one at any time.
///
/// # Errors
/// The system gives no thread.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn start<T: Send + 'static>(
    thread: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    without_signals(|| thread.spawn(work))
}

/// Starts a thread that ends before the scope does. It takes no signals, as those of [`start`].
///
/// # Errors
/// The system gives no thread.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn beside<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    without_signals(|| Builder::new().spawn_scoped(scope, work))
}

/// A thread begins with the mask of the one that starts it.
fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = start();
    mask.thread_set_mask()?;
    started
}

/// Does the work for each item in a thread of its own, all at the same time, and gives the results in the order of the items.
///
/// # Errors
/// The system gives no thread. Those that have begun have ended.
pub fn each<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> io::Result<Vec<R>> {
    std::thread::scope(|scope| {
        let work = &work;
        let started: io::Result<Vec<_>> =
            items.into_iter().map(|item| beside(scope, move || work(item))).collect();
        Ok(started?.into_iter().map(end).collect())
    })
}

/// Does the work for each item, for `width` of them at a time, or for fewer if the system gives no more threads, and gives the
/// results in the order of the items.
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
        let others = (1..width).zip(items.iter().skip(1));
        let others: Vec<_> = others.map_while(|_| beside(scope, worker).ok()).collect();
        let mut all = worker();
        all.extend(others.into_iter().flat_map(end));
        all
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, done)| done).collect()
}

/// The result of a thread. A panic of it continues in the caller.
fn end<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
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
