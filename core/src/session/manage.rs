//! Managing datasets: `SCR_Current`, `SCR_Drop`, `SCR_Delete`. See the guide's "Dataset Management API".

use super::datasets::ROOT;
use super::error::Doing;
use super::{Error, Session};
use crate::comm::collective::{all_reduce, broadcast_tree, same_everywhere, Op};
use crate::comm::Differs;
use crate::prefix::{Index, PrefixError, Rank2File};
use scr_plugin_api::KvTree;
use std::path::Path;

impl Session {
    /// The application has restarted from this checkpoint without the restart calls. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and where the index has no checkpoint of that name.
    pub fn current(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Current", name)?;
        let found = self.on_index(name, |index| {
            let entry = index.id_of(name).and_then(|id| index.entry(id));
            let known = entry.and_then(|entry| entry.dataset).and_then(|dataset| dataset.checkpoint_id);
            index.set_current(name).then_some(known.unwrap_or(0))
        })?;
        self.last_checkpoint = found;
        Ok(())
    }

    /// Takes a dataset out of the index; its files stay. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and where the index has no dataset of that name.
    pub fn drop_dataset(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Drop", name)?;
        self.on_index(name, |index| (!index.drop_name(name).is_empty()).then_some(0)).map(|_| ())
    }

    /// Deletes a dataset with all its files, from the prefix directory and from cache. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, where no dataset has that name, and where a file cannot be removed.
    pub fn delete(&mut self, name: &[u8]) -> Result<(), Error> {
        self.check_name("SCR_Delete", name)?;
        let label = String::from_utf8_lossy(name).into_owned();
        let in_cache: Vec<u64> = self
            .cached
            .iter()
            .filter(|cached| cached.record.dataset.name == name)
            .map(super::datasets::Cached::id)
            .collect();
        let deleted = self.delete_from_prefix(name)?;
        for id in &in_cache {
            if self.loaded.as_ref().is_some_and(|loaded| loaded.id == *id) {
                self.loaded = None;
            }
            if let Some(at) = self.position(*id) {
                self.evict(at);
            }
        }
        if !deleted && in_cache.is_empty() {
            return Err(Error::Argument { what: format!("there is no dataset named `{label}'") });
        }
        Ok(())
    }

    /// Deletes a dataset from the prefix directory; gives whether there was one. Its entry is marked incomplete first and
    /// dropped last, so that nothing half deleted is ever restarted from.
    fn delete_from_prefix(&self, name: &[u8]) -> Result<bool, Error> {
        let ctx = &self.ctx;
        let deleted = if ctx.rank() == ROOT { self.delete_on_root(name) } else { Ok(false) };
        let deleted = ctx.agree(deleted.map_err(|error| crate::describe(&error)))?;
        let deleted = deleted.doing(|| format!("deleting `{}'", String::from_utf8_lossy(name)))?;
        let mut any = [u64::from(deleted)];
        all_reduce(&*ctx.comm, &mut any, Op::Max)?;
        Ok(any != [0])
    }

    fn delete_on_root(&self, name: &[u8]) -> Result<bool, PrefixError> {
        let (files, prefix) = (self.ctx.files(), &self.ctx.prefix);
        let Some(id) = Index::read(files, prefix)?.id_of(name) else { return Ok(false) };
        Index::update(files, prefix, |index| index.set_complete(id, false))?;
        for file in Rank2File::read(files, prefix, id)?.by_rank().iter().flatten() {
            let path = prefix.file(&file.name);
            files.remove_tree(&path)?;
            self.remove_emptied(&path);
        }
        files.remove_tree(&prefix.dataset_dir(id))?;
        Index::update(files, prefix, |index| index.drop_id(id))?;
        Ok(true)
    }

    /// Removes the folders above a removed file that it leaves empty, up to the prefix directory.
    fn remove_emptied(&self, file: &Path) {
        let inside = file.ancestors().skip(1).take_while(|above| *above != self.ctx.prefix.dir());
        for folder in inside {
            if self.ctx.files().remove_dir(folder).is_err() {
                break;
            }
        }
    }

    fn check_name(&self, call: &'static str, name: &[u8]) -> Result<(), Error> {
        self.expect_idle(call)?;
        match same_everywhere(&*self.ctx.comm, name) {
            Err(Differs::Broken(error)) => return Err(error.into()),
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

    /// Changes the index on rank 0, and gives every rank what came of it. `None` is for a name that is not there.
    fn on_index(&self, name: &[u8], change: impl FnOnce(&mut Index) -> Option<u64>) -> Result<u64, Error> {
        let ctx = &self.ctx;
        let done: Result<Option<u64>, PrefixError> =
            if ctx.rank() == ROOT { Index::update(ctx.files(), &ctx.prefix, change) } else { Ok(None) };
        let own = ctx
            .agree(done.map_err(|error| crate::describe(&error)))?
            .doing(|| "changing the index of the prefix directory".to_owned())?;
        let mut tree = KvTree::new();
        if let Some(value) = own {
            tree.set("VALUE", value);
        }
        let tree = broadcast_tree(&*ctx.comm, ROOT, &tree)?;
        let value = tree.parse("VALUE").ok().flatten();
        value.ok_or_else(|| Error::Argument {
            what: format!("the index has no dataset named `{}'", String::from_utf8_lossy(name)),
        })
    }
}
