//! Ranks that talk over TCP, for threads beside that of MPI.
//!
//! A rank connects to another one when it first sends to it, or waits for it. Each connection carries messages in one direction,
//! so that no two ranks that connect at once have to agree. Everything is done without waiting, but in one call of the system for
//! all connections at a time. The messages between two ranks keep their order. A connection that ends is an error of those that
//! need it, at once. A message goes from the buffer of its sender into that of its receiver without a copy, unless one of them
//! has to ask its caller meanwhile: see `TcpComm::let_go`.
//!
//! TCP alone guards the bytes against damage on the way; schemes have checksums of their own.
//!
//! Only processes that know the secret of the run take part: see `handshake`. Messages are not encrypted.
//!
//! | part | what it is |
//! |---|---|
//! | `interface` | the address of this node |
//! | `handshake` | both ends prove that they know the secret |
//! | `sending`, `receiving` | both ends of a connection, and its frames |
//! | `batch` | the sends and receives of an exchange |
//! | `socket` | calls of the system |

mod batch;
mod handshake;
pub mod interface;
mod receiving;
mod sending;
mod socket;

pub use handshake::Secret;

use super::agree::agree;
use super::awaited::Awaited;
use super::collective::{all_gather, barrier, broadcast};
use super::{
    check, Ask, Collective, Comm, CommError, Exchanged, Incomings, Mail, Rank, Result, Sends, Tag, Traffic,
    WaitControl,
};
use batch::{Batch, Inbox, Sent};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use receiving::{Receiving, HEAD};
use scr_base::env::Clock;
use scr_plugin_api::Handle;
use sending::Sending;
use socket::{accept, begin_to_connect, is_connected, is_waited_for, Connection, Listener};
pub use socket::{listen, Ports};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// One rank's end of the communicator. When it is dropped, the rank has ended, and those that wait for it get an error.
pub struct TcpComm {
    rank: Rank,
    addresses: Vec<SocketAddr>,
    listener: Listener,
    secret: Secret,
    limits: Limits,
    state: RefCell<State>,
    traffic: Cell<Traffic>,
    /// The messages that exchanges under way wait for, so that nothing else takes them.
    awaited: Awaited,
    /// Whether the first loss is the error of all that follows, and that error.
    ends_together: bool,
    ended: RefCell<Option<CommError>>,
}

/// How long a rank waits for a node that does not answer, and the ports at which it listens.
#[derive(Clone)]
pub struct Limits {
    pub clock: Arc<dyn Clock>,
    pub connect: Duration,
    /// A node that answers nothing for so long is gone.
    pub dead: Duration,
    /// At which ranks listen.
    pub ports: Option<Ports>,
}

#[derive(Default)]
struct State {
    sending: BTreeMap<Rank, Sending>,
    /// From the oldest on.
    receiving: Vec<Receiving>,
    /// The ranks that a connection with has ended.
    lost: BTreeMap<Rank, Loss>,
    mail: Mail,
    /// Connections to nodes that may be gone, each with its beginning.
    probes: BTreeMap<Rank, (Connection, Duration)>,
    /// Since when others wait for a connection that the process cannot have, and why not.
    full: Option<(Duration, String)>,
}

/// Why a rank cannot be reached any more.
struct Loss {
    why: String,
    /// Whether the system had taken all that was queued for it before.
    was_sent: bool,
}

impl Limits {
    /// A connection that is not made within `connect` is lost, and a stranger has so long to show who it is. A node that answers
    /// nothing for a minute is gone.
    pub fn new(clock: Arc<dyn Clock>, connect: Duration) -> Self {
        Self { clock, connect, dead: DEAD, ports: None }
    }
}

impl TcpComm {
    /// A communicator of the ranks that listen at these addresses, by rank. `listener` is the socket at the own one.
    ///
    /// # Errors
    /// [`CommError::Socket`].
    #[expect(clippy::disallowed_types, reason = "it becomes a `Handle`")]
    pub fn new(
        rank: Rank,
        listener: std::net::TcpListener,
        addresses: Vec<SocketAddr>,
        secret: Secret,
        limits: Limits,
    ) -> Result<Self> {
        let listener = listener.set_nonblocking(true).and_then(|()| Handle::new(listener));
        let listener = listener.map_err(|error| failed("listening", &error))?;
        let (state, traffic, awaited) = (RefCell::default(), Cell::default(), Awaited::default());
        let (ends_together, ended) = (false, RefCell::default());
        Ok(Self { rank, addresses, listener, secret, limits, state, traffic, awaited, ends_together, ended })
    }

    /// The same for calls that all ranks make together: once another rank is lost, nothing works any more on this one. It may be
    /// the only one that has lost it, for instance for want of descriptors. If it went on with those that are left, they would be
    /// in a call that it has left, and all would wait for each other. So the rank ends, and they see that.
    #[must_use]
    pub fn ending_together(self) -> Self {
        Self { ends_together: true, ..self }
    }
}

/// A communicator of the same ranks over TCP, each at an address of its node. All of them call it.
///
/// # Errors
/// A rank cannot listen, or cannot reach another one. The same on all ranks.
pub fn connect(comm: &dyn Comm, ip: IpAddr, limits: &Limits) -> Collective<TcpComm> {
    let made = connect_as(comm, ip, limits, &[comm.rank()], comm.size())?.pop();
    let made = made
        .map(TcpComm::ending_together)
        .ok_or(CommError::Malformed { from: comm.rank(), what: "its own address" });
    // Ranks that cannot reach each other find that out now.
    agree(comm, made.and_then(|made| barrier(&made).map(|()| made)))
}

/// A communicator of `size` ranks over TCP, of which this process has some, each for a thread of its own. Each has one process.
/// Whether they reach each other is not tried. All ranks of `comm` call it.
///
/// # Errors
/// A process cannot listen. The same on all ranks.
pub fn connect_as(
    comm: &dyn Comm,
    ip: IpAddr,
    limits: &Limits,
    own: &[Rank],
    size: u32,
) -> Collective<Vec<TcpComm>> {
    let bind = |rank: &Rank| {
        let (listener, address) = listen(ip, limits.ports.as_ref())?;
        Ok((*rank, listener, address))
    };
    let bound: io::Result<Vec<_>> = own.iter().map(bind).collect();
    let bound = agree(comm, bound.map_err(|error| failed(&format!("listening at {ip}"), &error)))?;
    let own: Vec<(Rank, SocketAddr)> = bound.iter().map(|(rank, _, address)| (*rank, *address)).collect();
    let all = all_gather(comm, &serde_json::to_vec(&own).unwrap_or_default())?;
    let mut known = BTreeMap::new();
    for process in (0..comm.size()).map(Rank) {
        let theirs = serde_json::from_slice::<Vec<(Rank, SocketAddr)>>(all.get(process));
        known.extend(theirs.map_err(|_| CommError::Malformed { from: process, what: "its addresses" })?);
    }
    let addresses: Vec<SocketAddr> = known.range(..Rank(size)).map(|(_, address)| *address).collect();
    if addresses.len() != size as usize {
        let missing = (0..size).map(Rank).find(|rank| !known.contains_key(rank)).unwrap_or(Rank(size));
        return Err(CommError::NoSuchRank { rank: missing, size }.into());
    }
    let root = Rank(0);
    let drawn = if comm.rank() == root { Secret::new().map(Some) } else { Ok(None) };
    let drawn = agree(comm, drawn.map_err(|error| failed("drawing a secret", &error)))?;
    let secret = broadcast(comm, root, drawn.map_or_else(Vec::new, |secret| secret.0.to_vec()))?;
    let secret = secret.try_into().map_err(|_| CommError::Malformed { from: root, what: "a secret" })?;
    let secret = Secret(secret);
    let made = bound.into_iter().map(|(rank, listener, _)| {
        TcpComm::new(rank, listener, addresses.clone(), secret.clone(), limits.clone())
    });
    agree(comm, made.collect::<Result<Vec<_>, _>>())
}

impl Comm for TcpComm {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.addresses.len()).unwrap_or(u32::MAX)
    }

    fn exchange(&self, tag: Tag, sends: Sends<'_>, receives: Incomings<'_, '_>, ask: Ask<'_>) -> Exchanged {
        check(self.size(), tag, sends, receives)?;
        self.ended.borrow().as_ref().map_or(Ok(()), |error| Err(error.clone()))?;
        self.traffic.set(self.traffic.get().with(sends));
        for own in sends.iter().filter(|send| send.to == self.rank) {
            self.state.borrow_mut().mail.deliver(self.rank, tag, own.bytes.to_vec());
        }
        let mut batch = Batch::new(self.rank, tag, sends, receives);
        let ended = self.run(&mut batch, ask);
        // Nothing uses the buffers any more, even after an error.
        self.let_go(&mut batch);
        if let Err(error @ (CommError::Lost { .. } | CommError::Socket { .. })) = &ended {
            _ = self.ends_together.then(|| self.ended.replace(Some(error.clone())));
        }
        ended
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>> {
        check(self.size(), tag, &[], &[])?;
        self.progress(None);
        Ok(self.state.borrow_mut().mail.take(tag, |from| self.awaited.is_awaited(tag, from)))
    }

    fn traffic(&self) -> Traffic {
        self.traffic.get()
    }
}

impl TcpComm {
    fn now(&self) -> Duration {
        self.limits.clock.elapsed()
    }

    fn run(&self, batch: &mut Batch<'_, '_>, ask: Ask<'_>) -> Exchanged {
        let (mut asked, mut probed) = (self.now(), self.now());
        let mut seen = self.state.borrow().news().filter(|_| self.state.borrow().mail.is_empty());
        let (mut is_quiet, mut has_asked) = (false, false);
        loop {
            self.progress(Some(batch));
            batch.collect(&mut self.state.borrow_mut().mail);
            if batch.sends.is_empty() && batch.receives.is_over() {
                return batch.receives.end(ask);
            }
            self.expect_reachable(batch)?;
            self.expect_room()?;
            let (now, news) = (self.now(), self.state.borrow().news());
            if now.saturating_sub(probed) >= self.limits.dead {
                probed = now;
                self.probe(batch, now);
            }
            let is_flowing = has_asked || self.uses_buffers(batch);
            if is_flowing && !is_quiet && seen == news && now.saturating_sub(asked) < LONGEST_FLOW {
                is_quiet = self.wait(batch)?;
                has_asked = false;
                continue;
            }
            (asked, seen, is_quiet, has_asked) = (now, news, false, true);
            self.let_go(batch);
            let receives = &mut batch.receives;
            let wait = || ask(&receives.come);
            let wait = self.awaited.while_waiting_for(receives.tag, receives.awaited(), wait)?;
            receives.given_up |= wait == WaitControl::GiveUp;
        }
    }

    /// Whether it would cost a copy to ask the caller.
    fn uses_buffers(&self, batch: &Batch<'_, '_>) -> bool {
        let is_partly = |send: &batch::Send<'_>| matches!(send.is, Sent::Partly(_));
        batch.sends.iter().any(is_partly) || self.state.borrow().receiving.iter().any(Receiving::uses_buffer)
    }

    /// The caller of an exchange is about to be asked, and may begin another one meanwhile, which cannot use the buffers of this
    /// one: what is under way continues in memory of the connections.
    fn let_go(&self, batch: &mut Batch<'_, '_>) {
        let state = &mut *self.state.borrow_mut();
        for send in &mut batch.sends {
            if let (Sent::Partly(taken), Some(connection)) = (send.is, state.sending.get_mut(&send.to)) {
                connection.queue(batch.receives.tag, send.bytes, taken);
                send.is = Sent::Queued;
            }
        }
        let mut inbox = Inbox { mail: &mut state.mail, batch: Some(batch) };
        state.receiving.iter_mut().for_each(|connection| connection.let_go(&mut inbox));
    }

    /// The connection to a rank, which is made if there is none.
    fn connection<'s>(&self, state: &'s mut State, to: Rank) -> Result<&'s mut Sending> {
        state.expect(to)?;
        if !state.sending.contains_key(&to) {
            let made = Sending::begin(self.rank, to, self.addresses[to.index()], self.now());
            let made = made.map_err(|error| state.lose(to, self.why(to, &error)))?;
            state.sending.insert(to, made);
        }
        Ok(state.sending.get_mut(&to).expect("it has just been made"))
    }

    /// Does what can be done without waiting.
    fn progress(&self, mut batch: Option<&mut Batch<'_, '_>>) {
        let (state, now) = (&mut *self.state.borrow_mut(), self.now());
        self.accept(state, now);
        for mut connection in std::mem::take(&mut state.receiving) {
            let mut inbox = Inbox { mail: &mut state.mail, batch: batch.as_deref_mut() };
            let place = (self.rank, self.size());
            let was_stranger = connection.from().is_none();
            match (
                connection.progress(&self.secret, place, (now, &self.limits), &mut inbox),
                connection.from(),
            ) {
                (Ok(()), from) => {
                    if was_stranger && from.is_some_and(|from| state.lost.contains_key(&from)) {
                        connection.tell_lost();
                    }
                    state.receiving.push(connection);
                }
                (Err(error), Some(from)) => _ = state.lose(from, self.why(from, &error)),
                // It was no rank, or one that comes again.
                (Err(_), None) => (),
            }
        }
        let mut ended = Vec::new();
        for (&to, connection) in &mut state.sending {
            if let Err(error) = connection.progress(&self.secret, now, &self.limits) {
                ended.push((to, error));
            }
        }
        ended.into_iter().for_each(|(to, error)| _ = state.lose(to, self.why(to, &error)));
        self.look_at_probes(state, now);
        if let Some(batch) = batch {
            self.send(state, batch);
        }
    }

    /// Takes the connections that others have made. Only so many stay whose other end has not shown who it is: the oldest leave.
    fn accept(&self, state: &mut State, now: Duration) {
        loop {
            match accept(&self.listener) {
                Ok(stream) => {
                    state.full = None;
                    state.receiving.extend(Receiving::new(stream, now, &self.limits));
                }
                Err(error) => {
                    let is_full = error.kind() != ErrorKind::WouldBlock;
                    match is_full && is_waited_for(&self.listener) {
                        true => _ = state.full.get_or_insert_with(|| (now, error.to_string())),
                        false => state.full = None,
                    }
                    break;
                }
            }
            let is_stranger = |connection: &Receiving| connection.from().is_none();
            if state.receiving.iter().filter(|connection| is_stranger(connection)).count() > MOST_STRANGERS {
                let oldest = state.receiving.iter().position(is_stranger);
                oldest.into_iter().for_each(|at| drop(state.receiving.remove(at)));
            }
        }
    }

    /// Sends what the system takes, in order for each rank.
    fn send(&self, state: &mut State, batch: &mut Batch<'_, '_>) {
        let (tag, mut blocked) = (batch.receives.tag, BTreeSet::new());
        for send in &mut batch.sends {
            let to = send.to;
            let Sent::Partly(taken) = send.is else {
                if state.has_sent(to) {
                    send.is = Sent::Wholly;
                }
                continue;
            };
            if blocked.contains(&to) {
                continue;
            }
            let Ok(connection) = self.connection(state, to) else { continue };
            let sent = if connection.is_free() { connection.send(tag, send.bytes, taken) } else { Ok(taken) };
            match sent {
                Ok(all) if all == HEAD + send.bytes.len() => send.is = Sent::Wholly,
                Ok(taken) => {
                    send.is = Sent::Partly(taken);
                    blocked.insert(to);
                }
                Err(error) => _ = state.lose(to, self.why(to, &error)),
            }
        }
        batch.sends.retain(|send| send.is != Sent::Wholly);
    }

    /// That a rank has died is noticed by the end of a connection, so there is one to each that is waited for. Messages that a
    /// rank sent before its end still arrive, though the end of its other connection may be seen first.
    fn expect_reachable(&self, batch: &Batch<'_, '_>) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        batch.sends.iter().try_for_each(|send| state.expect(send.to))?;
        let come: BTreeSet<Rank> = state.receiving.iter().filter_map(Receiving::claims).collect();
        let mut silent = batch.receives.awaited().filter(|from| *from != self.rank && !come.contains(from));
        silent.try_for_each(|from| self.connection(state, from).map(drop))
    }

    /// A process may have no descriptor for a moment. Ranks that it cannot take a connection of would wait for it for ever.
    fn expect_room(&self) -> Result<()> {
        match &self.state.borrow().full {
            Some((since, why)) if self.now().saturating_sub(*since) > self.limits.connect => {
                Err(CommError::Socket { what: format!("taking a connection of another rank: {why}") })
            }
            _ => Ok(()),
        }
    }

    /// Begins to look whether the nodes are there that are waited for. The system answers there, even if the rank is busy. That
    /// of this node does not notice soon that a node is gone to which anything is on its way.
    fn probe(&self, batch: &Batch<'_, '_>, now: Duration) {
        let state = &mut *self.state.borrow_mut();
        let needed = batch.receives.awaited().chain(batch.sends.iter().map(|send| send.to));
        for rank in needed.filter(|rank| *rank != self.rank).collect::<BTreeSet<_>>() {
            // An attempt that fails at once is repeated later: a process may have no descriptor left.
            if let Ok(probe) = begin_to_connect(&self.addresses[rank.index()]) {
                state.probes.entry(rank).or_insert((probe, now));
            }
        }
    }

    fn look_at_probes(&self, state: &mut State, now: Duration) {
        for (rank, (probe, began)) in std::mem::take(&mut state.probes) {
            match is_connected(&probe, now.saturating_sub(began) > self.limits.connect) {
                Ok(true) => (),
                Ok(false) => _ = state.probes.insert(rank, (probe, began)),
                Err(error) => {
                    state.lose(rank, self.why(rank, &error));
                    state.receiving.retain(|connection| connection.claims() != Some(rank));
                }
            }
        }
    }

    /// Waits until something can be done, or for a moment, and says whether nothing has happened.
    fn wait(&self, batch: &Batch<'_, '_>) -> Result<bool> {
        let state = self.state.borrow();
        if state.receiving.iter().any(|from| from.has_more) {
            return Ok(false);
        }
        let wants: BTreeSet<Rank> = batch.sends.iter().map(|send| send.to).collect();
        let listener = self.listener.get().map_err(|error| failed("listening", &error))?;
        let mut polled = Vec::new();
        if state.full.is_none() {
            polled.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        }
        let receiving = state.receiving.iter().map(|from| (&from.stream, PollFlags::POLLIN));
        let sending = state.sending.iter().map(|(to, by)| (&by.stream, by.events(wants.contains(to))));
        for (connection, events) in receiving.chain(sending) {
            // One that the application has closed ends when it is used next.
            let Ok(stream) = connection.get() else { return Ok(false) };
            polled.push(PollFd::new(stream.as_fd(), events));
        }
        match poll(&mut polled, PollTimeout::from(LONGEST_WAIT)) {
            Ok(many) => Ok(many == 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(error) => Err(failed("waiting for messages", &error.into())),
        }
    }

    fn why(&self, rank: Rank, error: &io::Error) -> String {
        let address = self.addresses[rank.index()];
        match error.kind() {
            ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe => format!("it has ended, and nothing listens at {address} for it"),
            ErrorKind::ConnectionRefused => format!(
                "nothing listens at {address} for it: it has ended, or a firewall refuses what is sent there; SCR_TCP_INTERFACE \
                 chooses the network"
            ),
            ErrorKind::PermissionDenied => format!("another program, or another run, listens at {address}"),
            ErrorKind::InvalidData => "it has sent what is no message; do all ranks run the same version?".to_owned(),
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => format!(
                "its node does not answer at {address}: it has failed, or a firewall drops what is sent there; \
                 SCR_TCP_INTERFACE chooses the network"
            ),
            _ => format!("{error} ({address})"),
        }
    }
}

impl State {
    /// How many messages have come and how many ranks are lost: what the caller of an exchange may want to know.
    fn news(&self) -> Option<(u64, usize)> {
        Some((self.mail.come, self.lost.len()))
    }

    /// A connection with a rank has ended. Messages that came from it on another connection remain valid.
    fn lose(&mut self, rank: Rank, why: String) -> CommError {
        // It may wait for this rank, which can send it nothing any more.
        self.receiving.iter().filter(|by| by.from() == Some(rank)).for_each(Receiving::tell_lost);
        let was_sent = self.sending.remove(&rank).is_some_and(|connection| connection.is_sent());
        let why = self.lost.entry(rank).or_insert(Loss { why, was_sent }).why.clone();
        CommError::Lost { rank, why }
    }

    /// Whether the system has, or had, all that was queued for a rank.
    fn has_sent(&self, to: Rank) -> bool {
        let connection = self.sending.get(&to).map(Sending::is_sent);
        connection.or_else(|| self.lost.get(&to).map(|loss| loss.was_sent)).unwrap_or(false)
    }

    fn expect(&self, rank: Rank) -> Result<()> {
        let why = self.lost.get(&rank).map(|loss| loss.why.clone());
        why.map_or(Ok(()), |why| Err(CommError::Lost { rank, why }))
    }
}

fn failed(doing: &str, error: &io::Error) -> CommError {
    CommError::Socket { what: format!("{doing}: {error}") }
}

/// Connections at a time whose other ends have not shown who they are.
const MOST_STRANGERS: usize = 256;
/// A rank that waits asks so often, in milliseconds, whether it is to wait on.
const LONGEST_WAIT: u8 = 50;
/// While messages flow it asks more rarely, since that costs a copy of what is under way.
const LONGEST_FLOW: Duration = Duration::from_millis(250);
/// A node that has answered nothing for so long is gone.
const DEAD: Duration = Duration::from_secs(60);
