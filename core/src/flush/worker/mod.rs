//! A flush by a thread of each rank, while the application computes.
//!
//! What waits for a disk waits in the threads, and not in the application. They know nothing of MPI: the ranks agree on what is to come
//! before, and on what has come after. Errors wait until all ranks ask together. As soon as one has failed, the others are told to give
//! up, so that nobody waits for a sign that never comes.
//!
//! | part | what it is |
//! |---|---|
//! | `thread` | the thread, as the application sees it |
//! | `copy` | what the thread does |

mod copy;
mod thread;

pub(super) use thread::RunningWorker;

use super::plan::Plan;
use super::steps::Step;
use super::{Flush, FlushError, FlushReport, SourceFile, Started};
use crate::comm::collective::{all_reduce, any, Op};
use crate::comm::CommError;
use crate::fs::Files;
use crate::prefix::DatasetDescriptor;
use copy::{Failure, Task};
use scr_plugin_api::Transport;
use std::sync::Arc;
use std::time::Duration;

/// What a flush needs that is not done in the caller's thread.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Flush<'_> {
    /// Begins a flush of which all but the agreement is done by a thread of each rank, from [`start_copying`](Self::start_copying) on. All ranks call it, with
    /// the same token.
    ///
    /// # Errors
    /// [`FlushError`], the same on all ranks.
    pub(crate) fn begin(
        &self,
        hands: Hands,
        token: &str,
        dataset: &DatasetDescriptor,
        mine: &[SourceFile],
    ) -> Result<Started, FlushError> {
        let plan = self.plan(token, dataset, mine)?;
        let mut to_make = self.own_folders(&plan.copies);
        to_make.extend(plan.folders.iter().cloned());
        let task = Task {
            files: hands.files,
            transport: hands.transport,
            prefix: self.prefix.clone(),
            options: self.options,
            rank: self.comm.rank().0,
            record: plan.record.clone(),
            copies: plan.copies.clone(),
            folders: to_make,
            lists: plan.lists,
            may_replace: plan.may_replace,
        };
        let Plan { record, copies, folders, .. } = plan;
        let worker = Some(RunningWorker::new(task));
        Ok(Started { record, copies, folders, ticket: None, worker })
    }

    /// Whether any rank's thread is at work, and whether any has failed. That all are announced is passed on.
    pub(super) fn ask_all(&self, worker: &RunningWorker) -> Result<(bool, bool), CommError> {
        let mine = worker.progress();
        let [running, failed, unannounced] = any(self.comm, [mine.running, mine.failed, !mine.announced])?;
        if !unannounced {
            worker.go();
        }
        Ok((running, failed))
    }

    /// Waits for the threads of all ranks, and ends the flush.
    pub(super) fn finish_background(
        &self,
        mut started: Started,
        mut worker: RunningWorker,
    ) -> Result<FlushReport, FlushError> {
        let mut pauses = Pauses::up_to(LONGEST_PAUSE);
        loop {
            let (running, failed) = self.ask_all(&worker)?;
            if failed {
                worker.cancel();
            }
            if !running || failed {
                break;
            }
            pauses.wait(self.files);
        }
        let outcome = match worker.join() {
            Ok(ended) => {
                started.record = ended.record;
                started.copies = ended.copies;
                started.ticket = ended.ticket.map(Ok);
                ended.outcome
            }
            Err(failure) => Err(failure),
        };
        let arrived = self.agreed_step(&started.record.dataset, outcome);
        self.conclude(&started, arrived)
    }

    /// The first step that has failed on any rank is what has failed. Who has given up for that has nothing to say.
    fn agreed_step(
        &self,
        dataset: &DatasetDescriptor,
        outcome: Result<(), Failure>,
    ) -> Result<(), FlushError> {
        let mine = match &outcome {
            Ok(()) => None,
            Err(Failure::At(step, _)) => Some(*step),
            Err(Failure::Cancelled) => Some(Step::Copying),
        };
        let mut first = [mine.map_or(u64::MAX, |step| step as u64)];
        all_reduce(self.comm, &mut first, Op::Min)?;
        let steps = [Step::Folders, Step::Recording, Step::Copying];
        let Some(step) = steps.into_iter().find(|&step| step as u64 == first[0]) else { return Ok(()) };
        let told = match outcome {
            Err(Failure::At(at, why)) if at == step => Err(why),
            Err(Failure::Cancelled) if step == Step::Copying => Err("it was given up".to_owned()),
            _ => Ok(()),
        };
        self.agreed(dataset, step, told)
    }
}

/// Between two looks at the threads of all ranks, at the most.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// Between two looks at something: short ones first, then twice as long each time.
struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    fn up_to(longest: Duration) -> Self {
        Self { next: LEAST_PAUSE, longest }
    }

    fn wait(&mut self, files: &dyn Files) {
        files.pause(self.next);
        self.next = (self.next * 2).min(self.longest);
    }
}

const LEAST_PAUSE: Duration = Duration::from_millis(1);
