//! A file that cannot be read for a moment is not missing: a run that cannot see the contents of the prefix directory does not
//! begin, never goes back to an older checkpoint for good, and deletes nothing that it could not read.

use super::damage::flip_middle;
use super::world::{said, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_prefix::{FlushFile, Index, IndexEntry, Location, Prefix};
use scr_test_kit::faulty::{Failure, FaultyFiles, What};
use scr_test_kit::fixtures::ChangeIndex as _;
use scr_test_kit::moments;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

fn some(rank: Rank) -> Vec<usize> {
    vec![1500 + 7 * rank.index(), 3]
}

fn index(world: &World) -> Index {
    Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap()
}

fn complete(world: &World) -> Vec<u64> {
    let mut ids: Vec<u64> =
        index(world).entries().into_iter().filter(IndexEntry::is_valid).map(|entry| entry.id).collect();
    ids.sort_unstable();
    ids
}

/// Two checkpoints in the prefix directory, and none in cache.
fn flushed() -> World {
    let world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_PREFIX_SIZE", "2");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    assert_eq!(complete(&world), [1, 2]);
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
    world
}

/// Nothing was wrong with it, and the run began from nothing: only three of the errors of a network were known.
#[test]
fn a_run_begins_only_with_the_checkpoint_that_one_error_hides_and_not_at_all_while_it_lasts() {
    const ESHUTDOWN: i32 = 108;
    for what in [What::OpenToRead, What::Read, What::Status] {
        let mut world = flushed();
        let files = FaultyFiles::new(RealFiles);
        files.only(move |done, path| done == what && path.to_string_lossy().contains("prefix/ckpt."));
        files.count_all();
        files.never_pause();
        files.fail_from(1, Failure::Number(ESHUTDOWN));
        world.files = Arc::new(files.clone());
        let why = refused(&world);
        assert!(["ckpt.2", "ckpt.1", "another prefix"].iter().all(|word| why.contains(word)), "{why}");
        files.fail_once(files.mutations() + 1, Failure::Number(ESHUTDOWN));
        world.run(|application| application.restart(some)).all_gave(&Some(2));
        // The way out: without them there is nothing that could not be read.
        (0..4).for_each(|node| world.lose(&format!("n{node}")));
        Index::update(&RealFiles, &Prefix::new(world.prefix()), |index| {
            assert!([1, 2].into_iter().all(|id| index.drop_id(id)));
        })
        .unwrap();
        files.fail_from(1, Failure::Number(ESHUTDOWN));
        world.run(|application| application.restart(some)).all_gave(&None);
    }
}

/// One answer that a file was missing made a good checkpoint count as damaged for good.
#[test]
fn a_file_that_is_missing_once_or_only_by_its_own_name_damages_no_checkpoint() {
    const ENOENT: i32 = 2;
    for (what, lasts) in [(What::Status, false), (What::OpenToRead, false), (What::Status, true)] {
        let mut world = flushed();
        let files = FaultyFiles::new(RealFiles);
        files.only(move |done, path| done == what && path.to_string_lossy().contains("prefix/ckpt."));
        files.count_all();
        files.fail_for(1, if lasts { u64::MAX } else { 1 }, Failure::Number(ENOENT));
        world.files = Arc::new(files.clone());
        if lasts {
            assert!(refused(&world).contains("ckpt.2"));
        } else {
            world.run(|application| application.restart(some)).all_gave(&Some(2));
        }
        assert!(files.first_failed().is_some());
        assert!(index(&world).entries().iter().all(|entry| entry.failed.is_none()), "{what:?}");
    }
}

/// The folder of a node that could not be found out counted as nobody's, and the node began a new one beside its checkpoint.
#[test]
fn a_cache_that_cannot_be_read_is_not_empty() {
    const EREMOTEIO: i32 = 121;
    for place in ["filemap_", "scr.dataset.1/.scr", "scr.defjobid"] {
        let mut world = World::new(4, 4);
        world.run(|application| application.checkpoint(1, some).unwrap());
        let files = FaultyFiles::new(RealFiles);
        files.only(move |what, path| {
            matches!(what, What::List | What::Read | What::OpenToRead)
                && path.to_string_lossy().contains(place)
        });
        files.count_all();
        files.never_pause();
        files.fail_from(1, Failure::Number(EREMOTEIO));
        world.files = Arc::new(files.clone());
        assert!(!refused(&world).is_empty());
        world.files = Arc::new(RealFiles);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// It counted as lost, the run began from nothing, and its second checkpoint took the place of this one.
#[test]
fn what_another_release_has_left_in_cache_stays_and_no_run_begins_without_it() {
    let other_release = |world: &World| {
        world.run(|application| application.checkpoint(3, some).unwrap());
        let file = |rank: u32| {
            world
                .node(&format!("n{rank}"))
                .join(format!("user1/scr.defjobid/scr.dataset.1/.scr/filemap_{rank}"))
        };
        (0..4).map(file).for_each(|map| {
            let mut bytes = std::fs::read(&map).unwrap();
            bytes[7] = 9;
            std::fs::write(map, bytes).unwrap();
        });
        (0..4).map(file).collect::<Vec<_>>()
    };
    let world = World::new(4, 4).set("SCR_CACHE_SIZE", "1");
    let maps = other_release(&world);
    let why = refused(&world);
    assert!(why.contains("ckpt.3") && !why.contains("--drop"), "{why}");
    // Who begins without it takes nothing away either.
    let world = world.set("SCR_CACHE_PURGE", "1");
    let outcome =
        world.run(|application| (4..=6).for_each(|step| application.checkpoint(step, some).unwrap()));
    assert!(!outcome.has_line_with("counts as lost"));
    assert!(maps.iter().all(|map| map.exists()));
    let world = world.set("SCR_CACHE_PURGE", "0");
    let outcome = world.run(|application| application.restart(some));
    outcome.line_with(&["ERROR", "written by another release of scr (format 9, this one reads 2)", "stays"]);
    // Each rank said it of each dataset.
    let told: Vec<_> = outcome.lines.iter().filter(|line| line.contains("another release")).collect();
    assert!(told.len() == 1 && told[0].contains("rank 0 on n0, rank 1 on n1"), "{told:?}");
    outcome.all_gave(&Some(6));
    assert!(maps.iter().all(|map| map.exists()));
}

/// It was said that nothing is left, directly below the message that it stays.
#[test]
fn nobody_says_that_nothing_is_left_of_a_part_that_this_run_cannot_use() {
    let damages: [fn(&mut Vec<u8>); 2] = [|bytes| bytes[7] = 9, |bytes| bytes.truncate(100)];
    for damage in damages {
        let world = World::new(4, 4);
        world.run(|application| application.checkpoint(1, some).unwrap());
        let map = world.node("n1").join("user1/scr.defjobid/scr.dataset.1/.scr/filemap_1");
        let mut bytes = std::fs::read(&map).unwrap();
        damage(&mut bytes);
        std::fs::write(&map, bytes).unwrap();
        let run = world.run(|application| application.restart(some));
        run.all_gave(&Some(1));
        run.line_with(&["1 (written on n1; nothing usable of it is there)", "rebuilding", "[SCR-314]"]);
    }
}

/// For want of open files or of memory its parts counted as lost, and were removed once there was a newer checkpoint.
#[test]
fn a_cache_that_this_process_cannot_read_is_not_lost() {
    // ENOMEM, EACCES, ENFILE, EMFILE.
    is_waited_for(&[12, 13, 23, 24], |what, path| {
        what == What::OpenToRead && path.contains("scr.dataset.1/") && !path.contains("/.scr/")
    });
}

/// It counted as empty, and the first checkpoint of the run that began at zero took the place of the one in it.
#[test]
fn a_cache_that_cannot_be_listed_is_not_empty() {
    // ENXIO, ENOMEM, ENODEV, ENFILE, EMFILE, EOVERFLOW, EDQUOT.
    is_waited_for(&[6, 12, 19, 23, 24, 75, 122], |what, path| {
        what == What::List && path.contains("/nodes/") && !path.contains("scr.dataset.")
    });
}

/// An answer that says what is there is asked for again before a run begins at zero because of it.
#[test]
#[ignore = "long"]
fn no_run_begins_at_zero_over_a_cache_for_one_answer() {
    // EPERM, ENOENT, EACCES, ENOTDIR, ENAMETOOLONG, ELOOP.
    for (number, bypass) in
        [1, 2, 13, 20, 36, 40].into_iter().flat_map(|number| [(number, "0"), (number, "1")])
    {
        let restart = |fails_at: Option<u64>| {
            let mut world = World::new(1, 1).set("SCR_CACHE_BYPASS", bypass);
            world.run(|application| application.checkpoint(1, some).unwrap());
            let files = FaultyFiles::new(RealFiles);
            files.only(|what, path| {
                let path = path.to_string_lossy();
                matches!(what, What::List | What::Read | What::OpenToRead | What::Status)
                    && (path.contains("/nodes/") || path.contains("/prefix/ckpt."))
            });
            files.count_all();
            files.never_pause();
            fails_at.into_iter().for_each(|at| files.fail_once(at, Failure::Number(number)));
            world.files = Arc::new(files.clone());
            let run = world.try_run(|begun| {
                begun.is_ok_and(|mut application| matches!(application.session().have_restart(), Ok(None)))
            });
            (files.mutations(), run.ranks.contains(&true))
        };
        let (all, _) = restart(None);
        let failed: Vec<u64> = moments(all, 12).filter(|&at| restart(Some(at)).1).collect();
        assert!(failed.is_empty(), "error {number} of the operations {failed:?} of {all}, bypass {bypass}");
    }
}

/// While such an operation fails with one of these errors, no run begins, and the next one has the checkpoint in cache.
fn is_waited_for(numbers: &[i32], fails: fn(What, &str) -> bool) {
    for &number in numbers {
        let mut world = World::new(4, 4);
        world.run(|application| application.checkpoint(1, some).unwrap());
        let files = FaultyFiles::new(RealFiles);
        files.only(move |what, path| fails(what, &path.to_string_lossy()));
        files.count_all();
        files.never_pause();
        files.fail_from(1, Failure::Number(number));
        world.files = Arc::new(files.clone());
        assert!(refused(&world).contains("no other checkpoint"), "{number}");
        assert!(files.first_failed().is_some(), "{number}");
        world.files = Arc::new(RealFiles);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// The application was told that there was none, and began at zero.
#[test]
fn after_a_refusal_an_older_checkpoint_that_cannot_be_fetched_is_an_error() {
    const EACCES: i32 = 13;
    let mut world = flushed();
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::OpenToRead && path.to_string_lossy().contains("prefix/ckpt.1"));
    files.count_all();
    files.fail_from(1, Failure::Number(EACCES));
    world.files = Arc::new(files);
    world.run(|application| {
        assert_eq!(application.session().start_restart().unwrap(), b"ckpt.2");
        application.session().complete_restart(false).unwrap_err();
        let why = application.session().have_restart().unwrap_err().to_string();
        assert!(why.contains("ckpt.1 could not be brought back"), "{why}");
    });
    world.files = Arc::new(RealFiles);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The run began at zero, though nothing was wrong with either checkpoint.
#[test]
fn a_cache_that_is_too_full_for_a_fetch_begins_no_run() {
    for place in ["/r2/", "/redundancy_", "/filemap_"] {
        let mut world = flushed();
        let files = FaultyFiles::new(RealFiles);
        files.only(move |what, path| {
            let path = path.to_string_lossy();
            matches!(what, What::OpenToWrite | What::Write)
                && path.contains("/nodes/n2/")
                && path.contains(place)
        });
        files.never_pause();
        files.fail_from(1, ErrorKind::StorageFull);
        world.files = Arc::new(files.clone());
        let why = refused(&world);
        assert!(files.first_failed().is_some(), "{place}");
        assert!(
            ["ckpt.2", "ckpt.1", "could not be brought back"].iter().all(|word| why.contains(word)),
            "{why}"
        );
        files.heal();
        world.run(|application| application.restart(some)).all_gave(&Some(2));
    }
}

/// All files were missing there, and both checkpoints counted as damaged for good.
#[test]
fn a_node_that_loses_the_mount_of_the_prefix_marks_no_checkpoint_as_failed() {
    const ENOENT: i32 = 2;
    let mut world = flushed();
    let (files, is_lost) = (FaultyFiles::new(RealFiles), AtomicBool::new(false));
    files.only(move |_, path| {
        let path = path.to_string_lossy();
        is_lost.fetch_or(path.contains("/prefix/ckpt."), Ordering::SeqCst);
        is_lost.load(Ordering::SeqCst) && (path.contains("/prefix/") || path.ends_with("/prefix"))
    });
    files.count_all();
    files.never_pause();
    files.fail_from(1, Failure::Number(ENOENT));
    world.own_files.insert(Rank(2), Arc::new(files.clone()));
    let why = refused(&world);
    assert!(files.first_failed().is_some() && why.contains("ckpt.2"), "{why}");
    assert!(index(&world).entries().iter().all(|entry| entry.failed.is_none()));
    world.own_files.clear();
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// Reading such a file fails on rank 0, or wherever it is read.
fn failing(is_meant: impl Fn(&Path) -> bool + Send + Sync + 'static) -> FaultyFiles {
    let files = FaultyFiles::new(RealFiles);
    files.only(move |what, path| what == What::Read && is_meant(path));
    files.count_all();
    files.never_pause();
    files
}

#[test]
fn an_index_that_cannot_be_read_once_is_read_again() {
    let mut world = flushed();
    let files = failing(|path| path.ends_with("index.scr"));
    files.fail_once(1, ErrorKind::TimedOut);
    world.files = Arc::new(files);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// The run began without any checkpoint.
#[test]
#[ignore = "long"]
fn an_error_that_passes_while_a_part_is_begun_in_cache_takes_no_checkpoint_away() {
    let failing = |at: Option<u64>| {
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| {
            what == What::MakeDir && path.to_string_lossy().contains("scr.dataset.")
                || what != What::RemoveFile && path.to_string_lossy().contains("filemap_")
        });
        files.never_pause();
        at.into_iter().for_each(|at| files.fail_once(at, ErrorKind::TimedOut));
        files
    };
    for at in 0.. {
        let mut world = flushed();
        let files = Arc::new(failing((at > 0).then_some(at)));
        world.files = files.clone();
        world.run(|application| application.restart(some)).all_gave(&Some(2));
        if at > files.operations().len() as u64 {
            return;
        }
    }
}

#[test]
fn a_run_that_cannot_read_the_index_does_not_begin_from_nothing() {
    let mut world = flushed();
    let files = failing(|path| path.ends_with("index.scr"));
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files);
    let outcome = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
    for rank in &outcome.ranks {
        let why = rank.as_ref().unwrap_err();
        assert!(why.contains("index.scr"), "{why}");
    }
    assert_eq!(complete(&world), [1, 2]);
    world.files = Arc::new(RealFiles);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

#[test]
fn a_checkpoint_that_could_not_be_read_is_neither_given_up_for_an_older_one_nor_deleted() {
    let mut world = flushed();
    let files = failing(|path| path.to_string_lossy().contains("prefix/ckpt.2/"));
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files);
    world.run(|application| assert_eq!(application.restart(some), Some(1)));
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
    world.files = Arc::new(RealFiles);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    // A run that continues without it keeps it, though the window has moved past it.
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
    let files = failing(|path| path.to_string_lossy().contains("prefix/ckpt.2/"));
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files);
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        (3..=6).for_each(|step| application.checkpoint(step, some).unwrap());
    });
    assert!(complete(&world).contains(&2), "{:?}", complete(&world));
    assert!(!complete(&world).contains(&1), "{:?}", complete(&world));
}

/// It counted for `SCR_PREFIX_SIZE`, and the run deleted the one that it had restarted from after its first checkpoint.
#[test]
fn a_checkpoint_that_could_not_be_read_takes_no_place_of_one_that_could() {
    let mut world = flushed();
    let files = failing(|path| path.to_string_lossy().contains("prefix/ckpt.2/"));
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files);
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(3, some).unwrap();
    });
    assert_eq!(complete(&world), [1, 2, 3]);
}

/// The form of this file is of that version.
fn set_version(path: &Path, version: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[7] = version;
    std::fs::write(path, bytes).unwrap();
}

const NEWER: &str = "was written by another release of scr (format version 2, and this one reads 1)";

/// It was marked as failed for good, and the newer release passed it over.
#[test]
fn what_a_newer_release_has_flushed_is_named_and_stays_for_that_release() {
    for file in ["summary.scr", "rank2file", "rank2file.0.0"] {
        let world = flushed();
        let path = world.prefix().join(".scr/scr.dataset.2").join(file);
        set_version(&path, 2);
        let run = world.run(|application| application.restart(some));
        run.all_gave(&Some(1));
        let words = ["ERROR", "`ckpt.2' cannot be fetched", file, NEWER, "SCR-313"];
        let line = run.line_with(&words);
        assert!(!line.contains("damaged"), "{line}");
        assert_eq!(run.lines.iter().filter(|line| line.contains(NEWER)).count(), 1, "{:?}", run.lines);
        run.line_with(&[
            "WARNING",
            "dataset 2 `ckpt.2' is newer, and is passed over: ",
            "end this run",
            "[SCR-321]",
        ]);
        assert_eq!(complete(&world), [1, 2]);
        // It has no older one.
        Index::update(&RealFiles, &Prefix::new(world.prefix()), |index| index.drop_id(1)).unwrap();
        (0..4).for_each(|node| world.lose(&format!("n{node}")));
        assert!(refused(&world).contains("ckpt.2 could not be brought back"));
        set_version(&path, 1);
        world.run(|application| application.restart(some)).all_gave(&Some(2));
    }
}

/// What this release could read of it counted as the remains of a lost one, and left the cache for the next checkpoint.
#[test]
fn a_checkpoint_of_which_another_release_has_left_too_much_stays_and_is_named() {
    for flush in ["0", "2"] {
        let mut world = World::new(4, 4).set("SCR_FLUSH", flush);
        world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
        let maps: Vec<_> = (0..4)
            .map(|rank| world.cached_file(&["scr.dataset.3/.scr", &format!("filemap_{rank}")]))
            .collect();
        maps[..2].iter().for_each(|map| set_version(map, 9));
        if flush == "0" {
            assert!(refused(&world).contains("ckpt.3 could not be brought back"));
        } else {
            world.put("SCR_REQUIRE_RESTART", "1");
            let run = world.run(|application| {
                let found = application.restart(some);
                (4..=5).for_each(|step| application.checkpoint(step, some).unwrap());
                found
            });
            run.all_gave(&Some(2));
            run.line_with(&[
                "ERROR",
                "dataset 3 `ckpt.3' cannot be restored from cache in this run",
                "[SCR-313]",
            ]);
            run.line_with(&["WARNING", "dataset 3 `ckpt.3' is newer, and is passed over: ", "[SCR-321]"]);
        }
        assert!(maps.iter().all(|map| map.exists()));
        maps[..2].iter().for_each(|map| set_version(map, 2));
        world.put("SCR_REQUIRE_RESTART", "0");
        let next = if flush == "0" { 3 } else { 5 };
        world.run(|application| application.restart(some)).all_gave(&Some(next));
    }
}

/// It was moved away as damaged, and the new one in its place did not have all that the newer release had written.
#[test]
fn a_file_of_a_newer_release_that_all_jobs_share_stays_and_no_run_begins() {
    for file in ["index.scr", "ids.scr", "flush.scr"] {
        let world = flushed();
        let path = world.prefix().join(".scr").join(file);
        set_version(&path, 2);
        let before = std::fs::read(&path).unwrap();
        let why = refused(&world);
        assert!(why.contains(file) && why.contains(NEWER), "{why}");
        assert!(std::fs::read(&path).unwrap() == before);
        set_version(&path, 1);
        world.run(|application| application.restart(some)).all_gave(&Some(2));
    }
}

#[test]
fn a_copy_that_could_not_be_read_is_written_again_from_cache_and_counts_then() {
    let world = World::new(4, 4).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let prefix = Prefix::new(world.prefix());
    Index::update(&RealFiles, &prefix, |index| index.mark_failed(1, "2026-01-01T00:00:00")).unwrap();
    assert_eq!(complete(&world), [0; 0]);
    world.run(|application| assert_eq!(application.restart(some), Some(1)));
    assert_eq!(complete(&world), [1]);
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The next older one was taken, and the run computed again what was there.
#[test]
fn one_error_while_a_checkpoint_is_fetched_gives_no_older_one() {
    for what in [What::OpenToRead, What::Read, What::Status] {
        let mut world = flushed();
        let files = FaultyFiles::new(RealFiles);
        files.only(move |done, path| done == what && path.to_string_lossy().contains("prefix/ckpt.2/"));
        files.count_all();
        files.never_pause();
        files.fail_once(3, ErrorKind::TimedOut);
        world.files = Arc::new(files.clone());
        world.run(|application| application.restart(some)).all_gave(&Some(2));
        assert!(files.first_failed().is_some(), "{what:?}");
    }
}

/// The error of a start that must fail, the same on each rank.
fn refused(world: &World) -> String {
    let outcome = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
    let all: Vec<_> = outcome.ranks.into_iter().map(|rank| rank.expect_err("no run begins")).collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
    all[0].clone()
}

/// The newest was taken instead, which the user may have known to be wrong.
#[test]
fn a_checkpoint_that_the_user_has_named_and_that_cannot_be_read_gives_no_other_one() {
    let mut world = flushed().set("SCR_CURRENT", "ckpt.1");
    let files = failing(|path| path.to_string_lossy().contains("prefix/ckpt.1/"));
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files);
    let why = refused(&world);
    assert!(why.contains("SCR_CURRENT=ckpt.1") && why.contains("ckpt.1/"), "{why}");
    world.files = Arc::new(RealFiles);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The index said what there is, and could not be read when the checkpoint was looked up in it.
#[test]
fn a_checkpoint_that_the_user_has_named_is_the_only_one_whichever_read_of_the_index_fails() {
    for at in 1.. {
        let mut world = flushed().set("SCR_CURRENT", "ckpt.1");
        let files = failing(|path| path.ends_with("index.scr"));
        files.fail_for(at, 4, ErrorKind::TimedOut);
        world.files = Arc::new(files.clone());
        let outcome = world.try_run(|begun| {
            let mut application = begun.map_err(|error| error.to_string())?;
            Ok::<_, String>(application.restart(some))
        });
        let is_right = |rank: &Result<_, String>| rank.as_ref().map_or(true, |step| *step == Some(1));
        assert!(outcome.ranks.iter().all(is_right), "read {at}: {:?}", outcome.ranks);
        if files.first_failed().is_none() {
            assert!(at > 4, "the index is read that often");
            break;
        }
    }
}

/// There was no checkpoint then, without an error, and the choice was forgotten.
#[test]
fn a_checkpoint_that_the_application_has_named_and_that_cannot_be_read_is_an_error_until_it_can() {
    let mut world = flushed().set("SCR_FETCH", "1");
    let files = failing(|path| path.to_string_lossy().contains("prefix/ckpt.1/"));
    world.files = Arc::new(files.clone());
    world.run(|application| {
        application.session().current(b"ckpt.1").unwrap();
        if application.rank == Rank(0) {
            files.fail_from(1, ErrorKind::TimedOut);
        }
        let why = application.session().have_restart().unwrap_err().to_string();
        assert!(why.contains("ckpt.1"), "{why}");
        files.heal();
        assert_eq!(application.restart(some), Some(1));
    });
}

/// It could be read, and could not be written to the cache of one rank: the newest was taken instead.
#[test]
fn a_checkpoint_that_the_user_has_named_and_that_does_not_get_into_cache_gives_no_other_one() {
    let mut world = flushed().set("SCR_CURRENT", "ckpt.1");
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::OpenToWrite && path.to_string_lossy().contains("/filemap_"));
    files.never_pause();
    files.fail_once(1, ErrorKind::PermissionDenied);
    world.own_files.insert(Rank(2), Arc::new(files.clone()));
    let why = refused(&world);
    assert!(files.first_failed().is_some() && why.contains("SCR_CURRENT=ckpt.1"), "{why}");
    world.own_files.clear();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The run went back once more, and gave up all that had been written since.
#[test]
fn a_run_goes_back_only_where_it_knows_whether_one_has_done_so_before() {
    let mut world = flushed().set("SCR_CURRENT", "ckpt.1").set("SCR_DROP_AFTER_CURRENT", "1");
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::OpenToWrite && path.to_string_lossy().contains("current.scr"));
    files.fail_from(1, ErrorKind::StorageFull);
    world.files = Arc::new(files);
    assert!(refused(&world).contains("current.scr"));
    assert_eq!(complete(&world), [1, 2], "nothing is given up before it is recorded");
    world.files = Arc::new(RealFiles);
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(7, some).unwrap();
    });
    let files = failing(|path| path.ends_with("current.scr"));
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files.clone());
    assert!(refused(&world).contains("current.scr"));
    files.fail_once(1, ErrorKind::TimedOut);
    let written = std::fs::read(world.prefix().join(".scr/current.scr")).unwrap();
    std::fs::write(world.prefix().join(".scr/current.scr"), "damaged").unwrap();
    assert!(refused(&world).contains("remove it"));
    std::fs::write(world.prefix().join(".scr/current.scr"), written).unwrap();
    files.fail_once(1, ErrorKind::TimedOut);
    world.run(|application| application.restart(some)).all_gave(&Some(7));
}

/// The older checkpoint of the name did not count any more, the newer one not yet, and the run began from nothing.
#[test]
fn a_run_does_not_begin_beside_a_flush_that_has_taken_its_name_and_cannot_be_ended() {
    let after = |rank: Rank| vec![900 + rank.index(), 5];
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", "0");
    world.run(|application| application.checkpoint_as(b"ckpt.1", 1, some).unwrap());
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Rename && path.to_string_lossy().contains("prefix/ckpt.1/"));
    files.never_pause();
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files.clone());
    world.run(|application| drop(application.checkpoint_as(b"ckpt.1", 1, after)));
    assert_eq!(complete(&world), [0; 0]);
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
    let why = refused(&world);
    assert!(why.contains("ckpt.1") && why.contains("scr poststage"), "{why}");
    // An error that passes ends nothing.
    files.fail_for(files.mutations() + 1, 2, ErrorKind::TimedOut);
    world.run(|application| application.restart(after)).all_gave(&Some(1));
}

/// It began from nothing, with a notice.
#[test]
fn a_run_does_not_begin_from_nothing_beside_the_only_checkpoint_that_has_arrived() {
    for is_cached in [false, true] {
        let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", "0");
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what == What::Rename && path.to_string_lossy().contains(".index.scr.tmp."));
        files.never_pause();
        // Only the dataset's place among those that are not complete can be written.
        files.fail_from(2, ErrorKind::TimedOut);
        world.files = Arc::new(files.clone());
        world.run(|application| drop(application.checkpoint(1, some)));
        assert_eq!(complete(&world), [0; 0]);
        assert!(files.first_failed().is_some());
        let lists = failing(|path| path.to_string_lossy().contains("scr.dataset.1/rank2file"));
        lists.fail_from(1, ErrorKind::TimedOut);
        world.files = Arc::new(lists);
        if is_cached {
            world.run(|application| application.restart(some)).all_gave(&Some(1));
            continue;
        }
        (0..4).for_each(|node| world.lose(&format!("n{node}")));
        let why = refused(&world);
        assert!(["dataset 1 `ckpt.1'", "scr poststage"].iter().all(|word| why.contains(word)), "{why}");
        world.files = Arc::new(RealFiles);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// The flush file is all that `scr postrun` looks at: it had the dataset that had left, and not the one that had come.
#[test]
fn what_could_not_be_recorded_as_being_in_cache_is_recorded_later() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "0").set("SCR_CACHE_SIZE", "2");
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::OpenToWrite && path.to_string_lossy().contains(".flush.scr.tmp"));
    world.files = Arc::new(files.clone());
    let in_cache = |world: &World| {
        let file = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        let entries = file.entries().into_iter().filter(|entry| entry.is_at(Location::Cache));
        entries.map(|entry| entry.id).collect::<Vec<_>>()
    };
    world.run(|application| {
        let rank = application.rank;
        let fails = |fails: bool| match (rank, fails) {
            (Rank(0), true) => files.fail_from(1, ErrorKind::StorageFull),
            (Rank(0), false) => files.heal(),
            _ => (),
        };
        application.checkpoint(1, some).unwrap();
        fails(true);
        application.checkpoint(2, some).unwrap();
        fails(false);
        application.checkpoint(3, some).unwrap();
    });
    assert_eq!(in_cache(&world), [3, 2]);
}

const ENOENT: i32 = 2;

/// It was marked as failed for good, as the file system of the prefix directory was not mounted for a moment.
#[test]
fn a_checkpoint_is_looked_at_twice_before_it_is_marked_as_failed() {
    let mut world = flushed();
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::OpenToRead && path.ends_with("scr.dataset.2/summary.scr"));
    files.count_all();
    files.never_pause();
    // What is not there is looked for twice in any case.
    files.fail_for(1, 2, Failure::Number(ENOENT));
    world.files = Arc::new(files.clone());
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    assert!(files.first_failed().is_some());
    assert_eq!(complete(&world), [1, 2]);
}

/// The run was told that somebody had dropped it, and began at zero.
#[test]
fn a_run_whose_prefix_directory_goes_away_while_it_begins_does_not_begin_at_zero() {
    let mut world = flushed();
    let is_away = AtomicBool::new(false);
    let files = FaultyFiles::new(RealFiles);
    files.only(move |_, path| {
        let path = path.to_string_lossy();
        is_away.fetch_or(path.contains("prefix/.scr/scr.dataset."), Ordering::Relaxed);
        path.contains("/prefix") && is_away.load(Ordering::Relaxed)
    });
    files.count_all();
    files.never_pause();
    files.fail_from(1, Failure::Number(ENOENT));
    world.files = Arc::new(files.clone());
    assert!(refused(&world).contains("of this run is not there"));
    assert!(files.first_failed().is_some());
    world.files = Arc::new(RealFiles);
    assert_eq!(complete(&world), [1, 2]);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// The run began at zero, and its first checkpoint took the place of the one that it could have had.
#[test]
fn a_part_that_has_no_place_on_the_new_node_is_not_lost() {
    for (number, scheme, flush) in
        [(28, "XOR", "0"), (30, "XOR", "0"), (28, "PARTNER", "0"), (28, "XOR", "1")]
    {
        let mut world = World::new(4, 4).set("SCR_COPY_TYPE", scheme).set("SCR_FLUSH", flush);
        world.run(|application| application.checkpoint(1, some).unwrap());
        world.lose("n1");
        let files = FaultyFiles::new(RealFiles);
        files.only(|what, path| what != What::Append && path.to_string_lossy().contains("scr.dataset.1/"));
        files.never_pause();
        files.fail_from(1, Failure::Number(number));
        world.own_files.insert(Rank(1), Arc::new(files.clone()));
        let why = refused(&world);
        assert!(
            why.contains("ckpt.1 could not be brought back") && why.contains("SCR_CACHE_PURGE=1"),
            "{why}"
        );
        // It is both in cache and in the prefix directory, and was named twice.
        assert!(!why.contains("ckpt.1, ckpt.1"), "{why}");
        assert!(files.first_failed().is_some());
        world.own_files.clear();
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// The run took the checkpoint for that of another prefix directory, began at zero, and deleted it.
#[test]
fn a_checkpoint_in_cache_only_does_not_go_with_the_file_that_holds_the_id_of_the_prefix_directory() {
    for damage in [remove as fn(&Path), truncate, flip_middle, put_pipe] {
        let world = World::new(4, 4).set("SCR_FLUSH", "0");
        world.run(|application| application.checkpoint(1, some).unwrap());
        assert!(!world.prefix().join(".scr/index.scr").exists());
        damage(&world.prefix().join(".scr/ids.scr"));
        world.lose("n2");
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

fn put_pipe(path: &Path) {
    remove(path);
    rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap();
}

fn truncate(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

/// `SCR_Have_restart` gave none, and the application began at zero.
#[test]
fn a_checkpoint_of_which_a_rank_got_no_path_is_not_given_up_for_none() {
    let world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.run(|application| {
        let session = application.session();
        session.start_restart().unwrap();
        session.route_file(b"ckpt.1/never_written").unwrap_err();
        session.complete_restart(false).unwrap_err();
        let why = said(session.have_restart().unwrap_err());
        assert!(why.contains("`ckpt.1' is not marked as failed") && why.contains("correct what"), "{why}");
    });
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// With a warning, the run began at zero over the only checkpoint, which the application cannot read where it lies.
#[test]
fn a_checkpoint_in_cache_only_is_not_begun_over_where_all_read_in_the_prefix_directory_and_its_flush_fails() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "0");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.prefix().join("ckpt.1"));
    full.fail_from(1, ErrorKind::StorageFull);
    world.files = Arc::new(full);
    world.put("SCR_GLOBAL_RESTART", "1");
    let why = refused(&world);
    assert!(why.contains("ckpt.1 could not be brought back"), "{why}");
    world.files = Arc::new(RealFiles);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}
