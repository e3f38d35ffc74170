//! A transport of this process's own threads: everything but the threads.

use crate::{Job, Jobs};
use scr_plugin_api::pace::{Limits, Pace};
use scr_plugin_api::{CopyJob, CopyState, PluginError, Transport};
use std::io;
use std::sync::Arc;

/// The workers for the jobs of a transport.
pub trait Workers: Send + Sync {
    /// Works on a job, or sees to it that somebody does. When it is dropped, all jobs have ended.
    ///
    /// # Errors
    /// There is no worker for it.
    fn take(&self, job: &Arc<Job>) -> io::Result<()>;
}

/// A transport whose jobs are worked on in this process. Unfinished jobs are cancelled when it is dropped, so
/// that nothing is written after it.
#[derive(Debug)]
pub struct Copying<W: Workers> {
    name: &'static str,
    jobs: Jobs,
    workers: W,
}

impl<W: Workers> Copying<W> {
    /// A transport with this name, for tickets and messages, that has copied nothing yet.
    pub fn new(name: &'static str, workers: W) -> Self {
        Self::limited(name, workers, Limits::default())
    }

    /// The same; all its jobs together keep to the limits.
    pub fn limited(name: &'static str, workers: W, limits: Limits) -> Self {
        Self { name, jobs: Jobs::new(name, Pace::new(limits)), workers }
    }

    /// The workers for its jobs.
    pub fn workers(&self) -> &W {
        &self.workers
    }
}

impl<W: Workers> Transport for Copying<W> {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        if let Some(begun) = self.jobs.begin(job)? {
            self.workers.take(&begun).map_err(|error| {
                self.jobs.forget(&job.token);
                PluginError::io(format!("transport {}: no thread could be started: {error}", self.name))
            })?;
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

impl<W: Workers> Drop for Copying<W> {
    fn drop(&mut self) {
        self.jobs.cancel_all();
    }
}
