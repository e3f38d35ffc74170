//! Checkpoints whose files were packed into one container per node: they come back byte for byte, or an older one does.

use super::crash;
use super::damage::flip;
use super::world::{contents, file_name, files_below, mode, path_of, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use scr_prefix::{Index, Prefix};
use scr_test_kit::faulty::FaultyFiles;
use scr_test_kit::moments;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Empty files, ranks without files, many files, and one that takes many blocks.
fn sizes(rank: Rank) -> Vec<usize> {
    match rank.0 {
        0 => vec![300, 0, 0],
        1 => (0..200).collect(),
        2 => Vec::new(),
        3 => vec![0],
        4 => vec![3 << 20, 1],
        _ => vec![70, 4000],
    }
}

/// Six ranks on three nodes whose store aggregates; every checkpoint is flushed.
fn aggregating(settings: &[(&str, &str)]) -> World {
    let world = World::new(6, 3).set("SCR_FLUSH", "1").with_store("COUNT=2 AGGREGATE=1");
    settings.iter().fold(world, |world, (name, value)| world.set(name, value))
}

/// The ranks are on other nodes from now on, in another order.
fn move_on(world: &mut World) {
    let ranks = world.nodes.len();
    world.nodes = (0..ranks).map(|rank| format!("m{}", rank % 2)).collect();
}

/// All files below the prefix directory except scr's own.
fn visible(world: &World) -> Vec<PathBuf> {
    let hidden = [world.prefix().join(".scr"), world.prefix().join(".scrconf")];
    let all = files_below(&world.prefix()).into_iter();
    all.filter(|path| !hidden.iter().any(|hidden| path.starts_with(hidden))).collect()
}

fn container(world: &World, step: u64, node: u32) -> PathBuf {
    world.prefix().join(format!(".scr/scr.dataset.{step}/container.{node}"))
}

/// Two checkpoints, both flushed.
fn flushed(settings: &[(&str, &str)]) -> World {
    let world = aggregating(settings);
    world.run(|application| {
        application.checkpoint(1, sizes).expect("the first is complete");
        application.checkpoint(2, sizes).expect("the second is complete");
        application.finalize().expect("both have arrived");
    });
    world
}

#[test]
#[ignore = "long"]
fn a_restart_on_other_nodes_gets_every_byte_out_of_the_containers() {
    let settings: [&[(&str, &str)]; 6] = [
        &[],
        &[("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "PTHREAD")],
        &[("SCR_CRC_ON_FLUSH", "0")],
        &[("SCR_FETCH_BYPASS", "1")],
        &[("SCR_COPY_TYPE", "SINGLE"), ("SCR_FILE_BUF_SIZE", "4096")],
        &[("SCR_FLUSH_WIDTH", "1"), ("SCR_FETCH_WIDTH", "1")],
    ];
    for settings in settings {
        let mut world = flushed(settings);
        assert_eq!(visible(&world), Vec::<PathBuf>::new(), "{settings:?}");
        assert!((0..3).all(|node| container(&world, 2, node).is_file()), "{settings:?}");
        let left = world.cached_files();
        assert!(!left.iter().any(|path| path.display().to_string().contains("container")), "{left:?}");
        move_on(&mut world);
        let restarted = world.run(|application| application.restart(sizes));
        restarted.all_gave(&Some(2));
        // The copy that is in cache now is as good as the flushed one.
        world.run(|application| application.restart(sizes)).all_gave(&Some(2));
    }
}

/// A job that writes in place restarts in cache.
#[test]
fn a_job_in_bypass_mode_restarts_from_containers_and_goes_on_in_place() {
    let mut world = flushed(&[]);
    move_on(&mut world);
    world.put("SCR_CACHE_BYPASS", "1");
    let restarted = world.run(|application| {
        let step = application.restart(sizes);
        application.checkpoint(3, sizes).expect("it is complete in place");
        step
    });
    restarted.all_gave(&Some(2));
    assert!(visible(&world).iter().any(|path| path.ends_with("ckpt.3/rank_0.0")));
    move_on(&mut world);
    world.run(|application| application.restart(sizes)).all_gave(&Some(3));
}

/// They were flushed again under their names, and a crash in between left lists of files that had not arrived.
#[test]
fn containers_stay_as_they_are_in_a_run_that_reads_all_files_in_place() {
    let mut world = flushed(&[]);
    let lists = world.prefix().join(".scr/scr.dataset.2/rank2file.0.0");
    let before = std::fs::read(&lists).unwrap();
    world.put("SCR_GLOBAL_RESTART", "1");
    let run = world.try_run(|begun| begun.err().expect("no run begins").to_string());
    assert!(run.ranks[0].contains("ckpt.2, ckpt.1 could not be brought back"), "{}", run.ranks[0]);
    run.line_with(&["`ckpt.2' is not restarted from", "in cache, in containers in the prefix directory"]);
    assert_eq!(std::fs::read(&lists).unwrap(), before);
    world.put("SCR_GLOBAL_RESTART", "0");
    world.run(|application| application.restart(sizes)).all_gave(&Some(2));
    move_on(&mut world);
    world.run(|application| application.restart(sizes)).all_gave(&Some(2));
}

/// Nothing of it lies under their names. It was flushed again, in another form.
#[test]
fn containers_stay_as_they_are_where_a_failed_dataset_in_place_has_taken_the_names() {
    let world = flushed(&[]).with_store("COUNT=2").set("SCR_CACHE_BYPASS", "1");
    let lists = world.prefix().join(".scr/scr.dataset.2/rank2file.0.0");
    let before = std::fs::read(&lists).unwrap();
    world.run(|application| {
        assert_eq!(application.restart(sizes), Some(2));
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"other"), OutputFlags { checkpoint: true, output: false }).unwrap();
        for (number, _) in sizes(rank).into_iter().enumerate() {
            let path = session.route_file(file_name(2, rank, number).as_bytes()).unwrap();
            std::fs::write(path_of(&path), "half").unwrap();
        }
        session.complete_output(false).unwrap_err();
        application.finalize().unwrap();
    });
    assert!(std::fs::read(&lists).unwrap() == before && container(&world, 2, 0).exists());
}

#[test]
#[ignore = "long"]
fn a_damaged_container_costs_one_checkpoint_and_a_message_says_so() {
    let len = |path: &PathBuf| std::fs::metadata(path).unwrap().len() as usize;
    type Damage = fn(&PathBuf, usize);
    let damages: [(&str, Damage, &str); 6] = [
        ("the first byte", |path, _| flip(path, 0), "is damaged: its checksum is"),
        ("a byte of the contents", |path, len| flip(path, len - 60), "its contents have other bytes"),
        ("the last byte", |path, len| flip(path, len - 1), "does not end as a container does"),
        ("its end", |path, len| cut(path, len - 1), "another length than was recorded"),
        ("everything", |path, _| cut(path, 0), "another length than was recorded"),
        ("the file", |path, _| std::fs::remove_file(path).unwrap(), "is missing"),
    ];
    for (what, damage, words) in damages {
        for checksums in ["0", "1"] {
            let mut world = flushed(&[("SCR_CRC_ON_FLUSH", checksums)]);
            let path = container(&world, 2, 0);
            damage(&path, len(&path));
            move_on(&mut world);
            let restarted = world.run(|application| application.restart(sizes));
            restarted.all_gave(&Some(1));
            restarted.line_with(&["`ckpt.2' cannot be fetched", words]);
            let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
            assert!(index.entry(2).unwrap().failed.is_some(), "{what} was not found to be damage");
        }
    }
}

fn cut(path: &PathBuf, len: usize) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(len as u64).unwrap();
}

/// The containers of two datasets are mixed up, as by somebody who restores files from a copy.
#[test]
fn a_container_of_another_dataset_is_refused() {
    let mut world = flushed(&[]);
    for node in 0..3 {
        std::fs::copy(container(&world, 1, node), container(&world, 2, node)).unwrap();
    }
    move_on(&mut world);
    let restarted = world.run(|application| application.restart(sizes));
    restarted.all_gave(&Some(1));
    // Times of files may be shorter, and the container with them.
    restarted.line_with(&["`ckpt.2' cannot be fetched"]);
}

/// A summary of an earlier flush of the same dataset, without containers, or one with them.
#[test]
fn a_summary_that_does_not_fit_the_lists_is_refused() {
    let mut world = flushed(&[]);
    let summary = world.prefix().join(".scr/scr.dataset.2/summary.scr");
    let mut tree = scr_plugin_api::KvTree::from_file_bytes(&std::fs::read(&summary).unwrap()).unwrap();
    assert_eq!(tree.text("VERSION"), Some("7"), "C SCR would take the containers for files");
    tree.set("VERSION", 6);
    tree.child("DSET").remove("AGGREGATED");
    tree.child("DSET").remove("FILES");
    tree.child("DSET").remove("SIZE");
    std::fs::write(&summary, tree.to_file_bytes()).unwrap();
    move_on(&mut world);
    let restarted = world.run(|application| application.restart(sizes));
    restarted.all_gave(&Some(1));
    restarted.line_with(&["`ckpt.2' cannot be fetched", "container", "is not a regular file"]);
}

/// The world ends at each operation of a run that flushes in containers. With the caches, nothing that was promised is lost;
/// without them, what the index offers is whole.
#[test]
fn a_job_that_dies_in_a_flush_with_containers_comes_back() {
    let world = || {
        let world = World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "1");
        world.with_store("COUNT=1 AGGREGATE=1")
    };
    let life = |application: &mut super::world::Application| -> u64 {
        let good = (1..=2).take_while(|&step| application.checkpoint(step, crash::sizes).is_ok());
        good.last().unwrap_or(0)
    };
    let counted = FaultyFiles::new(RealFiles);
    let mut good = world();
    good.files = Arc::new(counted.clone());
    good.run(life).all_gave(&2);
    let all = counted.mutations();
    for at in moments(all + 2, 8) {
        for caches_lost in [false, true] {
            let faulty = FaultyFiles::new(RealFiles);
            if at % 2 == 0 {
                faulty.stop_torn_at(at);
            } else {
                faulty.stop_at(at);
            }
            let mut world = world();
            world.files = Arc::new(faulty.clone());
            let died =
                world.try_run(|application| application.map_or(0, |mut application| life(&mut application)));
            let safe = died.ranks.iter().copied().min().unwrap();
            world.files = Arc::new(RealFiles);
            let last = faulty.operations().into_iter().find(|operation| operation.failed);
            let context = format!("stopped at {at}, {last:?}\n{}", died.lines.join("\n"));
            if caches_lost {
                ["n0", "n1"].iter().for_each(|node| _ = std::fs::remove_dir_all(world.node(node)));
                move_on(&mut world);
                crash::comes_back(&world, 0, 1, &context);
            } else {
                crash::comes_back(&world, safe, 1, &context);
            }
        }
    }
}

/// A copy that has no room, or a file that is damaged in cache, must not lose the flush as such.
#[test]
fn what_cannot_be_packed_is_flushed_file_by_file() {
    let world = || aggregating(&[]);
    let full = FaultyFiles::new(RealFiles);
    full.only(|_, path| path.display().to_string().contains("/container_"));
    full.fail_from(1, std::io::ErrorKind::StorageFull);
    let mut job = world();
    job.files = Arc::new(full);
    let run = job.run(|application| application.checkpoint(1, sizes).is_ok());
    run.all_gave(&true);
    run.line_with(&["are flushed one by one", "could not be packed"]);
    assert!(visible(&job).len() > 200 && !container(&job, 1, 0).exists());
    assert!(!job.cached_files().iter().any(|path| path.display().to_string().contains("/container_")));
    job.files = Arc::new(RealFiles);
    move_on(&mut job);
    job.run(|application| application.restart(sizes)).all_gave(&Some(1));
}

/// Bytes that have changed in cache never become those of a container.
#[test]
fn a_file_that_is_damaged_in_cache_is_not_packed() {
    let world = aggregating(&[("SCR_FLUSH", "2")]);
    let run = world.run(|application| {
        application.checkpoint(1, sizes).unwrap();
        if application.rank == Rank(4) {
            flip(&world.cached_file(&["/r4/", "rank_4.0"]), 1 << 20);
        }
        application.finalize().is_ok()
    });
    run.line_with(&["ckpt.1", "could not be packed", "rank_4.0 is damaged: its checksum is"]);
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    assert!(index.entries().iter().all(|entry| !entry.complete), "it has counted");
}

/// A file that all ranks of a node write, and output, which others look for under its names.
#[test]
fn shared_files_and_output_are_flushed_under_their_names() {
    let world = aggregating(&[]);
    let run = world.run(|application| {
        application.begin(1).unwrap();
        let name = format!("all.{}", application.rank.0 / 2);
        let path = application.session().route_file(name.as_bytes()).unwrap();
        std::fs::write(super::world::path_of(&path), b"the same").unwrap();
        application.session().complete_output(true).unwrap();
        application.output(2, sizes).unwrap();
    });
    run.line_with(&["ckpt.1", "are flushed one by one", "share"]);
    assert!(visible(&world).iter().any(|path| path.ends_with("all.2")));
    assert!(visible(&world).iter().any(|path| path.ends_with("ckpt.2/rank_0.0")));
    assert!(!container(&world, 1, 0).exists() && !container(&world, 2, 0).exists());
}

/// A command writes the files out as the application wrote them, and replaces nothing.
#[test]
fn files_are_written_out_of_containers_under_their_names() {
    let world = flushed(&[]);
    let env = world.env_of(Rank(0)).env();
    let prefix = Prefix::new(world.prefix());
    let extract = || scr_ops::extract(&env, &prefix, b"ckpt.2").map_err(|error| error.to_string());
    std::fs::create_dir(world.prefix().join("ckpt.2")).unwrap();
    let mine = world.prefix().join(file_name(2, Rank(5), 0));
    std::fs::write(&mine, "somebody's own").unwrap();
    let why = extract().unwrap_err();
    assert!(why.contains("is there already and is another file"), "{why}");
    assert_eq!(visible(&world), std::slice::from_ref(&mine), "nothing is written if any name is taken");
    std::fs::remove_file(&mine).unwrap();
    let first = extract().unwrap();
    assert_eq!((first.already, first.files), (0, 208));
    for rank in (0..6).map(Rank) {
        for (number, size) in sizes(rank).into_iter().enumerate() {
            let path = world.prefix().join(file_name(2, rank, number));
            assert!(std::fs::read(&path).unwrap() == contents(2, rank, number, size), "{}", path.display());
            let found = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode(rank, number).mode(), "{}", path.display());
        }
    }
    assert_eq!(visible(&world).len(), 208, "no hidden file is left");
    let again = extract().unwrap();
    assert_eq!((again.already, again.files), (208, 208));
    flip(&container(&world, 2, 2), 0);
    std::fs::remove_dir_all(world.prefix().join("ckpt.2")).unwrap();
    assert!(extract().unwrap_err().contains("is damaged"));
    assert!(scr_ops::extract(&env, &prefix, b"ckpt.9").is_err());
}

#[test]
fn containers_go_with_their_dataset() {
    let world = flushed(&[("SCR_PREFIX_SIZE", "1")]);
    assert!(!world.prefix().join(".scr/scr.dataset.1").exists(), "the window has left it");
    world.run(|application| application.session().delete(b"ckpt.2").unwrap());
    assert!(!world.prefix().join(".scr/scr.dataset.2").exists());
}

/// Dropped, it is added again with its containers; with a damaged one it is not.
/// As of an application that writes two checkpoints in turn.
#[test]
fn containers_go_when_a_newer_dataset_takes_the_name() {
    let mut world = aggregating(&[]);
    world.run(|application| {
        for step in 1..=6 {
            application.checkpoint_as([&b"even"[..], b"odd"][step as usize % 2], step, sizes).unwrap();
        }
        application.finalize().unwrap();
    });
    let left: Vec<_> = (1..=6).filter(|&step| container(&world, step, 0).exists()).collect();
    assert_eq!(left, [5, 6]);
    move_on(&mut world);
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        assert_eq!(session.have_restart().unwrap().as_deref(), Some(&b"even"[..]));
        session.start_restart().unwrap();
        for (number, size) in sizes(rank).into_iter().enumerate() {
            let path = session.route_file(file_name(6, rank, number).as_bytes()).unwrap();
            assert_eq!(std::fs::read(path_of(&path)).unwrap(), contents(6, rank, number, size));
        }
        session.complete_restart(true).unwrap();
    });
}

#[test]
fn a_dataset_in_containers_is_added_to_the_index_again() {
    use scr_core::scavenge::{Builder, Outcome};
    use scr_ops::drop_dataset;
    let mut world = flushed(&[]);
    let env = world.env_of(Rank(0)).env();
    let prefix = Prefix::new(world.prefix());
    let plugins = scr_core::plugin::PluginHost::new(&env, None);
    let add = || {
        drop_dataset(&*env.files, &prefix, b"ckpt.2").unwrap();
        Builder::new(&env, &prefix, &plugins, 0).add(b"ckpt.2").unwrap().outcome
    };
    let added = add();
    assert!(matches!(added, Outcome::Listed { verified: true, .. }), "{added:?}");
    let path = container(&world, 2, 1);
    let whole = std::fs::read(&path).unwrap();
    flip(&path, 5);
    assert!(matches!(add(), Outcome::Incomplete { .. }));
    std::fs::write(&path, whole).unwrap();
    assert!(add().is_complete());
    move_on(&mut world);
    world.run(|application| application.restart(sizes)).all_gave(&Some(2));
}

#[test]
fn a_scrub_reads_containers_and_finds_damage_in_them() {
    use scr_ops::scrub::Plan;
    let world = flushed(&[]);
    let scrub = || Plan::of_prefix(&RealFiles, &world.prefix(), None).unwrap().run(&RealFiles, &mut |_| ());
    assert!(scrub().is_intact());
    let path = container(&world, 2, 0);
    let whole = std::fs::read(&path).unwrap();
    for byte in [0, whole.len() - 30] {
        flip(&path, byte);
        assert!(!scrub().is_intact(), "byte {byte}");
        std::fs::write(&path, &whole).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    assert!(!scrub().is_intact());
}

/// Ranks that read the files of other ranks need them under their names.
#[test]
fn nothing_is_packed_for_ranks_that_read_the_files_of_others_and_what_was_packed_is_refused() {
    for setting in ["SCR_GLOBAL_RESTART", "SCR_RESTART_OTHER_RANKS"] {
        let world = aggregating(&[(setting, "1")]);
        world.run(|application| application.checkpoint(1, sizes).unwrap());
        assert!(!visible(&world).is_empty() && !container(&world, 1, 0).exists(), "{setting}");
    }

    let mut world = flushed(&[]);
    move_on(&mut world);
    world.put("SCR_GLOBAL_RESTART", "1");
    let run = world.try_run(|begun| begun.err().expect("no run begins").to_string());
    assert!(run.ranks[0].contains("ckpt.2, ckpt.1 could not be brought back"), "{}", run.ranks[0]);
    run.line_with(&["`ckpt.2' cannot be fetched", "scr index --extract ckpt.2"]);
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    assert!(index.entry(2).unwrap().failed.is_none(), "it is not damaged");
}
