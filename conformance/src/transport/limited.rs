//! A transport each of whose calls must return within a limit. After one that does not, nothing more is tried, as its thread
//! still runs.

use crate::running;
use scr_plugin_api::{held, CopyJob, CopyState, PluginError, Transport};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

/// What is wrong with the calls of any transport of the suite, apart from what they return.
#[derive(Default)]
pub(super) struct Faults {
    /// One has not returned.
    pub(super) hung: AtomicBool,
    /// One has panicked, with this text.
    pub(super) panic: Mutex<Option<String>>,
}

pub(super) struct Limited {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) limit: Duration,
    pub(super) faults: Arc<Faults>,
}

impl Limited {
    fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(&dyn Transport) -> Result<T, PluginError> + Send + 'static,
    ) -> Result<T, PluginError> {
        let transport = Arc::clone(&self.transport);
        let (sender, answer) = mpsc::channel();
        // After the limit there is no receiver any more.
        std::thread::spawn(move || _ = sender.send(running::call(name, || call(&*transport))));
        let Ok(answer) = answer.recv_timeout(self.limit) else {
            self.faults.hung.store(true, Ordering::Relaxed);
            let text = format!("{name} has not returned within {} s", self.limit.as_secs());
            return Err(PluginError::fault(text));
        };
        let panic = match &answer {
            Ok(result) => result.as_ref().err().and_then(running::panic_across),
            Err(text) => Some(text.as_str()),
        };
        if let Some(panic) = panic {
            *held(&self.faults.panic) = Some(format!("{name} {panic}"));
        }
        answer.unwrap_or_else(|panic| Err(PluginError::fault(format!("{name} {panic}"))))
    }
}

impl Transport for Limited {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        let job = job.clone();
        self.call("start", move |transport| transport.start(&job))
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let ticket = ticket.to_vec();
        self.call("poll", move |transport| transport.poll(&ticket))
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let ticket = ticket.to_vec();
        self.call("wait", move |transport| transport.wait(&ticket))
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        let ticket = ticket.to_vec();
        self.call("cancel", move |transport| transport.cancel(&ticket))
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        let ticket = ticket.to_vec();
        self.call("crc", move |transport| transport.try_crc(&ticket, item)).ok()?
    }
}
