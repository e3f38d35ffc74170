//! Calls of the system on sockets that never wait.
#![expect(clippy::disallowed_types, reason = "what is opened here becomes a `Handle`")]

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    connect, setsockopt, socket, sockopt, AddressFamily, SockFlag, SockType, SockaddrStorage,
};
use rustix::net::{accept_with, SocketFlags};
use scr_base::ensure;
use scr_plugin_api::{above_standard, uninterrupted, Handle};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// A connection. The application may close its number, and then it has ended.
pub(super) type Connection = Handle<TcpStream>;

/// The ports at which the processes of a job may listen.
pub type Ports = RangeInclusive<u16>;

/// A socket that takes connections.
pub(super) type Listener = Handle<TcpListener>;

/// Listens at an address of this node, which is to be made a [`Listener`] at once: at one of these ports, or else at one that the
/// system chooses. Gives the whole address.
///
/// # Errors
/// All of the ports are taken, or what the system reports.
pub fn listen(ip: IpAddr, ports: Option<&Ports>) -> io::Result<(TcpListener, SocketAddr)> {
    let bind = |port| above_standard(|| TcpListener::bind((ip, port)));
    let listener = ports.map_or_else(|| bind(0), |ports| first_free(ports, bind))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Tries the ports until one is not taken.
fn first_free<T>(ports: &Ports, bind: impl Fn(u16) -> io::Result<T>) -> io::Result<T> {
    let (from, to, count) = (*ports.start(), *ports.end(), ports.len());
    // Processes that begin at once do not all try the same ones.
    let start = std::process::id() as usize % count;
    let mut tried = ports.clone().cycle().skip(start).take(count).map(bind);
    let is_taken =
        |bound: &io::Result<T>| bound.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    let what = format!("all ports of SCR_TCP_PORTS={from}-{to} are taken on this node; allow more of them");
    tried.find(|bound| !is_taken(bound)).unwrap_or_else(|| Err(io::Error::other(what)))
}

/// Takes a connection that somebody has made.
pub(super) fn accept(listener: &Listener) -> io::Result<Connection> {
    let listener = listener.get()?;
    let taken = uninterrupted(|| above_standard(|| Ok(accept_with(listener, SocketFlags::CLOEXEC)?)))?;
    Handle::new(taken.into())
}

/// Whether somebody has made a connection that was not taken yet.
pub(super) fn is_waited_for(listener: &Listener) -> bool {
    let polled = listener
        .get()
        .map(|listener| poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO));
    matches!(polled, Ok(Ok(many)) if many > 0)
}

/// Begins to connect.
pub(super) fn begin_to_connect(address: &SocketAddr) -> io::Result<Connection> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = TcpStream::from(above_standard(|| socket(family, SockType::Stream, flags, None))?);
    match connect(stream.as_raw_fd(), &SockaddrStorage::from(*address)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Handle::new(stream),
        Err(error) => Err(error.into()),
    }
}

/// Whether the other node has answered. A time that is over is an error, but not if the answer has come meanwhile.
pub(super) fn is_connected(connection: &Connection, is_over: bool) -> io::Result<bool> {
    let stream = connection.get()?;
    stream.take_error()?.map_or(Ok(()), Err)?;
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected && is_over => Err(ErrorKind::TimedOut.into()),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Small messages go at once, and the system notices a node that is gone while nothing travels.
///
/// While something travels it would take a quarter of an hour. `TCP_USER_TIMEOUT` would shorten that, but it also ends
/// connections whose other end is alive and does not read for so long: `TcpComm::probe` looks instead.
pub(super) fn set_up(connection: &Connection, dead: Duration) -> io::Result<()> {
    let stream = connection.get()?;
    let part = |many: u64| u32::try_from((dead.as_secs() / many).max(1)).unwrap_or(u32::MAX);
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &part(3))?;
    setsockopt(stream, sockopt::TcpKeepInterval, &part(6))?;
    setsockopt(stream, sockopt::TcpKeepCount, &4)?;
    Ok(())
}

/// Writes what the system takes, and says how many bytes. This raises no SIGPIPE, as `write_vectored` does.
pub(super) fn write(connection: &Connection, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match unless_it_waits(|| connection.get()?.write(&bytes[taken..]))? {
            Some(count) => taken += count,
            None => break,
        }
    }
    Ok(taken)
}

/// Writes a part of the handshake. The buffers of a new connection have room for it.
pub(super) fn write_all(connection: &Connection, bytes: &[u8]) -> io::Result<()> {
    let count = write(connection, bytes)?;
    ensure(count == bytes.len(), || ErrorKind::WriteZero.into())
}

/// Reads once. The end of the connection is an error; `None` if nothing is there.
pub(super) fn read(connection: &Connection, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    match unless_it_waits(|| connection.get()?.read(bytes))? {
        Some(0) if !bytes.is_empty() => Err(ErrorKind::ConnectionAborted.into()),
        count => Ok(count),
    }
}

/// `None` if the call would have to wait.
fn unless_it_waits<T>(call: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
    match uninterrupted(call) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

/// A connection for the standard library, which repeats an interrupted read for ever.
pub(super) struct Patient<'a>(pub(super) &'a TcpStream);

impl Read for Patient<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.0.read(bytes)).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

/// Bytes of which a fixed number is to come.
#[derive(Default)]
pub(super) struct Few(Vec<u8>);

impl Few {
    /// All of them, once they have come.
    pub(super) fn read<const N: usize>(&mut self, connection: &Connection) -> io::Result<Option<[u8; N]>> {
        let mut rest = [0; N];
        while self.0.len() < N {
            let Some(count) = read(connection, &mut rest[self.0.len()..])? else { return Ok(None) };
            let start = self.0.len();
            self.0.extend_from_slice(&rest[start..start + count]);
        }
        let all = std::mem::take(&mut self.0);
        Ok(Some(all.try_into().expect("so many have come")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_test_kit::descriptors::{closes, give_away};

    /// Messages between ranks went into files of the application.
    #[test]
    fn a_file_of_the_application_that_has_the_number_of_a_connection_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = begin_to_connect(&listener.local_addr().unwrap()).unwrap();
        let number = connection.get().unwrap().as_raw_fd();
        give_away(number, std::fs::File::create_new(&theirs).unwrap());
        let errors = [
            write_all(&connection, b"message").unwrap_err(),
            read(&connection, &mut [0]).unwrap_err(),
            is_connected(&connection, false).unwrap_err(),
            set_up(&connection, Duration::from_secs(60)).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains("was closed by somebody else"), "{error}");
        }
        drop(connection);
        assert!(closes(number, &theirs));
        assert_eq!(std::fs::read(&theirs).unwrap(), b"");
    }
}
