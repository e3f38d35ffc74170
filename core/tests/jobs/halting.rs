//! A job stops on each condition of the halt file when it is met and not before, and runs on where none holds.

use super::world::{plugins, Application, Outcome, Source, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_prefix::{ChangedEnd, Ended, Halt, LastRun, Prefix};

fn some(rank: Rank) -> Vec<usize> {
    vec![100 + rank.index()]
}

/// SCR_Init succeeded, though the page says that it fails for each setting of which it warns.
#[test]
fn a_setting_that_a_run_warns_of_is_an_error_with_scr_strict() {
    let plugins = format!("{}:/nowhere", plugins().display());
    let settings = [
        ("SCR_HALT_SECONDS", "600", "the end of the allocation is not known"),
        ("SCR_METRICS_DIR", "/nowhere/at/all", "the metrics of this job cannot be written"),
        ("SCR_SET_FAILURES", "3\nSCR_COPY_TYPE=RS", "It goes on with SCR_SET_FAILURES=1"),
        ("SCR_COPY_TYPE", "FILE\nCKPT=0 TYPE=XOR SETSIZE=3", "has no key SETSIZE"),
        ("STORE", "/nodes COUNT=2 FLUSHH=SYNC", "has no key FLUSHH"),
        ("SCR_PLUGIN_PATH", &plugins, "there is no such folder"),
        ("SCR_LOG_SYSLOG_FACILITY", "LOG_LOCAL9", "there is no facility `LOG_LOCAL9'"),
        ("SCR_EXCLUDE_NODES", "n[1", "`n[1' has a bracket without its partner"),
        ("SCR_TCP_INTERFACE", "ib77", "SCR_TCP_INTERFACE=ib77 is neither a network interface"),
        ("SCR_CNTL_BASE", "DIR/control", "see the same control folder"),
    ];
    for (name, value, why) in settings {
        for strict in ["0", "1"] {
            let mut world = World::new(2, 2).set("SCR_STRICT", strict);
            world.put_in(Source::SystemFile, name, &value.replace("DIR", &world.dir().display().to_string()));
            let run = world.try_run(|begun| begun.err().map(|error| error.to_string()));
            let error = run.ranks[0].clone().unwrap_or_default();
            let said = run.lines.iter().any(|line| line.contains("WARNING") && line.contains(why));
            assert!(said || strict == "1" && error.contains(why), "{name}: {error} {:?}", run.lines);
            let is_refused =
                |error: &Option<String>| error.as_ref().is_some_and(|error| error.contains("SCR_STRICT=1"));
            assert_eq!(run.ranks.iter().all(is_refused), strict == "1", "{name}: {:?}", run.ranks);
        }
    }
}

fn job() -> World {
    World::new(2, 2)
}

fn set(world: &World, change: impl FnMut(&mut Halt)) {
    Halt::update(&RealFiles, &Prefix::new(world.prefix()), change).expect("the halt file can be written");
}

fn found(world: &World) -> Option<Halt> {
    Halt::read(&RealFiles, &Prefix::new(world.prefix())).expect("the halt file can be read")
}

/// The answers of `should_exit` to the ranks before a checkpoint and after each of two.
fn asked(world: &World) -> Outcome<[bool; 3]> {
    world.run(|application| {
        let before = application.session().should_exit().unwrap();
        let after = [1, 2].map(|step| {
            application.checkpoint(step, some).unwrap();
            application.session().should_exit().unwrap()
        });
        [before, after[0], after[1]]
    })
}

/// When the n-th run of a world takes place: its clock stands still.
fn time_of(run: i64) -> i64 {
    1_000_000 * run
}

#[test]
fn without_conditions_a_job_runs_on_and_there_is_no_file() {
    let world = job();
    asked(&world).all_gave(&[false, false, false]);
    assert_eq!(found(&world), None);
}

#[test]
fn checkpoints_are_counted_down_and_the_last_one_ends_the_job() {
    let world = job();
    set(&world, |halt| halt.checkpoints_left = Some(2));
    asked(&world).all_gave(&[false, false, true]);
    assert_eq!(found(&world).unwrap().checkpoints_left, Some(0));
}

#[test]
fn a_checkpoint_that_fails_does_not_count() {
    let world = job();
    set(&world, |halt| halt.checkpoints_left = Some(1));
    let outcome = world.run(|application| {
        application.write(1, some).unwrap();
        application.session().complete_output(false).unwrap_err();
        let failed = application.session().should_exit().unwrap();
        application.checkpoint(2, some).unwrap();
        [failed, application.session().should_exit().unwrap()]
    });
    outcome.all_gave(&[false, true]);
}

#[test]
fn the_time_after_which_to_halt_is_compared_with_the_clock() {
    let world = job();
    set(&world, |halt| halt.exit_after = Some(time_of(2)));
    asked(&world).all_gave(&[false, false, false]);
    asked(&world).all_gave(&[true, true, true]);
}

#[test]
fn the_time_before_which_to_halt_comes_earlier_by_the_halt_seconds() {
    let world = job();
    set(&world, |halt| halt.exit_before = Some(time_of(1) + 60));
    asked(&world).all_gave(&[false, false, false]);
    set(&world, |halt| halt.exit_before = Some(time_of(2)));
    asked(&world).all_gave(&[true, true, true]);
    let world = job();
    set(&world, |halt| (halt.exit_before, halt.halt_seconds) = (Some(time_of(1) + 60), Some(60)));
    asked(&world).all_gave(&[true, true, true]);
}

#[test]
fn a_reason_ends_the_job_and_can_be_given_while_it_runs() {
    // A checkpoint is due before the end, though it is long until its turn.
    let world = job().set("SCR_CHECKPOINT_INTERVAL", "1000");
    let outcome = world.run(|application| {
        let asked = |application: &mut Application| {
            let session = application.session();
            [session.should_exit().unwrap(), session.need_checkpoint().unwrap()]
        };
        let before = asked(application);
        if application.rank == Rank(0) {
            set(&world, |halt| halt.exit_reason = Some("JOB_HALTED".to_owned()));
        }
        [before, asked(application)]
    });
    outcome.all_gave(&[[false, false], [true, true]]);
}

#[test]
fn halt_seconds_of_the_settings_are_in_the_halt_file_so_that_a_command_can_change_them() {
    let mut world = job().set("SCR_HALT_SECONDS", "600").set("SCR_END_TIME", &(time_of(1) + 500).to_string());
    let outcome = world.run(|application| {
        let first = application.session().should_exit().unwrap();
        if application.rank == Rank(0) {
            assert_eq!(found(&world).unwrap().halt_seconds, Some(600));
            set(&world, |halt| halt.halt_seconds = None);
        }
        [first, application.session().should_exit().unwrap()]
    });
    outcome.all_gave(&[true, false]);
    // It was told to remove the file, and the next job wrote the same into it.
    outcome.line_with(&["the job is to halt", "unset SCR_HALT_SECONDS", "scr halt --remove"]);
    // The next run in the allocation, after one that came to its end, has its own.
    world.run(|application| application.finalize().unwrap());
    set(&world, |halt| assert!(halt.is_finalized() && halt.halt_seconds.is_none()));
    assert!(found(&world).unwrap().stopped_in_time, "it goes on in the next allocation");
    world.put("SCR_HALT_SECONDS", "700");
    world.run(|_| assert_eq!(found(&world).unwrap().halt_seconds, Some(700)));
}

#[test]
fn a_halt_file_from_a_command_overrides_the_settings_with_a_message() {
    let world = job().set("SCR_HALT_SECONDS", "600").set("SCR_END_TIME", &(time_of(1) + 500).to_string());
    set(&world, |halt| halt.checkpoints_left = Some(5));
    let outcome = asked(&world);
    outcome.all_gave(&[false, false, false]);
    outcome.line_with(&["SCR_HALT_SECONDS=600 has no effect", "halt.scr was there before the job"]);
}

#[test]
fn with_halt_exit_the_job_is_to_end_after_the_checkpoint_that_meets_the_condition_and_not_otherwise() {
    for (halt_exit, expected) in [("0", [false, false, false]), ("1", [false, false, true])] {
        let world = job().set("SCR_HALT_EXIT", halt_exit).set("SCR_FLUSH", "10");
        set(&world, |halt| halt.checkpoints_left = Some(2));
        let outcome = world.run(|application| {
            let begun = application.session().exit_wanted().is_some();
            let wanted = [1, 2].map(|step| {
                application.checkpoint(step, some).unwrap();
                application.session().exit_wanted().is_some()
            });
            if wanted[1] {
                application.halt().unwrap();
            }
            [begun, wanted[0], wanted[1]]
        });
        outcome.all_gave(&expected);
        // One that does not ask went on without a word.
        let says = "no checkpoints are left to be taken; the program learns that from SCR_Should_exit";
        assert_eq!(outcome.has_line_with(says), halt_exit == "0");
        // A checkpoint that is only in cache is copied before the job ends. A later job must not take this one for finished.
        assert_eq!(world.prefix().join("ckpt.2").exists(), halt_exit == "1");
        assert!(!found(&world).unwrap().is_finalized());
    }
}

/// It halted at the old end, and no command could move the end.
#[test]
fn a_job_learns_that_the_end_of_its_allocation_has_changed() {
    let world = job().set("SCR_JOB_ID", "7").set("SCR_HALT_SECONDS", "100");
    let world = world.set("SCR_END_TIME", &(time_of(1) + 50).to_string());
    let change = |id: &str, after: i64| {
        let end = ChangedEnd { job_id: id.to_owned(), time: time_of(1) + after };
        set(&world, |halt| halt.changed_end = Some(end.clone()));
    };
    let turns = std::sync::Barrier::new(2);
    let outcome = world.run(|application| {
        let mut asked = Vec::new();
        for (id, after) in [("8", 900), ("7", 900), ("7", 90)] {
            asked.push(application.session().should_exit().unwrap());
            if turns.wait().is_leader() {
                change(id, after);
            }
            turns.wait();
        }
        asked.push(application.session().should_exit().unwrap());
        asked
    });
    outcome.all_gave(&vec![true, true, false, true]);
}

#[test]
fn with_halt_exit_a_job_is_to_end_at_once_where_a_condition_holds_when_it_starts() {
    let world = job().set("SCR_HALT_EXIT", "1");
    set(&world, |halt| halt.exit_reason = Some("MAINTENANCE".to_owned()));
    let outcome = world.run(|application| application.session().exit_wanted().map(str::to_owned));
    outcome.all_gave(&Some("the halt file gives the reason MAINTENANCE".to_owned()));
    outcome.line_with(&["the job is to halt", "scr halt --remove"]);
}

/// `scr status` took its end for that of a job that has finished, or has died.
#[test]
fn a_run_that_ends_for_a_halt_condition_says_so() {
    let ended =
        |world: &World| LastRun::read(&RealFiles, &Prefix::new(world.prefix())).unwrap().unwrap().ended;
    let why = || Some(Ended::Halted("the halt file gives the reason JOB_HALTED".to_owned()));
    for halt_exit in ["0", "1"] {
        let world = job().set("SCR_HALT_EXIT", halt_exit);
        world.run(|_| ());
        assert_eq!(ended(&world), None, "it has died");
        set(&world, |halt| halt.exit_reason = Some("JOB_HALTED".to_owned()));
        world.run(|application| match halt_exit {
            "0" => {
                assert!(application.session().should_exit().unwrap());
                application.finalize().unwrap();
            }
            _ => application.halt().unwrap(),
        });
        assert_eq!(ended(&world), why());
        Halt::remove(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        world.run(|application| application.finalize().unwrap());
        assert_eq!(ended(&world), Some(Ended::Finished));
    }
}

/// The reason of the run before stayed, and `scr postrun` took it for that of a run that had died.
#[test]
fn a_run_that_dies_is_not_taken_for_one_that_has_called_finalize() {
    let world = job();
    world.run(|application| application.finalize().unwrap());
    world.run(|application| application.checkpoint(1, some).unwrap());
    assert!(!found(&world).unwrap().is_finalized());
    // A request by somebody else stays.
    set(&world, |halt| halt.exit_reason = Some("MAINTENANCE".to_owned()));
    world.run(|_| ());
    assert_eq!(found(&world).unwrap().exit_reason.as_deref(), Some("MAINTENANCE"));
}

/// Rank 0 had recorded the end, `scr run` did not start the job again, and `scr postrun` saved nothing.
#[test]
fn a_run_that_loses_a_rank_before_all_have_called_finalize_has_not_ended() {
    let world = job();
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        application.rank == Rank(1) || application.finalize().is_err()
    });
    outcome.all_gave(&true);
    assert!(!found(&world).is_some_and(|halt| halt.is_finalized()));
}

/// `SCR_Finalize` succeeded in a full prefix directory, and the job was said to have died and was started again.
#[test]
fn an_end_that_cannot_be_recorded_is_an_error_of_finalize_on_all_ranks() {
    let world = job();
    let halt_file = Prefix::new(world.prefix()).halt_file();
    let outcome = world.run(|application| {
        application.checkpoint(1, some).unwrap();
        if application.rank == Rank(0) {
            std::fs::create_dir_all(halt_file.join("in the way")).unwrap();
        }
        application.finalize().unwrap_err().to_string()
    });
    assert!(
        outcome.ranks.iter().all(|error| error.contains("recording the end of the job")),
        "{:?}",
        outcome.ranks
    );
}

/// Only programs that start jobs check for it. A program that was started again by hand did one step per run.
#[test]
fn a_normal_end_of_the_last_run_does_not_stop_the_next_one() {
    let world = job().set("SCR_HALT_EXIT", "1").set("SCR_CHECKPOINT_INTERVAL", "1000");
    world.run(|application| application.finalize().unwrap());
    assert!(found(&world).unwrap().is_finalized());
    let outcome = world.run(|application| {
        let session = application.session();
        let wanted = session.exit_wanted().is_some();
        [wanted, session.should_exit().unwrap(), session.need_checkpoint().unwrap()]
    });
    outcome.all_gave(&[false, false, false]);
    assert!(!outcome.has_line_with("the job is to halt"));
    // Other conditions hold anyway.
    set(&world, |halt| halt.checkpoints_left = Some(1));
    asked(&world).all_gave(&[false, true, true]);
}

/// The user was not told that the job would run into the end of its allocation.
#[test]
fn halt_seconds_without_a_known_end_of_the_allocation_are_reported() {
    let world = job().set("SCR_HALT_SECONDS", "600");
    world.run(|_| ()).line_with(&[
        "SCR_HALT_SECONDS=600 has no effect",
        "set SCR_END_TIME",
        "scr halt --before",
    ]);
    let world = world.set("SCR_END_TIME", &(time_of(1) + 5000).to_string());
    assert!(!world.run(|_| ()).has_line_with("has no effect"));
    // A length of time halts the job at once, and nobody was told why.
    let world = world.set("SCR_END_TIME", "3600");
    let run = world.run(|_| ());
    run.line_with(&["SCR_END_TIME=3600 has passed: give the end of the allocation"]);
    run.line_with(&["the job is to halt: 0 seconds are left"]);
    let strict = world.set("SCR_STRICT", "1").try_run(|begun| begun.err().map(|error| error.to_string()));
    let says = |error: &Option<String>| error.as_ref().is_some_and(|error| error.contains("has passed"));
    assert!(strict.ranks.iter().all(says), "{:?}", strict.ranks);
}
