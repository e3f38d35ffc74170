//! The functions of `scr.h` with a safe face: all of this crate's unsafe code.

use crate::{checked, Error};
use mpi::ffi::MPI_Comm;
use std::ffi::{c_char, c_int, CStr, CString};

/// `SCR_MAX_FILENAME`.
const MAX_FILENAME: usize = 1024;

mod c {
    use super::{c_char, c_int};

    extern "C" {
        pub(super) fn SCR_Init() -> c_int;
        pub(super) fn SCR_Init_comm(comm: super::MPI_Comm) -> c_int;
        pub(super) fn SCR_Recover(newcomm: super::MPI_Comm) -> c_int;
        pub(super) fn SCR_Finalize() -> c_int;
        pub(super) fn scr_config_with_code(line: *const c_char, value: *mut *mut c_char) -> c_int;
        pub(super) fn SCR_Route_file(name: *const c_char, file: *mut c_char) -> c_int;
        pub(super) fn SCR_Need_checkpoint(flag: *mut c_int) -> c_int;
        pub(super) fn SCR_Start_output(name: *const c_char, flags: c_int) -> c_int;
        pub(super) fn SCR_Complete_output(valid: c_int) -> c_int;
        pub(super) fn SCR_Have_restart(flag: *mut c_int, name: *mut c_char) -> c_int;
        pub(super) fn SCR_Start_restart(name: *mut c_char) -> c_int;
        pub(super) fn SCR_Restart_ranks(n: *mut c_int) -> c_int;
        pub(super) fn SCR_Restart_files(rank: c_int, count: *mut c_int) -> c_int;
        pub(super) fn SCR_Restart_file(rank: c_int, i: c_int, name: *mut c_char) -> c_int;
        pub(super) fn SCR_Complete_restart(valid: c_int) -> c_int;
        pub(super) fn SCR_Current(name: *const c_char) -> c_int;
        pub(super) fn SCR_Drop(name: *const c_char) -> c_int;
        pub(super) fn SCR_Delete(name: *const c_char) -> c_int;
        pub(super) fn SCR_Should_exit(flag: *mut c_int) -> c_int;
        pub(super) fn SCR_Get_version() -> *mut c_char;
        pub(super) fn SCR_Last_error() -> *const c_char;
        pub(super) fn free(memory: *mut c_char);
    }
}

pub(crate) fn init() -> Result<(), Error> {
    // SAFETY: a function without arguments, which refuses to run where MPI does not.
    outcome(unsafe { c::SCR_Init() })
}

pub(crate) fn init_comm(comm: MPI_Comm) -> Result<(), Error> {
    // SAFETY: the handle of a communicator that the caller borrows meanwhile.
    outcome(unsafe { c::SCR_Init_comm(comm) })
}

pub(crate) fn recover(newcomm: MPI_Comm) -> Result<(), Error> {
    // SAFETY: as for `init_comm`.
    outcome(unsafe { c::SCR_Recover(newcomm) })
}

pub(crate) fn finalize() -> Result<(), Error> {
    // SAFETY: as for `init`.
    outcome(unsafe { c::SCR_Finalize() })
}

pub(crate) fn config(line: &CString) -> Result<Option<String>, Error> {
    let mut value = std::ptr::null_mut();
    // SAFETY: a string of C, and room for the answer.
    outcome(unsafe { c::scr_config_with_code(line.as_ptr(), &raw mut value) })?;
    if value.is_null() {
        return Ok(None);
    }
    // SAFETY: a string of C that is the caller's.
    let text = unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned();
    // SAFETY: allocated by malloc, as scr.h says, and used no more.
    unsafe { c::free(value) };
    Ok(Some(text))
}

pub(crate) fn route_file(name: &CString) -> Result<Vec<u8>, Error> {
    // SAFETY: a string of C, and a buffer of the size that the library asks for.
    with_buffer(|buffer| unsafe { c::SCR_Route_file(name.as_ptr(), buffer) })
}

pub(crate) fn start_output(name: &CString, flags: c_int) -> Result<(), Error> {
    // SAFETY: a string of C.
    outcome(unsafe { c::SCR_Start_output(name.as_ptr(), flags) })
}

pub(crate) fn complete_output(valid: bool) -> Result<(), Error> {
    // SAFETY: takes a number.
    outcome(unsafe { c::SCR_Complete_output(c_int::from(valid)) })
}

pub(crate) fn have_restart() -> Result<Option<Vec<u8>>, Error> {
    let mut flag = 0;
    // SAFETY: room for both answers.
    let name = with_buffer(|buffer| unsafe { c::SCR_Have_restart(&raw mut flag, buffer) })?;
    Ok((flag != 0).then_some(name))
}

pub(crate) fn start_restart() -> Result<Vec<u8>, Error> {
    // SAFETY: a buffer of the size that the library asks for.
    with_buffer(|buffer| unsafe { c::SCR_Start_restart(buffer) })
}

pub(crate) fn restart_ranks() -> Result<c_int, Error> {
    let mut ranks = 0;
    // SAFETY: room for the answer.
    outcome(unsafe { c::SCR_Restart_ranks(&raw mut ranks) })?;
    Ok(ranks)
}

pub(crate) fn restart_files(rank: c_int) -> Result<Vec<Vec<u8>>, Error> {
    let mut count = 0;
    // SAFETY: room for the answer.
    outcome(unsafe { c::SCR_Restart_files(rank, &raw mut count) })?;
    // SAFETY: a buffer of the size that the library asks for.
    (0..count).map(|i| with_buffer(|buffer| unsafe { c::SCR_Restart_file(rank, i, buffer) })).collect()
}

pub(crate) fn complete_restart(valid: bool) -> Result<(), Error> {
    // SAFETY: takes a number.
    outcome(unsafe { c::SCR_Complete_restart(c_int::from(valid)) })
}

pub(crate) fn need_checkpoint() -> Result<bool, Error> {
    ask(c::SCR_Need_checkpoint)
}

pub(crate) fn should_exit() -> Result<bool, Error> {
    ask(c::SCR_Should_exit)
}

pub(crate) fn current(name: &CString) -> Result<(), Error> {
    // SAFETY: a string of C.
    outcome(unsafe { c::SCR_Current(name.as_ptr()) })
}

pub(crate) fn drop_dataset(name: &CString) -> Result<(), Error> {
    // SAFETY: a string of C.
    outcome(unsafe { c::SCR_Drop(name.as_ptr()) })
}

pub(crate) fn delete(name: &CString) -> Result<(), Error> {
    // SAFETY: a string of C.
    outcome(unsafe { c::SCR_Delete(name.as_ptr()) })
}

pub(crate) fn version() -> String {
    // SAFETY: a string of C that lives as long as the library.
    unsafe { CStr::from_ptr(c::SCR_Get_version()) }.to_string_lossy().into_owned()
}

fn ask(question: unsafe extern "C" fn(*mut c_int) -> c_int) -> Result<bool, Error> {
    let mut flag = 0;
    // SAFETY: room for the answer.
    outcome(unsafe { question(&raw mut flag) })?;
    Ok(flag != 0)
}

/// The text that a call writes into a buffer of `SCR_MAX_FILENAME` bytes, without its null.
fn with_buffer(call: impl FnOnce(*mut c_char) -> c_int) -> Result<Vec<u8>, Error> {
    let mut buffer = [0_u8; MAX_FILENAME];
    outcome(call(buffer.as_mut_ptr().cast()))?;
    let len = buffer.iter().position(|&byte| byte == 0).unwrap_or(MAX_FILENAME);
    Ok(buffer[..len].to_vec())
}

fn outcome(code: c_int) -> Result<(), Error> {
    // SAFETY: a string of C, valid until the next failed call of this thread.
    checked(code, unsafe { CStr::from_ptr(c::SCR_Last_error()) })
}
