//! Random histories: runs with other settings, on other nodes and from other directories follow each other. They die
//! anywhere, files fail once, nodes are lost and come back with what they had, names are used again, and commands change the
//! index between runs. A restart hands out, byte for byte, one completed checkpoint of that name, whatever happens, and
//! nothing older than what was promised to be there. After each run a copy of the world shows what else could be restarted from.
//!
//! The file system of the prefix directory loses what was not synced when the power fails; nodes lose all, or some pages of
//! each file. A process is stopped in the middle of a change, while another one takes its lock.
//!
//! Each history is drawn from a seed. A test runs the same few every time. `SCR_TEST_HISTORIES=<first seed>:<how many>` runs
//! others, and `make torture` runs new ones for as long as it is asked to. proptest shortens a history that fails, and prints it.

mod history;
mod index;
mod scenes;
mod told;
mod trial;

use history::{Area, Death, Event, Meeting, Outage, Probe, Reaction, Run, Settings, Step, Stumble};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use scenes::{scene, Scene};
use scr_base::env::Link;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use trial::Trial;

/// Nodes that there are; a run takes some of them.
const POOL: usize = 8;

fn settings() -> impl Strategy<Value = Settings> {
    let place = (0..8_usize, 0..10_usize);
    let keeping =
        (prop_oneof![4 => Just("XOR"), 1 => Just("SINGLE"), 2 => Just("PARTNER"), 1 => Just("RS")], 1..3_u8);
    let flushing = (prop_oneof![1 => Just(0_u8), 2 => Just(1), 1 => Just(2)], any::<bool>(), 0..4_u8);
    let sums = (any::<bool>(), 0..4_u8);
    let rest = (0..6_u8, sums, 0..6_u8, 0..6_u8, 0..4_u8);
    (place, keeping, flushing, rest).prop_map(|(place, (scheme, keep), (flush, detached, bypass), rest)| {
        Settings {
            other_base: place.0 == 0,
            other_prefix: place.1 == 0,
            scheme,
            keep,
            flush,
            detached,
            bypass: bypass == 0,
            fetch_bypass: rest.0 == 0,
            // Nothing else would find out that a byte has changed.
            sums: rest.1 .0 || scheme == "SINGLE" || rest.4 == 2,
            flush_sums: rest.1 .1 > 0,
            global: rest.2 == 0,
            window: rest.3.saturating_sub(3),
            drop_after_current: rest.4 == 0,
            aggregate: rest.4 == 1,
            behind: rest.4 == 2,
            any_ranks: false,
            link: Link::InCalls,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3_u8, any::<bool>()).prop_map(|(name, output)| Step::Checkpoint { name, output: output && name == 0, bad: None }),
        1 => (0..3_u8, 0..4_usize).prop_map(|(name, bad)| Step::Checkpoint { name, output: false, bad: Some(bad) }),
        1 => (0..3_u8).prop_map(|name| Step::Output { name }),
        2 => (0..3_u8).prop_map(|name| Step::Delete { name }),
        2 => (0..3_u8).prop_map(|name| Step::Drop { name }),
        1 => (0..3_u8).prop_map(|name| Step::Current { name }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..POOL).prop_map(Event::Lose),
        2 => Just(Event::LoseAll),
        2 => any::<prop::sample::Index>().prop_map(Event::Flip),
        1 => any::<prop::sample::Index>().prop_map(Event::Cut),
        3 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(which, noticed)| Event::FlipInPrefix { which, noticed }),
        1 => (0..3_u8).prop_map(Event::WriteOver),
        1 => (0..3_u8).prop_map(Event::DropFromIndex),
        1 => (0..3_u8).prop_map(Event::MakeCurrent),
    ]
}

/// The failures during a run.
#[derive(Debug, Clone, Default)]
struct Failures {
    dies: Option<Death>,
    stumbles: Option<Stumble>,
    meets: Option<Meeting>,
    outage: Option<Outage>,
}

fn area() -> impl Strategy<Value = Area> {
    prop_oneof![
        3 => Just(Area::All),
        2 => Just(Area::Data),
        2 => Just(Area::Records),
        2 => prop::sample::select(RECORDS).prop_map(Area::Record),
        2 => Just(Area::Cache),
        1 => Just(Area::Filemaps),
        1 => Just(Area::First),
    ]
}

const RECORDS: &[&str] = &["index.scr", "flush.scr", "ids.scr", "summary.scr", "rank2file.scr"];

/// One of the first operations, or any.
fn operation() -> impl Strategy<Value = u64> {
    prop_oneof![1 => 1..8_u64, 2 => 1..20_u64, 2 => 1..80_u64, 1 => 1..500_u64]
}

fn death() -> impl Strategy<Value = Death> {
    (operation(), area(), any::<bool>()).prop_map(|(at, area, torn)| Death { at, area, torn })
}

/// How often an operation is tried that fails with an error that may pass.
const TRIES: u64 = 4;

fn stumble() -> impl Strategy<Value = Stumble> {
    let many = prop_oneof![4 => Just(1_u64), 3 => 2..9_u64, 1 => Just(u64::MAX)];
    let rank = prop_oneof![2 => Just(0_usize), 3 => 0..4_usize];
    let kind = (any::<bool>(), any::<bool>(), any::<bool>());
    let somewhere =
        (rank, operation(), many, area(), kind).prop_map(|(rank, at, many, area, (reads, passes, tears))| {
            // What may pass is tried again: so it lasts until the last try, but for the shortest.
            let many = if passes && (many > 1 || tears) { many.saturating_mul(TRIES) } else { many };
            Stumble { rank, at, many, reads, area, passes, tears }
        });
    let kind = (any::<bool>(), any::<bool>());
    let one_file = (1..4_usize, 0..2_usize, kind).prop_map(|(rank, number, (reads, passes))| {
        let area = Area::File(rank, number);
        Stumble { rank: 0, at: 1, many: u64::MAX, reads, area, passes, tears: false }
    });
    prop_oneof![5 => somewhere, 1 => one_file]
}

fn failures() -> impl Strategy<Value = Failures> {
    let meeting = || (1..80_u64).prop_map(|at| Meeting { at });
    let outage = || (any::<u64>(), any::<bool>()).prop_map(|(seed, disks)| Outage { seed, disks });
    let several = (
        prop::option::weighted(0.5, death()),
        prop::option::weighted(0.4, stumble()),
        prop::option::weighted(0.2, meeting()),
        prop::option::weighted(0.3, outage()),
    );
    prop_oneof![
        4 => Just(Failures::default()),
        3 => (death(), prop::option::weighted(0.2, outage()))
            .prop_map(|(dies, outage)| Failures { dies: Some(dies), outage, ..Failures::default() }),
        4 => stumble().prop_map(|stumble| Failures { stumbles: Some(stumble), ..Failures::default() }),
        1 => meeting().prop_map(|meeting| Failures { meets: Some(meeting), ..Failures::default() }),
        1 => outage().prop_map(|outage| Failures { outage: Some(outage), ..Failures::default() }),
        2 => several.prop_map(|(dies, stumbles, meets, outage)| Failures { dies, stumbles, meets, outage }),
    ]
}

fn run() -> impl Strategy<Value = Run> {
    let ranks = prop_oneof![8 => Just(4_usize), 1 => Just(3_usize)];
    let spread = prop_oneof![4 => Just(1_usize), 1 => Just(2_usize)];
    let swaps = prop_oneof![4 => vec((0..4_usize, 0..POOL), 0..1), 3 => vec((0..4_usize, 0..POOL), 1..4)];
    let elsewhere = prop_oneof![4 => Just(false), 1 => Just(true)];
    let swaps = (swaps, elsewhere);
    let reaction = prop_oneof![
        8 => Just(Reaction::Take),
        2 => (0..4_usize).prop_map(Reaction::Refuse),
        1 => Just(Reaction::Ignore)
    ];
    let wants = prop_oneof![4 => Just(None), 1 => (0..3_u8).prop_map(Some)];
    let probe = prop_oneof![
        3 => Just(Probe::Here { lost: None }),
        2 => (0..4_usize).prop_map(|rank| Probe::Here { lost: Some(rank) }),
        1 => Just(Probe::Before),
        2 => Just(Probe::Later { wants: None }),
        2 => (0..3_u8).prop_map(|name| Probe::Later { wants: Some(name) }),
    ];
    let ends = (any::<bool>(), failures(), wants, probe);
    let all = (settings(), ranks, spread, swaps, reaction, vec(step(), 0..5), ends, vec(event(), 0..3));
    all.prop_map(|(settings, ranks, spread, (swaps, elsewhere), reaction, steps, ends, after)| {
        let mut order: Vec<usize> = (0..POOL).collect();
        swaps.into_iter().for_each(|(one, other)| order.swap(one, other));
        if elsewhere {
            order.rotate_left(POOL / 2);
        }
        let nodes = (0..ranks).map(|rank| order[rank / spread]).collect();
        let (finalizes, Failures { dies, stumbles, meets, outage }, wants, probe) = ends;
        Run {
            settings,
            nodes,
            reaction,
            steps,
            finalizes,
            dies,
            stumbles,
            meets,
            outage,
            wants,
            after,
            probe,
        }
    })
}

/// A run of another number of ranks than was drawn first.
#[derive(Debug, Clone, Copy)]
struct Resized {
    /// Whether the application can restart with any number of ranks.
    any_ranks: bool,
    ranks: Option<usize>,
    /// The number of ranks that come after it.
    probe: Option<usize>,
}

impl Resized {
    fn change(self, run: &mut Run) {
        run.settings.any_ranks = self.any_ranks;
        run.nodes = self.ranks.map_or_else(|| run.nodes.clone(), |ranks| run.nodes_of(ranks));
        run.probe = self.probe.map_or(run.probe, Probe::Ranks);
    }
}

fn resized() -> impl Strategy<Value = Resized> {
    let some = || prop_oneof![1 => Just(None), 3 => (1..7_usize).prop_map(Some)];
    let any_ranks = prop_oneof![9 => Just(true), 1 => Just(false)];
    (any_ranks, some(), some()).prop_map(|(any_ranks, ranks, probe)| Resized { any_ranks, ranks, probe })
}

/// Most runs of a history are set alike. A scene may come first. In some histories the number of ranks changes. In some the
/// threads of ranks talk over TCP, as they do under MPI; the others are sooner done.
fn history() -> impl Strategy<Value = Vec<Run>> {
    let changes = prop_oneof![3 => Just(false), 1 => Just(true)];
    let begins = prop::option::weighted(0.7, scene());
    let resizes = prop::option::weighted(0.4, vec(resized(), 6));
    let link = prop_oneof![1 => Just(Link::InCalls), 1 => Just(Link::Tcp)];
    let all = (settings(), vec((changes, run()), 2..6), begins, resizes, link);
    all.prop_map(|(common, runs, begins, resizes, link)| {
        let set = |(changes, run): (bool, Run)| match changes {
            true => run,
            false => Run { settings: common.clone(), ..run },
        };
        let mut runs: Vec<Run> = runs.into_iter().map(set).collect();
        begins.into_iter().for_each(|scene: Scene| scene.stage(&mut runs));
        let resizes = resizes.into_iter().flatten();
        runs.iter_mut().zip(resizes).for_each(|(run, resized): (_, Resized)| resized.change(run));
        runs.iter_mut().for_each(|run| run.settings.link = link);
        runs
    })
}

/// The history of a seed, and what draws and shortens it.
fn drawn(seed: u64) -> (TestRunner, impl ValueTree<Value = Vec<Run>>) {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 3000,
        max_shrink_time: MOST_SHRINKING,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let history = history().new_tree(&mut runner).expect("a history can be drawn");
    (runner, history)
}

/// Runs a history, and checks after each run what was promised.
fn check_history(runs: &[Run]) -> Result<(), String> {
    let mut trial = Trial::new();
    runs.iter().try_for_each(|run| trial.check_run(run))
}

/// The first of this many seeds whose history fails, and why. Several histories run at a time, as their ranks wait most of it.
fn first_failing(first: u64, many: u64) -> Option<(u64, String)> {
    let (next, failing) = (AtomicU64::new(first), Mutex::new(None::<(u64, String)>));
    let found = || failing.lock().unwrap_or_else(PoisonError::into_inner);
    let is_wanted =
        |seed: u64| seed < first + many && found().as_ref().is_none_or(|(least, _)| seed < *least);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if !is_wanted(seed) {
                    return;
                }
                let runs = drawn(seed).1.current();
                let ended = catch_unwind(AssertUnwindSafe(|| check_history(&runs)));
                let failed = ended.unwrap_or_else(|_| Err("it panics".to_owned())).err();
                let mut found = found();
                if let Some(why) = failed.filter(|_| found.as_ref().is_none_or(|(least, _)| seed < *least)) {
                    *found = Some((seed, why));
                }
            });
        }
    });
    failing.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A history that fails is shortened and printed.
fn expect_none_fails(first: u64, many: u64) {
    let Some((seed, why)) = first_failing(first, many) else { return };
    println!("the history of seed {seed} fails, and is made shorter: {why}");
    let (mut runner, history) = drawn(seed);
    let check = |runs: Vec<Run>| (0..MOST_RUNS).try_for_each(|_| check_history(&runs));
    match runner.run_one(history, |runs| check(runs).map_err(TestCaseError::fail)) {
        Err(TestError::Fail(why, runs)) => {
            let runs: Vec<_> = runs.iter().map(|run| format!("{run:?}")).collect();
            panic!("the history of seed {seed} fails: {why}\n\nthe history:\n{}", runs.join("\n"));
        }
        _ => panic!("the history of seed {seed} fails, though not always: {why}"),
    }
}

/// A history that fails is made shorter for at most this many milliseconds.
const MOST_SHRINKING: u32 = 120_000;

/// Some fail only now and then.
const MOST_RUNS: u32 = 8;

/// The number of histories that run at the same time.
const AT_A_TIME: usize = 24;

#[test]
fn no_history_ends_in_a_wrong_restart_or_without_what_was_promised() {
    let asked = std::env::var("SCR_TEST_HISTORIES").ok();
    let (first, many) = asked.as_deref().and_then(|asked| asked.split_once(':')).unwrap_or(("1", "12"));
    let (first, many): (u64, u64) = (first.parse().unwrap(), many.parse().unwrap());
    expect_none_fails(first, many);
}

/// `scripts/torture.sh` adds the seeds that have failed to the file.
#[test]
#[ignore = "long"]
fn histories_that_have_failed_before_do_not_fail_again() {
    let seeds = include_str!("regressions").lines().filter(|line| !line.starts_with('#'));
    seeds.for_each(|seed| expect_none_fails(seed.parse().expect("a line is a seed or a comment"), 1));
}
