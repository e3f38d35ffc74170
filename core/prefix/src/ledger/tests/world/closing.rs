//! How one process ends a flush: `Closing` in `commit/closing.rs`.

use super::super::super::{Close, Do, Ended, Found, Wish};
use super::{
    dataset_of, Answer, Ask, At, Bytes, Frame, Infallible, Outcome, Recorded, State, Why, World, SAVING,
};

impl World {
    fn go(&self, state: &mut State, who: usize, at: At) -> bool {
        self.frame(state, who).at = at;
        true
    }

    fn frame<'s>(&self, state: &'s mut State, who: usize) -> &'s mut Frame {
        let actor = &mut state.actors[who];
        &mut actor.frames[actor.depth as usize - 1]
    }

    /// The next step of ending the flush. False if it has to wait.
    pub(super) fn close(&mut self, state: &mut State, who: usize) -> bool {
        let frame = *self.frame(state, who);
        let flush = frame.flush as usize;
        match frame.at {
            At::Find => self.find(state, who, frame),
            At::Do(what) => self.execute(state, who, frame, what),
            At::Step { step, file } => match close_step(step) {
                Close::Take => self.take(state, who, frame, step),
                Close::Name if !self.may_go_on(state, who) => self.pop(state, who, Outcome::Postponed),
                Close::Name => self.name(state, who, flush, step, file),
                Close::Commit => self.commit(state, who, flush, step),
                Close::Forget if !self.may_go_on(state, who) => self.close_next(state, who, step),
                Close::Forget => {
                    self.forget(state, flush);
                    self.close_next(state, who, step)
                }
                Close::Sync => {
                    self.sync(state, flush);
                    self.close_next(state, who, step)
                }
                Close::Mark => self.close_next(state, who, step),
            },
            At::Away { .. } if !self.may_go_on(state, who) => self.pop(state, who, Outcome::Postponed),
            At::Away { step, file } => {
                if let Some((staging, target)) = self.files_of(dataset_of(flush)).nth(file as usize) {
                    state.disk.staged[flush][staging] = std::mem::take(&mut state.disk.files[target]);
                    state.disk.unsynced[target] = 0;
                }
                self.go(state, who, At::Back { step, file })
            }
            At::Back { step, file } => {
                if let Some((staging, target)) = self.files_of(dataset_of(flush)).nth(file as usize) {
                    self.rename(state, flush, staging, target);
                }
                self.go(state, who, At::Step { step, file: file + 1 })
            }
            At::ClearRecord(ended) => {
                state.disk.records[flush] = Recorded::Nothing;
                self.after(state, who, Do::Forget(ended), &Found::Done)
            }
        }
    }

    /// What `Closing::execute` does.
    fn execute(&mut self, state: &mut State, who: usize, frame: Frame, what: Do) -> bool {
        let flush = frame.flush as usize;
        let has_lock = self.may_go_on(state, who);
        match what {
            Do::Look { .. } => return self.look(state, who, flush, what),
            Do::Revoke { .. } | Do::RemoveStaging(_) | Do::Forget(_) if !has_lock => {
                return self.pop(state, who, Outcome::Postponed)
            }
            Do::Revoke { even_if_taken } => return self.take_back(state, who, frame, even_if_taken),
            Do::RemoveStaging(_) => {
                if flush != SAVING && state.disk.has_lists[flush] {
                    state.disk.staged[flush] = Default::default();
                }
            }
            Do::Release => _ = self.ask(state, Ask::ReleaseFlush(frame.flush)),
            Do::Forget(ended) => {
                state.disk.is_marked[flush] = false;
                return self.go(state, who, At::ClearRecord(ended));
            }
            Do::Close | Do::Stop(_) => unreachable!("it is not stopped there"),
        }
        self.after(state, who, what, &Found::Done)
    }

    /// Goes on after a step, of which this has come.
    fn after(&mut self, state: &mut State, who: usize, what: Do, found: &Found) -> bool {
        let frame = *self.frame(state, who);
        match what.after(found, frame.why.wish()) {
            Do::Close if self.can_be_named(state, frame.flush as usize) => self.close_next(state, who, MARK),
            Do::Close => self.fail(state, who),
            Do::Stop(ended) => self.pop(state, who, ended.into()),
            next => self.go(state, who, At::Do(next)),
        }
    }

    /// The step after one, which was done.
    fn close_next(&mut self, state: &mut State, who: usize, step: u8) -> bool {
        match self.close_after(step) {
            Some(step) => self.go(state, who, At::Step { step, file: 0 }),
            None => self.after(state, who, Do::Close, &Found::Done),
        }
    }

    pub(super) fn forget(&self, state: &mut State, flush: usize) {
        state.disk.is_marked[flush] = false;
        if state.disk.records[flush] == Recorded::UnderWay {
            state.disk.records[flush] = Recorded::Nothing;
        }
    }

    fn find(&mut self, state: &mut State, who: usize, frame: Frame) -> bool {
        if !self.lock(state, who) {
            return false;
        }
        if frame.why == Why::Deletion {
            self.ask(state, Ask::ReleaseDeletion);
            return self.pop(state, who, Outcome::Complete);
        }
        let flush = frame.flush as usize;
        if frame.why == Why::Finish {
            if state.disk.records[flush] != Recorded::UnderWay {
                let counts = self.progress(state, flush).counts();
                return self.pop(state, who, if counts { Outcome::Complete } else { Outcome::Postponed });
            }
            return self.go(state, who, At::Do(Do::Look { fails: false }));
        }
        let (recorded, is_marked) = (state.disk.records[flush], state.disk.is_marked[flush]);
        if frame.why == Why::Resolve && recorded != Recorded::UnderWay {
            let counts = self.progress(state, flush).counts();
            return self.pop(state, who, if counts { Outcome::Complete } else { Outcome::TakenBack });
        }
        if recorded == Recorded::Nothing {
            return self.pop(state, who, Outcome::Complete);
        }
        match Do::first(recorded, is_marked, frame.why.wish()) {
            Do::Stop(ended) => self.pop(state, who, ended.into()),
            first => self.go(state, who, At::Do(first)),
        }
    }

    fn look(&mut self, state: &mut State, who: usize, flush: usize, what: Do) -> bool {
        let lacks = || {
            let has_lists = state.disk.has_lists[dataset_of(flush)];
            Ok::<_, Infallible>(has_lists && self.lacks_a_name(state, flush))
        };
        let Ok(found) = Found::of(self.progress(state, flush), flush == SAVING, lacks);
        if found == Found::LacksName {
            self.ask(state, Ask::NameAgain(flush as u8));
        }
        self.after(state, who, what, &found)
    }

    fn lacks_a_name(&self, state: &State, flush: usize) -> bool {
        self.files_of(dataset_of(flush)).any(|(staging, _)| state.disk.staged[flush][staging] != Bytes::None)
    }

    fn take_back(&mut self, state: &mut State, who: usize, frame: Frame, even_if_taken: bool) -> bool {
        let (flush, what) = (frame.flush as usize, Do::Revoke { even_if_taken });
        let counted = self.progress(state, flush).counts();
        if self.ask(state, Ask::TakeBack { flush: frame.flush, even_if_taken })
            == (Answer::Refused { is_damage: true })
        {
            return self.after(state, who, what, &Found::Refused);
        }
        // Since it was complete it may be dropped, or replaced by a newer dataset, or listed by other means.
        let is_dropped = state.told.dropping[dataset_of(flush)];
        state.told.taken_back[flush] |= !is_dropped && (counted || !state.told.completed[flush]);
        self.after(state, who, what, &Found::Done)
    }

    /// Each file is in its staging file, or has its name already.
    fn can_be_named(&self, state: &State, flush: usize) -> bool {
        let dataset = dataset_of(flush);
        let is_there = |(staging, target): (usize, usize)| {
            state.disk.staged[flush][staging] != Bytes::None || is_same(state.disk.files[target], dataset)
        };
        state.disk.has_lists[dataset] && self.files_of(dataset).all(is_there)
    }

    fn take(&mut self, state: &mut State, who: usize, frame: Frame, step: u8) -> bool {
        self.frame(state, who).waits = false;
        let has_failed = frame.waits && state.actors[who].outcome == Outcome::Postponed;
        if has_failed || !self.may_go_on(state, who) {
            return self.pop(state, who, Outcome::Postponed);
        }
        match self.ask(state, Ask::Take { flush: frame.flush, closer: who as u8 + 1 }) {
            Answer::Done { .. } => self.close_next(state, who, step),
            Answer::Refused { is_damage: true } => self.fail(state, who),
            Answer::Refused { .. } => self.pop(state, who, Outcome::Postponed),
            Answer::After(other) if frame.waited == other.wrapping_add(2) => {
                self.pop(state, who, Outcome::Postponed)
            }
            Answer::After(other) => {
                let own = self.frame(state, who);
                (own.waited, own.waits) = (other.wrapping_add(2), true);
                self.push(state, who, other, Why::End);
                true
            }
        }
    }

    fn name(&mut self, state: &mut State, who: usize, flush: usize, step: u8, file: u8) -> bool {
        let Some((staging, target)) = self.files_of(dataset_of(flush)).nth(file as usize) else {
            return self.close_next(state, who, step);
        };
        let is_staged = state.disk.staged[flush][staging] != Bytes::None;
        match self.rename(state, flush, staging, target) {
            true if is_staged => self.go(state, who, At::Step { step, file: file + 1 }),
            true => self.go(state, who, At::Away { step, file }),
            false => self.fail(state, who),
        }
    }

    /// Gives a file its name, if it has not got it yet.
    pub(super) fn rename(&self, state: &mut State, flush: usize, staging: usize, target: usize) -> bool {
        let staged = std::mem::take(&mut state.disk.staged[flush][staging]);
        if staged == Bytes::None {
            return is_same(state.disk.files[target], dataset_of(flush));
        }
        state.disk.files[target] = staged;
        if self.scenario.may_lose_power {
            state.disk.unsynced[target] = flush as u8 + 1;
        }
        true
    }

    /// The names that a flush has given are safe.
    pub(super) fn sync(&self, state: &mut State, flush: usize) {
        let of = flush as u8 + 1;
        state.disk.unsynced.iter_mut().filter(|by| **by == of).for_each(|by| *by = 0);
    }

    /// The place of the next step after one that changes anything in this world.
    pub(super) fn close_after(&self, place: u8) -> Option<u8> {
        let mut later = (place + 1..).zip(close_steps().skip(usize::from(place) + 1));
        let is_any = |step: Close| step != Close::Sync || self.scenario.may_lose_power;
        later.find(|(_, step)| is_any(*step)).map(|(place, _)| place)
    }

    fn commit(&mut self, state: &mut State, who: usize, flush: usize, step: u8) -> bool {
        match self.ask(state, Ask::Complete { flush: flush as u8, closer: who as u8 + 1 }) {
            Answer::Refused { is_damage: true } => self.fail(state, who),
            Answer::Done { .. } => {
                self.tell_complete(state, flush);
                self.close_next(state, who, step)
            }
            _ => self.pop(state, who, Outcome::Postponed),
        }
    }

    pub(super) fn tell_complete(&self, state: &mut State, flush: usize) {
        state.told.completed[flush] = true;
        let dataset = dataset_of(flush);
        state.told.complete[dataset] = true;
        if flush == SAVING {
            (state.told.damaged[dataset], state.told.given_over[dataset]) = (false, false);
        }
    }

    /// It is found damaged, or comes too late.
    fn fail(&mut self, state: &mut State, who: usize) -> bool {
        self.after(state, who, Do::Close, &Found::Damage(String::new()))
    }
}

impl Why {
    fn wish(self) -> Wish {
        match self {
            Self::EndArrived => Wish::EndArrived,
            Self::Resolve => Wish::Resolve,
            Self::TakeBack => Wish::TakeBack,
            _ => Wish::End,
        }
    }
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::NotNow => Self::Postponed,
            Ended::Complete => Self::Complete,
            Ended::CountsNoMore | Ended::TakenBack => Self::TakenBack,
        }
    }
}

/// The first step, by which a flush is marked.
pub(super) const MARK: u8 = 0;

fn close_steps() -> impl Iterator<Item = Close> {
    Close::order(false).iter().copied().flatten().copied()
}

/// The step at this place in the order.
pub(super) fn close_step(place: u8) -> Close {
    close_steps().nth(usize::from(place)).expect("a step of the order")
}

/// Whether a file has the bytes of a dataset, as its checksum says.
pub(super) fn is_same(bytes: Bytes, dataset: usize) -> bool {
    let found = match bytes {
        Bytes::None => return false,
        Bytes::Of(of) => u32::from(of),
        Bytes::Torn(of) => 8 + u32::from(of),
    };
    super::compare(super::Path::new(""), Some(dataset as u32), Some(found)).is_ok()
}
