//! Stands in for IBM's libbbAPI: the calls that the transport makes, as `bbapi.h` of github.com/IBM/CAST says of them.

#![allow(unsafe_code, missing_docs, reason = "it has the interface of a library in C")]

use scr_test_plugins::standin::{from_word, to_word, Server};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_ulong, c_void, CStr, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// The error of the last call of this thread.
    static DETAILS: RefCell<String> = const { RefCell::new(String::new()) };
}
static INITIALISED: AtomicBool = AtomicBool::new(false);

const NOT_STARTED: u64 = 1;
const IN_PROGRESS: u64 = 2;
const FULL_SUCCESS: u64 = 8;
const CANCELED: u64 = 16;
const FAILED: u64 = 32;

/// A number of `errno`, and words.
struct Wrong(c_int, String);

impl From<std::io::Error> for Wrong {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
    }
}

fn wrong(number: c_int, text: &str) -> Wrong {
    Wrong(number, text.to_owned())
}

/// Runs a call, and keeps what it says.
fn call(work: impl FnOnce(&Server) -> Result<(), Wrong>) -> c_int {
    let outcome = Server::of(BB_InitLibrary as *const () as usize).map_err(Wrong::from).and_then(|server| {
        if INITIALISED.load(Ordering::SeqCst) {
            return work(&server);
        }
        Err(wrong(libc::ENOTCONN, "the library is not initialised"))
    });
    keep(outcome)
}

fn keep(outcome: Result<(), Wrong>) -> c_int {
    let (number, text) = match outcome {
        Ok(()) => return 0,
        Err(Wrong(number, text)) => (number, text),
    };
    DETAILS.set(format!("rc={number}\nerror.text={text}\n"));
    number
}

/// A transfer, as lines of a file: state, failure, then source and destination of each file that is not copied yet, and
/// all destinations.
struct Transfer {
    kept: PathBuf,
    state: u64,
    failure: String,
    left: Vec<(PathBuf, PathBuf)>,
    destinations: Vec<PathBuf>,
}

impl Transfer {
    fn of(server: &Server, handle: u64) -> Result<Self, Wrong> {
        let kept = server.path(&format!("transfer.{handle:016x}"));
        let text =
            fs::read_to_string(&kept).map_err(|_| wrong(libc::ENOENT, "no transfer has this handle"))?;
        let mut lines = text.lines();
        let state = lines.next().and_then(|line| line.parse().ok()).unwrap_or(FAILED);
        let failure = lines.next().unwrap_or_default().to_owned();
        let (mut left, mut destinations) = (Vec::new(), Vec::new());
        for line in lines {
            match line.split_once(' ') {
                Some((from, to)) => left.push((from_word(from), from_word(to))),
                None => destinations.push(from_word(line)),
            }
        }
        Ok(Self { kept, state, failure, left, destinations })
    }

    fn write(&self) -> Result<(), Wrong> {
        let word = |path: &Path| to_word(path.as_os_str().as_bytes());
        let mut text = format!("{}\n{}\n", self.state, self.failure);
        for (from, to) in &self.left {
            text.push_str(&format!("{} {}\n", word(from), word(to)));
        }
        for path in &self.destinations {
            text.push_str(&format!("{}\n", word(path)));
        }
        Ok(fs::write(&self.kept, text)?)
    }

    /// A bit of each file that is left.
    fn go_on(&mut self, server: &Server) -> Result<(), Wrong> {
        if self.state != IN_PROGRESS {
            return Ok(());
        }
        for (from, to) in std::mem::take(&mut self.left) {
            match server.step(&from, &to) {
                Ok(true) => {}
                Ok(false) => self.left.push((from, to)),
                Err(error) => {
                    self.failure = format!("writing {} failed: {error}", to.display());
                    self.state = FAILED;
                }
            }
        }
        if self.left.is_empty() && self.state == IN_PROGRESS {
            self.state = FULL_SUCCESS;
        }
        self.write()
    }
}

/// # Safety
/// A string that ends with a zero.
unsafe fn path(text: *const c_char) -> PathBuf {
    // SAFETY: as the caller says.
    PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// # Safety
/// A string that ends with a zero.
#[no_mangle]
pub unsafe extern "C" fn BB_InitLibrary(_contributor: u32, version: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
    let server = Server::of(BB_InitLibrary as *const () as usize);
    keep(match server {
        Err(error) => Err(error.into()),
        Ok(server) if server.setting("down").is_some() => {
            Err(wrong(libc::ECONNREFUSED, "no bbProxy runs on this node"))
        }
        Ok(_) if !version.contains("^major^:^1^") => Err(wrong(libc::EPROTO, "another major version")),
        Ok(_) if INITIALISED.swap(true, Ordering::SeqCst) => {
            Err(wrong(libc::EALREADY, "it is initialised already"))
        }
        Ok(_) => Ok(()),
    })
}

#[no_mangle]
pub extern "C" fn BB_TerminateLibrary() -> c_int {
    keep(match INITIALISED.swap(false, Ordering::SeqCst) {
        true => Ok(()),
        false => Err(wrong(libc::ENOTCONN, "the library is not initialised")),
    })
}

/// # Safety
/// A buffer of this size; a place to write to, or none.
#[no_mangle]
pub unsafe extern "C" fn BB_GetLastErrorDetails(
    format: c_int,
    available: *mut usize,
    size: usize,
    buffer: *mut c_char,
) -> c_int {
    if !(1..=3).contains(&format) {
        return libc::EINVAL;
    }
    DETAILS.with_borrow(|details| {
        if !available.is_null() {
            // SAFETY: as the caller says.
            unsafe { *available = details.len() + 1 };
        }
        let bytes = details.as_bytes();
        if !buffer.is_null() && size > 0 {
            let count = bytes.len().min(size - 1);
            // SAFETY: `count` and a zero fit, as was just seen.
            unsafe {
                buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), count);
                *buffer.add(count) = 0;
            }
        }
    });
    0
}

type Definition = Vec<(PathBuf, PathBuf)>;

/// # Safety
/// A place to write to.
#[no_mangle]
pub unsafe extern "C" fn BB_CreateTransferDef(definition: *mut *mut c_void) -> c_int {
    call(|_| {
        // SAFETY: as the caller says.
        unsafe { *definition = Box::into_raw(Box::<Definition>::default()).cast() };
        Ok(())
    })
}

/// # Safety
/// The result of the call above, and strings that end with a zero.
#[no_mangle]
pub unsafe extern "C" fn BB_AddFiles(
    definition: *mut c_void,
    from: *const c_char,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    call(|_| {
        // SAFETY: as the caller says.
        let (definition, from, to) = unsafe { (&mut *definition.cast::<Definition>(), path(from), path(to)) };
        if flags != 0 || !from.is_absolute() || !to.is_absolute() {
            return Err(wrong(libc::EINVAL, "paths must be full, and flags are for folders"));
        }
        definition.push((from, to));
        Ok(())
    })
}

/// # Safety
/// The result of `BB_CreateTransferDef`, for the last time.
#[no_mangle]
pub unsafe extern "C" fn BB_FreeTransferDef(definition: *mut c_void) -> c_int {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(definition.cast::<Definition>()) });
    0
}

/// # Safety
/// A place to write to.
#[no_mangle]
pub unsafe extern "C" fn BB_GetTransferHandle(
    tag: c_ulong,
    count: u64,
    contributors: *mut u32,
    handle: *mut u64,
) -> c_int {
    call(|server| {
        if count != 1 || !contributors.is_null() {
            return Err(wrong(libc::ENOSYS, "the stand-in has one contributor for each tag"));
        }
        // Something opaque.
        let made = tag.rotate_left(7) ^ 0x5c;
        let kept = server.path(&format!("transfer.{made:016x}"));
        if !kept.exists() {
            let (failure, left, destinations) = Default::default();
            Transfer { kept, state: NOT_STARTED, failure, left, destinations }.write()?;
        }
        // SAFETY: as the caller says.
        unsafe { *handle = made };
        Ok(())
    })
}

/// # Safety
/// The result of `BB_CreateTransferDef`.
#[no_mangle]
pub unsafe extern "C" fn BB_StartTransfer(definition: *mut c_void, handle: u64) -> c_int {
    call(|server| {
        // SAFETY: as the caller says.
        let definition = unsafe { &*definition.cast::<Definition>() };
        let mut transfer = Transfer::of(server, handle)?;
        if transfer.state != NOT_STARTED {
            return Err(wrong(libc::EALREADY, "this contributor has already contributed to the tag"));
        }
        let open = open_files();
        for (from, to) in definition {
            if open.iter().any(|path| path == from || path == to) {
                return Err(wrong(libc::EBUSY, "the process has one of the files open"));
            }
            server.begin(from, to)?;
        }
        transfer.left.clone_from(definition);
        transfer.destinations = definition.iter().map(|(_, to)| to.clone()).collect();
        transfer.state = IN_PROGRESS;
        transfer.write()
    })
}

fn open_files() -> Vec<PathBuf> {
    let links = scr_plugin_api::paths_in(Path::new("/proc/self/fd")).unwrap_or_default();
    links.iter().filter_map(|link| fs::read_link(link).ok()).collect()
}

/// # Safety
/// The results of the calls above.
#[no_mangle]
pub unsafe extern "C" fn BB_CancelTransfer(handle: u64, scope: c_int) -> c_int {
    call(|server| {
        let mut transfer = Transfer::of(server, handle)?;
        if scope != 2 {
            return Err(wrong(libc::EINVAL, "the stand-in cancels all of a tag"));
        }
        if transfer.state == IN_PROGRESS || transfer.state == NOT_STARTED {
            for path in &transfer.destinations {
                let _ = fs::remove_file(path);
            }
            transfer.state = CANCELED;
            transfer.write()?;
        }
        Ok(())
    })
}

/// `BBTransferInfo_t` of `bbapi_types.h`.
#[repr(C)]
pub struct TransferInfo {
    handle: u64,
    contribid: u32,
    jobid: u64,
    jobstepid: u64,
    tag: c_ulong,
    numcontrib: u64,
    status: u64,
    numreportingcontribs: u64,
    total_transfer_key_length: usize,
    total_transfer_size: usize,
    localstatus: u64,
    local_transfer_size: usize,
}

/// # Safety
/// A place to write to.
#[no_mangle]
pub unsafe extern "C" fn BB_GetTransferInfo(handle: u64, info: *mut TransferInfo) -> c_int {
    call(|server| {
        let mut transfer = Transfer::of(server, handle)?;
        transfer.go_on(server)?;
        DETAILS.set(transfer.failure.clone());
        let filled = TransferInfo {
            handle,
            contribid: 0,
            jobid: 1,
            jobstepid: 1,
            tag: 0,
            numcontrib: 1,
            status: transfer.state,
            numreportingcontribs: u64::from(transfer.state != NOT_STARTED),
            total_transfer_key_length: 0,
            total_transfer_size: 0,
            // `BBNOTACONTRIB`: the process that asks is perhaps not the one that contributed.
            localstatus: 0x100,
            local_transfer_size: 0,
        };
        // SAFETY: as the caller says.
        unsafe { info.write(filled) };
        Ok(())
    })
}
