//! Which checkpoint the application restarts from.
//!
//! It is the one that `SCR_CURRENT` names, or else the newest, from cache if it is there. If the application cannot use it, it is
//! the next older one, from cache or from the prefix directory, until none is left.

mod current;
mod prefix_state;

pub(crate) use current::Chosen;
use current::Wish;
pub(crate) use prefix_state::{compare_flushed, PrefixState};

use crate::cache::flush_file::News;
use crate::cache::verify::{Extent, PartFiles};
use crate::cache::{Cache, CachedDataset, CheckpointId};
use crate::error::{Doing as _, Error};
use crate::fetch::{Fetcher, Search};
use crate::holdings::{self, Goal, Holding, Standing};
use crate::job::Job;
use scr_base::message::count;
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::ledger::{Candidate, Dropping, Event, Leave, Request, Whose};
use scr_prefix::{Between, DatasetDescriptor, PrefixError, Seq};
use std::collections::BTreeSet;

/// The place and the name of a checkpoint that could not be read or brought back, though nothing is known to be wrong with it.
pub(crate) type Unread = (Seq, String);

/// The checkpoint that the application can restart from.
#[derive(Default)]
pub(crate) struct Restart {
    /// Whether it has been decided what the run begins with.
    pub(crate) is_found: bool,
    /// The checkpoint that the application restarts from. Nothing else says which.
    loaded: Option<CheckpointId>,
    /// The place to which this run or an earlier one has gone back.
    given_up: Option<Between>,
    /// What is dropped once the application has restarted from the checkpoint at this place.
    drops: Option<(Seq, WentBack)>,
    /// Whether there was a checkpoint to restart from, and the application has neither taken it away nor begun to write since.
    pub(crate) owes_one: bool,
    /// The checkpoint that the application has chosen and that is not loaded yet.
    pub(crate) chosen: Option<Chosen>,
    /// Whether the application has begun to restart, or has written a checkpoint.
    begun: bool,
    /// Whether the last one in cache was lost since, and nobody has looked for another one.
    looks_again: bool,
    /// The dataset whose files the application reads in the prefix directory, and that nobody replaces meanwhile.
    held: Option<u64>,
    /// Those that this run has met.
    pub(crate) unread: BTreeSet<Unread>,
    /// The last checkpoint that this run has left since a rank got no path for a file, and that the next run is offered again.
    pub(crate) passed_over: Option<String>,
}

impl Restart {
    /// The output to read back, or else the checkpoint to restart from, unless that has left the cache since.
    pub(crate) fn checkpoint<'a>(&self, cache: &'a Cache) -> Option<&'a CachedDataset> {
        cache.offered().or_else(|| self.loaded.as_ref().and_then(|loaded| cache.dataset(loaded.id)))
    }

    /// The place of it among all datasets.
    pub(crate) fn seq(&self, cache: &Cache) -> Option<Seq> {
        self.checkpoint(cache).map(CachedDataset::seq)
    }

    /// Offers output in place of the checkpoint, until the application has read it. Collective.
    ///
    /// # Errors
    /// It is not in cache, and cannot be fetched.
    pub(crate) fn read_output(from: &mut Fetcher<'_>, wanted: &Candidate) -> Result<(), Error> {
        let is_it = |cached: &&CachedDataset| {
            let is_named = cached.seq() == wanted.seq && cached.record.dataset.name == wanted.name;
            is_named && !cached.holding().is_overwritten()
        };
        let id = match from.cache.datasets().iter().find(is_it) {
            Some(cached) => cached.id(),
            None if from.job.params.get(&param::FETCH) => from.one(wanted, false)?.id,
            None => {
                let name = wanted.name_text();
                let why = format!("`{name}' is not in cache, and with SCR_FETCH=0 it is not fetched");
                return Err(Error::Refused(why));
            }
        };
        from.cache.offer(Some(id));
        Ok(())
    }

    /// Finds the checkpoint to restart from when a run begins. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn find_first(
        &mut self,
        from: &mut Fetcher<'_>,
        in_prefix: &PrefixState,
    ) -> Result<(), Error> {
        self.is_found = true;
        match current::find(from, in_prefix)? {
            Wish::None => (),
            Wish::GoOn(given_up) => self.give_up(from.cache, given_up),
            Wish::Restart(chosen) => self.go_back(from, &chosen)?,
        }
        if self.loaded.is_none() {
            go_back_in_place(from, in_prefix);
            self.find(from, Some(in_prefix), |_| true)?;
            self.unread.extend(report_unread(from.job, from.cache, self.loaded.as_ref()));
        }
        self.leave_spent(from)
    }

    /// The application asks for a checkpoint after the one that it had begun with was lost, and no other one was in cache: the
    /// newest one left in the prefix directory takes its place. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn look_again(&mut self, from: &mut Fetcher<'_>) -> Result<(), Error> {
        match std::mem::take(&mut self.looks_again) && self.loaded.is_none() {
            true => self.find_again(from),
            false => Ok(()),
        }
    }

    /// Finds the checkpoint to restart from again after it has left the cache. It may be in the prefix directory. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn find_again(&mut self, from: &mut Fetcher<'_>) -> Result<(), Error> {
        self.find(from, None, |_| true)
    }

    /// Finds the newest checkpoint of those that are left, which nobody has gone back over: in the prefix directory if it is newer
    /// there, or else in cache. A run may have continued where this cache was not there, and these nodes know nothing of it. A run
    /// that begins gives what the prefix directory has.
    fn find(
        &mut self,
        from: &mut Fetcher<'_>,
        at_start: Option<&PrefixState>,
        is_left: impl Fn(Seq) -> bool,
    ) -> Result<(), Error> {
        let given_up = self.given_up;
        let is_left = |seq: Seq| is_left(seq) && !given_up.is_some_and(|given_up| given_up.has(seq));
        let newest = |from: &Fetcher<'_>| {
            let newest = newest_cached(from.job, from.cache, |cached| is_left(cached.seq()));
            newest.map(CachedDataset::checkpoint)
        };
        let cached = newest(from);
        let known = at_start.zip(cached.as_ref());
        let is_known_older = known.is_some_and(|(state, cached)| !is_newer_there(from, state, cached));
        let mut fetched = None;
        if !is_known_older && from.job.params.get(&param::FETCH) {
            let job = from.job;
            let next = &|left: &[Candidate], cache: &Cache| next_there(job, cache, left, is_left);
            let search = Search { at_start: at_start.is_some(), wanted: None, next };
            fetched = from.first(&search)?;
            self.unread.append(&mut from.unread);
        }
        // A fetch may have made room for itself.
        self.loaded = fetched.or_else(|| newest(from));
        // It may be an older one that the index calls current.
        let chosen = at_start.filter(|state| state.is_chosen).and_then(|state| state.first.as_ref());
        if let Some(Candidate { seq, .. }) = chosen.filter(|chosen| self.seq(from.cache) == Some(chosen.seq))
        {
            self.drops = Some((*seq, WentBack::to(*seq, from)));
        }
        Ok(())
    }

    /// Takes the newest checkpoint in cache.
    fn find_cached(&mut self, job: &Job, cache: &Cache) {
        let newest = newest_cached(job, cache, |cached| !cached.is_gone_back_over());
        self.loaded = newest.map(CachedDataset::checkpoint);
    }

    /// No checkpoint is tried more often than the user wants. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn leave_spent(&mut self, from: &mut Fetcher<'_>) -> Result<(), Error> {
        while let Some(loaded) = &self.loaded {
            if !are_attempts_spent(from.job, loaded)? {
                break;
            }
            self.refuse(from)?;
        }
        self.owes_one = self.loaded.is_some();
        Ok(())
    }

    /// Goes back to the checkpoint that the user has named, if it can be loaded.
    fn go_back(&mut self, from: &mut Fetcher<'_>, chosen: &Chosen) -> Result<(), Error> {
        self.loaded = chosen.load(from, true)?;
        let Some(loaded) = &self.loaded else { return from.job.expect_no_warning() };
        // The entry of its name in the index stays, though cache has given an older one.
        let went_back = WentBack::to(chosen.seq.map_or(loaded.seq, |listed| listed.max(loaded.seq)), from);
        went_back.abandon_newer(from.job, &chosen.name)?;
        current::record_chosen(from.job, &loaded.name, &went_back)?;
        let cached = from.cache.dataset_mut(loaded.id);
        cached.into_iter().for_each(|cached| cached.set_standing(Standing::Chosen));
        let (seq, given_up) = (loaded.seq, Some(went_back.0));
        self.drops = Some((seq, went_back));
        self.give_up(from.cache, given_up);
        Ok(())
    }

    /// No checkpoint that is given up is restarted from, nor flushed from cache: it would become the current one again.
    fn give_up(&mut self, cache: &mut Cache, given_up: Option<Between>) {
        self.given_up = given_up;
        let checkpoints = cache.datasets_mut().iter_mut().filter(|cached| cached.record.dataset.checkpoint);
        for cached in checkpoints {
            cached.standing = cached.standing.after_going_back(self.has_given_up(cached.seq()));
        }
    }

    /// The checkpoint that the application could restart from, and has neither taken away nor begun to read.
    pub(crate) fn untouched(&self) -> Option<&CheckpointId> {
        self.loaded.as_ref().filter(|_| !self.begun)
    }

    /// The application begins to write, and so needs no checkpoint to begin with any more.
    pub(crate) fn begin_writing(&mut self) {
        (self.owes_one, self.drops) = (false, None);
    }

    /// The application has restarted, and what the user has gone back over may be dropped. No flush may be under way. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk, or what is dropped cannot be recorded.
    pub(crate) fn end(&mut self, job: &Job, cache: &mut Cache) -> Result<(), Error> {
        let loaded = self.loaded.as_ref().map(|loaded| loaded.seq);
        let drops = self.drops.take().filter(|(seq, _)| Some(*seq) == loaded);
        drops.map_or(Ok(()), |(_, went_back)| went_back.drop_newer(job, cache))
    }

    /// Whether the user or the application has gone back over the checkpoints at this place.
    pub(crate) fn has_given_up(&self, seq: Seq) -> bool {
        self.given_up.is_some_and(|given_up| given_up.has(seq))
    }

    /// The application goes back to a checkpoint, which `record` makes the current one, and newer ones are not flushed any more.
    /// Until it begins to restart, it can restart from that one. No flush may be under way. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk, what is on record of newer ones cannot be taken back, or that of `record`: it stays as it was.
    pub(crate) fn choose(
        &mut self,
        from: &mut Fetcher<'_>,
        name: &[u8],
        seq: Seq,
        record: impl FnOnce(&Job) -> Result<(), Error>,
    ) -> Result<(), Error> {
        from.cache.offer(None);
        let went_back = WentBack::to(seq, from);
        went_back.abandon_newer(from.job, name)?;
        record(from.job)?;
        if !self.begun {
            self.chosen = Some(Chosen { name: name.to_owned(), seq: Some(seq) });
            self.give_up(from.cache, Some(went_back.0));
        }
        went_back.drop_newer(from.job, from.cache)
    }

    /// Loads the checkpoint that the application has chosen, and no other. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk, or it cannot be fetched for a reason that may pass: it stays chosen.
    pub(crate) fn load_chosen(&mut self, from: &mut Fetcher<'_>) -> Result<(), Error> {
        if let Some(chosen) = &self.chosen {
            self.loaded = chosen.load(from, false)?;
            self.chosen = None;
        }
        Ok(())
    }

    /// Keeps others from giving files the names of the dataset that the application reads in the prefix directory. If somebody
    /// has done so since it was found, the newest one left takes its place. Says whether one has. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk, or it is output that was replaced.
    pub(crate) fn hold(&mut self, from: &mut Fetcher<'_>) -> Result<bool, Error> {
        let (job, mut has_changed) = (from.job, false);
        while let Some(cached) = self.checkpoint(from.cache).filter(|cached| cached.is_read_in_prefix(job)) {
            let (checkpoint, is_listed) = (cached.checkpoint(), cached.prefix.is_whole());
            if self.held == Some(checkpoint.id) {
                break;
            }
            let is_ours = job.rank() != Rank(0) || hold_in_index(job, &checkpoint, is_listed);
            if !job.any(!is_ours)? {
                self.held = Some(checkpoint.id);
                break;
            }
            let what = format!("`{}' is not read: its files were replaced", checkpoint.name_text());
            from.cache.supersede(checkpoint.id);
            if from.cache.offered().is_some() {
                from.cache.offer(None);
                return Err(Error::Refused(what));
            }
            job.report.error(&what);
            // The dataset that has replaced it may be complete by now.
            self.find_again(from)?;
            has_changed = true;
        }
        Ok(has_changed)
    }

    /// Files of the checkpoint were another job's while the application read them: the newest one left takes its place.
    /// Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn leave_replaced(
        &mut self,
        from: &mut Fetcher<'_>,
        replaced: &CheckpointId,
    ) -> Result<(), Error> {
        from.cache.supersede(replaced.id);
        count_attempt(from.job, None);
        // The dataset that has replaced it may be complete by now.
        self.find(from, None, |seq| seq != replaced.seq)
    }

    /// The application reads nothing in the prefix directory any more.
    pub(crate) fn release(&mut self, job: &Job) {
        if self.held.take().is_some() && job.rank() == Rank(0) {
            let released = job.ledger().transact(&Request::Release(Whose::Reader(job.run.number)));
            job.report_failed(released.map(drop));
        }
    }

    /// The application begins to restart, or to read back output.
    pub(crate) fn begin(&mut self, job: &Job, cache: &Cache) {
        if cache.offered().is_some() {
            return;
        }
        self.begun = true;
        self.chosen = None;
        if let Some(loaded) = &self.loaded {
            count_attempt(job, Some(loaded));
        }
    }

    /// The application can read back the newest checkpoint, since it has written one.
    pub(crate) fn offer_newest(&mut self, job: &Job, cache: &mut Cache) {
        (self.begun, self.chosen) = (true, None);
        self.release(job);
        let chosen = cache.datasets_mut().iter_mut().find(|cached| cached.standing == Standing::Chosen);
        chosen.into_iter().for_each(|cached| cached.set_standing(Standing::Kept));
        cache.offer(None);
        count_attempt(job, None);
        self.find_cached(job, cache);
    }

    /// If the checkpoint, or the chosen one, was that of this name, which has been dropped or deleted, the next older one takes
    /// its place. Once the application has begun, nothing is fetched for that before it asks. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn leave_dropped(&mut self, from: &mut Fetcher<'_>, name: &[u8]) -> Result<bool, Error> {
        let has_left = |loaded: &CheckpointId| from.cache.dataset(loaded.id).is_none();
        let left = self.loaded.as_ref().filter(|loaded| has_left(loaded)).map(|left| left.seq);
        if self.begun {
            self.leave_lost(from.job, from.cache);
            self.owes_one &= left.is_none() || self.loaded.is_some();
            return Ok(false);
        }
        let unchosen = self.chosen.take_if(|chosen| chosen.name == name).and_then(|chosen| chosen.seq);
        if self.chosen.is_some() {
            // It is loaded in any case.
            return Ok(false);
        }
        let Some(left) = unchosen.or(left) else { return Ok(false) };
        self.find(from, None, |seq| seq < left)?;
        self.owes_one &= self.loaded.is_some();
        Ok(true)
    }

    /// If the checkpoint cannot be read any more, the newest one in cache takes its place.
    pub(crate) fn leave_lost(&mut self, job: &Job, cache: &Cache) {
        let is_readable = |id: u64| {
            let global = job.params.get(&param::GLOBAL_RESTART);
            cache.dataset(id).is_some_and(|cached| {
                !cached.prefix.is_superseded() || !global && cached.holding().is_restartable()
            })
        };
        if self.loaded.as_ref().is_some_and(|loaded| !is_readable(loaded.id)) {
            self.find_cached(job, cache);
            self.looks_again = self.loaded.is_none();
        }
    }

    /// The application could not restart from the checkpoint. If nothing proves the bytes in cache, it is offered the copy in the
    /// prefix directory. Otherwise no run is offered it again, and the next older one takes its place. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn refuse(&mut self, from: &mut Fetcher<'_>) -> Result<(), Error> {
        if let Some(refused) = &self.loaded {
            if let Some(copy) = copy_of_unproven(from, refused)? {
                count_attempt(from.job, None);
                self.loaded = Some(copy);
                return Ok(());
            }
            record_refused(from.job, from.cache, refused);
        }
        self.go_to_older(from)
    }

    /// The application has not restarted from the checkpoint, and nothing is wrong with it: this run goes to the next older one,
    /// and does not begin at zero if there is none. The next run is offered it again. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn pass_over(&mut self, from: &mut Fetcher<'_>) -> Result<(), Error> {
        count_attempt(from.job, None);
        self.passed_over = self.loaded.as_ref().map(CheckpointId::name_text);
        self.go_to_older(from)
    }

    fn go_to_older(&mut self, from: &mut Fetcher<'_>) -> Result<(), Error> {
        match self.loaded.as_ref().map(|loaded| loaded.seq) {
            Some(left) => self.find(from, None, |seq| seq < left),
            None => Ok(()),
        }
    }
}

/// What lies in the prefix directory alone is taken in the order of its index: somebody has gone back over what is newer than the
/// current one.
fn go_back_in_place(from: &mut Fetcher<'_>, in_prefix: &PrefixState) {
    let fetches = from.job.params.get(&param::FETCH);
    let Some(current) = in_prefix.first.as_ref().filter(|_| in_prefix.is_chosen && fetches) else { return };
    let is_behind =
        |cached: &&mut CachedDataset| cached.record.protection.bypass && cached.seq() > current.seq;
    for cached in from.cache.datasets_mut().iter_mut().filter(is_behind) {
        cached.standing = cached.standing.after_going_back(true);
    }
}

/// A checkpoint fetched anew, if not all its bytes in cache are proven by a checksum, and the prefix directory has it. Collective.
fn copy_of_unproven(from: &mut Fetcher<'_>, refused: &CheckpointId) -> Result<Option<CheckpointId>, Error> {
    let job = from.job;
    let cached = from.cache.dataset(refused.id).filter(|cached| cached.prefix.is_whole());
    let cached = cached.filter(|cached| !cached.is_read_in_prefix(job) && job.params.get(&param::FETCH));
    let Some(CachedDataset { record, part, .. }) = cached else { return Ok(None) };
    let is_unproven = record.files.iter().any(|file| file.crc.is_none())
        || PartFiles { files: job.files(), part, record }.verify(job.processors, Extent::Used).is_err();
    if !job.any(is_unproven)? {
        return Ok(None);
    }
    let next = &|left: &[Candidate], _: &Cache| left.iter().position(|there| there.seq == refused.seq);
    from.first(&Search { at_start: false, wanted: None, next })
}

/// One that could not be listed is nobody else's either. If the index cannot be changed, nothing keeps others out; but what it
/// says of them still holds.
fn hold_in_index(job: &Job, checkpoint: &CheckpointId, is_listed: bool) -> bool {
    let CheckpointId { seq, name, .. } = checkpoint;
    let is_whole = job.ledger().hold(seq.id, name, job.run.number).unwrap_or_else(|error| {
        job.report.warn(&format!(
            "`{}' is read in the prefix directory, and other processes cannot be kept from replacing its files: {}",
            checkpoint.name_text(),
            scr_base::describe(&error)
        ));
        job.ledger().look(|index| index.is_whole(seq.id, name)).unwrap_or(true)
    });
    is_whole || !is_listed
}

/// Whether the prefix directory has a newer checkpoint than all that are in cache. An older one that the user has made current does
/// not count as newer, which is reported.
fn is_newer_there(from: &Fetcher<'_>, in_prefix: &PrefixState, cached: &CheckpointId) -> bool {
    let (job, Some(first)) = (from.job, &in_prefix.first) else { return false };
    let unsaid = job.params.get(&param::CURRENT).is_none();
    if unsaid && in_prefix.is_chosen && first.seq < cached.seq {
        let chosen = first.name_text();
        job.report.notice(&format!(
            "the index calls `{chosen}' current, but `{}' in cache is newer and is restarted from; to go back all the \
             same, start with SCR_CURRENT={chosen}",
            cached.name_text()
        ));
    }
    next_there(job, from.cache, std::slice::from_ref(first), |_| true).is_some()
}

/// Warns of a checkpoint in cache that is newer than the one to restart from, and that the application cannot read, since it
/// reads in the prefix directory. Gives it.
fn report_unread(job: &Job, cache: &Cache, loaded: Option<&CheckpointId>) -> Option<Unread> {
    let newest = holdings::next(&cache.holdings(), Goal::Restart { in_prefix: false });
    let newest = cache.dataset(newest.filter(Holding::is_wanted)?.id)?;
    if loaded.is_some_and(|loaded| newest.seq() <= loaded.seq) {
        return None;
    }
    job.report.warn(&format!(
        "{} is not restarted from: with SCR_GLOBAL_RESTART=1 checkpoints are read in the prefix directory, and it is {}; to \
         restart from it, end this run and start with SCR_GLOBAL_RESTART=0",
        newest.record.label(),
        newest.holding().in_words()
    ));
    Some((newest.seq(), newest.checkpoint().name_text()))
}

/// The user or the application has gone back over the checkpoints at these places, which are given up. Only a choice makes one: a
/// run that cannot read the newest checkpoint takes nothing away.
struct WentBack(Between);

impl WentBack {
    /// To the checkpoint at this place, over all that were written before now.
    fn to(chosen: Seq, from: &Fetcher<'_>) -> Self {
        let next = Seq { run: from.job.run.number, id: from.cache.next_id() };
        Self(Between { after: chosen, before: next })
    }

    /// Takes back the flushes of newer checkpoints that have arrived and could not be closed: whoever closes them later would
    /// list them again, and make one of them current. Collective.
    fn abandon_newer(&self, job: &Job, chosen: &[u8]) -> Result<(), Error> {
        // One of the same name is what was asked for, and output has to arrive.
        let is_unwanted = |dataset: &DatasetDescriptor| {
            dataset.is_only_checkpoint() && dataset.name != chosen && dataset.seq() > self.0.after
        };
        let abandoned = job.do_on_first(|| job.ledger().abandon(is_unwanted)).map(drop);
        abandoned.doing("ending the flushes of checkpoints newer than the chosen one")
    }

    /// Drops the newer checkpoints if the user wants that: `SCR_DROP_AFTER_CURRENT`. They leave the index, and also the cache, or
    /// the next run would flush and list them again. No flush may be copying one of them. Collective.
    fn drop_newer(&self, job: &Job, cache: &mut Cache) -> Result<(), Error> {
        let seq = self.0.after;
        if !job.params.get(&param::DROP_AFTER_CURRENT) {
            return Ok(());
        }
        let newer = cache.ids_of(|cached| {
            let is_checkpoint = cached.record.dataset.checkpoint && !cached.holding().must_stay();
            is_checkpoint && cached.seq() > seq
        });
        let is_left = |left: &DatasetDescriptor| left.seq() > seq && left.is_only_checkpoint();
        let which = Dropping::CheckpointsAfter(seq);
        for step in Leave::ORDER {
            match step {
                Leave::Record => cache.give_up(job, &newer, is_left, which, None, Some(self.0))?,
                Leave::Index => Self::drop_from_index(job, which, seq),
                Leave::Cache => cache.withdraw(job, &newer)?,
            }
        }
        Ok(())
    }

    fn drop_from_index(job: &Job, which: Dropping<'_>, seq: Seq) {
        if job.rank() != Rank(0) {
            return;
        }
        match job.ledger().transact(&Request::Drop { which, run: job.run.number }) {
            Ok(dropped) if dropped.events.is_empty() => (),
            Ok(dropped) => {
                let left = dropped.events.iter().filter(|event| matches!(event, Event::Left(_))).count();
                job.report.notice(&format!(
                    "SCR_DROP_AFTER_CURRENT=1: dropped from the index: {} newer than dataset {}",
                    count(left as u64, "checkpoint"),
                    seq.id
                ));
            }
            Err(error) => job.report.error(&scr_base::describe(&error)),
        }
    }
}

/// The place of the checkpoint to restart from among those of the prefix directory, in the order of the index; `None` if it is in
/// cache, or there is none.
fn next_there(job: &Job, cache: &Cache, there: &[Candidate], is_left: impl Fn(Seq) -> bool) -> Option<usize> {
    let first = there.first()?.seq;
    let in_prefix = job.params.get(&param::GLOBAL_RESTART);
    let listed = there.iter().map(|candidate| Holding::listed(candidate.seq, first));
    let left =
        |all: &mut dyn Iterator<Item = Holding>| -> Vec<_> { all.filter(|held| is_left(held.seq)).collect() };
    let cached = left(&mut cache.datasets().iter().map(CachedDataset::holding));
    let next = holdings::fetched(&left(&mut { listed }), &cached, in_prefix)?;
    there.iter().position(|candidate| candidate.seq == next)
}

/// The checkpoint in cache that a run restarts from that begins, and has flushed nothing yet.
pub(crate) fn first_cached<'c>(job: &Job, cache: &'c Cache) -> Option<&'c CachedDataset> {
    let in_prefix = job.params.get(&param::GLOBAL_RESTART);
    cache.dataset(holdings::first(&cache.holdings(), in_prefix)?.id)
}

/// The newest checkpoint in cache that a run can restart from.
pub(crate) fn newest_cached<'c>(
    job: &Job,
    cache: &'c Cache,
    is_wanted: impl Fn(&CachedDataset) -> bool,
) -> Option<&'c CachedDataset> {
    // If all files are read in the prefix directory, they must have got there, under their names.
    let in_prefix = job.params.get(&param::GLOBAL_RESTART);
    let wanted = cache.datasets().iter().filter(|cached| is_wanted(cached));
    let wanted: Vec<_> = wanted.map(CachedDataset::holding).collect();
    cache.dataset(holdings::next(&wanted, Goal::Restart { in_prefix })?.id)
}

/// Records in cache and in the index that no run restarts from a checkpoint: the application could not, or its bytes are others.
pub(crate) fn record_refused(job: &Job, cache: &mut Cache, refused: &CheckpointId) {
    let Some(cached) = cache.dataset_mut(refused.id) else { return };
    cached.set_standing(Standing::Refused);
    // Otherwise its number, or its name, may refer to another one there.
    let is_listed = !cached.prefix.is_superseded();
    _ = cached.record_refused(job);
    if is_listed {
        cache.restore_name(refused);
    }
    if job.rank() == Rank(0) {
        // Nodes that are away may have another copy.
        let alone = job.run.number_alone();
        let now = &*job.local_time();
        let recorded = job.ledger().transact(&Request::Refuse { seq: refused.seq, is_listed, alone, now });
        job.report_failed(recorded.map(drop));
    }
    cache.list(job, News::None);
}

/// Whether as many restarts from a checkpoint have begun as the user allows (`SCR_RESTART_ATTEMPTS`): one from which the application
/// dies at every restart is given up. Rank 0 counts. If the file cannot be read or written, this is reported and counts as no
/// attempt: giving up a good checkpoint is worse than one more attempt. Collective.
fn are_attempts_spent(job: &Job, checkpoint: &CheckpointId) -> Result<bool, CommError> {
    let most = job.params.get(&param::RESTART_ATTEMPTS);
    if most == 0 {
        return Ok(false);
    }
    let are_spent = |checkpoint: &CheckpointId| {
        let numbers = reported(job, job.ledger().numbers());
        numbers.is_some_and(|numbers| numbers.are_attempts_spent(checkpoint.seq.id, &checkpoint.name, most))
    };
    let are_spent = job.any(job.rank() == Rank(0) && are_spent(checkpoint))?;
    if are_spent {
        job.report.warn(&format!(
            "`{}' is given up: {} from it led to no new checkpoint (SCR_RESTART_ATTEMPTS={most})",
            checkpoint.name_text(),
            count(most, "restart")
        ));
    }
    Ok(are_spent)
}

/// The application begins to restart from this checkpoint, or it has written one, and what it restarted from was good.
fn count_attempt(job: &Job, of: Option<&CheckpointId>) {
    if job.rank() == Rank(0) && job.params.get(&param::RESTART_ATTEMPTS) > 0 {
        let of = of.map(|checkpoint| (checkpoint.seq.id, &*checkpoint.name));
        reported(job, job.ledger().transact(&Request::Attempt(of)));
    }
}

fn reported<T>(job: &Job, result: Result<T, PrefixError>) -> Option<T> {
    result.map_err(|error| job.report.warn(&scr_base::describe(&error))).ok()
}
