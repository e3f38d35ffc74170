//! The small world: every interleaving of two runs and a command over three datasets, in memory, and the promises in each state.
//!
//! Each actor is a state machine whose steps are atomic. A step that changes the ledger goes through the real [`decide`] and
//! [`Ledger::apply`]; a step that moves files changes a small map. The order of the steps is that of `ledger/steps.rs`, and below
//! that of `commit/closing.rs` and `delete`. Any actor may die before any step. One that holds `finalize.lock` may lose it to
//! another one and go on.
//!
//! In every state a run starts, alone, in a copy of the world: it ends the flushes under way and restarts. The
//! [promises](scr_test_kit::promises) are about the data that it gets, and about what is left.

use super::super::{
    decide, expect_lock, listed, By, Do, Dropping, Ended, Event, Facts, Ledger, MakeCurrent, Recorded,
    Refusal, Request, Verdict, Whose,
};
use crate::ledger::facts::Source;
use crate::ledger::{in_order, Candidate};
use crate::shared::Shared;
use crate::{Between, DatasetDescriptor, FlushProgress, IndexEntry, PrefixId, Seq};
use scr_base::fs::verify::compare;
use scr_test_kit::promises::{Fate, Promise, Restart, Says, View};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Datasets 0 to 2. Each has a file of its own, with the same number.
const DATASETS: usize = 3;
/// The file that several of them may have.
const SHARED: usize = DATASETS;
/// One flush for each dataset, and one that saves dataset 0 from a cache.
const FLUSHES: usize = DATASETS + 1;
const SAVING: usize = DATASETS;
/// Two runs and a command.
const ACTORS: usize = 3;
const RUN_1: usize = 0;
const RUN_2: usize = 1;
/// How deep flushes wait for each other.
const DEPTH: usize = 4;
const DELETED: u8 = u8::MAX;

/// The contents of a world, and the work of its actors.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    /// The datasets with name `a`; the others have name `b`.
    named_a: [bool; DATASETS],
    in_place: [bool; DATASETS],
    /// Which have the shared file.
    shares: [bool; DATASETS],
    /// The first dataset of the second run, and the first that is not written.
    second: usize,
    end: usize,
    reads: Reads,
    ranks: Ranks,
    /// Whether the second run is the first one's application, which goes on after the death of a rank. Work that the first run
    /// has started outside of its processes goes on meanwhile.
    recovers: bool,
    command: Command,
    /// Whether files have checksums.
    has_sums: bool,
    /// Whether the power may fail, which takes all names that are not synced.
    may_lose_power: bool,
    /// How often a lock may be taken away from a process that goes on.
    stale: u8,
}

/// How many ranks the second run has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ranks {
    /// As many as the first.
    Same,
    /// Another number, and runs of either read only what their own number wrote.
    Others,
    /// Another number, with `SCR_RESTART_OTHER_RANKS` in all runs.
    Any,
}

impl Ranks {
    fn of_second(self) -> u32 {
        if self == Self::Same {
            FEW
        } else {
            MANY
        }
    }
}

/// How the second run reads the dataset that it finds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reads {
    /// There is no second run.
    Never,
    Fetches,
    /// It cannot read the newest one for a moment.
    MissesNewest,
    InPlace,
    /// It restarts from dataset 0, and drops what is newer: `SCR_CURRENT` and `SCR_DROP_AFTER_CURRENT`.
    GoesBack,
    /// The application cannot restart from it.
    Refuses,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Command {
    None,
    /// `scr poststage`.
    EndArrived,
    /// `scr index --drop a`.
    Drop,
    /// The same, and then the dataset is listed again.
    DropAndList,
    /// Dataset 0 is deleted.
    Delete,
    /// Once the first run has ended, C SCR begins dataset 1 in place.
    CScr,
    /// Dataset 0 is saved from a cache: `scr copy` and `scr index --build`.
    Save,
    /// A file of dataset 0 is damaged, a fetch finds that, and the dataset is saved from a cache.
    DamageAndSave,
}

/// Why datasets leave for good.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leaving {
    Dropped,
    Deleted,
    WentBack,
}

/// A part of what an actor does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Op {
    Start,
    EndAll { leave: bool },
    Read(Reads),
    MakeCurrent,
    Leave(Leaving),
    CScr(usize),
    Flush(usize),
    InPlace(usize),
    Save,
    List(usize),
    Damage(usize),
}

/// Whose bytes a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Bytes {
    #[default]
    None,
    Of(u8),
    /// Partly those of this dataset.
    Torn(u8),
}

/// The state that outlives every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Disk {
    ledger: u32,
    has_lists: [bool; DATASETS],
    records: [Recorded; FLUSHES],
    is_marked: [bool; FLUSHES],
    /// The staging files of each flush: its own and the shared one.
    staged: [[Bytes; 2]; FLUSHES],
    files: [Bytes; DATASETS + 1],
    /// The flush that has given each file its name, plus one, until that is synced.
    unsynced: [u8; DATASETS + 1],
    /// The newest dataset that was given the shared file to write over, plus one.
    overwritten: u8,
}

/// The facts that people know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Told {
    begun: [bool; DATASETS],
    complete: [bool; DATASETS],
    /// Which flushes have made their dataset complete, and which were taken back.
    completed: [bool; FLUSHES],
    taken_back: [bool; FLUSHES],
    arrived: [bool; DATASETS],
    dropping: [bool; DATASETS],
    gone: [bool; DATASETS],
    refused: [bool; DATASETS],
    given_over: [bool; DATASETS],
    damaged: [bool; DATASETS],
    /// A fetch has counted with bytes of another dataset.
    wrong: bool,
}

/// How a flush that was ended has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Outcome {
    #[default]
    Complete,
    TakenBack,
    Postponed,
}

/// Why a process ends a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Why {
    /// Its names are wanted.
    #[default]
    End,
    /// A run that begins ends all.
    Earlier,
    /// The same, and one that has not arrived is left.
    EndArrived,
    /// An error in its own job.
    Resolve,
    /// It was saved from a cache.
    Finish,
    /// It is dropped.
    TakeBack,
    /// An actor that waits for a deletion ends it.
    Deletion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum At {
    #[default]
    Find,
    /// A step of the machine, but for `Close`, which has steps of its own.
    Do(Do),
    /// A step in the order of [`Close`](super::super::Close), at one of its files.
    Step {
        step: u8,
        file: u8,
    },
    /// A file that already has its name loses it for a moment.
    Away {
        step: u8,
        file: u8,
    },
    Back {
        step: u8,
        file: u8,
    },
    /// Its marks are gone, and its record goes.
    ClearRecord(Ended),
}

/// A flush that an actor ends: `Closing` in `commit/closing.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Frame {
    flush: u8,
    why: Why,
    at: At,
    /// The flush that it has waited for, plus two; 1 for a deletion, and 0 for none.
    waited: u8,
    /// Whether it waits for that.
    waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Actor {
    is_alive: bool,
    op: u8,
    step: u8,
    waited: u8,
    frames: [Frame; DEPTH],
    depth: u8,
    outcome: Outcome,
    /// Whether an older dataset was at risk as it began in place; whether the shared file stays where it deletes.
    flag: bool,
    /// The datasets that it drops.
    dropped: [bool; DATASETS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct State {
    disk: Disk,
    told: Told,
    actors: [Actor; ACTORS],
    /// The actor that holds `finalize.lock`, plus one.
    lock: u8,
    stale: u8,
    /// The dataset that the second run reads in place, plus one.
    reads: u8,
    /// Whether the second run began while the first one was under way.
    is_second: bool,
}

/// A request, as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ask {
    BeginRun,
    Begin(u8),
    BeginInPlace(u8),
    Take { flush: u8, closer: u8 },
    TakeInPlace(u8),
    Complete { flush: u8, closer: u8 },
    CompleteInPlace(u8),
    NameAgain(u8),
    TakeBack { flush: u8, even_if_taken: bool },
    ReleaseWriter(u8),
    ReleaseReader,
    ReleaseEarlier,
    ReleaseDeletion,
    ReleaseFlush(u8),
    Hold(u8),
    Withdraw { begun: [bool; DATASETS], named_a: bool },
    Drop,
    DropNewer,
    WithdrawNewer,
    GoBack,
    MakeCurrent(u8),
    CScrBegan(u8),
    List(u8),
    BeginDeletion(u8),
    EndDeletion(u8),
    Fetched { dataset: u8, make_current: bool },
    Fail(u8),
    Refuse(u8),
}

/// The facts of a state, as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Known {
    may_run: bool,
    records: [Recorded; FLUSHES],
    has_lists: [bool; DATASETS],
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Done { ledger: u32, is_changed: bool },
    After(u8),
    Refused { is_damage: bool },
}

struct FactsOfWorld<'a> {
    scenario: &'a Scenario,
    known: Known,
    /// One that writes in place knows its files before they are listed.
    knows_own: bool,
}

impl Source for FactsOfWorld<'_> {
    type Error = Infallible;

    fn may_run(&mut self) -> Result<bool, Infallible> {
        Ok(self.known.may_run)
    }

    fn recorded(&mut self, by: &By) -> Result<Recorded, Infallible> {
        Ok(self.known.records[flush_of(by)])
    }

    fn other_of_number(&mut self, _: &DatasetDescriptor) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(None)
    }

    /// As `CommonFiles` says it from the lists.
    fn shares(&mut self, id: u64, other: &IndexEntry) -> Result<bool, Infallible> {
        let (own, theirs) = (id as usize - 1, other.id as usize - 1);
        if !self.known.has_lists[theirs] {
            return Ok(!other.complete && other.taken == Some(By::Application));
        }
        let knows_own = self.knows_own || self.known.has_lists[own];
        Ok(knows_own && self.scenario.shares[own] && self.scenario.shares[theirs])
    }
}

fn by(flush: usize) -> By {
    match flush {
        SAVING => By::Saving(1),
        flush => By::Flush(format!("{}.a", flush + 1)),
    }
}

fn flush_of(by: &By) -> usize {
    (0..FLUSHES).find(|&flush| self::by(flush) == *by).expect("a flush of this world")
}

const fn dataset_of(flush: usize) -> usize {
    if flush == SAVING {
        0
    } else {
        flush
    }
}

/// A world, with what was found out about ledgers.
struct World {
    scenario: Scenario,
    datasets: Vec<DatasetDescriptor>,
    programs: [Vec<Op>; ACTORS],
    ledgers: Vec<Ledger>,
    says: Vec<Says>,
    /// The checkpoints that a restart tries, in this order.
    orders: Vec<Rc<Vec<Candidate>>>,
    numbers: HashMap<Vec<u8>, u32>,
    answers: HashMap<(u32, Ask, Known), Answer>,
    starts: HashMap<(Disk, u32), Rc<Start>>,
}

/// The ranks of the first run, and another number.
const FEW: u32 = 1;
const MANY: u32 = 2;

/// The result of a run that starts alone on a disk.
struct Start {
    disk: Disk,
    restart: Option<Restart>,
    named: Vec<usize>,
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let name = |of: usize| if scenario.named_a[of] { b"a".to_vec() } else { b"b".to_vec() };
        let is_of_c_scr = |of: usize| scenario.command == Command::CScr && of == 1;
        let describe = |of: usize| DatasetDescriptor {
            id: of as u64 + 1,
            run: match of {
                of if is_of_c_scr(of) => 0,
                of if of < scenario.second => 1,
                _ => 2,
            },
            name: name(of),
            checkpoint: true,
            created: of as u64 + 1,
            ranks: (!is_of_c_scr(of)).then_some(if of < scenario.second {
                FEW
            } else {
                scenario.ranks.of_second()
            }),
            ..DatasetDescriptor::default()
        };
        let write = |of: usize| if scenario.in_place[of] { Op::InPlace(of) } else { Op::Flush(of) };
        let first = (0..scenario.second).map(write).collect();
        let read = match scenario.reads {
            Reads::GoesBack => vec![Op::MakeCurrent, Op::Leave(Leaving::WentBack)],
            reads => vec![Op::Read(reads)],
        };
        let begin = [Op::Start, Op::EndAll { leave: false }].into_iter().chain(read);
        let second = begin.chain((scenario.second..scenario.end).map(write)).collect();
        let command = match scenario.command {
            Command::None => vec![],
            Command::EndArrived => vec![Op::EndAll { leave: true }],
            Command::Drop => vec![Op::Leave(Leaving::Dropped)],
            Command::DropAndList => vec![Op::Leave(Leaving::Dropped), Op::List(0)],
            Command::Delete => vec![Op::Leave(Leaving::Deleted)],
            Command::CScr => vec![Op::CScr(1)],
            Command::Save => vec![Op::Save],
            Command::DamageAndSave => vec![Op::Damage(0), Op::Save],
        };
        Self {
            scenario,
            datasets: (0..DATASETS).map(describe).collect(),
            programs: [first, second, command],
            ledgers: Vec::new(),
            says: Vec::new(),
            orders: Vec::new(),
            numbers: HashMap::new(),
            answers: HashMap::new(),
            starts: HashMap::new(),
        }
    }

    /// The first run has begun.
    fn first(&mut self) -> State {
        let mut ledger = Ledger::default();
        let prefix = PrefixId::parse(&"0".repeat(32)).expect("an id");
        ledger.apply(&Event::RunBegan { number: 1, prefix, last: 0 });
        ledger.apply(&Event::NextId { first: 1, next: DATASETS as u64 + 1 });
        let mut state =
            State { disk: Disk { ledger: self.number(ledger), ..Disk::default() }, ..State::default() };
        for (actor, program) in state.actors.iter_mut().zip(&self.programs) {
            actor.is_alive = !program.is_empty();
        }
        state.actors[RUN_2].is_alive &= self.scenario.reads != Reads::Never;
        state
    }

    fn number(&mut self, mut ledger: Ledger) -> u32 {
        let mut key = ledger.index.tree_mut().pack();
        key.extend(ledger.ids.tree_mut().pack());
        match self.numbers.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                self.says.push(says(&ledger, &self.datasets));
                self.orders.push(Rc::new(in_order(ledger.index(), None).list));
                self.ledgers.push(ledger);
                *free.insert(self.ledgers.len() as u32 - 1)
            }
        }
    }

    fn ledger(&self, disk: &Disk) -> &Ledger {
        &self.ledgers[disk.ledger as usize]
    }

    /// Asks the real decision, and applies what it says.
    fn ask(&mut self, state: &mut State, ask: Ask) -> Answer {
        let may_run = state.actors[RUN_1].is_alive || self.has_begun(state, RUN_2);
        let Disk { records, has_lists, ledger, .. } = state.disk;
        let known = Known { may_run, records, has_lists };
        let key = (ledger, ask, known);
        let answer = match self.answers.get(&key) {
            Some(&answer) => answer,
            None => {
                let answer = self.decide(ledger, ask, known);
                self.answers.insert(key, answer);
                answer
            }
        };
        if let Answer::Done { ledger, .. } = answer {
            state.disk.ledger = ledger;
        }
        if let (Ask::TakeBack { flush, .. }, Answer::Done { .. }) = (ask, answer) {
            self.revoke(state, flush as usize);
        }
        answer
    }

    /// Whether a run with so many ranks may read a dataset.
    fn may_read(&self, ranks: u32, dataset: usize) -> bool {
        let wrote = self.datasets[dataset].ranks;
        self.scenario.ranks == Ranks::Any || wrote.is_none_or(|wrote| wrote == ranks)
    }

    fn has_begun(&self, state: &State, who: usize) -> bool {
        let actor = &state.actors[who];
        actor.is_alive && (actor.op, actor.step) != (0, 0)
    }

    fn revoke(&self, state: &mut State, flush: usize) {
        let record = &mut state.disk.records[flush];
        if *record == Recorded::UnderWay {
            *record = Recorded::Revoked;
        }
    }

    fn decide(&mut self, ledger: u32, ask: Ask, known: Known) -> Answer {
        let datasets = self.datasets.clone();
        let of = |of: u8| &datasets[of as usize];
        let of_flush = |flush: u8| &datasets[dataset_of(flush as usize)];
        let by = match ask {
            Ask::Take { flush, .. } | Ask::Complete { flush, .. } => self::by(flush as usize),
            Ask::NameAgain(flush) | Ask::TakeBack { flush, .. } | Ask::ReleaseFlush(flush) => {
                self::by(flush as usize)
            }
            _ => By::Application,
        };
        let (by, now, make_current) = (&by, "now", MakeCurrent::IfNewest);
        let closers = ["0", "1", "2"];
        let closer = |number: u8| (number > 0).then(|| closers[number as usize - 1]);
        let named_a = Dropping::Named(b"a");
        let newer = Dropping::CheckpointsAfter(of(0).seq());
        let before = Seq { run: 2, id: self.scenario.second as u64 + 1 };
        let meant = |is_meant: [bool; DATASETS]| -> Vec<Seq> {
            (0..DATASETS).filter(|&of| is_meant[of]).map(|of| datasets[of].seq()).collect()
        };
        let seqs = if let Ask::Withdraw { begun, .. } = ask { meant(begun) } else { Vec::new() };
        let request = match ask {
            Ask::BeginRun => Request::BeginRun { seen: 0 },
            Ask::Begin(it) => Request::Begin(of(it)),
            Ask::BeginInPlace(it) => Request::BeginInPlace(of(it)),
            Ask::Take { flush, closer: number } => {
                Request::TakeNames { dataset: of_flush(flush), by, closer: closer(number) }
            }
            Ask::TakeInPlace(it) => Request::TakeNames { dataset: of(it), by, closer: None },
            Ask::Complete { flush, closer: number } => {
                let dataset = of_flush(flush);
                Request::Complete { dataset, by, closer: closer(number), make_current, now }
            }
            Ask::CompleteInPlace(it) => {
                Request::Complete { dataset: of(it), by, closer: None, make_current, now }
            }
            Ask::NameAgain(flush) => Request::NameAgain { dataset: of_flush(flush), by },
            Ask::TakeBack { flush, even_if_taken } => {
                Request::TakeBack { dataset: of_flush(flush), by, even_if_taken }
            }
            Ask::ReleaseWriter(it) => Request::Release(Whose::Writer(of(it).id)),
            Ask::ReleaseReader => Request::Release(Whose::Reader(2)),
            Ask::ReleaseEarlier => Request::Release(Whose::Earlier { writers: true }),
            Ask::ReleaseFlush(_) => Request::Release(Whose::Ended(by)),
            Ask::ReleaseDeletion => Request::Release(Whose::Ended(&By::Deletion)),
            Ask::Hold(it) => Request::Hold { id: of(it).id, name: &of(it).name, run: 2 },
            Ask::Withdraw { named_a: by_name, .. } => Request::Withdraw {
                seqs: &seqs,
                which: by_name.then_some(named_a),
                alone: None,
                before: None,
            },
            Ask::Drop => Request::Drop { which: named_a, run: 0 },
            Ask::DropNewer => Request::Drop { which: newer, run: 2 },
            Ask::WithdrawNewer => {
                Request::Withdraw { seqs: &[], which: Some(newer), alone: None, before: None }
            }
            Ask::GoBack => Request::GoBack(Between { after: of(0).seq(), before }),
            Ask::MakeCurrent(it) => Request::MakeCurrent(&of(it).name),
            Ask::CScrBegan(it) => {
                return self.change(ledger, &listed(self.ledgers[ledger as usize].index(), of(it)))
            }
            Ask::List(it) => Request::ListWhole { dataset: of(it), make_current, now },
            Ask::BeginDeletion(it) => Request::BeginDeletion { id: of(it).id, run: 0 },
            Ask::EndDeletion(it) => Request::EndDeletion { id: of(it).id },
            Ask::Fetched { dataset, make_current } => {
                Request::Fetched { seq: of(dataset).seq(), name: &of(dataset).name, make_current, now }
            }
            Ask::Fail(it) => Request::Fail { id: of(it).id, name: Some(&of(it).name), now },
            Ask::Refuse(it) => Request::Refuse { seq: of(it).seq(), is_listed: true, alone: None, now },
        };
        let knows_own = matches!(ask, Ask::TakeInPlace(_));
        let before = &self.ledgers[ledger as usize];
        let mut source = FactsOfWorld { scenario: &self.scenario, known, knows_own };
        let Ok(facts) = Facts::of(&mut source, before.index(), &request);
        match decide(before, &facts, &request) {
            Verdict::Commit(events) => self.change(ledger, &events),
            Verdict::After(By::Deletion) => Answer::After(DELETED),
            Verdict::After(by) => Answer::After(flush_of(&by) as u8),
            Verdict::Refused(Refusal::InUse { .. } | Refusal::OtherCloser) => {
                Answer::Refused { is_damage: false }
            }
            Verdict::Refused(_) => Answer::Refused { is_damage: true },
        }
    }

    fn change(&mut self, ledger: u32, events: &[Event]) -> Answer {
        let mut after = self.ledgers[ledger as usize].clone();
        events.iter().for_each(|event| after.apply(event));
        Answer::Done { ledger: self.number(after), is_changed: !events.is_empty() }
    }

    fn progress(&self, state: &State, flush: usize) -> FlushProgress {
        self.ledger(&state.disk).progress(&self.datasets[dataset_of(flush)], &by(flush))
    }

    /// The files of a dataset, each with its place among the staging files.
    fn files_of(&self, dataset: usize) -> impl Iterator<Item = (usize, usize)> {
        let shared = self.scenario.shares[dataset].then_some((1, SHARED));
        [(0, dataset)].into_iter().chain(shared)
    }

    fn is_whole(&self, disk: &Disk, dataset: usize) -> bool {
        self.files_of(dataset).all(|(_, file)| disk.files[file] == Bytes::Of(dataset as u8))
    }

    /// All states that may come next: each actor takes its next step, or dies before it.
    fn next(&mut self, state: &State) -> Vec<State> {
        let mut all: Vec<State> = self.without_power(state).into_iter().collect();
        for who in 0..ACTORS {
            if !state.actors[who].is_alive {
                continue;
            }
            let mut died = *state;
            self.end_actor(&mut died, who);
            all.push(died);
            let mut stepped = *state;
            if self.step(&mut stepped, who) {
                all.push(stepped);
            }
        }
        all
    }

    /// The power fails while names are not synced: each such file has its staging name again.
    fn without_power(&self, state: &State) -> Option<State> {
        if state.disk.unsynced == [0; DATASETS + 1] {
            return None;
        }
        let mut after = *state;
        (0..ACTORS).for_each(|who| self.end_actor(&mut after, who));
        after.lock = 0;
        for flush in 0..FLUSHES {
            for (staging, target) in self.files_of(dataset_of(flush)) {
                if usize::from(after.disk.unsynced[target]) == flush + 1 {
                    after.disk.staged[flush][staging] = std::mem::take(&mut after.disk.files[target]);
                }
            }
        }
        after.disk.unsynced = Default::default();
        Some(after)
    }

    fn end_actor(&self, state: &mut State, who: usize) {
        state.actors[who] = Actor::default();
        if who == RUN_2 {
            state.reads = 0;
        }
    }

    /// Whether the actor could do anything.
    fn step(&mut self, state: &mut State, who: usize) -> bool {
        if state.actors[who].depth > 0 {
            return self.close(state, who);
        }
        match self.programs[who].get(state.actors[who].op as usize) {
            Some(&op) => return self.operate(state, who, op),
            None => {
                if who == RUN_2 {
                    self.ask(state, Ask::ReleaseReader);
                }
                self.end_actor(state, who);
            }
        }
        true
    }

    /// Takes the lock, also of a process that seems dead. False while another one works with it.
    fn lock(&self, state: &mut State, who: usize) -> bool {
        let holder = state.lock;
        if holder == who as u8 + 1 {
            return true;
        }
        if holder > 0 && state.actors[holder as usize - 1].is_alive {
            if state.stale >= self.scenario.stale {
                return false;
            }
            state.stale += 1;
        }
        state.lock = who as u8 + 1;
        true
    }

    fn unlock(&self, state: &mut State, who: usize) {
        if self.has_lock(state, who) {
            state.lock = 0;
        }
    }

    fn has_lock(&self, state: &State, who: usize) -> bool {
        state.lock == who as u8 + 1
    }

    /// The check of a process with the lock.
    fn may_go_on(&self, state: &State, who: usize) -> bool {
        let is_ours = || self.has_lock(state, who);
        expect_lock(Some(&is_ours), Path::new("")).is_ok()
    }

    fn push(&self, state: &mut State, who: usize, flush: u8, why: Why) {
        let actor = &mut state.actors[who];
        let why = if flush == DELETED { Why::Deletion } else { why };
        actor.frames[actor.depth as usize] = Frame { flush, why, ..Frame::default() };
        actor.depth += 1;
    }

    fn pop(&self, state: &mut State, who: usize, outcome: Outcome) -> bool {
        let actor = &mut state.actors[who];
        actor.depth -= 1;
        actor.frames[actor.depth as usize] = Frame::default();
        actor.outcome = outcome;
        if actor.depth == 0 {
            self.unlock(state, who);
        }
        true
    }
}

mod closing;
mod operating;
mod visiting;

/// The statements of a ledger about these datasets.
fn says(ledger: &Ledger, datasets: &[DatasetDescriptor]) -> Says {
    let (index, withdrawn) = (ledger.index(), ledger.withdrawn());
    let entries: Vec<_> = datasets.iter().map(|dataset| index.entry(dataset.id)).collect();
    let each = |is_it: &dyn Fn(&IndexEntry) -> bool| {
        entries.iter().map(|entry| entry.as_ref().is_some_and(is_it)).collect()
    };
    let is_withdrawn = |dataset: &DatasetDescriptor| {
        withdrawn.why(index.seq_of(dataset), &dataset.name, dataset.if_gone_back_over()).is_some()
    };
    Says {
        counts: each(&|entry| entry.is_valid()),
        has_name: each(&|entry| index.id_of(&entry.name) == Some(entry.id)),
        is_withdrawn: datasets.iter().map(is_withdrawn).collect(),
        last_run: ledger.last_run(),
        next_id: ledger.next_id(),
    }
}
