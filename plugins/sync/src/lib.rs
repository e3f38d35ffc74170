//! The transport `sync`: copies at once, in the thread that starts the job.
//!
//! When `start` returns, the job has ended. `poll` and `wait` say how it ended, so that a caller treats
//! all transports alike.

#![deny(unsafe_code)]

use scr_copying::{Buffer, Copying, Job, Workers};
use std::io;
use std::sync::Arc;

/// The transport `sync`.
pub type Sync = Copying<Caller>;

/// The thread that starts a job works on it, too.
#[derive(Debug, Clone, Copy)]
pub struct Caller;

impl Workers for Caller {
    fn take(&self, job: &Arc<Job>) -> io::Result<()> {
        job.work(&mut Buffer::default());
        Ok(())
    }
}

/// A transport that has copied nothing yet.
pub fn sync() -> Sync {
    Copying::new("sync", Caller)
}

scr_plugin_api::export_transport! {
    new: |_options: &scr_plugin_api::KvTree| Ok(sync()),
}
