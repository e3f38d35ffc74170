//! What the flush file says of the datasets in cache, for the commands.

use super::datasets::{Cached, ROOT};
use super::Session;
use crate::param;
use crate::prefix::{FlushEntry, FlushFile, Location};

impl Session {
    /// Says which checkpoint the last run of this allocation has left in cache only, where no node of this run has anything
    /// of it: the job is about to do its work again. `first` is the id of what would be fetched first.
    pub(super) fn tell_missing(&self, seen: &[u64], first: Option<u64>) {
        if self.job.rank() != ROOT {
            return;
        }
        // That it cannot be read is told where it is renewed.
        let Ok(file) = FlushFile::read(self.job.files(), &self.job.prefix) else { return };
        let job_id = self.job.params.get(&param::JOB_ID);
        let newest = self.newest_cached(None).map_or(0, |newest| newest.id).max(first.unwrap_or(0));
        let is_missing = |entry: &FlushEntry| {
            let ours = entry.dataset.as_ref().is_some_and(|dataset| dataset.job_id == job_id);
            let only_cached = entry.is_at(Location::Cache) && !entry.is_at(Location::Prefix);
            ours && only_cached && entry.checkpoint && entry.id > newest && !seen.contains(&entry.id)
        };
        if let Some(missing) = file.entries().into_iter().find(is_missing) {
            self.job.report.notice(&format!(
                "dataset {} `{}' was in cache only when the last run ended, and no node of this run has anything of it; if \
                 its nodes are only away, end this run and start it on them",
                missing.id,
                String::from_utf8_lossy(&missing.name)
            ));
        }
    }

    /// Makes the flush file say what is in cache now.
    pub(super) fn rebuild_flush_file(&self) {
        if self.job.rank() != ROOT {
            return;
        }
        let updated = FlushFile::renew(self.job.files(), &self.job.prefix, |flush| {
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
            self.job.report.error(&crate::describe(&error));
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
        if self.job.rank() != ROOT {
            return;
        }
        let noted = FlushFile::update(self.job.files(), &self.job.prefix, |flush| change(flush, id));
        if let Err(error) = noted {
            self.job.report.error(&crate::describe(&error));
        }
    }
}
