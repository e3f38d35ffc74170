//! Parts of one launch, each with a session and a prefix directory of its own, on nodes that they share.

use super::world::{Application, World};
use scr_comm::Rank;
use std::sync::Barrier;
use std::time::Duration;

fn some(rank: Rank) -> Vec<usize> {
    vec![3000 + 7 * rank.index(), 500]
}

/// Three parts: each shares nodes with others, and its ranks are numbered as theirs. Their steps are different.
fn three() -> [(World, u64); 3] {
    let machine = World::new(1, 1);
    let part = |prefix, nodes: [&str; 4]| machine.part(prefix, &nodes);
    [
        (part("one", ["n0", "n1", "n2", "n0"]), 100),
        (part("two", ["n1", "n0", "n2", "n1"]), 200),
        (part("three", ["n3", "n2", "n4", "n5"]), 300),
    ]
}

/// Runs all parts at the same time. They meet at the barrier.
fn at_once(parts: &[(World, u64); 3], body: impl Fn(&mut Application, u64, &Barrier) + Sync) -> Vec<String> {
    let ranks = parts.iter().map(|(part, _)| part.nodes.len()).sum();
    let (all, body) = (&Barrier::new(ranks), &body);
    std::thread::scope(|scope| {
        let running: Vec<_> = parts
            .iter()
            .map(|(part, step)| {
                scope.spawn(move || part.run(|application| body(application, *step, all)).lines)
            })
            .collect();
        running.into_iter().map(|part| part.join().unwrap().join("\n")).collect()
    })
}

#[test]
fn parts_of_a_launch_restart_from_their_own_checkpoints_and_a_lost_node_costs_only_those_who_had_it() {
    let mut parts = three();
    at_once(&parts, |application, step, all| {
        assert_eq!(application.restart(some), None);
        for step in step..step + 3 {
            all.wait();
            application.checkpoint(step, some).unwrap();
        }
    });
    let (machine, _) = &parts[0];
    machine.lose("n1");
    for (part, _) in &mut parts {
        part.nodes.iter_mut().filter(|node| *node == "n1").for_each(|node| *node = "n9".to_owned());
    }
    let said = at_once(&parts, |application, step, all| {
        all.wait();
        assert_eq!(application.restart(some), Some(step + 2));
        application.checkpoint(step + 3, some).unwrap();
        application.finalize().unwrap();
    });
    let rebuilds = |lines: &String| lines.contains("rebuilding");
    assert!(rebuilds(&said[0]) && rebuilds(&said[1]) && !rebuilds(&said[2]), "{}", said.join("\n\n"));
    assert!(!said.iter().any(|lines| lines.contains("ERROR")), "{}", said.join("\n\n"));
}

/// The other one found the place taken, and removed the empty folder in which the file was about to be written.
#[test]
fn a_dataset_that_begins_takes_nothing_from_another_job_with_the_same_rank_and_number_on_the_node() {
    for launched in [None, Some(2)] {
        let machine = World::new(1, 1);
        let [mut one, mut other] = ["one", "other"].map(|prefix| machine.part(prefix, &["n0"]));
        (one.launched, other.launched) = (launched, launched);
        let turns = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                one.run(|application| {
                    turns.wait();
                    application.begin(1).unwrap();
                    application.session().route_file(b"ckpt.1/rank_0.0").unwrap();
                    turns.wait();
                    turns.wait();
                    application.fill(1, some).unwrap();
                    application.session().complete_output(true).unwrap();
                });
            });
            other.run(|application| {
                turns.wait();
                turns.wait();
                application.checkpoint(2, some).unwrap();
                turns.wait();
            });
        });
        one.run(|application| application.restart(some)).all_gave(&Some(1));
        other.run(|application| application.restart(some)).all_gave(&Some(2));
        // Hundreds of parts may have the same rank and number: each has a folder of its own.
        let folders = machine.cached_files().into_iter().filter(|path| path.ends_with(".node")).count();
        assert_eq!(folders, if launched.is_some() { 2 } else { 0 });
    }
}

/// Restarted from what the other one had written.
#[test]
fn two_parts_of_a_launch_never_begin_in_one_prefix_directory() {
    let machine = World::new(1, 1);
    let part = |nodes: [&str; 2]| machine.part("same", &nodes);
    let (first, mut second) = (part(["n0", "n1"]), part(["n2", "n3"]));
    let turns = Barrier::new(2);
    let begins = |part: &World| part.try_run(|session| session.map(drop).map_err(|error| error.to_string()));
    let ran = first.run(|application| {
        application.checkpoint(1, some).unwrap();
        turns.wait();
        let refused = (application.rank == Rank(0)).then(|| begins(&second).ranks);
        turns.wait();
        application.checkpoint(2, some).unwrap();
        application.finalize().unwrap();
        refused
    });
    for error in ran.ranks[0].as_ref().unwrap() {
        let error = error.as_ref().unwrap_err();
        for word in
            ["another part of this launch", "same", "rank 0 is process", "SCR_Config with SCR_PREFIX="]
        {
            assert!(error.contains(word), "{error}");
        }
        assert!(!error.contains('\t'), "{error:?}");
    }
    second.put("SCR_PREFIX", &first.prefix().display().to_string());
    let ran = first.run(|application| {
        turns.wait();
        let refused = (application.rank == Rank(0)).then(|| begins(&second).ranks);
        turns.wait();
        refused
    });
    let error = ran.ranks[0].as_ref().unwrap()[0].as_ref().unwrap_err();
    assert!(error.contains("SCR_PREFIX of the environment wins"), "{error}");
    // One after the other they may.
    begins(&second).all_gave(&Ok(()));
}

/// The parents restarted from what the children had written.
#[test]
fn processes_and_those_that_they_spawn_never_begin_in_one_prefix_directory() {
    let machine = World::new(1, 1);
    let [mut parents, mut children] = [["n0", "n1"], ["n2", "n3"]].map(|nodes| machine.part("same", &nodes));
    (parents.launched, children.launched) = (Some(2), Some(2));
    children.spawned = true;
    // When the parents had begun already.
    children.began = Duration::from_secs(super::world::SECONDS_OF_A_RUN + 60);
    for (first, second) in [(&parents, &children), (&children, &parents)] {
        let turns = Barrier::new(2);
        let ran = first.run(|application| {
            application.checkpoint(1, some).unwrap();
            turns.wait();
            let begins = || second.try_run(|session| session.map(drop).map_err(|error| error.to_string()));
            let refused = (application.rank == Rank(0)).then(|| begins().ranks);
            turns.wait();
            application.finalize().unwrap();
            refused
        });
        for error in ran.ranks[0].as_ref().unwrap() {
            let error = error.as_ref().unwrap_err();
            assert!(
                error.contains("each part, such as what MPI_Comm_spawn starts, needs a prefix"),
                "{error}"
            );
        }
    }
    children.turn_to("children");
    children.run(|application| application.checkpoint(2, some).unwrap());
}

/// The last process of an earlier launch, or the lock of a node that is down, may still be there.
#[test]
fn a_part_begins_beside_a_run_that_is_older_than_its_launch_and_warns() {
    let machine = World::new(1, 1);
    let first = machine.part("same", &["n0", "n1"]);
    let mut second = machine.part("same", &["n0", "n1"]);
    second.began = Duration::from_secs(super::world::SECONDS_OF_A_RUN + 60);
    let turns = Barrier::new(2);
    let ran = first.run(|application| {
        turns.wait();
        let begun = (application.rank == Rank(0)).then(|| second.run(|_| ()).lines.join("\n"));
        turns.wait();
        begun
    });
    assert!(ran.ranks[0].as_ref().unwrap().contains("another job uses the prefix directory"));
}
