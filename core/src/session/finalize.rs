//! `SCR_Should_exit`, `SCR_Finalize`, and the end of a job that is to halt.

use super::{Error, Retry, Session};
use crate::flush::Flushes;
use crate::holdings::Holding;
use crate::log::Figures;
use scr_comm::collective::{all_reduce, Op};
use scr_config::param;
use std::sync::atomic::Ordering;

/// An application that does not look at what its calls return would take its last checkpoints for written.
const LOST_DESCRIPTORS: &str =
    "the application has closed files that scr keeps open, and what it was to write since then is not written";
const LATE_WRITES: &str = "the last dataset was written to after SCR_Complete_output and is lost";

impl Session {
    /// Whether the application should stop; the same on all ranks. Collective.
    ///
    /// # Errors
    /// [`Error::State`] within a phase.
    pub fn should_exit(&mut self) -> Result<bool, Error> {
        let _call = self.begin_call("SCR_Should_exit");
        self.expect_idle("SCR_Should_exit")?;
        self.poll(Retry::Later)?;
        Ok(self.halt.tell(&self.job)?.is_some())
    }

    /// Why the application should be ended now, if the user has asked for that with `SCR_HALT_EXIT=1`.
    pub fn exit_wanted(&self) -> Option<&str> {
        self.halt.exit_wanted()
    }

    /// Ends the session, in no phase: what is due is flushed, and the job is not started again. Collective.
    /// See `SCR_Finalize` in docs/user/c-api.md.
    ///
    /// # Errors
    /// [`Error`]: what could not be flushed stays in cache, or it could not be recorded that the job has ended.
    pub fn finalize(mut self) -> Result<(), Error> {
        let _call = self.begin_call("SCR_Finalize");
        let flushed = self.flush_all();
        if flushed.is_err() && self.cache.holdings().iter().any(Holding::is_unflushed) {
            self.job.report.error(
                "what could not be flushed is lost with the allocation: fix the cause, and save what is in cache on the nodes with \
                 `scr postrun' before the allocation ends",
            );
        }
        self.cache.remove_spares(&self.job);
        let ended = match flushed {
            Err(Error::Comm(_)) => Ok(()),
            _ => self.halt.finalize(&self.job),
        };
        self.report_costs();
        if let Some(unsaved) = self.times.unsaved() {
            self.job.report.warn(&unsaved);
        }
        let is_lost = flushed?;
        ended?;
        match (self.job.any(self.job.closed.load(Ordering::Relaxed))?, is_lost) {
            (true, _) => Err(Error::Refused(LOST_DESCRIPTORS.to_owned())),
            (false, true) => Err(Error::Refused(LATE_WRITES.to_owned())),
            (false, false) => Ok(()),
        }
    }

    /// Ends the session because a halt condition holds: what is due is flushed, and the conditions stay as they are.
    /// Collective. See docs/user/concepts.md.
    ///
    /// # Errors
    /// [`Error`]: what could not be flushed stays in cache.
    pub fn halt(mut self) -> Result<(), Error> {
        let flushed = self.flush_all();
        if !matches!(flushed, Err(Error::Comm(_))) {
            std::mem::take(&mut self.halt).exit(&self.job);
        }
        self.report_costs();
        flushed.map(drop)
    }

    /// What is due is protected and flushed, and nothing is read any more. Gives whether the last dataset is lost. Collective.
    fn flush_all(&mut self) -> Result<bool, Error> {
        self.remove_copies();
        let verified = self.wait_until_protected().and_then(|()| self.verify_redundancy());
        self.restart.release(&self.job);
        verified?;
        // No rank writes any more.
        let [changed] = all_reduce(&*self.job.comm, [self.told_of()], Op::Max)?;
        let is_lost = self.mend(changed)?;
        self.save_last()?;
        self.with_flushes(Flushes::flush_last)?;
        Ok(is_lost)
    }

    /// Says what the job has cost at `SCR_DEBUG=1`, unless nothing was written or restored.
    fn report_costs(&mut self) {
        self.write_metrics(false);
        let Some(figures) = self.job.log.figures().filter(Figures::has_costs) else { return };
        if self.job.params.get(&param::REPORT) {
            figures.block().iter().for_each(|line| self.job.report.info(line));
        }
    }
}
