//! The files of a checkpoint that another number of ranks has left in cache come from node to node, and nothing is left of the
//! copies.

use super::any_ranks::{cached, job, place, read_all, try_read};
use super::crash::sizes;
use super::damage::flip;
use super::world::{contents, files_below, path_of, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::Error;
use scr_prefix::{FlushFile, Location, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

const XOR: (&str, usize, usize) = ("XOR", 2, 1);

/// A checkpoint of four ranks on four nodes, and six ranks that come to them.
fn six_after_four() -> World {
    let mut world = cached(4, 4, XOR);
    world.nodes = place(6, 4);
    world
}

/// Those of the four that wrote files.
const WRITERS: [u32; 3] = [0, 1, 3];

/// The path that each rank gets for the first file of each of them, of which every byte is compared.
fn paths(world: &World) -> Vec<Vec<PathBuf>> {
    let run = world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        let path = |writer: u32| {
            let name = application.session().restart_file(writer, 0).unwrap();
            let path = path_of(&application.session().route_file(&name).unwrap()).to_owned();
            let size = sizes(Rank(writer))[0];
            assert!(std::fs::read(&path).unwrap() == contents(1, Rank(writer), 0, size));
            path
        };
        let paths = WRITERS.map(path).to_vec();
        application.session().complete_restart(true).unwrap();
        paths
    });
    run.ranks
}

fn of_datasets_but_the_first(world: &World) -> Vec<PathBuf> {
    let is_other = |path: &PathBuf| {
        let text = path.display().to_string();
        text.contains("scr.dataset.") && !text.contains("scr.dataset.1/")
    };
    world.cached_files().into_iter().filter(is_other).collect()
}

#[test]
fn each_node_gets_what_its_ranks_ask_for_once_and_keeps_no_copy() {
    let world = six_after_four();
    let before = world.keep();
    let all = paths(&world);
    for (rank, own) in all.iter().enumerate() {
        for (writer, path) in own.iter().enumerate() {
            assert!(path.starts_with(world.node(&world.nodes[rank])), "{rank}: {}", path.display());
            let mate = (0..6).find(|other| world.nodes[*other] == world.nodes[rank]).unwrap();
            assert_eq!(all[mate][writer], *path, "ranks of a node have one copy");
        }
    }
    assert_eq!(all[0][0], world.cached_file(&["scr.dataset.1/", "rank_0.0"]), "what is there is not copied");
    let left: Vec<_> = of_datasets_but_the_first(&world);
    assert!(left.iter().all(|path| path.display().to_string().contains("filemap_")), "{left:?}");
    world.run(read_all).all_gave(&Some((1, 4)));
    let changed = world.changes_since(&before);
    assert!(changed.iter().all(|change| !change.contains("scr.dataset.1/")), "{changed:?}");
}

#[test]
fn what_two_ranks_of_a_node_ask_for_at_the_same_time_comes_once() {
    const BYTES: usize = 8 << 20;
    let large = |rank: Rank| if rank == Rank(3) { vec![BYTES] } else { vec![1] };
    let mut world = job(4, "XOR");
    world.run(|application| application.checkpoint(1, large).unwrap());
    world.nodes = place(8, 4);
    let counted = FaultyFiles::new(RealFiles);
    counted.count_all();
    world.own_files.insert(Rank(6), Arc::new(counted.clone()));
    world.own_files.insert(Rank(7), Arc::new(counted.clone()));
    let all_ask = Barrier::new(8);
    let run = world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        let name = application.session().restart_file(3, 0).unwrap();
        all_ask.wait();
        let path = path_of(&application.session().route_file(&name).unwrap()).to_owned();
        assert!(std::fs::read(&path).unwrap() == contents(1, Rank(3), 0, BYTES));
        application.session().complete_restart(true).unwrap();
    });
    run.all_gave(&());
    let operations = counted.operations();
    let reads =
        operations.iter().filter(|done| done.what == What::Read && done.path.ends_with("r3/rank_3.0"));
    let bytes: u64 = reads.map(|done| done.bytes).sum();
    assert_eq!(bytes, 4 * BYTES as u64, "to be compared, and for each of three nodes");
}

#[test]
fn a_run_that_ends_while_it_reads_leaves_nothing_that_the_next_one_keeps() {
    for ranks in [4, 6, 3] {
        let mut world = six_after_four();
        let have_read = Barrier::new(6);
        world.run(|application| {
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            for writer in WRITERS {
                let name = application.session().restart_file(writer, 0).unwrap();
                application.session().route_file(&name).unwrap();
            }
            have_read.wait();
        });
        assert!(of_datasets_but_the_first(&world).iter().any(|path| path.ends_with("rank_3.0")));
        world.nodes = place(ranks, 4.min(ranks));
        if ranks == 3 {
            world.nodes = ["n0", "n1", "n2"].map(str::to_owned).to_vec();
        }
        let as_many = u32::try_from(ranks).ok();
        let run = world.run(|application| try_read(application, as_many).unwrap());
        run.all_gave(&Some((1, 4)));
        let seen = |path: &PathBuf| world.nodes.iter().any(|node| path.starts_with(world.node(node)));
        let left = of_datasets_but_the_first(&world).into_iter().filter(seen);
        let left: Vec<_> = left.filter(|path| !path.display().to_string().contains("filemap_")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_node_without_room_reads_what_it_asks_for_in_the_prefix_directory() {
    for flush in ["0", "1"] {
        let mut world = job(4, "XOR").set("SCR_FLUSH", flush);
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        world.nodes = place(6, 4);
        let full = FaultyFiles::new(RealFiles);
        full.pretend_room(100);
        let on_full_node: Vec<u32> = (0..6).filter(|rank| world.nodes[*rank as usize] == "n1").collect();
        for rank in &on_full_node {
            world.own_files.insert(Rank(*rank), Arc::new(full.clone()));
        }
        let run = world.run(read_all);
        run.all_gave(&Some((1, 4)));
        run.line_with(&[
            "WARNING",
            "on n1",
            "has no room for files of",
            "they are read in the prefix directory",
        ]);
        let all = paths(&world);
        for (rank, own) in all.iter().enumerate() {
            let is_full = on_full_node.contains(&(rank as u32));
            assert_eq!(own[2].starts_with(world.prefix()), is_full, "{}", own[2].display());
            assert!(!own[1].starts_with(world.prefix()) || !is_full, "its own is in its cache");
        }
        let scr = files_below(&world.prefix().join(".scr"));
        let left: Vec<_> =
            scr.iter().filter(|path| path.display().to_string().contains("restart.")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn copies_that_a_dead_run_has_left_in_the_prefix_directory_go_with_the_next_run() {
    let mut world = six_after_four();
    let full = FaultyFiles::new(RealFiles);
    full.pretend_room(100);
    world.files = Arc::new(full);
    let have_read = Barrier::new(6);
    world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        let name = application.session().restart_file(3, 0).unwrap();
        application.session().route_file(&name).unwrap();
        have_read.wait();
    });
    let is_copy = |path: &PathBuf| path.display().to_string().contains(".scr/restart.");
    assert!(files_below(&world.prefix()).iter().any(is_copy));
    world.files = Arc::new(RealFiles);
    world.run(|_| ());
    assert!(!files_below(&world.prefix()).iter().any(is_copy));
}

/// Reads of a part in cache by the rank that lends it, once all has been compared.
fn fails_to_lend(world: &mut World, host: u32) {
    let faulty = FaultyFiles::new(RealFiles);
    faulty.count_all();
    faulty.never_pause();
    let is_read = |what: What, path: &Path| what == What::Read && path.ends_with("rank_3.0");
    faulty.only(is_read);
    // The rebuild has read it once by then.
    faulty.fail_from(2, std::io::ErrorKind::Other);
    world.own_files.insert(Rank(host), Arc::new(faulty));
}

#[test]
fn a_file_that_its_node_cannot_read_to_the_end_is_never_half_there() {
    for flush in ["0", "1"] {
        let mut world = job(4, "XOR").set("SCR_FLUSH", flush);
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        world.nodes = place(6, 4);
        let host = (0..6).find(|rank| world.nodes[*rank as usize] == "n3").unwrap();
        fails_to_lend(&mut world, host);
        let run = world.run(|application| {
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            let name = application.session().restart_file(3, 0).unwrap();
            let path = application.session().route_file(&name);
            let path = path.map(|path| path_of(&path).to_owned()).map_err(|error| error.to_string());
            let found = path.clone().map(|path| std::fs::read(path).unwrap());
            let is_right = found.map(|found| found == contents(1, Rank(3), 0, sizes(Rank(3))[0]));
            let ended = application.session().complete_restart(path.is_ok());
            (path, is_right, ended.is_ok())
        });
        for (rank, (path, is_right, ended)) in run.ranks.iter().enumerate() {
            let is_there = world.nodes[rank] == "n3";
            match path {
                Ok(path) => assert_eq!(path.starts_with(world.prefix()), !is_there),
                Err(why) => assert!(flush == "0" && why.contains("could not be read to its end"), "{why}"),
            }
            assert_eq!(
                *is_right,
                if flush == "1" || is_there { Ok(true) } else { path.clone().map(|_| true) }
            );
            assert_eq!(*ended, flush == "1", "{}", run.lines.join("\n"));
        }
        // Nothing is known against it.
        world.own_files.clear();
        world.run(read_all).all_gave(&Some((1, 4)));
    }
}

/// The node has compared it when the run began.
#[test]
fn a_file_that_changes_before_it_is_lent_is_given_to_nobody() {
    for flush in ["0", "1"] {
        let mut world = job(4, "XOR").set("SCR_FLUSH", flush);
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        world.nodes = place(6, 4);
        let [has_begun, is_changed] = [Barrier::new(6), Barrier::new(6)];
        let run = world.run(|application| {
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            has_begun.wait();
            if application.rank == Rank(0) {
                flip(&world.cached_file(&["scr.dataset.1/", "rank_1.0"]), 0);
            }
            is_changed.wait();
            let name = application.session().restart_file(1, 0).unwrap();
            let path = application.session().route_file(&name);
            let is_given = path.map(|path| {
                let found = std::fs::read(path_of(&path)).unwrap();
                found == contents(1, Rank(1), 0, sizes(Rank(1))[0])
            });
            let is_given = is_given.map_err(|error| error.to_string());
            let _ = application.session().complete_restart(is_given.is_ok());
            is_given
        });
        let others = (0..6).filter(|rank| world.nodes[*rank] != "n1");
        for rank in others {
            match &run.ranks[rank] {
                Ok(is_right) => assert!(*is_right && flush == "1", "rank {rank}"),
                Err(why) => assert!(flush == "0" && why.contains("is damaged: its checksum"), "{why}"),
            }
        }
        // Redundancy makes it right again.
        world.run(read_all).all_gave(&Some((1, 4)));
    }
}

#[test]
fn a_rank_that_is_gone_is_an_error_of_those_that_ask_it_and_no_wait() {
    let world = six_after_four();
    let host = (0..6).find(|rank| world.nodes[*rank as usize] == "n3").unwrap();
    let run = world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        if application.rank == Rank(host) {
            return None;
        }
        let name = application.session().restart_file(3, 0).unwrap();
        Some(application.session().route_file(&name).map(drop))
    });
    for (rank, got) in run.ranks.iter().enumerate() {
        match got {
            Some(Err(error)) => {
                assert!(matches!(error, Error::Unread(_)), "{error:?}");
                assert!(error.to_string().contains("has not come from another node"), "{error}");
            }
            // It was served before, or lies on the same node.
            _ => assert!(rank as u32 == host || got.is_some()),
        }
    }
    world.run(read_all).all_gave(&Some((1, 4)));
}

/// A node goes while it sends a file: its thread ends in the middle of it, and its connections with it.
#[test]
fn a_rank_that_dies_while_it_lends_a_file_leaves_no_half_of_it_and_nobody_waits() {
    const BLOCK: usize = 4096;
    const BYTES: usize = 100 * BLOCK;
    let large = |rank: Rank| if rank == Rank(3) { vec![BYTES] } else { vec![1] };
    for flush in ["0", "1"] {
        let mut world = job(4, "XOR").set("SCR_FLUSH", flush).set("SCR_MPI_BUF_SIZE", &BLOCK.to_string());
        world.run(|application| application.checkpoint(1, large).unwrap());
        world.nodes = place(6, 4);
        let host = (0..6).find(|rank| world.nodes[*rank as usize] == "n3").unwrap();
        let dying = FaultyFiles::new(RealFiles);
        dying.count_all();
        dying.only(|what, path| what == What::Read && path.ends_with("rank_3.0"));
        // Once for the rebuild, and then block by block.
        dying.interrupt_at(50, || panic!("the node goes"));
        world.own_files.insert(Rank(host), Arc::new(dying.clone()));
        let all_have_asked = Barrier::new(6);
        let run = world.run(|application| {
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            let name = application.session().restart_file(3, 0).unwrap();
            let path = application.session().route_file(&name);
            let path = path.map(|path| path_of(&path).to_owned()).map_err(|error| error.to_string());
            all_have_asked.wait();
            for copy in files_below(world.dir()).iter().filter(|path| path.ends_with("rank_3.0")) {
                assert!(std::fs::read(copy).unwrap() == contents(1, Rank(3), 0, BYTES), "{}", copy.display());
            }
            let ended = application.session().complete_restart(path.is_ok());
            (path, ended.is_ok())
        });
        assert!(dying.was_interrupted());
        for (rank, (path, ended)) in run.ranks.iter().enumerate() {
            match path {
                Ok(path) if world.nodes[rank] == "n3" => assert!(path.starts_with(world.node("n3"))),
                Ok(path) => assert!(flush == "1" && path.starts_with(world.prefix()), "{}", path.display()),
                Err(why) => assert!(
                    flush == "0"
                        && why.contains("has not come from another node")
                        && why.contains("it has ended"),
                    "{why}"
                ),
            }
            assert_eq!(*ended, flush == "1", "{}", run.lines.join("\n"));
        }
        if flush == "1" {
            run.line_with(&[
                "has not come from another node",
                "it has ended",
                "read in the prefix directory",
            ]);
        }
        let left: Vec<_> = of_datasets_but_the_first(&world);
        assert!(left.iter().all(|path| path.display().to_string().contains("filemap_")), "{left:?}");
        // Nothing is known against it.
        world.own_files.clear();
        let run = world.run(|application| {
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            let name = application.session().restart_file(3, 0).unwrap();
            let path = path_of(&application.session().route_file(&name).unwrap()).to_owned();
            let is_right = std::fs::read(path).unwrap() == contents(1, Rank(3), 0, BYTES);
            application.session().complete_restart(is_right).unwrap();
        });
        run.all_gave(&());
    }
}

#[test]
fn the_flush_file_lists_it_until_a_newer_one_is_complete() {
    let world = six_after_four();
    let listed = || {
        let entries = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().entries();
        let in_cache = entries.into_iter().filter(|entry| entry.is_at(Location::Cache));
        in_cache.map(|entry| (entry.id, entry.restart_point().ranks)).collect::<Vec<_>>()
    };
    world.run(|application| assert_eq!(read_all(application), Some((1, 4))));
    assert_eq!(listed(), [(1, Some(4))]);
    world.run(|application| {
        assert_eq!(read_all(application), Some((1, 4)));
        application.checkpoint(2, sizes).unwrap();
    });
    assert_eq!(listed().iter().map(|(_, ranks)| *ranks).collect::<Vec<_>>(), [Some(6)]);
}

#[test]
fn what_is_only_in_cache_gets_to_the_prefix_directory_before_it_has_to_make_room() {
    let mut world = job(4, "XOR").with_store("COUNT=1 EVICT=before");
    world.run(|application| application.checkpoint(1, sizes).unwrap());
    world.nodes = place(6, 4);
    let run = world.run(|application| {
        assert_eq!(read_all(application), Some((1, 4)));
        // It never becomes complete.
        application.write(2, sizes).unwrap();
    });
    run.line_with(&["`ckpt.1' is complete in the prefix directory"]);
    run.line_with(&["what is left of dataset 1 leaves the cache for want of room"]);
    world.nodes = place(4, 4);
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
}

/// It was marked as failed, and the run had nothing to go back to; the parts stayed, and the new one had no room.
#[test]
fn where_its_copy_turns_out_to_be_damaged_it_is_made_whole_once_more_before_it_makes_room() {
    let mut world = job(4, "XOR").set("SCR_FLUSH", "1").with_store("COUNT=1 EVICT=before");
    world.run(|application| application.checkpoint(1, sizes).unwrap());
    flip(&world.prefix().join("ckpt.1/rank_3.1"), 0);
    world.nodes = place(6, 4);
    let run = world.run(|application| {
        assert_eq!(read_all(application), Some((1, 4)));
        // It never becomes complete.
        application.write(2, sizes).unwrap();
    });
    run.line_with(&["`ckpt.1' cannot be fetched", "is damaged and is marked as failed"]);
    run.line_with(&["`ckpt.1' is complete in the prefix directory"]);
    run.line_with(&["what is left of dataset 1 leaves the cache for want of room"]);
    for node in 0..4 {
        let _ = std::fs::remove_dir_all(world.node(&format!("n{node}")));
    }
    world.nodes = place(4, 4);
    world.run(|application| application.restart(sizes)).all_gave(&Some(1));
}

#[test]
fn the_end_of_a_run_saves_it_if_checkpoints_are_flushed_at_all() {
    for (flush, is_saved) in [("0", false), ("2", true)] {
        let mut world = cached(4, 4, XOR).set("SCR_FLUSH", flush);
        world.nodes = place(6, 4);
        world.run(|application| {
            assert_eq!(read_all(application), Some((1, 4)));
            application.finalize().unwrap();
        });
        assert_eq!(world.prefix().join("ckpt.1/rank_3.0").is_file(), is_saved);
    }
}

#[test]
fn what_is_due_is_flushed_when_a_run_begins() {
    let mut world = cached(4, 4, XOR).set("SCR_FLUSH_ON_RESTART", "1");
    world.nodes = place(6, 4);
    world.run(|application| assert_eq!(read_all(application), Some((1, 4))));
    assert!(world.prefix().join("ckpt.1/rank_3.0").is_file());
}

#[test]
fn what_the_application_refuses_is_offered_to_no_number_of_ranks_again() {
    for ranks in [6, 4] {
        let mut world = six_after_four();
        world.run(|application| {
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            application.session().complete_restart(false).unwrap_err();
            assert_eq!(application.session().have_restart().unwrap(), None);
        });
        world.nodes = place(ranks, 4);
        world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    }
}

#[test]
fn a_run_reads_it_again_until_it_has_written_a_newer_one() {
    let world = six_after_four();
    world.run(|application| {
        assert_eq!(read_all(application), Some((1, 4)));
        assert_eq!(read_all(application), Some((1, 4)));
        application.write(2, sizes).unwrap();
        application.session().complete_output(false).unwrap_err();
        assert_eq!(read_all(application), Some((1, 4)));
        application.checkpoint(3, sizes).unwrap();
        assert_eq!(application.session().have_restart().unwrap(), Some(b"ckpt.3".to_vec()));
    });
}
