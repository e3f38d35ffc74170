//! One rank's part of an asynchronous flush, on a thread of its own: the announcement, the copy, and the look at what came.
//!
//! What waits for a disk waits there, and not in the application. The order is that of every flush: no rank makes a file before rank 0
//! has the flush on record, synced. Threads know nothing of MPI, so that they tell each other by [`Signs`] below the prefix directory;
//! where all ranks happen to be in a call, they are told there as well.
//!
//! Errors wait until all ranks ask together. As soon as one has failed, the others are told to give up, so that nobody waits for a sign that
//! never comes.

use super::ledger::Ledger;
use super::movers::{self, Mover};
use super::pending::Pending;
use super::turns::Signs;
use super::{make_folders, Options, Step};
use crate::describe;
use crate::fs::Files;
use crate::prefix::{Prefix, PrefixFile};
use rustix::process::setpriority_process;
use scr_plugin_api::Transport;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What a rank's part needs: all its own, for a thread to have it.
pub(crate) struct Task {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) prefix: Prefix,
    pub(crate) options: Options,
    pub(crate) rank: u32,
    pub(crate) record: Pending,
    pub(crate) movers: Vec<Mover>,
    /// The folders that this rank makes.
    pub(crate) folders: Vec<PathBuf>,
    /// The files of all ranks, on rank 0.
    pub(crate) lists: Option<Vec<Vec<PrefixFile>>>,
    /// Whether any rank's file replaces one that was there before.
    pub(crate) may_replace: bool,
}

/// A rank's part, to be begun or under way.
pub(crate) struct Background {
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    state: State,
}

enum State {
    Ready(Box<Task>),
    Running(JoinHandle<Ended>),
    /// No thread could be had.
    Refused(String),
    Over,
}

/// How a rank's part has ended.
pub(crate) struct Ended {
    pub(crate) record: Pending,
    pub(crate) movers: Vec<Mover>,
    /// What the transport gave, where it was asked.
    pub(crate) ticket: Option<Vec<u8>>,
    pub(crate) outcome: Result<(), Failure>,
}

/// Why a rank's part has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    At(Step, String),
    /// Another rank's has, or nobody waits for it any more.
    GivenUp,
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
struct Shared(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// This rank's part of the announcement is done.
    announced: bool,
    /// All ranks' parts are.
    all_announced: bool,
    given_up: bool,
    failed: bool,
    ticket: Option<Vec<u8>>,
}

impl Background {
    pub(crate) fn new(task: Task) -> Self {
        let transport = Arc::clone(&task.transport);
        Self { shared: Arc::default(), transport, state: State::Ready(Box::new(task)) }
    }

    /// Begins, unless that was done.
    pub(crate) fn set_off(&mut self) {
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
            Courier { task: *task, shared: Arc::clone(&shared) }.run()
        });
        self.state = match thread {
            Ok(thread) => State::Running(thread),
            Err(error) => State::Refused(format!("no thread could be started: {error}")),
        };
    }

    pub(crate) fn progress(&self) -> Progress {
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
    pub(crate) fn go(&self) {
        self.shared.lock().all_announced = true;
    }

    /// Returns when this rank changes nothing any more below the prefix directory but its own hidden files.
    pub(crate) fn wait_until_announced(&self, files: &dyn Files) {
        let State::Running(thread) = &self.state else { return };
        while !self.shared.lock().announced && !thread.is_finished() {
            files.pause(LEAST_PAUSE);
        }
    }

    /// Lets the thread end soon.
    pub(crate) fn give_up(&self) {
        let ticket = {
            let mut told = self.shared.lock();
            told.given_up = true;
            told.ticket.clone()
        };
        // One that has ended stays as it is, and what cannot be stopped is waited for.
        ticket.map(|ticket| self.transport.cancel(&ticket));
    }

    /// Waits for the thread. Nothing is known where it has never been one.
    pub(crate) fn join(&mut self) -> Result<Ended, Failure> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Running(thread) => thread.join().map_err(|_| {
                let text = "the thread of the flush panicked, which is an error in this library";
                Failure::At(Step::Copying, text.to_owned())
            }),
            State::Refused(why) => Err(Failure::At(Step::Copying, why)),
            State::Ready(_) | State::Over => Err(Failure::GivenUp),
        }
    }
}

impl Drop for Background {
    /// No thread writes below the prefix directory when nobody knows of it any more.
    fn drop(&mut self) {
        if matches!(self.state, State::Running(_)) {
            self.give_up();
            let _ = self.join();
        }
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Told> {
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

/// Does a rank's part.
struct Courier {
    task: Task,
    shared: Arc<Shared>,
}

impl Courier {
    fn run(mut self) -> Ended {
        // The application comes first wherever both want a processor; the transport's threads are made by this one, and are alike.
        let _ = setpriority_process(None, NICE);
        let outcome = self.announce().and_then(|()| self.copy());
        if matches!(outcome, Err(Failure::At(..))) {
            self.shared.lock().failed = true;
        }
        let ticket = self.shared.lock().ticket.take();
        Ended { record: self.task.record, movers: self.task.movers, ticket, outcome }
    }

    /// Step 1, as far as it is this rank's.
    fn announce(&mut self) -> Result<(), Failure> {
        let signs = self.signs();
        let Task { files, prefix, folders, lists, options, record, may_replace, .. } = &mut self.task;
        make_folders(&**files, folders).map_err(|why| Failure::At(Step::Folders, why))?;
        if let Some(lists) = lists.take() {
            let ledger = Ledger { files: &**files, prefix };
            let recorded = ledger.announce(record, &lists, options.in_place, *may_replace);
            let told = recorded.map_err(|error| describe(&error));
            told.and_then(|()| signs.begin(&**files).map_err(|error| describe(&error)))
                .map_err(|why| Failure::At(Step::Recording, why))?;
        }
        self.shared.lock().announced = true;
        Ok(())
    }

    /// Step 2, when it is this rank's turn.
    fn copy(&mut self) -> Result<(), Failure> {
        let failed = |why: String| Failure::At(Step::Copying, why);
        let signs = self.signs();
        self.wait_for(&signs.awaited(), signs.is_first())?;
        for mover in &self.task.movers {
            self.wait_for(mover.target.parent().unwrap_or(&mover.target), true)?;
        }
        let Task { files, transport, options, rank, record, movers, .. } = &mut self.task;
        signs.take(&**files);
        let token = format!("{}.{rank}", record.token);
        let ticket = movers::start(&**files, &**transport, movers, token, options)
            .map_err(|error| failed(error.to_string()))?;
        let given_up = {
            let mut told = self.shared.lock();
            told.ticket = Some(ticket.clone());
            told.given_up
        };
        if given_up {
            let _ = transport.cancel(&ticket);
            return Err(Failure::GivenUp);
        }
        let arrived = movers::finish(&**files, &**transport, movers, &ticket, options);
        arrived.map_err(|error| failed(error.to_string()))?;
        signs.pass(&**files).map_err(|error| failed(describe(&error)))
    }

    /// Until something is there. What all have announced needs no sign.
    fn wait_for(&self, path: &Path, by_call: bool) -> Result<(), Failure> {
        let mut pause = LEAST_PAUSE;
        loop {
            match *self.shared.lock() {
                Told { given_up: true, .. } => return Err(Failure::GivenUp),
                Told { all_announced: true, .. } if by_call => return Ok(()),
                _ => (),
            }
            match self.task.files.status(path) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => self.task.files.pause(pause),
                Err(error) => {
                    let why = format!("cannot look at {}: {error}", path.display());
                    return Err(Failure::At(Step::Copying, why));
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn signs(&self) -> Signs {
        let Task { prefix, record, rank, options, .. } = &self.task;
        Signs::new(prefix, &record.token, *rank, record.ranks, options.width)
    }
}

/// Between two looks for a sign: from here, twice as long each time, to there. Thousands of ranks may be looking.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Of the thread: a third of the weight of the application's own where both want a processor. With much less, an application that computes without
/// end, or waits for messages in a loop, would keep its flush from going on.
const NICE: i32 = 5;
