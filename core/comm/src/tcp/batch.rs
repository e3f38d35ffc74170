//! The sends and receives of an exchange.

use crate::receives::Receives;
use crate::{Incomings, Mail, Rank, Sends, Tag};

/// One exchange.
pub(super) struct Batch<'a, 'b> {
    pub(super) sends: Vec<Send<'a>>,
    pub(super) receives: Receives<'a, 'b>,
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
    pub(super) fn new(me: Rank, tag: Tag, sends: Sends<'a>, receives: Incomings<'a, 'b>) -> Self {
        let others = sends.iter().filter(|send| send.to != me);
        let sends = others.map(|send| Send { to: send.to, bytes: send.bytes, is: Sent::Partly(0) }).collect();
        Self { sends, receives: Receives::new(tag, receives) }
    }

    /// Hands over what is in the mail for its receives.
    pub(super) fn collect(&mut self, mail: &mut Mail) {
        for from in self.receives.awaited().collect::<Vec<_>>() {
            while let Some(place) = self.receives.next_of(from) {
                let Some(bytes) = mail.take_from(from, self.receives.tag) else { break };
                self.receives.take(place, from, &bytes);
            }
        }
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
        self.batch.as_ref().is_some_and(|batch| batch.sends.is_empty() && batch.receives.all_have_come())
    }

    /// The receive that waits for such a message.
    pub(super) fn place(&self, from: Rank, tag: Tag, length: usize) -> Option<usize> {
        let receives = &self.batch.as_ref()?.receives;
        let place = receives.next_of(from).filter(|_| receives.tag == tag)?;
        (receives.length(place) == length && !self.mail.has(from, tag)).then_some(place)
    }

    /// The buffer of a receive that [`place`](Self::place) has given for this batch.
    pub(super) fn buffer(&mut self, place: usize) -> &mut [u8] {
        self.batch.as_mut().map_or(&mut [], |batch| batch.receives.buffer(place))
    }

    pub(super) fn has_come(&mut self, place: usize, from: Rank) {
        if let Some(batch) = &mut self.batch {
            batch.receives.has_come(place, from);
        }
    }
}
