//! The one session of the process, and the one way into it.
//!
//! Every function of `scr.h` runs inside [`entry`]: it holds the lock, catches panics, prints a failure and turns
//! it into its number. See docs/user/c-api.md.

use crate::failure::{Code, Failure, SUCCESS};
use crate::message;
use crate::mpi_library;
use scr_comm::Comm;
use scr_config::param::AppConfig;
use scr_core::session::Session;
use scr_plugin_api::abi::panic_text;
use scr_plugin_api::{held, Call};
use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};

/// The state of the process. Between sessions it has what SCR_Config has set for the next one.
pub(crate) enum State {
    /// Before SCR_Init.
    NotStarted(AppConfig),
    /// After SCR_Init has failed, which may be called again: other calls fail, and no more is said about it.
    Refused(AppConfig),
    /// In a call that begins or ends a session, over a communicator on which other ranks may wait for this one. Then the state
    /// that follows, unless the session runs by then.
    Within(Rc<dyn Comm>, Box<State>),
    /// Between SCR_Init and SCR_Finalize. The settings stay for queries.
    Running(Box<Session>, AppConfig),
    /// After SCR_Init with `SCR_ENABLE=0`, which may be called again: other calls fail, and no more is said about it.
    Disabled(AppConfig),
    /// After SCR_Finalize, or after MPI_Finalize without it. SCR_Init begins another session with the first settings, and
    /// SCR_Recover with those of the session that has ended: on other ranks SCR_Finalize may have failed because one has died.
    Ended(AppConfig, AppConfig),
    /// A call panicked. The session is left as it is: no code that touches it can be trusted.
    Broken,
}

const STARTED_TWICE: &str =
    "the library is running already; a process has one session at a time, so call SCR_Finalize first";

impl State {
    /// The settings for the next session.
    pub(crate) fn settings(&mut self) -> Result<&mut AppConfig, Failure> {
        match self {
            State::NotStarted(config)
            | State::Refused(config)
            | State::Disabled(config)
            | State::Ended(config, _) => Ok(config),
            State::Running(..) => Err(Failure::Said(Code::State, STARTED_TWICE.to_owned())),
            State::Within(..) | State::Broken => Err(Failure::Broken),
        }
    }

    /// The settings for a session that takes the place of the one that there is, if there is one: the same as for that.
    pub(crate) fn settings_to_recover(&mut self) -> Result<AppConfig, Failure> {
        match self {
            State::Running(_, config) => Ok(config.clone()),
            State::Ended(next, last) if *next == AppConfig::default() => Ok(last.clone()),
            _ => self.settings().cloned(),
        }
    }

    /// Ends a session, if there is one, for another one over this communicator with these settings.
    pub(crate) fn make_way(&mut self, comm: Rc<dyn Comm>, config: &AppConfig) {
        self.leave();
        let next = match self {
            State::Broken => State::Broken,
            _ => State::Refused(config.clone()),
        };
        *self = State::Within(comm, Box::new(next));
    }

    /// Other ranks wait for this one no longer.
    fn leave(&self) {
        match self {
            State::Running(session, _) => session.leave(),
            State::Within(comm, _) => comm.abandon(),
            _ => (),
        }
    }

    /// The running session, for a call that may talk to other ranks.
    pub(crate) fn session(&mut self) -> Result<&mut Session, Failure> {
        if matches!(self, State::Running(..)) {
            mpi_library::require_thread()?;
        }
        self.local_session()
    }

    /// The running session, for a call that uses no MPI: any thread may make it.
    pub(crate) fn local_session(&mut self) -> Result<&mut Session, Failure> {
        match self {
            State::Running(session, _) => Ok(session),
            State::NotStarted(_) => Err(Failure::NotStarted),
            State::Refused(_) => Err(Failure::Refused),
            State::Disabled(_) => Err(Failure::Disabled),
            State::Ended(..) => Err(Failure::Ended),
            State::Within(..) | State::Broken => Err(Failure::Broken),
        }
    }

    /// Takes the session out, if there is one. Its settings end with it: the next one must not go back to a checkpoint, or begin
    /// in a prefix directory, that was named for this one.
    pub(crate) fn take_session(&mut self) -> Result<Session, Failure> {
        self.session()?;
        match std::mem::replace(self, State::Broken) {
            State::Running(session, config) => {
                let ended = State::Ended(AppConfig::default(), config);
                *self = State::Within(session.comm(), Box::new(ended));
                Ok(*session)
            }
            other => {
                *self = other;
                Err(Failure::Ended)
            }
        }
    }
}

/// Runs the body of a function of `scr.h` that returns a code.
pub(crate) fn entry(call: &'static str, body: impl FnOnce(&mut State) -> Result<(), Failure>) -> c_int {
    let _call = Call::begin();
    // A panic outside of `guarded` leaves no state half changed.
    let mut slot = held(&STATE);
    let outcome = guarded(&mut slot, body);
    drop(slot);
    code_of(call, outcome)
}

/// Runs `body` unless another call is under way: for what MPI calls on its own.
pub(crate) fn entry_if_free(call: &'static str, body: impl FnOnce(&mut State) -> Result<(), Failure>) {
    let _call = Call::begin();
    let mut slot = match STATE.try_lock() {
        Ok(slot) => slot,
        Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    code_of(call, guarded(&mut slot, body));
}

/// The number of an outcome; a failure is reported.
fn code_of(call: &'static str, outcome: Result<(), Failure>) -> c_int {
    let Err(failure) = outcome else { return SUCCESS };
    // A process that is ending has taken things down that the report may need. There is nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| report(call, &failure)));
    failure.code() as c_int
}

/// Prints a failure, once: of what all ranks share the first rank prints it, and what repeats itself is counted.
fn report(call: &'static str, failure: &Failure) {
    let text = message::failure_text(call, failure);
    let is_shared = failure.is_shared() || follows_shared_failure(call, failure);
    // SCR_Init has said once that SCR is disabled or has failed: an application that continues without it may call at every step.
    let is_said = match failure.deaths() {
        Some(dead) => message::is_first_but(dead) && !DEATHS_SAID.swap(true, Ordering::Relaxed),
        None => !is_shared || message::is_first_rank(),
    };
    if is_said && !matches!(failure, Failure::Disabled | Failure::Refused) {
        message::failed(&text);
    }
    message::keep_last_error(text);
}

/// Whether a call is illegal only because the phase that it belongs to could not be begun, on any rank. An application that looks
/// at no code makes such calls on every rank.
fn follows_shared_failure(call: &'static str, failure: &Failure) -> bool {
    if call.starts_with("SCR_Start_") {
        NOT_BEGUN.store(failure.is_shared() || failure.deaths().is_some(), Ordering::Relaxed);
        return false;
    }
    failure.code() == Code::State && NOT_BEGUN.load(Ordering::Relaxed)
}

/// Whether the last call that begins a phase has failed on all ranks.
static NOT_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether this rank has said that ranks have died: every call fails from then on.
static DEATHS_SAID: AtomicBool = AtomicBool::new(false);

/// Nothing that was said of an earlier session counts for one that begins.
pub(crate) fn forget_reports() {
    NOT_BEGUN.store(false, Ordering::Relaxed);
    DEATHS_SAID.store(false, Ordering::Relaxed);
    message::forget_session();
}

/// Runs `body`; a panic becomes an error and puts the session out of reach. If this rank alone has failed, in whatever state, the
/// others hear of it.
fn guarded<T>(slot: &mut Slot, body: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
    let state = slot.0.get_or_insert_with(|| State::NotStarted(AppConfig::default()));
    // After a panic nothing of the state is used but what tells the others.
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&mut *state))).unwrap_or_else(|panic| {
        Err(Failure::Panic { text: panic_text(&*panic).unwrap_or_else(|| "a panic".to_owned()) })
    });
    if outcome.as_ref().is_err_and(Failure::is_of_one) {
        let _ = catch_unwind(AssertUnwindSafe(|| state.leave()));
    }
    if let Err(Failure::Panic { .. }) = outcome {
        // Not dropped: dropping runs the very code that has just failed.
        std::mem::forget(std::mem::replace(state, State::Broken));
    } else if let State::Within(_, next) = state {
        *state = std::mem::replace(next, State::Broken);
    }
    outcome
}

/// The state; `None` until the first call.
struct Slot(Option<State>);

// SAFETY: a session is not `Send` since MPI and its own shared pointers are for one thread at a time. The slot is
// reached only under the lock, and nothing that a session owns leaves it, so there is one thread at a time.
unsafe impl Send for Slot {}

static STATE: Mutex<Slot> = Mutex::new(Slot(None));

#[cfg(test)]
mod tests {
    use super::*;
    use scr_comm::{CommError, Rank};
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_a_code_and_every_later_call_says_so() {
        let mut slot = Slot(None);
        let first = guarded(&mut slot, |_| -> Result<(), Failure> { panic!("boom {}", 1) });
        assert!(matches!(&first, Err(Failure::Panic { text }) if text == "boom 1"));
        code_of("SCR_Init", first);
        assert_eq!(last_error(), "SCR_Init: a defect of the library: boom 1; please report it");
        let later = guarded(&mut slot, |state| state.session().map(|_| ()));
        assert_eq!(later.unwrap_err().code(), Code::Internal);
    }

    #[test]
    fn who_is_left_is_told_to_recover() {
        let died = CommError::RanksDied { ranks: vec![Rank(2)] };
        assert_eq!(code_of("SCR_Drop", Err(died.into())), Code::Mpi as c_int);
        assert!(last_error().starts_with("SCR_Drop: rank 2 has died; call SCR_Recover with"));
    }

    fn last_error() -> String {
        // SAFETY: it is a string of C until this thread's next call fails.
        unsafe { CStr::from_ptr(message::SCR_Last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn calls_before_the_start_are_refused() {
        let mut slot = Slot(None);
        let early = guarded(&mut slot, |state| state.session().map(|_| ()));
        assert!(matches!(early, Err(Failure::NotStarted)));
    }
}
