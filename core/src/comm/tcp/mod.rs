//! Ranks that talk over TCP, for threads beside that of MPI.
//!
//! A rank connects to another one when it first sends to it, or waits for it. Each connection carries messages in one direction, so
//! that no two ranks that connect at once have to agree. Everything is done without waiting, but in one call of the system for all
//! connections at a time. The messages between two ranks keep their order. A connection that ends is an error of those that need
//! it, at once.
//!
//! Nobody takes part without the secret of the run: see [`handshake`]. What travels is not encrypted.
//!
//! | part | what it is |
//! |---|---|
//! | `interface` | the address of this node |
//! | `handshake` | both ends prove that they know the secret |
//! | `connection` | one connection, and its frames |

mod connection;
mod handshake;
pub mod interface;

pub use handshake::Secret;

use super::agree::agree;
use super::awaited::Awaited;
use super::collective::{all_gather, barrier, broadcast};
use super::{
    check, Collective, Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, Traffic, WaitControl,
};
use connection::{Message, Receiving, Sending};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

/// One rank's end of the communicator. When it is dropped, the rank has ended, and those that wait for it get an error.
pub struct TcpComm {
    rank: Rank,
    addresses: Vec<SocketAddr>,
    listener: TcpListener,
    secret: Secret,
    limit: Duration,
    state: RefCell<State>,
    traffic: Cell<Traffic>,
    /// The messages that exchanges under way wait for, so that nothing else takes them.
    awaited: Awaited,
}

#[derive(Default)]
struct State {
    sending: BTreeMap<Rank, Sending>,
    receiving: Vec<Receiving>,
    /// The ranks that cannot be reached any more.
    lost: BTreeMap<Rank, Loss>,
    /// Messages that have come, by tag and sender.
    mail: BTreeMap<(u16, Rank), VecDeque<Vec<u8>>>,
    /// How often anything has changed that an exchange may wait for.
    changes: u64,
}

/// Why a rank cannot be reached any more.
struct Loss {
    why: String,
    /// Whether the system had taken all that was sent to it before.
    was_sent: bool,
}

impl TcpComm {
    /// A communicator of the ranks that listen at these addresses, by rank. `listener` is the socket at the own one. A connection
    /// that cannot be made within `limit` is lost.
    ///
    /// # Errors
    /// [`CommError::Socket`].
    pub fn new(
        rank: Rank,
        listener: TcpListener,
        addresses: Vec<SocketAddr>,
        secret: Secret,
        limit: Duration,
    ) -> Result<Self, CommError> {
        listener.set_nonblocking(true).map_err(|error| socket("listening", &error))?;
        let (state, traffic, awaited) = (RefCell::default(), Cell::default(), Awaited::default());
        Ok(Self { rank, addresses, listener, secret, limit, state, traffic, awaited })
    }
}

/// A communicator of the same ranks over TCP, each at an address of its node. All of them call it.
///
/// # Errors
/// A rank cannot listen, or cannot reach another one. The same on all ranks.
pub fn connect(comm: &dyn Comm, ip: IpAddr, limit: Duration) -> Collective<TcpComm> {
    let bound = TcpListener::bind((ip, 0)).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    let bound = bound.map_err(|error| socket(&format!("listening at {ip}"), &error));
    let (listener, address) = agree(comm, bound)?;
    let all = all_gather(comm, address.to_string().as_bytes())?;
    let malformed = |from| CommError::Malformed { from, what: "an address" };
    let addresses = (0..comm.size()).map(Rank).map(|rank| {
        let text = std::str::from_utf8(all.get(rank)).ok();
        text.and_then(|text| text.parse().ok()).ok_or(malformed(rank))
    });
    let addresses = addresses.collect::<Result<Vec<SocketAddr>, _>>()?;
    let root = Rank(0);
    let own = if comm.rank() == root { Secret::new().map(Some) } else { Ok(None) };
    let own = agree(comm, own.map_err(|error| socket("drawing a secret", &error)))?;
    let secret = broadcast(comm, root, own.map_or_else(Vec::new, |secret| secret.to_bytes().to_vec()))?;
    let secret = Secret::from_bytes(&secret).ok_or(CommError::Malformed { from: root, what: "a secret" })?;
    let made = TcpComm::new(comm.rank(), listener, addresses, secret, limit);
    // Ranks that cannot reach each other find that out now.
    agree(comm, made.and_then(|made| barrier(&made).map(|()| made)))
}

impl Comm for TcpComm {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.addresses.len()).unwrap_or(u32::MAX)
    }

    fn exchange(
        &self,
        tag: Tag,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        check_cancel: &mut dyn FnMut(&[bool]) -> Result<WaitControl, CommError>,
    ) -> Result<ExchangeEnd, CommError> {
        check(self.size(), tag, sends, receives)?;
        self.count(sends);
        for send in sends {
            self.send(send.to, tag, send.bytes)?;
        }
        let mut come = vec![false; receives.len()];
        let (mut wrong, mut given_up) = (None, false);
        loop {
            self.progress();
            let seen = self.state.borrow().changes;
            if !given_up {
                self.receive(tag, receives, &mut come, &mut wrong);
            }
            let is_done = come.iter().all(|&come| come);
            if (given_up || is_done) && self.are_sent(sends)? {
                if given_up {
                    check_cancel(&come)?;
                }
                let ended = if is_done { ExchangeEnd::Done } else { ExchangeEnd::GivenUp };
                return wrong.map_or(Ok(ended), Err);
            }
            let missing = || receives.iter().zip(&come).filter(|(_, come)| !given_up && !**come);
            let from: Vec<Rank> = missing().map(|(receive, _)| receive.from).collect();
            self.expect_reachable(&from)?;
            let asked = self.awaited.while_waiting_for(tag, from.iter().copied(), || check_cancel(&come))?;
            if asked == WaitControl::GiveUp && !given_up {
                given_up = true;
                continue;
            }
            self.wait(seen)?;
        }
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
        check(self.size(), tag, &[], &[])?;
        self.progress();
        let mut state = self.state.borrow_mut();
        let with_tag = state.mail.range_mut((tag.0, Rank(0))..=(tag.0, Rank(u32::MAX)));
        let mut free = with_tag.filter(|((_, from), _)| !self.awaited.is_awaited(tag, *from));
        Ok(free.find_map(|((_, from), queue)| Some((*from, queue.pop_front()?))))
    }

    fn traffic(&self) -> Traffic {
        self.traffic.get()
    }
}

impl TcpComm {
    fn count(&self, sends: &[Outgoing<'_>]) {
        let mut traffic = self.traffic.get();
        traffic.messages += sends.len() as u64;
        traffic.bytes += sends.iter().map(|send| send.bytes.len() as u64).sum::<u64>();
        self.traffic.set(traffic);
    }

    fn send(&self, to: Rank, tag: Tag, bytes: &[u8]) -> Result<(), CommError> {
        let mut state = self.state.borrow_mut();
        if to == self.rank {
            state.deliver((to, tag, bytes.to_vec()));
            return Ok(());
        }
        let sent = self.connection(&mut state, to)?.send(tag, bytes);
        sent.map_err(|error| state.lose(to, &error))
    }

    /// The connection to a rank, which is made if there is none.
    fn connection<'s>(&self, state: &'s mut State, to: Rank) -> Result<&'s mut Sending, CommError> {
        state.expect(to)?;
        if !state.sending.contains_key(&to) {
            let address = &self.addresses[to.index()];
            let made = Sending::connect(self.rank, to, address, self.limit);
            let made = made.map_err(|error| state.lose(to, &error))?;
            state.sending.insert(to, made);
        }
        Ok(state.sending.get_mut(&to).expect("it has just been made"))
    }

    /// Does what can be done without waiting.
    fn progress(&self) {
        let state = &mut *self.state.borrow_mut();
        while let Ok((stream, _)) = self.listener.accept() {
            state.receiving.extend(Receiving::new(stream));
            state.limit_strangers();
        }
        let place = (self.rank, self.size());
        for mut connection in std::mem::take(&mut state.receiving) {
            let ended = connection.progress(&self.secret, place, &mut |message| state.deliver(message));
            match (ended, connection.from()) {
                (Ok(()), _) => state.receiving.push(connection),
                (Err(error), Some(from)) => _ = state.lose(from, &error),
                // It was no rank.
                (Err(_), None) => (),
            }
        }
        let mut ended = Vec::new();
        for (&to, connection) in &mut state.sending {
            let was_sent = connection.is_sent();
            match connection.progress(&self.secret) {
                Ok(()) => state.changes += u64::from(connection.is_sent() != was_sent),
                Err(error) => ended.push((to, error)),
            }
        }
        ended.into_iter().for_each(|(to, error)| _ = state.lose(to, &error));
    }

    /// Hands over what has come for these receives.
    fn receive(
        &self,
        tag: Tag,
        receives: &mut [Incoming<'_>],
        come: &mut [bool],
        wrong: &mut Option<CommError>,
    ) {
        let mut state = self.state.borrow_mut();
        for (receive, come) in receives.iter_mut().zip(come).filter(|(_, come)| !**come) {
            let queue = state.mail.get_mut(&(tag.0, receive.from));
            let Some(bytes) = queue.and_then(VecDeque::pop_front) else { continue };
            *come = true;
            if bytes.len() == receive.bytes.len() {
                receive.bytes.copy_from_slice(&bytes);
            } else {
                let (found, expected) = (bytes.len(), receive.bytes.len());
                wrong.get_or_insert(CommError::WrongLength {
                    from: receive.from,
                    found,
                    expected,
                    tag: tag.0,
                });
            }
        }
    }

    /// Whether the system has all that was to be sent to these ranks.
    fn are_sent(&self, sends: &[Outgoing<'_>]) -> Result<bool, CommError> {
        let state = self.state.borrow();
        let mut others = sends.iter().map(|send| send.to).filter(|&to| to != self.rank);
        others.try_fold(true, |all, to| match state.sending.get(&to) {
            Some(connection) => Ok(all && connection.is_sent()),
            None if state.lost.get(&to).is_some_and(|loss| loss.was_sent) => Ok(all),
            None => state.expect(to).map(|()| false),
        })
    }

    /// That a rank has died is noticed by the end of a connection, so there is one to each that is waited for.
    fn expect_reachable(&self, from: &[Rank]) -> Result<(), CommError> {
        let state = &mut *self.state.borrow_mut();
        from.iter().filter(|&&from| from != self.rank).try_for_each(|&from| {
            state.expect(from)?;
            match state.receiving.iter().any(|connection| connection.from() == Some(from)) {
                true => Ok(()),
                false => self.connection(state, from).map(drop),
            }
        })
    }

    /// Waits until something can be done, unless something has changed already, or for a moment.
    fn wait(&self, seen: u64) -> Result<(), CommError> {
        let state = self.state.borrow();
        if state.changes != seen {
            return Ok(());
        }
        let mut polled = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        polled.extend(state.receiving.iter().map(|from| PollFd::new(from.stream.as_fd(), PollFlags::POLLIN)));
        polled.extend(state.sending.values().map(|to| {
            let write = if to.is_to_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
            PollFd::new(to.stream.as_fd(), PollFlags::POLLIN | write)
        }));
        match poll(&mut polled, PollTimeout::from(LONGEST_WAIT)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(socket("waiting for messages", &error.into())),
        }
    }
}

impl State {
    fn deliver(&mut self, (from, tag, bytes): Message) {
        self.mail.entry((tag.0, from)).or_default().push_back(bytes);
        self.changes += 1;
    }

    /// The connections with a rank have ended.
    fn lose(&mut self, rank: Rank, error: &std::io::Error) -> CommError {
        let why = match error.kind() {
            ErrorKind::ConnectionAborted => "it has ended its connection".to_owned(),
            _ => error.to_string(),
        };
        let was_sent = self.sending.remove(&rank).is_some_and(|connection| connection.is_sent());
        self.receiving.retain(|connection| connection.from() != Some(rank));
        self.changes += 1;
        let why = self.lost.entry(rank).or_insert(Loss { why, was_sent }).why.clone();
        CommError::Lost { rank, why }
    }

    fn expect(&self, rank: Rank) -> Result<(), CommError> {
        match self.lost.get(&rank) {
            Some(loss) => Err(CommError::Lost { rank, why: loss.why.clone() }),
            None => Ok(()),
        }
    }

    /// Only so many connections stay whose other end has not shown who it is. Those leave first that have said nothing.
    fn limit_strangers(&mut self) {
        let strangers = self.receiving.iter().filter(|connection| connection.from().is_none()).count();
        if strangers > MOST_STRANGERS {
            let silent = self.receiving.iter().position(Receiving::is_silent);
            let any = || self.receiving.iter().position(|connection| connection.from().is_none());
            silent.or_else(any).into_iter().for_each(|at| drop(self.receiving.remove(at)));
        }
    }
}

fn socket(doing: &str, error: &std::io::Error) -> CommError {
    CommError::Socket { what: format!("{doing}: {error}") }
}

/// Connections at a time whose other ends have not shown who they are.
const MOST_STRANGERS: usize = 256;
/// A rank that waits asks so often, in milliseconds, whether it is to wait on.
const LONGEST_WAIT: u8 = 50;
