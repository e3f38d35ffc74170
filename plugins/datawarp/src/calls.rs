//! Safe functions for the calls of Cray's libdatawarp that this transport needs. All unsafe code of the transport is here.
//!
//! Documented in the "XC Series DataWarp User Guide", S-2558, in its part on the DataWarp API, `libdatawarp`. Programs with
//! public source that make the same calls: AXL (github.com/ECP-VeloC/AXL, `src/axl_async_datawarp.c`) and libhio
//! (github.com/hpc/libhio, `src/builtin-datawarp_component.c`). All functions return 0, or a negative `errno`.
//!
//! | call | documented there as |
//! |---|---|
//! | `int dw_stage_file_out(const char *dw_file, const char *pfs_file, enum dw_stage_type)` | begins to copy a file of the instance to the parallel file system, where it is made or emptied first, and synced last. One at a time for each file |
//! | `int dw_query_file_stage(const char *dw_file, int *complete, int *pending, int *deferred, int *failed)` | of a single file one of the four is not 0; `-EINVAL` where nothing was asked for |
//! | `int dw_wait_file_stage(const char *dw_file)` | returns when nothing is under way; `-EINVAL` as above |
//! | `int dw_terminate_file_stage(const char *dw_file)` | ends what is under way or waits; how much was written is undefined |
//! | `int dw_stage_file_in(const char *dw_file, const char *pfs_file)` | the other direction; not needed, as a fetch reads files where they are |
//! | `int dw_open_failed_stage(const char *folder, dw_failed_stage_t **)`, `int dw_read_failed_stage(dw_failed_stage_t *, char *path, int size, int *ret_errno)`, `int dw_close_failed_stage(dw_failed_stage_t *)` | lists the files below a folder whose staging has failed, and why, as a negative `errno`; `read` returns the length of the path, 0 at the end |
//! | `DW_STAGE_IMMEDIATE` | first of `enum dw_stage_type`; the guide lists immediate, at job end, revoke, activate in this order, and C counts from 0 |

#![allow(unsafe_code, reason = "a vendor's library in C is called")]

use scr_plugin_api::{held, PluginError};
use scr_staging::{functions, open_library};
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Mutex;

const DW_STAGE_IMMEDIATE: c_int = 0;

/// How many stagings of a file are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) complete: c_int,
    pub(crate) pending: c_int,
    pub(crate) deferred: c_int,
    pub(crate) failed: c_int,
}

/// A number of the system's errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// The library. One call at a time, as the guide does not say that there may be more.
pub(crate) struct Calls(Mutex<Functions>);

functions! {
    /// As in the table above.
    Functions:
    stage_out(*const c_char, *const c_char, c_int) = "dw_stage_file_out";
    query(*const c_char, *mut c_int, *mut c_int, *mut c_int, *mut c_int) = "dw_query_file_stage";
    wait(*const c_char) = "dw_wait_file_stage";
    terminate(*const c_char) = "dw_terminate_file_stage";
    open_failed(*const c_char, *mut *mut c_void) = "dw_open_failed_stage";
    read_failed(*mut c_void, *mut c_char, c_int, *mut c_int) = "dw_read_failed_stage";
    close_failed(*mut c_void) = "dw_close_failed_stage";
}

impl Calls {
    /// Finds the functions in the library of this name or path.
    ///
    /// # Errors
    /// There is no such library, or it lacks one.
    pub(crate) fn open(library: &str) -> Result<Self, PluginError> {
        let library = open_library(crate::NAME, "Cray's DataWarp", library)?;
        // SAFETY: the types are those of the table above.
        Ok(Self(Mutex::new(unsafe { Functions::of(library) }?)))
    }

    /// Begins to copy a file of the instance to the parallel file system.
    pub(crate) fn stage_out(&self, from: &CStr, to: &CStr) -> Result<(), Errno> {
        let functions = held(&self.0);
        // SAFETY: both are strings that end with a zero and outlive the call.
        checked(unsafe { (functions.stage_out)(from.as_ptr(), to.as_ptr(), DW_STAGE_IMMEDIATE) })
    }

    /// How the staging of a file is.
    pub(crate) fn query(&self, file: &CStr) -> Result<Counts, Errno> {
        let functions = held(&self.0);
        let mut c = Counts::default();
        // SAFETY: a string that ends with a zero, and four places to write to, which outlive the call.
        checked(unsafe {
            (functions.query)(file.as_ptr(), &mut c.complete, &mut c.pending, &mut c.deferred, &mut c.failed)
        })?;
        Ok(c)
    }

    /// Ends the staging of a file, and returns when nothing is written any more.
    pub(crate) fn terminate(&self, file: &CStr) -> Result<(), Errno> {
        let functions = held(&self.0);
        // SAFETY: a string that ends with a zero and outlives the call.
        let ended = checked(unsafe { (functions.terminate)(file.as_ptr()) });
        // The guide does not say that nothing is under way when `terminate` returns. With any answer of `wait`, it has come back.
        // SAFETY: as above.
        let _ = unsafe { (functions.wait)(file.as_ptr()) };
        ended
    }

    /// Why the staging of a file has failed, where the library knows.
    pub(crate) fn why_failed(&self, file: &Path) -> Option<Errno> {
        let folder = CString::new(file.parent()?.as_os_str().as_bytes()).ok()?;
        let functions = held(&self.0);
        let mut list = ptr::null_mut();
        // SAFETY: a string that ends with a zero, and a place for a pointer, which outlive the call.
        checked(unsafe { (functions.open_failed)(folder.as_ptr(), &mut list) }).ok()?;
        let mut found = None;
        let mut path = [0_u8; PATH_BYTES];
        let size = c_int::try_from(path.len()).unwrap_or(c_int::MAX);
        while found.is_none() {
            let mut errno = 0;
            // SAFETY: `list` was opened above and is not closed yet; the buffer has `size` bytes.
            let length = unsafe { (functions.read_failed)(list, path.as_mut_ptr().cast(), size, &mut errno) };
            let Ok(length @ 1..) = usize::try_from(length) else { break };
            let named = path.get(..length).unwrap_or(&path);
            let named = named.split(|&byte| byte == 0).next().unwrap_or_default();
            found = (named == file.as_os_str().as_bytes()).then_some(Errno(errno.saturating_abs()));
        }
        // SAFETY: it was opened above, and is not used any more.
        let _ = unsafe { (functions.close_failed)(list) };
        found
    }
}

fn checked(returned: c_int) -> Result<(), Errno> {
    if returned < 0 {
        return Err(Errno(returned.saturating_neg()));
    }
    Ok(())
}

/// As long as Linux allows paths to be.
const PATH_BYTES: usize = 4096;
