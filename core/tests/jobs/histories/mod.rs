//! Random histories: runs with other settings, on other nodes and from other directories follow each other. They die
//! anywhere, files fail once, nodes are lost and come back with what they had, names are used again, and commands change the
//! index between runs. Whatever happens, a restart hands out, byte for byte, one completed checkpoint of that name, and
//! nothing older than what was promised to be there.
//!
//! A test runs the same few histories every time. `SCR_TEST_HISTORIES=<seed>:<how many>` runs others, and
//! `make torture` runs them for as long as it is asked to. proptest shortens a history that fails, and prints it.

mod history;
mod model;

use history::{Event, Reaction, Run, Settings, Step, Stumble};
use model::Model;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// Nodes that there are; a run takes some of them.
const POOL: usize = 6;

fn settings() -> impl Strategy<Value = Settings> {
    let place = (0..8_usize, 0..10_usize);
    let keeping =
        (prop_oneof![4 => Just("XOR"), 1 => Just("SINGLE"), 2 => Just("PARTNER"), 1 => Just("RS")], 1..3_u8);
    let flushing = (0..4_u8, any::<bool>(), 0..5_u8);
    let rest = (0..6_u8, any::<bool>(), 0..6_u8);
    (place, keeping, flushing, rest).prop_map(|(place, (scheme, keep), (flush, behind, bypass), rest)| {
        Settings {
            other_base: place.0 == 0,
            other_prefix: place.1 == 0,
            scheme,
            keep,
            flush: flush.saturating_sub(1),
            behind,
            bypass: bypass == 0,
            fetch_bypass: rest.0 == 0,
            // Nothing else would find out that a byte has changed.
            sums: rest.1 || scheme == "SINGLE",
            global: rest.2 == 0,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3_u8, any::<bool>()).prop_map(|(name, output)| Step::Checkpoint { name, output: output && name == 0, bad: None }),
        1 => (0..3_u8, 0..4_usize).prop_map(|(name, bad)| Step::Checkpoint { name, output: false, bad: Some(bad) }),
        1 => (0..3_u8).prop_map(|name| Step::Output { name }),
        1 => (0..3_u8).prop_map(|name| Step::Delete { name }),
        1 => (0..3_u8).prop_map(|name| Step::Drop { name }),
        1 => (0..3_u8).prop_map(|name| Step::Current { name }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..POOL).prop_map(Event::Lose),
        1 => any::<prop::sample::Index>().prop_map(Event::Flip),
        1 => any::<prop::sample::Index>().prop_map(Event::Cut),
        1 => (0..3_u8).prop_map(Event::DropFromIndex),
        1 => (0..3_u8).prop_map(Event::MakeCurrent),
    ]
}

fn run() -> impl Strategy<Value = Run> {
    let ranks = prop_oneof![8 => Just(4_usize), 1 => Just(3_usize)];
    let spread = prop_oneof![4 => Just(1_usize), 1 => Just(2_usize)];
    let swaps = prop_oneof![4 => vec((0..4_usize, 0..POOL), 0..1), 3 => vec((0..4_usize, 0..POOL), 1..4)];
    let reaction = prop_oneof![
        8 => Just(Reaction::Take),
        1 => (0..4_usize).prop_map(Reaction::Refuse),
        1 => Just(Reaction::Ignore)
    ];
    let dies =
        prop_oneof![3 => Just(None), 2 => (1..60_u64).prop_map(Some), 3 => (1..500_u64).prop_map(Some)];
    let stumble = |most| (0..4_usize, 1..most);
    let stumbles = prop_oneof![
        6 => Just(None),
        2 => stumble(150_u64).prop_map(|(rank, at)| Some(Stumble { rank, at, reads: false })),
        1 => stumble(500_u64).prop_map(|(rank, at)| Some(Stumble { rank, at, reads: true })),
    ];
    let wants = prop_oneof![9 => Just(None), 1 => (0..3_u8).prop_map(Some)];
    let ends = (any::<bool>(), dies, any::<bool>(), stumbles, wants);
    (settings(), ranks, spread, swaps, reaction, vec(step(), 0..4), ends, vec(event(), 0..2)).prop_map(
        |(
            settings,
            ranks,
            spread,
            swaps,
            reaction,
            steps,
            (finalizes, dies, torn, stumbles, wants),
            after,
        )| {
            let mut order: Vec<usize> = (0..POOL).collect();
            swaps.into_iter().for_each(|(one, other)| order.swap(one, other));
            let nodes = (0..ranks).map(|rank| order[rank / spread]).collect();
            Run { settings, nodes, reaction, steps, finalizes, dies, torn, stumbles, wants, after }
        },
    )
}

fn runner(seed: u64, cases: u32) -> TestRunner {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 3000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[test]
fn no_history_ends_in_a_wrong_restart_or_without_what_was_promised() {
    let asked = std::env::var("SCR_TEST_HISTORIES").ok();
    let (first, many) = asked.as_deref().and_then(|asked| asked.split_once(':')).unwrap_or(("1", "12"));
    let mut runner = runner(first.parse().unwrap(), many.parse().unwrap());
    let lived = runner.run(&vec(run(), 2..7), |runs| {
        let mut model = Model::new();
        for run in &runs {
            model.live(run).map_err(TestCaseError::fail)?;
        }
        model.live(&Run::last(&runs)).map_err(TestCaseError::fail)
    });
    match lived {
        Ok(()) => (),
        Err(TestError::Fail(why, runs)) => {
            let runs: Vec<_> = runs.iter().map(|run| format!("{run:?}")).collect();
            panic!("{why}\n\nthe history:\n{}", runs.join("\n"));
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
