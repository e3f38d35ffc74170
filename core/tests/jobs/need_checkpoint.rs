//! The answers of `SCR_Need_checkpoint` in a job whose checkpoints take time. See docs/user/how-often.md.

use super::world::{Application, World};
use scr_comm::Rank;

fn some(rank: Rank) -> Vec<usize> {
    vec![100 + rank.index()]
}

/// Whether a checkpoint is due after this many more seconds, which pass on rank 0; the others' clocks run far ahead.
fn is_due_after(application: &mut Application, seconds: u64) -> bool {
    application.wait(if application.rank == Rank(0) { seconds } else { 100_000 });
    application.session().need_checkpoint().unwrap()
}

#[test]
fn seconds_count_from_the_end_of_the_last_checkpoint_that_succeeded_on_the_clock_of_rank_0() {
    let world = World::new(2, 2).set("SCR_CHECKPOINT_SECONDS", "1m");
    let outcome = world.run(|application| {
        let first = [59, 1].map(|seconds| is_due_after(application, seconds));
        application.begin(1).unwrap();
        application.wait(50);
        application.fill(1, some).unwrap();
        application.session().complete_output(true).unwrap();
        let second = [59, 1].map(|seconds| is_due_after(application, seconds));
        application.write(2, some).unwrap();
        application.session().complete_output(false).unwrap_err();
        [first, second, [is_due_after(application, 0), is_due_after(application, 59)]]
    });
    outcome.all_gave(&[[false, true], [false, true], [true, true]]);
}

/// The time that the application takes to write counts, from the beginning of the checkpoint to its end.
#[test]
fn a_checkpoint_that_took_long_is_followed_by_one_once_that_is_within_the_overhead() {
    let world = World::new(2, 2).set("SCR_CHECKPOINT_OVERHEAD", "10");
    let outcome = world.run(|application| {
        let first = is_due_after(application, 0);
        application.begin(1).unwrap();
        application.wait(2);
        application.fill(1, some).unwrap();
        application.session().complete_output(true).unwrap();
        // One more, of 2 seconds, is 10 % of the 20 seconds from the end of the last one to its own end.
        let second = [18, 1].map(|seconds| is_due_after(application, seconds));
        application.checkpoint(2, some).unwrap();
        // The average is 1 second now.
        [first, second[0], second[1], is_due_after(application, 9), is_due_after(application, 1)]
    });
    outcome.all_gave(&[true, false, true, false, true]);
}

/// C SCR from version 3.0 on: a program that asks at each step would else write a checkpoint at each step.
#[test]
fn without_settings_no_checkpoint_is_due_and_one_message_says_so() {
    let world = World::new(2, 2);
    let outcome = world.run(|application| [0, 1_000_000].map(|seconds| is_due_after(application, seconds)));
    let said = |lines: &[String]| {
        lines.iter().filter(|line| line.contains("none of SCR_CHECKPOINT_INTERVAL")).count()
    };
    assert_eq!(said(&outcome.lines), 1);
    outcome.all_gave(&[false; 2]);
    let world = world.set("SCR_CHECKPOINT_INTERVAL", "2");
    let outcome = world.run(|application| [0, 1].map(|seconds| is_due_after(application, seconds)));
    assert_eq!(said(&outcome.lines), 0);
    outcome.all_gave(&[false, true]);
}

#[test]
fn whichever_of_the_three_comes_first_makes_a_checkpoint_due() {
    let world = World::new(2, 2).set("SCR_CHECKPOINT_SECONDS", "60").set("SCR_CHECKPOINT_INTERVAL", "3");
    let outcome = world.run(|application| [1, 60, 0, 0].map(|seconds| is_due_after(application, seconds)));
    // By the time; since no checkpoint is taken it stays due.
    outcome.all_gave(&[false, true, true, true]);
    let world = world.set("SCR_CHECKPOINT_SECONDS", "1000");
    let outcome = world.run(|application| [1, 60, 0, 0].map(|seconds| is_due_after(application, seconds)));
    outcome.all_gave(&[false, false, true, false]);
}
