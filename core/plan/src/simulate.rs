//! A job with its failures, event by event: what the model says, without its mathematics.
//!
//! Failures of each level come after gaps of their own. The simulation goes from failure to failure, and through whole patterns
//! at once where nothing fails, so that thousands of years take seconds.

use super::gaps::Gaps;
use super::model::{writes, Level, Machine, Plan, PlanError, Recovery, MOST_LEVELS};
use fastrand::Rng;

/// The record of a simulated job.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The share of the time that has brought the job forward.
    pub efficiency: f64,
    /// The standard error of the efficiency.
    pub error: f64,
    /// Failures of each level, from the lowest.
    pub failures: Vec<u64>,
    /// How long the job ran, in seconds.
    pub seconds: f64,
}

/// Lets a job run for so many seconds with this plan. A seed gives the same failures for every plan.
///
/// # Errors
/// [`PlanError`]: the plan does not fit the machine.
pub fn simulate(
    machine: &Machine,
    plan: &Plan,
    gaps: Gaps,
    seconds: f64,
    seed: u64,
) -> Result<Outcome, PlanError> {
    machine.check(plan)?;
    if plan.interval == 0.0 || !seconds.is_finite() {
        // Nothing is computed, or there is no end.
        let failures = vec![0; machine.levels().len()];
        return Ok(Outcome { efficiency: 0.0, error: 0.0, failures, seconds: 0.0 });
    }
    let mut job = Job::new(machine, plan, gaps, seed, seconds);
    let mut marks = vec![(0.0, 0.0)];
    for batch in 1..=BATCHES {
        // Rounded, the last one must not lie beyond the end, which is never passed without a failure.
        let until = (seconds * f64::from(batch) / f64::from(BATCHES)).min(seconds);
        while job.clock < until {
            job.run_to_next_failure();
        }
        marks.push((job.clock, job.done as f64 * plan.interval));
    }
    let (clock, progress) = marks[marks.len() - 1];
    let efficiency = if clock > 0.0 { progress / clock } else { 0.0 };
    // How far each batch is from the mean; they differ in length, as each ends with a failure.
    let residual = |pair: &[(f64, f64)]| pair[1].1 - pair[0].1 - efficiency * (pair[1].0 - pair[0].0);
    let squares: f64 = marks.windows(2).map(|pair| residual(pair).powi(2)).sum();
    let batches = f64::from(BATCHES);
    let error = (squares * batches / (batches - 1.0)).sqrt() / clock.max(f64::MIN_POSITIVE);
    let failures = job.sources.iter().map(|source| source.count).collect();
    Ok(Outcome { efficiency, error, failures, seconds: clock })
}

/// Parts of the time, whose spread says how exact the mean is.
const BATCHES: u32 = 50;

/// A job under way.
struct Job<'a> {
    machine: &'a Machine,
    plan: &'a Plan,
    gaps: Gaps,
    writes: [f64; MOST_LEVELS],
    /// Every how many checkpoints one of each level or above is taken.
    every: Vec<u64>,
    /// Seconds of a whole pattern in which nothing fails.
    pattern: f64,
    sources: Vec<Source>,
    clock: f64,
    /// When the simulation ends, also for a job that never gets on.
    horizon: f64,
    /// Checkpoints that stand: how far the job has got.
    done: u64,
    /// The newest checkpoint of the highest level: when it is there, and which one is there until then.
    arrives: f64,
    arrived: u64,
}

/// The failures of a level.
struct Source {
    random: Rng,
    scale: f64,
    /// When the next one happens.
    next: f64,
    count: u64,
}

impl<'a> Job<'a> {
    fn new(machine: &'a Machine, plan: &'a Plan, gaps: Gaps, seed: u64, horizon: f64) -> Self {
        let levels = machine.levels();
        let writes = writes(machine, plan);
        let every: Vec<u64> = (1..=levels.len()).map(|level| plan.every(level)).collect();
        let all = every[every.len() - 1];
        let of = |at: usize| every.get(at).map_or(0, |every| all / every);
        let waits: f64 = (0..levels.len()).map(|at| (of(at) - of(at + 1)) as f64 * writes[at]).sum();
        let pattern = all as f64 * plan.interval + waits;
        // Each level has numbers of its own, so that a plan does not change what fails when.
        let mut seeds = Rng::with_seed(seed);
        let source = |level: &Level| {
            let (mut random, scale) = (seeds.fork(), gaps.scale(1.0 / level.rate));
            Source { next: scale * gaps.draw(&mut random), random, scale, count: 0 }
        };
        let sources = levels.iter().map(source).collect();
        let (clock, done, arrives, arrived) = (0.0, 0, 0.0, 0);
        Self { machine, plan, gaps, writes, every, pattern, sources, clock, horizon, done, arrives, arrived }
    }

    /// The next failure: when, and its level from 0.
    fn next_failure(&self) -> (f64, usize) {
        let all = self.sources.iter().map(|source| source.next).zip(0..);
        all.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or((f64::INFINITY, 0))
    }

    /// The failure at hand happens; the next one of its level is known from now on.
    fn fail(&mut self, level: usize) {
        let source = &mut self.sources[level];
        self.clock = source.next;
        source.count += 1;
        source.next += source.scale * self.gaps.draw(&mut source.random);
    }

    /// Computes up to the next failure, and goes back; or to the end.
    fn run_to_next_failure(&mut self) {
        let (when, level) = self.next_failure();
        self.compute(when.min(self.horizon));
        if when > self.horizon {
            self.clock = self.horizon;
            return;
        }
        self.fail(level);
        self.recover(level);
    }

    /// Goes on up to this time, at which something fails: an interval that is not over then is lost.
    fn compute(&mut self, until: f64) {
        let all = self.every[self.every.len() - 1];
        while self.clock < until {
            if self.done.is_multiple_of(all) {
                let whole = ((until - self.clock) / self.pattern).floor();
                if whole >= 1.0 {
                    self.done = self.done.saturating_add((whole as u64).saturating_mul(all));
                    self.clock += whole * self.pattern;
                    self.wrote(self.every.len() - 1, all);
                    continue;
                }
            }
            let next = self.done.saturating_add(1);
            let level = self.every.iter().rposition(|&every| next.is_multiple_of(every)).unwrap_or(0);
            let ends = self.clock + self.plan.interval + self.writes[level];
            // After so long that an interval is nothing to it, the clock stands still.
            if ends > until || ends <= self.clock {
                return;
            }
            (self.clock, self.done) = (ends, next);
            self.wrote(level, all);
        }
    }

    /// A checkpoint of this level has been written. One of the highest level arrives later.
    fn wrote(&mut self, level: usize, all: u64) {
        let top = self.every.len() - 1;
        if level == top {
            // The one before has arrived by now: the job would have waited for it.
            self.arrived = self.done.saturating_sub(all);
            self.arrives = self.clock + self.machine.levels()[top].hidden;
        }
    }

    /// Goes back after a failure of this level, however often further failures interrupt that.
    fn recover(&mut self, mut needs: usize) {
        let top = self.every.len() - 1;
        loop {
            let back_to = if needs == top && self.clock < self.arrives {
                self.arrived
            } else {
                self.done - self.done % self.every[needs]
            };
            let has = self.every.iter().rposition(|&every| back_to.is_multiple_of(every)).unwrap_or(top);
            let state = match self.machine.recovery {
                Recovery::OfCheckpoint => has,
                Recovery::OfFailure => needs,
            };
            let ends = self.clock + self.machine.levels()[state].recover;
            let (when, level) = self.next_failure();
            if when > ends || self.clock >= self.horizon {
                self.clock = if when > ends { ends } else { self.clock };
                self.done = back_to;
                return;
            }
            self.fail(level);
            // One of the level in use takes what the recovery needs; one below lets it begin again.
            needs = match level {
                _ if level == state => (level + 1).min(top),
                _ if level > state => level,
                _ => needs,
            };
        }
    }
}
