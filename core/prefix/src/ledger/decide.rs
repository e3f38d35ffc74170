//! Whether a request may be, and what happens then: the one decision about the life of datasets.
//!
//! It is pure: the same ledger, facts and request give the same answer. Two rules go through all of it.
//!
//! - **Newer by [`Seq`] wins.** A dataset never takes a name or a file from a newer one that is complete or under way. One that
//!   the application refused, or that somebody has gone back over, does not take its name from a complete one either. Output of
//!   another name does not take a file from a checkpoint that a job can restart from.
//! - **To begin takes nothing away.** An older dataset keeps its name until the newer one is about to give files theirs. From then
//!   on the older one is lost, even if the newer one is taken back: some of its files may have been replaced. If the application
//!   writes in place, the older one keeps its entry, and loses only the files that both have: [`doubt`](super::doubt) says which
//!   of them still count.
//!
//! | what happens | request |
//! |---|---|
//! | a run begins, and wants numbers | `BeginRun`, `Reserve`, `GiveBack` |
//! | a dataset is to be flushed, is written in place, is saved from caches | `Begin`, `BeginInPlace`, `List` |
//! | all its bytes have arrived: names, then the entry that counts | `TakeNames`, `Complete`; for one that is whole already `ListWhole` |
//! | a process ends a flush that it finds: [`ending`](super::ending) says what it asks for | `NameAgain`, `TakeBack`, `Release`, `Confirm` |
//! | a run reads files where they lie | `Hold`, `Release`; whoever wants the names or the files asks `Facts::is_read` |
//! | `SCR_Drop`, `scr index --drop`, `--drop-after` (`These`), `SCR_DROP_AFTER_CURRENT` (`CheckpointsAfter`) | `Withdraw` first, then `Drop`: [`Leave`](super::Leave). It lasts until somebody lists the dataset again. While another run reads its files in place, both are refused; one that is withdrawn and still listed counts |
//! | `SCR_Delete`, `scr index --delete` | `Withdraw`, then `BeginDeletion`, `EndDeletion` |
//! | `SCR_PREFIX_SIZE`: [`window`](super::window) says which are too many | `BeginDeletion`, `EndDeletion` |
//! | `SCR_PREFIX_PURGE`: output does not come back from a cache | `Purge`, then as for deletion |
//! | the user goes back to an older checkpoint | `GoBack`, `MakeCurrent` |
//! | a copy was read, could not be read, or the application could not use it | `Fetched`, `Fail`, `Refuse` |
//!
//! What a run that is dead was writing or reading holds nobody up: `Facts` look whether it may still run.

use super::{
    By, Dropping, Event, Facts, Ledger, Life, MakeCurrent, Recorded, Refusal, Request, Verdict, Whose,
};
use crate::{DatasetDescriptor, FlushProgress, Index, IndexEntry, PrefixId, Seq, Withdrawal};
use std::collections::BTreeSet;

/// Decides a request. See the [module](super).
pub(crate) fn decide(ledger: &Ledger, facts: &Facts, request: &Request<'_>) -> Verdict {
    let (index, decision) = (ledger.index(), Decision { ledger, facts });
    match *request {
        Request::BeginRun { seen } => commit(begin_run(ledger, seen)),
        Request::Reserve { at_least, count } => {
            let first = ledger.next_id().max(at_least);
            commit([Event::NextId { first, next: first.saturating_add(count) }])
        }
        Request::GiveBack { next, end } => {
            commit((ledger.next_id() == end).then_some(Event::NextId { first: next, next }))
        }
        Request::Begin(dataset) => decision.begin(dataset),
        Request::List(dataset) => decision.list(dataset),
        Request::BeginInPlace(dataset) => decision.begin_in_place(dataset),
        Request::TakeNames { dataset, by, closer } => decision.take_names(dataset, by, closer),
        Request::Complete { dataset, by, closer, make_current, now } => {
            decision.complete(dataset, by, closer, make_current, now)
        }
        Request::ListWhole { dataset, make_current, now } => decision.list_whole(dataset, make_current, now),
        Request::NameAgain { dataset, by } => decision.name_again(dataset, by),
        Request::TakeBack { dataset, by, even_if_taken } => take_back(index, dataset, by, even_if_taken),
        Request::Release(Whose::Ended(by)) if facts.recorded(by) == Recorded::UnderWay => commit(None),
        Request::Release(whose) => commit(release(index, whose)),
        Request::Hold { id, name, run } => match index.is_whole(id, name) {
            true => commit([Event::Held { id, run }]),
            false => Verdict::Refused(Refusal::Ended { id }),
        },
        Request::Drop { which, run } => decision.drop(which, run),
        Request::Withdraw { seqs, which, alone, before } => {
            let meant =
                index.entries().into_iter().filter(|entry| which.is_some_and(|which| which.means(entry)));
            let all: Vec<Seq> = meant.map(|entry| entry.seq()).chain(seqs.iter().copied()).collect();
            let before = before.map(|run| all.iter().copied().fold(Seq { run, id: 0 }, Seq::max));
            let name = which.and_then(|which| which.name().map(<[u8]>::to_vec));
            let named = name.zip(before).map(|(name, before)| Event::NameWithdrawn { name, before });
            commit(withdraw(ledger, &all, Withdrawal::Removed, alone).into_iter().chain(named))
        }
        Request::GoBack(over) => commit([Event::WentBack(over)]),
        Request::Purge(ids) => commit(ids.iter().map(|&id| Event::Purged(id))),
        Request::Attempt(of) => commit([Event::Attempted(of.map(|(id, name)| (id, name.to_owned())))]),
        Request::BeginDeletion { id, run } => match index.entry(id) {
            Some(entry) if facts.is_read(&entry, run) => Verdict::Refused(Refusal::InUse { id }),
            _ => commit([Event::Replaced(id), Event::Took { id, by: By::Deletion, closer: None }]),
        },
        Request::EndDeletion { id } => end_deletion(index, id),
        Request::Fetched { seq, name, make_current, now } => fetched(index, seq, name, make_current, now),
        Request::Fail { id, name, now } => match name.is_none_or(|name| index.is_whole(id, name)) {
            true => commit(failed(index, id, now)),
            false => Verdict::Refused(Refusal::Ended { id }),
        },
        Request::Refuse { seq, is_listed, alone, now } => refuse(ledger, seq, is_listed, alone, now),
        Request::MakeCurrent(name) => commit(index.id_of(name).map(|_| Event::Current(name.to_owned()))),
        Request::Confirm => commit(None),
    }
}

/// A ledger, and the facts about it.
struct Decision<'a> {
    ledger: &'a Ledger,
    facts: &'a Facts,
}

/// The other datasets beside one that wants its name and its files.
#[derive(Default)]
struct Rivals {
    /// A newer one that has the name or a file.
    newer: Option<u64>,
    /// An older flush whose files may be getting the same names just now.
    before: Option<By>,
    /// One whose files another run reads where they lie.
    held: Option<u64>,
    /// An older one of its name that is complete.
    older: Option<u64>,
    /// Complete ones of other names with a file of it: once that is replaced, they are not whole any more.
    replaces: Vec<u64>,
    /// One of these that a job can restart from, where this one is output.
    keeps: Option<u64>,
}

impl Decision<'_> {
    fn begin(&self, dataset: &DatasetDescriptor) -> Verdict {
        match self.rivals(dataset, None) {
            Err(refusal) => Verdict::Refused(refusal),
            Ok(Rivals { newer: Some(newer), .. }) => Verdict::Refused(Refusal::Superseded { newer }),
            Ok(Rivals { keeps: Some(id), .. }) => Verdict::Refused(Refusal::RestartPoint { id }),
            Ok(_) => self.list(dataset),
        }
    }

    /// An older dataset that is complete, or has taken the name, keeps it meanwhile: not a file of it has been touched.
    fn list(&self, dataset: &DatasetDescriptor) -> Verdict {
        let index = self.ledger.index();
        if let Some(refusal) = self.other_of_number(dataset) {
            return Verdict::Refused(refusal);
        }
        let owner = index.id_of(&dataset.name).and_then(|id| index.entry(id));
        let is_free = |owner: &IndexEntry| !owner.is_valid() && owner.taken.is_none();
        let is_listed = owner.is_none_or(|owner| is_free(&owner) && owner.seq() <= index.seq_of(dataset));
        commit(is_listed.then(|| listed(index, dataset)).into_iter().flatten())
    }

    /// Which files it will write is not known. So all flushes end first that could give one of them its name.
    fn begin_in_place(&self, dataset: &DatasetDescriptor) -> Verdict {
        if let Some(refusal) = self.other_of_number(dataset) {
            return Verdict::Refused(refusal);
        }
        for other in self.ledger.index().entries().iter().filter(|entry| entry.id != dataset.id) {
            // Datasets of one name usually have the same files, and nothing keeps an application from writing to them.
            let is_rival = other.name == dataset.name && other.seq().run != dataset.run;
            match self.facts.life(other) {
                Life::UnderWay(By::Application) if is_rival => {
                    return Verdict::Refused(Refusal::Written { id: other.id });
                }
                Life::UnderWay(By::Application) | Life::Over => (),
                Life::UnderWay(by) => return Verdict::After(by.clone()),
                Life::Whole if is_rival && other.seq() > dataset.seq() => {
                    return Verdict::Refused(Refusal::Superseded { newer: other.id });
                }
                Life::Whole => (),
            }
        }
        commit(self.took(dataset, &By::Application, None))
    }

    fn take_names(&self, dataset: &DatasetDescriptor, by: &By, closer: Option<&str>) -> Verdict {
        let (index, is_flush) = (self.ledger.index(), *by != By::Application);
        let replaces = match self.turn(dataset, Some(by)) {
            Err(verdict) => return verdict,
            Ok(replaces) => replaces,
        };
        let ended = Verdict::Refused(Refusal::Ended { id: dataset.id });
        // To save it from cache all the same is what somebody asked for.
        if self.withdrawal(dataset) == Some(Withdrawal::Removed) && !by.is_saving() {
            return ended;
        }
        if is_flush {
            // Also one whose dataset was refused since. A dataset that was saved from a cache is built more than once.
            let progress = index.progress(dataset, by);
            let is_ended = matches!(progress, FlushProgress::Ended { counts } if counts || !by.is_saving());
            let is_others = closer.is_none() && index.closer(dataset.id, by).is_some();
            if is_ended || is_others || self.facts.recorded(by) != Recorded::UnderWay {
                return ended;
            }
        }
        commit(self.took(dataset, by, closer).into_iter().chain(replaces.into_iter().map(Event::Replaced)))
    }

    fn name_again(&self, dataset: &DatasetDescriptor, by: &By) -> Verdict {
        let counts = self.ledger.index().progress(dataset, by).counts();
        // Another process may have finished it, and then nobody would do so again.
        let is_due = counts && self.facts.recorded(by) == Recorded::UnderWay;
        commit(is_due.then(|| self.took(dataset, by, None)).into_iter().flatten())
    }

    /// A dataset that is written in place may have files of its own. So it has its name beside an older dataset that is complete,
    /// and that one has lost no more than the files that they share.
    fn took(&self, dataset: &DatasetDescriptor, by: &By, closer: Option<&str>) -> Vec<Event> {
        let index = self.ledger.index();
        let owner = index.id_of(&dataset.name).filter(|&id| id != dataset.id);
        let is_valid = owner.and_then(|id| index.entry(id)).is_some_and(|owner| owner.is_valid());
        let mut events = match *by == By::Application && is_valid {
            true => vec![Event::Listed(dataset.clone())],
            false => listed(index, dataset),
        };
        events.push(Event::Took { id: dataset.id, by: by.clone(), closer: closer.map(str::to_owned) });
        events
    }

    fn complete(
        &self,
        dataset: &DatasetDescriptor,
        by: &By,
        closer: Option<&str>,
        make_current: MakeCurrent,
        now: &str,
    ) -> Verdict {
        let index = self.ledger.index();
        let is_taken = match index.progress(dataset, by) {
            // Another process has closed it too, and was first.
            FlushProgress::Ended { counts: true } => return commit(None),
            progress => progress == FlushProgress::Taken,
        };
        let is_its_own = is_taken && index.closer(dataset.id, by) == closer;
        if is_its_own && (*by == By::Application || self.facts.recorded(by) == Recorded::UnderWay) {
            // Output has to arrive, also where the application could not restart from it. To save it from cache is what somebody
            // asked for.
            if !self.is_refused(dataset) || by.is_saving() {
                return commit(completed(index, dataset, Some(by), make_current, now));
            }
            let failed = Event::Failed { id: dataset.id, at: now.to_owned() };
            let current = (index.current() == Some(&dataset.name)).then_some(Event::NoCurrent);
            let completed = completed(index, dataset, Some(by), MakeCurrent::Never, now);
            return commit(completed.into_iter().chain([failed]).chain(current));
        }
        Verdict::Refused(match closer {
            // The one that has the lock by now closes it.
            Some(_) if is_taken && !is_its_own => Refusal::OtherCloser,
            _ => Refusal::Ended { id: dataset.id },
        })
    }

    fn list_whole(&self, dataset: &DatasetDescriptor, make_current: MakeCurrent, now: &str) -> Verdict {
        match self.turn(dataset, None) {
            Err(verdict) => verdict,
            Ok(replaces) => {
                let completed = completed(self.ledger.index(), dataset, None, make_current, now);
                commit(replaces.into_iter().map(Event::Replaced).chain(completed))
            }
        }
    }

    fn drop(&self, which: Dropping<'_>, run: u64) -> Verdict {
        let index = self.ledger.index();
        let (meant, others): (Vec<IndexEntry>, Vec<IndexEntry>) =
            index.entries().into_iter().partition(|entry| which.means(entry));
        let by_name = !matches!(which, Dropping::CheckpointsAfter(_));
        for entry in meant.iter().filter(|_| by_name) {
            if self.facts.is_read(entry, run) {
                return Verdict::Refused(Refusal::InUse { id: entry.id });
            }
            // It gives files their names until it is taken back.
            if let Life::UnderWay(by @ (By::Flush(_) | By::Saving(_))) = self.facts.life(entry) {
                return Verdict::After(by.clone());
            }
        }
        // One that was begun since they were withdrawn may be in a cache.
        let withdrawn = meant.iter().filter(|_| by_name);
        let withdrawn =
            withdrawn.map(|entry| Event::Withdrawn { seq: entry.seq(), why: Withdrawal::Removed });
        let ids: Vec<u64> = meant.iter().rev().map(|entry| entry.id).collect();
        // It may lead to a dataset that is not listed, or to one that keeps it.
        let is_kept = |name: &[u8]| others.iter().any(|entry| entry.name == name);
        let is_there = |name: &[u8]| index.id_of(name).is_some() || !ids.is_empty();
        let name = which.name().filter(|name| is_there(name) && !is_kept(name));
        commit(withdrawn.chain(left(index, &ids, name)))
    }

    /// The datasets that lose a file to this one, if it is its turn. A run cannot read files in place any more that another one
    /// writes in place: only a flush can still wait for it.
    fn turn(&self, dataset: &DatasetDescriptor, by: Option<&By>) -> Result<Vec<u64>, Verdict> {
        let is_flush = by.is_some_and(|by| *by != By::Application);
        let is_saving = by.is_some_and(By::is_saving);
        match self.rivals(dataset, by).map_err(Verdict::Refused)? {
            Rivals { newer: Some(newer), .. } => Err(Verdict::Refused(Refusal::Superseded { newer })),
            Rivals { older: Some(newer), .. } if is_flush && !is_saving && self.is_refused(dataset) => {
                Err(Verdict::Refused(Refusal::Superseded { newer }))
            }
            Rivals { keeps: Some(id), .. } if is_flush => Err(Verdict::Refused(Refusal::RestartPoint { id })),
            Rivals { held: Some(id), .. } if is_flush => Err(Verdict::Refused(Refusal::InUse { id })),
            Rivals { before: Some(by), .. } => Err(Verdict::After(by)),
            Rivals { replaces, .. } => Ok(replaces),
        }
    }

    fn rivals(&self, dataset: &DatasetDescriptor, by: Option<&By>) -> Result<Rivals, Refusal> {
        let index = self.ledger.index();
        if let Some(refusal) = self.other_listed(dataset) {
            return Err(refusal);
        }
        let (mut rivals, own) = (Rivals::default(), index.seq_of(dataset));
        for other in index.entries() {
            let life = self.facts.life(&other);
            if other.id == dataset.id {
                // Another job may be deleting the files of an earlier flush of it, or another process be giving them their names:
                // they are to be files of this flush.
                let before = match life {
                    Life::Over => other.taken.as_ref().filter(|&taken| *taken == By::Deletion),
                    Life::UnderWay(taken) => {
                        Some(taken).filter(|&taken| *taken != By::Application && Some(taken) != by)
                    }
                    Life::Whole => None,
                };
                rivals.before = rivals.before.or(before.cloned());
                continue;
            }
            let is_named_so = other.name == dataset.name;
            if life == Life::Over || !is_named_so && !self.facts.sharing.contains(&other.id) {
                continue;
            }
            match life {
                // However old it is: a file that is deleted must not be one of this dataset.
                Life::UnderWay(By::Deletion) => rivals.before = Some(By::Deletion),
                _ if other.seq() > own => {
                    rivals.newer = rivals.newer.max(Some(other.id));
                }
                Life::UnderWay(By::Application) | Life::Over => (),
                Life::UnderWay(by) => rivals.before = Some(by.clone()),
                Life::Whole => {
                    rivals.held = self.facts.is_read(&other, dataset.run).then_some(other.id).or(rivals.held);
                    rivals.older = is_named_so.then_some(other.id).or(rivals.older);
                    rivals.replaces.extend((!is_named_so).then_some(other.id));
                    let keeps = !is_named_so && !dataset.checkpoint && other.is_candidate();
                    rivals.keeps = keeps.then_some(other.id).or(rivals.keeps);
                }
            }
        }
        Ok(rivals)
    }

    /// Two datasets may have been given one number: where it could not be reserved, or the numbers were lost. Entry and lists go
    /// by the number, so one that counts or is under way is not replaced by another dataset.
    fn other_listed(&self, dataset: &DatasetDescriptor) -> Option<Refusal> {
        let found = self.ledger.index().entry(dataset.id)?;
        let is_same = match &found.dataset {
            Some(known) => known.is_same(dataset),
            None => found.name == dataset.name,
        };
        let stays = !is_same && self.facts.life(&found) != Life::Over;
        stays.then_some(Refusal::NumberTaken { id: dataset.id, name: found.name })
    }

    /// The same also where the other dataset has not taken its name yet: its flush is on record.
    fn other_of_number(&self, dataset: &DatasetDescriptor) -> Option<Refusal> {
        let recorded = || self.facts.of_number.clone();
        let other = || Some(Refusal::NumberTaken { id: dataset.id, name: recorded()? });
        self.other_listed(dataset).or_else(other)
    }

    fn is_refused(&self, dataset: &DatasetDescriptor) -> bool {
        self.withdrawal(dataset) == Some(Withdrawal::Refused)
    }

    /// Why a copy of it in a cache does not count.
    fn withdrawal(&self, dataset: &DatasetDescriptor) -> Option<Withdrawal> {
        let seq = self.ledger.index().seq_of(dataset);
        self.ledger.withdrawn().why(seq, &dataset.name, dataset.if_gone_back_over())
    }
}

/// A dataset is listed that is not complete. Other datasets of its name are not complete from then on, since one name stands for
/// one set of files.
pub fn listed(index: &Index, dataset: &DatasetDescriptor) -> Vec<Event> {
    let others = index.others_named(&dataset.name, dataset.id).into_iter().map(Event::Replaced);
    [Event::Listed(dataset.clone())].into_iter().chain(others).chain([named(dataset)]).collect()
}

fn named(dataset: &DatasetDescriptor) -> Event {
    Event::Named { name: dataset.name.clone(), id: dataset.id }
}

/// Datasets leave the index, and with them each name that is theirs, and `name`.
pub fn left(index: &Index, ids: &[u64], name: Option<&[u8]>) -> Vec<Event> {
    let owned = ids.iter().filter_map(|&id| index.entry(id)).map(|entry| (entry.id, entry.name));
    let owned = owned.filter(|(id, name)| index.id_of(name) == Some(*id)).map(|(_, name)| name);
    let names: BTreeSet<_> = owned.chain(name.map(<[u8]>::to_vec)).collect();
    let current = index.current().filter(|current| names.contains(*current)).map(|_| Event::NoCurrent);
    let mut events = entries_left(index, ids);
    events.extend(names.into_iter().map(Event::NameLeft).chain(current));
    events
}

/// It stays known which of the datasets were begun and never complete: they may have replaced files of older ones.
fn entries_left(index: &Index, ids: &[u64]) -> Vec<Event> {
    let is_begun = |entry: &IndexEntry| !entry.complete && entry.flushed.is_none();
    let begun = ids.iter().filter_map(|&id| index.entry(id)).filter(is_begun);
    let begun = begun.map(|entry| Event::BegunLeft { seq: entry.seq(), is_recorded: entry.is_of_scr() });
    begun.chain(ids.iter().map(|&id| Event::Left(id))).collect()
}

fn begin_run(ledger: &Ledger, seen: u64) -> Vec<Event> {
    let index = ledger.index();
    let last = ledger.last_run().max(seen);
    let prefix = ledger.prefix_id().unwrap_or_else(PrefixId::random);
    let marked = index.wants_mark(&prefix, last).then(|| Event::Marked { prefix: prefix.clone(), last });
    [Event::RunBegan { number: last.saturating_add(1), prefix, last }].into_iter().chain(marked).collect()
}

/// Other datasets of its name leave the index.
pub(super) fn completed(
    index: &Index,
    dataset: &DatasetDescriptor,
    by: Option<&By>,
    make_current: MakeCurrent,
    now: &str,
) -> Vec<Event> {
    let becomes_current = match make_current {
        MakeCurrent::Never => false,
        MakeCurrent::IfNewest => index.newer_candidates(index.seq_of(dataset)).is_empty(),
        MakeCurrent::Always => true,
    };
    let completed = Event::Completed { dataset: dataset.clone(), by: by.cloned(), at: now.to_owned() };
    let current = becomes_current.then(|| Event::Current(dataset.name.clone()));
    let others = entries_left(index, &index.others_named(&dataset.name, dataset.id));
    others.into_iter().chain([completed, named(dataset)]).chain(current).collect()
}

fn fetched(index: &Index, seq: Seq, name: &[u8], make_current: bool, now: &str) -> Verdict {
    if !index.is_whole(seq.id, name) {
        return Verdict::Refused(Refusal::Ended { id: seq.id });
    }
    let becomes_current = make_current && !index.is_newer_current(seq);
    let current = becomes_current.then(|| Event::Current(name.to_owned()));
    commit([Event::Fetched { id: seq.id, at: now.to_owned() }].into_iter().chain(current))
}

fn withdraw(ledger: &Ledger, seqs: &[Seq], why: Withdrawal, alone: Option<u64>) -> Vec<Event> {
    let alone = alone.filter(|&run| ledger.ids.last_run() == run);
    let all = seqs.iter().filter(|seq| Some(seq.run) != alone);
    all.map(|&seq| Event::Withdrawn { seq, why }).collect()
}

fn refuse(ledger: &Ledger, seq: Seq, is_listed: bool, alone: Option<u64>, now: &str) -> Verdict {
    // A newer one in cache may have its name, and no run has flushed that one.
    let is_it = ledger.index().entry(seq.id).is_some_and(|entry| entry.seq() == seq);
    let failed = if is_listed || is_it { failed(ledger.index(), seq.id, now) } else { Vec::new() };
    let withdrawn = withdraw(ledger, &[seq], Withdrawal::Refused, alone);
    commit(withdrawn.into_iter().chain(failed))
}

/// It is current no more.
fn failed(index: &Index, id: u64, now: &str) -> Vec<Event> {
    let is_current = index.entry(id).is_some_and(|entry| entry.current);
    let failed = Event::Failed { id, at: now.to_owned() };
    is_current.then_some(Event::NoCurrent).into_iter().chain([failed]).collect()
}

fn take_back(index: &Index, dataset: &DatasetDescriptor, by: &By, even_if_taken: bool) -> Verdict {
    match index.progress(dataset, by) != FlushProgress::NotTaken && !even_if_taken {
        true => Verdict::Refused(Refusal::Ended { id: dataset.id }),
        // Its names are not free before its staging files are gone: a rank of its job may be about to rename one.
        false => commit([Event::Revoked(by.clone())]),
    }
}

fn end_deletion(index: &Index, id: u64) -> Verdict {
    match index.entry(id) {
        None if !index.has(id) => commit(None),
        _ if index.is_taken_by(id, &By::Deletion) => commit(left(index, &[id], None)),
        _ => Verdict::Refused(Refusal::OtherCloser),
    }
}

fn release(index: &Index, whose: Whose) -> Vec<Event> {
    let taken = |by: &By, only: Option<u64>| {
        let is_meant = |id: &u64| index.is_taken_by(*id, by) && only.is_none_or(|only| only == *id);
        index.ids().into_iter().filter(is_meant).map(Event::Released).collect::<Vec<_>>()
    };
    let readers = |only: Option<u64>| {
        let runs = index.readers().into_iter().filter(move |&run| only.is_none_or(|only| only == run));
        runs.map(|run| Event::LetGo { run }).collect::<Vec<_>>()
    };
    match whose {
        Whose::Writer(id) => taken(&By::Application, Some(id)),
        Whose::Reader(run) => readers(Some(run)),
        Whose::Ended(by) => taken(by, None),
        Whose::Earlier { writers: false } => readers(None),
        Whose::Earlier { writers: true } => {
            readers(None).into_iter().chain(taken(&By::Application, None)).collect()
        }
    }
}

fn commit(events: impl IntoIterator<Item = Event>) -> Verdict {
    Verdict::Commit(events.into_iter().collect())
}

impl<'a> Dropping<'a> {
    /// The name that they have.
    pub(super) fn name(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Named(name) | Self::These { name, .. } => Some(name),
            Self::CheckpointsAfter(_) => None,
        }
    }

    /// Whether this dataset is one of them.
    pub fn means(&self, entry: &IndexEntry) -> bool {
        match *self {
            Self::Named(name) => entry.name == name,
            Self::These { name, seqs } => entry.name == name && seqs.contains(&entry.seq()),
            Self::CheckpointsAfter(seq) => entry.seq() > seq && entry.is_checkpoint(),
        }
    }

    /// The same for one that need not be listed.
    pub fn means_described(&self, dataset: &DatasetDescriptor) -> bool {
        match *self {
            Self::Named(name) => dataset.name == name,
            Self::These { name, seqs } => dataset.name == name && seqs.contains(&dataset.seq()),
            Self::CheckpointsAfter(seq) => dataset.seq() > seq && dataset.checkpoint,
        }
    }
}
