//! The shared state of the ranks of one process: their mailboxes, and who waits for what.
//!
//! A deadlock is detected without a clock. A rank that blocks has seen all of its mailbox and records what it waits for. Any
//! event for it unblocks it at once, under the same lock. So when all living ranks are blocked, none can ever continue.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};

use super::{CommError, Rank, Result, Tag};
use scr_plugin_api::held;

/// All ranks of a process.
pub(super) struct World {
    state: Mutex<WorldState>,
    wake: Vec<Condvar>,
}

/// A message on its way.
pub(super) struct Letter {
    pub(super) from: Rank,
    pub(super) bytes: Vec<u8>,
}

/// The result of a look into a rank's mailbox.
pub(super) struct Received {
    /// Which receive each letter is for.
    pub(super) letters: Vec<(usize, Letter)>,
    /// How often anything had changed for this rank.
    pub(super) changes: u64,
}

/// The messages that a blocked rank waits for.
pub(super) struct Waiting {
    pub(super) tag: Tag,
    pub(super) from: Vec<Rank>,
}

struct WorldState {
    places: Vec<RankState>,
    living: usize,
    blocked: usize,
    deadlock: Option<String>,
}

#[derive(Default)]
struct RankState {
    mailbox: HashMap<u16, VecDeque<Letter>>,
    changes: u64,
    ended: bool,
    /// Set while the rank is blocked.
    waiting: Option<Waiting>,
}

impl World {
    pub(super) fn new(ranks: u32) -> Self {
        let places: Vec<RankState> = (0..ranks).map(|_| RankState::default()).collect();
        let living = places.len();
        Self {
            wake: places.iter().map(|_| Condvar::new()).collect(),
            state: Mutex::new(WorldState { places, living, blocked: 0, deadlock: None }),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.wake.len()
    }

    /// Puts messages into mailboxes.
    pub(super) fn post(&self, me: Rank, tag: Tag, letters: Vec<(Rank, Vec<u8>)>) -> Result<()> {
        let mut state = held(&self.state);
        state.alive()?;
        let mut woken = Vec::new();
        for (to, bytes) in letters {
            let letter = Letter { from: me, bytes };
            state.places[to.index()].mailbox.entry(tag.0).or_default().push_back(letter);
            woken.extend(state.touch(to));
        }
        drop(state);
        // The lock is free, so none of them waits for it at once.
        woken.into_iter().for_each(|rank: Rank| self.wake[rank.index()].notify_one());
        Ok(())
    }

    /// Takes, for each rank in `wanted`, its oldest message with this tag.
    pub(super) fn collect(
        &self,
        me: Rank,
        tag: Tag,
        wanted: impl Iterator<Item = (usize, Rank)>,
    ) -> Result<Received> {
        let mut state = held(&self.state);
        state.alive()?;
        let place = &mut state.places[me.index()];
        let mut letters = Vec::new();
        if let Some(queue) = place.mailbox.get_mut(&tag.0) {
            for (place, from) in wanted {
                if queue.is_empty() {
                    break;
                }
                letters
                    .extend(remove_first(queue, |letter| letter.from == from).map(|letter| (place, letter)));
            }
        }
        Ok(Received { letters, changes: place.changes })
    }

    /// Takes the oldest message with this tag whose sender is not one of those excluded.
    pub(super) fn take(&self, me: Rank, tag: Tag, excluded: impl Fn(Rank) -> bool) -> Result<Option<Letter>> {
        let mut state = held(&self.state);
        state.alive()?;
        let Some(queue) = state.places[me.index()].mailbox.get_mut(&tag.0) else { return Ok(None) };
        Ok(remove_first(queue, |letter| !excluded(letter.from)))
    }

    /// Blocks until something has changed for `me` since it had changed `seen` times.
    pub(super) fn wait(&self, me: Rank, seen: u64, waiting: impl FnOnce() -> Waiting) -> Result<()> {
        let mut state = held(&self.state);
        if state.places[me.index()].changes != seen {
            return state.alive();
        }
        state.alive()?;
        state.places[me.index()].waiting = Some(waiting());
        state.blocked += 1;
        self.look_for_deadlock(&mut state);
        while state.deadlock.is_none() && state.places[me.index()].changes == seen {
            state = self.wake[me.index()].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.alive()
    }

    /// Says that a rank takes no more part. Saying it twice does no harm.
    pub(super) fn end(&self, me: Rank) {
        let mut state = held(&self.state);
        if !std::mem::replace(&mut state.places[me.index()].ended, true) {
            state.living -= 1;
            self.look_for_deadlock(&mut state);
        }
    }

    /// The contents of a mailbox: sender and tag of each message.
    pub(super) fn pending(&self, me: Rank) -> Vec<(Rank, Tag)> {
        let state = held(&self.state);
        let boxes = state.places[me.index()].mailbox.iter();
        boxes.flat_map(|(&tag, queue)| queue.iter().map(move |letter| (letter.from, Tag(tag)))).collect()
    }

    fn look_for_deadlock(&self, state: &mut WorldState) {
        if state.blocked == state.living && state.living > 0 && state.deadlock.is_none() {
            state.deadlock = Some(state.who_waits_for_whom());
            self.wake.iter().for_each(Condvar::notify_one);
        }
    }
}

impl WorldState {
    /// Something has changed for this rank. Gives it if it was blocked.
    fn touch(&mut self, rank: Rank) -> Option<Rank> {
        let place = &mut self.places[rank.index()];
        place.changes += 1;
        place.waiting.take()?;
        self.blocked -= 1;
        Some(rank)
    }

    fn alive(&self) -> Result<()> {
        self.deadlock.clone().map_or(Ok(()), |who| Err(CommError::Deadlock { who }))
    }

    /// A rank that waits for one that has ended comes first: that is the cause.
    fn who_waits_for_whom(&self) -> String {
        let mut lines: Vec<(bool, String)> = Vec::new();
        for (rank, place) in self.places.iter().enumerate() {
            if let Some(waiting) = &place.waiting {
                lines.push(self.describe(rank, waiting));
            }
        }
        lines.sort_by_key(|(for_ended, _)| !for_ended);
        let mut text: Vec<String> = lines.iter().take(SHOWN).map(|(_, line)| line.clone()).collect();
        if lines.len() > SHOWN {
            text.push(format!("and {} more ranks wait", lines.len() - SHOWN));
        }
        text.join("; ")
    }

    fn describe(&self, rank: usize, waiting: &Waiting) -> (bool, String) {
        let Waiting { tag, from } = waiting;
        let line = format!("rank {rank} waits for a message from {} (tag {})", self.list(from), tag.0);
        (from.iter().any(|other| self.places[other.index()].ended), line)
    }

    fn list(&self, ranks: &[Rank]) -> String {
        let name = |rank: &Rank| {
            let ended = if self.places[rank.index()].ended { ", which has ended" } else { "" };
            format!("rank {rank}{ended}")
        };
        let mut names: Vec<String> = ranks.iter().take(SHOWN).map(name).collect();
        if ranks.len() > SHOWN {
            names.push(format!("{} more", ranks.len() - SHOWN));
        }
        names.join(" and ")
    }
}

fn remove_first(queue: &mut VecDeque<Letter>, fits: impl Fn(&Letter) -> bool) -> Option<Letter> {
    queue.iter().position(fits).and_then(|at| queue.remove(at))
}

/// How many ranks a deadlock's text names.
const SHOWN: usize = 8;
