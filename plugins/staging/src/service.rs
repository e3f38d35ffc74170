//! A vendor's service, as its plugin describes it.

use scr_plugin_api::{CopyItem, CopyJob, PluginError, PluginErrorKind};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Copies files for us.
pub trait Service: Send + Sync {
    /// The transport's name, for tickets and messages.
    fn name(&self) -> &'static str;

    /// Asks for the copies of a job; gives what finds them again, also in another process. `prepare` looks at the sources
    /// and empties the destinations; it is called once it is certain that the service does not write there. It does
    /// not ask again for a job that it has already.
    ///
    /// # Errors
    /// The text names what could not be started.
    fn start(&self, job: &CopyJob, prepare: Prepare<'_>) -> Result<String, PluginError>;

    /// How the copies are.
    ///
    /// # Errors
    /// The service could not be asked; it may be asked again.
    fn ask(&self, copies: &Copies) -> Result<Progress, PluginError>;

    /// Stops the copies. The service writes nothing any more when this returns.
    ///
    /// # Errors
    /// They could not be stopped.
    fn stop(&self, copies: &Copies) -> Result<(), PluginError>;

    /// An error with the transport's name before it, on one line.
    fn error(&self, kind: PluginErrorKind, text: &str) -> PluginError {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        PluginError::new(kind, format!("transport {}: {text}", self.name()))
    }

    /// A path as C wants it.
    ///
    /// # Errors
    /// It has a zero byte in it, or is not absolute.
    fn c_path(&self, path: &Path) -> Result<CString, PluginError> {
        let refused = |why| self.error(PluginErrorKind::Refused, &format!("{} {why}", path.display()));
        if !path.is_absolute() {
            return Err(refused("is not an absolute path, which the service needs"));
        }
        CString::new(path.as_os_str().as_bytes()).map_err(|_| refused("has a zero byte in it"))
    }
}

/// Makes a job ready to be copied.
pub type Prepare<'a> = &'a mut dyn FnMut() -> Result<(), PluginError>;

/// The copies of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// The job's token.
    pub token: String,
    /// The result of [`Service::start`].
    pub handle: String,
    /// The files.
    pub files: Vec<StagedFile>,
}

/// One file that is copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// From where to where, and how long it is.
    pub item: CopyItem,
    /// The permission bits that its destination had when the copy was asked for.
    pub mode: u32,
}

/// How copies are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The service is at work.
    Running,
    /// The service says that all files have arrived.
    Arrived,
    /// Somebody has stopped them.
    Cancelled,
    /// The service gave up, and says why.
    Failed(String),
}

impl Copies {
    /// Those of the files that have any bytes; nobody needs to copy the others.
    pub fn filled(&self) -> impl Iterator<Item = &CopyItem> {
        self.files.iter().map(|file| &file.item).filter(|item| item.bytes > 0)
    }
}
