//! Every state of three datasets, newer and older, and each goal: what is chosen keeps the promises.

use super::{
    due, due_of_others, fetched, first, is_spare, next, waits, Goal, Holding, InPrefix, Lies, Limit,
    Standing, When,
};
use scr_prefix::Seq;
use scr_test_kit::promises::{Fate, Promise, Restart, Says, View};

/// The states that a dataset can be in. The number of its place is free.
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
                        all.push(Holding { is_checkpoint, is_output, cache, prefix, standing, ..PLAIN });
                    }
                }
            }
        }
    }
    // These differ in one thing only.
    for standing in standings {
        all.push(Holding { prefix: InPrefix::Containers, standing, ..PLAIN });
    }
    for prefix in prefixes {
        all.push(Holding { standing: Standing::Chosen, prefix, ..PLAIN });
        all.push(Holding { is_of_others: true, prefix, ..PLAIN });
        all.push(Holding { is_checkpoint: false, is_output: true, is_offered: true, prefix, ..PLAIN });
    }
    all
}

/// A checkpoint in cache only.
const PLAIN: Holding = Holding {
    id: 0,
    seq: SEQS[0],
    store: 0,
    is_checkpoint: true,
    is_output: false,
    cache: Lies::Strong,
    prefix: InPrefix::Missing,
    standing: Standing::Kept,
    is_of_others: false,
    is_offered: false,
};

/// Two datasets of a run, and one of the next, which has not seen their numbers.
const SEQS: [Seq; 3] = [Seq { run: 1, id: 2 }, Seq { run: 1, id: 3 }, Seq { run: 2, id: 1 }];

/// Calls this for all combinations of three datasets, oldest first.
fn each_three(mut look: impl FnMut(&[Holding; 3])) {
    let states = states();
    let at = |state: &Holding, place: usize| Holding { id: place as u64 + 1, seq: SEQS[place], ..*state };
    for oldest in &states {
        for middle in &states {
            for newest in &states {
                look(&[at(oldest, 0), at(middle, 1), at(newest, 2)]);
            }
        }
    }
}

/// What the next run would restart from.
fn wanted(all: &[Holding]) -> Option<Holding> {
    next(all, Goal::Restart { in_prefix: false }).filter(Holding::is_wanted)
}

/// Holds what a run gets that starts when only these are left against the ten promises, if users count on those that are owed.
fn check(all: &[Holding; 3], is_owed: impl Fn(&Holding) -> bool, left: &[Holding]) {
    let fate = |held: &Holding| Fate {
        run: held.seq.run,
        is_complete: is_owed(held),
        is_readable: true,
        is_gone: held.standing == Standing::WentBack,
        is_refused: held.standing == Standing::Refused,
        is_given_over: held.cache == Lies::InPlace && held.prefix.is_superseded(),
        has_arrived: true,
        is_whole: held.is_checkpoint,
        ..Fate::default()
    };
    let counts = |held: &Holding| left.iter().any(|other| other.id == held.id && other.is_wanted());
    let now = Says {
        counts: all.iter().map(counts).collect(),
        has_name: vec![true; 3],
        is_withdrawn: all.iter().map(|held| !counts(held)).collect(),
        last_run: SEQS[2].run,
        next_id: 4,
    };
    let after = Says { last_run: now.last_run + 1, ..now.clone() };
    let restart = wanted(left).map(|taken| Restart { dataset: taken.id as usize - 1, is_whole: true });
    let fates = all.each_ref().map(fate);
    let view = View { now: &now, fates: &fates, restart, named: &[], after: &after, is_any_left: false };
    let broken = Promise::ALL.iter().find(|promise| **promise != Promise::Begin && !promise.is_kept(&view));
    assert_eq!(broken, None, "{all:?} with {left:?} left");
}

#[test]
fn nobody_restarts_from_what_was_refused_or_has_lost_its_files() {
    each_three(|all| {
        check(all, Holding::is_wanted, all);
        for in_prefix in [false, true] {
            let Some(taken) = next(all, Goal::Restart { in_prefix }) else { continue };
            assert!(taken.is_checkpoint && taken.standing != Standing::Refused, "{all:?}");
            assert!(!(taken.cache == Lies::InPlace && taken.prefix == InPrefix::Superseded), "{all:?}");
            assert!(!in_prefix || taken.prefix == InPrefix::Files, "{all:?}");
            let newer =
                all.iter().filter(|held| held.seq > taken.seq && (!in_prefix || held.prefix.has_files()));
            assert!(newer.clone().all(|held| !held.is_wanted()), "{all:?}");
            assert!(taken.is_wanted() || newer.clone().all(|held| !held.is_restartable()), "{all:?}");
        }
    });
}

/// `scr status` asks before the flushes of the run that begins.
#[test]
fn a_run_that_begins_takes_what_it_takes_once_all_that_is_due_is_flushed() {
    each_three(|all| {
        let due = due(all, When::Begin(&|_| true));
        let flushed = |held: &Holding| match due.contains(&held.id) {
            true => Holding { prefix: InPrefix::Files, ..*held },
            false => *held,
        };
        for (in_prefix, then) in [(false, all.to_vec()), (true, all.iter().map(flushed).collect())] {
            let taken = next(&then, Goal::Restart { in_prefix }).map(|held| held.id);
            assert_eq!(first(all, in_prefix).map(|held| held.id), taken, "{all:?}");
        }
    });
}

/// Whatever leaves a store, also where another one keeps a dataset, and though a node is lost then where there is room for two.
#[test]
#[ignore = "long"]
fn what_leaves_a_store_is_not_what_a_restart_takes_nor_output_that_is_nowhere_else() {
    each_three(|all| {
        let room = |most| Goal::Room { store: 0, limit: Limit::after(most) };
        let way = Goal::Way { store: 0, fetched: SEQS[2] };
        for (elsewhere, goal) in [(0, room(1)), (1, room(1)), (3, room(1)), (0, room(2)), (0, way), (2, way)]
        {
            let stored = all.map(|held| Holding { store: usize::from(held.id == elsewhere), ..held });
            let Some(left) = next(&stored, goal) else { continue };
            assert!(left.store == 0 && !left.is_offered, "{left:?} of {all:?}");
            assert!(!left.must_stay() || left.prefix.is_under_way(), "{left:?} of {all:?}");
            let stays = |held: &&Holding| held.id != left.id;
            let stay: Vec<_> = all.iter().filter(stays).copied().collect();
            check(all, Holding::is_wanted, &stay);
            if matches!(goal, Goal::Room { limit, .. } if limit == Limit::after(2)) {
                let survives =
                    |held: &&Holding| held.prefix.is_whole() || stays(held) && held.cache == Lies::Strong;
                let survive: Vec<_> = all.iter().filter(survives).copied().collect();
                check(all, |held| survives(&held) && held.is_wanted(), &survive);
            }
        }
    });
}

/// A job that dies while a new checkpoint is written, where the store has no room for both.
#[test]
fn before_a_new_dataset_the_one_that_a_restart_takes_leaves_last() {
    let limit = Limit::before(2, 2);
    each_three(|all| {
        let Some(left) = next(all, Goal::Room { store: 0, limit }) else { return };
        let stay = || all.iter().filter(|held| held.must_stay() || held.is_offered).count();
        let taken = wanted(all).filter(Holding::counts);
        assert!(Some(left) != taken || stay() > 0 || left.prefix.is_whole(), "{left:?} of {all:?}");
    });
}

#[test]
fn a_store_gets_down_to_its_limit_or_keeps_what_must_stay() {
    let limit = Limit::after(1);
    each_three(|all| {
        let mut left = all.to_vec();
        while let Some(leaves) = next(&left, Goal::Room { store: 0, limit }) {
            left.retain(|held| *held != leaves);
        }
        let is_free = |held: &&Holding| !held.must_stay() && !held.is_offered && held.cache != Lies::Local;
        // One to restart from, and the newest of those that count.
        assert!(left.iter().filter(is_free).count() <= 2, "{left:?} of {all:?}");
    });
}

#[test]
fn what_makes_way_for_a_fetch_is_spare_and_neither_the_newest_nor_the_one_before() {
    let fetched = SEQS[2];
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
        // The caches are lost.
        let of_others = due_of_others(all);
        let stays =
            |held: &&Holding| held.prefix.is_whole() || is_flushed(held) || of_others == Some(held.seq);
        let stay: Vec<_> = all.iter().filter(stays).copied().collect();
        let can_arrive = |held: &Holding| {
            !(held.prefix.is_superseded() || held.is_of_others && held.prefix.is_under_way())
        };
        check(all, |held| Some(*held) == wanted(all) && can_arrive(held), &stay);
    });
}

#[test]
fn a_run_that_begins_flushes_what_it_is_to_and_output_again_that_has_failed() {
    each_three(|all| {
        for meant in 0..8_u64 {
            let is_meant = |id: u64| meant & (1 << (id - 1)) != 0;
            let flushed = due(all, When::Begin(&is_meant));
            let is_due = |held: &Holding| {
                held.is_unflushed() && held.standing != Standing::Refused && is_meant(held.id)
            };
            assert!(all.iter().all(|held| flushed.contains(&held.id) == is_due(held)), "{all:?}");
            assert!(flushed.is_sorted(), "older ones come first");
        }
        let again = due(all, When::Again);
        let is_due = |held: &Holding| held.must_stay() && !held.prefix.is_under_way();
        assert!(all.iter().all(|held| again.contains(&held.id) == is_due(held)), "{all:?}");
    });
}

/// One that is local is only a promise: what is protected stays beside it.
#[test]
fn only_the_newest_local_ones_wait_and_only_beside_what_is_protected() {
    each_three(|all| {
        for (place, held) in all.iter().enumerate().filter(|(_, held)| waits(all, held)) {
            assert!(held.cache == Lies::Local && !all[place + 1..].iter().any(Holding::counts), "{all:?}");
        }
        assert!(all.iter().filter(|held| waits(all, held)).count() <= 2, "{all:?}");
    });
}

/// What the user has gone back over is no checkpoint to flush any more, unless it is refused, and going back further ends that.
#[test]
fn nothing_comes_back_that_somebody_has_gone_back_over() {
    each_three(|all| {
        for to in 0..=3 {
            let go_back = |held: &Holding| {
                let standing = match held.is_checkpoint {
                    true => held.standing.after_going_back(held.id > to),
                    false => held.standing,
                };
                Holding { standing, ..*held }
            };
            let then: Vec<_> = all.iter().map(go_back).collect();
            let flushed = due(&then, When::End { checkpoints: true });
            let is_over = |held: &&Holding| held.is_checkpoint && held.id > to;
            let mut over = then.iter().filter(is_over);
            assert!(over.all(|held| held.is_output || !flushed.contains(&held.id)), "{all:?} to {to}");
            assert!(wanted(&then).is_none_or(|wanted| wanted.id <= to), "{all:?} to {to}");
            let stays = |held: &&Holding| held.standing == Standing::Refused;
            assert!(all.iter().zip(&then).all(|(held, then)| !stays(&held) || stays(&then)), "{all:?}");
        }
    });
}

/// A copy counts while it is whole: not before every byte has arrived, not once it has failed, and not once a newer dataset has
/// its name or a file of it.
#[test]
fn a_dataset_without_a_whole_copy_gets_to_the_prefix_directory() {
    for held in states() {
        let after = |change: fn(&mut InPrefix)| {
            let mut prefix = held.prefix;
            change(&mut prefix);
            prefix
        };
        assert!(after(InPrefix::begin).is_under_way(), "{held:?}");
        assert_eq!(after(InPrefix::begin).is_superseded(), held.prefix.is_superseded(), "{held:?}");
        assert!(after(InPrefix::supersede).is_superseded() && !after(InPrefix::supersede).is_whole());
        assert!(!after(InPrefix::lose).is_whole() && !after(InPrefix::give_back).is_superseded());
        for (in_containers, has_failed) in [(false, false), (true, false), (false, true), (true, true)] {
            let prefix = InPrefix::listed(in_containers, has_failed, held.standing).unwrap_or_default();
            let found = Holding { prefix, ..held };
            let is_flushed = due(&[found], When::End { checkpoints: true }).contains(&held.id);
            let is_needed =
                wanted(&[found]).is_some() || found.is_output && found.standing != Standing::Refused;
            let is_needed = is_needed && !found.is_of_others;
            assert!(!(has_failed && is_needed) || is_flushed, "{found:?}");
            assert!(has_failed || found.prefix.is_whole() && found.prefix.has_files() != in_containers);
        }
    }
}

#[test]
fn a_run_takes_the_newest_of_cache_and_prefix_directory() {
    each_three(|all| {
        for first in all.iter().map(|held| held.seq) {
            let Some(cached) = wanted(all) else { continue };
            let taken = fetched(&[Holding::listed(first, first)], all, false).unwrap_or(cached.seq);
            assert_eq!(taken, first.max(cached.seq), "{all:?}");
        }
    });
}

#[test]
fn what_other_ranks_wrote_makes_room_only_once_it_is_saved_and_no_newer_than_what_was_loaded() {
    let seqs = [None, Some(1), Some(2), Some(3)].map(|id| id.map(|id| Seq { run: 1, id }));
    for (seq, loaded) in seqs.iter().flat_map(|seq| seqs.map(|loaded| (*seq, loaded))) {
        assert_eq!(is_spare(true, seq, loaded), seq <= loaded);
        assert!(!is_spare(false, seq, loaded), "{seq:?} with {loaded:?} loaded");
    }
}

/// A run went back to what the index calls current, and the next search of it took a newer one all the same.
#[test]
fn what_somebody_has_gone_back_over_is_restarted_from_only_if_nothing_else_is_left() {
    let at = |id| Seq { run: 1, id };
    // The index offers 3 first, though it has 1 and 7 as well.
    let listed = [3, 1, 7].map(|id| Holding::listed(at(id), at(3)));
    let cached = |id| Holding { cache: Lies::Strong, ..Holding::checkpoint(at(id)) };
    let taken = |all: &[Holding]| next(all, Goal::Restart { in_prefix: false }).map(|held| held.id);
    assert_eq!(taken(&listed), Some(3));
    assert_eq!(taken(&[&listed[..], &[cached(5)]].concat()), Some(5));
    assert_eq!(taken(&[&listed[..], &[cached(2)]].concat()), Some(3));
    assert_eq!(taken(&listed[2..]), Some(7));
    let refused = |held: &Holding| Holding { standing: Standing::Refused, ..*held };
    assert_eq!(taken(&listed.each_ref().map(refused)), None);
}
