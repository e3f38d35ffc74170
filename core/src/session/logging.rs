//! What a session logs, and when: one call at each turn of its life. Rank 0 writes; on the others these do nothing.

use super::output::Output;
use super::Session;
use crate::cache::record::{Protection, RankRecord};
use crate::log::{Event, Record, Transfer};
use std::path::PathBuf;
use std::time::Duration;

/// The events of a dataset that is being written.
#[derive(Debug, Clone, Copy)]
struct Writing {
    start: Event,
    end: Event,
    fail: Event,
    whole: Transfer,
}

const CHECKPOINT: Writing = Writing {
    start: Event::CheckpointStart,
    end: Event::CheckpointEnd,
    fail: Event::CheckpointFail,
    whole: Transfer::Checkpoint,
};
const OUTPUT: Writing = Writing {
    start: Event::OutputStart,
    end: Event::OutputEnd,
    fail: Event::OutputFail,
    whole: Transfer::Output,
};

fn writing(record: &RankRecord) -> Writing {
    if record.dataset.checkpoint {
        CHECKPOINT
    } else {
        OUTPUT
    }
}

/// How long the parts of an output phase took, and how much was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    pub(super) write: Duration,
    pub(super) encode: Duration,
    pub(super) whole: Duration,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Session {
    /// The run starts.
    pub(super) fn log_start(&self) {
        let (processes, nodes) = (u64::from(self.job.comm.size()), self.job.nodes.count() as u64);
        self.job.log.add_entry(Record::event(Event::Start).run(processes, nodes));
    }

    /// The application computes from now on.
    pub(super) fn log_compute_start(&mut self) {
        self.computing_since = self.job.elapsed();
        self.job.log.add_entry(Record::event(Event::ComputeStart));
    }

    /// It has computed until `now`, and begins to write a dataset.
    pub(super) fn log_output_start(&self, record: &RankRecord, now: Duration) {
        let computed = now.saturating_sub(self.computing_since);
        self.job.log.add_entry(Record::event(Event::ComputeEnd).took(computed));
        self.job.log.add_entry(self.of_output(writing(record).start, record));
    }

    /// A dataset is complete in cache.
    pub(super) fn log_output_end(&self, record: &RankRecord, spent: &Spent) {
        let events = writing(record);
        let (from, to) = (self.base_of(&record.protection), self.cache.folder_of(&self.job, record));
        let moved = |transfer, took| {
            Record::transfer(transfer, &from, &to)
                .id(record.dataset.id)
                .took(took)
                .size(spent.bytes, spent.files)
        };
        let name = &record.dataset.name;
        let log = &self.job.log;
        log.add_entry(moved(Transfer::Write, spent.write).named(name));
        if !record.protection.bypass {
            log.add_entry(moved(Transfer::Encode, spent.encode));
        }
        log.add_entry(self.of_output(events.end, record).took(spent.whole));
        log.add_entry(moved(events.whole, spent.whole).named(name));
    }

    /// A dataset has come to nothing.
    pub(super) fn log_output_fail(&self, output: &Output, why: &str) {
        let record = &output.record;
        self.job.log.add_entry(Record::event(writing(record).fail).dataset(&record.dataset).note(why));
    }

    /// A dataset was copied to the prefix directory, or could not be.
    pub(super) fn log_flush(
        &self,
        record: &RankRecord,
        took: Duration,
        outcome: Result<(u64, u64), &str>,
        asynchronous: bool,
    ) {
        let log = &self.job.log;
        let of = |event| Record::event(event).dataset(&record.dataset).took(took);
        match outcome {
            Ok((files, bytes)) => {
                log.add_entry(of(Event::FlushSuccess));
                let (from, to) = (self.cache.folder_of(&self.job, record), self.job.prefix.dir());
                let kind = if asynchronous { Transfer::FlushAsync } else { Transfer::FlushSync };
                let moved = Record::transfer(kind, &from, to);
                log.add_entry(moved.dataset(&record.dataset).took(took).size(bytes, files));
            }
            Err(why) => log.add_entry(of(Event::FlushFail).note(why)),
        }
    }

    /// A checkpoint was fetched.
    pub(super) fn log_fetch(&self, record: &RankRecord, took: Duration) {
        let (from, to) = (self.job.prefix.dir(), self.cache.folder_of(&self.job, record));
        let (bytes, files) = (record.dataset.bytes.unwrap_or(0), record.dataset.files.unwrap_or(0));
        let moved = Record::transfer(Transfer::Fetch, from, &to).dataset(&record.dataset);
        self.job.log.add_entry(moved.took(took).size(bytes, files));
    }

    /// The job is to end. Said once in a run, since the reason stays.
    pub(super) fn log_halt(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.halt_logged, true) {
            self.job.log.add_entry(Record::event(Event::Halt).note(reason));
        }
    }

    fn of_output(&self, event: Event, record: &RankRecord) -> Record {
        let base = self.base_of(&record.protection);
        Record::event(event).note(base.display().to_string()).dataset(&record.dataset)
    }

    /// The base of the store that a dataset goes to.
    fn base_of(&self, protection: &Protection) -> PathBuf {
        let store = self.job.descriptors.store(&protection.store);
        store.map_or_else(|| PathBuf::from(&protection.store), |store| store.path.clone())
    }
}
