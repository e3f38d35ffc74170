//! Repairs by a restart that has more in its way than a lost node: redundancy that is lost while all data is there, transient
//! errors, and leftovers of others on the same nodes.

use super::damage::flip;
use super::world::{Kept, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

fn some(rank: Rank) -> Vec<usize> {
    vec![500 + 10 * rank.index(), 33]
}

/// Four nodes with a checkpoint in cache, and a copy of what they store.
fn written(scheme: &str) -> (World, Kept) {
    let world = World::new(4, 4).set("SCR_COPY_TYPE", scheme).set("SCR_SET_FAILURES", "2");
    world.run(|application| application.checkpoint(1, some).expect("it is complete"));
    let kept = world.keep();
    (world, kept)
}

type Harm = fn(&Path);

/// Ways to lose a redundancy file.
const HARMS: [(&str, Harm); 3] = [
    ("missing", |path| std::fs::remove_file(path).expect("it is there")),
    ("short", |path| std::fs::write(path, "short").expect("it can be written")),
    ("flipped", |path| flip(path, 4200)),
];

fn harm_redundancy(world: &World, ranks: &[u32], harm: Harm) {
    ranks.iter().for_each(|rank| harm(&world.cached_file(&[&format!("redundancy_{rank}")])));
}

/// More redundancy than the scheme survives losses counted as lost data, and the checkpoint was given up.
#[test]
#[ignore = "long"]
fn redundancy_is_made_again_however_much_of_it_is_lost_as_long_as_all_data_is_there() {
    for scheme in ["XOR", "RS", "PARTNER"] {
        for (what, harm) in HARMS {
            for ranks in [&[1, 2][..], &[0, 1, 2, 3]] {
                let (world, kept) = written(scheme);
                harm_redundancy(&world, ranks, harm);
                let restarted = world.run(|application| application.restart(some));
                restarted.all_gave(&Some(1));
                assert!(!restarted.has_line_with("cannot be restored"), "{:?}", restarted.lines);
                restarted.line_with(&[
                    "dataset 1",
                    "the redundancy of",
                    "of 4 ranks is lost",
                    "making it again",
                ]);
                assert_eq!(world.changes_since(&kept), Vec::<String>::new(), "{scheme}, {what}");
                // It protects as before.
                world.lose("n2");
                world.run(|application| application.restart(some)).all_gave(&Some(1));
            }
        }
    }
}

/// If parts have moved, `SCR_Init` compares everything.
#[test]
fn parts_without_redundancy_move_with_their_ranks() {
    for (what, harm) in HARMS {
        let (mut world, _) = written("XOR");
        harm_redundancy(&world, &[1, 3], harm);
        world.nodes.rotate_left(1);
        let restarted = world.run(|application| application.restart(some));
        restarted.all_gave(&Some(1));
        restarted.line_with(&["2 of 4 ranks is lost: 1 ", "making it again"]);
        world.lose("n2");
        let restarted = world.run(|application| application.restart(some));
        assert_eq!(restarted.ranks, [Some(1); 4], "{what}");
    }
}

#[test]
fn a_redundancy_file_that_cannot_be_read_while_a_part_moves_costs_no_data() {
    let (mut world, _) = written("XOR");
    harm_redundancy(&world, &[1], HARMS[0].1);
    world.nodes.rotate_left(1);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.count_all();
    faulty.never_pause();
    // Rank 3's part lies where rank 2 runs now.
    faulty.only(|what, path| {
        what == What::OpenToRead && path.ends_with("redundancy_3") && path.to_string_lossy().contains("/n3/")
    });
    faulty.fail_from(1, ErrorKind::PermissionDenied);
    world.own_files.insert(Rank(2), Arc::new(faulty.clone()));
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    assert!(faulty.first_failed().is_some());
}

/// Damage in another set made all sets compare everything, and what one of them found was too much.
#[test]
fn a_set_that_has_lost_redundancy_only_is_protected_again_while_another_one_is_rebuilt() {
    let world = World::new(8, 4).set("SCR_SET_SIZE", "4");
    world.run(|application| application.checkpoint(1, some).expect("it is complete"));
    // Ranks 0, 2, 4 and 6 are one set, the others another one.
    harm_redundancy(&world, &[0, 4], HARMS[2].1);
    flip(&world.cached_file(&["/r3/", ".0"]), 40);
    let restarted = world.run(|application| application.restart(some));
    restarted.all_gave(&Some(1));
    assert!(!restarted.has_line_with("cannot be restored"), "{:?}", restarted.lines);
    world.lose("n2");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

#[test]
fn lost_redundancy_counts_where_data_of_its_set_is_lost() {
    let (world, _) = written("XOR");
    harm_redundancy(&world, &[1], HARMS[0].1);
    world.lose("n3");
    let restarted = world.run(|application| application.restart(some));
    restarted.all_gave(&None);
    restarted.line_with(&[
        "ERROR",
        "has lost the parts of ranks 1 (written on n1), 3 (written on n3), and XOR survives 1",
    ]);
}

/// There is no room for it, for instance.
#[test]
fn a_checkpoint_whose_redundancy_cannot_be_made_again_is_restarted_from_all_the_same() {
    let (mut world, _) = written("XOR");
    harm_redundancy(&world, &[1, 2], HARMS[0].1);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|what, path| what == What::Write && path.to_string_lossy().ends_with("redundancy_0.rebuild"));
    faulty.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(0), Arc::new(faulty));
    let restarted = world.run(|application| application.restart(some));
    restarted.all_gave(&Some(1));
    restarted.line_with(&["ERROR", "dataset 1", "is not protected"]);
    // Nothing half made is left, and the next run makes it.
    assert!(!world.cached_files().iter().any(|file| file.to_string_lossy().ends_with(".rebuild")));
    world.own_files.clear();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.lose("n0");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// Counts what a rank does to the parts of dataset 1, and lets the `at`-th of these operations fail.
fn watch(world: &mut World, rank: Rank, at: u64) -> FaultyFiles {
    let faulty = FaultyFiles::new(RealFiles);
    faulty.count_all();
    faulty.never_pause();
    faulty.only(|what, path| {
        let lies_there = path.to_string_lossy().contains("scr.dataset.1/");
        lies_there && !matches!(what, What::List | What::RemoveFile | What::RemoveDir)
    });
    faulty.fail_once(at, ErrorKind::TimedOut);
    world.own_files.insert(rank, Arc::new(faulty.clone()));
    faulty
}

/// Any error in a rebuild gave the dataset up, though all that was needed for it was still there.
#[test]
#[ignore = "long"]
fn an_error_that_passes_while_a_lost_part_is_rebuilt_costs_nothing() {
    let lost = |moves: bool| {
        let (mut world, _) = written("XOR");
        world.lose("n2");
        if moves {
            world.nodes.rotate_left(1);
        }
        world
    };
    for (moves, rank) in [(false, 2), (false, 1), (true, 0), (true, 2)] {
        let mut world = lost(moves);
        let counted = watch(&mut world, Rank(rank), 0);
        world.run(|_| ());
        let mut tried = BTreeSet::new();
        for (at, operation) in (1..).zip(counted.operations()) {
            // One of each kind at each file is enough.
            let name = operation.path.file_name().map(ToOwned::to_owned);
            if !tried.insert((format!("{:?}", operation.what), name)) {
                continue;
            }
            let mut world = lost(moves);
            let faulty = watch(&mut world, Rank(rank), at);
            let restarted = world.run(|application| application.restart(some));
            let what = format!("rank {rank}, {operation:?}");
            assert!(restarted.ranks.iter().all(|step| *step == Some(1)), "{what}: {:#?}", restarted.lines);
            assert!(faulty.first_failed().is_some(), "{what}");
        }
    }
}

/// A removal that was cut short continued on whatever lay there by then.
#[test]
fn what_is_left_of_a_removal_takes_no_part_with_it_that_was_put_there_later() {
    let (world, kept) = written("SINGLE");
    let map = world.cached_file(&["filemap_3"]);
    let gone = map.with_file_name("filemap_3.gone");
    std::fs::write(&gone, "whatever an older part has recorded").expect("it can be written");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    assert!(!gone.exists());
    assert_eq!(world.changes_since(&kept), Vec::<String>::new());
}

#[test]
fn a_part_begins_only_where_no_removal_is_left_to_be_finished() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_COPY_TYPE", "SINGLE");
    let faulty = FaultyFiles::new(RealFiles);
    faulty.count_all();
    faulty.only(|what, path| {
        let lies_there = path.to_string_lossy().contains("scr.dataset.1/");
        let is_part = path.ends_with("r3") || path.to_string_lossy().contains("/r3/");
        lies_there && is_part && matches!(what, What::RemoveFile | What::RemoveDir | What::List)
    });
    world.own_files.insert(Rank(3), Arc::new(faulty.clone()));
    let is_left = |world: &World| {
        world
            .cached_files()
            .iter()
            .any(|file| file.to_string_lossy().ends_with("scr.dataset.1/.scr/filemap_3.gone"))
    };
    world.run(|application| {
        application.checkpoint(1, some).expect("it is complete");
        faulty.fail_from(1, ErrorKind::PermissionDenied);
        application.checkpoint(2, some).expect("it is complete");
    });
    // Nor can the next start finish the removal.
    world.run(|application| {
        if application.rank == Rank(3) {
            assert!(is_left(&world));
            faulty.heal();
        }
        application.session().current(b"ckpt.1").expect("the index has it");
        assert_eq!(application.restart(some), Some(1));
    });
    assert!(!is_left(&world));
    world.put("SCR_CURRENT", "ckpt.1");
    let restarted = world.run(|application| application.restart(some));
    restarted.all_gave(&Some(1));
    assert!(!restarted.has_line_with("Attempting fetch"), "{:?}", restarted.lines);
}

/// The dataset of another prefix directory has the same number on that node: the whole checkpoint was given up.
#[test]
fn a_part_finds_room_where_another_prefix_directory_has_a_dataset_of_the_same_number() {
    for moves in [false, true] {
        let mut world = World::new(4, 4);
        let on = |world: &mut World, nodes: [&str; 4]| world.nodes = nodes.map(str::to_owned).to_vec();
        world.run(|application| application.checkpoint(1, some).expect("it is complete"));
        on(&mut world, ["n4", "n5", "n6", "n7"]);
        world.turn_to("other");
        world.run(|application| application.checkpoint(1, some).expect("it is complete"));
        let theirs: Vec<_> = world.cached_files().into_iter().filter(|file| is_theirs(file)).collect();
        let before: Vec<_> = theirs.iter().map(|file| std::fs::read(file).expect("it is there")).collect();
        world.turn_to("prefix");
        // Rank 3's part is rebuilt where the other job's rank 3 was; or rank 2's part moves to where its rank 2 was.
        on(&mut world, if moves { ["n0", "n1", "n6", "n2"] } else { ["n0", "n1", "n2", "n7"] });
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        // It is found there again.
        world.lose("n1");
        world.lose("n3");
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        world.run(|application| {
            assert_eq!(application.restart(some), Some(1));
            application.checkpoint(2, some).expect("it is complete");
        });
        let after: Vec<_> = theirs.iter().map(|file| std::fs::read(file).expect("it is there")).collect();
        assert!(before == after, "{theirs:?}");
        assert!(world.cached_files().iter().all(|file| {
            is_theirs(file) && theirs.contains(file) || !file.to_string_lossy().contains("scr.dataset.1/")
        }));
        on(&mut world, ["n4", "n5", "n6", "n7"]);
        world.turn_to("other");
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// Whether it lies on a node that only the other job had.
fn is_theirs(file: &Path) -> bool {
    ["/n4/", "/n5/", "/n6/", "/n7/"].iter().any(|node| file.to_string_lossy().contains(node))
}
