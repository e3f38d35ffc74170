//! One connection: frames in one direction, from the rank that connected to the rank that listens.
//!
//! ```text
//! frame: tag: u16, length: u64, both big-endian; then so many bytes
//! ```

use super::handshake::{random, Nonce, Parties, Secret, ANSWER, HELLO, PROOF};
use crate::comm::{Rank, Tag};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const HEAD: usize = 2 + 8;

/// The end that sends.
pub(super) struct Sending {
    pub(super) stream: TcpStream,
    parties: Parties,
    /// What has come of the answer to the handshake; `None` once that is over.
    answer: Option<Vec<u8>>,
    /// Bytes that the system has not taken yet.
    queue: Vec<u8>,
    /// How many of them it has.
    taken: usize,
}

impl Sending {
    /// Connects, and begins the handshake.
    pub(super) fn connect(from: Rank, to: Rank, address: &SocketAddr, limit: Duration) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(address, limit)?;
        set_up(&stream)?;
        let parties = Parties { from, to, nonce: random()? };
        // The buffers of a new connection are empty.
        stream.write_all(&parties.hello())?;
        Ok(Self { stream, parties, answer: Some(Vec::new()), queue: Vec::new(), taken: 0 })
    }

    /// Whether the system has taken all.
    pub(super) fn is_sent(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether something is to be written as soon as the system takes it.
    pub(super) fn is_to_write(&self) -> bool {
        self.answer.is_none() && !self.queue.is_empty()
    }

    /// Sends a message. What the system does not take at once is copied.
    pub(super) fn send(&mut self, tag: Tag, bytes: &[u8]) -> io::Result<()> {
        let mut head = [0; HEAD];
        head[..2].copy_from_slice(&tag.0.to_be_bytes());
        head[2..].copy_from_slice(&(bytes.len() as u64).to_be_bytes());
        let mut taken = 0;
        while self.answer.is_none() && self.queue.is_empty() && taken < HEAD + bytes.len() {
            let rest =
                [IoSlice::new(&head[taken.min(HEAD)..]), IoSlice::new(&bytes[taken.saturating_sub(HEAD)..])];
            match again(|| self.stream.write_vectored(&rest))? {
                Some(count) => taken += count,
                None => break,
            }
        }
        self.queue.extend_from_slice(&head[taken.min(HEAD)..]);
        self.queue.extend_from_slice(&bytes[taken.saturating_sub(HEAD)..]);
        Ok(())
    }

    /// Does what can be done without waiting. An error is the end of the connection.
    pub(super) fn progress(&mut self, secret: &Secret) -> io::Result<()> {
        if let Some(answer) = &mut self.answer {
            if !fill(&mut self.stream, answer, ANSWER)? {
                return Ok(());
            }
            let answer: &[u8; ANSWER] = answer.as_slice().try_into().expect("it is filled");
            let proof = secret.proof(&self.parties, answer);
            let proof = proof.ok_or_else(|| io::Error::other("another program answers at its address"))?;
            self.stream.write_all(&proof)?;
            self.answer = None;
        }
        while self.taken < self.queue.len() {
            match again(|| self.stream.write(&self.queue[self.taken..]))? {
                Some(count) => self.taken += count,
                None => break,
            }
        }
        if self.taken == self.queue.len() {
            self.queue.clear();
            self.queue.shrink_to(LARGEST_KEPT);
            self.taken = 0;
        }
        // Nothing comes in this direction but the end.
        match again(|| self.stream.read(&mut [0]))? {
            None => Ok(()),
            Some(0) => Err(ErrorKind::ConnectionAborted.into()),
            Some(_) => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// The end that receives.
pub(super) struct Receiving {
    pub(super) stream: TcpStream,
    stage: Stage,
    bytes: Vec<u8>,
    frame: Option<(Tag, usize)>,
}

enum Stage {
    Hello,
    Proof(Parties, Nonce),
    Ready(Rank),
}

/// A message that has come.
pub(super) type Message = (Rank, Tag, Vec<u8>);

impl Receiving {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        set_up(&stream)?;
        Ok(Self { stream, stage: Stage::Hello, bytes: Vec::new(), frame: None })
    }

    /// The rank that sends, once that is known for sure.
    pub(super) fn from(&self) -> Option<Rank> {
        match self.stage {
            Stage::Ready(from) => Some(from),
            _ => None,
        }
    }

    /// Whether the other end has said nothing yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Hello)
    }

    /// Does what can be done without waiting. An error is the end of the connection; what has come before is in `come`.
    pub(super) fn progress(
        &mut self,
        secret: &Secret,
        (me, size): (Rank, u32),
        come: &mut impl FnMut(Message),
    ) -> io::Result<()> {
        loop {
            match &self.stage {
                Stage::Hello => {
                    if !fill(&mut self.stream, &mut self.bytes, HELLO)? {
                        return Ok(());
                    }
                    let hello = self.bytes.as_slice().try_into().expect("it is filled");
                    let parties = Parties::of_hello(hello, me, size).ok_or(ErrorKind::InvalidData)?;
                    let own = random()?;
                    self.stream.write_all(&secret.answer(&parties, &own))?;
                    self.bytes.clear();
                    self.stage = Stage::Proof(parties, own);
                }
                Stage::Proof(parties, own) => {
                    if !fill(&mut self.stream, &mut self.bytes, PROOF)? {
                        return Ok(());
                    }
                    let proof = self.bytes.as_slice().try_into().expect("it is filled");
                    if !secret.is_proof(parties, own, proof) {
                        return Err(ErrorKind::PermissionDenied.into());
                    }
                    self.stage = Stage::Ready(parties.from);
                    self.bytes.clear();
                }
                Stage::Ready(from) => {
                    let from = *from;
                    match self.message()? {
                        Some((tag, bytes)) => come((from, tag, bytes)),
                        None => return Ok(()),
                    }
                }
            }
        }
    }

    /// The next message, if all of it has come.
    fn message(&mut self) -> io::Result<Option<(Tag, Vec<u8>)>> {
        let (tag, length) = match self.frame {
            Some(frame) => frame,
            None => {
                if !fill(&mut self.stream, &mut self.bytes, HEAD)? {
                    return Ok(None);
                }
                let (tag, length) = self.bytes.split_at(2);
                let tag = Tag(u16::from_be_bytes([tag[0], tag[1]]));
                let length = u64::from_be_bytes(length.try_into().expect("the head has as many bytes"));
                let length = usize::try_from(length).ok().filter(|&length| length <= LONGEST);
                let length = length.filter(|_| tag.0 <= Tag::MAX.0).ok_or(ErrorKind::InvalidData)?;
                self.bytes.clear();
                *self.frame.insert((tag, length))
            }
        };
        if !fill(&mut self.stream, &mut self.bytes, length)? {
            return Ok(None);
        }
        self.frame = None;
        Ok(Some((tag, std::mem::take(&mut self.bytes))))
    }
}

/// Reads until there are so many bytes, and says whether there are. Memory grows with what has come, not with what was announced.
fn fill(stream: &mut TcpStream, bytes: &mut Vec<u8>, length: usize) -> io::Result<bool> {
    while bytes.len() < length {
        let (start, step) = (bytes.len(), (length - bytes.len()).min(STEP));
        bytes.resize(start + step, 0);
        let read = again(|| stream.read(&mut bytes[start..]));
        bytes.truncate(start + read.as_ref().map_or(0, |count| count.unwrap_or(0)));
        match read? {
            None => return Ok(false),
            Some(0) => return Err(ErrorKind::ConnectionAborted.into()),
            Some(_) => (),
        }
    }
    Ok(true)
}

/// `None` if the call would have to wait.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            other => return other.map(Some),
        }
    }
}

/// Small messages go at once, and a node that is gone is noticed.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &(DEAD.as_secs() as u32 / 3))?;
    setsockopt(stream, sockopt::TcpKeepInterval, &(DEAD.as_secs() as u32 / 6))?;
    setsockopt(stream, sockopt::TcpUserTimeout, &(DEAD.as_millis() as u32))?;
    Ok(())
}

/// A node that has answered nothing for so long is gone.
const DEAD: Duration = Duration::from_secs(60);
/// Bytes that are read at a time.
const STEP: usize = 1 << 20;
/// Bytes of the longest message. No node has more memory.
const LONGEST: usize = 1 << 46;
/// A queue does not keep more memory than this for the next message.
const LARGEST_KEPT: usize = 1 << 20;
