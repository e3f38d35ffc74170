//! The operations of runs and commands.

use super::super::super::doubt::{is_any_at_risk, keeps_its_files};
use super::super::super::{is_recorded, Close, Doubts, Leave, Proof};
use super::closing::{close_step, is_same, MARK};
use super::{
    Answer, Ask, Bytes, Candidate, Leaving, Op, Outcome, Reads, Recorded, State, Why, World, DATASETS,
    FLUSHES, RUN_1, RUN_2, SAVING, SHARED,
};
use crate::Overwritten;

/// The steps of a flush from here on are those of [`Close`], and each is at a file.
const CLOSING: u8 = 32;
const FILE: u8 = 8;
/// Each step of [`Leave`] has so many parts.
const PARTS: u8 = 8;
/// A step that an actor could take.
const TAKEN: bool = true;

impl World {
    fn goto(&self, state: &mut State, who: usize, step: u8) -> bool {
        state.actors[who].step = step;
        TAKEN
    }

    fn end_op(&self, state: &mut State, who: usize) -> bool {
        let actor = &mut state.actors[who];
        (actor.op, actor.step, actor.waited, actor.flag) = (actor.op + 1, 0, 0, false);
        TAKEN
    }

    pub(super) fn operate(&mut self, state: &mut State, who: usize, op: Op) -> bool {
        let step = state.actors[who].step;
        match op {
            Op::Start => self.start(state, who, step),
            Op::EndAll { leave } => {
                let why = if leave { Why::EndArrived } else { Why::Earlier };
                self.end_all(state, who, why, |_| true)
            }
            Op::Read(reads) => self.read(state, who, step, reads),
            Op::Flush(dataset) => self.flush(state, who, step, dataset),
            Op::InPlace(dataset) => self.write_in_place(state, who, step, dataset),
            Op::Save => self.save(state, who, step),
            Op::MakeCurrent => self.make_current(state, who),
            Op::Leave(why) => self.leave(state, who, step, why),
            Op::CScr(dataset) => self.write_as_c_scr(state, who, step, dataset),
            Op::List(dataset) => self.list(state, who, dataset),
            Op::Damage(dataset) => self.damage(state, who, dataset),
        }
    }

    fn start(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        if step == 0 {
            // Nothing is promised about two jobs that write one file in place at the same time.
            let writes_in_place = self.scenario.in_place[..self.scenario.second].contains(&true);
            if writes_in_place && state.actors[RUN_1].is_alive {
                return false;
            }
            self.ask(state, Ask::BeginRun);
            state.is_second = state.actors[RUN_1].is_alive && !self.scenario.recovers;
            return self.goto(state, who, 1);
        }
        if !state.is_second {
            self.ask(state, Ask::ReleaseEarlier);
        }
        self.end_op(state, who)
    }

    /// One flush after the other, each once.
    fn end_all(&mut self, state: &mut State, who: usize, why: Why, is_meant: impl Fn(usize) -> bool) -> bool {
        let next = state.actors[who].waited as usize;
        let is_on_record =
            |flush: &usize| state.disk.records[*flush] != Recorded::Nothing && is_meant(*flush);
        match (next..FLUSHES).find(is_on_record) {
            None => self.end_op(state, who),
            Some(flush) => {
                state.actors[who].waited = flush as u8 + 1;
                self.push(state, who, flush as u8, why);
                TAKEN
            }
        }
    }

    /// A fetch: the bytes are read, and then it counts if the dataset is still complete.
    fn read(&mut self, state: &mut State, who: usize, step: u8, reads: Reads) -> bool {
        let chosen = state.actors[who].waited;
        let dataset = chosen.wrapping_sub(1);
        match step {
            0 if reads == Reads::InPlace => match self.choose(state, 0, self.scenario.ranks.of_second()) {
                None => self.end_op(state, who),
                Some(dataset) => {
                    if let Answer::Done { .. } = self.ask(state, Ask::Hold(dataset)) {
                        state.reads = dataset + 1;
                    }
                    self.end_op(state, who)
                }
            },
            0 => match self.choose(
                state,
                usize::from(reads == Reads::MissesNewest),
                self.scenario.ranks.of_second(),
            ) {
                None => self.end_op(state, who),
                Some(dataset) => {
                    state.actors[who].waited = dataset + 1;
                    state.actors[who].flag = !self.is_whole(&state.disk, dataset as usize);
                    self.goto(state, who, 1)
                }
            },
            1 => {
                let make_current = reads != Reads::MissesNewest;
                let answer = self.ask(state, Ask::Fetched { dataset, make_current });
                let counts = matches!(answer, Answer::Done { .. });
                state.told.wrong |= counts && state.actors[who].flag;
                match counts && reads == Reads::Refuses {
                    true => self.goto(state, who, 2),
                    false => self.end_op(state, who),
                }
            }
            _ => {
                self.ask(state, Ask::Refuse(dataset));
                state.told.refused[dataset as usize] = true;
                self.end_op(state, who)
            }
        }
    }

    /// The first candidate that a run with so many ranks can use, after so many others. Those that are damaged are marked, and
    /// those that it may not read are left alone.
    pub(super) fn choose(&mut self, state: &mut State, skipped: usize, ranks: u32) -> Option<u8> {
        let order = self.orders[state.disk.ledger as usize].clone();
        for candidate in order.iter().skip(skipped) {
            let dataset = candidate.seq.id as usize - 1;
            if !self.may_read(ranks, dataset) {
                continue;
            }
            match self.can_be_used(state, dataset, candidate) {
                true => return Some(dataset as u8),
                false => _ = self.ask(state, Ask::Fail(dataset as u8)),
            }
        }
        None
    }

    /// As `Fetch::bring_once` reads a file.
    fn can_be_used(&self, state: &State, dataset: usize, candidate: &Candidate) -> bool {
        let by = state.disk.overwritten.checked_sub(1).map(|by| self.datasets[usize::from(by)].seq());
        let is_overwritten = by.is_some_and(|by| Overwritten { by }.is_since(self.datasets[dataset].seq()));
        self.files_of(dataset).all(|(_, file)| {
            let found = state.disk.files[file];
            let doubts = Doubts {
                is_given_out: file == SHARED && is_overwritten,
                is_changed: candidate.by_time && found != Bytes::Of(dataset as u8),
                is_suspect: candidate.suspect,
            };
            match doubts.proof(self.scenario.has_sums) {
                Proof::Nothing => found != Bytes::None,
                Proof::Checksum => is_same(found, dataset),
                Proof::GivenOut | Proof::Changed => false,
            }
        })
    }

    fn flush(&mut self, state: &mut State, who: usize, step: u8, dataset: usize) -> bool {
        let flush = dataset as u8;
        match step {
            0 => match self.ask(state, Ask::Begin(flush)) {
                Answer::Done { .. } => {
                    state.told.begun[dataset] = true;
                    self.goto(state, who, 1)
                }
                _ => self.end_op(state, who),
            },
            1 => {
                state.disk.has_lists[dataset] = true;
                state.disk.records[dataset] = Recorded::UnderWay;
                self.goto(state, who, CLOSING + MARK)
            }
            closing if closing >= CLOSING => self.close_own(state, who, closing - CLOSING, dataset),
            10 => match state.actors[who].outcome {
                Outcome::TakenBack => self.goto(state, who, 11),
                _ => self.end_op(state, who),
            },
            11 => {
                state.disk.staged[dataset] = Default::default();
                self.goto(state, who, 12)
            }
            _ => {
                if !self.lock(state, who) {
                    return false;
                }
                self.ask(state, Ask::ReleaseFlush(flush));
                (state.disk.records[dataset], state.disk.is_marked[dataset]) = (Recorded::Nothing, false);
                self.unlock(state, who);
                self.end_op(state, who)
            }
        }
    }

    /// The ranks of a job close its flush. A step is the place in the order of steps, and the file there.
    fn close_own(&mut self, state: &mut State, who: usize, step: u8, dataset: usize) -> bool {
        let (place, file, flush) = (step % FILE, step / FILE, dataset as u8);
        match close_step(place) {
            Close::Mark => {
                self.stage(state, dataset);
                state.disk.is_marked[dataset] = true;
                state.told.arrived[dataset] = true;
            }
            Close::Take => {
                let then = self.close_after(place).map_or(0, |place| CLOSING + place);
                let ask = Ask::Take { flush, closer: 0 };
                return self.take_when_its_turn(state, who, ask, then, Self::resolve);
            }
            Close::Name => {
                let mut files = self.files_of(dataset).skip(usize::from(file));
                let (named, is_last) = (files.next(), files.next().is_none());
                drop(files);
                match named.is_none_or(|(staging, target)| self.rename(state, dataset, staging, target)) {
                    true if is_last => (),
                    true => return self.goto(state, who, CLOSING + step + FILE),
                    false => return self.resolve(state, who),
                }
            }
            Close::Commit => match self.ask(state, Ask::Complete { flush, closer: 0 }) {
                Answer::Done { .. } => {
                    self.tell_complete(state, dataset);
                    if who == RUN_2 {
                        self.let_go(state);
                    }
                }
                _ => return self.resolve(state, who),
            },
            Close::Forget => self.forget(state, dataset),
            Close::Sync => self.sync(state, dataset),
        }
        match self.close_after(place) {
            Some(place) => self.goto(state, who, CLOSING + place),
            None => self.end_op(state, who),
        }
    }

    fn stage(&self, state: &mut State, flush: usize) {
        let dataset = super::dataset_of(flush);
        for (staging, _) in self.files_of(dataset) {
            state.disk.staged[flush][staging] = Bytes::Of(dataset as u8);
        }
    }

    fn resolve(&mut self, state: &mut State, who: usize) -> bool {
        let Some(&Op::Flush(flush)) = self.programs[who].get(state.actors[who].op as usize) else {
            return self.end_op(state, who);
        };
        self.goto(state, who, 10);
        self.push(state, who, flush as u8, Why::Resolve);
        TAKEN
    }

    /// Asks, and ends the flush that has to end first.
    fn take_when_its_turn(
        &mut self,
        state: &mut State,
        who: usize,
        ask: Ask,
        then: u8,
        fail: fn(&mut Self, &mut State, usize) -> bool,
    ) -> bool {
        let waited = state.actors[who].waited;
        if waited > 0 && state.actors[who].outcome == Outcome::Postponed {
            return fail(self, state, who);
        }
        match self.ask(state, ask) {
            Answer::Done { .. } => {
                if who == RUN_2 {
                    // It may replace what it reads itself.
                    state.reads = 0;
                }
                state.actors[who].waited = 0;
                self.goto(state, who, then)
            }
            Answer::After(other) if waited != other.wrapping_add(2) => {
                state.actors[who].waited = other.wrapping_add(2);
                self.push(state, who, other, Why::End);
                TAKEN
            }
            _ => fail(self, state, who),
        }
    }

    fn write_in_place(&mut self, state: &mut State, who: usize, step: u8, dataset: usize) -> bool {
        let (it, of) = (dataset as u8, Bytes::Of(dataset as u8));
        let shares = self.scenario.shares[dataset];
        match step {
            0 => {
                let is_at_risk = is_any_at_risk(self.ledger(&state.disk), &self.datasets[dataset]);
                state.actors[who].flag = is_at_risk;
                self.take_when_its_turn(state, who, Ask::BeginInPlace(it), 1, Self::end_op_of)
            }
            1 => {
                state.told.begun[dataset] = true;
                let is_there = shares && state.disk.files[SHARED] != Bytes::None;
                if is_recorded(is_there, state.actors[who].flag) {
                    // The record comes first, and then the application has the path.
                    state.disk.overwritten = it + 1;
                }
                if is_there {
                    self.give_to_write_over(state, dataset);
                }
                self.goto(state, who, 2)
            }
            2 => {
                state.disk.files[dataset] = of;
                if shares {
                    state.disk.files[SHARED] = Bytes::Torn(it);
                }
                self.goto(state, who, 3)
            }
            3 => {
                if shares {
                    state.disk.files[SHARED] = of;
                }
                state.told.arrived[dataset] = true;
                self.goto(state, who, 4)
            }
            4 => self.take_when_its_turn(state, who, Ask::TakeInPlace(it), 5, Self::give_back),
            5 => {
                state.disk.has_lists[dataset] = true;
                self.goto(state, who, 6)
            }
            6 => match self.ask(state, Ask::CompleteInPlace(it)) {
                Answer::Done { .. } => {
                    state.told.complete[dataset] = true;
                    if who == RUN_2 {
                        self.let_go(state);
                    }
                    self.goto(state, who, 7)
                }
                _ => self.goto(state, who, 9),
            },
            7 => {
                if shares {
                    state.disk.overwritten = 0;
                }
                self.end_op(state, who)
            }
            _ => {
                self.ask(state, Ask::ReleaseWriter(it));
                self.end_op(state, who)
            }
        }
    }

    fn end_op_of(&mut self, state: &mut State, who: usize) -> bool {
        self.end_op(state, who)
    }

    fn give_back(&mut self, state: &mut State, who: usize) -> bool {
        self.goto(state, who, 9)
    }

    fn let_go(&mut self, state: &mut State) {
        self.ask(state, Ask::ReleaseReader);
        state.reads = 0;
    }

    fn give_to_write_over(&self, state: &mut State, dataset: usize) {
        for older in (0..DATASETS).filter(|&other| other != dataset && self.scenario.shares[other]) {
            state.told.given_over[older] |= older < dataset || state.told.complete[older];
        }
    }

    fn save(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        match step {
            // It is for when the job has ended.
            0 if state.actors[RUN_1].is_alive => false,
            0 if !state.told.complete[0] => self.end_op(state, who),
            0 => {
                state.disk.has_lists[0] = true;
                self.stage(state, SAVING);
                self.goto(state, who, 1)
            }
            1 => {
                state.disk.is_marked[SAVING] = true;
                state.disk.records[SAVING] = Recorded::UnderWay;
                self.goto(state, who, 2)
            }
            2 => {
                self.goto(state, who, 3);
                self.push(state, who, SAVING as u8, Why::Finish);
                TAKEN
            }
            _ => self.end_op(state, who),
        }
    }

    /// Datasets leave for good, in the order of jobs and commands.
    fn leave(&mut self, state: &mut State, who: usize, step: u8, why: Leaving) -> bool {
        if step == 0 && !self.begin_to_leave(state, who, why) {
            return self.end_op(state, who);
        }
        let part = step % PARTS;
        match Leave::ORDER[usize::from(step / PARTS)] {
            Leave::Record => {
                let begun = state.actors[who].dropped;
                match why {
                    Leaving::Dropped => self.ask(state, Ask::Withdraw { begun, named_a: true }),
                    Leaving::Deleted => self.ask(state, Ask::Withdraw { begun, named_a: false }),
                    Leaving::WentBack if part == 0 => {
                        self.ask(state, Ask::GoBack);
                        return self.goto(state, who, step + 1);
                    }
                    Leaving::WentBack => self.ask(state, Ask::WithdrawNewer),
                };
                self.leave_next(state, who, step)
            }
            Leave::Index => match why {
                Leaving::Dropped => self.drop_named(state, who, step),
                Leaving::Deleted => self.delete(state, who, step, 0),
                Leaving::WentBack => {
                    self.ask(state, Ask::DropNewer);
                    self.leave_next(state, who, step)
                }
            },
            Leave::Cache => unreachable!("no run has a cache in this world"),
        }
    }

    /// Which datasets the user wants to leave. False if there is none.
    fn begin_to_leave(&self, state: &mut State, who: usize, why: Leaving) -> bool {
        let named_a = self.scenario.named_a;
        let meant: [bool; DATASETS] = match why {
            Leaving::Dropped => std::array::from_fn(|of| named_a[of] && state.told.begun[of]),
            Leaving::Deleted => {
                let entry = self.ledger(&state.disk).index().entry(1);
                let is_there = entry.is_some_and(|entry| entry.is_valid());
                std::array::from_fn(|of| of == 0 && is_there)
            }
            Leaving::WentBack => state.actors[who].dropped,
        };
        state.actors[who].dropped = meant;
        for of in 0..DATASETS {
            state.told.dropping[of] |= meant[of] || why == Leaving::Dropped && named_a[of];
        }
        why == Leaving::Dropped || meant.contains(&true)
    }

    /// After a step was done. In this world nothing is in a cache.
    fn leave_next(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        let next = step / PARTS + 1;
        if let Some(Leave::Record | Leave::Index) = Leave::ORDER.get(usize::from(next)) {
            return self.goto(state, who, next * PARTS);
        }
        for of in (0..DATASETS).filter(|&of| state.actors[who].dropped[of]) {
            (state.told.gone[of], state.told.dropping[of]) = (true, true);
        }
        self.end_op(state, who)
    }

    /// The user goes back to dataset 0, once the first run has ended, and whatever it has begun since is to leave.
    fn make_current(&mut self, state: &mut State, who: usize) -> bool {
        if state.actors[RUN_1].is_alive {
            return false;
        }
        let order = self.orders[state.disk.ledger as usize].clone();
        let chosen = order.iter().find(|candidate| candidate.seq.id == 1);
        if chosen.is_some_and(|chosen| self.can_be_used(state, 0, chosen)) {
            self.ask(state, Ask::MakeCurrent(0));
            let is_newer = |of: usize| of > 0 && of < self.scenario.second && state.told.begun[of];
            let newer: [bool; DATASETS] = std::array::from_fn(is_newer);
            state.actors[who].dropped = newer;
            (0..DATASETS).for_each(|of| state.told.dropping[of] |= newer[of]);
        }
        self.end_op(state, who)
    }

    /// C SCR lists what it has begun, does not say which files it gives to the application, and ends before it is complete.
    fn write_as_c_scr(&mut self, state: &mut State, who: usize, step: u8, dataset: usize) -> bool {
        let (it, of) = (dataset as u8, Bytes::Of(dataset as u8));
        match step {
            0 if state.actors[RUN_1].is_alive => return false,
            0 => {
                self.ask(state, Ask::CScrBegan(it));
                state.told.begun[dataset] = true;
            }
            1 => {
                self.give_to_write_over(state, dataset);
                state.disk.files[dataset] = of;
            }
            2 => state.disk.files[SHARED] = Bytes::Torn(it),
            _ => {
                state.disk.files[SHARED] = of;
                state.told.arrived[dataset] = true;
                return self.end_op(state, who);
            }
        }
        self.goto(state, who, step + 1)
    }

    /// The flushes are taken back, and then it leaves the index.
    fn drop_named(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        let named_a = self.scenario.named_a;
        let first = step - step % PARTS;
        match step % PARTS {
            0 => {
                let next = state.actors[who].waited as usize;
                let is_it = |flush: &usize| {
                    named_a[super::dataset_of(*flush)] && state.disk.records[*flush] != Recorded::Nothing
                };
                match (next..FLUSHES).find(is_it) {
                    None => self.goto(state, who, first + 1),
                    Some(flush) => {
                        state.actors[who].waited = flush as u8 + 1;
                        state.actors[who].outcome = Outcome::Complete;
                        self.push(state, who, flush as u8, Why::TakeBack);
                        self.goto(state, who, first + 2)
                    }
                }
            }
            2 if state.actors[who].outcome == Outcome::Postponed => self.end_op(state, who),
            2 => self.goto(state, who, first),
            _ => {
                // A job may still give files of one that it has just lost their names.
                for of in (0..DATASETS).filter(|&of| named_a[of] && state.told.arrived[of]) {
                    let is_older = |other: &usize| *other < of && self.scenario.shares[*other];
                    let is_new = self.scenario.shares[of] && !state.told.complete[of];
                    (0..DATASETS)
                        .filter(|_| is_new)
                        .filter(is_older)
                        .for_each(|older| state.told.given_over[older] = true);
                }
                match self.ask(state, Ask::Drop) {
                    Answer::Done { .. } => self.leave_next(state, who, step),
                    // Its flush was on record only after the others had been taken back.
                    Answer::After(_) => {
                        state.actors[who].waited = 0;
                        self.goto(state, who, first)
                    }
                    Answer::Refused { .. } => self.end_op(state, who),
                }
            }
        }
    }

    /// The files are compared, and in the same change it is listed. No actor does so while a flush of it is on record, or being
    /// closed.
    fn list(&mut self, state: &mut State, who: usize, dataset: usize) -> bool {
        let closes = |actor: &super::Actor| {
            actor.frames[..actor.depth as usize].iter().any(|frame| frame.flush == dataset as u8)
        };
        if state.actors.iter().enumerate().any(|(other, actor)| other != who && closes(actor)) {
            return false;
        }
        if state.disk.records[dataset] != Recorded::Nothing
            || !state.disk.has_lists[dataset]
            || !self.files_of(dataset).all(|(_, file)| is_same(state.disk.files[file], dataset))
        {
            return self.end_op(state, who);
        }
        match self.ask(state, Ask::List(dataset as u8)) {
            Answer::After(other) if state.actors[who].waited != other.wrapping_add(2) => {
                state.actors[who].waited = other.wrapping_add(2);
                self.push(state, who, other, Why::End);
                return TAKEN;
            }
            Answer::Done { .. } => {
                let told = &mut state.told;
                told.complete[dataset] = true;
                (told.dropping[dataset], told.gone[dataset], told.given_over[dataset]) =
                    (false, false, false);
            }
            _ => {}
        }
        self.end_op(state, who)
    }

    fn delete(&mut self, state: &mut State, who: usize, step: u8, dataset: usize) -> bool {
        let (it, part) = (dataset as u8, step % PARTS);
        if part > 1 && !self.may_go_on(state, who) {
            return self.end_op(state, who);
        }
        match part {
            0 => {
                if !self.lock(state, who) {
                    return false;
                }
                if !matches!(self.ask(state, Ask::BeginDeletion(it)), Answer::Done { .. }) {
                    self.unlock(state, who);
                    return self.end_op(state, who);
                }
            }
            1 => state.actors[who].flag = self.is_wanted_by_others(state, dataset),
            2 => state.disk.files[dataset] = Bytes::None,
            3 => {
                if self.scenario.shares[dataset] && !state.actors[who].flag {
                    state.disk.files[SHARED] = Bytes::None;
                }
            }
            4 => match self.ask(state, Ask::EndDeletion(it)) {
                Answer::Done { is_changed: true, .. } => (),
                Answer::Done { is_changed: false, .. } => return self.end_deletion(state, who, step),
                _ => {
                    self.unlock(state, who);
                    return self.end_op(state, who);
                }
            },
            _ => {
                state.disk.has_lists[dataset] = false;
                return self.end_deletion(state, who, step);
            }
        }
        self.goto(state, who, step + 1)
    }

    fn end_deletion(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        self.unlock(state, who);
        self.leave_next(state, who, step)
    }

    /// Whether another dataset keeps the shared file.
    fn is_wanted_by_others(&self, state: &State, dataset: usize) -> bool {
        let index = self.ledger(&state.disk).index();
        index.entries().iter().any(|entry| {
            let other = entry.id as usize - 1;
            let has_it = state.disk.has_lists[other] && self.scenario.shares[other];
            has_it && keeps_its_files(entry, dataset as u64 + 1)
        })
    }

    fn damage(&mut self, state: &mut State, who: usize, dataset: usize) -> bool {
        if state.disk.files[dataset] == Bytes::Of(dataset as u8) && state.told.complete[dataset] {
            state.disk.files[dataset] = Bytes::Torn(dataset as u8);
            state.told.damaged[dataset] = true;
            self.ask(state, Ask::Fail(dataset as u8));
        }
        self.end_op(state, who)
    }
}
