//! The interval of a running job: from what it has measured, from how it has failed so far, and from what the site states.
//!
//! A site states how long a node lasts, and how long the whole system. That weighs as much as one failure of each. The failures
//! of the job itself then weigh more and more.

use super::gaps::Belief;
use super::model::{Level, Machine, Plan, PlanError, Recovery};
use super::search::best_interval;

/// A kind of checkpoint that a job writes to cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    /// Seconds that one stops the job.
    pub checkpoint: f64,
    /// Whether it survives the loss of a node.
    pub protects: bool,
    /// Every this many checkpoints are of this kind, or of one that survives more.
    pub every: u64,
}

/// The measurements and the failures of a job, over all runs that its log knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Experience {
    /// The kinds of checkpoints in cache, from the one that survives least; none if all go straight to the prefix directory.
    pub kinds: Vec<Kind>,
    /// Seconds of a flush, or of a checkpoint that goes straight to the prefix directory.
    pub flush: f64,
    /// The share of a flush during which the job computes, from 0 to 1.
    pub hidden: f64,
    /// Seconds from a failure until the job computes again, from cache and from the prefix directory.
    pub restart: f64,
    /// As above.
    pub fetch: f64,
    /// Seconds of all runs.
    pub seconds: f64,
    /// Failures so far that took a node.
    pub lost_nodes: u32,
    /// Failures after which the job went on from the prefix directory.
    pub fatal: u32,
    /// All other failures.
    pub processes: u32,
}

/// The mean times that a site states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stated {
    /// Seconds between two failures of one node.
    pub node: f64,
    /// Seconds between two failures that take all nodes.
    pub system: f64,
    /// Nodes of the job.
    pub nodes: u64,
}

/// When to write checkpoints, and which to flush.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Auto {
    /// Seconds of computing between two checkpoints, an hour at most.
    pub interval: f64,
    /// One of this many is flushed; 0 for none.
    pub flush_every: u64,
    /// The share of time that brings the job forward.
    pub efficiency: f64,
    /// The best interval lies between these with a probability of 95 %, given how little is known of failures.
    pub between: (f64, f64),
}

impl Experience {
    /// The plan that loses least time. The settings may have fixed that one of `flush_every` checkpoints is flushed; 0 for none.
    ///
    /// # Errors
    /// [`PlanError`]: a time is negative or no number.
    pub fn plan(&self, stated: &Stated, flush_every: Option<u64>) -> Result<Auto, PlanError> {
        let costs = self.costs(stated);
        let machine = |rate: fn(Belief) -> f64| -> Result<Machine, PlanError> {
            let machine = costs.machine(rate)?;
            let cached = machine.levels().len() - 1;
            if flush_every != Some(0) || cached == 0 {
                return Ok(machine);
            }
            // No interval helps against failures after which everything is lost.
            Machine::new(machine.levels()[..cached].to_vec(), Recovery::OfFailure)
        };
        let expected = machine(Belief::rate)?;
        let flushes: Vec<u32> = match flush_every {
            _ if self.kinds.is_empty() => vec![0],
            Some(every) => vec![between(self.per_flush(every))],
            None => FLUSHES.to_vec(),
        };
        let tried = flushes.into_iter().map(|flush| {
            let mut counts = self.counts(flush);
            counts.truncate(expected.levels().len() - 1);
            let (interval, efficiency) = best_of_an_hour(&expected, &counts);
            (counts, interval, efficiency)
        });
        let best = tried.max_by(|one, other| one.2.total_cmp(&other.2));
        let (counts, interval, efficiency) = best.unwrap_or_default();
        let with = |rate: fn(Belief) -> f64| -> Result<f64, PlanError> {
            Ok(best_of_an_hour(&machine(rate)?, &counts).0)
        };
        let every = counts.iter().fold(1, |every: u64, &count| every.saturating_mul(u64::from(count) + 1));
        Ok(Auto {
            interval,
            flush_every: flush_every.filter(|_| !self.kinds.is_empty()).unwrap_or(every),
            efficiency,
            between: (with(|belief| belief.bounds().1)?, with(|belief| belief.bounds().0)?),
        })
    }

    fn costs(&self, stated: &Stated) -> Costs {
        let prior = |mean: f64| Belief::stated(mean).unwrap_or(NEVER);
        // Nothing is stated of failures that leave all nodes as they are: they are believed to be as frequent as lost nodes.
        let of_a_node = prior(stated.node / stated.nodes.max(1) as f64);
        let processes = of_a_node.after(self.processes, self.seconds);
        let nodes = of_a_node.after(self.lost_nodes, self.seconds);
        let system = prior(stated.system).after(self.fatal, self.seconds);
        let of = |kind: &Kind, survives| CacheCosts {
            checkpoint: kind.checkpoint,
            restart: self.restart,
            survives,
        };
        let (cache, fatal) = match *self.kinds {
            [] => (Vec::new(), processes.or(nodes).or(system)),
            [ref only] if only.protects => (vec![of(only, processes.or(nodes))], system),
            [ref only] => (vec![of(only, processes)], nodes.or(system)),
            [ref weak, ref strong, ..] => (vec![of(weak, processes), of(strong, nodes)], system),
        };
        Costs { cache, flush: self.flush, hidden: self.hidden, fetch: self.fetch, fatal }
    }

    /// Checkpoints of each kind between two of the next, with so many of the highest between two flushes.
    fn counts(&self, flush: u32) -> Vec<u32> {
        match *self.kinds {
            [] => Vec::new(),
            [_] => vec![flush],
            [_, ref strong, ..] => vec![between(strong.every), flush],
        }
    }

    /// How many checkpoints of the highest kind there are for each flush, if one of `every` checkpoints is flushed.
    fn per_flush(&self, every: u64) -> u64 {
        match *self.kinds {
            [_, ref strong, ..] if every > 0 => (every / strong.every.max(1)).max(1),
            _ => every,
        }
    }
}

/// The best interval up to the longest, and its efficiency.
fn best_of_an_hour(machine: &Machine, counts: &[u32]) -> (f64, f64) {
    let best = best_interval(machine, counts);
    if best.0 <= LONGEST {
        return best;
    }
    let longest = Plan { interval: LONGEST, counts: counts.to_vec() };
    (LONGEST, machine.forecast(&longest).unwrap_or(0.0))
}

/// Checkpoints between two of every so many; without any, as if there were very few.
fn between(every: u64) -> u32 {
    u32::try_from(every.wrapping_sub(1)).unwrap_or(SELDOM).min(SELDOM)
}

/// However rare failures are, this much work is not risked: what is measured may be wrong, too.
const LONGEST: f64 = 3600.0;
const SELDOM: u32 = 10_000;
/// A time that a site does not state in earnest.
const NEVER: Belief = Belief { failures: 1.0, seconds: 3.155_76e9 };
/// How many checkpoints between two flushes are tried. The efficiency is flat around the best one.
const FLUSHES: [u32; 22] = [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 17, 21, 26, 32, 40, 50, 63, 80, 126, 251, 999];

/// The cost of checkpoints of one kind in cache, in seconds, and their purpose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheCosts<Rate = Belief> {
    /// For how long a checkpoint stops the job.
    pub checkpoint: f64,
    /// How long a restart takes.
    pub restart: f64,
    /// Failures that it survives, and that one of the kind below does not.
    pub survives: Rate,
}

/// The measurements of a job, in seconds, and what is known of its failures.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs<Rate = Belief> {
    /// Checkpoints in cache, from the kind that survives least.
    pub cache: Vec<CacheCosts<Rate>>,
    /// How long a flush takes.
    pub flush: f64,
    /// The share of it during which the job computes, from 0 to 1.
    pub hidden: f64,
    /// How long a restart from the prefix directory takes.
    pub fetch: f64,
    /// Failures that no checkpoint in cache survives.
    pub fatal: Rate,
}

impl<Rate: Copy> Costs<Rate> {
    /// The machine as the job sees it, for the expected failure rates, or others.
    ///
    /// # Errors
    /// [`PlanError`]: a number is not in its range.
    pub fn machine(&self, rate: impl Fn(Rate) -> f64) -> Result<Machine, PlanError> {
        let found = self.hidden;
        let why = || format!("the hidden share of a flush is {found}; it must be between 0 and 1");
        PlanError::unless((0.0..=1.0).contains(&found), why)?;
        let level = |kind: &CacheCosts<Rate>| Level {
            write: kind.checkpoint,
            recover: kind.restart,
            hidden: 0.0,
            rate: rate(kind.survives),
        };
        let mut levels: Vec<Level> = self.cache.iter().map(level).collect();
        // Each flushed checkpoint is a checkpoint of the highest kind in cache first.
        let cached = self.cache.last().map_or(0.0, |kind| kind.checkpoint);
        levels.push(Level {
            write: cached + self.flush * (1.0 - self.hidden),
            recover: self.fetch,
            hidden: self.flush * self.hidden,
            rate: rate(self.fatal),
        });
        Machine::new(levels, Recovery::OfFailure)
    }
}

/// Seconds between two checkpoints that cost `cost` each, where a failure comes every `mean` seconds, by J. W. Young, "A First
/// Order Approximation to the Optimum Checkpoint Interval" (1974).
pub fn young(cost: f64, mean: f64) -> f64 {
    (2.0 * cost * mean).sqrt()
}

/// The same by J. T. Daly, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps" (2004), equation 37.
pub fn daly(cost: f64, mean: f64) -> f64 {
    if cost >= 2.0 * mean {
        return mean;
    }
    let share = cost / (2.0 * mean);
    young(cost, mean) * (1.0 + share.sqrt() / 3.0 + share / 9.0) - cost
}

#[cfg(test)]
mod tests {
    use super::super::search::best_plan;
    use super::*;

    const DAY: f64 = 86_400.0;

    fn stated() -> Stated {
        Stated { node: 5.0 * 365.25 * DAY, system: 30.0 * DAY, nodes: 1000 }
    }

    fn cached() -> Experience {
        let kinds = vec![Kind { checkpoint: 2.0, protects: true, every: 1 }];
        Experience { kinds, flush: 300.0, hidden: 0.9, restart: 60.0, fetch: 600.0, ..Experience::default() }
    }

    #[test]
    fn in_bypass_mode_the_interval_is_dalys() {
        let job = Experience { flush: 20.0, restart: 60.0, fetch: 60.0, ..Experience::default() };
        let plan = job.plan(&Stated { nodes: 4000, ..stated() }, None).unwrap();
        // Twice as many failures as nodes are lost, and those of the system.
        let rate = 2.0 * 4000.0 / (5.0 * 365.25 * DAY) + 1.0 / (30.0 * DAY);
        let best = daly(20.0, 1.0 / rate);
        assert!((plan.interval / best - 1.0).abs() < 0.02, "{plan:?} beside {best}");
        assert_eq!(plan.flush_every, 1);
    }

    #[test]
    fn with_one_kind_in_cache_it_is_as_good_as_the_best_plan() {
        let job = cached();
        let plan = job.plan(&stated(), None).unwrap();
        let best = best_plan(&job.costs(&stated()).machine(Belief::rate).unwrap(), 10_000);
        assert!(plan.efficiency > best.1 - 1e-4, "{plan:?} beside {best:?}");
        assert!(plan.interval < LONGEST && plan.flush_every > 1);
        assert!(plan.between.0 < plan.interval && plan.interval <= plan.between.1);
    }

    #[test]
    fn dearer_checkpoints_and_fewer_failures_make_it_longer_up_to_an_hour() {
        let interval = |job: &Experience| job.plan(&stated(), None).unwrap().interval;
        let job = cached();
        let dearer = Experience { kinds: vec![Kind { checkpoint: 8.0, ..job.kinds[0] }], ..job.clone() };
        assert!(interval(&dearer) > 1.5 * interval(&job));
        let failing = Experience { processes: 9, seconds: DAY, ..job.clone() };
        assert!(interval(&failing) < interval(&job));
        let steady = Experience { seconds: 9000.0 * DAY, ..job };
        assert_eq!(interval(&steady), LONGEST);
    }

    #[test]
    fn where_the_best_interval_is_longer_than_an_hour_the_flushes_are_the_best_ones_of_an_hour() {
        let kinds = vec![Kind { checkpoint: 60.0, protects: true, every: 1 }];
        let job = Experience { kinds, flush: 600.0, restart: 120.0, ..cached() };
        let rare = Stated { node: 400.0 * DAY, system: 70.0 * DAY, nodes: 50 };
        let plan = job.plan(&rare, None).unwrap();
        assert_eq!(plan.interval, LONGEST);
        let machine = job.costs(&rare).machine(Belief::rate).unwrap();
        let efficiency = |every: u64| {
            let plan = Plan { interval: LONGEST, counts: vec![between(every)] };
            machine.forecast(&plan).unwrap()
        };
        assert!((plan.efficiency - efficiency(plan.flush_every)).abs() < 1e-9, "{plan:?}");
        let best = (1..30).map(efficiency).fold(0.0, f64::max);
        assert!(plan.efficiency > best - 1e-5, "{plan:?}, and {best} is possible");
    }

    #[test]
    fn without_flushes_the_interval_is_dalys_also_where_nodes_fail_often() {
        for mean in [200.0, 3600.0, DAY] {
            let kinds = vec![Kind { checkpoint: 0.5, protects: true, every: 1 }];
            let job = Experience { kinds, restart: 60.0, ..cached() };
            let often = Stated { node: 2.0 * mean, system: 30.0 * DAY, nodes: 1 };
            let plan = job.plan(&often, Some(0)).unwrap();
            assert!((plan.interval / daly(0.5, mean) - 1.0).abs() < 0.02, "{mean}: {plan:?}");
        }
    }

    #[test]
    fn what_the_settings_fix_is_kept() {
        let job = cached();
        for (fixed, every) in [(Some(7), 7), (Some(1), 1), (Some(0), 0)] {
            let plan = job.plan(&stated(), fixed).unwrap();
            assert_eq!(plan.flush_every, every);
        }
        let strong = Kind { checkpoint: 6.0, protects: true, every: 5 };
        let weak = Kind { checkpoint: 1.0, protects: false, every: 1 };
        let both = Experience { kinds: vec![weak, strong], ..job };
        let plan = both.plan(&stated(), None).unwrap();
        assert_eq!(plan.flush_every % 5, 0, "{plan:?}");
        assert_eq!(both.plan(&stated(), Some(20)).unwrap().flush_every, 20);
    }

    #[test]
    fn nodes_without_protection_are_lost_with_their_data() {
        let weak =
            Experience { kinds: vec![Kind { checkpoint: 2.0, protects: false, every: 1 }], ..cached() };
        let (weak, strong) = (weak.plan(&stated(), None), cached().plan(&stated(), None));
        assert!(weak.unwrap().flush_every < strong.unwrap().flush_every);
    }

    #[test]
    fn times_that_are_none_are_refused_and_a_site_that_states_nothing_is_no_harm() {
        let wrong = Experience { flush: f64::NAN, ..cached() };
        assert!(wrong.plan(&stated(), None).is_err());
        let nothing = Stated { node: 0.0, system: f64::INFINITY, nodes: 0 };
        assert!(cached().plan(&nothing, None).unwrap().interval > 0.0);
    }
}

#[cfg(test)]
mod costs_tests {
    use super::*;

    #[test]
    fn the_models_of_one_level_give_their_authors_figures() {
        assert!((young(4.0, 100.0) - 28.284).abs() < 0.001);
        assert!((daly(4.0, 100.0) - 25.680).abs() < 0.001);
        assert_eq!(daly(200.0, 100.0), 100.0);
    }
}
