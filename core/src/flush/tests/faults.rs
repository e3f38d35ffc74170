//! Every mutating operation of a flush fails once, and the world stops before and in the middle of each: whatever
//! the index then lists as complete is complete, and what was cached is still there.

use super::stage::{finalize_arrived, finalize_pending, through, Cached, Kept, Stage, NOW};
use crate::flush::{FlushError, FlushReport, MakeCurrent};
use scr_base::fs::RealFiles;
use scr_prefix::ledger::{By, LedgerDir, Refusal, Request};
use scr_prefix::{staging_file, PrefixError};
use scr_test_kit::faulty::{FaultyFiles, Operation, What};
use scr_test_kit::moments;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const RANKS: u32 = 3;

/// A way to flush: while the application waits, or while it continues.
type Way = fn(&Stage, &FaultyFiles, &Cached) -> Result<FlushReport, FlushError>;

fn at_once(stage: &Stage, files: &FaultyFiles, cached: &Cached) -> Result<FlushReport, FlushError> {
    stage.flush(files, &through(files), "1.x", cached)
}

fn in_background(stage: &Stage, files: &FaultyFiles, cached: &Cached) -> Result<FlushReport, FlushError> {
    stage.flush_in_background(files, "1.x", cached)
}

/// A stage with a dataset to flush. It is prepared once, and put back before each flush.
struct Scene {
    stage: Stage,
    cached: Cached,
    prepared: Kept,
}

impl Scene {
    fn new(prepare: impl Fn(&Stage) -> Cached) -> Self {
        let stage = Stage::new(RANKS);
        let cached = prepare(&stage);
        let prepared = stage.keep();
        Self { stage, cached, prepared }
    }

    /// The stage as it was prepared.
    fn anew(&self) -> (&Stage, &Cached) {
        self.stage.put_back(&self.prepared);
        (&self.stage, &self.cached)
    }

    /// Mutating operations of a whole flush, about `some` of them.
    fn operations(&self, flush: Way, some: u64) -> impl Iterator<Item = u64> {
        let (stage, cached) = self.anew();
        let files = FaultyFiles::new(RealFiles);
        flush(stage, &files, cached).unwrap();
        moments(files.mutations(), some)
    }
}

fn fresh(stage: &Stage) -> Cached {
    stage.cache(1, "a")
}

/// A dataset whose name, and files, an older one has.
fn reused(stage: &Stage) -> Cached {
    stage.flush_well("0.x", &stage.cache(0, "a"));
    stage.cache(1, "a")
}

/// A dataset of a new name with the files of an older one.
fn overlapping(stage: &Stage) -> Cached {
    let mut cached = reused(stage);
    cached.dataset.name = b"b".to_vec();
    cached
}

/// Whether the stage had an older dataset, one of which or the newer has to be left in any case.
fn has_older(name: &str) -> bool {
    name != "fresh"
}

type Case = (&'static str, fn(&Stage) -> Cached, Way);

/// The cases: the dataset to flush with what is there before it, and how it is flushed.
const CASES: [Case; 4] = [
    ("fresh", fresh, at_once),
    ("reused", reused, at_once),
    ("overlapping", overlapping, at_once),
    ("reused, in the worker", reused, in_background),
];

/// Every dataset that is listed is right; then a new run puts all in order and flushes again.
fn assert_sound(stage: &Stage, cached: &Cached, context: &str) {
    stage.assert_cache_is_whole(cached);
    let had_older = stage.index().entry(0).is_some();
    let expect_intact = |when: &str| {
        assert!(!stage.is_listed(1) || stage.is_right(cached), "{context}, {when}: listed but not right");
        if stage.is_listed(0) {
            assert!(stage.is_right(&stage.cache(0, "a")), "{context}, {when}: the older one is not right");
        }
    };
    expect_intact("at once");
    let ended = finalize_pending(&RealFiles, &stage.prefix, NOW).unwrap();
    expect_intact("in the next run");
    let any = stage.is_listed(0) || stage.is_listed(1);
    assert!(any || !had_older, "{context}: neither the older one nor the newer one is left after {ended:?}");
    assert!(stage.leftovers().is_empty(), "{context}: {:?} after {ended:?}", stage.leftovers());
    stage.flush_well("2.x", cached);
    assert!(stage.is_listed(1) && stage.is_right(cached), "{context}: flushed again");
}

#[test]
fn one_failing_operation_fails_all_ranks_alike_and_spoils_nothing() {
    for (name, prepare, flush) in CASES {
        let scene = Scene::new(prepare);
        for at in scene.operations(flush, 12) {
            let (stage, cached) = scene.anew();
            let files = FaultyFiles::new(RealFiles);
            files.fail_once(at, ErrorKind::StorageFull);
            let outcome = flush(stage, &files, cached);
            let context = format!("{name}, operation {at}");
            if outcome.is_ok() {
                assert!(stage.is_listed(1) && stage.is_right(cached), "{context}: done but not listed");
            }
            assert_sound(stage, cached, &context);
        }
    }
}

/// Whether a flush had been marked as done before its last operation.
fn was_marked(files: &FaultyFiles) -> bool {
    let done = files.operations();
    let is_mark = |to: &PathBuf| to.to_string_lossy().contains("/done.");
    let marks =
        |one: &Operation| one.what == What::Rename && !one.failed && one.to.as_ref().is_some_and(is_mark);
    done.iter().any(marks)
}

/// After the mark a flush is only rolled forward: by the same call if that works the second time, and else by whoever looks
/// next. The call says which.
#[test]
fn an_error_after_the_mark_never_takes_a_flush_back() {
    let (mut closed, mut left) = (0, 0);
    for (name, prepare, flush) in CASES {
        let scene = Scene::new(prepare);
        for at in scene.operations(flush, 12) {
            for lasts in [false, true] {
                let (stage, cached) = scene.anew();
                let files = FaultyFiles::new(RealFiles);
                match lasts {
                    false => files.fail_once(at, ErrorKind::Other),
                    true => files.fail_from(at, ErrorKind::Other),
                }
                let outcome = flush(stage, &files, cached);
                if !was_marked(&files) {
                    continue;
                }
                let context = format!("{name}, operation {at}, lasts: {lasts}: {outcome:?}");
                match outcome {
                    Ok(_) => closed += 1,
                    Err(FlushError::Unfinished { .. }) => {
                        left += 1;
                        finalize_arrived(&RealFiles, &stage.prefix, NOW).unwrap();
                    }
                    // The mark itself may not be safe, and then nothing has happened yet.
                    Err(_) => {
                        assert!(!has_older(name) || stage.is_listed(0), "{context}: the older one is lost");
                        continue;
                    }
                }
                assert!(stage.is_listed(1) && stage.is_right(cached), "{context}: not rolled forward");
            }
        }
    }
    assert!(closed > 0 && left > 0, "{closed} closed, {left} left");
}

#[test]
fn a_full_prefix_is_reported_and_nothing_is_lost() {
    for (way, flush) in [("at once", at_once as Way), ("in the worker", in_background)] {
        let scene = Scene::new(fresh);
        for at in scene.operations(flush, 12) {
            let (stage, cached) = scene.anew();
            let files = FaultyFiles::new(RealFiles);
            files.fail_from(at, ErrorKind::StorageFull);
            let _ = flush(stage, &files, cached);
            assert_sound(stage, cached, &format!("{way}, full from operation {at}"));
        }
    }
}

#[test]
#[ignore = "long"]
fn a_crash_at_any_moment_is_finished_or_cleared_away_by_the_next_run() {
    for (name, prepare, flush) in CASES {
        let scene = Scene::new(prepare);
        for at in scene.operations(flush, 12) {
            for torn in [false, true] {
                let (stage, cached) = scene.anew();
                let files = FaultyFiles::new(RealFiles);
                if torn {
                    files.stop_torn_at(at);
                } else {
                    files.stop_at(at);
                }
                let _ = flush(stage, &files, cached);
                assert_sound(stage, cached, &format!("{name}, crash at {at}, torn: {torn}"));
            }
        }
    }
}

#[test]
#[ignore = "long"]
fn a_crash_while_the_next_run_puts_things_in_order_is_put_in_order_too() {
    let mut finished = 0;
    let scene = Scene::new(reused);
    for at in scene.operations(at_once, 6) {
        let (stage, cached) = scene.anew();
        let files = FaultyFiles::new(RealFiles);
        files.stop_at(at);
        let _ = at_once(stage, &files, cached);
        let crashed = stage.keep();
        for again in 1.. {
            stage.put_back(&crashed);
            let second = FaultyFiles::new(RealFiles);
            second.stop_at(again);
            let _ = finalize_pending(&second, &stage.prefix, NOW);
            if !second.stopped() {
                finished += u32::from(stage.is_listed(1));
                break;
            }
            assert_sound(stage, cached, &format!("crash at {at}, then at {again}"));
        }
    }
    assert!(finished > 0, "no flush was ever finished by the next run");
}

/// A flush that could not be ended when its turn was, or was only not forgotten.
#[test]
fn a_flush_that_is_ended_late_takes_nothing_from_a_newer_dataset() {
    for name in ["a", "b"] {
        let scene = Scene::new(fresh);
        for at in scene.operations(at_once, 12) {
            let (stage, cached) = scene.anew();
            let files = FaultyFiles::new(RealFiles);
            files.stop_at(at);
            let _ = at_once(stage, &files, cached);
            let newer = stage.cache(2, name);
            stage.flush_well("2.x", &newer);
            let ended = finalize_pending(&RealFiles, &stage.prefix, NOW).unwrap();
            let context = format!("crash at {at}, then {name}: {ended:?}");
            assert!(stage.is_listed(2) && stage.is_right(&newer), "{context}: the newer one is not right");
            assert_eq!(stage.index().current(), Some(name.as_bytes()), "{context}");
            assert!(!stage.is_listed(1) || stage.is_right(cached), "{context}: listed but not right");
            assert!(stage.leftovers().is_empty(), "{context}: {:?}", stage.leftovers());
        }
    }
}

/// They were free once it was revoked, and a rank of its job, which stood before a rename, replaced a file of the newer dataset.
#[test]
fn the_names_of_a_flush_that_is_taken_back_are_free_when_no_staging_file_of_it_is_left() {
    let stage = Stage::new(RANKS);
    let cached = stage.cache(1, "a");
    stage.stop_before_names(&cached);
    let ledger = LedgerDir::new(&RealFiles, &stage.prefix);
    let take_back = Request::TakeBack { dataset: &cached.dataset, by: &By::from("1.x"), even_if_taken: true };
    ledger.transact(&take_back).unwrap();
    let (dataset, by) = (&cached.dataset, &By::from("1.x"));
    let complete =
        Request::Complete { dataset, by, closer: None, make_current: MakeCurrent::IfNewest, now: NOW };
    let refused = ledger.transact(&complete).unwrap_err();
    assert!(matches!(refused, PrefixError::Refused(Refusal::Ended { id: 1 })), "{refused:?}");
    let newer = stage.cache(2, "a");
    stage.flush_well("2.x", &newer);
    let targets = cached.by_rank.iter().flatten().map(|file| stage.prefix.file(&file.name));
    let late = targets.filter(|target| std::fs::rename(staging_file(target, "1.x"), target).is_ok());
    assert_eq!(late.count(), 0, "files of the newer dataset were replaced");
    assert!(stage.is_listed(2) && stage.is_right(&newer) && stage.leftovers().is_empty());
}

/// The same where no other flush wants them: the one that clears the staging files away frees the names.
#[test]
fn a_flush_that_is_taken_back_leaves_no_taken_name() {
    let stage = Stage::new(RANKS);
    let cached = stage.cache(1, "a");
    stage.stop_before_names(&cached);
    let taken = || stage.index().entry(1).and_then(|entry| entry.taken);
    assert_eq!(taken().unwrap().to_string(), "1.x");
    std::fs::remove_file(stage.prefix.scr_file("done.1.x.0")).unwrap();
    std::fs::rename(stage.prefix.scr_file("flush.1.x"), stage.prefix.scr_file("revoked.1.x")).unwrap();
    finalize_pending(&RealFiles, &stage.prefix, NOW).unwrap();
    assert_eq!(taken(), None);
    assert!(stage.leftovers().is_empty());
}

/// A dataset that is complete, and of which a file has changed since. It is in cache as it was.
fn damaged(stage: &Stage) -> Cached {
    let cached = stage.cache(1, "a");
    stage.flush_well("0.x", &cached);
    let file = cached.by_rank[1].iter().find(|file| file.bytes > 0).unwrap();
    let path = stage.prefix.file(&file.name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    let writable = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(&path, writable).unwrap();
    std::fs::write(&path, bytes).unwrap();
    cached
}

/// It was thrown away, since the dataset was listed as complete already, and the call reported a success.
#[test]
fn a_flush_that_repairs_a_dataset_is_rolled_forward_after_an_error_or_a_crash() {
    let (mut closed, mut left) = (0, 0);
    for flush in [at_once as Way, in_background] {
        let scene = Scene::new(damaged);
        assert!(scene.stage.is_listed(1) && !scene.stage.is_right(&scene.cached));
        for at in scene.operations(flush, 12) {
            for crashes in [false, true] {
                let (stage, cached) = scene.anew();
                let files = FaultyFiles::new(RealFiles);
                match crashes {
                    false => files.fail_once(at, ErrorKind::Other),
                    true => files.stop_at(at),
                }
                let outcome = flush(stage, &files, cached);
                let context = format!("operation {at}, crashes: {crashes}, {outcome:?}");
                if outcome.is_ok() {
                    closed += 1;
                    assert!(stage.is_listed(1) && stage.is_right(cached), "{context}");
                } else if was_marked(&files) && crashes {
                    left += 1;
                    let ended = finalize_pending(&RealFiles, &stage.prefix, NOW).unwrap();
                    assert!(stage.is_listed(1) && stage.is_right(cached), "{context}: {ended:?}");
                }
            }
        }
    }
    assert!(closed > 0 && left > 0, "{closed} closed, {left} left");
}
