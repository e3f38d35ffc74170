//! The end of the allocation while a job runs: a user or an administrator may change the time limit. The resource manager is
//! asked every few minutes, in the background, since it may take a minute to answer.

use crate::machine::Allocation;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::Builder;
use std::time::Duration;

/// Asks again and again when the allocation ends.
#[derive(Default)]
pub(super) struct EndWatch {
    /// The channel of the answer, if the resource manager was asked.
    answer: Option<Receiver<Option<u64>>>,
    /// When to ask next.
    next: Duration,
}

impl EndWatch {
    /// The end of the allocation, if it has changed. `now` is the time since some moment.
    pub(super) fn changed(&mut self, allocation: &Allocation, now: Duration) -> Option<u64> {
        let Some(answer) = &self.answer else {
            if now >= self.next {
                self.answer = allocation.end_question().map(in_background);
                self.next = now + PERIOD;
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

/// Between two questions.
const PERIOD: Duration = Duration::from_secs(180);
/// The number of seconds by which two answers may differ though nothing has changed.
const ROUNDED: u64 = 90;
