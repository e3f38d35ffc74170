//! The end of a connection that receives, and its frames.
//!
//! ```text
//! frame: tag: u16, length: u64, both big-endian; then so many bytes
//! ```

use super::batch::Inbox;
use super::handshake::{random, Nonce, Parties, Secret, HELLO, PROOF, WELCOME};
use super::socket::{read, set_up, write_all, Connection, Few, Patient};
use super::Limits;
use crate::{Rank, Tag};
use scr_base::ensure;
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::ops::Range;
use std::time::Duration;

/// Bytes of the head of a frame.
pub(super) const HEAD: usize = 2 + 8;

pub(super) struct Receiving {
    pub(super) stream: Connection,
    stage: Stage,
    /// When it was accepted.
    began: Duration,
    few: Few,
    input: Input,
    frame: Option<Frame>,
    /// Whether it has stopped before it had taken all that has come.
    pub(super) has_more: bool,
}

enum Stage {
    Hello,
    Proof(Parties, Nonce),
    Ready(Rank),
}

/// A message that is coming.
struct Frame {
    tag: Tag,
    length: usize,
    into: Into,
}

/// The place that a message comes into.
enum Into {
    /// The buffer of a receive, of which so many bytes are filled.
    Receive(usize, usize),
    /// Memory that grows with what has come, not with what was announced.
    Memory(Vec<u8>),
}

impl Receiving {
    pub(super) fn new(stream: Connection, now: Duration, limits: &Limits) -> io::Result<Self> {
        set_up(&stream, limits.dead)?;
        let (few, input) = (Few::default(), Input::default());
        Ok(Self { stream, stage: Stage::Hello, began: now, few, input, frame: None, has_more: false })
    }

    /// The rank that sends, once that is known for sure.
    pub(super) fn from(&self) -> Option<Rank> {
        match self.stage {
            Stage::Ready(from) => Some(from),
            _ => None,
        }
    }

    /// The rank that sends, or that the other end says it is.
    pub(super) fn claims(&self) -> Option<Rank> {
        match self.stage {
            Stage::Hello => None,
            Stage::Proof(Parties { from, .. }, _) | Stage::Ready(from) => Some(from),
        }
    }

    /// Does what can be done without waiting. An error is the end of the connection; what has come before is in the inbox.
    pub(super) fn progress(
        &mut self,
        secret: &Secret,
        (me, size): (Rank, u32),
        (now, limits): (Duration, &Limits),
        inbox: &mut Inbox<'_, '_, '_>,
    ) -> io::Result<()> {
        if let Stage::Hello = &self.stage {
            if let Some(hello) = self.few.read::<HELLO>(&self.stream)? {
                let parties = Parties::of_hello(&hello, me, size).ok_or(ErrorKind::InvalidData)?;
                let own = random()?;
                write_all(&self.stream, &secret.answer(&parties, &own))?;
                self.stage = Stage::Proof(parties, own);
            }
        }
        if let Stage::Proof(parties, own) = &self.stage {
            if let Some(proof) = self.few.read::<PROOF>(&self.stream)? {
                ensure(secret.is_proof(parties, own, &proof), || ErrorKind::PermissionDenied)?;
                write_all(&self.stream, &[WELCOME])?;
                self.stage = Stage::Ready(parties.from);
            }
        }
        match self.stage {
            Stage::Ready(from) => self.receive(from, inbox),
            _ if now.saturating_sub(self.began) > limits.connect => Err(ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// Tells the other end that this rank has lost it. What the other end has sent before still comes.
    pub(super) fn tell_lost(&self) {
        // A connection that has ended tells it by itself.
        let _ = self.stream.get().and_then(|stream| stream.shutdown(Shutdown::Write));
    }

    /// Takes what has come, but not for so long that other connections have to wait, and no more than the caller waits for: what
    /// follows can come into the buffer of its next exchange, and a sender goes no faster than its receiver.
    fn receive(&mut self, from: Rank, inbox: &mut Inbox<'_, '_, '_>) -> io::Result<()> {
        self.has_more = false;
        for _ in 0..MOST_STEPS {
            if inbox.is_done() {
                break;
            }
            let Some(frame) = &mut self.frame else {
                match self.input.take::<HEAD>() {
                    Some(head) => self.frame = Some(Frame::begin(head, from, inbox)?),
                    None if self.input.refill(&self.stream)? => (),
                    None => return Ok(()),
                }
                continue;
            };
            if frame.missing() == 0 {
                let Frame { tag, into, .. } = self.frame.take().expect("it is there");
                match into {
                    Into::Receive(place, _) => inbox.has_come(place, from),
                    Into::Memory(bytes) => inbox.mail.deliver(from, tag, bytes),
                }
            } else if !frame.fill(&mut self.input, &self.stream, inbox)? {
                return Ok(());
            }
        }
        self.has_more = true;
        Ok(())
    }

    /// Whether a message comes into the buffer of a receive.
    pub(super) fn uses_buffer(&self) -> bool {
        matches!(self.frame, Some(Frame { into: Into::Receive(..), .. }))
    }

    /// The receives are not to be used any more: what has come for one is moved to memory.
    pub(super) fn let_go(&mut self, inbox: &mut Inbox<'_, '_, '_>) {
        let Some(frame) = &mut self.frame else { return };
        if let Into::Receive(place, filled) = frame.into {
            frame.into = Into::Memory(inbox.buffer(place)[..filled].to_vec());
        }
    }
}

impl Frame {
    fn begin(head: [u8; HEAD], from: Rank, inbox: &mut Inbox<'_, '_, '_>) -> io::Result<Self> {
        let [t0, t1, length @ ..] = head;
        let tag = Tag(u16::from_be_bytes([t0, t1]));
        let length = usize::try_from(u64::from_be_bytes(length)).ok().filter(|&length| length <= LONGEST);
        let length = length.filter(|_| tag.0 <= Tag::MAX.0).ok_or(ErrorKind::InvalidData)?;
        let place = inbox.place(from, tag, length);
        Ok(Self {
            tag,
            length,
            into: place.map_or(Into::Memory(Vec::new()), |place| Into::Receive(place, 0)),
        })
    }

    fn missing(&self) -> usize {
        match &self.into {
            Into::Receive(_, filled) => self.length - filled,
            Into::Memory(bytes) => self.length - bytes.len(),
        }
    }

    /// Takes more of it, and says whether there may be more.
    fn fill(
        &mut self,
        input: &mut Input,
        stream: &Connection,
        inbox: &mut Inbox<'_, '_, '_>,
    ) -> io::Result<bool> {
        let missing = self.missing();
        if input.is_empty() && missing < SHORT {
            return input.refill(stream);
        }
        let read_before = input.next(missing);
        match &mut self.into {
            Into::Receive(place, filled) => {
                let rest = &mut inbox.buffer(*place)[*filled..];
                let count = if read_before.is_empty() {
                    read(stream, rest)?
                } else {
                    rest[..read_before.len()].copy_from_slice(read_before);
                    Some(read_before.len())
                };
                *filled += count.unwrap_or(0);
                Ok(count.is_some())
            }
            Into::Memory(bytes) if read_before.is_empty() => grow(bytes, missing.min(STEP), stream),
            Into::Memory(bytes) => {
                bytes.extend_from_slice(read_before);
                Ok(true)
            }
        }
    }
}

/// Reads so many bytes more at most, and says whether there may be more.
fn grow(bytes: &mut Vec<u8>, most: usize, stream: &Connection) -> io::Result<bool> {
    let start = bytes.len();
    match Patient(stream.get()?).take(most as u64).read_to_end(bytes) {
        Ok(0) => Err(ErrorKind::ConnectionAborted.into()),
        Ok(_) => Ok(true),
        // The bytes that have come are kept.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(bytes.len() > start),
        Err(error) => Err(error),
    }
}

/// Bytes that were read but not consumed yet: heads and short messages, many at a time.
#[derive(Default)]
struct Input {
    bytes: Box<[u8]>,
    unused: Range<usize>,
}

impl Input {
    fn is_empty(&self) -> bool {
        self.unused.is_empty()
    }

    fn next(&mut self, most: usize) -> &[u8] {
        let start = self.unused.start;
        self.unused.start += most.min(self.unused.len());
        &self.bytes[start..self.unused.start]
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        (self.unused.len() >= N).then(|| self.next(N).try_into().expect("so many are there"))
    }

    /// Reads once, and says whether anything has come.
    fn refill(&mut self, stream: &Connection) -> io::Result<bool> {
        if self.bytes.is_empty() {
            self.bytes = vec![0; SHORT].into();
        }
        self.bytes.copy_within(self.unused.clone(), 0);
        self.unused = 0..self.unused.len();
        let count = read(stream, &mut self.bytes[self.unused.end..])?;
        self.unused.end += count.unwrap_or(0);
        Ok(count.is_some())
    }
}

/// Bytes below which a message is read together with what follows.
const SHORT: usize = 16 << 10;
/// A connection takes so many steps at a time, of at most so many bytes.
const MOST_STEPS: usize = 64;
const STEP: usize = 1 << 20;
/// Bytes of the longest message. No node has more memory.
const LONGEST: usize = 1 << 46;

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::*;
    use crate::Incoming;
    use crate::Mail;
    use scr_plugin_api::Handle;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// A connection from a rank that knows the secret and has sent these bytes, and the end of that rank.
    fn connection(bytes: &[u8]) -> (Receiving, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sends.write_all(bytes).unwrap();
        let stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        let stream = Handle::new(stream).unwrap();
        let (few, input, stage) = (Few::default(), Input::default(), Stage::Ready(Rank(1)));
        let began = Duration::ZERO;
        (Receiving { stream, stage, began, few, input, frame: None, has_more: false }, sends)
    }

    /// The result of receiving these bytes, and then the end.
    fn receive(bytes: &[u8]) -> (io::Result<()>, Mail, usize) {
        let (mut receiving, sends) = connection(bytes);
        drop(sends);
        let mut mail = Mail::default();
        let ended = loop {
            let ended = receiving.receive(Rank(1), &mut Inbox { mail: &mut mail, batch: None });
            if ended.is_err() {
                break ended;
            }
        };
        let taken = match receiving.frame {
            Some(Frame { into: Into::Memory(bytes), .. }) => bytes.capacity(),
            _ => 0,
        };
        (ended, mail, taken)
    }

    fn frame(tag: u16, length: u64, bytes: &[u8]) -> Vec<u8> {
        [tag.to_be_bytes().as_slice(), &length.to_be_bytes(), bytes].concat()
    }

    #[test]
    fn a_frame_of_more_than_any_node_has_ends_the_connection_before_memory_is_taken() {
        for (tag, length) in [(3, 1 << 63), (3, u64::MAX), (3, (1 << 46) + 1), (Tag::MAX.0 + 1, 4)] {
            let (ended, mail, taken) = receive(&frame(tag, length, b"rest"));
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::InvalidData, "{tag} {length}");
            assert!(mail.is_empty() && taken == 0);
        }
    }

    #[test]
    fn memory_grows_with_what_comes_and_not_with_what_is_announced() {
        let (ended, mail, taken) = receive(&frame(3, 1 << 45, &[7; 100_000]));
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionAborted);
        assert!(mail.is_empty() && taken < 1 << 20, "{taken}");
    }

    #[test]
    fn an_exchange_takes_no_more_than_it_waits_for() {
        let messages = [vec![1; 100_000], vec![2; 100_000], b"short".to_vec(), vec![4; 3]];
        let frames = messages.iter().map(|bytes| frame(3, bytes.len() as u64, bytes));
        let (mut receiving, _sends) = connection(&frames.collect::<Vec<_>>().concat());
        let mut mail = Mail::default();
        for sent in messages {
            let mut bytes = vec![0; sent.len()];
            let mut receives = [Incoming { from: Rank(1), bytes: &mut bytes }];
            let mut batch = Batch::new(Rank(0), Tag(3), &[], &mut receives);
            while !batch.receives.all_have_come() {
                let mut inbox = Inbox { mail: &mut mail, batch: Some(&mut batch) };
                receiving.receive(Rank(1), &mut inbox).unwrap();
            }
            assert!(mail.is_empty() && receiving.frame.is_none());
            assert_eq!(bytes, sent);
        }
    }

    #[test]
    fn frames_come_in_order_and_a_part_of_one_does_not() {
        let bytes = [frame(3, 2, b"ab"), frame(4, 0, b""), frame(3, 1, b"c"), frame(3, 9, b"part")].concat();
        let (ended, mut mail, _) = receive(&bytes);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionAborted);
        let mut take = |tag| mail.take(Tag(tag), |_| false).map(|(_, bytes)| bytes);
        assert_eq!([take(3), take(3), take(3)], [Some(b"ab".to_vec()), Some(b"c".to_vec()), None]);
        assert_eq!([take(4), take(4)], [Some(Vec::new()), None]);
    }
}
