//! A transport each of whose calls must return within a limit. After one that does not, nothing more is tried, as its thread
//! still runs.

use scr_plugin_api::{CopyJob, CopyState, PluginError, Transport};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

/// Whether a call of any transport of the suite has not returned.
pub(super) type Hung = Arc<AtomicBool>;

pub(super) struct Limited {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) limit: Duration,
    pub(super) hung: Hung,
}

impl Limited {
    fn call<T: Send + 'static>(
        &self,
        name: &str,
        call: impl FnOnce(&dyn Transport) -> T + Send + 'static,
    ) -> Result<T, PluginError> {
        let transport = Arc::clone(&self.transport);
        let (sender, answer) = mpsc::channel();
        // After the limit there is no receiver any more.
        std::thread::spawn(move || _ = sender.send(call(&*transport)));
        answer.recv_timeout(self.limit).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => {
                self.hung.store(true, Ordering::Relaxed);
                PluginError::fault(format!("{name} has not returned within {} s", self.limit.as_secs()))
            }
            mpsc::RecvTimeoutError::Disconnected => PluginError::fault(format!("{name} panicked")),
        })
    }
}

impl Transport for Limited {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let job = job.clone();
        self.call("start", move |transport| transport.start(&job))?
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let ticket = ticket.to_vec();
        self.call("poll", move |transport| transport.poll(&ticket))?
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let ticket = ticket.to_vec();
        self.call("wait", move |transport| transport.wait(&ticket))?
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        let ticket = ticket.to_vec();
        self.call("cancel", move |transport| transport.cancel(&ticket))?
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        let ticket = ticket.to_vec();
        self.call("crc", move |transport| transport.crc(&ticket, item)).ok()?
    }
}
