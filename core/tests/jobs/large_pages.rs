//! Checkpoints in memory of large pages: they survive the loss of nodes, byte for byte.

use super::own_mounts::in_own_mounts;
use super::world::World;
use scr_comm::Rank;
use std::os::unix::fs::MetadataExt;

/// More than a page, with an end within one.
fn large(rank: Rank) -> Vec<usize> {
    vec![(3 << 20) + 1000 * rank.index() + 1, 10]
}

#[test]
#[ignore = "long"]
fn files_in_large_pages_are_protected_and_rebuilt() {
    let test = "large_pages::files_in_large_pages_are_protected_and_rebuilt";
    in_own_mounts(test, "mount -t tmpfs -o huge=always tmpfs /dev/shm", || {
        for scheme in ["PARTNER", "XOR", "RS"] {
            protects_and_rebuilds(scheme);
        }
    });
}

fn protects_and_rebuilds(scheme: &str) {
    let world = World::new(4, 4).set("SCR_COPY_TYPE", scheme);
    // From the third one on, redundancy is written over that of an older one.
    world.run(|application| (1..=4).for_each(|step| application.checkpoint(step, large).unwrap()));
    let file = world.cached_file(&["rank_2"]);
    assert!(file.metadata().unwrap().blksize() >= 2 << 20, "{} has small pages", file.display());
    world.lose("n2");
    world.run(|application| application.restart(large)).all_gave(&Some(4));
    world.lose("n1");
    world.run(|application| application.restart(large)).all_gave(&Some(4));
}
