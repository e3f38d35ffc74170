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
use scr_base::fs::Status;
use scr_plugin_api::abi::{ApiVersion, LoadedPlugin, API_VERSION};
use scr_plugin_api::held;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Why a library that passed the checks could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The dynamic linker refuses it.
    #[error("the library {} cannot be loaded: {text}", path.display())]
    Linker {
        /// Which.
        path: PathBuf,
        /// The error of the linker.
        text: String,
    },
    /// It is a library, but no plugin.
    #[error("the library {} is no scr plugin: it does not export one (see export_scheme! in scr-plugin-api)", path.display())]
    NotAPlugin {
        /// Which.
        path: PathBuf,
    },
    /// It was built against another version of the boundary.
    #[error(
        "the plugin {} was built for version {found} of the plugin interface, and this scr has {API_VERSION}; \
         get a plugin for {}.x",
        path.display(), API_VERSION.major
    )]
    OtherVersion {
        /// Which.
        path: PathBuf,
        /// The version it was built for.
        found: String,
    },
    /// It says the right version, but its types are other ones.
    #[error("the plugin {} does not fit the plugin interface {API_VERSION}: {summary}", path.display())]
    OtherLayout {
        /// Which.
        path: PathBuf,
        /// The kind of mismatch and where it was found.
        summary: String,
    },
    /// It failed when it was asked what it offers.
    #[error("the plugin {} failed while it was loaded: {text}", path.display())]
    Failed {
        /// Which.
        path: PathBuf,
        /// How.
        text: String,
    },
    /// This process has loaded the same file when it held something else.
    #[error("the library {} was changed after this process had loaded it; start the process again", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
    },
    /// The file is on no file system that the linker could read.
    #[error("the library {} is not a file of the system, so it cannot be loaded", path.display())]
    NoDescriptor {
        /// Which.
        path: PathBuf,
    },
}

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
/// [`LoadError`] with the path and the reason.
pub fn load(library: &CheckedLibrary) -> Result<LoadedPlugin, LoadError> {
    let path = || library.path.clone();
    // Held while loading, so that two threads cannot both load the same file.
    let mut loaded = held(&LOADED);
    let known = loaded.iter().position(|known| known.status.identity == library.status.identity);
    let at = match known {
        Some(at) => at,
        None => {
            let descriptor =
                library.file.descriptor().map_err(|_| LoadError::NoDescriptor { path: path() })?;
            let header = open(&library.path, descriptor)?;
            let (status, sha256) = (library.status, library.sha256.clone());
            loaded.push(Loaded { status, sha256, header, plugin: None });
            loaded.len() - 1
        }
    };
    let known = &mut loaded[at];
    if known.sha256 != library.sha256 {
        return Err(LoadError::Changed { path: path() });
    }
    match known.plugin {
        Some(plugin) => Ok(plugin),
        None => Ok(*known.plugin.insert(plugin_of(&library.path, known.header)?)),
    }
}

fn plugin_of(path: &Path, header: &LibHeader) -> Result<LoadedPlugin, LoadError> {
    let version = check_version(path, header)?;
    let plugin = LoadedPlugin::of_library(header, version).map_err(|error| explain(path, &error))?;
    if API_VERSION.works_with(plugin.api_version()) {
        Ok(plugin)
    } else {
        Err(LoadError::OtherVersion { path: path.to_owned(), found: plugin.api_version().to_string() })
    }
}

/// Has the linker load the file open as `descriptor`, forever.
fn open(path: &Path, descriptor: BorrowedFd<'_>) -> Result<&'static LibHeader, LoadError> {
    let name = linker_name(descriptor);
    // All symbols are bound now: a missing one is an error here rather than the end of the process later.
    // SAFETY: initialisers of the library run. It is a whole library that only trusted users could have written,
    // and the user's configuration names it.
    let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        LoadError::Linker { path: path.to_owned(), text: text.replace(&name, &path.display().to_string()) }
    })?;
    // SAFETY: the symbol of this name, made by the loader's own scheme, is a static that begins with an `AbiHeader`;
    // a reference to it is what `AbiHeaderRef` is.
    let symbol = unsafe { library.get::<AbiHeaderRef>(ROOT_MODULE_LOADER_NAME_WITH_NUL.as_bytes()) };
    let header = symbol.map(|symbol| *symbol).map_err(|_| LoadError::NotAPlugin { path: path.to_owned() });
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
fn check_version(path: &Path, header: &LibHeader) -> Result<ApiVersion, LoadError> {
    let found = header.version_strings().version.as_str();
    let mut numbers = found.split('.').map(str::parse::<u32>);
    let version = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some(ApiVersion { major, minor }),
        _ => None,
    };
    match version {
        Some(version) if API_VERSION.works_with(version) => Ok(version),
        _ => Err(LoadError::OtherVersion { path: path.to_owned(), found: found.to_owned() }),
    }
}

fn explain(path: &Path, error: &LibraryError) -> LoadError {
    let path = path.to_owned();
    match error {
        LibraryError::AbiInstability(text) => {
            LoadError::OtherLayout { path, summary: last_lines(&text.to_string()) }
        }
        LibraryError::InvalidAbiHeader(header) => {
            let found = format!("{}.{}", header.abi_major, header.abi_minor);
            LoadError::OtherLayout { path, summary: format!("it was built with abi_stable {found}") }
        }
        LibraryError::RootModule { .. } => LoadError::Failed { path, text: one_line(&error.to_string()) },
        other => LoadError::OtherLayout { path, summary: last_lines(&other.to_string()) },
    }
}

/// The end of a text that may have a hundred thousand letters: there the mismatch itself stands.
fn last_lines(text: &str) -> String {
    const LINES: usize = 3;
    const LETTERS: usize = 300;
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = lines.len().saturating_sub(LINES);
    let end = lines.get(first..).unwrap_or_default().join("; ");
    match end.char_indices().rev().nth(LETTERS) {
        Some((begin, _)) => format!("...{}", end.get(begin..).unwrap_or("")),
        None => end,
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_its_beginning() {
        let long = "layout of a type\n".repeat(5_000) + "\n  expected: 7 fields\n\n  found: 6 fields\n";
        assert_eq!(last_lines(&long), "layout of a type; expected: 7 fields; found: 6 fields");
        let text = last_lines(&"x".repeat(100_000));
        assert!(text.starts_with("...x") && text.len() < 320, "{text}");
        assert_eq!(last_lines(""), "");
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
