//! The plans that a site can choose from: which schemes protect the cache, and for each the best interval and flushes.

use super::site::{Kind, Scheme, Site};
use scr_base::message::amount;
use scr_plan::{best_plan, Level, Machine, Plan, Recovery};

/// A plan, and what it leads to.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// The schemes in cache, from the one that survives least. None: every checkpoint goes to the prefix directory.
    pub(super) kinds: Vec<Kind>,
    /// Complete checkpoints of each scheme that the cache keeps.
    pub(super) count: u64,
    /// Whether the job computes during a flush.
    pub(super) is_async: bool,
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) efficiency: f64,
}

/// Schemes that a site cannot use, and why.
#[derive(Debug)]
pub(super) struct Excluded {
    pub(super) kinds: Vec<Kind>,
    pub(super) why: String,
}

/// How much dearer or more frequent things are than the file says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors {
    pub(super) failures: f64,
    pub(super) cache: f64,
    pub(super) flush: f64,
}

pub(super) const AS_STATED: Factors = Factors { failures: 1.0, cache: 1.0, flush: 1.0 };

/// Most checkpoints of a kind between two of the next.
pub(super) const MOST_BETWEEN: u32 = 10_000;

impl Candidate {
    fn new(site: &Site, schemes: &[&Scheme], count: u64, is_async: bool) -> Option<Self> {
        let kinds: Vec<Kind> = schemes.iter().map(|scheme| scheme.kind).collect();
        let machine = machine(site, &kinds, is_async, AS_STATED)?;
        let (plan, efficiency) = best_plan(&machine, MOST_BETWEEN);
        // Without checkpoints of the first scheme alone it is the plan with the other one.
        let is_mixed = kinds.len() < 2 || plan.counts[0] > 0;
        is_mixed.then_some(Self { kinds, count, is_async, machine, plan, efficiency })
    }

    /// The same machine with other costs or rates.
    pub(super) fn with(&self, site: &Site, factors: Factors) -> Option<Machine> {
        machine(site, &self.kinds, self.is_async, factors)
    }

    /// The efficiency of the plan in the published model: there every restart costs as much as the level of the checkpoint says,
    /// and no flush is hidden.
    pub(super) fn published(&self) -> f64 {
        let levels = self.machine.levels().iter().map(|level| Level { hidden: 0.0, ..*level }).collect();
        let machine = Machine::new(levels, Recovery::OfCheckpoint);
        let forecast = machine.ok().and_then(|machine| machine.forecast(&self.plan).ok());
        forecast.map_or(0.0, |forecast| forecast.efficiency)
    }

    /// Its schemes, for people.
    pub(super) fn name(&self) -> String {
        name(&self.kinds)
    }

    /// Every how many checkpoints one is flushed.
    pub(super) fn flush_every(&self) -> u64 {
        self.plan.every(self.machine.levels().len())
    }
}

pub(super) fn name(kinds: &[Kind]) -> String {
    match kinds {
        [] => "no cache".to_owned(),
        kinds => kinds.iter().map(Kind::to_string).collect::<Vec<_>>().join(" + "),
    }
}

/// All plans, the best first, and what has no room.
pub(super) fn all(site: &Site) -> (Vec<Candidate>, Vec<Excluded>) {
    let schemes = &site.schemes;
    let single = schemes.iter().find(|scheme| scheme.kind == Kind::SINGLE);
    let alone = schemes.iter().map(|scheme| vec![scheme]);
    // Checkpoints that are cheap, and fewer that survive the loss of a node.
    let others = schemes.iter().filter(|scheme| scheme.kind != Kind::SINGLE);
    let mixed = others.filter_map(|scheme| Some(vec![single?, scheme]));
    let mut candidates: Vec<Candidate> = Candidate::new(site, &[], 0, false).into_iter().collect();
    let mut excluded = Vec::new();
    for schemes in alone.chain(mixed) {
        let wants_async = site.flush.hidden > 0.0;
        match room(site, &schemes, wants_async) {
            Ok(count) => candidates.extend(Candidate::new(site, &schemes, count, wants_async && count > 1)),
            Err(why) => {
                excluded.push(Excluded { kinds: schemes.iter().map(|scheme| scheme.kind).collect(), why });
            }
        }
    }
    candidates.sort_by(|one, other| {
        // Without a difference, the simpler plan wins.
        let rounded = |candidate: &Candidate| (candidate.efficiency * 1e4).round();
        let by_efficiency = rounded(other).total_cmp(&rounded(one));
        by_efficiency.then_with(|| one.kinds.len().cmp(&other.kinds.len()))
    });
    (candidates, excluded)
}

/// How many complete checkpoints of each scheme to keep: two where a flush goes on while the next one is written, if there is
/// room. One more is being written.
fn room(site: &Site, schemes: &[&Scheme], wants_async: bool) -> Result<u64, String> {
    let wanted = if wants_async { 2 } else { 1 };
    let (Some(memory), Some(bytes)) = (site.memory, site.checkpoint) else { return Ok(wanted) };
    let stored = |count: u64| {
        let kept: f64 = schemes.iter().map(|scheme| scheme.kind.stored() * count as f64).sum();
        bytes * (kept + schemes.iter().map(|scheme| scheme.kind.stored()).fold(0.0, f64::max))
    };
    let least =
        || format!("needs {} on each node, which has {}", amount(stored(1) as u64), amount(memory as u64));
    (1..=wanted).rev().find(|&count| stored(count) <= memory).ok_or_else(least)
}

/// The levels of checkpoints with these schemes. `None`: nothing ever fails.
fn machine(site: &Site, kinds: &[Kind], is_async: bool, factors: Factors) -> Option<Machine> {
    let mut survived = vec![0.0; site.failures.len()];
    let mut levels = Vec::new();
    for kind in kinds {
        let scheme = site.schemes.iter().find(|scheme| scheme.kind == *kind)?;
        let mut rate = 0.0;
        for (failure, survived) in site.failures.iter().zip(&mut survived) {
            let share = kind.survives(failure.loses, site.nodes).max(*survived);
            rate += failure.rate * (share - *survived);
            *survived = share;
        }
        let (write, recover) = (scheme.cost * factors.cache, scheme.recover * factors.cache);
        levels.push(Level { write, recover, hidden: 0.0, rate: rate * factors.failures });
    }
    let rest: f64 =
        site.failures.iter().zip(&survived).map(|(failure, survived)| failure.rate * (1.0 - survived)).sum();
    let flush = site.flush.cost * factors.flush;
    let hidden = if is_async { flush * site.flush.hidden } else { 0.0 };
    levels.push(Level {
        write: levels.last().map_or(0.0, |level: &Level| level.write) + flush - hidden,
        recover: site.flush.recover * factors.flush,
        hidden,
        rate: rest * factors.failures,
    });
    Machine::new(levels, Recovery::OfFailure).ok()
}
