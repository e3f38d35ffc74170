//! A job that dies between any two file operations comes back with what it was promised.
//!
//! All ranks share one file layer that stops the world at the n-th operation that changes anything, for every n of a
//! run. A restart with healthy files follows: from the newest checkpoint that was reported as complete to all ranks, or a newer
//! one that is whole, with every byte right. No files are left that would accumulate.

use super::world::{files_below, Application, World};
use scr_base::env::Link;
use scr_base::fs::RealFiles;
use scr_comm::Rank;
use scr_core::session::Error;
use scr_test_kit::faulty::FaultyFiles;
use scr_test_kit::moments;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) fn sizes(rank: Rank) -> Vec<usize> {
    match rank.0 {
        0 => vec![300, 0],
        1 => vec![1],
        2 => Vec::new(),
        _ => vec![70, 4000],
    }
}

/// One way for a job to run and die.
pub(crate) struct Schedule {
    pub(crate) ranks: usize,
    pub(crate) nodes: usize,
    pub(crate) settings: &'static [(&'static str, &'static str)],
    /// A node that is lost with the crash.
    pub(crate) lost: Option<&'static str>,
    /// How many datasets stay in cache.
    pub(crate) keep: usize,
}

pub(crate) const XOR: Schedule = Schedule { ranks: 4, nodes: 4, settings: &[], lost: None, keep: 1 };

impl Schedule {
    fn world(&self) -> World {
        let world = World::new(self.ranks, self.nodes);
        self.settings.iter().fold(world, |world, (name, value)| world.set(name, value))
    }

    /// Lets `life` die at each of its operations in turn, in a world that `before` has prepared, and looks at what
    /// comes after. `life` gives the last step that this rank knows to be safe.
    pub(crate) fn run(&self, before: impl Fn(&mut World), life: impl Fn(&mut Application) -> u64 + Sync) {
        let faulty = FaultyFiles::new(RealFiles);
        let mut world = self.world();
        before(&mut world);
        world.files = Arc::new(faulty.clone());
        let lived = world.run(&life);
        let safe = *lived.ranks.iter().min().expect("there are ranks");
        let all = faulty.mutations();
        assert!(all > 20 && safe > 0, "the good run did {all} operations up to step {safe}");
        // A little more, since ranks take turns in another order every time.
        for (nth, at) in moments(all + 2, 12).enumerate() {
            self.die_at(at, !nth.is_multiple_of(2), &before, &life);
        }
    }

    fn die_at(
        &self,
        at: u64,
        torn: bool,
        before: &impl Fn(&mut World),
        life: &(impl Fn(&mut Application) -> u64 + Sync),
    ) {
        let faulty = FaultyFiles::new(RealFiles);
        let mut world = self.world();
        before(&mut world);
        // In every second life the last write gets half of its bytes down, whichever operations are chosen.
        if torn {
            faulty.stop_torn_at(at);
        } else {
            faulty.stop_at(at);
        }
        world.files = Arc::new(faulty.clone());
        let died =
            world.try_run(|application| application.map_or(0, |mut application| life(&mut application)));
        let safe = *died.ranks.iter().min().expect("there are ranks");
        let last = faulty.operations().into_iter().find(|operation| operation.failed);
        let context = format!("stopped at {at}, {last:?}, step {safe} was safe");
        if let Some(lost) = self.lost {
            let _ = std::fs::remove_dir_all(world.node(lost));
        }
        (world.files, world.link) = (Arc::new(RealFiles), Link::InCalls);
        comes_back(&world, safe, self.keep, &format!("{context}\n{}", died.lines.join("\n")));
    }
}

/// The next run restarts from step `safe` or a newer one, and is left with nothing but what it needs.
pub(crate) fn comes_back(world: &World, safe: u64, keep: usize, context: &str) {
    let story = restarts(world, safe, keep, context);
    let left = leftovers(world, keep);
    assert!(left.is_empty(), "left over: {left:#?}\n{story}");
}

/// The next run restarts from step `safe` or a newer one. Gives what has happened until then.
pub(crate) fn restarts(world: &World, safe: u64, keep: usize, context: &str) -> String {
    let again = world.try_run(|application| -> Result<Option<u64>, Error> {
        let mut application = application?;
        let step = application.try_restart(sizes)?;
        for more in 0..=keep as u64 {
            application.checkpoint(step.unwrap_or(0) + 10 + more, sizes)?;
        }
        Ok(step)
    });
    let story = || format!("{context}\n--- and then\n{}", again.lines.join("\n"));
    let steps: Result<Vec<_>, _> = again.ranks.iter().map(Result::as_ref).collect();
    let steps = steps.unwrap_or_else(|error| panic!("{error:?}\n{}", story()));
    assert!(steps.windows(2).all(|pair| pair[0] == pair[1]), "{steps:?}\n{}", story());
    assert!(steps[0].unwrap_or(0) >= safe, "restarted from {:?}\n{}", steps[0], story());
    story()
}

/// Files in cache that belong to no part of the newest datasets, and files under the prefix directory that belong to no flush.
fn leftovers(world: &World, keep: usize) -> Vec<PathBuf> {
    let cached = world.cached_files();
    let id_of = |path: &PathBuf| -> Option<u64> {
        path.to_str()?.split("scr.dataset.").nth(1)?.split('/').next()?.parse().ok()
    };
    let ids: BTreeSet<u64> = cached.iter().filter_map(id_of).collect();
    let newest: Vec<u64> = ids.into_iter().rev().take(keep).collect();
    let stale = cached.into_iter().filter(move |path| {
        let odd = [".gone", ".tmp.", "rebuild"].iter().any(|part| path.to_string_lossy().contains(part));
        odd || id_of(path).is_some_and(|id| !newest.contains(&id))
    });
    let under_way = files_below(&world.prefix()).into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let of_flush = ["flush.", "revoked.", "done."].iter().any(|start| name.starts_with(start));
        // A process that died while it waited for a slot may leave a file for an hour: `<slot>.<16 digits>`.
        let is_slot =
            path.parent().is_some_and(|folder| folder.ends_with(".scr/slots")) && !name.contains('.');
        (of_flush && name != "flush.scr") || is_slot || name.ends_with(".part")
    });
    stale.chain(under_way).collect()
}

/// Checkpoints one after the other, until the world ends. Gives the last one that was said to be complete.
pub(crate) fn checkpoints(application: &mut Application, steps: std::ops::RangeInclusive<u64>) -> u64 {
    last_good(steps, |step| application.checkpoint(step, sizes))
}

/// The same for checkpoints that are complete only once they are in the prefix directory.
fn outputs(application: &mut Application, steps: std::ops::RangeInclusive<u64>) -> u64 {
    last_good(steps, |step| application.output(step, sizes))
}

fn last_good(
    mut steps: std::ops::RangeInclusive<u64>,
    mut each: impl FnMut(u64) -> Result<(), Error>,
) -> u64 {
    let (first, last) = (*steps.start(), *steps.end());
    let failed = steps.find(|&step| each(step).is_err());
    failed.map_or(last, |failed| if failed == first { 0 } else { failed - 1 })
}

pub(crate) fn nothing(_: &mut World) {}

pub(crate) fn two_checkpoints(world: &World) {
    let done = world.run(|application| checkpoints(application, 1..=2));
    done.all_gave(&2);
}

/// Restarts, and takes one more checkpoint.
pub(crate) fn restart_and_go_on(application: &mut Application) -> u64 {
    let Ok(Some(step)) = application.try_restart(sizes) else { return 0 };
    checkpoints(application, step + 1..=step + 1).max(step)
}

#[test]
fn while_it_takes_checkpoints() {
    XOR.run(nothing, |application| checkpoints(application, 1..=3));
}

#[test]
fn while_it_takes_checkpoints_and_a_node_is_lost_with_it() {
    Schedule { lost: Some("n2"), ..XOR }.run(nothing, |application| checkpoints(application, 1..=3));
}

#[test]
fn with_two_ranks_on_a_node_and_one_node_lost_with_it() {
    Schedule { nodes: 2, lost: Some("n1"), ..XOR }
        .run(nothing, |application| checkpoints(application, 1..=3));
}

#[test]
fn without_redundancy() {
    Schedule { settings: &[("SCR_COPY_TYPE", "SINGLE")], ..XOR }
        .run(nothing, |application| checkpoints(application, 1..=3));
}

#[test]
fn while_two_datasets_are_kept_and_the_oldest_leaves() {
    Schedule { settings: &[("SCR_CACHE_SIZE", "2")], keep: 2, ..XOR }
        .run(nothing, |application| checkpoints(application, 1..=4));
}

#[test]
fn while_a_restart_rebuilds_a_lost_node() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.lose("n1");
    };
    XOR.run(before, restart_and_go_on);
}

#[test]
fn while_files_move_to_the_nodes_their_ranks_run_on_now() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.nodes.rotate_left(1);
    };
    XOR.run(before, restart_and_go_on);
}

#[test]
fn while_files_move_and_a_lost_node_is_rebuilt() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.lose("n3");
        world.nodes.rotate_left(1);
    };
    XOR.run(before, restart_and_go_on);
}

#[test]
fn while_every_checkpoint_is_flushed() {
    // With fewer copies at a time than nodes, the nodes share slots.
    let settings = &[("SCR_FLUSH", "1"), ("SCR_FLUSH_WIDTH", "1")];
    Schedule { settings, ..XOR }.run(nothing, |application| checkpoints(application, 1..=2));
}

/// All nodes are lost as well: what the index lists is fetched, byte for byte.
#[test]
fn while_every_checkpoint_is_flushed_and_the_whole_cache_is_lost_with_it() {
    let settings = &[("SCR_FLUSH", "1")];
    Schedule { settings, lost: Some(""), ..XOR }.run(nothing, |application| outputs(application, 1..=2));
}

#[test]
fn while_a_checkpoint_is_fetched() {
    let before = |world: &mut World| {
        two_checkpoints(world);
        world.lose("");
    };
    Schedule { settings: &[("SCR_FLUSH", "1")], ..XOR }.run(before, restart_and_go_on);
}

#[test]
fn while_files_are_written_to_the_prefix_directory_itself() {
    let settings = &[("SCR_CACHE_BYPASS", "1")];
    Schedule { settings, ..XOR }.run(nothing, |application| checkpoints(application, 1..=3));
}

#[test]
fn while_files_are_written_to_the_prefix_directory_itself_and_the_whole_cache_is_lost_with_it() {
    let settings = &[("SCR_CACHE_BYPASS", "1")];
    Schedule { settings, lost: Some(""), ..XOR }.run(nothing, |application| checkpoints(application, 1..=3));
}
