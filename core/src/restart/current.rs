//! `SCR_CURRENT`: the user names the checkpoint to restart from.

use super::{newest_cached, PrefixState, WentBack};
use crate::cache::{CachedDataset, CheckpointId};
use crate::error::{Doing as _, Error};
use crate::fetch::{Fetcher, Search, Wanted};
use crate::job::Job;
use scr_config::param;
use scr_prefix::ledger::{Candidate, Request};
use scr_prefix::{Between, Restarted, Seq};

/// A checkpoint that the user or the application has named.
pub(crate) struct Chosen {
    pub(super) name: Vec<u8>,
    /// The place of the one that the name stands for in the index, if that can be restarted from.
    pub(super) seq: Option<Seq>,
}

impl Chosen {
    /// Loads it from cache, or else from the prefix directory. An older dataset of its name in cache is another one; it is taken
    /// only if nothing is to be fetched. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk, or it cannot be fetched for a reason that may pass.
    pub(super) fn load(&self, from: &mut Fetcher<'_>, by_user: bool) -> Result<Option<CheckpointId>, Error> {
        let fetches = from.job.params.get(&param::FETCH);
        let cached = newest_cached(from.job, from.cache, |cached| {
            let is_older = self.seq.is_some_and(|listed| cached.seq() < listed);
            cached.record.dataset.name == self.name && !(is_older && fetches)
        });
        if cached.is_none() && !fetches && by_user {
            let name = String::from_utf8_lossy(&self.name);
            from.job.warn_of_setting(&format!(
                "SCR_CURRENT names {name}, which is not in cache, and with SCR_FETCH=0 it cannot be fetched"
            ));
        }
        if cached.is_some() || !fetches {
            return Ok(cached.map(CachedDataset::checkpoint));
        }
        let wanted = Some(Wanted { name: &self.name, by_user });
        let next = &|left: &[Candidate], _: &_| left.iter().position(|candidate| candidate.name == self.name);
        from.first(&Search { at_start: false, wanted, next })
    }
}

/// The wish of the user for the restart, by `SCR_CURRENT`.
pub(super) enum Wish {
    /// Nothing.
    None,
    /// To restart from this one.
    Restart(Chosen),
    /// To go on from what was written since, and from nothing that was given up before: the datasets between a checkpoint that
    /// the user has gone back to and the first one that was written since.
    GoOn(Option<Between>),
}

/// The checkpoint that the user has named, unless a newer one was made after a restart from it in this very allocation: a job
/// that fails again and again must not begin anew each time. Collective.
///
/// # Errors
/// It cannot be found out whether there was such a restart.
pub(super) fn find(from: &Fetcher<'_>, in_prefix: &PrefixState) -> Result<Wish, Error> {
    let job = from.job;
    let Some(name) = job.params.get(&param::CURRENT).map(String::into_bytes) else { return Ok(Wish::None) };
    let last = restarted_from(job, &name)?;
    if job.is_recovery && last.is_none() {
        // The session before has not gone back, and what it has written since must not be given up.
        return Ok(Wish::None);
    }
    let since = last.as_ref().map(|last| last.next);
    let cached = newest_cached(job, from.cache, |_| true)
        .map(|cached| (cached.seq(), cached.checkpoint().name_text()));
    let listed = in_prefix.first.as_ref().filter(|_| job.params.get(&param::FETCH));
    let newest = cached.max(listed.map(|first| (first.seq, first.name_text())));
    if let Some((_, newer)) = newest.filter(|(newest, _)| since.is_some_and(|since| *newest >= since)) {
        let shown = String::from_utf8_lossy(&name);
        job.report.notice(&format!(
            "SCR_CURRENT={shown} was restarted from before in this allocation: going on from `{newer}', which is newer; to go back \
             again, end this run, and drop what is newer with `scr index --drop-after {shown}'"
        ));
        let cached = || newest_cached(job, from.cache, |cached| cached.record.dataset.name == name);
        let named = || in_prefix.place_of(&name).max(cached().map(CachedDataset::seq));
        let chosen = last.and_then(|last| last.chosen).or_else(named);
        let given_up = chosen.zip(since).map(|(after, before)| Between { after, before });
        return Ok(Wish::GoOn(given_up));
    }
    Ok(Wish::Restart(Chosen { seq: in_prefix.place_of(&name), name }))
}

/// Records that the job has restarted from the checkpoint of this name, which the user has given, and makes it the current one.
/// Collective.
///
/// # Errors
/// It cannot be recorded: the next run would go back once more, and give up what this one writes.
pub(super) fn record_chosen(job: &Job, name: &[u8], went_back: &WentBack) -> Result<(), Error> {
    let (WentBack(over), job_id) = (went_back, job.params.get(&param::JOB_ID));
    let last = Restarted { job_id, name: name.to_owned(), chosen: Some(over.after), next: over.before };
    let recorded = job.do_on_first(|| {
        last.write(job.files(), &job.prefix)?;
        job.ledger().transact(&Request::MakeCurrent(name))
    });
    recorded.map(drop).doing("recording the restart from what SCR_CURRENT names")
}

/// The last restart from this name in this allocation, if there was one.
fn restarted_from(job: &Job, name: &[u8]) -> Result<Option<Restarted>, Error> {
    let last = job.on_first(|| Restarted::read(job.files(), &job.prefix));
    let last = last.doing("reading whether SCR_CURRENT was restarted from before")?;
    Ok(last.filter(|last| last.is_of(name, &job.params.get(&param::JOB_ID))))
}
