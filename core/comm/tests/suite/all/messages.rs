//! Point to point: order, lengths, giving up, taking.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use scr_comm::collective::barrier;
use scr_comm::{exchange_all, Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, WaitControl};

use super::{payload, ranks, Case, Random};

pub(super) const CASES: &[Case] = &[
    ("messages between any two ranks arrive, in order and whole", all_to_all),
    ("a message of another length is named and does no other harm", wrong_length),
    ("a message that nobody waits for can be taken", taken),
    ("taking leaves alone what a receive waits for", taken_beside_a_receive),
    ("a receive that was given up takes nothing", given_up),
    ("a long message of another length is named and does no other harm", long_wrong_length),
    ("a receive of a long message that was given up takes nothing", long_given_up),
    ("a panic or an error while it waits leaves what is sent whole", interrupted),
    ("ranks and tags that are not there are refused", not_there),
    ("what is sent is counted", counted),
];

const TAG: Tag = Tag(7);

fn all_to_all(comm: &dyn Comm) {
    const EACH: u64 = 3;
    let me = comm.rank();
    let seed = |from: Rank, to: Rank, nth: u64| u64::from(from.0) << 40 | u64::from(to.0) << 8 | nth;
    let len = |seed: u64| if comm.size() > 16 { (seed % 300) as usize } else { Random(seed).len() };
    let between = |from: Rank, to: Rank| {
        (0..EACH).map(move |nth| payload(seed(from, to, nth), len(seed(from, to, nth))))
    };
    let sent: Vec<(Rank, Vec<u8>)> =
        ranks(comm).flat_map(|to| between(me, to).map(move |bytes| (to, bytes))).collect();
    let expected: Vec<(Rank, Vec<u8>)> =
        ranks(comm).flat_map(|from| between(from, me).map(move |bytes| (from, bytes))).collect();
    let mut came: Vec<Vec<u8>> = expected.iter().map(|(_, bytes)| vec![0xee; bytes.len()]).collect();
    let sends: Vec<Outgoing<'_>> = sent.iter().map(|(to, bytes)| Outgoing { to: *to, bytes }).collect();
    let buffers = came.iter_mut().zip(&expected);
    let mut receives: Vec<Incoming<'_>> =
        buffers.map(|(bytes, (from, _))| Incoming { from: *from, bytes }).collect();
    exchange_all(comm, TAG, &sends, &mut receives).unwrap();
    for (came, (from, expected)) in came.iter().zip(&expected) {
        assert!(came == expected, "what rank {from} sent to rank {me} came changed");
    }
}

fn wrong_length(comm: &dyn Comm) {
    let me = comm.rank();
    let (next, previous) = neighbours(comm);
    for (sent, agreed) in [(3, 5), (5, 3), (0, 1), (1, 0), (100_000, 10)] {
        let (long, good) = (vec![1; sent], [2; 4]);
        let (mut first, mut second) = (vec![0; agreed], [0; 4]);
        let sends = [Outgoing { to: next, bytes: &long }, Outgoing { to: next, bytes: &good }];
        let mut receives =
            [Incoming { from: previous, bytes: &mut first }, Incoming { from: previous, bytes: &mut second }];
        let result = exchange_all(comm, TAG, &sends, &mut receives);
        let expected = CommError::WrongLength { from: previous, found: sent, expected: agreed, tag: TAG.0 };
        assert_eq!(result, Err(expected), "on rank {me}");
        assert_eq!(second, good);
    }
}

fn long_wrong_length(comm: &dyn Comm) {
    let me = comm.rank();
    let (next, previous) = neighbours(comm);
    for (sent, agreed) in [(100_000, 200_000), (200_000, 100_000), (100, 100_000)] {
        let (long, good) = (vec![1; sent], payload(5, 150_000));
        let (mut first, mut second) = (vec![0; agreed], vec![0; good.len()]);
        let sends = [Outgoing { to: next, bytes: &long }, Outgoing { to: next, bytes: &good }];
        let mut receives =
            [Incoming { from: previous, bytes: &mut first }, Incoming { from: previous, bytes: &mut second }];
        let result = exchange_all(comm, TAG, &sends, &mut receives);
        let expected = CommError::WrongLength { from: previous, found: sent, expected: agreed, tag: TAG.0 };
        assert_eq!(result, Err(expected), "on rank {me}");
        assert!(second == good, "on rank {me}: the bytes after it have changed");
    }
}

fn taken(comm: &dyn Comm) {
    let (next, previous) = neighbours(comm);
    let lens = [0, 1, 70_000];
    let sent = lens.map(|len| payload(len as u64, len));
    let sends: Vec<Outgoing<'_>> = sent.iter().map(|bytes| Outgoing { to: next, bytes }).collect();
    let mut came = Vec::new();
    // The long one is sent only when it is taken, so the taking is done while the sends are waited for.
    comm.exchange(TAG, &sends, &mut [], &mut |_| {
        while let Some(message) = comm.take(TAG)? {
            came.push(message);
        }
        Ok(WaitControl::Wait)
    })
    .unwrap();
    while came.len() < lens.len() {
        came.push(take_soon(comm, TAG));
    }
    assert_eq!(came, sent.map(|bytes| (previous, bytes)));
}

fn taken_beside_a_receive(comm: &dyn Comm) {
    let (next, previous) = neighbours(comm);
    let mut came = [0; 1];
    let mut stolen = Vec::new();
    let mut receives = [Incoming { from: previous, bytes: &mut came }];
    comm.exchange(TAG, &[Outgoing { to: next, bytes: &[9] }], &mut receives, &mut |_| {
        stolen.extend(comm.take(TAG)?);
        Ok(WaitControl::Wait)
    })
    .unwrap();
    assert_eq!((came, stolen), ([9], vec![]));
}

fn given_up(comm: &dyn Comm) {
    let (next, previous) = neighbours(comm);
    let word = Tag(8);
    let (mut never, mut came) = ([0xee; 4], [0xee; 2]);
    let mut last = Vec::new();
    let mut refused = false;
    let mut receives =
        [Incoming { from: previous, bytes: &mut came }, Incoming { from: next, bytes: &mut never }];
    let ended = comm.exchange(TAG, &[Outgoing { to: next, bytes: &[1, 2] }], &mut receives, &mut |come| {
        last = come.to_vec();
        if !refused && come[0] {
            refused = true;
            exchange_all(comm, word, &[Outgoing { to: previous, bytes: b"no" }], &mut [])?;
        }
        let said_no = refused && comm.take(word)?.is_some();
        Ok(if said_no { WaitControl::GiveUp } else { WaitControl::Wait })
    });
    assert_eq!(ended, Ok(ExchangeEnd::GivenUp));
    assert_eq!((last, came, never), (vec![true, false], [1, 2], [0xee; 4]));
    // A later message can be taken.
    barrier(comm).unwrap();
    exchange_all(comm, TAG, &[Outgoing { to: previous, bytes: b"late" }], &mut []).unwrap();
    assert_eq!(take_soon(comm, TAG), (next, b"late".to_vec()));
}

fn long_given_up(comm: &dyn Comm) {
    let (next, previous) = neighbours(comm);
    let (sent, late) = (payload(1, 90_000), payload(2, 60_000));
    let (mut never, mut came) = (vec![0xee; 60_000], vec![0; sent.len()]);
    let mut last = Vec::new();
    let mut receives =
        [Incoming { from: previous, bytes: &mut came }, Incoming { from: next, bytes: &mut never }];
    // With one rank or two, both come from the same one, and only the first is sent.
    let ended = comm.exchange(TAG, &[Outgoing { to: next, bytes: &sent }], &mut receives, &mut |come| {
        last = come.to_vec();
        Ok(if come[0] { WaitControl::GiveUp } else { WaitControl::Wait })
    });
    assert_eq!(ended, Ok(ExchangeEnd::GivenUp));
    assert_eq!(last, [true, false]);
    assert!(came == sent && never == vec![0xee; 60_000]);
    // A later message can be taken.
    barrier(comm).unwrap();
    let mut taken = None;
    comm.exchange(TAG, &[Outgoing { to: previous, bytes: &late }], &mut [], &mut |_| {
        taken = taken.take().or(comm.take(TAG)?);
        Ok(WaitControl::Wait)
    })
    .unwrap();
    assert!(taken.unwrap_or_else(|| take_soon(comm, TAG)) == (next, late));
}

fn interrupted(comm: &dyn Comm) {
    let (first, last) = (Rank(0), Rank(comm.size() - 1));
    if first == last {
        // A message to oneself arrives before anything can interrupt.
        return;
    }
    for (panics, waits_for) in [(true, 5), (false, 5), (true, 50_000), (false, 50_000)] {
        let sent = payload(3, 300_000);
        if comm.rank() == first {
            let mut never = vec![0xee; waits_for];
            let result = catch_unwind(AssertUnwindSafe(|| {
                let mut receives = [Incoming { from: last, bytes: &mut never }];
                comm.exchange(TAG, &[Outgoing { to: last, bytes: &sent }], &mut receives, &mut |_| {
                    // Without the hook that reports panics; this one is meant.
                    if panics {
                        resume_unwind(Box::new("stop"))
                    } else {
                        Err(CommError::NoSuchTag { tag: 0 })
                    }
                })
            }));
            match result {
                Err(panic) => assert!(panics && panic.is::<&str>()),
                Ok(result) => assert!(!panics && result == Err(CommError::NoSuchTag { tag: 0 })),
            }
            assert!(never == vec![0xee; waits_for]);
        }
        if comm.rank() == first {
            // Until then nothing is sent that could be what it waited for.
            exchange_all(comm, TAG, &[Outgoing { to: last, bytes: b"interrupted" }], &mut []).unwrap();
            assert_eq!(take_soon(comm, TAG), (last, b"reply".to_vec()));
        }
        if comm.rank() == last {
            assert!(take_soon(comm, TAG) == (first, sent));
            assert_eq!(take_soon(comm, TAG), (first, b"interrupted".to_vec()));
            exchange_all(comm, TAG, &[Outgoing { to: first, bytes: b"reply" }], &mut []).unwrap();
        }
    }
}

fn not_there(comm: &dyn Comm) {
    let (rank, size) = (Rank(comm.size()), comm.size());
    let refused = Err(CommError::NoSuchRank { rank, size });
    assert_eq!(exchange_all(comm, TAG, &[Outgoing { to: rank, bytes: &[1] }], &mut []), refused);
    let mut receive = [Incoming { from: rank, bytes: &mut [] }];
    assert_eq!(exchange_all(comm, TAG, &[], &mut receive), refused);
    let refused = CommError::NoSuchTag { tag: 32768 };
    assert_eq!(exchange_all(comm, Tag(32768), &[], &mut []), Err(refused.clone()));
    assert_eq!(comm.take(Tag(32768)), Err(refused));
}

fn counted(comm: &dyn Comm) {
    let (next, previous) = neighbours(comm);
    let before = comm.traffic();
    let (mut first, mut second) = ([0; 10], [0; 0]);
    let sends = [Outgoing { to: next, bytes: &[5; 10] }, Outgoing { to: next, bytes: &[] }];
    let mut receives =
        [Incoming { from: previous, bytes: &mut first }, Incoming { from: previous, bytes: &mut second }];
    exchange_all(comm, TAG, &sends, &mut receives).unwrap();
    let after = comm.traffic();
    assert_eq!((after.messages - before.messages, after.bytes - before.bytes), (2, 10));
}

/// Takes a message that is on its way and must come soon.
fn take_soon(comm: &dyn Comm, tag: Tag) -> (Rank, Vec<u8>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(message) = comm.take(tag).unwrap() {
            return message;
        }
        assert!(Instant::now() < deadline, "nothing came for rank {} with tag {}", comm.rank(), tag.0);
        std::thread::yield_now();
    }
}

fn neighbours(comm: &dyn Comm) -> (Rank, Rank) {
    let (me, size) = (comm.rank().0, comm.size());
    (Rank((me + 1) % size), Rank((me + size - 1) % size))
}
