//! Managing datasets: `SCR_Current`, `SCR_Drop`, `SCR_Delete`. See docs/user/c-api.md.

use super::{Error, Session};
use crate::delete;
use crate::error::Doing as _;
use crate::fetch::Fetcher;
use crate::flush::Flushes;
use crate::job::Job;
use crate::log::{Event, Record};
use crate::restart::Restart;
use scr_base::ensure;
use scr_comm::collective::first_differing;
use scr_prefix::ledger::{self, Candidate, Dropping, Leave, Request};
use scr_prefix::{DatasetDescriptor, Index, IndexEntry, Seq};
use serde::{Deserialize, Serialize};

impl Session {
    /// The application has restarted from this checkpoint without the restart calls, or, before it has asked
    /// [`have_restart`](Self::have_restart), wants to restart from it. Output is offered to be read back, once, and nothing else
    /// changes. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, if the index has no dataset of that name, and if output cannot be read back.
    pub fn current(&mut self, name: &[u8]) -> Result<(), Error> {
        let _call = self.begin_call("SCR_Current");
        self.check_name("SCR_Current", name)?;
        self.wait_until_protected()?;
        // A newer checkpoint under way would become the current one once it has arrived.
        self.with_flushes(Flushes::finish_all)?;
        let find = |index: &Index| {
            let id = index.id_of(name)?;
            let entry = index.entry(id);
            if entry.as_ref().is_some_and(|entry| !entry.is_checkpoint()) {
                return ledger::output(index, name).map(Listed::Output);
            }
            let seq = entry.as_ref().map_or(Seq { run: 0, id }, IndexEntry::seq);
            let known = entry.and_then(|entry| entry.dataset).and_then(|dataset| dataset.checkpoint_id);
            Some(Listed::Checkpoint(seq, known.unwrap_or(0)))
        };
        let listed = self.job.on_first(|| self.job.ledger().look(find));
        let listed = listed.doing("reading the index of the prefix directory")?;
        let Self { job, cache, schemes, restart, .. } = self;
        let (seq, checkpoint) = match listed {
            Some(Listed::Checkpoint(seq, checkpoint)) => (seq, checkpoint),
            Some(Listed::Output(wanted)) => {
                return Restart::read_output(&mut Fetcher::new(job, cache, schemes), &wanted);
            }
            None => {
                let name = String::from_utf8_lossy(name);
                return Err(Error::Argument(format!(
                    "the index has no dataset named `{name}', or only output that is not complete"
                )));
            }
        };
        let record = |job: &Job| {
            let changed = job.do_on_first(|| job.ledger().transact(&Request::MakeCurrent(name)));
            changed.map(drop).doing("changing the index of the prefix directory")
        };
        restart.choose(&mut Fetcher::new(job, cache, schemes), name, seq, record)?;
        self.job.log.add_entry(Record::event(Event::Current).id(seq.id).named(name));
        self.last_checkpoint = checkpoint;
        Ok(())
    }

    /// Takes a dataset out of the index and out of cache; its files in the prefix directory stay. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and if the index cannot be changed. A name that no dataset has is none: it is gone already.
    pub fn drop_dataset(&mut self, name: &[u8]) -> Result<(), Error> {
        self.let_leave("SCR_Drop", "dropping", name, false)
    }

    /// Deletes a dataset with all its files, from the prefix directory and from cache. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and if a file cannot be removed. A name that no dataset has is none: it is gone already.
    pub fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        self.let_leave("SCR_Delete", "deleting", name, true)
    }

    fn let_leave(
        &mut self,
        call: &'static str,
        doing: &str,
        name: &[u8],
        is_deletion: bool,
    ) -> Result<(), Error> {
        let _call = self.begin_call(call);
        self.check_name(call, name)?;
        let label = String::from_utf8_lossy(name);
        let doing = format!("{doing} `{label}'");
        // A dataset that another run reads in place is refused before anything is done that cannot be undone.
        let run = self.job.run.number;
        let refused = self.job.do_on_first(|| {
            let ledger = self.job.ledger();
            let index = ledger.index()?;
            ledger.refuse_held(index.entries().iter().filter(|entry| entry.name == name), run)
        });
        refused.doing(&doing)?;
        self.warn_of_others(call, name);
        let in_cache = self.end_flushes_of(name)?;
        // Nothing that is deleted is left to be listed again.
        let alone = self.job.run.number_alone().filter(|_| is_deletion);
        let (which, mut was_listed, mut dropped) = (Dropping::Named(name), true, Ok(None));
        for step in Leave::ORDER {
            match step {
                // No later run brings back a dataset of this name that there is now.
                Leave::Record => {
                    let is_left = |left: &DatasetDescriptor| left.name == name;
                    self.cache.give_up(&self.job, &in_cache, is_left, which, alone, None)?;
                }
                Leave::Index if is_deletion => was_listed = delete::named(&self.job, name)?,
                Leave::Index => {
                    dropped = self.job.do_on_first(|| self.job.ledger().drop_datasets(which, run));
                }
                // There it would be restarted from, and flushed and listed again by the next run.
                Leave::Cache => self.leave_cache(name, &in_cache)?,
            }
        }
        if !was_listed && in_cache.is_empty() {
            self.job.report.info(&format!("{call}: there is no dataset named `{label}'"));
        }
        dropped.map(drop).doing(&doing)
    }

    /// Ends the flushes of the datasets of this name, or those would be listed again once they have arrived. Gives the ids of
    /// those in cache.
    fn end_flushes_of(&mut self, name: &[u8]) -> Result<Vec<u64>, Error> {
        self.wait_until_protected()?;
        let in_cache = self.cache.ids_of(|cached| cached.record.dataset.name == name);
        for id in &in_cache {
            self.with_flushes(|flushes, site| flushes.finish(site, *id))?;
        }
        self.flushes.wait_until_recorded(&self.job);
        self.flushes.abandon(&self.job, name)?;
        Ok(in_cache)
    }

    /// Removes dropped or deleted datasets from the cache. One may be the checkpoint that the application was about to restart
    /// from.
    fn leave_cache(&mut self, name: &[u8], in_cache: &[u64]) -> Result<(), Error> {
        self.cache.withdraw(&self.job, in_cache)?;
        let mut from = Fetcher::new(&self.job, &mut self.cache, &self.schemes);
        if self.restart.leave_dropped(&mut from, name)? {
            from.report_left_alone();
            self.count_from_restart();
        }
        Ok(())
    }

    fn check_name(&self, call: &'static str, name: &[u8]) -> Result<(), Error> {
        self.expect_idle(call)?;
        ensure(first_differing(&*self.job.comm, name)?.is_none(), || {
            Error::Argument(format!("the ranks gave different names to {call}; all must give the same"))
        })?;
        ensure(!name.is_empty(), || Error::Argument(format!("{call} was given an empty name")))
    }
}

/// The entry of a dataset in the index.
#[derive(Serialize, Deserialize)]
enum Listed {
    /// Its place, and its number.
    Checkpoint(Seq, u64),
    Output(Candidate),
}
