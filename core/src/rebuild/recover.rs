//! Recovers one cached dataset after a failure: whether it is complete, which parts are lost, and whether they can be rebuilt.
//!
//! It is complete if one rank has recorded so, or if every remaining part is prepared and the lost ones can be rebuilt with the
//! right checksums. A dataset that cannot be recovered stays as it is until a newer checkpoint counts.

use super::parts::{choose, DatasetState, LocalPart, PartReport};
use super::transfer::{self, Arrival, Moving};
use super::Rebuild;
use crate::cache::filemap::{Entry, Filemap, Journal, PartState};
use crate::cache::loss::{loss_in_place, Loss, Lost};
use crate::cache::owner::Owner;
use crate::cache::part::PartDir;
use crate::cache::record::{of_other_size, DatasetKey, Protection, RankRecord};
use crate::cache::verify::{Extent, Verified};
use crate::cache::CachedDataset;
use crate::job::Job;
use crate::log::{Event, Record};
use crate::redundancy::repair::{Repair, Repaired};
use crate::redundancy::RedundancyError;
use crate::typed::route_values;
use scr_base::fs::{retried, At, FsError};
use scr_comm::collective::{all_reduce, any, Op};
use scr_comm::{Collective, CommError, Rank};
use scr_prefix::ledger::Request;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The fate of a cached dataset.
pub(crate) enum Recovered {
    /// Every rank has its part, and every byte is what it was.
    Restored(Box<Restored>),
    /// It cannot be rebuilt now; what is left stays where it is.
    Unrecovered(Unrecovered),
    /// Nothing of it counts, and it has been removed.
    Removed,
}

/// This rank's part of a dataset that is whole.
pub(crate) struct Restored {
    pub(crate) record: RankRecord,
    pub(crate) part: PartDir,
    /// Whether the application has refused it before.
    pub(crate) refused: bool,
    /// How much of the part equals its record.
    pub(crate) verified: Verified,
}

/// Why a dataset was not recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unrecovered {
    /// It was written by another number of ranks, as `what` says. The application may have refused it before.
    OfOtherRanks { what: String, refused: bool },
    /// Another job may be writing it; it is never removed by this run.
    InUse,
    /// Its scheme cannot be used now, or it cannot be read or written here; it is never removed by this run.
    NotTried,
    /// Too much of it is lost; it may go once a newer checkpoint counts. The application may have refused it before. `damage`
    /// says why it could not be brought back, where a rank has found wrong bytes.
    TooMuchLost { refused: bool, damage: Option<String> },
}

/// Brings one dataset back. Too much of its newer copies is `lost`. Another release wrote parts of it if it `is_mixed`. Collective.
pub(crate) fn recover(
    on: Rebuild<'_>,
    key: DatasetKey,
    local: &[&LocalPart],
    reports: &[PartReport],
    (lost, is_mixed): (&BTreeSet<DatasetKey>, bool),
) -> Result<Recovered, CommError> {
    let job = on.job;
    let state = DatasetState::take(job, local)?;
    let label = state.label(job, key, local)?;
    let same_size = state.ranks == Some(job.comm.size());
    let is_unfinished = state.is_unfinished(job.comm.size());
    let is_held = || job.any(local.iter().any(|part| part.part.is_held(job.files())));
    if is_unfinished && on.is_shared || !state.complete && is_held()? {
        job.report
            .notice(&format!("{label} is not complete, and another job may be writing it: it is left alone"));
        return Ok(Recovered::Unrecovered(Unrecovered::InUse));
    }
    if is_unfinished {
        job.report.info(&format!("{label} was never completed and is removed from cache"));
        local.iter().for_each(|part| part.remove_unless_held(job));
        return Ok(Recovered::Removed);
    }
    if !same_size {
        let ranks = state.ranks.map_or("different numbers of".to_owned(), |ranks| ranks.to_string());
        let what = of_other_size(&label, ranks, job.comm.size());
        return Ok(Recovered::Unrecovered(Unrecovered::OfOtherRanks { what, refused: state.refused }));
    }
    let recovery = Recovery::new(on, local, reports, state.refused, Extent::Used);
    rebuild(on, key, &label, Recovery { lost: Some(lost), is_mixed, ..recovery })
}

/// Repairs the parts of a dataset in cache on the ranks that have found out that theirs lack something, if there are any.
/// Collective.
pub(super) fn recover_damaged(
    on: Rebuild<'_>,
    cached: &CachedDataset,
    loss: Option<Loss>,
) -> Result<Option<Recovered>, CommError> {
    if !on.job.any(loss.is_some())? {
        return Ok(None);
    }
    let CachedDataset { record, part, .. } = cached;
    let (owner, has_data) = (record.rank, loss.as_ref().is_none_or(|loss| loss.lost != Lost::Data));
    let map = Filemap::read(on.job.files(), part).ok();
    let own =
        map.map(|map| LocalPart { owner, part: part.clone(), map, is_inspected: true, loss: loss.clone() });
    let local: Vec<&LocalPart> = own.iter().collect();
    let reports = [PartReport { holder: owner, has_data, loss, record: record.clone() }];
    let recovery = Recovery::new(on, &local, &reports, cached.is_refused(), Extent::All);
    rebuild(on, DatasetKey::of(record), &record.label(), recovery).map(Some)
}

/// Brings it back with all ranks that wrote it, and reports how that went.
fn rebuild(
    on: Rebuild<'_>,
    key: DatasetKey,
    label: &str,
    mut recovery: Recovery<'_>,
) -> Result<Recovered, CommError> {
    let job = on.job;
    let in_place = recovery.record.is_some_and(|record| record.protection.bypass);
    job.report.info(&match in_place {
        true => format!("Looking at the files of dataset {} in the prefix directory", key.dataset),
        false => format!("Attempting to distribute and rebuild dataset {}", key.dataset),
    });
    let log = |event| Record::event(event).id(key.dataset);
    job.log.add_entry(log(Event::RebuildStart));
    let began = job.elapsed();
    let outcome = recovery.run(label);
    let took = job.elapsed() - began;
    match outcome {
        Ok(restored) => {
            job.log.add_entry(log(Event::RebuildSuccess).named(&restored.record.dataset.name).took(took));
            job.report.info(&match in_place {
                true => format!("Dataset {} is in the prefix directory as it was written", key.dataset),
                false => format!("Rebuilt dataset {}", key.dataset),
            });
            Ok(Recovered::Restored(Box::new(restored)))
        }
        Err(error) => {
            let why = error.agreed()?.to_string();
            if !in_place {
                job.report.info(&format!("Failed to rebuild dataset {}", key.dataset));
            }
            recovery.give_up();
            recovery.record_wrong_bytes();
            // Its number in the prefix directory.
            let damaged = recovery.record.filter(|_| in_place && recovery.wrong_bytes.get().is_some());
            mark_failed(job, damaged.map(|record| record.dataset.id))?;
            let is_damaged = job.any(recovery.wrong_bytes.get().is_some())?;
            job.log.add_entry(log(Event::RebuildFail).took(took).note(why.as_str()));
            let is_spent = recovery.is_spent_fetch()?;
            let is_unread = recovery.is_mixed || job.files().unread().is_some();
            let [is_unread, is_lost] = any(&*job.comm, [is_unread, recovery.is_lost.get()])?;
            if !is_spent && (is_unread || !is_lost) {
                job.report.error(&format!(
                    "{label} cannot be restored from cache in this run: {why}. It stays in cache; to restart from it, end this \
                     run, correct that, and start again"
                ));
                return Ok(Recovered::Unrecovered(Unrecovered::NotTried));
            }
            let away = recovery.record.is_some_and(|record| !job.nodes.has(&record.node));
            let cure = match job.any(away)? {
                true => ". Nodes that have parts of it are not in this run: if they are there, end it and start on them too",
                false => "",
            };
            match in_place || is_spent {
                true => job.report.warn(&format!("the record in cache of {label} does not count: {why}")),
                false => job.report.error(&format!(
                    "{label} cannot be restored from cache: {why}. What is left of it stays in cache until a newer checkpoint is \
                     complete{cure}"
                )),
            }
            if is_spent {
                recovery.local.iter().for_each(|part| part.remove_unless_held(job));
                return Ok(Recovered::Removed);
            }
            let (refused, damage) = (recovery.refused, Some(why).filter(|_| is_damaged));
            Ok(Recovered::Unrecovered(Unrecovered::TooMuchLost { refused, damage }))
        }
    }
}

/// A dataset in place that any rank has found damaged fails for all runs: where the file lists have no checksums, a fetch would
/// hand out the same bytes. Collective.
fn mark_failed(job: &Job, damaged: Option<u64>) -> Result<(), CommError> {
    let [id] = all_reduce(&*job.comm, [damaged.unwrap_or(0)], Op::Max)?;
    if id == 0 || job.rank() != Rank(0) {
        return Ok(());
    }
    let now = job.local_time();
    if let Err(error) = job.ledger().transact(&Request::Fail { id, name: None, now: &now }) {
        job.report.error(&format!("dataset {id} is damaged, and the index cannot say so: {error}"));
    }
    Ok(())
}

/// Why no node has the data of this rank.
fn why_lost(job: &Job, record: Option<&RankRecord>, reports: &[PartReport]) -> Loss {
    let known = reports.iter().find_map(|report| report.loss.clone());
    known.unwrap_or_else(|| match record {
        Some(record) if !job.nodes.has(&record.node) => Loss::of_data("the node is not in this run"),
        _ => Loss::of_data("nothing usable of it is there"),
    })
}

/// The work on one dataset.
struct Recovery<'a> {
    on: Rebuild<'a>,
    local: &'a [&'a LocalPart],
    /// The copy of this rank's part that is used, with all its data.
    copy: Option<&'a PartReport>,
    /// Its losses, with their causes.
    loss: Option<Loss>,
    record: Option<&'a RankRecord>,
    /// Whether any part says that the application has refused it.
    refused: bool,
    /// The place of its part, present or future, once that is known.
    place: Option<PartDir>,
    journal: Option<Journal>,
    /// Whether this rank has started its part again, so that giving up destroys nothing valid.
    begun: bool,
    /// Whether its filemap is to be replaced once the part is whole.
    replaces: bool,
    /// How much of each part is compared.
    extent: Extent,
    /// The loss of this rank's part, if it has found wrong bytes there.
    wrong_bytes: Rc<Cell<Option<Lost>>>,
    /// Whether this rank knows that too much is lost.
    is_lost: Rc<Cell<bool>>,
    /// Whether another release wrote parts of it, which this one cannot read.
    is_mixed: bool,
    /// The copies of datasets that cannot be brought back, so that this one may have their place.
    lost: Option<&'a BTreeSet<DatasetKey>>,
}

/// The part that lies where another one is to be.
enum Occupant {
    /// Nothing that counts.
    None,
    /// The part, or what is left of it.
    Part,
    /// Its filemap does not say what it is: it may be the part.
    Unknown,
}

impl<'a> Recovery<'a> {
    fn new(
        on: Rebuild<'a>,
        local: &'a [&'a LocalPart],
        reports: &'a [PartReport],
        refused: bool,
        extent: Extent,
    ) -> Self {
        let (copy, record) = choose(on.job.rank(), reports);
        let bare = |copy: &PartReport| copy.loss.clone().filter(|loss| loss.lost != Lost::Data);
        let loss = copy.map_or_else(|| Some(why_lost(on.job, record, reports)), bare);
        let (place, journal, begun, replaces) = (None, None, false, false);
        Self {
            on,
            local,
            copy,
            loss,
            record,
            refused,
            place,
            journal,
            begun,
            replaces,
            extent,
            wrong_bytes: Rc::default(),
            is_lost: Rc::default(),
            is_mixed: false,
            lost: None,
        }
    }

    /// All the steps. An error of the ranks says why the dataset cannot be recovered.
    fn run(&mut self, label: &str) -> Collective<Restored> {
        let on = self.on;
        let scheme = |protection: &Protection| on.schemes.plugins.scheme(on.job, protection);
        let (job, extent) = (on.job, self.extent);
        let (wrong_bytes, is_lost) = (Rc::clone(&self.wrong_bytes), Rc::clone(&self.is_lost));
        let mut repair = Repair { job, scheme: &scheme, label, extent, wrong_bytes, is_lost };
        let record = repair.agree_on_record(self.record, self.loss.as_ref().map(|loss| loss.lost))?;
        let part = self.place(record);
        repair.expect_enough(record, self.loss.as_ref())?;
        let mut record = record.clone();
        let moved = self.bring_home(&mut record, &part)?;
        let record = &record;
        let loss =
            if record.protection.bypass { loss_in_place(job.files(), record) } else { self.loss.take() };
        if moved {
            // The copies that it was read from are removed next.
            repair.extent = Extent::All;
        }
        let Repaired { rebuilt, verified, protected } =
            repair.run(record, &part, loss, &mut || self.begin_anew(record, &part))?;
        let changed = moved || rebuilt || protected.is_some();
        let record = protected.unwrap_or_else(|| record.clone());
        self.record_recovered(&record, &part, changed)?;
        // The copies of parts that have reached their owners are of no use any more.
        let moved = self.local.iter().filter(|local| local.owner != job.rank());
        moved.for_each(|local| local.remove_unless_held(job));
        Ok(Restored { record, part, refused: self.refused, verified })
    }

    /// Fetches this rank's part where it lies on another node, and sends others theirs. Files that did not come are asked for
    /// again, as the error may pass. Returns whether anything moved anywhere.
    fn bring_home(&mut self, record: &mut RankRecord, part: &PartDir) -> Collective<bool> {
        let job = self.on.job;
        let mut is_here = self.copy.is_none_or(|copy| copy.holder == job.rank()) || record.protection.bypass;
        let (mut moved, mut tries) = (0, 0);
        loop {
            let from = self.copy.filter(|_| !is_here);
            let request = from.map(|copy| (copy.holder, (copy.record.clone(), copy.loss.is_some())));
            let wanted = route_values(&*job.comm, request.as_slice())?;
            let [count] = all_reduce(&*job.comm, [wanted.len() as u64], Op::Sum)?;
            if count == 0 {
                break;
            }
            moved = moved.max(count);
            tries += 1;
            let departing = wanted.into_iter().map(|(owner, request)| self.asked(owner, request));
            let departing: Vec<_> = departing.collect();
            let begun = from.map_or(Ok(()), |_| self.begin_anew(record, part));
            let arriving = from.map(|copy| {
                let (part, record, bare) = (part.clone(), record.clone(), copy.loss.is_some());
                Moving { rank: copy.holder, part, record, bare }
            });
            let arrival = transfer::run(job, &departing, arriving.as_ref())?;
            let taken = begun.and_then(|()| self.take_in(record, part, arrival, tries == MOST_TRIES));
            if tries == MOST_TRIES {
                is_here |= job.agree(taken)?;
            } else if from.is_some() {
                is_here = taken.unwrap_or(false);
            }
        }
        if moved > 0 {
            let all = job.comm.size();
            job.report.info(&format!("{moved} of {all} ranks fetched their files from other nodes"));
        }
        Ok(moved > 0)
    }

    /// Returns whether there is nothing to wait for any more. Data that its holder could not read counts as lost in the end, and
    /// is repaired if that is possible.
    fn take_in(
        &mut self,
        record: &mut RankRecord,
        part: &PartDir,
        arrival: Arrival,
        is_last: bool,
    ) -> Result<bool, FsError> {
        let files = self.on.job.files();
        let loss = match arrival {
            Arrival::Whole(times) => {
                record.files.iter_mut().zip(times).for_each(|(file, time)| file.mtime = time);
                return Ok(true);
            }
            Arrival::Unwritten(error) if is_last => return Err(error),
            Arrival::Unwritten(_) => None,
            Arrival::Unreadable(loss) => Some(loss).filter(|_| is_last),
        };
        if let Some(loss) = &loss {
            let holder = self.copy.map_or(record.rank, |copy| copy.holder);
            let what = if loss.lost == Lost::Data { "this part" } else { "its redundancy" };
            self.on.job.report.error_here(&format!(
                "the files of rank {} of dataset {} could not be fetched from rank {holder}: {}; {what} counts as lost",
                record.rank, record.dataset.id, loss.why
            ));
            self.loss = Some(loss.clone());
            if loss.lost == Lost::Redundancy {
                return files.remove_if_there(&part.redundancy()).map(|_| true);
            }
            self.copy = None;
        }
        part.remove_contents(files).and_then(|()| part.make_data(files))?;
        Ok(loss.is_some())
    }

    /// Makes filemaps say what is true now: first that the part is prepared, and once all have said so, that all is
    /// complete.
    fn record_recovered(&mut self, record: &RankRecord, part: &PartDir, changed: bool) -> Collective<()> {
        let job = self.on.job;
        let mine = self.own_copy().map(|own| own.map.state);
        let damaged = self.own_copy().is_some_and(|own| own.map.damaged);
        let absent = !self.begun && mine.is_none_or(|state| state < PartState::Prepared);
        // It would be said of bytes that are right now.
        let unsaid = self.own_copy().is_some_and(|own| own.map.wrong_bytes.is_some());
        let unwritten = absent || damaged || unsaid;
        let mut outcome =
            if absent { self.begin_anew(record, part).map_err(RedundancyError::from) } else { Ok(()) };
        let anew = job.any(changed || unwritten)?;
        if anew {
            let kept = self.on.schemes.exchange_records(job, record)?;
            let prepared = kept.and_then(|kept| Ok(self.write_prepared(record, part, &kept)?));
            outcome = outcome.and(prepared);
        }
        job.agree(outcome)?;
        self.begun = false;
        let says = if anew { Some(PartState::Prepared) } else { mine };
        job.agree(self.record_end(part, says))
    }

    /// Notes how it ended, where the filemap does not say so already. A device that can only be read still gives a whole
    /// dataset: the next run finds out again that it is complete.
    fn record_end(&mut self, part: &PartDir, says: Option<PartState>) -> Result<(), FsError> {
        if says < Some(PartState::Complete) {
            let noted = self.append(part, &Entry::Complete);
            noted.unwrap_or_else(|error| self.on.job.report.warn_here(&scr_base::describe(&error)));
        }
        if self.refused && says < Some(PartState::Refused) {
            self.append(part, &Entry::Refused)?;
        }
        Ok(())
    }

    /// Records that the part is prepared: at the end of its filemap, or in a new one if the old one is damaged, since nothing
    /// after the damage would be read.
    fn write_prepared(
        &mut self,
        record: &RankRecord,
        part: &PartDir,
        kept: &[RankRecord],
    ) -> Result<(), FsError> {
        let entry = Entry::Prepared(record, kept);
        let is_damaged = self.replaces || self.own_copy().is_some_and(|own| own.map.damaged);
        if self.begun || !is_damaged {
            return self.append(part, &entry);
        }
        let files = self.on.job.files();
        self.journal = Some(retried(files, |_| Journal::replace(files, &part.filemap(), &entry))?);
        Ok(())
    }

    /// The local copy of this rank's own part.
    fn own_copy(&self) -> Option<&'a LocalPart> {
        self.local_copy(self.on.job.rank(), self.record)
    }

    /// A copy of a rank's part with this record, or else the best one. A node may have two copies, with other records, and one of
    /// them may not be whole.
    fn local_copy(&self, owner: Rank, record: Option<&RankRecord>) -> Option<&'a LocalPart> {
        let copies = self.local.iter().copied().filter(|local| local.owner == owner);
        copies.max_by_key(|local| (local.map.record.as_ref() == record, local.quality()))
    }

    /// The part that a rank asks for. The bytes that are sent are those that it waits for, whatever lies here: those that are
    /// missing count as unreadable.
    fn asked(&self, by: Rank, (record, bare): (RankRecord, bool)) -> Moving {
        let part = match self.local_copy(by, Some(&record)) {
            Some(copy) => copy.part.clone(),
            None => self.on.cache.part_of(&record),
        };
        Moving { rank: by, part, record, bare }
    }

    /// The place of this rank's part, present or future: where it lies already, though that may be the folder of another node on
    /// a path that all see, or else in this node's.
    fn place(&mut self, record: &RankRecord) -> PartDir {
        let (on, own) = (self.on, self.own_copy());
        let found = self.place.get_or_insert_with(|| {
            let free = || on.cache.place_for(on.job, record);
            own.map_or_else(free, |own| Ok(own.part.clone())).unwrap_or_else(|error| {
                on.job.report.error_here(&scr_base::describe(&error));
                on.cache.part_of(record)
            })
        });
        found.clone()
    }

    fn append(&mut self, part: &PartDir, entry: &Entry<'_>) -> Result<(), FsError> {
        let (files, path) = (self.on.job.files(), part.filemap());
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => retried(files, |_| Journal::reopen(files, &path))?,
        };
        // After an error it is as it was before.
        let written = journal.append(files, entry).at("write", &path);
        self.journal = Some(journal);
        written
    }

    /// Makes this rank's part ready to be filled. Files that may be the part itself stay until every byte of it is rebuilt: the
    /// dataset may still turn out to have lost too much.
    fn begin_anew(&mut self, record: &RankRecord, part: &PartDir) -> Result<(), FsError> {
        let files = self.on.job.files();
        if !self.begun && !self.replaces {
            match self.occupant(record, part)? {
                Occupant::Part => (),
                Occupant::Unknown => self.replaces = true,
                Occupant::None => self.begun = true,
            }
        }
        // An attempt before may have failed halfway.
        if self.begun && self.journal.is_none() {
            let begin = || Journal::begin_part(files, part, &Entry::Arriving(record));
            self.journal = Some(retried(files, |_| part.clear(files).and_then(|()| begin()))?);
        }
        // Its folder may be what is lost.
        part.make_data(files)
    }

    /// Looks at what lies where this rank's part is to be.
    fn occupant(&self, record: &RankRecord, part: &PartDir) -> Result<Occupant, FsError> {
        let arrives = self.copy.is_some_and(|copy| copy.holder != record.rank);
        let map = match Filemap::read(self.on.job.files(), part) {
            Err(error) if error.is_not_found() => return Ok(Occupant::None),
            // The files that arrive have the names of those that are there.
            Err(error) if arrives => return Err(error),
            Err(_) => return Ok(Occupant::Unknown),
            Ok(map) => map,
        };
        let Some(other) = &map.record else {
            return Ok(if arrives { Occupant::None } else { Occupant::Unknown });
        };
        let (key, own) = (DatasetKey::of(other), DatasetKey::of(record));
        let is_lost = self.lost.is_some_and(|lost| lost.contains(&key));
        if Owner::in_job(other, self.on.job) != Owner::This || key > own && !is_lost {
            return Err(FsError::Occupied { path: part.filemap(), by: other.label() });
        }
        Ok(match map {
            _ if key != own || arrives => Occupant::None,
            Filemap { damaged: true, .. } => Occupant::Unknown,
            Filemap { state, .. } if state < PartState::Prepared => Occupant::None,
            _ => Occupant::Part,
        })
    }

    /// Whether this is the record of a fetch in place. Cache has none of its bytes, so without those in the prefix directory it
    /// would only hide older parts of the same checkpoint on other nodes. A refusal stays recorded. Collective.
    fn is_spent_fetch(&self) -> Result<bool, CommError> {
        let is_fetched = |record: &RankRecord| record.protection.bypass && record.is_fetched();
        let fetched = self.on.job.any(self.record.is_some_and(is_fetched))?;
        Ok(fetched && !self.refused && !self.on.is_shared)
    }

    /// Records in the filemap that this rank's part has wrong bytes, as it stays and nobody has repaired it: commands compare
    /// lengths only. The filemap of another copy says nothing of that, and the next run compares the bytes again.
    fn record_wrong_bytes(&self) {
        let job = self.on.job;
        let is_own = !self.begun && self.copy.is_some_and(|copy| copy.holder == job.rank());
        let in_cache = self.record.is_some_and(|record| !record.protection.bypass);
        let Some((lost, own)) = self.wrong_bytes.get().zip(self.own_copy()) else { return };
        let (files, path) = (job.files(), own.part.filemap());
        let is_known = own.map.wrong_bytes >= Some(lost);
        if !is_own || !in_cache || is_known || own.map.damaged || Journal::is_held(files, &path) {
            return;
        }
        let entry = Entry::WrongBytes { in_files: lost == Lost::Data };
        let written = Journal::add(files, &own.part, &[entry]);
        written.unwrap_or_else(|error| job.report.warn_here(&scr_base::describe(&error)));
    }

    /// Takes back what was begun and did not become whole.
    fn give_up(&mut self) {
        let Some(record) = self.record.filter(|_| self.begun) else { return };
        self.journal = None;
        let part = self.place(record);
        self.on.job.report_failed(part.remove(self.on.job.files()));
    }
}

/// How many times to ask for a part that does not come.
const MOST_TRIES: u32 = 3;
