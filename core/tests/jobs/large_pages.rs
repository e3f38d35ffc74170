//! Checkpoints in memory of large pages, where files are mapped: they survive the loss of nodes, byte for byte.

use super::own_mounts::in_own_mounts;
use super::world::World;
use scr_base::fs::{Files, How, RealFiles};
use scr_comm::Rank;

/// Enough for mapping, with an end within a page.
fn large(rank: Rank) -> Vec<usize> {
    vec![(3 << 20) + 1000 * rank.index() + 1, 10]
}

#[test]
#[ignore = "long"]
fn mapped_files_are_protected_and_rebuilt() {
    let test = "large_pages::mapped_files_are_protected_and_rebuilt";
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
    let length = file.metadata().unwrap().len();
    let is_mapped = RealFiles.open(&file, How::Read).unwrap().map(length).is_some();
    assert!(is_mapped, "{} is not mapped", file.display());
    world.lose("n2");
    world.run(|application| application.restart(large)).all_gave(&Some(4));
    world.lose("n1");
    world.run(|application| application.restart(large)).all_gave(&Some(4));
}
