//! The world around a session: variables, folders, names, clock, output. Taken once, at its start.
//!
//! Core asks nothing else: no `std::env`, no `current_dir`, no clock of its own. A test makes the world it needs.
//!
//! | part | what it is |
//! |---|---|
//! | `local_time` | the time of day in the zone of this system |
//! | `process` | as the running process sees it |
//! | `trust` | whose files this process trusts |
//! | `watch` | the thread that polls calls that may hang |

mod local_time;
mod process;
mod standard;
mod trust;
mod watch;

pub use local_time::local_time;
pub use standard::{print, to_stderr};
pub use trust::{Distrust, Trusted};
pub use watch::{Watch, WatchStatus, Watched};

use crate::fs::Files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The environment of a session.
#[derive(Clone)]
pub struct Env {
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// Current folder of the process, absolute.
    pub current_dir: PathBuf,
    /// Name of the host.
    pub host: String,
    /// Name of the user, from `$USER` or else from the user database.
    pub user: String,
    /// Numeric id of the user.
    pub uid: u32,
    /// Whether the program has more rights than the user who started it, so that the variables are not to be trusted.
    pub is_privileged: bool,
    /// Processors that this process may run on.
    pub processors: u32,
    /// When this process began.
    pub began: SystemTime,
    /// Folder of the installation: `lib/libscr.so` lies below it. `None` where it is not known.
    pub install_dir: Option<PathBuf>,
    /// The base folder that every installation knows, where a job records where it keeps datasets. `None`: nowhere.
    pub record_base: Option<PathBuf>,
    /// The file layer.
    pub files: Arc<dyn Files>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The output for lines to the user.
    pub output: Arc<dyn Output>,
    /// Looks at what may hang.
    pub watch: Watch,
    /// How threads of ranks talk while the application computes.
    pub link: Link,
}

/// How threads of ranks talk to each other while the application computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Over TCP.
    Tcp,
    /// Not at all: the ranks do their work in the application's next call, so that a test knows when.
    InCalls,
}

/// Wall clock and stopwatch.
pub trait Clock: Send + Sync {
    /// The time of day.
    fn now(&self) -> SystemTime;
    /// Time since some fixed moment; never goes back.
    fn elapsed(&self) -> Duration;
    /// The time in microseconds since the epoch.
    fn micros(&self) -> u64 {
        let since = self.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

/// The output for lines to the user. A line comes without its line end.
pub trait Output: Send + Sync {
    /// What was asked for with `SCR_DEBUG`: standard output.
    fn info(&self, line: &str);
    /// Errors, warnings and notes: standard error.
    fn error(&self, line: &str);
}

/// The folders that libraries of an installation lie in, one of them.
pub const LIBRARY_FOLDERS: [&str; 2] = ["lib", "lib64"];

impl Env {
    /// The folder of the installation's settings. Those of one in `/usr` lie in `/etc`.
    pub fn etc(&self) -> Option<PathBuf> {
        let tree = self.install_dir.as_deref()?;
        Some(if tree == Path::new("/usr") { "/etc".into() } else { tree.join("etc") })
    }

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The time of day as the files under the prefix directory give it: local, to the second.
    pub fn local_time(&self) -> String {
        local_time(self.clock.now())
    }

    /// The time in seconds since the epoch. The number of a run that begins now is higher, or the same if it cannot be recorded.
    pub fn seconds(&self) -> u64 {
        self.clock.micros() / 1_000_000
    }
}
