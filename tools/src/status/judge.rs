//! Conclusions from the facts about a job: what it is protected against, and what a loss would cost now. A pure function.

use super::gather::{created, Facts, State};
use crate::output::count;
use scr_comm::placement::Survives;
use scr_config::descriptor::protects;
use scr_core::holdings;
use scr_ops::{Copy, Held};
use serde::{Serialize, Serializer};

/// The conclusions from the facts.
#[derive(Debug)]
pub(super) struct Judged<'f> {
    /// The checkpoint that a run would restart from now.
    pub(super) newest: Option<&'f Held>,
    /// How well that one is protected.
    pub(super) protection: Protection,
    /// The cost of each of the losses, the smallest loss first.
    pub(super) costs: [Cost<'f>; 3],
    /// In how many seconds the next checkpoint is due, if the job keeps its pace. It may be overdue.
    pub(super) next_checkpoint: Option<i64>,
    /// After how many more checkpoints one is copied to the prefix directory.
    pub(super) next_flush: Option<u64>,
}

/// The protection of the newest checkpoint: the loss that it survives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// The loss of all nodes: it is in the prefix directory.
    InPrefix,
    /// The loss of all nodes: its store outlives them.
    OutlivesNodes,
    /// The loss of any set of this many nodes.
    Nodes(u32),
    /// The loss of no node, and why.
    Nothing(String),
    /// That is not recorded.
    Unknown,
}

/// The losses, the smallest first: for programs, for people, and what has to survive in cache. The last one takes all that nodes
/// and stores have.
const LOSSES: [(&str, &str, Option<Survives>); 3] = [
    ("node", "1 node", Some(Survives::Nodes(1))),
    ("all_nodes", "all nodes", Some(Survives::All)),
    ("allocation", "the allocation", None),
];

/// The cost of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Cost<'f> {
    pub(super) loss: &'static str,
    /// The same for people.
    #[serde(skip)]
    pub(super) lost: &'static str,
    /// Whether it is known what would be left: nodes that do not answer may have a checkpoint that survives it.
    pub(super) known: bool,
    /// The checkpoint that a run would restart from; `None` for the start, and where that is not known.
    #[serde(serialize_with = "by_name")]
    pub(super) back_to: Option<&'f Held>,
    /// How many checkpoints are lost.
    pub(super) checkpoints: Option<u64>,
    /// Seconds of work that are lost besides what the end of the run has cost already.
    pub(super) seconds: Option<i64>,
}

fn by_name<S: Serializer>(checkpoint: &Option<&Held>, to: S) -> Result<S::Ok, S::Error> {
    checkpoint.map(|held| held.entry.name_text()).serialize(to)
}

/// How badly a job stands among others: the first of these in which two differ decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Badness {
    pub(super) is_unsafe: bool,
    /// Whether nothing can be found out.
    is_unread: bool,
    /// Whether the loss of a node costs all work.
    loses_all: bool,
    /// Whether work goes on that can be lost.
    may_run: bool,
    seconds: i64,
}

impl Badness {
    /// That of one of which nothing can be found out.
    pub(super) const UNREAD: Self =
        Self { is_unsafe: true, is_unread: true, loses_all: false, may_run: false, seconds: 0 };
}

impl<'f> Judged<'f> {
    /// How badly the job stands.
    pub(super) fn badness(&self, facts: &Facts) -> Badness {
        let cost = self.next_cost(facts);
        Badness {
            is_unsafe: !self.is_safe() || cost.back_to != self.newest,
            is_unread: false,
            loses_all: cost.known && cost.back_to.is_none(),
            may_run: facts.state.may_run(),
            seconds: cost.seconds.unwrap_or(0),
        }
    }

    /// The cost of what may happen next: the loss of a node, or, to a job that does not run, the end of its allocation.
    pub(super) fn next_cost(&self, facts: &Facts) -> &Cost<'f> {
        &self.costs[if facts.state.may_run() { 0 } else { LOSSES.len() - 1 }]
    }

    pub(super) fn of(facts: &'f Facts) -> Self {
        let newest = newest(facts, |_| true);
        let protection = protection(facts, newest);
        let cost = |(loss, lost, least): (_, _, Option<Survives>)| {
            let is_left = |held: &Held| least.is_some() && held.entry.in_cache.survives >= least;
            match least.is_some() && protection == Protection::Unknown {
                true => Cost { loss, lost, known: false, back_to: None, checkpoints: None, seconds: None },
                false => cost(facts, [loss, lost], newest, self::newest(facts, is_left)),
            }
        };
        Self {
            newest,
            costs: LOSSES.map(cost),
            protection,
            next_checkpoint: next_checkpoint(facts),
            next_flush: next_flush(facts, newest),
        }
    }

    /// Whether a run would restart from the newest checkpoint if a node were lost now.
    pub(super) fn is_safe(&self) -> bool {
        let is_known = self.protection != Protection::Unknown;
        is_known && self.newest.is_some() && self.costs[0].back_to == self.newest
    }
}

/// What a run takes of those in cache of which this is so, and of that in the prefix directory, with the settings that it has.
fn newest(facts: &Facts, is_left: impl Fn(&Held) -> bool) -> Option<&Held> {
    let [no_cache, no_prefix] = facts.bars.each_ref().map(Option::is_some);
    let may_try = |checkpoint: &&Held| facts.may_try(checkpoint) && is_left(checkpoint);
    let cached = facts.cached.iter().filter(|checkpoint| !no_cache && may_try(checkpoint));
    // If a checkpoint has two copies, the one in the prefix directory outlives the other.
    let mut left: Vec<_> = cached.chain(facts.saved.iter().filter(|_| !no_prefix)).collect();
    let is_wish = |held: &Held| facts.wish.as_ref() == Some(&held.entry.name);
    if left.iter().any(|held| is_wish(held)) {
        left.retain(|held| is_wish(held));
    }
    let holdings: Vec<_> = left.iter().map(|checkpoint| checkpoint.holding()).collect();
    let next = holdings::first(&holdings, facts.reads_in_prefix)?;
    left.into_iter().rfind(|checkpoint| checkpoint.holding() == next)
}

fn protection(facts: &Facts, newest: Option<&Held>) -> Protection {
    let is_unknown = |held: &Held| {
        let is_newer = newest.is_none_or(|newest| newest.entry.seq() < held.entry.seq());
        is_newer && matches!(held.copy, Copy::Unknown(_))
    };
    let is_unread = newest.is_none() && facts.is_index_unread;
    if facts.lacks_list || is_unread || facts.unusable.as_ref().is_some_and(is_unknown) {
        return Protection::Unknown;
    }
    let Some(checkpoint) = newest else {
        return Protection::Nothing(format!("there is {}", facts.no_checkpoint("")));
    };
    if facts.saved.as_ref() == newest {
        return Protection::InPrefix;
    }
    let kept = &checkpoint.entry.in_cache;
    let scheme = kept.scheme.as_deref().unwrap_or_default();
    let is_one_node = facts.run.as_ref().is_some_and(|run| run.nodes.len() == 1);
    match kept.survives {
        None => Protection::Unknown,
        Some(Survives::All) => Protection::OutlivesNodes,
        Some(Survives::Nodes(0)) => Protection::Nothing(match checkpoint.copy {
            _ if is_one_node => "all ranks are on one node".to_owned(),
            Copy::Whole { lost: lost @ 1.., .. } => lost_parts(facts, lost),
            _ if kept.is_local => format!("it is local, and {scheme} has not protected it yet"),
            _ if !protects(scheme) => format!("{scheme} survives the loss of no node"),
            _ => format!("some sets of ranks have too few nodes for {scheme}"),
        }),
        Some(Survives::Nodes(nodes)) => Protection::Nodes(nodes),
    }
}

fn lost_parts(facts: &Facts, parts: usize) -> String {
    let parts = count(parts as u64, "part");
    match facts.first_silent() {
        // The row `as of' has the whole reason.
        Some(silent) => format!("{parts} not known, as {}", silent.split(": ").next().unwrap_or_default()),
        None => format!("{parts} already lost"),
    }
}

fn cost<'f>(
    facts: &Facts,
    [loss, lost]: [&'static str; 2],
    newest: Option<&Held>,
    back_to: Option<&'f Held>,
) -> Cost<'f> {
    let number = |checkpoint: &Held| checkpoint.entry.dataset.checkpoint_id;
    let checkpoints = newest.and_then(number).and_then(|newest| {
        let left = back_to.map_or(Some(0), number)?;
        Some(newest.saturating_sub(left))
    });
    let until = if facts.state.may_run() { Some(facts.now) } else { newest.and_then(created) };
    let since = back_to.and_then(created);
    let seconds = until.zip(since).map(|(until, since)| until.saturating_sub(since).max(0));
    Cost { loss, lost, known: true, back_to, checkpoints, seconds }
}

/// The pace is that of the last two checkpoints.
fn next_checkpoint(facts: &Facts) -> Option<i64> {
    let (begun, pace) = facts.pace?;
    let due = begun.saturating_add(i64::try_from(pace.as_secs()).ok()?);
    (facts.state == State::Running).then(|| due.saturating_sub(facts.now))
}

fn next_flush(facts: &Facts, newest: Option<&Held>) -> Option<u64> {
    let every = facts.run.as_ref()?.flush_every;
    let last = newest.and_then(|newest| newest.entry.dataset.checkpoint_id).unwrap_or(0);
    (facts.state == State::Running && every > 0 && !facts.is_bypass).then(|| every - last % every)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use scr_prefix::{DatasetDescriptor, FlushFile, InCache, LastRun};
    use std::time::Duration;

    /// The checkpoint of this number, begun so many minutes after the start of the job.
    pub(crate) fn checkpoint(number: u64, survives: Option<Survives>) -> Held {
        let dataset = DatasetDescriptor {
            id: number,
            run: 1,
            name: format!("ckpt.{number}").into_bytes(),
            checkpoint: true,
            created: number * 60_000_000,
            checkpoint_id: Some(number),
            bytes: Some(77 << 30),
            ranks: Some(64),
            ..DatasetDescriptor::default()
        };
        let mut file = FlushFile::default();
        let kept = InCache { scheme: Some("XOR".to_owned()), survives, ..InCache::default() };
        file.record_in_cache(&dataset, &kept);
        let entry = file.entry(number).unwrap();
        Held { entry, copy: Copy::ALL, is_listed: true, is_refused_there: false }
    }

    pub(crate) fn run_on(nodes: usize) -> LastRun {
        LastRun {
            job_id: "5132".to_owned(),
            nodes: (0..nodes).map(|node| format!("n{node}")).collect(),
            earlier: Vec::new(),
            ranks: 64,
            any_ranks: false,
            began: 0,
            flush_every: 10,
            ..LastRun::default()
        }
    }

    const SURVIVES: [Option<Survives>; 5] = [
        None,
        Some(Survives::Nodes(0)),
        Some(Survives::Nodes(1)),
        Some(Survives::Nodes(2)),
        Some(Survives::All),
    ];
    const STATES: [State; 6] =
        [State::Running, State::Finished, State::Stopped, State::Died, State::NoRun, State::Unknown];

    /// Every state, with none to two checkpoints in cache and one in the prefix directory or none.
    pub(crate) fn every_case(mut each: impl FnMut(&Facts)) {
        let all = Some(Survives::All);
        for state in STATES {
            for saved in [None, Some(5), Some(7), Some(8), Some(9)] {
                let mut lists = vec![Vec::new()];
                for newer in SURVIVES {
                    lists.push(vec![checkpoint(8, newer)]);
                    lists.extend(SURVIVES.map(|older| vec![checkpoint(8, newer), checkpoint(7, older)]));
                }
                for cached in lists {
                    let saved = saved.map(|number| checkpoint(number, all));
                    let run = Some(run_on(4));
                    each(&Facts { now: 600, state, run, cached, saved, ..Facts::default() });
                }
            }
        }
    }

    #[test]
    fn a_loss_costs_what_is_newer_than_the_newest_checkpoint_that_survives_it() {
        every_case(|facts| {
            let judged = Judged::of(facts);
            let survivors = |is_left: &dyn Fn(&Held) -> bool| {
                let cached = facts.cached.iter().filter(|checkpoint| is_left(checkpoint));
                cached.chain(&facts.saved).map(|left| left.entry.id).max()
            };
            let least = |least: Survives| {
                survivors(&move |it| it.entry.in_cache.survives.is_some_and(|has| has >= least))
            };
            let expected = [
                least(Survives::Nodes(1)),
                least(Survives::All),
                facts.saved.as_ref().map(|saved| saved.entry.id),
            ];
            let newest = survivors(&|_| true);
            assert_eq!(judged.newest.map(|newest| newest.entry.id), newest);
            for (cost, back_to) in judged.costs.iter().zip(expected) {
                let is_known = cost.loss == "allocation" || judged.protection != Protection::Unknown;
                assert_eq!(cost.known, is_known, "{facts:?}");
                if !is_known {
                    assert_eq!((cost.back_to, cost.checkpoints, cost.seconds), (None, None, None));
                    continue;
                }
                assert_eq!(cost.back_to.map(|back_to| back_to.entry.id), back_to, "{facts:?}");
                let steps = newest.map(|newest| newest - back_to.unwrap_or(0));
                assert_eq!(cost.checkpoints, steps);
                let is_on = matches!(facts.state, State::Running | State::Unknown);
                let until = if is_on { Some(600) } else { newest.map(|newest| newest * 60) };
                let seconds = until.zip(back_to).map(|(until, back_to)| until as i64 - back_to as i64 * 60);
                assert_eq!(cost.seconds, seconds, "{facts:?}");
            }
            assert_eq!(judged.is_safe(), newest.is_some() && expected[0] == newest);
            let after_next = expected[if facts.state.may_run() { 0 } else { 2 }];
            assert_eq!(judged.badness(facts).is_unsafe, !judged.is_safe() || after_next != newest);
        });
    }

    #[test]
    fn the_newest_checkpoint_is_protected_as_it_survives_and_the_reason_is_given_if_not() {
        every_case(|facts| {
            let judged = Judged::of(facts);
            let Some(newest) = judged.newest else {
                assert_eq!(judged.protection, Protection::Nothing("there is no checkpoint".to_owned()));
                return;
            };
            let is_saved = facts.saved.as_ref().is_some_and(|saved| saved.entry.seq() >= newest.entry.seq());
            let expected = match newest.entry.in_cache.survives {
                _ if is_saved => Protection::InPrefix,
                None => Protection::Unknown,
                Some(Survives::All) => Protection::OutlivesNodes,
                Some(Survives::Nodes(0)) => {
                    Protection::Nothing("some sets of ranks have too few nodes for XOR".to_owned())
                }
                Some(Survives::Nodes(nodes)) => Protection::Nodes(nodes),
            };
            assert_eq!(judged.protection, expected, "{facts:?}");
        });
        let none = Some(Survives::Nodes(0));
        let of = |nodes, checkpoint: Held| Facts {
            run: Some(run_on(nodes)),
            cached: vec![checkpoint],
            ..Facts::default()
        };
        let mut single = checkpoint(1, none);
        single.entry.in_cache.scheme = Some("SINGLE".to_owned());
        let lost = Held { copy: Copy::Whole { lost: 3, survival_unknown: None }, ..checkpoint(1, none) };
        for (facts, why) in [
            (of(1, single.clone()), "all ranks are on one node"),
            (of(4, single), "SINGLE survives the loss of no node"),
            (of(4, lost), "3 parts already lost"),
        ] {
            assert_eq!(Judged::of(&facts).protection, Protection::Nothing(why.to_owned()));
        }
    }

    #[test]
    fn the_next_checkpoint_and_flush_are_due_only_while_the_job_runs() {
        every_case(|facts| {
            let facts = &Facts {
                pace: Some((480, Duration::from_secs(180))),
                run: facts.run.clone(),
                cached: facts.cached.clone(),
                saved: facts.saved.clone(),
                ..Facts { now: facts.now, state: facts.state, ..Facts::default() }
            };
            let judged = Judged::of(facts);
            let is_on = facts.state == State::Running;
            assert_eq!(judged.next_checkpoint, is_on.then_some(60));
            let last = judged.newest.and_then(|newest| newest.entry.dataset.checkpoint_id).unwrap_or(0);
            assert_eq!(judged.next_flush, is_on.then(|| 10 - last));
        });
    }
}
