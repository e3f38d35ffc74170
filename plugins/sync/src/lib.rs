//! The transport `sync`: copies at once, in the thread that starts the job.
//!
//! When `start` returns, the job has ended. How it ended is told by `poll` and `wait`, so that a caller treats
//! all transports alike.

#![deny(unsafe_code)]

use scr_copying::{Begun, Buffer, Jobs};
use scr_plugin_api::{CopyJob, CopyState, PluginError, Transport};

/// The transport `sync`.
#[derive(Debug)]
pub struct Sync {
    jobs: Jobs,
}

impl Sync {
    /// A transport that has copied nothing yet.
    pub fn new() -> Self {
        Self { jobs: Jobs::new("sync") }
    }
}

impl Default for Sync {
    fn default() -> Self {
        Self::new()
    }
}

impl Transport for Sync {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        if let Begun::New(job) = self.jobs.begin(job)? {
            job.work(&mut Buffer::new());
        }
        Ok(self.jobs.ticket(job))
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        Ok(self.jobs.find(ticket)?.poll())
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        Ok(self.jobs.find(ticket)?.wait())
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.jobs.find(ticket)?.cancel();
        Ok(())
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.jobs.find(ticket).ok()?.crc(item)
    }
}

scr_plugin_api::export_transport! {
    new: |_options: &scr_plugin_api::KvTree| Ok(Sync::new()),
}
