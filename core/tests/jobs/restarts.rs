//! The checkpoint that an application restarts from, and the errors if it cannot: the rules for the calls themselves.

use super::world::{contents, file_name, path_of, Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::{Error, OutputFlags};
use scr_ops::unsaved;
use scr_prefix::{FlushFile, Index, IndexEntry, Location, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::fixtures::ChangeIndex as _;
use std::io::ErrorKind;
use std::sync::Arc;

fn some(rank: Rank) -> Vec<usize> {
    vec![600 + rank.index(), 0, 9]
}

fn other(rank: Rank) -> Vec<usize> {
    vec![10, 600 + rank.index()]
}

fn on_one_rank(rank: Rank) -> Vec<usize> {
    if rank == Rank(1) {
        vec![10]
    } else {
        Vec::new()
    }
}

fn job() -> World {
    World::new(4, 4)
}

const CHECKPOINT: OutputFlags = OutputFlags { checkpoint: true, output: false };

/// The application cannot use what it was offered.
fn refuse(application: &mut Application) -> String {
    let usable = application.rank != Rank(1);
    application.session().start_restart().unwrap();
    application.session().complete_restart(usable).unwrap_err().to_string()
}

#[test]
fn a_checkpoint_that_one_rank_calls_invalid_fails_on_all_and_the_older_one_is_kept() {
    let world = job();
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.write(2, some).unwrap();
        let valid = application.rank != Rank(2);
        application.session().complete_output(valid).unwrap_err().to_string()
    });
    for error in &outcome.ranks {
        assert!(error.contains("dataset 2 `ckpt.2'") && error.contains("rank 2 on n2"), "{error}");
    }
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    assert!(world.cached_files().iter().all(|path| !path.to_string_lossy().contains("scr.dataset.2")));
}

/// It ended with success and a NOTE that some failures had not been printed.
#[test]
fn a_run_whose_last_checkpoint_failed_says_at_its_end_what_is_not_saved() {
    for (last_is_valid, says) in [(true, None), (false, Some("2 of 3 checkpoints of this run failed"))] {
        let outcome = job().run(|application| {
            for (step, is_valid) in [(1, false), (2, true), (3, last_is_valid)] {
                application.write(step, some).unwrap();
                assert_eq!(application.session().complete_output(is_valid).is_ok(), is_valid);
            }
            application.finalize().unwrap();
        });
        match says {
            Some(text) => assert!(outcome.has_line_with(text)),
            None => assert!(!outcome.has_line_with("checkpoints of this run failed")),
        }
    }
}

/// Of several in a row that did not even begin, the first one counted.
#[test]
fn each_checkpoint_that_cannot_be_begun_counts_as_failed() {
    let world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let world = world.set("SCR_REQUIRE_RESTART", "1");
    let outcome = world.run(|application| {
        (2..=4).for_each(|step| assert!(application.begin(step).is_err()));
        application.finalize().unwrap();
    });
    outcome.line_with(&["WARNING", "3 of 3 checkpoints of this run failed"]);
}

#[test]
fn relative_names_begin_at_the_prefix_directory_where_the_job_runs_outside_of_it() {
    for bypass in ["0", "1"] {
        let world = job().set("SCR_CACHE_BYPASS", bypass).set("SCR_FLUSH", "1");
        let elsewhere = world.dir().join("elsewhere");
        let begin = |application: &mut Application| application.session().work_in(elsewhere.clone());
        let written = world.run(|application| {
            begin(application);
            application.checkpoint(1, some).and_then(|()| application.finalize()).is_ok()
        });
        written.all_gave(&true);
        for rank in (0..4).map(Rank) {
            let found = std::fs::read(world.prefix().join(file_name(1, rank, 0))).unwrap();
            assert!(found == contents(1, rank, 0, some(rank)[0]), "{rank:?}, SCR_CACHE_BYPASS={bypass}");
        }
        let read = world.run(|application| {
            begin(application);
            application.restart(some)
        });
        read.all_gave(&Some(1));
        let refused = world.run(|application| {
            begin(application);
            application.begin(2).unwrap();
            application.session().route_file(b"../elsewhere/file").unwrap_err().to_string()
        });
        assert!(refused.ranks[0].contains("is outside the prefix directory"), "{}", refused.ranks[0]);
    }
}

#[test]
fn a_routed_file_that_was_never_written_fails_on_all_and_is_named() {
    let world = job();
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        let name = format!("ckpt.2/missing.{}", application.rank);
        let session = application.session();
        session.start_output(Some(b"ckpt.2"), CHECKPOINT).unwrap();
        session.route_file(name.as_bytes()).unwrap();
        session.complete_output(true).unwrap_err().to_string()
    });
    assert!(outcome.ranks.iter().all(|error| error.contains("missing.0 was routed")), "{:?}", outcome.ranks);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

#[test]
fn a_refused_checkpoint_gives_way_to_the_next_older_one_in_cache_and_then_in_the_prefix_directory() {
    let world = job().set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH", "1");
    world.run(|application| {
        for step in 1..=4 {
            application.checkpoint(step, some).unwrap();
        }
    });
    world.run(|application| {
        let error = refuse(application);
        assert!(error.contains("ckpt.4") && error.contains("the next older one is `ckpt.3'"), "{error}");
        let error = refuse(application);
        assert!(error.contains("the next older one is `ckpt.2'"), "{error}");
        assert_eq!(application.restart(some), Some(2));
    });
    // Neither is what was refused offered by the next run.
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    world.lose("");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(2));
        let _ = refuse(application);
        let error = refuse(application);
        assert!(error.contains("there is no older one"), "{error}");
        assert_eq!(application.session().have_restart().unwrap(), None);
        application.checkpoint(9, some).unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(9));
}

/// The checkpoint was marked as failed for good, and the next run began at zero.
#[test]
fn a_restart_that_fails_since_scr_refuses_a_name_does_not_count_against_the_checkpoint() {
    for bypass in ["0", "1"] {
        let world = job().set("SCR_CACHE_BYPASS", bypass).set("SCR_RESTART_ATTEMPTS", "1");
        world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
        let ask = |application: &mut Application| {
            application.session().start_restart().unwrap();
            let strange = application.rank == Rank(1);
            strange && application.session().route_file(b"ckpt.2/nobodys").is_err()
        };
        for _ in 0..2 {
            let outcome = world.run(|application| {
                let strange = ask(application);
                let refused = application.session().complete_restart(!strange).unwrap_err().to_string();
                // With no older one the application is not told to begin at zero.
                assert_eq!(
                    application.session().have_restart().is_ok_and(|name| name.is_some()),
                    bypass == "1"
                );
                refused
            });
            let error = &outcome.ranks[0];
            let words = ["rank 1", "`ckpt.2/nobodys' is not a file", "the next run offers it again"];
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        // An application usually reduces the flag, so that all ranks fail.
        world.run(|application| {
            ask(application);
            let error = application.session().complete_restart(false).unwrap_err().to_string();
            assert!(error.contains("offers it again"), "{error}");
        });
        // Without a refusal, a rank that has read its files and cannot use them counts.
        world.run(|application| {
            application.session().start_restart().unwrap();
            let usable = application.rank.0 > 0;
            let error = application.session().complete_restart(usable).unwrap_err().to_string();
            assert!(!error.contains("offers it again"), "{error}");
        });
        let left = world.run(|application| application.restart(some));
        left.all_gave(&(bypass == "1").then_some(1));
    }
}

#[test]
fn equal_base_names_in_one_rank_are_refused_and_in_two_ranks_do_not_meet() {
    let world = World::new(4, 2);
    let name = |rank: Rank| format!("r{rank}/state").into_bytes();
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"ckpt.1"), CHECKPOINT).unwrap();
        let path = session.route_file(&name(rank)).unwrap();
        std::fs::write(path_of(&path), format!("of {rank}")).unwrap();
        assert_eq!(session.route_file(&name(rank)).unwrap(), path, "a file may be routed twice");
        let error = session.route_file(b"elsewhere/state").unwrap_err().to_string();
        assert!(error.contains("the same base name"), "{error}");
        session.complete_output(true).unwrap_err();
        session.start_output(Some(b"ckpt.1"), CHECKPOINT).unwrap();
        let path = session.route_file(&name(rank)).unwrap();
        std::fs::write(path_of(&path), format!("of {rank}")).unwrap();
        session.complete_output(true).unwrap();
    });
    world.lose("n0");
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        session.start_restart().unwrap();
        let path = session.route_file(&name(rank)).unwrap();
        assert_eq!(std::fs::read(path_of(&path)).unwrap(), format!("of {rank}").into_bytes());
        // The file of another rank, on this node or on the other one.
        let other = Rank((rank.0 + 1) % 4);
        match session.route_file(&name(other)) {
            Ok(path) => {
                assert_eq!(std::fs::read(path_of(&path)).unwrap(), format!("of {other}").into_bytes());
            }
            Err(_) => assert_eq!(rank.0 % 2, 1, "the cache of the node has it"),
        }
        session.complete_restart(true).unwrap();
    });
}

fn bytes_of(rank: Rank, name: &str) -> Vec<u8> {
    format!("{name} of {rank}").repeat(40 + name.len()).into_bytes()
}

/// Writes a checkpoint whose files have these names in a folder of each rank, and compares every byte after the loss of each of
/// these nodes.
fn comes_back_by_name(names: &[&str], lost: &[&str]) {
    let path_name = |rank: Rank, name: &str| format!("of_{rank}/{name}").into_bytes();
    let world = job();
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"ckpt.1"), CHECKPOINT).unwrap();
        for name in names {
            let path = session.route_file(&path_name(rank, name)).unwrap();
            std::fs::write(path_of(&path), bytes_of(rank, name)).unwrap();
        }
        session.complete_output(true).unwrap();
    });
    for node in lost {
        world.lose(node);
        world.run(|application| {
            let rank = application.rank;
            let session = application.session();
            session.start_restart().unwrap();
            for name in names {
                let path = session.route_file(&path_name(rank, name)).unwrap();
                assert!(std::fs::read(path_of(&path)).unwrap() == bytes_of(rank, name), "{name} of {rank}");
            }
            session.complete_restart(true).unwrap();
        });
    }
}

/// The files of a part lie end to end for the scheme, in the order in which they were routed, whatever their names.
#[test]
fn files_routed_in_any_order_are_rebuilt() {
    comes_back_by_name(&["z", "a", "m/y", "b"], &["n1", "n2", "n1"]);
}

/// A file that was being rebuilt had the name that the application had given to another one, and took its place.
#[test]
fn files_that_have_the_names_of_files_being_rebuilt_are_rebuilt() {
    comes_back_by_name(&[".scr-rebuild-1", ".scr-rebuild-0", "state", ".scr-rebuild-2~"], &["n1"]);
}

#[test]
fn a_reused_name_means_the_newer_dataset_in_cache_and_prefix_directory() {
    let world = job().set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2");
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.checkpoint(1, other).unwrap();
    });
    world.lose("n3");
    world.run(|application| application.restart(other)).all_gave(&Some(1));
    world.lose("");
    world.run(|application| {
        assert_eq!(application.restart(other), Some(1));
        let error = refuse(application);
        assert!(error.contains("there is no older one"), "{error}");
    });
}

#[test]
fn ranks_without_files_take_part() {
    let world = job();
    world.run(|application| (2..=3).for_each(|step| application.checkpoint(step, on_one_rank).unwrap()));
    world.lose("n1");
    world.run(|application| application.restart(on_one_rank)).all_gave(&Some(3));
}

#[test]
fn flushed_datasets_are_fetched_when_all_nodes_are_lost() {
    let world = job().set("SCR_FLUSH", "2");
    world.run(|application| {
        for step in 1..=5 {
            application.checkpoint(step, some).unwrap();
        }
    });
    world.lose("");
    world.run(|application| application.restart(some)).all_gave(&Some(4));
    // It is in cache now, as good as any other.
    world.lose("n0");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(4));
        application.checkpoint(5, some).unwrap();
        application.finalize().unwrap();
    });
    world.lose("");
    world.run(|application| application.restart(some)).all_gave(&Some(5));
}

/// A run had another cache and continued from what it fetched. The next one had the first cache again, and went back to what it
/// found there.
#[test]
fn a_newer_dataset_in_the_prefix_directory_wins_over_an_older_run_in_cache() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let kept = world.keep();
    world.lose("");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(2, other).unwrap();
    });
    world.put_back(&kept);
    world.put("SCR_FETCH", "0");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.put("SCR_FETCH", "1");
    let again = world.run(|application| application.restart(other));
    again.all_gave(&Some(2));
    again.line_with(&["restarting from dataset 2 `ckpt.2'", "ckpt.2: in cache, in the prefix directory"]);
}

fn bypass() -> World {
    job().set("SCR_CACHE_BYPASS", "1").set("SCR_FLUSH", "10")
}

/// Who opens a pipe waits for ever, in a call that is not of this library.
#[test]
fn a_pipe_in_the_place_of_a_file_is_not_given_to_the_application() {
    let world = bypass();
    let refused = |path: Result<Vec<u8>, Error>| {
        let why = path.unwrap_err().to_string();
        assert!(why.contains("is neither file nor folder"), "{why}");
    };
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        let name = file_name(1, application.rank, 0);
        let path = world.prefix().join(&name);
        let pipe_instead = || {
            std::fs::remove_file(&path).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        };
        application.session().start_restart().unwrap();
        pipe_instead();
        refused(application.session().route_file(name.as_bytes()));
        application.session().complete_restart(false).unwrap_err();
        application.begin(1).unwrap();
        refused(application.session().route_file(name.as_bytes()));
        application.session().complete_output(true).unwrap_err();
    });
}

#[test]
fn in_bypass_mode_files_are_in_the_prefix_directory_all_along() {
    let world = bypass();
    world.run(|application| {
        application.write(1, some).unwrap();
        assert!(world.prefix().join(format!("ckpt.1/rank_{}.0", application.rank)).exists());
        application.session().complete_output(true).unwrap();
        application.checkpoint(2, some).unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    world.lose("n1");
    world.run(|application| application.restart(some)).all_gave(&Some(2));
    world.lose("");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(2));
        let error = refuse(application);
        assert!(error.contains("the next older one is `ckpt.1'"), "{error}");
        assert_eq!(application.restart(some), Some(1));
    });
}

/// The files of the older dataset are overwritten in place. The job died in between, and the index still had the
/// older one as complete: the next run restarted from half of each.
#[test]
fn in_bypass_mode_an_overwritten_dataset_is_not_restarted_from() {
    for lost in [None, Some("")] {
        let world = bypass();
        world.run(|application| {
            application.checkpoint(1, some).unwrap();
            application.session().start_output(Some(b"ckpt.1"), CHECKPOINT).unwrap();
            let name = super::world::file_name(1, application.rank, 0);
            let path = application.session().route_file(name.as_bytes()).unwrap();
            let written =
                std::fs::read(path_of(&path)).unwrap().iter().map(|byte| byte ^ 1).collect::<Vec<_>>();
            std::fs::write(path_of(&path), written).unwrap();
        });
        lost.into_iter().for_each(|node| world.lose(node));
        world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    }
}

/// Nothing was left of either when it died in the next one, and nobody had been told.
#[test]
fn in_bypass_mode_a_checkpoint_over_the_files_of_the_only_other_one_causes_one_warning() {
    const WORDS: &str = "is written over files of the only older checkpoint";
    let write = |application: &mut Application, step: u64, folder: &str| {
        let name = format!("step.{step}");
        application.session().start_output(Some(name.as_bytes()), CHECKPOINT).unwrap();
        let file = format!("{folder}/{}", application.rank);
        let path = application.session().route_file(file.as_bytes()).unwrap();
        std::fs::write(path_of(&path), name).unwrap();
        application.session().complete_output(true).unwrap();
    };
    for flush in ["0", "1"] {
        let warnings = |folders: [&str; 4]| {
            let world = bypass().set("SCR_FLUSH", flush);
            let run = world.run(|application| {
                let steps = folders.iter().zip(1..);
                steps.for_each(|(folder, step)| write(application, step, folder));
            });
            let said = run.lines.into_iter().filter(|line| line.contains(WORDS));
            said.map(|line| line.contains("`step.2'") && line.contains("SCR_CACHE_BYPASS=0"))
                .collect::<Vec<_>>()
        };
        assert_eq!(warnings(["one"; 4]), [true], "SCR_FLUSH={flush}");
        assert!(warnings(["one", "two", "three", "four"]).is_empty());
        assert!(warnings(["one", "two", "one", "two"]).is_empty(), "the other one is left");
    }
}

/// All checkpoints have one name and files of their own. When the next one began, the older one counted no more, and the run
/// after a crash began without any.
#[test]
fn in_bypass_mode_a_dataset_counts_until_a_newer_one_of_its_name_is_complete() {
    for (checksums, lost, valid) in
        [("1", None, None), ("1", Some(""), None), ("1", Some(""), Some(false)), ("0", None, Some(false))]
    {
        let world = bypass().set("SCR_CRC_ON_FLUSH", checksums);
        world.run(|application| {
            application.checkpoint_as(b"one", 1, some).unwrap();
            application.checkpoint_as(b"one", 2, some).unwrap();
            application.session().start_output(Some(b"one"), CHECKPOINT).unwrap();
            application.fill(3, some).unwrap();
            valid
                .into_iter()
                .for_each(|valid| assert!(application.session().complete_output(valid).is_err()));
        });
        let index = || Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        let current: Vec<u64> =
            index().entries().iter().filter(|entry| entry.current).map(|entry| entry.id).collect();
        assert_eq!(current, [2]);
        lost.into_iter().for_each(|node| world.lose(node));
        world.run(|application| {
            assert_eq!(application.session().start_restart().unwrap(), b"one");
            application.compare(2, some).unwrap();
            application.session().complete_restart(true).unwrap();
            application.checkpoint_as(b"one", 4, some).unwrap();
        });
        let listed: Vec<_> = index().entries().into_iter().filter(IndexEntry::is_valid).collect();
        assert_eq!((listed.len(), listed[0].name.as_slice(), listed[0].current), (1, &b"one"[..], true));
        world.lose("");
        world.run(|application| {
            application.session().start_restart().unwrap();
            application.compare(4, some).unwrap();
            application.session().complete_restart(true).unwrap();
        });
    }
}

/// A checkpoint was read in the prefix directory, and a newer one of its name was flushed over it. Once the application had
/// refused that one it was given the same bytes again, as those of the older one.
#[test]
fn a_dataset_replaced_by_a_refused_one_of_its_name_is_not_restarted_from() {
    fn write(application: &mut Application, bytes: &str) {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"ckpt"), CHECKPOINT).unwrap();
        let path = session.route_file(format!("ckpt/{rank}").as_bytes()).unwrap();
        std::fs::write(path_of(&path), bytes).unwrap();
        session.complete_output(true).unwrap();
    }
    let mut world = job().set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "2").set("SCR_FETCH_BYPASS", "1");
    world.run(|application| write(application, "older"));
    world.lose("");
    world.put("SCR_FLUSH", "0");
    world.run(|application| write(application, "newer"));
    world.put("SCR_FLUSH", "1");
    let after = world.run(|application| {
        refuse(application);
        application.session().have_restart().unwrap()
    });
    after.all_gave(&None);
}

/// It stayed listed as whole, as a newer one of its name lay in a cache, and the next run restarted from it.
#[test]
fn a_refused_dataset_stays_refused_where_a_newer_one_of_its_name_is_in_cache_only() {
    let mut world = job().set("SCR_CACHE_SIZE", "2");
    for (flush, step) in [("1", 1), ("0", 2)] {
        world.put("SCR_FLUSH", flush);
        world.run(|application| application.checkpoint_as(b"ckpt", step, some).unwrap());
    }
    world.run(|application| {
        let error = refuse(application);
        assert!(error.contains("the next older one is `ckpt'"), "{error}");
        let error = refuse(application);
        assert!(error.contains("there is no older one"), "{error}");
    });
    world.lose("");
    world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
}

/// It lay in cache only, and was never flushed again: the refused one had its name.
#[test]
fn the_checkpoint_that_takes_the_place_of_a_refused_one_of_its_name_is_flushed_again() {
    for goes_on in [true, false] {
        let world = job().set("SCR_CACHE_SIZE", "2").set("SCR_FLUSH", "1");
        for step in [1, 2] {
            world.run(|application| application.checkpoint_as(b"ckpt", step, some).unwrap());
        }
        world.run(|application| {
            let error = refuse(application);
            assert!(error.contains("the next older one is `ckpt'"), "{error}");
            application.session().start_restart().unwrap();
            application.compare(1, some).unwrap();
            application.session().complete_restart(true).unwrap();
            if goes_on {
                application.finalize().unwrap();
            }
        });
        if !goes_on {
            world.run(|application| application.finalize().unwrap());
        }
        world.lose("");
        world.run(|application| {
            assert_eq!(application.session().have_restart().unwrap().as_deref(), Some(&b"ckpt"[..]));
            application.session().start_restart().unwrap();
            application.compare(1, some).unwrap();
            application.session().complete_restart(true).unwrap();
        });
    }
}

#[test]
fn in_bypass_mode_a_file_that_was_written_to_since_is_not_restarted_from() {
    for (checksums, fetch) in [("1", "0"), ("0", "0"), ("1", "1"), ("0", "1")] {
        let world = bypass().set("SCR_CRC_ON_FLUSH", checksums).set("SCR_FETCH", fetch);
        world.run(|application| application.checkpoint(1, some).unwrap());
        let file = world.prefix().join("ckpt.1/rank_2.0");
        let bytes: Vec<u8> = std::fs::read(&file).unwrap().iter().map(|byte| byte ^ 1).collect();
        std::fs::write(&file, bytes).unwrap();
        // The clock of the file system may not have moved on since.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        std::fs::File::options().append(true).open(&file).unwrap().set_modified(later).unwrap();
        world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    }
}

/// The job died after the dataset was complete and before the index had it; when the allocation ended, it was lost.
#[test]
fn in_bypass_mode_a_checkpoint_that_was_not_listed_is_listed_at_the_end() {
    let world = bypass();
    world.run(|application| application.checkpoint(1, some).unwrap());
    std::fs::remove_file(world.prefix().join(".scr/index.scr")).unwrap();
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
    });
    world.lose("");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

#[test]
fn once_the_checkpoint_to_restart_from_has_left_there_is_none() {
    let world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        assert_eq!(application.session().have_restart().unwrap(), Some(b"ckpt.1".to_vec()));
        application.checkpoint(2, some).unwrap();
        assert_eq!(application.session().have_restart().unwrap(), Some(b"ckpt.2".to_vec()));
        application.session().delete(b"ckpt.2").unwrap();
        assert_eq!(application.session().have_restart().unwrap(), None);
        let error = application.session().start_restart().unwrap_err();
        assert!(matches!(error, Error::State { .. }), "{error}");
    });
}

#[test]
fn a_call_in_a_wrong_state_is_an_error_and_changes_nothing() {
    let world = job();
    world.run(|application| {
        let is_state = |error: Error| assert!(matches!(error, Error::State { .. }), "{error}");
        let session = application.session();
        is_state(session.complete_output(true).unwrap_err());
        is_state(session.complete_restart(true).unwrap_err());
        is_state(session.start_restart().unwrap_err());
        assert_eq!(session.route_file(b"anything").unwrap(), b"anything");
        application.write(1, some).unwrap();
        let session = application.session();
        is_state(session.start_output(Some(b"second"), CHECKPOINT).unwrap_err());
        is_state(session.have_restart().unwrap_err());
        is_state(session.start_restart().unwrap_err());
        is_state(session.complete_restart(true).unwrap_err());
        is_state(session.need_checkpoint().unwrap_err());
        is_state(session.should_exit().unwrap_err());
        is_state(session.current(b"ckpt.1").unwrap_err());
        is_state(session.drop_dataset(b"ckpt.1").unwrap_err());
        is_state(session.delete(b"ckpt.1").unwrap_err());
        session.complete_output(true).unwrap();
    });
    world.run(|application| {
        let session = application.session();
        session.start_restart().unwrap();
        assert!(matches!(session.start_output(None, CHECKPOINT).unwrap_err(), Error::State { .. }));
        assert!(matches!(session.complete_output(true).unwrap_err(), Error::State { .. }));
        application.compare(1, some).unwrap();
        application.session().complete_restart(true).unwrap();
        application.checkpoint(2, some).unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

#[test]
fn an_argument_that_cannot_be_used_is_an_error_and_changes_nothing() {
    let world = job();
    world.run(|application| {
        let rank = application.rank;
        let name = format!("ckpt.{}", rank.0 / 2);
        let error = application.session().start_output(Some(name.as_bytes()), CHECKPOINT).unwrap_err();
        assert!(error.to_string().contains("different names or flags"), "{error}");
        application.session().start_output(Some(b"ckpt.1"), CHECKPOINT).unwrap();
        let long = vec![b'x'; 2000];
        let ours = b".scr/index.scr";
        for outside in [&b""[..], b"folder/", b"../outside", b"/etc/passwd", b"a/../../b", b".", ours, &long]
        {
            let error = application.session().route_file(outside).unwrap_err();
            assert!(matches!(error, Error::Argument(_)), "{error}");
        }
        let itself = application.session().route_file(b".").unwrap_err();
        assert!(itself.to_string().contains("the prefix directory itself"), "{itself}");
        application.fill(1, some).unwrap();
        let error = application.session().complete_output(true).unwrap_err().to_string();
        assert!(error.contains("SCR_Route_file has failed for"), "{error}");
        application.checkpoint(1, some).unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The application did not look at what `SCR_Route_file` returned, wrote its file somewhere else, and called the dataset valid:
/// that was offered to the next run, without the file.
#[test]
fn a_dataset_that_lacks_a_file_which_could_not_be_routed_is_complete_only_if_that_is_routed_after_all() {
    let mut world = job();
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.node("n1"));
    world.own_files.insert(Rank(1), Arc::new(full.clone()));
    let lacks_a_file = |application: &mut Application, step: u64| {
        application.begin(step).unwrap();
        if application.rank == Rank(1) {
            full.fail_from(0, ErrorKind::StorageFull);
            application.session().route_file(format!("ckpt.{step}/more").as_bytes()).unwrap_err();
            full.heal();
        }
        application.fill(step, some).unwrap();
    };
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        lacks_a_file(application, 2);
        let message = application.session().complete_output(true).unwrap_err().to_string();
        lacks_a_file(application, 3);
        if application.rank == Rank(1) {
            let path = application.session().route_file(b"./ckpt.3/more").unwrap();
            std::fs::write(path_of(&path), b"here it is").unwrap();
        }
        application.session().complete_output(true).unwrap();
        message
    });
    let message = &outcome.ranks[0];
    let words = ["rank 1 on n1", "ckpt.2/more, and the dataset would be without it: cannot record the file"];
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    outcome.all_gave(message);
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

/// Each restart wrote to the filemaps once more, and where a device took no more bytes, what it still gave was not used.
#[test]
fn a_whole_checkpoint_on_a_device_that_can_only_be_read_is_restarted_from() {
    let mut world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    let full = FaultyFiles::new(RealFiles);
    full.only_below(world.node("n1/user1/scr.defjobid/scr.dataset.1"));
    full.fail_from(1, ErrorKind::StorageFull);
    world.own_files.insert(Rank(1), Arc::new(full));
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The files that a rebuild wrote made all ranks forget the refusal.
#[test]
fn a_refused_checkpoint_stays_refused_when_a_lost_part_of_it_is_rebuilt() {
    let world = job();
    world.run(|application| application.checkpoint(1, some).unwrap());
    world.run(|application| drop(refuse(application)));
    world.lose("n1");
    for _ in 0..2 {
        world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    }
}

/// The dataset has another number in cache than in the index, and the number in cache decided which ones were newer.
#[test]
fn going_back_drops_the_newer_checkpoints_whatever_number_the_older_one_has_in_cache() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.lose("");
    world.turn_to("other");
    world.run(|application| application.checkpoint(9, some).unwrap());
    world.turn_to("prefix");
    world.put("SCR_CURRENT", "ckpt.1");
    world.put("SCR_DROP_AFTER_CURRENT", "1");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix()));
    let listed: Vec<u64> = index.unwrap().entries().iter().map(|entry| entry.id).collect();
    assert_eq!(listed, [1]);
}

/// It was listed under its number in cache, as if it were newer than the checkpoints that came after it.
#[test]
fn a_fetched_checkpoint_that_is_flushed_again_stays_older_than_those_after_it() {
    let mut world = job().set("SCR_FLUSH", "1");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.lose("");
    world.turn_to("other");
    world.run(|application| application.checkpoint(9, some).unwrap());
    world.turn_to("prefix");
    world.put("SCR_CURRENT", "ckpt.1");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    // The choice of that run does not bind later ones.
    world = world.unset("SCR_CURRENT");
    let prefix = Prefix::new(world.prefix());
    Index::update(&RealFiles, &prefix, |index| {
        index.mark_failed(1, "2026-01-01T00:00:00");
        index.set_current(b"ckpt.3");
    })
    .unwrap();
    world.run(|application| application.restart(some)).all_gave(&Some(3));
    let index = Index::read(&RealFiles, &prefix).unwrap();
    let listed: Vec<u64> = index.entries().iter().map(|entry| entry.id).collect();
    assert_eq!(listed, [3, 2, 1]);
    world.lose("");
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

/// The first of them was given, whichever the application meant.
#[test]
fn a_base_name_of_two_files_of_a_rank_names_neither() {
    let world = bypass();
    let name = |folder: &str, rank: Rank| format!("{folder}/state.{rank}").into_bytes();
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"ckpt.1"), CHECKPOINT).unwrap();
        for folder in ["a", "b"] {
            std::fs::write(path_of(&session.route_file(&name(folder, rank)).unwrap()), folder).unwrap();
        }
        session.complete_output(true).unwrap();
    });
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        session.start_restart().unwrap();
        let error = session.route_file(format!("state.{rank}").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("is not a file that rank"), "{error}");
        let path = session.route_file(&name("b", rank)).unwrap();
        assert_eq!(std::fs::read(path_of(&path)).unwrap(), b"b");
        session.complete_restart(true).unwrap();
    });
}

/// In bypass mode folders distinguish them. In cache, which keeps only base names, one would replace the other.
#[test]
fn files_of_one_base_name_are_fetched_to_cache_for_two_ranks_and_for_one_rank_only_in_place() {
    let names = |rank: Rank, twins: bool| {
        let folders = if twins { &["a", "b"][..] } else { &["a"] };
        let name = |folder| format!("ckpt.1/{rank}/{folder}/state").into_bytes();
        folders.iter().map(name).collect::<Vec<_>>()
    };
    for twins in [false, true] {
        // Two ranks share a node, and with it what is fetched.
        let mut world = World::new(4, 2).set("SCR_CACHE_BYPASS", "1");
        world.run(|application| {
            let rank = application.rank;
            let session = application.session();
            session.start_output(Some(b"ckpt.1"), CHECKPOINT).unwrap();
            for name in names(rank, twins) {
                std::fs::write(path_of(&session.route_file(&name).unwrap()), name).unwrap();
            }
            session.complete_output(true).unwrap();
        });
        world.lose("");
        world.put("SCR_CACHE_BYPASS", "0");
        if twins {
            let refused = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
            assert!(
                refused.ranks.iter().all(Result::is_err),
                "a run began from nothing: {:?}",
                refused.ranks
            );
            refused.line_with(&["ERROR", "has the base name of another file", "SCR_FETCH_BYPASS=1"]);
            world.put("SCR_FETCH_BYPASS", "1");
        }
        world.run(|application| {
            let rank = application.rank;
            let session = application.session();
            session.start_restart().unwrap();
            for name in names(rank, twins) {
                let path = session.route_file(&name).unwrap();
                assert!(std::fs::read(path_of(&path)).unwrap() == name, "rank {rank} got another file");
            }
            session.complete_restart(true).unwrap();
        });
    }
}

/// An application that dies at each restart, of bytes that only it can recognize as wrong.
#[test]
fn a_checkpoint_from_which_the_application_dies_is_given_up_after_so_many_attempts() {
    let mut world = World::new(4, 4).set("SCR_CACHE_SIZE", "2").set("SCR_RESTART_ATTEMPTS", "2");
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, some).unwrap()));
    let dies = |application: &mut Application| {
        let name = application.session().start_restart().unwrap();
        application.session().complete_restart(true).unwrap();
        name
    };
    world.run(dies).all_gave(&b"ckpt.2".to_vec());
    world.run(dies).all_gave(&b"ckpt.2".to_vec());
    let run = world.run(|application| {
        let name = dies(application);
        application.checkpoint(3, some).unwrap();
        name
    });
    run.all_gave(&b"ckpt.1".to_vec());
    run.line_with(&["`ckpt.2' is given up: 2 restarts from it led to no new", "SCR_RESTART_ATTEMPTS=2"]);
    // A new checkpoint begins the count anew, and by default nobody counts.
    for _ in 0..2 {
        world.run(dies).all_gave(&b"ckpt.3".to_vec());
        world.run(|application| application.checkpoint(3, some).unwrap());
    }
    world.put("SCR_RESTART_ATTEMPTS", "0");
    for _ in 0..4 {
        world.run(|application| application.restart(some)).all_gave(&Some(3));
    }
}

/// The filemaps of all ranks said it until the last of them had written what it rebuilt, and none did so for a moment.
#[test]
#[ignore = "long"]
fn a_refused_checkpoint_stays_refused_when_the_job_dies_while_a_lost_part_of_it_is_rebuilt() {
    let world = || {
        let faulty = FaultyFiles::new(RealFiles);
        let mut world = job();
        world.run(|application| application.checkpoint(1, some).unwrap());
        world.run(|application| drop(refuse(application)));
        world.lose("n1");
        faulty.only(|_, path| path.to_string_lossy().contains("scr.dataset.1"));
        world.files = Arc::new(faulty.clone());
        (world, faulty)
    };
    let (good, faulty) = world();
    good.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    let all = faulty.mutations();
    assert!(all > 10, "{all}");
    for at in 1..=all {
        let (mut world, faulty) = world();
        faulty.stop_at(at);
        world.try_run(|_| ());
        world.files = Arc::new(RealFiles);
        world.run(|application| application.session().have_restart().unwrap()).all_gave(&None);
    }
}

/// After a failed sync the system may take the lost bytes for written, and the next sync comes to a good end.
#[test]
fn in_bypass_mode_a_checkpoint_that_could_not_be_synced_never_counts() {
    for ends in [true, false] {
        let mut world = bypass().set("SCR_FLUSH", "1");
        let faulty = FaultyFiles::new(RealFiles);
        let lost = world.prefix().join(file_name(2, Rank(1), 0));
        faulty.only({
            let lost = lost.clone();
            move |what, path| what == What::Sync && path == lost
        });
        faulty.fail_once(1, ErrorKind::Other);
        world.own_files.insert(Rank(1), Arc::new(faulty));
        world.run(|application| {
            application.checkpoint(1, some).unwrap();
            let error = application.checkpoint(2, some).unwrap_err().to_string();
            assert!(error.contains("cannot sync"), "{error}");
            if application.rank == Rank(1) {
                let written = std::fs::metadata(&lost).unwrap().modified().unwrap();
                let file = std::fs::File::options().write(true).open(&lost).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, b"old bytes", 0).unwrap();
                file.set_modified(written).unwrap();
            }
            if ends {
                application.finalize().unwrap();
            }
        });
        world.own_files.clear();
        world.run(|application| assert_eq!(application.restart(some), Some(1)));
        world.lose("");
        world.run(|application| assert_eq!(application.restart(some), Some(1)));
        let index = Index::read(&RealFiles, &Prefix::new(world.prefix()));
        let entries = index.unwrap().entries();
        assert!(entries.iter().all(|entry| entry.complete == (entry.name == b"ckpt.1")), "{entries:?}");
    }
}

/// The cache said that it was complete, and power took bytes of it. The next run synced the rest, and listed it with new
/// checksums.
#[test]
fn in_bypass_mode_a_checkpoint_that_was_not_synced_before_a_power_failure_never_counts() {
    let mut world = bypass().set("SCR_FLUSH", "1");
    let faulty = FaultyFiles::new(RealFiles);
    let of_second = world.prefix().join("ckpt.2");
    faulty.only(move |what, path| what == What::Sync && path.starts_with(&of_second));
    faulty.stop_at(1);
    world.files = Arc::new(faulty.clone());
    world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.checkpoint(2, some).unwrap_err();
    });
    assert!(faulty.stopped());
    world.files = Arc::new(RealFiles);
    let lost = world.prefix().join(file_name(2, Rank(1), 0));
    let written = std::fs::metadata(&lost).unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(&lost).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"old bytes", 0).unwrap();
    file.set_modified(written).unwrap();
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// `scr postrun' found nothing to save, and `scr clean' removed it, though no run had restarted from it.
#[test]
fn a_checkpoint_in_the_cache_of_a_dead_allocation_is_not_forgotten_when_another_one_goes_on_without_it() {
    let mut world = World::new(4, 4).set("SCR_FLUSH", "2").set("SCR_JOB_ID", "7");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, some).unwrap()));
    world.put("SCR_JOB_ID", "8");
    for step in [4, 6] {
        let run = world.run(|application| {
            let found = application.restart(some);
            [step, step + 1].into_iter().for_each(|step| application.checkpoint(step, some).unwrap());
            found
        });
        run.all_gave(&Some(if step == 4 { 2 } else { 5 }));
    }
    let file = FlushFile::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    assert!(file.entries().iter().any(|entry| entry.name == b"ckpt.3" && entry.is_at(Location::Cache)));
    let lost = unsaved(&RealFiles, &world.node("n1/user1/scr.7")).unwrap();
    assert!(lost.len() == 1 && lost[0].contains("`ckpt.3'"), "{lost:?}");
    // In one allocation, a later run has seen what the earlier one has left.
    assert!(unsaved(&RealFiles, &world.node("n1/user1/scr.8")).unwrap().is_empty());
}
