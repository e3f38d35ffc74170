//! The end of a connection that sends, from the connecting rank to the listening one.

use super::handshake::{random, Parties, Secret, ANSWER, WELCOME};
use super::receiving::HEAD;
use super::socket::{begin_to_connect, is_connected, read, set_up, write, write_all, Connection, Few};
use super::Limits;
use crate::{Rank, Tag};
use nix::poll::PollFlags;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

pub(super) struct Sending {
    pub(super) stream: Connection,
    address: SocketAddr,
    parties: Parties,
    stage: Stage,
    /// When the connection was begun.
    began: Duration,
    attempts: u32,
    /// Bytes that were not sent yet when their sender could wait no longer.
    queue: Vec<u8>,
    /// How many bytes of it the system has.
    taken: usize,
}

enum Stage {
    Connecting,
    /// It waits for the answer to its hello.
    Answer(Few),
    /// It waits for the other end to say that the proof is right.
    Welcome,
    Ready,
}

impl Sending {
    pub(super) fn begin(from: Rank, to: Rank, address: SocketAddr, now: Duration) -> io::Result<Self> {
        let stream = begin_to_connect(&address)?;
        let parties = Parties { from, to, nonce: random()? };
        let (stage, queue) = (Stage::Connecting, Vec::new());
        Ok(Self { stream, address, parties, stage, began: now, attempts: 1, queue, taken: 0 })
    }

    /// Whether the system has taken all that was queued.
    pub(super) fn is_sent(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a message can be written without being queued.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.stage, Stage::Ready) && self.queue.is_empty()
    }

    /// The events that it waits for. `wants` says whether there is more to send than what is queued.
    pub(super) fn events(&self, wants: bool) -> PollFlags {
        match self.stage {
            Stage::Connecting => PollFlags::POLLOUT,
            Stage::Answer(_) | Stage::Welcome => PollFlags::POLLIN,
            Stage::Ready if wants || !self.queue.is_empty() => PollFlags::POLLIN | PollFlags::POLLOUT,
            Stage::Ready => PollFlags::POLLIN,
        }
    }

    /// Sends more of a message of which the system has `taken` bytes with its head, and says how many it has then. Only if it is
    /// free.
    pub(super) fn send(&self, tag: Tag, bytes: &[u8], mut taken: usize) -> io::Result<usize> {
        if taken < HEAD {
            // One call for the head and a short message.
            let first = &bytes[..bytes.len().min(COPIED)];
            let start = [&head(tag, bytes)[taken..], first].concat();
            let count = write(&self.stream, &start)?;
            taken += count;
            if count < start.len() {
                return Ok(taken);
            }
        }
        Ok(taken + write(&self.stream, &bytes[taken - HEAD..])?)
    }

    /// Queues the rest of a message of which the system has `taken` bytes with its head.
    pub(super) fn queue(&mut self, tag: Tag, bytes: &[u8], taken: usize) {
        self.queue.extend_from_slice(&head(tag, bytes)[taken.min(HEAD)..]);
        self.queue.extend_from_slice(&bytes[taken.saturating_sub(HEAD)..]);
    }

    /// Does what can be done without waiting. An error is the end of the connection.
    pub(super) fn progress(&mut self, secret: &Secret, now: Duration, limits: &Limits) -> io::Result<()> {
        match self.shake_hands(secret, now, limits) {
            // A listener has only so many places for those that it does not know yet, and does not keep them for long.
            Err(error) if self.was_put_off(&error) => {
                let again = Self::begin(self.parties.from, self.parties.to, self.address, now)?;
                let queue = std::mem::take(&mut self.queue);
                *self = Self { queue, attempts: self.attempts + 1, ..again };
                Ok(())
            }
            ended => ended,
        }
    }

    fn was_put_off(&self, error: &io::Error) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        matches!(self.stage, Stage::Answer(_) | Stage::Welcome)
            && matches!(error.kind(), ConnectionAborted | ConnectionReset | BrokenPipe)
            && self.attempts < MOST_ATTEMPTS
    }

    fn shake_hands(&mut self, secret: &Secret, now: Duration, limits: &Limits) -> io::Result<()> {
        if matches!(self.stage, Stage::Connecting) {
            if !is_connected(&self.stream, now.saturating_sub(self.began) > limits.connect)? {
                return Ok(());
            }
            set_up(&self.stream, limits.dead)?;
            write_all(&self.stream, &self.parties.hello())?;
            self.stage = Stage::Answer(Few::default());
        }
        if let Stage::Answer(answer) = &mut self.stage {
            let Some(answer) = answer.read::<ANSWER>(&self.stream)? else { return Ok(()) };
            let proof = secret.proof(&self.parties, &answer);
            write_all(&self.stream, &proof.ok_or(ErrorKind::PermissionDenied)?)?;
            self.stage = Stage::Welcome;
        }
        // Nothing else comes in this direction but the end.
        let mut byte = [0];
        match (&self.stage, read(&self.stream, &mut byte)?) {
            (Stage::Welcome, Some(_)) if byte == [WELCOME] => self.stage = Stage::Ready,
            (_, Some(_)) => return Err(ErrorKind::InvalidData.into()),
            (_, None) => (),
        }
        if matches!(self.stage, Stage::Ready) && !self.queue.is_empty() {
            self.write_queue()?;
        }
        Ok(())
    }

    fn write_queue(&mut self) -> io::Result<()> {
        self.taken += write(&self.stream, &self.queue[self.taken..])?;
        if self.taken == self.queue.len() {
            self.queue.clear();
            self.queue.shrink_to(LARGEST_KEPT);
            self.taken = 0;
        }
        Ok(())
    }
}

fn head(tag: Tag, bytes: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..2].copy_from_slice(&tag.0.to_be_bytes());
    head[2..].copy_from_slice(&(bytes.len() as u64).to_be_bytes());
    head
}

/// A rank that was put off so often gives up.
const MOST_ATTEMPTS: u32 = 10;
/// Bytes of a message that are copied behind its head.
const COPIED: usize = 16 << 10;
/// A queue does not keep more memory than this for the next message.
const LARGEST_KEPT: usize = 1 << 20;
