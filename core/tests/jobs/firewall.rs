//! A network that lets no node reach another one: what another number of ranks has left in cache comes by way of the prefix
//! directory.

use super::any_ranks::{job, place, read_all};
use super::crash::sizes;
use super::world::{contents, path_of, Application, Outcome, World};
use nix::sys::socket::{bind, listen, socket, AddressFamily, Backlog, SockFlag, SockType, SockaddrIn};
use scr_base::env::Clock;
use scr_comm::thread::ThreadComm;
use scr_comm::{Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, Traffic, WaitControl};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime};

/// The fate of a connection between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firewall {
    Refuses,
    /// All packets to it are lost, and there is no answer.
    Drops,
}

/// A listener whose backlog of connections is full, so that the system drops all further ones.
struct FullListener {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullListener {
    fn new() -> Self {
        let listener = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let waiting = std::iter::from_fn(connect).collect();
        Self { address, _listener: listener, _waiting: waiting }
    }
}

/// A communicator of the application by which the ranks tell each other, while the firewall is up, an address behind it.
struct Behind {
    comm: ThreadComm,
    port: u16,
    is_up: Arc<AtomicBool>,
}

impl Behind {
    /// The bytes, in which all addresses have the port of the firewall.
    fn changed(&self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        let at = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(ADDRESS));
        for at in at.filter(|_| self.is_up.load(Ordering::SeqCst)) {
            let port = changed[at + ADDRESS.len()..].iter_mut().take_while(|byte| byte.is_ascii_digit());
            let port: Vec<&mut u8> = port.collect();
            let as_long = format!("{:0width$}", self.port, width = port.len());
            port.into_iter().zip(as_long.bytes()).for_each(|(byte, digit)| *byte = digit);
        }
        changed
    }
}

impl Comm for Behind {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn exchange(
        &self,
        tag: Tag,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        check_cancel: &mut dyn FnMut(&[bool]) -> Result<WaitControl, CommError>,
    ) -> Result<ExchangeEnd, CommError> {
        let changed: Vec<Vec<u8>> = sends.iter().map(|send| self.changed(send.bytes)).collect();
        let sends: Vec<Outgoing<'_>> =
            sends.iter().zip(&changed).map(|(send, bytes)| Outgoing { to: send.to, bytes }).collect();
        self.comm.exchange(tag, &sends, receives, check_cancel)
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
        self.comm.take(tag)
    }

    fn traffic(&self) -> Traffic {
        self.comm.traffic()
    }
}

/// Time that goes by faster than it does, so that nobody has to wait for ten seconds.
struct FastClock(Instant);

impl Clock for FastClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed() * 20
    }
}

/// A checkpoint of four ranks, in cache and perhaps in the prefix directory, and six ranks that come to it.
fn six_after_four(flush: &str) -> World {
    let mut world = job(4, "XOR").set("SCR_FLUSH", flush).set("SCR_TCP_INTERFACE", "127.0.0.0/8");
    world.run(|application| application.checkpoint(1, sizes).unwrap());
    world.nodes = place(6, 4);
    world.clock = Some(Arc::new(FastClock(Instant::now())));
    world
}

/// Runs six ranks behind a firewall that is up from the beginning, or that goes up once the session has begun.
fn run_behind<T: Send>(
    world: &World,
    firewall: Firewall,
    goes_up: bool,
    body: impl Fn(&mut Application) -> T + Sync,
) -> Outcome<T> {
    let full = FullListener::new();
    let port = if firewall == Firewall::Drops { full.address.port() } else { 1 };
    let is_up = Arc::new(AtomicBool::new(!goes_up));
    let [has_begun, is_changed] = [Barrier::new(6), Barrier::new(6)];
    world.run_over(&|comm| Rc::new(Behind { comm, port, is_up: Arc::clone(&is_up) }), |application| {
        let mut application = application.unwrap();
        has_begun.wait();
        is_up.store(true, Ordering::SeqCst);
        is_changed.wait();
        body(&mut application)
    })
}

#[test]
#[ignore = "long"]
fn where_no_node_reaches_another_one_what_is_in_cache_comes_by_way_of_the_prefix_directory() {
    for (firewall, why) in [
        (Firewall::Refuses, "a firewall refuses what is sent there"),
        (Firewall::Drops, "a firewall drops what is sent there"),
    ] {
        for flush in ["0", "1"] {
            let world = six_after_four(flush);
            let run = run_behind(&world, firewall, false, read_all);
            run.all_gave(&Some((1, 4)));
            run.line_with(&[
                "WARNING",
                "ckpt.1",
                "but by way of the prefix directory",
                why,
                "SCR_TCP_INTERFACE",
            ]);
            assert_eq!(run.has_line_with("is made whole in the prefix directory first"), flush == "0");
            assert!(!run.has_line_with("it is read in the caches of the nodes"), "{}", run.lines.join("\n"));
            // Nothing was taken away from those who wrote it, nor from those who can talk.
            world.run(read_all).all_gave(&Some((1, 4)));
        }
    }
}

/// The threads that stood for those who wrote it could still talk.
#[test]
#[ignore = "long"]
fn where_a_file_cannot_come_from_another_node_it_is_read_in_the_prefix_directory_or_that_is_an_error() {
    for (firewall, why) in [
        (Firewall::Refuses, "a firewall refuses what is sent there"),
        (Firewall::Drops, "a firewall drops what is sent there"),
    ] {
        for flush in ["0", "1"] {
            let world = six_after_four(flush);
            let run = run_behind(&world, firewall, true, |application| {
                application.session().have_restart().unwrap().unwrap();
                application.session().start_restart().unwrap();
                let name = application.session().restart_file(3, 1).unwrap();
                let read = application.session().route_file(&name).map(|path| {
                    let found = std::fs::read(path_of(&path)).unwrap();
                    assert!(found == contents(1, Rank(3), 1, sizes(Rank(3))[1]));
                });
                let read = read.map_err(|error| error.to_string());
                let ended = application.session().complete_restart(read.is_ok());
                (read, ended.map_err(|error| error.to_string()))
            });
            for (rank, (read, ended)) in run.ranks.iter().enumerate() {
                let is_there = world.nodes[rank] == "n3" || flush == "1";
                match read {
                    Ok(()) => assert!(is_there),
                    Err(error) => assert!(
                        !is_there && error.contains("has not come from another node") && error.contains(why),
                        "{error}"
                    ),
                }
                assert_eq!(ended.is_ok(), flush == "1");
                assert!(ended.is_ok() || format!("{ended:?}").contains("the next run offers it again"));
            }
            if flush == "1" {
                run.line_with(&["has not come from another node", why, "it is read in the prefix directory"]);
            }
            world.run(read_all).all_gave(&Some((1, 4)));
        }
    }
}

/// Before the port of an address.
const ADDRESS: &[u8] = b"127.0.0.1:";
