//! Ranks die in the middle of a session. The others drop it, each by itself, and begin another one with those that are left, or
//! with others in the place of the dead, in the same threads. The newest complete checkpoint comes back, byte for byte.

use super::any_ranks::try_read_all;
use super::crash::sizes;
use super::world::{Application, Part, World};
use scr_base::fs::RealFiles;
use scr_comm::thread::{self, ThreadComm};
use scr_comm::{Comm, CommError, Rank};
use scr_core::session::Error;
use scr_test_kit::faulty::FaultyFiles;
use std::sync::{Arc, Barrier};

/// The point at which a rank dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before a checkpoint begins.
    Start,
    /// After it has begun to write its files.
    Write,
    /// While the others complete the checkpoint.
    Complete,
    /// While they read the one before.
    Restart,
    /// While they shut down.
    Finalize,
}

/// Four ranks, each on a node of its own. One dies, and its node is lost with it.
struct Story {
    scheme: &'static str,
    at: At,
    dead: Rank,
    /// The ranks of the second session, as ranks of the first: 4 and above are new ones.
    left: &'static [u32],
    settings: &'static [(&'static str, &'static str)],
    /// Processes that were launched with the first ranks, and with the new ones.
    launched: [u32; 2],
}

const RANKS: u32 = 4;
const STORY: Story = Story {
    scheme: "XOR",
    at: At::Complete,
    dead: Rank(1),
    left: &[0, 4, 2, 3],
    settings: &[],
    launched: [4, 1],
};

/// The actions of a rank of the second session.
type Second<'a> = &'a (dyn Fn(&mut Application) -> Option<u64> + Sync);

impl Story {
    fn world(&self) -> World {
        let world = World::new(4, 4).set("SCR_COPY_TYPE", self.scheme);
        self.settings.iter().fold(world, |world, (name, value)| world.set(name, value))
    }

    /// Tells it. Gives what each rank of the second session has found, and all lines of that.
    fn tell(&self, second: Second<'_>) -> (Vec<Option<u64>>, String) {
        let mut first = self.world();
        let faulty = FaultyFiles::new(RealFiles);
        first.own_files.insert(self.dead, Arc::new(faulty.clone()));
        let mut after = first.part("prefix", &[]);
        (after.launched, after.nodes) = (None, self.left.iter().map(|rank| format!("n{rank}")).collect());
        let is_lost = Barrier::new(self.left.len() + 1);
        let mut ends: Vec<Option<ThreadComm>> = thread::ends(RANKS).into_iter().map(Some).collect();
        let mut new_ends: Vec<Option<ThreadComm>> =
            thread::ends(self.left.len() as u32).into_iter().map(Some).collect();
        let (first, after, is_lost, faulty) = (&first, &after, &is_lost, &faulty);
        let results = std::thread::scope(|scope| {
            let dying = ends[self.dead.index()].take().unwrap();
            scope.spawn(move || {
                let comm = Part { comm: dying, launched: self.launched[0], spawned: false };
                let mut application = first.begin_over(comm, false).unwrap();
                self.live_until_death(&mut application);
                faulty.stop_at(faulty.mutations() + 1);
                drop(application);
                first.lose(&format!("n{}", self.dead));
                is_lost.wait();
            });
            let threads: Vec<_> = self
                .left
                .iter()
                .zip(&mut new_ends)
                .map(|(rank, new)| {
                    let (old, new) =
                        (ends.get_mut(*rank as usize).and_then(Option::take), new.take().unwrap());
                    scope.spawn(move || {
                        let recovers = old.is_some();
                        old.into_iter().for_each(|comm| self.lose_a_rank(first, comm));
                        is_lost.wait();
                        let launched = self.launched[usize::from(!recovers)];
                        let new = Part { comm: new, launched, spawned: false };
                        let mut application = after.begin_over(new, recovers).unwrap();
                        (second(&mut application), application.lines())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let (found, lines): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        (found, lines.concat().join("\n"))
    }

    /// The actions of every rank before one dies: steps 1 and 2 are complete.
    fn live(&self, application: &mut Application) {
        application.checkpoint(1, sizes).unwrap();
        application.checkpoint(2, sizes).unwrap();
    }

    fn live_until_death(&self, application: &mut Application) {
        self.live(application);
        match self.at {
            At::Start | At::Finalize => (),
            At::Restart => assert!(application.session().have_restart().is_ok()),
            At::Write | At::Complete => application.begin(3).unwrap(),
        }
        if self.at == At::Complete {
            application.fill(3, sizes).unwrap();
        }
    }

    /// A rank that lives until a call fails because another one has died. It does not end what it has begun.
    fn lose_a_rank(&self, first: &World, comm: ThreadComm) {
        let comm = Part { comm, launched: self.launched[0], spawned: false };
        let mut application = first.begin_over(comm, false).unwrap();
        self.live(&mut application);
        let failed = match self.at {
            At::Start => application.begin(3),
            At::Write | At::Complete => application.checkpoint(3, sizes),
            At::Restart => application.try_restart(sizes).map(drop),
            At::Finalize => application.finalize(),
        };
        assert!(matches!(failed, Err(Error::Comm(CommError::Deadlock { .. }))), "{failed:?}");
    }
}

/// Restarts, goes on, and begins once more.
fn goes_on(application: &mut Application) -> Option<u64> {
    let found = application.restart(sizes);
    application.checkpoint(9, sizes).unwrap();
    assert_eq!(application.restart(sizes), Some(9));
    application.finalize().unwrap();
    found
}

const EVERY_POINT: [At; 5] = [At::Start, At::Write, At::Complete, At::Restart, At::Finalize];

#[test]
#[ignore = "long"]
fn a_new_rank_takes_the_place_of_a_dead_one_wherever_it_died() {
    for scheme in ["XOR", "PARTNER", "RS"] {
        for at in EVERY_POINT {
            for dead in [Rank(0), Rank(1)] {
                let left: &[u32] = if dead == Rank(0) { &[4, 1, 2, 3] } else { &[0, 4, 2, 3] };
                let story = Story { scheme, at, dead, left, ..STORY };
                let (found, lines) = story.tell(&goes_on);
                assert_eq!(found, [Some(2); 4], "{scheme} {at:?} {dead}\n{lines}");
                assert!(lines.contains("the session goes on with 4 ranks"), "{lines}");
                assert!(!lines.contains("another job"), "{lines}");
            }
        }
    }
}

/// Their order may be another one: each gets the files of its new rank.
#[test]
fn ranks_that_are_left_may_change_places() {
    let story = Story { left: &[3, 0, 4, 2], ..STORY };
    let (found, lines) = story.tell(&goes_on);
    assert_eq!(found, [Some(2); 4], "{lines}");
}

#[test]
fn fewer_ranks_go_on_if_the_application_can() {
    for at in EVERY_POINT {
        for dead in [Rank(0), Rank(3)] {
            let left: &[u32] = if dead == Rank(0) { &[1, 2, 3] } else { &[0, 1, 2] };
            let settings = &[("SCR_RESTART_OTHER_RANKS", "1")];
            let story = Story { at, dead, left, settings, ..STORY };
            let (found, lines) = story.tell(&|application| {
                let found = try_read_all(application).unwrap();
                application.checkpoint(9, sizes).unwrap();
                assert_eq!(application.restart(sizes), Some(9));
                application.finalize().unwrap();
                found.map(|(step, ranks)| step * 10 + u64::from(ranks))
            });
            assert_eq!(found, [Some(24); 3], "{at:?} {dead}\n{lines}");
        }
    }
}

/// A rank that was spawned is of a launch of its own. The folders in cache have names by that.
#[test]
fn ranks_of_several_launches_agree_on_what_they_are_a_part_of() {
    for left in [&[0, 4, 2, 3], &[4, 0, 2, 3]] {
        let (found, lines) = Story { launched: [6, 1], left, ..STORY }.tell(&goes_on);
        assert_eq!(found, [Some(2); 4], "{lines}");
    }
}

/// RS needs more nodes than may fail. The job ended where it had lost too many.
#[test]
fn fewer_nodes_than_the_scheme_needs_go_on_with_less_protection() {
    let settings = &[("SCR_RESTART_OTHER_RANKS", "1"), ("SCR_SET_FAILURES", "3")];
    let story = Story { scheme: "RS", left: &[0, 2, 3], settings, ..STORY };
    let (found, lines) = story.tell(&|application| {
        let found = try_read_all(application).unwrap();
        application.checkpoint(9, sizes).unwrap();
        found.map(|(step, _)| step)
    });
    assert_eq!(found, [Some(2); 3], "{lines}");
    assert!(lines.contains("It goes on with SCR_SET_FAILURES=2"), "{lines}");
}

/// Flushes that have not arrived are rolled back, and their threads have ended before the next session looks.
#[test]
fn flushes_under_way_in_threads_end_with_the_session() {
    let settings = &[
        ("SCR_FLUSH", "1"),
        ("SCR_FLUSH_ASYNC", "1"),
        ("SCR_FLUSH_TYPE", "PTHREAD"),
        ("SCR_FLUSH_ASYNC_BW", "1000"),
        ("SCR_CACHE_SIZE", "3"),
    ];
    for at in [At::Start, At::Complete] {
        let story = Story { at, settings, ..STORY };
        let (found, lines) = story.tell(&|application| {
            let found = application.restart(sizes);
            application.checkpoint(9, sizes).unwrap();
            found
        });
        assert_eq!(found, [Some(2); 4], "{at:?}\n{lines}");
        let waited = lines.contains("scr_flush_sync");
        let begun = lines.contains("Initiating flush of dataset 2");
        assert!(begun && !waited, "the application has waited\n{lines}");
    }
}

/// An asynchronous flush was to begin once it was known what the run restarts from, and so the run began at zero.
#[test]
fn what_the_settings_ask_for_in_the_prefix_directory_is_there_before_the_session_goes_on() {
    const ASYNC: [(&str, &str); 3] =
        [("SCR_FLUSH", "10"), ("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "PTHREAD")];
    let [a, b, c] = ASYNC;
    for all in [&[a, b, c, ("SCR_GLOBAL_RESTART", "1")], &[a, b, c, ("SCR_FLUSH_ON_RESTART", "1")]] {
        let settings: &'static _ = Box::leak(all.to_vec().into_boxed_slice());
        let (found, lines) = Story { settings, ..STORY }.tell(&|application| application.restart(sizes));
        assert_eq!(found, [Some(2); 4], "{settings:?}\n{lines}");
        assert!(lines.contains("scr_flush_sync"), "it is there before the call returns\n{lines}");
    }
}

/// The settings are those of the start, and what was written since must not be deleted, nor given up for an older one.
#[test]
fn settings_that_delete_or_choose_at_a_start_do_nothing_at_a_recovery() {
    let purges: &[_] = &[("SCR_CACHE_PURGE", "1"), ("SCR_PREFIX_PURGE", "1"), ("SCR_DISTRIBUTE", "0")];
    for settings in [purges, &[("SCR_CURRENT", "ckpt.1")]] {
        for flush in [("SCR_FLUSH", "0"), ("SCR_FLUSH", "1")] {
            let settings: &'static _ = Box::leak([settings, &[flush]].concat().into_boxed_slice());
            let (found, lines) = Story { settings, ..STORY }.tell(&goes_on);
            assert_eq!(found, [Some(2); 4], "{settings:?}\n{lines}");
        }
    }
}

/// Rank 0 has died for the others, and the system has not taken its process down yet: it still holds the lock of the run.
#[test]
fn a_rank_0_that_is_still_dying_is_no_other_job() {
    let mut world = World::new(2, 2).set("SCR_COPY_TYPE", "PARTNER");
    std::fs::create_dir(world.prefix().join(".scr")).unwrap();
    let held = std::fs::File::create(world.prefix().join(".scr/running")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let faulty = FaultyFiles::new(RealFiles);
    faulty.only(|_, path| path.ends_with("running"));
    faulty.count_all();
    faulty.never_pause();
    // After more operations than a look that does not wait.
    faulty.interrupt_at(20, move || drop(held));
    world.own_files.insert(Rank(0), Arc::new(faulty.clone()));
    let world = &world;
    let lines = std::thread::scope(|scope| {
        let begin = |comm| scope.spawn(move || world.begin_over(comm, true).unwrap().lines());
        let threads: Vec<_> = thread::ends(2).into_iter().map(begin).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>().join("\n")
    });
    assert!(faulty.was_interrupted() && !lines.contains("another job"), "{lines}");
}

/// Rank 2 of the second session dies at an operation of its own, on a node that stays. Gives whether it has.
fn dies_in_recovery(at: u64) -> bool {
    let first = STORY.world();
    let faulty = FaultyFiles::new(RealFiles);
    let with_nodes = |nodes: &[&str]| {
        let mut world = first.part("prefix", nodes);
        world.launched = None;
        world
    };
    let (mut second, third) = (with_nodes(&["n0", "n4", "n2", "n3"]), with_nodes(&["n0", "n4", "n2", "n3"]));
    second.own_files.insert(Rank(2), Arc::new(faulty.clone()));
    let ends = |ranks| thread::ends(ranks).into_iter();
    let (came, ended) = (&Barrier::new(4), &Barrier::new(4));
    let lines = std::thread::scope(|scope| {
        let lives = ends(4).zip(ends(4)).zip(ends(4)).map(|((one, two), three)| {
            let (first, second, third, faulty) = (&first, &second, &third, &faulty);
            scope.spawn(move || {
                let rank = one.rank();
                let mut application = first.begin_over(one, false).unwrap();
                STORY.live(&mut application);
                came.wait();
                drop(application);
                if rank == Rank(1) {
                    first.lose("n1");
                }
                if rank == Rank(2) {
                    faulty.stop_at(at);
                }
                ended.wait();
                let recovered = second.begin_over(two, rank != Rank(1));
                let lines = recovered.as_ref().map(Application::lines).unwrap_or_default();
                drop(recovered);
                ended.wait();
                let mut application = third.begin_over(three, true).unwrap();
                let lines = [lines, application.lines()].concat().join("\n");
                assert_eq!(goes_on(&mut application), Some(2), "operation {at}\n{lines}");
                lines
            })
        });
        let lives: Vec<_> = lives.collect();
        lives.into_iter().map(|life| life.join().unwrap()).collect::<Vec<_>>().join("\n")
    });
    assert!(!lines.contains("another job"), "{lines}");
    faulty.stopped()
}

#[test]
fn a_second_death_during_the_recovery_loses_nothing_more() {
    let mut at = 1;
    while dies_in_recovery(at) {
        at += if scr_test_kit::takes_all() { 1 } else { 4 };
    }
    assert!(at > 8, "the recovery did {at} operations");
}
