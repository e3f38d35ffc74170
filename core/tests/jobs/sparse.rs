//! Files with holes: no copy, redundancy or rebuilt file takes more room than the data.

use super::world::{contents, files_below, path_of, Application, World};
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

const CHECKPOINT: OutputFlags = OutputFlags { checkpoint: true, output: false };
const LENGTH: usize = 6 << 20;
/// The data of each file: this many bytes at each of `PLACES`.
const DATA: usize = 8192;
const PLACES: [usize; 2] = [0, 3 << 20];
/// The most room that all files together may take, of some 24 MiB.
const MOST: u64 = 2 << 20;

fn name(step: u64, rank: Rank) -> String {
    format!("ck.{step}/{rank}")
}

fn write(application: &mut Application, step: u64) {
    let rank = application.rank;
    let session = application.session();
    session.start_output(Some(format!("ck.{step}").as_bytes()), CHECKPOINT).unwrap();
    let path = session.route_file(name(step, rank).as_bytes()).unwrap();
    let file = std::fs::File::create(path_of(&path)).unwrap();
    file.set_len(LENGTH as u64).unwrap();
    for (number, at) in PLACES.into_iter().enumerate() {
        file.write_all_at(&contents(step, rank, number, DATA), at as u64).unwrap();
    }
    drop(file);
    session.complete_output(true).unwrap();
}

fn expect_restart(world: &World, step: u64) {
    let run = world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        let found = session.have_restart().unwrap();
        session.start_restart().unwrap();
        let path = session.route_file(name(step, rank).as_bytes()).unwrap();
        let mut expected = vec![0; LENGTH];
        for (number, at) in PLACES.into_iter().enumerate() {
            expected[at..at + DATA].copy_from_slice(&contents(step, rank, number, DATA));
        }
        assert!(std::fs::read(path_of(&path)).unwrap() == expected, "other bytes");
        session.complete_restart(true).unwrap();
        found
    });
    run.all_gave(&Some(format!("ck.{step}").into_bytes()));
}

fn expect_little(files: &[PathBuf], what: &str) {
    let long =
        files.iter().map(|path| std::fs::metadata(path).unwrap()).filter(|status| status.len() > 1 << 20);
    let (bytes, taken) =
        long.fold((0, 0), |(bytes, taken), status| (bytes + status.len(), taken + status.blocks() * 512));
    assert!(bytes > 4 * MOST && taken < MOST, "{what}: {bytes} bytes take {taken}");
}

/// A file of 64 MiB with 8 KiB of data did not fit into a store of 24 MiB.
#[test]
#[ignore = "long"]
fn redundancy_and_rebuilt_and_moved_files_keep_the_holes() {
    for scheme in ["XOR", "PARTNER", "RS"] {
        let mut world = World::new(4, 4).set("SCR_COPY_TYPE", scheme);
        world.run(|application| (1..=4).for_each(|step| write(application, step)));
        expect_little(&world.cached_files(), scheme);
        expect_restart(&world, 4);
        world.lose("n1");
        expect_restart(&world, 4);
        expect_little(&world.cached_files(), scheme);
        world.nodes.rotate_left(1);
        expect_restart(&world, 4);
        expect_little(&world.cached_files(), scheme);
    }
}

#[test]
fn containers_and_what_is_fetched_from_them_keep_the_holes() {
    let world = World::new(4, 2).set("SCR_FLUSH", "1").with_store("COUNT=2 AGGREGATE=1");
    world.run(|application| {
        write(application, 1);
        application.finalize().unwrap();
    });
    let mut containers = files_below(&world.prefix().join(".scr"));
    containers.retain(|path| path.display().to_string().contains("container"));
    expect_little(&containers, "containers");
    ["n0", "n1"].iter().for_each(|node| world.lose(node));
    expect_restart(&world, 1);
    expect_little(&world.cached_files(), "fetched");
}
