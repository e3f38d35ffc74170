//! A flush transport, as its author writes it and as the runtime calls it.
//!
//! The runtime decides what is copied where; a transport only moves bytes.

use crate::{path_text, PluginError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A way to copy files from cache to the parallel file system.
pub trait Transport: Send + Sync {
    /// Starts copying, and gives a ticket that the host stores. The same job started twice is one copy.
    ///
    /// # Errors
    /// The text names what could not even be started.
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError>;

    /// How far a job has come. Also from another process where the transport's manifest says that a copy
    /// survives the job.
    ///
    /// # Errors
    /// A ticket that is not this transport's.
    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError>;

    /// Waits until a job has ended, well or badly.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError>;

    /// Stops a job. Written bytes stay; no byte is written after this returns.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll), or where the copy could not be stopped.
    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError>;

    /// The CRC32 of the bytes that were read for an item of a job that is done, where it was taken.
    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32>;

    /// The same, for the host: it sees where a plugin has panicked instead.
    ///
    /// # Errors
    /// The panic.
    #[doc(hidden)]
    fn try_crc(&self, ticket: &[u8], item: usize) -> Result<Option<u32>, PluginError> {
        Ok(self.crc(ticket, item))
    }
}

/// Files to copy in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyJob {
    /// Unique among all jobs under one prefix directory.
    pub token: String,
    /// The files to copy.
    pub items: Vec<CopyItem>,
    /// Size in bytes of the blocks to read and write.
    pub block_bytes: u64,
    /// Whether to take a CRC32 of what is read.
    pub take_crc: bool,
}

/// One file to copy. The folder it goes to exists; the destination itself is created or overwritten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyItem {
    /// The source.
    #[serde(with = "path_text")]
    pub source: PathBuf,
    /// The destination.
    #[serde(with = "path_text")]
    pub destination: PathBuf,
    /// How many there must be; a source of another size is an error.
    pub bytes: u64,
}

/// How far a job has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyState {
    /// Still copying; so many bytes are done.
    Running(u64),
    /// Every byte is at its destination, and synced.
    Done,
    /// It ended with this error, and at least one destination is not complete.
    Failed(PluginError),
}
