//! What the C interface itself asks of MPI: whether it runs, and to be called when it ends.

use crate::failure::Failure;
use mpi::ffi;
use std::ffi::{c_int, c_void};

/// Fails unless MPI is between its start and its end.
pub(crate) fn require_running() -> Result<(), Failure> {
    match (started(), ended()) {
        (false, _) => Err(Failure::MpiNotStarted),
        (true, true) => Err(Failure::MpiEnded),
        (true, false) => Ok(()),
    }
}

/// This process's rank in `MPI_COMM_WORLD`, while MPI runs.
pub(crate) fn world_rank() -> Option<c_int> {
    require_running().ok()?;
    let mut rank = 0;
    // SAFETY: MPI runs, and the rank has room.
    let code = unsafe { ffi::MPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &raw mut rank) };
    (code == SUCCESS).then_some(rank)
}

/// From now on MPI_Finalize calls `last_call` first, while MPI can still be used.
///
/// Standard section: 11.2.4 (MPI 4.0), attributes of `MPI_COMM_SELF` are deleted before all else.
pub(crate) fn at_finalize(last_call: DeleteFunction) -> Result<(), Failure> {
    let mut key = 0;
    // SAFETY: MPI runs (the only caller has made a communicator); both functions are of the type asked for.
    let code = unsafe {
        ffi::MPI_Comm_create_keyval(Some(not_copied), Some(last_call), &raw mut key, std::ptr::null_mut())
    };
    checked("MPI_Comm_create_keyval", code)?;
    // SAFETY: the key was just made; the value is never looked at.
    let code = unsafe { ffi::MPI_Comm_set_attr(ffi::RSMPI_COMM_SELF, key, std::ptr::null_mut()) };
    checked("MPI_Comm_set_attr", code)?;
    // SAFETY: the attribute keeps the key alive until it is deleted.
    checked("MPI_Comm_free_keyval", unsafe { ffi::MPI_Comm_free_keyval(&raw mut key) })
}

/// Ends MPI, for the one case in which the library ends the process: the user asked for it.
pub(crate) fn finalize() {
    if require_running().is_ok() {
        // SAFETY: MPI runs. Its answer does not matter, the process ends.
        unsafe { ffi::MPI_Finalize() };
    }
}

/// What MPI calls when it deletes an attribute.
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

fn started() -> bool {
    let mut flag = 0;
    // SAFETY: may be called at any time; the flag has room.
    unsafe { ffi::MPI_Initialized(&raw mut flag) };
    flag != 0
}

fn ended() -> bool {
    let mut flag = 0;
    // SAFETY: may be called at any time; the flag has room.
    unsafe { ffi::MPI_Finalized(&raw mut flag) };
    flag != 0
}

fn checked(call: &'static str, code: c_int) -> Result<(), Failure> {
    if code == SUCCESS {
        Ok(())
    } else {
        Err(Failure::MpiCall { call, code })
    }
}
