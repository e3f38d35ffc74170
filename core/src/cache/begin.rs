//! Begins a dataset in cache: makes folders and filemaps on all ranks or on none, under an id that no other dataset has.

use super::filemap::{Entry, Journal};
use super::part::PartDir;
use super::record::RankRecord;
use super::Cache;
use crate::job::{Job, Said};
use crate::typed::broadcast_value;
use scr_base::fs::{retried, At, Files, FsError};
use scr_comm::{Collective, CommError, Rank};
use scr_prefix::ledger::{LedgerDir, Request};
use scr_prefix::Prefix;
use std::io::ErrorKind;
use std::sync::Arc;

impl Cache {
    /// An id for a new dataset. An id is never used twice, not even where a start has failed halfway. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn take_id(&mut self, job: &Job) -> Result<u64, CommError> {
        self.ids.take(job)
    }

    /// The first id that no dataset has had yet, as far as this run knows.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.next
    }

    /// New ids are higher than this one.
    pub(crate) fn count_ids_from(&mut self, highest: u64) {
        self.ids.next = highest + 1;
        self.ids.end = self.ids.next;
    }

    /// Makes the folders of this rank's part and begins its filemap, on all ranks or on none. Directories of the job that were
    /// removed are made again before. If another job of the allocation has the id on one of the nodes, the next id is taken and
    /// passed to `renumber`. Nothing is begun if `run_is_known` fails, because the lock of the run is lost, or if that of a part
    /// is: another run may remove what this one counts on. Collective.
    pub(crate) fn begin(
        &mut self,
        job: &Job,
        record: &mut RankRecord,
        run_is_known: impl Fn() -> Result<(), FsError>,
        renumber: impl Fn(&mut RankRecord, u64),
    ) -> Collective<(PartDir, Journal)> {
        let mut tries = 1;
        loop {
            let locked = run_is_known().and_then(|()| self.expect_claims());
            let begun =
                locked.and_then(|()| self.remake_dirs(job)).and_then(|()| self.begin_part(job, record));
            let is_taken = matches!(&begun, Err(error) if error.kind() == Some(ErrorKind::AlreadyExists));
            let is_final = tries == MOST_IDS || begun.is_err() && !is_taken;
            let is_ours = begun.is_ok();
            let begun = job.agree(begun.map_err(|error| {
                job.note_failure(&error);
                self.explain(&error, record)
            }));
            if begun.is_ok() {
                return begun;
            }
            // A folder that this rank has not made may belong to another process.
            if is_ours {
                self.remove_part(job, &self.part_of(record));
            }
            if job.any(is_final)? {
                return begun;
            }
            renumber(record, self.take_id(job)?);
            tries += 1;
        }
    }

    /// Warns of a store that nothing can begin in, and in which nothing lies that could leave.
    pub(crate) fn warn_of_full_stores(&self, job: &Job) {
        for (number, store) in self.stores.iter().enumerate() {
            let mates = store.placement.mates(job.rank());
            let is_used = job.descriptors.redundancy.all().iter().any(|one| one.store == store.name);
            let is_empty = self.count_in(number) == 0 && !self.has_remains;
            if !is_used || !is_empty || mates.first() != Some(&job.rank()) {
                continue;
            }
            let needed = RECORD_BYTES.saturating_mul(mates.len() as u64);
            if let Some(room) = store.room(job.files(), needed).filter(|room| room.bytes < needed) {
                let (name, node) = (&store.name, job.nodes.name(job.rank()));
                job.report.warn_here(&format!("the store {name} is full ({room} on {node}): {NO_RECORDS}"));
            }
        }
    }

    fn explain(&self, error: &FsError, record: &RankRecord) -> String {
        let text = scr_base::describe(error);
        match error.is_for_want_of_room() {
            true => format!("{text}: the store {} is full. {NO_RECORDS}", record.protection.store),
            false => text,
        }
    }

    fn expect_claims(&self) -> Result<(), FsError> {
        let mut claims = self.datasets.iter().map(|cached| (&cached.claim, cached.part.filemap()));
        claims.try_for_each(|(claim, path)| claim.expect_held().at("keep the lock of", &path))
    }

    fn begin_part(&self, job: &Job, record: &RankRecord) -> Result<(PartDir, Journal), FsError> {
        let part = self.part_of(record);
        let begun = retried(job.files(), |files| {
            Journal::begin_part(files, &part, &Entry::Open(record)).inspect_err(|_| {
                // The first error is the one to report.
                let _ = part.remove_empty_folders(files);
            })
        });
        begun.map(|journal| (part, journal))
    }
}

/// The ids that this run has for its datasets. They are reserved in the prefix directory, some at a time, before the first of
/// them is used, so that no other run uses one of them, whatever it sees of this one. Rank 0 gives back those that it has not
/// used.
pub(super) struct DatasetIds {
    pub(super) next: u64,
    /// The first one that is not reserved.
    pub(super) end: u64,
    /// On rank 0, where they are reserved, if they are.
    pub(super) given_by: Option<(Arc<dyn Files>, Prefix)>,
}

impl DatasetIds {
    fn take(&mut self, job: &Job) -> Result<u64, CommError> {
        if self.next == self.end {
            let own = (job.rank() == Rank(0)).then(|| self.reserve(job));
            let (first, count) = broadcast_value(&*job.comm, own)?;
            (self.next, self.end) = (first, first.saturating_add(count));
        }
        let id = self.next;
        self.next += 1;
        Ok(id)
    }

    /// Reserves a range of ids: its first id and its length. If the prefix directory cannot be written, the application continues
    /// with the next id that nobody is known to have reserved. The number of the run still decides which of two datasets is
    /// newer, and a flush replaces none of another run that has the same id.
    fn reserve(&mut self, job: &Job) -> (u64, u64) {
        self.given_by = None;
        match job.ledger().reserve(self.next, BLOCK) {
            Ok(first) => {
                self.given_by = Some((Arc::clone(&job.env.files), job.prefix.clone()));
                (first, BLOCK)
            }
            Err(error) => {
                if job.is_news(Said::NoIds) {
                    job.report.warn(&format!(
                        "no ids can be reserved for new datasets: {}; if a later run does not have the nodes of this one, it \
                         may use the same ids, and of two datasets with one id only the one is flushed that comes first",
                        scr_base::describe(&error)
                    ));
                }
                let free = job.ledger().next_id().unwrap_or(0);
                (self.next.max(free), 1)
            }
        }
    }
}

impl Drop for DatasetIds {
    fn drop(&mut self) {
        if let Some((files, prefix)) = self.given_by.take().filter(|_| self.next < self.end) {
            // Ids that are lost do no harm.
            let give_back = Request::GiveBack { next: self.next, end: self.end };
            let _ = LedgerDir::new(&*files, &prefix).transact(&give_back);
        }
    }
}

/// The meaning of a full store, and the cure.
const NO_RECORDS: &str =
    "without room for its record no dataset can begin, not even one that bypasses the cache. Make room \
                          there, or let SCR_CACHE_BASE or a STORE line name another folder";
/// The least that the record of one rank takes in a store.
const RECORD_BYTES: u64 = 4096;
/// A run reserves this many ids at a time.
const BLOCK: u64 = 64;
/// A dataset tries at most this many ids if other jobs have them.
const MOST_IDS: u32 = 100;
