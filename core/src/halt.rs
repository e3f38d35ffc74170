//! Whether the job should end: the conditions of the halt file, `SCR_HALT_SECONDS` and `SCR_HALT_EXIT`.
//!
//! See docs/user/concepts.md.

use crate::error::{Doing as _, Error};
use crate::job::Job;
use crate::log::{Event, Record};
use crate::typed::broadcast_value;
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::{Begun, Ended, Halt, HaltReason, KnownEnd, LastRun, PrefixError};
use std::time::Duration;

/// The halt conditions of a run.
#[derive(Debug, Default)]
pub(crate) struct HaltConditions {
    exit_wanted: Option<String>,
    /// The last answer to the application that has asked.
    told: Option<String>,
    logged: bool,
}

impl HaltConditions {
    /// Checks the conditions when a run begins. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn begin(&mut self, job: &Job) -> Result<(), CommError> {
        begin_file(job);
        if job.rank() == Rank(0) {
            // An error is reported where the conditions are read.
            let _ = Halt::forget_end(job.files(), &job.prefix);
        }
        self.check(job, 0)
    }

    /// Why the application should be ended now, if the user has asked for that with `SCR_HALT_EXIT=1`.
    pub(crate) fn exit_wanted(&self) -> Option<&str> {
        self.exit_wanted.as_deref()
    }

    /// All ranks have called `SCR_Finalize`: `scr run` does not start the job again, unless it has only stopped before the end of
    /// its allocation. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk: one may have died, and the job has not ended. Or that it has ended cannot be recorded.
    pub(crate) fn finalize(&mut self, job: &Job) -> Result<(), Error> {
        self.logged = false;
        self.log(job, Halt::FINALIZED);
        let end = || {
            let (files, prefix) = (job.files(), &job.prefix);
            let in_time =
                outlook(job, 0).reason.filter(|why| matches!(why, HaltReason::AllocationEnds { .. }));
            let halted = Halt::end(files, prefix, halt_seconds(job), in_time.is_some());
            let why = self.told.take().or(in_time.map(|why| why.to_string()));
            halted.and(LastRun::end(files, prefix, why.map_or(Ended::Finished, Ended::Halted)))
        };
        job.do_on_first(end)
            .map(drop)
            .doing("recording the end of the job (without it `scr run' starts it again)")
    }

    /// The job ends as the user has asked for with `SCR_HALT_EXIT=1`.
    pub(crate) fn exit(self, job: &Job) {
        if let Some(why) = self.exit_wanted.filter(|_| job.rank() == Rank(0)) {
            job.report_failed(LastRun::end(job.files(), &job.prefix, Ended::Halted(why)));
        }
    }

    /// Why the job should halt, for the application that asks; the same on all ranks. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn tell(&mut self, job: &Job) -> Result<Option<&str>, CommError> {
        self.told = agreed(job, on_rank_0(job, 0))?;
        Ok(self.told.as_deref())
    }

    /// Checks the conditions after `completed` more checkpoints, and says once why the job is to halt. So many less are left if
    /// their number is limited. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn check(&mut self, job: &Job, completed: u64) -> Result<(), CommError> {
        let own = on_rank_0(job, completed);
        let exits = job.params.get(&param::HALT_EXIT);
        if let Some(reason) = own.as_ref().filter(|_| !self.logged && (completed == 0 || !exits)) {
            let ends = match exits {
                true => "SCR_HALT_EXIT=1 ends it",
                false => "the program learns that from SCR_Should_exit, and SCR_HALT_EXIT=1 ends one that does not ask",
            };
            let cure = reason.cure(job.prefix.dir());
            job.report.notice(&format!("the job is to halt: {reason}; {ends}; {cure}"));
        }
        let reason = agreed(job, own)?;
        if let Some(reason) = &reason {
            self.log(job, reason);
        }
        if exits {
            self.exit_wanted = reason;
        }
        Ok(())
    }

    /// Once in a run, since the reason stays.
    fn log(&mut self, job: &Job, reason: &str) {
        if !std::mem::replace(&mut self.logged, true) {
            job.log.add_entry(Record::event(Event::Halt).note(reason));
        }
    }
}

fn on_rank_0(job: &Job, completed: u64) -> Option<HaltReason> {
    (job.rank() == Rank(0)).then(|| outlook(job, completed).reason).flatten()
}

fn agreed(job: &Job, own: Option<HaltReason>) -> Result<Option<String>, CommError> {
    let own = own.map(|reason| reason.to_string());
    broadcast_value(&*job.comm, (job.rank() == Rank(0)).then_some(own))
}

/// The known facts about the end of a job.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    /// Why it should halt now.
    pub(crate) reason: Option<HaltReason>,
    /// The time until its allocation ends.
    pub(crate) left: Option<Duration>,
}

/// Why the job should halt, after `completed` more checkpoints, and how long its allocation lasts; on rank 0 only. A halt file that
/// cannot be read halts nothing.
pub(crate) fn outlook(job: &Job, completed: u64) -> Outlook {
    let now = i64::try_from(job.env.seconds()).unwrap_or(i64::MAX);
    let (job_id, time) = (job.params.get(&param::JOB_ID), job.params.get(&param::END_TIME));
    let allocation = KnownEnd { job_id: &job_id, time: time.and_then(|time| i64::try_from(time).ok()) };
    let halt = read(job, completed > 0).unwrap_or_else(|error| {
        job.report.error(&format!("the halt conditions cannot be read: {}", scr_base::describe(&error)));
        Halt::default()
    });
    let left = halt.end_of(allocation, now).map(|end| end.saturating_sub(now));
    // The end of the last run does not stop this one. Only programs that start jobs check for it.
    let halt = if halt.is_finalized() { Halt { exit_reason: None, ..halt } } else { halt };
    Outlook {
        reason: halt.reason(now, allocation),
        left: left.map(|left| Duration::from_secs(u64::try_from(left).unwrap_or(0))),
    }
}

/// The halt conditions, with one checkpoint less to be taken if one has been `completed`.
fn read(job: &Job, completed: bool) -> Result<Halt, PrefixError> {
    let (files, prefix) = (job.files(), &job.prefix);
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

/// Puts the halt seconds of the settings where commands can change them, unless a command was there before.
fn begin_file(job: &Job) {
    let seconds = halt_seconds(job);
    if job.rank() != Rank(0) || seconds == 0 {
        return;
    }
    let why = match Halt::begin(job.files(), &job.prefix, seconds) {
        Ok(Begun::AsSet) if is_end_known(job) => return,
        Ok(Begun::AsSet) => "the end of the allocation is not known: set SCR_END_TIME, in seconds since the epoch, or use scr halt \
                             --before"
            .to_owned(),
        Ok(Begun::AsInFile(found)) => format!(
            "{} was there before the job, with {} halt seconds; change them with scr halt --seconds",
            job.prefix.halt_file().display(),
            found.unwrap_or(0)
        ),
        Err(error) => format!("the halt file cannot be written: {}", scr_base::describe(&error)),
    };
    job.warn_of_setting(&format!("SCR_HALT_SECONDS={seconds} has no effect, since {why}"));
}

/// Whether a time is known before which the job can halt.
fn is_end_known(job: &Job) -> bool {
    let halt = Halt::read(job.files(), &job.prefix).ok().flatten().unwrap_or_default();
    halt.exit_before.is_some() || halt.changed_end.is_some() || job.params.get(&param::END_TIME).is_some()
}

/// The halt seconds of the settings.
fn halt_seconds(job: &Job) -> i64 {
    i64::try_from(job.params.get(&param::HALT_SECONDS).as_secs()).unwrap_or(i64::MAX)
}
