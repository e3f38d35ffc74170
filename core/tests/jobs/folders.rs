//! Ranks in different current folders that use relative names: they share a file only if they mean the same absolute path.

use super::world::{contents, path_of, said, Application, World};
use scr_comm::Rank;
use scr_core::session::{Error, OutputFlags};
use std::fs::create_dir_all;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const CHECKPOINT: OutputFlags = OutputFlags { checkpoint: true, output: false };
const BYTES: usize = 2000;

/// Writes a checkpoint of one file of this name.
fn write(application: &mut Application, name: &str, step: u64) -> Result<(), String> {
    let rank = application.rank;
    let session = application.session();
    session.start_output(Some(b"one"), CHECKPOINT).unwrap();
    let path = session.route_file(name.as_bytes()).unwrap();
    std::fs::write(path_of(&path), contents(step, rank, 0, BYTES)).unwrap();
    session.complete_output(true).map_err(said)
}

/// Restarts, and compares every byte of the file of this name with what this rank wrote. Whether there is a checkpoint.
fn restart(application: &mut Application, name: &str, step: u64) -> bool {
    let rank = application.rank;
    let session = application.session();
    if session.have_restart().unwrap().is_none() {
        return false;
    }
    session.start_restart().unwrap();
    let path = session.route_file(name.as_bytes()).unwrap();
    assert!(std::fs::read(path_of(&path)).unwrap() == contents(step, rank, 0, BYTES), "other bytes");
    session.complete_restart(true).unwrap();
    true
}

/// Two ranks, each in the folder of its name, which is made.
fn world_in(nodes: usize, bypass: &str, folders: [&str; 2]) -> World {
    let mut world = World::new(2, nodes).set("SCR_CACHE_BYPASS", bypass);
    for (rank, folder) in (0..).map(Rank).zip(folders) {
        let folder = world.dir().join(folder);
        create_dir_all(&folder).unwrap();
        world.own_folders.insert(rank, folder);
    }
    world
}

fn with_prefix(world: World) -> World {
    let prefix = world.prefix().display().to_string();
    world.set("SCR_PREFIX", &prefix)
}

/// The kinds of dataset that a file of two ranks can get into: in place, in one cache, and in two.
const PLACES: [(usize, &str); 3] = [(1, "1"), (1, "0"), (2, "0")];

/// Both ranks got the same path, and the restart gave rank 1 the data of rank 0.
#[test]
fn no_run_begins_if_the_ranks_mean_different_prefix_directories() {
    let refused = |world: &World, words: &[&str]| {
        let run = world.try_run(|application| match application.map(|_| ()) {
            Err(Error::Config(why)) => why,
            other => panic!("{other:?}"),
        });
        for why in run.ranks {
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
            assert!(why.contains("set SCR_PREFIX for all ranks to one absolute path"), "{why}");
        }
    };
    let folders = ["prefix/ocean", "prefix/atmos"];
    let world = world_in(1, "1", folders);
    let [ocean, atmos] = folders.map(|folder| world.dir().join(folder).display().to_string());
    refused(&world, &[&format!("rank 0 is {ocean},"), &format!("would be {atmos};"), "rank 1"]);
    // A relative setting, and the folder above that of rank 0.
    refused(&world.set("SCR_PREFIX", "out"), &[&format!("{ocean}/out"), &format!("{atmos}/out")]);
    refused(&world_in(1, "1", ["prefix/ocean", "prefix"]), &["/prefix;"]);
    // A variable of one rank only.
    let mut world = with_prefix(world_in(1, "1", ["prefix", "prefix"]));
    world.own_settings.insert(Rank(1), ("SCR_PREFIX".to_owned(), atmos.clone()));
    refused(&world, &["/prefix,", &format!("would be {atmos};")]);
}

#[test]
fn ranks_may_call_the_prefix_directory_by_different_paths() {
    for (bypass, link) in [("0", "link"), ("1", "link"), ("1", "prefix/../prefix/.")] {
        let world = world_in(1, bypass, ["prefix", "prefix"]);
        symlink("prefix", world.dir().join("link")).unwrap();
        let mut by_folder = world;
        let linked = by_folder.dir().join(link);
        by_folder.own_folders.insert(Rank(1), linked.clone());
        by_folder.run(|application| write(application, &application.rank.to_string(), 1).unwrap());
        let mut by_variable = with_prefix(by_folder);
        let own = linked.join("sub/..").display().to_string();
        create_dir_all(by_variable.prefix().join("sub")).unwrap();
        by_variable.own_settings.insert(Rank(1), ("SCR_PREFIX".to_owned(), own));
        let run = by_variable.run(|application| restart(application, &application.rank.to_string(), 1));
        run.all_gave(&true);
    }
}

#[test]
fn a_relative_name_of_a_rank_below_the_prefix_directory_means_its_own_folder() {
    for (nodes, bypass) in PLACES {
        for folders in [["prefix/ocean", "prefix/atmos"], ["prefix", "prefix/atmos"]] {
            let mut world = world_in(nodes, bypass, folders).set("SCR_FLUSH", "1");
            if folders[0] != "prefix" {
                world = with_prefix(world);
            }
            world.run(|application| {
                write(application, "dat", 1).unwrap();
                application.finalize().unwrap();
            });
            for (rank, folder) in (0..).map(Rank).zip(folders) {
                let there = std::fs::read(world.dir().join(folder).join("dat")).unwrap();
                assert!(there == contents(1, rank, 0, BYTES), "other bytes");
            }
            world.run(|application| restart(application, "dat", 1)).all_gave(&true);
            (0..nodes).for_each(|node| world.lose(&format!("n{node}")));
            world.run(|application| restart(application, "dat", 1)).all_gave(&true);
        }
    }
}

/// Every call succeeded, and the restart gave both ranks the data of one.
#[test]
fn a_name_that_means_different_files_outside_the_prefix_directory_makes_no_dataset() {
    for (nodes, bypass) in PLACES {
        for folders in [["scratch/0", "scratch/1"], ["prefix", "scratch"], ["scratch", "prefix"]] {
            let world = with_prefix(world_in(nodes, bypass, folders));
            let run = world.run(|application| {
                let written = write(application, "dat", 1);
                assert_eq!(application.session().have_restart().unwrap(), None);
                written.unwrap_err()
            });
            let [one, other] = folders.map(|folder| world.dir().join(folder).join("dat"));
            let words =
                format!("{} of rank 0 and {} of rank 1 would both be", one.display(), other.display());
            for why in &run.ranks {
                assert!(why.contains(&words) && why.contains("start all ranks in the same folder"), "{why}");
                assert!(!why.contains("a cache that this rank does not see"), "{why}");
            }
            world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
        }
    }
}

#[test]
fn ranks_outside_the_prefix_directory_have_different_names_or_mean_the_same_file() {
    for (nodes, bypass) in PLACES {
        let mut world = with_prefix(world_in(nodes, bypass, ["scratch/0", "scratch/1"]));
        world.run(|application| write(application, &format!("ck/{}", application.rank), 1).unwrap());
        // The next run, in other folders.
        world.own_folders.insert(Rank(0), world.dir().join("scratch/1"));
        world.own_folders.insert(Rank(1), world.prefix());
        world.run(|application| restart(application, &format!("ck/{}", application.rank), 1)).all_gave(&true);
    }
    // One file of both, in place and in one cache.
    for (nodes, bypass) in [(2, "1"), (1, "0")] {
        let world = with_prefix(world_in(nodes, bypass, ["scratch", "scratch"]));
        world.run(|application| {
            let session = application.session();
            session.start_output(Some(b"one"), CHECKPOINT).unwrap();
            let path = session.route_file(b"dat").unwrap();
            std::fs::write(path_of(&path), contents(1, Rank(0), 0, BYTES)).unwrap();
            session.complete_output(true).unwrap();
        });
        let read = |application: &mut Application| {
            let session = application.session();
            session.start_restart().unwrap();
            let path = session.route_file(b"dat").unwrap();
            assert!(std::fs::read(path_of(&path)).unwrap() == contents(1, Rank(0), 0, BYTES), "other bytes");
            session.complete_restart(true).map_err(|error| error.to_string())
        };
        world.run(read).all_gave(&Ok(()));
        // Now each means a file of its own by this name.
        let apart = world.run(|application| {
            let folder = PathBuf::from(format!("/scratch/{}", application.rank));
            application.session().work_in(folder);
            read(application)
        });
        for why in apart.ranks {
            let why = why.unwrap_err();
            assert!(why.contains("/scratch/0/dat of rank 0 and /scratch/1/dat of rank 1"), "{why}");
        }
    }
}

/// The second file took the place of the first one.
#[test]
fn a_rank_that_changes_its_folder_gets_no_path_for_another_file_of_the_same_name() {
    for (nodes, bypass) in PLACES {
        let world = with_prefix(world_in(nodes, bypass, ["a", "a"]));
        world.run(|application| {
            let (rank, here) = (application.rank, world.dir().join("a"));
            let name = format!("dat{rank}");
            let session = application.session();
            session.start_output(Some(b"one"), CHECKPOINT).unwrap();
            let path = session.route_file(name.as_bytes()).unwrap();
            for other in [world.dir().join("b"), world.prefix()] {
                session.work_in(other.clone());
                let why = session.route_file(name.as_bytes()).unwrap_err().to_string();
                let two = [here.join(&name), other.join(&name)].map(|path| path.display().to_string());
                assert!(two.iter().all(|path| why.contains(path)), "{why}");
            }
            session.work_in(here);
            assert_eq!(session.route_file(name.as_bytes()).unwrap(), path);
            std::fs::write(path_of(&path), contents(1, rank, 0, BYTES)).unwrap();
            session.complete_output(true).unwrap_err();
        });
        world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    }
}
