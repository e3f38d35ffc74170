//! A run that cannot restart from what is there says so, fails where the user wants no such run, and takes nothing away from the
//! run with the right number of ranks.

use super::world::{files_below, path_of, Application, World};
use scr_base::fs::{Files, FsError, How, RealFiles};
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use scr_ops::{drop_dataset, unsaved};
use scr_prefix::{FlushFile, LastRun, Location, Prefix, PrefixError, Running};
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::sync::Arc;

fn some(rank: Rank) -> Vec<usize> {
    vec![700 + 7 * rank.index(), 3]
}

fn with_ranks(world: &mut World, ranks: usize) {
    world.nodes = (0..ranks).map(|rank| format!("n{rank}")).collect();
}

fn lose_all(world: &World) {
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
}

/// The datasets that `scr postrun` looks for in cache.
fn in_cache(world: &World) -> Vec<u64> {
    let file = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    let entries = file.entries().into_iter().filter(|entry| entry.is_at(Location::Cache));
    entries.map(|entry| entry.id).collect()
}

fn fails_to_begin(world: &World, why: &str) {
    let outcome = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
    for rank in &outcome.ranks {
        let error = rank.as_ref().unwrap_err();
        assert!(error.contains("SCR_REQUIRE_RESTART=1") && error.contains(why), "{error}");
    }
}

#[test]
fn a_run_with_another_number_of_ranks_says_that_it_starts_without_a_checkpoint_or_does_not_start() {
    let why = "dataset 1 `ckpt.1' was written by 4 ranks, and this run has 3";
    for flush in ["0", "1"] {
        let mut world = World::new(4, 4).set("SCR_FLUSH", flush);
        world.run(|application| application.checkpoint(1, some).unwrap());
        if flush == "1" {
            lose_all(&world);
        }
        with_ranks(&mut world, 3);
        let outcome = world.run(|application| application.restart(some));
        outcome.all_gave(&None);
        outcome.line_with(&[
            "ERROR",
            "there are checkpoints, but",
            why,
            // SCR_Start_output refuses to, which was not said.
            "the run starts without a checkpoint, and may write over `ckpt.1' (only with SCR_REPLACE_OTHER_RANKS=1); to",
        ]);
        let alarming = |line: &&String| line.contains(" ERROR: ") || line.contains(" WARNING: ");
        assert_eq!(outcome.lines.iter().filter(alarming).count(), 1, "{}", outcome.lines.join("\n"));
        world.put("SCR_REQUIRE_RESTART", "1");
        fails_to_begin(&world, why);
        with_ranks(&mut world, 4);
        let outcome = world.run(|application| application.restart(some));
        outcome.all_gave(&Some(1));
        outcome.line_with(&["restarting from dataset 1 `ckpt.1'"]);
        assert!(!outcome.has_line_with("starts without a checkpoint"));
    }
}

/// The run took it out of the flush file, and `scr postrun` had nothing to save. It also took a flush of another job out.
#[test]
fn what_a_run_with_another_number_of_ranks_leaves_alone_is_still_to_be_saved() {
    let mut world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, some).unwrap());
    let prefix = Prefix::new(world.prefix());
    FlushFile::update(&RealFiles, &prefix, |flush| flush.add_location(1, Location::Flushing)).unwrap();
    with_ranks(&mut world, 3);
    let other_job = std::fs::File::open(world.prefix().join(".scr/running")).unwrap();
    other_job.lock().unwrap();
    world.run(|application| application.restart(some)).all_gave(&None);
    let entry = FlushFile::read(&RealFiles, &prefix).unwrap().entry(1).unwrap();
    assert!(entry.is_at(Location::Cache) && entry.is_at(Location::Flushing), "{entry:?}");
    drop(other_job);
    world.run(|application| application.restart(some)).all_gave(&None);
    let entry = FlushFile::read(&RealFiles, &prefix).unwrap().entry(1).unwrap();
    assert_eq!(entry.locations, [Location::Cache]);
    world.run(|application| application.session().drop_dataset(b"ckpt.1").unwrap());
    assert!(in_cache(&world).is_empty());
}

/// Checkpoints of the wrong number of ranks took its place: nothing was left to save, and the window deleted the one that was
/// saved.
#[test]
fn a_checkpoint_in_cache_outlives_newer_ones_of_another_number_of_ranks() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "2").set("SCR_PREFIX_SIZE", "1");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    with_ranks(&mut world, 3);
    world.put("SCR_FLUSH", "1");
    for step in [4, 5] {
        let run = world.run(|application| {
            let found = application.restart(some);
            application.checkpoint(step, some).unwrap();
            found
        });
        run.all_gave(&(step > 4).then(|| step - 1));
    }
    assert!(in_cache(&world).contains(&3), "scr postrun saves it");
    let lost = unsaved(&RealFiles, &world.node("n1/user1/scr.defjobid")).unwrap();
    assert!(lost.len() == 1 && lost[0].starts_with("dataset 3 "), "{lost:?}");
    assert!(!files_below(&world.prefix().join("ckpt.2")).is_empty(), "the window leaves it alone");
    with_ranks(&mut world, 4);
    world.run(|application| application.restart(some)).all_gave(&Some(3));
    lose_all(&world);
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

/// The nodes that it did not have were forgotten: `scr postrun' did not ask them, and said that the checkpoint was lost.
#[test]
fn the_nodes_of_earlier_runs_stay_known_until_a_run_has_restarted() {
    let mut world = World::new(4, 4).set("SCR_REQUIRE_RESTART", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let nodes = |world: &World| {
        let run = LastRun::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().unwrap();
        (run.nodes.len(), run.all_nodes().len())
    };
    with_ranks(&mut world, 2);
    world.try_run(|begun| assert!(begun.is_err()));
    assert_eq!(nodes(&world), (2, 4));
    world.put("SCR_REQUIRE_RESTART", "0");
    world.run(|application| application.restart(some)).all_gave(&None);
    assert_eq!(nodes(&world), (2, 4));
    with_ranks(&mut world, 4);
    world.nodes[3] = "n7".to_owned();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    assert_eq!(nodes(&world), (4, 4), "nobody needs n3 any more");
}

/// `scr postrun' of the allocation that has the checkpoint asked the nodes of the refused run, and advised to drop it.
#[test]
fn a_refused_run_of_another_allocation_leaves_the_record_of_the_run_that_has_the_checkpoint() {
    let mut world = World::new(4, 4).set("SCR_REQUIRE_RESTART", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let recorded = |world: &World| LastRun::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().unwrap();
    let before = recorded(&world);
    world.put("SCR_JOB_ID", "other");
    world.nodes = ["k0", "k1", "k2", "k3"].map(str::to_owned).to_vec();
    let refused = world.try_run(|begun| assert!(begun.is_err()));
    refused.line_with(&["is only in the cache of allocation defjobid", "[SCR-315]"]);
    assert_eq!(recorded(&world), before);
    world.put("SCR_REQUIRE_RESTART", "0");
    world.run(|application| application.restart(some)).all_gave(&None);
    let after = recorded(&world);
    assert_eq!((after.job_id.as_str(), after.all_nodes()), ("other", world.nodes.clone()));
}

/// It was refused after it had taken the place of the record.
#[test]
fn a_run_without_a_folder_for_metrics_leaves_the_record_of_another_allocation_with_scr_strict() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let recorded = |world: &World| LastRun::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().unwrap();
    let before = recorded(&world);
    world.put("SCR_JOB_ID", "other");
    world.put("SCR_STRICT", "1");
    world.put("SCR_METRICS_DIR", "/nowhere/at/all");
    world.nodes = ["k0", "k1", "k2", "k3"].map(str::to_owned).to_vec();
    let refused = world.try_run(|begun| assert!(begun.is_err()));
    refused.line_with(&["WARNING", "the metrics of this job cannot be written"]);
    assert_eq!(recorded(&world), before);
}

#[test]
fn a_first_run_starts_though_a_restart_is_required() {
    let world = World::new(4, 4).set("SCR_REQUIRE_RESTART", "1");
    let outcome = world.run(|application| application.restart(some));
    outcome.all_gave(&None);
    assert!(!outcome.has_line_with("there are checkpoints"));
}

#[test]
fn a_run_that_could_fetch_nothing_does_not_start_if_a_restart_is_required() {
    let world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_REQUIRE_RESTART", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    lose_all(&world);
    let files = files_below(&world.prefix().join("ckpt.1"));
    files.iter().for_each(|path| std::fs::write(path, "damaged").unwrap());
    // Nor does the next one, which finds it marked as failed.
    for _ in 0..2 {
        fails_to_begin(&world, "those in the index");
    }
    let world = world.set("SCR_REQUIRE_RESTART", "0");
    world.run(|application| application.restart(some)).line_with(&["the run starts without a checkpoint"]);
}

/// It began from nothing over good checkpoints, and in bypass mode it computed on and could save nothing.
#[test]
fn a_run_whose_index_is_damaged_or_missing_makes_a_new_one_from_the_summaries() {
    for bypass in ["0", "1"] {
        for damaged in [true, false] {
            let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", bypass);
            world.run(|application| {
                (1..=3).for_each(|step| application.checkpoint(step, some).unwrap());
                application.session().drop_dataset(b"ckpt.3").unwrap();
            });
            lose_all(&world);
            let index = world.prefix().join(".scr/index.scr");
            let kept = std::fs::read(&index).unwrap();
            match damaged {
                true => std::fs::write(&index, &kept[..50]).unwrap(),
                false => std::fs::remove_file(&index).unwrap(),
            }
            world.put("SCR_REQUIRE_RESTART", "1");
            let outcome = world.run(|application| {
                let restarted = application.restart(some);
                application.checkpoint(4, some).unwrap();
                restarted
            });
            outcome.all_gave(&Some(2));
            outcome.line_with(&["A new index lists the 2 datasets"]);
            let aside = world.prefix().join(".scr/index.scr.damaged.1");
            assert_eq!(std::fs::read(&aside).ok(), damaged.then(|| kept[..50].to_vec()));
            lose_all(&world);
            world.run(|application| application.restart(some)).all_gave(&Some(4));
        }
    }
}

/// A run that could not say what there is began from nothing.
#[test]
fn a_run_does_not_begin_with_a_damaged_index_that_cannot_be_replaced() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    lose_all(&world);
    let index = world.prefix().join(".scr/index.scr");
    std::fs::write(&index, "x").unwrap();
    let faulty = FaultyFiles::new(RealFiles);
    faulty.never_pause();
    faulty.only(|what, path| what == What::Read && path.ends_with("summary.scr"));
    faulty.count_all();
    faulty.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(faulty.clone());
    let outcome = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
    let errors = outcome.ranks.iter().map(|rank| rank.as_ref().unwrap_err());
    assert!(errors.into_iter().all(|error| error.contains("summary.scr")), "{:?}", outcome.ranks);
    assert_eq!(std::fs::read(&index).unwrap(), b"x");
    faulty.heal();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// It began without a word, and the file forgot that there was anything.
#[test]
fn a_run_whose_flush_file_is_damaged_does_not_start_from_nothing_if_a_restart_is_required() {
    let mut world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, some).unwrap());
    lose_all(&world);
    std::fs::write(world.prefix().join(".scr/flush.scr"), "x").unwrap();
    world.put("SCR_REQUIRE_RESTART", "1");
    for _ in 0..2 {
        fails_to_begin(&world, "flush.scr, which lists those in cache only, is damaged");
    }
    world.put("SCR_REQUIRE_RESTART", "0");
    world.run(|application| application.restart(some)).line_with(&["the run starts without a checkpoint"]);
    world.run(|application| application.restart(some)).all_gave(&None);
    // Nor does it restart from an older one without a word of what else there may be.
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.put("SCR_FLUSH", "2");
    world.run(|application| (2..4).for_each(|step| application.checkpoint(step, some).unwrap()));
    lose_all(&world);
    super::damage::flip_middle(&world.prefix().join(".scr/flush.scr"));
    let outcome = world.run(|application| application.restart(some));
    outcome.all_gave(&Some(2));
    outcome.line_with(&[
        "WARNING",
        "flush.scr is damaged",
        "only missing nodes have is not seen",
        "[SCR-433]",
    ]);
}

/// It began anew without a word, and the flush file forgot what the other allocation had.
#[test]
fn a_run_in_another_allocation_says_what_only_the_cache_of_the_first_one_has() {
    let mut world = World::new(4, 4).set("SCR_JOB_ID", "5131");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.put("SCR_JOB_ID", "5132");
    world.put("SCR_REQUIRE_RESTART", "1");
    for _ in 0..2 {
        fails_to_begin(&world, "another allocation has one in its cache only");
    }
    world.put("SCR_REQUIRE_RESTART", "0");
    for _ in 0..2 {
        let outcome = world.run(|application| application.restart(some));
        outcome.all_gave(&None);
        outcome.line_with(&["dataset 1 `ckpt.1' is only in the cache of allocation 5131", "SCR_JOB_ID=5131"]);
        outcome.line_with(&["another allocation has one in its cache only", "starts without a checkpoint"]);
    }
    world.put("SCR_JOB_ID", "5131");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    // Once there is a newer one it is of no more use.
    world.put("SCR_JOB_ID", "5132");
    world.put("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(2, some).unwrap());
    for _ in 0..2 {
        let outcome = world.run(|application| application.restart(some));
        outcome.all_gave(&Some(2));
        assert!(!outcome.has_line_with("allocation 5131"), "{}", outcome.lines.join("\n"));
    }
}

/// It forgot the output too, as a newer checkpoint was flushed, and `scr postrun` had nothing to save.
#[test]
fn a_run_in_another_allocation_keeps_the_record_of_output_that_only_the_first_one_has() {
    let mut world = World::new(4, 4).set("SCR_JOB_ID", "5131").set("SCR_FLUSH", "1");
    // In the way of the folder of the output.
    std::fs::write(world.prefix().join("plots"), b"").unwrap();
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"plot"), OutputFlags { checkpoint: false, output: true }).unwrap();
        let path = session.route_file(format!("plots/{rank}").as_bytes()).unwrap();
        std::fs::write(path_of(&path), b"plot").unwrap();
        session.complete_output(true).unwrap_err();
        application.checkpoint(2, some).unwrap();
    });
    assert_eq!(in_cache(&world), [2, 1]);
    world.put("SCR_JOB_ID", "5132");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    assert_eq!(in_cache(&world).last(), Some(&1), "nobody else knows of it");
}

/// Those that another run had flushed since counted as well, and it was forgotten.
#[test]
fn a_checkpoint_that_was_passed_over_is_remembered_however_many_are_flushed() {
    let mut world = World::new(1, 1).set("SCR_JOB_ID", "first");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.put("SCR_FLUSH", "1");
    for (job, steps) in [("second", 2..=20), ("third", 21..=21), ("fourth", 22..=22)] {
        world.put("SCR_JOB_ID", job);
        world.run(|application| steps.clone().for_each(|step| application.checkpoint(step, some).unwrap()));
    }
    let file = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    assert!(file.entries().len() > 17, "{:?}", file.entries());
    assert!(file.entry(1).unwrap().needs_flush(), "nobody else knows of it");
}

#[test]
fn a_run_without_the_nodes_of_the_last_one_does_not_start_if_a_restart_is_required() {
    let mut world = World::new(4, 4).set("SCR_REQUIRE_RESTART", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.nodes = (4..8).map(|node| format!("n{node}")).collect();
    // Again and again: it forgets nothing.
    for _ in 0..2 {
        fails_to_begin(&world, "no node of this run has");
    }
    with_ranks(&mut world, 4);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The runs that follow see what earlier ones have in cache, or do not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HiddenBy {
    Nodes,
    Base,
    Store,
}

fn hide(world: &mut World, by: HiddenBy, is_hidden: bool) {
    let folder = if is_hidden { "elsewhere" } else { "nodes" };
    let base = world.dir().join(folder).join("$SCR_NODE_NAME").display().to_string();
    match by {
        HiddenBy::Nodes => {
            let first = if is_hidden { 4 } else { 0 };
            world.nodes = (first..first + 4).map(|node| format!("n{node}")).collect();
        }
        HiddenBy::Base => world.put("SCR_CACHE_BASE", &base),
        HiddenBy::Store => {
            let base = format!("{base}/ssd");
            let lines = format!("STORE={base} GROUP=NODE COUNT=2\nCKPT=0 INTERVAL=1 STORE={base} TYPE=XOR\n");
            std::fs::write(world.prefix().join(".scrconf"), lines).unwrap();
            world.put("SCR_COPY_TYPE", "FILE");
        }
    }
}

/// `scr postrun` and `scr copy --latest` saved nothing after the second run.
#[test]
fn a_checkpoint_that_a_run_does_not_see_is_to_be_saved_until_one_completes_a_newer_one() {
    for by in [HiddenBy::Nodes, HiddenBy::Base, HiddenBy::Store] {
        let mut world = World::new(4, 4).set("SCR_FLUSH", "2").set("SCR_CACHE_SIZE", "2");
        hide(&mut world, by, false);
        world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
        hide(&mut world, by, true);
        for _ in 0..2 {
            let outcome = world.run(|application| application.restart(some));
            outcome.all_gave(&Some(2));
            outcome.line_with(&["dataset 3 `ckpt.3' of an earlier run is in cache only", "STORE lines"]);
            assert!(in_cache(&world).contains(&3));
        }
        hide(&mut world, by, false);
        world.run(|application| application.restart(some)).all_gave(&Some(3));
        // A dropped checkpoint does not come back from nodes that are away.
        hide(&mut world, by, true);
        world.run(|application| application.session().drop_dataset(b"ckpt.3").unwrap());
        assert!(!in_cache(&world).contains(&3));
        hide(&mut world, by, false);
        world.run(|application| {
            assert_eq!(application.restart(some), Some(2));
            application.checkpoint(5, some).unwrap();
        });
        // It is replaced by what a run completes, and no run speaks of it any more.
        hide(&mut world, by, true);
        world.run(|application| {
            assert_eq!(application.restart(some), Some(2));
            application.checkpoint(6, some).unwrap();
        });
        let outcome = world.run(|application| application.restart(some));
        outcome.all_gave(&Some(6));
        assert!(!outcome.has_line_with("of an earlier run is in cache only"), "{}", outcome.lines.join("\n"));
        // It stays listed, so that who drops it now keeps it from coming back.
        world.run(|application| application.session().drop_dataset(b"ckpt.5").unwrap());
        hide(&mut world, by, false);
        world.put("SCR_CURRENT", "ckpt.5");
        let outcome = world.run(|application| application.restart(some));
        assert!(!outcome.ranks.contains(&Some(5)), "{}", outcome.lines.join("\n"));
    }
}

/// Each way to drop reached the newer one only: a run on the first nodes restarted from what they had.
#[test]
fn a_dropped_name_does_not_come_back_from_nodes_that_have_an_older_dataset_of_it() {
    type Drop = fn(&World);
    let drop_named = |world: &World| {
        assert!(drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"ckpt.3").unwrap().found);
    };
    let ways: [(&str, u64, Drop); 4] = [
        ("SCR_Drop", 2, |world| {
            world.run(|application| application.session().drop_dataset(b"ckpt.3").unwrap());
        }),
        ("SCR_Delete by the run that wrote it", 2, |world| {
            world.run(|application| {
                application.checkpoint(3, some).unwrap();
                application.session().delete(b"ckpt.3").unwrap();
            });
        }),
        ("scr index --drop", 2, drop_named),
        // An older run that lives may write one of that name yet, and that one nobody has dropped.
        ("scr index --drop beside a run", 3, |world| {
            let prefix = Prefix::new(world.prefix());
            let _run = Running::begin(&RealFiles, &prefix, "a run", 1, false);
            assert!(drop_dataset(&RealFiles, &prefix, b"ckpt.3").unwrap().found);
        }),
    ];
    for by in [HiddenBy::Nodes, HiddenBy::Base, HiddenBy::Store] {
        for (way, last, drop) in ways {
            let mut world = World::new(4, 4).set("SCR_FLUSH", "0").set("SCR_CACHE_SIZE", "3");
            hide(&mut world, by, false);
            world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
            hide(&mut world, by, true);
            world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
            drop(&world);
            hide(&mut world, by, false);
            for current in ["", "ckpt.3"] {
                world.put("SCR_CURRENT", current);
                let outcome = world.run(|application| application.restart(some));
                assert_eq!(outcome.ranks, [Some(last); 4], "{way}: {}", outcome.lines.join("\n"));
            }
        }
    }
}

/// The command had been stopped until its lock was taken over, began again with all of that name, and dropped the new one.
#[test]
fn a_command_drops_nothing_that_got_the_name_after_it_had_begun() {
    let larger = |rank: Rank| vec![900 + 7 * rank.index()];
    for at in 1.. {
        let world = World::new(2, 2).set("SCR_FLUSH", "1");
        world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
        let (prefix, world) = (Prefix::new(world.prefix()), Arc::new(world));
        let faulty = FaultyFiles::new(RealFiles);
        faulty.only(|what, path| what == What::Rename && path.to_string_lossy().contains(".scr.tmp"));
        let (locks, job) =
            (["index.lock", "finalize.lock"].map(|lock| prefix.scr_file(lock)), Arc::clone(&world));
        faulty.interrupt_at(at, move || {
            // They are those of a process that has been away for long.
            for lock in locks.iter().filter_map(|lock| RealFiles.open(lock, How::Update).ok()) {
                lock.set_times((1000, 0), (1000, 0)).unwrap();
            }
            job.run(|application| application.checkpoint(3, larger).unwrap());
        });
        // Only the index is changed once more by a command that has lost its lock.
        let is_lost = |error| matches!(error, PrefixError::Fs(FsError::LockLost { .. }));
        assert!(drop_dataset(&faulty, &prefix, b"ckpt.3").map_or_else(is_lost, |dropped| dropped.found));
        if !faulty.was_interrupted() {
            assert!(at > 3, "it was dropped in {at} changes");
            break;
        }
        world.run(|application| application.restart(larger)).all_gave(&Some(3));
    }
}

#[test]
fn no_message_claims_that_refused_checkpoints_do_not_exist() {
    let refuse = |require: &str| {
        let world = World::new(4, 4).set("SCR_REQUIRE_RESTART", require);
        world.run(|application| application.checkpoint(1, some).unwrap());
        world.run(|application| {
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            application.session().complete_restart(false).unwrap_err();
            application.session().have_restart().map_err(|error| error.to_string())
        })
    };
    refuse("0").all_gave(&Ok(None));
    for rank in refuse("1").ranks {
        let error = rank.unwrap_err();
        assert!(error.contains("none is left that the application can restart from"), "{error}");
    }
}

/// `SCR_Have_restart` said that there was none, and the application began with the first step.
#[test]
fn a_run_that_has_lost_its_checkpoint_after_the_start_does_not_begin_without_one_if_a_restart_is_required() {
    type Lose = fn(&World, &mut Application);
    let ways: [(&str, Lose); 2] = [
        ("the chosen one is damaged", |_, application| application.session().current(b"ckpt.1").unwrap()),
        ("another process has dropped all", |world, application| {
            if application.rank == Rank(0) {
                for name in ["ckpt.1", "ckpt.2"] {
                    drop_dataset(&RealFiles, &Prefix::new(world.prefix()), name.as_bytes()).unwrap();
                }
            }
            application.session().need_checkpoint().unwrap();
        }),
    ];
    for (way, lose) in ways {
        for require in ["1", "0"] {
            let world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_REQUIRE_RESTART", require);
            let world = world.set("SCR_CACHE_SIZE", "1").set("SCR_GLOBAL_RESTART", "1");
            world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
            std::fs::write(world.prefix().join("ckpt.1/rank_1.0"), "damaged").unwrap();
            world.run(|application| {
                lose(&world, application);
                for _ in 0..2 {
                    let found = application.session().have_restart();
                    match found.map_err(|error| error.to_string()) {
                        Ok(found) => assert!(require == "0" && found.is_none(), "{way}: {found:?}"),
                        Err(error) => assert!(require == "1" && error.contains("none is left"), "{error}"),
                    }
                }
                // It has begun by its own wish.
                application.checkpoint(3, some).unwrap();
                application.session().drop_dataset(b"ckpt.3").unwrap();
                application.session().have_restart().unwrap();
            });
        }
    }
}

#[test]
fn an_application_that_drops_all_checkpoints_begins_without_one_though_a_restart_is_required() {
    let world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_REQUIRE_RESTART", "1");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.run(|application| {
        application.session().current(b"ckpt.1").unwrap();
        application.session().drop_dataset(b"ckpt.2").unwrap();
        application.session().delete(b"ckpt.1").unwrap();
        assert_eq!(application.session().have_restart().unwrap(), None);
    });
}

#[test]
fn the_name_of_a_checkpoint_of_another_number_of_ranks_is_replaced_only_if_that_is_asked_for() {
    for bypass in ["0", "1"] {
        let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", bypass);
        world.run(|application| application.checkpoint(1, some).unwrap());
        lose_all(&world);
        with_ranks(&mut world, 3);
        world.run(|application| {
            for _ in 0..2 {
                let error = application.checkpoint(1, some).unwrap_err().to_string();
                let words = ["4 ranks wrote", "`ckpt.1'", "this run has 3", "SCR_REPLACE_OTHER_RANKS=1"];
                assert!(words.iter().all(|word| error.contains(word)), "{error}");
                application.session().complete_output(true).unwrap_err();
            }
            application.checkpoint(2, some).unwrap();
            // Its own names it may use again.
            application.checkpoint(2, some).unwrap();
        });
        with_ranks(&mut world, 4);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        (0..4).for_each(|node| drop(std::fs::remove_dir_all(world.node(&format!("n{node}")))));
        with_ranks(&mut world, 3);
        world.put("SCR_REPLACE_OTHER_RANKS", "1");
        world.run(|application| {
            assert_eq!(application.restart(some), Some(2));
            application.checkpoint(1, some).unwrap();
        });
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// The name was refused only where the checkpoint was in the prefix directory.
#[test]
fn the_name_of_a_checkpoint_that_another_number_of_ranks_has_in_cache_only_is_replaced_only_if_asked_for() {
    let mut world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, some).unwrap());
    let first = world.nodes.clone();
    // In the same allocation, and in another one, whose nodes see nothing of it.
    for (allocation, node) in [(None, 0), (Some("other"), 4)] {
        world.nodes = (node..node + 3).map(|node| format!("n{node}")).collect();
        allocation.into_iter().for_each(|id| world.put("SCR_JOB_ID", id));
        world.run(|application| {
            for _ in 0..2 {
                let error = application.checkpoint(1, some).unwrap_err().to_string();
                let words = ["4 ranks wrote", "`ckpt.1'", "this run has 3", "SCR_REPLACE_OTHER_RANKS=1"];
                assert!(words.iter().all(|word| error.contains(word)), "{error}");
                application.session().complete_output(true).unwrap_err();
            }
            (2..=3).for_each(|step| application.checkpoint(step, some).unwrap());
            application.checkpoint(3, some).unwrap();
        });
        world.take_out("SCR_JOB_ID");
        world.nodes.clone_from(&first);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
    with_ranks(&mut world, 3);
    world.put("SCR_REPLACE_OTHER_RANKS", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.take_out("SCR_REPLACE_OTHER_RANKS");
    // Nothing is left to be protected.
    world.run(|application| application.checkpoint(1, some).unwrap());
}

/// It stands for nothing any more.
#[test]
fn the_name_of_a_dropped_or_deleted_checkpoint_can_be_used_by_any_number_of_ranks() {
    for (delete, flush) in [(false, "1"), (true, "1"), (false, "0"), (true, "0")] {
        let mut world = World::new(4, 4).set("SCR_FLUSH", flush);
        world.run(|application| application.checkpoint(1, some).unwrap());
        if flush == "1" {
            lose_all(&world);
        }
        with_ranks(&mut world, 3);
        let run = world.run(|application| {
            match delete {
                true => application.session().delete(b"ckpt.1").unwrap(),
                false => application.session().drop_dataset(b"ckpt.1").unwrap(),
            }
            application.checkpoint(1, some).unwrap();
        });
        // They were deleted without a word.
        run.line_with(&[
            "WARNING",
            "4 ranks wrote the checkpoint `ckpt.1'",
            "no run restarts from it any more",
        ]);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// It was passed over without a word.
#[test]
fn a_message_names_the_checkpoint_in_cache_whose_name_other_ranks_have_taken_where_it_is_to_be_read() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.put("SCR_FLUSH", "0");
    world.run(|application| application.checkpoint(2, some).unwrap());
    let all = world.nodes.clone();
    world.nodes = (4..7).map(|node| format!("n{node}")).collect();
    world.put("SCR_FLUSH", "1");
    world.put("SCR_REPLACE_OTHER_RANKS", "1");
    world.run(|application| application.checkpoint(2, some).unwrap());
    world.nodes = all;
    world.put("SCR_GLOBAL_RESTART", "1");
    let outcome = world.run(|application| application.restart(some));
    outcome.all_gave(&Some(1));
    outcome.line_with(&["WARNING", "`ckpt.2' is not restarted from", "start with SCR_GLOBAL_RESTART=0"]);
    world.put("SCR_GLOBAL_RESTART", "0");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// It was told to set what it had set.
#[test]
fn a_run_of_another_number_of_ranks_that_fetches_nothing_is_told_so() {
    let mut world = World::new(4, 4).set("SCR_COPY_TYPE", "SINGLE").set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.nodes.truncate(3);
    let world = world.set("SCR_RESTART_OTHER_RANKS", "1").set("SCR_FETCH", "0");
    let run = world.run(|application| application.restart(some));
    run.all_gave(&None);
    run.line_with(&["was written by 4 ranks", "start with as many ranks, or with SCR_FETCH=1"]);
}
