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
    let env = TestEnv::new(Arc::new(RealFiles), world.prefix()).with_host("login").with_user("user1", uid);
    let host = PluginHost::new(&env.env(), Some(&plugins().display().to_string()));
    for id in (1..=NAMES.len() as u64).rev() {
        for node in ["n0", "n1"] {
            let cache = world.node(node).join("user1/scr.defjobid");
            let Ok(cache) = OwnedDir::at(&RealFiles, &cache, uid) else { continue };
            let (files, prefix) = (&RealFiles, &prefix);
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
    let ended = LedgerDir::new(&RealFiles, &prefix).commit("2026-11-23T00:00:00").end_all(Wish::EndArrived);
    ended.expect("the flushes can be listed");
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
