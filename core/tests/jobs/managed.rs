//! Managing datasets: `SCR_Current`, `SCR_Drop` and `SCR_Delete` in a job; messages if nothing can be fetched; names at a
//! restart; and a name that is used again while its older dataset is still being flushed.

use super::world::{contents, file_name, files_below, path_of, Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::plugin::PluginHost;
use scr_core::scavenge::Builder;
use scr_core::session::OutputFlags;
use scr_ops::{delete_dataset, drop_dataset, drop_later, Dropped};
use scr_prefix::{Index, Prefix};
use scr_test_kit::faulty::FaultyFiles;
use std::sync::{Arc, Barrier};

fn some(rank: Rank) -> Vec<usize> {
    vec![2000 + 13 * rank.index(), 9]
}

/// Every checkpoint is flushed, and two are kept in cache.
fn job() -> World {
    World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2")
}

fn checkpoints(world: &World, steps: std::ops::RangeInclusive<u64>) {
    world.run(|application| steps.clone().for_each(|step| application.checkpoint(step, some).unwrap()));
}

fn index(world: &World) -> Index {
    Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap()
}

/// The datasets that the index has, oldest first, and the current one.
fn listed(world: &World) -> (Vec<u64>, Option<Vec<u8>>) {
    let index = index(world);
    let mut ids: Vec<u64> = index.entries().iter().map(|entry| entry.id).collect();
    ids.sort_unstable();
    (ids, index.current().map(<[u8]>::to_vec))
}

fn lose_all(world: &World) {
    ["n0", "n1"].into_iter().for_each(|node| world.lose(node));
}

#[test]
fn delete_takes_the_files_the_folders_that_this_empties_and_the_entry_and_nothing_else() {
    for bypass in ["0", "1"] {
        let world = job().set("SCR_CACHE_BYPASS", bypass);
        let write = |name: &'static str, folder: &'static str| {
            world.run(|application| {
                let rank = application.rank;
                let flags = OutputFlags { checkpoint: true, output: false };
                let session = application.session();
                session.start_output(Some(name.as_bytes()), flags).unwrap();
                let path = session.route_file(format!("{folder}/rank_{rank}").as_bytes()).unwrap();
                std::fs::write(path_of(&path), name).unwrap();
                session.complete_output(true).unwrap();
            });
        };
        write("first", "runs/a/first");
        write("second", "runs/b");
        let prefix = world.prefix();
        std::fs::create_dir_all(prefix.join("runs/mine/empty")).unwrap();
        std::fs::write(prefix.join("runs/b/notes"), "kept").unwrap();
        world.run(|application| {
            application.session().delete(b"first").unwrap();
            // As with C SCR: it is gone already.
            application.session().delete(b"first").unwrap();
            assert_eq!(application.session().have_restart().unwrap(), Some(b"second".to_vec()));
            application.session().delete(b"second").unwrap();
            assert_eq!(application.session().have_restart().unwrap(), None);
        });
        // The folders of both have gone, but for one that holds something else; so has not what was empty before.
        assert!(!prefix.join("runs/a").exists() && prefix.join("runs/mine/empty").is_dir());
        assert_eq!(files_below(&prefix.join("runs")), [prefix.join("runs/b/notes")]);
        assert_eq!(listed(&world), (vec![], None));
        let left =
            world.cached_files().into_iter().filter(|path| path.display().to_string().contains("dataset"));
        assert_eq!(left.count(), 0, "bypass {bypass}: nor is it in cache");
        world.run(|application| application.restart(some)).all_gave(&None);
    }
}

#[test]
fn the_last_file_of_a_prefix_directory_takes_the_folder_along_but_not_the_prefix_directory() {
    let world = job();
    checkpoints(&world, 1..=1);
    world.run(|application| application.session().delete(b"ckpt.1").unwrap());
    let names: Vec<_> =
        std::fs::read_dir(world.prefix()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [".scr"]);
}

#[test]
fn drop_takes_the_entry_alone() {
    let world = job();
    checkpoints(&world, 1..=3);
    world.run(|application| {
        application.session().drop_dataset(b"ckpt.3").unwrap();
        // As with C SCR: the entry of a dataset that somebody has deleted may have gone, too.
        application.session().drop_dataset(b"ckpt.3").unwrap();
        application.session().drop_dataset(b"no such").unwrap();
    });
    assert_eq!(listed(&world).0, [1, 2]);
    for rank in (0..4).map(Rank) {
        let bytes = std::fs::read(world.prefix().join(file_name(3, rank, 0))).unwrap();
        assert_eq!(bytes, contents(3, rank, 0, some(rank)[0]));
    }
    // From the prefix directory it is not restarted from any more.
    lose_all(&world);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// A rank that died in between kept a part that counted, and redundancy brought the whole checkpoint back.
#[test]
fn a_dropped_checkpoint_stays_away_though_a_rank_dies_while_it_is_removed() {
    for after in 2..7 {
        let faulty = FaultyFiles::new(RealFiles);
        let mut world = World::new(2, 2).set("SCR_FLUSH", "0").set("SCR_CACHE_SIZE", "2");
        world.own_files.insert(Rank(1), Arc::new(faulty.clone()));
        world.run(|application| {
            [1, 2].into_iter().for_each(|step| application.checkpoint(step, some).unwrap());
            if application.rank == Rank(1) {
                faulty.stop_at(faulty.mutations() + after);
            }
            // The result does not matter: rank 1 is dead.
            let _ = application.session().drop_dataset(b"ckpt.2");
        });
        world.own_files.clear();
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// One node's part kept counting, and redundancy brought the whole checkpoint back.
#[test]
fn a_dropped_checkpoint_stays_away_though_a_node_cannot_write_its_cache_for_a_while() {
    let faulty = FaultyFiles::new(RealFiles);
    let mut world = World::new(2, 2).set("SCR_FLUSH", "0").set("SCR_CACHE_SIZE", "2");
    world.own_files.insert(Rank(1), Arc::new(faulty.clone()));
    let dropped = world.run(|application| {
        [1, 2].into_iter().for_each(|step| application.checkpoint(step, some).unwrap());
        if application.rank == Rank(1) {
            faulty.only(|_, path| path.to_string_lossy().contains("dataset.2"));
            faulty.fail_from(0, std::io::ErrorKind::Other);
        }
        application.session().drop_dataset(b"ckpt.2").unwrap();
    });
    assert!(faulty.first_failed().is_some());
    dropped.line_with(&["filemap"]);
    world.own_files.clear();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// An application that reads its files itself, with `SCR_FETCH=0`, and says which.
#[test]
fn current_sets_where_checkpoints_are_counted_on_from_and_what_is_fetched_next() {
    let mut world = job().set("SCR_FETCH", "0");
    checkpoints(&world, 1..=4);
    lose_all(&world);
    world.run(|application| {
        assert_eq!(application.session().have_restart().unwrap(), None);
        application.session().current(b"ckpt.2").unwrap();
        let error = application.session().current(b"ckpt.9").unwrap_err().to_string();
        assert!(error.contains("no dataset named `ckpt.9'"), "{error}");
    });
    assert_eq!(listed(&world), (vec![1, 2, 3, 4], Some(b"ckpt.2".to_vec())));
    world.put("SCR_FETCH", "1");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    lose_all(&world);
    world.put("SCR_FETCH", "0");
    world.put("SCR_DROP_AFTER_CURRENT", "1");
    world.run(|application| {
        application.session().current(b"ckpt.3").unwrap();
        application.checkpoint(7, some).unwrap();
    });
    assert_eq!(listed(&world), (vec![1, 2, 3, 5], Some(b"ckpt.7".to_vec())));
    let dataset = index(&world).entry(5).unwrap().dataset.unwrap();
    assert_eq!(dataset.checkpoint_id, Some(4), "it comes after the third");
}

/// Writes output that is no checkpoint, with the files of a step.
fn output(application: &mut Application, name: &[u8], step: u64) {
    let flags = OutputFlags { checkpoint: false, output: true };
    application.session().start_output(Some(name), flags).unwrap();
    application.fill(step, some).unwrap();
    application.session().complete_output(true).unwrap();
}

/// Asks for output by name, and compares every byte.
fn read_back(application: &mut Application, name: &[u8], step: u64) {
    application.session().current(name).unwrap();
    assert_eq!(application.session().have_restart().unwrap().as_deref(), Some(name));
    assert_eq!(application.session().start_restart().unwrap(), name);
    application.compare(step, some).unwrap();
    application.session().complete_restart(true).unwrap();
}

#[test]
fn output_is_read_back_by_its_name_and_the_checkpoint_to_restart_from_stays() {
    for (bypass, asynchronous) in [("0", "0"), ("0", "1"), ("1", "0")] {
        let world = job()
            .set("SCR_CACHE_BYPASS", bypass)
            .set("SCR_FLUSH_ASYNC", asynchronous)
            .set("SCR_FLUSH_TYPE", if asynchronous == "1" { "PTHREAD" } else { "SYNC" });
        world.run(|application| {
            output(application, b"result", 50);
            application.checkpoint(1, some).unwrap();
            output(application, b"other", 60);
            read_back(application, b"result", 50);
            assert_eq!(application.restart(some), Some(1), "output is offered once");
            application.checkpoint(2, some).unwrap();
            read_back(application, b"other", 60);
            application.finalize().unwrap();
        });
        assert_eq!(listed(&world).1.as_deref(), Some(&b"ckpt.2"[..]));
        lose_all(&world);
        world.run(|application| {
            read_back(application, b"other", 60);
            assert_eq!(application.restart(some), Some(2));
            read_back(application, b"result", 50);
            read_back(application, b"result", 50);
            application.checkpoint(3, some).unwrap();
        });
        let copies =
            world.cached_files().into_iter().filter(|path| path.display().to_string().contains("ckpt.50"));
        assert_eq!(copies.count(), 0, "it is read where it lies");
    }
}

/// A call in between would have evicted it, and the run would have begun anew.
#[test]
fn output_stays_until_it_is_read_and_without_it_there_is_the_checkpoint() {
    let world = job().set("SCR_REQUIRE_RESTART", "1");
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        output(application, b"result", 50);
    });
    let asks = |application: &mut Application| {
        application.session().current(b"result").unwrap();
        application.session().need_checkpoint().unwrap();
        assert!(!application.session().should_exit().unwrap());
        assert_eq!(application.session().have_restart().unwrap().as_deref(), Some(&b"result"[..]));
    };
    world.run(|application| {
        asks(application);
        output(application, b"other", 60);
        application.session().start_restart().unwrap();
        application.compare(50, some).unwrap();
        application.session().complete_restart(true).unwrap();
        asks(application);
        application.session().delete(b"result").unwrap();
        assert_eq!(application.restart(some), Some(1));
        application.finalize().unwrap();
    });
    lose_all(&world);
    let world = world.set("SCR_FETCH", "0").set("SCR_REQUIRE_RESTART", "0");
    world.run(|application| {
        let error = application.session().current(b"other").unwrap_err().to_string();
        assert!(error.contains("SCR_FETCH=0"), "{error}");
    });
}

/// It would have been marked as failed, and the checkpoint with it.
#[test]
fn output_that_cannot_be_read_back_is_an_error_and_nothing_else() {
    let world = job();
    world.run(|application| {
        output(application, b"result", 50);
        application.checkpoint(1, some).unwrap();
        application.session().current(b"nothing").unwrap_err();
        application.session().current(b"result").unwrap();
        application.session().start_restart().unwrap();
        let error = application.session().complete_restart(false).unwrap_err().to_string();
        assert!(error.contains("reading back `result' failed"), "{error}");
        assert_eq!(application.restart(some), Some(1));
        application.finalize().unwrap();
    });
    assert!(index(&world).entries().iter().all(scr_prefix::IndexEntry::is_valid));
    lose_all(&world);
    std::fs::write(world.prefix().join(file_name(50, Rank(2), 0)), "damaged").unwrap();
    world.run(|application| {
        let error = application.session().current(b"result").unwrap_err().to_string();
        assert!(error.contains("rank_2.0") && error.contains("damaged"), "{error}");
        assert_eq!(application.restart(some), Some(1));
    });
}

/// Also where it has to be fetched; and a job that fails again and again does not begin anew each time.
#[test]
fn a_named_checkpoint_wins_over_a_newer_one_in_cache_once_per_allocation() {
    for kept in ["1", "2"] {
        let mut world = job().set("SCR_CACHE_SIZE", kept);
        checkpoints(&world, 1..=2);
        world.put("SCR_CURRENT", "ckpt.1");
        for _ in 0..2 {
            world.run(|application| application.restart(some)).all_gave(&Some(1));
            assert_eq!(listed(&world).1.as_deref(), Some(&b"ckpt.1"[..]), "kept: {kept}");
        }
        world.run(|application| {
            assert_eq!(application.restart(some), Some(1));
            application.checkpoint(7, some).unwrap();
        });
        let again = world.run(|application| application.restart(some));
        again.all_gave(&Some(7));
        again.line_with(&["SCR_CURRENT=ckpt.1 was restarted from before", "`scr index --drop-after ckpt.1'"]);
        let dataset = index(&world).entry(3).unwrap().dataset.unwrap();
        assert_eq!(dataset.checkpoint_id, Some(2), "it comes after the first");
        drop_later(&RealFiles, &Prefix::new(world.prefix()), Some(b"ckpt.1")).unwrap();
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        world.put("SCR_JOB_ID", "next");
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// The message named one that had lost its name, too, and a command that did not save it.
#[test]
fn a_checkpoint_that_another_allocation_has_gone_on_before_comes_back_as_the_message_says() {
    for last in [2, 3] {
        let mut world = job().set("SCR_JOB_ID", "first").set("SCR_FLUSH", "0").set("SCR_CACHE_SIZE", "3");
        checkpoints(&world, 1..=3);
        world.put("SCR_JOB_ID", "next");
        world.put("SCR_FLUSH", "1");
        checkpoints(&world, 1..=last);
        world.put("SCR_JOB_ID", "first");
        let run = world.run(|application| application.restart(some));
        run.all_gave(&Some(last));
        let advice = ["`ckpt.3' is in cache only, and is passed over", "start with SCR_CURRENT=ckpt.3"];
        match last {
            2 => _ = run.line_with(&advice),
            _ => assert!(!run.has_line_with("is passed over"), "{:?}", run.lines),
        }
        world.put("SCR_CURRENT", "ckpt.3");
        world.run(|application| application.restart(some)).all_gave(&Some(3));
    }
}

#[test]
fn a_newer_checkpoint_in_cache_wins_over_the_current_one_with_a_message() {
    let world = job();
    checkpoints(&world, 1..=3);
    let quiet = world.run(|application| application.restart(some));
    assert!(!quiet.has_line_with("current, but"), "{:?}", quiet.lines);
    Index::update(&RealFiles, &Prefix::new(world.prefix()), |index| assert!(index.set_current(b"ckpt.1")))
        .unwrap();
    let run = world.run(|application| application.restart(some));
    run.all_gave(&Some(3));
    run.line_with(&["calls `ckpt.1' current", "`ckpt.3' in cache is newer", "SCR_CURRENT=ckpt.1"]);
    // In place there is no copy in cache that would be newer, and `scr index --current' was of no use.
    let world = job().set("SCR_CACHE_BYPASS", "1");
    checkpoints(&world, 1..=3);
    Index::update(&RealFiles, &Prefix::new(world.prefix()), |index| assert!(index.set_current(b"ckpt.1")))
        .unwrap();
    for _ in 0..2 {
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(4, some).unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(4));
}

#[test]
fn a_named_checkpoint_is_not_fetched_if_fetching_is_off() {
    for (fetch, expected) in [("0", 2), ("1", 1)] {
        let world = World::new(2, 2).set("SCR_FLUSH", "1");
        world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, |_| vec![9]).unwrap()));
        let world = world.set("SCR_CURRENT", "ckpt.1").set("SCR_FETCH", fetch);
        let run = world.run(|application| application.restart(|_| vec![9]));
        run.all_gave(&Some(expected));
        let is_said = run.has_line_with("SCR_CURRENT names ckpt.1, which is not in cache");
        assert_eq!(is_said, fetch == "0", "{:?}", run.lines);
    }
}

#[test]
fn a_named_checkpoint_that_cannot_be_fetched_is_reported_and_the_newest_is_taken() {
    let mut world = job();
    checkpoints(&world, 1..=4);
    std::fs::remove_file(world.prefix().join(file_name(1, Rank(2), 0))).unwrap();
    let mut warned = |name: &str, why| {
        world.put("SCR_CURRENT", name);
        let run = world.run(|application| application.restart(some));
        run.all_gave(&Some(4));
        run.line_with(&["rank 0", name, "cannot be fetched", why]);
    };
    // With a newer one in cache.
    warned("ckpt.9", "the index has no dataset of that name");
    warned("ckpt.1", "rank_2.0 is missing");
    lose_all(&world);
    let run = world.run(|application| application.restart(some));
    run.all_gave(&Some(4));
    run.line_with(&["SCR_CURRENT names ckpt.1", "it was marked as failed on"]);
    let strict = world.set("SCR_STRICT", "1").try_run(|begun| begun.err().map(|error| error.to_string()));
    let is_refused =
        |error: &Option<String>| error.as_ref().is_some_and(|error| error.contains("SCR_STRICT=1"));
    assert!(strict.ranks.iter().all(is_refused), "{:?}", strict.ranks);
}

/// The runs after the one that had found the damage began anew without a word.
#[test]
fn every_run_that_starts_fresh_reports_that_all_checkpoints_have_failed() {
    let world = job().set("SCR_DEBUG", "0");
    checkpoints(&world, 1..=2);
    lose_all(&world);
    for step in 1..=2 {
        std::fs::remove_file(world.prefix().join(file_name(step, Rank(1), 0))).unwrap();
    }
    let warned = |word| {
        let run = world.run(|application| application.restart(some));
        run.all_gave(&None);
        run.line_with(&["rank 0", word, "ckpt.2", "ckpt.1"]);
    };
    warned("no checkpoint could be fetched from");
    (0..2).for_each(|_| warned("no checkpoint in the index can be fetched: "));
    // It was told that it begins without one, and that it does not.
    let world = world.set("SCR_REQUIRE_RESTART", "1");
    let refused = world.try_run(|begun| begun.err().expect("no run begins").to_string());
    assert!(refused.ranks[0].contains("does not start without a checkpoint"), "{:?}", refused.ranks);
    assert!(!refused.has_line_with("begins without"), "{:?}", refused.lines);
}

#[test]
fn a_fetch_in_place_copies_nothing_to_cache() {
    for setting in ["SCR_GLOBAL_RESTART", "SCR_FETCH_BYPASS"] {
        let mut world = job();
        checkpoints(&world, 1..=1);
        lose_all(&world);
        world.put(setting, "1");
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        let copies =
            world.cached_files().into_iter().filter(|path| path.display().to_string().contains("rank_"));
        assert_eq!(copies.count(), 0, "{setting}");
    }
}

#[test]
fn a_fetch_says_what_is_unverified_and_why() {
    let unverified = |when_flushed, when_fetched| {
        let mut world = job().set("SCR_COPY_TYPE", "SINGLE").set("SCR_CRC_ON_FLUSH", when_flushed);
        checkpoints(&world, 1..=1);
        lose_all(&world);
        world.put("SCR_CRC_ON_FLUSH", when_fetched);
        let run = world.run(|application| application.restart(some));
        run.all_gave(&Some(1));
        run.has_line_with("unverified")
            .then(|| run.line_with(&["WARNING", "`ckpt.1' is unverified"]).to_owned())
    };
    assert!(unverified("0", "1").is_some_and(|line| line.contains("not all its files have checksums")));
    assert!(unverified("1", "0").is_some_and(|line| line.contains("SCR_CRC_ON_FLUSH=0 is set")));
    assert_eq!(unverified("1", "1"), None);
}

/// Checkpoints, output and what is both, wherever the files were written first; what scr does not know stays.
#[test]
fn a_purge_of_the_prefix_directory_takes_every_dataset_with_its_folders_and_nothing_else() {
    for bypass in ["0", "1"] {
        let mut world = job().set("SCR_CACHE_BYPASS", bypass);
        world.run(|application| {
            application.checkpoint(1, some).unwrap();
            application.output(2, some).unwrap();
            let output = OutputFlags { checkpoint: false, output: true };
            application.session().start_output(Some(b"plot"), output).unwrap();
            application.fill(3, some).unwrap();
            application.session().complete_output(true).unwrap();
            application.finalize().unwrap();
        });
        assert_eq!(listed(&world).0, [1, 2, 3]);
        std::fs::write(world.prefix().join("mine"), b"kept").unwrap();
        if bypass == "0" {
            // Otherwise the datasets in cache would be flushed again.
            lose_all(&world);
        }
        world.put("SCR_PREFIX_PURGE", "1");
        world.put("SCR_REQUIRE_RESTART", "1");
        let refused = world.try_run(|begun| begun.err().expect("no run begins").to_string());
        let why = scr_base::codes::coded("ERROR", &refused.ranks[0]);
        assert!(why.contains("SCR_PREFIX_PURGE=1") && why.ends_with("[SCR-310]"), "{why}");
        assert_eq!(listed(&world).0, [1, 2, 3], "nothing is deleted");
        world.put("SCR_REQUIRE_RESTART", "0");
        let run = world.run(|application| application.restart(some));
        run.all_gave(&None);
        assert!(!run.has_line_with("ERROR"), "{:#?}", run.lines);
        run.line_with(&["WARNING", "SCR_PREFIX_PURGE=1 deletes all datasets", "[SCR-322]"]);
        assert_eq!(listed(&world), (Vec::new(), None), "bypass {bypass}");
        let names = std::fs::read_dir(world.prefix()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, [".scr", "mine"], "bypass {bypass}");
    }
}

/// Each run takes one and dies.
#[test]
fn the_checkpoints_from_one_flush_to_the_next_are_counted_over_all_runs() {
    let world = job().set("SCR_FLUSH", "3");
    for step in 1..=7 {
        world.run(|application| {
            assert_eq!(application.restart(some), (step > 1).then(|| step - 1));
            application.checkpoint(step, some).unwrap();
        });
    }
    assert_eq!(listed(&world).0, [3, 6]);
}

/// An older one makes way only for one that has arrived.
#[test]
fn the_window_in_the_prefix_directory_keeps_the_last_good_one_while_a_newer_one_cannot_be_flushed() {
    for detached in ["0", "1"] {
        let world = job()
            .set("SCR_PREFIX_SIZE", "1")
            .set("SCR_FLUSH_TYPE", "PTHREAD")
            .set("SCR_FLUSH_ASYNC", detached);
        let in_the_way = world.prefix().join("ckpt.2");
        checkpoints(&world, 1..=1);
        std::fs::write(&in_the_way, "in the way").unwrap();
        world.run(|application| application.checkpoint(2, some).unwrap());
        assert!(world.prefix().join(file_name(1, Rank(3), 0)).exists());
        lose_all(&world);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        std::fs::remove_file(&in_the_way).unwrap();
        world.run(|application| {
            application.checkpoint(3, some).unwrap();
            application.output(4, some).unwrap();
            application.checkpoint(5, some).unwrap();
            application.finalize().unwrap();
        });
        let left: Vec<_> = index(&world).entries().iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(left, [&b"ckpt.5"[..], b"ckpt.4"], "output stays, detached: {detached}");
        assert!(!world.prefix().join("ckpt.1").exists() && !world.prefix().join("ckpt.3").exists());
    }
}

#[test]
fn the_window_leaves_a_checkpoint_alone_while_it_is_being_flushed() {
    let mut world = World::new(1, 1);
    for (name, value) in [
        ("SCR_COPY_TYPE", "SINGLE"),
        ("SCR_CACHE_SIZE", "2"),
        ("SCR_FLUSH", "1"),
        ("SCR_FLUSH_ASYNC", "1"),
        ("SCR_FLUSH_TYPE", "PTHREAD"),
        ("SCR_FLUSH_ASYNC_BW", "4M"),
        ("SCR_PREFIX_SIZE", "1"),
    ] {
        world.put(name, value);
    }
    world.run(|application| {
        application.checkpoint(1, |_| vec![2_000_000]).unwrap();
        application.checkpoint(2, some).unwrap();
        // Waits for the flush of the name, and for no other one; then the first one leaves the cache.
        application.checkpoint(2, some).unwrap();
        application.finalize().unwrap();
    });
    let left: Vec<_> = index(&world).entries().iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(left, [b"ckpt.2"]);
    world.lose("n0");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

#[test]
fn failed_fetches_are_reported_at_every_debug_level() {
    let world = job();
    checkpoints(&world, 1..=3);
    lose_all(&world);
    std::fs::remove_file(world.prefix().join(file_name(3, Rank(2), 0))).unwrap();
    let damaged = world.prefix().join(file_name(1, Rank(1), 0));
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[7] ^= 4;
    std::fs::write(&damaged, bytes).unwrap();
    let world = world.set("SCR_DEBUG", "0");
    // Newest to oldest, over the damaged one.
    let fetched = world.run(|application| application.restart(some));
    fetched.all_gave(&Some(2));
    fetched.line_with(&["ERROR: rank 0", "`ckpt.3' cannot be fetched", "rank 2", "rank_2.0"]);
    lose_all(&world);
    std::fs::write(world.prefix().join(".scr/scr.dataset.2/rank2file"), "x").unwrap();
    let none = world.run(|application| application.restart(some));
    none.all_gave(&None);
    none.line_with(&["ERROR: rank 0", "`ckpt.2' cannot be fetched", "rank2file"]);
    none.line_with(&["ERROR: rank 0", "`ckpt.1' cannot be fetched", "rank_1.0", "its checksum is"]);
    none.line_with(&["ERROR: rank 0", "no checkpoint could be fetched from", "tried: ckpt.2, ckpt.1"]);
    let failed = index(&world).entries().iter().filter(|entry| entry.failed.is_some()).count();
    assert_eq!(failed, 3);
}

/// Deprecated, and still used.
#[test]
fn a_bare_name_finds_its_file_at_a_restart_wherever_the_dataset_lies() {
    for setting in [
        ("SCR_CACHE_BYPASS", "0"),
        ("SCR_CACHE_BYPASS", "1"),
        ("SCR_FETCH_BYPASS", "1"),
        ("SCR_GLOBAL_RESTART", "1"),
    ] {
        let world = job().set(setting.0, setting.1);
        checkpoints(&world, 1..=1);
        for lost in [false, true] {
            if lost {
                lose_all(&world);
            }
            world.run(|application| {
                let rank = application.rank;
                let session = application.session();
                session.start_restart().unwrap();
                let path = session.route_file(format!("rank_{rank}.0").as_bytes()).unwrap();
                let bytes = std::fs::read(path_of(&path)).unwrap();
                assert_eq!(bytes, contents(1, rank, 0, some(rank)[0]), "{setting:?}, lost: {lost}");
                let error = session.route_file(b"rank_77.0").unwrap_err().to_string();
                assert!(error.contains("`rank_77.0' is not a file that rank"), "{error}");
                session.complete_restart(true).unwrap();
            });
        }
    }
}

/// The flush of the older dataset ended in the middle of the newer one, and its files took the place of those that the
/// application had just written: the index had the newer dataset as complete, with the older one's bytes.
#[test]
fn a_name_used_again_in_bypass_mode_while_its_older_dataset_is_on_its_way_is_not_mixed_with_it() {
    let world = World::new(2, 2).set("SCR_COPY_TYPE", "FILE").unset("SCR_CACHE_BYPASS");
    let world = world.set("SCR_FLUSH", "1").set("SCR_FLUSH_ASYNC", "1").set("SCR_FLUSH_TYPE", "PTHREAD");
    // A limit, so that the first one is still on its way when the second one begins.
    let world = world.set("SCR_FLUSH_ASYNC_BW", "1MB");
    let base = world.node("$SCR_NODE_NAME").display().to_string();
    let lines = format!("CKPT=0 INTERVAL=1 STORE={base} TYPE=XOR BYPASS=0\nCKPT=1 INTERVAL=2 STORE={base} TYPE=XOR BYPASS=1\n");
    std::fs::write(world.prefix().join(".scrconf"), lines).unwrap();
    let size = |_: Rank| 400_000;
    let write = |application: &mut super::world::Application, step: u64| {
        let rank = application.rank;
        let flags = OutputFlags { checkpoint: true, output: false };
        let session = application.session();
        session.start_output(Some(b"same"), flags).unwrap();
        let path = session.route_file(format!("same/rank_{rank}").as_bytes()).unwrap();
        std::fs::write(path_of(&path), contents(step, rank, 0, size(rank))).unwrap();
        session.complete_output(true).unwrap();
    };
    let check = |application: &mut super::world::Application| {
        let rank = application.rank;
        let session = application.session();
        assert_eq!(session.start_restart().unwrap(), b"same");
        let path = session.route_file(format!("same/rank_{rank}").as_bytes()).unwrap();
        let bytes = std::fs::read(path_of(&path)).unwrap();
        assert!(bytes == contents(2, rank, 0, size(rank)), "rank {rank} has not what was written last");
        session.complete_restart(true).unwrap();
    };
    world.run(|application| {
        write(application, 1);
        write(application, 2);
        application.finalize().unwrap();
    });
    world.run(check);
    lose_all(&world);
    world.run(check);
}

/// The nodes had failed beyond redundancy, and the job went back each time.
#[test]
fn a_job_goes_on_from_what_it_has_flushed_since_it_went_back() {
    let mut world = job();
    checkpoints(&world, 1..=2);
    world.put("SCR_CURRENT", "ckpt.1");
    world.put("SCR_DROP_AFTER_CURRENT", "1");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(7, some).unwrap();
        application.checkpoint(8, some).unwrap();
    });
    lose_all(&world);
    let again = world.run(|application| {
        let name = application.session().start_restart().unwrap();
        application.session().complete_restart(false).unwrap_err();
        assert_eq!(application.restart(some), Some(7), "the next older one");
        name
    });
    again.all_gave(&b"ckpt.8".to_vec());
    again.line_with(&["SCR_CURRENT=ckpt.1 was restarted from before", "going on from `ckpt.8'"]);
    assert_eq!(listed(&world).0, [1, 3, 4]);
}

/// The newest of all was taken then, which the user had gone back from.
#[test]
fn a_job_that_went_back_never_goes_on_from_what_was_written_before_it_did() {
    for damaged in [false, true] {
        let mut world = job();
        checkpoints(&world, 1..=2);
        world.put("SCR_CURRENT", "ckpt.1");
        world.run(|application| {
            assert_eq!(application.restart(some), Some(1));
            application.checkpoint(7, some).unwrap();
        });
        lose_all(&world);
        if damaged {
            std::fs::write(world.prefix().join(file_name(7, Rank(0), 0)), "damaged").unwrap();
        }
        world.run(|application| {
            if !damaged {
                assert_eq!(application.session().start_restart().unwrap(), b"ckpt.7");
                application.session().complete_restart(false).unwrap_err();
            }
            assert_eq!(application.restart(some), Some(1), "damaged: {damaged}");
        });
        assert_eq!(listed(&world).0, [1, 2, 3], "nothing is dropped");
    }
}

/// `scr index --drop` took the entry, and the next run restarted from the copy in cache, and listed it again, without a word.
#[test]
fn what_the_command_drops_does_not_come_back_from_cache_unless_it_is_listed_again() {
    let world = job();
    checkpoints(&world, 1..=3);
    let prefix = Prefix::new(world.prefix());
    let drop_it = |name: &str| drop_dataset(&RealFiles, &prefix, name.as_bytes()).unwrap();
    let dropped = drop_it("ckpt.3");
    assert!(dropped.found && dropped.in_cache == [3], "{dropped:?}");
    assert_eq!(drop_it("ckpt.3"), Dropped { name: b"ckpt.3".to_vec(), ..Dropped::default() });
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    assert_eq!(listed(&world).0, [1, 2]);
    assert!(drop_it("ckpt.2").found);
    let env = world.env_of(Rank(0)).env();
    let host = PluginHost::new(&env, None);
    assert!(Builder::new(&env, &prefix, &host, 0).add(b"ckpt.2").unwrap().outcome.is_complete());
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// The message says to drop it, and its remains were tried all the same: no job with `SCR_REQUIRE_RESTART` ever began.
#[test]
fn what_is_left_of_a_lost_checkpoint_leaves_once_it_is_dropped() {
    let world = World::new(4, 4).set("SCR_REQUIRE_RESTART", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    let refused = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
    assert!(refused.ranks[0].as_ref().unwrap_err().contains("SCR_REQUIRE_RESTART=1"), "{:?}", refused.ranks);
    drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"ckpt.1").unwrap();
    let begun = world.run(|application| application.restart(some));
    begun.all_gave(&None);
    assert!(!begun.lines.iter().any(|line| line.contains("ERROR")), "{:?}", begun.lines);
    assert!(!world.node("n2/user1/scr.defjobid/scr.dataset.1").exists());
}

/// It left the index first, and where flush.scr did not list it, or the command died then, nothing said that it was gone.
#[test]
#[ignore = "long"]
fn what_the_command_deletes_stays_away_wherever_it_dies_and_whatever_flush_scr_says() {
    for is_flush_file_lost in [false, true] {
        for after in 0.. {
            let world = job();
            checkpoints(&world, 1..=3);
            let prefix = Prefix::new(world.prefix());
            if is_flush_file_lost {
                std::fs::remove_file(prefix.flush_file()).unwrap();
            }
            let faulty = FaultyFiles::new(RealFiles);
            faulty.stop_at(after);
            let deleted = delete_dataset(&faulty, &prefix, b"ckpt.3");
            let is_whole = index(&world).entry(3).is_some_and(|entry| entry.complete && !entry.superseded);
            // What is left of it is nothing that could be built.
            let env = world.env_of(Rank(0)).env();
            let host = PluginHost::new(&env, None);
            let builder = Builder::new(&env, &prefix, &host, 0);
            if index(&world).entry(3).is_none() && builder.datasets().unwrap().contains(&3) {
                assert!(builder.withdrawn(3).unwrap().is_some(), "after {after} changes");
            }
            let expected = if is_whole { 3 } else { 2 };
            world.run(|application| application.restart(some)).all_gave(&Some(expected));
            if deleted.is_ok() {
                assert!(!is_whole && after > 5, "it has ended after {after} changes");
                break;
            }
        }
    }
}

/// `SCR_Finalize` flushed it, and it was current again.
#[test]
fn what_a_command_drops_while_the_job_runs_is_not_flushed_any_more() {
    for flush in [&[][..], &[("SCR_FLUSH", "1"), ("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "PTHREAD")][..]]
    {
        let seldom = job().set("SCR_FLUSH", "10");
        let world = flush.iter().fold(seldom, |world, (name, value)| world.set(name, value));
        let (prefix, meet) = (Prefix::new(world.prefix()), Barrier::new(4));
        let ended = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            if meet.wait().is_leader() {
                assert!(drop_dataset(&RealFiles, &prefix, b"ckpt.1").unwrap().found);
            }
            meet.wait();
            application.finalize().unwrap();
        });
        ended.line_with(&["dataset 1 `ckpt.1'", "was dropped from the index by a command"]);
        assert!(!index(&world).entries().iter().any(|entry| entry.complete));
        let next = world.run(|application| application.restart(some));
        next.all_gave(&None);
        assert!(!next.has_line_with("is lost"), "{}", next.lines.join("\n"));
    }
}

#[test]
fn all_that_is_newer_is_dropped_at_once_and_an_older_one_whose_name_came_again_stays() {
    let mut world = job();
    let write = |world: &World, name: &[u8], step: u64| {
        world.run(|application| application.checkpoint_as(name, step, some).unwrap());
    };
    for (name, step) in [(b"ckpt.1", 1), (b"ckpt.2", 2), (b"ckpt.3", 3)] {
        write(&world, name, step);
    }
    world.put("SCR_FLUSH", "0");
    write(&world, b"ckpt.1", 4);
    let prefix = Prefix::new(world.prefix());
    let drop_after = |name: &[u8]| drop_later(&RealFiles, &prefix, Some(name)).unwrap();
    assert_eq!(drop_after(b"ckpt.4"), None);
    assert_eq!(listed(&world).0, [1, 2, 3], "nothing is dropped");
    let dropped = |name: &[u8], id| {
        let name = name.to_vec();
        Dropped { name, found: true, in_cache: vec![id], caution: None, notes: Vec::new() }
    };
    assert_eq!(drop_after(b"ckpt.2"), Some(vec![dropped(b"ckpt.1", 4), dropped(b"ckpt.3", 3)]));
    assert_eq!(drop_after(b"ckpt.2"), Some(Vec::new()));
    assert_eq!(listed(&world).0, [1, 2]);
    world.run(|application| {
        assert_eq!(application.restart(some), Some(2));
        application.session().current(b"ckpt.1").unwrap();
    });
    lose_all(&world);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The checkpoint stayed given up: once the new one was dropped, the application was offered the one before it.
#[test]
fn an_application_that_goes_back_too_far_can_come_forward_again() {
    let world = World::new(4, 4).set("SCR_CACHE_SIZE", "4").set("SCR_FLUSH", "1");
    checkpoints(&world, 1..=3);
    world.run(|application| {
        application.session().current(b"ckpt.1").unwrap();
        application.session().current(b"ckpt.2").unwrap();
        assert_eq!(application.restart(some), Some(2));
        application.checkpoint(4, some).unwrap();
        application.session().drop_dataset(b"ckpt.4").unwrap();
        assert_eq!(application.restart(some), Some(2));
    });
}

/// Only the copies that a run had in reach were marked. When the nodes came back, so did what was deleted.
#[test]
fn what_is_deleted_or_dropped_does_not_come_back_from_a_whole_copy_on_nodes_that_were_away() {
    for how in ["delete", "drop", "go back", "drop what was not read"] {
        let mut world = World::new(4, 4).set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH", "1");
        let all = world.nodes.clone();
        checkpoints(&world, 1..=2);
        world.nodes = ["n4", "n5", "n6", "n7"].map(str::to_owned).to_vec();
        if how == "go back" {
            world.put("SCR_CURRENT", "ckpt.1");
            world.put("SCR_DROP_AFTER_CURRENT", "1");
        }
        if how == "drop what was not read" {
            world.put("SCR_FETCH", "0");
        }
        world.run(|application| match how {
            "go back" => assert_eq!(application.restart(some), Some(1)),
            "delete" => application.session().delete(b"ckpt.2").unwrap(),
            _ => application.session().drop_dataset(b"ckpt.2").unwrap(),
        });
        world.nodes = all;
        for name in ["SCR_CURRENT", "SCR_DROP_AFTER_CURRENT"] {
            world = world.unset(name);
        }
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        assert_eq!(listed(&world).0, [1], "{how}");
    }
}

/// Nodes were away, so that the run had only parts of them. When the nodes came back, so did what was deleted.
#[test]
fn what_is_deleted_or_dropped_does_not_come_back_with_the_nodes_that_were_away() {
    for how in ["delete", "drop", "go back", "other ranks"] {
        let mut world = World::new(4, 4).set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH_ON_RESTART", "1");
        let all = world.nodes.clone();
        world.put("SCR_FLUSH", "1");
        checkpoints(&world, 1..=1);
        world.put("SCR_FLUSH", "0");
        checkpoints(&world, 2..=2);
        world.nodes = ["n0", "n1", "n4", "n5"].map(str::to_owned).to_vec();
        if how == "other ranks" {
            world.nodes.truncate(2);
        }
        world.run(|application| match how {
            "drop" => application.session().drop_dataset(b"ckpt.2").unwrap(),
            "go back" => (),
            _ => application.session().delete(b"ckpt.2").unwrap(),
        });
        if how == "go back" {
            world.put("SCR_DROP_AFTER_CURRENT", "1");
            world.run(|application| {
                application.session().current(b"ckpt.1").unwrap();
                assert_eq!(application.restart(some), Some(1));
            });
        }
        world.nodes = all;
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        assert_eq!(listed(&world).0, [1], "{how}");
    }
}

/// The flush of the newer one was closed by the next call, and the next run began with it.
#[test]
fn a_newer_checkpoint_that_could_not_be_listed_does_not_come_back_once_the_application_has_gone_back() {
    for drop in ["0", "1"] {
        let faulty = FaultyFiles::new(RealFiles);
        let mut world = job().set("SCR_DROP_AFTER_CURRENT", drop);
        world.files = Arc::new(faulty.clone());
        let outcome = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            if application.rank == Rank(0) {
                let is_summary = |path: &str| path.contains("dataset.2") && path.contains("summary");
                faulty.only(move |_, path| is_summary(&path.to_string_lossy()));
                faulty.fail_from(1, std::io::ErrorKind::Other);
            }
            application.checkpoint(2, some).unwrap();
            application.session().current(b"ckpt.1").unwrap();
            if application.rank == Rank(0) {
                faulty.heal();
            }
            application.session().should_exit().unwrap();
        });
        assert!(outcome.has_line_with("Flush failed"), "{}", outcome.lines.join("\n"));
        assert_eq!(listed(&world).1.as_deref(), Some(&b"ckpt.1"[..]), "drop {drop}");
        assert!(!index(&world).entry(2).is_some_and(|entry| entry.is_valid()), "drop {drop}");
    }
}
