//! The shared state of the ranks of one process: their mailboxes, and who waits for what.
//!
//! A deadlock is detected without a clock. A rank that blocks has seen all of its mailbox and records what it waits for. Any
//! event for it unblocks it at once, under the same lock. So when all living ranks are blocked, none can ever continue.

use std::sync::{Condvar, Mutex, PoisonError};

use super::{CommError, Mail, Rank, Result, Tag};
use scr_plugin_api::held;

/// All ranks of a process.
pub(super) struct World {
    state: Mutex<WorldState>,
    wake: Vec<Condvar>,
}

/// A letter for a rank: which receive it is for, and its sender.
type Received = (usize, Rank, Vec<u8>);

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
    mail: Mail,
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
            state.places[to.index()].mail.deliver(me, tag, bytes);
            woken.extend(state.unblock(to));
        }
        drop(state);
        // The lock is free, so none of them waits for it at once.
        woken.into_iter().for_each(|rank: Rank| self.wake[rank.index()].notify_one());
        Ok(())
    }

    /// Takes, for each rank in `wanted`, its oldest message with this tag. Says also how many letters had ever come.
    pub(super) fn collect(
        &self,
        me: Rank,
        tag: Tag,
        wanted: impl Iterator<Item = (usize, Rank)>,
    ) -> Result<(Vec<Received>, u64)> {
        let mut state = held(&self.state);
        state.alive()?;
        let mail = &mut state.places[me.index()].mail;
        let letters = wanted.filter_map(|(place, from)| Some((place, from, mail.take_from(from, tag)?)));
        Ok((letters.collect(), mail.come))
    }

    /// Takes a message with this tag, of a rank that is not waited for.
    pub(super) fn take(
        &self,
        me: Rank,
        tag: Tag,
        is_awaited: impl Fn(Rank) -> bool,
    ) -> Result<Option<(Rank, Vec<u8>)>> {
        let mut state = held(&self.state);
        state.alive()?;
        Ok(state.places[me.index()].mail.take(tag, is_awaited))
    }

    /// Blocks until a letter has come for `me` after the first so many.
    pub(super) fn wait(&self, me: Rank, seen: u64, waiting: impl FnOnce() -> Waiting) -> Result<()> {
        let mut state = held(&self.state);
        if state.places[me.index()].mail.come != seen {
            return state.alive();
        }
        state.alive()?;
        state.places[me.index()].waiting = Some(waiting());
        state.blocked += 1;
        self.look_for_deadlock(&mut state);
        while state.deadlock.is_none() && state.places[me.index()].mail.come == seen {
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
        held(&self.state).places[me.index()].mail.all().collect()
    }

    fn look_for_deadlock(&self, state: &mut WorldState) {
        if state.blocked == state.living && state.living > 0 && state.deadlock.is_none() {
            state.deadlock = Some(state.who_waits_for_whom());
            self.wake.iter().for_each(Condvar::notify_one);
        }
    }
}

impl WorldState {
    /// Something has come for this rank. Gives it if it was blocked.
    fn unblock(&mut self, rank: Rank) -> Option<Rank> {
        self.places[rank.index()].waiting.take()?;
        self.blocked -= 1;
        Some(rank)
    }

    fn alive(&self) -> Result<()> {
        self.deadlock.clone().map_or(Ok(()), |who| Err(CommError::Deadlock { who }))
    }

    /// A rank that waits for one that has ended comes first: that is the cause.
    fn who_waits_for_whom(&self) -> String {
        let places = self.places.iter().enumerate();
        let lines = places.filter_map(|(rank, place)| Some(self.describe(rank, place.waiting.as_ref()?)));
        let mut lines: Vec<(bool, String)> = lines.collect();
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

/// How many ranks a deadlock's text names.
const SHOWN: usize = 8;
