//! Checkpoints survive the loss of nodes, byte for byte.

use super::world::World;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_test_kit::faulty::{FaultyFiles, What};
use std::io::ErrorKind;
use std::sync::Arc;

fn even(rank: Rank) -> Vec<usize> {
    vec![1000 + rank.index()]
}

/// Uneven sizes, several files, an empty one, and a rank that writes nothing.
fn uneven(rank: Rank) -> Vec<usize> {
    match rank.0 % 4 {
        0 => vec![100_000, 0, 17],
        1 => Vec::new(),
        2 => vec![1],
        _ => vec![4096 * rank.index(), 5],
    }
}

#[test]
fn a_run_restarts_from_what_is_in_cache() {
    let world = World::new(4, 4);
    world.run(|application| {
        assert_eq!(application.restart(even), None);
        application.checkpoint(1, even).unwrap();
        application.checkpoint(2, even).unwrap();
    });
    let restarted = world.run(|application| application.restart(even));
    restarted.all_gave(&Some(2));
}

#[test]
fn a_lost_node_is_rebuilt_and_a_message_says_so() {
    let world = World::new(8, 4);
    world.run(|application| application.checkpoint(6, uneven).unwrap());
    world.lose("n1");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(6));
    let line = restarted.line_with(&["dataset 1", "lost"]);
    let lost =
        ["2", "3"].map(|rank| format!("{rank} (written on n1; nothing usable of it is there)")).join(", ");
    assert!(line.contains("2 of 8 ranks") && line.contains(&lost), "{line}");
}

#[test]
fn a_job_of_64_ranks_on_16_nodes_loses_a_node() {
    let world = World::new(64, 16);
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    world.lose("n5");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(1));
}

#[test]
fn files_travel_to_the_nodes_their_ranks_run_on_now() {
    let mut world = World::new(8, 4);
    world.run(|application| application.checkpoint(3, uneven).unwrap());
    world.lose("n2");
    world.nodes.rotate_left(3);
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(3));
    // And once more from where they are now: nothing is left where they were.
    world.lose("n0");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(3));
}

/// A part that its own node cannot read is as good as lost. The whole dataset used to count as lost.
#[test]
fn a_part_that_cannot_be_read_while_it_is_moved_is_rebuilt() {
    let mut world = World::new(4, 4);
    world.run(|application| application.checkpoint(3, even).unwrap());
    world.nodes.rotate_left(1);
    let faulty = FaultyFiles::new(RealFiles);
    faulty.count_all();
    // Rank 3's files lie where rank 2 runs now.
    faulty.only(|what, path| what == What::Read && path.to_string_lossy().contains("/r3/"));
    faulty.fail_from(1, ErrorKind::Other);
    world.own_files.insert(Rank(2), Arc::new(faulty));
    let restarted = world.run(|application| application.restart(even));
    restarted.all_gave(&Some(3));
    restarted.line_with(&["files of rank 3", "could not be fetched from rank 2", "this part counts as lost"]);
}

/// They were called lost, and the run wrote over what they had.
#[test]
fn nodes_that_are_not_in_the_run_are_said_to_be_away() {
    let away = "are not in this run: if they are there, end it and start on them too";
    for (nodes, is_away) in [(["n0", "n0", "n1", "n1"], true), (["n0", "n1", "n2", "n3"], false)] {
        let mut world = World::new(4, 4);
        world.run(|application| application.checkpoint(1, uneven).unwrap());
        if !is_away {
            ["n2", "n3"].into_iter().for_each(|node| world.lose(node));
        }
        world.nodes = nodes.map(str::to_owned).to_vec();
        let restarted = world.run(|application| application.restart(uneven));
        restarted.all_gave(&None);
        let line = restarted.line_with(&["ERROR", "cannot be restored"]);
        assert_eq!(line.contains(away), is_away, "{line}");
    }
}

#[test]
fn losses_beyond_xor_are_refused_with_the_set_and_its_ranks() {
    let world = World::new(8, 4);
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    world.lose("n1");
    world.lose("n3");
    let before = world.cached_files();
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&None);
    let line = restarted.line_with(&["ERROR", "cannot be restored"]);
    assert!(
        line.contains("ranks 0, 2, 4, 6")
            && line.contains("parts of ranks 2 (written on n1), 6 (written on n3), and XOR survives 1"),
        "{line}"
    );
    restarted.line_with(&["the parts of 4 of 8 ranks are lost: "]);
    assert!(!restarted.has_line_with("; rebuilding"), "{:?}", restarted.lines);
    let after = world.cached_files();
    assert!(before.iter().all(|file| after.contains(file)), "what survives must stay");
}

#[test]
fn survivors_leave_once_a_newer_dataset_is_complete() {
    let world = World::new(4, 4);
    world.run(|application| application.checkpoint(1, even).unwrap());
    world.lose("n1");
    world.lose("n3");
    let again = world.run(|application| {
        assert_eq!(application.restart(even), None);
        application.checkpoint(2, even).unwrap();
    });
    assert!(again.has_line_with("dataset 2"), "an id is not used twice");
    let left = world.cached_files();
    assert!(left.iter().all(|file| !file.to_string_lossy().contains("scr.dataset.1")), "{left:?}");
    world.run(|application| application.restart(even)).all_gave(&Some(2));
}

#[test]
fn with_too_many_nodes_lost_the_newest_flushed_checkpoint_is_fetched() {
    let world = World::new(8, 4).set("SCR_FLUSH", "2");
    world.run(|application| {
        for step in 1..=3 {
            application.checkpoint(step, uneven).unwrap();
        }
    });
    world.lose("n0");
    world.lose("n1");
    let restarted = world.run(|application| application.restart(uneven));
    restarted.all_gave(&Some(2));
}

/// It began anew without a word, for instance on other nodes than before.
#[test]
fn a_newest_checkpoint_lost_on_all_nodes_is_reported_until_a_newer_one_is_complete() {
    let world = World::new(4, 4).set("SCR_FLUSH", "2");
    world.run(|application| (1..=3).for_each(|step| application.checkpoint(step, even).unwrap()));
    world.lose("");
    for steps in [0..0, 4..5] {
        let restarted = world.run(|application| {
            let restarted = application.restart(even);
            steps.clone().for_each(|step| application.checkpoint(step, even).unwrap());
            restarted
        });
        restarted.all_gave(&Some(2));
        let words = ["rank 0", "dataset 3 `ckpt.3' of an earlier run is in cache only", "start it on them"];
        restarted.line_with(&words);
    }
    let again = world.run(|application| application.restart(even));
    again.all_gave(&Some(4));
    assert!(!again.has_line_with("is in cache only"), "{:?}", again.lines);
}

/// The names were not said, and their checkpoints were replaced without a word.
#[test]
fn a_run_that_begins_at_zero_names_the_checkpoints_that_it_may_write_over() {
    let world = World::new(4, 4).set("SCR_CACHE_SIZE", "3");
    world.run(|application| (1..4).for_each(|step| application.checkpoint(step, |_| vec![500]).unwrap()));
    world.lose("n1");
    world.lose("n3");
    let run = world.run(|application| {
        application.checkpoint(7, |_| vec![500]).unwrap();
        application.checkpoint(2, |_| vec![500]).unwrap();
    });
    let begins = "the run starts without a checkpoint, and may write over `ckpt.3', `ckpt.2', `ckpt.1';";
    run.line_with(&["ERROR", begins]);
    let replaced: Vec<_> = run.lines.iter().filter(|line| line.contains("takes the place of one")).collect();
    assert!(
        matches!(&replaced[..], [line] if line.contains("WARNING") && line.contains("`ckpt.2'")),
        "{replaced:?}"
    );
}
