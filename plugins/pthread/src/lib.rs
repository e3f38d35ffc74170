//! The transport `pthread`: copies in a bounded pool of threads, while the caller goes on.
//!
//! The threads do I/O and arithmetic, and know nothing of MPI. What has not been copied when the transport is
//! dropped is cancelled, so that no thread outlives it.

#![deny(unsafe_code)]

mod pool;

use pool::Pool;
use scr_copying::{Begun, Jobs};
use scr_plugin_api::{CopyJob, CopyState, KvTree, PluginError, PluginErrorKind, Transport};

/// The transport `pthread`.
#[derive(Debug)]
pub struct Pthread {
    jobs: Jobs,
    pool: Pool,
}

impl Pthread {
    /// Threads where the option `THREADS` says nothing.
    pub const USUAL_THREADS: usize = 4;

    /// A transport with at most so many threads; with none it would never copy, so one is the least.
    pub fn new(threads: usize) -> Self {
        Self { jobs: Jobs::new("pthread"), pool: Pool::new(threads.max(1)) }
    }
}

/// Reads what the manifest allows of options, and the host has checked.
///
/// # Errors
/// `THREADS` is no number.
pub fn from_options(options: &KvTree) -> Result<Pthread, PluginError> {
    let threads = options
        .parse("THREADS")
        .map_err(|error| PluginError::new(PluginErrorKind::Refused, format!("transport pthread: {error}")))?;
    Ok(Pthread::new(threads.unwrap_or(Pthread::USUAL_THREADS)))
}

scr_plugin_api::export_transport! {
    new: from_options,
}

impl Transport for Pthread {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        if let Begun::New(begun) = self.jobs.begin(job)? {
            self.pool.add(&begun).map_err(|error| {
                self.jobs.forget(&job.token);
                let text = format!("transport pthread: no thread could be started: {error}");
                PluginError::new(PluginErrorKind::Io, text)
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

impl Drop for Pthread {
    fn drop(&mut self) {
        self.jobs.cancel_all();
        self.pool.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::CopyItem;
    use std::fs;

    #[test]
    fn the_number_of_threads_is_an_option() {
        let mut options = KvTree::new();
        assert!(from_options(&options).is_ok());
        options.set("THREADS", 2);
        assert!(from_options(&options).is_ok());
        options.set("THREADS", "many");
        assert!(from_options(&options).unwrap_err().text.contains("THREADS"));
    }

    #[test]
    fn no_thread_outlives_the_transport() {
        let folder = tempfile::TempDir::new().unwrap();
        let items: Vec<_> = (0..64)
            .map(|number| {
                let source = folder.path().join(format!("{number}"));
                fs::write(&source, vec![7; 1 << 20]).unwrap();
                CopyItem { source, destination: folder.path().join(format!("{number}.copy")), bytes: 1 << 20 }
            })
            .collect();
        let transport = Pthread::new(2);
        let job = CopyJob { token: "t".into(), items, block_bytes: 4096, take_crc: true };
        transport.start(&job).unwrap();
        drop(transport);
        let before = sizes(folder.path());
        Pthread::new(1).start(&CopyJob { token: "u".into(), items: vec![], ..job }).unwrap();
        assert_eq!(sizes(folder.path()), before);
    }

    fn sizes(folder: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
        let mut all: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.path(), entry.metadata().unwrap().len()))
            .collect();
        all.sort();
        all
    }
}
