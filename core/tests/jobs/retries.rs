//! Datasets that must get into the prefix directory sooner or later: a checkpoint whose flush failed, and output. Also datasets
//! that the application refuses there, and files that ranks share there.

use super::world::{contents, file_name, path_of, Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use scr_prefix::{Index, IndexEntry, Prefix};
use scr_test_kit::faulty::FaultyFiles;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};

fn some(rank: Rank) -> Vec<usize> {
    vec![1500 + 7 * rank.index(), 3]
}

/// There is room for all in cache, so that nothing leaves it to make some.
fn job() -> World {
    World::new(4, 4).set("SCR_CACHE_SIZE", "9")
}

fn index(world: &World) -> Index {
    Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap()
}

/// The names of the datasets that are complete in the prefix directory, oldest first.
fn complete(world: &World) -> Vec<String> {
    let mut entries = index(world).entries();
    entries.sort_unstable_by_key(|entry| entry.id);
    let valid = entries.into_iter().filter(IndexEntry::is_valid);
    valid.map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

/// A file in the place of the folder of `ckpt.<step>`, so that it cannot be flushed.
fn in_the_way(world: &World, step: u64) -> PathBuf {
    let path = world.prefix().join(format!("ckpt.{step}"));
    std::fs::write(&path, "in the way").unwrap();
    path
}

#[test]
fn a_checkpoint_that_could_not_be_flushed_makes_the_next_one_due() {
    let world = job().set("SCR_FLUSH", "2");
    in_the_way(&world, 2);
    world.run(|application| {
        (1..=2).for_each(|step| application.checkpoint(step, some).unwrap());
        assert_eq!(complete(&world), Vec::<String>::new());
        application.checkpoint(3, some).unwrap();
        assert_eq!(complete(&world), ["ckpt.3"]);
    });
    // From here on it goes by turns again.
    world.run(|application| {
        application.checkpoint(4, some).unwrap();
        application.checkpoint(5, some).unwrap();
    });
    assert_eq!(complete(&world), ["ckpt.3", "ckpt.4"]);
}

#[test]
fn without_periodic_flushes_a_checkpoint_is_not_flushed_at_the_end_either() {
    for (every, expected) in [("0", &[][..]), ("10", &["ckpt.1"][..])] {
        let world = job().set("SCR_FLUSH", every);
        world.run(|application| {
            application.checkpoint(1, some).unwrap();
            application.finalize().unwrap();
        });
        assert_eq!(complete(&world), expected, "SCR_FLUSH={every}");
    }
}

/// Writes a plot that no checkpoint needs. Whether that succeeded.
fn plot(application: &mut Application, step: u64) -> bool {
    application.session().start_output(Some(format!("ckpt.{step}").as_bytes()), OUTPUT).unwrap();
    application.fill(step, some).unwrap();
    application.session().complete_output(true).is_ok()
}

const OUTPUT: OutputFlags = OutputFlags { checkpoint: false, output: true };

/// Whether this rank's node has anything of a dataset.
fn has(world: &World, rank: Rank, id: u64) -> bool {
    world.node(&format!("n{rank}/user1/scr.defjobid/scr.dataset.{id}")).exists()
}

#[test]
fn output_leaves_the_cache_when_it_is_flushed_and_at_the_end_at_the_latest() {
    let world = job();
    let turns = Barrier::new(4);
    world.run(|application| {
        let rank = application.rank;
        assert!(plot(application, 1));
        assert!(!has(&world, rank, 1), "nobody needs it here any more");
        turns.wait();
        if rank == Rank(0) {
            in_the_way(&world, 2);
        }
        turns.wait();
        assert!(!plot(application, 2));
        assert!(has(&world, rank, 2), "it is nowhere else");
        turns.wait();
        if rank == Rank(0) {
            std::fs::remove_file(world.prefix().join("ckpt.2")).unwrap();
        }
        turns.wait();
        application.finalize().unwrap();
        assert!(!has(&world, rank, 2));
    });
    assert_eq!(complete(&world), ["ckpt.1", "ckpt.2"]);
    for (step, rank) in [1, 2].into_iter().flat_map(|step| (0..4).map(move |rank| (step, Rank(rank)))) {
        for (number, size) in some(rank).into_iter().enumerate() {
            let found = std::fs::read(world.prefix().join(file_name(step, rank, number))).unwrap();
            assert_eq!(found, contents(step, rank, number, size));
        }
    }
}

#[test]
fn going_back_to_what_the_index_has_as_current_drops_the_newer_ones() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.lose("");
    Index::update(&RealFiles, &Prefix::new(world.prefix()), |index| assert!(index.set_current("ckpt.2")))
        .unwrap();
    world.put("SCR_DROP_AFTER_CURRENT", "1");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    assert_eq!(complete(&world), ["ckpt.1", "ckpt.2"]);
}

/// Neither this allocation nor another one is offered it again.
#[test]
fn a_refused_dataset_is_marked_in_the_prefix_directory() {
    let world = job().set("SCR_FLUSH", "1");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.run(|application| {
        let usable = application.rank != Rank(1);
        application.session().start_restart().unwrap();
        application.session().complete_restart(usable).unwrap_err();
        assert_eq!(application.restart(some), Some(1));
    });
    let refused = index(&world).entry(2).unwrap();
    assert!(refused.complete && refused.failed.is_some() && index(&world).entry(1).unwrap().failed.is_none());
    world.lose("");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// All ranks have written one file, and each has routed one of its own besides.
#[test]
fn in_bypass_mode_a_rank_reads_what_another_one_has_written() {
    let world = job().set("SCR_CACHE_BYPASS", "1");
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
    });
    world.run(|application| {
        let next = Rank((application.rank.0 + 1) % 4);
        let session = application.session();
        session.start_restart().unwrap();
        let path = session.route_file(file_name(1, next, 0).as_bytes()).unwrap();
        assert_eq!(std::fs::read(path_of(&path)).unwrap(), contents(1, next, 0, some(next)[0]));
        let error = session.route_file(b"ckpt.1/nobodys").unwrap_err().to_string();
        assert!(error.contains("`ckpt.1/nobodys' is not a file that rank"), "{error}");
        session.complete_restart(true).unwrap();
    });
}

/// A run that found the prefix directory full did not start at all, though all it needed was in cache.
#[test]
fn a_run_goes_on_from_cache_where_the_prefix_directory_has_no_room_and_flushes_when_it_has() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.prefix());
    full.fail_from(0, ErrorKind::StorageFull);
    world.files = Arc::new(full.clone());
    let turns = Barrier::new(4);
    let outcome = world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(2, some).unwrap();
        assert_eq!(complete(&world), ["ckpt.1"]);
        turns.wait();
        if application.rank == Rank(0) {
            full.heal();
        }
        turns.wait();
        application.checkpoint(3, some).unwrap();
        application.finalize().unwrap();
    });
    outcome.line_with(&["ERROR", "no storage space", "make room before the next flush"]);
    outcome.line_with(&["ERROR", "ckpt.2 was not flushed", "no storage space"]);
    assert_eq!(complete(&world), ["ckpt.1", "ckpt.3"]);
}

#[test]
fn a_prefix_directory_that_can_only_be_read_ends_the_start_with_what_to_do() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let files = FaultyFiles::new(RealFiles);
    files.only_below(world.prefix());
    files.fail_from(0, ErrorKind::ReadOnlyFilesystem);
    world.files = Arc::new(files);
    let outcome = world.try_run(|application| application.map(drop).unwrap_err().to_string());
    let message = &outcome.ranks[0];
    assert!(message.contains(".scr") && message.contains("let SCR_PREFIX name a folder"), "{message}");
    outcome.all_gave(message);
}

/// The purge is not undone: what was deleted stays so until SCR_Finalize saves the newest checkpoint, which is in cache only. It
/// was never flushed again, and was lost with the allocation.
#[test]
fn a_checkpoint_that_is_left_in_cache_by_a_purge_is_flushed_at_the_end() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "9").set("SCR_CACHE_SIZE", "2");
    world.run(|application| {
        (1..=2).for_each(|step| application.checkpoint(step, some).unwrap());
        application.finalize().unwrap();
    });
    world.put("SCR_PREFIX_PURGE", "1");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(2));
        assert!(complete(&world).is_empty());
    });
    world.put("SCR_PREFIX_PURGE", "0");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(2));
        application.finalize().unwrap();
    });
    assert_eq!(complete(&world), ["ckpt.2"]);
    (0..4).for_each(|node| world.lose(&format!("n{node}")));
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}
