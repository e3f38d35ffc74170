//! Calls to MPI by the C interface itself: whether MPI runs, communicators of the application, and a callback for MPI's end.

use crate::failure::{Code, Failure};
use mpi::ffi;
use scr_base::ensure;
pub(crate) use scr_mpi::world;
use scr_mpi::{has_begun, has_ended, library, MpiComm};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Fails unless MPI is between its start and its end, and is the kind of MPI that this library was built with.
pub(crate) fn require_running() -> Result<(), Failure> {
    match (has_begun(), has_ended()) {
        (false, _) => Err(mpi("MPI is not running; call MPI_Init first")),
        (true, true) => Err(mpi("MPI_Finalize was called already; call this before it")),
        (true, false) => require_same_mpi(),
    }
}

/// A communicator is a pointer under Open MPI and an integer under MPICH: with the wrong one, the first call would crash.
fn require_same_mpi() -> Result<(), Failure> {
    let running = library();
    // SAFETY: a function of this library without arguments.
    let built_with_open_mpi = unsafe { scr_built_with_open_mpi() } != 0;
    if built_with_open_mpi == running.is_open_mpi {
        return Ok(());
    }
    let built = if built_with_open_mpi {
        "Open MPI"
    } else {
        "MPICH or an MPI derived from it (Intel MPI, MVAPICH, Cray MPICH)"
    };
    Err(mpi(format!(
        "libscr was built with {built}, and this program runs under another MPI, `{}'; link the libscr of that MPI",
        running.name
    )))
}

fn mpi(text: impl Into<String>) -> Failure {
    Failure::Said(Code::Mpi, text.into())
}

/// Fails while MPI runs and this thread must not call it.
pub(crate) fn require_thread() -> Result<(), Failure> {
    let forbidden = "this thread must not call MPI, and so not SCR; call from the thread of MPI_Init, or ask MPI_Init_thread for \
                     MPI_THREAD_SERIALIZED";
    ensure(require_running().is_err() || thread_may_call(), || mpi(forbidden))
}

/// Whether this thread may call MPI: any thread where the application has asked MPI for that, else the one of `MPI_Init`.
fn thread_may_call() -> bool {
    let (mut level, mut main) = (0, 0);
    // SAFETY: a constant of the library.
    let serialized = unsafe { ffi::RSMPI_THREAD_SERIALIZED };
    // SAFETY: MPI runs, as callers have made sure; both answers have room.
    let codes = unsafe { [ffi::MPI_Query_thread(&raw mut level), ffi::MPI_Is_thread_main(&raw mut main)] };
    codes == [SUCCESS; 2] && (main != 0 || level >= serialized)
}

extern "C" {
    fn scr_built_with_open_mpi() -> c_int;
    fn scr_comm_of_fortran(comm: c_int) -> ffi::MPI_Comm;
}

/// The communicator of a handle as Fortran has it. MPI runs.
pub(crate) fn of_fortran(comm: c_int) -> ffi::MPI_Comm {
    // SAFETY: takes a number, and looks it up.
    unsafe { scr_comm_of_fortran(comm) }
}

/// A duplicate of a communicator of the application; while it waits for other ranks it calls `look`.
pub(crate) fn duplicate_of(comm: ffi::MPI_Comm, look: &mut dyn FnMut()) -> Result<MpiComm, Failure> {
    // SAFETY: the application has given a communicator; a handle that is none is a fault that MPI itself cannot find either.
    Ok(unsafe { MpiComm::duplicate_of(comm, look) }?)
}

/// This process's rank in `MPI_COMM_WORLD`, while MPI runs and this thread may ask it.
pub(crate) fn world_rank() -> Option<u32> {
    require_running().and_then(|()| require_thread()).ok()?;
    rank_and_size(world()).map(|(rank, _)| rank)
}

/// The rank of this process in a communicator, and how many ranks that has. MPI runs, and this thread may call it.
pub(crate) fn rank_and_size(comm: ffi::MPI_Comm) -> Option<(u32, u32)> {
    // SAFETY: as callers have made sure; as for [`duplicate_of`].
    unsafe { scr_mpi::rank_and_size(comm) }
}

/// From now on MPI_Finalize calls `last_call` first, while MPI can still be used. Once is enough for all sessions.
///
/// Standard section: 11.2.4 (MPI 4.0), attributes of `MPI_COMM_SELF` are deleted before all else.
pub(crate) fn at_finalize(last_call: DeleteFunction) -> Result<(), Failure> {
    static IS_SET: AtomicBool = AtomicBool::new(false);
    if IS_SET.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut key = 0;
    // SAFETY: MPI runs (the only caller has made a communicator); both functions are of the type asked for.
    let code = unsafe {
        ffi::MPI_Comm_create_keyval(Some(not_copied), Some(last_call), &raw mut key, std::ptr::null_mut())
    };
    checked("MPI_Comm_create_keyval", code)?;
    // SAFETY: the key was just made; the value is never read.
    let code = unsafe { ffi::MPI_Comm_set_attr(ffi::RSMPI_COMM_SELF, key, std::ptr::null_mut()) };
    checked("MPI_Comm_set_attr", code)?;
    // SAFETY: the attribute keeps the key alive until it is deleted.
    checked("MPI_Comm_free_keyval", unsafe { ffi::MPI_Comm_free_keyval(&raw mut key) })?;
    IS_SET.store(true, Ordering::Relaxed);
    Ok(())
}

/// Ends MPI, for the one case in which the library ends the process: the user asked for it.
pub(crate) fn finalize() {
    if require_running().is_ok() {
        // SAFETY: MPI runs. Its answer does not matter, the process ends.
        unsafe { ffi::MPI_Finalize() };
    }
}

/// The callback for a deleted attribute.
pub(crate) type DeleteFunction =
    unsafe extern "C" fn(ffi::MPI_Comm, c_int, *mut c_void, *mut c_void) -> c_int;

/// `MPI_SUCCESS`, which the standard fixes at 0.
pub(crate) const SUCCESS: c_int = 0;

/// The attribute belongs to `MPI_COMM_SELF` alone: its copies do not have it.
unsafe extern "C" fn not_copied(
    _: ffi::MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    copied: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes an int for the answer.
    unsafe { copied.write(0) };
    SUCCESS
}

fn checked(call: &'static str, code: c_int) -> Result<(), Failure> {
    ensure(code == SUCCESS, || mpi(format!("{call} failed with code {code}")))
}
