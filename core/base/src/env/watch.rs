//! Polls the calls under way in a process: a call that hangs cannot report it itself.

use crate::parallel;
use scr_plugin_api::held;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

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
pub struct Watch(Arc<Watcher>);

#[derive(Default)]
struct Watcher {
    shared: Arc<Shared>,
    started: OnceLock<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<WatchState>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchState {
    watched: Vec<Arc<dyn Watched>>,
    /// The thread waits until there is something to poll.
    is_asleep: bool,
    is_over: bool,
}

impl Watch {
    /// Polls this until it is over. Only the first call starts a thread; the others at most wake it.
    pub fn add(&self, watched: Arc<dyn Watched>) {
        let shared = &self.0.shared;
        self.0.started.get_or_init(|| {
            let shared = Arc::clone(shared);
            let thread = Builder::new().name("scr-watch".to_owned()).stack_size(STACK);
            // Without a thread nothing is polled.
            let _ = parallel::start(thread, move || shared.poll_until_over());
        });
        let mut state = held(&shared.state);
        state.watched.push(watched);
        if std::mem::take(&mut state.is_asleep) {
            shared.changed.notify_one();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        held(&self.shared.state).is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn poll_until_over(&self) {
        let mut is_last = false;
        while !is_last {
            let mut state = held(&self.state);
            while state.watched.is_empty() && !state.is_over {
                state.is_asleep = true;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let waited = self.changed.wait_timeout_while(state, TICK, |state| !state.is_over);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            is_last = state.is_over;
            let mut watched = std::mem::take(&mut state.watched);
            // Polls may block on files; code that begins or ends a call must not wait for them.
            drop(state);
            watched.retain(|watched| watched.poll() == WatchStatus::UnderWay);
            held(&self.state).watched.append(&mut watched);
        }
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
    }

    #[test]
    fn one_thread_looks_at_all_that_is_under_way_and_sleeps_in_between() {
        let watch = Watch::default();
        let (outer, inner) = (Polled::begin(&watch), Polled::begin(&watch.clone()));
        wait_until(|| !outer.threads().is_empty() && !inner.threads().is_empty());
        outer.end();
        inner.end();
        wait_until(|| held(&watch.0.shared.state).is_asleep);
        let later = Polled::begin(&watch);
        assert!(!held(&watch.0.shared.state).is_asleep);
        wait_until(|| later.threads().len() > 1);
        assert_eq!(later.threads().into_iter().collect::<HashSet<_>>().len(), 1);
    }

    #[test]
    fn the_thread_ends_with_the_last_clone_whether_it_looks_or_sleeps() {
        for sleeps in [false, true] {
            let watch = Watch::default();
            let polled = Polled::begin(&watch);
            if sleeps {
                polled.end();
                wait_until(|| held(&watch.0.shared.state).is_asleep);
            }
            let shared = Arc::downgrade(&watch.0.shared);
            drop(watch.clone());
            assert!(shared.strong_count() > 1, "another clone is left");
            drop(watch);
            wait_until(|| shared.strong_count() == 0);
            assert!(!polled.threads().is_empty());
        }
    }
}
