//! The ranks that have not come: a call that waits long names those that have not made it.
//!
//! Only what the application holds up is watched: from the beginning of a call until all ranks are known to have come. The work
//! of scr after that may take any time. A rank that waits looks at the clock whenever its exchange asks whether to go on. After a
//! minute (`SCR_LATE_SECS`) rank 0 asks all others; those that wait as well answer, and the rest has not come. If rank 0 itself
//! does not, the last rank asks. No other rank is disturbed: a rank that comes later takes the old questions then.

use super::{Ask, Comm, CommError, Exchanged, Incomings, Outgoing, Rank, Result, Sends, Tag, WaitControl};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A communicator that watches how long calls wait for ranks.
pub struct Watched {
    comm: Rc<dyn Comm>,
    watch: Watch,
}

/// Gives a rank with its node.
type NameOf = Box<dyn Fn(Rank) -> String>;

/// When ranks look after each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Ranks may differ by so much in what they compute before a call.
    long: Duration,
    /// A rank that has waited for less does not look, and one that waits answers within this time.
    pub short: Duration,
}

impl Pace {
    /// Ranks that come later than this are named; zero for none.
    pub fn of(long: Duration) -> Self {
        Self { long, short: long / 6 }
    }

    /// Whether no rank is to be named.
    pub fn is_never(self) -> bool {
        self.long.is_zero()
    }

    /// When a rank asks that looks after the others: rank 0, or later the last one.
    fn asks(self, rank: Rank) -> Duration {
        if rank == Rank(0) {
            self.long
        } else {
            self.long + 2 * self.short
        }
    }

    /// How long it waits for answers.
    fn answers(self) -> Duration {
        self.short + self.short / 2
    }

    /// When it knows who has come.
    pub fn knows(self, rank: Rank) -> Duration {
        self.asks(rank) + self.answers()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(Duration::from_secs(60))
    }
}

/// The ranks of a list, of which a long one is cut.
pub fn shown(names: impl ExactSizeIterator<Item = String>) -> String {
    let many = names.len();
    let mut shown: Vec<_> = names.take(SHOWN).collect();
    if many > SHOWN {
        shown.push(format!("{} more", many - SHOWN));
    }
    format!("{} {}", if many == 1 { "rank" } else { "ranks" }, shown.join(", "))
}

/// The knowledge about the ranks in the call that is under way.
pub struct Watch {
    pace: Cell<Pace>,
    elapsed: Box<dyn Fn() -> Duration>,
    say: Box<dyn Fn(&str)>,
    name_of: RefCell<Option<NameOf>>,
    /// How many calls have begun, the same on all ranks that are in the same one.
    number: Cell<u64>,
    /// In how many calls it has said anything.
    said: Cell<u64>,
    call: RefCell<Call>,
}

/// The call that is under way.
#[derive(Default)]
struct Call {
    name: &'static str,
    have_come: bool,
    /// Whether another rank has asked.
    was_asked: bool,
    /// When this rank has asked.
    asked: Option<Duration>,
    has_said: bool,
    /// The number and the name of the call in which others have answered.
    answers: BTreeMap<Rank, (u64, String)>,
}

impl Watch {
    /// A call of this name begins, in which the ranks wait for each other.
    pub fn begin(&self, name: &'static str) {
        self.number.set(self.number.get() + 1);
        self.call.replace(Call { name, ..Call::default() });
    }

    /// All ranks have made the call.
    pub(crate) fn all_have_come(&self) {
        self.call.borrow_mut().have_come = true;
    }

    /// From now on ranks that come later than this are named.
    pub fn set_pace(&self, pace: Pace) {
        self.pace.set(pace);
    }

    /// From now on messages name the nodes, too.
    pub fn name_by(&self, name_of: NameOf) {
        self.name_of.replace(Some(name_of));
    }

    fn name(&self, rank: Rank) -> String {
        self.name_of.borrow().as_ref().map_or_else(|| rank.to_string(), |name_of| name_of(rank))
    }

    /// Whether a call in which something is to be said is one of the first, or of many.
    fn counts(&self) -> bool {
        self.said.set(self.said.get() + 1);
        self.said.get().is_power_of_two()
    }
}

impl Watched {
    /// `elapsed` is the stopwatch, and `say` tells the user something.
    pub fn new(
        comm: Rc<dyn Comm>,
        elapsed: impl Fn() -> Duration + 'static,
        say: impl Fn(&str) + 'static,
    ) -> Self {
        let watch = Watch {
            pace: Cell::default(),
            elapsed: Box::new(elapsed),
            say: Box::new(say),
            name_of: RefCell::default(),
            number: Cell::default(),
            said: Cell::default(),
            call: RefCell::default(),
        };
        Self { comm, watch }
    }

    /// Looks after the others, now that an exchange has waited since `began`.
    fn look(&self, began: Duration) -> Result<()> {
        let (now, rank, pace) = ((self.watch.elapsed)(), self.rank(), self.watch.pace.get());
        let waited = now.saturating_sub(began);
        if waited < pace.short || pace.is_never() {
            return Ok(());
        }
        self.take_messages()?;
        let may_ask = rank == Rank(0) || rank.0 + 1 == self.size() && !self.watch.call.borrow().was_asked;
        let asks = may_ask && waited >= pace.asks(rank);
        let asked = self.watch.call.borrow().asked;
        match asked {
            None if asks => {
                self.watch.call.borrow_mut().asked = Some(now);
                self.send(&self.others(), ASK)
            }
            Some(asked) if now.saturating_sub(asked) >= pace.answers() => {
                self.report(waited);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn others(&self) -> Vec<Rank> {
        (0..self.size()).map(Rank).filter(|&rank| rank != self.rank()).collect()
    }

    /// A question or an answer.
    fn send(&self, to: &[Rank], kind: u8) -> Result<()> {
        let mut bytes = vec![kind];
        bytes.extend(self.watch.number.get().to_be_bytes());
        bytes.extend(self.watch.call.borrow().name.as_bytes());
        let sends: Vec<_> = to.iter().map(|&to| Outgoing { to, bytes: &bytes }).collect();
        self.comm.exchange(TAG, &sends, &mut [], &mut |_| Ok(WaitControl::Wait)).map(drop)
    }

    /// Answers what others ask, and counts what they answer.
    fn take_messages(&self) -> Result<()> {
        while let Some((from, bytes)) = self.comm.take(TAG)? {
            let malformed = CommError::Malformed { from, what: "a question after ranks" };
            let (kind, rest) = bytes.split_first().ok_or_else(|| malformed.clone())?;
            let (number, call) = rest.split_first_chunk().ok_or(malformed)?;
            let number = u64::from_be_bytes(*number);
            if *kind == ASK {
                self.watch.call.borrow_mut().was_asked |= number == self.watch.number.get();
                self.send(&[from], HERE)?;
            } else {
                let call = String::from_utf8_lossy(call).into_owned();
                self.watch.call.borrow_mut().answers.insert(from, (number, call));
            }
        }
        Ok(())
    }

    /// Names the ranks that have not come, once in a call.
    fn report(&self, waited: Duration) {
        let (watch, mut call) = (&self.watch, self.watch.call.borrow_mut());
        let has_said = std::mem::replace(&mut call.has_said, true);
        let Call { name, answers, .. } = &*call;
        let is_here = |rank: &Rank| answers.get(rank).is_some_and(|(_, other)| other == name);
        let missing: Vec<Rank> = self.others().into_iter().filter(|rank| !is_here(rank)).collect();
        if has_said || missing.is_empty() || !watch.counts() {
            return;
        }
        let of = |rank: &Rank| match answers.get(rank) {
            Some((_, other)) => format!("{} is in {other}", watch.name(*rank)),
            None => watch.name(*rank),
        };
        (watch.say)(&format!(
            "{name} has waited {} s for {} of {} ranks to call it: {}; all ranks have to",
            waited.as_secs(),
            missing.len(),
            self.size(),
            shown(missing.iter().map(of)),
        ));
    }
}

impl Comm for Watched {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn exchange(&self, tag: Tag, sends: Sends<'_>, receives: Incomings<'_, '_>, ask: Ask<'_>) -> Exchanged {
        if self.watch.call.borrow().have_come {
            return self.comm.exchange(tag, sends, receives, ask);
        }
        let began = (self.watch.elapsed)();
        self.comm.exchange(tag, sends, receives, &mut |come| {
            self.look(began)?;
            ask(come)
        })
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>> {
        self.comm.take(tag)
    }

    fn inner(&self) -> Option<&dyn Comm> {
        Some(&*self.comm)
    }

    fn watch(&self) -> Option<&Watch> {
        Some(&self.watch)
    }
}

const TAG: Tag = Tag(43);
const ASK: u8 = b'?';
const HERE: u8 = b'!';
/// A list names at most this many ranks.
const SHOWN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExchangeEnd;
    use std::collections::VecDeque;

    /// A rank that waits for others: time passes whenever its exchange asks, and messages come at set times.
    struct Waiting {
        rank: Rank,
        seconds: Rc<Cell<u64>>,
        /// The second, the sender and the message.
        come: RefCell<VecDeque<(u64, Rank, Vec<u8>)>>,
        sent: Rc<RefCell<Vec<(u64, Rank, u8)>>>,
        until: u64,
    }

    impl Comm for Waiting {
        fn rank(&self) -> Rank {
            self.rank
        }

        fn size(&self) -> u32 {
            4
        }

        fn exchange(&self, tag: Tag, sends: Sends<'_>, _: Incomings<'_, '_>, ask: Ask<'_>) -> Exchanged {
            if tag == TAG {
                let sent = sends.iter().map(|send| (self.seconds.get(), send.to, send.bytes[0]));
                self.sent.borrow_mut().extend(sent);
                return Ok(ExchangeEnd::Done);
            }
            while self.seconds.get() < self.until {
                self.seconds.set(self.seconds.get() + 1);
                ask(&[])?;
            }
            Ok(ExchangeEnd::Done)
        }

        fn take(&self, _: Tag) -> Result<Option<(Rank, Vec<u8>)>> {
            let mut come = self.come.borrow_mut();
            let is_there = come.front().is_some_and(|(at, ..)| *at <= self.seconds.get());
            Ok(if is_there { come.pop_front().map(|(_, from, bytes)| (from, bytes)) } else { None })
        }
    }

    fn message(kind: u8, number: u64, call: &str) -> Vec<u8> {
        [&[kind][..], &number.to_be_bytes(), call.as_bytes()].concat()
    }

    /// The messages of a rank to the user and to others, while it waits in its second call for so many seconds.
    fn waits(
        rank: u32,
        until: u64,
        come: &[(u64, u32, Vec<u8>)],
        calls: u64,
    ) -> (Vec<String>, Vec<(u64, Rank, u8)>) {
        let (seconds, sent) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        let come = come.iter().map(|(at, from, bytes)| (*at, Rank(*from), bytes.clone()));
        let come = RefCell::new(come.collect());
        let comm = Waiting { rank: Rank(rank), seconds: seconds.clone(), come, sent: sent.clone(), until };
        let said = Rc::new(RefCell::new(Vec::new()));
        let (clock, lines) = (seconds.clone(), said.clone());
        let elapsed = move || Duration::from_secs(clock.get());
        let watched =
            Watched::new(Rc::new(comm), elapsed, move |text| lines.borrow_mut().push(text.to_owned()));
        watched.watch.name_by(Box::new(|rank| format!("{rank} on n{rank}")));
        for _ in 0..calls {
            seconds.set(0);
            watched.watch.begin("SCR_Start_output");
            watched.exchange(Tag(1), &[], &mut [], &mut |_| Ok(WaitControl::Wait)).unwrap();
        }
        let (said, sent) = (said.borrow().clone(), sent.borrow().clone());
        (said, sent)
    }

    #[test]
    fn rank_0_names_those_that_do_not_answer() {
        let here = message(HERE, 1, "SCR_Start_output");
        let (said, sent) = waits(0, 600, &[(62, 2, here)], 1);
        assert_eq!(sent, [(60, Rank(1), ASK), (60, Rank(2), ASK), (60, Rank(3), ASK)]);
        let expected = "SCR_Start_output has waited 75 s for 2 of 4 ranks to call it: ranks 1 on n1, 3 on n3; all ranks have to";
        assert_eq!(said, [expected]);
    }

    #[test]
    fn a_rank_in_another_call_is_named_with_it() {
        let (here, elsewhere) = (message(HERE, 1, "SCR_Start_output"), message(HERE, 1, "SCR_Finalize"));
        let come = [(61, 1, here.clone()), (62, 2, elsewhere), (63, 3, here)];
        let (said, _) = waits(0, 600, &come, 1);
        assert!(matches!(&said[..], [one] if one.contains("rank 2 on n2 is in SCR_Finalize;")), "{said:?}");
    }

    #[test]
    fn nothing_is_said_before_a_minute_or_if_all_have_come() {
        assert_eq!(waits(0, 59, &[], 1), (vec![], vec![]));
        let here = |rank| (61, rank, message(HERE, 1, "SCR_Start_output"));
        let (said, sent) = waits(0, 600, &[here(1), here(2), here(3)], 1);
        assert_eq!((said.len(), sent.len()), (0, 3));
    }

    #[test]
    fn others_answer_and_the_last_rank_asks_if_rank_0_does_not() {
        let ask = message(ASK, 1, "SCR_Start_output");
        for rank in [1, 3] {
            assert_eq!(waits(rank, 600, &[(60, 0, ask.clone())], 1), (vec![], vec![(60, Rank(0), HERE)]));
        }
        assert_eq!(waits(1, 600, &[], 1), (vec![], vec![]), "one in the middle waits in silence");
        let here = |rank| (81, rank, message(HERE, 1, "SCR_Start_output"));
        let (said, sent) = waits(3, 600, &[here(1), here(2)], 1);
        assert_eq!(sent, [(80, Rank(0), ASK), (80, Rank(1), ASK), (80, Rank(2), ASK)]);
        assert!(
            matches!(&said[..], [one] if one.contains("1 of 4 ranks to call it: rank 0 on n0;")),
            "{said:?}"
        );
    }

    #[test]
    fn an_old_question_is_answered_and_keeps_the_last_rank_from_nothing() {
        let old = message(ASK, 0, "SCR_Init");
        let (said, sent) = waits(3, 600, &[(10, 0, old)], 1);
        assert_eq!((said.len(), sent[0]), (1, (10, Rank(0), HERE)));
    }

    #[test]
    fn a_job_whose_ranks_differ_by_minutes_is_told_now_and_then() {
        assert_eq!(waits(0, 100, &[], 9).0.len(), 4, "in the calls 1, 2, 4 and 8");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let comm = |bytes: &[u8]| {
            let (seconds, sent) = (Rc::default(), Rc::default());
            let come = RefCell::new(VecDeque::from([(0, Rank(1), bytes.to_vec())]));
            let waiting = Waiting { rank: Rank(0), seconds, come, sent, until: 0 };
            Watched::new(Rc::new(waiting), Duration::default, |_| ()).take_messages()
        };
        for bytes in [&b""[..], b"?", b"!1234567"] {
            assert!(matches!(comm(bytes), Err(CommError::Malformed { from: Rank(1), .. })), "{bytes:?}");
        }
    }
}
