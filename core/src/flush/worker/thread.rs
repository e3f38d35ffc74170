//! The thread of an asynchronous flush, as the application sees it: begun, looked at, told to give up, waited for.

use super::copy::{Failure, FlushOutcome, Task, Worker};
use super::LEAST_PAUSE;
use crate::flush::steps::Step;
use crate::fs::Files;
use scr_plugin_api::Transport;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// A rank's part, to be begun or under way.
pub(in crate::flush) struct RunningWorker {
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    state: State,
}

enum State {
    Ready(Box<Task>),
    Running(JoinHandle<FlushOutcome>),
    /// No thread could be had.
    Refused(String),
    Over,
}

/// How far a rank's part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) running: bool,
    pub(crate) announced: bool,
    pub(crate) failed: bool,
}

/// What the thread and the application tell each other.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Flags>);

#[derive(Debug, Default)]
pub(super) struct Flags {
    /// This rank's part of the announcement is done.
    pub(super) announced: bool,
    /// All ranks' parts are.
    pub(super) all_announced: bool,
    pub(super) cancelled: bool,
    pub(super) failed: bool,
    pub(super) ticket: Option<Vec<u8>>,
}

impl RunningWorker {
    pub(super) fn new(task: Task) -> Self {
        let transport = Arc::clone(&task.transport);
        Self { shared: Arc::default(), transport, state: State::Ready(Box::new(task)) }
    }

    /// Begins, unless that was done.
    pub(in crate::flush) fn start_copying(&mut self) {
        let task = match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(task) => task,
            begun => {
                self.state = begun;
                return;
            }
        };
        let shared = Arc::clone(&self.shared);
        let thread = Builder::new().name("scr-flush".to_owned()).spawn(move || {
            let _told = PanicIsFailure(&shared);
            Worker { task: *task, shared: Arc::clone(&shared) }.run()
        });
        self.state = match thread {
            Ok(thread) => State::Running(thread),
            Err(error) => State::Refused(format!("no thread could be started: {error}")),
        };
    }

    pub(super) fn progress(&self) -> Progress {
        let told = self.shared.lock();
        let running = match &self.state {
            State::Ready(_) => true,
            State::Running(thread) => !thread.is_finished(),
            State::Refused(_) | State::Over => false,
        };
        let refused = matches!(self.state, State::Refused(_));
        Progress { running, announced: told.announced, failed: told.failed || refused }
    }

    /// All ranks have done their part of the announcement.
    pub(super) fn go(&self) {
        self.shared.lock().all_announced = true;
    }

    /// Returns when this rank changes nothing any more below the prefix directory but its own hidden files.
    pub(in crate::flush) fn wait_until_recorded(&self, files: &dyn Files) {
        let State::Running(thread) = &self.state else { return };
        while !self.shared.lock().announced && !thread.is_finished() {
            files.pause(LEAST_PAUSE);
        }
    }

    /// Lets the thread end soon.
    pub(super) fn cancel(&self) {
        let ticket = {
            let mut told = self.shared.lock();
            told.cancelled = true;
            told.ticket.clone()
        };
        // One that has ended stays as it is, and what cannot be stopped is waited for.
        ticket.map(|ticket| self.transport.cancel(&ticket));
    }

    /// Waits for the thread. Nothing is known where it has never been one.
    pub(super) fn join(&mut self) -> Result<FlushOutcome, Failure> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Running(thread) => thread.join().map_err(|_| {
                let text = "the thread of the flush panicked, which is an error in this library";
                Failure::At(Step::Copying, text.to_owned())
            }),
            State::Refused(why) => Err(Failure::At(Step::Copying, why)),
            State::Ready(_) | State::Over => Err(Failure::Cancelled),
        }
    }
}

impl Drop for RunningWorker {
    /// No thread writes below the prefix directory when nobody knows of it any more.
    fn drop(&mut self) {
        if matches!(self.state, State::Running(_)) {
            self.cancel();
            let _ = self.join();
        }
    }
}

impl std::fmt::Debug for RunningWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningWorker").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Flags> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody waits for what a thread that panics would have done.
struct PanicIsFailure<'a>(&'a Shared);

impl Drop for PanicIsFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().failed = true;
        }
    }
}
