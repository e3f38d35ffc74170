//! Files that were written without scr become a dataset, and a run restarts from them as from its own.

use super::redundancy::small;
use super::world::{contents, file_name, files_below, mode, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::plugin::PluginHost;
use scr_core::scavenge::{Builder, Outcome};
use scr_ops::{drop_dataset, Import, Imported, OpsError};
use scr_prefix::{Index, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Another program writes what this application would have written at a step.
fn write_without_scr(world: &World, step: u64) -> Vec<Vec<PathBuf>> {
    let of_rank = |rank: Rank| {
        let files = small(rank).into_iter().enumerate().map(|(number, size)| {
            let name = file_name(step, rank, number);
            let path = world.prefix().join(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, contents(step, rank, number, size)).unwrap();
            std::fs::set_permissions(&path, mode(rank, number)).unwrap();
            PathBuf::from(name)
        });
        files.collect()
    };
    (0..world.nodes.len()).map(|rank| of_rank(Rank(rank as u32))).collect()
}

fn import(world: &World, name: &str, checkpoint: bool, ranks: &[Vec<PathBuf>]) -> Result<Imported, OpsError> {
    let env = world.env_of(Rank(0)).env();
    let prefix = Prefix::at(&RealFiles, &world.prefix());
    Import { env: &env, prefix: &prefix, name: name.as_bytes(), checkpoint, ranks }.run()
}

fn refusal(world: &World, name: &str, ranks: &[Vec<PathBuf>]) -> String {
    // The file that a second run locks stays, whatever comes of that run.
    let is_kept = |path: &PathBuf| !path.ends_with(".scr/running.2");
    let found = || files_below(&world.prefix()).into_iter().filter(is_kept).collect::<Vec<_>>();
    let before = found();
    let text = import(world, name, true, ranks).unwrap_err().to_string();
    assert_eq!(found(), before, "what is refused leaves nothing: {text}");
    text
}

#[test]
fn a_run_restarts_from_files_that_were_written_without_scr() {
    for bypass in ["0", "1"] {
        let world = World::new(4, 2).set("SCR_CACHE_BYPASS", bypass);
        let files = write_without_scr(&world, 5);
        let imported = import(&world, "ckpt.5", true, &files).unwrap();
        assert_eq!(imported.files, files.iter().map(Vec::len).sum::<usize>() as u64);
        let run = world.run(|application| application.restart(small));
        run.all_gave(&Some(5));
        assert!(!run.has_line_with("unverified"), "its checksums are known:\n{}", run.lines.join("\n"));
        world.run(|application| {
            assert_eq!(application.restart(small), Some(5));
            application.checkpoint(6, small).unwrap();
            application.finalize().unwrap();
        });
        world.run(|application| application.restart(small)).all_gave(&Some(6));
    }
}

/// A run may have ended with a checkpoint in cache that flushes and ids know of.
#[test]
fn it_is_newer_than_all_before_and_output_is_nothing_to_restart_from() {
    let world = World::new(4, 2).set("SCR_FLUSH", "1");
    world.run(|application| {
        (1..=3).for_each(|step| application.checkpoint(step, small).unwrap());
        application.finalize().unwrap();
    });
    let output = write_without_scr(&world, 8);
    import(&world, "result", false, &output).unwrap();
    world.run(|application| application.restart(small)).all_gave(&Some(3));
    let files = write_without_scr(&world, 2000);
    let imported = import(&world, "ckpt.2000", true, &files).unwrap();
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    assert_eq!(index.entries().iter().map(|entry| entry.id).max(), Some(imported.id));
    world.run(|application| application.restart(small)).all_gave(&Some(2000));
}

#[test]
fn a_byte_that_changes_after_the_import_is_never_given_to_the_application() {
    let world = World::new(4, 2);
    let files = write_without_scr(&world, 5);
    import(&world, "ckpt.5", true, &files).unwrap();
    let path = world.prefix().join(&files[2][0]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[7] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let run = world.run(|application| application.restart(small));
    run.all_gave(&None);
    run.line_with(&["ckpt.5/rank_2", "is damaged"]);
}

#[test]
fn an_invalid_import_is_refused_with_the_reason_and_changes_nothing() {
    let world = World::new(4, 2).set("SCR_FLUSH", "1");
    world.run(|application| {
        application.checkpoint(1, small).unwrap();
        application.finalize().unwrap();
    });
    let files = write_without_scr(&world, 5);
    let prefix = world.prefix();
    let with = |path: &Path| vec![vec![path.to_owned()]];
    for (name, ranks, words) in [
        ("ckpt.1", files.clone(), "`ckpt.1' is that of dataset 1"),
        ("", files.clone(), "the name of a dataset has 1 to 1023 bytes"),
        ("x", with(Path::new("ckpt.1/rank_0.0")), "dataset 1 `ckpt.1' has files of these names already"),
        ("x", with(Path::new("ckpt.5/rank_9.0")), "ckpt.5/rank_9.0 is missing"),
        ("x", with(Path::new("ckpt.5")), "is not a regular file"),
        ("x", with(Path::new("/etc/hostname")), "/etc/hostname is outside the prefix directory"),
        ("x", with(Path::new("../../../../../etc/hostname")), "is outside the prefix directory"),
        ("x", with(Path::new(".scr/index.scr")), "`.scr' belongs to the library"),
    ] {
        let text = refusal(&world, name, &ranks);
        assert!(text.contains(words), "{text}");
    }
    std::os::unix::fs::symlink("rank_0.0", prefix.join("ckpt.5/link")).unwrap();
    std::os::unix::fs::symlink("ckpt.5", prefix.join("step")).unwrap();
    for path in ["ckpt.5/link", "step/rank_0.0"] {
        let text = refusal(&world, "x", &with(Path::new(path)));
        assert!(text.contains("is a symbolic link"), "{text}");
    }
    // By its other name it would change with the dataset that has it.
    std::fs::hard_link(prefix.join("ckpt.1/rank_0.0"), prefix.join("ckpt.5/same")).unwrap();
    let text = refusal(&world, "x", &with(Path::new("ckpt.5/same")));
    assert!(text.contains("ckpt.5/same has 2 names (hard links); give a copy of it"), "{text}");
    std::fs::create_dir(prefix.join("more")).unwrap();
    std::fs::write(prefix.join("more/rank_0.0"), "x").unwrap();
    let twice = vec![vec!["ckpt.5/rank_0.0".into(), "more/rank_0.0".into()]];
    let text = refusal(&world, "x", &twice);
    assert!(text.contains("rank 0 would have two files named `rank_0.0'"), "{text}");
    // The current folder need not be the prefix directory.
    import(&world, "y", true, &with(&prefix.join("more/rank_0.0"))).unwrap();
}

/// A checkpoint that a job writes after an import would be older than the imported one.
#[test]
fn files_are_not_imported_while_a_job_runs() {
    let world = World::new(2, 2);
    let files = write_without_scr(&world, 5);
    world.run(|application| {
        application.checkpoint(1, small).unwrap();
        if application.rank == Rank(0) {
            let text = refusal(&world, "ckpt.5", &files);
            assert!(text.contains("a job runs in the prefix directory (allocation defjobid"), "{text}");
        }
        application.checkpoint(2, small).unwrap();
    });
    import(&world, "ckpt.5", true, &files).unwrap();
    world.run(|application| application.restart(small)).all_gave(&Some(5));
}

/// Another program has made them, and a power failure would have taken away names that the index lists.
#[test]
fn names_of_imported_files_are_synced_before_the_dataset_counts() {
    let mut world = World::new(2, 2);
    let files = write_without_scr(&world, 5);
    let faulty = FaultyFiles::new(RealFiles);
    world.files = Arc::new(faulty.clone());
    import(&world, "ckpt.5", true, &files).unwrap();
    let done = faulty.operations();
    let index = world.prefix().join(".scr/index.scr");
    let counts = done.iter().rposition(|one| one.what == What::Rename && one.to.as_ref() == Some(&index));
    for folder in [world.prefix().join("ckpt.5"), world.prefix()] {
        let synced = done.iter().position(|one| one.what == What::SyncDir && one.path == folder);
        assert!(synced.is_some() && synced < counts, "{} is synced too late, or never", folder.display());
    }
}

/// As one HDF5 file of all ranks.
#[test]
fn ranks_may_share_a_file() {
    let world = World::new(4, 2);
    std::fs::write(world.prefix().join("all.h5"), [7; 1000]).unwrap();
    import(&world, "ckpt.1", true, &vec![vec!["all.h5".into()]; 4]).unwrap();
    world.run(|application| {
        assert_eq!(application.session().have_restart().unwrap().as_deref(), Some(&b"ckpt.1"[..]));
        application.session().start_restart().unwrap();
        let path = application.session().route_file(b"all.h5").unwrap();
        assert_eq!(std::fs::read(super::world::path_of(&path)).unwrap(), [7; 1000]);
        application.session().complete_restart(true).unwrap();
    });
}

fn lists(world: &World, name: &str) -> bool {
    let index = Index::read(&RealFiles, &Prefix::at(&RealFiles, &world.prefix())).unwrap();
    index.id_of(name).and_then(|id| index.entry(id)).is_some_and(|entry| entry.is_valid())
}

/// The error of an import during which something changes, at any moment after its files were read.
fn interrupted(meanwhile: impl FnOnce(&Path) + Send + 'static) -> OpsError {
    let mut world = World::new(2, 2);
    let files = write_without_scr(&world, 5);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|_, path| path.ends_with("import.unfinished"));
    let prefix = world.prefix();
    faulty.interrupt_at(1, move || meanwhile(&prefix));
    world.files = Arc::new(faulty.clone());
    let error = import(&world, "ckpt.5", true, &files).unwrap_err();
    assert!(faulty.was_interrupted());
    world.files = Arc::new(RealFiles);
    assert!(!lists(&world, "ckpt.5"));
    world.run(|application| application.restart(small)).all_gave(&None);
    import(&world, "ckpt.5", true, &files).unwrap();
    error
}

#[test]
fn a_file_that_changes_after_it_was_read_is_not_imported() {
    let of_same_length = |prefix: &Path| {
        let path = prefix.join("ckpt.5/rank_1.0");
        let len = std::fs::read(&path).unwrap().len();
        std::fs::write(&path, vec![1; len]).unwrap();
    };
    let changed = interrupted(of_same_length).to_string();
    assert!(changed.contains("was changed while it was read"), "{changed}");
    let a_job_begins = |prefix: &Path| {
        let mut running = std::fs::OpenOptions::new().append(true).open(prefix.join(".scr/running")).unwrap();
        running.write_all(b"allocation 7\n").unwrap();
    };
    let error = interrupted(a_job_begins).to_string();
    assert!(error.contains("a job runs in the prefix directory (allocation 7)"), "{error}");
}

#[test]
fn an_import_warns_if_it_cannot_detect_a_running_job() {
    let mut world = World::new(2, 2);
    let files = write_without_scr(&world, 5);
    assert_eq!(import(&world, "ckpt.5", true, &files).unwrap().caution, None);
    let files = write_without_scr(&world, 6);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.lack(What::Lock);
    world.files = Arc::new(faulty);
    let caution = import(&world, "ckpt.6", true, &files).unwrap().caution.unwrap();
    assert!(caution.contains("could not check whether a job runs"), "{caution}");
}

#[test]
#[ignore = "long"]
fn an_import_that_was_killed_counts_only_if_the_index_listed_it() {
    let mut cut_short = 0;
    for at in 1.. {
        let mut world = World::new(2, 2);
        let files = write_without_scr(&world, 5);
        let faulty = FaultyFiles::new(RealFiles);
        faulty.stop_at(at);
        world.files = Arc::new(faulty.clone());
        let imported = import(&world, "ckpt.5", true, &files);
        if !faulty.stopped() {
            imported.unwrap();
            break;
        }
        world.files = Arc::new(RealFiles);
        let listed = lists(&world, "ckpt.5");
        let env = world.env_of(Rank(0)).env();
        let prefix = Prefix::at(&RealFiles, &world.prefix());
        let host = PluginHost::new(&env, None);
        let builder = Builder::new(&env, &prefix, &host, 0);
        for id in builder.datasets().unwrap() {
            let built = builder.build(id).unwrap();
            assert_eq!(built.outcome.is_complete(), listed, "killed at {at}: {:?}", built.outcome);
            cut_short += usize::from(format!("{:?}", built.outcome).contains("its import was cut short"));
        }
        assert_eq!(lists(&world, "ckpt.5"), listed, "killed at {at}");
        if !listed {
            import(&world, "ckpt.5", true, &files).unwrap();
        }
        world.run(|application| application.restart(small)).all_gave(&Some(5));
    }
    assert!(cut_short > 2, "some are killed between the summary and the index");
}

/// Also where only the sync of the index has failed.
#[test]
#[ignore = "long"]
fn an_import_that_fails_counts_only_if_the_index_lists_it() {
    let (mut listed_anyway, mut refused) = (0, 0);
    for at in 1.. {
        let mut world = World::new(2, 2);
        let files = write_without_scr(&world, 5);
        let faulty = FaultyFiles::new(RealFiles);
        faulty.fail_once(at, ErrorKind::Other);
        world.files = Arc::new(faulty.clone());
        let imported = import(&world, "ckpt.5", true, &files);
        if faulty.first_failed().is_none() {
            imported.unwrap();
            break;
        }
        world.files = Arc::new(RealFiles);
        let listed = lists(&world, "ckpt.5");
        listed_anyway += usize::from(listed && imported.is_err());
        assert!(listed || imported.is_err(), "operation {at} failed, and nobody heard of it");
        match listed || import(&world, "ckpt.5", true, &files).is_ok() {
            true => world.run(|application| application.restart(small)).all_gave(&Some(5)),
            // A file that could not be synced is refused until another file has its name.
            false => refused += 1,
        }
    }
    assert!(listed_anyway > 0, "the sync of the index fails at least");
    assert!(refused < 10, "{refused} failures keep the files from being imported");
}

/// Does `work` with files of which the first such operation fails that is counted.
fn failing<T>(world: &mut World, what: What, name: &'static str, work: impl FnOnce(&World) -> T) -> T {
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(move |done, path| done == what && path.ends_with(name));
    faulty.fail_once(1, ErrorKind::Other);
    world.files = Arc::new(faulty.clone());
    let done = work(world);
    world.files = Arc::new(RealFiles);
    assert!(faulty.first_failed().is_some());
    done
}

fn with_builder<T>(world: &World, work: impl FnOnce(&Builder<'_>) -> T) -> T {
    let env = world.env_of(Rank(0)).env();
    let prefix = Prefix::at(&RealFiles, &world.prefix());
    work(&Builder::new(&env, &prefix, &PluginHost::new(&env, None), 0))
}

/// Replaces a file, or a folder, by a copy.
fn copy_anew(path: &Path) {
    let (copy, old) = (path.with_extension("copy"), path.with_extension("old"));
    assert!(Command::new("cp").arg("-aT").args([path, &copy]).status().unwrap().success());
    std::fs::rename(path, &old).unwrap();
    std::fs::rename(&copy, path).unwrap();
    assert!(Command::new("rm").arg("-r").arg(&old).status().unwrap().success());
}

/// The next import, or the next `scr index --add`, synced it once more, which succeeds without what the system has lost.
#[test]
fn a_file_that_could_not_be_synced_is_listed_only_once_it_is_replaced() {
    for (what, name, replaced) in [
        (What::Sync, "rank_1.0", vec!["ckpt.5/rank_1.0"]),
        (What::SyncDir, "ckpt.5", vec!["ckpt.5/rank_0.0", "ckpt.5/rank_1.0"]),
    ] {
        let mut world = World::new(2, 2);
        let files: Vec<_> = (0..2).map(|rank| vec![PathBuf::from(format!("ckpt.5/rank_{rank}.0"))]).collect();
        write_without_scr(&world, 5);
        failing(&mut world, what, name, |world| import(world, "ckpt.5", true, &files).unwrap_err());
        let error = refusal(&world, "ckpt.5", &files);
        assert!(error.contains("could not be synced before"), "{name}: {error}");
        let replace = |world: &World| replaced.iter().for_each(|path| copy_anew(&world.prefix().join(path)));
        replace(&world);
        import(&world, "ckpt.5", true, &files).unwrap();
        let prefix = Prefix::at(&RealFiles, &world.prefix());
        drop_dataset(&RealFiles, &prefix, b"ckpt.5").unwrap();
        let add = |world: &World| with_builder(world, |builder| builder.add(b"ckpt.5"));
        failing(&mut world, what, name, |world| add(world).unwrap_err());
        let Outcome::Incomplete { why } = add(&world).unwrap().outcome else { panic!("{name} was listed") };
        assert!(why.contains("could not be synced before"), "{name}: {why}");
        assert!(!lists(&world, "ckpt.5"));
        replace(&world);
        assert!(add(&world).unwrap().outcome.is_complete() && lists(&world, "ckpt.5"), "{name}");
    }
}

/// It could not be listed again.
#[test]
fn a_mark_of_an_import_that_cannot_be_removed_goes_before_the_dataset_is_dropped() {
    let mut world = World::new(2, 2);
    let files = write_without_scr(&world, 5);
    let mark = "import.unfinished";
    let import = |world: &World| import(world, "ckpt.5", true, &files).unwrap();
    failing(&mut world, What::RemoveFile, mark, import);
    let prefix = Prefix::at(&RealFiles, &world.prefix());
    let dropped =
        |world: &World| drop_dataset(&*world.files, &prefix, b"ckpt.5").map(|dropped| dropped.found);
    failing(&mut world, What::RemoveFile, mark, dropped).unwrap_err();
    assert!(lists(&world, "ckpt.5"));
    assert!(dropped(&world).unwrap() && !lists(&world, "ckpt.5"));
    let added = with_builder(&world, |builder| builder.add(b"ckpt.5")).unwrap();
    assert!(added.outcome.is_complete(), "{added:?}");
    world.run(|application| application.restart(small)).all_gave(&Some(5));
}

/// Another program wrote them, and nobody has given them to scr.
#[test]
fn the_window_of_the_prefix_directory_leaves_imported_files_alone() {
    for bypass in ["0", "1"] {
        let world = World::new(2, 2)
            .set("SCR_FLUSH", "1")
            .set("SCR_PREFIX_SIZE", "1")
            .set("SCR_CACHE_BYPASS", bypass);
        let files = write_without_scr(&world, 5);
        import(&world, "ckpt.5", true, &files).unwrap();
        world.run(|application| {
            assert_eq!(application.restart(small), Some(5));
            (6..=8).for_each(|step| application.checkpoint(step, small).unwrap());
            application.finalize().unwrap();
        });
        assert!(files.iter().flatten().all(|file| world.prefix().join(file).exists()));
        assert!(lists(&world, "ckpt.5") && !world.prefix().join("ckpt.7/rank_0.0").exists());
    }
}

#[test]
fn a_file_that_is_there_is_never_taken_for_one_of_the_same_name_in_the_prefix_directory() {
    let world = World::new(1, 1);
    let files = write_without_scr(&world, 5);
    let elsewhere = tempfile::tempdir().unwrap();
    let mut env = world.env_of(Rank(0)).env();
    env.current_dir = elsewhere.path().to_owned();
    let prefix = Prefix::at(&RealFiles, &world.prefix());
    let import = Import { env: &env, prefix: &prefix, name: b"ckpt.5", checkpoint: true, ranks: &files };
    let other = elsewhere.path().join(&files[0][0]);
    std::fs::create_dir(other.parent().unwrap()).unwrap();
    std::fs::write(&other, "other").unwrap();
    let error = import.run().unwrap_err().to_string();
    assert!(error.starts_with(&format!("{} is outside the prefix directory ", other.display())), "{error}");
    std::fs::remove_file(&other).unwrap();
    import.run().unwrap();
    world.run(|application| application.restart(small)).all_gave(&Some(5));
}

/// It left the cache at each start.
#[test]
fn what_is_listed_again_after_it_was_dropped_counts_in_cache_too() {
    let mut world = World::new(2, 2).set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, small).unwrap());
    let all = std::mem::replace(&mut world.nodes, ["n4", "n5"].map(str::to_owned).to_vec());
    world.run(|application| application.session().drop_dataset(b"ckpt.1").unwrap());
    with_builder(&world, |builder| builder.add(b"ckpt.1")).unwrap();
    world.nodes = all;
    world.put("SCR_FETCH", "0");
    world.run(|application| application.restart(small)).all_gave(&Some(1));
}
