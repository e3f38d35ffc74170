//! Looks at what is under way in a process, now and then: what hangs cannot say so itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Something under way.
pub(crate) trait Watched: Send + Sync {
    /// Called twice a second, in another thread.
    fn look(&self);
}

/// The thread that looks, one for all that shares it. It starts when there is something to look at, sleeps while there is nothing,
/// and ends with the last clone.
#[derive(Clone, Default)]
pub struct Watch(Arc<Watcher>);

#[derive(Default)]
struct Watcher {
    shared: Arc<Shared>,
    /// Without a thread nobody looks.
    thread: OnceLock<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    watched: Vec<Weak<dyn Watched>>,
    /// The thread waits until there is something to look at.
    is_asleep: bool,
    is_over: bool,
}

impl Watch {
    /// Looks at this while it exists. Only the first call starts a thread, and the others wake one at most.
    pub(crate) fn add(&self, watched: Weak<dyn Watched>) {
        let shared = &self.0.shared;
        self.0.thread.get_or_init(|| {
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name("scr-watch".to_owned()).stack_size(STACK);
            thread.spawn(move || shared.look_until_over()).ok()
        });
        let mut state = shared.state();
        state.watched.push(watched);
        if std::mem::take(&mut state.is_asleep) {
            shared.changed.notify_one();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_one();
        if let Some(Some(thread)) = self.thread.take() {
            // A panic of the thread has been reported, and nothing depends on it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_until_over(&self) {
        let mut state = self.state();
        while !state.is_over {
            if state.watched.is_empty() {
                state.is_asleep = true;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, TICK);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.watched.retain(|watched| watched.strong_count() > 0);
            let watched: Vec<_> = state.watched.iter().filter_map(Weak::upgrade).collect();
            // Who begins or ends something does not wait for those that look at files.
            drop(state);
            watched.iter().for_each(|watched| watched.look());
            drop(watched);
            state = self.state();
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
    use std::collections::HashSet;
    use std::thread::ThreadId;
    use std::time::Instant;

    /// The threads that have looked, and how often.
    #[derive(Default)]
    struct Looks(Mutex<Vec<ThreadId>>);

    impl Watched for Looks {
        fn look(&self) {
            self.0.lock().unwrap().push(std::thread::current().id());
        }
    }

    impl Looks {
        fn begin(watch: &Watch) -> Arc<Self> {
            let looks = Arc::new(Self::default());
            let watched = Arc::downgrade(&looks);
            watch.add(watched);
            looks
        }

        fn threads(&self) -> Vec<ThreadId> {
            self.0.lock().unwrap().clone()
        }
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(60), "it has not come so far");
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_thread_looks_at_all_that_is_under_way_and_sleeps_in_between() {
        let watch = Watch::default();
        let (outer, inner) = (Looks::begin(&watch), Looks::begin(&watch.clone()));
        wait_until(|| !outer.threads().is_empty() && !inner.threads().is_empty());
        drop((outer, inner));
        wait_until(|| watch.0.shared.state().is_asleep);
        let later = Looks::begin(&watch);
        assert!(!watch.0.shared.state().is_asleep);
        wait_until(|| later.threads().len() > 1);
        assert_eq!(later.threads().into_iter().collect::<HashSet<_>>().len(), 1);
    }

    #[test]
    fn the_thread_ends_with_the_last_clone_whether_it_looks_or_sleeps() {
        for sleeps in [false, true] {
            let watch = Watch::default();
            let mut looks = Some(Looks::begin(&watch));
            if sleeps {
                looks = None;
                wait_until(|| watch.0.shared.state().is_asleep);
            }
            let shared = Arc::downgrade(&watch.0.shared);
            drop(watch.clone());
            assert!(shared.strong_count() > 1, "another clone is left");
            drop(watch);
            assert_eq!(shared.strong_count(), 0);
            drop(looks);
        }
    }
}
