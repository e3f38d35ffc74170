//! A checkpoint that the user or the application has gone back to, or dropped, is what later runs find; and what may be half of
//! another dataset is not handed out.

use super::world::{contents, path_of, Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use scr_ops::drop_dataset;
use scr_prefix::{DatasetDescriptor, Index, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::fixtures::ChangeIndex as _;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

const CHECKPOINT: OutputFlags = OutputFlags { checkpoint: true, output: false };

fn some(rank: Rank) -> Vec<usize> {
    vec![2000 + 13 * rank.index(), 9]
}

fn job() -> World {
    World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "3")
}

fn checkpoints(world: &World, steps: std::ops::RangeInclusive<u64>) {
    world.run(|application| steps.clone().for_each(|step| application.checkpoint(step, some).unwrap()));
}

fn lose_all(world: &World) {
    ["n0", "n1"].into_iter().for_each(|node| world.lose(node));
}

/// The complete datasets that the index has, oldest first, and the current one.
fn listed(world: &World) -> (Vec<u64>, Option<Vec<u8>>) {
    let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
    let complete = index.entries().into_iter().filter(|entry| entry.complete);
    let mut ids: Vec<u64> = complete.map(|entry| entry.id).collect();
    ids.sort_unstable();
    (ids, index.current().map(<[u8]>::to_vec))
}

/// They could be read, and somebody has chosen not to.
#[test]
fn nobody_calls_those_unreadable_that_the_user_has_gone_back_over() {
    for is_wish in [false, true] {
        let mut world = job();
        checkpoints(&world, 1..=3);
        lose_all(&world);
        if is_wish {
            world.put("SCR_CURRENT", "ckpt.1");
        } else {
            let choose = |index: &mut Index| assert!(index.set_current(b"ckpt.1"));
            Index::update(&RealFiles, &Prefix::new(world.prefix()), choose).unwrap();
        }
        let run = world.run(|application| {
            let restarted = application.restart(some);
            (2..4).for_each(|step| application.checkpoint(step, some).unwrap());
            restarted
        });
        run.all_gave(&Some(1));
        assert!(!run.has_line_with("was not restarted from"), "{is_wish}: {:?}", run.lines);
    }
}

/// It was named as one that could not be read.
#[test]
fn nobody_calls_those_unreadable_that_the_user_has_purged() {
    let mut world = job().set("SCR_FLUSH", "2");
    checkpoints(&world, 1..=3);
    world.put("SCR_CACHE_PURGE", "1");
    let run = world.run(|application| {
        let restarted = application.restart(some);
        application.checkpoint(3, some).unwrap();
        restarted
    });
    run.all_gave(&Some(2));
    assert!(!run.has_line_with("was not restarted from"), "{:?}", run.lines);
}

/// `SCR_Have_restart' found none, and the application began at zero over those that the index had.
#[test]
fn a_checkpoint_that_is_dropped_after_the_start_makes_way_for_an_older_one_of_the_prefix_directory() {
    for bypass in ["0", "1"] {
        let world = job().set("SCR_FLUSH", "1").set("SCR_CACHE_SIZE", "1").set("SCR_CACHE_BYPASS", bypass);
        world.run(|application| {
            (1..=3).for_each(|step| application.checkpoint(step, some).unwrap());
            application.session().drop_dataset(b"ckpt.3").unwrap();
            assert_eq!(application.restart(some), Some(2), "bypass {bypass}");
        });
        world.run(|application| {
            assert_eq!(application.restart(some), Some(2), "bypass {bypass}");
            application.session().drop_dataset(b"ckpt.2").unwrap();
            assert_eq!(application.restart(some), Some(1), "bypass {bypass}");
            application.session().drop_dataset(b"ckpt.1").unwrap();
            (0..2).for_each(|_| assert_eq!(application.restart(some), None));
        });
    }
}

/// It came back as the current one once a flush under way had ended, or from cache in the next run.
#[test]
fn a_dropped_checkpoint_comes_back_neither_from_cache_nor_by_a_flush_under_way() {
    for asynchronous in ["0", "1"] {
        let world = job().set("SCR_FLUSH_TYPE", "PTHREAD").set("SCR_FLUSH_ASYNC", asynchronous);
        world.run(|application| {
            [1, 2].into_iter().for_each(|step| application.checkpoint(step, some).unwrap());
            application.session().drop_dataset(b"ckpt.2").unwrap();
            application.finalize().unwrap();
        });
        assert_eq!(listed(&world).0, [1], "SCR_FLUSH_ASYNC={asynchronous}");
        world.run(|application| {
            assert_eq!(application.restart(some), Some(1));
            application.finalize().unwrap();
        });
        assert_eq!(listed(&world).0, [1], "SCR_FLUSH_ASYNC={asynchronous}, in the next run");
    }
}

/// A newer one was in the index before, and stayed the current one.
#[test]
fn a_checkpoint_that_the_user_has_gone_back_to_is_the_current_one_once_it_is_flushed() {
    let mut world = job().set("SCR_FLUSH", "2");
    checkpoints(&world, 1..=2);
    world.put("SCR_CURRENT", "ckpt.1");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.finalize().unwrap();
    });
    assert_eq!(listed(&world), (vec![1, 2], Some(b"ckpt.1".to_vec())));
    world.put("SCR_CURRENT", "");
    lose_all(&world);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// `SCR_Finalize` failed to flush it, though it has no files but those that were deleted.
#[test]
fn a_checkpoint_in_place_that_the_window_has_deleted_in_part_is_used_no_more() {
    let mut world = job().set("SCR_PREFIX_SIZE", "1").set("SCR_CACHE_BYPASS", "1");
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::RemoveFile && path.to_string_lossy().contains("/prefix/ckpt.1/"));
    files.fail_from(1, ErrorKind::PermissionDenied);
    world.own_files.insert(Rank(1), Arc::new(files.clone()));
    world
        .run(|application| {
            (1..=2).for_each(|step| application.checkpoint(step, some).unwrap());
            application.finalize().map_err(|error| error.to_string())
        })
        .all_gave(&Ok(()));
    assert!(files.first_failed().is_some());
    world.run(|application| assert_eq!(refuse_all(application), ["ckpt.2"]));
}

/// It was offered, as cache still had it, and its files were gone.
#[test]
fn a_checkpoint_that_the_window_has_deleted_is_not_read_in_the_prefix_directory() {
    let world = job().set("SCR_PREFIX_SIZE", "1").set("SCR_GLOBAL_RESTART", "1");
    world.run(|application| {
        [1, 2].into_iter().for_each(|step| application.checkpoint(step, some).unwrap());
        assert_eq!(application.session().start_restart().unwrap(), b"ckpt.2");
        application.session().complete_restart(false).unwrap_err();
        assert_eq!(application.session().have_restart().unwrap(), None);
    });
}

#[test]
fn a_checkpoint_that_is_in_cache_only_can_be_dropped_and_again_without_effect() {
    let world = job().set("SCR_FLUSH", "0");
    world.run(|application| {
        [1, 2].into_iter().for_each(|step| application.checkpoint(step, some).unwrap());
        application.session().drop_dataset(b"ckpt.2").unwrap();
        application.session().drop_dataset(b"ckpt.2").unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The newest in cache was flushed at the end, and became the current one, though the user had gone back.
#[test]
fn a_run_that_the_user_has_taken_back_does_not_flush_what_is_newer_when_it_ends() {
    for drop_newer in ["0", "1"] {
        let mut world = job().set("SCR_FLUSH", "2").set("SCR_DROP_AFTER_CURRENT", drop_newer);
        checkpoints(&world, 1..=3);
        world.put("SCR_CURRENT", "ckpt.2");
        world.run(|application| {
            assert_eq!(application.restart(some), Some(2));
            application.finalize().unwrap();
        });
        assert_eq!(
            listed(&world),
            (vec![2], Some(b"ckpt.2".to_vec())),
            "SCR_DROP_AFTER_CURRENT={drop_newer}"
        );
    }
}

/// As C SCR has it: the newest was offered, the application could not read it, and a good checkpoint was marked as failed.
#[test]
fn an_application_that_calls_current_before_it_asks_restarts_from_that_checkpoint() {
    for lost in [false, true] {
        let world = job();
        checkpoints(&world, 1..=4);
        if lost {
            lose_all(&world);
        }
        // One of them is in cache, where that was not lost, and the other is not.
        for step in [1_u64, 3] {
            world.run(|application| {
                application.session().current(format!("ckpt.{step}").as_bytes()).unwrap();
                assert_eq!(application.restart(some), Some(step), "lost: {lost}");
                application.finalize().unwrap();
            });
            let current = format!("ckpt.{step}").into_bytes();
            assert_eq!(listed(&world), (vec![1, 2, 3, 4], Some(current)), "lost: {lost}");
        }
    }
}

/// The next run flushed them from cache and listed them again.
#[test]
fn with_drop_after_current_newer_checkpoints_leave_the_index_and_the_cache() {
    let world = job().set("SCR_DROP_AFTER_CURRENT", "1");
    checkpoints(&world, 1..=4);
    world.run(|application| {
        application.session().current(b"ckpt.2").unwrap();
        assert_eq!(application.restart(some), Some(2));
    });
    for _ in 0..2 {
        assert_eq!(listed(&world), (vec![1, 2], Some(b"ckpt.2".to_vec())));
        world.run(|application| {
            assert_eq!(application.restart(some), Some(2));
            application.finalize().unwrap();
        });
    }
}

/// They were dropped when the run began: with a checkpoint that the application could not read, or had yet to read, all was lost.
#[test]
fn nothing_is_dropped_before_the_application_has_restarted() {
    for (by_user, is_good) in [(true, true), (true, false), (false, true), (false, false)] {
        let case = format!("by the user: {by_user}, good: {is_good}");
        let mut world = job().set("SCR_DROP_AFTER_CURRENT", "1").set("SCR_FETCH_BYPASS", "1");
        checkpoints(&world, 1..=4);
        lose_all(&world);
        if by_user {
            world.put("SCR_CURRENT", "ckpt.2");
        } else {
            let choose = |index: &mut Index| assert!(index.set_current(b"ckpt.2"));
            Index::update(&RealFiles, &Prefix::new(world.prefix()), choose).unwrap();
        }
        // It dies before it has read the files.
        world.run(|application| drop(application.session().start_restart().unwrap()));
        assert_eq!(listed(&world).0, [1, 2, 3, 4], "{case}");
        if is_good {
            let run = world.run(|application| assert_eq!(application.restart(some), Some(2)));
            run.line_with(&["dropped from the index: 2 checkpoints newer than dataset 2"]);
            assert_eq!(listed(&world).0, [1, 2], "{case}");
            continue;
        }
        world.run(|application| {
            assert_eq!(application.session().start_restart().unwrap(), b"ckpt.2");
            application.session().complete_restart(false).unwrap_err();
            assert_eq!(application.restart(some), Some(1));
        });
        assert_eq!(listed(&world).0, [1, 2, 3, 4], "{case}");
        world.put("SCR_CURRENT", "ckpt.4");
        world.run(|application| application.restart(some)).all_gave(&Some(4));
    }
}

#[test]
fn an_application_can_read_back_what_it_has_just_written() {
    for size in ["1", "2"] {
        let world = job().set("SCR_FLUSH", "0").set("SCR_CACHE_SIZE", size);
        checkpoints(&world, 1..=1);
        world.run(|application| {
            assert_eq!(application.restart(some), Some(1));
            application.checkpoint(2, some).unwrap();
            assert_eq!(application.restart(some), Some(2), "SCR_CACHE_SIZE={size}");
        });
    }
}

/// One error that passes made an older checkpoint the current one, and later runs restarted from that.
#[test]
fn a_checkpoint_that_cannot_be_read_for_once_is_restarted_from_by_the_next_run() {
    let mut world = job();
    checkpoints(&world, 1..=2);
    lose_all(&world);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|what, path| what == What::Read && path.ends_with("ckpt.2/rank_1.0"));
    faulty.count_all();
    faulty.fail_from(1, ErrorKind::Other);
    world.files = Arc::new(faulty);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
    world.files = Arc::new(RealFiles);
    lose_all(&world);
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// Written in place, and without checksums nothing distinguishes the halves.
#[test]
fn a_checkpoint_whose_file_another_dataset_has_begun_to_write_over_is_not_handed_out() {
    let world = job().set("SCR_CACHE_BYPASS", "1").set("SCR_CRC_ON_FLUSH", "0");
    let write = |name: &'static str, bytes: &'static [u8], complete: bool| {
        world.run(|application| {
            let file = format!("shared/rank_{}", application.rank);
            let session = application.session();
            session.start_output(Some(name.as_bytes()), CHECKPOINT).unwrap();
            let path = session.route_file(file.as_bytes()).unwrap();
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path_of(&path))
                .unwrap();
            file.write_all(bytes).unwrap();
            drop(file);
            if complete {
                session.complete_output(true).unwrap();
            }
        });
    };
    let offered = || world.run(|application| application.session().have_restart().unwrap());
    write("first", b"old old old", true);
    lose_all(&world);
    offered().all_gave(&Some(b"first".to_vec()));
    write("second", b"new", false);
    lose_all(&world);
    let run = offered();
    run.all_gave(&None);
    run.line_with(&["ERROR", "shared/rank_", "was given to a later dataset to write over"]);
}

/// A job with C SCR begins a dataset named `other`, and dies once it has written over a file of `ckpt.1`.
fn write_over_first(world: &World) {
    Index::update(&RealFiles, &Prefix::new(world.prefix()), |index| {
        let other =
            DatasetDescriptor { id: 1000, name: b"other".to_vec(), checkpoint: true, ..Default::default() };
        index.record(&other, false);
    })
    .unwrap();
    let path = world.prefix().join("ckpt.1/rank_1.0");
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(b"other").unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
}

/// After C SCR has died in its next checkpoint, and the folder was copied, only the user knows that nothing was written over.
#[test]
fn a_checkpoint_that_its_times_put_in_doubt_is_restarted_from_if_the_user_names_it() {
    let mut world = job().set("SCR_CRC_ON_FLUSH", "0").set("SCR_CACHE_BYPASS", "1");
    checkpoints(&world, 1..=1);
    lose_all(&world);
    write_over_first(&world);
    let path = world.prefix().join("ckpt.1/rank_1.0");
    let bytes = contents(1, Rank(1), 0, some(Rank(1))[0]);
    std::fs::write(&path, bytes).unwrap();
    let touched = std::fs::File::options().write(true).open(&path).unwrap();
    touched.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    let refused = world.run(|application| application.session().have_restart().unwrap());
    refused.all_gave(&None);
    refused.line_with(&["ckpt.1/rank_1.0 was changed after", "SCR_CURRENT", "--trust-times"]);
    world.put("SCR_CURRENT", "ckpt.1");
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The names that are offered, one after the other; each is refused.
fn refuse_all(application: &mut Application) -> Vec<String> {
    let mut offered = Vec::new();
    while let Some(name) = application.session().have_restart().unwrap() {
        application.session().start_restart().unwrap();
        offered.push(String::from_utf8(name).unwrap());
        let _ = application.session().complete_restart(false);
    }
    offered
}

/// Nothing else said that its bytes had changed, and they were handed out.
#[test]
fn a_checkpoint_that_was_written_over_is_not_handed_out_when_the_other_dataset_has_left_the_index() {
    type Leave = fn(&World);
    let ways: [(&str, Leave); 4] = [
        ("scr index --drop", |world| {
            drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"other").unwrap();
        }),
        ("SCR_Drop", |world| {
            world.run(|application| application.session().drop_dataset(b"other").unwrap());
        }),
        ("SCR_Delete", |world| {
            world.run(|application| application.session().delete(b"other").unwrap());
        }),
        ("SCR_DROP_AFTER_CURRENT", |world| {
            world.run(|application| application.session().current(b"ckpt.2").unwrap());
        }),
    ];
    for (way, leave) in ways {
        let world = job().set("SCR_CRC_ON_FLUSH", "0").set("SCR_CRC_ON_COPY", "0");
        let world = world.set("SCR_DROP_AFTER_CURRENT", "1");
        checkpoints(&world, 1..=2);
        write_over_first(&world);
        leave(&world);
        let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        assert_eq!(index.id_of("other"), None, "{way}");
        lose_all(&world);
        world.run(|application| application.restart(some)).all_gave(&Some(2));
        lose_all(&world);
        let run = world.run(refuse_all);
        assert!(run.ranks.iter().all(|names| *names == ["ckpt.2"]), "{way}: {:?}", run.ranks);
        run.line_with(&["ERROR", "`ckpt.1' cannot be fetched", "ckpt.1/rank_1.0"]);
    }
}

/// A run that somebody had started beside the job withdrew what the job wrote afterwards, on nodes that the run never saw.
#[test]
fn with_drop_after_current_what_an_earlier_job_writes_meanwhile_stays() {
    let mut world = job().set("SCR_FLUSH", "2").set("SCR_DROP_AFTER_CURRENT", "1");
    checkpoints(&world, 1..=3);
    let first_job = std::fs::File::open(world.prefix().join(".scr/running")).unwrap();
    first_job.lock().unwrap();
    let first = std::mem::replace(&mut world.nodes, ["n2", "n2", "n3", "n3"].map(str::to_owned).to_vec());
    world.put("SCR_CURRENT", "ckpt.2");
    world.run(|application| assert_eq!(application.restart(some), Some(2)));
    drop(first_job);
    world.put("SCR_CURRENT", "");
    world.nodes = first;
    world.run(|application| application.restart(some)).all_gave(&Some(3));
}

/// The next run on their nodes restarted from one of them.
#[test]
fn with_drop_after_current_newer_checkpoints_on_nodes_that_are_away_do_not_come_back() {
    let on = |world: &mut World, nodes: [&str; 2]| {
        world.nodes = nodes.iter().flat_map(|node| [(*node).to_owned(), (*node).to_owned()]).collect();
    };
    for by_user in [true, false] {
        let mut world = job().set("SCR_FLUSH", "2").set("SCR_DROP_AFTER_CURRENT", "1");
        checkpoints(&world, 1..=3);
        on(&mut world, ["n2", "n3"]);
        if by_user {
            world.put("SCR_CURRENT", "ckpt.2");
        }
        world.run(|application| {
            if !by_user {
                application.session().current(b"ckpt.2").unwrap();
            }
            assert_eq!(application.restart(some), Some(2));
        });
        world.put("SCR_CURRENT", "");
        on(&mut world, ["n0", "n1"]);
        world.run(|application| assert_eq!(refuse_all(application), ["ckpt.2", "ckpt.1"]));
        // Checkpoints written since then are newer.
        checkpoints(&world, 4..=4);
        world.run(|application| application.restart(some)).all_gave(&Some(4));
    }
}

/// The run went on from what was written before it went back, once the checkpoint that it had gone back to had left.
#[test]
fn what_the_user_has_gone_back_over_stays_given_up_when_the_chosen_checkpoint_has_left() {
    for loses in [true, false] {
        let mut world = job().set("SCR_CACHE_SIZE", "4");
        checkpoints(&world, 3..=5);
        world.put("SCR_CURRENT", "ckpt.3");
        world.run(|application| {
            assert_eq!(application.restart(some), Some(3));
            application.checkpoint(6, some).unwrap();
        });
        if loses {
            lose_all(&world);
        }
        drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"ckpt.3").unwrap();
        world.run(|application| assert_eq!(refuse_all(application), ["ckpt.6"], "all lost: {loses}"));
    }
}

/// The chosen one was the older one, and left first: a death before the new one was complete left nothing to restart from.
#[test]
fn what_the_user_has_gone_back_over_leaves_the_cache_before_the_chosen_checkpoint() {
    let mut world = job().set("SCR_FLUSH", "0").with_store("COUNT=2 EVICT=before");
    checkpoints(&world, 1..=2);
    world.put("SCR_CURRENT", "ckpt.1");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.begin(2).unwrap();
    });
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// One that the application had gone back over was handed out.
#[test]
fn a_chosen_checkpoint_that_is_replaced_before_it_is_read_is_followed_by_an_older_one() {
    for by_user in [true, false] {
        let mut world = job().set("SCR_GLOBAL_RESTART", "1");
        checkpoints(&world, 1..=3);
        if by_user {
            world.put("SCR_CURRENT", "ckpt.2");
        }
        let turns = Barrier::new(4);
        world.run(|application| {
            if !by_user {
                application.session().current(b"ckpt.2").unwrap();
            }
            if turns.wait().is_leader() {
                drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"ckpt.2").unwrap();
            }
            turns.wait();
            assert_eq!(application.restart(some), Some(1), "by user: {by_user}");
        });
    }
}

/// The message blamed `SCR_GLOBAL_RESTART`, which was not set.
#[test]
fn no_message_advises_to_restart_from_what_the_user_has_gone_back_over() {
    let mut world = job();
    checkpoints(&world, 1..=3);
    let nodes = world.nodes.clone();
    world.nodes = ["n2", "n2", "n3", "n3"].map(str::to_owned).to_vec();
    world.put("SCR_CURRENT", "ckpt.1");
    world.run(|application| {
        assert_eq!(application.restart(some), Some(1));
        application.checkpoint(4, some).unwrap();
    });
    std::fs::write(world.prefix().join("ckpt.4/rank_1.0"), "damaged").unwrap();
    world.nodes = nodes;
    let run = world.run(|application| application.restart(some));
    run.all_gave(&Some(1));
    assert!(!run.has_line_with("SCR_GLOBAL_RESTART"), "{:?}", run.lines);
}

/// There was none then, though others were whole; or the next older one than what had been loaded became the current one.
#[test]
fn what_is_dropped_after_a_choice_makes_way_for_the_chosen_or_for_an_older_one() {
    for (dropped, left, current) in
        [("ckpt.2", 1, "ckpt.1"), ("ckpt.4", 2, "ckpt.2"), ("ckpt.1", 2, "ckpt.2")]
    {
        for restarts in [false, true] {
            let world = job().set("SCR_CACHE_SIZE", "1");
            checkpoints(&world, 1..=4);
            world.run(|application| {
                application.session().current(b"ckpt.2").unwrap();
                application.session().delete(dropped.as_bytes()).unwrap();
                if restarts {
                    assert_eq!(application.restart(some), Some(left), "dropped: {dropped}");
                }
            });
            assert_eq!(listed(&world).1.as_deref(), Some(current.as_bytes()), "dropped: {dropped}");
        }
    }
}

/// There was none then, and the application began from nothing.
#[test]
fn once_the_checkpoint_to_restart_from_is_dropped_an_older_one_is_offered() {
    for size in ["2", "1"] {
        for delete in [false, true] {
            let world = job().set("SCR_CACHE_SIZE", size);
            checkpoints(&world, 1..=2);
            world.run(|application| {
                let session = application.session();
                assert_eq!(session.have_restart().unwrap(), Some(b"ckpt.2".to_vec()));
                if delete {
                    session.delete(b"ckpt.2").unwrap();
                } else {
                    session.drop_dataset(b"ckpt.2").unwrap();
                }
                assert_eq!(application.restart(some), Some(1), "SCR_CACHE_SIZE={size}, {delete}");
            });
        }
    }
}

/// A checkpoint that was in cache only took its place in the window, before the run looked which one the user wants.
#[test]
fn the_window_does_not_delete_the_checkpoint_that_the_user_has_named() {
    for bypass in ["0", "1"] {
        let mut world = job().set("SCR_CACHE_BYPASS", bypass).set("SCR_PREFIX_SIZE", "2");
        checkpoints(&world, 1..=2);
        lose_all(&world);
        world.put("SCR_CACHE_BYPASS", "0");
        world.put("SCR_FLUSH", "0");
        checkpoints(&world, 3..=3);
        world.put("SCR_FLUSH", "1");
        world.put("SCR_FLUSH_ON_RESTART", "1");
        world.put("SCR_CACHE_BYPASS", bypass);
        world.put("SCR_CURRENT", "ckpt.1");
        world.run(|application| application.restart(some)).all_gave(&Some(1));
        assert!(listed(&world).0.contains(&1), "{:?}", listed(&world));
    }
}

/// An application that does not look at what a call returns gets no path that would belong to no dataset.
#[test]
fn after_a_start_that_failed_no_file_is_routed() {
    let world = job();
    world.run(|application| {
        let session = application.session();
        session.start_output(Some(b""), CHECKPOINT).unwrap_err();
        let error = session.route_file(b"ckpt.1/file").unwrap_err().to_string();
        assert!(error.contains("after a failed SCR_Start_output"), "{error}");
        session.complete_output(true).unwrap_err();
        assert_eq!(session.route_file(b"ckpt.1/file").unwrap(), b"ckpt.1/file", "between phases");
        application.checkpoint(1, some).unwrap();
        assert_eq!(application.restart(some), Some(1));
    });
}

/// Writes two checkpoints, and then the application goes back to the first one while `what` fails on rank 0. Gives what that
/// said.
fn refused_choice(world: &mut World, why: ErrorKind, what: fn(What, &Path) -> bool) -> String {
    let files = FaultyFiles::new(RealFiles);
    files.count_all();
    files.never_pause();
    files.only(what);
    world.own_files.insert(Rank(0), Arc::new(files.clone()));
    let turns = Barrier::new(4);
    let mut run = world.run(|application| {
        (1..=2).for_each(|step| application.checkpoint(step, some).unwrap());
        if turns.wait().is_leader() {
            files.fail_from(1, why);
        }
        turns.wait();
        application.session().current(b"ckpt.1").unwrap_err().to_string()
    });
    assert!(files.first_failed().is_some());
    world.own_files.clear();
    run.ranks.swap_remove(0)
}

/// It was the current one by then, and the newer one became current again once its flush was closed.
#[test]
fn nothing_has_changed_where_flushes_of_newer_checkpoints_cannot_be_taken_back() {
    let mut world = job();
    let refused = refused_choice(&mut world, ErrorKind::TimedOut, |what, path| {
        what == What::List && path.file_name().is_some_and(|name| name == ".scr")
    });
    assert!(refused.contains("ending the flushes of checkpoints newer than the chosen one"), "{refused}");
    assert_eq!(listed(&world).1, Some(b"ckpt.2".to_vec()));
}

/// The newer ones were dropped, though the call failed.
#[test]
fn nothing_has_changed_where_the_index_cannot_say_what_the_application_goes_back_to() {
    let mut world = job().set("SCR_DROP_AFTER_CURRENT", "1");
    refused_choice(&mut world, ErrorKind::StorageFull, |what, path| {
        what == What::Rename && path.to_string_lossy().contains(".scr/index.scr")
    });
    assert_eq!(listed(&world), (vec![1, 2], Some(b"ckpt.2".to_vec())));
    let ids = std::fs::read(world.prefix().join(".scr/ids.scr")).unwrap();
    assert!(!String::from_utf8_lossy(&ids).contains("WITHDRAWN"), "{}", String::from_utf8_lossy(&ids));
    world.run(|application| application.restart(some)).all_gave(&Some(2));
}

/// The call failed, though the checkpoint was complete and flushed.
#[test]
#[ignore = "long"]
fn an_index_that_cannot_be_read_to_delete_what_is_too_much_fails_no_call() {
    const WORDS: &str = "reading the index of the prefix directory";
    let mut is_reported = false;
    for at in 1.. {
        let mut world = job().set("SCR_PREFIX_SIZE", "1");
        let files = FaultyFiles::new(RealFiles);
        files.count_all();
        files.never_pause();
        files.only(|what, path| what == What::OpenToRead && path.ends_with(".scr/index.scr"));
        world.own_files.insert(Rank(0), Arc::new(files.clone()));
        let turns = Barrier::new(4);
        let run = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            if turns.wait().is_leader() {
                files.heal();
                files.fail_from(at, ErrorKind::TimedOut);
            }
            turns.wait();
            application.checkpoint(2, some).unwrap();
        });
        is_reported |= run.has_line_with(WORDS);
        if files.first_failed().is_none() {
            break;
        }
    }
    assert!(is_reported);
}

/// It counted as flushed for the rest of the run, without its files.
#[test]
fn a_checkpoint_that_the_window_has_deleted_in_part_is_flushed_again_from_cache() {
    let mut world = job().set("SCR_PREFIX_SIZE", "1");
    let files = FaultyFiles::new(RealFiles);
    files.only(|what, path| what == What::RemoveFile && path.to_string_lossy().contains("/prefix/ckpt.1/"));
    files.fail_from(1, ErrorKind::PermissionDenied);
    world.own_files.insert(Rank(1), Arc::new(files.clone()));
    world
        .run(|application| {
            (1..=2).for_each(|step| application.checkpoint(step, some).unwrap());
            application.session().drop_dataset(b"ckpt.2").unwrap();
            application.finalize().map_err(|error| error.to_string())
        })
        .all_gave(&Ok(()));
    assert!(files.first_failed().is_some());
    lose_all(&world);
    world.run(|application| application.restart(some)).all_gave(&Some(1));
}

/// The error came with each flush.
#[test]
fn an_archived_checkpoint_that_cannot_be_deleted_is_reported_once() {
    let world = job().set("SCR_PREFIX_SIZE", "1").set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", "0");
    let run = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if application.rank == Rank(0) {
            let (there, archive) = (world.prefix().join("ckpt.1"), world.dir().join("archive"));
            std::fs::rename(&there, &archive).unwrap();
            std::os::unix::fs::symlink(&archive, &there).unwrap();
        }
        (2..=4).for_each(|step| application.checkpoint(step, some).unwrap());
    });
    let said = run.lines.iter().filter(|line| line.contains("ERROR") && line.contains("deleting dataset 1 "));
    assert_eq!(said.count(), 1, "{:?}", run.lines);
    assert!(!world.prefix().join("ckpt.2").exists() && world.dir().join("archive").exists());
}
