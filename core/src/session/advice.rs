//! Advice to the application: is it time for a checkpoint, is it time to stop?
//!
//! See the guide's `SCR_Need_checkpoint`, `SCR_Should_exit` and its section "Halt a job".

use super::datasets::ROOT;
use super::{Error, Session};
use crate::comm::collective::broadcast;
use crate::param;
use crate::prefix::{Begun, Halt, PrefixError};
use std::time::Duration;

/// What the advice is drawn from.
#[derive(Debug, Default)]
pub(super) struct Advice {
    /// Calls of `SCR_Need_checkpoint` so far.
    asked: u64,
    /// When the session began, and when its last checkpoint was complete.
    began: Duration,
    last: Option<Duration>,
    /// Time spent in checkpoints, and their number.
    spent: Duration,
    count: u32,
}

impl Advice {
    pub(super) fn new(now: Duration) -> Self {
        Self { began: now, ..Self::default() }
    }

    /// A checkpoint took this long and was complete at `now`.
    pub(super) fn completed(&mut self, now: Duration, took: Duration) {
        self.last = Some(now);
        self.spent += took;
        self.count += 1;
    }

    /// Whether the settings want a checkpoint now.
    fn is_due(&self, now: Duration, wanted: &Wanted) -> bool {
        let by_count = wanted.interval > 0 && self.asked.is_multiple_of(wanted.interval);
        let since = now.saturating_sub(self.last.unwrap_or(self.began));
        let by_time = !wanted.seconds.is_zero() && since >= wanted.seconds;
        // Where nobody has said how often, the application decides alone.
        let unset = wanted.interval == 0 && wanted.seconds.is_zero() && wanted.overhead <= 0.0;
        unset || by_count || by_time || self.is_cheap(now, wanted.overhead)
    }

    /// Whether one more checkpoint keeps the share of time spent in them below `percent`.
    fn is_cheap(&self, now: Duration, percent: f64) -> bool {
        if percent <= 0.0 {
            return false;
        }
        // Of the first one nobody knows what it costs, so it is taken.
        let Some(count) = std::num::NonZeroU32::new(self.count) else { return true };
        let next = self.spent + self.spent / count.get();
        let total = now.saturating_sub(self.began) + self.spent / count.get();
        next.as_secs_f64() * 100.0 <= percent * total.as_secs_f64()
    }
}

/// The settings of `SCR_Need_checkpoint`.
struct Wanted {
    interval: u64,
    seconds: Duration,
    overhead: f64,
}

impl Session {
    /// Whether the application should take a checkpoint now; the same on all ranks. Collective.
    ///
    /// # Errors
    /// [`Error::State`] within a phase.
    pub fn need_checkpoint(&mut self) -> Result<bool, Error> {
        self.expect_idle("SCR_Need_checkpoint")?;
        self.look_at_flush()?;
        self.advice.asked += 1;
        let params = &self.job.params;
        let wanted = Wanted {
            interval: params.get(&param::CHECKPOINT_INTERVAL),
            seconds: params.get(&param::CHECKPOINT_SECONDS),
            overhead: params.get(&param::CHECKPOINT_OVERHEAD),
        };
        let due = if self.job.rank() == ROOT {
            let halting = self.halt_reason(0).is_some();
            Some(vec![u8::from(halting || self.advice.is_due(self.job.env.clock.elapsed(), &wanted))])
        } else {
            None
        };
        Ok(broadcast(&*self.job.comm, ROOT, due.unwrap_or_default())? == [1])
    }

    /// Whether the application should stop; the same on all ranks. Collective.
    ///
    /// # Errors
    /// [`Error::State`] within a phase.
    pub fn should_exit(&mut self) -> Result<bool, Error> {
        self.expect_idle("SCR_Should_exit")?;
        self.look_at_flush()?;
        Ok(self.agreed_halt_reason(0)?.is_some())
    }

    /// A checkpoint is complete: one less is left, where their number is limited, and the application may have to end.
    pub(super) fn count_checkpoint(&mut self) -> Result<(), Error> {
        let reason = self.agreed_halt_reason(1)?;
        self.note_halt(reason);
        Ok(())
    }

    /// Looks at the halt conditions when a session begins.
    pub(super) fn look_at_halt(&mut self) -> Result<(), Error> {
        self.begin_halt();
        let reason = self.agreed_halt_reason(0)?;
        if let Some(reason) = &reason {
            self.job.report.notice(&format!(
                "the job is to halt: {reason}. To run on all the same: scr halt --remove, which removes {}",
                self.job.prefix.halt_file().display()
            ));
        }
        self.note_halt(reason);
        Ok(())
    }

    fn note_halt(&mut self, reason: Option<String>) {
        if let Some(reason) = &reason {
            self.log_halt(reason);
        }
        if self.job.params.get(&param::HALT_EXIT) {
            self.exit_wanted = reason;
        }
    }

    fn agreed_halt_reason(&self, completed: u64) -> Result<Option<String>, Error> {
        let own = if self.job.rank() == ROOT {
            self.halt_reason(completed).unwrap_or_default()
        } else {
            String::new()
        };
        let reason = broadcast(&*self.job.comm, ROOT, own.into_bytes())?;
        Ok(Some(String::from_utf8_lossy(&reason).into_owned()).filter(|reason| !reason.is_empty()))
    }

    /// Why the job should halt, after `completed` more checkpoints; rank 0 only. A halt file that cannot be read halts
    /// nothing.
    fn halt_reason(&self, completed: u64) -> Option<String> {
        let now = i64::try_from(self.job.micros() / 1_000_000).unwrap_or(i64::MAX);
        let end = self.job.params.get(&param::END_TIME).and_then(|end| i64::try_from(end).ok());
        match self.read_halt(completed > 0) {
            Ok(halt) => halt.reason(now, end).map(|reason| reason.to_string()),
            Err(error) => {
                self.job
                    .report
                    .error(&format!("the halt conditions cannot be read: {}", crate::describe(&error)));
                None
            }
        }
    }
}

impl Session {
    /// The halt seconds of the settings.
    pub(super) fn halt_seconds(&self) -> i64 {
        i64::try_from(self.job.params.get(&param::HALT_SECONDS).as_secs()).unwrap_or(i64::MAX)
    }

    /// Puts the halt seconds of the settings where commands can change them, unless a command was there before.
    fn begin_halt(&self) {
        let seconds = self.halt_seconds();
        if self.job.rank() != ROOT || seconds == 0 {
            return;
        }
        let path = self.job.prefix.halt_file();
        match Halt::begin(self.job.files(), &self.job.prefix, seconds) {
            Ok(Begun::AsSet) => (),
            Ok(Begun::AsInFile(found)) => self.job.report.warn(&format!(
                "SCR_HALT_SECONDS={seconds} does not count, since {} was there before the job, with {} halt seconds; \
                 change them with scr halt --seconds",
                path.display(),
                found.unwrap_or(0)
            )),
            Err(error) => self.job.report.error(&format!(
                "SCR_HALT_SECONDS={seconds} does not count, since the halt file cannot be written: {}",
                crate::describe(&error)
            )),
        }
    }

    /// The halt conditions, with one checkpoint less to be taken where one has been `completed`.
    fn read_halt(&self, completed: bool) -> Result<Halt, PrefixError> {
        let (files, prefix) = (self.job.files(), &self.job.prefix);
        let Some(halt) = Halt::read(files, prefix)? else { return Ok(Halt::default()) };
        if !completed || halt.checkpoints_left.is_none() {
            return Ok(halt);
        }
        let updated = Halt::update(files, prefix, |halt| {
            halt.checkpoint_completed();
            halt.clone()
        })?;
        Ok(updated.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Wanted = Wanted { interval: 0, seconds: Duration::ZERO, overhead: 0.0 };

    fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn without_settings_every_call_advises_a_checkpoint() {
        let advice = Advice { asked: 5, ..Advice::new(secs(0)) };
        assert!(advice.is_due(secs(0), &NOTHING));
    }

    #[test]
    fn every_third_call_advises_one_with_an_interval_of_three() {
        let mut advice = Advice::new(secs(0));
        let answers: Vec<bool> = (0..6)
            .map(|_| {
                advice.asked += 1;
                advice.is_due(secs(1), &Wanted { interval: 3, ..NOTHING })
            })
            .collect();
        assert_eq!(answers, [false, false, true, false, false, true]);
    }

    #[test]
    fn seconds_count_from_the_last_checkpoint() {
        let mut advice = Advice::new(secs(100));
        let wanted = Wanted { seconds: secs(60), ..NOTHING };
        assert!(!advice.is_due(secs(159), &wanted));
        assert!(advice.is_due(secs(160), &wanted));
        advice.completed(secs(161), secs(1));
        assert!(!advice.is_due(secs(200), &wanted));
        assert!(advice.is_due(secs(221), &wanted));
    }

    #[test]
    fn the_overhead_limits_how_often() {
        let mut advice = Advice::new(secs(0));
        let wanted = Wanted { overhead: 10.0, ..NOTHING };
        assert!(advice.is_due(secs(1), &wanted), "the first one is taken");
        advice.completed(secs(3), secs(2));
        assert!(!advice.is_due(secs(20), &wanted));
        assert!(advice.is_due(secs(40), &wanted));
    }
}
