//! The suite of all communicators over TCP, and what only that has: ranks that die, and strangers that connect.

use scr_base::env::Clock;
use scr_comm::collective::{agree, all_reduce, barrier, Op};
use scr_comm::tcp::{connect, connect_as, Limits, Secret, TcpComm};
use scr_comm::thread::{self, ThreadComm};
use scr_comm::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, Tag, WaitControl};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const LIMIT: Duration = Duration::from_secs(30);
const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Time as it is.
struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

fn limits() -> Limits {
    Limits::new(Arc::new(RealClock(Instant::now())), LIMIT)
}

/// Runs `body` on each rank, with a communicator over TCP beside that of the threads.
fn run<T: Send>(ranks: u32, ip: IpAddr, body: impl Fn(&ThreadComm, TcpComm) -> T + Sync) -> Vec<T> {
    let ran = thread::run(ranks, |threads| {
        let comm = connect(&threads, ip, &limits()).expect("the loopback connects");
        body(&threads, comm)
    });
    ran.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_suite_passes() {
    for ranks in [1, 2, 3, 5, 8, 20] {
        for case in crate::all::cases() {
            run(ranks, if ranks == 3 { V6 } else { V4 }, |threads, comm| {
                crate::all::run_case(&comm, &case);
                // No rank ends while others still receive its messages.
                barrier(threads).unwrap();
            });
        }
    }
}

/// Behind a firewall no rank reached another one.
#[test]
fn ranks_listen_at_the_ports_that_are_given_until_all_are_taken() {
    let free = TcpListener::bind((V4, 0)).and_then(|listener| listener.local_addr()).unwrap().port();
    let first = if free > 60_000 { free - 5000 } else { free };
    let ports = first..=first + 2;
    let inside = |ranks: u32| {
        let limits = || Limits { ports: Some(ports.clone()), ..limits() };
        let ran = thread::run(ranks, |threads| {
            let made = connect(&threads, V4, &limits()).map_err(|error| error.to_string());
            barrier(&threads).unwrap();
            made.map(drop)
        });
        ran.unwrap()
    };
    assert!(inside(3).iter().all(Result::is_ok));
    let text = format!("all ports of SCR_TCP_PORTS={first}-{} are taken on this node", first + 2);
    assert!(inside(4).iter().all(|made| made.as_ref().is_err_and(|error| error.contains(&text))));
}

fn pattern(from: u32, round: u32, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(from * 31 + round) as u8)
        .collect()
}

#[test]
fn long_messages_pass_each_other() {
    const BYTES: usize = 48 << 20;
    run(3, V4, |_, comm| {
        let me = comm.rank().0;
        let (to, from) = (Rank((me + 1) % 3), Rank((me + 2) % 3));
        for round in 0..2 {
            let mine = pattern(me, round, BYTES);
            let mut theirs = vec![0; BYTES];
            let mut receives = [Incoming { from, bytes: &mut theirs }];
            exchange_all(&comm, Tag(7), &[Outgoing { to, bytes: &mine }], &mut receives).unwrap();
            assert!(theirs == pattern(from.0, round, BYTES));
        }
    });
}

#[test]
fn thousands_of_short_messages_keep_their_order() {
    run(4, V4, |_, comm| {
        let others: Vec<Rank> = (0..4).map(Rank).filter(|rank| *rank != comm.rank()).collect();
        for round in 0..2000_u32 {
            let mine = round.to_be_bytes();
            let mut theirs = vec![[0; 4]; 3];
            let sends: Vec<_> = others.iter().map(|&to| Outgoing { to, bytes: &mine }).collect();
            let mut receives: Vec<_> =
                others.iter().zip(&mut theirs).map(|(&from, bytes)| Incoming { from, bytes }).collect();
            exchange_all(&comm, Tag(1), &sends, &mut receives).unwrap();
            assert!(theirs.iter().all(|theirs| *theirs == mine));
        }
    });
}

/// How a rank that waits for another one ends.
fn wait_for(comm: &TcpComm, from: Rank, bytes: usize) -> CommError {
    let mut buffer = vec![0; bytes];
    exchange_all(comm, Tag(3), &[], &mut [Incoming { from, bytes: &mut buffer }]).unwrap_err()
}

fn expect_lost(error: &CommError, rank: u32) {
    assert!(matches!(error, CommError::Lost { rank: lost, .. } if lost.0 == rank), "{error:?}");
    assert!(error.to_string().contains(&format!("the connection to rank {rank} is lost")), "{error}");
}

#[test]
fn who_waits_for_a_rank_that_has_ended_learns_it_at_once_and_keeps_what_it_had_sent() {
    let began = Instant::now();
    run(4, V4, |threads, comm| match comm.rank().0 {
        2 => {
            exchange_all(&comm, Tag(3), &[Outgoing { to: Rank(0), bytes: b"last" }], &mut []).unwrap();
            drop(comm);
            barrier(threads).unwrap();
        }
        0 => {
            barrier(threads).unwrap();
            let mut last = [0; 4];
            exchange_all(&comm, Tag(3), &[], &mut [Incoming { from: Rank(2), bytes: &mut last }]).unwrap();
            assert_eq!(&last, b"last");
            expect_lost(&wait_for(&comm, Rank(2), 4), 2);
        }
        _ => {
            // No rank has connected to rank 2, which ends while the others wait, or before.
            expect_lost(&wait_for(&comm, Rank(2), 4), 2);
            barrier(threads).unwrap();
            let sent = exchange_all(&comm, Tag(3), &[Outgoing { to: Rank(2), bytes: b"?" }], &mut []);
            expect_lost(&sent.unwrap_err(), 2);
        }
    });
    assert!(began.elapsed() < LIMIT, "nobody waits for a time limit");
}

#[test]
fn a_wait_can_be_given_up() {
    run(2, V4, |threads, comm| {
        let mut buffer = [0];
        let other = Rank(1 - comm.rank().0);
        let mut looks = 0;
        let receives = &mut [Incoming { from: other, bytes: &mut buffer }];
        comm.exchange(Tag(3), &[], receives, &mut |_| {
            looks += 1;
            Ok(if looks > 3 { WaitControl::GiveUp } else { WaitControl::Wait })
        })
        .unwrap();
        assert!(looks > 3);
        assert_eq!(all_reduce(&comm, [1], Op::Sum).unwrap(), [2], "it is as good as before");
        barrier(threads).unwrap();
    });
}

/// Two ranks with what a stranger would like to know: where the first one listens, and what the second one has said to it.
fn two(secrets: [Secret; 2], disturb: impl Fn(SocketAddr) + Sync) -> Vec<Result<Vec<u8>, CommError>> {
    let listeners = [0, 1].map(|_| TcpListener::bind((V4, 0)).unwrap());
    let addresses: Vec<SocketAddr> =
        listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    disturb(addresses[0]);
    std::thread::scope(|scope| {
        let ranks = listeners.into_iter().zip(secrets).zip(0..).map(|((listener, secret), rank)| {
            let addresses = addresses.clone();
            scope.spawn(move || {
                let comm = TcpComm::new(Rank(rank), listener, addresses, secret, limits())?;
                let (other, mut theirs) = (Rank(1 - rank), vec![0; 5]);
                let sends = [Outgoing { to: other, bytes: b"hello" }];
                exchange_all(&comm, Tag(3), &sends, &mut [Incoming { from: other, bytes: &mut theirs }])?;
                barrier(&comm)?;
                Ok(theirs)
            })
        });
        ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn expect_undisturbed(disturb: impl Fn(SocketAddr) + Sync) {
    let secret = Secret::new().unwrap();
    for theirs in two([secret.clone(), secret], disturb) {
        assert_eq!(theirs.unwrap(), b"hello");
    }
}

#[test]
fn strangers_disturb_nobody() {
    // They stay connected, and say nothing.
    let silent = std::sync::Mutex::new(Vec::new());
    expect_undisturbed(|address| {
        silent.lock().unwrap().extend((0..100).map(|_| TcpStream::connect(address).unwrap()));
    });
    // They say what is no handshake, a part of one, or one for another rank.
    let hello = |from: u32, to: u32| {
        [b"scrcomm\x01".as_slice(), &from.to_be_bytes(), &to.to_be_bytes(), &[7; 16]].concat()
    };
    for words in [
        vec![0; 4000],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        hello(1, 0)[..20].to_vec(),
        hello(1, 5),
        hello(9, 0),
    ] {
        let kept = std::sync::Mutex::new(Vec::new());
        expect_undisturbed(|address| {
            let mut stranger = TcpStream::connect(address).unwrap();
            stranger.write_all(&words).unwrap();
            kept.lock().unwrap().push(stranger);
        });
    }
    // They come as rank 1, with a proof that is none, and a frame of 2^63 bytes behind it.
    let kept = std::sync::Mutex::new(Vec::new());
    expect_undisturbed(|address| {
        let mut stranger = TcpStream::connect(address).unwrap();
        let frame = [[0, 3].as_slice(), &(1_u64 << 63).to_be_bytes()].concat();
        stranger.write_all(&[hello(1, 0), vec![9; 32], frame].concat()).unwrap();
        kept.lock().unwrap().push(stranger);
    });
}

#[test]
fn ranks_with_different_secrets_do_not_talk() {
    for theirs in two([Secret::new().unwrap(), Secret::new().unwrap()], |_| ()) {
        assert!(matches!(theirs, Err(CommError::Lost { .. })), "{theirs:?}");
    }
}

/// Records all that rank 1 sends to rank 0, and says it again later.
#[test]
fn what_was_recorded_is_worth_nothing() {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let between = listener.local_addr().unwrap();
    let own = [0, 1].map(|_| TcpListener::bind((V4, 0)).unwrap());
    let addresses: Vec<SocketAddr> = own.iter().map(|own| own.local_addr().unwrap()).collect();
    let secret = Secret::new().unwrap();
    let [zero, one] = own;
    let recorded = std::thread::scope(|scope| {
        let real = addresses[0];
        let passes_on = scope.spawn(move || {
            let (mut to_one, _) = listener.accept().unwrap();
            let mut to_zero = TcpStream::connect(real).unwrap();
            let (mut back_from, mut back_to) = (to_zero.try_clone().unwrap(), to_one.try_clone().unwrap());
            let back = std::thread::spawn(move || _ = std::io::copy(&mut back_from, &mut back_to));
            let mut recorded = Vec::new();
            let mut bytes = [0; 1000];
            while let Ok(count @ 1..) = to_one.read(&mut bytes) {
                recorded.extend_from_slice(&bytes[..count]);
                if to_zero.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to_zero.shutdown(std::net::Shutdown::Both);
            back.join().unwrap();
            recorded
        });
        let (secret_one, seen_by_one) = (secret.clone(), vec![between, addresses[1]]);
        let sends = scope.spawn(move || {
            let comm = TcpComm::new(Rank(1), one, seen_by_one, secret_one, limits()).unwrap();
            exchange_all(&comm, Tag(3), &[Outgoing { to: Rank(0), bytes: b"once" }], &mut []).unwrap();
            // Until the other one has it: it connects, and says so.
            let mut done = [0];
            exchange_all(&comm, Tag(3), &[], &mut [Incoming { from: Rank(0), bytes: &mut done }]).unwrap();
        });
        let comm = TcpComm::new(Rank(0), zero, addresses.clone(), secret.clone(), limits()).unwrap();
        let mut once = [0; 4];
        exchange_all(&comm, Tag(3), &[], &mut [Incoming { from: Rank(1), bytes: &mut once }]).unwrap();
        assert_eq!(&once, b"once");
        exchange_all(&comm, Tag(3), &[Outgoing { to: Rank(1), bytes: &[1] }], &mut []).unwrap();
        sends.join().unwrap();
        drop(comm);
        passes_on.join().unwrap()
    });
    assert!(recorded.ends_with(b"once") && recorded.len() > 60);
    expect_undisturbed_by(&secret, &recorded);
}

fn expect_undisturbed_by(secret: &Secret, recorded: &[u8]) {
    let kept = std::sync::Mutex::new(Vec::new());
    let heard = two([secret.clone(), secret.clone()], |address| {
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(recorded).unwrap();
        kept.lock().unwrap().push(stranger);
    });
    heard.into_iter().for_each(|theirs| assert_eq!(theirs.unwrap(), b"hello"));
}

/// Rank 0 alone cannot reach rank 3, as without descriptors. It went on to tell the others, which were still in the call that it
/// had left, and all waited for each other.
#[test]
fn ranks_end_together_if_one_of_them_has_lost_another() {
    let listeners: Vec<_> = (0..4).map(|_| TcpListener::bind((V4, 0)).unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let nobody = TcpListener::bind((V4, 0)).unwrap().local_addr().unwrap();
    let secret = Secret::new().unwrap();
    let ranks = listeners.into_iter().zip(0..).map(|(listener, rank)| {
        let (mut addresses, secret) = (addresses.clone(), secret.clone());
        std::thread::spawn(move || {
            if rank == 0 {
                addresses[3] = nobody;
            }
            let comm = TcpComm::new(Rank(rank), listener, addresses, secret, limits()).unwrap();
            let comm = comm.ending_together();
            let before = Rank((rank + 3) % 4);
            // Nobody sends anything. What it has lost then is told to all, as far as the ranks can talk.
            let lost = wait_for(&comm, before, 1);
            agree(&comm, Err::<(), _>(lost)).unwrap_err().to_string()
        })
    });
    let ranks: Vec<_> = ranks.collect();
    let began = Instant::now();
    while !ranks.iter().all(std::thread::JoinHandle::is_finished) {
        assert!(began.elapsed() < LIMIT, "they wait for each other");
        std::thread::yield_now();
    }
    for error in ranks.into_iter().map(|rank| rank.join().unwrap()) {
        assert!(error.starts_with("the connection to rank "), "{error}");
    }
}

/// A rank that could not connect to another one told nobody, and the other one waited for it for ever.
#[test]
fn a_rank_that_cannot_be_reached_learns_it() {
    for is_connected in [true, false] {
        let (own, addresses) = listen();
        let nobody = TcpListener::bind((V4, 0)).unwrap().local_addr().unwrap();
        let [zero, one] = pair(own, &[addresses[0], nobody], &addresses);
        let lose = || {
            let sent = exchange_all(&zero, Tag(3), &[Outgoing { to: Rank(1), bytes: b"?" }], &mut []);
            expect_lost(&sent.unwrap_err(), 1);
        };
        if !is_connected {
            lose();
        }
        let told = std::thread::spawn(move || {
            let (sends, mut theirs) = ([Outgoing { to: Rank(0), bytes: b"!" }], [0]);
            let receives = &mut [Incoming { from: Rank(0), bytes: &mut theirs }];
            expect_lost(&exchange_all(&one, Tag(3), &sends, receives).unwrap_err(), 0);
        });
        let began = Instant::now();
        if is_connected {
            while zero.take(Tag(3)).unwrap().is_none() {
                assert!(!told.is_finished() && began.elapsed() < LIMIT);
            }
            lose();
        }
        while !told.is_finished() {
            zero.take(Tag(9)).unwrap();
            assert!(began.elapsed() < LIMIT, "rank 1 waits for ever");
        }
        told.join().unwrap();
    }
}

/// Nothing answers there, as behind a firewall: the ranks learn it together.
#[test]
fn an_address_that_nobody_answers_at_is_an_error_within_the_limit() {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    // 203.0.113.0/24 is reserved for documentation. Without any route, the connection fails at once.
    let addresses = vec![listener.local_addr().unwrap(), "203.0.113.1:9".parse().unwrap()];
    let limit = Duration::from_millis(300);
    let limits = Limits::new(Arc::new(RealClock(Instant::now())), limit);
    let comm = TcpComm::new(Rank(0), listener, addresses, Secret::new().unwrap(), limits).unwrap();
    let began = Instant::now();
    expect_lost(&wait_for(&comm, Rank(1), 1), 1);
    assert!(began.elapsed() < LIMIT);
}

/// Two ranks at once, of which the first reaches the second at `seen_by_zero`, and the second the first at `seen_by_one`.
fn pair(own: [TcpListener; 2], seen_by_zero: &[SocketAddr], seen_by_one: &[SocketAddr]) -> [TcpComm; 2] {
    let secret = Secret::new().unwrap();
    let [zero, one] = own;
    [
        TcpComm::new(Rank(0), zero, seen_by_zero.to_vec(), secret.clone(), limits()).unwrap(),
        TcpComm::new(Rank(1), one, seen_by_one.to_vec(), secret, limits()).unwrap(),
    ]
}

fn listen() -> ([TcpListener; 2], Vec<SocketAddr>) {
    let own = [0, 1].map(|_| TcpListener::bind((V4, 0)).unwrap());
    let addresses = own.iter().map(|own| own.local_addr().unwrap()).collect();
    (own, addresses)
}

/// A library must not end the application by a signal that it did not ask for.
#[test]
fn sending_to_a_rank_that_has_ended_raises_no_signal() {
    run(2, V4, |threads, comm| {
        if comm.rank() == Rank(1) {
            drop(comm);
            barrier(threads).unwrap();
            return;
        }
        // A signal that is blocked stays pending, even if it is ignored.
        let mut pipe = nix::sys::signal::SigSet::empty();
        pipe.add(nix::sys::signal::SIGPIPE);
        pipe.thread_block().unwrap();
        barrier(threads).unwrap();
        let bytes = vec![0; 1 << 20];
        // `connect` has left a connection, which takes a message or fails, until it is known to have ended.
        while exchange_all(&comm, Tag(3), &[Outgoing { to: Rank(1), bytes: &bytes }], &mut []).is_ok() {}
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap().trim();
        let pending = u64::from_str_radix(pending, 16).unwrap();
        assert_eq!(pending & 1 << (nix::libc::SIGPIPE - 1), 0, "{status}");
    });
}

/// Rank 1 has sent its last message and ended. That its other connection has ended is seen before the message has come.
#[test]
fn what_a_rank_has_sent_before_its_end_comes_though_its_end_is_seen_first() {
    let (own, addresses) = listen();
    let between = TcpListener::bind((V4, 0)).unwrap();
    let seen_by_one = [between.local_addr().unwrap(), addresses[1]];
    let [zero, one] = pair(own, &addresses, &seen_by_one);
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (ended, has_ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn({
            let (between, real) = (&between, addresses[0]);
            move || hold_back(between, real, |sent| sent.ends_with(b"last"), &released)
        });
        scope.spawn(move || {
            // It hears rank 0 first, so that there is a connection in each direction.
            exchange_all(&one, Tag(3), &[], &mut [Incoming { from: Rank(0), bytes: &mut [0; 5] }]).unwrap();
            exchange_all(&one, Tag(3), &[Outgoing { to: Rank(0), bytes: b"last" }], &mut []).unwrap();
            drop(one);
            ended.send(()).unwrap();
        });
        exchange_all(&zero, Tag(3), &[Outgoing { to: Rank(1), bytes: b"begin" }], &mut []).unwrap();
        let mut looks = 0;
        let mut last = [0; 4];
        let receives = &mut [Incoming { from: Rank(1), bytes: &mut last }];
        let heard = zero.exchange(Tag(3), &[], receives, &mut |_| {
            looks += u32::from(looks > 0 || has_ended.try_recv().is_ok());
            if looks == 4 {
                release.send(()).unwrap();
            }
            Ok(WaitControl::Wait)
        });
        drop(release);
        heard.unwrap();
        assert_eq!(&last, b"last");
    });
}

/// Passes on what a rank sends, but what is the one to hold back only when it may, or not at all.
fn hold_back(
    between: &TcpListener,
    real: SocketAddr,
    mut is_it: impl FnMut(&[u8]) -> bool,
    released: &std::sync::mpsc::Receiver<()>,
) {
    let (mut one, _) = between.accept().unwrap();
    let mut zero = TcpStream::connect(real).unwrap();
    let (mut back_from, mut back_to) = (zero.try_clone().unwrap(), one.try_clone().unwrap());
    std::thread::spawn(move || _ = std::io::copy(&mut back_from, &mut back_to));
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = one.read(&mut bytes) {
        if is_it(&bytes[..count]) && released.recv().is_err() {
            break;
        }
        if zero.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (zero.shutdown(std::net::Shutdown::Both), one.shutdown(std::net::Shutdown::Both));
}

/// Strangers that say a hello take all places of those that have not shown who they are.
#[test]
fn strangers_that_take_all_places_put_off_no_rank() {
    let (own, addresses) = listen();
    let [zero, one] = pair(own, &addresses, &addresses);
    let mut strangers = Vec::new();
    let hello = [b"scrcomm\x01".as_slice(), &1_u32.to_be_bytes(), &0_u32.to_be_bytes(), &[7; 16]].concat();
    for _ in 0..400 {
        let mut stranger = TcpStream::connect(addresses[0]).unwrap();
        stranger.write_all(&hello).unwrap();
        strangers.push(stranger);
        assert_eq!(zero.take(Tag(9)).unwrap(), None);
    }
    talk(&zero, one);
}

/// Rank 1 says something to rank 0, as if nothing had happened.
fn talk(zero: &TcpComm, one: TcpComm) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let sent = exchange_all(&one, Tag(3), &[Outgoing { to: Rank(0), bytes: b"hello" }], &mut []);
            sent.unwrap();
        });
        let mut theirs = [0; 5];
        exchange_all(zero, Tag(3), &[], &mut [Incoming { from: Rank(1), bytes: &mut theirs }]).unwrap();
        assert_eq!(&theirs, b"hello");
    });
}

/// Rank 0 waits for rank 1 as long as it is to.
fn wait_while(zero: &TcpComm, mut is_to_wait: impl FnMut() -> bool) -> Result<(), CommError> {
    let receives = &mut [Incoming { from: Rank(1), bytes: &mut [0] }];
    let ended = zero.exchange(Tag(9), &[], receives, &mut |_| {
        Ok(if is_to_wait() { WaitControl::Wait } else { WaitControl::GiveUp })
    });
    ended.map(drop)
}

fn pair_with(limits: &Limits) -> ([TcpComm; 2], Vec<SocketAddr>) {
    let ([zero, one], addresses) = listen();
    let secret = Secret::new().unwrap();
    let zero = TcpComm::new(Rank(0), zero, addresses.clone(), secret.clone(), limits.clone()).unwrap();
    let one = TcpComm::new(Rank(1), one, addresses.clone(), secret, limits.clone()).unwrap();
    ([zero, one], addresses)
}

#[test]
fn strangers_that_say_too_little_for_too_long_are_shown_out() {
    let limits = Limits::new(Arc::new(RealClock(Instant::now())), Duration::from_millis(100));
    let ([zero, one], addresses) = pair_with(&limits);
    let silent = TcpStream::connect(addresses[0]).unwrap();
    let slow = TcpStream::connect(addresses[0]).unwrap();
    (&slow).write_all(b"scrcomm").unwrap();
    for stranger in [silent, slow] {
        let left = std::thread::spawn(move || {
            stranger.set_read_timeout(Some(LIMIT)).unwrap();
            (&stranger).read(&mut [0])
        });
        wait_while(&zero, || !left.is_finished()).unwrap();
        // Those that had said something see a reset.
        let left = left.join().unwrap();
        let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(left.as_ref().map_or_else(is_reset, |&count| count == 0), "{left:?}");
    }
    talk(&zero, one);
}

/// A rank that writes files for a while, or is stopped, does not read meanwhile. `TCP_USER_TIMEOUT` would end its connections.
#[test]
fn a_rank_that_is_busy_for_long_is_not_taken_for_dead() {
    let dead = Duration::from_secs(1);
    let limits = Limits { dead, ..limits() };
    let ([zero, one], _) = pair_with(&limits);
    let bytes = pattern(0, 0, 64 << 20);
    let (awake, wakes) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let bytes = &bytes;
        scope.spawn(move || {
            let mut one_byte = [0];
            let receives = &mut [Incoming { from: Rank(0), bytes: &mut one_byte }];
            exchange_all(&one, Tag(4), &[], receives).unwrap();
            wakes.recv().unwrap();
            let mut theirs = vec![0; bytes.len()];
            exchange_all(&one, Tag(3), &[], &mut [Incoming { from: Rank(0), bytes: &mut theirs }]).unwrap();
            assert!(theirs == *bytes);
        });
        exchange_all(&zero, Tag(4), &[Outgoing { to: Rank(1), bytes: &[1] }], &mut []).unwrap();
        let began = Instant::now();
        let mut awake = Some(awake);
        let sent = zero.exchange(Tag(3), &[Outgoing { to: Rank(1), bytes }], &mut [], &mut |_| {
            if began.elapsed() > 5 * dead {
                awake.take().into_iter().for_each(|awake| awake.send(()).unwrap());
            }
            Ok(WaitControl::Wait)
        });
        drop(awake);
        sent.unwrap();
    });
}

#[test]
fn a_connection_that_ends_in_the_middle_of_a_message_is_lost() {
    let (own, addresses) = listen();
    let between = TcpListener::bind((V4, 0)).unwrap();
    let seen_by_one = [between.local_addr().unwrap(), addresses[1]];
    // Rank 0 hears rank 1 through a thread that forwards half of the message.
    let [zero, one] = pair(own, &addresses, &seen_by_one);
    let (release, released) = std::sync::mpsc::channel::<()>();
    drop(release);
    std::thread::scope(|scope| {
        scope.spawn({
            let (between, real, mut count) = (&between, addresses[0], 0);
            let is_half = move |sent: &[u8]| {
                count += sent.len();
                count > 1 << 19
            };
            move || hold_back(between, real, is_half, &released)
        });
        let sends = scope.spawn(move || {
            let first = [Outgoing { to: Rank(0), bytes: &[7; 2000] }];
            exchange_all(&one, Tag(3), &first, &mut []).unwrap();
            let sends =
                [Outgoing { to: Rank(0), bytes: &vec![7; 1 << 20] }, Outgoing { to: Rank(0), bytes: &[8] }];
            // The system may have taken both before the connection ends.
            let _ = exchange_all(&one, Tag(3), &sends, &mut []);
        });
        let mut first = [0; 2000];
        exchange_all(&zero, Tag(3), &[], &mut [Incoming { from: Rank(1), bytes: &mut first }]).unwrap();
        assert_eq!(first, [7; 2000]);
        let mut rest = vec![0; (1 << 20) + 1];
        let (long, short) = rest.split_at_mut(1 << 20);
        let mut receives =
            [Incoming { from: Rank(1), bytes: long }, Incoming { from: Rank(1), bytes: short }];
        expect_lost(&exchange_all(&zero, Tag(3), &[], &mut receives).unwrap_err(), 1);
        sends.join().unwrap();
    });
}

/// Without descriptors no connection can be accepted. That is no reason to ask the system again and again.
#[test]
fn a_process_without_descriptors_sleeps_while_strangers_knock() {
    let own = std::env::current_exe().unwrap();
    let limited = "ulimit -n 24; exec \"$0\" --ignored without_descriptors --test-threads 1";
    let ran = std::process::Command::new("sh").args(["-c", limited]).arg(own).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && text.contains("2 passed"), "{text}");
}

/// Strangers knock until the process has no descriptor left. What it has open to the other rank stays.
fn use_up_descriptors(zero: &TcpComm, address: SocketAddr) -> Vec<TcpStream> {
    let mut looks = 0;
    wait_while(zero, || {
        looks += 1;
        looks < 2
    })
    .unwrap();
    std::iter::from_fn(|| TcpStream::connect(address).ok()).collect()
}

#[test]
#[ignore = "runs in a process of its own, with few descriptors"]
fn without_descriptors() {
    let ([zero, _one], addresses) = pair_with(&limits());
    let _strangers = use_up_descriptors(&zero, addresses[0]);
    let (mut looks, began) = (0, Instant::now());
    wait_while(&zero, || {
        looks += 1;
        began.elapsed() < Duration::from_secs(1)
    })
    .unwrap();
    assert!(looks < 100, "{looks}");
}

/// The others wait for it, and it waited for descriptors for ever.
#[test]
#[ignore = "runs in a process of its own, with few descriptors"]
fn without_descriptors_for_too_long() {
    let limits = Limits::new(Arc::new(RealClock(Instant::now())), Duration::from_millis(300));
    let ([zero, _one], addresses) = pair_with(&limits);
    let _strangers = use_up_descriptors(&zero, addresses[0]);
    let began = Instant::now();
    let error = wait_for(&zero, Rank(1), 1);
    assert!(error.to_string().starts_with("taking a connection of another rank: "), "{error}");
    assert!(began.elapsed() < LIMIT);
}

/// `cargo test --release -p scr-comm --test suite -- --ignored --nocapture round_trips`
#[test]
#[ignore = "measures"]
fn round_trips() {
    fn trips(comm: &dyn Comm, bytes: usize, times: u32) {
        let (mine, mut theirs) = (vec![1; bytes], vec![0; bytes]);
        let other = Rank(1 - comm.rank().0);
        let send = || exchange_all(comm, Tag(3), &[Outgoing { to: other, bytes: &mine }], &mut []).unwrap();
        let mut receive = || {
            let receives = &mut [Incoming { from: other, bytes: &mut theirs }];
            exchange_all(comm, Tag(3), &[], receives).unwrap();
        };
        let began = Instant::now();
        for _ in 0..times {
            if comm.rank() == Rank(0) {
                send();
                receive();
            } else {
                receive();
                send();
            }
        }
        if comm.rank() == Rank(0) {
            println!("{bytes} bytes: {:?} per round trip", began.elapsed() / times);
        }
    }
    run(2, V4, |threads, comm| {
        for (bytes, times) in [(4096, 5000), (64 << 20, 20)] {
            println!("over TCP:");
            trips(&comm, bytes, times);
            println!("threads:");
            trips(threads, bytes, times);
        }
    });
}

/// Nodes in network namespaces of their own, between which a firewall drops what travels.
mod firewall {
    use super::*;
    use nix::sched::{unshare, CloneFlags};
    use std::process::Command;
    use std::sync::mpsc::{channel, Receiver};

    fn ip(words: &str) -> bool {
        Command::new("ip").args(words.split(' ')).output().is_ok_and(|ran| ran.status.success())
    }

    /// Puts this thread into a network of its own.
    fn alone() -> bool {
        unshare(CloneFlags::CLONE_NEWNET).is_ok() && ip("link set lo up")
    }

    fn address(rank: u32, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, rank as u8 + 1)), port)
    }

    /// From then on no packet of a node reaches the other one, and neither node notices: the packets go to a third one.
    fn drop_all(network_of_one: &str) {
        let astray = |rank: u32, to: u32| {
            format!("neigh replace 10.77.0.{} lladdr 02:00:00:00:00:09 dev veth{rank} nud permanent", to + 1)
        };
        assert!(ip(&astray(0, 1)));
        let there = format!("--net={network_of_one} ip {}", astray(1, 0));
        let ran = Command::new("nsenter").args(there.split(' ')).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }

    /// How an exchange of rank 0 ends that cannot succeed.
    fn ends(comm: &TcpComm, sends: &[Outgoing<'_>], receives: &mut [Incoming<'_>]) -> CommError {
        let began = Instant::now();
        let ended = comm.exchange(Tag(3), sends, receives, &mut |_| {
            assert!(began.elapsed() < LIMIT, "it never ends");
            Ok(WaitControl::Wait)
        });
        ended.unwrap_err()
    }

    fn node(rank: u32, secret: Secret, limits: Limits) -> TcpComm {
        let listener = TcpListener::bind(address(rank, 7077)).unwrap();
        let addresses = vec![address(0, 7077), address(1, 7077)];
        TcpComm::new(Rank(rank), listener, addresses, secret, limits).unwrap()
    }

    /// Runs rank 0 here and rank 1 on another thread; nothing runs where a process may not make networks.
    fn on_two_nodes(zero: impl FnOnce(TcpComm, &str) + Send, one: impl FnOnce(TcpComm, Receiver<()>) + Send) {
        let limits = Limits::new(Arc::new(RealClock(Instant::now())), Duration::from_secs(3));
        // A connection may need a second packet.
        let limits = Limits { dead: Duration::from_secs(2), ..limits };
        let secret = Secret::new().unwrap();
        let (there, is_there) = channel::<Option<i32>>();
        let (linked, is_linked) = channel::<()>();
        let (go, goes) = channel::<()>();
        let (ready, is_ready) = channel::<()>();
        std::thread::scope(|scope| {
            let (its_secret, its_limits) = (secret.clone(), limits.clone());
            scope.spawn(move || {
                there.send(alone().then(|| nix::unistd::gettid().as_raw())).unwrap();
                if is_linked.recv().is_err() {
                    return;
                }
                assert!(ip("addr add 10.77.0.2/24 dev veth1") && ip("link set veth1 up"));
                let comm = node(1, its_secret, its_limits);
                ready.send(()).unwrap();
                one(comm, goes);
            });
            scope.spawn(move || {
                let other = is_there.recv().unwrap();
                let can = other.filter(|_| alone() && ip("link add veth0 type veth peer name veth1"));
                let Some(other) = can else {
                    eprintln!("skipped: no network namespaces");
                    return;
                };
                let place = format!("/proc/{}/task/{other}/ns/net", std::process::id());
                assert!(ip(&format!("link set veth1 netns {place}")));
                assert!(ip("addr add 10.77.0.1/24 dev veth0") && ip("link set veth0 up"));
                let comm = node(0, secret, limits);
                linked.send(()).unwrap();
                is_ready.recv().unwrap();
                zero(comm, &place);
                drop(go);
            });
        });
    }

    #[test]
    fn a_connection_that_a_firewall_drops_ends_within_the_limit() {
        on_two_nodes(
            |zero, network_of_one| {
                drop_all(network_of_one);
                let receives = &mut [Incoming { from: Rank(1), bytes: &mut [0] }];
                expect_lost(&ends(&zero, &[], receives), 1);
            },
            |_one, goes| _ = goes.recv(),
        );
    }

    #[test]
    fn a_node_that_is_gone_is_noticed_by_those_that_wait_and_by_those_that_send() {
        for sends in [false, true] {
            on_two_nodes(
                |zero, network_of_one| {
                    exchange_all(&zero, Tag(4), &[Outgoing { to: Rank(1), bytes: &[1] }], &mut []).unwrap();
                    let byte = &mut [0];
                    let receives = &mut [Incoming { from: Rank(1), bytes: byte }];
                    if !sends {
                        exchange_all(&zero, Tag(4), &[], receives).unwrap();
                    }
                    drop_all(network_of_one);
                    let bytes = vec![0; 64 << 20];
                    let lost = match sends {
                        true => ends(&zero, &[Outgoing { to: Rank(1), bytes: &bytes }], &mut []),
                        false => ends(&zero, &[], receives),
                    };
                    expect_lost(&lost, 1);
                },
                |one, goes| {
                    let receives = &mut [Incoming { from: Rank(0), bytes: &mut [0] }];
                    exchange_all(&one, Tag(4), &[], receives).unwrap();
                    if !sends {
                        exchange_all(&one, Tag(4), &[Outgoing { to: Rank(0), bytes: &[1] }], &mut [])
                            .unwrap();
                    }
                    let _ = goes.recv();
                },
            );
        }
    }
}

/// As when the threads of two processes stand for five ranks.
#[test]
fn a_process_may_have_several_ranks_or_none() {
    let owners: [&[u32]; 3] = [&[3, 0], &[], &[1, 4, 2]];
    let sums = thread::run(3, |processes| {
        let own: Vec<Rank> = owners[processes.rank().index()].iter().copied().map(Rank).collect();
        let ends = connect_as(&processes, V4, &limits(), &own, 5).expect("the loopback connects");
        let threads: Vec<_> = ends
            .into_iter()
            .map(|comm| {
                std::thread::spawn(move || {
                    let sum = all_reduce(&comm, [u64::from(comm.rank().0)], Op::Sum);
                    sum.map(|[sum]| (comm.rank(), comm.size(), sum))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect::<Vec<_>>()
    });
    let sums = sums.unwrap();
    for (own, found) in owners.iter().zip(&sums) {
        let expected: Vec<_> = own.iter().map(|&rank| (Rank(rank), 5, 10)).collect();
        assert_eq!(*found, expected);
    }
}

#[test]
fn a_rank_that_no_process_has_is_an_error_of_all() {
    let outcomes = thread::run(2, |processes| {
        let own: &[Rank] = if processes.rank() == Rank(0) { &[Rank(0), Rank(2)] } else { &[] };
        connect_as(&processes, V4, &limits(), own, 3).map(drop).unwrap_err().to_string()
    });
    let expected = "there is no rank 1 among 3";
    assert_eq!(outcomes.unwrap(), [expected, expected]);
}
