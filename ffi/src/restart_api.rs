//! Checkpoints of another number of ranks: the functions of `scr.h` that say which files a checkpoint has. All are local.
#![allow(non_snake_case)] // The names are those of scr.h.

use crate::failure::Failure;
use crate::state::entry;
use crate::text;
use scr_base::ensure;
use scr_core::session::Error as SessionError;
use std::ffi::{c_char, c_int};

/// How many ranks wrote the checkpoint that is being read.
///
/// # Safety
/// `n` is NULL or points to an int.
#[no_mangle]
pub unsafe extern "C" fn SCR_Restart_ranks(n: *mut c_int) -> c_int {
    entry("SCR_Restart_ranks", |state| {
        let ranks = state.local_session()?.restart_ranks()?;
        // SAFETY: the caller's promise.
        unsafe { text::write_number(n, u64::from(ranks), "n") }
    })
}

/// How many files one of them wrote.
///
/// # Safety
/// `count` is NULL or points to an int.
#[no_mangle]
pub unsafe extern "C" fn SCR_Restart_files(rank: c_int, count: *mut c_int) -> c_int {
    entry("SCR_Restart_files", |state| {
        let files = state.local_session()?.restart_files(place(rank, "rank")?)?;
        // SAFETY: the caller's promise.
        unsafe { text::write_number(count, files as u64, "count") }
    })
}

/// The name of one of these files.
///
/// # Safety
/// `name` is NULL or has `SCR_MAX_FILENAME` bytes.
#[no_mangle]
pub unsafe extern "C" fn SCR_Restart_file(rank: c_int, i: c_int, name: *mut c_char) -> c_int {
    entry("SCR_Restart_file", |state| {
        ensure(!name.is_null(), || Failure::null("name", "SCR_MAX_FILENAME bytes"))?;
        let number = usize::try_from(place(i, "i")?).unwrap_or(usize::MAX);
        let found = state.local_session()?.restart_file(place(rank, "rank")?, number)?;
        // SAFETY: the caller's promise.
        unsafe { text::write_name(name, &found, "name") }
    })
}

fn place(number: c_int, what: &str) -> Result<u32, SessionError> {
    let negative = |_| SessionError::Argument(format!("{what} is {number}, and counts from 0"));
    u32::try_from(number).map_err(negative)
}
