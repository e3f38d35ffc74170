//! A flush by a thread of each rank, while the application computes.
//!
//! Only the threads wait for the disk, not the application. They do not use MPI: the ranks agree on the plan before, and on the
//! result after. Errors are kept until all ranks ask together. As soon as one rank has failed, the others are cancelled, so that
//! nobody waits for a flag that is never set.
//!
//! | module | what is in it |
//! |---|---|
//! | `thread` | the thread, as the application sees it |
//! | `task` | what the thread does |
//! | `flags` | the flags between both |

mod flags;
mod task;
mod thread;

pub(super) use thread::RunningWorker;

use super::plan::Plan;
use super::running::{Running, RunningFlush};
use super::step::{Step, StepError};
use super::throttle::Throttle;
use super::{Flush, FlushError, FlushReport, ToFlush};
use scr_base::fs::Pauses;
use scr_comm::collective::{all_reduce, Op};
use scr_prefix::DatasetDescriptor;
use std::sync::Arc;
use std::time::Duration;
use task::{sign, Task};

impl Flush<'_> {
    /// Begins a flush. A thread of each rank does everything but the agreement.
    pub(super) fn begin_threads(&self, what: ToFlush<'_>) -> Result<RunningFlush, FlushError> {
        let Plan { run, folders_to_make, lists } = self.plan(what, 1)?;
        let job = self.job;
        let task = Task {
            files: Arc::clone(&job.env.files),
            transport: Arc::clone(self.transport()),
            transport_name: self.transport.name.clone(),
            prefix: job.prefix.clone(),
            options: self.options,
            rank: job.rank().0,
            leads: job.nodes.leader(job.rank()) == job.rank(),
            control: self.control.to_owned(),
            throttle: Throttle::new(job, self.control, self.options.width),
            record: run.record.clone(),
            copies: run.copies.clone(),
            folders_to_make,
            lists,
        };
        let running = Running::Threads(RunningWorker::new(task));
        Ok(RunningFlush { running, ..run })
    }

    /// Waits for the threads of all ranks, and closes the flush.
    pub(super) fn finish_threads(&self, mut run: RunningFlush) -> Result<FlushReport, FlushError> {
        let mut pauses = Pauses::up_to(LONGEST_PAUSE);
        loop {
            let (running, failed) = self.progress(&run)?;
            match &run.running {
                Running::Threads(worker) if failed => worker.cancel(),
                _ => (),
            }
            if !running || failed {
                break;
            }
            pauses.wait(self.files());
        }
        let Running::Threads(worker) = &mut run.running else { return self.finish_detached(&run) };
        let ended = worker.join();
        run.ticket = worker.ticket();
        let outcome = match ended {
            Ok((task, outcome)) => {
                (run.record, run.copies) = (task.record, task.copies);
                outcome
            }
            Err(error) => Err((Step::Copying, error)),
        };
        let arrived = self.agreed_step(&run.record.dataset, outcome);
        let _ = self.files().remove_if_there(&sign(self.control, &run.record));
        self.close(&mut run, arrived)
    }

    /// The first step that has failed on any rank has failed. Ranks that were cancelled because of it report nothing.
    fn agreed_step(
        &self,
        dataset: &DatasetDescriptor,
        outcome: Result<(), (Step, StepError)>,
    ) -> Result<(), FlushError> {
        let own = outcome.as_ref().map_or_else(|(step, _)| *step as u64, |()| u64::MAX);
        let [first] = all_reduce(&*self.job.comm, [own], Op::Min)?;
        let steps = [Step::Folders, Step::Recording, Step::Copying];
        let Some(step) = steps.into_iter().find(|&step| step as u64 == first) else { return Ok(()) };
        let outcome = match outcome {
            Err((at, error)) if at == step => Err(error),
            _ => Ok(()),
        };
        self.agreed(dataset, step, outcome)
    }
}

/// Between two looks at the threads of all ranks, at the most.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
