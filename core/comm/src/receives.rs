//! The receives of an exchange: which have come, and which are missing.

use super::{Ask, CommError, ExchangeEnd, Exchanged, Incoming, Rank, Tag};
use std::collections::{BTreeMap, VecDeque};

pub(super) struct Receives<'a, 'b> {
    pub(super) tag: Tag,
    all: &'a mut [Incoming<'b>],
    pub(super) come: Vec<bool>,
    /// The places of those that are missing, by sender.
    missing: BTreeMap<Rank, VecDeque<usize>>,
    /// The first message of a wrong length, if there was one.
    wrong: Option<CommError>,
    pub(super) given_up: bool,
}

impl<'a, 'b> Receives<'a, 'b> {
    pub(super) fn new(tag: Tag, all: &'a mut [Incoming<'b>]) -> Self {
        let mut missing: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for (place, receive) in all.iter().enumerate() {
            missing.entry(receive.from).or_default().push_back(place);
        }
        Self { tag, come: vec![false; all.len()], all, missing, wrong: None, given_up: false }
    }

    pub(super) fn all_have_come(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether no message is waited for any more.
    pub(super) fn is_over(&self) -> bool {
        self.given_up || self.all_have_come()
    }

    /// The ranks that messages are waited for from, each once.
    pub(super) fn awaited<'s>(&'s self) -> impl Iterator<Item = Rank> + use<'s, 'a, 'b> {
        self.missing.keys().copied().filter(|_| !self.given_up)
    }

    /// The places of the messages that are waited for, each with its sender.
    pub(super) fn wanted<'s>(&'s self) -> impl Iterator<Item = (usize, Rank)> + use<'s, 'a, 'b> {
        let missing = self.missing.iter().filter(|_| !self.given_up);
        missing.flat_map(|(&from, places)| places.iter().map(move |&place| (place, from)))
    }

    /// The place of the next message of a rank, if one is waited for.
    pub(super) fn next_of(&self, from: Rank) -> Option<usize> {
        self.missing.get(&from).filter(|_| !self.given_up)?.front().copied()
    }

    /// The buffer of a receive.
    pub(super) fn buffer(&mut self, place: usize) -> &mut [u8] {
        self.all[place].bytes
    }

    /// How long its message is to be.
    pub(super) fn length(&self, place: usize) -> usize {
        self.all[place].bytes.len()
    }

    /// A message has come.
    pub(super) fn take(&mut self, place: usize, from: Rank, bytes: &[u8]) {
        let (found, expected, tag) = (bytes.len(), self.length(place), self.tag.0);
        if found == expected {
            self.buffer(place).copy_from_slice(bytes);
        } else {
            self.wrong.get_or_insert(CommError::WrongLength { from, found, expected, tag });
        }
        self.has_come(place, from);
    }

    /// A message is in its buffer.
    pub(super) fn has_come(&mut self, place: usize, from: Rank) {
        self.come[place] = true;
        if let Some(places) = self.missing.get_mut(&from) {
            places.retain(|&other| other != place);
            if places.is_empty() {
                self.missing.remove(&from);
            }
        }
    }

    /// The end of the exchange. Who has given up is asked a last time.
    pub(super) fn end(&mut self, ask: Ask<'_>) -> Exchanged {
        if self.given_up {
            ask(&self.come)?;
        }
        let ended = if self.all_have_come() { ExchangeEnd::Done } else { ExchangeEnd::GivenUp };
        self.wrong.take().map_or(Ok(ended), Err)
    }
}
