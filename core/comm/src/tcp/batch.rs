//! The sends and receives of an exchange, and the messages that no receive has taken.

use crate::{CommError, Incoming, Outgoing, Rank, Tag};
use std::collections::{BTreeMap, VecDeque};

/// Messages that have come, by tag and sender.
#[derive(Default)]
pub(super) struct Mail {
    queues: BTreeMap<(u16, Rank), VecDeque<Vec<u8>>>,
    /// How many have ever come.
    pub(super) come: u64,
}

impl Mail {
    pub(super) fn deliver(&mut self, from: Rank, tag: Tag, bytes: Vec<u8>) {
        self.queues.entry((tag.0, from)).or_default().push_back(bytes);
        self.come += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    fn has(&self, from: Rank, tag: Tag) -> bool {
        self.queues.contains_key(&(tag.0, from))
    }

    fn take_from(&mut self, from: Rank, tag: Tag) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(&(tag.0, from))?;
        let bytes = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&(tag.0, from));
        }
        bytes
    }

    /// A message with this tag, of a rank that is not waited for.
    pub(super) fn take(&mut self, tag: Tag, is_awaited: impl Fn(Rank) -> bool) -> Option<(Rank, Vec<u8>)> {
        let mut with_tag = self.queues.range((tag.0, Rank(0))..=(tag.0, Rank(u32::MAX)));
        let from = with_tag.find_map(|((_, from), _)| (!is_awaited(*from)).then_some(*from))?;
        Some((from, self.take_from(from, tag)?))
    }
}

/// One exchange.
pub(super) struct Batch<'a, 'b> {
    pub(super) tag: Tag,
    pub(super) sends: Vec<Send<'a>>,
    receives: &'a mut [Incoming<'b>],
    pub(super) come: Vec<bool>,
    /// The places of the receives that are missing, by sender.
    missing: BTreeMap<Rank, VecDeque<usize>>,
    wrong: Option<CommError>,
    pub(super) given_up: bool,
}

/// A message to another rank.
pub(super) struct Send<'a> {
    pub(super) to: Rank,
    pub(super) bytes: &'a [u8],
    pub(super) is: Sent,
}

/// How far a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// The system has so many bytes with the head.
    Partly(usize),
    /// It was copied to the queue of its connection.
    Queued,
    /// The system has all.
    Wholly,
}

impl<'a, 'b> Batch<'a, 'b> {
    pub(super) fn new(
        me: Rank,
        tag: Tag,
        sends: &'a [Outgoing<'_>],
        receives: &'a mut [Incoming<'b>],
    ) -> Self {
        let others = sends.iter().filter(|send| send.to != me);
        let sends = others.map(|send| Send { to: send.to, bytes: send.bytes, is: Sent::Partly(0) }).collect();
        let mut missing: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for (place, receive) in receives.iter().enumerate() {
            missing.entry(receive.from).or_default().push_back(place);
        }
        let come = vec![false; receives.len()];
        Self { tag, sends, receives, come, missing, wrong: None, given_up: false }
    }

    pub(super) fn all_have_come(&self) -> bool {
        self.missing.is_empty()
    }

    /// The ranks that messages are waited for from.
    pub(super) fn awaited<'s>(&'s self) -> impl Iterator<Item = Rank> + use<'s, 'a, 'b> {
        self.missing.keys().copied().filter(|_| !self.given_up)
    }

    /// Hands over what is in the mail for its receives.
    pub(super) fn collect(&mut self, mail: &mut Mail) {
        for from in self.awaited().collect::<Vec<_>>() {
            while let Some(&place) = self.missing.get(&from).and_then(VecDeque::front) {
                let Some(bytes) = mail.take_from(from, self.tag) else { break };
                let receive = &mut self.receives[place];
                if bytes.len() == receive.bytes.len() {
                    receive.bytes.copy_from_slice(&bytes);
                } else {
                    let (found, expected, tag) = (bytes.len(), receive.bytes.len(), self.tag.0);
                    self.wrong.get_or_insert(CommError::WrongLength { from, found, expected, tag });
                }
                self.has_come(place, from);
            }
        }
    }

    fn has_come(&mut self, place: usize, from: Rank) {
        self.come[place] = true;
        if let Some(places) = self.missing.get_mut(&from) {
            places.retain(|&other| other != place);
            if places.is_empty() {
                self.missing.remove(&from);
            }
        }
    }

    /// The first message of a wrong length, if there was one.
    pub(super) fn wrong(&mut self) -> Result<(), CommError> {
        self.wrong.take().map_or(Ok(()), Err)
    }
}

/// The destination of incoming messages.
pub(super) struct Inbox<'m, 'a, 'b> {
    pub(super) mail: &'m mut Mail,
    pub(super) batch: Option<&'m mut Batch<'a, 'b>>,
}

impl Inbox<'_, '_, '_> {
    /// Whether its exchange has nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.sends.is_empty() && batch.all_have_come())
    }

    /// The receive that waits for such a message.
    pub(super) fn place(&self, from: Rank, tag: Tag, length: usize) -> Option<usize> {
        let batch = self.batch.as_ref().filter(|batch| batch.tag == tag && !batch.given_up)?;
        let place = *batch.missing.get(&from)?.front()?;
        (batch.receives[place].bytes.len() == length && !self.mail.has(from, tag)).then_some(place)
    }

    /// The buffer of a receive that [`place`](Self::place) has given for this batch.
    pub(super) fn buffer(&mut self, place: usize) -> &mut [u8] {
        self.batch.as_mut().map_or(&mut [], |batch| batch.receives[place].bytes)
    }

    pub(super) fn has_come(&mut self, place: usize, from: Rank) {
        if let Some(batch) = &mut self.batch {
            batch.has_come(place, from);
        }
    }

    pub(super) fn deliver(&mut self, from: Rank, tag: Tag, bytes: Vec<u8>) {
        self.mail.deliver(from, tag, bytes);
    }
}
