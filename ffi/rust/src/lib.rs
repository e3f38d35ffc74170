//! Checkpoint and restart for MPI applications in Rust, over the installed `libscr.so`.
//!
//! A [`Library`] lives between `MPI_Init` and `MPI_Finalize`, which the borrowed [`Universe`] guarantees. A dataset being
//! written is an [`Output`], and a checkpoint being read is a [`Restart`]; each ends what it began. One that is dropped
//! without `complete`, as when `?` returns early, ends as invalid on all ranks: a dataset that was cut short never counts,
//! and a checkpoint that was not read is given up for the next older one. A panic leaves it open on its rank, since no good
//! checkpoint must be given up for a fault of the program. All calls are collective over `MPI_COMM_WORLD`, or the
//! communicator that [`Library::init_comm`] was given, apart from `route` and the ranks and files of a [`Restart`].
//!
//! The other ranks wait for one that has left with an error. So end the job then, as below, and build with
//! `panic = "abort"`.
//!
//! ```no_run
//! use mpi::traits::*;
//! use scr::{Flags, Library};
//!
//! fn main() {
//!     let universe = mpi::initialize().expect("MPI cannot be initialized");
//!     if let Err(error) = run(&universe) {
//!         eprintln!("{error}");
//!         universe.world().abort(1);
//!     }
//! }
//!
//! fn run(universe: &mpi::environment::Universe) -> Result<(), Box<dyn std::error::Error>> {
//!     let rank = universe.world().rank();
//!     scr::config("SCR_CHECKPOINT_INTERVAL=100")?; // unless the environment or a file says otherwise
//!     let mut library = Library::init(universe)?;
//!
//!     let (mut state, mut step) = (vec![0_u8; 1000], 0_u64);
//!     while let Some(restart) = library.restart()? {
//!         let name = restart.name().to_owned();
//!         // No `?`: a rank that cannot read its file says so to the others.
//!         let path = restart.route(format!("{name}/rank_{rank}")).ok();
//!         let found = path.and_then(|path| std::fs::read(path).ok());
//!         if restart.complete(found.is_some()) {
//!             // Only now: all ranks have read the same checkpoint.
//!             state = found.unwrap_or_default();
//!             step = name.trim_start_matches("step.").parse()?;
//!             break;
//!         }
//!     }
//!     while step < 1000 && !library.should_exit()? {
//!         step += 1;
//!         state[0] = step as u8;
//!         if library.need_checkpoint()? {
//!             let name = format!("step.{step}");
//!             let output = library.output(&name, Flags::CHECKPOINT)?;
//!             std::fs::write(output.route(format!("{name}/rank_{rank}"))?, &state)?;
//!             output.complete()?;
//!         }
//!     }
//!     library.finalize()?;
//!     Ok(())
//! }
//! ```

mod raw;

use mpi::environment::Universe;
use mpi::topology::Communicator;
use std::ffi::{c_int, CStr, CString, OsStr};
use std::marker::PhantomData;
use std::ops::BitOr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A run under the library, from `SCR_Init` to [`finalize`](Self::finalize).
///
/// A program that drops it without `finalize`, as when `?` returns early, has not come to its end: nothing is flushed, and
/// the job is started again.
#[derive(Debug)]
pub struct Library<'mpi> {
    /// MPI is not finalized before, and no other thread calls.
    mpi: PhantomData<(&'mpi Universe, *const ())>,
}

impl<'mpi> Library<'mpi> {
    /// Starts the library.
    ///
    /// # Errors
    /// [`Error`] with the library's message, as where a setting cannot be used or `SCR_ENABLE=0`.
    pub fn init(_mpi: &'mpi Universe) -> Result<Self, Error> {
        raw::outcome(raw::SCR_Init())?;
        Ok(Self { mpi: PhantomData })
    }

    /// Starts the library for the processes of a communicator, all of which call this. It works on a duplicate.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn init_comm(_mpi: &'mpi Universe, comm: &impl Communicator) -> Result<Self, Error> {
        raw::init_comm(comm.as_raw())?;
        Ok(Self { mpi: PhantomData })
    }

    /// Goes on after processes have died, with a communicator of those that go on. New ones call [`init_comm`](Self::init_comm).
    /// Drops what was under way; then all is as after `init`, with the newest checkpoint to restart from.
    ///
    /// # Errors
    /// As for [`init`](Self::init). It may be called again with another communicator.
    pub fn recover(&mut self, comm: &impl Communicator) -> Result<(), Error> {
        raw::recover(comm.as_raw())
    }

    /// Whether it is time for a checkpoint.
    ///
    /// # Errors
    /// [`Error`]: the ranks could not talk.
    pub fn need_checkpoint(&self) -> Result<bool, Error> {
        Ok(raw::asked(|flag| raw::SCR_Need_checkpoint(flag))? != 0)
    }

    /// Whether the application should stop now.
    ///
    /// # Errors
    /// [`Error`]: the ranks could not talk.
    pub fn should_exit(&self) -> Result<bool, Error> {
        Ok(raw::asked(|flag| raw::SCR_Should_exit(flag))? != 0)
    }

    /// Begins a dataset of this name, which has 1 to 1023 bytes.
    ///
    /// # Errors
    /// [`Error`]: no dataset was begun, on any rank.
    pub fn output(&mut self, name: &str, flags: Flags) -> Result<Output<'_>, Error> {
        raw::start_output(&c_string(name.as_bytes())?, flags.0)?;
        Ok(Output { phase: Phase { end: Some(raw::SCR_Complete_output), library: PhantomData } })
    }

    /// Begins to read the newest checkpoint that is left; `None` where there is none.
    ///
    /// # Errors
    /// [`Error`]: the ranks could not talk.
    pub fn restart(&mut self) -> Result<Option<Restart<'_>>, Error> {
        if !raw::have_restart()? {
            return Ok(None);
        }
        let name = raw::start_restart()?;
        let phase = Phase { end: Some(raw::SCR_Complete_restart), library: PhantomData };
        Ok(Some(Restart { name: String::from_utf8_lossy(&name).into_owned(), phase }))
    }

    /// Says that the application has restarted from this dataset by itself.
    ///
    /// # Errors
    /// [`Error`]: there is no such dataset.
    pub fn current(&mut self, name: &str) -> Result<(), Error> {
        raw::of_dataset(raw::SCR_Current, &c_string(name.as_bytes())?)
    }

    /// Forgets the entry of a dataset in the index; its files stay.
    ///
    /// # Errors
    /// [`Error`]: the index cannot be changed.
    pub fn forget(&mut self, name: &str) -> Result<(), Error> {
        raw::of_dataset(raw::SCR_Drop, &c_string(name.as_bytes())?)
    }

    /// Deletes the files of a dataset, from the prefix directory and from the cache.
    ///
    /// # Errors
    /// [`Error`]: there is no such dataset, or a file cannot be removed.
    pub fn delete(&mut self, name: &str) -> Result<(), Error> {
        raw::of_dataset(raw::SCR_Delete, &c_string(name.as_bytes())?)
    }

    /// Shuts the library down: flushes what is due, and records that the job has finished.
    ///
    /// # Errors
    /// [`Error`]: a dataset that was due could not be flushed; it stays in cache.
    pub fn finalize(self) -> Result<(), Error> {
        raw::outcome(raw::SCR_Finalize())
    }
}

/// Sets a parameter (`NAME=value`) or unsets it (`NAME=`), both before [`Library::init`], or gives its value (`NAME`).
///
/// # Errors
/// [`Error`]: there is no such parameter, it cannot have this value, or it is set after [`Library::init`].
pub fn config(line: &str) -> Result<Option<String>, Error> {
    raw::config(&c_string(line.as_bytes())?)
}

/// The version of the library.
pub fn version() -> String {
    raw::version()
}

/// A dataset being written.
#[derive(Debug)]
#[must_use = "a dataset that is dropped ends as invalid"]
pub struct Output<'library> {
    phase: Phase<'library>,
}

impl Output<'_> {
    /// The path at which to write a file of the dataset. Local.
    ///
    /// # Errors
    /// [`Error`]: the path is outside the prefix directory, or cannot be made.
    pub fn route(&self, name: impl AsRef<Path>) -> Result<PathBuf, Error> {
        route(name.as_ref())
    }

    /// Ends the dataset: this rank has written all its files.
    ///
    /// # Errors
    /// [`Error`]: the dataset is not complete, since some rank failed.
    pub fn complete(mut self) -> Result<(), Error> {
        self.phase.finish(true)
    }
}

/// A checkpoint being read.
#[derive(Debug)]
#[must_use = "a restart that is dropped gives the checkpoint up"]
pub struct Restart<'library> {
    name: String,
    phase: Phase<'library>,
}

impl Restart<'_> {
    /// The name of the checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path at which to read a file of the checkpoint. Local.
    ///
    /// # Errors
    /// [`Error`]: there is no such file in the checkpoint.
    pub fn route(&self, name: impl AsRef<Path>) -> Result<PathBuf, Error> {
        route(name.as_ref())
    }

    /// The number of ranks that wrote the checkpoint. With `SCR_RESTART_OTHER_RANKS=1` it may be another one than that of this
    /// run. Local.
    ///
    /// # Errors
    /// [`Error`]: none in a restart.
    pub fn ranks(&self) -> Result<i32, Error> {
        raw::asked(|ranks| raw::SCR_Restart_ranks(ranks))
    }

    /// The names of the files that one of these ranks wrote: [`route`](Self::route) takes each on every rank. Local.
    ///
    /// # Errors
    /// [`Error`]: there is no such rank, or `SCR_RESTART_OTHER_RANKS` is not set.
    pub fn files(&self, rank: i32) -> Result<Vec<PathBuf>, Error> {
        let names = raw::restart_files(rank)?;
        Ok(names.iter().map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
    }

    /// Ends the restart; `valid` says whether this rank has read its files. Returns whether all ranks have; if not,
    /// the next older checkpoint is loaded.
    pub fn complete(mut self, valid: bool) -> bool {
        self.phase.finish(valid).is_ok()
    }
}

/// Properties of a dataset, to be combined with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(c_int);

impl Flags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// The job can restart from it.
    pub const CHECKPOINT: Self = Self(1);
    /// It must reach the prefix directory.
    pub const OUTPUT: Self = Self(2);
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A call that failed, with the library's own message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: i32,
    message: String,
}

impl Error {
    /// The number of `scr.h`.
    pub fn code(&self) -> i32 {
        self.code
    }
}

/// A phase, which ends once.
#[derive(Debug)]
struct Phase<'library> {
    end: Option<extern "C" fn(c_int) -> c_int>,
    library: PhantomData<&'library mut ()>,
}

impl Phase<'_> {
    fn finish(&mut self, valid: bool) -> Result<(), Error> {
        self.end.take().map_or(Ok(()), |end| raw::outcome(end(c_int::from(valid))))
    }
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        // A panic is a fault of the program, for which no good checkpoint must be given up.
        if !std::thread::panicking() {
            // It fails, which is what it is called for.
            let _ = self.finish(false);
        }
    }
}

fn route(name: &Path) -> Result<PathBuf, Error> {
    let path = raw::route_file(&c_string(name.as_os_str().as_bytes())?)?;
    Ok(PathBuf::from(OsStr::from_bytes(&path)))
}

fn c_string(text: &[u8]) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error {
        code: ERR_ARGUMENT,
        message: format!("`{}' holds a null byte", String::from_utf8_lossy(text)),
    })
}

/// `SCR_ERR_ARGUMENT`.
const ERR_ARGUMENT: c_int = 3;

/// The meaning of a code of `scr.h`.
fn checked(code: c_int, message: &CStr) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        code => Err(Error { code, message: message.to_string_lossy().into_owned() }),
    }
}
