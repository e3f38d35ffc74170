//! The ledger of a prefix directory as files: loaded from `index.scr` and `ids.scr`, and changed under their one lock.

use super::doubt::{is_any_at_risk, keeps_its_files};
use super::facts::{names_of, Facts, SourceOfFiles};
use super::heal::{self, Fault};
use super::pending::PendingFlush;
use super::{
    decide, expect_lock, By, Closer, CommonFiles, Event, Ledger, MakeCurrent, Refusal, Request, Verdict,
    Whose,
};
use crate::rank2file::{write_maps, LeafLists};
use crate::shared::{self, Held, Locked, Shared as _};
use crate::{
    DatasetDescriptor, FileName, Ids, Index, IndexEntry, Prefix, PrefixError, PrefixFile, PrefixId,
    Rank2File, RunId, Running, Summary,
};
use scr_base::fs::{Files, Updated};
use std::collections::HashSet;

/// The ledger of a prefix directory. Nothing else reads or writes its two files.
#[derive(Clone, Copy)]
pub struct LedgerDir<'a> {
    pub files: &'a dyn Files,
    pub prefix: &'a Prefix,
}

/// The file lists that rank 0 records of a flush. The other leaves are there by then.
#[derive(Debug, Clone)]
pub struct RecordedLists {
    /// The first leaf.
    pub first: LeafLists,
    pub ranks_per_leaf: u32,
    /// The files of all ranks, if any of them may replace one of an older dataset.
    pub replacing: Option<Vec<Vec<PrefixFile>>>,
}

type ReadIndex = Result<Held<Index>, PrefixError>;

/// Something was done, or the flush of another dataset has to end first.
#[derive(Debug)]
pub enum Turn<T> {
    Done(T),
    After(By),
}

impl<T> Turn<T> {
    fn map<R>(self, change: impl FnOnce(T) -> R) -> Turn<R> {
        match self {
            Self::Done(value) => Turn::Done(change(value)),
            Self::After(by) => Turn::After(by),
        }
    }
}

/// A request that came true.
#[derive(Debug, Default)]
pub struct Committed {
    pub events: Vec<Event>,
    /// Why `ids.scr` could not be used, and was begun anew.
    pub(crate) damage: Option<PrefixError>,
    /// A warning if other processes were not kept out.
    pub caution: Option<&'static str>,
}

impl<'a> LedgerDir<'a> {
    /// The ledger below a prefix directory, which need not have one yet.
    pub fn new(files: &'a dyn Files, prefix: &'a Prefix) -> Self {
        Self { files, prefix }
    }

    /// The datasets that are known. A damaged index is replaced by a new one, if this process may write there.
    ///
    /// # Errors
    /// The index cannot be read or replaced, or is of another version.
    pub fn index(&self) -> Result<Index, PrefixError> {
        self.look(Index::clone)
    }

    /// The same without a new index in the place of a damaged one, for a command that only looks.
    ///
    /// # Errors
    /// The index cannot be read, is damaged, or is of another version.
    pub fn index_as_it_is(&self) -> Result<Index, PrefixError> {
        Index::read(self.files, self.prefix)
    }

    /// The index that the run there has, or one that begins: in the place of one that is damaged or lost a new one, which is not
    /// written.
    ///
    /// # Errors
    /// It cannot be read, or is of another version.
    pub fn index_of_run(&self, begins: bool) -> Result<Index, PrefixError> {
        let held = self.unless_faulty(self.index_as_it_is().map(Held::new), begins)?;
        held.map_or_else(|fault| heal::rebuild(*self, &fault, false), |held| Ok(held.content))
    }

    /// Reads once more after a damaged index was replaced, if this process may do that.
    fn healed<R>(&self, mut read: impl FnMut() -> Result<R, PrefixError>) -> Result<R, PrefixError> {
        match read() {
            Err(damage) if damage.is_damage() => match self.transact(&Request::Confirm) {
                Ok(_) => read(),
                Err(why) => Err(PrefixError::Unhealed { damage: damage.into(), why: why.into() }),
            },
            read => read,
        }
    }

    /// Makes a new index if it is missing though there are complete datasets.
    fn heal_missing(&self) -> Result<(), PrefixError> {
        if !self.is_missing()? {
            return Ok(());
        }
        let damage = || PrefixError::Missing { path: self.prefix.index_file() };
        let healed = self.transact(&Request::Confirm).map(drop);
        healed.map_err(|why| PrefixError::Unhealed { damage: damage().into(), why: why.into() })
    }

    /// Whether there is no index, though there are complete datasets.
    fn is_missing(&self) -> Result<bool, PrefixError> {
        Ok(shared::read::<Index>(self.files, self.prefix)?.is_none()
            && heal::is_lost(self.files, self.prefix)?)
    }

    /// Does `work` with the datasets that are known, and copies nothing.
    ///
    /// # Errors
    /// As for [`index`](Self::index).
    pub fn look<R>(&self, work: impl FnOnce(&Index) -> R) -> Result<R, PrefixError> {
        let mut work = Some(work);
        let mut may_be_missing = true;
        loop {
            let done = self.healed(|| {
                let is_there = |index: &Index| !may_be_missing || !index.entries().is_empty();
                let once = |index: &Index| work.take_if(|_| is_there(index)).map(|work| work(index));
                shared::look(self.files, self.prefix, once)
            })?;
            match done {
                Some(done) => return Ok(done),
                None => {
                    self.heal_missing()?;
                    may_be_missing = false;
                }
            }
        }
    }

    /// All that is known. Damaged numbers count as lost.
    ///
    /// # Errors
    /// As for [`index`](Self::index), or the numbers cannot be read.
    pub(crate) fn load(&self) -> Result<Ledger, PrefixError> {
        Ok(Ledger { index: self.index()?, ids: Ids::read(self.files, self.prefix)? })
    }

    /// The numbers that are taken, and what was withdrawn. Damaged ones count as lost.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn numbers(&self) -> Result<Ids, PrefixError> {
        Ids::read(self.files, self.prefix)
    }

    /// The first dataset id that nobody has reserved.
    ///
    /// # Errors
    /// The numbers are damaged, or cannot be read.
    pub fn next_id(&self) -> Result<u64, PrefixError> {
        Ok(shared::read::<Ids>(self.files, self.prefix)?.unwrap_or_default().next())
    }

    /// Makes a request come true.
    ///
    /// # Errors
    /// It is refused, or a file cannot be read or written.
    pub fn transact(&self, request: &Request<'_>) -> Result<Committed, PrefixError> {
        self.transact_if(request, &mut |_| Ok(()))
    }

    /// The same if the ledger, which no other process changes meanwhile, passes `guard`.
    ///
    /// # Errors
    /// As for [`transact`](Self::transact), or as `guard` says.
    pub fn transact_if<E: From<PrefixError>>(
        &self,
        request: &Request<'_>,
        guard: &mut dyn FnMut(&Ledger) -> Result<(), E>,
    ) -> Result<Committed, E> {
        Ok(self.expect_turn(self.attempt(request, &mut CommonFiles::default(), guard)?)?)
    }

    fn expect_turn(&self, turn: Turn<Committed>) -> Result<Committed, PrefixError> {
        match turn {
            Turn::Done(committed) => Ok(committed),
            Turn::After(by) => {
                Err(PrefixError::NotItsTurn { token: by.to_string(), why: "it has not ended yet".to_owned() })
            }
        }
    }

    /// Makes a request come true if it is its turn. See [`transact_if`](Self::transact_if).
    pub fn attempt<E: From<PrefixError>>(
        &self,
        request: &Request<'_>,
        sharing: &mut CommonFiles,
        guard: &mut dyn FnMut(&Ledger) -> Result<(), E>,
    ) -> Result<Turn<Committed>, E> {
        if matches!(request, Request::Release(_) | Request::NameAgain { .. }) {
            // Mostly there is nothing to do.
            let ledger = Ledger { index: self.index()?, ..Ledger::default() };
            if self.decide(&ledger, sharing, request)? == Verdict::Commit(Vec::new()) {
                return Ok(Turn::Done(Committed::default()));
            }
        }
        if request.wants_files().is_some() && !sharing.is_complete {
            // Lists may take long to read, and others wait for the lock.
            self.decide(&self.load()?, sharing, request)?;
        }
        // The one that lost the lock has read what is not true any more, and decides anew.
        shared::repeated(|| {
            let Updated { value, locked, everywhere } =
                shared::locked(self.files, self.prefix, |locked| self.once(locked, request, sharing, guard))?;
            let caution = Updated { value: (), locked, everywhere }.caution();
            Ok(value?.map(|turn| turn.map(|committed| Committed { caution, ..committed })))
        })?
    }

    fn once<E: From<PrefixError>>(
        &self,
        locked: &Locked<'_>,
        request: &Request<'_>,
        sharing: &mut CommonFiles,
        guard: &mut dyn FnMut(&Ledger) -> Result<(), E>,
    ) -> Result<Result<Turn<Committed>, E>, PrefixError> {
        let mut damage = None;
        let ids = if request.concerns_ids() { Some(self.read_ids(locked, &mut damage)?) } else { None };
        let index = if request.concerns_index() { Some(self.read_index(locked, request)?) } else { None };
        let (mut ids, mut index) = (ids, index);
        let mut ledger = Ledger {
            ids: ids.as_mut().map(|held| std::mem::take(&mut held.content)).unwrap_or_default(),
            index: index.as_mut().map(|held| std::mem::take(&mut held.content)).unwrap_or_default(),
        };
        if matches!(request, Request::BeginRun { .. }) && ledger.prefix_id().is_none() {
            let copy = PrefixId::of(None, self.files, self.prefix)?;
            copy.iter().for_each(|copy| ledger.ids.adopt(copy));
        }
        if let Err(error) = guard(&ledger) {
            return Ok(Err(error));
        }
        let events = match self.decide(&ledger, sharing, request)? {
            Verdict::Commit(events) => events,
            Verdict::After(by) => return Ok(Ok(Turn::After(by))),
            Verdict::Refused(refusal) => return Ok(Err(refusal.into_error(self.prefix).into())),
        };
        let changes_ids = events.iter().any(Event::changes_ids);
        if let Some(damage) = damage.take_if(|_| changes_ids && !matches!(request, Request::BeginRun { .. }))
        {
            return Err(damage);
        }
        for event in &events {
            if let Event::Revoked(by) = event {
                expect_lock(Some(&|| locked.is_ours()), &self.prefix.index_file())?;
                super::pending::revoke(*self, &by.to_string())?;
            }
            ledger.apply(event);
        }
        // Before the next run marks it, the other two files that have the id may be lost.
        if index.is_some() && ledger.index.prefix_id().is_none() && events.iter().any(Event::changes_index) {
            let id = PrefixId::read(self.files, self.prefix).ok().flatten();
            let own = id.filter(|id| ledger.index.wants_mark(id, 0));
            own.into_iter().for_each(|prefix| ledger.apply(&Event::Marked { prefix, last: 0 }));
        }
        // A dataset that is withdrawn and still listed counts as listed, so a process may die between the two.
        if let Some(mut held) = ids.filter(|_| changes_ids) {
            held.content = ledger.ids;
            locked.write(held)?;
        }
        // A request that comes again changes nothing, and is to be safe all the same.
        let only_reads = matches!(request, Request::BeginRun { .. } | Request::Withdraw { .. });
        if let Some(mut held) = index.filter(|_| !only_reads || events.iter().any(Event::changes_index)) {
            held.content = ledger.index;
            locked.write(held)?;
        }
        Ok(Ok(Turn::Done(Committed { events, damage, caution: None })))
    }

    fn read_ids(
        &self,
        locked: &Locked<'_>,
        damage: &mut Option<PrefixError>,
    ) -> Result<Held<Ids>, PrefixError> {
        match locked.read::<Ids>() {
            Err(error) if error.is_damage() => {
                *damage = Some(error);
                Ok(Held::new(Ids::default()))
            }
            // Each index that a run has written has the id of the directory, and that run had written these numbers before.
            Ok(held) if held.content == Ids::default() => {
                let index = Index::read(self.files, self.prefix);
                let was_there = index.is_ok_and(|index| index.prefix_id().is_some());
                *damage = was_there.then(|| PrefixError::Missing { path: Ids::path(self.prefix) });
                Ok(held)
            }
            read => read,
        }
    }

    fn read_index(&self, locked: &Locked<'_>, request: &Request<'_>) -> Result<Held<Index>, PrefixError> {
        // A run looks once: an older copy that somebody puts back meanwhile is found by the next one.
        let begins = matches!(request, Request::BeginRun { .. });
        self.unless_faulty(locked.read(), begins)?.or_else(|fault| {
            locked.write(Held::new(heal::rebuild(*self, &fault, true)?))?;
            locked.read()
        })
    }

    /// What was read, or why a new index is to take its place.
    fn unless_faulty(
        &self,
        read: ReadIndex,
        begins: bool,
    ) -> Result<Result<Held<Index>, Fault>, PrefixError> {
        let fault = match &read {
            Ok(held) if held.content.entries().is_empty() => self.is_missing()?.then_some(Fault::Missing),
            Ok(held) if begins => {
                heal::contradiction(self.files, self.prefix, &held.content, &self.numbers()?)?
            }
            _ => None,
        };
        match read {
            Err(damage) if damage.is_damage() => Ok(Err(Fault::Damaged(damage))),
            read => Ok(fault.map_or(Ok(read?), Err)),
        }
    }

    fn decide(
        &self,
        ledger: &Ledger,
        sharing: &mut CommonFiles,
        request: &Request<'_>,
    ) -> Result<Verdict, PrefixError> {
        let facts = Facts::of(&mut SourceOfFiles { ledger: *self, sharing }, ledger.index(), request)?;
        Ok(decide(ledger, &facts, request))
    }

    /// Makes the dataset of this name the one that jobs restart from first. Gives whether there is one, and a warning if other
    /// processes were not kept out.
    ///
    /// # Errors
    /// The index cannot be read or written.
    pub fn make_current(&self, name: &[u8]) -> Result<(bool, Option<&'static str>), PrefixError> {
        let committed = self.transact(&Request::MakeCurrent(name))?;
        Ok((!committed.events.is_empty(), committed.caution))
    }

    /// Gives a run its number, higher than every one that was given before, that the index has, and than `seen`: what was seen in
    /// cache, and the time in seconds, so that an older file that somebody restores is no harm. Damaged numbers are begun anew;
    /// the error is given with the run.
    ///
    /// # Errors
    /// As for [`transact`](Self::transact).
    pub fn begin_run(&self, seen: u64) -> Result<(RunId, Option<PrefixError>), PrefixError> {
        let committed = self.transact(&Request::BeginRun { seen })?;
        let run = committed.events.into_iter().find_map(|event| match event {
            Event::RunBegan { number, prefix, .. } => {
                Some(RunId { prefix: Some(prefix), number, is_counted: true, is_second: false })
            }
            _ => None,
        });
        Ok((run.unwrap_or_default(), committed.damage))
    }

    /// The last run, for one that cannot get a number.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn last_run(&self, seen: u64) -> Result<RunId, PrefixError> {
        let ledger = self.load()?;
        Ok(RunId { prefix: ledger.prefix_id(), number: ledger.last_run().max(seen), ..RunId::default() })
    }

    /// Reserves ids of datasets, none of them below `at_least`, and gives the first.
    ///
    /// # Errors
    /// As for [`transact`](Self::transact).
    pub fn reserve(&self, at_least: u64, count: u64) -> Result<u64, PrefixError> {
        let committed = self.transact(&Request::Reserve { at_least, count })?;
        Ok(match committed.events.first() {
            Some(Event::NextId { first, .. }) => *first,
            _ => at_least,
        })
    }

    /// Writes the record of a flush, before a byte is copied: the dataset is listed as incomplete.
    pub fn record_pending(
        &self,
        record: &mut PendingFlush,
        lists: &RecordedLists,
    ) -> Result<(), PrefixError> {
        record.sharing = self.sharing_of(lists)?;
        let begin = Request::Begin(&record.dataset);
        self.expect_turn(self.attempt(&begin, &mut record.sharing, &mut |_| Ok::<_, PrefixError>(()))?)?;
        // Most flushes have no use for it any more, and it may be long.
        record.sharing.forget_names();
        self.write_first_lists(record.dataset.id, lists)?;
        Ok(record.write(*self)?)
    }

    /// Lists the files of a dataset that is in place already, which gets no record.
    pub fn record_in_place(
        &self,
        dataset: &DatasetDescriptor,
        lists: &RecordedLists,
    ) -> Result<Turn<()>, PrefixError> {
        let turn = self.take(dataset, &By::Application, None, &mut self.sharing_of(lists)?)?;
        if let Turn::Done(()) = turn {
            self.write_first_lists(dataset.id, lists)?;
        }
        Ok(turn)
    }

    /// If no file was there before, none belongs to a dataset that is complete.
    fn sharing_of(&self, lists: &RecordedLists) -> Result<CommonFiles, PrefixError> {
        self.prefix.make_scr_dir(self.files)?;
        Ok(match &lists.replacing {
            Some(all) => CommonFiles::of(all),
            None => CommonFiles::of_new_files(&self.index()?),
        })
    }

    fn write_first_lists(&self, id: u64, lists: &RecordedLists) -> Result<(), PrefixError> {
        self.write_leaf(id, &lists.first)?;
        write_maps(self.files, self.prefix, id, lists.first.ranks, lists.ranks_per_leaf)
    }

    /// From here on name and files belong to this dataset, which is not complete, and the older ones that had them count no more.
    /// The ranks of its job close the flush, or the process of this number does, which takes names away for a moment: then only
    /// that one makes the dataset complete.
    pub fn take(
        &self,
        dataset: &DatasetDescriptor,
        by: &By,
        closer: Option<Closer<'_>>,
        sharing: &mut CommonFiles,
    ) -> Result<Turn<()>, PrefixError> {
        let request = Request::TakeNames { dataset, by, closer: closer.map(|closer| closer.number) };
        let turn = self.attempt(&request, sharing, &mut |_| {
            let fence = closer.map(|closer| closer.has_lock);
            expect_lock(fence, &self.prefix.index_file()).map_err(PrefixError::from)
        })?;
        Ok(turn.map(drop))
    }

    /// The application begins to write a dataset in place, and its files are not known yet. Gives whether the index has others
    /// that are complete, or never were: those may lie in place without being listed yet.
    pub fn begin_in_place(&self, dataset: &DatasetDescriptor) -> Result<Turn<bool>, PrefixError> {
        let mut is_any_left = false;
        let turn = self.attempt(
            &Request::BeginInPlace(dataset),
            &mut CommonFiles::default(),
            &mut |ledger: &Ledger| -> Result<(), PrefixError> {
                is_any_left = is_any_at_risk(ledger, dataset);
                Ok(())
            },
        )?;
        Ok(turn.map(|_| is_any_left))
    }

    /// Every byte is safe and has its name: the dataset that has taken it counts from here on.
    pub fn complete(
        &self,
        record: &PendingFlush,
        by: &By,
        closer: Option<&str>,
        now: &str,
    ) -> Result<(), PrefixError> {
        let PendingFlush { dataset, make_current, .. } = record;
        Summary { dataset: dataset.clone(), complete: true }.write(self.files, self.prefix)?;
        let make_current = *make_current;
        self.transact(&Request::Complete { dataset, by, closer, make_current, now }).map(drop)
    }

    /// Lists a dataset whose files are in place and safe, unless the ledger, which nobody else changes meanwhile, speaks against
    /// it.
    pub fn list_whole<E: From<PrefixError>>(
        &self,
        dataset: &DatasetDescriptor,
        sharing: &mut CommonFiles,
        make_current: MakeCurrent,
        now: &str,
        check: &mut dyn FnMut(&Ledger) -> Result<(), E>,
    ) -> Result<Turn<Committed>, E> {
        // Else its own summary would look like that of a dataset of an index that is missing.
        self.transact(&Request::Confirm)?;
        let summary = Summary { dataset: dataset.clone(), complete: true };
        // Its time says since when no file has changed, and it is not to become younger.
        if !Summary::read(self.files, self.prefix, dataset.id)
            .is_ok_and(|found| found.as_ref() == Some(&summary))
        {
            summary.write(self.files, self.prefix)?;
        }
        self.attempt(&Request::ListWhole { dataset, make_current, now }, sharing, check)
    }

    /// From here on nobody gives files the names of a dataset, as run `run` reads its files where they lie. False if somebody has
    /// done so before, or it was dropped: then it must not be read there.
    pub fn hold(&self, id: u64, name: &[u8], run: u64) -> Result<bool, PrefixError> {
        match self.transact(&Request::Hold { id, name, run }) {
            Err(PrefixError::Refused(Refusal::Ended { .. })) => Ok(false),
            held => held.map(|_| true),
        }
    }

    /// Applications of earlier runs do not write in place any more, nor read there, if no other run is under way beside
    /// `running`. If locks cannot say that, only what was read is released.
    pub fn release_of_earlier_runs(&self, running: &Running) -> Result<(), PrefixError> {
        if running.is_second {
            return Ok(());
        }
        let writers = running.is_known();
        self.transact(&Request::Release(Whose::Earlier { writers })).map(drop)
    }

    /// Whether a run other than `run` reads the files of a dataset where they lie.
    pub fn is_held(&self, entry: &IndexEntry, run: u64) -> bool {
        entry.held.iter().any(|&by| by != run) && Running::may_be_any(self.files, self.prefix)
    }

    /// Refuses a change after which datasets may lose their files, if a run other than `run` reads one of them in place. The
    /// decision asks once more; this is for before something else is done that cannot be undone.
    ///
    /// # Errors
    /// [`Refusal::InUse`].
    pub fn refuse_held<'e>(
        &self,
        entries: impl IntoIterator<Item = &'e IndexEntry>,
        run: u64,
    ) -> Result<(), PrefixError> {
        let held = entries.into_iter().find(|entry| self.is_held(entry, run));
        held.map_or(Ok(()), |entry| Err(Refusal::InUse { id: entry.id }.into()))
    }

    /// Lists the files of the ranks of a leaf.
    pub fn write_leaf(&self, id: u64, leaf: &LeafLists) -> Result<(), PrefixError> {
        self.prefix.make_dataset_dir(self.files, id)?;
        leaf.write(self.files, self.prefix, id)
    }

    /// Lists the files of every rank.
    pub fn write_lists(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
    ) -> Result<(), PrefixError> {
        self.prefix.make_dataset_dir(self.files, dataset.id)?;
        Rank2File::new(lists.to_vec()).write(self.files, self.prefix, dataset.id)
    }

    /// Lists a dataset as incomplete, unless its name refers to one that is complete or has taken it, or to a newer one.
    pub fn list_incomplete(&self, dataset: &DatasetDescriptor) -> Result<(), PrefixError> {
        self.prefix.make_scr_dir(self.files)?;
        self.transact(&Request::List(dataset)).map(drop)
    }

    /// Names of files that belong to datasets other than `id` that are complete, or about to be.
    pub fn names_of_others(&self, id: u64) -> Result<HashSet<FileName>, PrefixError> {
        let mut names = HashSet::new();
        let index = self.index()?;
        for other in index.entries().iter().filter(|entry| keeps_its_files(entry, id)) {
            // No run can restart from one with damaged lists, and its files are still unknown.
            names.extend(names_of(self.files, self.prefix, other.id)?.unwrap_or_default());
        }
        Ok(names)
    }

    /// Complete datasets of other names that have a file in common with `lists`.
    pub fn sharing(
        &self,
        dataset: &DatasetDescriptor,
        lists: &[Vec<PrefixFile>],
    ) -> Result<Vec<u64>, PrefixError> {
        let mut sharing = CommonFiles::of(lists);
        let others = self.index()?.entries().into_iter().filter(IndexEntry::is_valid);
        let mut found = Vec::new();
        for other in others.filter(|other| other.id != dataset.id && other.name != dataset.name) {
            if sharing.with(self.files, self.prefix, dataset.id, &other)? {
                found.push(other.id);
            }
        }
        Ok(found)
    }
}
