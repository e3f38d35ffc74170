//! Flushes that earlier runs have left under way: they are finished or rolled back before anything else.
//!
//! Some may continue without their application: agents on these nodes, or a burst buffer, are still copying. A run waits for them
//! as long as they make progress, at most for a minute, and lifts their limits, as nobody computes beside them. It then rolls back
//! the rest, and flushes it again from cache if it is due. It does not wait for nodes that it does not have.

use super::detached::{poll_some, Here, PollResult, Transports, Which};
use super::pauses::WaitLimit;
use super::under_way::flushes_under_way;
use crate::error::{Doing as _, Error};
use crate::job::Job;
use crate::plugin::PluginHost;
use scr_comm::collective::{all_reduce, broadcast, Op};
use scr_comm::{AnyError, CommError, Rank};
use scr_prefix::commit::{FlushOutcome, CURE};
use scr_prefix::ledger::Wish;
use scr_prefix::Running;
use std::path::Path;
use std::time::Duration;

/// A checkpoint that lies whole in the prefix directory, but whose flush could not be ended; rank 0 knows.
#[derive(Default)]
pub(crate) struct LeftWhole(Option<String>);

impl LeftWhole {
    /// For a run that has found no checkpoint to restart from. Collective.
    ///
    /// # Errors
    /// It would begin from nothing beside such a checkpoint.
    pub(crate) fn refuse(self, job: &Job) -> Result<(), Error> {
        let left = broadcast(&*job.comm, Rank(0), self.0.unwrap_or_default().into_bytes())?;
        if left.is_empty() {
            return Ok(());
        }
        let left = String::from_utf8_lossy(&left);
        Err(Error::Refused(format!("there is no other checkpoint to restart from, and {left}: {CURE}")))
    }
}

/// Finishes, or takes back, the flushes that earlier runs have left, and frees the names that they were writing under, where this
/// run is alone in the prefix directory. Collective.
///
/// # Errors
/// A flush could not be ended by which an older dataset counts no more, so the run might begin from nothing; or the ranks cannot
/// talk.
pub(crate) fn resolve_pending_flushes(
    job: &Job,
    control: &Path,
    host: &PluginHost,
    running: &Running,
) -> Result<LeftWhole, Error> {
    wait_for_transfers(job, control, host)?;
    let ended = job.do_on_first(|| end(job, running)).map(Option::unwrap_or_default);
    ended.doing("ending the flushes that earlier runs have left")
}

fn end(job: &Job, running: &Running) -> Result<LeftWhole, AnyError> {
    job.report_failed(job.ledger().release_of_earlier_runs(running));
    let ended = job.commit().end_all(Wish::End)?;
    ended.iter().for_each(|ended| job.report.notice(&ended.to_string()));
    ended.iter().try_for_each(FlushOutcome::expect_ended)?;
    Ok(LeftWhole(ended.iter().rfind(|ended| ended.is_whole()).map(FlushOutcome::to_string)))
}

/// Waits until nothing is copied any more on the nodes of this run, or it makes no sense to wait. Collective.
fn wait_for_transfers(job: &Job, control: &Path, host: &PluginHost) -> Result<(), CommError> {
    let transports = Transports::new(host, &job.env, &job.params);
    let leads = job.nodes.leader(job.rank()) == job.rank();
    let here = Here { prefix: &job.prefix, id: job.run.prefix.as_ref() };
    let poll = |hurries| {
        let open = |name: &str, options: &_| transports.open(name, options);
        match leads {
            true => poll_some(job.files(), control, &open, &job.local_time(), Which::To(here, hurries)),
            false => PollResult::default(),
        }
    };
    let mut patience: Option<WaitLimit> = None;
    loop {
        let polled = poll(patience.is_some());
        polled.notices.iter().for_each(|line| job.report.notice_here(line));
        // A flush that cannot be polled is not waited for.
        let goes_on = polled.unfinished && polled.errors.is_empty();
        let own = [u64::from(goes_on), polled.bytes_moved];
        let [going_on, moved] = all_reduce(&*job.comm, own, Op::Sum)?;
        if going_on == 0 {
            return Ok(());
        }
        if patience.is_none() {
            let under_way = flushes_under_way(job.files(), &job.prefix).unwrap_or_default();
            let names: Vec<_> =
                under_way.iter().map(|flush| format!("`{}'", flush.dataset.name_text())).collect();
            job.report.notice(&format!(
                "waiting for the flush of {}, which agents or a burst buffer of an earlier run still copy, from now on without limits",
                names.join(", ")
            ));
        }
        let patience =
            patience.get_or_insert_with(|| WaitLimit::begin(MOST, MOST_STANDING, job.elapsed(), moved));
        // All clocks are asked, and the first whose time is up decides.
        if job.any(!patience.lasts(job.elapsed(), moved))? {
            job.report.notice("they take too long, and are rolled back");
            return Ok(());
        }
        job.files().pause(PAUSE);
    }
}

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// So long is waited at the most, and so long for what does not get on.
const MOST: Duration = Duration::from_secs(60);
const MOST_STANDING: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_with_progress_is_awaited_longer_and_none_for_ever() {
        let lasts = |moves: fn(u64) -> u64| {
            let mut patience = WaitLimit::begin(MOST, MOST_STANDING, Duration::ZERO, moves(0));
            (0..1000).find(|&second| !patience.lasts(Duration::from_secs(second), moves(second))).unwrap()
        };
        assert_eq!((lasts(|_| 7), lasts(|second| second), lasts(|second| second / 5)), (10, 60, 60));
        assert_eq!(lasts(|second| second.min(20)), 30);
    }
}
