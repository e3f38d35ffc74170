//! The suite of all communicators on threads, and what only threads have: deadlocks that are found, ranks that
//! end or panic.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use scr_comm::collective::{all_reduce, barrier, in_turn, Op, Turn};
use scr_comm::thread::{self, ThreadComm};
use scr_comm::{
    exchange_all, Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, Traffic, WaitControl,
};

/// A rank whose long messages wait to be taken, as those of MPI do: who takes one says so.
struct Rendezvous {
    comm: ThreadComm,
    /// Bytes of a message that does not wait.
    most: usize,
    /// How many messages it has sent for that.
    said: Cell<u64>,
}

/// That a long message is taken.
const TAKEN: Tag = Tag(2000);

impl Rendezvous {
    fn waits(&self, bytes: usize, other: Rank) -> bool {
        bytes > self.most && other != self.rank()
    }

    fn say_taken(&self, from: impl IntoIterator<Item = Rank>) -> Result<(), CommError> {
        let sends: Vec<_> = from.into_iter().map(|to| Outgoing { to, bytes: &[] }).collect();
        self.said.set(self.said.get() + sends.len() as u64);
        exchange_all(&self.comm, TAKEN, &sends, &mut [])
    }
}

impl Comm for Rendezvous {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn inner(&self) -> Option<&dyn Comm> {
        Some(&self.comm)
    }

    fn traffic(&self) -> Traffic {
        let all = self.comm.traffic();
        Traffic { messages: all.messages - self.said.get(), ..all }
    }

    fn exchange(
        &self,
        tag: Tag,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        check_cancel: &mut dyn FnMut(&[bool]) -> Result<WaitControl, CommError>,
    ) -> Result<ExchangeEnd, CommError> {
        let mut owed: Vec<Option<Rank>> = receives
            .iter()
            .map(|receive| Some(receive.from).filter(|&from| self.waits(receive.bytes.len(), from)))
            .collect();
        let mut flags = vec![false; receives.len()];
        let mut say_of = |come: &[bool]| {
            let taken = come.iter().zip(&mut owed).filter(|(come, _)| **come);
            self.say_taken(taken.filter_map(|(_, from)| from.take()))
        };
        let ended = self.comm.exchange(tag, sends, receives, &mut |come| {
            flags.copy_from_slice(come);
            say_of(come)?;
            check_cancel(come)
        });
        match &ended {
            Ok(ExchangeEnd::GivenUp) => (),
            Ok(ExchangeEnd::Done) => flags.fill(true),
            Err(CommError::WrongLength { from, found, expected, .. }) => {
                flags.fill(true);
                let is_unknown = !self.waits(*expected, *from) && self.waits(*found, *from);
                self.say_taken(is_unknown.then_some(*from))?;
            }
            Err(_) => return ended,
        }
        say_of(&flags)?;
        let long = sends.iter().filter(|send| self.waits(send.bytes.len(), send.to));
        let mut taken: Vec<_> = long.map(|send| Incoming { from: send.to, bytes: &mut [] }).collect();
        self.comm.exchange(TAKEN, &[], &mut taken, &mut |_| {
            check_cancel(&flags)?;
            Ok(WaitControl::Wait)
        })?;
        ended
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
        let taken = self.comm.take(tag)?;
        let long = taken.iter().filter(|(from, bytes)| self.waits(bytes.len(), *from));
        self.say_taken(long.map(|(from, _)| *from))?;
        Ok(taken)
    }
}

/// `most` bytes of a message are buffered; a longer one waits to be taken.
fn suite(ranks: u32, most: usize) {
    for case in crate::all::cases() {
        let pending = thread::run(ranks, |comm| {
            let comm = Rendezvous { comm, most, said: Cell::default() };
            crate::all::run_case(&comm, &case);
            comm.comm.pending().into_iter().filter(|(_, tag)| *tag != TAKEN).collect::<Vec<_>>()
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
                    super::suite($ranks, usize::MAX);
                }

                #[test]
                fn the_suite_passes_with_messages_that_wait_to_be_taken() {
                    super::suite($ranks, 90);
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
        let sum = all_reduce(&comm, [u64::from(comm.rank().0)], Op::Sum);
        sum.map(|[sum]| (sum, comm.traffic().messages))
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
    let results = thread::run(2, |comm| {
        let comm = Rendezvous { comm, most: 3, said: Cell::default() };
        let sends = [Outgoing { to: Rank(1), bytes: b"long" }];
        let sends = if comm.rank() == Rank(0) { &sends[..] } else { &[] };
        exchange_all(&comm, Tag(5), sends, &mut [])
    });
    let [Err(error), Ok(())] = &results.unwrap()[..] else { panic!("only the sender waits") };
    let expected = "deadlock: rank 0 waits for a message from rank 1, which has ended (tag 2000)";
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
