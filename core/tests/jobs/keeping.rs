//! Which datasets stay in cache: the old one until the new one is complete, what belongs to others always, and never more
//! than was asked for.

use super::world::{file_name, path_of, Application, World};
use scr_base::fs::{Files, How, LockAttempt, RealFiles};
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use scr_ops::drop_dataset;
use scr_prefix::Prefix;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::sync::{Arc, Barrier};

fn some(rank: Rank) -> Vec<usize> {
    vec![2000 + rank.index(), 5]
}

fn job() -> World {
    World::new(4, 4)
}

/// Whether this rank's node has anything of a dataset.
fn has(world: &World, rank: Rank, id: u64) -> bool {
    world.node(&format!("n{rank}/user1/scr.defjobid/scr.dataset.{id}")).exists()
}

fn early_eviction_warnings(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.contains("evicts an old dataset before the new one is complete")).count()
}

#[test]
fn the_old_dataset_leaves_only_when_the_new_one_is_complete() {
    let world = job();
    world.run(|application| {
        let rank = application.rank;
        application.checkpoint(1, some).unwrap();
        application.write(2, some).unwrap();
        assert!(has(&world, rank, 1) && has(&world, rank, 2));
        application.session().complete_output(true).unwrap();
        assert!(!has(&world, rank, 1) && has(&world, rank, 2));
    });
}

#[test]
fn with_evict_before_the_old_dataset_leaves_first_with_one_message() {
    let world = job().with_store("COUNT=1 EVICT=before");
    let outcome = world.run(|application| {
        for step in 1..=3 {
            application.write(step, some).unwrap();
            assert!(step == 1 || !has(&world, application.rank, step - 1));
            application.session().complete_output(true).unwrap();
        }
    });
    assert_eq!(early_eviction_warnings(&outcome.lines), 1, "{:?}", outcome.lines);
    world.run(|application| application.restart(some)).all_gave(&Some(3));
    // Nobody said which checkpoint was lost with the one that failed.
    let failed = world.run(|application| {
        for step in 4..=5 {
            application.write(step, some).unwrap();
            application.session().complete_output(false).unwrap_err();
        }
    });
    let lost =
        |line: &&String| line.contains("ERROR") && line.contains("had left the cache for dataset 4 `ckpt.4'");
    let lost: Vec<_> = failed.lines.iter().filter(lost).collect();
    assert!(matches!(&*lost, [lost] if lost.contains("`ckpt.3', which was in cache only")), "{lost:?}");
}

#[test]
fn without_room_for_both_the_old_dataset_leaves_first_with_one_message() {
    let mut world = job();
    let faulty = FaultyFiles::new(RealFiles);
    faulty.pretend_room(2500);
    world.files = Arc::new(faulty);
    for run in 0..2 {
        // Datasets left by an earlier run count as well.
        let outcome = world.run(|application| {
            for step in 1..=3 {
                application.write(run * 10 + step, some).unwrap();
                assert!(run + step == 1 || !has(&world, application.rank, run * 3 + step - 1));
                application.session().complete_output(true).unwrap();
            }
        });
        assert_eq!(early_eviction_warnings(&outcome.lines), 1, "{:?}", outcome.lines);
    }
}

/// The kernel's files were read as empty, so a job was killed for the memory of a dataset that did not fit.
#[test]
fn without_memory_for_both_the_old_dataset_leaves_first_with_one_message() {
    let rows = [
        ("MemAvailable: 900000 kB", "1000000000", None),
        ("MemAvailable: 2 kB", "1000000000", Some("2 KiB of memory are available on n0")),
        ("MemAvailable: 900000 kB", "2100", Some("/sys/fs/cgroup/job leaves 2.05 KiB of memory on n0")),
    ];
    for (memory, limit, why) in rows {
        let mut world = job();
        let kernel = world.dir().join("kernel");
        let group = kernel.join("sys/fs/cgroup/job");
        std::fs::create_dir_all(kernel.join("proc/self")).unwrap();
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(kernel.join("proc/meminfo"), memory).unwrap();
        std::fs::write(kernel.join("proc/self/cgroup"), "0::/job/task\n").unwrap();
        std::fs::write(group.join("memory.max"), limit).unwrap();
        std::fs::write(group.join("memory.current"), "0").unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        faulty.pretend_memory(kernel);
        world.files = Arc::new(faulty);
        let outcome = world.run(|application| {
            for step in 1..=3 {
                application.write(step, some).unwrap();
                assert!(step == 1 || has(&world, application.rank, step - 1) == why.is_none());
                application.session().complete_output(true).unwrap();
            }
        });
        assert_eq!(
            early_eviction_warnings(&outcome.lines),
            usize::from(why.is_some()),
            "{:?}",
            outcome.lines
        );
        assert!(why.is_none_or(|why| outcome.has_line_with(why)), "{:?}", outcome.lines);
    }
}

/// Rank 0 gave the free room of its own node, which was enough.
#[test]
fn the_warning_names_the_node_that_has_no_room() {
    let mut world = job();
    let crowded = FaultyFiles::new(RealFiles);
    crowded.pretend_room(2500);
    world.own_files.insert(Rank(2), Arc::new(crowded));
    let outcome =
        world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    assert_eq!(early_eviction_warnings(&outcome.lines), 1, "{:?}", outcome.lines);
    assert!(outcome.has_line_with("2.44 KiB can be written on n2"), "{:?}", outcome.lines);
}

/// The second of three that a store was to keep failed for want of room, and in memory the job was killed.
#[test]
fn a_store_without_room_for_all_that_it_is_to_keep_makes_room_for_the_next_dataset() {
    let mut world = job().set("SCR_CACHE_SIZE", "3");
    let faulty = FaultyFiles::new(RealFiles);
    world.files = Arc::new(faulty.clone());
    let together = Barrier::new(4);
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.checkpoint(2, some).unwrap();
        together.wait();
        faulty.pretend_room(2500);
        application.checkpoint(3, some).unwrap();
        let kept = [1, 2, 3].map(|id| has(&world, application.rank, id));
        assert_eq!(kept, [false, true, true]);
    });
    assert_eq!(early_eviction_warnings(&outcome.lines), 1, "{:?}", outcome.lines);
    assert!(outcome.has_line_with("a failure in between leaves fewer datasets in cache"));
}

/// The next run began at zero without a word.
#[test]
fn a_checkpoint_that_could_not_be_protected_and_had_to_make_room_is_named() {
    let mut world = job().with_store("COUNT=1 EVICT=before").set("SCR_FLUSH", "0");
    world.put("SCR_COPY_TYPE", "XOR");
    world.put("SCR_ENCODE_ASYNC", "1");
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|what, path| what == What::Write && path.to_string_lossy().contains("/redundancy_"));
    faulty.fail_from(1, ErrorKind::StorageFull);
    world.files = Arc::new(faulty);
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.write(2, some).unwrap();
    });
    world.files = Arc::new(RealFiles);
    let outcome = world.run(|application| application.restart(some));
    outcome.all_gave(&None);
    outcome.line_with(&["`ckpt.1' was complete and is lost", "never completed"]);
}

/// The next run went back to an older checkpoint, or to the beginning, without a word.
#[test]
fn a_checkpoint_that_had_to_make_room_for_one_that_was_never_completed_is_named_until_a_newer_one_is() {
    for flush in ["0", "3"] {
        let mut world = job().with_store("COUNT=1 EVICT=before").set("SCR_FLUSH", flush);
        let before = (flush == "3").then_some(3);
        // In the way of its flush.
        std::fs::write(world.prefix().join("ckpt.6"), b"").unwrap();
        let outcome = world.run(|application| {
            (1..=6).for_each(|step| application.checkpoint(step, some).unwrap());
            application.write(7, some).unwrap();
        });
        assert_eq!(outcome.has_line_with("it is kept in cache"), flush == "3", "{:?}", outcome.lines);
        let words = ["`ckpt.6' was complete and is lost", "never completed", "scr index --drop ckpt.6"];
        for _ in 0..2 {
            let outcome = world.run(|application| {
                let restarted = application.restart(some);
                application.write(7, some).unwrap();
                restarted
            });
            outcome.all_gave(&before);
            outcome.line_with(&words);
        }
        if flush == "0" {
            world.put("SCR_REQUIRE_RESTART", "1");
            let begun = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
            let error = begun.ranks[0].as_ref().unwrap_err();
            assert!(error.contains("left the cache for one that was never completed"), "{error}");
            world.take_out("SCR_REQUIRE_RESTART");
        }
        let kept = world.keep();
        let flush_file = Prefix::new(world.prefix()).flush_file();
        let lost = std::fs::read(&flush_file).unwrap();
        world.run(|application| application.checkpoint(8, some).unwrap()).line_with(&words);
        let outcome = world.run(|application| application.restart(some));
        outcome.all_gave(&Some(8));
        assert!(!outcome.has_line_with("is lost: "), "{}", outcome.lines.join("\n"));
        // Nor does one speak of it that was dropped.
        world.put_back(&kept);
        std::fs::write(&flush_file, lost).unwrap();
        drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"ckpt.6").unwrap();
        let outcome = world.run(|application| application.restart(some));
        assert!(!outcome.has_line_with("`ckpt.6' was complete"), "{}", outcome.lines.join("\n"));
    }
}

#[test]
fn with_evict_after_the_old_dataset_stays_whatever_the_room() {
    let mut world = job().with_store("COUNT=1 EVICT=after");
    let faulty = FaultyFiles::new(RealFiles);
    faulty.pretend_room(10);
    world.files = Arc::new(faulty);
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.write(2, some).unwrap();
        assert!(has(&world, application.rank, 1));
    });
}

/// A store that is to keep two and has room for one: without giving up an old one no later dataset ever fitted.
#[test]
fn a_store_that_has_run_full_makes_room_for_the_next_dataset() {
    let mut world = job().set("SCR_CACHE_SIZE", "3");
    let faulty = FaultyFiles::new(RealFiles);
    world.files = Arc::new(faulty.clone());
    let together = Barrier::new(4);
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.write(2, some).unwrap();
        // All ranks have written. The devices of all of them are full from here on.
        together.wait();
        faulty.pretend_room(0);
        faulty.fail_from(0, ErrorKind::StorageFull);
        application.session().complete_output(true).unwrap_err();
        together.wait();
        faulty.heal();
        assert!(has(&world, application.rank, 1), "the older one is kept");
        together.wait();
        application.checkpoint(3, some).unwrap();
        assert!(!has(&world, application.rank, 1), "the store has no room for two");
    });
    outcome.line_with(&["is full (0 bytes", "from now on an old dataset leaves it", "scr clean --dead"]);
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

/// With `SINGLE` scr writes nothing of size itself. The checkpoint counted, and was cut off.
#[test]
fn what_met_a_full_store_is_not_valid_even_if_the_application_says_so() {
    let mut world = job().set("SCR_COPY_TYPE", "SINGLE");
    let faulty = FaultyFiles::new(RealFiles);
    world.files = Arc::new(faulty.clone());
    let together = Barrier::new(4);
    let run = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.write(2, some).unwrap();
        together.wait();
        faulty.pretend_room(0);
        application.session().complete_output(true).unwrap_err().to_string()
    });
    assert!(run.ranks[0].contains("has not a byte left, and a file may be cut off"), "{}", run.ranks[0]);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The next dataset did not fit into the empty store either, and the last checkpoint had left for it.
#[test]
fn the_last_checkpoint_is_flushed_before_it_leaves_a_full_store_or_stays() {
    for is_prefix_full in [false, true] {
        let mut world = job().set("SCR_FLUSH", "10");
        let in_prefix = world.prefix().join("ckpt.1");
        let faulty = FaultyFiles::new(RealFiles);
        world.files = Arc::new(faulty.clone());
        let together = Barrier::new(4);
        let on_one = |work: &dyn Fn()| {
            if together.wait().is_leader() {
                work();
            }
            together.wait();
        };
        let outcome = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            for step in [2, 3] {
                application.write(step, some).unwrap();
                on_one(&|| {
                    faulty.only(|_, _| true);
                    faulty.pretend_room(0);
                    faulty.fail_from(0, ErrorKind::StorageFull);
                });
                application.session().complete_output(true).unwrap_err();
                on_one(&|| {
                    faulty.heal();
                    let in_prefix = in_prefix.clone();
                    faulty.only(move |_, path| path.starts_with(&in_prefix));
                    if is_prefix_full {
                        faulty.fail_from(0, ErrorKind::StorageFull);
                    }
                });
            }
            on_one(&|| faulty.heal());
            assert_eq!(has(&world, application.rank, 1), is_prefix_full);
        });
        assert_eq!(outcome.has_line_with("was not flushed"), is_prefix_full, "{:?}", outcome.lines);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// Once a newer one had become complete after the store was full, none was flushed any more before it left.
#[test]
fn every_checkpoint_that_leaves_a_store_that_has_been_full_is_flushed_before() {
    let mut world = job().set("SCR_FLUSH", "10");
    let faulty = FaultyFiles::new(RealFiles);
    world.files = Arc::new(faulty.clone());
    let together = Barrier::new(4);
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        for (step, fits) in [(2, false), (3, true), (4, false)] {
            application.write(step, some).unwrap();
            if together.wait().is_leader() && !fits {
                faulty.pretend_room(0);
                faulty.fail_from(0, ErrorKind::StorageFull);
            }
            together.wait();
            assert_eq!(application.session().complete_output(true).is_ok(), fits);
            if together.wait().is_leader() {
                faulty.heal();
            }
            together.wait();
        }
    });
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

#[test]
fn output_takes_no_checkpoints_place() {
    let world = job();
    let output = |application: &mut Application| {
        let flags = OutputFlags { checkpoint: false, output: true };
        application.session().start_output(Some(b"plot"), flags).unwrap();
        application.session().complete_output(true)
    };
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        output(application).unwrap();
        assert!(has(&world, application.rank, 1));
        assert!(!has(&world, application.rank, 2), "it is in the prefix directory");
    });
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// Output that cannot be flushed is nowhere else. The application reads in the prefix directory, and the last flush was a
/// checkpoint ago: the one that was flushed counted as the newest, and the new one left cache as soon as it was complete.
#[test]
fn the_newest_checkpoint_stays_where_it_is_to_be_read_in_the_prefix_directory_and_is_not_there_yet() {
    let world = job().set("SCR_FLUSH", "2").set("SCR_GLOBAL_RESTART", "1");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

#[test]
fn output_stays_in_cache_until_it_is_flushed() {
    let world = job();
    let prefix = world.prefix();
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        let flags = OutputFlags { checkpoint: false, output: true };
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"plot"), flags).unwrap();
        let path = session.route_file(format!("plots/p{rank}").as_bytes()).unwrap();
        std::fs::write(super::world::path_of(&path), b"plotted").unwrap();
        if rank == Rank(0) {
            std::fs::write(prefix.join("plots"), b"in the way").unwrap();
        }
        application.session().complete_output(true).unwrap_err();
        application.checkpoint(2, some).unwrap();
        assert!(!has(&world, rank, 1) && has(&world, rank, 2) && has(&world, rank, 3));
    });
}

/// The error said that it was kept in cache.
#[test]
fn a_dataset_that_is_not_flushed_since_its_cache_was_emptied_is_not_said_to_be_there() {
    let world = job().set("SCR_FLUSH", "9");
    let turns = Barrier::new(4);
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if turns.wait().is_leader() {
            world.cached_files().iter().for_each(|file| std::fs::remove_file(file).unwrap());
        }
        turns.wait();
        application.finalize().unwrap_err().to_string()
    });
    outcome.all_gave(&outcome.ranks[0]);
    assert!(outcome.ranks[0].ends_with("; files of it are missing in cache"), "{}", outcome.ranks[0]);
    assert!(!outcome.has_line_with("kept in cache"), "{:?}", outcome.lines);
    outcome.line_with(&["save what is in cache on the nodes"]);
}

/// If a file system had gone, scr would create a folder of the same name on another one, and nobody would find the output there.
#[test]
fn a_vanished_prefix_directory_is_reported_and_not_created_again() {
    let world = job();
    let (prefix, elsewhere) = (world.prefix(), world.prefix().with_extension("elsewhere"));
    let turns = Barrier::new(4);
    let outcome = world.run(|application| {
        turns.wait();
        if application.rank == Rank(0) {
            std::fs::rename(&prefix, &elsewhere).unwrap();
        }
        turns.wait();
        let message = application.output(1, some).unwrap_err().to_string();
        assert!(!prefix.join("ckpt.1").exists());
        turns.wait();
        if application.rank == Rank(0) {
            let _ = std::fs::remove_dir_all(&prefix);
            std::fs::rename(&elsewhere, &prefix).unwrap();
        }
        turns.wait();
        application.output(2, some).unwrap();
        message
    });
    let message = &outcome.ranks[0];
    assert!(
        message.contains("of this run is not there") && message.contains("it is kept in cache"),
        "{message}"
    );
    outcome.all_gave(message);
    assert!(prefix.join("ckpt.1/rank_3.0").exists() && prefix.join("ckpt.2/rank_3.0").exists());
}

/// They took each other's names without a message.
#[test]
fn two_jobs_that_run_in_one_prefix_directory_at_the_same_time_are_both_warned_and_go_on() {
    let world = job();
    let turns = Barrier::new(4);
    let begins = |application: &mut Application| application.checkpoint(1, some).unwrap();
    let first = world.run(|application| {
        turns.wait();
        let second = (application.rank == Rank(0)).then(|| world.run(begins));
        turns.wait();
        application.checkpoint(2, some).unwrap();
        application.checkpoint(3, some).unwrap();
        second
    });
    let rank_0 = format!("allocation defjobid, rank 0 is process {} on n0, since", std::process::id());
    let words = ["another job uses the prefix directory", &rank_0, "SCR_PREFIX"];
    let second = first.ranks[0].as_ref().unwrap();
    second.line_with(&words);
    first.line_with(&words);
    assert_eq!(first.lines.iter().filter(|line| line.contains(words[0])).count(), 1, "it is said once");
    // One that begins when both have ended is alone.
    assert!(!world.run(begins).has_line_with(words[0]));
}

/// Both went on, and of two datasets of one name one was lost. A lock may outlive its job, with the node that had it.
#[test]
fn a_job_does_not_begin_beside_another_one_that_lives_beyond_doubt() {
    let mut world = job();
    let files = FaultyFiles::new(RealFiles);
    files.never_pause();
    world.files = Arc::new(files);
    world.run(|application| application.checkpoint(1, some).unwrap());
    let path = world.prefix().join(".scr/running");
    let mut other = std::process::Command::new("sleep");
    let mut other = other.arg("600").stdin(std::fs::File::open(&path).unwrap()).spawn().unwrap();
    let line =
        |node: &str| format!("allocation 7, rank 0 is process {} on {node}, since then\t1\n", other.id());
    let (here, elsewhere) = (line("n2"), line("n77"));
    let held = std::fs::File::options().read(true).open(&path).unwrap();
    held.try_lock().unwrap();
    let begins = |line: &str, world: &World| {
        std::fs::write(&path, line).unwrap();
        let begun = world.try_run(|session| session.map(drop).map_err(|error| error.to_string()));
        let is_warned = begun.has_line_with("another job uses the prefix directory");
        begun.ranks.into_iter().next().unwrap().map(|()| is_warned)
    };
    let error = begins(&here, &world).unwrap_err();
    let words =
        ["another job uses", "rank 0 is process", "on n2", "SCR_PREFIX", "SCR_SHARE_PREFIX=1 lets both run"];
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    assert_eq!(begins(&elsewhere, &world), Ok(true), "a node that cannot be asked");
    world.put("SCR_SHARE_PREFIX", "1");
    assert_eq!(begins(&here, &world), Ok(true));
    world.take_out("SCR_SHARE_PREFIX");
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(begins(&here, &world), Ok(true), "its lock is left");
    drop(held);
    assert_eq!(begins(&here, &world), Ok(false));
}

/// Where no variable told that a launcher had started them together, they restarted from each other's data.
#[test]
fn a_process_that_mpi_finds_alone_does_not_begin_beside_one_that_was_started_with_it() {
    let world = World::new(1, 1);
    let ran =
        world.run(|_| world.try_run(|session| session.map(drop).map_err(|error| error.to_string())).ranks);
    let error = ran.ranks[0][0].as_ref().unwrap_err();
    assert!(error.contains("the launcher of another MPI"), "{error}");
}

/// They restarted from each other's data, and the only message said to give each a prefix directory of its own.
#[test]
fn processes_that_a_launcher_has_started_together_and_mpi_has_not_found_do_not_begin() {
    let begins = |ranks, variables: &[(&str, &str)]| {
        let world = World::new(ranks, ranks);
        let world = variables.iter().fold(world, |world, (name, value)| world.set(name, value));
        let begun = world.try_run(|session| session.map(drop).map_err(|error| error.to_string()));
        begun.ranks.into_iter().next().unwrap()
    };
    for (size, rank) in [
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        ("PMI_SIZE", "PMI_RANK"),
        ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
        ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
        ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ] {
        let error = begins(1, &[(size, "4"), (rank, "0")]).unwrap_err();
        let said = format!("the launcher has started 4 processes ({size}=4, {rank}=0)");
        assert!(error.contains(&said) && error.contains(&format!("unset {rank}")), "{error}");
        for (size_is, rank_is) in [("1", "0"), ("many", "0"), ("4", "")] {
            begins(1, &[(size, size_is), (rank, rank_is)]).unwrap();
        }
        begins(4, &[(size, "4"), (rank, "3")]).unwrap();
    }
    for rank in ["PALS_RANKID", "PMIX_RANK", "SLURM_PROCID"] {
        let error = begins(1, &[(rank, "3")]).unwrap_err();
        assert!(error.contains(&format!("has started several processes ({rank}=3)")), "{error}");
    }
    // A batch script has started it by itself, or with a launcher in one of several processes.
    begins(1, &[("SLURM_NTASKS", "64"), ("SLURM_PROCID", "0"), ("PMIX_RANK", "0")]).unwrap();
    let in_step =
        [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "3"), ("PMI_SIZE", "1"), ("PMI_RANK", "0")];
    begins(1, &in_step).unwrap();
    // A rank of its own is a part of a launch here, and they know that.
    let part = World::new(1, 1).set("PMI_SIZE", "4").set("PMI_RANK", "1").part("part", &["n0"]);
    part.run(|_| ());
}

/// It was tried again after the newer one had arrived, and took the name away from it.
#[test]
fn output_that_lost_its_name_while_it_could_not_be_flushed_is_not_flushed_any_more() {
    let world = job();
    let in_the_way = world.prefix().join("old");
    std::fs::write(&in_the_way, b"in the way").unwrap();
    let turns = Barrier::new(4);
    world.run(|application| {
        let rank = application.rank;
        let plot = |application: &mut Application, name: &str, folder: &str| {
            let flags = OutputFlags { checkpoint: false, output: true };
            application.session().start_output(Some(name.as_bytes()), flags).unwrap();
            let path = application.session().route_file(format!("{folder}/{rank}").as_bytes()).unwrap();
            std::fs::write(super::world::path_of(&path), folder).unwrap();
            application.session().complete_output(true)
        };
        plot(application, "plot", "old").unwrap_err();
        plot(application, "plot", "new").unwrap();
        turns.wait();
        if rank == Rank(0) {
            std::fs::remove_file(&in_the_way).unwrap();
        }
        turns.wait();
        plot(application, "other", "other").unwrap();
        application.finalize().unwrap();
    });
    assert!(!in_the_way.exists() && world.prefix().join("new/3").exists());
}

#[test]
fn a_dataset_of_another_number_of_ranks_is_left_alone_with_a_message() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let before = world.cached_files();
    let all = world.nodes.clone();
    world.nodes.truncate(2);
    let outcome = world.run(|application| {
        assert_eq!(application.restart(some), None);
        for step in 2..=4 {
            application.checkpoint(step, some).unwrap();
        }
    });
    let line = outcome.line_with(&["dataset 1", "written by 4 ranks"]);
    assert!(line.contains("this run has 2"), "{line}");
    let after = world.cached_files();
    assert!(before.iter().all(|file| after.contains(file)), "it must stay");
    world.nodes = all;
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

#[test]
fn an_incomplete_dataset_of_another_number_of_ranks_is_removed() {
    let mut world = job();
    world.run(|application| application.write(1, some).unwrap());
    world.nodes.truncate(2);
    world.run(|application| application.checkpoint(2, some).unwrap());
    let left = world.cached_files();
    let of_first = |rank: u32| {
        left.iter().any(|path| {
            path.to_string_lossy().contains(&format!("n{rank}/user1/scr.defjobid/scr.dataset.1/"))
        })
    };
    assert!(!of_first(0) && !of_first(1), "{left:?}");
}

#[test]
fn a_dataset_of_another_prefix_directory_is_neither_restarted_from_nor_removed() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let before = world.cached_files();
    world.turn_to("other");
    let outcome = world.run(|application| {
        assert_eq!(application.restart(some), None);
        for step in 5..=7 {
            application.checkpoint(step, some).unwrap();
        }
    });
    outcome.line_with(&["NOTE", "`ckpt.1' in cache belongs to the prefix directory", "uses the current one"]);
    assert!(outcome.has_line_with("Starting dataset 2 `ckpt.5'"), "ids must differ: {:?}", outcome.lines);
    let after = world.cached_files();
    assert!(before.iter().all(|file| after.contains(file)), "it must stay");
    world.run(|application| application.restart(some)).all_gave(&Some(7));
    world.turn_to("prefix");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// A note sent the user to a path at which there was no directory any more.
#[test]
fn nobody_is_sent_to_the_old_path_of_a_prefix_directory() {
    for bypass in ["0", "1"] {
        let mut world = job().set("SCR_CACHE_BYPASS", bypass);
        world.run(|application| application.checkpoint(1, some).unwrap());
        std::fs::rename(world.prefix(), world.prefix().with_extension("moved")).unwrap();
        world.turn_to("other");
        let run = world.run(|application| application.restart(some));
        run.all_gave(&None);
        let is_in_cache = bypass == "0";
        assert_eq!(run.has_line_with("`ckpt.1' in cache belongs to"), is_in_cache, "{:?}", run.lines);
        assert_eq!(run.has_line_with("start the job where that directory is now"), is_in_cache);
        assert!(!run.has_line_with("start the job there"), "{:?}", run.lines);
    }
}

/// It began at zero and wrote over the last checkpoint, without a word.
#[test]
fn an_application_that_does_not_ask_for_its_checkpoint_is_told_before_it_writes() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let unread = "has not read `ckpt.1', which it could restart from";
    world.put("SCR_REQUIRE_RESTART", "1");
    let refused = world.run(|application| application.checkpoint(2, some).unwrap_err().to_string());
    assert!(refused.ranks.iter().all(|why| why.contains(unread)), "{:?}", refused.ranks);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.put("SCR_REQUIRE_RESTART", "0");
    let warned = world.run(|application| application.checkpoint(2, some).unwrap());
    warned.line_with(&["WARNING", unread, "SCR_REQUIRE_RESTART=1"]);
    let good = world.run(|application| {
        assert_eq!(application.restart(some), Some(2));
        application.checkpoint(3, some).unwrap();
    });
    assert!(!good.has_line_with("has not read"));
}

/// What its own records say is gone, and the cache knows the path.
#[test]
fn a_run_over_a_cache_whose_records_were_removed_begins_only_without_the_wish_to_restart() {
    for (bypass, removed, fate) in [
        ("0", ".scr", "leave the cache once"),
        ("1", ".scr", "Its files are not in cache but in place"),
        ("1", "", "Its files are not here"),
    ] {
        let mut world = job().set("SCR_CACHE_BYPASS", bypass);
        world.run(|application| application.checkpoint(1, some).unwrap());
        std::fs::remove_dir_all(world.prefix().join(removed)).unwrap();
        std::fs::create_dir_all(world.prefix()).unwrap();
        world.put("SCR_REQUIRE_RESTART", "1");
        let refused = world.try_run(|application| application.err().unwrap().to_string());
        let why = "they belong to another prefix directory";
        assert!(refused.ranks.iter().all(|text| text.contains(why)), "{:?}", refused.ranks);
        world.put("SCR_REQUIRE_RESTART", "0");
        let run = world.run(|application| application.restart(some));
        run.line_with(&["ERROR", why, "SCR_REQUIRE_RESTART=1 makes that an error"]);
        run.line_with(&["WARNING", "the run does not restart from it", fate]);
        run.all_gave(&None);
    }
}

/// Its protection was gone, and nobody was told.
#[test]
fn a_restart_that_puts_ranks_of_a_set_on_one_node_warns() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let unprotected = "`ckpt.1' in cache is not protected against the loss of a node";
    assert!(!world.run(|application| application.restart(some)).has_line_with(unprotected));
    world.nodes = ["n0", "n0", "n1", "n2"].map(str::to_owned).to_vec();
    let run = world.run(|application| application.restart(some));
    run.line_with(&["WARNING", unprotected, "the next checkpoint is protected"]);
    run.all_gave(&Some(1));
}

/// The copy has the id of the first one, and its path was taken for an older path of that.
#[test]
fn what_was_written_in_a_copy_that_is_gone_is_none_of_the_first_ones() {
    for renamed in [false, true] {
        let mut world = job();
        world.run(|application| application.checkpoint(1, some).unwrap());
        let (copy, name) = (world.dir().join("copy"), world.dir().join("renamed"));
        let copied = std::process::Command::new("cp").arg("-a").arg(world.prefix()).arg(&copy).status();
        assert!(copied.unwrap().success());
        world.turn_to("copy");
        world.run(|application| application.checkpoint(2, some).unwrap());
        match renamed {
            true => std::fs::rename(&copy, &name).unwrap(),
            false => std::fs::remove_dir_all(&copy).unwrap(),
        }
        world.turn_to("prefix");
        world.run(|application| {
            assert_eq!(application.restart(some), Some(1));
            application.checkpoint(3, some).unwrap();
        });
        if renamed {
            world.turn_to("renamed");
            world.run(|application| application.restart(some)).all_gave(&Some(2));
        }
    }
}

#[test]
fn a_full_prefix_directory_keeps_no_job_from_a_restart_out_of_its_cache() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.prefix());
    full.fail_from(1, std::io::ErrorKind::StorageFull);
    world.files = Arc::new(full);
    let run = world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(2, some).unwrap();
    });
    run.line_with(&["ERROR", "/.scr/", "the run starts anyway"]);
    world.files = Arc::new(RealFiles);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// Each write said that a lock file could not be created, and no message what that means: the run after it began at zero.
#[test]
fn a_list_of_what_is_in_cache_that_cannot_be_written_is_one_message_each_time_it_begins_to_fail() {
    let mut world = job();
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.prefix());
    world.files = Arc::new(full.clone());
    let run = world.run(|application| {
        let mut fill = |begin: u64, is_full: bool| {
            if application.rank == Rank(0) {
                if is_full {
                    full.fail_from(1, ErrorKind::StorageFull);
                } else {
                    full.heal();
                }
            }
            (begin..begin + 3).for_each(|step| application.checkpoint(step, some).unwrap());
        };
        fill(1, true);
        fill(4, false);
        fill(7, true);
    });
    let told = |words: &str| run.lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!((told("[SCR-442]"), told("[SCR-921]")), (2, 0), "{:?}", run.lines);
    run.line_with(&[
        "ERROR",
        "flush.scr",
        "cannot be written",
        "even with SCR_REQUIRE_RESTART=1",
        "make room",
    ]);
}

#[test]
fn a_missing_prefix_directory_is_created_and_a_message_says_so() {
    let world = job();
    let there = world.run(|_| ());
    assert!(!there.has_line_with("has been made"), "{:?}", there.lines);
    let name = world.dir().join("mistyped");
    let world = world.set("SCR_PREFIX", &name.display().to_string());
    world.run(|_| ()).line_with(&["rank 0", "mistyped (SCR_PREFIX) was not there"]);
    assert!(name.join(".scr").is_dir());
}

#[test]
fn a_prefix_directory_is_known_by_where_its_name_leads() {
    use std::os::unix::fs::symlink;
    let mut world = job();
    let link = world.dir().join("current");
    world.run(|application| application.checkpoint(1, some).unwrap());
    symlink("prefix", &link).unwrap();
    world.turn_to("current");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.run(|application| application.checkpoint(2, some).unwrap());
    world.turn_to("other");
    std::fs::remove_file(&link).unwrap();
    symlink("other", &link).unwrap();
    world.turn_to("current");
    world.run(|application| application.restart(some)).all_gave(&None);
    world.turn_to("prefix");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// Both prefix directories have a dataset 1, and the cache of the one is in the way of what the other fetches.
#[test]
fn a_fetched_dataset_does_not_take_the_place_of_another_prefix_directorys() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.lose("");
    world.turn_to("other");
    world.put("SCR_FLUSH", "0");
    world.run(|application| application.checkpoint(5, some).unwrap());
    world.turn_to("prefix");
    for _ in 0..2 {
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
    world.turn_to("other");
    world.run(|application| application.restart(some)).all_gave(&Some(5));
    world.turn_to("prefix");
    let refused = world.run(|application| {
        application.session().start_restart().unwrap();
        application.session().complete_restart(false).unwrap_err();
        application.session().have_restart().unwrap()
    });
    refused.all_gave(&None);
    world.run(|application| application.restart(some)).all_gave(&None);
}

#[test]
fn nothing_in_cache_is_read_if_that_is_switched_off() {
    for setting in [("SCR_DISTRIBUTE", "0"), ("SCR_CACHE_PURGE", "1")] {
        let mut world = job().set("SCR_FLUSH", "2");
        world.run(|application| {
            for step in 1..=3 {
                application.checkpoint(step, some).unwrap();
            }
        });
        world.put(setting.0, setting.1);
        let outcome = world.run(|application| application.restart(some));
        outcome.all_gave(&Some(2));
        assert!(world.cached_files().iter().all(|path| !path.to_string_lossy().contains("scr.dataset.3")));
    }
}

/// It went without a word, also where a restart was required.
#[test]
fn the_only_copy_of_a_checkpoint_that_a_setting_deletes_is_named_and_stays_if_a_restart_is_required() {
    for (name, value) in [("SCR_DISTRIBUTE", "0"), ("SCR_CACHE_PURGE", "1")] {
        let mut world = job().set("SCR_FLUSH", "2").set("SCR_CACHE_SIZE", "2");
        world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
        let kept = world.keep();
        world.put(name, value);
        world.put("SCR_REQUIRE_RESTART", "1");
        let refused = world.try_run(|begun| begun.err().expect("no run begins").to_string());
        let deletes = format!("{name}={value}");
        for why in &refused.ranks {
            assert!(
                [&*deletes, "dataset 3 `ckpt.3'", "SCR_REQUIRE_RESTART=1"]
                    .iter()
                    .all(|word| why.contains(word)),
                "{why}"
            );
        }
        assert!(scr_base::codes::coded("ERROR", &refused.ranks[0]).ends_with("[SCR-310]"));
        assert_eq!(world.changes_since(&kept), Vec::<String>::new());
        world.put("SCR_REQUIRE_RESTART", "0");
        let warned = world.run(|application| application.restart(some));
        warned.all_gave(&Some(2));
        warned.line_with(&["WARNING", &deletes, "the only copy of dataset 3 `ckpt.3'", "[SCR-322]"]);
        // The prefix directory has what is left: nothing is lost.
        world.put("SCR_REQUIRE_RESTART", "1");
        let quiet = world.run(|application| application.restart(some));
        quiet.all_gave(&Some(2));
        assert!(!quiet.has_line_with("WARNING"), "{:?}", quiet.lines);
    }
}

/// It went without a word there too.
#[test]
fn the_only_copy_that_a_setting_deletes_is_named_though_scr_s_own_folder_has_gone() {
    for (name, value) in [("SCR_DISTRIBUTE", "0"), ("SCR_CACHE_PURGE", "1")] {
        let mut world = job().set("SCR_FLUSH", "0").set("SCR_REQUIRE_RESTART", "1");
        world.run(|application| application.checkpoint(1, some).unwrap());
        std::fs::remove_dir_all(world.prefix().join(".scr")).unwrap();
        let kept = world.cached_files();
        world.put(name, value);
        let refused = world.try_run(|begun| begun.err().expect("no run begins").to_string());
        assert!(refused.ranks[0].contains("dataset 1 `ckpt.1'"), "{}", refused.ranks[0]);
        assert_eq!(world.cached_files(), kept);
        world.put("SCR_REQUIRE_RESTART", "0");
        let warned = world.run(|application| application.restart(some));
        warned.line_with(&["WARNING", "the only copy of dataset 1 `ckpt.1'", "[SCR-322]"]);
    }
}

/// With its nodes gone nothing was there to delete, and nobody missed it.
#[test]
fn a_setting_that_deletes_the_caches_hides_no_checkpoint_that_was_lost_with_its_nodes() {
    for (name, value) in [("SCR_DISTRIBUTE", "0"), ("SCR_CACHE_PURGE", "1")] {
        let mut world = job().set("SCR_FLUSH", "0");
        world.run(|application| application.checkpoint(1, some).unwrap());
        (0..4).for_each(|node| world.lose(&format!("n{node}")));
        world.put(name, value);
        world.put("SCR_REQUIRE_RESTART", "1");
        let refused = world.try_run(|begun| begun.err().expect("no run begins").to_string());
        assert!(refused.ranks[0].contains("no node of this run has"), "{}", refused.ranks[0]);
        world.put("SCR_REQUIRE_RESTART", "0");
        let warned = world.run(|application| {
            let restarted = application.restart(some);
            application.checkpoint(1, some).unwrap();
            restarted
        });
        warned.all_gave(&None);
        warned.line_with(&["WARNING", "dataset 1 `ckpt.1' of an earlier run is in cache only"]);
        warned.line_with(&["ERROR", "may write over `ckpt.1'"]);
        warned.line_with(&["the new checkpoint `ckpt.1' takes the place"]);
    }
}

/// It left the cache for the next checkpoint without a word.
#[test]
fn a_checkpoint_in_cache_only_is_named_where_another_allocation_has_gone_on_without_it() {
    let mut world = job().set("SCR_FLUSH", "0");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    for (allocation, flush) in [("other", "1"), ("defjobid", "0")] {
        world.put("SCR_JOB_ID", allocation);
        world.put("SCR_FLUSH", flush);
        let run = world.run(|application| {
            let from = application.restart(some);
            application.checkpoint(if from.is_some() { 5 } else { 4 }, some).unwrap();
            from
        });
        if allocation == "other" {
            run.all_gave(&None);
        } else {
            run.all_gave(&Some(4));
            run.line_with(&[
                "WARNING",
                "`ckpt.3' is in cache only",
                "allocation other",
                "SCR_CURRENT=ckpt.3",
                "[SCR-321]",
            ]);
        }
    }
}

#[test]
fn purging_leaves_what_belongs_to_another_prefix_directory() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.turn_to("other");
    world.put("SCR_CACHE_PURGE", "1");
    world.run(|application| application.restart(some)).all_gave(&None);
    world.turn_to("prefix");
    world.put("SCR_CACHE_PURGE", "0");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

#[test]
fn an_id_too_large_to_increment_is_reported() {
    let world = job();
    let odd = world.node("n0/user1/scr.defjobid");
    for name in ["scr.dataset.18446744073709551615", "scr.dataset.007", "scr.dataset.9223372036854775807"] {
        std::fs::create_dir_all(odd.join(name)).unwrap();
    }
    let outcome = world.try_run(|application| application.map(|_| ()).map_err(|error| error.to_string()));
    for error in &outcome.ranks {
        assert!(error.as_ref().is_err_and(|error| error.contains("9223372036854775807")), "{error:?}");
    }
}

/// A folder that cannot be cleared away must not hide the checkpoint beside it.
#[test]
fn a_dataset_that_cannot_be_removed_hides_no_other() {
    let mut world = job();
    world.run(|application| application.checkpoint(2, some).unwrap());
    let gone = world.node("n1/user1/scr.defjobid/scr.dataset.7/.scr/filemap_1.gone");
    std::fs::create_dir_all(gone.parent().unwrap()).unwrap();
    std::fs::write(&gone, b"").unwrap();
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only_below(world.node("n1/user1/scr.defjobid/scr.dataset.7"));
    faulty.fail_from(0, ErrorKind::PermissionDenied);
    world.files = Arc::new(faulty.clone());
    let outcome = world.run(|application| application.restart(some));
    outcome.all_gave(&Some(2));
    assert!(faulty.count(What::RemoveFile) > 0);
    outcome.line_with(&["ERROR", "filemap_1.gone"]);
}

/// Another job of the allocation was just beginning a part, and its filemap was still empty.
#[test]
fn a_dataset_that_another_job_has_begun_is_not_removed() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let maps = [0, 1].map(|rank| world.cached_file(&[&format!("n{rank}/"), "filemap_"]));
    let begun = maps.clone().map(|map| std::fs::read(map).unwrap());
    maps.iter().for_each(|map| std::fs::write(map, b"").unwrap());
    world.turn_to("other");
    world.run(|application| {
        if let Some(begun) = begun.get(application.rank.index()) {
            std::fs::write(&maps[application.rank.index()], begun).unwrap();
        }
        application.checkpoint(2, some).unwrap();
    });
    world.turn_to("prefix");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// Nodes with a checkpoint were away, and the numbers of the prefix directory were lost with them.
fn with_a_number_given_twice(world: World) -> World {
    world.run(|_| ());
    // As after an older copy of the prefix directory was put back.
    let ids = world.prefix().join(".scr/ids.scr");
    let old = std::fs::read(&ids).unwrap();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let kept = world.keep();
    world.lose("");
    // It finds nothing, says so to the commands, and ends.
    world.run(|_| ());
    std::fs::write(&ids, old).unwrap();
    let world = world.set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(2, some).unwrap());
    world.put_back(&kept);
    world
}

#[test]
fn a_dataset_whose_number_another_one_has_in_the_index_is_not_taken_for_it() {
    let world = with_a_number_given_twice(job()).set("SCR_GLOBAL_RESTART", "1");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    // Nor does the one leave for the other.
    let world = world.set("SCR_GLOBAL_RESTART", "0").set("SCR_FETCH", "0").set("SCR_CURRENT", "ckpt.1");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.session().start_restart().unwrap();
        application.session().complete_restart(false).unwrap_err();
    });
    // Nor was the other one refused.
    world.lose("");
    let world = world.set("SCR_FETCH", "1").unset("SCR_CURRENT");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// Somebody has moved the files of a part to a larger disk, and left a link; what was there besides went with the dataset.
#[test]
fn a_link_in_the_place_of_a_folder_is_removed_and_not_followed() {
    let world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let (folder, elsewhere) =
        (world.node("n2/user1/scr.defjobid/scr.dataset.1/r2"), world.dir().join("disk"));
    std::fs::rename(&folder, &elsewhere).unwrap();
    std::fs::write(elsewhere.join("mine"), b"kept").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(2, some).unwrap();
        assert!(!has(&world, application.rank, 1));
    });
    assert!(elsewhere.join("mine").exists());
}

/// Two jobs of one allocation that began at the same time count from the same number.
#[test]
fn an_id_taken_by_another_job_on_a_node_is_skipped() {
    let world = job();
    let theirs =
        [2, 3].map(|id| world.node(&format!("n2/user1/scr.defjobid/scr.dataset.{id}/.scr/filemap_2")));
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if application.rank == Rank(2) {
            for filemap in &theirs {
                std::fs::create_dir_all(filemap.parent().unwrap()).unwrap();
                std::fs::write(filemap, b"theirs").unwrap();
            }
        }
        application.checkpoint(4, some).unwrap();
        assert!(has(&world, application.rank, 4));
        application.checkpoint(5, some).unwrap();
        assert!(has(&world, application.rank, 5));
    });
    assert!(outcome.has_line_with("Starting dataset 4 `ckpt.4'"), "{:?}", outcome.lines);
    assert!(
        theirs.iter().all(|filemap| std::fs::read(filemap).unwrap() == b"theirs"),
        "nothing is taken away from others"
    );
    world.run(|application| application.restart(some)).all_gave(&Some(5));
}

/// A command that runs as root for a user leaves the files the user's.
#[test]
fn a_flushed_file_belongs_to_whom_the_cached_one_did() {
    use std::os::unix::fs::{chown, MetadataExt as _};
    let world = job().set("SCR_FLUSH", "1");
    let me = rustix::process::getuid();
    // Only root can give a file away.
    let owner = if me.is_root() { 4321 } else { me.as_raw() };
    world.run(|application| {
        application.write(1, some).unwrap();
        let own = format!("rank_{}.", application.rank);
        let written =
            world.cached_files().into_iter().filter(|path| path.display().to_string().contains(&own));
        written.for_each(|path| chown(path, Some(owner), None).unwrap());
        application.session().complete_output(true).unwrap();
    });
    assert_eq!(std::fs::metadata(world.prefix().join("ckpt.1/rank_0.0")).unwrap().uid(), owner);
}

/// A forgotten `fclose`, or a stream in scope: its last bytes are in the memory of the application only.
#[test]
fn a_file_that_is_still_open_keeps_its_dataset_from_becoming_complete() {
    for bypass in ["0", "1"] {
        let world = job().set("SCR_CACHE_BYPASS", bypass);
        let outcome = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            application.begin(2).unwrap();
            application.fill(2, some).unwrap();
            let name = file_name(2, application.rank, 0);
            let path = application.session().route_file(name.as_bytes()).unwrap();
            let open = (application.rank == Rank(1))
                .then(|| std::fs::OpenOptions::new().append(true).open(path_of(&path)).unwrap());
            let error = application.session().complete_output(true).unwrap_err();
            drop(open);
            error.to_string()
        });
        for error in &outcome.ranks {
            assert!(error.contains("rank 1 on n1") && error.contains("ckpt.2"), "{error}");
            assert!(
                error.contains("is still open for writing; close it before SCR_Complete_output"),
                "{error}"
            );
        }
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// No checkpoint was complete while a program ran that the application had started with the file open.
#[test]
fn a_file_that_only_another_process_has_open_is_complete_and_a_warning_names_that_process() {
    for bypass in ["0", "1"] {
        let world = job().set("SCR_CACHE_BYPASS", bypass);
        let outcome = world.run(|application| {
            let mut started = Vec::new();
            for step in 1..=2 {
                application.begin(step).unwrap();
                application.fill(step, some).unwrap();
                let name = file_name(step, application.rank, 0);
                let path = application.session().route_file(name.as_bytes()).unwrap();
                if application.rank == Rank(1) {
                    let open = std::fs::OpenOptions::new().append(true).open(path_of(&path)).unwrap();
                    // It has the file until its input ends.
                    let program = std::process::Command::new("cat")
                        .stdin(std::process::Stdio::piped())
                        .stdout(open)
                        .spawn();
                    started.push(program.unwrap());
                }
                application.session().complete_output(true).unwrap();
            }
            let first = started.first().map(std::process::Child::id);
            for mut program in started {
                drop(program.stdin.take());
                program.wait().unwrap();
            }
            first
        });
        let process = format!("process {} (cat) still has it open for writing", outcome.ranks[1].unwrap());
        outcome.line_with(&["WARNING: rank 1 on n1", "rank_1.0 is closed here", &process]);
        assert_eq!(outcome.lines.iter().filter(|line| line.contains("still has it open")).count(), 1);
        world.run(|application| application.restart(some)).all_gave(&Some(2));
    }
}

/// It took the dataset that the first job was writing for one that had died with its job.
#[test]
fn a_second_job_in_the_same_allocation_leaves_alone_what_the_first_one_is_writing() {
    let world = job();
    let together = Barrier::new(4);
    world.run(|application| {
        application.write(1, some).unwrap();
        together.wait();
        if application.rank == Rank(0) {
            let second = world.run(|application| application.restart(some));
            second.all_gave(&None);
            second.line_with(&["dataset 1 `ckpt.1' is not complete", "it is left alone"]);
        }
        together.wait();
        application.session().complete_output(true).unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// A device, full for the entries of filemaps from this many on.
fn full_from(at: u64) -> Arc<FaultyFiles> {
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::Write && path.to_string_lossy().contains("/filemap_"));
    files.fail_from(at, ErrorKind::StorageFull);
    Arc::new(files)
}

/// No rank says that the dataset is complete, only that its part is prepared. The last entry is the fifth one.
fn with_prepared_parts() -> World {
    let mut world = job();
    (0..4).for_each(|rank| _ = world.own_files.insert(Rank(rank), full_from(5)));
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.own_files.clear();
    world
}

#[test]
fn a_second_job_leaves_alone_what_the_first_one_is_about_to_call_complete() {
    let world = with_prepared_parts();
    let map = world.cached_file(&["/n2/", "filemap_2"]);
    let running = RealFiles.open(&map, How::Update).unwrap();
    assert_eq!(running.try_lock(), LockAttempt::Taken);
    let second = world.run(|application| application.restart(some));
    second.all_gave(&None);
    second.line_with(&["dataset 1 `ckpt.1' is not complete", "it is left alone"]);
    drop(running);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// One rank could not write into its filemap that the dataset is complete: all went back to an older one.
#[test]
fn a_device_that_has_become_full_gives_a_whole_dataset() {
    let mut world = with_prepared_parts();
    world.own_files.insert(Rank(1), full_from(1));
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.own_files.clear();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// It evicted the only checkpoint of the first job as soon as it had one of its own.
#[test]
fn a_second_job_in_the_same_allocation_leaves_what_the_first_one_counts_on() {
    let world = job().set("SCR_CACHE_SIZE", "2");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let together = Barrier::new(4);
    let run = world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(2, some).unwrap();
        together.wait();
        let second = (application.rank == Rank(0)).then(|| {
            world.run(|application| (3..=5).for_each(|step| application.checkpoint(step, some).unwrap()))
        });
        together.wait();
        let kept = [1, 2].map(|id| has(&world, application.rank, id));
        // They are its own to remove.
        (6..=7).for_each(|step| application.checkpoint(step, some).unwrap());
        (kept, [1, 2].map(|id| has(&world, application.rank, id)), second)
    });
    for (kept, later, _) in &run.ranks {
        assert_eq!((kept, later), (&[true, true], &[false, false]));
    }
    run.ranks[0].2.as_ref().unwrap().line_with(&["stays in cache: another running job has it as well"]);
}

/// The first job, which alone was known to others, had ended; and whoever wanted an empty cache asked nobody.
#[test]
fn a_third_job_leaves_alone_what_the_second_one_is_writing() {
    for purges in ["0", "1"] {
        let world = job().set("SCR_CACHE_PURGE", purges);
        let [begun, ends, over] = [(); 3].map(|()| Barrier::new(2));
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                world.run(|application| {
                    if application.rank == Rank(0) {
                        begun.wait();
                        ends.wait();
                    }
                });
                over.wait();
            });
            begun.wait();
            world.run(|application| {
                application.write(1, some).unwrap();
                together.wait();
                if application.rank == Rank(0) {
                    ends.wait();
                    over.wait();
                    world.run(|application| application.restart(some)).all_gave(&None);
                }
                together.wait();
                application.session().complete_output(true).unwrap();
            });
        });
        let world = world.set("SCR_CACHE_PURGE", "0");
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}

/// Something cleans up on a node while the job runs: everything of the user is gone there.
fn clean_up(world: &World, application: &Application, turns: &Barrier, node: usize) {
    turns.wait();
    if application.rank == Rank(2 * node as u32) {
        std::fs::remove_dir_all(world.node(&format!("n{node}"))).unwrap();
    }
    turns.wait();
}

#[test]
fn a_cache_that_is_removed_while_the_job_runs_is_made_again_and_protects_as_before() {
    for lost in ["n1", "n2"] {
        let (world, turns) = (World::new(8, 4), Barrier::new(8));
        let run = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            clean_up(&world, application, &turns, 1);
            application.checkpoint(2, some).unwrap();
            application.checkpoint(3, some).unwrap();
        });
        let warnings: Vec<_> =
            run.lines.iter().filter(|line| line.contains("was removed while the job ran")).collect();
        assert!(warnings.len() == 1 && warnings[0].contains("rank 2 on n1"), "{warnings:#?}");
        world.lose(lost);
        world.run(|application| application.restart(some)).all_gave(&Some(3));
    }
}

#[test]
fn a_checkpoint_from_which_the_cache_is_removed_fails_and_the_next_one_is_good() {
    let (world, turns) = (World::new(8, 4), Barrier::new(8));
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.write(2, some).unwrap();
        clean_up(&world, application, &turns, 3);
        assert!(application.session().complete_output(true).is_err());
        application.checkpoint(3, some).unwrap();
    });
    world.lose("n3");
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

#[test]
fn a_replacement_of_a_removed_cache_is_not_used() {
    let (world, turns) = (World::new(8, 4), Barrier::new(8));
    let theirs = world.dir().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    let run = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        clean_up(&world, application, &turns, 1);
        if application.rank == Rank(2) {
            std::fs::create_dir(world.node("n1")).unwrap();
            std::os::unix::fs::symlink(&theirs, world.node("n1/user1")).unwrap();
        }
        turns.wait();
        application.checkpoint(2, some).unwrap_err().to_string()
    });
    assert!(
        run.ranks.iter().all(|error| error.contains("n1/user1 is needed as a folder and is a symbolic link")),
        "{:?}",
        run.ranks[0]
    );
    assert_eq!(std::fs::read_dir(&theirs).unwrap().count(), 0);
}

fn damage(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[7] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

/// The parts on the remaining nodes made way for a copy that turned out to be damaged.
#[test]
fn what_cache_has_of_a_checkpoint_stays_until_the_copy_in_the_prefix_directory_is_fetched() {
    let mut world = job().set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    damage(&world.prefix().join(file_name(2, Rank(0), 0)));
    let all = world.nodes.clone();
    world.nodes = ["n0", "n1", "n4", "n5"].map(str::to_owned).to_vec();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.nodes = all;
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// It was whole, and left the cache for a damaged copy.
#[test]
fn a_whole_checkpoint_in_cache_stays_where_the_application_reads_a_damaged_copy() {
    for drops in ["0", "1"] {
        let mut world = job().set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2");
        world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
        damage(&world.prefix().join(file_name(2, Rank(0), 0)));
        let full = FaultyFiles::new(RealFiles);
        full.only_below(world.prefix().join("ckpt.2"));
        full.fail_from(1, ErrorKind::StorageFull);
        world.files = Arc::new(full);
        world.put("SCR_GLOBAL_RESTART", "1");
        world.put("SCR_DROP_AFTER_CURRENT", drops);
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        world.files = Arc::new(RealFiles);
        world.put("SCR_GLOBAL_RESTART", "0");
        world.run(|application| application.restart(some)).all_gave(&Some(2));
    }
}

/// The user had not gone back: the newest checkpoint was in cache only, where the application cannot read it.
#[test]
fn a_checkpoint_that_only_cache_has_is_not_dropped_when_an_older_one_is_fetched() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.put("SCR_FLUSH", "0");
    world.run(|application| application.checkpoint(2, some).unwrap());
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.prefix().join("ckpt.2"));
    full.fail_from(1, ErrorKind::StorageFull);
    world.files = Arc::new(full);
    world.put("SCR_GLOBAL_RESTART", "1");
    world.put("SCR_DROP_AFTER_CURRENT", "1");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.files = Arc::new(RealFiles);
    world.put("SCR_GLOBAL_RESTART", "0");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// The record of the fetch had the number of the older parts, which were passed over, and the checkpoint was lost.
#[test]
fn a_damaged_checkpoint_that_was_read_in_place_is_rebuilt_from_older_parts_on_other_nodes() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let all = world.nodes.clone();
    world.nodes = ["n4", "n5", "n6", "n7"].map(str::to_owned).to_vec();
    world.put("SCR_FETCH_BYPASS", "1");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    damage(&world.prefix().join(file_name(1, Rank(0), 0)));
    // One node is away, and another one has the record of the fetch.
    world.nodes = ["n4".to_owned()].into_iter().chain(all[1..].iter().cloned()).collect();
    let outcome = world.run(|application| application.restart(some));
    outcome.all_gave(&Some(1));
    outcome.line_with(&["WARNING", "the record in cache of dataset 1 `ckpt.1' does not count"]);
}

/// A checkpoint that is in the caches of four nodes as it was written, and in those of four others as it was fetched.
fn in_two_copies() -> World {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.nodes = ["n4", "n5", "n6", "n7"].map(str::to_owned).to_vec();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.put("SCR_FETCH", "0");
    world
}

/// The newer copy hid the older one, and the checkpoint was lost.
#[test]
fn a_copy_of_which_too_much_is_lost_does_not_hide_an_older_one() {
    let mut world = in_two_copies();
    world.nodes = ["n4", "n1", "n2", "n3"].map(str::to_owned).to_vec();
    let run = world.run(|application| application.restart(some));
    run.all_gave(&Some(1));
    run.line_with(&["cannot be restored from cache", "has lost the parts of ranks 1", "2", "3"]);
    // From here on it is whole on these nodes.
    world.lose("n3");
    world.nodes[3] = "n0".to_owned();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The older copy says nothing of that, and was offered.
#[test]
fn a_refused_checkpoint_does_not_come_back_from_an_older_copy() {
    let mut world = in_two_copies();
    world.run(|application| {
        application.session().start_restart().unwrap();
        application.session().complete_restart(false).unwrap_err();
    });
    let mixed = ["n4", "n1", "n2", "n3"];
    for nodes in [["n0", "n1", "n2", "n3"], mixed] {
        world.nodes = nodes.map(str::to_owned).to_vec();
        world.run(|application| application.restart(some)).all_gave(&None);
    }
}

#[test]
fn a_copy_of_which_too_much_is_lost_keeps_its_place_if_no_older_one_can_have_it() {
    for nodes in [["n4", "n5", "n2", "n3"], ["n2", "n3", "n4", "n5"], ["n4", "n5", "n0", "n1"]] {
        for back in [["n0", "n1", "n2", "n3"], ["n4", "n5", "n6", "n7"], ["n4", "n5", "n6", "n3"]] {
            let mut world = in_two_copies();
            world.nodes = nodes.map(str::to_owned).to_vec();
            world.run(|application| application.restart(some)).all_gave(&None);
            world.nodes = back.map(str::to_owned).to_vec();
            world.run(|application| application.restart(some)).all_gave(&Some(1));
        }
    }
}

/// The remains of the checkpoint were removed although nothing had taken its place.
#[test]
fn what_is_left_of_a_checkpoint_stays_until_a_newer_checkpoint_counts() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let all = world.nodes.clone();
    world.nodes = ["n0", "n4", "n2", "n5"].map(str::to_owned).to_vec();
    let output = OutputFlags { checkpoint: false, output: true };
    world.run(|application| {
        application.session().start_output(Some(b"plot"), output).unwrap();
        application.fill(2, some).unwrap();
        application.session().complete_output(true).unwrap();
    });
    // Nor for one that could not be listed.
    let full = FaultyFiles::new(RealFiles);
    full.only(|_, path| path.ends_with(".scr/index.scr"));
    full.never_pause();
    world.files = Arc::new(full.clone());
    world.put("SCR_CACHE_BYPASS", "1");
    world.run(|application| {
        application.write(3, some).unwrap();
        full.fail_from(1, ErrorKind::StorageFull);
        application.session().complete_output(true).unwrap_err();
    });
    world.files = Arc::new(RealFiles);
    (0..4).for_each(|rank| std::fs::remove_file(world.prefix().join(file_name(3, Rank(rank), 0))).unwrap());
    world.nodes = all;
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.nodes[1] = "n4".to_owned();
    world.nodes[3] = "n5".to_owned();
    world.run(|application| {
        application.checkpoint(4, some).unwrap();
        assert!(!has(&world, Rank(0), 1));
    });
}

#[test]
fn what_is_left_of_a_checkpoint_makes_way_for_its_copy_where_there_is_no_room_for_both() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.nodes = ["n0", "n1", "n4", "n5"].map(str::to_owned).to_vec();
    let full = FaultyFiles::new(RealFiles);
    let data = world.node("n0/user1/scr.defjobid");
    full.only(move |what, path| {
        what == What::Write && path.starts_with(&data) && path.ends_with(format!("rank_{}.0", 0))
    });
    // Enough for the copy, as far as can be known before, and little enough for a store that has run full.
    full.pretend_room(100_000);
    full.fail_once(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(0), Arc::new(full.clone()));
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    assert!(full.first_failed().is_some());
}

/// The directory of the user's name belongs to somebody else, and the store was spelled otherwise when the dataset was written:
/// the lost part was rebuilt in the other user's directory.
#[test]
fn a_lost_part_is_rebuilt_in_a_directory_that_this_run_has_checked() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let mut world = job();
    let theirs: Vec<_> = (0..4).map(|node| world.node(&format!("n{node}/user1"))).collect();
    for dir in &theirs {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir_all(dir).unwrap();
        std::os::unix::fs::chown(dir, Some(4321), None).unwrap();
        let everybody = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(dir.parent().unwrap(), everybody).unwrap();
    }
    let began = world.run(|application| application.checkpoint(1, some).unwrap());
    let warnings = began.lines.iter().filter(|line| line.contains("another user has made")).count();
    assert_eq!(warnings, 4, "one of each node: {:#?}", began.lines);
    std::fs::remove_dir_all(world.node("n1/user1.1")).unwrap();
    let nodes = world.dir().join("nodes").display().to_string();
    world.put("NODES", &nodes);
    world.put("SCR_CACHE_BASE", "$NODES/$SCR_NODE_NAME");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    assert!(theirs.iter().all(|dir| std::fs::read_dir(dir).unwrap().count() == 0));
    std::fs::remove_dir_all(world.node("n2/user1.1")).unwrap();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// A process that can open a file can keep its lock, and the job waited for another user who could only read.
#[test]
fn only_those_who_may_write_the_files_that_runs_lock_may_open_them() {
    let world = job().set("SCR_HALT_SECONDS", "600");
    let modes = |world: &World| {
        let names = ["halt.scr", "running", "running.2"].map(|name| world.prefix().join(".scr").join(name));
        names.map(|path| RealFiles.status(&path).unwrap().mode & 0o066)
    };
    world.run(|_| ());
    let other = RealFiles.open(&world.prefix().join(".scr/running"), How::Read).unwrap();
    assert_eq!(other.try_lock(), LockAttempt::Taken);
    world.run(|_| ());
    let of_writers = |mode: u32| mode & 0o044 == (mode & 0o022) << 1;
    assert!(modes(&world).into_iter().all(of_writers), "{:?}", modes(&world));
}

/// As in a container whose shared memory holds 64 KiB. The message named no setting, and came with the first checkpoint.
#[test]
fn a_store_without_room_for_a_record_is_reported_by_init_with_the_settings_that_help() {
    let mut world = job().set("SCR_CACHE_BYPASS", "1");
    let faulty = FaultyFiles::new(RealFiles);
    faulty.pretend_room(0);
    let base = world.node("n0");
    faulty.only(move |what, path| {
        what.mutates() && path.starts_with(&base) && path.to_string_lossy().contains("filemap")
    });
    faulty.fail_from(0, ErrorKind::StorageFull);
    world.files = Arc::new(faulty);
    let settings =
        "not even one that bypasses the cache. Make room there, or let SCR_CACHE_BASE or a STORE line";
    let run = world.run(|job| job.checkpoint(1, some).map_err(|error| error.to_string()).unwrap_err());
    run.line_with(&["WARNING", "is full (0 bytes can be written on n0)", settings]);
    for error in &run.ranks {
        assert!(error.contains(settings) && error.contains("rank 0 on n0"), "{error}");
    }
}

/// Two weak ones were kept, and after the loss of a node there was nothing.
#[test]
fn the_newest_checkpoint_that_survives_a_node_is_not_evicted_by_weaker_ones() {
    let lines = "SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=SINGLE\nCKPT=1 INTERVAL=3 TYPE=XOR\n";
    for has_room_for_three in [true, false] {
        let mut world = job().set("SCR_CACHE_SIZE", "2");
        std::fs::write(world.prefix().join(".scrconf"), lines).unwrap();
        let faulty = FaultyFiles::new(RealFiles);
        world.files = Arc::new(faulty.clone());
        world.run(|application| {
            (1..=3).for_each(|step| application.checkpoint(step, some).unwrap());
            if !has_room_for_three {
                faulty.pretend_room(10);
            }
            (4..=8).for_each(|step| application.checkpoint(step, some).unwrap());
            let kept = (1..=8).filter(|&step| has(&world, application.rank, step)).collect::<Vec<_>>();
            assert_eq!(kept, [6, 8], "room for three: {has_room_for_three}");
        });
        world.lose("n1");
        world.run(|application| application.restart(some)).all_gave(&Some(6));
    }
}

/// A checkpoint in the prefix directory survives as well.
#[test]
fn a_checkpoint_leaves_for_weaker_ones_once_a_newer_one_is_flushed() {
    let world = job().set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH", "5");
    let lines = "SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=SINGLE\nCKPT=1 INTERVAL=3 TYPE=XOR\n";
    std::fs::write(world.prefix().join(".scrconf"), lines).unwrap();
    world.run(|application| {
        (1..=5).for_each(|step| application.checkpoint(step, some).unwrap());
        let kept = (1..=5).filter(|&step| has(&world, application.rank, step)).collect::<Vec<_>>();
        assert_eq!(kept, [4, 5]);
    });
}

/// It was complete, and the last good one left the cache for it.
#[test]
fn a_checkpoint_without_files_takes_no_older_one_away() {
    let world = job();
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        let why = application.checkpoint(2, |_| Vec::new()).unwrap_err().to_string();
        assert!(why.contains("no rank has named a file with SCR_Route_file"), "{why}");
        assert_eq!(application.restart(some), Some(1));
    });
}
