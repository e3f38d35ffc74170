//! IBM's servers as a service: transfers, each with a tag that follows from a job's token.

use crate::calls::{status, CallError, Calls, Handle, Tag};
use scr_plugin_api::{held, CopyJob, PluginError, PluginErrorKind};
use scr_staging::{Copies, Prepare, Progress, Service};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, Weak};

/// The servers, through the library of this process.
pub(crate) struct Server {
    /// Until it is dropped.
    connection: Option<Arc<Connection>>,
}

struct Connection {
    library: String,
    contributor: u32,
    calls: Calls,
}

/// The library keeps one connection for a process, whoever opens it: all transports share it.
static OPEN: Mutex<Weak<Connection>> = Mutex::new(Weak::new());

impl Server {
    /// Opens the library of this name or path, or takes the connection that is there.
    ///
    /// # Errors
    /// There is none, it does not work on this node, or it is open in another way.
    pub(crate) fn connect(library: &str, contributor: u32) -> Result<Self, PluginError> {
        let refused = |text: String| PluginError::refused(format!("transport {}: {text}", crate::NAME));
        let mut open = held(&OPEN);
        if let Some(there) = open.upgrade() {
            if (there.library.as_str(), there.contributor) != (library, contributor) {
                return Err(refused(format!(
                    "a process has one connection to the burst buffer, and {} is open as contributor {}; give the same LIBRARY and \
                     CONTRIBUTOR in all STORE lines",
                    there.library, there.contributor
                )));
            }
            return Ok(Self { connection: Some(there) });
        }
        let calls = Calls::open(library, contributor)?.map_err(|error| {
            refused(format!(
                "IBM's burst buffer cannot be used on this node: {error}; see that bbProxy runs here, or choose another transport, \
                 such as FLUSH=PTHREAD"
            ))
        })?;
        let connection = Arc::new(Connection { library: library.to_owned(), contributor, calls });
        *open = Arc::downgrade(&connection);
        Ok(Self { connection: Some(connection) })
    }

    fn calls(&self) -> &Calls {
        &self.connection.as_ref().expect("it is there until it is dropped").calls
    }

    fn failed(&self, doing: &str, job: &str, error: &CallError) -> PluginError {
        self.error(PluginErrorKind::Io, &format!("{doing} job {job} failed: {error}"))
    }

    fn handle_of(&self, copies: &Copies) -> Result<Handle, PluginError> {
        copies.handle.parse().map_err(|_| {
            let text = format!("the ticket of job {} has no handle of a transfer", copies.token);
            self.error(PluginErrorKind::Refused, &text)
        })
    }

    /// The transfer of a job, and whether it is still to be started. One that ended badly keeps its tag forever, so the next
    /// attempt has another.
    fn transfer(&self, token: &str) -> Result<(Handle, bool), PluginError> {
        let failed = |error| self.failed("finding the transfer of", token, &error);
        for attempt in 0..MOST_ATTEMPTS {
            let handle = self.calls().handle(tag(token, attempt)).map_err(failed)?;
            match self.calls().status(handle).map_err(failed)? {
                status::CANCELED | status::FAILED | status::STOPPED => {}
                status::IN_PROGRESS | status::FULL_SUCCESS => return Ok((handle, false)),
                _ => return Ok((handle, true)),
            }
        }
        let text = format!("job {token} has failed {MOST_ATTEMPTS} times");
        Err(self.error(PluginErrorKind::Io, &text))
    }
}

impl Drop for Server {
    /// The library is not opened anew while it is being terminated.
    fn drop(&mut self) {
        let _open = held(&OPEN);
        self.connection.take();
    }
}

impl Service for Server {
    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn start(&self, job: &CopyJob, prepare: Prepare<'_>) -> Result<String, PluginError> {
        let mut paths = Vec::new();
        for item in job.items.iter().filter(|item| item.bytes > 0) {
            paths.push((self.c_path(&item.source)?, self.c_path(&item.destination)?));
        }
        let (handle, is_new) = self.transfer(&job.token)?;
        if is_new {
            prepare()?;
            let files = paths.iter().map(|(from, to)| (from.as_c_str(), to.as_c_str()));
            self.calls()
                .start(handle, files)
                .map_err(|error| self.failed("starting the transfer of", &job.token, &error))?;
        }
        Ok(handle.to_string())
    }

    fn ask(&self, copies: &Copies) -> Result<Progress, PluginError> {
        let found = self
            .calls()
            .status(self.handle_of(copies)?)
            .map_err(|error| self.failed("asking about the transfer of", &copies.token, &error))?;
        Ok(match found {
            status::FULL_SUCCESS => Progress::Arrived,
            status::CANCELED | status::STOPPED => Progress::Cancelled,
            status::FAILED => Progress::Failed(match self.calls().details() {
                details if details.is_empty() => "IBM's burst buffer does not say why".to_owned(),
                details => format!("IBM's burst buffer says: {details}"),
            }),
            // Ours is the only contribution, so that a part is never all.
            status::NOT_STARTED | status::IN_PROGRESS | status::PARTIAL_SUCCESS => Progress::Running,
            other => Progress::Failed(format!(
                "IBM's burst buffer gives the state {other:#x}, which is not known here"
            )),
        })
    }

    fn stop(&self, copies: &Copies) -> Result<(), PluginError> {
        let handle = self.handle_of(copies)?;
        self.calls()
            .cancel(handle)
            .map_err(|error| self.failed("cancelling the transfer of", &copies.token, &error))
    }
}

/// A tag that no other job has: tags are counted within a job of the resource manager, where tokens are unique.
fn tag(token: &str, attempt: u32) -> Tag {
    let digest =
        Sha256::new().chain_update(token).chain_update([0]).chain_update(attempt.to_le_bytes()).finalize();
    digest.iter().take(8).fold(0, |tag, &byte| tag << 8 | Tag::from(byte))
}

/// A job that fails so often is not tried again.
const MOST_ATTEMPTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_and_attempt_has_a_tag_of_its_own_that_never_changes() {
        let tags =
            ["3.17f.0a.0", "3.17f.0a.1", "3.17f.0a.10"].map(|token| [tag(token, 0), tag(token, 1)]).concat();
        let distinct: std::collections::BTreeSet<_> = tags.iter().collect();
        assert_eq!(distinct.len(), tags.len());
        // A process of a later version has to find it, too.
        assert_eq!(tag("3.17f.0a.0", 0), 13_641_629_119_657_542_425);
    }
}
