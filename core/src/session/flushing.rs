//! From cache to the prefix directory: which datasets are flushed and when, also while the application goes on, and how
//! a session ends.
//!
//! A checkpoint is due after every so many, counted over all runs; output always. What could not be flushed stays in
//! cache: output is tried again at every occasion and does not leave before, and for a checkpoint the next one
//! takes its turn.
//!
//! See the guide's "Fetch, flush, and scavenge", its "Enable asynchronous flush" and its `SCR_Finalize`.

use super::{Error, Session};
use crate::cache::CachedDataset;
use crate::param;

impl Session {
    /// Flushes what must not be lost with the cache: output that is not there yet, and the newest checkpoint.
    pub(super) fn flush_last(&mut self) -> Result<(), Error> {
        let left = self.leave_to_poststage()?;
        self.finish_flush()?;
        let newest = self
            .cache
            .datasets()
            .iter()
            .filter(|cached| cached.record.dataset.checkpoint && !cached.refused && !cached.passed_over)
            .map(CachedDataset::id)
            .max();
        let periodic = self.job.params.get(&param::FLUSH) > 0;
        let wanted = |cached: &&CachedDataset| {
            let newest = periodic && Some(cached.id()) == newest;
            let wanted = cached.record.dataset.output || cached.record.protection.bypass || newest;
            let stays_behind = cached.passed_over && !cached.record.dataset.output;
            wanted && !stays_behind && cached.is_unflushed() && Some(cached.id()) != left
        };
        let due: Vec<u64> = self.cache.datasets().iter().filter(wanted).map(CachedDataset::id).collect();
        let mut outcome = Ok(());
        for id in due {
            let flushed = self.flush_or_leave(id);
            outcome = outcome.and(flushed);
        }
        self.cache.evict_flushed_output(&self.job);
        outcome
    }

    /// Whether a dataset is to be flushed as soon as it is complete.
    fn is_flush_due(&self, at: usize) -> bool {
        let dataset = &self.cache.datasets()[at].record.dataset;
        let every = self.job.params.get(&param::FLUSH);
        let turn =
            every > 0 && dataset.checkpoint_id.is_some_and(|checkpoint| checkpoint.is_multiple_of(every));
        let periodic = dataset.checkpoint && (turn || every > 0 && self.flushes.owed);
        // In bypass mode the files are in place, and only an entry in the index makes them count.
        dataset.output || self.cache.datasets()[at].record.protection.bypass || periodic
    }

    /// What comes of a dataset that has just become complete, and of output that could not be flushed before. Where a
    /// dataset is of use only in the prefix directory, as output and in bypass mode, it makes the call fail that it is not
    /// safe there; a checkpoint is safe in cache, and that it is nowhere else is told.
    pub(super) fn flush_complete(&mut self, id: u64) -> Result<(), Error> {
        self.look_at_flush()?;
        self.retry_output(id)?;
        let at = self.cache.position(id).expect("the caller has just put it into the list");
        if !self.is_flush_due(at) {
            return Ok(());
        }
        let record = &self.cache.datasets()[at].record;
        let must_arrive = record.dataset.output || record.protection.bypass;
        let flushed = if self.goes_on_behind(at)? { self.begin_flush(id) } else { self.flush(id) };
        self.told_unless(must_arrive, flushed)
    }

    /// What earlier runs of the job have left in cache is flushed where it is due, or where the settings want it: the
    /// guide's `SCR_FLUSH_ON_RESTART` and `SCR_GLOBAL_RESTART`. The application waits.
    pub(super) fn flush_restored(&mut self) -> Result<(), Error> {
        self.compare_flushed()?;
        let params = &self.job.params;
        let all = params.get(&param::FLUSH_ON_RESTART) || params.get(&param::GLOBAL_RESTART);
        let wanted = (0..self.cache.datasets().len()).filter(|&at| {
            let cached = &self.cache.datasets()[at];
            cached.is_unflushed() && !cached.refused && (all || self.is_flush_due(at))
        });
        let due: Vec<u64> = wanted.map(|at| self.cache.datasets()[at].id()).collect();
        for id in due {
            let flushed = self.flush(id);
            self.told_unless(false, flushed)?;
        }
        self.cache.evict_flushed_output(&self.job);
        Ok(())
    }

    /// Output that could not be flushed when its turn was.
    fn retry_output(&mut self, except: u64) -> Result<(), Error> {
        let moving = self.flushes.moving.as_ref().map(|moving| moving.id);
        let left = self.cache.datasets().iter().filter(|cached| cached.must_stay());
        let left: Vec<u64> =
            left.map(CachedDataset::id).filter(|&id| id != except && Some(id) != moving).collect();
        for id in left {
            let flushed = self.flush(id);
            self.told_unless(false, flushed)?;
        }
        Ok(())
    }

    /// Tells what went wrong instead of failing, unless the caller's dataset has to be safe now.
    pub(super) fn told_unless(&self, fails: bool, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Err(Error::Refused(why)) if !fails => {
                self.job.report.error(&why);
                Ok(())
            }
            other => other,
        }
    }
}
