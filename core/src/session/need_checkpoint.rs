//! `SCR_Need_checkpoint`: is it time for a checkpoint? See docs/user/how-often.md.

use super::{auto, Error, Retry, Session};
use crate::halt::{self, Outlook};
use crate::typed::broadcast_value;
use scr_comm::Rank;
use scr_config::param::{self, Interval};
use std::time::Duration;

/// How many checkpoints there were, and how long they took.
#[derive(Debug, Default)]
pub(super) struct CheckpointTimes {
    /// Calls of `SCR_Need_checkpoint` so far.
    asked: u64,
    /// When the session began, and when its last checkpoint was complete.
    began: Duration,
    pub(super) last: Option<Duration>,
    /// Time spent in checkpoints, and their number.
    spent: Duration,
    count: u32,
    /// Checkpoints that have failed, in all and since the last one that was complete.
    failed: u32,
    failed_last: u32,
}

impl CheckpointTimes {
    pub(super) fn new(now: Duration) -> Self {
        Self { began: now, ..Self::default() }
    }

    /// A checkpoint took this long and was complete at `now`.
    pub(super) fn completed(&mut self, now: Duration, took: Duration) {
        self.last = Some(now);
        self.spent += took;
        self.count += 1;
        self.failed_last = 0;
    }

    /// A checkpoint could not be begun, or has been discarded.
    pub(super) fn failed(&mut self) {
        self.failed += 1;
        self.failed_last += 1;
    }

    /// The last checkpoint that was complete is lost.
    pub(super) fn lost(&mut self) {
        self.count = self.count.saturating_sub(1);
        self.failed();
    }

    /// What the user has to hear at the end of a run whose last checkpoint has failed.
    pub(super) fn unsaved(&self) -> Option<String> {
        let (failed, all) = (self.failed, self.failed + self.count);
        (self.failed_last > 0).then(|| {
            format!(
                "{failed} of {all} checkpoints of this run failed, also the last one: what was computed since the last \
                 complete one is not saved"
            )
        })
    }

    /// How long ago the last checkpoint of the session was complete.
    pub(super) fn since_last(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.last?))
    }

    /// The time since then, or since the session began.
    pub(super) fn since(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last.unwrap_or(self.began))
    }

    /// Whether the settings want a checkpoint now.
    fn is_due(&self, now: Duration, wanted: &Wanted) -> bool {
        let by_count = matches!(wanted.interval, Interval::Every(every) if every > 0 && self.asked.is_multiple_of(every));
        let since = self.since(now);
        let by_time = !wanted.seconds.is_zero() && since >= wanted.seconds;
        by_count || by_time || self.is_cheap(since, wanted.overhead)
    }

    /// Whether a checkpoint now keeps the share of time spent in checkpoints below `percent`: its cost, taken to be the average,
    /// is weighed against the time `since` the last one.
    fn is_cheap(&self, since: Duration, percent: f64) -> bool {
        if percent <= 0.0 {
            return false;
        }
        // The cost of the first one is unknown, so it is taken.
        let Some(count) = std::num::NonZeroU32::new(self.count) else { return true };
        let cost = (self.spent / count.get()).as_secs_f64();
        cost * 100.0 < percent * (since.as_secs_f64() + cost)
    }
}

/// The settings of `SCR_Need_checkpoint`.
struct Wanted {
    interval: Interval,
    seconds: Duration,
    overhead: f64,
}

impl Wanted {
    /// Whether no parameter says when a checkpoint is due.
    fn is_unset(&self) -> bool {
        self.interval == Interval::Every(0) && self.seconds.is_zero() && self.overhead <= 0.0
    }
}

impl Session {
    /// Whether the application should take a checkpoint now; the same on all ranks. Collective.
    ///
    /// # Errors
    /// [`Error::State`] within a phase.
    pub fn need_checkpoint(&mut self) -> Result<bool, Error> {
        let _call = self.begin_call("SCR_Need_checkpoint");
        self.expect_idle("SCR_Need_checkpoint")?;
        self.poll(Retry::Later)?;
        self.times.asked += 1;
        let params = &self.job.params;
        let wanted = Wanted {
            interval: params.get(&param::CHECKPOINT_INTERVAL),
            seconds: params.get(&param::CHECKPOINT_SECONDS),
            overhead: params.get(&param::CHECKPOINT_OVERHEAD),
        };
        if self.times.asked == 1 && wanted.is_unset() {
            self.job.report.notice(
                "SCR_Need_checkpoint asks for no checkpoint until the job is to halt: none of SCR_CHECKPOINT_INTERVAL, \
                 SCR_CHECKPOINT_SECONDS and SCR_CHECKPOINT_OVERHEAD is set",
            );
        }
        let own = (self.job.rank() == Rank(0)).then(|| self.own_answer(&wanted));
        let (is_due, flush_every): (bool, Option<u64>) = broadcast_value(&*self.job.comm, own)?;
        if let Some(every) = flush_every {
            self.flushes.flush_one_of(every, self.last_checkpoint);
        }
        Ok(is_due)
    }

    /// Whether a checkpoint is due, and one of how many is to be flushed where that is planned.
    fn own_answer(&mut self, wanted: &Wanted) -> (bool, Option<u64>) {
        let now = self.job.env.clock.elapsed();
        let Outlook { reason, left } = halt::outlook(&self.job, 0);
        let mut due = reason.is_some() || self.times.is_due(now, wanted);
        let mut flush_every = None;
        if auto::is_wanted(&self.job) {
            due |= self.auto.is_due(&self.job, &self.times, now, left);
            flush_every = self.auto.flush_every(&self.job);
        }
        (due, flush_every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Wanted = Wanted { interval: Interval::Every(0), seconds: Duration::ZERO, overhead: 0.0 };

    fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn without_settings_no_call_advises_a_checkpoint() {
        let times = CheckpointTimes { asked: 5, ..CheckpointTimes::new(secs(0)) };
        assert!(!times.is_due(secs(1_000_000), &NOTHING));
    }

    #[test]
    fn every_third_call_advises_one_with_an_interval_of_three() {
        let mut times = CheckpointTimes::new(secs(0));
        let answers: Vec<bool> = (0..6)
            .map(|_| {
                times.asked += 1;
                times.is_due(secs(1), &Wanted { interval: Interval::Every(3), ..NOTHING })
            })
            .collect();
        assert_eq!(answers, [false, false, true, false, false, true]);
    }

    #[test]
    fn seconds_count_from_the_last_checkpoint() {
        let mut times = CheckpointTimes::new(secs(100));
        let wanted = Wanted { seconds: secs(60), ..NOTHING };
        assert!(!times.is_due(secs(159), &wanted));
        assert!(times.is_due(secs(160), &wanted));
        times.completed(secs(161), secs(1));
        assert!(!times.is_due(secs(200), &wanted));
        assert!(times.is_due(secs(221), &wanted));
    }

    #[test]
    fn the_overhead_limits_how_often() {
        let mut times = CheckpointTimes::new(secs(0));
        let wanted = Wanted { overhead: 10.0, ..NOTHING };
        assert!(times.is_due(secs(1), &wanted), "the first one is taken");
        times.completed(secs(3), secs(2));
        assert!(!times.is_due(secs(21), &wanted), "2 of 20 seconds are not less than 10 %");
        assert!(times.is_due(secs(22), &wanted));
        times.completed(secs(24), secs(2));
        assert!(!times.is_due(secs(40), &wanted), "however cheap the time before was");
    }
}
