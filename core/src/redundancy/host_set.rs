//! One redundancy set as a scheme sees it: messages, bytes, and which members have lost theirs.

use crate::cache::logical_file::LogicalFile;
use crate::job::Job;
use crate::plugin::overdue::PluginPhase;
use scr_comm::set::{SetComm, SetError};
use scr_comm::Rank;
use scr_config::param;
use scr_plugin_api::{Bytes, Level, PluginError, PluginErrorKind, ReceiveFrom, SendTo, Set};

/// The data of a set before a scheme is called.
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
    pub(crate) job: &'a Job,
    pub(crate) set: &'a SetComm<'a>,
    pub(crate) shape: &'a Shape,
    pub(crate) data: LogicalFile,
    pub(crate) redundancy: LogicalFile,
    pub(super) phase: &'a PluginPhase,
}

impl Set for HostSet<'_> {
    fn rank(&self) -> u32 {
        self.set.member()
    }

    fn size(&self) -> u32 {
        self.set.size()
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
        self.phase.wait(|| self.set.exchange(sends, receives)).map_err(|error| plugin_error(&error))
    }

    fn max(&self, value: u64) -> Result<u64, PluginError> {
        self.phase.wait(|| self.set.max(value)).map_err(|error| plugin_error(&error))
    }

    fn data(&self) -> &dyn Bytes {
        &self.data
    }

    fn redundancy(&self) -> &dyn Bytes {
        &self.redundancy
    }

    fn log(&self, level: Level, text: &str) {
        match level {
            Level::Error => self.job.report.error_here(text),
            // Rank 0 has named the files that nothing protects at the start of the run.
            Level::Warn if self.size() == 1 => self.job.report.debug(text),
            Level::Warn => self.job.report.warn_here(text),
            Level::Info => self.job.report.info(text),
            Level::Debug => self.job.report.debug(text),
        }
    }

    fn processors(&self) -> u32 {
        self.job.processors
    }

    fn message_bytes(&self) -> u64 {
        self.job.params.get(&param::MPI_BUF_SIZE)
    }
}

/// A set's error as a scheme gets it.
fn plugin_error(error: &SetError) -> PluginError {
    let kind = match error {
        SetError::Aborted { .. } => PluginErrorKind::Aborted,
        _ => PluginErrorKind::Io,
    };
    PluginError::new(kind, error.to_string())
}
