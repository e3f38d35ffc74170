//! The restart phase: from `SCR_Have_restart` to `SCR_Complete_restart`.
//!
//! The newest checkpoint comes first, from cache where it is there; where the application cannot use it, the next older one is
//! taken, from cache or from the prefix directory, until none is left.

use super::{Error, Phase, Session};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::CachedDataset;
use crate::fs::At;
use crate::log::{Event, Record};
use crate::param;

/// The checkpoint that the application can restart from.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) id: u64,
    /// The id under which the index has it: another one where that was taken in cache.
    pub(super) id_in_prefix: u64,
    pub(super) name: Vec<u8>,
}

impl Session {
    /// The name of the checkpoint to restart from, where there is one; the same on all ranks.
    ///
    /// # Errors
    /// [`Error::State`] within a phase.
    pub fn have_restart(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.expect_idle("SCR_Have_restart")?;
        Ok(self.loaded().map(|loaded| loaded.name.clone()))
    }

    /// The checkpoint to restart from, unless it has left the cache since.
    fn loaded(&self) -> Option<&Loaded> {
        self.loaded.as_ref().filter(|loaded| self.cache.dataset(loaded.id).is_some())
    }

    /// Begins to read the checkpoint that [`have_restart`](Self::have_restart) names. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and where there is no checkpoint.
    pub fn start_restart(&mut self) -> Result<Vec<u8>, Error> {
        self.expect_idle("SCR_Start_restart")?;
        let loaded = self.loaded().cloned().ok_or(Error::State {
            call: "SCR_Start_restart",
            now: "without a checkpoint to restart from",
            hint: "ask SCR_Have_restart first",
        })?;
        self.phase = Phase::Restart;
        let began = Record::event(Event::RestartStart).id(loaded.id).named(&loaded.name);
        self.job.log.add_entry(began);
        Ok(loaded.name)
    }

    /// Gives the path of a file of the loaded checkpoint. Local.
    pub(super) fn route_restart(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let cached = self
            .loaded
            .as_ref()
            .and_then(|loaded| self.cache.position(loaded.id))
            .map(|at| &self.cache.datasets()[at]);
        let cached = cached
            .expect("a restart phase begins with a checkpoint in the list, and none leaves it meanwhile");
        let record = &cached.record;
        let given = String::from_utf8_lossy(name);
        let below = super::route::below_prefix(&self.job, name);
        let exact =
            below.as_ref().ok().and_then(|below| record.files.iter().find(|file| file.name == *below));
        // Deprecated, and still used: a bare name stands for the one file of that name, wherever it lies.
        let bare = || {
            let mut named =
                record.files.iter().filter(|file| !name.contains(&b'/') && file.name.base() == name);
            named.next().filter(|_| named.next().is_none())
        };
        if let Some(file) = exact.or_else(bare) {
            let path = if self.is_read_in_prefix(cached) {
                record.prefix_path(file)
            } else {
                cached.part.file(&file.name)
            };
            self.job.files().open(&path, crate::fs::How::Read).map_err(|error| Error::Argument {
                what: format!("{} cannot be read: {error}", path.display()),
            })?;
            return super::path_bytes(&path);
        }
        if self.is_read_in_prefix(cached) {
            // Where all ranks share the files of a dataset, a rank may read what another one has routed.
            let below = below?;
            let path = self.job.prefix.file(&below);
            if self.job.files().status(&path).is_ok() {
                return super::path_bytes(&path);
            }
        }
        Err(Error::Argument {
            what: format!(
                "`{given}' is not a file that rank {} wrote in {}",
                self.job.rank(),
                record.label()
            ),
        })
    }

    /// Whether the application reads a dataset where it lies in the prefix directory.
    fn is_read_in_prefix(&self, cached: &CachedDataset) -> bool {
        cached.record.protection.bypass || self.job.params.get(&param::GLOBAL_RESTART) && cached.is_flushed()
    }

    /// Ends the restart: it has worked on all ranks, or the next older checkpoint is loaded. Collective.
    ///
    /// # Errors
    /// [`Error`], the same on all ranks, where any rank has failed to restart.
    pub fn complete_restart(&mut self, valid: bool) -> Result<(), Error> {
        if !matches!(self.phase, Phase::Restart) {
            return Err(self.wrong_phase("SCR_Complete_restart"));
        }
        self.phase = Phase::Idle;
        let own = if valid { Ok(()) } else { Err("the application could not read its files") };
        let outcome = self.job.agree(own);
        let log = |event, loaded: &Loaded| Record::event(event).id(loaded.id).named(&loaded.name);
        let Err(error) = outcome else {
            self.loaded.iter().for_each(|loaded| self.job.log.add_entry(log(Event::RestartSuccess, loaded)));
            return Ok(());
        };
        let why = error.agreed()?;
        let loaded = self.loaded.take().expect("a restart phase begins with a checkpoint");
        self.job.log.add_entry(log(Event::RestartFail, &loaded).note(why.to_string()));
        let name = String::from_utf8_lossy(&loaded.name).into_owned();
        self.refuse(&loaded);
        self.load_next(Some(&loaded))?;
        let next = self.loaded.as_ref().map_or("there is no older one".to_owned(), |next| {
            format!("the next older one is `{}'", String::from_utf8_lossy(&next.name))
        });
        Err(Error::Refused(format!("restarting from `{name}' failed: {why}; {next}")))
    }

    /// Remembers that the application could not restart from a checkpoint, in cache and in the index.
    fn refuse(&mut self, loaded: &Loaded) {
        let Some(cached) = self.cache.dataset_mut(loaded.id) else { return };
        cached.refused = true;
        let (superseded, path) = (cached.superseded, cached.part.filemap());
        // Its number, or its name, may stand for another one there.
        if !superseded {
            self.mark_failed(loaded);
        }
        let noted = Journal::reopen(self.job.files(), &path)
            .and_then(|journal| journal.append(&Entry::Refused).at("write", &path));
        if let Err(error) = noted {
            self.job.report.error_here(&crate::describe(&error));
        }
    }
}
