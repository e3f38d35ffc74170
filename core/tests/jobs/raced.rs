//! A job dies in each step of a flush over the files of an older checkpoint. Then a new run, `scr postrun`, `scr poststage` and the
//! agents of all nodes come for what it has left, all at the same time.

use super::names::{file, flush_by_agents, poll_transfers_of, world, write, BYTES};
use super::world::{contents, path_of, plugins, Application, World};
use scr_base::fs::{OwnedDir, RealFiles};
use scr_comm::Rank;
use scr_core::plugin::PluginHost;
use scr_core::scavenge::{Builder, Copier};
use scr_core::session::Error;
use scr_prefix::ledger::{LedgerDir, Wish};
use scr_prefix::Prefix;
use scr_test_kit::faulty::FaultyFiles;
use scr_test_kit::{moments, TestEnv};
use std::sync::{Arc, Barrier};

const NAMES: [&str; 3] = ["one", "two", "three"];
const COMERS: usize = 5;

/// Checkpoints over the same files, until the world ends. Gives how many were said to be complete.
fn live(application: &mut Application) -> usize {
    let written = (1..).zip(NAMES).map(|(step, name)| write(application, name, "b", step));
    written.take_while(Result::is_ok).count()
}

/// The checkpoint that is offered, by its place, after a comparison of every byte.
fn restart(application: &mut Application) -> Result<usize, Error> {
    let rank = application.rank;
    let Some(name) = application.session().have_restart()? else { return Ok(0) };
    let step = 1 + NAMES.iter().position(|known| known.as_bytes() == name).expect("one of the names");
    application.session().start_restart()?;
    let path = application.session().route_file(file("b", rank).as_bytes())?;
    assert!(std::fs::read(path_of(&path)).unwrap() == contents(step as u64, rank, 0, BYTES), "other bytes");
    application.session().complete_restart(true)?;
    Ok(step)
}

/// Saves what the nodes have, as from another machine.
fn postrun(world: &World) {
    let (prefix, uid) = (Prefix::new(world.prefix()), rustix::process::getuid().as_raw());
    let env =
        TestEnv::new(Arc::clone(&world.files), world.prefix()).with_host("login").with_user("user1", uid);
    let host = PluginHost::new(&env.env(), Some(&plugins().display().to_string()));
    for id in (1..=NAMES.len() as u64).rev() {
        for node in ["n0", "n1"] {
            let cache = world.node(node).join("user1/scr.defjobid");
            let Ok(cache) = OwnedDir::at(&*world.files, &cache, uid) else { continue };
            let (files, prefix) = (&*world.files, &prefix);
            let copier =
                Copier { files, prefix, uid, node, block_bytes: 4096, width: 1, progress: &|_, _| () };
            // Another process may have been first, or has removed it.
            let _ = copier.dataset(&[cache], id);
        }
        let _ = Builder::new(&env.env(), &prefix, &host, 1).build(id);
    }
}

/// Closes what has arrived.
fn poststage(world: &World) {
    let prefix = Prefix::new(world.prefix());
    let ledger = LedgerDir::new(&*world.files, &prefix);
    // A process that dies cannot even list them.
    let _ = ledger.commit("2026-11-23T00:00:00").end_all(Wish::EndArrived);
}

/// The agents of both nodes, one after the other.
fn agents(world: &World) {
    (0..2).for_each(|rank| drop(poll_transfers_of(world, Rank(rank))));
}

fn race(before: impl Fn(&mut World)) {
    let faulty = FaultyFiles::new(RealFiles);
    let mut good = world("0");
    before(&mut good);
    good.files = Arc::new(faulty.clone());
    good.run(live).all_gave(&NAMES.len());
    for at in moments(faulty.mutations() + 2, 24) {
        race_after(at, &before);
    }
}

fn race_after(at: u64, before: &impl Fn(&mut World)) {
    let faulty = FaultyFiles::new(RealFiles);
    let mut world = world("0");
    before(&mut world);
    faulty.stop_at(at);
    world.files = Arc::new(faulty.clone());
    let died = world.try_run(|application| application.map_or(0, |mut application| live(&mut application)));
    let safe = *died.ranks.iter().min().expect("there are ranks");
    world.files = Arc::new(RealFiles);
    let start = Barrier::new(COMERS);
    let comes = |what: &(dyn Fn(&World) + Sync)| {
        start.wait();
        what(&world);
    };
    let expect_safe = |what: &str| {
        let run = world.try_run(|application| restart(&mut application?));
        let story = || {
            format!(
                "{what}, stopped at {at}, {safe} was safe\n{}",
                [&died.lines[..], &run.lines].concat().join("\n")
            )
        };
        assert!(
            run.ranks.iter().all(|step| step.as_ref().is_ok_and(|step| *step >= safe)),
            "{:?} {}",
            run.ranks,
            story()
        );
    };
    std::thread::scope(|scope| {
        scope.spawn(|| comes(&postrun));
        scope.spawn(|| comes(&poststage));
        scope.spawn(|| comes(&|world| drop(poll_transfers_of(world, Rank(0)))));
        scope.spawn(|| comes(&|world| drop(poll_transfers_of(world, Rank(1)))));
        comes(&|_| expect_safe("beside the others"));
    });
    // That run has flushed what was in cache only.
    world.lose("");
    expect_safe("without any cache");
}

#[test]
fn for_a_flush_in_the_call() {
    race(|_| ());
}

#[test]
fn for_a_flush_by_threads() {
    race(|world| {
        world.put("SCR_FLUSH_ASYNC", "1");
        world.put("SCR_FLUSH_TYPE", "PTHREAD");
    });
}

#[test]
fn for_a_flush_by_agents() {
    race(flush_by_agents);
}

/// A job has ended with its last flush in the hands of the agents. Whoever ends it dies at any operation, and the next run has it.
#[test]
#[ignore = "long"]
fn one_who_ends_a_flush_may_die_at_any_step() {
    let left_by_a_job = || {
        let mut world = world("0");
        flush_by_agents(&mut world);
        world.run(live).all_gave(&NAMES.len());
        world
    };
    let arrived = || {
        let world = left_by_a_job();
        poll_transfers_of(&world, Rank(0));
        world
    };
    type Ends = (&'static str, fn(&World));
    let ends: [Ends; 3] = [("agents", agents), ("poststage", poststage), ("postrun", postrun)];
    for (who, end) in ends {
        for prepare in [&left_by_a_job as &dyn Fn() -> World, &arrived] {
            let counts = FaultyFiles::new(RealFiles);
            let mut world = prepare();
            world.files = Arc::new(counts.clone());
            end(&world);
            for at in moments(counts.mutations(), 12) {
                let dies = FaultyFiles::new(RealFiles);
                dies.stop_at(at);
                let mut world = prepare();
                world.files = Arc::new(dies.clone());
                end(&world);
                world.files = Arc::new(RealFiles);
                for _ in 0..2 {
                    let run = world.try_run(|application| restart(&mut application?));
                    let story = || format!("{who} stopped at {at}: {}", run.lines.join("\n"));
                    assert!(
                        run.ranks.iter().all(|step| matches!(step, Ok(3))),
                        "{:?} {}",
                        run.ranks,
                        story()
                    );
                    world.lose("");
                }
            }
        }
    }
}
