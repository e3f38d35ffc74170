//! Redundancy sets: members that exchange, and members that give up at any step.

use std::error::Error;

use scr_comm::set::{SetComm, SetError};
use scr_comm::{collective, Comm, Rank};
use scr_plugin_api::{ReceiveFrom, SendTo};

use super::{payload, ranks, Case, Random};

pub(super) const CASES: &[Case] = &[
    ("a set exchanges, finds a maximum and ends well", well),
    ("sets that follow each other on other channels do not meet", one_after_another),
    ("lists that are no set are refused", no_sets),
    ("a member that is not there is refused, and all learn of it", no_member),
    ("what nobody received is named", unclaimed),
    ("members that give up at any step hold up nobody", at_random),
];

const CHANNEL: u16 = 3;

fn well(comm: &dyn Comm) {
    let set = whole(comm);
    let (me, size) = (set.member(), set.size());
    assert_eq!((me, size, set.rank_of(me)), (comm.rank().0, comm.size(), Some(comm.rank())));
    assert_eq!(set.rank_of(size), None);
    for len in [0, 5, 100_000] {
        let mine = payload(u64::from(me), len);
        let before = (me + size - 1) % size;
        let mut theirs = vec![0; len];
        let sends = [SendTo { to: (me + 1) % size, bytes: &mine }];
        set.exchange(&sends, &mut [ReceiveFrom { from: before, bytes: &mut theirs }]).unwrap();
        assert_eq!(theirs, payload(u64::from(before), len));
    }
    assert_eq!(set.max(u64::from(me) * 7).unwrap(), u64::from(size - 1) * 7);
    assert_eq!(set.max(5).unwrap(), 5);
    assert_eq!(set.finish(Ok(())), Ok(()));
}

fn one_after_another(comm: &dyn Comm) {
    // Two ways to part the ranks; in the second the members are turned round.
    let part = |by: &dyn Fn(u32) -> u32| -> Vec<Rank> {
        ranks(comm).filter(|rank| by(rank.0) == by(comm.rank().0)).collect()
    };
    let odd_or_even = part(&|rank| rank % 2);
    let mut half = part(&|rank| rank * 2 / comm.size());
    half.reverse();
    for (channel, members) in [(0, odd_or_even), (1, half)] {
        let highest = members.iter().max().map(|rank| u64::from(rank.0));
        let first = members[0];
        let set = SetComm::new(comm, members.clone(), channel).unwrap();
        assert_eq!(set.max(u64::from(comm.rank().0)).ok(), highest);
        assert_eq!(set.finish(Ok(())), Ok(()));

        let set = SetComm::new(comm, members, channel + 2).unwrap();
        let failed = SetError::Failed { text: "no good".to_owned() };
        let mine = if comm.rank() == first { Err(&failed as &dyn Error) } else { Ok(()) };
        let expected = match mine {
            Err(_) => failed.clone(),
            Ok(()) => SetError::Aborted { member: 0, rank: first, text: "no good".to_owned() },
        };
        assert_eq!(set.finish(mine), Err(expected));
    }
}

fn no_sets(comm: &dyn Comm) {
    let me = comm.rank();
    let refused = |members: Vec<Rank>, channel| match SetComm::new(comm, members, channel) {
        Ok(_) => panic!("a set was made"),
        Err(error) => error.to_string(),
    };
    assert!(refused(vec![], 0).contains("not among the members"));
    assert!(refused(vec![Rank(me.0 + 1)], 0).contains("not among the members"));
    assert!(refused(vec![me, me], 0).contains("in it twice"));
    assert!(refused(vec![me, Rank(comm.size())], 0).contains("does not exist"));
    assert!(refused(vec![me], SetComm::LAST_CHANNEL + 1).contains("no such channel"));
    assert!(SetComm::new(comm, vec![me], SetComm::LAST_CHANNEL).unwrap().finish(Ok(())).is_ok());
}

fn no_member(comm: &dyn Comm) {
    let set = whole(comm);
    let (me, size) = (set.member(), set.size());
    if me == size - 1 {
        let error = set.exchange(&[SendTo { to: size, bytes: &[] }], &mut []).unwrap_err();
        assert_eq!(error, SetError::NoSuchMember { member: size, size });
        assert!(set.finish(Err(&error)).is_err());
    } else {
        let error = set.max(1).and_then(|_| set.finish(Ok(()))).unwrap_err();
        assert!(matches!(error, SetError::Aborted { member, .. } if member == size - 1), "{error}");
    }
}

fn unclaimed(comm: &dyn Comm) {
    let set = whole(comm);
    let last = set.size() - 1;
    if set.member() == 0 {
        set.exchange(&[SendTo { to: last, bytes: b"surprise" }], &mut []).unwrap();
    }
    let is_last = set.member() == last;
    let expected = SetError::Unclaimed { member: 0, rank: Rank(0), messages: 1 };
    assert_eq!(set.finish(Ok(())), if is_last { Err(expected) } else { Ok(()) });
}

fn whole(comm: &dyn Comm) -> SetComm<'_> {
    SetComm::new(comm, ranks(comm).collect(), CHANNEL).unwrap()
}

fn at_random(comm: &dyn Comm) {
    for seed in 0..60 {
        act(comm, &Play::new(comm, seed));
        // A channel may be used again when all are done with it.
        collective::barrier(comm).unwrap();
    }
}

/// The events in the sets of one trial. Every rank works out all of them.
struct Play {
    seed: u64,
    members: Vec<Rank>,
    /// Per member: the step at which it does something it should not, and what.
    faults: Vec<Option<(u64, Fault)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Gives up.
    GivesUp,
    /// Goes away without a word.
    Leaves,
    /// Says that all is well, and goes.
    Deserts,
    /// Asks for a message of another length, and gives up because of it.
    Misjudges,
}

struct Message {
    from: u32,
    to: u32,
    seed: u64,
    len: usize,
}

const STEPS: u64 = 6;

impl Play {
    fn new(comm: &dyn Comm, seed: u64) -> Self {
        let sets = u64::from(comm.size()).div_ceil(9) * (1 + seed % 2);
        let mine = |rank: &Rank| u64::from(rank.0) % sets == u64::from(comm.rank().0) % sets;
        let members: Vec<Rank> = ranks(comm).filter(mine).collect();
        let clean = seed.is_multiple_of(4);
        let fault = |member: &Rank| {
            let mut random = Random::of(&[seed, u64::from(member.0), 77]);
            let kinds = [Fault::GivesUp, Fault::Leaves, Fault::Deserts, Fault::Misjudges];
            let step = random.below(STEPS + 1);
            let kind = kinds[random.below(4) as usize];
            (!clean && random.below(3) == 0).then_some((step, kind))
        };
        Self { seed, faults: members.iter().map(fault).collect(), members }
    }

    /// The messages of a step: the sender, the receiver and the contents of each.
    fn messages(&self, step: u64) -> Vec<Message> {
        let size = self.members.len() as u64;
        let mut random = Random::of(&[self.seed, step, u64::from(self.members[0].0)]);
        let shift = random.below(size);
        let pairs: Vec<(u64, u64)> = match random.below(4) {
            0 => (0..size).map(|from| (from, (from + shift) % size)).collect(),
            1 => (0..size).map(|from| (from, shift)).collect(),
            2 => (0..size).map(|to| (shift, to)).collect(),
            _ => (0..2 * size).map(|_| (random.below(size), random.below(size))).collect(),
        };
        let mut message = |(from, to): (u64, u64)| Message {
            from: from as u32,
            to: to as u32,
            seed: random.next(),
            len: random.len(),
        };
        pairs.into_iter().map(&mut message).collect()
    }

    /// Whether no member can end well: one says that it failed, or one goes that others still wait for.
    fn must_fail(&self) -> bool {
        (0u32..).zip(&self.faults).any(|(member, fault)| match fault {
            None => false,
            Some((step, Fault::Deserts)) => (*step..STEPS)
                .any(|step| self.messages(step).iter().any(|one| one.from == member && one.to != member)),
            Some((step, Fault::Misjudges)) => {
                *step < STEPS && self.messages(*step).iter().any(|one| one.to == member)
            }
            Some((_, Fault::GivesUp | Fault::Leaves)) => true,
        })
    }

    fn has_fault(&self) -> bool {
        self.faults.iter().any(Option::is_some)
    }
}

fn act(comm: &dyn Comm, play: &Play) {
    let set = SetComm::new(comm, play.members.clone(), CHANNEL).unwrap();
    let me = set.member();
    let fault = play.faults[me as usize];
    let mut outcome = Ok(());
    for step in 0..=STEPS {
        let now = fault.filter(|(at, _)| *at == step).map(|(_, kind)| kind);
        match now {
            Some(Fault::GivesUp) => outcome = Err(SetError::Failed { text: format!("step {step}") }),
            Some(Fault::Leaves) => return,
            Some(Fault::Deserts) => break,
            Some(Fault::Misjudges) | None => {}
        }
        if outcome.is_err() || step == STEPS {
            break;
        }
        outcome = one_step(&set, play, step, now == Some(Fault::Misjudges));
        if outcome.is_err() {
            break;
        }
    }
    let aborted = matches!(outcome, Err(SetError::Aborted { .. }));
    if aborted {
        assert_eq!(set.max(1).map(drop), outcome, "a later call says the same");
    }
    let end = set.finish(outcome.as_ref().map(drop).map_err(|error| error as &dyn Error));
    let about = || format!("seed {}, rank {}: {:?}, {end:?}", play.seed, comm.rank(), play.faults);
    if aborted {
        assert_eq!(end, outcome, "{}", about());
    }
    if play.must_fail() {
        assert!(end.is_err(), "{}", about());
    } else if !play.has_fault() {
        assert_eq!(end, Ok(()), "{}", about());
    }
    if let Err(SetError::Aborted { member, rank, .. }) = &end {
        assert_eq!(play.members[*member as usize], *rank);
        assert!(play.faults[*member as usize].is_some(), "an innocent is named: {}", about());
    }
}

fn one_step(set: &SetComm<'_>, play: &Play, step: u64, misjudges: bool) -> Result<(), SetError> {
    let me = set.member();
    let messages = play.messages(step);
    let bytes = |message: &Message| payload(message.seed, message.len);
    let sent: Vec<(u32, Vec<u8>)> =
        messages.iter().filter(|one| one.from == me).map(|one| (one.to, bytes(one))).collect();
    let sends: Vec<SendTo<'_>> = sent.iter().map(|(to, bytes)| SendTo { to: *to, bytes }).collect();
    let expected: Vec<&Message> = messages.iter().filter(|one| one.to == me).collect();
    let extra = usize::from(misjudges);
    let mut came: Vec<Vec<u8>> = expected.iter().map(|one| vec![0; one.len + extra]).collect();
    let buffers = came.iter_mut().zip(&expected);
    let mut receives: Vec<ReceiveFrom<'_>> =
        buffers.map(|(bytes, one)| ReceiveFrom { from: one.from, bytes }).collect();
    set.exchange(&sends, &mut receives)?;
    for (came, one) in came.iter().zip(expected) {
        assert!(*came == bytes(one), "what member {} sent in step {step} came changed", one.from);
    }
    Ok(())
}
