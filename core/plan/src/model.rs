//! The multi-level Markov model of A. Moody, G. Bronevetsky, K. Mohror and B. R. de Supinski, "Design, Modeling, and Evaluation
//! of a Scalable Multi-level Checkpointing System" (SC 2010).
//!
//! A job computes for an interval and then writes a checkpoint, again and again. Between two checkpoints of a level it takes a
//! fixed number of the level below. A failure of level `l` destroys the checkpoints below `l`: the job goes back to the newest
//! one of level `l` or above. A further failure below that level, while it goes back, lets it begin to go back again; one of
//! the same level needs the next higher one. The states of the chain are an interval with its checkpoint, and a recovery;
//! groups of them are stages, and a pattern from one checkpoint of the highest level to the next is a stage again.

use super::stage::{Exit, Stage};
use thiserror::Error;

/// More levels than any machine has.
pub const MOST_LEVELS: usize = 8;

/// A level of checkpoints. All times are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// For how long a checkpoint of this level stops the job.
    pub write: f64,
    /// How long it takes to go on from one.
    pub recover: f64,
    /// How long a checkpoint takes to arrive while the job computes already. It protects from then on.
    pub hidden: f64,
    /// Failures per second that need a checkpoint of this level, and are not survived by one of the level below.
    pub rate: f64,
}

/// The cost of going back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// As much as the level of the checkpoint says, whatever has failed. So the published model has it.
    OfCheckpoint,
    /// As much as the level of the failure says. A checkpoint of a higher level is also one of all lower levels: scr flushes a
    /// checkpoint, and the cache still has it.
    OfFailure,
}

/// A machine, as a job sees it: its levels from the lowest to the highest.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    levels: Vec<Level>,
    /// The cost of going back.
    pub(crate) recovery: Recovery,
}

/// When to write which checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Seconds of computing between two checkpoints.
    pub interval: f64,
    /// For each level but the highest: how many checkpoints of it are taken between two of a higher level.
    pub counts: Vec<u32>,
}

/// A number or a count is not in its range; says which.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{0}")]
pub struct PlanError(String);

impl PlanError {
    /// Fails with this text unless it holds.
    pub(super) fn unless(holds: bool, why: impl FnOnce() -> String) -> Result<(), Self> {
        holds.then_some(()).ok_or_else(|| Self(why()))
    }
}

/// Fewer patterns than this come to their end without going back to their start: the plan is hopeless. The authors of the model
/// print such plans with an efficiency of 0.
const HOPELESS: f64 = 1e-6;

impl Machine {
    /// A machine with these levels, from the lowest to the highest.
    ///
    /// # Errors
    /// [`PlanError`]: there are too few or too many levels, a number is not in its range, or nothing fails.
    pub fn new(levels: Vec<Level>, recovery: Recovery) -> Result<Self, PlanError> {
        let found = levels.len();
        let wrong_number = || format!("a machine has 1 to {MOST_LEVELS} levels, and not {found}");
        PlanError::unless((1..=MOST_LEVELS).contains(&found), wrong_number)?;
        for (number, level) in (1..).zip(&levels) {
            let numbers = [
                ("cost of writing", level.write),
                ("cost of recovery", level.recover),
                ("hidden time", level.hidden),
                ("failure rate", level.rate),
            ];
            for (what, found) in numbers {
                let why =
                    || format!("the {what} of level {number} is {found}; it must be 0 or more, and finite");
                PlanError::unless(found.is_finite() && found >= 0.0, why)?;
            }
        }
        let never = "the rates of all levels are 0; a machine that never fails needs no checkpoints";
        PlanError::unless(levels.iter().any(|level| level.rate != 0.0), || never.to_owned())?;
        Ok(Self { levels, recovery })
    }

    /// Its levels, from the lowest to the highest.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Failures per second, of any level.
    pub fn rate(&self) -> f64 {
        self.levels.iter().map(|level| level.rate).sum()
    }

    /// Whether a plan fits.
    ///
    /// # Errors
    /// [`PlanError`]: what does not.
    pub fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let found = plan.interval;
        let why = || format!("the interval is {found}; it must be 0 or more seconds, and finite");
        PlanError::unless(found.is_finite() && found >= 0.0, why)?;
        let (levels, wanted, found) = (self.levels.len(), self.levels.len() - 1, plan.counts.len());
        PlanError::unless(found == wanted, || {
            format!("a machine of {levels} levels takes {wanted} counts and not {found}, without the highest level")
        })
    }

    /// The share of the time that brings the job forward with a plan; 0 for one that is hopeless.
    ///
    /// # Errors
    /// [`PlanError`]: the plan does not fit the machine.
    pub fn forecast(&self, plan: &Plan) -> Result<f64, PlanError> {
        self.check(plan)?;
        let top = self.levels.len();
        let chain = Chain::new(self, plan);
        let pattern = chain.before_recovery(top, top);
        if pattern.done.probability < HOPELESS {
            return Ok(0.0);
        }
        let intervals: f64 = plan.counts.iter().map(|&count| f64::from(count) + 1.0).product();
        let seconds = chain.with_recovery(top, &pattern).done.mean_time();
        Ok(if seconds > 0.0 { intervals * plan.interval / seconds } else { 0.0 })
    }
}

impl Plan {
    /// Every how many checkpoints one of this level or a higher one is taken; `level` counts from 1.
    pub fn every(&self, level: usize) -> u64 {
        let below = self.counts.iter().take(level.saturating_sub(1));
        below.fold(1, |product, &count| product.saturating_mul(u64::from(count) + 1))
    }
}

/// Seconds for which the job waits with a checkpoint of each level in this plan: until the one before has arrived, where that
/// takes longer than from one to the next.
pub(super) fn writes(machine: &Machine, plan: &Plan) -> [f64; MOST_LEVELS] {
    let mut writes = [0.0; MOST_LEVELS];
    let levels = machine.levels();
    let mut period = plan.interval;
    for (at, level) in levels.iter().enumerate() {
        // `period` is the time from one checkpoint of this level to the next, without the last write.
        writes[at] = level.write + (level.hidden - period - level.write).max(0.0);
        let count = plan.counts.get(at).map_or(0.0, |&count| f64::from(count));
        period += count * (period + writes[at]);
    }
    writes
}

/// The states for one machine and one plan. Levels count from 1, as in the paper.
struct Chain<'a> {
    counts: &'a [u32],
    levels: usize,
    /// An interval with a checkpoint, for each level of that checkpoint.
    intervals: Vec<Stage>,
    /// Going back to a checkpoint of level `k` after a failure of level `i`, at `[k - 1][i - 1]`.
    recoveries: Vec<[Stage; MOST_LEVELS]>,
}

impl<'a> Chain<'a> {
    fn new(machine: &Machine, plan: &'a Plan) -> Self {
        let rates: Vec<f64> = machine.levels.iter().map(|level| level.rate).collect();
        let writes = writes(machine, plan);
        let interval = |write: &f64| Stage::lasting(plan.interval + write, &rates);
        let recover = |level: &Level| {
            let mut stage = Stage::lasting(level.recover, &rates);
            // A copy that has not arrived yet is lost with all the work since.
            stage.done.time += stage.done.probability * level.hidden;
            stage
        };
        let attempts: Vec<Stage> = machine.levels.iter().map(recover).collect();
        let levels = machine.levels.len();
        let recoveries = (1..=levels).map(|to| recoveries(&attempts, to, machine.recovery)).collect();
        let intervals = writes[..levels].iter().map(interval).collect();
        Self { counts: &plan.counts, levels, intervals, recoveries }
    }

    /// From a checkpoint of level `k` or above up to the next one, of level `ends`; any failure ends it.
    fn before_recovery(&self, k: usize, ends: usize) -> Stage {
        if k == 1 {
            return self.intervals[ends - 1];
        }
        let below = k - 1;
        match self.counts[below - 1] {
            0 => self.before_recovery(below, ends),
            count => {
                // Up to the first checkpoint of the level below nothing but the one at the start can be gone back to.
                let first = self.before_recovery(below, below);
                let between = self.with_recovery(below, &first).times(u64::from(count) - 1);
                let last = self.with_recovery(below, &self.before_recovery(below, ends));
                first.then(&between).then(&last)
            }
        }
    }

    /// The same where failures up to level `k` go back to the checkpoint at the start, and only higher ones end it.
    fn with_recovery(&self, k: usize, stage: &Stage) -> Stage {
        let recoveries = &self.recoveries[k - 1];
        let mut again = Exit::default();
        let mut failed = [Exit::default(); MOST_LEVELS];
        failed[k..self.levels].copy_from_slice(&stage.failed[k..self.levels]);
        for (failure, recovery) in stage.failed.iter().zip(recoveries).take(k) {
            again += *failure * recovery.done;
            for (exit, out) in failed.iter_mut().zip(recovery.failed).take(self.levels).skip(k) {
                *exit += *failure * out;
            }
        }
        let leaves = stage.done.probability + failed.iter().map(|exit| exit.probability).sum::<f64>();
        let rounds = again.again_until(leaves);
        Stage { done: rounds * stage.done, failed: failed.map(|exit| rounds * exit) }
    }
}

/// How a job goes back to a checkpoint of level `to`, for each level of the failure up to `to`. `attempts` are the levels'
/// recoveries, that any failure ends.
fn recoveries(attempts: &[Stage], to: usize, recovery: Recovery) -> [Stage; MOST_LEVELS] {
    let top = attempts.len();
    let mut found = [attempts[to - 1]; MOST_LEVELS];
    for level in (1..=to).rev() {
        if recovery == Recovery::OfCheckpoint && level < to {
            found[level - 1] = found[to - 1];
            continue;
        }
        let attempt = &attempts[level - 1];
        // Failures that let it begin again: those below, and at the highest level all.
        let again_below = if level == top { level } else { level - 1 };
        let again = attempt.failed[..again_below].iter().fold(Exit::default(), |sum, exit| sum + *exit);
        let leaves = attempt.done.probability
            + attempt.failed[again_below..top].iter().map(|exit| exit.probability).sum::<f64>();
        let rounds = again.again_until(leaves);
        let mut stage = Stage { done: attempt.done, failed: [Exit::default(); MOST_LEVELS] };
        for (at, exit) in attempt.failed.iter().enumerate().take(top).skip(again_below) {
            // One of the same level has taken what the recovery needs, so that the next level is needed.
            let needs = if at + 1 == level { level + 1 } else { at + 1 };
            if needs <= to {
                let next = found[needs - 1];
                stage.done += *exit * next.done;
                stage.failed.iter_mut().zip(next.failed).for_each(|(sum, out)| *sum += *exit * out);
            } else {
                stage.failed[needs - 1] += *exit;
            }
        }
        found[level - 1] =
            Stage { done: rounds * stage.done, failed: stage.failed.map(|exit| rounds * exit) };
    }
    found
}
