//! Safe functions for the calls of IBM's burst buffer API that this transport needs. All unsafe code of the transport is here.
//!
//! Documented in the public repository of CAST, github.com/IBM/CAST: the calls in `bb/include/bbapi.h`, types and constants in
//! `bb/include/bbapi_types.h`, the states in `bb/include/BBStatus.h`, the version in `bb/include/bbapi_version.json` and
//! `buildversion.cc`. All functions return 0, or a number of `errno`; more is in `BB_GetLastErrorDetails`, for each thread.

#![allow(unsafe_code, reason = "a vendor's library in C is called")]

use scr_plugin_api::PluginError;
use scr_staging::{functions, open_library};
use std::ffi::{c_char, c_int, c_ulong, c_void, CStr};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

/// `BBTransferHandle_t` of `bbapi_types.h`.
pub(crate) type Handle = u64;
/// `BBTAG` of `bbapi_types.h`.
pub(crate) type Tag = c_ulong;
/// `BBTransferDef_t *` of `bbapi_types.h`, which only the library looks into.
type Definition = *mut c_void;

functions! {
    /// The functions of `bbapi.h`, in the order in which they stand there.
    Functions:
    init(u32, *const c_char) = "BB_InitLibrary";
    terminate() = "BB_TerminateLibrary";
    last_error(c_int, *mut usize, usize, *mut c_char) = "BB_GetLastErrorDetails";
    create(*mut Definition) = "BB_CreateTransferDef";
    add(Definition, *const c_char, *const c_char, c_int) = "BB_AddFiles";
    free(Definition) = "BB_FreeTransferDef";
    handle(Tag, u64, *mut u32, *mut Handle) = "BB_GetTransferHandle";
    start(Definition, Handle) = "BB_StartTransfer";
    cancel(Handle, c_int) = "BB_CancelTransfer";
    info(Handle, *mut TransferInfo) = "BB_GetTransferInfo";
}

/// `BBERRORFLAT` of `enum BBERRORFORMAT`, `bbapi_types.h`: names and values without nesting.
const FLAT: c_int = 3;
/// `BBSCOPETAG` of `enum BBCANCELSCOPE`, `bbapi_types.h`: all transfers of the tag. Ours has one contributor, and a process that
/// did not contribute has to be able to stop it.
const SCOPE_TAG: c_int = 2;
/// No flag of `enum BBFILEFLAGS`, `bbapi_types.h`.
const NO_FLAGS: c_int = 0;
/// `BBAPI_CLIENTVERSIONSTR`: `buildversion.cc` makes it of `bbapi_version.json`, with `^` for each `"`. The library compares
/// the major number.
const CLIENT_VERSION: &CStr = c"{^version^:{^major^:^1^,^bbusage^:^2^}}";

/// `enum BBSTATUS` of `BBStatus.h`: one bit each, in 64, as its `BBALL` needs all of them.
pub(crate) mod status {
    /// `BBNOTSTARTED`: nobody has contributed yet.
    pub(crate) const NOT_STARTED: u64 = 0x01;
    /// `BBINPROGRESS`: being copied.
    pub(crate) const IN_PROGRESS: u64 = 0x02;
    /// `BBPARTIALSUCCESS`: what was contributed is copied, and somebody has not contributed.
    pub(crate) const PARTIAL_SUCCESS: u64 = 0x04;
    /// `BBFULLSUCCESS`: all is copied.
    pub(crate) const FULL_SUCCESS: u64 = 0x08;
    /// `BBCANCELED`: cancelled by a user.
    pub(crate) const CANCELED: u64 = 0x10;
    /// `BBFAILED`: something could not be copied.
    pub(crate) const FAILED: u64 = 0x20;
    /// `BBSTOPPED`: stopped.
    pub(crate) const STOPPED: u64 = 0x40;
}

/// `BBTransferInfo_t` of `bbapi_types.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferInfo {
    handle: Handle,
    contribid: u32,
    jobid: u64,
    jobstepid: u64,
    tag: Tag,
    numcontrib: u64,
    /// See [`status`].
    pub(crate) status: u64,
    numreportingcontribs: u64,
    total_transfer_key_length: usize,
    total_transfer_size: usize,
    localstatus: u64,
    local_transfer_size: usize,
}

/// The error of a call: its name, a number of `errno`, and the library's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallError {
    call: &'static str,
    code: c_int,
    details: String,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} gave {}", self.call, self.code)?;
        if self.code > 0 {
            write!(f, " ({})", std::io::Error::from_raw_os_error(self.code))?;
        }
        if !self.details.is_empty() {
            write!(f, ": {}", self.details)?;
        }
        Ok(())
    }
}

/// The library, initialised. It is terminated when this is dropped; a process has one at a time.
#[derive(Debug)]
pub(crate) struct Calls(Functions);

impl Calls {
    /// Finds the functions in the library of this name or path, and initialises it for this contributor.
    ///
    /// # Errors
    /// There is no such library, it lacks a function, or it does not work on this node; the latter as text.
    pub(crate) fn open(library: &str, contributor: u32) -> Result<Result<Self, CallError>, PluginError> {
        let library = open_library(crate::NAME, "IBM's burst buffer", library)?;
        // SAFETY: the types are those of `bbapi.h`.
        let calls = ManuallyDrop::new(Self(unsafe { Functions::of(library) }?));
        // SAFETY: a string that ends with a zero and outlives the call.
        let begun = unsafe { (calls.0.init)(contributor, CLIENT_VERSION.as_ptr()) };
        let begun = calls.checked("BB_InitLibrary", begun);
        // One that was not initialised is not terminated; then its library stays loaded, which does no harm.
        Ok(begun.map(|()| ManuallyDrop::into_inner(calls)))
    }

    /// The handle of the transfer with this tag, to which this process alone contributes. It is made when it is first asked for.
    pub(crate) fn handle(&self, tag: Tag) -> Result<Handle, CallError> {
        let mut handle = 0;
        // SAFETY: with one contributor and no list the caller is meant, says `bbapi.h`; `handle` outlives the call.
        self.checked("BB_GetTransferHandle", unsafe {
            (self.0.handle)(tag, 1, ptr::null_mut(), &mut handle)
        })?;
        Ok(handle)
    }

    /// Begins to copy files, each from the first path to the second.
    pub(crate) fn start<'a>(
        &self,
        handle: Handle,
        files: impl Iterator<Item = (&'a CStr, &'a CStr)>,
    ) -> Result<(), CallError> {
        let mut definition = ptr::null_mut();
        // SAFETY: a place for a pointer that outlives the call.
        self.checked("BB_CreateTransferDef", unsafe { (self.0.create)(&mut definition) })?;
        let begun = self.fill_and_start(definition, handle, files);
        // SAFETY: it was created above, and is not used any more. The transfer does not need it, as AXL's use shows.
        let _ = unsafe { (self.0.free)(definition) };
        begun
    }

    fn fill_and_start<'a>(
        &self,
        definition: Definition,
        handle: Handle,
        mut files: impl Iterator<Item = (&'a CStr, &'a CStr)>,
    ) -> Result<(), CallError> {
        files.try_for_each(|(from, to)| {
            // SAFETY: the definition is alive; strings that end with a zero outlive the call.
            self.checked("BB_AddFiles", unsafe {
                (self.0.add)(definition, from.as_ptr(), to.as_ptr(), NO_FLAGS)
            })
        })?;
        // SAFETY: the definition is alive; the handle is only a number.
        self.checked("BB_StartTransfer", unsafe { (self.0.start)(definition, handle) })
    }

    /// The state of a transfer, one of [`status`].
    pub(crate) fn status(&self, handle: Handle) -> Result<u64, CallError> {
        // Some room after it, in case a later version of the library writes more.
        let mut info = MaybeUninit::<[TransferInfo; 4]>::zeroed();
        // SAFETY: the place is larger than the structure, aligned for it, and outlives the call.
        self.checked("BB_GetTransferInfo", unsafe { (self.0.info)(handle, info.as_mut_ptr().cast()) })?;
        // SAFETY: all fields are numbers, which were zero before the library wrote to them.
        let [info, ..] = unsafe { info.assume_init() };
        Ok(info.status)
    }

    /// Stops a transfer. The library removes what was copied.
    pub(crate) fn cancel(&self, handle: Handle) -> Result<(), CallError> {
        // SAFETY: the handle is only a number.
        self.checked("BB_CancelTransfer", unsafe { (self.0.cancel)(handle, SCOPE_TAG) })
    }

    fn checked(&self, call: &'static str, code: c_int) -> Result<(), CallError> {
        match code {
            0 => Ok(()),
            code => Err(CallError { call, code, details: self.details() }),
        }
    }

    /// The library's message on the last call of this thread.
    pub(crate) fn details(&self) -> String {
        let (mut available, mut text) = (0_usize, vec![0_u8; MOST_DETAILS]);
        // SAFETY: the buffer has as many bytes as is said, and outlives the call.
        let code = unsafe { (self.0.last_error)(FLAT, &mut available, text.len(), text.as_mut_ptr().cast()) };
        if code != 0 {
            return String::new();
        }
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        String::from_utf8_lossy(&text[..end]).split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nothing of it is used any more. Transfers continue, as they are the servers'.
        let _ = unsafe { (self.0.terminate)() };
    }
}

/// More is cut.
const MOST_DETAILS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_structure_lies_in_memory_as_c_lays_it_out() {
        assert_eq!(std::mem::size_of::<TransferInfo>(), 96);
        assert_eq!(offset_of!(TransferInfo, jobid), 16);
        assert_eq!(offset_of!(TransferInfo, status), 48);
        assert_eq!(offset_of!(TransferInfo, localstatus), 80);
    }
}
