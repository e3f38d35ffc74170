//! Stands in for Cray's libdatawarp: the calls that the transport makes, as the XC Series DataWarp User Guide (S-2558) says of
//! them.

#![allow(unsafe_code, missing_docs, reason = "it has the interface of a library in C")]

use scr_test_plugins::standin::{from_word, to_word, Server};
use std::ffi::{c_char, c_int, c_void, CStr, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How the staging of a file is, as a line of a file: destination, state.
struct Stage {
    kept: PathBuf,
    file: PathBuf,
    destination: PathBuf,
    state: String,
}

const PENDING: &str = "pending";
const COMPLETE: &str = "complete";

fn server() -> Result<Server, c_int> {
    Server::of(dw_query_file_stage as *const () as usize).map_err(|error| number(&error))
}

fn number(error: &std::io::Error) -> c_int {
    -error.raw_os_error().unwrap_or(libc::EIO)
}

/// # Safety
/// A string that ends with a zero.
unsafe fn path(text: *const c_char) -> PathBuf {
    // SAFETY: as the caller says.
    PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// Files are known by a number made of their paths, as these are longer than names may be.
fn kept(server: &Server, file: &Path) -> PathBuf {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    file.hash(&mut hasher);
    server.path(&format!("stage.{:016x}", hasher.finish()))
}

impl Stage {
    fn read(kept: PathBuf) -> Option<Self> {
        let text = fs::read_to_string(&kept).ok()?;
        let mut words = text.split(' ');
        let (file, destination) = (from_word(words.next()?), from_word(words.next()?));
        Some(Self { kept, file, destination, state: words.next()?.to_owned() })
    }

    fn of(server: &Server, file: &Path) -> Result<Self, c_int> {
        fs::metadata(file).map_err(|error| number(&error))?;
        Self::read(kept(server, file)).ok_or(-libc::EINVAL)
    }

    fn write(&self) -> Result<(), c_int> {
        let words =
            [to_word(self.file.as_os_str().as_bytes()), to_word(self.destination.as_os_str().as_bytes())];
        fs::write(&self.kept, format!("{} {} {}", words[0], words[1], self.state))
            .map_err(|error| number(&error))
    }

    fn go_on(&mut self, server: &Server) -> Result<(), c_int> {
        if self.state != PENDING {
            return Ok(());
        }
        match server.step(&self.file, &self.destination) {
            Ok(false) => return Ok(()),
            Ok(true) => self.state = COMPLETE.to_owned(),
            Err(error) => self.state = format!("failed{}", -number(&error)),
        }
        self.write()
    }

    fn failure(&self) -> Option<c_int> {
        self.state.strip_prefix("failed")?.parse().ok()
    }
}

fn returned(outcome: Result<(), c_int>) -> c_int {
    outcome.err().unwrap_or(0)
}

/// # Safety
/// Strings that end with a zero.
#[no_mangle]
pub unsafe extern "C" fn dw_stage_file_out(file: *const c_char, to: *const c_char, kind: c_int) -> c_int {
    // SAFETY: as the caller says.
    let (file, destination) = unsafe { (path(file), path(to)) };
    let begin = || {
        let server = server()?;
        if kind != 0 {
            return Err(-libc::EINVAL);
        }
        let kept = kept(&server, &file);
        if Stage::read(kept.clone()).is_some_and(|stage| stage.state == PENDING) {
            return Err(-libc::EALREADY);
        }
        server.begin(&file, &destination).map_err(|error| number(&error))?;
        Stage { kept, file: file.clone(), destination: destination.clone(), state: PENDING.to_owned() }
            .write()
    };
    returned(begin())
}

/// # Safety
/// A string that ends with a zero, and places to write to.
#[no_mangle]
pub unsafe extern "C" fn dw_query_file_stage(
    file: *const c_char,
    complete: *mut c_int,
    pending: *mut c_int,
    deferred: *mut c_int,
    failed: *mut c_int,
) -> c_int {
    // SAFETY: as the caller says.
    let file = unsafe { path(file) };
    let ask = || {
        let server = server()?;
        let mut stage = Stage::of(&server, &file)?;
        stage.go_on(&server)?;
        // SAFETY: as the caller says.
        unsafe {
            *complete = c_int::from(stage.state == COMPLETE);
            *pending = c_int::from(stage.state == PENDING);
            *deferred = 0;
            *failed = c_int::from(stage.failure().is_some());
        }
        Ok(())
    };
    returned(ask())
}

/// # Safety
/// A string that ends with a zero.
#[no_mangle]
pub unsafe extern "C" fn dw_wait_file_stage(file: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    let file = unsafe { path(file) };
    loop {
        let step = || {
            let server = server()?;
            let mut stage = Stage::of(&server, &file)?;
            stage.go_on(&server)?;
            Ok(stage)
        };
        match step() {
            Err(error) => return error,
            Ok(stage) if stage.state == PENDING => std::thread::yield_now(),
            Ok(stage) => return -stage.failure().unwrap_or(0),
        }
    }
}

/// # Safety
/// A string that ends with a zero.
#[no_mangle]
pub unsafe extern "C" fn dw_terminate_file_stage(file: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    let file = unsafe { path(file) };
    let end = || {
        let server = server()?;
        let stage = Stage::of(&server, &file)?;
        if stage.state == COMPLETE {
            return Err(-libc::EINVAL);
        }
        fs::remove_file(stage.kept).map_err(|error| number(&error))
    };
    returned(end())
}

/// Files below a folder whose staging has failed.
type Failed = Vec<(PathBuf, c_int)>;

/// # Safety
/// A string that ends with a zero, and a place to write to.
#[no_mangle]
pub unsafe extern "C" fn dw_open_failed_stage(folder: *const c_char, list: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller says.
    let folder = unsafe { path(folder) };
    let open = || {
        let server = server()?;
        let all = server.all("stage.").map_err(|error| number(&error))?;
        let stages = all.into_iter().filter_map(Stage::read).filter(|stage| stage.file.starts_with(&folder));
        let failed: Failed =
            stages.filter_map(|stage| stage.failure().map(|failure| (stage.file, failure))).collect();
        // SAFETY: as the caller says.
        unsafe { *list = Box::into_raw(Box::new(failed)).cast() };
        Ok(())
    };
    returned(open())
}

/// # Safety
/// The result of the call above, a buffer of this size, and a place to write to.
#[no_mangle]
pub unsafe extern "C" fn dw_read_failed_stage(
    list: *mut c_void,
    buffer: *mut c_char,
    size: c_int,
    errno: *mut c_int,
) -> c_int {
    // SAFETY: as the caller says.
    let failed = unsafe { &mut *list.cast::<Failed>() };
    let Some((file, failure)) = failed.pop() else { return 0 };
    let bytes = file.as_os_str().as_bytes();
    if bytes.len() >= usize::try_from(size).unwrap_or(0) {
        return -libc::ENAMETOOLONG;
    }
    // SAFETY: there is room for the bytes and a zero, as was just seen, and for the number, as the caller says.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        *buffer.add(bytes.len()) = 0;
        *errno = -failure;
    }
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

/// # Safety
/// The result of `dw_open_failed_stage`, for the last time.
#[no_mangle]
pub unsafe extern "C" fn dw_close_failed_stage(list: *mut c_void) -> c_int {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(list.cast::<Failed>()) });
    0
}
