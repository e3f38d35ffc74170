//! `SCR_Config`: setting and asking parameters. See docs/user/c-api.md.
//!
//! C SCR's form of the call returns no code: NULL says that a parameter was set, that it has no value, or that the call failed.
//! The interfaces for other languages report failures, so they call [`scr_config_with_code`], which is in no header of C.

use crate::failure::{Code, Failure};
use crate::place::environment;
use crate::state::{entry, State};
use crate::text;
use scr_base::ensure;
use scr_config::param::Request;
use std::borrow::Cow;
use std::ffi::{c_char, c_int, CStr, CString};

/// The longest line that is read; descriptors may be longer than a file name.
const MAX_LINE: usize = 64 * 1024;

/// `SCR_Config` of `scr.h`.
///
/// # Safety
/// `config` is NULL or points to a null-terminated string.
#[no_mangle]
#[allow(non_snake_case)]
pub unsafe extern "C" fn SCR_Config(config: *const c_char) -> *const c_char {
    let mut value = std::ptr::null_mut();
    // SAFETY: the caller's promise, and room for the value.
    unsafe { scr_config_with_code(config, &raw mut value) };
    value
}

/// [`SCR_Config`] with a code. If it is not `SCR_SUCCESS`, `value` keeps what it was.
///
/// # Safety
/// As for [`SCR_Config`]; `value` points to a pointer.
#[no_mangle]
pub unsafe extern "C" fn scr_config_with_code(config: *const c_char, value: *mut *mut c_char) -> c_int {
    entry("SCR_Config", |state| {
        // SAFETY: the caller's promise.
        let line = unsafe { text::read(config, MAX_LINE) };
        let line = std::str::from_utf8(line.required("config", MAX_LINE)?).map_err(|_| not_text("config"))?;
        let answer =
            apply(state, &with_point(line, &decimal_point()))?.map(|value| to_c(&value)).transpose()?;
        // SAFETY: the caller's promise.
        unsafe { value.write(answer.unwrap_or(std::ptr::null_mut())) };
        Ok(())
    })
}

/// C's printf puts the decimal point of the locale into a number, as a comma: where nothing else makes sense, that is one.
fn with_point<'a>(line: &'a str, of_locale: &str) -> Cow<'a, str> {
    let is_request = |text: &str| Request::parse(text).is_ok();
    let has_another_point = !of_locale.is_empty() && !is_request(line);
    let pointed = has_another_point.then(|| line.replace(of_locale, "."));
    pointed.filter(|pointed| is_request(pointed)).map_or(line.into(), Cow::Owned)
}

fn decimal_point() -> String {
    // SAFETY: a string of C, which is copied before anything can change the locale.
    unsafe { CStr::from_ptr(libc::nl_langinfo(libc::RADIXCHAR)) }.to_string_lossy().into_owned()
}

/// Between sessions a line may set, unset or ask; within one it may only ask. The answer is the effective value, whoever set it.
fn apply(state: &mut State, line: &str) -> Result<Option<String>, Failure> {
    let asks = Request::parse(line)?.is_query();
    match state {
        State::Running(session, config) if asks => {
            Ok(config.query(Some(session.params()), &environment()?, line)?)
        }
        // Without the value, which may be a password.
        State::Running(..) => {
            let name = line.split('=').next().unwrap_or(line).trim();
            let text = format!("{name} is set after SCR_Init; set and unset parameters before it");
            Err(Failure::Said(Code::State, text))
        }
        between_sessions if asks => Ok(between_sessions.settings()?.query(None, &environment()?, line)?),
        between_sessions => Ok(between_sessions.settings()?.apply(line)?),
    }
}

fn not_text(what: &str) -> Failure {
    Failure::Said(Code::Argument, format!("`{what}` is not valid UTF-8; write settings in plain text"))
}

/// A copy for the caller, who frees it with `free()`.
fn to_c(value: &str) -> Result<*mut c_char, Failure> {
    let value = CString::new(value).map_err(|_| not_text("value"))?;
    // SAFETY: a null-terminated string, which strdup only reads.
    let copy = unsafe { libc::strdup(value.as_ptr()) };
    let no_memory = || Failure::Said(Code::Failure, "there is no memory for the answer".to_owned());
    ensure(!copy.is_null(), no_memory).map(|()| copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value was refused, and `SCR_Need_checkpoint` never asked for a checkpoint.
    #[test]
    fn a_number_of_printf_in_a_locale_with_a_decimal_comma_is_read_as_it_is_meant() {
        for (line, expected) in [
            ("SCR_CHECKPOINT_OVERHEAD=2,500000", "SCR_CHECKPOINT_OVERHEAD=2.500000"),
            ("SCR_CHECKPOINT_OVERHEAD=2.5", "SCR_CHECKPOINT_OVERHEAD=2.5"),
            ("SCR_JOB_NAME=a,b", "SCR_JOB_NAME=a,b"),
            ("SCR_FLUSH=2,5", "SCR_FLUSH=2,5"),
        ] {
            assert_eq!(with_point(line, ","), expected);
            assert_eq!(with_point(line, "."), line);
        }
        assert!(Request::parse("SCR_FLUSH=2,5").is_err(), "it is no whole number either way");
        assert_eq!(decimal_point(), ".", "of a program that has not called setlocale");
    }
}
