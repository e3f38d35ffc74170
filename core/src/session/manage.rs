//! Managing datasets: `SCR_Current`, `SCR_Drop`, `SCR_Delete`. See the guide's "Dataset Management API".

use super::{Error, Session};
use crate::cache::CachedDataset;
use crate::comm::collective::{broadcast_tree, same_everywhere};
use crate::comm::{Mismatch, Rank};
use crate::delete;
use crate::flush::Flushes;
use crate::job::Job;
use crate::planted::{planted, Bug};
use crate::prefix::{Index, IndexEntry, Seq};
use crate::restart::drop_newer;
use scr_plugin_api::KvTree;

impl Session {
    /// The application has restarted from this checkpoint without the restart calls, or, before it has asked
    /// [`have_restart`](Self::have_restart), wants to restart from it. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and if the index has no checkpoint of that name.
    pub fn current(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Current", name)?;
        // A newer checkpoint under way would become the current one once it has arrived.
        self.with_flushes(Flushes::finish_all)?;
        let changed = change_index(&self.job, |index| {
            let id = index.id_of(name)?;
            let entry = index.entry(id);
            let seq = entry.as_ref().map_or(Seq { run: 0, id }, IndexEntry::seq);
            let known = entry.and_then(|entry| entry.dataset).and_then(|dataset| dataset.checkpoint_id);
            index.set_current(name);
            Some((seq, known.unwrap_or(0)))
        })?;
        let (seq, checkpoint) = changed.ok_or_else(|| Error::Argument {
            what: format!("the index has no dataset named `{}'", String::from_utf8_lossy(name)),
        })?;
        self.last_checkpoint = checkpoint;
        self.restart.choose(&mut self.cache, name, seq);
        drop_newer(&self.job, &mut self.cache, seq)?;
        Ok(())
    }

    /// Takes a dataset out of the index and out of cache; its files in the prefix directory stay. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and if the index cannot be changed. A name that no dataset has is none: it is gone already.
    pub fn drop_dataset(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Drop", name)?;
        let in_cache = self.end_flushes_of(name)?;
        let dropped = change_index(&self.job, |index| {
            (!index.drop_name(name).is_empty()).then_some((Seq::default(), 0))
        });
        // In cache it would be restarted from, and flushed and listed again by the next run.
        if !planted(Bug::DroppedStaysInCache) {
            self.cache.withdraw(&self.job, &in_cache)?;
        }
        dropped.map(drop)
    }

    /// Deletes a dataset with all its files, from the prefix directory and from cache. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and if a file cannot be removed. A name that no dataset has is none: it is gone already.
    pub fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Delete", name)?;
        let in_cache = self.end_flushes_of(name)?;
        let was_listed = delete::named(&self.job, name)?;
        if !planted(Bug::DeletedStaysInCache) {
            self.cache.withdraw(&self.job, &in_cache)?;
        }
        if !was_listed && in_cache.is_empty() {
            let label = String::from_utf8_lossy(name);
            self.job.report.info(&format!("SCR_Delete: there is no dataset named `{label}'"));
        }
        Ok(())
    }

    /// Ends the flushes of the datasets of this name, or those would be listed again once they have arrived. Gives the ids of
    /// those in cache.
    fn end_flushes_of(&mut self, name: &[u8]) -> Result<Vec<u64>, Error> {
        let named = self.cache.datasets().iter().filter(|cached| cached.record.dataset.name == name);
        let in_cache: Vec<u64> = named.map(CachedDataset::id).collect();
        if planted(Bug::DropLeavesFlush) {
            return Ok(in_cache);
        }
        for id in &in_cache {
            self.with_flushes(|flushes, site| flushes.finish(site, *id))?;
        }
        self.flushes.wait_until_recorded(&self.job);
        self.flushes.abandon(&self.job, name);
        Ok(in_cache)
    }

    fn check_name(&self, call: &'static str, name: &[u8]) -> Result<(), Error> {
        self.expect_idle(call)?;
        match same_everywhere(&*self.job.comm, name) {
            Err(Mismatch::Comm(error)) => return Err(error.into()),
            Err(_) => {
                let what = format!("the ranks gave different names to {call}; all must give the same");
                return Err(Error::Argument { what });
            }
            Ok(()) => (),
        }
        if name.is_empty() {
            return Err(Error::Argument { what: format!("{call} was given an empty name") });
        }
        Ok(())
    }
}

/// Changes the index on rank 0, and gives every rank the result: a place and the number of a checkpoint, or `None`.
fn change_index(
    job: &Job,
    change: impl FnOnce(&mut Index) -> Option<(Seq, u64)>,
) -> Result<Option<(Seq, u64)>, Error> {
    let changed = match job.rank() {
        Rank(0) => Index::update(job.files(), &job.prefix, change),
        _ => Ok(None),
    };
    let own =
        job.agree(changed).map_err(|error| error.doing("changing the index of the prefix directory"))?;
    let mut tree = KvTree::new();
    if let Some((seq, checkpoint)) = own {
        tree.set("ID", seq.id);
        tree.set("RUN", seq.run);
        tree.set("CKPT", checkpoint);
    }
    let tree = broadcast_tree(&*job.comm, Rank(0), &tree)?;
    let value = |key| tree.parse(key).ok().flatten();
    let seq = value("ID").zip(value("RUN")).map(|(id, run)| Seq { run, id });
    Ok(seq.zip(value("CKPT")))
}
