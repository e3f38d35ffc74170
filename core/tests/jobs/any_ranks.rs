//! With `SCR_RESTART_OTHER_RANKS=1` a checkpoint of N ranks is offered to M ranks: every byte of every rank comes back, from the
//! prefix directory and from cache, with as many nodes lost as the scheme survives, and N ranks can still restart until a new
//! checkpoint is complete.

use super::crash::sizes;
use super::damage::flip;
use super::world::{contents, file_name, files_below, path_of, Application, World};
use scr_base::env::Link;
use scr_base::fs::{Durability, Files, RealFiles};
use scr_comm::Rank;
use scr_core::session::Error;
use scr_ops::delete_dataset;
use scr_prefix::Prefix;
use scr_test_kit::faulty::{Failure, FaultyFiles};
use scr_test_kit::moments;
use std::io::ErrorKind;
use std::sync::Arc;

pub(super) fn with_ranks(world: &mut World, ranks: usize) {
    world.nodes = (0..ranks).map(|rank| format!("n{rank}")).collect();
}

fn lose_all(world: &World) {
    let nodes = world.dir().join("nodes");
    std::fs::read_dir(nodes)
        .unwrap()
        .flatten()
        .for_each(|node| std::fs::remove_dir_all(node.path()).unwrap());
}

/// A job of this many ranks, each on a node of its own, whose application can restart with any number of ranks.
pub(super) fn job(ranks: usize, scheme: &str) -> World {
    let mut world = World::new(ranks, ranks).set("SCR_COPY_TYPE", scheme);
    world.link = Link::Tcp;
    world.set("SCR_RESTART_OTHER_RANKS", "1").set("SCR_SET_FAILURES", "1")
}

/// Restarts, and compares every byte of every file of all ranks that wrote the checkpoint. Gives its step and their number.
pub(super) fn try_read_all(application: &mut Application) -> Result<Option<(u64, u32)>, Error> {
    try_read(application, None)
}

/// The same for a run of `writers` ranks, which reads of its own number what each rank wrote.
pub(super) fn try_read(
    application: &mut Application,
    writers: Option<u32>,
) -> Result<Option<(u64, u32)>, Error> {
    let me = application.rank;
    let Some(name) = application.session().have_restart()? else { return Ok(None) };
    application.session().start_restart()?;
    let step = String::from_utf8(name).unwrap().strip_prefix("ckpt.").unwrap().parse().unwrap();
    let ranks = application.session().restart_ranks()?;
    let own_only = writers == Some(ranks);
    // As many ranks as wrote it read what their own nodes have in cache, unless it is in the prefix directory.
    let is_own = |rank: Rank| me == rank || !own_only;
    for rank in (0..ranks).map(Rank).filter(|&rank| is_own(rank)) {
        let expected = sizes(rank);
        assert_eq!(application.session().restart_files(rank.0)?, expected.len());
        for (number, size) in expected.into_iter().enumerate() {
            let name = application.session().restart_file(rank.0, number)?;
            assert_eq!(String::from_utf8_lossy(&name), file_name(step, rank, number));
            let path = application.session().route_file(&name)?;
            let found = std::fs::read(path_of(&path)).expect("the routed path can be read");
            assert!(
                found == contents(step, rank, number, size),
                "{} is not what was written",
                path_of(&path).display()
            );
        }
        assert!(application.session().restart_file(rank.0, sizes(rank).len()).is_err());
    }
    assert!(application.session().restart_files(ranks).is_err(), "there is no such rank");
    application.session().complete_restart(true)?;
    Ok(Some((step, ranks)))
}

pub(super) fn read_all(application: &mut Application) -> Option<(u64, u32)> {
    try_read_all(application).expect("what is offered can be restarted from")
}

#[test]
#[ignore = "long"]
fn a_checkpoint_in_the_prefix_directory_is_read_by_any_number_of_ranks() {
    for writers in 1..=8 {
        for readers in 1..=8 {
            let mut world = job(writers, "SINGLE").set("SCR_FLUSH", "1");
            world.run(|application| application.checkpoint(1, sizes).unwrap());
            lose_all(&world);
            with_ranks(&mut world, readers);
            // Twice: what the first run has read in place is of no use to the next one.
            for _ in 0..if writers == readers { 1 } else { 2 } {
                let run = world.run(read_all);
                run.all_gave(&Some((1, u32::try_from(writers).unwrap())));
            }
        }
    }
}

/// All that was in cache is lost: one checkpoint of four ranks, in the prefix directory.
fn flushed_by_four(steps: u64) -> World {
    let world = job(4, "SINGLE").set("SCR_FLUSH", "1");
    world.run(|application| (1..=steps).for_each(|step| application.checkpoint(step, sizes).unwrap()));
    lose_all(&world);
    world
}

#[test]
fn without_the_setting_it_is_left_alone_with_a_message_that_names_the_setting() {
    let mut world = flushed_by_four(1);
    world.put("SCR_RESTART_OTHER_RANKS", "0");
    with_ranks(&mut world, 3);
    let run = world.run(|application| application.session().have_restart().unwrap());
    run.all_gave(&None);
    run.line_with(&["ERROR", "was written by 4 ranks, and this run has 3", "SCR_RESTART_OTHER_RANKS=1"]);
    // Nor does a run without it use what one with it has found there.
    world.put("SCR_RESTART_OTHER_RANKS", "1");
    world.run(read_all).all_gave(&Some((1, 4)));
    world.put("SCR_RESTART_OTHER_RANKS", "0");
    world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    with_ranks(&mut world, 4);
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
}

#[test]
fn the_calls_are_refused_outside_of_a_restart_and_without_the_setting() {
    let mut world = flushed_by_four(1);
    world.run(|application| {
        assert!(application.session().restart_ranks().is_err());
        assert!(application.session().restart_files(0).is_err());
        assert!(application.session().restart_file(0, 0).is_err());
    });
    world.put("SCR_RESTART_OTHER_RANKS", "0");
    world.run(|application| {
        application.session().have_restart().unwrap();
        application.session().start_restart().unwrap();
        assert_eq!(application.session().restart_ranks().unwrap(), 4);
        let error = application.session().restart_files(0).unwrap_err().to_string();
        assert!(error.contains("SCR_RESTART_OTHER_RANKS=1"), "{error}");
    });
}

/// The state of the rank that was too many was lost without a word.
#[test]
fn files_of_another_number_of_ranks_that_nobody_asks_for_are_named() {
    let mut world = flushed_by_four(1);
    with_ranks(&mut world, 2);
    let run = world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        let first = application.session().restart_file(0, 0).unwrap();
        application.session().route_file(&first).unwrap();
        application.session().complete_restart(true).unwrap();
    });
    run.line_with(&["WARNING", "the ranks have asked for 2 of the", "is not read", "SCR-720"]);
    assert!(!world.run(|application| try_read_all(application).unwrap()).has_line_with("asked for"));
}

#[test]
fn a_wrong_byte_of_any_rank_is_found_by_any_number_of_ranks_and_an_older_checkpoint_is_read() {
    for readers in [1, 3, 4, 7] {
        for file in ["rank_0.0", "rank_1.0", "rank_3.1"] {
            let mut world = flushed_by_four(2);
            flip(&world.prefix().join("ckpt.2").join(file), 0);
            with_ranks(&mut world, readers);
            let run = world.run(read_all);
            run.all_gave(&Some((1, 4)));
            run.line_with(&["`ckpt.2'", "is damaged and is marked as failed", file]);
        }
    }
}

#[test]
fn a_list_that_lacks_a_rank_is_damage_for_any_number_of_ranks() {
    let mut world = flushed_by_four(2);
    let leaf = world.prefix().join(".scr/scr.dataset.2/rank2file.0.0");
    let files: &dyn Files = &RealFiles;
    let mut tree = files.read_tree(&leaf).unwrap().unwrap();
    tree.child("RANK").remove("2");
    files.write_tree(&leaf, &tree, 0o644, Durability::Unsynced).unwrap();
    with_ranks(&mut world, 3);
    world.run(read_all).all_gave(&Some((1, 4)));
}

#[test]
fn files_in_containers_are_passed_over_with_a_message_that_says_what_to_do() {
    let mut world = flushed_by_four(1).with_store("AGGREGATE=1");
    world.put("SCR_RESTART_OTHER_RANKS", "0");
    world.run(|application| {
        assert_eq!(application.restart(sizes), Some(1));
        application.checkpoint(2, sizes).unwrap();
    });
    world.put("SCR_RESTART_OTHER_RANKS", "1");
    lose_all(&world);
    with_ranks(&mut world, 3);
    let run = world.run(read_all);
    run.all_gave(&Some((1, 4)));
    run.line_with(&["`ckpt.2'", "lie in containers", "run with 4 ranks", "scr index --extract"]);
    with_ranks(&mut world, 4);
    world.run(|application| application.restart(sizes)).all_gave(&Some(2));
}

/// A name that scr has given is not one of the folder in which a rank is.
#[test]
fn ranks_in_different_folders_read_the_same_file_by_the_name_that_scr_gives() {
    let mut world = flushed_by_four(1);
    with_ranks(&mut world, 2);
    world.put("SCR_PREFIX", &world.prefix().display().to_string());
    for rank in 0..2 {
        let folder = world.prefix().join(format!("folder{rank}"));
        std::fs::create_dir(&folder).unwrap();
        world.own_folders.insert(Rank(rank), folder);
    }
    world.run(read_all).all_gave(&Some((1, 4)));
}

#[test]
fn a_file_that_ranks_wrote_together_is_read_by_any_number_of_ranks() {
    for readers in [1, 2, 3, 8] {
        let mut world = job(4, "SINGLE").set("SCR_CACHE_BYPASS", "1");
        world.run(|application| {
            application.begin(1).unwrap();
            let path = application.session().route_file(b"ckpt.1/all").unwrap();
            std::fs::write(path_of(&path), "of all").unwrap();
            application.session().complete_output(true).unwrap();
        });
        with_ranks(&mut world, readers);
        world.run(|application| {
            application.session().have_restart().unwrap().expect("there is one");
            application.session().start_restart().unwrap();
            for rank in 0..4 {
                assert_eq!(application.session().restart_files(rank).unwrap(), 1);
                let name = application.session().restart_file(rank, 0).unwrap();
                let path = application.session().route_file(&name).unwrap();
                assert_eq!(std::fs::read(path_of(&path)).unwrap(), b"of all");
            }
            application.session().complete_restart(true).unwrap();
        });
    }
}

#[test]
fn what_all_numbers_of_ranks_write_is_one_line_of_history() {
    let mut world = flushed_by_four(2).set("SCR_PREFIX_SIZE", "2");
    let has =
        |world: &World, step: u64| !files_below(&world.prefix().join(format!("ckpt.{step}"))).is_empty();
    for (ranks, last) in [(3, 2), (6, 3), (1, 4)] {
        with_ranks(&mut world, ranks);
        world.run(|application| {
            assert_eq!(read_all(application).unwrap().0, last);
            // The step after the last one, whose name another number of ranks may have used.
            application.checkpoint(last + 1, sizes).unwrap();
        });
        lose_all(&world);
        assert!(has(&world, last + 1) && has(&world, last) && !has(&world, last - 1), "the window goes on");
    }
    // A run that goes back writes over what other numbers of ranks wrote.
    with_ranks(&mut world, 2);
    world.put("SCR_CURRENT", "ckpt.4");
    world.run(|application| {
        assert_eq!(read_all(application), Some((4, 6)));
        application.checkpoint(5, sizes).unwrap();
    });
    world.take_out("SCR_CURRENT");
    world.run(read_all).all_gave(&Some((5, 2)));
}

/// A run of which the application can read only its own number of ranks does as before.
#[test]
fn a_run_without_the_setting_leaves_a_mixed_history_alone() {
    let mut world = flushed_by_four(1).set("SCR_PREFIX_SIZE", "1");
    world.put("SCR_RESTART_OTHER_RANKS", "0");
    with_ranks(&mut world, 3);
    world.run(|application| {
        application.checkpoint(1, sizes).unwrap_err();
        application.session().complete_output(true).unwrap_err();
        (2..=3).for_each(|step| application.checkpoint(step, sizes).unwrap());
    });
    lose_all(&world);
    with_ranks(&mut world, 4);
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
    world.put("SCR_RESTART_OTHER_RANKS", "1");
    lose_all(&world);
    world.run(read_all).all_gave(&Some((3, 3)));
}

#[test]
fn all_that_is_in_place_is_the_checkpoints_all_the_time_while_another_number_of_ranks_reads_it() {
    let mut world = flushed_by_four(2);
    with_ranks(&mut world, 3);
    let prefix = Prefix::new(world.prefix());
    let run = world.run(|application| {
        application.session().have_restart().unwrap();
        if application.rank == Rank(0) {
            let error = delete_dataset(&RealFiles, &prefix, b"ckpt.2").unwrap_err();
            assert!(error.to_string().contains("reads"), "{error}");
        }
        read_all(application)
    });
    run.all_gave(&Some((2, 4)));
}

/// A scheme, how many nodes it needs, and how many losses it survives.
pub(super) type Scheme = (&'static str, usize, usize);
pub(super) const SCHEMES: [Scheme; 5] =
    [("SINGLE", 1, 0), ("PARTNER", 2, 1), ("XOR", 2, 1), ("RS", 2, 1), ("RS", 3, 2)];

/// The nodes of this many ranks, in blocks.
pub(super) fn place(ranks: usize, nodes: usize) -> Vec<String> {
    (0..ranks).map(|rank| format!("n{}", rank * nodes / ranks)).collect()
}

/// A job of this many ranks on this many nodes, and its checkpoint, which is in cache only.
pub(super) fn cached(ranks: usize, nodes: usize, (scheme, _, losses): Scheme) -> World {
    let mut world = job(ranks, scheme).set("SCR_SET_FAILURES", &losses.max(1).to_string());
    world.nodes = place(ranks, nodes);
    world.run(|application| application.checkpoint(1, sizes).unwrap());
    world
}

#[test]
fn the_ranks_that_wrote_a_checkpoint_can_restart_from_it_until_a_newer_one_is_complete() {
    for flush in ["0", "1"] {
        let xor = ("XOR", 2, 1);
        let mut world = cached(4, 4, xor).set("SCR_FLUSH", flush);
        world.nodes = place(8, 4);
        world.run(|application| {
            assert_eq!(read_all(application), Some((1, 4)));
            // It never becomes complete.
            application.write(2, sizes).unwrap();
        });
        world.put("SCR_FETCH", "0");
        world.nodes = place(4, 4);
        world.run(|application| application.restart(sizes)).all_gave(&Some(1));
        world.put("SCR_FETCH", "1");
        world.nodes = place(8, 4);
        world.run(|application| {
            assert_eq!(read_all(application), Some((1, 4)));
            application.checkpoint(2, sizes).unwrap();
        });
        let of_four = world
            .cached_files()
            .into_iter()
            .filter(|path| path.display().to_string().contains("scr.dataset.1/"));
        assert_eq!(of_four.count(), 0, "it has left for the newer one");
        // And so on, to any other number, without one of the nodes.
        world.nodes = place(3, 3);
        world.run(read_all).all_gave(&Some((2, 8)));
        world.nodes = place(5, 4);
        world.run(read_all).all_gave(&Some((2, 8)));
    }
}

#[test]
fn of_a_checkpoint_of_which_too_much_is_lost_an_older_one_takes_the_place() {
    let xor = ("XOR", 2, 1);
    let mut world = cached(4, 4, xor).set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2");
    world.run(|application| application.checkpoint(2, sizes).unwrap());
    world.put("SCR_FLUSH", "0");
    world.run(|application| application.checkpoint(3, sizes).unwrap());
    let kept = world.keep();
    ["n1", "n2"].into_iter().for_each(|node| world.lose(node));
    world.nodes = place(6, 4);
    let run = world.run(read_all);
    run.all_gave(&Some((2, 4)));
    run.line_with(&["ERROR", "dataset 3 `ckpt.3' cannot be made whole in the prefix directory"]);
    // The nodes were only away.
    world.put_back(&kept);
    world.nodes = place(4, 4);
    world.run(|application| application.restart(sizes)).all_gave(&Some(3));
}

#[test]
#[ignore = "long"]
fn no_run_begins_at_zero_over_what_another_number_of_ranks_has_in_cache_where_nothing_can_be_written() {
    // ENOSPC, EROFS, EACCES; in the caches of the nodes first, or in the prefix directory at once.
    for (number, global) in [28, 30, 13].into_iter().flat_map(|number| [(number, "0"), (number, "1")]) {
        let restart = |from: Option<u64>| {
            let mut world = cached(4, 2, ("XOR", 2, 1)).set("SCR_GLOBAL_RESTART", global);
            world.nodes = place(3, 2);
            let files = FaultyFiles::new(RealFiles);
            files.never_pause();
            from.into_iter().for_each(|from| files.fail_from(from, Failure::Number(number)));
            world.files = Arc::new(files.clone());
            let run = world.try_run(|begun| {
                begun.is_ok_and(|mut application| matches!(application.session().have_restart(), Ok(None)))
            });
            let began = files.mutations();
            world.files = Arc::new(RealFiles);
            world.run(read_all).all_gave(&Some((1, 4)));
            (began, run.ranks.contains(&true))
        };
        let (all, _) = restart(None);
        let wrong: Vec<u64> = moments(all, 16).filter(|&at| restart(Some(at)).1).collect();
        assert!(wrong.is_empty(), "error {number} from the operations {wrong:?} of {all} on, {global}");
    }
}

#[test]
fn a_wrong_byte_in_cache_is_made_right_with_redundancy_and_never_read_without() {
    for (scheme, expected) in [(("XOR", 2, 1), Some((1, 4))), (("PARTNER", 2, 1), Some((1, 4)))] {
        for file in ["rank_0.0", "rank_1.0", "rank_3.1"] {
            let mut world = cached(4, 4, scheme);
            flip(&world.cached_file(&[file]), 0);
            world.nodes = place(5, 4);
            world.run(read_all).all_gave(&expected);
        }
    }
    let mut world = cached(4, 4, ("SINGLE", 1, 0)).set("SCR_CRC_ON_COPY", "1");
    world.run(|application| application.checkpoint(2, sizes).unwrap());
    flip(&world.cached_file(&["rank_3.1"]), 0);
    world.nodes = place(3, 3);
    world.run(read_all).all_gave(&None);
}

/// It would come back as the newest.
#[test]
fn a_checkpoint_in_cache_that_was_refused_or_dropped_is_not_taken_over() {
    let xor = ("XOR", 2, 1);
    let mut world = cached(4, 4, xor);
    world.run(|application| {
        application.session().have_restart().unwrap();
        application.session().start_restart().unwrap();
        application.session().complete_restart(false).unwrap_err();
    });
    world.nodes = place(6, 4);
    world.run(read_all).all_gave(&None);
    let mut world = cached(4, 4, xor);
    let kept = world.keep();
    world.run(|application| application.session().drop_dataset(b"ckpt.1").unwrap());
    world.put_back(&kept);
    world.nodes = place(6, 4);
    world.run(read_all).all_gave(&None);
}

#[test]
fn output_that_another_number_of_ranks_has_in_cache_only_stays_there() {
    let mut world = World::new(4, 4).set("SCR_RESTART_OTHER_RANKS", "1");
    // In the way of the folder of the output.
    std::fs::write(world.prefix().join("ckpt.1"), b"").unwrap();
    world.run(|application| {
        application.output(1, sizes).unwrap_err();
        application.checkpoint(2, sizes).unwrap();
    });
    world.nodes = place(5, 4);
    world.run(|application| {
        assert_eq!(read_all(application), Some((2, 4)));
        application.checkpoint(3, sizes).unwrap();
    });
    assert!(!world.cached_file(&["scr.dataset.1/", "rank_0.0"]).as_os_str().is_empty());
    std::fs::remove_file(world.prefix().join("ckpt.1")).unwrap();
    world.nodes = place(4, 4);
    world.run(|_| ());
    assert!(!files_below(&world.prefix().join("ckpt.1")).is_empty(), "those who wrote it flush it");
}

/// The cache has something else under its id, so that the prefix directory and the cache know it by two.
#[test]
fn a_checkpoint_that_was_fetched_under_another_id_is_made_whole_for_another_number_of_ranks() {
    let mut world = job(4, "XOR").set("SCR_FLUSH", "1");
    let prefix = world.prefix();
    world.run(|application| application.checkpoint(1, sizes).unwrap());
    lose_all(&world);
    world.turn_to("prefix2");
    world.run(|application| application.checkpoint(7, sizes).unwrap());
    world.turn_to("prefix");
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
    assert!(world.cached_file(&["scr.dataset.2", "rank_0.0"]).exists());
    flip(&prefix.join(file_name(1, Rank(0), 0)), 0);
    world.link = Link::InCalls;
    with_ranks(&mut world, 3);
    let outcome = world.run(read_all);
    outcome.all_gave(&Some((1, 4)));
    outcome.line_with(&["ckpt.1", "is complete in the prefix directory"]);
}

#[test]
fn a_checkpoint_in_cache_that_the_user_names_is_taken_over_though_there_is_a_newer_one() {
    let xor = ("XOR", 2, 1);
    let mut world = cached(4, 4, xor).set("SCR_CACHE_SIZE", "3");
    world.run(|application| application.checkpoint(2, sizes).unwrap());
    world.put("SCR_CURRENT", "ckpt.1");
    world.nodes = place(6, 4);
    world.run(read_all).all_gave(&Some((1, 4)));
}

/// Every file operation of the run is a moment at which it dies, with a node in every second case. Those who wrote the
/// checkpoint, or as many ranks as died, come after it.
#[test]
#[ignore = "long"]
fn a_run_that_dies_at_any_operation_takes_no_checkpoint_away_from_any_number_of_ranks() {
    let life = |mut application: Application| match try_read_all(&mut application) {
        Ok(Some((1, 4))) if application.checkpoint(2, sizes).is_ok() => 2,
        _ => 1,
    };
    let dies_at = |at: Option<u64>| {
        let mut world = cached(4, 4, ("XOR", 2, 1)).set("SCR_FLUSH", "2");
        let faulty = FaultyFiles::new(RealFiles);
        at.into_iter().for_each(|at| if at % 2 == 0 { faulty.stop_at(at) } else { faulty.stop_torn_at(at) });
        world.link = if at.is_some_and(|at| at % 5 < 2) { Link::InCalls } else { Link::Tcp };
        world.nodes = place(6, 4);
        world.files = Arc::new(faulty.clone());
        let died = world.try_run(|begun| begun.map_or(1, life));
        world.files = Arc::new(RealFiles);
        (world, *died.ranks.iter().min().unwrap(), faulty.mutations(), died.lines.join("\n"))
    };
    let (_, safe, all, _) = dies_at(None);
    assert!(safe == 2 && all > 100, "the good run did {all} operations");
    for at in moments(all + 2, 12) {
        let (mut world, safe, _, lines) = dies_at(Some(at));
        if at % 3 == 0 {
            world.lose("n2");
        }
        let ranks = if at % 4 < 2 { 4 } else { 6 };
        world.nodes = place(ranks, 4);
        let run = world.run(|application| try_read(application, u32::try_from(ranks).ok()).unwrap());
        let found = run.ranks[0];
        let story = || format!("stopped at {at}, {found:?}\n{lines}\n--- and then\n{}", run.lines.join("\n"));
        assert!(run.ranks.iter().all(|other| *other == found), "{}", story());
        assert!(matches!(found, Some((1, 4) | (2, 6))), "{}", story());
        assert!(found.is_some_and(|(step, _)| step >= safe), "{}", story());
    }
}

/// The paths that ranks get for a file, once for each rank.
fn paths_of(world: &World, name: &str) -> Vec<std::path::PathBuf> {
    let run = world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        let path = path_of(&application.session().route_file(name.as_bytes()).unwrap()).to_owned();
        application.session().complete_restart(true).unwrap();
        path
    });
    run.ranks
}

#[test]
fn a_file_that_lies_in_the_cache_of_its_node_is_read_there_if_every_byte_is_right() {
    let mut world = cached(4, 4, ("XOR", 2, 1));
    world.link = Link::InCalls;
    world.nodes = place(8, 4);
    let paths = paths_of(&world, "ckpt.1/rank_1.0");
    let (here, there) =
        (world.cached_file(&["scr.dataset.1/", "rank_1.0"]), world.prefix().join("ckpt.1/rank_1.0"));
    for (rank, path) in paths.iter().enumerate() {
        assert_eq!(path, if rank / 2 == 1 { &here } else { &there });
    }
    flip(&here, 0);
    assert!(paths_of(&world, "ckpt.1/rank_1.0").iter().all(|path| *path == there));
    world.run(read_all).all_gave(&Some((1, 4)));
}

/// A rank compares the files of a few ranks, among which a base name may be unique that many ranks have used.
#[test]
fn a_name_without_its_folder_stands_for_no_file_if_several_ranks_wrote_one_of_that_name() {
    let mut world = job(4, "SINGLE").set("SCR_FLUSH", "1");
    world.run(|application| {
        application.begin(1).unwrap();
        let name = format!("ckpt.1/{}/state", application.rank);
        let path = application.session().route_file(name.as_bytes()).unwrap();
        std::fs::write(path_of(&path), name).unwrap();
        application.session().complete_output(true).unwrap();
    });
    lose_all(&world);
    with_ranks(&mut world, 5);
    world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        application.session().route_file(b"state").unwrap_err();
        let path = application.session().route_file(b"ckpt.1/2/state").unwrap();
        assert_eq!(std::fs::read(path_of(&path)).unwrap(), b"ckpt.1/2/state");
        application.session().complete_restart(true).unwrap();
    });
}

/// The prefix directory had it, too, and what lay there was damaged: the only good copy made room for a new checkpoint. Nor can
/// it get there once more, as a folder is in the way.
#[test]
fn a_checkpoint_that_the_run_does_not_restart_from_makes_no_room_for_one_that_never_becomes_complete() {
    for (damaged, link) in
        [true, false].into_iter().flat_map(|damaged| [Link::Tcp, Link::InCalls].map(|link| (damaged, link)))
    {
        let mut world = job(4, "XOR").set("SCR_FLUSH", "1").with_store("COUNT=1 EVICT=before");
        world.link = link;
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        if damaged {
            std::fs::remove_file(world.prefix().join("ckpt.1/rank_0.0")).unwrap();
            std::fs::create_dir(world.prefix().join("ckpt.1/rank_0.0")).unwrap();
        }
        world.nodes = place(6, 4);
        let run = world.try_run(|begun| {
            let mut application = begun.map_err(|error| error.to_string())?;
            let found = read_all(&mut application);
            application.write(2, sizes).unwrap();
            Ok::<_, String>(found)
        });
        match &run.ranks[0] {
            Err(why) => assert!(damaged && link != Link::Tcp && why.contains("ckpt.1 could not be"), "{why}"),
            Ok(found) => assert_eq!(*found, Some((1, 4))),
        }
        let of_four = world.cached_files().into_iter();
        let of_four = of_four.filter(|path| path.display().to_string().contains("scr.dataset.1/"));
        assert_eq!(of_four.count() > 0, damaged, "{}", run.lines.join("\n"));
        if damaged {
            std::fs::remove_dir(world.prefix().join("ckpt.1/rank_0.0")).unwrap();
        }
        world.nodes = place(4, 4);
        world.run(|application| application.restart(sizes)).all_gave(&Some(1));
    }
}

/// As an application does: what a rank cannot read it calls invalid, until none is left.
fn outcome(application: &mut Application) -> String {
    loop {
        let name = match application.session().have_restart() {
            Ok(Some(name)) => String::from_utf8(name).unwrap(),
            Ok(None) => return "none".to_owned(),
            Err(_) => return "failed".to_owned(),
        };
        if application.session().start_restart().is_err() {
            return "not begun".to_owned();
        }
        let step = name.strip_prefix("ckpt.").unwrap().parse().unwrap();
        let ranks = application.session().restart_ranks().unwrap();
        let files =
            (0..ranks).flat_map(|rank| (0..sizes(Rank(rank)).len()).map(move |number| (rank, number)));
        let valid = files.into_iter().all(|(rank, number)| {
            let name = application.session().restart_file(rank, number).unwrap();
            let path = application.session().route_file(&name);
            let found = path.map(|path| std::fs::read(path_of(&path)).unwrap());
            let size = sizes(Rank(rank))[number];
            found.is_ok_and(|found| {
                assert!(found == contents(step, Rank(rank), number, size), "wrong bytes");
                true
            })
        });
        if application.session().complete_restart(valid).is_ok() {
            return name;
        }
    }
}

#[test]
#[ignore = "long"]
fn an_operation_that_fails_on_one_rank_is_one_outcome_for_all_and_costs_nobody_the_checkpoint() {
    for victim in [Rank(0), Rank(2)] {
        let fails_at = |at: Option<u64>| {
            let mut world = cached(4, 4, ("XOR", 2, 1));
            let faulty = FaultyFiles::new(RealFiles);
            faulty.never_pause();
            faulty.count_all();
            at.into_iter().for_each(|at| match at % 2 {
                0 => faulty.fail_once(at, ErrorKind::Other),
                _ => faulty.fail_from(at, ErrorKind::StorageFull),
            });
            world.nodes = place(6, 4);
            world.own_files.insert(victim, Arc::new(faulty.clone()));
            let run =
                world.try_run(|begun| begun.map_or("no session".to_owned(), |mut begun| outcome(&mut begun)));
            (world, run, faulty.mutations())
        };
        let (_, run, all) = fails_at(None);
        run.all_gave(&"ckpt.1".to_owned());
        for at in moments(all, 20) {
            let (mut world, run, _) = fails_at(Some(at));
            let first = run.ranks[0].clone();
            run.all_gave(&first);
            world.own_files.clear();
            world.nodes = place(4, 4);
            let again = world.run(|application| application.restart(sizes));
            let story = || format!("rank {victim}, operation {at}: {first}\n{}", run.lines.join("\n"));
            assert!(
                again.ranks.iter().all(|step| *step == Some(1)),
                "{}\n--- and then\n{}",
                story(),
                again.lines.join("\n")
            );
        }
    }
}
