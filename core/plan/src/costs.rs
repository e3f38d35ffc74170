//! The machine that a job sees: from what it has measured, and from what is believed of its failures. And the intervals of the
//! models that know one level.

use super::gaps::Belief;
use super::model::{Level, Machine, MachineError, Recovery};
use thiserror::Error;

/// The cost of checkpoints of one kind in cache, in seconds, and their purpose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheCosts {
    /// For how long a checkpoint stops the job.
    pub checkpoint: f64,
    /// How long a restart takes.
    pub restart: f64,
    /// Failures that it survives, and that one of the kind below does not.
    pub survives: Belief,
}

/// The measurements of a job, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Checkpoints in cache, from the kind that survives least.
    pub cache: Vec<CacheCosts>,
    /// How long a flush takes.
    pub flush: f64,
    /// The share of it during which the job computes, from 0 to 1.
    pub hidden: f64,
    /// How long a restart from the prefix directory takes.
    pub fetch: f64,
    /// Failures that no checkpoint in cache survives.
    pub fatal: Belief,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CostsError {
    /// The share of the flush is none.
    #[error("the hidden share of a flush is {0}; it must be between 0 and 1")]
    Hidden(f64),
    /// Something else is not in its range.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl Costs {
    /// The machine as the job sees it, for the expected failure rates, or others.
    ///
    /// # Errors
    /// [`CostsError`]: a number is not in its range.
    pub fn machine(&self, rate: impl Fn(Belief) -> f64) -> Result<Machine, CostsError> {
        if !(0.0..=1.0).contains(&self.hidden) {
            return Err(CostsError::Hidden(self.hidden));
        }
        let level = |kind: &CacheCosts| Level {
            write: kind.checkpoint,
            recover: kind.restart,
            hidden: 0.0,
            rate: rate(kind.survives),
        };
        let mut levels: Vec<Level> = self.cache.iter().map(level).collect();
        // Each flushed checkpoint is a checkpoint of the highest kind in cache first.
        let cached = self.cache.last().map_or(0.0, |kind| kind.checkpoint);
        levels.push(Level {
            write: cached + self.flush * (1.0 - self.hidden),
            recover: self.fetch,
            hidden: self.flush * self.hidden,
            rate: rate(self.fatal),
        });
        Ok(Machine::new(levels, Recovery::OfFailure)?)
    }
}

/// Seconds between two checkpoints that cost `cost` each, where a failure comes every `mean` seconds, by J. W. Young, "A First
/// Order Approximation to the Optimum Checkpoint Interval" (1974).
pub fn young(cost: f64, mean: f64) -> f64 {
    (2.0 * cost * mean).sqrt()
}

/// The same by J. T. Daly, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps" (2004), equation 37.
pub fn daly(cost: f64, mean: f64) -> f64 {
    if cost >= 2.0 * mean {
        return mean;
    }
    let share = cost / (2.0 * mean);
    young(cost, mean) * (1.0 + share.sqrt() / 3.0 + share / 9.0) - cost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_of_one_level_give_their_authors_figures() {
        assert!((young(4.0, 100.0) - 28.284).abs() < 0.001);
        assert!((daly(4.0, 100.0) - 25.680).abs() < 0.001);
        assert_eq!(daly(200.0, 100.0), 100.0);
    }
}
