//! Ranks of an MPI job.
//!
//! It works on a duplicate of a communicator, needs no thread level, and never blocks inside the library, since there are often
//! more ranks than processors. It starts a receive only when its message has arrived. So it can give up a receive
//! without cancelling anything, and detects a wrong length before a byte is written. (Open MPI over TCP writes past the end of a
//! buffer that is too short for a long message.) A message too long for MPI's counts is sent in pieces: full ones, and a last
//! one that is shorter and may be empty, so that `take` also sees its end.

mod calls;
mod deaths;
mod library;

pub use calls::{has_begun, has_ended, rank_and_size, world};
pub use library::{library, Library};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use self::calls::{Arrived, Handle, Requests};
use mpi::ffi;
use scr_comm::collective::COLLECTIVE;
use scr_comm::{
    check, Ask, Awaited, Comm, CommError, ExchangeEnd, Exchanged, Incoming, Incomings, Rank, Result, Sends,
    Tag, Traffic, WaitControl,
};

/// One rank's end of a communicator over MPI. It belongs to the thread that made it.
///
/// Dropping it frees the communicator, unless it was abandoned, or `MPI_Finalize` was faster.
pub struct MpiComm {
    handle: Handle,
    rank: Rank,
    piece: usize,
    longest_wait: Duration,
    traffic: Cell<Traffic>,
    /// The messages that exchanges under way wait for, so that nothing else takes them.
    awaited: Awaited,
    /// Messages of this rank to itself. MPICH would block such a send until its receive.
    own: RefCell<VecDeque<(Tag, Vec<u8>)>>,
}

impl MpiComm {
    /// A communicator of all processes of the launch. All of them call it.
    ///
    /// # Errors
    /// As for [`duplicate_of`](Self::duplicate_of).
    pub fn of_world() -> Result<Self> {
        // SAFETY: the communicator of MPI itself.
        unsafe { Self::duplicate_of(calls::world(), &mut || ()) }
    }

    /// A communicator of the ranks of `parent`, all of which call it. While it waits for them it calls `look` now and then.
    ///
    /// # Errors
    /// [`CommError::Unusable`] before `MPI_Init` and after `MPI_Finalize`, [`CommError::Unfit`] where `parent` has no ranks or two
    /// groups, [`CommError::Mpi`] for what the library reports.
    ///
    /// # Safety
    /// `parent` is a communicator that lives, or `MPI_COMM_NULL`.
    pub unsafe fn duplicate_of(parent: ffi::MPI_Comm, look: &mut dyn FnMut()) -> Result<Self> {
        // SAFETY: the caller's promise.
        let handle = unsafe { Handle::duplicate_of(parent, look) }?;
        let rank = handle.rank()?;
        let (traffic, awaited, own) = (Cell::default(), Awaited::default(), RefCell::default());
        Ok(Self { handle, rank, piece: LARGEST_PIECE, longest_wait: LONGEST_WAIT, traffic, awaited, own })
    }

    /// Splits messages into pieces of this many bytes, at least one and at most the usual 1 GiB. All ranks
    /// must give the same.
    #[must_use]
    pub fn with_pieces_of(mut self, bytes: usize) -> Self {
        self.piece = bytes.clamp(1, LARGEST_PIECE);
        self
    }

    /// After an error, waits no longer than this for messages under way, by default 10 minutes, and then ends the job.
    #[must_use]
    pub fn with_longest_wait(mut self, longest: Duration) -> Self {
        self.longest_wait = longest;
        self
    }

    /// Receives the rest of a message of which a piece has arrived, whatever its length.
    fn receive_whole(&self, tag: Tag, arrived: &Arrived) -> Result<Vec<u8>> {
        let mut message = Vec::new();
        let mut bytes = arrived.bytes;
        loop {
            let end = message.len();
            message.resize(end + bytes, 0);
            let mut requests = Requests::new(&self.handle, self.longest_wait);
            requests.receive(arrived.from, tag, &mut message[end..])?;
            let mut patience = Patience::default();
            while requests.active() > 0 {
                requests.progress(|_| ())?;
                patience.rest();
            }
            drop(requests);
            if bytes < self.piece {
                return Ok(message);
            }
            // The sender has started all pieces at once, so the next is on its way.
            bytes = loop {
                match self.handle.probe(Some(arrived.from), tag)? {
                    Some(next) => break next.bytes,
                    None => patience.rest(),
                }
            };
        }
    }

    fn find(&self, tag: Tag) -> Result<Option<Arrived>> {
        if !self.awaited.is_used(tag) {
            return self.handle.probe(None, tag);
        }
        let others = (0..self.size()).map(Rank).filter(|rank| !self.awaited.is_awaited(tag, *rank));
        others.map(|rank| self.handle.probe(Some(rank), tag)).find_map(Result::transpose).transpose()
    }

    fn take_own(&self, tag: Tag) -> Option<Vec<u8>> {
        let mut own = self.own.borrow_mut();
        let place = own.iter().position(|(other, _)| *other == tag)?;
        own.remove(place).map(|(_, bytes)| bytes)
    }
}

impl Comm for MpiComm {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.handle.size()
    }

    fn exchange(&self, tag: Tag, sends: Sends<'_>, receives: Incomings<'_, '_>, ask: Ask<'_>) -> Exchanged {
        check(self.size(), tag, sends, receives)?;
        self.handle.expect_usable()?;
        self.traffic.set(self.traffic.get().with(sends));
        let mut batch = Batch::start(self, tag, sends, receives)?;
        let mut patience = Patience::default();
        let mut given_up = false;
        loop {
            let moved = batch.move_on()?;
            if batch.is_quiet() {
                if given_up {
                    ask(&batch.come)?;
                }
                let done = batch.come.iter().all(|&come| come);
                let ended = if done { ExchangeEnd::Done } else { ExchangeEnd::GivenUp };
                let wrong = batch.wrong.take();
                if wrong.is_some() && tag == COLLECTIVE {
                    // The ranks are out of step, and none of them can continue.
                    self.handle.abandon();
                }
                return wrong.map_or(Ok(ended), Err);
            }
            if moved && !given_up {
                patience = Patience::default();
                continue;
            }
            if patience.is_long() {
                self.handle.look_for_deaths()?;
            }
            if given_up || patience.is_long() {
                let asked = self.awaited.while_waiting_for(tag, batch.awaited(), || ask(&batch.come))?;
                if asked == WaitControl::GiveUp && !given_up {
                    given_up = true;
                    batch.give_up();
                    continue;
                }
            }
            patience.rest();
        }
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>> {
        check(self.size(), tag, &[], &[])?;
        self.handle.expect_usable()?;
        if !self.awaited.is_awaited(tag, self.rank) {
            if let Some(bytes) = self.take_own(tag) {
                return Ok(Some((self.rank, bytes)));
            }
        }
        let Some(arrived) = self.find(tag)? else { return Ok(None) };
        Ok(Some((arrived.from, self.receive_whole(tag, &arrived)?)))
    }

    fn abandon(&self) {
        self.handle.abandon();
    }

    fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    fn launch_size(&self) -> u32 {
        // Processes that were spawned later are a launch of their own.
        calls::world_size().map_or(self.size(), |world| world.max(self.size()))
    }

    fn is_spawned(&self) -> bool {
        calls::has_parent()
    }
}

/// One exchange under way.
struct Batch<'a, 'b> {
    comm: &'a MpiComm,
    tag: Tag,
    requests: Requests<'a, 'b>,
    /// For each request, the receive that it is a piece of; sends have none.
    owners: Vec<Option<usize>>,
    receives: Vec<Receive<'b>>,
    /// Per sender, the receives that no whole message has been found for, oldest first.
    queues: Vec<(Rank, VecDeque<usize>)>,
    come: Vec<bool>,
    wrong: Option<CommError>,
}

struct Receive<'b> {
    length: usize,
    /// The rest of the buffer, into which no piece is received yet.
    rest: &'b mut [u8],
    /// Pieces that have been found and are not complete.
    pieces: usize,
    found_all: bool,
}

impl<'a, 'b> Batch<'a, 'b> {
    fn start(comm: &'a MpiComm, tag: Tag, sends: Sends<'b>, receives: Incomings<'b, '_>) -> Result<Self> {
        let mut queues: Vec<(Rank, VecDeque<usize>)> = Vec::new();
        let mut sources: Vec<(Rank, usize)> =
            receives.iter().enumerate().map(|(place, receive)| (receive.from, place)).collect();
        sources.sort_unstable();
        for (from, place) in sources {
            match queues.last_mut() {
                Some((rank, queue)) if *rank == from => queue.push_back(place),
                _ => queues.push((from, VecDeque::from([place]))),
            }
        }
        let come = vec![false; receives.len()];
        let receive = |receive: &'b mut Incoming<'_>| Receive {
            length: receive.bytes.len(),
            rest: &mut *receive.bytes,
            pieces: 0,
            found_all: false,
        };
        let receives = receives.iter_mut().map(receive).collect();
        let (requests, owners) = (Requests::new(&comm.handle, comm.longest_wait), Vec::new());
        let mut batch = Self { comm, tag, requests, owners, receives, queues, come, wrong: None };
        for send in sends {
            if send.to == comm.rank {
                comm.own.borrow_mut().push_back((tag, send.bytes.to_vec()));
            } else {
                batch.send(send.to, send.bytes)?;
            }
        }
        Ok(batch)
    }

    fn send(&mut self, to: Rank, bytes: &'b [u8]) -> Result<()> {
        let mut rest = bytes;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(self.comm.piece));
            self.requests.send(to, self.tag, piece)?;
            self.owners.push(None);
            if piece.len() < self.comm.piece {
                return Ok(());
            }
            rest = after;
        }
    }

    /// Starts receives for what has arrived, and tests what has completed. Returns whether anything has.
    fn move_on(&mut self) -> Result<bool> {
        let mut moved = false;
        for nth in 0..self.queues.len() {
            while let Some(&place) = self.queues[nth].1.front() {
                let from = self.queues[nth].0;
                if from == self.comm.rank {
                    let Some(bytes) = self.comm.take_own(self.tag) else { break };
                    self.receive_own(place, &bytes);
                    self.queues[nth].1.pop_front();
                    continue;
                }
                let Some(arrived) = self.comm.handle.probe(Some(from), self.tag)? else { break };
                moved = true;
                self.found(place, &arrived)?;
                if self.receives[place].found_all {
                    self.queues[nth].1.pop_front();
                }
            }
        }
        let (owners, receives, come) = (&self.owners, &mut self.receives, &mut self.come);
        self.requests.progress(|request| {
            moved = true;
            if let Some(place) = owners[request] {
                let receive = &mut receives[place];
                receive.pieces -= 1;
                come[place] = receive.found_all && receive.pieces == 0;
            }
        })?;
        Ok(moved)
    }

    fn found(&mut self, place: usize, arrived: &Arrived) -> Result<()> {
        let piece = self.comm.piece;
        let receive = &mut self.receives[place];
        let expected = receive.rest.len().min(piece);
        if arrived.bytes != expected {
            let before = receive.length - receive.rest.len();
            receive.found_all = true;
            self.come[place] = receive.pieces == 0;
            let found = before + self.comm.receive_whole(self.tag, arrived)?.len();
            self.record_mismatch(arrived.from, place, found);
            return Ok(());
        }
        let (buffer, rest) = std::mem::take(&mut receive.rest).split_at_mut(expected);
        receive.rest = rest;
        receive.pieces += 1;
        receive.found_all = expected < piece;
        self.requests.receive(arrived.from, self.tag, buffer)?;
        self.owners.push(Some(place));
        Ok(())
    }

    fn receive_own(&mut self, place: usize, bytes: &[u8]) {
        let receive = &mut self.receives[place];
        if receive.length == bytes.len() {
            receive.rest.copy_from_slice(bytes);
        } else {
            self.record_mismatch(self.comm.rank, place, bytes.len());
        }
        self.come[place] = true;
    }

    fn record_mismatch(&mut self, from: Rank, place: usize, found: usize) {
        let expected = self.receives[place].length;
        self.wrong.get_or_insert(CommError::WrongLength { from, found, expected, tag: self.tag.0 });
    }

    /// Looks for nothing more, except for the rest of a message that has begun to come.
    fn give_up(&mut self) {
        for (_, queue) in &mut self.queues {
            let has_begun = queue.front().is_some_and(|&place| {
                let receive = &self.receives[place];
                receive.rest.len() < receive.length
            });
            queue.truncate(usize::from(has_begun));
        }
    }

    /// Whether nothing is under way, and nothing is awaited.
    fn is_quiet(&self) -> bool {
        self.requests.active() == 0 && self.awaited().next().is_none()
    }

    /// The ranks that something is still to come from.
    fn awaited(&self) -> impl Iterator<Item = Rank> + '_ {
        self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(rank, _)| *rank)
    }
}

/// How to wait: give the processor away at once, and after very long idleness for a moment longer.
#[derive(Default)]
struct Patience {
    rests: u32,
    pauses: u32,
}

impl Patience {
    /// Now and then, and at first: when it is worth while to see what else may have happened.
    fn is_long(&self) -> bool {
        self.rests.is_multiple_of(16)
    }

    /// So long it has waited at least.
    fn waited(&self) -> Duration {
        PAUSE.saturating_mul(self.pauses)
    }

    fn rest(&mut self) {
        if self.rests < 20_000 {
            self.rests += 1;
            std::thread::yield_now();
        } else {
            self.pauses = self.pauses.saturating_add(1);
            // It waits for a message, and MPI has no way to wake a thread for one.
            #[expect(
                clippy::disallowed_methods,
                reason = "only longer than yielding; the loop around it waits"
            )]
            std::thread::sleep(PAUSE);
        }
    }
}

const PAUSE: Duration = Duration::from_micros(50);
/// The other ranks may be at work on large files before they come to a message.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Bytes of the longest message that is not split. MPI counts with `int`.
const LARGEST_PIECE: usize = 1 << 30;
