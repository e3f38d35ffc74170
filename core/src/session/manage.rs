//! Managing datasets: `SCR_Current`, `SCR_Drop`, `SCR_Delete`. See the guide's "Dataset Management API".

use super::datasets::ROOT;
use super::{Error, Session};
use crate::cache::CachedDataset;
use crate::comm::collective::{broadcast_tree, same_everywhere};
use crate::comm::Mismatch;
use crate::delete::Deleting;
use crate::error::Doing;
use crate::param;
use crate::prefix::{DatasetDescriptor, Index, PrefixError};
use crate::rebuild;
use crate::Described;
use scr_plugin_api::KvTree;

impl Session {
    /// The application has restarted from this checkpoint without the restart calls. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and where the index has no checkpoint of that name.
    pub fn current(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Current", name)?;
        let (id, checkpoint) = self.on_index(name, |index| {
            let id = index.id_of(name)?;
            let known =
                index.entry(id).and_then(|entry| entry.dataset).and_then(|dataset| dataset.checkpoint_id);
            index.set_current(name);
            Some((id, known.unwrap_or(0)))
        })?;
        self.last_checkpoint = checkpoint;
        self.drop_newer(id)
    }

    /// Takes a dataset out of the index; its files stay. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and where the index has no dataset of that name.
    pub fn drop_dataset(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Drop", name)?;
        self.on_index(name, |index| (!index.drop_name(name).is_empty()).then_some((0, 0))).map(|_| ())
    }

    /// Deletes a dataset with all its files, from the prefix directory and from cache. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, where no dataset has that name, and where a file cannot be removed.
    pub fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Delete", name)?;
        let in_cache: Vec<u64> = self
            .cache
            .datasets()
            .iter()
            .filter(|cached| cached.record.dataset.name == name)
            .map(CachedDataset::id)
            .collect();
        for id in &in_cache {
            // Or it would be there again once it has arrived.
            self.finish_flush_of(*id)?;
        }
        self.wait_until_recorded();
        let listed = self.listed(|index| {
            let mut ids = index.others_named(name, 0);
            ids.extend(index.entry(0).filter(|entry| entry.name == name).map(|entry| entry.id));
            ids
        })?;
        for id in &listed {
            self.delete_from_prefix(*id)?;
        }
        for id in &in_cache {
            self.forget(*id);
        }
        if listed.is_empty() && in_cache.is_empty() {
            let label = String::from_utf8_lossy(name);
            return Err(Error::Argument { what: format!("there is no dataset named `{label}'") });
        }
        Ok(())
    }

    /// Deletes every dataset from the prefix directory. Collective. See the guide's `SCR_PREFIX_PURGE`.
    pub(super) fn purge_prefix(&mut self) -> Result<(), Error> {
        let listed = self.listed(|index| index.entries().iter().map(|entry| entry.id).collect())?;
        for id in &listed {
            self.delete_from_prefix(*id)?;
        }
        self.job.report.info(&format!("Deleted {} datasets from the prefix directory", listed.len()));
        Ok(rebuild::purge_bypass(&self.job, &self.cache)?)
    }

    /// Deletes the checkpoints that are too many in the prefix directory, now that dataset `newest` is there. What
    /// cannot be deleted is told. Collective. See the guide's `SCR_PREFIX_SIZE`.
    pub(super) fn slide_window(&mut self, newest: u64) -> Result<(), Error> {
        let size = self.job.params.get(&param::PREFIX_SIZE);
        let Some(size) = usize::try_from(size).ok().filter(|&size| size > 0) else { return Ok(()) };
        for id in self.listed(|index| surplus(index, size, newest))? {
            match self.delete_from_prefix(id) {
                Err(Error::Comm(error)) => return Err(error.into()),
                Err(error) => self.job.report.error(&crate::describe(&error)),
                Ok(()) => {
                    self.job.report.info(&format!("Deleting dataset {id} from the prefix directory"));
                    let gone = self
                        .cache
                        .position(id)
                        .filter(|&at| self.cache.datasets()[at].record.protection.bypass);
                    if gone.is_some() {
                        self.forget(id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the checkpoints newer than `id`, as the index counts, out of it, where the user wants that after going back to an older
    /// one. Collective.
    pub(super) fn drop_newer(&mut self, id: u64) -> Result<(), Error> {
        if !self.job.params.get(&param::DROP_AFTER_CURRENT) || self.job.rank() != ROOT {
            return Ok(());
        }
        let (files, prefix) = (self.job.files(), &self.job.prefix);
        match Index::update(files, prefix, |index| index.drop_checkpoints_after(id)) {
            Ok(dropped) if dropped.is_empty() => (),
            Ok(dropped) => self.job.report.notice(&format!(
                "SCR_DROP_AFTER_CURRENT=1: {} checkpoints newer than dataset {id} are dropped from the index",
                dropped.len()
            )),
            Err(error) => self.job.report.error(&crate::describe(&error)),
        }
        Ok(())
    }

    /// Takes a dataset out of cache, and with it the prospect to restart from it.
    fn forget(&mut self, id: u64) {
        self.loaded.take_if(|loaded| loaded.id == id);
        self.cache.evict(&self.job, id);
    }

    fn delete_from_prefix(&self, id: u64) -> Result<(), Error> {
        let job = &self.job;
        let node = job.nodes.name(job.rank());
        let deleting = Deleting { comm: &*job.comm, files: job.files(), node, prefix: &job.prefix };
        let note = deleting.run(id).doing(|| format!("deleting dataset {id} from the prefix directory"))?;
        if let Some(note) = note {
            job.report.warn(&format!("dataset {id} is deleted from the index, but {note}"));
        }
        Ok(())
    }

    /// Ids that rank 0 finds in the index, on all ranks.
    fn listed(&self, find: impl FnOnce(&Index) -> Vec<u64>) -> Result<Vec<u64>, Error> {
        let job = &self.job;
        let own = match job.rank() {
            ROOT => Index::read(job.files(), &job.prefix).map(|index| find(&index)),
            _ => Ok(Vec::new()),
        };
        let own = job.agree(own.described());
        let own = own.doing(|| "reading the index of the prefix directory".to_owned())?;
        let mut tree = KvTree::new();
        for id in own {
            tree.child(id.to_string());
        }
        Ok(broadcast_tree(&*job.comm, ROOT, &tree)?.keys_as().collect())
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

    /// Changes the index on rank 0, and gives every rank what came of it: an id and the number of a checkpoint. `None` is
    /// for a name that is not there.
    fn on_index(
        &self,
        name: &[u8],
        change: impl FnOnce(&mut Index) -> Option<(u64, u64)>,
    ) -> Result<(u64, u64), Error> {
        let job = &self.job;
        self.wait_until_recorded();
        let done: Result<_, PrefixError> =
            if job.rank() == ROOT { Index::update(job.files(), &job.prefix, change) } else { Ok(None) };
        let own =
            job.agree(done.described()).doing(|| "changing the index of the prefix directory".to_owned())?;
        let mut tree = KvTree::new();
        if let Some((id, checkpoint)) = own {
            tree.set("ID", id);
            tree.set("CKPT", checkpoint);
        }
        let tree = broadcast_tree(&*job.comm, ROOT, &tree)?;
        let value = |key| tree.parse(key).ok().flatten();
        value("ID").zip(value("CKPT")).ok_or_else(|| Error::Argument {
            what: format!("the index has no dataset named `{}'", String::from_utf8_lossy(name)),
        })
    }
}

/// The checkpoints that are older than the `size` newest ones that count. Output stays.
fn surplus(index: &Index, size: usize, newest: u64) -> Vec<u64> {
    let entries = index.entries();
    let counting = entries.iter().filter(|entry| entry.is_candidate() && entry.id <= newest);
    let Some(oldest) = counting.map(|entry| entry.id).nth(size - 1) else { return Vec::new() };
    let goes = |dataset: &DatasetDescriptor| dataset.checkpoint && !dataset.output;
    entries
        .iter()
        .filter(|entry| entry.id < oldest && entry.dataset.as_ref().is_some_and(goes))
        .map(|entry| entry.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_keeps_the_newest_that_count_and_all_output() {
        let mut index = Index::new();
        for id in 1..=6 {
            let name = format!("ckpt.{id}").into_bytes();
            let output = id == 2;
            let dataset = DatasetDescriptor { id, name, checkpoint: true, output, ..Default::default() };
            index.record(&dataset, true);
        }
        index.mark_failed(5, "now");
        let plain = DatasetDescriptor { id: 7, name: b"out".to_vec(), output: true, ..Default::default() };
        index.record(&plain, true);
        assert_eq!(surplus(&index, 2, 6), [3, 1]);
        assert_eq!(surplus(&index, 2, 4), [1], "of those before it");
        assert_eq!(surplus(&index, 3, 6), [1]);
        assert_eq!(surplus(&index, 9, 6), []);
    }
}
