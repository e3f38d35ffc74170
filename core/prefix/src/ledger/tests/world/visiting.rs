//! Visits every state of a world, breadth first, and checks the promises in each.

use super::{
    Actor, Command, Disk, Fate, Instant, Promise, Ranks, Rc, Reads, Recorded, Restart, Scenario, Start,
    State, VecDeque, View, World, DATASETS, FLUSHES, RUN_2,
};
use scr_base::parallel::at_a_time;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZero;

/// A promise that is broken, and how it came to that.
struct Broken {
    promise: Promise,
    way: Vec<State>,
}

impl World {
    /// The number of states, or the first in which a promise is broken.
    fn visit(&mut self) -> Result<usize, Box<Broken>> {
        let first = self.first();
        let (mut seen, mut states) = (HashSet::from([key_of(&first)]), vec![(first, 0)]);
        let (mut queue, mut fates) = (VecDeque::from([0]), self.fates());
        while let Some(number) = queue.pop_front() {
            let (state, _) = states[number];
            if let Some(promise) = self.broken(&state, &mut fates) {
                let mut way = vec![state];
                let mut at = number;
                while at > 0 {
                    at = states[at].1;
                    way.insert(0, states[at].0);
                }
                return Err(Box::new(Broken { promise, way }));
            }
            for next in self.next(&state) {
                if seen.insert(key_of(&next)) {
                    queue.push_back(states.len());
                    states.push((next, number));
                }
            }
        }
        Ok(states.len())
    }

    fn fates(&self) -> Vec<Fate> {
        let fate = |of: usize| {
            let others = (0..DATASETS).filter(move |&other| other != of);
            let is_named_so = |other: &usize| self.scenario.named_a[*other] == self.scenario.named_a[of];
            let shares = |other: &usize| self.scenario.shares[*other] && self.scenario.shares[of];
            Fate {
                run: self.datasets[of].run,
                named_so: others.clone().filter(is_named_so).collect(),
                rivals: others.filter(|other| is_named_so(other) || shares(other)).collect(),
                ..Fate::default()
            }
        };
        (0..DATASETS).map(fate).collect()
    }

    fn broken(&mut self, state: &State, fates: &mut [Fate]) -> Option<Promise> {
        let told = &state.told;
        for (of, fate) in fates.iter_mut().enumerate() {
            fate.is_complete = told.complete[of];
            let flushes = (0..FLUSHES).filter(|&flush| super::dataset_of(flush) == of);
            fate.has_two_ends = flushes.clone().any(|flush| told.completed[flush] && told.taken_back[flush]);
            fate.is_being_dropped = told.dropping[of];
            fate.is_gone = told.gone[of];
            fate.is_refused = told.refused[of];
            fate.is_given_over = told.given_over[of];
            fate.is_damaged = told.damaged[of];
            fate.has_arrived = told.arrived[of];
            fate.is_whole = self.is_whole(&state.disk, of);
            fate.is_read = usize::from(state.reads) == of + 1;
        }
        let mut numbers = vec![super::FEW];
        if self.scenario.ranks != Ranks::Same {
            numbers.push(super::MANY);
        }
        numbers.into_iter().find_map(|ranks| self.broken_for(state, fates, ranks))
    }

    /// A promise that is broken to the user of a run with so many ranks.
    fn broken_for(&mut self, state: &State, fates: &mut [Fate], ranks: u32) -> Option<Promise> {
        for (of, fate) in fates.iter_mut().enumerate() {
            fate.is_readable = self.may_read(ranks, of);
        }
        let told = &state.told;
        let start = self.start_alone(&state.disk, ranks);
        let (now, after) = (&self.says[state.disk.ledger as usize], &self.says[start.disk.ledger as usize]);
        let restart = match told.wrong {
            true => Some(Restart { dataset: 0, is_whole: false }),
            false => start.restart,
        };
        let is_any_left = start.disk.records.iter().any(|record| *record != Recorded::Nothing);
        let view = View { now, fates, restart, named: &start.named, after, is_any_left };
        Promise::ALL.iter().copied().find(|promise| !promise.is_kept(&view))
    }

    /// A run with so many ranks that starts while nothing else lives.
    fn start_alone(&mut self, disk: &Disk, ranks: u32) -> Rc<Start> {
        if let Some(known) = self.starts.get(&(*disk, ranks)) {
            return known.clone();
        }
        let mut state = State { disk: *disk, ..State::default() };
        state.actors[RUN_2] = Actor { is_alive: true, ..Actor::default() };
        while state.actors[RUN_2].op < 2 {
            assert!(self.step(&mut state, RUN_2), "nothing else has the lock");
        }
        let ended = state.disk;
        let order = self.orders[ended.ledger as usize].clone();
        let chosen = self.choose(&mut state, 0, ranks).map(usize::from);
        let tried = order.iter().map(|candidate| candidate.seq.id as usize - 1);
        let named = tried.take_while(|tried| Some(*tried) != chosen).collect();
        let restart = chosen.map(|dataset| Restart { dataset, is_whole: self.is_whole(&ended, dataset) });
        let start = Rc::new(Start { disk: ended, restart, named });
        self.starts.insert((*disk, ranks), start.clone());
        start
    }

    /// The way to a broken promise, a line for each state.
    fn account(&self, broken: &Broken) -> String {
        let line = |state: &State| {
            let ledger = self.ledger(&state.disk).index();
            let entry = |entry: &super::IndexEntry| {
                let (by, closer) = (entry.taken.clone(), entry.superseded);
                format!(
                    "{}{}{by:?}{}",
                    entry.id,
                    if entry.complete { "+" } else { "-" },
                    if closer { "s" } else { "" }
                )
            };
            let actor = |actor: &Actor| match actor.is_alive {
                false => "dead".to_owned(),
                true => {
                    let frames = actor.frames[..actor.depth as usize].iter();
                    let frames: Vec<_> = frames
                        .map(|frame| format!("{}{:?}@{:?}", frame.flush, frame.why, frame.at))
                        .collect();
                    format!("{}.{} {}", actor.op, actor.step, frames.join(">"))
                }
            };
            let entries: Vec<_> = ledger.entries().iter().map(entry).collect();
            let actors: Vec<_> = state.actors.iter().map(actor).collect();
            format!(
                "{actors:?} lock {} | {entries:?} files {:?} records {:?} marks {:?} staged {:?} over {}",
                state.lock,
                state.disk.files,
                state.disk.records,
                state.disk.is_marked,
                state.disk.staged,
                state.disk.overwritten
            )
        };
        let way: Vec<_> = broken.way.iter().map(line).collect();
        format!(
            "broken: {:?}: {}\n{:?}\ntold: {:?}\n{}",
            broken.promise,
            broken.promise.text(),
            self.scenario,
            broken.way.last().map(|state| state.told),
            way.join("\n")
        )
    }
}

fn key_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

const ALONE: Scenario = Scenario {
    named_a: [true; DATASETS],
    in_place: [false; DATASETS],
    shares: [true; DATASETS],
    second: 1,
    end: DATASETS,
    reads: Reads::Fetches,
    ranks: Ranks::Same,
    recovers: false,
    command: Command::None,
    has_sums: true,
    may_lose_power: false,
    stale: 1,
};

/// All pairs of kinds and names, each with one command or one way to read.
fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let kinds = [[false; 3], [false, true, false], [true, false, true], [false, false, true]];
    let names = [[true; 3], [true, false, true], [true, true, false]];
    for named_a in names {
        for in_place in kinds {
            all.push(Scenario { named_a, in_place, ..ALONE });
        }
    }
    let commands = [
        Command::EndArrived,
        Command::Drop,
        Command::DropAndList,
        Command::Delete,
        Command::Save,
        Command::DamageAndSave,
    ];
    all.extend(commands.map(|command| Scenario {
        command,
        end: 1,
        stale: u8::from(matches!(command, Command::EndArrived | Command::Save | Command::DamageAndSave)),
        ..ALONE
    }));
    let of_one = [Command::Delete, Command::Save];
    all.extend(of_one.map(|command| Scenario { command, second: 2, end: 2, stale: 0, ..ALONE }));
    let (named_a, shares) = ([true, false, true], [false; DATASETS]);
    all.push(Scenario { named_a, shares, reads: Reads::MissesNewest, second: 2, stale: 0, ..ALONE });
    let (reads, command) = (Reads::Never, Command::DropAndList);
    all.push(Scenario { reads, command, second: 2, end: 2, stale: 0, ..ALONE });
    let reads = [Reads::InPlace, Reads::Refuses];
    all.extend(reads.map(|reads| Scenario { reads, second: 2, ..ALONE }));
    all.push(Scenario { reads: Reads::GoesBack, second: 2, stale: 0, ..ALONE });
    all.push(Scenario { in_place: [false, true, false], named_a, has_sums: false, stale: 0, ..ALONE });
    // Names differ, as `SCR_Start_output` refuses one that another number of ranks has, and a file that both have is the newer
    // one's.
    let (named_a, shares) = ([true, false, false], [false; DATASETS]);
    let of_own = Scenario { named_a, shares, ranks: Ranks::Others, ..ALONE };
    let of_any = Scenario { ranks: Ranks::Any, ..ALONE };
    for reads in [Reads::Fetches, Reads::Refuses] {
        all.extend([of_own, of_any].map(|of| Scenario { reads, end: 2, ..of }));
    }
    for in_place in kinds {
        all.extend([of_own, of_any].map(|of| Scenario { in_place, stale: 0, ..of }));
    }
    all.push(Scenario { reads: Reads::InPlace, second: 2, stale: 0, ..of_any });
    for of in [ALONE, of_own, of_any] {
        all.push(Scenario { recovers: true, ..of });
    }
    all.push(Scenario { may_lose_power: true, second: 2, stale: 0, ..ALONE });
    all.push(Scenario { may_lose_power: true, end: 2, stale: 1, ..ALONE });
    for has_sums in [true, false] {
        let (reads, command) = (Reads::Never, Command::CScr);
        all.push(Scenario { reads, command, named_a, has_sums, end: 1, stale: 0, ..ALONE });
    }
    all
}

#[test]
fn every_promise_is_kept_in_every_state_of_the_small_world() {
    visit_all(&scenarios());
}

/// A command beside two datasets of two runs, and a lock that is lost in each.
#[test]
#[ignore = "it takes minutes"]
fn every_promise_is_kept_in_every_state_of_a_wider_world() {
    let commands = [Command::EndArrived, Command::Delete, Command::Drop, Command::Save];
    visit_all(&commands.map(|command| Scenario { command, end: 2, ..ALONE }));
}

fn visit_all(scenarios: &[Scenario]) {
    let began = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let states = at_a_time(u32::try_from(processors).unwrap(), scenarios, |&scenario| {
        let mut world = World::new(scenario);
        world.visit().unwrap_or_else(|broken| panic!("{}", world.account(&broken)))
    });
    let states: usize = states.into_iter().sum();
    println!("{states} states in {:.1} s", began.elapsed().as_secs_f64());
}
