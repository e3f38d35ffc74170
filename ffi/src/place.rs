//! The path of this library, and so the folder of its installation: a moved tree finds its own files.
//! A program that `libscr.a` is linked into finds the tree where it would find `libscr.so`.

use crate::failure::{Code, Failure};
use scr_base::env::Env;
use scr_base::fs::RealFiles;
use std::ffi::{c_char, c_void, CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The world around this process.
pub(crate) fn environment() -> Result<Env, Failure> {
    let mut env = Env::of_process(install_dir()?, Arc::new(RealFiles)).map_err(|error| {
        Failure::Said(Code::Io, format!("cannot learn the current folder of the process: {error}"))
    })?;
    // SAFETY: reads a word that the kernel gave the process. It also tells of capabilities of the program's file.
    env.is_privileged |= unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    Ok(env)
}

/// The folder of the installation, from the path of this very library. `None` where it does not lie in one.
fn install_dir() -> Result<Option<PathBuf>, Failure> {
    let library = match folders_of_archive() {
        Some(folders) => Some(library_in(&folders, Path::is_dir)?),
        None => library_path(),
    };
    // Where that is refused, as by an old container, the path is taken as it is.
    let library = library.map(|library| library.canonicalize().unwrap_or(library));
    Ok(library.and_then(|library| installation_of(&library).map(Path::to_path_buf)))
}

/// Where `libscr.so` would be found in these folders. Without its installation, the settings of the site would be missed.
fn library_in(folders: &OsStr, is_dir: impl Fn(&Path) -> bool) -> Result<PathBuf, Failure> {
    let mut all = std::env::split_paths(folders).filter(|folder| folder.is_absolute());
    let found = all.find(|folder| is_dir(&folder.join("scr/plugins")));
    found.map(|folder| folder.join("libscr.so")).ok_or_else(|| {
        let last = std::env::split_paths(folders).last().unwrap_or_default();
        Failure::Said(
            Code::Io,
            format!(
                "this program is linked with libscr.a, and the installation of scr is not found: there is no {}/scr/plugins; \
                 set LD_LIBRARY_PATH to the folder `lib' of the installation, or link with -Wl,-rpath and that folder",
                last.display()
            ),
        )
    })
}

extern "C" {
    fn scr_library_folders() -> *mut c_char;
}

/// The folders in which a program looks for libraries, and last the one of the archive. `None` in `libscr.so`.
fn folders_of_archive() -> Option<OsString> {
    // SAFETY: a function without arguments, which gives NULL or a null-terminated string that is ours.
    unsafe {
        let folders = scr_library_folders();
        let text =
            (!folders.is_null()).then(|| OsString::from_vec(CStr::from_ptr(folders).to_bytes().to_vec()));
        libc::free(folders.cast());
        text
    }
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
    fn a_program_with_the_archive_finds_the_first_folder_with_plugins() {
        let library = |there: &'static [&str]| {
            let is_dir = |folder: &Path| there.iter().any(|there| Path::new(there) == folder);
            library_in(OsStr::new(".:/usr/lib:/a/lib:/b/lib64"), is_dir).map_err(|error| error.to_string())
        };
        assert_eq!(
            library(&["/a/lib/scr/plugins", "/b/lib64/scr/plugins"]).unwrap(),
            Path::new("/a/lib/libscr.so")
        );
        assert_eq!(
            library(&["./scr/plugins", "/b/lib64/scr/plugins"]).unwrap(),
            Path::new("/b/lib64/libscr.so")
        );
        let text = library(&["/usr/lib"]).unwrap_err();
        assert!(text.contains("there is no /b/lib64/scr/plugins; set LD_LIBRARY_PATH to"), "{text}");
    }

    #[test]
    fn this_code_knows_the_file_it_lies_in() {
        assert!(library_path().unwrap().is_file());
    }
}
