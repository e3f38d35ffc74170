//! What runs and commands do.

use super::closing::is_same;
use super::{
    Answer, Ask, Bytes, Op, Outcome, Reads, Recorded, State, Why, World, DATASETS, FLUSHES, RUN_1, RUN_2,
    SAVING, SHARED,
};

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
            Op::Drop => self.drop_named(state, who, step),
            Op::List(dataset) => self.list(state, who, dataset),
            Op::Delete(dataset) => self.delete(state, who, step, dataset),
            Op::Damage(dataset) => self.damage(state, who, dataset),
        }
    }

    fn start(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        if step == 0 {
            // Of two jobs at a time that write one file in place nothing is promised.
            let writes_in_place = self.scenario.in_place[..self.scenario.second].contains(&true);
            if writes_in_place && state.actors[RUN_1].is_alive {
                return false;
            }
            self.ask(state, Ask::BeginRun);
            state.is_second = state.actors[RUN_1].is_alive;
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
            0 if reads == Reads::InPlace => match self.choose(state, 0) {
                None => self.end_op(state, who),
                Some(dataset) => {
                    if let Answer::Done { .. } = self.ask(state, Ask::Hold(dataset)) {
                        state.reads = dataset + 1;
                    }
                    self.end_op(state, who)
                }
            },
            0 => match self.choose(state, usize::from(reads == Reads::MissesNewest)) {
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

    /// The first candidate that can be used, after so many others. Those that are damaged are marked.
    pub(super) fn choose(&mut self, state: &mut State, skipped: usize) -> Option<u8> {
        let order = self.orders[state.disk.ledger as usize].clone();
        for candidate in order.iter().skip(skipped) {
            let dataset = candidate.seq.id as usize - 1;
            match self.can_be_used(state, dataset, candidate.suspect) {
                true => return Some(dataset as u8),
                false => _ = self.ask(state, Ask::Fail(dataset as u8)),
            }
        }
        None
    }

    /// Whose files may have been replaced is compared with its checksums; of others the files must be there.
    fn can_be_used(&self, state: &State, dataset: usize, is_suspect: bool) -> bool {
        self.files_of(dataset).all(|(_, file)| {
            let is_overwritten = file == SHARED && state.disk.overwritten > dataset as u8 + 1;
            let is_compared = is_suspect || is_overwritten;
            let found = state.disk.files[file];
            if is_compared {
                is_same(found, dataset)
            } else {
                found != Bytes::None
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
                self.goto(state, who, 4)
            }
            4 => {
                self.stage(state, dataset);
                state.disk.is_marked[dataset] = true;
                state.told.arrived[dataset] = true;
                self.goto(state, who, 5)
            }
            5 => self.take_when_its_turn(state, who, Ask::Take { flush, closer: 0 }, 6, Self::resolve),
            6 | 7 => {
                let file = self.files_of(dataset).nth(usize::from(step) - 6);
                match file.is_none_or(|(staging, target)| self.rename(state, dataset, staging, target)) {
                    true => self.goto(state, who, step + 1),
                    false => self.resolve(state, who),
                }
            }
            8 => match self.ask(state, Ask::Complete { flush, closer: 0 }) {
                Answer::Done { .. } => {
                    self.tell_complete(state, dataset);
                    if who == RUN_2 {
                        self.let_go(state);
                    }
                    self.goto(state, who, 9)
                }
                _ => self.resolve(state, who),
            },
            9 => {
                state.disk.is_marked[dataset] = false;
                if state.disk.records[dataset] == Recorded::UnderWay {
                    state.disk.records[dataset] = Recorded::Nothing;
                }
                self.end_op(state, who)
            }
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
                let index = self.ledger(&state.disk).index();
                let others = index.entries().into_iter().filter(|entry| entry.id != u64::from(it) + 1);
                let is_at_risk = others.into_iter().any(|entry| entry.is_valid() || entry.flushed.is_none());
                state.actors[who].flag = is_at_risk;
                self.take_when_its_turn(state, who, Ask::BeginInPlace(it), 1, Self::end_op_of)
            }
            1 => {
                state.told.begun[dataset] = true;
                if shares && state.disk.files[SHARED] != Bytes::None {
                    self.give_to_write_over(state, who, dataset);
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

    /// The record comes first, and then the application has the path.
    fn give_to_write_over(&self, state: &mut State, who: usize, dataset: usize) {
        if state.actors[who].flag {
            state.disk.overwritten = dataset as u8 + 1;
        }
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

    /// Recorded in the numbers first; then the flushes are taken back; then it leaves the index.
    fn drop_named(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        let named_a = self.scenario.named_a;
        match step {
            0 => {
                let is_meant = |of: usize| named_a[of] && state.told.begun[of];
                let meant = std::array::from_fn(is_meant);
                self.ask(state, Ask::Withdraw { begun: meant, named_a: true });
                for of in (0..DATASETS).filter(|&of| named_a[of]) {
                    state.told.dropping[of] = true;
                }
                state.actors[who].dropped = meant;
                self.goto(state, who, 1)
            }
            1 => {
                let next = state.actors[who].waited as usize;
                let is_it = |flush: &usize| {
                    named_a[super::dataset_of(*flush)] && state.disk.records[*flush] != Recorded::Nothing
                };
                match (next..FLUSHES).find(is_it) {
                    None => self.goto(state, who, 2),
                    Some(flush) => {
                        state.actors[who].waited = flush as u8 + 1;
                        state.actors[who].outcome = Outcome::Complete;
                        self.push(state, who, flush as u8, Why::TakeBack);
                        self.goto(state, who, 3)
                    }
                }
            }
            3 if state.actors[who].outcome == Outcome::Postponed => self.end_op(state, who),
            3 => self.goto(state, who, 1),
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
                    Answer::Done { .. } => {
                        for of in (0..DATASETS).filter(|&of| state.actors[who].dropped[of]) {
                            state.told.gone[of] = true;
                        }
                    }
                    // Its flush was on record only after the others had been taken back.
                    Answer::After(_) => {
                        state.actors[who].waited = 0;
                        return self.goto(state, who, 1);
                    }
                    Answer::Refused { .. } => (),
                }
                self.end_op(state, who)
            }
        }
    }

    /// The files are compared, and in the same change it is listed. Nobody does so while a flush of it is on record, or
    /// being closed.
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
        let it = dataset as u8;
        if step > 1 && step != 4 && !self.may_go_on(state, who) {
            return self.end_op(state, who);
        }
        match step {
            0 => {
                let entry = self.ledger(&state.disk).index().entry(u64::from(it) + 1);
                if entry.is_none_or(|entry| !entry.is_valid()) {
                    return self.end_op(state, who);
                }
                let begun = std::array::from_fn(|of| of == dataset);
                self.ask(state, Ask::Withdraw { begun, named_a: false });
                state.told.dropping[dataset] = true;
                self.goto(state, who, 1)
            }
            1 => {
                if !self.lock(state, who) {
                    return false;
                }
                match self.ask(state, Ask::BeginDeletion(it)) {
                    Answer::Done { .. } => self.goto(state, who, 4),
                    _ => {
                        self.unlock(state, who);
                        self.end_op(state, who)
                    }
                }
            }
            4 => {
                state.actors[who].flag = self.is_wanted_by_others(state, dataset);
                self.goto(state, who, 5)
            }
            5 => {
                state.disk.files[dataset] = Bytes::None;
                self.goto(state, who, 6)
            }
            6 => {
                if self.scenario.shares[dataset] && !state.actors[who].flag {
                    state.disk.files[SHARED] = Bytes::None;
                }
                self.goto(state, who, 7)
            }
            7 => match self.ask(state, Ask::EndDeletion(it)) {
                Answer::Done { is_changed, .. } => {
                    state.told.gone[dataset] = true;
                    state.told.dropping[dataset] = true;
                    match is_changed {
                        true => self.goto(state, who, 8),
                        false => self.end_deletion(state, who),
                    }
                }
                _ => self.end_deletion(state, who),
            },
            _ => {
                state.disk.has_lists[dataset] = false;
                self.end_deletion(state, who)
            }
        }
    }

    fn end_deletion(&mut self, state: &mut State, who: usize) -> bool {
        self.unlock(state, who);
        self.end_op(state, who)
    }

    /// Whether another dataset that counts, or is about to, has the shared file: `names_of_others`.
    fn is_wanted_by_others(&self, state: &State, dataset: usize) -> bool {
        let index = self.ledger(&state.disk).index();
        index.entries().iter().any(|entry| {
            let other = entry.id as usize - 1;
            let counts = entry.is_valid() || entry.taken.as_ref().is_some_and(|by| by != super::DELETION);
            other != dataset && counts && state.disk.has_lists[other] && self.scenario.shares[other]
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
