//! The transport `datawarp`: asks Cray's DataWarp to stage files out of an instance to the parallel file system.
//!
//! The cache has to be in a DataWarp instance, below `$DW_JOB_STRIPED` or `$DW_JOB_PRIVATE`. The service copies on its own, also
//! after the job has ended. It identifies a staging by its source alone, and allows one at a time. So a staging that an earlier
//! flush of the same file has left is ended before a new one begins. It has been tested with a stand-in only.

#![deny(unsafe_code)]

mod calls;

use calls::{Calls, Errno};
use scr_plugin_api::{CopyItem, CopyJob, KvTree, PluginError, PluginErrorKind};
use scr_staging::{Copies, Prepare, Progress, Service, Staged};

/// The name of the transport, in small letters.
const NAME: &str = "datawarp";
/// The default name of the library.
const LIBRARY: &str = "libdatawarp.so";

/// The transport `datawarp`.
pub type DataWarp = Staged<Stager>;

/// Cray's service.
pub struct Stager {
    calls: Calls,
}

/// Reads what the manifest allows of options, and opens the library.
///
/// # Errors
/// There is no such library on this node.
pub fn from_options(options: &KvTree) -> Result<DataWarp, PluginError> {
    let calls = Calls::open(options.text("LIBRARY").unwrap_or(LIBRARY))?;
    Ok(Staged::new(Stager { calls }))
}

scr_plugin_api::export_transport! {
    new: from_options,
}

impl Service for Stager {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A staging needs no handle: its file is enough.
    fn start(&self, job: &CopyJob, prepare: Prepare<'_>) -> Result<String, PluginError> {
        let files = || job.items.iter().filter(|item| item.bytes > 0);
        files().try_for_each(|item| self.end_former(item))?;
        prepare()?;
        for (begun, item) in files().enumerate() {
            if let Err(error) = self.begin(item) {
                // Half a job must not continue unknown to the host.
                for item in files().take(begun) {
                    let _ = self.end_former(item);
                }
                return Err(error);
            }
        }
        Ok(String::new())
    }

    fn ask(&self, copies: &Copies) -> Result<Progress, PluginError> {
        let mut progress = Progress::Arrived;
        for item in copies.filled() {
            match self.calls.query(&self.c_path(&item.source)?) {
                Ok(counts) if counts.failed > 0 => return Ok(Progress::Failed(self.why(item))),
                Ok(counts) if counts.pending > 0 || counts.deferred > 0 => progress = Progress::Running,
                Ok(counts) if counts.complete > 0 => {}
                Ok(_) | Err(NOTHING_ASKED) => return Ok(Progress::Cancelled),
                Err(errno) => return Err(self.failed("asking about", item, errno)),
            }
        }
        Ok(progress)
    }

    fn stop(&self, copies: &Copies) -> Result<(), PluginError> {
        copies.filled().try_for_each(|item| match self.calls.terminate(&self.c_path(&item.source)?) {
            Ok(()) | Err(NOTHING_ASKED) => Ok(()),
            Err(errno) => Err(self.failed("stopping", item, errno)),
        })
    }
}

impl Stager {
    /// Only one staging of a file can be under way, and an earlier one may write to where nobody looks any more.
    fn end_former(&self, item: &CopyItem) -> Result<(), PluginError> {
        let source = self.c_path(&item.source)?;
        match self.calls.query(&source) {
            Ok(counts) if counts.pending > 0 || counts.deferred > 0 => {
                self.calls.terminate(&source).map_err(|errno| self.failed("ending an earlier", item, errno))
            }
            // A problem with the file is reported when it is checked or staged.
            _ => Ok(()),
        }
    }

    fn begin(&self, item: &CopyItem) -> Result<(), PluginError> {
        let (source, destination) = (self.c_path(&item.source)?, self.c_path(&item.destination)?);
        self.calls.stage_out(&source, &destination).map_err(|errno| self.failed("beginning", item, errno))
    }

    fn why(&self, item: &CopyItem) -> String {
        match self.calls.why_failed(&item.source) {
            Some(errno) => format!("DataWarp could not stage out {}: {errno}", item.source.display()),
            None => format!("DataWarp could not stage out {}, and does not say why", item.source.display()),
        }
    }

    fn failed(&self, doing: &str, item: &CopyItem, errno: Errno) -> PluginError {
        let (source, destination) = (item.source.display(), item.destination.display());
        let text = format!(
            "{doing} a staging of {source} to {destination} failed: {errno}; a file can be staged only from a DataWarp instance, \
             such as $DW_JOB_STRIPED, so the cache must lie there"
        );
        self.error(PluginErrorKind::Io, &text)
    }
}

/// The library's answer if no staging of a file was asked for, or it was ended.
const NOTHING_ASKED: Errno = Errno(libc::EINVAL);
