//! Strings that cross the border to C: read with a limit, written with a limit.

use crate::failure::{Code, Failure, MAX_FILENAME};
use scr_base::ensure;
use std::ffi::{c_char, c_int};

/// A string that C passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// No string.
    Null,
    /// Its bytes, without the terminating null.
    Bytes(Vec<u8>),
    /// Its first bytes; no null came within the limit.
    Endless(Vec<u8>),
}

/// Reads a string of C that has its null within `limit` bytes.
///
/// # Safety
/// `pointer` is NULL, or points to a null-terminated string, or to at least `limit` readable bytes.
pub(crate) unsafe fn read(pointer: *const c_char, limit: usize) -> Text {
    if pointer.is_null() {
        return Text::Null;
    }
    // SAFETY: the caller's promise; strnlen reads up to the null or the limit, whichever comes first.
    let len = unsafe { libc::strnlen(pointer, limit) };
    // SAFETY: strnlen has just read these bytes, and C leaves them alone during the call.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), len) }.to_vec();
    if len == limit {
        Text::Endless(bytes)
    } else {
        Text::Bytes(bytes)
    }
}

/// Reads a name: NULL or a string below `SCR_MAX_FILENAME`.
///
/// # Safety
/// As for [`read`], with `SCR_MAX_FILENAME` as the limit.
pub(crate) unsafe fn read_name(pointer: *const c_char) -> Text {
    // SAFETY: the caller's promise.
    unsafe { read(pointer, MAX_FILENAME) }
}

impl Text {
    /// The part that can be shown.
    pub(crate) fn printable(&self) -> &[u8] {
        match self {
            Text::Null => b"",
            Text::Bytes(bytes) | Text::Endless(bytes) => bytes,
        }
    }

    /// The bytes, or why there are none.
    pub(crate) fn required(&self, what: &'static str, limit: usize) -> Result<&[u8], Failure> {
        match self {
            Text::Null => Err(Failure::null(what, "a string")),
            Text::Endless(_) => Err(Failure::too_long(what, limit - 1)),
            Text::Bytes(bytes) => Ok(bytes),
        }
    }
}

/// Writes `bytes` and a null into a buffer of `SCR_MAX_FILENAME` bytes; NULL takes nothing. Nothing is written
/// where they do not fit, or where a null among them would cut them short.
///
/// # Safety
/// `buffer` is NULL or points to `SCR_MAX_FILENAME` writable bytes.
pub(crate) unsafe fn write_name(
    buffer: *mut c_char,
    bytes: &[u8],
    what: &'static str,
) -> Result<(), Failure> {
    if buffer.is_null() {
        return Ok(());
    }
    if bytes.len() >= MAX_FILENAME || bytes.contains(&0) {
        let (found, limit) = (bytes.len(), MAX_FILENAME - 1);
        return Err(Failure::Said(
            Code::Argument,
            format!("the answer for `{what}` has {found} bytes and SCR_MAX_FILENAME allows {limit}; use shorter folders or names"),
        ));
    }
    // SAFETY: the buffer has MAX_FILENAME bytes, which is more than the bytes and their null, and it does not
    // overlap them, since they lie in memory of this library.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast::<u8>(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}

/// Stores a yes or no, and no where there is no answer: applications that look at no code go by the flag alone.
///
/// # Safety
/// `flag` is NULL or points to an int.
pub(crate) unsafe fn write_flag(flag: *mut c_int, answer: Result<bool, Failure>) -> Result<(), Failure> {
    if flag.is_null() {
        return answer.and(Err(Failure::null("flag", "an int")));
    }
    // SAFETY: not NULL, and so an int by the caller's promise.
    unsafe { flag.write(c_int::from(*answer.as_ref().unwrap_or(&false))) };
    answer.map(|_| ())
}

/// Stores a number.
///
/// # Safety
/// `to` is NULL or points to an int.
pub(crate) unsafe fn write_number(to: *mut c_int, number: u64, what: &'static str) -> Result<(), Failure> {
    ensure(!to.is_null(), || Failure::null(what, "an int"))?;
    // SAFETY: not NULL, and so an int by the caller's promise.
    unsafe { to.write(c_int::try_from(number).unwrap_or(c_int::MAX)) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_up_to_its_null() {
        // SAFETY: a null-terminated string.
        assert_eq!(unsafe { read_name(c"ckpt.1".as_ptr()) }, Text::Bytes(b"ckpt.1".to_vec()));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { read_name(std::ptr::null()) }, Text::Null);
    }

    #[test]
    fn a_string_without_a_null_is_not_read_beyond_the_limit() {
        let bytes = [b'a'; MAX_FILENAME];
        // SAFETY: as many bytes as the limit.
        let text = unsafe { read_name(bytes.as_ptr().cast()) };
        assert!(matches!(&text, Text::Endless(kept) if kept.len() == MAX_FILENAME));
        let error = text.required("name", MAX_FILENAME).unwrap_err().to_string();
        assert!(error.starts_with("`name` is longer than 1023 bytes"), "{error}");
    }

    #[test]
    fn the_longest_name_fits_and_one_more_byte_leaves_the_buffer_alone() {
        let mut buffer = [b'x' as c_char; MAX_FILENAME];
        // SAFETY: a buffer of the size that is asked for.
        let longer = unsafe { write_name(buffer.as_mut_ptr(), &[b'a'; MAX_FILENAME], "name") };
        let error = longer.unwrap_err().to_string();
        assert!(error.starts_with("the answer for `name` has 1024 bytes"), "{error}");
        assert!(buffer.iter().all(|&byte| byte == b'x' as c_char));
        // SAFETY: as above.
        unsafe { write_name(buffer.as_mut_ptr(), &[b'a'; MAX_FILENAME - 1], "name") }.unwrap();
        assert_eq!(buffer[MAX_FILENAME - 2..], [b'a' as c_char, 0]);
    }
}
