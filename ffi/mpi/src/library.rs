//! Which MPI library the process runs with. It need not be the one that this library was built with.

use std::os::raw::c_int;
use std::sync::OnceLock;

use ::mpi::ffi;

use super::calls::SUCCESS;

/// The MPI library of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// As it calls itself, in one line.
    pub name: String,
    /// Whether it is Open MPI, or made from it, as Spectrum MPI is. All others that matter are kin of MPICH.
    pub is_open_mpi: bool,
}

/// The MPI library of the process. May be asked at any time.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::of(&version()))
}

impl Library {
    /// By the text of `MPI_Get_library_version`.
    fn of(version: &str) -> Self {
        Self {
            name: version.lines().next().unwrap_or_default().replace('\t', " "),
            is_open_mpi: ["Open MPI", "Spectrum MPI"].iter().any(|name| version.contains(name)),
        }
    }
}

fn version() -> String {
    let mut version = vec![0_u8; LONGEST_VERSION];
    let mut len: c_int = 0;
    // SAFETY: may be called at any time; the buffer is longer than that of any MPI, and the length has room.
    let code = unsafe { ffi::MPI_Get_library_version(version.as_mut_ptr().cast(), &raw mut len) };
    let len = if code == SUCCESS { usize::try_from(len).unwrap_or(0).min(version.len()) } else { 0 };
    String::from_utf8_lossy(&version[..len]).into_owned()
}

/// `MPI_MAX_LIBRARY_VERSION_STRING` is 256 for Open MPI and 8192 for MPICH, and which of them answers is the question.
const LONGEST_VERSION: usize = 16 * 1024;
