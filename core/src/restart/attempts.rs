//! `SCR_RESTART_ATTEMPTS`: a checkpoint from which the application dies at every restart is given up.
//!
//! Rank 0 counts. If the file cannot be read or written, this is reported and counts as no attempt: giving up a good checkpoint
//! is worse than one more attempt.

use crate::cache::CheckpointId;
use crate::job::Job;
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::ledger::Request;
use scr_prefix::PrefixError;

/// Whether as many restarts from a checkpoint have begun as the user allows. Collective.
pub(super) fn are_spent(job: &Job, checkpoint: &CheckpointId) -> Result<bool, CommError> {
    let most = job.params.get(&param::RESTART_ATTEMPTS);
    if most == 0 {
        return Ok(false);
    }
    let counted =
        || Some(reported(job, job.ledger().numbers())?.attempts(checkpoint.seq.id, &checkpoint.name));
    let begun = job.number_of_first(|| counted().unwrap_or(0))?;
    if begun >= most {
        job.report.warn(&format!(
            "{begun} restarts from `{}' have begun and none has written a new checkpoint: it is given up \
             (SCR_RESTART_ATTEMPTS={most})",
            checkpoint.name_text()
        ));
    }
    Ok(begun >= most)
}

/// The application begins to restart from this checkpoint, or it has written one, and what it restarted from was good.
pub(super) fn count(job: &Job, of: Option<&CheckpointId>) {
    if job.rank() == Rank(0) && job.params.get(&param::RESTART_ATTEMPTS) > 0 {
        let of = of.map(|checkpoint| (checkpoint.seq.id, &*checkpoint.name));
        reported(job, job.ledger().transact(&Request::Attempt(of)));
    }
}

fn reported<T>(job: &Job, result: Result<T, PrefixError>) -> Option<T> {
    result.map_err(|error| job.report.warn(&scr_base::describe(&error))).ok()
}
