//! The two ways out of a session that are not SCR_Finalize: the user's request to stop, and MPI_Finalize.

use crate::message;
use crate::mpi_library::{self, SUCCESS};
use crate::state::{entry, entry_if_free};
use mpi::ffi;
use scr_core::session::Error as SessionError;
use std::ffi::{c_int, c_void};

/// Ends the process if the session says that the user wants it (`SCR_HALT_EXIT=1` and a reason to halt). All ranks
/// agree on it, so that all come here. Not called inside `entry`: exit handlers of the application may call the library.
pub(crate) fn exit_if_wanted(call: &'static str) {
    let mut is_wanted = false;
    entry(call, |state| {
        let reason = state.session().ok().and_then(|session| session.exit_wanted().map(str::to_owned));
        let Some(reason) = reason else { return Ok(()) };
        is_wanted = true;
        if message::is_first_rank() {
            message::note(&format!("SCR_HALT_EXIT=1: the job ends here: {reason}"));
        }
        match state.take_session()?.halt() {
            // The others may wait for this rank.
            Err(error @ SessionError::Comm(_)) => Err(error.into()),
            Err(error) => {
                message::warn(&format!("the last checkpoint stays in cache: {}", scr_base::describe(&error)));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    });
    if is_wanted {
        // Without it the launcher takes the exit for a failure, and a halted job has not failed.
        mpi_library::finalize();
        std::process::exit(0);
    }
}

/// The callback of MPI_Finalize: frees a session that the application forgot, while its communicator can still be freed.
///
/// # Safety
/// Called by MPI alone.
pub(crate) unsafe extern "C" fn mpi_ends(
    _: ffi::MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
) -> c_int {
    entry_if_free("MPI_Finalize", |state| {
        let Ok(session) = state.take_session() else { return Ok(()) };
        message::count_repeated();
        if message::is_first_rank() {
            message::warn(
                "MPI_Finalize was called without SCR_Finalize: what is only in cache stays there, unflushed; \
                 call SCR_Finalize before it",
            );
        }
        drop(session);
        Ok(())
    });
    SUCCESS
}
