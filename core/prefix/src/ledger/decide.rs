//! Whether a request may be, and what happens then: the one decision about the life of datasets.
//!
//! It is pure: the same ledger, facts and request give the same answer. Two rules go through all of it.
//!
//! - **Newer by [`Seq`] wins.** A dataset never takes a name or a file from a newer one that is complete or under way.
//! - **To begin takes nothing away.** An older dataset keeps its name until the newer one is about to give files theirs.

use super::{Dropping, Event, Facts, Ledger, MakeCurrent, Recorded, Refusal, Request, Verdict, Whose, SAVED};
use crate::{
    DatasetDescriptor, FlushProgress, Index, IndexEntry, PrefixId, Seq, Withdrawal, DELETION, IN_PLACE,
};
use scr_base::planted::{planted, Bug};

/// Decides a request. See the [module](super).
///
/// # Errors
/// A fact could not be found out.
pub(crate) fn decide<F: Facts>(
    ledger: &Ledger,
    facts: &mut F,
    request: &Request<'_>,
) -> Result<Verdict, F::Error> {
    let (index, mut decision) = (ledger.index(), Decision { ledger, facts });
    Ok(match *request {
        Request::BeginRun { seen } => commit(begin_run(ledger, seen)),
        Request::Reserve { at_least, count } => {
            let first = ledger.next_id().max(at_least);
            commit([Event::NextId { first, next: first.saturating_add(count) }])
        }
        Request::GiveBack { next, end } => {
            commit((ledger.next_id() == end).then_some(Event::NextId { first: next, next }))
        }
        Request::Begin(dataset) => return decision.begin(dataset),
        Request::List(dataset) => return decision.list(dataset),
        Request::BeginInPlace(dataset) => return decision.begin_in_place(dataset),
        Request::TakeNames { dataset, by, closer } => return decision.take_names(dataset, by, closer),
        Request::Complete { dataset, by, closer, make_current, now } => {
            return decision.complete(dataset, by, closer, make_current, now)
        }
        Request::ListWhole { dataset, make_current, now } => {
            return decision.list_whole(dataset, make_current, now)
        }
        Request::NameAgain { dataset, by } => return decision.name_again(dataset, by),
        Request::TakeBack { dataset, by, even_if_taken } => take_back(index, dataset, by, even_if_taken),
        Request::Release(Whose::Flush(by)) if decision.facts.recorded(by)? == Recorded::UnderWay => {
            commit(None)
        }
        Request::Release(whose) => commit(release(index, whose)),
        Request::Hold { id, name, run } => match index.is_whole(id, name) {
            true => commit([Event::Held { id, run }]),
            false => Verdict::Refused(Refusal::Ended { id }),
        },
        Request::Drop { which, run } => return decision.drop(which, run),
        Request::Withdraw { seqs, which, alone } => {
            commit(withdraw(ledger, seqs, which, Withdrawal::Removed, alone))
        }
        Request::GoBack(over) => commit([Event::WentBack(over)]),
        Request::Purge(ids) => commit(ids.iter().map(|&id| Event::Purged(id))),
        Request::BeginDeletion { id, run } => match decision.held(index.entry(id), run)? {
            Some(id) => Verdict::Refused(Refusal::InUse { id }),
            None => commit([Event::DeletionBegan(id)]),
        },
        Request::EndDeletion { id } => end_deletion(index, id),
        Request::Fetched { seq, name, make_current, now } => fetched(index, seq, name, make_current, now),
        Request::Fail { id, name, now } => match name.is_none_or(|name| index.is_whole(id, name)) {
            true => commit([Event::Failed { id, at: now.to_owned() }]),
            false => Verdict::Refused(Refusal::Ended { id }),
        },
        Request::Refuse { seq, is_listed, alone, now } => refuse(ledger, seq, is_listed, alone, now),
        Request::MakeCurrent(name) => commit(index.id_of(name).map(|_| Event::Current(name.to_owned()))),
        Request::Confirm => commit(None),
    })
}

/// A ledger, and the facts about it.
struct Decision<'a, F> {
    ledger: &'a Ledger,
    facts: &'a mut F,
}

/// The other datasets beside one that wants its name and its files.
#[derive(Default)]
struct Rivals {
    /// A newer one that has the name or a file.
    newer: Option<u64>,
    /// An older flush whose files may be getting the same names just now.
    before: Option<String>,
    /// One whose files another run reads where they lie.
    held: Option<u64>,
    /// Complete ones of other names with a file of it: once that is replaced, they are not whole any more.
    replaces: Vec<u64>,
}

impl<F: Facts> Decision<'_, F> {
    fn begin(&mut self, dataset: &DatasetDescriptor) -> Result<Verdict, F::Error> {
        let rivals = match self.rivals(dataset, None)? {
            Err(refusal) => return Ok(Verdict::Refused(refusal)),
            Ok(rivals) => rivals,
        };
        match rivals.newer {
            Some(newer) => Ok(Verdict::Refused(Refusal::Superseded { newer })),
            None => self.list(dataset),
        }
    }

    /// An older dataset that is complete, or has taken the name, keeps it meanwhile: not a file of it has been touched.
    fn list(&mut self, dataset: &DatasetDescriptor) -> Result<Verdict, F::Error> {
        let index = self.ledger.index();
        if let Some(refusal) = self.other_of_number(dataset)? {
            return Ok(Verdict::Refused(refusal));
        }
        let owner = index.id_of(&dataset.name).and_then(|id| index.entry(id));
        let is_free = |owner: &IndexEntry| !owner.is_valid() && owner.taken.is_none();
        let is_listed = owner.is_none_or(|owner| is_free(&owner) && owner.seq() <= index.seq_of(dataset));
        Ok(commit(is_listed.then(|| Event::Listed(dataset.clone()))))
    }

    /// Which files it will write is not known. So all flushes end first that could give one of them its name.
    fn begin_in_place(&mut self, dataset: &DatasetDescriptor) -> Result<Verdict, F::Error> {
        if let Some(refusal) = self.other_of_number(dataset)? {
            return Ok(Verdict::Refused(refusal));
        }
        for other in self.ledger.index().entries().iter().filter(|entry| entry.id != dataset.id) {
            let under_way = self.under_way(other)?;
            if let Some(token) = under_way.filter(|&by| by != IN_PLACE) {
                return Ok(Verdict::After(token.to_owned()));
            }
            // Datasets of one name usually have the same files, and nothing keeps an application from writing to them.
            let is_rival = other.name == dataset.name && other.seq().run != dataset.run;
            if is_rival && under_way.is_some() {
                return Ok(Verdict::Refused(Refusal::Written { id: other.id }));
            }
            if is_rival && other.is_valid() && other.seq() > dataset.seq() {
                return Ok(Verdict::Refused(Refusal::Superseded { newer: other.id }));
            }
        }
        Ok(commit([took(dataset, IN_PLACE, None)]))
    }

    fn take_names(
        &mut self,
        dataset: &DatasetDescriptor,
        by: &str,
        closer: Option<&str>,
    ) -> Result<Verdict, F::Error> {
        let (index, is_flush) = (self.ledger.index(), by != IN_PLACE);
        let replaces = match self.turn(dataset, Some(by))? {
            Err(verdict) => return Ok(verdict),
            Ok(replaces) => replaces,
        };
        let ended = Verdict::Refused(Refusal::Ended { id: dataset.id });
        // To save it from cache all the same is what somebody asked for.
        let why = self.ledger.withdrawn().why(index.seq_of(dataset), dataset.is_only_checkpoint());
        if why == Some(Withdrawal::Removed) && !by.starts_with(SAVED) {
            return Ok(ended);
        }
        if is_flush && !planted(Bug::NameTakenBeforeCopied) {
            // Also one whose dataset was refused since. A dataset that was saved from a cache is built more than once.
            let progress = index.progress(dataset, by);
            let is_ended =
                matches!(progress, FlushProgress::Ended { counts } if counts || !by.starts_with(SAVED));
            let is_others = closer.is_none() && index.closer(dataset.id, by).is_some();
            if is_ended || is_others || self.facts.recorded(by)? != Recorded::UnderWay {
                return Ok(ended);
            }
        }
        Ok(commit([took(dataset, by, closer)].into_iter().chain(replaces.into_iter().map(Event::Replaced))))
    }

    fn name_again(&mut self, dataset: &DatasetDescriptor, by: &str) -> Result<Verdict, F::Error> {
        let counts = self.ledger.index().progress(dataset, by).counts();
        // Another process may have finished it, and then nobody would do so again.
        let is_due = counts && self.facts.recorded(by)? == Recorded::UnderWay;
        Ok(commit(is_due.then(|| took(dataset, by, None))))
    }

    fn complete(
        &mut self,
        dataset: &DatasetDescriptor,
        by: &str,
        closer: Option<&str>,
        make_current: MakeCurrent,
        now: &str,
    ) -> Result<Verdict, F::Error> {
        let index = self.ledger.index();
        let is_taken = match index.progress(dataset, by) {
            // Another process has closed it too, and was first.
            FlushProgress::Ended { counts: true } => return Ok(commit(None)),
            progress => progress == FlushProgress::Taken,
        };
        let is_its_own = is_taken && index.closer(dataset.id, by) == closer;
        if is_its_own && (by == IN_PLACE || self.facts.recorded(by)? == Recorded::UnderWay) {
            // Output has to arrive, also where the application could not restart from it. To save it from cache is what somebody
            // asked for.
            let why = self.ledger.withdrawn().why(index.seq_of(dataset), dataset.is_only_checkpoint());
            let is_refused = why == Some(Withdrawal::Refused) && !by.starts_with(SAVED);
            let make_current = if is_refused { MakeCurrent::Never } else { make_current };
            let failed = is_refused.then(|| Event::Failed { id: dataset.id, at: now.to_owned() });
            let completed = completed(index, dataset, Some(by), make_current, now);
            return Ok(commit(completed.into_iter().chain(failed)));
        }
        Ok(Verdict::Refused(match closer {
            // The one that has the lock by now closes it.
            Some(_) if is_taken && !is_its_own => Refusal::OtherCloser,
            _ => Refusal::Ended { id: dataset.id },
        }))
    }

    fn list_whole(
        &mut self,
        dataset: &DatasetDescriptor,
        make_current: MakeCurrent,
        now: &str,
    ) -> Result<Verdict, F::Error> {
        Ok(match self.turn(dataset, None)? {
            Err(verdict) => verdict,
            Ok(replaces) => {
                let completed = completed(self.ledger.index(), dataset, None, make_current, now);
                commit(replaces.into_iter().map(Event::Replaced).chain(completed))
            }
        })
    }

    fn drop(&mut self, which: Dropping<'_>, run: u64) -> Result<Verdict, F::Error> {
        let index = self.ledger.index();
        let meant: Vec<IndexEntry> = index.entries().into_iter().filter(|entry| which.means(entry)).collect();
        let by_name = !matches!(which, Dropping::CheckpointsAfter(_));
        for entry in meant.iter().filter(|_| by_name) {
            if let Some(id) = self.held(Some(entry.clone()), run)? {
                return Ok(Verdict::Refused(Refusal::InUse { id }));
            }
            // It gives files their names until it is taken back.
            let by = if entry.is_valid() { None } else { self.under_way(entry)? };
            if let Some(token) = by.filter(|&by| by != IN_PLACE && by != DELETION) {
                return Ok(Verdict::After(token.to_owned()));
            }
        }
        // One that was begun since they were withdrawn may be in a cache.
        let withdrawn = meant.iter().filter(|_| by_name);
        let withdrawn =
            withdrawn.map(|entry| Event::Withdrawn { seq: entry.seq(), why: Withdrawal::Removed });
        let left = withdrawn.chain(meant.iter().rev().map(|entry| Event::Left(entry.id)));
        let name = match which {
            Dropping::Named(name) => {
                Some(name).filter(|name| index.id_of(name).is_some() || !meant.is_empty())
            }
            _ => None,
        };
        Ok(commit(left.chain(name.map(|name| Event::NameLeft(name.to_owned())))))
    }

    /// The datasets that lose a file to this one, if it is its turn. A run cannot read files in place any more that another one
    /// writes in place: only a flush can still wait for it.
    fn turn(
        &mut self,
        dataset: &DatasetDescriptor,
        by: Option<&str>,
    ) -> Result<Result<Vec<u64>, Verdict>, F::Error> {
        let is_flush = by.is_some_and(|by| by != IN_PLACE);
        Ok(match self.rivals(dataset, by)? {
            Err(refusal) => Err(Verdict::Refused(refusal)),
            Ok(Rivals { newer: Some(newer), .. }) => Err(Verdict::Refused(Refusal::Superseded { newer })),
            Ok(Rivals { held: Some(id), .. }) if is_flush => Err(Verdict::Refused(Refusal::InUse { id })),
            Ok(Rivals { before: Some(token), .. }) => Err(Verdict::After(token)),
            Ok(Rivals { replaces, .. }) => Ok(replaces),
        })
    }

    fn rivals(
        &mut self,
        dataset: &DatasetDescriptor,
        by: Option<&str>,
    ) -> Result<Result<Rivals, Refusal>, F::Error> {
        let index = self.ledger.index();
        if let Some(refusal) = self.other_listed(dataset)? {
            return Ok(Err(refusal));
        }
        let (mut rivals, own) = (Rivals::default(), index.seq_of(dataset));
        for other in index.entries() {
            if other.id == dataset.id {
                // Another job may be deleting the files of an earlier flush of it, or another process be giving them their names:
                // they are to be files of this flush.
                let is_deleted = !other.is_valid() && other.taken.as_deref() == Some(DELETION);
                let taken = if other.is_valid() { None } else { self.under_way(&other)? };
                let by_another = taken.filter(|&taken| taken != IN_PLACE && Some(taken) != by);
                let before = if is_deleted { Some(DELETION) } else { by_another };
                rivals.before = rivals.before.or(before.map(str::to_owned));
                continue;
            }
            let by = if other.is_valid() { None } else { self.under_way(&other)? };
            if !other.is_valid() && by.is_none() {
                continue;
            }
            // A run keeps its own datasets apart by itself, with all names that it knows.
            let is_unknown = by == Some(IN_PLACE) && other.run == dataset.run;
            let is_named_so = other.name == dataset.name;
            if !is_named_so && (is_unknown || !self.facts.shares(dataset.id, &other)?) {
                continue;
            }
            match by {
                // However old it is: a file that is deleted must not be one of this dataset.
                Some(DELETION) => rivals.before = Some(DELETION.to_owned()),
                _ if other.seq() > own && !planted(Bug::LateFlushReplacesNewer) => {
                    rivals.newer = rivals.newer.max(Some(other.id));
                }
                Some(token) if token != IN_PLACE => rivals.before = Some(token.to_owned()),
                None => {
                    rivals.held = self.held(Some(other.clone()), dataset.run)?.or(rivals.held);
                    rivals.replaces.extend((!is_named_so).then_some(other.id));
                }
                _ => {}
            }
        }
        Ok(Ok(rivals))
    }

    /// Two datasets may have been given one number: where it could not be reserved, or the numbers were lost. Entry and lists go
    /// by the number, so one that counts or is under way is not replaced by another dataset.
    fn other_listed(&mut self, dataset: &DatasetDescriptor) -> Result<Option<Refusal>, F::Error> {
        let Some(found) = self.ledger.index().entry(dataset.id) else { return Ok(None) };
        let is_same = match &found.dataset {
            Some(known) => known.is_same(dataset),
            None => found.name == dataset.name,
        };
        let stays = !is_same && (found.is_valid() || self.under_way(&found)?.is_some());
        Ok(stays.then_some(Refusal::NumberTaken { id: dataset.id, name: found.name }))
    }

    /// The same also where the other dataset has not taken its name yet: its flush is on record.
    fn other_of_number(&mut self, dataset: &DatasetDescriptor) -> Result<Option<Refusal>, F::Error> {
        if let Some(refusal) = self.other_listed(dataset)? {
            return Ok(Some(refusal));
        }
        let name = self.facts.other_of_number(dataset)?;
        Ok(name.map(|name| Refusal::NumberTaken { id: dataset.id, name }))
    }

    /// The holder of the names of a dataset that is not complete, if anybody may still give files its names: a flush on record,
    /// though it is revoked, or a run.
    fn under_way<'e>(&mut self, entry: &'e IndexEntry) -> Result<Option<&'e str>, F::Error> {
        let Some(by) = entry.taken.as_deref().filter(|_| !entry.superseded) else { return Ok(None) };
        let is_under_way = match by {
            IN_PLACE => self.facts.may_run()?,
            // A process that waits for it learns whether its own lives.
            DELETION => true,
            token => self.facts.recorded(token)? != Recorded::Nothing,
        };
        Ok(Some(by).filter(|_| is_under_way))
    }

    /// The dataset, if a run other than `run` reads its files where they lie.
    fn held(&mut self, entry: Option<IndexEntry>, run: u64) -> Result<Option<u64>, F::Error> {
        let held = entry.filter(|entry| entry.held.iter().any(|&by| by != run));
        match held {
            Some(entry) if self.facts.may_run()? => Ok(Some(entry.id)),
            _ => Ok(None),
        }
    }
}

fn begin_run(ledger: &Ledger, seen: u64) -> Vec<Event> {
    let index = ledger.index();
    let last = ledger.last_run().max(seen);
    let prefix = ledger.prefix_id().unwrap_or_else(PrefixId::random);
    let marked = index.wants_mark(&prefix, last).then(|| Event::Marked { prefix: prefix.clone(), last });
    [Event::RunBegan { number: last.saturating_add(1), prefix, last }].into_iter().chain(marked).collect()
}

fn completed(
    index: &Index,
    dataset: &DatasetDescriptor,
    by: Option<&str>,
    make_current: MakeCurrent,
    now: &str,
) -> Vec<Event> {
    let becomes_current = match make_current {
        MakeCurrent::Never => false,
        MakeCurrent::IfNewest => index.newer_candidates(index.seq_of(dataset)).is_empty(),
        MakeCurrent::Always => true,
    };
    let completed =
        Event::Completed { dataset: dataset.clone(), by: by.map(str::to_owned), at: now.to_owned() };
    let current = becomes_current.then(|| Event::Current(dataset.name.clone()));
    [completed].into_iter().chain(current).collect()
}

fn fetched(index: &Index, seq: Seq, name: &[u8], make_current: bool, now: &str) -> Verdict {
    if !index.is_whole(seq.id, name) {
        return Verdict::Refused(Refusal::Ended { id: seq.id });
    }
    let becomes_current = make_current && !index.is_newer_current(seq) || planted(Bug::CurrentAfterUnread);
    let current = becomes_current.then(|| Event::Current(name.to_owned()));
    commit([Event::Fetched { id: seq.id, at: now.to_owned() }].into_iter().chain(current))
}

fn withdraw(
    ledger: &Ledger,
    seqs: &[Seq],
    which: Option<Dropping<'_>>,
    why: Withdrawal,
    alone: Option<u64>,
) -> Vec<Event> {
    let alone = alone.filter(|&run| ledger.ids.last_run() == run);
    let listed = ledger.index().entries().into_iter();
    let listed =
        listed.filter(|entry| which.is_some_and(|which| which.means(entry))).map(|entry| entry.seq());
    let all = seqs.iter().copied().chain(listed).filter(|seq| Some(seq.run) != alone);
    all.map(|seq| Event::Withdrawn { seq, why }).collect()
}

fn refuse(ledger: &Ledger, seq: Seq, is_listed: bool, alone: Option<u64>, now: &str) -> Verdict {
    let failed = is_listed.then(|| Event::Failed { id: seq.id, at: now.to_owned() });
    let withdrawn = match planted(Bug::RefusalForgotten) {
        true => Vec::new(),
        false => withdraw(ledger, &[seq], None, Withdrawal::Refused, alone),
    };
    commit(withdrawn.into_iter().chain(failed))
}

fn take_back(index: &Index, dataset: &DatasetDescriptor, by: &str, even_if_taken: bool) -> Verdict {
    match index.progress(dataset, by) != FlushProgress::NotTaken && !even_if_taken {
        true => Verdict::Refused(Refusal::Ended { id: dataset.id }),
        // Its names are not free before its staging files are gone: a rank of its job may be about to rename one.
        false => commit([Event::Revoked(by.to_owned())]),
    }
}

fn end_deletion(index: &Index, id: u64) -> Verdict {
    match index.entry(id) {
        None if !index.has(id) => commit(None),
        _ if index.is_taken_by(id, DELETION) => commit([Event::Left(id)]),
        _ => Verdict::Refused(Refusal::OtherCloser),
    }
}

fn release(index: &Index, whose: Whose) -> Vec<Event> {
    let taken = |by: &str, only: Option<u64>| {
        let taken = index.taken_by(by).into_iter().filter(move |&id| only.is_none_or(|only| only == id));
        taken.map(Event::Released).collect::<Vec<_>>()
    };
    let readers = |only: Option<u64>| {
        let runs = index.readers().into_iter().filter(move |&run| only.is_none_or(|only| only == run));
        runs.map(|run| Event::LetGo { run }).collect::<Vec<_>>()
    };
    match whose {
        Whose::Writer(id) => taken(IN_PLACE, Some(id)),
        Whose::Reader(run) => readers(Some(run)),
        Whose::Flush(token) => taken(token, None),
        Whose::Deletion => taken(DELETION, None),
        Whose::Earlier { writers: false } => readers(None),
        Whose::Earlier { writers: true } => readers(None).into_iter().chain(taken(IN_PLACE, None)).collect(),
    }
}

fn took(dataset: &DatasetDescriptor, by: &str, closer: Option<&str>) -> Event {
    Event::Took { dataset: dataset.clone(), by: by.to_owned(), closer: closer.map(str::to_owned) }
}

fn commit(events: impl IntoIterator<Item = Event>) -> Verdict {
    Verdict::Commit(events.into_iter().collect())
}

impl Dropping<'_> {
    /// Whether this dataset is one of them.
    pub fn means(&self, entry: &IndexEntry) -> bool {
        match *self {
            Self::Named(name) => entry.name == name,
            Self::NamedAfter(name, seq) => entry.name == name && entry.seq() > seq,
            Self::CheckpointsAfter(seq) => entry.seq() > seq && entry.is_checkpoint(),
        }
    }

    /// The same for one that need not be listed.
    pub fn means_described(&self, dataset: &DatasetDescriptor) -> bool {
        match *self {
            Self::Named(name) => dataset.name == name,
            Self::NamedAfter(name, seq) => dataset.name == name && dataset.seq() > seq,
            Self::CheckpointsAfter(seq) => dataset.seq() > seq && dataset.checkpoint,
        }
    }
}
