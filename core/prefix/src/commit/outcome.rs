//! The result of closing a flush that was found under way.

use crate::ledger::pending::PendingFlush;
use crate::ledger::LedgerDir;
use crate::{DatasetDescriptor, FlushProgress};
use serde::{Deserialize, Serialize};

/// How it has ended, and what is left.
#[derive(Debug, Clone, PartialEq)]
pub enum FlushOutcome {
    /// The dataset is complete now.
    Finalized(DatasetDescriptor),
    /// Not all had arrived; it is left as it is, since somebody may still be copying.
    Waiting {
        /// Which dataset.
        dataset: DatasetDescriptor,
        /// The number of those that have done their part.
        done: u32,
        /// The number of marks needed: one for each node, or one for all.
        marks: u32,
    },
    /// Not all had arrived, or it is damaged: what there was is removed.
    Revoked {
        /// Which dataset.
        dataset: DatasetDescriptor,
        /// The reason.
        why: String,
    },
    /// Something failed that may pass; it is left for the next time.
    Postponed {
        /// Which dataset.
        dataset: DatasetDescriptor,
        /// The failure.
        why: String,
        /// Whether older datasets of its names may count no more, and it does not count yet.
        has_taken: bool,
        /// Whether a run could restart from it, if it could be ended: it is a checkpoint, and all its files have arrived.
        is_whole: bool,
    },
    /// A record that cannot be used; it is left for people to look at.
    Unusable {
        /// The fault, and in which file.
        why: String,
        /// Whether it is damaged for every reader. One that could not be read may be that of the newest dataset.
        is_damaged: bool,
    },
}

/// How the flush of a job has ended in which something failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseOutcome {
    /// The dataset is complete.
    Complete,
    /// Every byte has arrived, but the flush could not be closed, and why.
    Unfinished(String),
    /// It is not closed by anybody any more.
    TakenBack,
}

impl LedgerDir<'_> {
    /// A flush could not be ended for a reason that may pass.
    pub(super) fn postponed(self, record: &PendingFlush, why: String) -> FlushOutcome {
        let PendingFlush { dataset, revoked, .. } = record;
        let is_taken =
            self.index().map_or(true, |index| index.progress(dataset, &record.by()) == FlushProgress::Taken);
        let has_arrived = !revoked && record.all_done(self).unwrap_or(true);
        let (has_taken, is_whole) = (is_taken && !revoked, dataset.checkpoint && has_arrived);
        FlushOutcome::Postponed { dataset: dataset.clone(), why, has_taken, is_whole }
    }
}

impl FlushOutcome {
    /// For a run that finds nothing else to restart from.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Postponed { is_whole: true, .. })
    }

    /// For a run that begins: no flush may be left by which older datasets count no more.
    ///
    /// # Errors
    /// Why the run might begin from nothing.
    pub fn expect_ended(&self) -> Result<(), String> {
        match self {
            Self::Postponed { has_taken: true, .. } | Self::Unusable { is_damaged: false, .. } => {
                Err(format!("{self}; what this run would restart from may be older: {CURE}"))
            }
            _ => Ok(()),
        }
    }
}

/// The remedy for a flush that a run cannot begin beside.
pub const CURE: &str =
    "start the job again, or finish the flush with `scr poststage', or give the dataset up with `scr index \
    --drop'";

impl std::fmt::Display for FlushOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flush_of = |dataset: &DatasetDescriptor| {
            format!("the flush of dataset {} `{}'", dataset.id, String::from_utf8_lossy(&dataset.name))
        };
        let (dataset, end) = match self {
            Self::Finalized(dataset) => (dataset, "is finished".to_owned()),
            Self::Revoked { dataset, why } => (dataset, format!("is rolled back: {why}")),
            Self::Postponed { dataset, why, .. } => (dataset, format!("is left for the next one: {why}")),
            Self::Waiting { dataset, done, marks } => {
                write!(f, "{} is not complete: ", flush_of(dataset))?;
                return match (done, marks) {
                    (0, 1) => f.write_str("its files have not all arrived"),
                    _ => write!(f, "the files of {done} of {marks} nodes have arrived"),
                };
            }
            Self::Unusable { why, .. } => return f.write_str(why),
        };
        write!(f, "{}, begun by an earlier run, {end}", flush_of(dataset))
    }
}
