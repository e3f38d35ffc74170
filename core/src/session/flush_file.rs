//! What the flush file says of the datasets in cache, for the commands.

use super::datasets::{Cached, ROOT};
use super::Session;
use crate::prefix::{FlushFile, Location};

impl Session {
    /// Makes the flush file say what is in cache now.
    pub(super) fn rebuild_flush_file(&self) {
        if self.ctx.rank() != ROOT {
            return;
        }
        let updated = FlushFile::renew(self.ctx.files(), &self.ctx.prefix, |flush| {
            for entry in flush.entries() {
                if self.position(entry.id).is_none() {
                    flush.remove_location(entry.id, Location::Cache);
                }
                Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(entry.id, way));
            }
            for cached in &self.cached {
                flush.record(&cached.record.dataset, Location::Cache);
            }
        });
        if let Err(error) = updated {
            self.ctx.report.error(&crate::describe(&error));
        }
    }

    /// Notes in the flush file that a dataset is in cache, and in the same step that another one is about to leave: the
    /// file is on the parallel file system, and it is synced.
    pub(super) fn note_in_cache(&mut self, at: usize, leaving: Option<u64>) {
        let dataset = self.cached[at].record.dataset.clone();
        self.note(dataset.id, |flush, _| {
            flush.record(&dataset, Location::Cache);
            leaving.into_iter().for_each(|id| flush.remove_location(id, Location::Cache));
        });
        self.cached[at].listed = true;
        let leaving = leaving.and_then(|id| self.position(id));
        leaving.into_iter().for_each(|at| self.cached[at].listed = false);
    }

    /// Notes in the flush file that a dataset is not in cache any more.
    pub(super) fn forget_in_cache(&self, cached: &Cached) {
        if cached.listed {
            self.note(cached.id(), |flush, id| flush.remove_location(id, Location::Cache));
        }
    }

    /// The flush file is for the commands: where it cannot be written, the session goes on.
    pub(super) fn note(&self, id: u64, change: impl FnOnce(&mut FlushFile, u64)) {
        if self.ctx.rank() != ROOT {
            return;
        }
        let noted = FlushFile::update(self.ctx.files(), &self.ctx.prefix, |flush| change(flush, id));
        if let Err(error) = noted {
            self.ctx.report.error(&crate::describe(&error));
        }
    }
}
