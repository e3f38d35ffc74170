//! `SCR_RESTART_ATTEMPTS`: a checkpoint from which the application dies at every restart is given up.
//!
//! Rank 0 counts. If the file cannot be read or written, this is reported and counts as no attempt: giving up a good checkpoint
//! is worse than one more attempt.

use crate::cache::CheckpointId;
use crate::job::Job;
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::{Attempts, PrefixError};

/// Whether as many restarts from a checkpoint have begun as the user allows. Collective.
pub(super) fn are_spent(job: &Job, checkpoint: &CheckpointId) -> Result<bool, CommError> {
    let most = job.params.get(&param::RESTART_ATTEMPTS);
    if most == 0 {
        return Ok(false);
    }
    let read = || Attempts::read(job.files(), &job.prefix, checkpoint.seq.id, &checkpoint.name);
    let begun = job.number_of_first(|| reported(job, read()).unwrap_or(0))?;
    if begun >= most {
        job.report.warn(&format!(
            "{begun} restarts from `{}' have begun and none has written a new checkpoint: it is given up \
             (SCR_RESTART_ATTEMPTS={most})",
            checkpoint.name_text()
        ));
    }
    Ok(begun >= most)
}

/// The application begins to restart from a checkpoint.
pub(super) fn record(job: &Job, checkpoint: &CheckpointId) {
    if job.rank() != Rank(0) || job.params.get(&param::RESTART_ATTEMPTS) == 0 {
        return;
    }
    reported(job, Attempts::add(job.files(), &job.prefix, checkpoint.seq.id, &checkpoint.name));
}

/// The application has written a checkpoint: what it restarted from was good.
pub(super) fn forget(job: &Job) {
    if job.rank() == Rank(0) && job.params.get(&param::RESTART_ATTEMPTS) > 0 {
        reported(job, Attempts::forget(job.files(), &job.prefix));
    }
}

fn reported<T>(job: &Job, result: Result<T, PrefixError>) -> Option<T> {
    result.map_err(|error| job.report.warn(&scr_base::describe(&error))).ok()
}
