//! Every state of three datasets, newer and older, and each goal: what is chosen keeps the promises.

use super::{due, next, Goal, Holding, InPrefix, Lies, Limit, Standing, When};
use scr_prefix::Seq;

/// Each state that one dataset can be in. The number of its place is free.
fn states() -> Vec<Holding> {
    let kinds = [(true, false), (false, true), (true, true)];
    let caches = [Lies::InPlace, Lies::Local, Lies::Weak, Lies::Strong];
    let under_way = |is_superseded| InPrefix::UnderWay { is_superseded };
    let prefixes = [InPrefix::Missing, under_way(false), InPrefix::Files, InPrefix::Superseded];
    let standings = [Standing::Kept, Standing::WentBack, Standing::Refused];
    let mut all = Vec::new();
    for (is_checkpoint, is_output) in kinds {
        for cache in caches {
            for prefix in prefixes {
                for standing in standings {
                    // Nobody goes back over what is no checkpoint, or refuses it. One checkpoint that is output is as any other.
                    let is_both = is_checkpoint && is_output;
                    if (is_checkpoint || standing == Standing::Kept) && (!is_both || cache == Lies::Strong) {
                        all.push(Holding {
                            id: 0,
                            seq: Seq::default(),
                            store: 0,
                            is_checkpoint,
                            is_output,
                            cache,
                            prefix,
                            standing,
                            is_of_others: false,
                            is_offered: false,
                        });
                    }
                }
            }
        }
    }
    all
}

/// Calls this for all combinations of three datasets.
fn each_three(mut look: impl FnMut(&[Holding; 3])) {
    let states = states();
    let at = |state: &Holding, id| Holding { id, seq: Seq { run: 1, id }, ..*state };
    for oldest in &states {
        for middle in &states {
            for newest in &states {
                look(&[at(oldest, 1), at(middle, 2), at(newest, 3)]);
            }
        }
    }
}

fn without(all: &[Holding], id: u64) -> Vec<Holding> {
    all.iter().filter(|held| held.id != id).copied().collect()
}

/// What the next run would restart from: nobody has gone back over it.
fn wanted(all: &[Holding]) -> Option<Holding> {
    let left: Vec<_> = all.iter().filter(|held| held.is_wanted()).copied().collect();
    next(&left, Goal::Restart { in_prefix: false })
}

#[test]
fn nobody_restarts_from_what_was_refused_or_has_lost_its_files() {
    each_three(|all| {
        for in_prefix in [false, true] {
            let Some(taken) = next(all, Goal::Restart { in_prefix }) else { continue };
            assert!(taken.is_checkpoint && taken.standing != Standing::Refused, "{all:?}");
            assert!(!(taken.cache == Lies::InPlace && taken.prefix == InPrefix::Superseded), "{all:?}");
            assert!(!in_prefix || taken.prefix == InPrefix::Files, "{all:?}");
            let newer =
                all.iter().filter(|held| held.seq > taken.seq && (!in_prefix || held.prefix.has_files()));
            assert!(newer.clone().all(|held| !held.is_restartable()), "{all:?}");
        }
    });
}

#[test]
fn what_leaves_a_store_is_not_what_a_restart_takes_nor_output_that_is_nowhere_else() {
    for most in 1..=2 {
        let limit = Limit { most, keep_newest: true };
        each_three(|all| {
            let Some(left) = next(all, Goal::Room { store: 0, limit }) else { return };
            assert_ne!(Some(left), wanted(all), "{all:?}");
            assert!(!left.must_stay() || left.prefix.is_under_way(), "{all:?}");
            let survives = |all: &[Holding]| all.iter().any(|held| held.is_wanted() && held.is_strong());
            // A copy in the prefix directory outlives the cache.
            assert!(
                most == 1 || !survives(all) || left.prefix.is_whole() || survives(&without(all, left.id)),
                "{all:?}"
            );
        });
    }
}

/// A job that dies while a new checkpoint is written, where the store has no room for both.
#[test]
fn before_a_new_dataset_the_one_that_a_restart_takes_leaves_last() {
    let limit = Limit { most: 1, keep_newest: false };
    each_three(|all| {
        let Some(left) = next(all, Goal::Room { store: 0, limit }) else { return };
        let stay = || all.iter().filter(|held| held.must_stay()).count();
        let taken = wanted(all).filter(Holding::counts);
        assert!(Some(left) != taken || stay() > 0 || left.prefix.is_whole(), "{left:?} of {all:?}");
    });
}

#[test]
fn a_store_gets_down_to_its_limit_or_keeps_what_must_stay() {
    let limit = Limit { most: 1, keep_newest: true };
    each_three(|all| {
        let mut left = all.to_vec();
        while let Some(leaves) = next(&left, Goal::Room { store: 0, limit }) {
            left.retain(|held| *held != leaves);
        }
        let is_free = |held: &&Holding| !held.must_stay() && held.cache != Lies::Local;
        // One to restart from, and the newest of those that count.
        assert!(left.iter().filter(is_free).count() <= 2, "{left:?} of {all:?}");
    });
}

#[test]
fn what_makes_way_for_a_fetch_is_spare_and_neither_the_newest_nor_the_one_before() {
    let fetched = Seq { run: 1, id: 3 };
    each_three(|all| {
        let Some(left) = next(all, Goal::Way { store: 0, fetched }) else { return };
        let older: Vec<_> = all.iter().filter(|held| held.seq < fetched).copied().collect();
        assert!(Some(left) != wanted(all) && Some(left) != wanted(&older), "{all:?}");
        assert!(left.prefix.is_whole() || !left.is_restartable() && !left.must_stay(), "{all:?}");
    });
}

#[test]
fn the_end_of_a_run_leaves_nothing_in_cache_only_that_is_needed() {
    each_three(|all| {
        let flushed = due(all, When::End { checkpoints: true });
        let is_flushed = |held: &Holding| flushed.contains(&held.id);
        for held in all {
            assert!(!held.must_stay() || is_flushed(held), "output is left: {held:?}");
            assert!(!is_flushed(held) || held.is_unflushed(), "{held:?}");
            let is_left = matches!(held.standing, Standing::Refused | Standing::WentBack);
            assert!(!is_flushed(held) || held.is_output || !is_left, "a checkpoint comes back: {held:?}");
        }
        let newest = wanted(all).filter(Holding::is_unflushed);
        assert!(
            newest.is_none_or(|newest| is_flushed(&newest)),
            "{newest:?} is lost with the cache: {all:?}"
        );
    });
}
