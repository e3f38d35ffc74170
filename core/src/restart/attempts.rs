//! `SCR_RESTART_ATTEMPTS`: a checkpoint from which the application dies at every restart is given up.
//!
//! ```text
//! .scr/attempts.scr   ID/<id>  NAME/<name>  COUNT/<restarts begun since the last checkpoint was written>
//! ```
//!
//! Rank 0 counts. If the file cannot be read or written, this is reported and counts as no attempt: giving up a good checkpoint
//! is worse than one more attempt.

use crate::cache::CheckpointId;
use crate::comm::collective::{all_reduce, Op};
use crate::comm::{CommError, Rank};
use crate::fs::Durability;
use crate::job::Job;
use crate::param;
use crate::prefix::{PrefixError, FILE_MODE};
use scr_plugin_api::KvTree;

/// Whether as many restarts from a checkpoint have begun as the user allows. Collective.
pub(super) fn are_spent(job: &Job, checkpoint: &CheckpointId) -> Result<bool, CommError> {
    let most = job.params.get(&param::RESTART_ATTEMPTS);
    if most == 0 {
        return Ok(false);
    }
    let mut begun = [0];
    if job.rank() == Rank(0) {
        begun[0] = reported(job, count(job, checkpoint)).unwrap_or(0);
    }
    all_reduce(&*job.comm, &mut begun, Op::Max)?;
    let [begun] = begun;
    if begun >= most {
        job.report.warn(&format!(
            "{begun} restarts from `{}' have begun and none has written a new checkpoint: it is given up \
             (SCR_RESTART_ATTEMPTS={most})",
            checkpoint.shown()
        ));
    }
    Ok(begun >= most)
}

/// The application begins to restart from a checkpoint.
pub(super) fn record(job: &Job, checkpoint: &CheckpointId) {
    if job.rank() != Rank(0) || job.params.get(&param::RESTART_ATTEMPTS) == 0 {
        return;
    }
    let Some(before) = reported(job, count(job, checkpoint)) else { return };
    let mut tree = KvTree::new();
    tree.set("ID", checkpoint.seq.id);
    tree.set_bytes("NAME", &checkpoint.name);
    tree.set("COUNT", before.saturating_add(1));
    let path = job.prefix.scr_file(FILE);
    reported(job, job.files().write_tree(&path, &tree, FILE_MODE, Durability::Synced));
}

/// The application has written a checkpoint: what it restarted from was good.
pub(super) fn forget(job: &Job) {
    if job.rank() == Rank(0) && job.params.get(&param::RESTART_ATTEMPTS) > 0 {
        reported(job, job.files().remove_if_there(&job.prefix.scr_file(FILE)));
    }
}

/// How many restarts from a checkpoint have begun.
fn count(job: &Job, checkpoint: &CheckpointId) -> Result<u64, PrefixError> {
    let Some(tree) = job.files().read_tree(&job.prefix.scr_file(FILE))? else { return Ok(0) };
    let id: Option<u64> = tree.parse("ID").ok().flatten();
    let is_of = id == Some(checkpoint.seq.id) && tree.value("NAME") == Some(&checkpoint.name);
    Ok(if is_of { tree.parse("COUNT").ok().flatten().unwrap_or(0) } else { 0 })
}

fn reported<T, E: std::error::Error + 'static>(job: &Job, result: Result<T, E>) -> Option<T> {
    result.map_err(|error| job.report.warn(&crate::describe(&error))).ok()
}

const FILE: &str = "attempts.scr";
