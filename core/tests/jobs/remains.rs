//! Remains of datasets that no run can use, in stores without room for more: they leave where a checkpoint needs the room.

use super::world::World;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::sync::Arc;

fn some(rank: Rank) -> Vec<usize> {
    vec![2000 + rank.index(), 5]
}

/// On node 0 nothing can be written into other datasets as long as there is anything of this one.
fn fill_store_with(world: &mut World, id: u64) -> FaultyFiles {
    let full = FaultyFiles::new(RealFiles);
    let cache = world.node("n0/user1/scr.defjobid");
    let remains = cache.join(format!("scr.dataset.{id}"));
    full.pretend_room(1000);
    full.only(move |what, path| {
        let is_data = path.starts_with(&cache) && path.to_string_lossy().contains("/r0/");
        what == What::Write && is_data && !path.starts_with(&remains) && remains.exists()
    });
    full.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(0), Arc::new(full.clone()));
    full
}

/// Only what was left of the same checkpoint made way for it.
#[test]
fn remains_of_a_newer_checkpoint_make_way_for_one_that_is_fetched() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "2");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.nodes = ["n0", "n1", "n4", "n5"].map(str::to_owned).to_vec();
    fill_store_with(&mut world, 3);
    let restarted = world.run(|application| application.restart(some));
    restarted.all_gave(&Some(2));
    restarted.line_with(&["WARNING", "dataset 3", "for want of room"]);
}

#[test]
fn a_refused_checkpoint_makes_way_for_the_one_before() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "2");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    fill_store_with(&mut world, 3);
    world.run(|application| {
        assert!(application.session().have_restart().expect("it can be asked").is_some());
        application.session().start_restart().expect("there is one");
        application.session().complete_restart(false).unwrap_err();
        assert_eq!(application.restart(some), Some(2));
    });
}

/// No later checkpoint ever fitted, as only a newer checkpoint would have removed the remains.
#[test]
fn remains_make_way_for_a_new_checkpoint() {
    let mut world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.nodes = ["n0", "n1", "n4", "n5"].map(str::to_owned).to_vec();
    let full = fill_store_with(&mut world, 1);
    let run = world.run(|application| {
        assert_eq!(application.restart(some), None);
        application.begin(2).expect("it begins");
        let begun = !world.node("n0/user1/scr.defjobid/scr.dataset.1").exists();
        application.fill(2, some).expect("the application writes");
        application.session().complete_output(true).expect("it is complete");
        begun
    });
    assert!(full.first_failed().is_none());
    assert_eq!(run.ranks, [true; 4], "{:?}", run.lines);
    run.line_with(&["WARNING", "dataset 1", "for want of room"]);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

#[test]
fn where_there_is_room_remains_stay_until_a_newer_checkpoint_is_complete() {
    let mut world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.nodes = ["n0", "n1", "n4", "n5"].map(str::to_owned).to_vec();
    world.run(|application| {
        application.begin(2).expect("it begins");
        assert!(world.node("n0/user1/scr.defjobid/scr.dataset.1").exists());
    });
    world.nodes = ["n0", "n1", "n2", "n3"].map(str::to_owned).to_vec();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// It left too, for a checkpoint that did not fit all the same, and the run began anew.
#[test]
fn the_checkpoint_to_fall_back_to_makes_no_way_for_one_that_does_not_fit() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "3");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    let cache = world.node("n0/user1/scr.defjobid");
    // Only the prefix directory has the second one, and it never fits.
    for node in ["n0", "n1", "n2", "n3"] {
        std::fs::remove_dir_all(world.node(&format!("{node}/user1/scr.defjobid/scr.dataset.2"))).unwrap();
    }
    let full = FaultyFiles::new(RealFiles);
    full.pretend_room(1000);
    full.only(move |what, path| {
        let is_data = path.to_string_lossy().contains("/r0/");
        what == What::Write && is_data && path.starts_with(cache.join("scr.dataset.2"))
    });
    full.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(0), Arc::new(full.clone()));
    world.run(|application| {
        assert!(application.session().have_restart().expect("it can be asked").is_some());
        application.session().start_restart().expect("there is one");
        application.session().complete_restart(false).unwrap_err();
        assert_eq!(application.restart(some), Some(1));
    });
    assert!(full.first_failed().is_some());
}

/// The refused one left in vain for a damaged one, as the store had little room left.
#[test]
fn nothing_makes_way_for_a_damaged_checkpoint() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "3");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    for node in ["n0", "n1", "n2", "n3"] {
        std::fs::remove_dir_all(world.node(&format!("{node}/user1/scr.defjobid/scr.dataset.2"))).unwrap();
    }
    let full = FaultyFiles::new(RealFiles);
    full.pretend_room(1000);
    world.own_files.insert(Rank(0), Arc::new(full));
    let path = world.prefix().join("ckpt.2/rank_3.0");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    world.run(|application| {
        assert!(application.session().have_restart().expect("it can be asked").is_some());
        application.session().start_restart().expect("there is one");
        application.session().complete_restart(false).unwrap_err();
        assert!(world.node("n0/user1/scr.defjobid/scr.dataset.3").exists(), "it left in vain");
        assert_eq!(application.restart(some), Some(1));
    });
}
