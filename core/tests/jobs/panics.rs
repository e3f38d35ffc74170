//! A panic of one rank, as of a defect, holds up no other rank and costs no checkpoint.
//!
//! One rank panics at the n-th file operation of a job, for every n, in the call or in a thread of its own. Whatever the others
//! do then, they return from every call. The next run restarts from the newest checkpoint that was complete on all ranks, or a
//! newer one that is whole, with every byte right.

use super::crash::{checkpoints, nothing, restart_and_go_on, restarts, two_checkpoints, XOR};
use super::world::{Application, World};
use scr_base::env::Link;
use scr_base::fs::RealFiles;
use scr_test_kit::faulty::FaultyFiles;
use scr_test_kit::moments;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

/// A rank that waits for another one waits for ever. All of this takes a second.
const LIMIT: Duration = Duration::from_secs(120);

type Settings = &'static [(&'static str, &'static str)];

/// Lets one rank panic at one operation of `life` after another, in a world that `before` has prepared, with a checkpoint
/// of step `least`.
fn at_operations(settings: Settings, before: fn(&mut World), least: u64, life: fn(&mut Application) -> u64) {
    let world = || {
        let world = World::new(XOR.ranks, XOR.nodes);
        let mut world = settings.iter().fold(world, |world, (name, value)| world.set(name, value));
        before(&mut world);
        world
    };
    let faulty = FaultyFiles::new(RealFiles);
    let mut good = world();
    good.files = Arc::new(faulty.clone());
    good.run(life);
    let all = faulty.mutations();
    assert!(all > 20, "the good run did {all} operations");
    for at in moments(all, 10) {
        let (done, wait) = channel();
        let world = world();
        let one = std::thread::spawn(move || {
            panics_at(world, at, least, life);
            let _ = done.send(());
        });
        if wait.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            panic!("after a panic at operation {at} of {all} some rank does not return");
        }
        one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn panics_at(mut world: World, at: u64, least: u64, life: fn(&mut Application) -> u64) {
    let faulty = FaultyFiles::new(RealFiles);
    faulty.panic_at(at);
    world.files = Arc::new(faulty.clone());
    let run = || {
        world.try_run(|application| {
            // What it said was complete was so on all ranks.
            let life = AssertUnwindSafe(|| application.map_or(0, |mut application| life(&mut application)));
            catch_unwind(life).ok()
        })
    };
    // A panic while the session begins ends the run, and nothing is complete then.
    let (ranks, lines) = catch_unwind(AssertUnwindSafe(run))
        .map_or_else(|_| Default::default(), |ended| (ended.ranks, ended.lines));
    let safe = ranks.iter().flatten().min().copied().unwrap_or(0).max(least);
    (world.files, world.link) = (Arc::new(RealFiles), Link::InCalls);
    let context = format!("panic at {at}, {:?}", faulty.operations().get(at as usize - 1));
    restarts(&world, safe, 1, &format!("{context}\n{}", lines.join("\n")));
}

#[test]
fn a_panic_in_a_checkpoint_that_is_flushed_holds_up_no_other_rank() {
    at_operations(&[("SCR_FLUSH", "1")], nothing, 0, |application| checkpoints(application, 1..=2));
}

#[test]
fn a_panic_in_an_asynchronous_flush_holds_up_no_other_rank() {
    let settings = &[("SCR_FLUSH", "1"), ("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "PTHREAD")];
    at_operations(settings, nothing, 0, |application| checkpoints(application, 1..=3));
}

#[test]
fn a_panic_in_a_checkpoint_that_is_protected_in_threads_holds_up_no_other_rank() {
    let before = |world: &mut World| world.link = Link::Tcp;
    at_operations(&[("SCR_ENCODE_ASYNC", "1")], before, 0, |application| checkpoints(application, 1..=3));
}

#[test]
fn a_panic_in_a_restart_that_rebuilds_a_lost_node_holds_up_no_other_rank() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.lose("n1");
    };
    at_operations(&[], before, 2, restart_and_go_on);
}

#[test]
fn a_panic_in_a_restart_that_fetches_a_checkpoint_holds_up_no_other_rank() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.lose("");
    };
    at_operations(&[("SCR_FLUSH", "1")], before, 2, restart_and_go_on);
}
