//! What cannot be read for a moment is not missing: a run that cannot see what the prefix directory has does not begin, goes back
//! for good to nothing older, and deletes nothing that it could not read.

use super::world::World;
use scr_core::comm::Rank;
use scr_core::fs::faulty::{FaultyFiles, What};
use scr_core::fs::RealFiles;
use scr_core::prefix::{Index, IndexEntry, Prefix};
use std::io::ErrorKind;
use std::path::Path;
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
