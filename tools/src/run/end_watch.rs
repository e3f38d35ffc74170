//! The end of the allocation while a job runs: a user or an administrator may change the time limit. The resource manager is
//! asked every few minutes, and more often when the job is soon to halt for its end. It is asked in the background, since it may take
//! a minute to answer.

use crate::machine::Allocation;
use scr_prefix::{HaltDue, HaltReason};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::Builder;
use std::time::Duration;

/// Asks again and again when the allocation ends.
#[derive(Default)]
pub(super) struct EndWatch {
    /// The channel of the answer, if the resource manager was asked.
    answer: Option<Receiver<Option<u64>>>,
    /// When it was asked last.
    asked: Option<Duration>,
}

impl EndWatch {
    /// The end of the allocation, if it has changed. `now` is the time since some moment. `due` says when the job is to halt, on a
    /// clock that shows `time`.
    pub(super) fn changed(
        &mut self,
        allocation: &Allocation,
        now: Duration,
        due: Option<&HaltDue>,
        time: i64,
    ) -> Option<u64> {
        let Some(answer) = &self.answer else {
            if self.asked.is_none_or(|asked| now >= asked + period(due, time)) {
                self.answer = allocation.end_question().map(in_background);
                self.asked = Some(now);
            }
            return None;
        };
        match answer.try_recv() {
            Err(TryRecvError::Empty) => None,
            answered => {
                self.answer = None;
                answered.ok().flatten().filter(|end| is_change(allocation, *end))
            }
        }
    }
}

/// The end of the allocation, if it has changed; waits for the answer.
pub(super) fn changed_now(allocation: &Allocation) -> Option<u64> {
    let end = allocation.end_question()?()?;
    is_change(allocation, end).then_some(end)
}

fn in_background(question: impl FnOnce() -> Option<u64> + Send + 'static) -> Receiver<Option<u64>> {
    let (sender, receiver) = mpsc::channel();
    // The receiver may be gone when the answer comes. Without a thread there is none.
    let _ = Builder::new().spawn(move || _ = sender.send(question()));
    receiver
}

/// Resource managers give the time that is left to the minute.
fn is_change(allocation: &Allocation, end: u64) -> bool {
    allocation.end_time.is_none_or(|known| known.abs_diff(end) > ROUNDED)
}

/// The time between two questions: little if the job halts before the next one, or at its next checkpoint.
fn period(due: Option<&HaltDue>, now: i64) -> Duration {
    match due {
        Some(HaltDue::Now(HaltReason::AllocationEnds { .. })) => SHORT,
        Some(HaltDue::At(time)) if time.saturating_sub(now) <= PERIOD.as_secs() as i64 => SHORT,
        _ => PERIOD,
    }
}

const PERIOD: Duration = Duration::from_secs(180);
const SHORT: Duration = Duration::from_secs(20);
/// The number of seconds by which two answers may differ though nothing has changed.
const ROUNDED: u64 = 90;

#[cfg(test)]
mod tests {
    use super::*;

    /// A job whose time limit had been extended a minute ago halted at the old end.
    #[test]
    fn the_end_is_asked_for_shortly_before_the_job_halts_for_it() {
        let ends = HaltDue::Now(HaltReason::AllocationEnds { left: 50, halt_seconds: 60 });
        for (due, seconds) in [
            (None, 180),
            (Some(HaltDue::At(1181)), 180),
            (Some(HaltDue::At(1180)), 20),
            (Some(HaltDue::At(900)), 20),
            (Some(ends), 20),
            (Some(HaltDue::Now(HaltReason::NoCheckpointsLeft)), 180),
            (Some(HaltDue::AfterCheckpoints(1)), 180),
        ] {
            assert_eq!(period(due.as_ref(), 1000).as_secs(), seconds, "{due:?}");
        }
    }
}
