//! `SCR_CURRENT`: the user names the checkpoint to restart from.

use super::{fetch_first, newest_cached};
use crate::cache::CheckpointId;
use crate::comm::collective::broadcast_tree;
use crate::comm::Rank;
use crate::error::Error;
use crate::fetch::Fetcher;
use crate::job::Job;
use crate::param;
use crate::prefix::{Index, Restarted, Seq};
use scr_plugin_api::KvTree;

/// Finds the checkpoint of this name before newer ones in cache, unless they were made after a restart from it in this very
/// allocation: a job that fails again and again must not start from the beginning each time.
pub(super) fn find(from: &mut Fetcher<'_>, name: &[u8]) -> Result<Option<CheckpointId>, Error> {
    let since = restarted_from(from.job, name)?;
    let newest = newest_cached(from.job, from.cache, |_| true);
    if let Some(newer) = newest.as_ref().filter(|newest| since.is_some_and(|since| newest.seq >= since)) {
        from.job.report.notice(&format!(
            "SCR_CURRENT={} was restarted from before in this allocation: going on from `{}', which is newer",
            String::from_utf8_lossy(name),
            newer.shown()
        ));
        return Ok(None);
    }
    let cached = newest_cached(from.job, from.cache, |cached| cached.record.dataset.name == name);
    // With nothing in cache the search for the newest begins with it.
    if cached.is_some() || newest.is_none() || !from.job.params.get(&param::FETCH) {
        return Ok(cached);
    }
    fetch_first(from, false, &|candidate| candidate.name == name)
}

/// Records that the job has restarted from the checkpoint that the user has named, and makes it the current one.
pub(super) fn record_chosen(from: &Fetcher<'_>, chosen: &CheckpointId) {
    let job = from.job;
    if job.rank() != Rank(0) {
        return;
    }
    let job_id = job.params.get(&param::JOB_ID);
    let last = Restarted {
        job_id,
        name: chosen.name.clone(),
        next: Seq { run: job.run.number, id: from.cache.next_id() },
    };
    let recorded = last
        .write(job.files(), &job.prefix)
        .and_then(|()| Index::update(job.files(), &job.prefix, |index| _ = index.set_current(&chosen.name)));
    if let Err(error) = recorded {
        job.report.error(&crate::describe(&error));
    }
}

/// The place of the first dataset that could be written after the last restart from this name in this allocation, if there was one.
fn restarted_from(job: &Job, name: &[u8]) -> Result<Option<Seq>, Error> {
    let mut tree = KvTree::new();
    if job.rank() == Rank(0) {
        match Restarted::read(job.files(), &job.prefix) {
            Ok(Some(last)) if last.name == name && last.job_id == job.params.get(&param::JOB_ID) => {
                tree.set("NEXT", last.next.id);
                tree.set("RUN", last.next.run);
            }
            Ok(_) => (),
            Err(error) => job.report.error(&crate::describe(&error)),
        }
    }
    let tree = broadcast_tree(&*job.comm, Rank(0), &tree)?;
    let number = |key| tree.parse(key).ok().flatten();
    Ok(number("NEXT").zip(number("RUN")).map(|(id, run)| Seq { run, id }))
}
