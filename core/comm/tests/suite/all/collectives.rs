//! Operations of all ranks together, checked against what each rank can work out by itself.

use scr_comm::collective::{
    agree, agree_at, all_gather, all_reduce, barrier, broadcast, first_differing, gather, gather_to_leaders,
    route, Op,
};
use scr_comm::{Comm, CommError, Rank, RankErrors, RankValues};

use super::{payload, ranks, Case, Random};

pub(super) const CASES: &[Case] = &[
    ("a broadcast reaches all ranks from any root", broadcasts),
    ("a reduction gives all ranks the same and right values", reductions),
    ("gathered bytes come by rank to any root", gathers),
    ("routed messages come to whom they are for, sorted and in order", routes),
    ("a message to no rank is an error there, and all others arrive", route_to_nobody),
    ("agreeing keeps each rank's value where all are well", agreeing),
    ("all ranks get the same error of what failed", differing_results),
    ("the first rank that differs is named", differing),
    ("collective calls may follow each other without waiting", in_a_row),
    ("collective calls cost a logarithm of messages", logarithmic),
];

fn broadcasts(comm: &dyn Comm) {
    for root in some_ranks(comm) {
        for len in [0, 1, 503, 504, 505, 100_000] {
            let expected = payload(u64::from(root.0), len);
            let mine = if comm.rank() == root { expected.clone() } else { b"not this".to_vec() };
            assert!(broadcast(comm, root, mine).unwrap() == expected, "{len} bytes from rank {root}");
        }
    }
    let (rank, size) = (Rank(comm.size()), comm.size());
    assert_eq!(broadcast(comm, rank, vec![]), Err(CommError::NoSuchRank { rank, size }));
}

fn reductions(comm: &dyn Comm) {
    let values = |rank: Rank| {
        let mut random = Random::of(&[u64::from(rank.0)]);
        [random.next(), random.below(1000), u64::from(rank.0), 1, u64::MAX, 0]
    };
    let fold = |op: fn(u64, u64) -> u64| {
        let all = ranks(comm).map(values);
        all.reduce(|a, b| std::array::from_fn(|i| op(a[i], b[i]))).unwrap()
    };
    for (op, expected) in
        [(Op::Min, fold(u64::min)), (Op::Max, fold(u64::max)), (Op::Sum, fold(u64::saturating_add))]
    {
        let all = all_reduce(comm, values(comm.rank()), op).unwrap();
        assert_eq!(all, expected, "{op:?} on rank {}", comm.rank());
    }
    all_reduce(comm, [], Op::Sum).unwrap();
}

fn gathers(comm: &dyn Comm) {
    let bytes = |rank: Rank| payload(u64::from(rank.0), (rank.0 as usize * 331) % 2000);
    let all: Vec<Vec<u8>> = ranks(comm).map(bytes).collect();
    for root in some_ranks(comm) {
        let expected = (comm.rank() == root).then(|| all.clone());
        assert_eq!(gather(comm, root, bytes(comm.rank())).unwrap(), expected);
    }
    for many in [1, 2, 4, 64] {
        let first = comm.rank().0 - comm.rank().0 % many;
        let group = ranks(comm).filter(|rank| (first..first + many).contains(&rank.0)).map(bytes);
        let expected = (comm.rank().0 == first).then(|| group.collect());
        assert_eq!(gather_to_leaders(comm, many, bytes(comm.rank())).unwrap(), expected);
    }
    assert_eq!(all_gather(comm, &bytes(comm.rank())).unwrap(), all.into_iter().collect());
    assert_eq!(all_gather(comm, &[]).unwrap(), RankValues::of_all(Vec::new(), comm.size()));
    let node = |rank: Rank| vec![(rank.0 / 3) as u8];
    assert_eq!(all_gather(comm, &node(comm.rank())).unwrap(), ranks(comm).map(node).collect());
}

fn routes(comm: &dyn Comm) {
    for trial in 0..10 {
        let sent_by = |from: Rank| {
            let mut random = Random::of(&[trial, u64::from(from.0)]);
            let count = random.below(6);
            let mut message = |nth| {
                let to = Rank(random.below(u64::from(comm.size())) as u32);
                let len = if comm.size() > 16 { random.below(900) as usize } else { random.len() };
                (to, payload(nth << 32 | u64::from(from.0), len))
            };
            (0..count).map(&mut message).collect::<Vec<_>>()
        };
        let for_me = |from: Rank| {
            let mine = sent_by(from).into_iter().filter(|(to, _)| *to == comm.rank());
            mine.map(move |(_, bytes)| (from, bytes))
        };
        let expected: Vec<(Rank, Vec<u8>)> = ranks(comm).flat_map(for_me).collect();
        assert!(route(comm, sent_by(comm.rank())).unwrap() == expected, "trial {trial}");
    }
}

fn route_to_nobody(comm: &dyn Comm) {
    let (nobody, size) = (Rank(comm.size() + 3), comm.size());
    let me = comm.rank();
    let mut messages = vec![(Rank(0), vec![1])];
    if me.0 + 1 == size {
        messages.push((nobody, vec![2]));
    }
    let result = route(comm, messages);
    if me.0 + 1 == size {
        assert_eq!(result, Err(CommError::NoSuchRank { rank: nobody, size }));
    } else if me == Rank(0) {
        assert_eq!(result, Ok(ranks(comm).map(|from| (from, vec![1])).collect()));
    } else {
        assert_eq!(result, Ok(vec![]));
    }
}

fn agreeing(comm: &dyn Comm) {
    let mine: Result<u32, String> = Ok(comm.rank().0);
    assert_eq!(agree(comm, mine), Ok(comm.rank().0));
}

fn differing_results(comm: &dyn Comm) {
    let size = comm.size();
    let every_second = |rank: Rank| rank.0 % 2 == 1;
    let last = |rank: Rank| rank.0 + 1 == size;
    let fails: [(&str, &dyn Fn(Rank) -> bool); 3] =
        [("all", &|_| true), ("every second", &every_second), ("the last", &last)];
    for (which, fails) in fails {
        let failed: Vec<Rank> = ranks(comm).filter(|&rank| fails(rank)).collect();
        let mine = match fails(comm.rank()) {
            true => Err(format!("no room for {}", comm.rank())),
            false => Ok(()),
        };
        let result = agree_at(comm, &format!("n{}", comm.rank()), mine);
        if failed.is_empty() {
            assert_eq!(result, Ok(()), "{which}");
            continue;
        }
        let account = result.unwrap_err().agreed().unwrap();
        assert_eq!(account.failed, failed.len() as u64, "{which}");
        let said = |rank: &Rank| format!("rank {rank} on n{rank}: no room for {rank}");
        let first: Vec<String> = failed.iter().take(RankErrors::SHOWN).map(said).collect();
        assert!(account.to_string().starts_with(&first.join("; ")), "{account}");
        assert_eq!(account.to_string().contains("more rank"), failed.len() > RankErrors::SHOWN);
    }
}

fn differing(comm: &dyn Comm) {
    for value in [&b""[..], b"scheme xor 1.0", &[7; 3000]] {
        assert_eq!(first_differing(comm, value), Ok(None));
    }
    if comm.size() > 1 {
        let odd = comm.size() / 2;
        let mine = if comm.rank().0 >= odd.max(1) { "1.1" } else { "1.0" };
        assert_eq!(first_differing(comm, mine.as_bytes()), Ok(Some(Rank(odd.max(1)))));
    }
}

fn in_a_row(comm: &dyn Comm) {
    let me = u64::from(comm.rank().0);
    for round in 0..20u32 {
        // Those with much to do now have little to do in the next round.
        (0..(me + u64::from(round)) % 3).for_each(|_| std::thread::yield_now());
        let root = Rank(round % comm.size());
        let mine = payload(u64::from(round), 600);
        assert_eq!(broadcast(comm, root, mine.clone()).unwrap(), mine);
        let highest = [1, u64::from(round)];
        assert_eq!(all_reduce(comm, highest, Op::Max).unwrap(), highest);
        let to = Rank((comm.rank().0 + round) % comm.size());
        assert_eq!(route(comm, vec![(to, vec![1])]).unwrap().len(), 1);
    }
}

fn logarithmic(comm: &dyn Comm) {
    let rounds = u64::from(comm.size().next_power_of_two().ilog2());
    let ok: Result<(), String> = Ok(());
    let bad: Result<(), String> = Err("bad".to_owned());
    let rest = |count: &dyn Fn()| {
        let before = comm.traffic().messages;
        count();
        comm.traffic().messages - before
    };
    let long = vec![3; 5000];
    let costs = [
        ("barrier", rest(&|| barrier(comm).unwrap()), rounds),
        ("broadcast", rest(&|| drop(broadcast(comm, Rank(0), vec![1; 100]).unwrap())), rounds),
        ("long broadcast", rest(&|| drop(broadcast(comm, Rank(0), long.clone()).unwrap())), 2 * rounds),
        ("reduction", rest(&|| _ = all_reduce(comm, [1; 8], Op::Sum).unwrap()), rounds + 1),
        ("gather", rest(&|| drop(gather(comm, Rank(0), long.clone()).unwrap())), 2),
        ("gather for all", rest(&|| drop(all_gather(comm, &long).unwrap())), 2 * rounds + 2),
        ("route", rest(&|| drop(route(comm, vec![(Rank(0), vec![1; 9])]).unwrap())), 2 * rounds),
        ("agreement", rest(&|| agree(comm, ok.clone()).unwrap()), rounds + 1),
        ("a failure", rest(&|| drop(agree(comm, bad.clone()).unwrap_err())), 2 * rounds + 2),
        ("comparison", rest(&|| _ = first_differing(comm, b"same").unwrap()), 2 * rounds + 1),
    ];
    for (what, messages, most) in costs {
        assert!(messages <= most, "{what}: rank {} sent {messages}, not {most}", comm.rank());
    }
}

/// All ranks where they are few, otherwise enough to meet every shape of tree.
fn some_ranks(comm: &dyn Comm) -> impl Iterator<Item = Rank> {
    let last = comm.size() - 1;
    ranks(comm).filter(move |rank| rank.0 < 5 || rank.0 == last)
}
