//! The functions of `scr.h` with a safe face: all of this crate's unsafe code.

use crate::{checked, Error};
use mpi::ffi::MPI_Comm;
use std::ffi::{c_char, c_int, CStr};

/// `SCR_MAX_FILENAME`.
const MAX_FILENAME: usize = 1024;

// SAFETY: those that are safe take numbers, or room for one, and refuse to run where MPI does not.
unsafe extern "C" {
    pub(crate) safe fn SCR_Init() -> c_int;
    fn SCR_Init_comm(comm: MPI_Comm) -> c_int;
    fn SCR_Recover(newcomm: MPI_Comm) -> c_int;
    pub(crate) safe fn SCR_Finalize() -> c_int;
    fn scr_config_with_code(line: *const c_char, value: *mut *mut c_char) -> c_int;
    fn SCR_Route_file(name: *const c_char, file: *mut c_char) -> c_int;
    pub(crate) safe fn SCR_Need_checkpoint(flag: &mut c_int) -> c_int;
    fn SCR_Start_output(name: *const c_char, flags: c_int) -> c_int;
    pub(crate) safe fn SCR_Complete_output(valid: c_int) -> c_int;
    fn SCR_Have_restart(flag: &mut c_int, name: *mut c_char) -> c_int;
    fn SCR_Start_restart(name: *mut c_char) -> c_int;
    pub(crate) safe fn SCR_Restart_ranks(n: &mut c_int) -> c_int;
    safe fn SCR_Restart_files(rank: c_int, count: &mut c_int) -> c_int;
    fn SCR_Restart_file(rank: c_int, i: c_int, name: *mut c_char) -> c_int;
    pub(crate) safe fn SCR_Complete_restart(valid: c_int) -> c_int;
    pub(crate) fn SCR_Current(name: *const c_char) -> c_int;
    pub(crate) fn SCR_Drop(name: *const c_char) -> c_int;
    pub(crate) fn SCR_Delete(name: *const c_char) -> c_int;
    pub(crate) safe fn SCR_Should_exit(flag: &mut c_int) -> c_int;
    safe fn SCR_Get_version() -> *mut c_char;
    safe fn SCR_Last_error() -> *const c_char;
    fn free(memory: *mut c_char);
}

pub(crate) fn init_comm(comm: MPI_Comm) -> Result<(), Error> {
    // SAFETY: the handle of a communicator that the caller borrows meanwhile.
    outcome(unsafe { SCR_Init_comm(comm) })
}

pub(crate) fn recover(newcomm: MPI_Comm) -> Result<(), Error> {
    // SAFETY: as for `init_comm`.
    outcome(unsafe { SCR_Recover(newcomm) })
}

pub(crate) fn config(line: &CStr) -> Result<Option<String>, Error> {
    let mut value = std::ptr::null_mut();
    // SAFETY: a string of C, and room for the answer.
    outcome(unsafe { scr_config_with_code(line.as_ptr(), &raw mut value) })?;
    if value.is_null() {
        return Ok(None);
    }
    // SAFETY: a string of C that is the caller's.
    let text = unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned();
    // SAFETY: allocated by malloc, as scr.h says, and used no more.
    unsafe { free(value) };
    Ok(Some(text))
}

pub(crate) fn route_file(name: &CStr) -> Result<Vec<u8>, Error> {
    // SAFETY: a string of C, and a buffer of the size that the library asks for.
    with_buffer(|buffer| unsafe { SCR_Route_file(name.as_ptr(), buffer) })
}

pub(crate) fn start_output(name: &CStr, flags: c_int) -> Result<(), Error> {
    // SAFETY: a string of C.
    outcome(unsafe { SCR_Start_output(name.as_ptr(), flags) })
}

pub(crate) fn have_restart() -> Result<bool, Error> {
    // SAFETY: room for the flag, and none for the name.
    Ok(asked(|flag| unsafe { SCR_Have_restart(flag, std::ptr::null_mut()) })? != 0)
}

pub(crate) fn start_restart() -> Result<Vec<u8>, Error> {
    // SAFETY: a buffer of the size that the library asks for.
    with_buffer(|buffer| unsafe { SCR_Start_restart(buffer) })
}

pub(crate) fn restart_files(rank: c_int) -> Result<Vec<Vec<u8>>, Error> {
    let count = asked(|count| SCR_Restart_files(rank, count))?;
    // SAFETY: a buffer of the size that the library asks for.
    (0..count).map(|i| with_buffer(|buffer| unsafe { SCR_Restart_file(rank, i, buffer) })).collect()
}

/// Calls one of the functions that take the name of a dataset.
pub(crate) fn of_dataset(
    call: unsafe extern "C" fn(*const c_char) -> c_int,
    name: &CStr,
) -> Result<(), Error> {
    // SAFETY: a string of C.
    outcome(unsafe { call(name.as_ptr()) })
}

pub(crate) fn version() -> String {
    // SAFETY: a string of C that lives as long as the library.
    unsafe { CStr::from_ptr(SCR_Get_version()) }.to_string_lossy().into_owned()
}

/// The number with which a call answers.
pub(crate) fn asked(call: impl FnOnce(&mut c_int) -> c_int) -> Result<c_int, Error> {
    let mut answer = 0;
    outcome(call(&mut answer))?;
    Ok(answer)
}

/// The text that a call writes into a buffer of `SCR_MAX_FILENAME` bytes, without its null.
fn with_buffer(call: impl FnOnce(*mut c_char) -> c_int) -> Result<Vec<u8>, Error> {
    let mut buffer = [0_u8; MAX_FILENAME];
    outcome(call(buffer.as_mut_ptr().cast()))?;
    let len = buffer.iter().position(|&byte| byte == 0).unwrap_or(MAX_FILENAME);
    Ok(buffer[..len].to_vec())
}

/// The meaning of what a call returned.
pub(crate) fn outcome(code: c_int) -> Result<(), Error> {
    // SAFETY: a string of C, valid until the next failed call of this thread.
    checked(code, unsafe { CStr::from_ptr(SCR_Last_error()) })
}
