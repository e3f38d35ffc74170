//! Checkpoints that are protected while the application computes: `ENCODE=ASYNC`.
//!
//! `SCR_Complete_output` leaves them local. They do not count before they are protected: older ones stay, and no flush begins.
//! All ranks find out together, in the application's next calls, that one is.

use super::{Error, Session};
use crate::cache::flush_file::News;
use crate::cache::record::RankRecord;
use crate::error::Doing as _;
use crate::flush::Flushes;
use crate::holdings::MOST_LOCAL;
use crate::job::Said;
use crate::log::{Event, Record};
use crate::redundancy::background::{Failure, LocalPart, NotProtected, Protected};
use crate::restart::record_refused;
use crate::typed::first_value;
use scr_config::descriptor::protects;
use std::time::Duration;

/// When to protect what the threads could not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// In this call.
    Now,
    /// In a later one: this one is made often, and is to be short.
    Later,
}

impl Session {
    /// Lets flushes and threads do something: what they have ended is recorded. Collective.
    pub(super) fn poll(&mut self, retry: Retry) -> Result<(), Error> {
        self.end_protections(false, retry)?;
        self.with_flushes(Flushes::poll)
    }

    /// Waits until all local datasets are protected, as far as they can be. Collective.
    pub(super) fn wait_until_protected(&mut self) -> Result<(), Error> {
        self.end_protections(false, Retry::Now)?;
        if let Some(cached) = self.background.first().and_then(|id| self.cache.dataset(id)) {
            self.job.report.notice(&format!("waiting until {} is protected", cached.record.label()));
            self.end_protections(true, Retry::Now)?;
        }
        Ok(())
    }

    /// Waits until few enough datasets are local for one more. Otherwise they would be ever more, and the newest that is
    /// protected ever older. Collective.
    pub(super) fn let_protection_catch_up(&mut self) -> Result<(), Error> {
        while self.background.is_behind_time() {
            let oldest = self.background.first().and_then(|id| self.cache.dataset(id));
            if let Some(oldest) = oldest.filter(|_| self.job.is_news(Said::ProtectionLags)) {
                self.job.report.notice(&format!(
                    "checkpoints are written faster than they are protected: SCR_Start_output waits until {} is protected, as \
                     {MOST_LOCAL} of them are local",
                    oldest.record.label()
                ));
            }
            let Some(ended) = self.background.end_first(&self.job, true)? else { break };
            self.end_protection(ended)?;
            self.protect_unprotected()?;
        }
        self.protect_unprotected()
    }

    /// Whether a dataset of this kind may be protected behind the application; the same on all ranks.
    pub(super) fn protects_behind(&self, record: &RankRecord) -> bool {
        let is_checkpoint = record.dataset.is_only_checkpoint();
        let is_meant = is_checkpoint && !record.protection.bypass && protects(&record.protection.scheme);
        is_meant && self.background.is_on()
    }

    /// Hands a local dataset to the threads.
    pub(super) fn protect_behind(&mut self, id: u64) -> Result<(), Error> {
        self.cache.list(&self.job, News::None);
        if self.background.is_broken() {
            self.background.start(&self.job, &self.cache.open)?;
        }
        let Some(cached) = self.cache.dataset(id) else { return Ok(()) };
        let scheme = self.schemes.plugins.scheme(&self.job, &cached.record.protection);
        let scheme = scheme.doing(format_args!("protecting {}", cached.record.label()))?;
        let (record, part) = (cached.record.clone(), cached.part.clone());
        self.background.begin(LocalPart { record, part, scheme });
        Ok(())
    }

    /// Records what the threads have ended, or all that they have to do. Datasets become protected in their order: an older one
    /// that no thread could protect would leave the cache for a newer one, though its flush is due.
    fn end_protections(&mut self, wait: bool, retry: Retry) -> Result<(), Error> {
        loop {
            match retry {
                Retry::Now => self.protect_unprotected()?,
                Retry::Later if !self.background.unprotected.is_empty() => return Ok(()),
                Retry::Later => (),
            }
            let Some(ended) = self.background.end_first(&self.job, wait)? else { return Ok(()) };
            self.end_protection(ended)?;
        }
    }

    fn end_protection(&mut self, (id, ended): (u64, Protected)) -> Result<(), Error> {
        match ended {
            Ok((record, took)) => self.record_protected(id, record, took),
            Err(NotProtected { why, is_changed }) => {
                let Some(cached) = self.cache.dataset(id) else { return Ok(()) };
                let label = cached.record.label();
                if let Some(why) = first_value(&*self.job.comm, Some(&why).filter(|why| !why.is_empty()))? {
                    // The next call says what then becomes of one that was changed.
                    let next = match is_changed {
                        true => "",
                        false => "; it is local, and the next call of SCR_Start_output or SCR_Finalize tries again to protect it",
                    };
                    self.job.report.error(&format!(
                        "{label} could not be protected while the application computes: {why}{next}"
                    ));
                }
                Ok(())
            }
        }
    }

    /// Protects what no thread could. It is of no use any more where a newer dataset is protected. Collective.
    fn protect_unprotected(&mut self) -> Result<(), Error> {
        for id in std::mem::take(&mut self.background.unprotected) {
            let Some(cached) = self.cache.dataset(id).filter(|cached| self.cache.waits(cached)) else {
                continue;
            };
            let (label, began) = (cached.record.label(), self.job.elapsed());
            let (store, bytes) = (cached.store, cached.owed);
            match self.schemes.protect_local(&self.job, &self.cache, &cached.record, &cached.part) {
                Ok(record) => self.record_protected(id, record, self.job.elapsed() - began)?,
                Err(Failure { error, is_changed }) => {
                    let why = error.agreed()?;
                    let rest = match is_changed {
                        true => "no job restarts from it, and it is not flushed",
                        false => "it survives the death of processes, but not the loss of a node",
                    };
                    self.job.report.error(&format!("{label} cannot be protected: {why}; {rest}"));
                    if is_changed {
                        // There is no checksum of the bytes that it had when it was complete.
                        let refused = cached.checkpoint();
                        record_refused(&self.job, &mut self.cache, &refused);
                    }
                    self.cache.check_if_full(&self.job, store, bytes)?;
                    self.evict_to(store, self.cache.limit_after(store))?;
                }
            }
        }
        Ok(())
    }

    fn record_protected(&mut self, id: u64, record: RankRecord, took: Duration) -> Result<(), Error> {
        let Some(cached) = self.cache.dataset_mut(id) else { return Ok(()) };
        (cached.record, cached.owed) = (record, 0);
        let (store, bytes) = (cached.store, cached.cache_bytes(self.job.files()));
        let label = cached.record.label();
        let protected = Record::event(Event::Protected).dataset(&cached.record.dataset).took(took);
        self.job.log.add_entry(protected);
        self.cache.record_bytes(&self.job, store, bytes)?;
        self.job.report.info(&format!("{label} is protected: {:.6} secs", took.as_secs_f64()));
        self.after_protected(id)?;
        self.with_flushes(|flushes, site| {
            flushes.start_copying(site);
            Ok(())
        })
    }
}
