//! Any error of the system at any operation, once or from then on: a run never reads wrong bytes, never hangs, never begins at
//! zero over good checkpoints, and leaves those for the run that follows.
//!
//! Each case fetches, restarts, writes a checkpoint, flushes it and ends, in a world of its own. `SCR_TEST_EVERY_FAULT` takes all
//! cases at several places; without it, a sample is taken that is the same each time.

use super::world::World;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_test_kit::faulty::{Failure, FaultyFiles, What};
use scr_test_kit::takes_all;
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::time::Duration;

fn some(rank: Rank) -> Vec<usize> {
    vec![1500 + 7 * rank.index(), 3]
}

const NOENT: i32 = 2;

/// Errors that say something about the file, by their numbers on Linux.
const DEFINITE: [i32; 14] = [1, NOENT, 12, 13, 20, 21, 22, 24, 28, 30, 36, 38, 95, 122];
/// Errors that say nothing about it: EINTR, EIO, EAGAIN, EBUSY, ECOMM, ENOTCONN, ESHUTDOWN, ETIMEDOUT, EHOSTDOWN, ESTALE,
/// EREMOTEIO, and one without a name.
const PASSING: [i32; 12] = [4, 5, 11, 16, 70, 107, 108, 110, 112, 116, 121, 529];

/// Operation, error, whether it fails for ever, and the place as a part of a hundred of all such operations.
type Case = (What, i32, bool, u64);

/// Two checkpoints in the prefix directory, and none in cache.
fn flushed() -> World {
    let world = World::new(2, 2).set("SCR_FLUSH", "1").set("SCR_COPY_TYPE", "SINGLE");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    lose(&world);
    world
}

fn lose(world: &World) {
    (0..2).for_each(|node| drop(std::fs::remove_dir_all(world.node(&format!("n{node}")))));
}

fn faulty(what: What) -> FaultyFiles {
    let files = FaultyFiles::new(RealFiles);
    files.only(move |done, path| done == what && !path.starts_with("/proc") && !path.starts_with("/sys"));
    files.count_all();
    files.never_pause();
    files
}

/// The step that each rank restarts from, or why it does not; and whether what it wrote then is safe.
fn life(world: &World) -> Vec<Result<(Option<u64>, bool), String>> {
    let outcome = world.try_run(|begun| {
        let mut application = begun.map_err(|error| error.to_string())?;
        let found = application.try_restart(some).map_err(|error| error.to_string())?;
        let written = application.checkpoint(3, some);
        Ok((found, written.is_ok() & application.finalize().is_ok()))
    });
    outcome.ranks
}

fn check(case: Case, operations: u64) {
    let (what, number, always, part) = case;
    let mut world = flushed();
    let files = faulty(what);
    let at = 1 + operations * part / 100;
    files.fail_for(at, if always { u64::MAX } else { 1 }, Failure::Number(number));
    world.files = Arc::new(files.clone());
    let ranks = life(&world);
    let context = || format!("{case:?} at {at} of {operations}: {ranks:?}, first {:?}", files.first_failed());
    let begun = |rank: &Result<(Option<u64>, bool), String>| rank.as_ref().ok().map(|(found, _)| *found);
    assert!(ranks.windows(2).all(|two| begun(&two[0]) == begun(&two[1])), "{}", context());
    let begun = begun(&ranks[0]);
    assert_ne!(begun, Some(None), "it begins at zero: {}", context());
    if PASSING.contains(&number) && !always {
        let may_fail = matches!(what, What::Sync | What::SyncDir | What::Write | What::Append);
        assert!(begun == Some(Some(2)) || may_fail, "one error that passes: {}", context());
    }
    lose(&world);
    world.files = Arc::new(RealFiles);
    let after = world.run(|application| application.restart(some)).ranks;
    assert!(
        after.iter().all(|step| *step == after[0] && step.is_some_and(|step| step >= 2)),
        "{after:?} after {}",
        context()
    );
}

fn cases() -> Vec<Case> {
    let is_long = takes_all();
    let numbers = || PASSING.into_iter().chain(DEFINITE);
    let all = What::ALL.into_iter().flat_map(|what| numbers().map(move |number| (what, number)));
    let all = all.flat_map(|(what, number)| [(what, number, false), (what, number, true)]);
    let places: &[u64] = if is_long { &[0, 5, 20, 40, 60, 80, 95] } else { &[0] };
    let all =
        all.flat_map(|(what, number, always)| places.iter().map(move |&part| (what, number, always, part)));
    // Numbers that share no factor with the counts reach each operation and each error in turn.
    let sample = |(place, (what, number, always, _))| (what, number, always, (place as u64 * 37) % 100);
    match is_long {
        true => all.collect(),
        false => all.enumerate().filter(|(place, _)| place % 17 == 0).map(sample).collect(),
    }
}

/// Ends the process if a case takes too long: a rank that hangs cannot be ended otherwise.
fn watched() -> Sender<Case> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut last = None;
        loop {
            match receiver.recv_timeout(Duration::from_secs(120)) {
                Ok(case) => last = Some(case),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                Err(_) => {
                    eprintln!("{last:?} hangs");
                    std::process::abort();
                }
            }
        }
    });
    sender
}

#[test]
#[ignore = "long"]
fn no_error_of_the_system_gives_wrong_bytes_a_hang_or_a_run_from_zero() {
    let watch = watched();
    let mut wrong = Vec::new();
    let mut counts = std::collections::HashMap::new();
    for case in cases() {
        watch.send(case).unwrap();
        let operations = *counts.entry(case.0).or_insert_with(|| {
            let mut world = flushed();
            let files = faulty(case.0);
            world.files = Arc::new(files.clone());
            life(&world);
            files.mutations()
        });
        if operations > 0 {
            let checked = std::panic::catch_unwind(|| check(case, operations));
            wrong.extend(checked.err().map(|why| why.downcast_ref::<String>().cloned().unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
