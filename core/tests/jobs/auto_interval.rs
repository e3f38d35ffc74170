//! `SCR_CHECKPOINT_INTERVAL=AUTO` in a job on a clock of its own: when checkpoints are due, and which are flushed.

use super::world::{Application, World, SECONDS_OF_A_RUN};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_plan::{Experience, Kind, Stated};
use scr_prefix::ledger::LedgerDir;
use scr_prefix::Prefix;

fn some(rank: Rank) -> Vec<usize> {
    vec![100 + rank.index()]
}

const STEP: u64 = 10;
const DAY: f64 = 86_400.0;

fn job() -> World {
    let world = World::new(4, 2)
        .set("SCR_COPY_TYPE", "PARTNER")
        .set("SCR_CHECKPOINT_INTERVAL", "auto")
        .unset("SCR_FLUSH");
    world.set("SCR_MTBF_NODE", "1d").set("SCR_MTBF_SYSTEM", "10d")
}

/// Computes in steps until this many seconds have passed, and writes a checkpoint of `cost` seconds whenever one is due. Gives
/// the seconds of computing before each of them.
fn compute(application: &mut Application, seconds: u64, cost: u64, number: &mut u64) -> Vec<u64> {
    let (mut gaps, mut since, mut passed) = (Vec::new(), 0, 0);
    while passed < seconds {
        application.wait(STEP);
        (since, passed) = (since + STEP, passed + STEP);
        if application.session().need_checkpoint().unwrap() {
            *number += 1;
            application.begin(*number).unwrap();
            application.wait(cost);
            passed += cost;
            application.fill(*number, some).unwrap();
            application.session().complete_output(true).unwrap();
            gaps.push(std::mem::take(&mut since));
        }
    }
    gaps
}

/// The planned interval where a checkpoint takes this many seconds, after some without a failure.
fn planned(cost: f64, seconds: f64) -> f64 {
    let kinds = vec![Kind { checkpoint: cost, protects: true, every: 1 }];
    let job = Experience { kinds, flush: cost, restart: 60.0, fetch: 60.0, seconds, ..Experience::default() };
    let stated = Stated { node: DAY, system: 10.0 * DAY, nodes: 2 };
    job.plan(&stated, Some(10)).unwrap().interval
}

#[test]
fn the_interval_follows_from_what_checkpoints_cost_and_changes_when_they_become_dearer() {
    let world = job().set("SCR_DEBUG", "1");
    let outcome = world.run(|application| {
        let mut number = 0;
        [2, 32].map(|cost| compute(application, 20_000, cost, &mut number))
    });
    let [cheap, dear] = &outcome.ranks[0];
    assert_eq!(cheap[0], STEP, "the first one says what they cost");
    let is_near = |gap: u64, best: f64| (gap as f64 - best).abs() <= STEP as f64 + 0.2 * best;
    assert!(
        cheap[1..].iter().all(|&gap| is_near(gap, planned(2.0, 0.0))),
        "{cheap:?} beside {}",
        planned(2.0, 0.0)
    );
    assert!(
        is_near(*dear.last().unwrap(), planned(32.0, 20_000.0)),
        "{dear:?} beside {}",
        planned(32.0, 20_000.0)
    );
    assert!(planned(32.0, 20_000.0) > 3.0 * planned(2.0, 0.0));
    outcome.line_with(&["checkpoint interval: ", "s of computing", "a checkpoint costs 2.000 s"]);
}

#[test]
fn one_is_due_before_the_allocation_ends() {
    let end = 3000;
    let world = job();
    let world = world.set("SCR_END_TIME", &(SECONDS_OF_A_RUN + end).to_string());
    let outcome = world.run(|application| {
        let mut number = 0;
        // Failures are rare here, and the interval is long.
        compute(application, end - 30, 20, &mut number)
    });
    let gaps = &outcome.ranks[0];
    let unsaved = end - gaps.iter().map(|gap| gap + 20).sum::<u64>();
    assert!((40..=100).contains(&unsaved), "{unsaved} s before the end: {gaps:?}");
}

/// Flushes cost nothing on the clock of the test, so the plan has all flushed once that is known.
#[test]
fn a_setting_of_the_user_says_which_checkpoints_are_flushed_and_else_the_plan_does() {
    let flushed = |world: &World| {
        world.run(|application| compute(application, 20_000, 2, &mut 0));
        let index = LedgerDir::new(&RealFiles, &Prefix::new(world.prefix())).index().unwrap();
        let mut ids: Vec<u64> = index.entries().iter().map(|entry| entry.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(flushed(&job().set("SCR_FLUSH", "3"))[..3], [3, 6, 9]);
    assert_eq!(flushed(&job())[..3], [10, 11, 12]);
}

/// A run that died counts, and one that was to end does not.
#[test]
fn failures_of_earlier_runs_make_the_interval_shorter() {
    let intervals = [false, true].map(|dies| {
        let world = job().set("SCR_DEBUG", "1");
        for _ in 0..4 {
            world.run(|application| {
                compute(application, 500, 2, &mut 0);
                if !dies {
                    application.finalize().unwrap();
                }
            });
        }
        let run = world.run(|application| compute(application, 2000, 2, &mut 100));
        let failures = if dies { "failures so far: 4" } else { "failures so far: 0" };
        run.line_with(&["checkpoint interval: ", failures]);
        run.ranks[0][1]
    });
    assert!(intervals[1] < intervals[0], "{intervals:?}");
}
