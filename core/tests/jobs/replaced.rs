//! No process replaces files in the prefix directory while another one reads them.

use super::world::{contents, file_name, mode, path_of, said, Application, World};
use scr_base::fs::{Files, How, RealFiles};
use scr_comm::Rank;
use scr_core::session::{Error, OutputFlags, Session};
use scr_ops::drop_dataset;
use scr_prefix::commit::FlushOutcome;
use scr_prefix::ledger::{LedgerDir, Wish};
use scr_prefix::{Index, Prefix};
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

const BYTES: usize = 3000;

fn one(_: Rank) -> Vec<usize> {
    vec![BYTES]
}

/// Writes a checkpoint with the name and the files of step 1, and with the bytes of another step.
fn write_as_step_1(application: &mut Application, step: u64) {
    let rank = application.rank;
    let flags = OutputFlags { checkpoint: true, output: false };
    application.session().start_output(Some(b"ckpt.1"), flags).unwrap();
    let path = application.session().route_file(file_name(1, rank, 0).as_bytes()).unwrap();
    std::fs::write(path_of(&path), contents(step, rank, 0, BYTES)).unwrap();
    std::fs::set_permissions(path_of(&path), mode(rank, 0)).unwrap();
}

/// A run has flushed `ckpt.1`. The flush of a newer `ckpt.1` has arrived, and could not be closed. Its cache is gone.
fn with_an_arrived_flush_of_the_same_name() -> (World, FaultyFiles) {
    with_an_arrived_flush(|application| write_as_step_1(application, 7))
}

/// The same, of a checkpoint that is written so. The index takes the change that begins the flush, and none after it.
fn with_an_arrived_flush(write: fn(&mut Application)) -> (World, FaultyFiles) {
    let mut world = World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_FETCH_BYPASS", "1");
    world.run(|application| application.checkpoint(1, one).unwrap());
    let faulty = FaultyFiles::new(RealFiles);
    faulty.never_pause();
    faulty.only(|_, path| path.ends_with(".scr/index.scr"));
    world.files = Arc::new(faulty.clone());
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        write(application);
        turns.wait();
        let at = faulty.mutations() + 2;
        turns.wait();
        faulty.fail_from(at, ErrorKind::TimedOut);
        application.session().complete_output(true).unwrap();
    });
    run.line_with(&["has arrived, but could not be listed"]);
    world.lose("n0");
    world.lose("n1");
    (world, faulty)
}

fn poststage(world: &World) -> Vec<FlushOutcome> {
    close(&Prefix::new(world.prefix()))
}

fn close(prefix: &Prefix) -> Vec<FlushOutcome> {
    LedgerDir::new(&RealFiles, prefix).commit("2026-11-23T00:00:00").end_all(Wish::EndArrived).unwrap()
}

/// The flush of an earlier run was closed in the middle, and the application read files of both.
#[test]
fn files_that_the_application_reads_in_place_are_not_replaced_by_a_flush_that_was_left_to_be_closed() {
    let (world, faulty) = with_an_arrived_flush_of_the_same_name();
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        if turns.wait().is_leader() {
            faulty.heal();
        }
        turns.wait();
        let name = application.session().have_restart().unwrap().unwrap();
        assert_eq!(application.session().start_restart().unwrap(), name);
        turns.wait();
        let while_read = (application.rank == Rank(0)).then(|| poststage(&world));
        turns.wait();
        application.compare(1, one).unwrap();
        application.session().complete_restart(true).unwrap();
        application.checkpoint(2, one).unwrap();
        while_read.map(|while_read| (while_read, poststage(&world)))
    });
    run.line_with(&["left for the next one"]);
    let (while_read, later) = run.ranks[0].as_ref().unwrap();
    assert!(matches!(&while_read[..], [FlushOutcome::Postponed { .. }]), "{while_read:?}");
    assert!(while_read[0].to_string().contains("another run reads the files of dataset"), "{while_read:?}");
    assert!(matches!(&later[..], [FlushOutcome::Finalized(_)]), "{later:?}");
    for rank in (0..4).map(Rank) {
        let found = std::fs::read(world.prefix().join(file_name(1, rank, 0))).unwrap();
        assert!(found == contents(7, rank, 0, BYTES));
    }
}

/// The run before was still ending when this one began, and with its end nobody held anything any more.
#[test]
fn files_that_are_read_in_place_stay_when_the_run_before_ends_meanwhile() {
    let (world, faulty) = with_an_arrived_flush_of_the_same_name();
    let while_read = thread::scope(|scope| {
        let ((has_begun, begun), (end, ending)) = (channel(), channel::<()>());
        let ending = Mutex::new(ending);
        let world = &world;
        let before = scope.spawn(move || {
            world.run(|application| {
                if application.rank == Rank(0) {
                    has_begun.send(()).unwrap();
                    let _ = ending.lock().unwrap().recv();
                }
            });
        });
        begun.recv().unwrap();
        let before = Mutex::new(Some((end, before)));
        let turns = Barrier::new(4);
        let run = world.run(|application| {
            if turns.wait().is_leader() {
                faulty.heal();
            }
            turns.wait();
            application.session().have_restart().unwrap().unwrap();
            application.session().start_restart().unwrap();
            turns.wait();
            let while_read = (application.rank == Rank(0)).then(|| {
                let (end, before) = before.lock().unwrap().take().unwrap();
                drop(end);
                before.join().unwrap();
                // A third run finds this one, and leaves it what it holds.
                let third = world.run(|_| ());
                (third.has_line_with("another job uses the prefix directory"), poststage(world))
            });
            turns.wait();
            application.compare(1, one).unwrap();
            while_read
        });
        run.line_with(&["another job uses the prefix directory"]);
        let (is_found, while_read) = run.ranks.into_iter().next().flatten().unwrap();
        assert!(is_found);
        while_read
    });
    assert!(matches!(&while_read[..], [FlushOutcome::Postponed { .. }]), "{while_read:?}");
    assert!(matches!(&poststage(&world)[..], [FlushOutcome::Finalized(_)]));
}

/// Reads what is offered where it lies, and gives the step whose bytes it has.
fn read_in_place(application: &mut Application) -> Option<u64> {
    let rank = application.rank;
    let name = application.session().have_restart().unwrap()?;
    assert_eq!(application.session().start_restart().unwrap(), name);
    let path = application.session().route_file(file_name(1, rank, 0).as_bytes()).unwrap();
    let found = std::fs::read(path_of(&path)).unwrap();
    application.session().complete_restart(true).unwrap();
    [1, 7].into_iter().find(|&step| found == contents(step, rank, 0, BYTES))
}

/// Those that a run has found, and whose files were replaced before the application asked for them, are not offered; what has
/// replaced them is.
#[test]
fn what_has_replaced_a_checkpoint_since_it_was_found_is_read_instead() {
    let (world, faulty) = with_an_arrived_flush_of_the_same_name();
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        if turns.wait().is_leader() {
            faulty.heal();
            poststage(&world);
        }
        turns.wait();
        read_in_place(application)
    });
    run.all_gave(&Some(7));
    run.line_with(&["`ckpt.1' is not read: its files were replaced"]);
}

/// It was read all the same where the index could not be changed, and where the process had been stopped until another one took
/// its lock: its bytes were those of the other one.
#[test]
fn what_has_replaced_a_checkpoint_is_read_instead_also_by_a_process_that_cannot_hold_it() {
    type Hinder = fn(&FaultyFiles, Prefix);
    let hinder: [Hinder; 2] = [
        |files, prefix| {
            close(&prefix);
            files.fail_from(1, ErrorKind::StorageFull);
        },
        |files, prefix| {
            files.interrupt_at(1, move || {
                let lock = RealFiles.open(&prefix.scr_file("index.lock"), How::Update).unwrap();
                lock.set_times((1000, 0), (1000, 0)).unwrap();
                close(&prefix);
            });
        },
    ];
    for hinder in hinder {
        let (mut world, faulty) = with_an_arrived_flush_of_the_same_name();
        let own = FaultyFiles::around(Arc::new(faulty.clone()));
        own.only(|what, path| what == What::Write && path.to_string_lossy().contains("index.scr.tmp"));
        world.own_files.insert(Rank(0), Arc::new(own.clone()));
        let prefix = Prefix::new(world.prefix());
        let turns = Barrier::new(4);
        let run = world.run(|application| {
            if turns.wait().is_leader() {
                faulty.heal();
                own.heal();
                hinder(&own, prefix.clone());
            }
            turns.wait();
            read_in_place(application)
        });
        run.all_gave(&Some(7));
        run.line_with(&["`ckpt.1' is not read: its files were replaced"]);
    }
}

/// The run began without a checkpoint, since the only one that it had found was replaced by a newer one meanwhile.
#[test]
fn what_replaces_a_checkpoint_while_it_is_fetched_is_fetched_instead() {
    let (mut world, faulty) = with_an_arrived_flush_of_the_same_name();
    world.put("SCR_FETCH_BYPASS", "0");
    let data = world.prefix().join("ckpt.1");
    let meanwhile = FaultyFiles::new(RealFiles);
    meanwhile.count_all();
    meanwhile.only(move |what, path| what == What::OpenToRead && path.starts_with(&data));
    let prefix = Prefix::new(world.prefix());
    meanwhile.interrupt_at(1, move || {
        faulty.heal();
        close(&prefix);
    });
    world.own_files.insert(Rank(1), Arc::new(meanwhile));
    let run = world.run(read_in_place);
    run.all_gave(&Some(7));
    run.line_with(&["`ckpt.1' cannot be fetched: another process has replaced or dropped"]);
}

/// Rank 0 of the runs that follow cannot close a flush, since it cannot read the staging files, nor do what is `also` meant.
fn let_no_flush_be_closed(world: &mut World, also: fn(What, &Path) -> bool) {
    let own = FaultyFiles::around(Arc::clone(&world.files));
    own.count_all();
    own.never_pause();
    own.only(move |what, path| {
        let is_staging = path.extension().is_some_and(|extension| extension == "part");
        what == What::OpenToRead && is_staging || also(what, path)
    });
    own.fail_from(1, ErrorKind::TimedOut);
    world.own_files.insert(Rank(0), Arc::new(own));
}

/// It was taken back, since it is newer than the one of its name that was complete, and its bytes were lost.
#[test]
fn an_arrived_flush_of_the_name_that_the_user_goes_back_to_is_closed_later() {
    let (mut world, faulty) = with_an_arrived_flush_of_the_same_name();
    faulty.heal();
    let_no_flush_be_closed(&mut world, |_, _| false);
    world.put("SCR_CURRENT", "ckpt.1");
    world.run(read_in_place).all_gave(&Some(1));
    let ended = poststage(&world);
    assert!(matches!(&ended[..], [FlushOutcome::Finalized(_)]), "{ended:?}");
    for rank in (0..4).map(Rank) {
        let found = std::fs::read(world.prefix().join(file_name(1, rank, 0))).unwrap();
        assert!(found == contents(7, rank, 0, BYTES));
    }
}

/// It was recorded before, so that the next run went on from the checkpoint that the user had gone back beyond.
#[test]
fn a_run_that_cannot_take_back_what_is_newer_records_nothing_of_what_the_user_goes_back_to() {
    let (mut world, faulty) = with_an_arrived_flush(|application| application.write(2, one).unwrap());
    faulty.heal();
    let is_record = |what, path: &Path| what == What::Rename && path.to_string_lossy().contains("/flush.");
    let_no_flush_be_closed(&mut world, is_record);
    world.put("SCR_CURRENT", "ckpt.1");
    let run = world.try_run(|application| application.err().map(|error| error.to_string()));
    let refused = run.ranks[0].as_ref().unwrap();
    assert!(refused.contains("ending the flushes of checkpoints newer than the chosen one"), "{refused}");
    assert!(!world.prefix().join(".scr/current.scr").exists());
}

/// A run that dies reads nothing any more.
#[test]
fn a_run_that_has_died_keeps_no_flush_from_being_closed() {
    let (world, faulty) = with_an_arrived_flush_of_the_same_name();
    let turns = Barrier::new(4);
    world.run(|application| {
        if turns.wait().is_leader() {
            faulty.heal();
        }
        turns.wait();
        application.session().have_restart().unwrap().unwrap();
    });
    let ended = poststage(&world);
    assert!(matches!(&ended[..], [FlushOutcome::Finalized(_)]), "{ended:?}");
}

/// The window of the other job deleted it.
#[test]
fn what_a_run_reads_in_place_is_not_deleted_to_make_room_for_the_checkpoints_of_another_one() {
    let world =
        World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_FETCH_BYPASS", "1").set("SCR_PREFIX_SIZE", "1");
    world.run(|application| application.checkpoint(1, one).unwrap());
    world.lose("n0");
    world.lose("n1");
    let turns = Barrier::new(4);
    world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        turns.wait();
        let other = (application.rank == Rank(0)).then(|| {
            world.run(|application| (2..=3).for_each(|step| application.checkpoint(step, one).unwrap()))
        });
        turns.wait();
        assert!(other.is_none_or(|other| other.has_line_with("Deleting dataset")));
        application.compare(1, one).unwrap();
        application.session().complete_restart(true).unwrap();
    });
}

/// They deleted the files, or let others replace them, while the application read them.
#[test]
fn what_a_run_reads_in_place_is_not_purged_deleted_or_dropped_by_another_one() {
    let world = World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_FETCH_BYPASS", "1");
    world.run(|application| application.checkpoint(1, one).unwrap());
    world.lose("n0");
    world.lose("n1");
    let prefix = Prefix::new(world.prefix());
    let drop = || drop_dataset(&RealFiles, &prefix, b"ckpt.1");
    let purge = |is_wanted: u8| {
        std::fs::write(world.prefix().join(".scrconf"), format!("SCR_PREFIX_PURGE={is_wanted}\n")).unwrap();
    };
    type Change = fn(&mut Session) -> Result<(), Error>;
    let changes: [Change; 2] =
        [|session| session.delete(b"ckpt.1"), |session| session.drop_dataset(b"ckpt.1")];
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        application.session().start_restart().unwrap();
        turns.wait();
        let others = (application.rank == Rank(0)).then(|| {
            let changed = changes.map(|change| {
                let run = world.try_run(|other| other.and_then(|mut other| change(other.session())));
                run.ranks.into_iter().next().unwrap().err().map(said)
            });
            let dropped = drop().err().map(said);
            purge(1);
            let purged = world.try_run(|other| other.err().map(said));
            [&changed[..], &[dropped], &purged.ranks[..1]].concat()
        });
        turns.wait();
        application.compare(1, one).unwrap();
        application.session().complete_restart(true).unwrap();
        others
    });
    let refused: Vec<String> = run.ranks[0].iter().flatten().flatten().cloned().collect();
    let words = "another run reads the files of dataset 1";
    assert!(refused.len() == 4 && refused.iter().all(|why| why.contains(words)), "{refused:?}");
    assert!(refused[3].contains("purging the prefix directory"), "{refused:?}");
    // It was recorded, and removed from cache, before the call was refused.
    let ids = std::fs::read(world.prefix().join(".scr/ids.scr")).unwrap();
    assert!(!ids.windows(9).any(|word| word == b"WITHDRAWN"));
    purge(0);
    // The run has ended, and its own hold is in nobody's way.
    world.run(|application| application.session().delete(b"ckpt.1").unwrap());
    assert!(!drop().unwrap().found && !world.prefix().join("ckpt.1").exists());
}

/// A process of the run before was still there, and no checkpoint of the new one became complete.
#[test]
fn a_run_that_writes_in_place_is_not_kept_from_it_by_one_that_has_read_there() {
    let world = World::new(4, 2).set("SCR_CACHE_BYPASS", "1");
    world.run(|application| application.checkpoint(1, one).unwrap());
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        application.session().have_restart().unwrap().unwrap();
        turns.wait();
        // Under another name, so that only the files are the same.
        let write = |application: &mut Application| application.checkpoint_as(b"ckpt.2", 1, one);
        let written = (application.rank == Rank(0))
            .then(|| world.run(|application| write(application).map_err(|error| error.to_string())));
        turns.wait();
        written
    });
    run.ranks[0].as_ref().unwrap().all_gave(&Ok(()));
}

/// The file that each rank writes over in every checkpoint, in the prefix directory itself.
fn own_file(rank: Rank) -> String {
    format!("state/rank_{rank}")
}

/// Begins a checkpoint in the same files as all others, and writes the first bytes.
fn begin_over(application: &mut Application, step: u64) {
    let flags = OutputFlags { checkpoint: true, output: false };
    application.session().start_output(Some(format!("ckpt.{step}").as_bytes()), flags).unwrap();
    write_over(application, step, BYTES / 3);
}

fn write_over(application: &mut Application, step: u64, bytes: usize) {
    let rank = application.rank;
    let path = application.session().route_file(own_file(rank).as_bytes()).unwrap();
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path_of(&path));
    file.unwrap().write_all_at(&contents(step, rank, 0, BYTES)[..bytes], 0).unwrap();
}

fn checkpoint_over(application: &mut Application, step: u64) {
    begin_over(application, step);
    write_over(application, step, BYTES);
    application.session().complete_output(true).unwrap();
}

/// The name of a checkpoint that was offered, and the step whose bytes it had, if they were of one step.
type Read = Option<(String, Option<u64>)>;

/// Asks for the checkpoint and reads it.
fn read_over(application: &mut Application) -> Read {
    let rank = application.rank;
    let name = String::from_utf8(application.session().have_restart().unwrap()?).unwrap();
    application.session().start_restart().unwrap();
    let path = application.session().route_file(own_file(rank).as_bytes()).unwrap();
    let found = std::fs::read(path_of(&path)).unwrap();
    Some((name, (1..=9).find(|&step| found == contents(step, rank, 0, BYTES))))
}

/// Both jobs restart from `ckpt.1`, and the other one goes on while this one reads. `go_on` writes over the files once all ranks
/// of this one have opened the checkpoint, and before they read. Gives for each rank the error of the restart, the next offer,
/// and whether the bytes of that were right.
fn read_beside(
    world: &World,
    go_on: fn(&mut Application),
    is_valid: fn(Option<u64>) -> bool,
) -> Vec<(String, Read)> {
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        let name = application.session().have_restart().unwrap().unwrap();
        assert_eq!(
            (name, application.session().start_restart().unwrap()),
            (b"ckpt.1".into(), b"ckpt.1".into())
        );
        turns.wait();
        if application.rank == Rank(0) {
            world.run(|other| {
                assert_eq!(read_over(other).unwrap(), ("ckpt.1".to_owned(), Some(1)));
                other.session().complete_restart(true).unwrap();
                go_on(other);
            });
        }
        turns.wait();
        let rank = application.rank;
        let path = application.session().route_file(own_file(rank).as_bytes()).unwrap();
        let found = std::fs::read(path_of(&path)).unwrap();
        let step = (1..=9).find(|&step| found == contents(step, rank, 0, BYTES));
        assert!(step != Some(1) || rank != Rank(0), "the other job has written");
        let why = said(application.session().complete_restart(is_valid(step)).unwrap_err());
        let next = read_over(application);
        if next.is_some() {
            application.session().complete_restart(true).unwrap();
        }
        (why, next)
    });
    run.ranks
}

fn one_job_in_place() -> World {
    let world = World::new(4, 2).set("SCR_CACHE_BYPASS", "1");
    world.run(|application| checkpoint_over(application, 1));
    world
}

/// The older job wrote after the newer one had written, whose checkpoint was complete then with bytes of both.
#[test]
fn of_two_jobs_in_place_only_one_writes_a_dataset_of_a_name_at_a_time() {
    let world = one_job_in_place();
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        begin_over(application, 2);
        turns.wait();
        if application.rank == Rank(0) {
            let other = world.run(|other| said(other.begin(2).unwrap_err()));
            assert!(other.ranks.iter().all(|why| why.contains("another job writes a dataset of this name")));
        }
        turns.wait();
        application.fill(2, |_| vec![BYTES]).unwrap();
        application.session().complete_output(true).unwrap();
        turns.wait();
        if application.rank == Rank(0) {
            world.run(|other| checkpoint_over(other, 3));
        }
        turns.wait();
        // The newer run has written it.
        application.begin(3).unwrap_err().to_string()
    });
    assert!(run.ranks.iter().all(|why| why.contains("newer")), "{:?}", run.ranks);
    world.run(read_over).all_gave(&Some(("ckpt.3".to_owned(), Some(3))));
}

/// The restart succeeded with bytes of both checkpoints.
#[test]
fn a_restart_fails_if_another_job_has_begun_to_write_over_the_files_that_it_has_read() {
    for is_valid in [(|_| true) as fn(Option<u64>) -> bool, |step| step == Some(1)] {
        let world = one_job_in_place();
        for (why, next) in read_beside(&world, |other| begin_over(other, 2), is_valid) {
            let words = ["was given", "state/rank_", "SCR_PREFIX", "`ckpt.1' is not marked as failed"];
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
            assert_eq!(next, None);
        }
        let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        assert!(index.entry(1).unwrap().failed.is_none());
    }
}

/// The other job has forgotten by then what it was given, and what it wrote is complete: that is read instead.
#[test]
fn a_restart_goes_on_with_the_checkpoint_that_another_job_has_written_over_the_one_that_it_read() {
    for is_valid in [(|_| true) as fn(Option<u64>) -> bool, |step| step == Some(1)] {
        let world = one_job_in_place();
        for (why, next) in read_beside(&world, |other| checkpoint_over(other, 2), is_valid) {
            let words =
                ["has replaced or removed it", "SCR_PREFIX", "the newest one that is left is `ckpt.2'"];
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
            assert_eq!(next, Some(("ckpt.2".to_owned(), Some(2))));
        }
        // It stayed complete in the index while this job read it, and later runs were offered it with the bytes of the other one.
        let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
        assert!(index.entry(1).is_none_or(|entry| !entry.complete));
    }
}

/// Its lists could not be written, by any run. So nothing in the index told the run what the other job had done, and the restart
/// succeeded with bytes of both.
#[test]
fn a_restart_fails_if_another_job_has_written_over_a_checkpoint_that_was_never_listed() {
    let mut world = World::new(4, 2).set("SCR_CACHE_BYPASS", "1");
    let faulty = FaultyFiles::new(RealFiles);
    faulty.never_pause();
    faulty.only(|_, path| path.display().to_string().contains("/.scr/scr.dataset.1"));
    faulty.fail_from(1, ErrorKind::PermissionDenied);
    world.files = Arc::new(faulty);
    world.run(|application| {
        begin_over(application, 1);
        write_over(application, 1, BYTES);
        application.session().complete_output(true).unwrap_err();
    });
    let turns = Barrier::new(4);
    let run = world.run(|application| {
        assert_eq!(application.session().have_restart().unwrap().unwrap(), b"ckpt.1");
        application.session().start_restart().unwrap();
        turns.wait();
        if application.rank == Rank(0) {
            let index = Index::read(&RealFiles, &Prefix::new(world.prefix())).unwrap();
            assert!(index.entry(1).is_none_or(|entry| !entry.complete));
            world.run(|other| checkpoint_over(other, 2));
        }
        turns.wait();
        let name = own_file(application.rank);
        application.session().route_file(name.as_bytes()).unwrap();
        let completed = application.session().complete_restart(true);
        (completed.map_err(said), read_over(application))
    });
    for (completed, next) in run.ranks {
        let why = completed.unwrap_err();
        assert!(why.contains("state/rank_") && why.contains("SCR_PREFIX"), "{why}");
        assert_eq!(next, Some(("ckpt.2".to_owned(), Some(2))));
    }
}

/// A record of the file is older than the run, and checksums have proven since that nothing was written.
#[test]
fn a_restart_succeeds_where_a_file_was_given_out_earlier_and_its_checksum_is_right() {
    let world = World::new(4, 2).set("SCR_FLUSH", "1").set("SCR_CACHE_BYPASS", "0");
    world.run(|application| checkpoint_over(application, 1));
    world.lose("n0");
    world.lose("n1");
    let world = world.set("SCR_CACHE_BYPASS", "1").set("SCR_FETCH_BYPASS", "1");
    world.run(|application| {
        let flags = OutputFlags { checkpoint: true, output: false };
        application.session().start_output(Some(b"ckpt.2"), flags).unwrap();
        let name = own_file(application.rank);
        application.session().route_file(name.as_bytes()).unwrap();
    });
    let run = world.run(|application| {
        let read = read_over(application);
        application.session().complete_restart(true).unwrap();
        read
    });
    run.all_gave(&Some(("ckpt.1".to_owned(), Some(1))));
}
