//! The suite of all communicators over TCP, and what only that has: ranks that die, and strangers that connect.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test")]

mod comm_suite;

use scr_core::comm::collective::{all_reduce, barrier, Op};
use scr_core::comm::tcp::{connect, Secret, TcpComm};
use scr_core::comm::thread::{self, ThreadComm};
use scr_core::comm::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, Tag, WaitControl};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Runs `body` on each rank, with a communicator over TCP beside that of the threads.
fn run<T: Send>(ranks: u32, ip: IpAddr, body: impl Fn(&ThreadComm, TcpComm) -> T + Sync) -> Vec<T> {
    let ran = thread::run(ranks, |threads| {
        let comm = connect(&threads, ip, LIMIT).expect("the loopback connects");
        body(&threads, comm)
    });
    ran.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_suite_passes() {
    for ranks in [1, 2, 3, 5, 8, 20] {
        for case in comm_suite::cases() {
            run(ranks, if ranks == 3 { V6 } else { V4 }, |threads, comm| {
                comm_suite::run_case(&comm, &case);
                // Nobody ends while others still receive what it has sent.
                barrier(threads).unwrap();
            });
        }
    }
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
            // Nobody has connected to it, and it ends while these wait, or before.
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
        let mut one = [1];
        all_reduce(&comm, &mut one, Op::Sum).unwrap();
        assert_eq!(one, [2], "it is as good as before");
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
                let comm = TcpComm::new(Rank(rank), listener, addresses, secret, LIMIT)?;
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
            let comm = TcpComm::new(Rank(1), one, seen_by_one, secret_one, LIMIT).unwrap();
            exchange_all(&comm, Tag(3), &[Outgoing { to: Rank(0), bytes: b"once" }], &mut []).unwrap();
            // Until the other one has it: it connects, and says so.
            let mut done = [0];
            exchange_all(&comm, Tag(3), &[], &mut [Incoming { from: Rank(0), bytes: &mut done }]).unwrap();
        });
        let comm = TcpComm::new(Rank(0), zero, addresses.clone(), secret.clone(), LIMIT).unwrap();
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

/// Nothing answers there, as behind a firewall: the ranks learn it together.
#[test]
fn an_address_that_nobody_answers_at_is_an_error_within_the_limit() {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    // 203.0.113.0/24 is for documents only. Where there is no route at all, that is an error at once.
    let addresses = vec![listener.local_addr().unwrap(), "203.0.113.1:9".parse().unwrap()];
    let limit = Duration::from_millis(300);
    let comm = TcpComm::new(Rank(0), listener, addresses, Secret::new().unwrap(), limit).unwrap();
    let began = Instant::now();
    expect_lost(&wait_for(&comm, Rank(1), 1), 1);
    assert!(began.elapsed() < LIMIT);
}
