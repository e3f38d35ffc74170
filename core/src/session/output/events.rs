//! The log's entries about a dataset that is being written. Rank 0 writes them; on other ranks these functions do nothing.

use crate::cache::record::RankRecord;
use crate::cache::Cache;
use crate::job::Job;
use crate::log::{Event, Record, Transfer};
use std::path::PathBuf;
use std::time::Duration;

/// How long the parts of an output phase took, and how much was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    pub(super) write: Duration,
    pub(super) encode: Duration,
    pub(super) whole: Duration,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// The application has computed for so long, and begins to write a dataset.
pub(super) fn started(job: &Job, record: &RankRecord, computed: Duration) {
    job.log.add_entry(Record::event(Event::ComputeEnd).took(computed));
    job.log.add_entry(event(job, of_kind(record, Event::CheckpointStart, Event::OutputStart), record));
}

/// A dataset is complete in cache.
pub(super) fn completed(job: &Job, cache: &Cache, record: &RankRecord, spent: &Spent) {
    let (from, to) = (base_of(job, record), cache.folder_of(job, record));
    let moved = |transfer, took| {
        Record::transfer(transfer, &from, &to).id(record.dataset.id).took(took).size(spent.bytes, spent.files)
    };
    let name = &record.dataset.name;
    job.log.add_entry(moved(Transfer::Write, spent.write).named(name));
    if !record.protection.bypass && record.local.is_none() {
        let encoded = moved(Transfer::Encode, spent.encode).scheme(&record.protection.scheme);
        job.log.add_entry(encoded);
    }
    let end = of_kind(record, Event::CheckpointEnd, Event::OutputEnd);
    job.log.add_entry(event(job, end, record).took(spent.whole));
    let whole = of_kind(record, Transfer::Checkpoint, Transfer::Output);
    job.log.add_entry(moved(whole, spent.whole).named(name));
}

/// The dataset has failed.
pub(super) fn failed(job: &Job, record: &RankRecord, why: &str) {
    let fail = of_kind(record, Event::CheckpointFail, Event::OutputFail);
    job.log.add_entry(Record::event(fail).dataset(&record.dataset).note(why));
}

fn of_kind<T>(record: &RankRecord, checkpoint: T, output: T) -> T {
    if record.dataset.checkpoint {
        checkpoint
    } else {
        output
    }
}

fn event(job: &Job, event: Event, record: &RankRecord) -> Record {
    Record::event(event).note(base_of(job, record).display().to_string()).dataset(&record.dataset)
}

/// The base of the store that a dataset goes to, or the prefix directory.
fn base_of(job: &Job, record: &RankRecord) -> PathBuf {
    if record.protection.bypass {
        return job.prefix.dir().to_owned();
    }
    let name = &record.protection.store;
    job.descriptors.store(name).map_or_else(|| PathBuf::from(name), |store| store.path.clone())
}
