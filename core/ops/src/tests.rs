//! Every state of three datasets, newer and older, of two runs and two allocations: what commands choose keeps the promises.

use super::{Copy, Held, Plan, Saving};
use scr_core::holdings::{next, Goal, Holding, InPrefix, Lies, Standing};
use scr_prefix::{DatasetDescriptor, FlushEntry, InCache, Location, Seq};
use scr_test_kit::promises::{Fate, Promise, Restart, Says, View};

/// Two datasets of a run, and one of the next, which has not seen their numbers. The newest first, as commands have them.
const SEQS: [Seq; 3] = [Seq { run: 2, id: 1 }, Seq { run: 1, id: 3 }, Seq { run: 1, id: 2 }];
/// The allocation of the command.
const OURS: &str = "7";

/// The states that a dataset can be in, with the first place.
fn states() -> Vec<Held> {
    let lost = || Copy::Lost(String::new());
    let mut all = Vec::new();
    for (checkpoint, output) in [(true, false), (false, true), (true, true)] {
        for job_id in [OURS, "6"] {
            let held = |copy: Copy, is_saved: bool, is_replaced: bool| {
                let dataset = DatasetDescriptor {
                    checkpoint,
                    output,
                    job_id: job_id.to_owned(),
                    ..DatasetDescriptor::default()
                };
                let places = [(Location::Cache, copy != Copy::None), (Location::Prefix, is_saved)];
                let entry = FlushEntry {
                    locations: places
                        .into_iter()
                        .filter_map(|(place, is_it)| is_it.then_some(place))
                        .collect(),
                    dataset,
                    replaced_by: is_replaced.then_some(99),
                    in_cache: InCache::default(),
                };
                Held { entry, copy, is_listed: true, is_refused_there: false }
            };
            all.extend([Copy::None, Copy::ALL].map(|copy| held(copy, true, false)));
            let unsaved = [Some(Copy::ALL), Some(lost()), checkpoint.then_some(Copy::Refused)];
            all.extend(unsaved.into_iter().flatten().map(|copy| held(copy, false, false)));
            let refused = || Held { is_refused_there: true, ..held(Copy::Refused, false, false) };
            all.extend(checkpoint.then(refused));
            all.push(held(Copy::ALL, false, true));
        }
    }
    all
}

/// Calls this for all combinations, in which only what is in the prefix directory has replaced an older one.
fn each_three(mut look: impl FnMut(&[Held; 3])) {
    let states = states();
    for newest in &states {
        for middle in &states {
            for oldest in &states {
                let mut all = [newest, middle, oldest].map(Held::clone);
                for (held, seq) in all.iter_mut().zip(SEQS) {
                    (held.entry.dataset.id, held.entry.dataset.run) = (seq.id, seq.run);
                }
                let is_real =
                    |of: usize| all[of].entry.replaced_by.is_none() || all[..of].iter().any(is_saved);
                if (0..3).all(is_real) {
                    look(&all);
                }
            }
        }
    }
}

fn is_saved(held: &Held) -> bool {
    held.entry.is_at(Location::Prefix)
}

/// Whether a run of this allocation has it in its caches.
fn is_cached(held: &Held) -> bool {
    held.copy.is_whole() && held.entry.allocation() == Some(OURS)
}

/// Holds what a run gets that starts when only this is left against the ten promises.
fn check(all: &[Held; 3], left: impl Fn(&Held) -> Option<Holding>) {
    let left: Vec<_> = all.iter().rev().map(left).collect();
    let fate = |held: &Held| Fate {
        run: held.entry.seq().run,
        is_complete: held.entry.checkpoint && (is_saved(held) || is_cached(held)),
        is_readable: true,
        is_refused: held.copy == Copy::Refused,
        is_given_over: held.entry.replaced_by.is_some(),
        has_arrived: true,
        is_whole: held.entry.checkpoint,
        ..Fate::default()
    };
    let fates = [2, 1, 0].map(|at| fate(&all[at]));
    let counts = |held: &Option<Holding>| {
        held.is_some_and(|held| held.is_checkpoint && held.standing != Standing::Refused)
    };
    let now = Says {
        counts: left.iter().map(counts).collect(),
        has_name: vec![true; 3],
        is_withdrawn: left.iter().map(|held| !counts(held)).collect(),
        last_run: SEQS[0].run,
        next_id: 4,
    };
    let after = Says { last_run: now.last_run + 1, ..now.clone() };
    let taken = next(&left.iter().flatten().copied().collect::<Vec<_>>(), Goal::Restart { in_prefix: false });
    let dataset = taken.and_then(|taken| left.iter().position(|held| *held == Some(taken)));
    let restart = dataset.map(|dataset| Restart { dataset, is_whole: true });
    let view = View { now: &now, fates: &fates, restart, named: &[], after: &after, is_any_left: false };
    let broken = Promise::ALL.iter().find(|promise| **promise != Promise::Begin && !promise.is_kept(&view));
    assert_eq!(broken, None, "{all:?} with {left:?} left");
}

#[test]
fn a_status_names_what_keeps_the_promises() {
    each_three(|all| check(all, |held| (is_saved(held) || is_cached(held)).then(|| held.holding())));
}

/// The caches are gone then. Where nothing is to be saved, as for `scr clean`, they may go at once.
#[test]
fn what_postrun_saves_is_enough_for_the_promises_and_for_all_output() {
    each_three(|all| {
        let saving = Saving::of(all, OURS, false);
        let saved: Vec<u64> = saving.saved(is_whole(all)).iter().map(|(entry, _)| entry.id).collect();
        let is_there = |held: &Held| is_saved(held) || saved.contains(&held.entry.id);
        let arrived =
            |held: &Held| Holding { cache: Lies::InPlace, prefix: InPrefix::Files, ..held.holding() };
        check(all, |held| is_there(held).then(|| arrived(held)));
        for held in all {
            let is_replaced = held.entry.replaced_by.is_some();
            assert!(
                !is_there(held) || !is_replaced,
                "it takes the place of a newer one: {held:?} of {all:?}"
            );
            assert!(
                !(held.entry.output && is_cached(held)) || is_there(held) || is_replaced,
                "{held:?} of {all:?}"
            );
        }
    });
}

/// It says that all is safe only if no cache has anything that a run would restart from, nor output.
#[test]
fn postrun_says_that_all_is_safe_only_where_nothing_is_left_in_a_cache() {
    each_three(|all| {
        let saving = Saving::of(all, OURS, false);
        let mut saved = Vec::new();
        let is_safe = saving.carry_out(|entry, plan| {
            let is_saved = plan != Plan::Elsewhere && is_whole(all)(entry);
            saved.extend(is_saved.then_some(entry.id));
            is_saved
        });
        let is_there = |held: &Held| is_saved(held) || saved.contains(&held.entry.id);
        let is_left = |of: usize| {
            let Held { entry, copy, .. } = &all[of];
            let is_newest =
                entry.checkpoint && !all[..of].iter().any(|newer| newer.entry.checkpoint && is_there(newer));
            let is_needed = entry.output || is_newest;
            let can_be_saved = entry.replaced_by.is_none() && (*copy != Copy::Refused || entry.output);
            !is_there(&all[of]) && is_needed && can_be_saved
        };
        // One that another allocation has gone on without is to be saved, too.
        let is_passed_over =
            |(entry, plan): &(FlushEntry, Plan)| *plan == Plan::PassedOver && !saved.contains(&entry.id);
        assert_eq!(is_safe, !(0..3).any(is_left) && !saving.0.iter().any(is_passed_over), "{all:?}");
    });
}

/// Whether a dataset can be saved of which the nodes have this.
fn is_whole(all: &[Held; 3]) -> impl Fn(&FlushEntry) -> bool + '_ {
    |entry| all.iter().any(|held| held.entry.id == entry.id && held.copy.is_whole())
}
