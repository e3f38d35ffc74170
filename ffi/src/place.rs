//! The path of this library, and so the folder of its installation: a moved tree finds its own files.

use crate::failure::{Code, Failure};
use scr_base::env::Env;
use scr_base::fs::RealFiles;
use std::ffi::{c_void, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The world around this process.
pub(crate) fn environment() -> Result<Env, Failure> {
    let mut env = Env::of_process(install_dir(), Arc::new(RealFiles)).map_err(|error| {
        Failure::Said(Code::Io, format!("cannot learn the current folder of the process: {error}"))
    })?;
    // SAFETY: reads a word that the kernel gave the process. It also tells of capabilities of the program's file.
    env.is_privileged |= unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    Ok(env)
}

/// The folder of the installation, from the path of this very library. `None` where it does not lie in one.
fn install_dir() -> Option<PathBuf> {
    let library = library_path()?;
    // Where that is refused, as by an old container, the path is taken as it is.
    installation_of(&library.canonicalize().unwrap_or(library)).map(Path::to_path_buf)
}

/// `X` of `X/lib/libscr.so`, of `X/lib64/libscr.so` and of `X/lib/x86_64-linux-gnu/libscr.so`.
fn installation_of(library: &Path) -> Option<&Path> {
    let folders = library.ancestors().skip(1).take(2);
    let named = |folder: &&Path| folder.file_name().is_some_and(|name| name == "lib" || name == "lib64");
    folders.into_iter().find(named).and_then(Path::parent)
}

fn library_path() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let inside: extern "C" fn() = marker;
    // SAFETY: an address inside this library, and room for the answer.
    let found = unsafe { libc::dladdr(inside as *const c_void, info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: zeroed before, and filled by dladdr; all-zero is a valid Dl_info too.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a null-terminated name that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

extern "C" fn marker() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installation_is_above_the_library_folder() {
        let of = |path: &'static str| installation_of(Path::new(path));
        assert_eq!(of("/opt/scr/lib/libscr.so"), Some(Path::new("/opt/scr")));
        assert_eq!(of("/opt/scr/lib64/libscr.so"), Some(Path::new("/opt/scr")));
        assert_eq!(of("/usr/lib/x86_64-linux-gnu/libscr.so"), Some(Path::new("/usr")));
        assert_eq!(of("/home/u/scr/target/release/libscr.so"), None);
    }

    #[test]
    fn this_code_knows_the_file_it_lies_in() {
        assert!(library_path().unwrap().is_file());
    }
}
