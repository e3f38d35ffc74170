//! One cached dataset after a failure: is it complete, who lacks what, and can it be brought back?
//!
//! It counts as complete where one rank knows that it is, or where every part that is left is prepared and the lost ones
//! come back with the right checksums. Nothing is taken away from a dataset that cannot be brought back: it
//! stays as it is until a newer one is complete.

use super::claims::{choose, Claim, Held};
use super::moves;
use super::survey::Survey;
use super::Rebuild;
use crate::cache::filemap::{Entry, Journal, State};
use crate::cache::part::PartDir;
use crate::cache::record::{DatasetKey, RankRecord};
use crate::comm::collective::{all_reduce, any, route, Op};
use crate::comm::{Collective, CommError};
use crate::job::Job;
use crate::log::{Event, Record};
use crate::param;
use crate::redundancy::mend::Mending;
use crate::redundancy::neighbours;
use crate::redundancy::sets::in_set;
use crate::Described;
use scr_plugin_api::Scheme;
use std::sync::Arc;

/// What became of a cached dataset.
pub(crate) enum Recovered {
    /// Every rank has its part, and every byte is what it was.
    Restored(Box<Restored>),
    /// It cannot be brought back now; what is left stays where it is.
    Kept(Kept),
    /// It was never complete, and has been removed.
    Removed,
}

/// This rank's part of a dataset that is whole.
pub(crate) struct Restored {
    pub(crate) record: RankRecord,
    pub(crate) part: PartDir,
    /// Whether the application has refused it before.
    pub(crate) refused: bool,
}

/// Why a dataset stays behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It was written by another number of ranks; it is never removed by this run.
    OtherSize,
    /// Too much of it is lost; it may go once a newer dataset is complete.
    Unrecoverable,
}

/// Brings one dataset back. Collective.
pub(crate) fn recover(
    on: Rebuild<'_>,
    key: DatasetKey,
    held: &[&Held],
    claims: &[Claim],
) -> Result<Recovered, CommError> {
    let job = on.job;
    let survey = Survey::take(job, held)?;
    let label = survey.label(job, key, held)?;
    let same_size = survey.ranks == Some(job.comm.size());
    // What is open anywhere was never complete, whoever wrote it. What is prepared nowhere may be so on nodes that another
    // number of ranks ran on.
    if !survey.complete && (survey.open || same_size && !survey.prepared) {
        job.report.info(&format!("{label} was never completed and is removed from cache"));
        remove(job, held);
        return Ok(Recovered::Removed);
    }
    if !same_size {
        let ranks = survey.ranks.map_or("different numbers of".to_owned(), |ranks| ranks.to_string());
        job.report.warn(&format!(
            "{label} was written by {ranks} ranks, and this run has {}: it is left alone; \
             start with as many ranks to restart from it",
            job.comm.size()
        ));
        return Ok(Recovered::Kept(Kept::OtherSize));
    }
    rebuild(on, key, &label, Recovery::new(on, held, claims, survey.refused))
}

/// Brings it back with all ranks that wrote it, and tells how that went.
fn rebuild(
    on: Rebuild<'_>,
    key: DatasetKey,
    label: &str,
    mut recovery: Recovery<'_>,
) -> Result<Recovered, CommError> {
    let job = on.job;
    job.report.info(&format!("Attempting to distribute and rebuild dataset {}", key.id));
    let log = |event| Record::event(event).id(key.id);
    job.log.add_entry(log(Event::RebuildStart));
    let began = job.elapsed();
    let outcome = recovery.run(label);
    let took = job.elapsed() - began;
    match outcome {
        Ok(restored) => {
            job.log.add_entry(log(Event::RebuildSuccess).named(&restored.record.dataset.name).took(took));
            job.report.info(&format!("Rebuilt dataset {}", key.id));
            Ok(Recovered::Restored(Box::new(restored)))
        }
        Err(error) => {
            let why = error.agreed()?.to_string();
            recovery.give_up();
            job.log.add_entry(log(Event::RebuildFail).took(took).note(why.as_str()));
            job.report.error(&format!(
                "{label} cannot be brought back from cache: {why}. What is left of it stays in cache until a newer \
                 dataset is complete"
            ));
            Ok(Recovered::Kept(Kept::Unrecoverable))
        }
    }
}

/// The work on one dataset.
struct Recovery<'a> {
    on: Rebuild<'a>,
    held: &'a [&'a Held],
    whole: Option<&'a Claim>,
    record: Option<&'a RankRecord>,
    /// Whether any part says that the application has refused it.
    refused: bool,
    journal: Option<Journal>,
    /// Whether this rank has begun its part anew, so that giving up takes away nothing that counts.
    begun: bool,
}

impl<'a> Recovery<'a> {
    fn new(on: Rebuild<'a>, held: &'a [&'a Held], claims: &'a [Claim], refused: bool) -> Self {
        let (whole, record) = choose(on.job.rank(), claims);
        Self { on, held, whole, record, refused, journal: None, begun: false }
    }

    /// All the steps. An error of the ranks says why the dataset cannot be brought back.
    fn run(&mut self, label: &str) -> Collective<Restored> {
        let on = self.on;
        let job = on.job;
        let mending = Mending {
            comm: &*job.comm,
            files: job.files(),
            report: &job.report,
            node: job.nodes.name(job.rank()),
            schemes: &on,
            processors: job.processors,
            message_bytes: job.params.get(&param::MPI_BUF_SIZE),
            label,
        };
        let record = mending.everybody_knows(self.record, self.whole.is_none())?;
        let part = self.place(record);
        let moved = self.bring_home(record, &part)?;
        let is_lost = if record.protection.bypass {
            !super::in_place(job.files(), record)
        } else {
            self.whole.is_none()
        };
        let rebuilt = mending.run(record, &part, is_lost, &mut || self.begin_anew(record, &part))?;
        self.settle(record, &part, moved || rebuilt)?;
        self.send_off();
        Ok(Restored { record: record.clone(), part, refused: self.refused })
    }

    /// Fetches this rank's part where it lies on another node, and sends others theirs. Gives whether anything moved
    /// anywhere.
    fn bring_home(&mut self, record: &RankRecord, part: &PartDir) -> Collective<bool> {
        let job = self.on.job;
        let from = self.whole.map(|claim| claim.holder).filter(|&holder| holder != job.rank());
        let from = from.filter(|_| !record.protection.bypass);
        let wishes = from.map(|holder| (holder, Vec::new())).into_iter().collect();
        let wanted = route(&*job.comm, wishes)?;
        let mut count = [wanted.len() as u64];
        all_reduce(&*job.comm, &mut count, Op::Sum)?;
        if count == [0] {
            return Ok(false);
        }
        let departing: Vec<_> = wanted
            .iter()
            .filter_map(|(owner, _)| self.held.iter().find(|held| held.owner == *owner))
            .filter_map(|held| Some(moves::Departing { part: &held.part, record: held.map.record.as_ref()? }))
            .collect();
        let mut begun = Ok(());
        if from.is_some() {
            begun = self.begin_anew(record, part);
        }
        let arriving = from.map(|holder| moves::Arriving { holder, part, record });
        let message_bytes = job.params.get(&param::MPI_BUF_SIZE);
        let arrived = moves::run(&*job.comm, job.files(), message_bytes, &departing, arriving.as_ref())?;
        let settled = begun.and(arrived).and_then(|arrival| self.take_in(record, part, arrival));
        job.agree(settled)?;
        let all = job.comm.size();
        job.report.info(&format!("{} of {all} ranks fetched their files from other nodes", count[0]));
        Ok(true)
    }

    /// What its holder could not read counts as lost, and redundancy repairs it where it can.
    fn take_in(
        &mut self,
        record: &RankRecord,
        part: &PartDir,
        arrival: moves::Arrival,
    ) -> Result<(), String> {
        let moves::Arrival::Unreadable(why) = arrival else { return Ok(()) };
        let holder = self.whole.take().map_or(record.rank, |claim| claim.holder);
        self.on.job.report.error_here(&format!(
            "the files of rank {} of dataset {} could not be fetched from rank {holder}: {why}; this part counts as lost",
            record.rank, record.dataset.id
        ));
        let files = self.on.job.files();
        part.remove_contents(files).and_then(|()| part.make_data(files)).described()
    }

    /// Makes filemaps say what is true now: first that the part is prepared, and once all have said so, that all is
    /// complete.
    fn settle(&mut self, record: &RankRecord, part: &PartDir, changed: bool) -> Collective<()> {
        let job = self.on.job;
        let mine = self.own_map().map(|held| held.map.state);
        let damaged = self.own_map().is_some_and(|held| held.map.damaged);
        let absent = !self.begun && mine.is_none_or(|state| state < State::Prepared);
        let unwritten = absent || damaged;
        let mut outcome = if absent { self.begin_anew(record, part) } else { Ok(()) };
        let [anew] = any(&*job.comm, [changed || unwritten])?;
        if anew {
            let scheme = self.on.schemes.scheme(job, &record.protection)?;
            let kept = self.keep_neighbours(record, &scheme);
            let prepared = kept.and_then(|kept| self.write_prepared(record, part, &kept));
            outcome = outcome.and(prepared);
        }
        job.agree(outcome)?;
        self.begun = false;
        let says = if anew { Some(State::Prepared) } else { mine };
        job.agree(self.note_end(part, says))
    }

    /// Notes how it ended, where the filemap does not say so already: a device that can only be read still gives a
    /// whole dataset.
    fn note_end(&mut self, part: &PartDir, says: Option<State>) -> Result<(), String> {
        if says < Some(State::Complete) {
            self.append(part, &Entry::Complete)?;
        }
        if self.refused && says < Some(State::Refused) {
            self.append(part, &Entry::Refused)?;
        }
        Ok(())
    }

    fn keep_neighbours(
        &self,
        record: &RankRecord,
        scheme: &Arc<dyn Scheme>,
    ) -> Result<Vec<RankRecord>, String> {
        in_set(&*self.on.job.comm, &record.members, |set| {
            let copies = scheme.losses_survived(set.size()).map_err(|error| error.to_string())?;
            neighbours::exchange(set, record, copies).map_err(|error| error.to_string())
        })
    }

    /// Records that the part is prepared: at the end of its filemap, or in a new one where the old one is damaged and
    /// nothing behind the damage would be read.
    fn write_prepared(
        &mut self,
        record: &RankRecord,
        part: &PartDir,
        kept: &[RankRecord],
    ) -> Result<(), String> {
        let entry = Entry::Prepared(record, kept);
        if self.begun || !self.own_map().is_some_and(|held| held.map.damaged) {
            return self.append(part, &entry);
        }
        let replaced = Journal::replace(self.on.job.files(), &part.filemap(), &entry);
        self.journal = Some(replaced.described()?);
        Ok(())
    }

    /// What lies here of this rank's own part; of two copies the better one.
    fn own_map(&self) -> Option<&Held> {
        let own = self.held.iter().filter(|held| held.owner == self.on.job.rank());
        own.max_by_key(|held| (!held.map.damaged, held.map.state)).copied()
    }

    /// Where this rank's part is or will be: where it lies already, though that may be the folder of another node on a path
    /// that all see, or else in this node's.
    fn place(&self, record: &RankRecord) -> PartDir {
        let home = || {
            PartDir::new(
                &self.on.cache.dir_of(self.on.job, &record.protection.store),
                record.dataset.id,
                self.on.job.rank(),
            )
        };
        self.own_map().map_or_else(home, |held| held.part.clone())
    }

    fn append(&mut self, part: &PartDir, entry: &Entry<'_>) -> Result<(), String> {
        let path = part.filemap();
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::reopen(self.on.job.files(), &path).described()?,
        };
        let written =
            journal.append(entry).map_err(|error| format!("cannot write {}: {error}", path.display()));
        self.journal = Some(journal);
        written
    }

    /// Begins this rank's filemap anew. What lay there before either is of no use or is being replaced file by file.
    fn begin_anew(&mut self, record: &RankRecord, part: &PartDir) -> Result<(), String> {
        let files = self.on.job.files();
        let intact = self.held.iter().any(|held| {
            held.owner == record.rank
                && held.part == *part
                && !held.map.damaged
                && held.map.state >= State::Prepared
        });
        if self.begun || intact && self.whole.is_none_or(|claim| claim.holder == record.rank) {
            // Its folder may be what is lost.
            return part.make_data(files).described();
        }
        self.begun = true;
        let journal =
            part.clear(files).and_then(|()| Journal::begin_part(files, part, &Entry::Arriving(record)));
        self.journal = Some(journal.described()?);
        Ok(())
    }

    /// Removes the copies of parts that have reached their owners.
    fn send_off(&self) {
        for held in self.held.iter().filter(|held| held.owner != self.on.job.rank()) {
            if let Err(error) = held.part.remove(self.on.job.files()) {
                self.on.job.report.error_here(&crate::describe(&error));
            }
        }
    }

    /// Takes back what was begun and did not become whole.
    fn give_up(&mut self) {
        let Some(record) = self.record.filter(|_| self.begun) else { return };
        self.journal = None;
        let part = self.place(record);
        if let Err(error) = part.remove(self.on.job.files()) {
            self.on.job.report.error_here(&crate::describe(&error));
        }
    }
}

fn remove(job: &Job, held: &[&Held]) {
    for part in held {
        if let Err(error) = part.part.remove(job.files()) {
            job.report.error_here(&crate::describe(&error));
        }
    }
}
