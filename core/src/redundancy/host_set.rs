//! One redundancy set as a scheme sees it: messages, bytes, and who has lost what.

use super::bytes::LogicalFile;
use crate::comm::set::{SetComm, SetError};
use crate::comm::Rank;
use crate::message::Reporter;
use scr_plugin_api::{Bytes, Level, PluginError, PluginErrorKind, ReceiveFrom, SendTo, Set};

/// What is known of a set before a scheme is called.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Id of the dataset.
    pub(crate) dataset: u64,
    /// The members, in order.
    pub(crate) members: Vec<Rank>,
    /// Bytes of data of each.
    pub(crate) data_lens: Vec<u64>,
    /// Which have lost theirs.
    pub(crate) lost: Vec<bool>,
}

/// A set for the duration of one call of a scheme.
pub(crate) struct HostSet<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) comm: &'a SetComm<'a>,
    pub(crate) data: LogicalFile,
    pub(crate) redundancy: LogicalFile,
    pub(crate) report: &'a Reporter,
    /// How many there are for this rank.
    pub(crate) processors: u32,
    /// Bytes of a message at most; the same on all ranks.
    pub(crate) message_bytes: u64,
}

impl Set for HostSet<'_> {
    fn rank(&self) -> u32 {
        self.comm.member()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn world_rank(&self, member: u32) -> u32 {
        self.shape.members[member as usize].0
    }

    fn dataset(&self) -> u64 {
        self.shape.dataset
    }

    fn data_len(&self, member: u32) -> u64 {
        self.shape.data_lens[member as usize]
    }

    fn lost(&self, member: u32) -> bool {
        self.shape.lost[member as usize]
    }

    fn exchange(&self, sends: &[SendTo<'_>], receives: &mut [ReceiveFrom<'_>]) -> Result<(), PluginError> {
        self.comm.exchange(sends, receives).map_err(|error| plugin_error(&error))
    }

    fn max(&self, value: u64) -> Result<u64, PluginError> {
        self.comm.max(value).map_err(|error| plugin_error(&error))
    }

    fn data(&self) -> &dyn Bytes {
        &self.data
    }

    fn redundancy(&self) -> &dyn Bytes {
        &self.redundancy
    }

    fn progress(&self, _done: u64, _total: u64) -> Result<(), PluginError> {
        Ok(())
    }

    fn log(&self, level: Level, text: &str) {
        match level {
            Level::Error => self.report.error_here(text),
            // Which files nothing protects was told at the start of the run, once for all ranks.
            Level::Warn if self.size() == 1 => self.report.debug(text),
            Level::Warn => self.report.warn_here(text),
            Level::Info => self.report.info(text),
            Level::Debug => self.report.debug(text),
        }
    }

    fn processors(&self) -> u32 {
        self.processors
    }

    fn message_bytes(&self) -> u64 {
        self.message_bytes
    }
}

/// A set's error as a scheme is told it.
fn plugin_error(error: &SetError) -> PluginError {
    let kind = match error {
        SetError::Aborted { .. } => PluginErrorKind::Aborted,
        _ => PluginErrorKind::Io,
    };
    PluginError::new(kind, error.to_string())
}
