//! The functions of `scr.h`, one by one, in its order. See docs/user/c-api.md.
//!
//! A collective call with a wrong argument still takes part: the session refuses it on all ranks, and no rank waits for one that
//! has returned already.
#![allow(non_snake_case)] // The names are those of scr.h.

use crate::failure::{Code, Failure, MAX_FILENAME};
use crate::message;
use crate::mpi_library;
use crate::place::environment;
use crate::shutdown;
use crate::state::{entry, forget_reports, State};
use crate::text::{self, Text};
use scr_base::ensure;
use scr_base::env::Env;
use scr_comm::collective::{agree, barrier};
use scr_comm::{Comm, Rank};
use scr_config::param::AppConfig;
use scr_core::session::{Error as SessionError, LateRanks, OutputFlags, Session};
use scr_mpi::MpiComm;
use std::ffi::{c_char, c_int, CStr};
use std::rc::Rc;

const FLAG_CHECKPOINT: c_int = 1;
const FLAG_OUTPUT: c_int = 2;

/// Starts the library for all processes.
#[no_mangle]
pub extern "C" fn SCR_Init() -> c_int {
    start("SCR_Init", Session::init, mpi_library::world)
}

/// Starts the library for the processes of a communicator.
#[no_mangle]
pub extern "C" fn SCR_Init_comm(comm: mpi::ffi::MPI_Comm) -> c_int {
    start("SCR_Init_comm", Session::init, || comm)
}

/// [`SCR_Init_comm`] with a handle as Fortran has it, for the interfaces for other languages.
#[no_mangle]
pub extern "C" fn scr_init_comm_of_fortran(comm: c_int) -> c_int {
    start("SCR_Init_comm", Session::init, || mpi_library::of_fortran(comm))
}

/// Starts the library anew after ranks have died.
#[no_mangle]
pub extern "C" fn SCR_Recover(newcomm: mpi::ffi::MPI_Comm) -> c_int {
    start(RECOVER, Session::recover, || newcomm)
}

/// [`SCR_Recover`] with a handle as Fortran has it, for the interfaces for other languages.
#[no_mangle]
pub extern "C" fn scr_recover_of_fortran(newcomm: c_int) -> c_int {
    start(RECOVER, Session::recover, || mpi_library::of_fortran(newcomm))
}

/// Refuses the variable of Fortran for the answer of a call, which is too short, for the interface for that language.
///
/// # Safety
/// `call` points to a null-terminated string that stays.
#[no_mangle]
pub unsafe extern "C" fn scr_refuse_short(call: *const c_char, needed: usize, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    let call = unsafe { CStr::from_ptr(call) }.to_str().unwrap_or_default();
    let text = format!(
        "the answer has {needed} characters and the variable for it {length}; declare it as CHARACTER(LEN=SCR_MAX_FILENAME)"
    );
    entry(call, |_| Err(Failure::Said(Code::Argument, text)))
}

const RECOVER: &str = "SCR_Recover";

/// How a session begins.
type Begin = fn(Rc<dyn Comm>, Env, &AppConfig) -> Result<Session, SessionError>;

/// `comm` is called while MPI runs. To recover, a session that there is makes way once all ranks have come: so it stays where
/// they do not, and nothing of it is left anywhere when the new one looks at what the old ones have left.
fn start(call: &'static str, begin: Begin, comm: impl Fn() -> mpi::ffi::MPI_Comm) -> c_int {
    let (mut refused, mut by_all) = (false, false);
    let code = entry(call, |state| {
        let config = match call {
            RECOVER => state.settings_to_recover(),
            _ => state.settings().cloned(),
        };
        let (config, refusal) = match config {
            Err(failure @ Failure::Broken) => (AppConfig::default(), Some(failure)),
            other => (other?, None),
        };
        forget_reports();
        mpi_library::require_running()?;
        mpi_library::require_thread()?;
        // One rank alone must not turn back: the others would wait for it.
        let env = refusal.map_or_else(environment, Err);
        let env = env.map_err(|failure| scr_base::describe(&failure));
        let duplicate: Rc<dyn Comm> = Rc::new(meet(call, comm(), env.as_ref().ok(), &config)?);
        state.make_way(Rc::clone(&duplicate), &config);
        let env = agree(&*duplicate, env)?;
        message::speak_as(duplicate.rank().0, env.variable("SCR_NODE_NAME").unwrap_or(&env.host));
        let session = match begin(duplicate, env, &config) {
            Err(SessionError::Disabled) => return disable(state, config),
            Err(error) => {
                let failure = Failure::from(error);
                (refused, by_all) = (true, failure.is_shared());
                return Err(failure);
            }
            Ok(session) => session,
        };
        *state = State::Running(Box::new(session), config);
        mpi_library::at_finalize(shutdown::mpi_ends)
    });
    shutdown::exit_if_wanted(call);
    if refused && message::is_first_rank() {
        message::warn(&format!(
            "{call} has failed: until it is called again and succeeds, every call fails and nothing is saved"
        ));
    }
    if by_all {
        wait_for_the_first_rank(comm());
    }
    code
}

/// A duplicate of a communicator. While this rank waits for the others, it names those that do not come.
fn meet(
    call: &'static str,
    parent: mpi::ffi::MPI_Comm,
    env: Option<&Env>,
    config: &AppConfig,
) -> Result<MpiComm, Failure> {
    let mut late = None;
    let duplicate = mpi_library::duplicate_of(parent, &mut || {
        let (Some(env), Some((rank, size))) = (env, mpi_library::rank_and_size(parent)) else { return };
        let late = late.get_or_insert_with(|| LateRanks::begin(call, env, config, Rank(rank), size));
        late.look().iter().for_each(|text| message::warn(text));
    })?;
    late.into_iter().for_each(LateRanks::end);
    Ok(duplicate)
}

/// An application that aborts ends all ranks, and the first one has to print the reason before.
fn wait_for_the_first_rank(comm: mpi::ffi::MPI_Comm) {
    if let Ok(comm) = mpi_library::duplicate_of(comm, &mut || ()) {
        // Without it the message may be lost, and nothing else.
        let _ = barrier(&comm);
    }
}

fn disable(state: &mut State, config: AppConfig) -> Result<(), Failure> {
    *state = State::Disabled(config);
    if message::is_first_rank() {
        message::note("SCR is disabled by SCR_ENABLE=0: every call to it fails from here on; SCR_PASS_THROUGH=1 lets them succeed");
    }
    Err(Failure::Disabled)
}

/// Shuts it down.
#[no_mangle]
pub extern "C" fn SCR_Finalize() -> c_int {
    entry("SCR_Finalize", |state| {
        // Refused within a phase, and the session continues: the dataset under way can still be completed.
        state.session()?.expect_idle("SCR_Finalize")?;
        message::count_repeated();
        Ok(state.take_session()?.finalize()?)
    })
}

/// Gives the path of a file.
///
/// # Safety
/// `name` is NULL or a string of C; `file` is NULL or has `SCR_MAX_FILENAME` bytes.
#[no_mangle]
pub unsafe extern "C" fn SCR_Route_file(name: *const c_char, file: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text::read_name(name) };
    entry("SCR_Route_file", |state| {
        let session = match state.local_session() {
            Ok(session) => session,
            Err(failure) => {
                // An application that looks at no code continues as without SCR, at the path that it named; but not where it
                // does not know what there is to restart from, and would write over that.
                let named = name.required("name", MAX_FILENAME).ok();
                let named = named.filter(|_| matches!(failure, Failure::Disabled | Failure::Ended));
                // SAFETY: the caller's promise.
                unsafe { text::write_name(file, named.unwrap_or_default(), "file") }?;
                return Err(failure);
            }
        };
        // SAFETY: the caller's promise.
        let routed = unsafe { route_file(session, &name, file) };
        if let Err(failure) = &routed {
            session.record_unrouted(name.printable(), failure.to_string());
            // An application that looks at no code opens nothing then, and not the file of an older checkpoint.
            if !file.is_null() {
                // SAFETY: the caller's promise.
                unsafe { *file = 0 };
            }
        }
        routed
    })
}

/// # Safety
/// As for [`SCR_Route_file`].
unsafe fn route_file(session: &mut Session, name: &Text, file: *mut c_char) -> Result<(), Failure> {
    let name = name.required("name", MAX_FILENAME)?;
    ensure(!file.is_null(), || Failure::null("file", "SCR_MAX_FILENAME bytes"))?;
    // If the folder has gone, as with a file system that was unmounted, names start at its last place.
    if let Ok(here) = std::env::current_dir() {
        session.work_in(here);
    }
    let path = session.route_file(name)?;
    // SAFETY: the caller's promise.
    unsafe { text::write_name(file, &path, "file") }
}

/// Whether it is time for a checkpoint.
///
/// # Safety
/// `flag` is NULL or points to an int.
#[no_mangle]
pub unsafe extern "C" fn SCR_Need_checkpoint(flag: *mut c_int) -> c_int {
    entry("SCR_Need_checkpoint", |state| {
        let needed = state.session().and_then(|session| Ok(session.need_checkpoint()?));
        // SAFETY: the caller's promise.
        unsafe { text::write_flag(flag, needed) }
    })
}

/// Begins a dataset.
///
/// # Safety
/// `name` is NULL or a string of C.
#[no_mangle]
pub unsafe extern "C" fn SCR_Start_output(name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text::read_name(name) };
    entry("SCR_Start_output", |state| start_output(state, name, flags))
}

fn start_output(state: &mut State, name: Text, flags: c_int) -> Result<(), Failure> {
    let session = state.session()?;
    if flags & !(FLAG_CHECKPOINT | FLAG_OUTPUT) != 0 {
        refuse(session)?;
        let text = format!("flags {flags:#x} are not known; combine SCR_FLAG_CHECKPOINT and SCR_FLAG_OUTPUT");
        return Err(Failure::Said(Code::Argument, text));
    }
    let flags = OutputFlags { checkpoint: flags & FLAG_CHECKPOINT != 0, output: flags & FLAG_OUTPUT != 0 };
    match name {
        Text::Null => Ok(session.start_output(None, flags)?),
        Text::Bytes(name) => Ok(session.start_output(Some(&name), flags)?),
        Text::Endless(_) => {
            refuse(session)?;
            Err(Failure::too_long("name", MAX_FILENAME - 1))
        }
    }
}

/// Takes part in a start that this rank cannot go along with. No dataset has an empty name, so that it fails on all
/// ranks; what this rank gets to hear is its own mistake, or that a start is not legal now.
fn refuse(session: &mut Session) -> Result<(), Failure> {
    session.expect_idle("SCR_Start_output")?;
    // It fails, which is what it is called for.
    let _ = session.start_output(Some(b""), OutputFlags::default());
    Ok(())
}

/// Ends a dataset.
#[no_mangle]
pub extern "C" fn SCR_Complete_output(valid: c_int) -> c_int {
    complete_output("SCR_Complete_output", valid)
}

fn complete_output(call: &'static str, valid: c_int) -> c_int {
    let code = entry(call, |state| Ok(state.session()?.complete_output(valid != 0)?));
    shutdown::exit_if_wanted(call);
    code
}

/// Begins a checkpoint without a name.
#[no_mangle]
pub extern "C" fn SCR_Start_checkpoint() -> c_int {
    entry("SCR_Start_checkpoint", |state| start_output(state, Text::Null, FLAG_CHECKPOINT))
}

/// Ends a checkpoint.
#[no_mangle]
pub extern "C" fn SCR_Complete_checkpoint(valid: c_int) -> c_int {
    complete_output("SCR_Complete_checkpoint", valid)
}

/// Whether there is a checkpoint to restart from.
///
/// # Safety
/// `flag` is NULL or points to an int; `name` is NULL or has `SCR_MAX_FILENAME` bytes.
#[no_mangle]
pub unsafe extern "C" fn SCR_Have_restart(flag: *mut c_int, name: *mut c_char) -> c_int {
    entry("SCR_Have_restart", |state| {
        let found = state.session().and_then(|session| Ok(session.have_restart()?));
        // SAFETY: the caller's promise.
        let write = |found: &[u8]| unsafe { text::write_name(name, found, "name") };
        let there =
            found.and_then(|found| write(found.as_deref().unwrap_or_default()).map(|()| found.is_some()));
        // SAFETY: the caller's promise.
        unsafe { text::write_flag(flag, there) }
    })
}

/// Begins a restart.
///
/// # Safety
/// `name` is NULL or has `SCR_MAX_FILENAME` bytes.
#[no_mangle]
pub unsafe extern "C" fn SCR_Start_restart(name: *mut c_char) -> c_int {
    entry("SCR_Start_restart", |state| {
        let loaded = state.session()?.start_restart()?;
        // SAFETY: the caller's promise.
        unsafe { text::write_name(name, &loaded, "name") }
    })
}

/// Ends a restart.
#[no_mangle]
pub extern "C" fn SCR_Complete_restart(valid: c_int) -> c_int {
    entry("SCR_Complete_restart", |state| Ok(state.session()?.complete_restart(valid != 0)?))
}

/// Records which checkpoint the application restarted from by itself.
///
/// # Safety
/// `name` is NULL or a string of C.
#[no_mangle]
pub unsafe extern "C" fn SCR_Current(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text::read_name(name) };
    entry("SCR_Current", |state| of_dataset(state, &name, Session::current))
}

/// Forgets a dataset.
///
/// # Safety
/// `name` is NULL or a string of C.
#[no_mangle]
pub unsafe extern "C" fn SCR_Drop(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text::read_name(name) };
    entry("SCR_Drop", |state| of_dataset(state, &name, Session::drop_dataset))
}

/// Deletes a dataset.
///
/// # Safety
/// `name` is NULL or a string of C.
#[no_mangle]
pub unsafe extern "C" fn SCR_Delete(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text::read_name(name) };
    entry("SCR_Delete", |state| of_dataset(state, &name, Session::delete))
}

/// Calls `work` with the name, and with the empty name, which no dataset has, where this rank has none to give.
fn of_dataset(
    state: &mut State,
    name: &Text,
    work: fn(&mut Session, &[u8]) -> Result<(), SessionError>,
) -> Result<(), Failure> {
    let session = state.session()?;
    let name = name.required("name", MAX_FILENAME);
    let outcome = work(session, name.as_ref().copied().unwrap_or_default());
    name?;
    Ok(outcome?)
}

/// The version of the library. May be called at any time.
#[no_mangle]
pub extern "C" fn SCR_Get_version() -> *mut c_char {
    // The caller may not write to it; that it is not `const` in C is history.
    VERSION.as_ptr().cast_mut().cast()
}

const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"), "\0");

/// Whether the application should stop.
///
/// # Safety
/// `flag` is NULL or points to an int.
#[no_mangle]
pub unsafe extern "C" fn SCR_Should_exit(flag: *mut c_int) -> c_int {
    entry("SCR_Should_exit", |state| {
        let stop = state.session().and_then(|session| Ok(session.should_exit()?));
        // SAFETY: the caller's promise.
        unsafe { text::write_flag(flag, stop) }
    })
}
