//! Polls the calls under way in a process: a call that hangs cannot report it itself.

use crate::parallel;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Something under way.
pub trait Watched: Send + Sync {
    /// Called twice a second, in another thread, until it returns `Over`, and a last time when the watch ends.
    fn poll(&self) -> WatchStatus;
}

/// Whether to continue polling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStatus {
    UnderWay,
    Over,
}

/// The thread that polls, one for all clones. It starts when there is something to poll, sleeps while there is nothing, and ends
/// after the last clone is dropped. No thread waits for it: it may be blocked in a file system that does not answer.
#[derive(Clone, Default)]
pub struct Watch(Arc<OnceLock<Sender<Arc<dyn Watched>>>>);

impl Watch {
    /// Polls this until it is over. Only the first call starts a thread; the others at most wake it.
    pub fn add(&self, watched: Arc<dyn Watched>) {
        let added = self.0.get_or_init(|| {
            let (added, to_poll) = channel();
            let thread = Builder::new().name("scr-watch".to_owned()).stack_size(STACK);
            // Without a thread nothing is polled.
            let _ = parallel::start(thread, move || poll_until_over(&to_poll));
            added
        });
        let _ = added.send(watched);
    }
}

/// Code that begins or ends a call only sends, and never waits for a poll, which may block on files.
#[expect(clippy::disallowed_methods, reason = "calls hang in real time")]
fn poll_until_over(added: &Receiver<Arc<dyn Watched>>) {
    let mut watched = Vec::new();
    let mut is_last = false;
    while !is_last {
        if watched.is_empty() {
            let Ok(first) = added.recv() else { return };
            watched.push(first);
        }
        let due = Instant::now() + TICK;
        is_last = loop {
            match added.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(next) => watched.push(next),
                Err(no_more) => break no_more == RecvTimeoutError::Disconnected,
            }
        };
        watched.retain(|watched| watched.poll() == WatchStatus::UnderWay);
    }
}

/// How often the thread looks.
const TICK: Duration = Duration::from_millis(500);
/// It reads a folder and prints a line.
const STACK: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::descriptors::wait_until;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Mutex;
    use std::thread::ThreadId;

    /// The threads that have polled, once for each poll.
    #[derive(Default)]
    struct Polled {
        threads: Mutex<Vec<ThreadId>>,
        is_over: AtomicBool,
    }

    impl Watched for Polled {
        fn poll(&self) -> WatchStatus {
            self.threads.lock().unwrap().push(std::thread::current().id());
            match self.is_over.load(Ordering::Relaxed) {
                true => WatchStatus::Over,
                false => WatchStatus::UnderWay,
            }
        }
    }

    impl Polled {
        fn begin(watch: &Watch) -> Arc<Self> {
            let polled = Arc::new(Self::default());
            watch.add(Arc::<Self>::clone(&polled));
            polled
        }

        fn end(&self) {
            self.is_over.store(true, Ordering::Relaxed);
        }

        fn threads(&self) -> Vec<ThreadId> {
            self.threads.lock().unwrap().clone()
        }

        /// Whether the thread has none of it left, as when it has ended.
        fn is_forgotten(self: &Arc<Self>) -> bool {
            Arc::strong_count(self) == 1
        }
    }

    #[test]
    fn one_thread_looks_at_all_that_is_under_way_and_sleeps_in_between() {
        let watch = Watch::default();
        let (outer, inner) = (Polled::begin(&watch), Polled::begin(&watch.clone()));
        wait_until(|| !outer.threads().is_empty() && !inner.threads().is_empty());
        outer.end();
        inner.end();
        wait_until(|| outer.is_forgotten() && inner.is_forgotten());
        let later = Polled::begin(&watch);
        wait_until(|| later.threads().len() > 1);
        let threads = outer.threads().into_iter().chain(later.threads());
        assert_eq!(threads.collect::<HashSet<_>>().len(), 1);
    }

    #[test]
    fn the_thread_ends_with_the_last_clone_and_has_looked_a_last_time() {
        let watch = Watch::default();
        let polled = Polled::begin(&watch);
        drop(watch.clone());
        wait_until(|| polled.threads().len() > 1);
        assert!(!polled.is_forgotten(), "another clone is left");
        let last = Polled::begin(&watch);
        drop(watch);
        wait_until(|| polled.is_forgotten() && last.is_forgotten());
        assert_eq!(last.threads().len(), 1);
    }
}
