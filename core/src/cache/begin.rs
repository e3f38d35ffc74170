//! A dataset begins in cache: folders and filemaps on all ranks or on none, under an id that no other dataset has.

use super::filemap::{Entry, Journal};
use super::part::PartDir;
use super::record::RankRecord;
use super::Cache;
use crate::comm::collective::any;
use crate::comm::Collective;
use crate::fs::FsError;
use crate::job::Job;
use std::io::ErrorKind;

impl Cache {
    /// An id for a new dataset. An id is never used twice, not even where a start has failed halfway.
    pub(crate) fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The first id that no dataset has had yet.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// New ids are higher than this one.
    pub(crate) fn count_ids_from(&mut self, highest: u64) {
        self.next_id = highest + 1;
    }

    /// Makes the folders of this rank's part and begins its filemap, on all ranks or on none. Directories of the job that were
    /// removed are made again before. If another job of the allocation
    /// has the id on one of the nodes, the next id is taken and passed to `renumber`. Collective.
    pub(crate) fn begin(
        &mut self,
        job: &Job,
        record: &mut RankRecord,
        renumber: impl Fn(&mut RankRecord, u64),
    ) -> Collective<(PartDir, Journal)> {
        let mut tries = 1;
        loop {
            let begun = self.remake_dirs(job).and_then(|()| self.begin_part(job, record));
            let is_taken = matches!(&begun, Err(error) if error.kind() == Some(ErrorKind::AlreadyExists));
            let is_final = tries == MOST_IDS || begun.is_err() && !is_taken;
            let is_ours = begun.is_ok();
            let begun = job.agree(begun);
            if begun.is_ok() {
                return begun;
            }
            // What this rank has not made may belong to somebody else.
            if is_ours {
                self.remove_part(job, &self.part_of(job, record));
            }
            let [is_final] = any(&*job.comm, [is_final])?;
            if is_final {
                return begun;
            }
            renumber(record, self.take_id());
            tries += 1;
        }
    }

    fn begin_part(&self, job: &Job, record: &RankRecord) -> Result<(PartDir, Journal), FsError> {
        let part = self.part_of(job, record);
        match Journal::begin_part(job.files(), &part, &Entry::Open(record)) {
            Ok(journal) => Ok((part, journal)),
            Err(error) => {
                // The first error is the one to report.
                let _ = part.remove_empty_folders(job.files());
                Err(error)
            }
        }
    }
}

/// So many ids are tried for a dataset where other jobs have them.
const MOST_IDS: u32 = 100;
