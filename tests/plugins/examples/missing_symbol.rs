//! A library that needs a function that does not exist.

extern "C" {
    fn scr_a_function_that_nobody_has() -> u32;
}

/// Calls what is missing.
#[unsafe(no_mangle)]
pub extern "C" fn scr_missing_symbol() -> u32 {
    // SAFETY: it is never called, since the library cannot be loaded.
    unsafe { scr_a_function_that_nobody_has() }
}
