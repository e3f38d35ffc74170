//! Loads a checked library: the linker gets the very file that was checked, by its descriptor.
//!
//! Nothing is ever unloaded, since objects of a plugin may live for any time. So the linker's list only grows, and two of its
//! properties matter. It takes a known name for the library of that name without opening the file, so every library gets a unique
//! name. And it takes a file that it has loaded before for the same library, so this module detects and refuses a file that was
//! changed since.

// The one module of core that loads foreign code.
#![allow(unsafe_code)]

use super::check::CheckedLibrary;
use abi_stable::library::{AbiHeaderRef, LibHeader, LibraryError, ROOT_MODULE_LOADER_NAME_WITH_NUL};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nix::unistd::gettid;
use scr_base::ensure;
use scr_base::fs::{Files, Status};
use scr_plugin_api::abi::{ApiVersion, LoadedPlugin, API_VERSION};
use scr_plugin_api::{held, repeat};
use std::fmt::Display;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Mutex;

/// A library in the linker's list.
struct Loaded {
    status: Status,
    sha256: String,
    header: &'static LibHeader,
    /// The plugin in it, once all that was asked of it was right.
    plugin: Option<LoadedPlugin>,
}

/// The libraries that this process has loaded so far: a copy of the linker's list, which is also one per process.
static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// Loads a library and gives the plugin in it. A library that is loaded already is not loaded, nor looked at, again.
///
/// # Errors
/// A text with the path and the reason.
pub fn load(files: &dyn Files, library: &CheckedLibrary) -> Result<LoadedPlugin, String> {
    let path = library.path.display();
    // Held while loading, so that two threads cannot both load the same file.
    let mut loaded = held(&LOADED);
    let known = loaded.iter().position(|known| known.status.identity == library.status.identity);
    let at = match known {
        Some(at) => at,
        None => {
            let none = |_| format!("the library {path} is not a file of the system, so it cannot be loaded");
            let descriptor = library.file.descriptor().map_err(none)?;
            let header = open(files, &library.path, descriptor)?;
            let (status, sha256) = (library.status, library.sha256.clone());
            loaded.push(Loaded { status, sha256, header, plugin: None });
            loaded.len() - 1
        }
    };
    let known = &mut loaded[at];
    ensure(known.sha256 == library.sha256, || {
        format!("the library {path} was changed after this process had loaded it; start the process again")
    })?;
    match known.plugin {
        Some(plugin) => Ok(plugin),
        None => Ok(*known.plugin.insert(plugin_of(&library.path, known.header)?)),
    }
}

fn plugin_of(path: &Path, header: &LibHeader) -> Result<LoadedPlugin, String> {
    let version = check_version(path, header)?;
    let plugin = LoadedPlugin::of_library(header, version).map_err(|error| explain(path, &error))?;
    let version = plugin.api_version();
    ensure(API_VERSION.works_with(version), || other_version(path, &version))?;
    Ok(plugin)
}

/// Has the linker load the file open as `descriptor`, forever.
fn open(files: &dyn Files, path: &Path, descriptor: BorrowedFd<'_>) -> Result<&'static LibHeader, String> {
    let open = || {
        let name = linker_name(descriptor);
        // All symbols are bound now: a missing one is an error here rather than the end of the process later.
        // SAFETY: initialisers of the library run. It is a whole library that only trusted users could have written,
        // and the user's configuration names it.
        let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
        library.map_err(|error| {
            let text =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            let path = path.display().to_string();
            format!("the library {path} cannot be loaded: {}", text.replace(&name, &path))
        })
    };
    // The linker has read the file anew, and does not say which errors may pass.
    let library = repeat(|_| true, |time| files.pause(time), open)?;
    // SAFETY: the symbol of this name, made by the loader's own scheme, is a static that begins with an `AbiHeader`;
    // a reference to it is what `AbiHeaderRef` is.
    let symbol = unsafe { library.get::<AbiHeaderRef>(ROOT_MODULE_LOADER_NAME_WITH_NUL.as_bytes()) };
    let header = symbol.map(|symbol| *symbol).map_err(|_| {
        format!(
            "the library {} is no scr plugin: it does not export one (see export_scheme! in scr-plugin-api)",
            path.display()
        )
    });
    // Its code may run from now on for as long as the process, also where the library turned out to be none of ours.
    std::mem::forget(library);
    header?.upgrade().map_err(|error| explain(path, &error))
}

/// A path to the open file that the linker has never seen, since a number of a descriptor is used again.
fn linker_name(descriptor: BorrowedFd<'_>) -> String {
    static NAMES: Mutex<usize> = Mutex::new(0);
    let mut names = held(&NAMES);
    *names += 1;
    // The linker compares names letter by letter; the system does not mind how many slashes there are. A thread may have a
    // table of descriptors of its own.
    format!("/proc/self/task/{}{}fd/{}", gettid(), "/".repeat(*names), descriptor.as_raw_fd())
}

/// Compares the version first: a description of differing layouts helps nobody.
fn check_version(path: &Path, header: &LibHeader) -> Result<ApiVersion, String> {
    let found = header.version_strings().version.as_str();
    let version = found.rsplit_once('.').and_then(|(version, _)| version.parse().ok());
    version.filter(|&version| API_VERSION.works_with(version)).ok_or_else(|| other_version(path, &found))
}

fn other_version(path: &Path, found: &dyn Display) -> String {
    format!(
        "the plugin {} was built for version {found} of the plugin interface, and this scr has {API_VERSION}; \
         get a plugin for {}.x",
        path.display(),
        API_VERSION.major
    )
}

fn explain(path: &Path, error: &LibraryError) -> String {
    let path = path.display();
    let summary = match error {
        LibraryError::AbiInstability(text) => mismatch(&text.to_string()),
        LibraryError::InvalidAbiHeader(header) => {
            format!("it was built with abi_stable {}.{}", header.abi_major, header.abi_minor)
        }
        LibraryError::RootModule { .. } => {
            let text = error.to_string();
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let text = lines.collect::<Vec<_>>().join("; ");
            return format!("the plugin {path} failed while it was loaded: {text}");
        }
        other => mismatch(&other.to_string()),
    };
    format!(
        "the plugin {path} does not fit the plugin interface {API_VERSION}: {summary}; build it with the scr-plugin-api of this scr"
    )
}

/// The last error of a text that may have a hundred thousand letters.
fn mismatch(text: &str) -> String {
    const LETTERS: usize = 300;
    let error = text.rsplit("\nError:").next().unwrap_or(text);
    let error = error.replacen("\nExpected:", ":", 1).replacen("\nFound:", " and", 1);
    error.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_text_the_last_error_is_given() {
        let long = "layout of a type\n".repeat(5_000);
        let text = format!("{long}\n\nError:too many fields\nExpected:\n    7\nFound:\n    6\n");
        assert_eq!(mismatch(&text), "too many fields: 7 and 6");
        assert_eq!(mismatch(&"x".repeat(100_000)), "x".repeat(300));
        assert_eq!(mismatch(""), "");
    }

    #[test]
    fn no_two_libraries_get_the_same_name() {
        use std::os::fd::AsFd;
        let input = std::io::stdin();
        let names: Vec<_> = (0..3).map(|_| linker_name(input.as_fd())).collect();
        assert!(names[0] != names[1] && names[1] != names[2]);
        let input = format!("/proc/self/task/{}/fd/0", gettid());
        assert!(names.iter().all(|name| Path::new(name) == Path::new(&input)));
    }
}
