//! Checkpoints that are protected while the application computes (`ENCODE=ASYNC`): local first, then protected. Here the ranks
//! protect them in the application's next call, so that it is known when; `threads` is the same with threads over TCP.

use super::crash::{checkpoints, nothing, restart_and_go_on, sizes, two_checkpoints, Schedule, XOR};
use super::scavenged::{save, try_to_save};
use super::world::{Sizes, World};
use scr_base::env::Link;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::scavenge::Outcome;
use scr_prefix::{FlushFile, Prefix};
use scr_test_kit::faulty::{Failure, FaultyFiles, What};
use std::fs::{read, write};
use std::io::ErrorKind;
use std::sync::Arc;

const SIZES: Sizes = sizes;

fn world(scheme: &str) -> World {
    World::new(4, 4).set("SCR_COPY_TYPE", scheme).set("SCR_ENCODE_ASYNC", "1")
}

/// The first is protected when the second begins, which stays local.
fn one_protected_and_one_local(world: &World) {
    world.run(|application| checkpoints(application, 1..=2)).all_gave(&2);
}

fn restarts_from(world: &World, step: Option<u64>) -> Vec<String> {
    let restarted = world.run(|application| application.restart(SIZES));
    restarted.all_gave(&step);
    restarted.lines
}

#[test]
fn a_local_checkpoint_survives_the_death_of_all_processes_and_is_protected_by_the_next_run() {
    for scheme in ["XOR", "PARTNER", "RS"] {
        let world = world(scheme);
        one_protected_and_one_local(&world);
        let lines = restarts_from(&world, Some(2));
        let told = |word: &str| lines.iter().any(|line| line.contains(word));
        assert!(
            told("the parts of 4 of 4 ranks were not protected yet") && told("protecting them with"),
            "{lines:?}"
        );
        world.lose("n1");
        restarts_from(&world, Some(2));
    }
}

#[test]
fn with_a_node_lost_the_run_restarts_from_the_newest_that_was_protected() {
    for scheme in ["XOR", "PARTNER", "RS"] {
        for lost in ["n0", "n1", "n3"] {
            let world = world(scheme);
            one_protected_and_one_local(&world);
            world.lose(lost);
            let lines = restarts_from(&world, Some(1));
            let why = "the redundancy set of ranks 0, 1, 2, 3 was not protected yet";
            assert!(lines.iter().any(|line| line.contains(why)), "{lines:?}");
        }
    }
}

#[test]
fn the_older_checkpoint_leaves_once_the_newer_one_is_protected() {
    let world = world("XOR");
    let run = world.run(|application| {
        let there = |world: &World| {
            let files = world.cached_files();
            let has = |id: u64| {
                files.iter().any(|path| path.display().to_string().contains(&format!("scr.dataset.{id}/")))
            };
            (1..=4).filter(|&id| has(id)).collect::<Vec<_>>()
        };
        let mut seen = Vec::new();
        for step in 1..=3 {
            application.checkpoint(step, SIZES).unwrap();
            application.session().should_exit().unwrap();
            seen.push(there(&world));
        }
        application.finalize().unwrap();
        seen.push(there(&world));
        seen
    });
    // Between two collective calls a rank may be ahead of another one by what it removes.
    assert_eq!(run.ranks[0][0], [1]);
    assert_eq!(run.ranks[0][1], [1, 2]);
    assert_eq!(run.ranks[0][2], [2, 3]);
    assert_eq!(run.ranks[0][3], [3]);
    world.lose("n2");
    restarts_from(&world, Some(3));
}

#[test]
fn the_end_of_the_run_waits_for_the_protection() {
    for halts in [false, true] {
        let world = world("XOR");
        world.run(|application| {
            checkpoints(application, 1..=2);
            if halts { application.halt() } else { application.finalize() }.unwrap();
        });
        world.lose("n3");
        restarts_from(&world, Some(2));
    }
}

#[test]
fn a_flush_begins_behind_the_protection_and_one_that_the_application_waits_for_comes_at_once() {
    let flushed = |world: &World| {
        let run = world.run(|application| {
            checkpoints(application, 1..=1);
        });
        run.has_line_with("Initiating flush")
    };
    let asynchronous =
        world("XOR").set("SCR_FLUSH", "1").set("SCR_FLUSH_ASYNC", "1").set("SCR_FLUSH_TYPE", "PTHREAD");
    assert!(!flushed(&asynchronous));
    let synchronous = world("XOR").set("SCR_FLUSH", "1");
    assert!(flushed(&synchronous));
    synchronous.lose("");
    restarts_from(&synchronous, Some(1));
    let run = asynchronous.run(|application| {
        assert_eq!(application.restart(SIZES), Some(1));
        checkpoints(application, 2..=2);
        application.finalize().unwrap();
    });
    run.line_with(&["Flush succeeded", "dataset 2"]);
    asynchronous.lose("");
    restarts_from(&asynchronous, Some(2));
}

#[test]
fn a_local_checkpoint_can_be_read_refused_and_dropped() {
    let world = world("XOR").set("SCR_CACHE_SIZE", "2");
    world
        .run(|application| {
            checkpoints(application, 1..=2);
            let read = application.restart(SIZES);
            application.session().drop_dataset(b"ckpt.2").unwrap();
            read
        })
        .all_gave(&Some(2));
    restarts_from(&world, Some(1));
    world.run(|application| {
        application.checkpoint(3, SIZES).unwrap();
        application.session().have_restart().unwrap();
        application.session().start_restart().unwrap();
        application.session().complete_restart(false).unwrap_err();
    });
    restarts_from(&world, Some(1));
}

/// Its bytes may not have got to the device, and nothing would show that.
#[test]
fn a_local_part_on_a_node_that_was_started_again_is_lost() {
    let world = world("XOR");
    one_protected_and_one_local(&world);
    let map = world.cached_file(&["/n2/", "scr.dataset.2/", "filemap_2"]);
    let boot = String::from_utf8(read("/proc/sys/kernel/random/boot_id").unwrap()).unwrap();
    let mut bytes = read(&map).unwrap();
    let at = bytes.windows(36).rposition(|part| part == boot.trim().as_bytes());
    let at = at.expect("the boot is recorded");
    // The record has a checksum: all records up to the last are read again, and that one is made anew.
    bytes[at] ^= 1;
    reseal(&mut bytes);
    write(&map, bytes).unwrap();
    let lines = restarts_from(&world, Some(1));
    assert!(lines.iter().any(|line| line.contains("started again before it was protected")), "{lines:?}");
}

/// Gives each record of a filemap the checksum of its bytes.
fn reseal(bytes: &mut [u8]) {
    let mut at = 8;
    while at + 8 <= bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let sum = crc32fast::hash(&bytes[at + 8..at + 8 + length]);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_be_bytes());
        at += 8 + length;
    }
}

#[test]
fn a_local_checkpoint_is_saved_after_the_job_if_all_of_it_is_there() {
    let world = world("XOR");
    one_protected_and_one_local(&world);
    let world = save(world, 2);
    world.lose("");
    restarts_from(&world, Some(2));
}

/// The application writes to a file of the local checkpoint, which stays as long as it was. It counted as the checkpoint then: it
/// was flushed, saved and restarted from, with checksums of what it had become.
#[test]
fn a_local_checkpoint_with_a_file_that_was_written_to_since_counts_for_nothing() {
    let write_to_it = |world: &World| {
        let mut files = world.cached_files().into_iter();
        let is_it = |path: &std::path::PathBuf| {
            path.ends_with("rank_1.0") && path.to_string_lossy().contains("scr.dataset.2/")
        };
        let path = files.find(is_it).unwrap();
        let mut bytes = read(&path).unwrap();
        bytes[0] ^= 1;
        write(&path, bytes).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(1)).unwrap();
    };
    let written_to = |finalizes: bool| {
        let world = world("XOR").set("SCR_FLUSH", "10");
        let run = world.run(|application| {
            checkpoints(application, 1..=2);
            if application.rank == Rank(1) {
                write_to_it(&world);
            }
            if finalizes {
                application.finalize().unwrap();
            }
        });
        assert_eq!(run.has_line_with("no job restarts from it, and it is not flushed"), finalizes);
        world
    };
    for finalizes in [true, false] {
        let world = written_to(finalizes);
        restarts_from(&world, Some(1));
    }
    let world = written_to(true);
    world.lose("");
    restarts_from(&world, Some(1));
    let (world, outcome) = try_to_save(written_to(false), 2);
    assert!(matches!(outcome, Outcome::Incomplete { .. }), "{outcome:?}");
    restarts_from(&world, Some(1));
}

#[test]
fn what_moves_to_other_nodes_is_protected_there() {
    let mut world = world("XOR");
    one_protected_and_one_local(&world);
    world.nodes.rotate_left(1);
    restarts_from(&world, Some(2));
    world.lose("n0");
    restarts_from(&world, Some(2));
}

/// It counted as changed after it was complete.
#[test]
fn what_moves_to_a_node_that_sets_no_times_is_whole_in_the_next_run() {
    let mut world = world("XOR");
    one_protected_and_one_local(&world);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.never_pause();
    faulty.only(|what, path| {
        let is_redundancy =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("redundancy_"));
        what == What::SetTimes || what == What::OpenToWrite && is_redundancy
    });
    faulty.fail_from(1, Failure::Number(1));
    world.files = Arc::new(faulty.clone());
    world.nodes.rotate_left(1);
    let lines = restarts_from(&world, Some(2));
    assert!(faulty.count(What::SetTimes) > 0);
    assert!(lines.iter().any(|line| line.contains("its redundancy cannot be made again")), "{lines:?}");
    world.files = Arc::new(RealFiles);
    let kept = world.keep();
    restarts_from(&world, Some(2));
    world.put_back(&kept);
    save(world, 2);
}

#[test]
#[ignore = "long"]
fn a_job_that_dies_at_any_moment_has_its_local_checkpoint() {
    let settings = &[("SCR_ENCODE_ASYNC", "1")];
    Schedule { settings, keep: 2, ..XOR }.run(nothing, |application| checkpoints(application, 1..=3));
    let before = |world: &mut World| two_checkpoints(world);
    Schedule { settings, keep: 2, ..XOR }.run(before, restart_and_go_on);
}

#[test]
fn a_job_that_dies_at_any_moment_with_a_node_has_what_was_protected() {
    let settings = &[("SCR_ENCODE_ASYNC", "1")];
    Schedule { settings, lost: Some("n2"), keep: 2, ..XOR }
        .run(nothing, |application| checkpoints(application, 1..=4).saturating_sub(1));
}

#[test]
fn what_cannot_be_protected_stays_local_and_older_ones_stay_with_it() {
    let mut world = world("XOR");
    let faulty = FaultyFiles::new(RealFiles);
    faulty.count_all();
    faulty.never_pause();
    faulty.only(|what, path| {
        what == What::OpenToWrite && path.ends_with("redundancy_1") && path.to_string_lossy().contains(".2/")
    });
    faulty.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(1), Arc::new(faulty.clone()));
    let run = world.run(|application| {
        checkpoints(application, 1..=2);
        application.finalize().unwrap();
    });
    assert!(faulty.first_failed().is_some());
    run.line_with(&[
        "dataset 2",
        "cannot be protected",
        "survives the death of processes, but not the loss of a node",
    ]);
    let is_left = |path: &std::path::PathBuf| {
        let path = path.to_string_lossy();
        path.contains("scr.dataset.2/") && path.contains("/redundancy_")
    };
    assert!(!world.cached_files().iter().any(is_left), "what is of no use takes no room");
    world.own_files.clear();
    let kept = world.keep();
    world.lose("n3");
    restarts_from(&world, Some(1));
    world.put_back(&kept);
    restarts_from(&world, Some(2));
    world.lose("n3");
    restarts_from(&world, Some(2));
}

#[test]
fn without_room_for_two_a_checkpoint_is_protected_at_once() {
    let world = world("XOR").with_store("EVICT=before");
    let run = world.run(|application| checkpoints(application, 1..=2));
    run.line_with(&["no room for a new checkpoint beside the protected one", "SCR_Complete_output waits"]);
    world.lose("n1");
    restarts_from(&world, Some(2));
}

mod threads {
    //! With threads that talk over TCP.

    use super::*;

    fn with_threads(world: &mut World) {
        world.link = Link::Tcp;
    }

    fn world(scheme: &str) -> World {
        let mut world = super::world(scheme);
        with_threads(&mut world);
        world
    }

    #[test]
    fn what_was_protected_survives_the_loss_of_a_node() {
        for scheme in ["XOR", "PARTNER", "RS"] {
            for nodes in [4, 2] {
                let mut world = World::new(4, nodes)
                    .set("SCR_COPY_TYPE", scheme)
                    .set("SCR_SET_FAILURES", "1")
                    .set("SCR_ENCODE_ASYNC", "1");
                with_threads(&mut world);
                let run = world.run(|application| {
                    checkpoints(application, 1..=3);
                    application.finalize().unwrap();
                });
                run.line_with(&["dataset 3", "is protected: "]);
                assert!(!run.has_line_with("ERROR"), "{:?}", run.lines);
                let kept = world.keep();
                for lost in 0..nodes {
                    world.put_back(&kept);
                    world.lose(&format!("n{lost}"));
                    restarts_from(&world, Some(3));
                }
            }
        }
    }

    /// More of them than are kept: each one leaves once a newer one is protected.
    #[test]
    fn several_may_be_under_way() {
        let world = world("XOR");
        world.run(|application| checkpoints(application, 1..=20)).all_gave(&20);
        restarts_from(&world, Some(20));
        world.run(|application| {
            checkpoints(application, 21..=40);
            application.finalize().unwrap();
        });
        world.lose("n3");
        restarts_from(&world, Some(40));
    }

    /// Work that takes hours within so low a limit is done at once when the application waits for it.
    #[test]
    fn a_limit_holds_while_the_application_computes() {
        for (limit, most) in [("SCR_ENCODE_ASYNC_BW", "1"), ("SCR_ENCODE_ASYNC_PERCENT", "0.00001")] {
            let world = world("XOR").set(limit, most);
            let run = world.run(|application| {
                checkpoints(application, 1..=2);
                for _ in 0..100 {
                    application.session().should_exit().unwrap();
                }
                let said = application.lines().concat();
                application.finalize().unwrap();
                said
            });
            let said = run.ranks.concat();
            assert!(said.contains("Starting") && !said.contains("is protected: "), "{said}");
            run.line_with(&["dataset 1", "is protected: "]);
            run.line_with(&["dataset 2", "is protected: "]);
            world.lose("n1");
            restarts_from(&world, Some(2));
        }
    }

    /// There were ever more of them, and with the loss of a node all were lost.
    #[test]
    fn where_checkpoints_come_faster_than_they_are_protected_the_application_waits_for_that() {
        let world = world("XOR").set("SCR_ENCODE_ASYNC_BW", "1");
        let run = world.run(|application| {
            checkpoints(application, 1..=6);
        });
        run.line_with(&["checkpoints are written faster than they are protected", "SCR_Start_output waits"]);
        world.lose("n1");
        restarts_from(&world, Some(4));
    }

    /// It left the cache, and nobody flushed it.
    #[test]
    fn a_local_checkpoint_that_is_due_is_flushed_although_output_after_it_is_protected_at_once() {
        let world = world("XOR").set("SCR_ENCODE_ASYNC_BW", "1").set("SCR_FLUSH", "1");
        let world = world.set("SCR_FLUSH_ASYNC", "1").set("SCR_FLUSH_TYPE", "PTHREAD");
        let run = world.run(|application| {
            checkpoints(application, 1..=1);
            application.output(2, SIZES).unwrap();
            application.finalize().unwrap();
        });
        run.line_with(&["Flush succeeded", "dataset 1"]);
        run.line_with(&["Flush succeeded", "dataset 2"]);
        world.lose("");
        restarts_from(&world, Some(2));
    }

    /// The bytes that it had then would have been those of the checkpoint.
    #[test]
    fn a_file_that_the_application_changes_too_late_is_not_protected() {
        let world = world("XOR").set("SCR_ENCODE_ASYNC_BW", "1");
        let run = world.run(|application| {
            checkpoints(application, 1..=1);
            if application.rank == Rank(0) {
                let is_it = |path: &std::path::PathBuf| path.to_string_lossy().ends_with("rank_0.0");
                let path = world.cached_files().into_iter().find(is_it).unwrap();
                let bytes: Vec<u8> = read(&path).unwrap().iter().map(|byte| byte ^ 1).collect();
                write(&path, bytes).unwrap();
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(1)).unwrap();
            }
            application.finalize().unwrap();
        });
        run.line_with(&["ERROR", "cannot be protected", "has changed since SCR_Complete_output"]);
        assert!(!run.has_line_with("is protected: "));
    }

    /// The message promised that the next call protects it, and that it survives the death of processes.
    #[test]
    fn one_that_was_changed_too_late_is_not_said_to_be_protected_later() {
        for is_cut in [false, true] {
            // The limit ends once the application waits, which is after the change.
            let world = world("XOR").set("SCR_ENCODE_ASYNC_BW", "1");
            let run = world.run(|application| {
                checkpoints(application, 1..=1);
                if application.rank == Rank(1) {
                    let is_it = |path: &std::path::PathBuf| path.to_string_lossy().ends_with("rank_1.0");
                    let path = world.cached_files().into_iter().find(is_it).unwrap();
                    let file = std::fs::File::options().write(true).open(&path).unwrap();
                    if is_cut {
                        file.set_len(1).unwrap();
                    }
                    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
                    file.set_modified(later).unwrap();
                }
                application.finalize().unwrap();
            });
            run.line_with(&["ERROR", "could not be protected while the application computes"]);
            run.line_with(&["cannot be protected", "no job restarts from it, and it is not flushed"]);
            for untrue in ["tries again to protect it", "survives the death of processes"] {
                assert!(!run.has_line_with(untrue), "{untrue}: {:?}", run.lines);
            }
            let listed = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().entries();
            let why = listed[0].in_cache.damage.as_ref().expect("commands know that no run restarts from it");
            assert!(why.ends_with("has changed its files"), "{why}");
        }
    }

    #[test]
    #[ignore = "long"]
    fn a_job_that_dies_at_any_moment_has_its_local_checkpoint() {
        let settings = &[("SCR_ENCODE_ASYNC", "1")];
        Schedule { settings, keep: 2, ..XOR }
            .run(with_threads, |application| checkpoints(application, 1..=3));
    }

    #[test]
    fn a_job_that_dies_at_any_moment_with_a_node_has_what_was_protected() {
        let settings = &[("SCR_ENCODE_ASYNC", "1")];
        // If one step has come to its end, nothing had failed in the step before.
        Schedule { settings, lost: Some("n2"), keep: 2, ..XOR }.run(with_threads, |application| {
            let mut whole = |step: u64| {
                checkpoints(application, step..=step) == step && application.session().have_restart().is_ok()
            };
            (1..=4).take_while(|&step| whole(step)).last().unwrap_or(0).saturating_sub(1)
        });
    }

    /// The redundancy of this dataset cannot be written once.
    fn faulty_redundancy_of(dataset: u64) -> FaultyFiles {
        let faulty = FaultyFiles::new(RealFiles);
        faulty.count_all();
        faulty.never_pause();
        faulty.only(move |what, path| {
            what == What::OpenToWrite
                && path.ends_with("redundancy_1")
                && path.to_string_lossy().contains(&format!(".{dataset}/"))
        });
        faulty.fail_once(1, ErrorKind::StorageFull);
        faulty
    }

    #[test]
    fn what_a_thread_cannot_do_is_done_in_the_next_call() {
        let mut world = world("XOR");
        let faulty = faulty_redundancy_of(2);
        world.own_files.insert(Rank(1), Arc::new(faulty.clone()));
        let run = world.run(|application| {
            checkpoints(application, 1..=2);
            application.finalize().unwrap();
        });
        assert!(faulty.first_failed().is_some());
        run.line_with(&["dataset 2", "could not be protected while the application computes"]);
        run.line_with(&["dataset 2", "is protected: "]);
        world.own_files.clear();
        world.lose("n1");
        restarts_from(&world, Some(2));
    }

    /// It left the cache for the newer one, and was in no place then.
    #[test]
    fn one_that_a_thread_could_not_protect_is_flushed_before_a_newer_one_takes_its_place() {
        // The limit ends once the application waits, which is in the end.
        let mut world = world("XOR")
            .set("SCR_ENCODE_ASYNC_BW", "1")
            .set("SCR_FLUSH", "2")
            .set("SCR_FLUSH_ASYNC", "1")
            .set("SCR_CACHE_SIZE", "1");
        let faulty = faulty_redundancy_of(2);
        world.own_files.insert(Rank(1), Arc::new(faulty.clone()));
        let run = world.run(|application| {
            checkpoints(application, 1..=3);
            application.finalize().unwrap();
        });
        assert!(faulty.first_failed().is_some());
        run.line_with(&["dataset 2", "could not be protected while the application computes"]);
        for step in [2, 3] {
            assert!(world.prefix().join(format!("ckpt.{step}")).exists(), "{step}");
        }
    }

    #[test]
    fn ranks_that_cannot_talk_protect_before_the_call_returns() {
        let world = world("XOR").set("SCR_TCP_INTERFACE", "ib77");
        let run = world.run(|application| checkpoints(application, 1..=1));
        run.line_with(&["ENCODE=ASYNC", "SCR_TCP_INTERFACE=ib77", "there are lo"]);
        world.lose("n1");
        restarts_from(&world, Some(1));
    }
}
