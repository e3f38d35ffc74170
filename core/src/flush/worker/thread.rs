//! The thread of an asynchronous flush, as the application sees it: started, polled, cancelled, waited for.

use super::flags::SharedFlags;
use super::task::{Task, TaskEnd};
use crate::flush::step::StepError;
use scr_base::fs::{Files, LEAST_PAUSE};
use scr_base::parallel;
use scr_plugin_api::{held, Transport};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// A rank's part of a flush, to be started or under way.
pub(in crate::flush) struct RunningWorker {
    flags: SharedFlags,
    transport: Arc<dyn Transport>,
    state: WorkerState,
}

enum WorkerState {
    Ready(Box<Task>),
    Running(JoinHandle<TaskEnd>),
    /// No thread could be had.
    Refused(StepError),
    Joined,
}

impl RunningWorker {
    pub(super) fn new(task: Task) -> Self {
        let transport = Arc::clone(&task.transport);
        Self { flags: SharedFlags::default(), transport, state: WorkerState::Ready(Box::new(task)) }
    }

    /// Starts the thread, unless that was done.
    pub(in crate::flush) fn start(&mut self) {
        let task = match std::mem::replace(&mut self.state, WorkerState::Joined) {
            WorkerState::Ready(task) => task,
            started => {
                self.state = started;
                return;
            }
        };
        let flags = self.flags.clone();
        let thread = parallel::start(Builder::new().name("scr-flush".to_owned()), move || {
            let _flags = PanicIsFailure(&flags);
            task.run(&flags)
        });
        self.state = match thread {
            Ok(thread) => WorkerState::Running(thread),
            Err(error) => {
                WorkerState::Refused(StepError::Other(format!("no thread could be started: {error}")))
            }
        };
    }

    /// Whether this rank's part still runs, has failed, and has yet to record.
    pub(in crate::flush) fn progress(&self) -> (bool, bool, bool) {
        let flags = held(&self.flags);
        let running = match &self.state {
            WorkerState::Ready(_) => true,
            WorkerState::Running(thread) => !thread.is_finished(),
            WorkerState::Refused(_) | WorkerState::Joined => false,
        };
        let refused = matches!(self.state, WorkerState::Refused(_));
        (running, flags.failed || refused, !flags.recorded)
    }

    /// All ranks have recorded what is theirs to record.
    pub(in crate::flush) fn all_have_recorded(&self) {
        held(&self.flags).all_recorded = true;
    }

    /// Returns when this rank changes nothing any more below the prefix directory but its own staging files.
    pub(in crate::flush) fn wait_until_recorded(&self, files: &dyn Files) {
        let WorkerState::Running(thread) = &self.state else { return };
        while !held(&self.flags).recorded && !thread.is_finished() {
            files.pause(LEAST_PAUSE);
        }
    }

    /// Lets the thread end soon.
    pub(super) fn cancel(&self) {
        let ticket = {
            let mut flags = held(&self.flags);
            flags.cancelled = true;
            flags.ticket.clone()
        };
        // One that has ended stays as it is, and what cannot be stopped is waited for.
        ticket.map(|ticket| self.transport.cancel(&ticket));
    }

    /// The transport's ticket.
    pub(super) fn ticket(&self) -> Option<Vec<u8>> {
        held(&self.flags).ticket.clone()
    }

    /// Waits for the thread.
    pub(super) fn join(&mut self) -> Result<TaskEnd, StepError> {
        match std::mem::replace(&mut self.state, WorkerState::Joined) {
            WorkerState::Running(thread) => thread.join().map_err(|_| {
                let why = "the thread of the flush panicked, which is an error in this library";
                StepError::Other(why.to_owned())
            }),
            WorkerState::Refused(error) => Err(error),
            WorkerState::Ready(_) | WorkerState::Joined => Err(StepError::Cancelled),
        }
    }
}

impl Drop for RunningWorker {
    /// No thread may write below the prefix directory after its owner is gone.
    fn drop(&mut self) {
        if matches!(self.state, WorkerState::Running(_)) {
            self.cancel();
            let _ = self.join();
        }
    }
}

/// A thread that panics must leave no other thread waiting for it.
struct PanicIsFailure<'a>(&'a SharedFlags);

impl Drop for PanicIsFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            held(self.0).failed = true;
        }
    }
}
