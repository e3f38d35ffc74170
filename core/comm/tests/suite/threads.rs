//! The suite of all communicators on threads, and what only threads have: deadlocks that are found, ranks that
//! end or panic.

use std::sync::atomic::{AtomicU32, Ordering};

use scr_comm::collective::{all_reduce, barrier, in_turn, Op, Turn};
use scr_comm::thread::{self, Job, ThreadComm};
use scr_comm::{exchange_all, Comm, CommError, Incoming, Outgoing, Rank, Tag, WaitControl};

fn suite(job: &Job) {
    for case in crate::all::cases() {
        let pending = job.run(|comm| {
            crate::all::run_case(&comm, &case);
            comm.pending()
        });
        match pending {
            Ok(pending) => assert!(pending.iter().all(Vec::is_empty), "`{}' left {pending:?}", case.0),
            Err(error) => panic!("`{}': {error}", case.0),
        }
    }
}

macro_rules! suites {
    ($($name:ident: $ranks:literal,)*) => {
        $(
            mod $name {
                #[test]
                fn the_suite_passes_with_messages_that_are_buffered() {
                    super::suite(&super::Job::new($ranks));
                }

                #[test]
                fn the_suite_passes_with_messages_that_wait_to_be_taken() {
                    super::suite(&super::Job::new($ranks).buffering_at_most(90));
                }
            }
        )*
    };
}

suites! {
    one_rank: 1,
    two_ranks: 2,
    three_ranks: 3,
    five_ranks: 5,
    eight_ranks: 8,
    sixty_four_ranks: 64,
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let come = AtomicU32::new(0);
    let seen = thread::run(13, |comm| {
        come.fetch_add(1, Ordering::SeqCst);
        barrier(&comm).unwrap();
        come.load(Ordering::SeqCst)
    });
    assert_eq!(seen.unwrap(), vec![13; 13]);
}

#[test]
fn thousands_of_ranks_work() {
    let sums = thread::run(3000, |comm| {
        let mut values = [u64::from(comm.rank().0)];
        all_reduce(&comm, &mut values, Op::Sum).map(|()| (values[0], comm.traffic().messages))
    });
    for sum in sums.unwrap() {
        let (sum, messages) = sum.unwrap();
        assert_eq!(sum, 3000 * 2999 / 2);
        assert!(messages <= 13, "{messages} messages");
    }
}

#[test]
fn ranks_that_wait_for_each_other_get_an_error() {
    let results = thread::run(3, |comm| receive(&comm, (comm.rank().0 + 1) % 3)).unwrap();
    for result in results {
        let text = result.unwrap_err().to_string();
        let expected = "deadlock: rank 0 waits for a message from rank 1 (tag 5); \
                        rank 1 waits for a message from rank 2 (tag 5); \
                        rank 2 waits for a message from rank 0 (tag 5)";
        assert_eq!(text, expected);
    }
}

#[test]
fn ranks_that_wait_for_one_that_has_ended_get_that_error_first() {
    let results = thread::run(64, |comm| {
        if comm.rank() == Rank(40) {
            return Ok(());
        }
        barrier(&comm)
    });
    let results = results.unwrap();
    let texts: Vec<String> =
        results.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert_eq!(texts.len(), 63);
    for text in texts {
        let expected = "deadlock: rank 8 waits for a message from rank 40, which has ended (tag 1); rank 41 ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("; and 55 more ranks wait"), "{text}");
    }
}

#[test]
fn a_sender_without_a_receiver_gets_an_error() {
    let results = Job::new(2).buffering_at_most(3).run(|comm| {
        let sends = [Outgoing { to: Rank(1), bytes: b"long" }];
        let sends = if comm.rank() == Rank(0) { &sends[..] } else { &[] };
        exchange_all(&comm, Tag(5), sends, &mut [])
    });
    let [Err(error), Ok(())] = &results.unwrap()[..] else { panic!("only the sender waits") };
    let expected = "deadlock: rank 0 waits for rank 1, which has ended to take what it sent (tag 5)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_rank_that_waits_for_itself_is_a_deadlock() {
    let results = thread::run(1, |comm| receive(&comm, 0)).unwrap();
    assert!(matches!(results[0], Err(CommError::Deadlock { .. })));
}

#[test]
fn a_deadlock_stays_one() {
    let results = thread::run(2, |comm| {
        let first = receive(&comm, 1 - comm.rank().0);
        let sends = [Outgoing { to: Rank(0), bytes: b"" }];
        (first, exchange_all(&comm, Tag(5), &sends, &mut []), comm.take(Tag(5)).map(drop))
    });
    for (first, second, third) in results.unwrap() {
        assert!(first.is_err() && first == second && second == third, "{first:?} {second:?} {third:?}");
    }
}

#[test]
fn a_rank_that_panics_is_named_with_its_text_and_holds_up_nobody() {
    let result = thread::run(5, |comm| {
        assert!(comm.rank() != Rank(3), "disk on fire");
        barrier(&comm).unwrap();
    });
    let error = result.unwrap_err();
    assert!(error.to_string().starts_with("rank 3 panicked: "), "{error}");
    assert!(error.to_string().starts_with("rank 3 panicked: disk on fire (and 4 more"), "{error}");
}

#[test]
fn a_run_without_ranks_gives_nothing() {
    assert_eq!(thread::run(0, |comm| comm.rank()).unwrap(), vec![]);
}

#[test]
fn the_cancel_callback_runs_again_after_each_message() {
    let results = thread::run(2, |comm| {
        let other = Rank(1 - comm.rank().0);
        if comm.rank() == Rank(1) {
            for word in [b"one", b"two"] {
                exchange_all(&comm, Tag(6), &[Outgoing { to: other, bytes: word }], &mut []).unwrap();
            }
            return vec![];
        }
        let mut words = Vec::new();
        let mut receive = [Incoming { from: other, bytes: &mut [] }];
        let ended = comm.exchange(Tag(5), &[], &mut receive, &mut |_| {
            while let Some((_, word)) = comm.take(Tag(6))? {
                words.push(word);
            }
            Ok(if words.len() == 2 { WaitControl::GiveUp } else { WaitControl::Wait })
        });
        ended.unwrap();
        words
    });
    assert_eq!(results.unwrap()[0], [b"one", b"two"]);
}

#[test]
fn unreceived_messages_are_listed() {
    let results = thread::run(2, |comm| {
        let sends = [Outgoing { to: Rank(1), bytes: b"x" }];
        if comm.rank() == Rank(0) {
            exchange_all(&comm, Tag(9), &sends, &mut []).unwrap();
        }
        barrier(&comm).unwrap();
        comm.pending()
    });
    assert_eq!(results.unwrap(), [vec![], vec![(Rank(0), Tag(9))]]);
}

fn receive(comm: &ThreadComm, from: u32) -> Result<(), CommError> {
    exchange_all(comm, Tag(5), &[], &mut [Incoming { from: Rank(from), bytes: &mut [] }])
}

#[test]
fn never_are_more_ranks_at_work_than_allowed_and_every_rank_gets_its_turn() {
    for (ranks, width) in [(1, 1), (5, 1), (16, 3), (4, 256)] {
        let [now, most, done] = [0, 0, 0].map(AtomicU32::new);
        let work = || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
        };
        let turn_of = |Rank(rank)| Turn {
            after: rank.checked_sub(width).map(Rank),
            before: Some(Rank(rank + width)).filter(|next| next.0 < ranks),
        };
        thread::run(ranks, |comm| in_turn(&comm, turn_of(comm.rank()), work).unwrap()).unwrap();
        assert!(most.load(Ordering::SeqCst) <= width);
        assert_eq!(done.load(Ordering::SeqCst), ranks);
    }
}
