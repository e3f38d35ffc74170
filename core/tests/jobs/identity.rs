//! Which of two datasets is newer, though no run has seen both, and which prefix directory a dataset in cache belongs to.

use super::world::{files_below, World};
use scr_base::fs::{File, Files, How, OwnedDir, RealFiles};
use scr_comm::Rank;
use scr_core::scavenge::{Copied, Copier};
use scr_ops::unsaved;
use scr_plugin_api::KvTree;
use scr_prefix::{Index, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn some(rank: Rank) -> Vec<usize> {
    vec![900 + 7 * rank.index(), 3]
}

/// Four ranks on two nodes.
fn job() -> World {
    World::new(4, 2)
}

fn on(world: &mut World, nodes: [&str; 2]) {
    world.nodes = [nodes[0], nodes[0], nodes[1], nodes[1]].map(str::to_owned).to_vec();
}

fn ids(world: &World) -> Vec<u64> {
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    index.entries().iter().map(|entry| entry.id).collect()
}

fn ids_file(world: &World) -> PathBuf {
    world.prefix().join(".scr/ids.scr")
}

/// The number of copies of rank 0's file of a dataset in cache, on all nodes.
fn cached(world: &World, step: u64) -> usize {
    let lies = |path: &PathBuf| path.ends_with("rank_0.0");
    let is_of_step = |path: &PathBuf| {
        std::fs::read(path).unwrap() == super::world::contents(step, Rank(0), 0, some(Rank(0))[0])
    };
    world.cached_files().into_iter().filter(lies).filter(is_of_step).count()
}

/// Operations on the files of this name that change them fail.
fn failing(name: &'static str) -> FaultyFiles {
    let files = FaultyFiles::new(RealFiles);
    files.only(move |_, path| path.to_string_lossy().contains(name));
    files.never_pause();
    files
}

/// The nodes of the first run are away. A short run finds nothing, and the next one starts anew.
fn goes_on_elsewhere(world: &mut World) {
    on(world, ["n2", "n3"]);
    world.run(|application| assert_eq!(application.restart(some), None));
    world.put("SCR_FLUSH", "1");
    world.run(|application| {
        assert_eq!(application.restart(some), None);
        application.checkpoint(4, some).unwrap();
    });
    on(world, ["n0", "n1"]);
}

#[test]
fn datasets_written_while_nodes_were_away_are_newer_than_theirs() {
    let mut world = job();
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    goes_on_elsewhere(&mut world);
    world.run(|application| assert_eq!(application.restart(some), Some(4)));
    world.run(|application| application.checkpoint(5, some).unwrap());
    on(&mut world, ["n2", "n3"]);
    world.run(|application| application.restart(some)).all_gave(&Some(5));
}

#[test]
fn datasets_of_a_later_run_with_another_cache_base_are_newer() {
    let mut world = job();
    let base = world.dir().join("nodes/$SCR_NODE_NAME").display().to_string();
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.put("SCR_CACHE_BASE", &format!("{base}/other"));
    world.run(|application| assert_eq!(application.restart(some), None));
    world.put("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(4, some).unwrap());
    world.put("SCR_CACHE_BASE", &base);
    world.run(|application| application.restart(some)).all_gave(&Some(4));
}

#[test]
fn datasets_are_ordered_though_the_flush_file_could_not_be_written() {
    let mut world = job();
    let files = failing("flush.scr");
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files);
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.files = Arc::new(RealFiles);
    on(&mut world, ["n2", "n3"]);
    world.put("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(4, some).unwrap());
    on(&mut world, ["n0", "n1"]);
    world.run(|application| application.restart(some)).all_gave(&Some(4));
}

#[test]
fn the_ids_of_a_run_that_dies_are_not_used_again_and_those_of_one_that_ends_are() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    assert_eq!(ids(&world), [2, 1]);
    let files = failing("ids.scr");
    world.files = Arc::new(files.clone());
    world.run(|application| {
        application.checkpoint(3, some).unwrap();
        // From here on it does nothing any more to these.
        application.session().should_exit().unwrap();
        files.fail_from(1, ErrorKind::Other);
    });
    world.files = Arc::new(RealFiles);
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    world.run(|application| application.checkpoint(4, some).unwrap());
    assert_eq!(ids(&world), [67, 3, 2, 1]);
}

/// Without room for the number of a run, what it writes is still older than what a later run writes.
#[test]
fn without_room_in_the_prefix_directory_a_run_goes_on_in_cache_and_a_later_one_is_newer() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let files = failing("ids.scr");
    files.fail_from(1, ErrorKind::StorageFull);
    world.files = Arc::new(files);
    let outcome = world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        (2..=3).for_each(|step| application.checkpoint(step, some).unwrap());
    });
    outcome.line_with(&["no ids can be reserved", "ids.scr"]);
    outcome.line_with(&["the run starts anyway"]);
    world.files = Arc::new(RealFiles);
    world.run(|application| assert_eq!(application.restart(some), Some(3)));
    goes_on_elsewhere(&mut world);
    world.run(|application| application.restart(some)).all_gave(&Some(4));
}

/// Both got the number of the run before, and the id decided between what they wrote.
#[test]
fn of_two_runs_without_room_for_a_number_what_the_later_one_writes_is_newer() {
    let mut world = job().set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "3");
    world.run(|application| application.checkpoint(1, some).unwrap());
    // Nothing can be written there, and then all but the numbers.
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.prefix().join(".scr"));
    full.fail_from(1, ErrorKind::StorageFull);
    world.files = Arc::new(full);
    world.put("SCR_FLUSH", "0");
    world.run(|application| (2..=4).for_each(|step| application.checkpoint(step, some).unwrap()));
    let files = failing("ids.scr");
    files.fail_from(1, ErrorKind::StorageFull);
    world.files = Arc::new(files);
    world.put("SCR_FLUSH", "1");
    on(&mut world, ["m0", "m1"]);
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(5, some).unwrap();
    });
    world.files = Arc::new(RealFiles);
    on(&mut world, ["n0", "n1"]);
    world.run(|application| application.restart(some)).all_gave(&Some(5));
}

/// The prefix directory cannot be written to for a while: the application continues in cache.
#[test]
fn a_run_whose_ids_cannot_be_reserved_goes_on_and_a_later_one_is_newer() {
    let mut world = job();
    let files = failing("ids.scr");
    world.files = Arc::new(files.clone());
    let outcome = world.run(|application| {
        application.session().should_exit().unwrap();
        files.fail_from(1, ErrorKind::TimedOut);
        (1..=3).for_each(|step| application.checkpoint(step, some).unwrap());
    });
    outcome.line_with(&["no ids can be reserved"]);
    world.files = Arc::new(RealFiles);
    goes_on_elsewhere(&mut world);
    world.run(|application| application.restart(some)).all_gave(&Some(4));
}

/// It took the numbers that the other job had reserved, and each replaced datasets of the other.
#[test]
fn a_run_whose_ids_cannot_be_reserved_takes_none_that_another_job_has_reserved() {
    let mut world = job().set("SCR_FLUSH", "1");
    let files = failing("ids.scr");
    world.files = Arc::new(files.clone());
    let path = ids_file(&world);
    world.run(|application| {
        if application.rank == Rank(0) {
            let mut reserved = KvTree::from_file_bytes(&std::fs::read(&path).unwrap()).unwrap();
            reserved.set("NEXT", 65);
            std::fs::write(&path, reserved.to_file_bytes()).unwrap();
            files.fail_from(1, ErrorKind::StorageFull);
        }
        application.session().should_exit().unwrap();
        application.checkpoint(1, some).unwrap();
    });
    assert_eq!(ids(&world), [65]);
}

#[test]
fn a_run_that_cannot_read_the_numbers_does_not_begin_and_one_that_can_read_them_later_does() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Read && path.ends_with("ids.scr"));
    files.count_all();
    files.never_pause();
    files.fail_from(1, ErrorKind::TimedOut);
    world.files = Arc::new(files.clone());
    let outcome = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
    for rank in &outcome.ranks {
        let why = rank.as_ref().unwrap_err();
        assert!(why.contains("ids.scr"), "{why}");
    }
    files.fail_once(1, ErrorKind::TimedOut);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

#[test]
fn numbers_that_are_damaged_lost_or_old_are_begun_anew_above_all_that_are_known() {
    let spoil: [fn(&Path, &[u8]); 3] = [
        |path, _| std::fs::write(path, "x").unwrap(),
        |path, _| std::fs::remove_file(path).unwrap(),
        |path, old| std::fs::write(path, old).unwrap(),
    ];
    for (way, spoil) in spoil.into_iter().enumerate() {
        let world = job().set("SCR_FLUSH", "2").set("SCR_CACHE_SIZE", "3");
        world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
        // From the second run on the index knows the prefix directory too.
        world.run(|_| ());
        let old = std::fs::read(ids_file(&world)).unwrap();
        for _ in 0..3 {
            world.run(|_| ());
        }
        world.run(|application| application.checkpoint(3, some).unwrap());
        spoil(&ids_file(&world), &old);
        let outcome = world.run(|application| {
            assert_eq!(application.restart(some), Some(3), "way {way}");
            application.checkpoint(4, some).unwrap();
        });
        assert_eq!(outcome.has_line_with("a new file is started"), way < 2);
        world.run(|application| application.restart(some)).all_gave(&Some(4));
    }
}

/// A user restores `.scr` from a copy, and the nodes that have written a checkpoint since are away for a run.
#[test]
fn what_is_written_after_an_older_prefix_directory_is_restored_is_newer() {
    let mut world = job().set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "3");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let records = world.prefix().join(".scr");
    let old: Vec<_> =
        files_below(&records).into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    world.put("SCR_FLUSH", "0");
    world.run(|application| (2..=4).for_each(|step| application.checkpoint(step, some).unwrap()));
    files_below(&records).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    old.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    world.put("SCR_FLUSH", "1");
    on(&mut world, ["m0", "m1"]);
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(5, some).unwrap();
    });
    on(&mut world, ["n0", "n1"]);
    world.run(|application| application.restart(some)).all_gave(&Some(5));
}

/// A user removes everything to start the simulation from the beginning. The nodes still have data of the old one.
#[test]
fn a_new_prefix_directory_gets_no_data_of_a_removed_one() {
    let world = job().set("SCR_CACHE_SIZE", "2");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    std::fs::remove_dir_all(world.prefix()).unwrap();
    std::fs::create_dir(world.prefix()).unwrap();
    let outcome = world.run(|application| {
        assert_eq!(application.restart(some), None);
        assert_eq!(cached(&world, 2), 1);
        application.checkpoint(7, some).unwrap();
    });
    outcome.line_with(&[
        "dataset 2 `ckpt.2' and 1 more",
        "another prefix directory",
        "put the directory back before",
    ]);
    assert_eq!([1, 2, 7].map(|step| cached(&world, step)), [0, 0, 1], "it makes room");
    let outcome = world.run(|application| application.restart(some));
    outcome.all_gave(&Some(7));
    assert!(!outcome.has_line_with("another prefix directory"));
}

#[test]
fn nothing_of_a_removed_prefix_directory_is_flushed_copied_or_built_in_its_successor() {
    let mut world = job();
    world.run(|application| application.output(1, some).unwrap());
    world.put("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(2, some).unwrap());
    world.put("SCR_FLUSH", "0");
    world.run(|application| application.checkpoint(3, some).unwrap());
    std::fs::remove_dir_all(world.prefix()).unwrap();
    std::fs::create_dir(world.prefix()).unwrap();
    let cache = world.node("n0/user1/scr.defjobid");
    // Before any run, and after one.
    for _ in 0..2 {
        let copied = copy_of(&world, 3);
        assert!(copied.parts.is_empty(), "{copied:?}");
        assert!(copied.passed_over[0].contains("was there before this one"), "{copied:?}");
        assert!(!unsaved(&RealFiles, &cache).unwrap().is_empty(), "they are lost with the cache");
        world.put("SCR_FLUSH_ON_RESTART", "1");
        world.run(|application| application.finalize().unwrap());
    }
    let left: Vec<_> = files_below(&world.prefix());
    let files: Vec<_> = left.iter().filter(|path| path.to_string_lossy().contains("ckpt.")).collect();
    assert!(files.is_empty(), "{files:?}");
    assert_eq!(ids(&world), [0; 0]);
}

#[test]
fn a_prefix_directory_that_comes_back_has_its_checkpoints_again() {
    let world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let away = world.dir().join("away");
    std::fs::rename(world.prefix(), &away).unwrap();
    std::fs::create_dir(world.prefix()).unwrap();
    world.run(|application| application.restart(some)).all_gave(&None);
    std::fs::remove_dir_all(world.prefix()).unwrap();
    std::fs::rename(&away, world.prefix()).unwrap();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The datasets in cache did not count, and the message said that no node had anything of them.
#[test]
fn a_prefix_directory_that_is_renamed_or_seen_under_another_path_keeps_its_datasets_in_cache() {
    for bypass in ["0", "1"] {
        for way in ["renamed", "renamed, and made again", "by a link"] {
            let by_link = way == "by a link";
            let mut world = job().set("SCR_CACHE_SIZE", "2").set("SCR_CACHE_BYPASS", bypass);
            world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
            let moved = world.dir().join("moved");
            // A bind mount is not to be had everywhere; by a link, too, two paths lead to one folder.
            match by_link {
                true => std::os::unix::fs::symlink(world.prefix(), &moved).unwrap(),
                false => std::fs::rename(world.prefix(), &moved).unwrap(),
            }
            if way == "renamed, and made again" {
                // As a mount point, too, or the next run's.
                std::fs::create_dir(world.prefix()).unwrap();
            }
            world.turn_to("moved");
            if bypass == "0" {
                assert_eq!(copy_of(&world, 2).parts.len(), 2, "{way}");
                world.lose("n1");
            }
            let outcome = world.run(|application| {
                let restarted = application.restart(some);
                application.checkpoint(3, some).unwrap();
                restarted
            });
            outcome.all_gave(&Some(2));
            assert!(!outcome.has_line_with("is in cache only"), "{}", outcome.lines.join("\n"));
            world.run(|application| application.restart(some)).all_gave(&Some(3));
            if !by_link {
                std::fs::rename(&moved, world.dir().join("prefix")).unwrap();
                world.turn_to("prefix");
                world.run(|application| application.restart(some)).all_gave(&Some(3));
            }
        }
    }
}

/// The end of the run made the old path again, and the next run took that for the original.
#[test]
fn a_prefix_directory_that_is_renamed_during_a_run_is_not_made_again() {
    let mut world = job().set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH", "0");
    let (old, moved) = (world.prefix(), world.dir().join("moved"));
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if application.rank == Rank(0) {
            std::fs::rename(&old, &moved).unwrap();
        }
        // Whether these succeed is not the question.
        _ = application.checkpoint(2, some);
        _ = application.finalize();
    });
    assert!(!old.exists(), "{:?}", files_below(&old));
    world.turn_to("moved");
    assert!(world.run(|application| application.restart(some)).ranks[0].is_some());
}

/// It wrote its flush file there, and the newest checkpoint of the other one, which was only in cache, was forgotten.
#[test]
fn a_run_changes_nothing_in_another_directory_that_has_got_the_path_of_its_own() {
    let mut world = job().set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH", "2");
    world.turn_to("other");
    world.run(|application| application.checkpoint(7, some).unwrap());
    let other = world.prefix();
    let contents = |dir: &Path| -> Vec<_> {
        let below =
            |path: PathBuf| (path.strip_prefix(dir).unwrap().to_owned(), std::fs::read(&path).unwrap());
        files_below(dir).into_iter().map(below).collect()
    };
    let before = contents(&other);
    world.turn_to("prefix");
    let (own, moved) = (world.prefix(), world.dir().join("moved"));
    let turns = std::sync::Barrier::new(4);
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if turns.wait().is_leader() {
            std::fs::rename(&own, &moved).unwrap();
            std::fs::rename(&other, &own).unwrap();
        }
        turns.wait();
        (2..=3).for_each(|step| application.checkpoint(step, some).unwrap());
        _ = application.finalize();
    });
    outcome.line_with(&["another directory is in its place: give it its name back"]);
    assert_eq!(contents(&own), before);
    world.run(|application| application.restart(some)).all_gave(&Some(7));
    world.turn_to("moved");
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

/// As where a file system is mounted again.
#[test]
fn a_run_goes_on_in_a_directory_with_the_id_of_its_own_that_has_got_its_path() {
    let mut world = job().set("SCR_FLUSH", "1");
    let (own, moved) = (world.prefix(), world.dir().join("moved"));
    let turns = std::sync::Barrier::new(4);
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if turns.wait().is_leader() {
            std::fs::rename(&own, &moved).unwrap();
            let copied = std::process::Command::new("cp").arg("-a").args([&moved, &own]).status();
            assert!(copied.unwrap().success());
        }
        turns.wait();
        application.checkpoint(2, some).unwrap();
        application.finalize().unwrap();
    });
    assert_eq!(ids(&world), [2, 1]);
    world.turn_to("moved");
    assert_eq!(ids(&world), [1]);
}

/// The result of `scr copy` on the first node.
fn copy_of(world: &World, id: u64) -> Copied {
    let prefix = Prefix::new(world.prefix());
    let (files, node, progress) = (&RealFiles, "n0", &|_, _| ());
    let uid = rustix::process::getuid().as_raw();
    let copier = Copier { files, prefix: &prefix, uid, node, block_bytes: 4096, width: 1, progress };
    let cache = world.node("n0/user1/scr.defjobid");
    let cache = OwnedDir::at(&RealFiles, &cache, uid).unwrap();
    copier.dataset(&[cache], id).unwrap()
}

/// The copy has the id of the original, and lies at another path.
#[test]
fn a_copy_of_a_prefix_directory_gets_only_what_is_in_the_copy() {
    let mut world = job().set("SCR_CACHE_SIZE", "3").set("SCR_FLUSH", "2");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    let copy = world.dir().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").args([&world.prefix(), &copy]).status().unwrap();
    assert!(copied.success());
    let original = world.prefix().display().to_string();
    world.turn_to("copy");
    let copied = copy_of(&world, 3);
    assert!(copied.parts.is_empty() && copied.passed_over[0].contains(&original), "{copied:?}");
    let outcome = world.run(|application| {
        assert_eq!(application.restart(some), Some(2));
        application.checkpoint(9, some).unwrap();
    });
    outcome.line_with(&["dataset 3 `ckpt.3'", &original, "start the job there", "move it away first"]);
    assert!(!outcome.has_line_with("no node of this run has"), "{}", outcome.lines.join("\n"));
    world.turn_to("prefix");
    world.run(|application| application.restart(some)).all_gave(&Some(3));
    world.turn_to("copy");
    world.run(|application| application.restart(some)).all_gave(&Some(9));
}

#[test]
fn purging_the_cache_removes_what_is_left_of_a_removed_prefix_directory() {
    let world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    std::fs::remove_dir_all(world.prefix()).unwrap();
    std::fs::create_dir(world.prefix()).unwrap();
    let world = world.set("SCR_CACHE_PURGE", "1");
    world.run(|application| assert_eq!(application.restart(some), None));
    assert_eq!(cached(&world, 1), 0);
}

/// The name stands for the newer one, and the older one was in cache: that was restarted from without a word, and the newer one
/// dropped.
#[test]
fn a_checkpoint_chosen_by_name_is_the_one_that_the_index_has() {
    for by_call in [false, true] {
        let mut world = job().set("SCR_CACHE_SIZE", "2");
        world.run(|application| application.checkpoint_as(b"a", 1, some).unwrap());
        on(&mut world, ["n2", "n3"]);
        world.put("SCR_FLUSH", "1");
        world.run(|application| application.checkpoint_as(b"a", 2, some).unwrap());
        on(&mut world, ["n0", "n1"]);
        world.put("SCR_FLUSH", "0");
        world.put("SCR_FETCH", "0");
        world.run(|application| application.checkpoint_as(b"c", 3, some).unwrap());
        world.put("SCR_FETCH", "1");
        world.put("SCR_DROP_AFTER_CURRENT", "1");
        if !by_call {
            world.put("SCR_CURRENT", "a");
        }
        world.run(|application| {
            if by_call {
                application.session().current(b"a").unwrap();
            }
            assert_eq!(application.session().start_restart().unwrap(), b"a");
            application.compare(2, some).unwrap();
            application.session().complete_restart(true).unwrap();
        });
        assert_eq!(ids(&world), [2], "by a call: {by_call}");
    }
}

fn folder(path: &Path) -> Arc<dyn File> {
    Arc::from(RealFiles.open(path, How::Folder).unwrap())
}

/// The file layer of the second node, on which another folder can take the place of the prefix directory; and the empty folder
/// that is there when its file system is not mounted.
fn with_mounts(world: &mut World) -> (Arc<dyn Files>, PathBuf) {
    let empty = world.dir().join("nodes/n1/mountpoint");
    std::fs::create_dir_all(&empty).unwrap();
    let mounts = RealFiles.through(&world.prefix(), folder(&world.prefix()), None).unwrap();
    let seen = FaultyFiles::around(Arc::clone(&mounts));
    seen.never_pause();
    (2..4).for_each(|rank| _ = world.own_files.insert(Rank(rank), Arc::new(seen.clone())));
    (mounts, empty)
}

/// Only rank 0 looked, and the ranks there wrote their files into the local folder: the checkpoint was listed as complete.
#[test]
fn no_run_begins_where_a_node_has_an_empty_folder_in_place_of_the_prefix_directory() {
    let mut world = job().set("SCR_FLUSH", "1");
    let (mounts, empty) = with_mounts(&mut world);
    mounts.hold_instead(&world.prefix(), folder(&empty));
    for step in 1..3 {
        let begun = world.try_run(|application| {
            let written = application.and_then(|mut application| application.checkpoint(step, some));
            written.map_err(|error| error.to_string())
        });
        let why = begun.ranks[0].clone().unwrap_err();
        let prefix = world.prefix().display().to_string();
        let words = ["on n1", &prefix, "mount its file system", "SCR_PREFIX"];
        assert!(words.iter().all(|word| why.contains(word)) && !why.contains("on n0"), "{why}");
        begun.all_gave(&Err(why));
        assert_eq!(files_below(&empty), Vec::<PathBuf>::new());
        // The next time it is that of another job.
        std::fs::create_dir_all(empty.join(".scr")).unwrap();
    }
    mounts.hold_instead(&world.prefix(), folder(&world.prefix()));
    world.run(|application| application.checkpoint(1, some).unwrap());
    assert!(world.prefix().join("ckpt.1/rank_3.0").exists());
}

#[test]
fn nothing_is_flushed_while_a_node_has_lost_the_file_system_of_the_prefix_directory() {
    let mut world = job().set("SCR_FLUSH", "1");
    let (mounts, empty) = with_mounts(&mut world);
    let turns = std::sync::Barrier::new(4);
    let run = world.run(|application| {
        application.output(1, some).unwrap();
        let turn_to = |path: &Path| {
            if turns.wait().is_leader() {
                mounts.hold_instead(&world.prefix(), folder(path));
            }
            turns.wait();
        };
        turn_to(&empty);
        let why = application.output(2, some).unwrap_err().to_string();
        turn_to(&world.prefix());
        application.output(3, some).unwrap();
        why
    });
    let why = &run.ranks[0];
    assert!(
        ["on n1", "of this run is not there", "it is kept in cache"].iter().all(|word| why.contains(word)),
        "{why}"
    );
    run.all_gave(why);
    assert_eq!(files_below(&empty), Vec::<PathBuf>::new());
    for step in 1..4 {
        assert!(world.prefix().join(format!("ckpt.{step}/rank_3.0")).exists(), "{step}");
    }
}

/// A client of NFS remembers for a while that something is not there.
#[test]
fn a_node_that_does_not_see_a_new_prefix_directory_at_once_looks_again() {
    let mut world = job();
    let stale = FaultyFiles::new(RealFiles);
    stale.only(|_, path| path.ends_with(".scr/ids.scr") || path.ends_with(".scr/index.scr"));
    stale.count_all();
    stale.never_pause();
    stale.fail_for(1, 20, ErrorKind::NotFound);
    (2..4).for_each(|rank| _ = world.own_files.insert(Rank(rank), Arc::new(stale.clone())));
    world.run(|application| application.checkpoint(1, some).unwrap());
    assert!(stale.first_failed().is_some());
}
