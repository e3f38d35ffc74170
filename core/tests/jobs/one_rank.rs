//! An operation that fails on one rank has one outcome for all: nobody waits forever, all ranks get the same result, no byte
//! is wrong, and each dataset that was reported as safe is there for the next run.
//!
//! One rank sees its files through a layer of its own, in which every operation of a run fails in turn: once, as an error
//! that passes, or from then on, as on a device that is full.

use super::crash::{comes_back, sizes};
use super::world::{Application, World};
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::Error;
use scr_test_kit::faulty::{FaultyFiles, What};
use scr_test_kit::moments;
use std::io::ErrorKind;
use std::sync::Arc;

/// The results of the calls of a rank, and the step that the next run has to find, or a newer one.
type Answers = (Vec<String>, u64);

/// One way for a job to run with one rank in trouble.
struct Trouble {
    settings: &'static [(&'static str, &'static str)],
    /// Whether operations that change nothing fail too.
    reads: bool,
    /// The error of the device from then on; `None` if it fails only once.
    lasting: Option<ErrorKind>,
    /// The step that the next run has to find if this one could not even begin.
    without_session: u64,
    /// A node that is lost before the next run.
    lost: Option<&'static str>,
}

const ONCE: Trouble = Trouble { settings: &[], reads: true, lasting: None, without_session: 0, lost: None };
/// With two checkpoints there already.
const RESTART: Trouble = Trouble { without_session: 2, ..ONCE };

impl Trouble {
    fn world(&self, before: &impl Fn(&mut World)) -> World {
        let world = World::new(4, 4);
        let mut world = self.settings.iter().fold(world, |world, (name, value)| world.set(name, value));
        before(&mut world);
        world
    }

    /// The files as the rank in trouble sees them.
    fn layer(&self) -> FaultyFiles {
        let faulty = FaultyFiles::new(RealFiles);
        if self.reads {
            faulty.count_all();
        }
        faulty
    }

    fn run(&self, before: impl Fn(&mut World), life: impl Fn(&mut Application) -> Answers + Sync) {
        for victim in [Rank(0), Rank(1)] {
            let faulty = self.layer();
            let mut world = self.world(&before);
            world.own_files.insert(victim, Arc::new(faulty.clone()));
            world.run(&life);
            let all = faulty.mutations();
            assert!(all > 10, "the good run did {all} operations on rank {victim}");
            for at in moments(all, 12) {
                self.fail_at(at, victim, &before, &life);
            }
        }
    }

    fn fail_at(
        &self,
        at: u64,
        victim: Rank,
        before: &impl Fn(&mut World),
        life: &(impl Fn(&mut Application) -> Answers + Sync),
    ) {
        let faulty = self.layer();
        let mut world = self.world(before);
        match self.lasting {
            Some(kind) => faulty.fail_from(at, kind),
            None => faulty.fail_once(at, ErrorKind::Other),
        }
        world.own_files.insert(victim, Arc::new(faulty.clone()));
        let lived = world.try_run(|application| match application {
            Ok(mut application) => life(&mut application),
            Err(_) => (vec!["no session".to_owned()], self.without_session),
        });
        let failed = faulty.operations().into_iter().find(|operation| operation.failed);
        let story = format!("rank {victim}, operation {at}: {failed:?}\n{}", lived.lines.join("\n"));
        assert!(lived.ranks.windows(2).all(|pair| pair[0] == pair[1]), "{:#?}\n{story}", lived.ranks);
        let safe = lived.ranks[0].1;
        if let Some(lost) = self.lost {
            let _ = std::fs::remove_dir_all(world.node(lost));
        }
        world.own_files.clear();
        world.put("SCR_FLUSH_ASYNC", "0");
        comes_back(&world, safe, 1, &format!("step {safe} was safe; {story}"));
    }
}

fn said(what: &str, outcome: &Result<(), Error>) -> String {
    format!("{what} {}", if outcome.is_ok() { "is good" } else { "has failed" })
}

/// Takes checkpoints as an application does: what it could not write it calls invalid.
fn checkpoints(
    application: &mut Application,
    steps: std::ops::RangeInclusive<u64>,
    start: fn(&mut Application, u64) -> Result<(), Error>,
) -> Answers {
    let (mut messages, mut safe) = (Vec::new(), 0);
    for step in steps {
        let started = start(application, step);
        messages.push(said("start", &started));
        if started.is_ok() {
            let written = application.fill(step, sizes);
            let completed = application.session().complete_output(written.is_ok());
            messages.push(said("complete", &completed));
            if completed.is_ok() {
                safe = step;
            }
        }
    }
    messages.push(said("finalize", &application.finalize()));
    (messages, safe)
}

/// Restarts as an application does: it calls a checkpoint invalid that it cannot read, and takes the next one. A checkpoint
/// that was not offered this time is there for the next run.
fn restart(application: &mut Application) -> Answers {
    let (mut messages, mut there) = (Vec::new(), 2);
    loop {
        let offered = application.session().have_restart();
        messages.push(format!("{:?}", offered.as_ref().ok()));
        let Ok(Some(name)) = offered else { return (messages, there) };
        let started = application.session().start_restart().map(drop);
        messages.push(said("start", &started));
        if started.is_err() {
            return (messages, there);
        }
        let step = String::from_utf8_lossy(&name)["ckpt.".len()..].parse().unwrap();
        let read = application.compare(step, sizes);
        let completed = application.session().complete_restart(read.is_ok());
        messages.push(said("restart", &completed));
        if completed.is_ok() {
            return (messages, step);
        }
        there = 0;
    }
}

fn nothing(_: &mut World) {}

fn two_checkpoints(world: &mut World) {
    world.run(|application| (1..=2).for_each(|step| application.checkpoint(step, sizes).unwrap()));
}

#[test]
#[ignore = "long"]
fn while_checkpoints_are_taken() {
    ONCE.run(nothing, |application| checkpoints(application, 1..=2, Application::begin));
}

#[test]
fn while_checkpoints_are_taken_and_the_device_runs_full() {
    let full = Some(ErrorKind::StorageFull);
    Trouble { reads: false, lasting: full, ..ONCE }
        .run(nothing, |application| checkpoints(application, 1..=2, Application::begin));
}

/// All nodes are lost as well: what was said to be in the prefix directory is fetched.
#[test]
#[ignore = "long"]
fn while_checkpoints_are_flushed() {
    let settings = &[("SCR_FLUSH", "1")];
    Trouble { settings, lost: Some(""), ..ONCE }
        .run(nothing, |application| checkpoints(application, 1..=2, Application::begin_output));
}

#[test]
#[ignore = "long"]
fn while_flushes_are_detached_and_the_device_runs_full() {
    let settings = &[("SCR_FLUSH", "1"), ("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "PTHREAD")];
    Trouble { settings, reads: false, lasting: Some(ErrorKind::StorageFull), ..ONCE }
        .run(nothing, |application| checkpoints(application, 1..=2, Application::begin));
}

#[test]
#[ignore = "long"]
fn while_a_run_restarts_from_cache() {
    RESTART.run(two_checkpoints, restart);
}

#[test]
#[ignore = "long"]
fn while_a_lost_node_is_rebuilt() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.lose("n2");
    };
    RESTART.run(before, restart);
}

#[test]
#[ignore = "long"]
fn while_files_move_to_the_nodes_their_ranks_run_on_now() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.nodes.rotate_left(1);
    };
    RESTART.run(before, restart);
}

#[test]
#[ignore = "long"]
fn while_a_checkpoint_is_fetched() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.lose("");
    };
    Trouble { settings: &[("SCR_FLUSH", "1")], ..RESTART }.run(before, restart);
}

/// Without hard links and with Cray DVS's answer to flock there was an error for each checkpoint.
#[test]
fn a_file_system_without_locks_causes_one_warning_and_the_job_continues() {
    let cases: [(&[What], &str); 4] = [
        (&[], ""),
        (&[What::Link], "/prefix: the file system has no hard links, and a lock had to do"),
        (&[What::Lock], "has no locks: scr cannot see whether another job uses this directory"),
        (&[What::Link, What::Lock], "/prefix: the file system has neither hard links nor locks"),
    ];
    for (lacking, expected) in cases {
        let files = FaultyFiles::new(RealFiles);
        lacking.iter().for_each(|what| files.lack(*what));
        let mut world = World::new(2, 2).set("SCR_FLUSH", "1").set("SCR_HALT_SECONDS", "9");
        world = world.set("SCR_END_TIME", "4000000000");
        world.files = Arc::new(files);
        let ended = world.run(|application| application.checkpoint(1, sizes).unwrap());
        let about_locks: Vec<_> =
            ended.lines.iter().filter(|line| line.contains("the file system")).collect();
        let lines = &ended.lines;
        assert_eq!(about_locks.len(), lacking.len().min(1), "{lacking:?}: {lines:#?}");
        assert!(about_locks.iter().all(|line| line.contains(expected)), "{lacking:?}: {lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("ERROR")), "{lacking:?}: {lines:#?}");
    }
}
