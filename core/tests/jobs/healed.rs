//! An index that is damaged while a job runs: the next dataset gets a new one, or the user learns that nothing can be saved.

use super::world::{Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_prefix::{Index, IndexEntry, Prefix};
use scr_test_kit::faulty::FaultyFiles;
use std::io::ErrorKind;
use std::sync::{Arc, Barrier, Mutex};

fn some(rank: Rank) -> Vec<usize> {
    vec![1500 + 7 * rank.index(), 3]
}

fn damage(world: &World) {
    std::fs::write(world.prefix().join(".scr/index.scr"), b"not an index").unwrap();
}

/// The datasets that are complete; none while the index is damaged, as a flush in the background has not come to it yet.
fn complete(world: &World) -> Vec<u64> {
    let Ok(index) = Index::read(&RealFiles, &Prefix::new(world.prefix())) else { return Vec::new() };
    let mut ids: Vec<u64> =
        index.entries().into_iter().filter(IndexEntry::is_valid).map(|entry| entry.id).collect();
    ids.sort_unstable();
    ids
}

/// Jobs whose files lie in the prefix directory, and jobs that flush, waiting or not.
fn modes() -> [World; 3] {
    [("1", "0"), ("0", "0"), ("0", "1")].map(|(bypass, is_async)| {
        let world = World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", bypass);
        world.set("SCR_FLUSH_ASYNC", is_async)
    })
}

/// Asks at every step of the computation, until these are in the prefix directory. Between the two turns no rank is in a call.
fn wait_until_complete(world: &World, application: &mut Application, turns: &Barrier, ids: &[u64]) {
    loop {
        assert!(!application.session().should_exit().unwrap());
        turns.wait();
        let is_done = complete(world) == ids;
        turns.wait();
        if is_done {
            return;
        }
    }
}

/// The job computed on, and in bypass mode none of its checkpoints could be begun any more.
#[test]
fn an_index_that_is_damaged_while_a_job_runs_is_replaced_with_the_next_checkpoint() {
    let words = ["index.scr is damaged", "kept as", "index.scr.damaged.1", "A new index lists"];
    replaces_while_a_job_runs(damage, &words);
}

/// The next dataset made an index of itself alone, and no run knew of the older ones any more.
#[test]
fn an_index_that_is_removed_while_a_job_runs_is_made_anew_with_the_next_checkpoint() {
    replaces_while_a_job_runs(remove, &["index.scr is missing", "A new index lists"]);
}

fn remove(world: &World) {
    std::fs::remove_file(world.prefix().join(".scr/index.scr")).unwrap();
}

fn replaces_while_a_job_runs(damage: fn(&World), words: &[&str]) {
    for world in modes() {
        let turns = Barrier::new(4);
        // It dies after the checkpoint, so it has said by then what it has to say.
        let run = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            wait_until_complete(&world, application, &turns, &[1]);
            if turns.wait().is_leader() {
                damage(&world);
            }
            turns.wait();
            application.checkpoint(2, some).unwrap();
            wait_until_complete(&world, application, &turns, &[1, 2]);
        });
        run.line_with(words);
        world.run(|application| {
            application.checkpoint(3, some).unwrap();
            application.finalize().unwrap();
        });
        assert_eq!(complete(&world), [1, 2, 3]);
        world.lose("n0");
        world.lose("n1");
        world.run(|application| application.restart(some)).all_gave(&Some(3));
    }
}

/// The good checkpoint was refused, since "another job or a command" had removed it.
#[test]
fn an_index_that_is_removed_during_a_restart_is_made_anew() {
    let world = World::new(4, 2).set("SCR_CACHE_BYPASS", "1");
    world.run(|application| application.checkpoint(1, some).unwrap());
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        application.session().start_restart().unwrap();
        if turns.wait().is_leader() {
            remove(&world);
        }
        turns.wait();
        application.compare(1, some).unwrap();
        application.session().complete_restart(true).unwrap();
    });
    run.line_with(&["index.scr is missing", "A new index lists"]);
    assert_eq!(complete(&world), [1]);
}

/// A copy from a backup: newer checkpoints were passed over without a word, or their bytes were handed out as older ones.
#[test]
fn an_index_that_is_replaced_by_an_older_copy_is_made_anew() {
    for world in modes() {
        let index = world.prefix().join(".scr/index.scr");
        let next = |step| {
            world.run(|application| {
                application.checkpoint(step, some).unwrap();
                application.finalize().unwrap();
            });
        };
        next(1);
        let older = std::fs::read(&index).unwrap();
        next(2);
        std::fs::write(&index, older).unwrap();
        ["n0", "n1"].into_iter().for_each(|node| world.lose(node));
        let run = world.run(|application| application.restart(some));
        run.all_gave(&Some(2));
        run.line_with(&["index.scr is an older copy", "kept as", "index.scr.damaged.1", "A new index lists"]);
        assert_eq!(complete(&world), [1, 2]);
    }
}

/// A snapshot, or a client that synchronizes folders: the next run went back two checkpoints without a word.
#[test]
fn an_index_that_is_replaced_by_a_copy_from_the_same_run_is_made_anew_without_what_was_dropped() {
    for is_dropped in [false, true] {
        for world in modes() {
            let index = world.prefix().join(".scr/index.scr");
            let (turns, copy) = (Barrier::new(4), Mutex::new(Vec::new()));
            world.run(|application| {
                for (step, all) in [(1, &[1][..]), (2, &[1, 2]), (3, &[1, 2, 3])] {
                    application.checkpoint(step, some).unwrap();
                    wait_until_complete(&world, application, &turns, all);
                    if step == 1 && turns.wait().is_leader() {
                        *copy.lock().unwrap() = std::fs::read(&index).unwrap();
                    }
                    turns.wait();
                }
                application.finalize().unwrap();
            });
            if is_dropped {
                scr_ops::drop_dataset(&RealFiles, &Prefix::new(world.prefix()), b"ckpt.3").unwrap();
            }
            std::fs::write(&index, copy.into_inner().unwrap()).unwrap();
            ["n0", "n1"].into_iter().for_each(|node| world.lose(node));
            let newest = if is_dropped { 2 } else { 3 };
            let run = world.run(|application| application.restart(some));
            run.all_gave(&Some(newest));
            let words =
                ["index.scr is an older copy", &format!("dataset {newest} `ckpt.{newest}'"), "kept as"];
            run.line_with(&words);
            // From here on it is the index.
            let run = world.run(|application| application.restart(some));
            run.all_gave(&Some(newest));
            assert!(!run.has_line_with("is an older copy"));
        }
    }
}

/// Its datasets were listed as complete, and none of them was there.
#[test]
fn an_index_of_another_prefix_directory_is_made_anew() {
    let [world, other] = [1, 2].map(|number| {
        let world = World::new(4, 2).set("SCR_FLUSH", "1");
        world.run(|application| (1..=number).for_each(|step| application.checkpoint(step, some).unwrap()));
        // The second run of a directory notes its id in the index.
        world.run(|application| application.restart(some)).all_gave(&Some(number));
        world
    });
    let index_of = |world: &World| world.prefix().join(".scr/index.scr");
    std::fs::copy(index_of(&other), index_of(&world)).unwrap();
    ["n0", "n1"].into_iter().for_each(|node| world.lose(node));
    let run = world.run(|application| application.restart(some));
    run.all_gave(&Some(1));
    run.line_with(&[
        "index.scr is that of another prefix directory",
        "kept as",
        "A new index lists the 1 datasets",
    ]);
}

/// The application looks at no code: it was told of each dataset that did not begin, and never that none would.
#[test]
fn a_job_whose_damaged_index_cannot_be_replaced_says_so_at_once() {
    for (mode, mut world) in modes().into_iter().enumerate() {
        let files = FaultyFiles::new(RealFiles);
        files.never_pause();
        let scr = world.prefix().join(".scr");
        files.only(move |_, path| path.starts_with(&scr));
        world.files = Arc::new(files.clone());
        let turns = Barrier::new(4);
        let on_one = |work: &dyn Fn()| {
            if turns.wait().is_leader() {
                work();
            }
            turns.wait();
        };
        let run = world.run(|application| {
            application.checkpoint(1, some).unwrap();
            wait_until_complete(&world, application, &turns, &[1]);
            on_one(&|| {
                damage(&world);
                files.fail_from(1, ErrorKind::PermissionDenied);
            });
            let refused = (2..=4).filter_map(|step| {
                let begun = application.begin(step).and_then(|()| application.fill(step, some));
                _ = application.session().complete_output(true);
                begun.err().map(|error| error.to_string())
            });
            let refused = refused.collect::<Vec<_>>();
            on_one(&|| files.heal());
            // Earlier failures do no harm to later checkpoints.
            application.checkpoint(5, some).unwrap();
            application.finalize().unwrap();
            refused
        });
        let of_all = |word: &str| run.lines.iter().filter(|line| line.contains(word)).count();
        let refused = &run.ranks[0];
        if mode == 0 {
            let is_said =
                |why: &String| why.contains("reserving the name of") && why.contains("permission denied");
            assert!(refused.len() == 3 && refused.iter().all(is_said), "{refused:?}");
            run.line_with(&["ERROR", "this job can save nothing any more", ".scr/", "permission denied"]);
            assert_eq!(of_all("can save nothing any more"), 1, "{}", run.lines.join("\n"));
        } else {
            assert_eq!(refused, &[""; 0], "they are safe in cache");
            let words = ["ERROR", "ckpt.2 was not flushed", "index.scr is damaged", "kept in cache"];
            let line = run.line_with(&words);
            assert!(line.contains("no new index can take its place: cannot create"), "{line}");
            assert_eq!(of_all("can save nothing any more"), 0);
        }
        run.line_with(&["index.scr.damaged.1"]);
        world.lose("n0");
        world.lose("n1");
        world.run(|application| application.restart(some)).all_gave(&Some(5));
    }
}

/// It began without a checkpoint.
#[test]
fn a_job_does_not_begin_beside_a_damaged_index_that_cannot_be_replaced() {
    for mut world in modes() {
        world.run(|application| {
            application.checkpoint(1, some).unwrap();
            application.finalize().unwrap();
        });
        world.lose("n0");
        world.lose("n1");
        damage(&world);
        let files = FaultyFiles::new(RealFiles);
        files.never_pause();
        files.only_below(world.prefix());
        // Otherwise a run begins where the prefix directory is full.
        files.fail_from(1, ErrorKind::StorageFull);
        world.files = Arc::new(files.clone());
        let run = world.try_run(|begun| begun.map(drop).map_err(|error| error.to_string()));
        let words = ["index.scr is damaged", "no new index can take its place: ", "storage"];
        let is_said = |begun: &Result<(), String>| {
            begun.as_ref().is_err_and(|why| words.iter().all(|word| why.contains(word)))
        };
        assert!(run.ranks.iter().all(is_said), "{:?}", run.ranks);
        files.heal();
        world.run(|application| application.restart(some)).all_gave(&Some(1));
    }
}
