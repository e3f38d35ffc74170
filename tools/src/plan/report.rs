//! The plans that a site can choose from, and the report on the best one: the other plans, how it depends on the interval and on
//! what was assumed, the settings that make a job follow it, and the results of a simulation.

use super::number;
use super::site::{Failure, Kind, Scheme, Site};
use crate::prelude::*;
use scr_core::cache::room::expected;
use scr_plan::{best_plan, simulate, CacheCosts, Costs, Gaps, Level, Machine, Outcome, Plan, Recovery};

/// Everything that `scr plan` says of a machine.
pub(super) struct Report {
    pub(super) site: Site,
    /// All plans; the first is the best.
    pub(super) candidates: Vec<Candidate>,
    pub(super) excluded: Vec<Excluded>,
    /// Efficiency by interval, for the schemes and flushes of the best plan.
    pub(super) curve: Vec<(f64, f64)>,
    pub(super) sensitivity: Vec<Change>,
    /// Lines of a configuration file.
    pub(super) settings: Vec<String>,
    pub(super) simulated: Vec<Simulated>,
}

/// Something that is otherwise than assumed, the efficiency of the plan then, and that of the best plan for it.
pub(super) type Change = (&'static str, f64, f64);

/// The gaps of a simulation of the best plan, and its outcome.
pub(super) type Simulated = (String, Outcome);

/// The parameters of a simulation.
#[derive(Args)]
pub(super) struct Simulation {
    /// Let a job run with this plan, with exponential and with Weibull gaps between failures
    #[arg(long)]
    simulate: bool,
    /// The shape of the Weibull distribution; below 1 failures come in bursts
    #[arg(long, value_name = "SHAPE", requires = "simulate", default_value_t = 0.7,
          value_parser = number("", 0.1, 10.0))]
    shape: f64,
    /// How long that job runs [default: until about 200,000 failures]
    #[arg(long, value_name = "YEARS", requires = "simulate", value_parser = number(" of years", 1e-3, 1e9))]
    years: Option<f64>,
    /// The seed of its random numbers
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 1)]
    seed: u64,
}

pub(super) const YEAR: f64 = 365.25 * 86400.0;

/// A simulation sees about so many failures where nobody says how long it is to be.
const FAILURES: f64 = 200_000.0;

/// No simulation is longer where nobody says how long it is to be.
const MOST_YEARS: f64 = 1e9;

/// More failures and checkpoints would take minutes.
const MOST_EVENTS: f64 = 2e9;

impl Simulation {
    /// Lets a job run with failures of both kinds.
    /// No results where none are asked for.
    pub(super) fn run(&self, machine: &Machine, plan: &Plan) -> Result<Vec<Simulated>> {
        if !self.simulate {
            return Ok(Vec::new());
        }
        let seconds =
            self.years.map_or((FAILURES / machine.rate()).min(MOST_YEARS * YEAR), |years| years * YEAR);
        let failures = seconds * machine.rate();
        // Between two failures whole patterns are passed at once, and what is left of one checkpoint by checkpoint.
        let between = (1.0 / machine.rate() / plan.interval).min(plan.every(machine.levels().len()) as f64);
        let events = failures * between.max(1.0);
        ensure!(
            events <= MOST_EVENTS,
            "{events:.1e} failures and checkpoints are too many to simulate; give at most --years {:.1e}",
            seconds / YEAR * MOST_EVENTS / events
        );
        let kinds = [
            ("exponential".to_owned(), Gaps::EXPONENTIAL),
            (format!("Weibull, shape {}", self.shape), Gaps { shape: self.shape }),
        ];
        let run = |kind| simulate(machine, plan, kind, seconds, self.seed);
        kinds.into_iter().map(|(gaps, kind)| Ok((gaps, run(kind)?))).collect()
    }
}

impl Report {
    pub(super) fn new(site: Site, simulation: &Simulation) -> Result<Self> {
        let (candidates, excluded) = candidates_of(&site);
        let why = "nothing of this machine ever fails, so that it needs no checkpoints";
        let best = candidates.first().context(why)?;
        let simulated = simulation.run(&best.machine, &best.plan)?;
        Ok(Self {
            curve: curve(best),
            sensitivity: sensitivity(&site, best),
            settings: settings(&site, best),
            simulated,
            site,
            candidates,
            excluded,
        })
    }

    pub(super) fn best(&self) -> &Candidate {
        &self.candidates[0]
    }

    /// The plan without a cache.
    pub(super) fn uncached(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.kinds.is_empty())
    }

    pub(super) fn json(&self) -> Value {
        let site = &self.site;
        let loss = |failure: &Failure| json!({ "loses": failure.loses.in_words(), "rate": failure.rate });
        let change =
            |(what, kept, best): &Change| json!({ "change": what, "efficiency": kept, "best": best });
        let excluded = |(kinds, why): &Excluded| json!({ "schemes": names(kinds), "why": why });
        json!({
            "machine": site.name,
            "source": site.source,
            "nodes": site.nodes,
            "failures": site.failures.iter().map(loss).collect::<Vec<_>>(),
            "best": candidate(self.best()),
            "plans": self.candidates.iter().map(candidate).collect::<Vec<_>>(),
            "excluded": self.excluded.iter().map(excluded).collect::<Vec<_>>(),
            "curve": self.curve,
            "sensitivity": self.sensitivity.iter().map(change).collect::<Vec<_>>(),
            "settings": self.settings,
            "simulated": self.simulated.iter().map(simulation).collect::<Vec<_>>(),
        })
    }
}

pub(super) fn simulation((gaps, outcome): &Simulated) -> Value {
    json!({
        "gaps": gaps,
        "efficiency": outcome.efficiency,
        "error": outcome.error,
        "failures": outcome.failures,
        "years": outcome.seconds / YEAR,
    })
}

fn names(kinds: &[Kind]) -> Vec<String> {
    kinds.iter().map(Kind::to_string).collect()
}

fn candidate(candidate: &Candidate) -> Value {
    let levels = candidate.machine.levels().iter().map(|level| {
        json!({ "write": level.write, "recover": level.recover, "hidden": level.hidden, "rate": level.rate })
    });
    json!({
        "schemes": names(&candidate.kinds),
        "count": candidate.count,
        "asynchronous": candidate.is_async,
        "interval": candidate.plan.interval,
        "counts": candidate.plan.counts,
        "flush_every": candidate.flush_every(),
        "efficiency": candidate.efficiency,
        "published_model": candidate.published(),
        "levels": levels.collect::<Vec<_>>(),
    })
}

/// A quarter of the interval to four times as much, in even steps of its logarithm.
fn curve(best: &Candidate) -> Vec<(f64, f64)> {
    let at = |step: i32| {
        let interval = best.plan.interval * 2.0_f64.powf(f64::from(step) / 8.0);
        let plan = Plan { interval, counts: best.plan.counts.clone() };
        (interval, best.machine.forecast(&plan).unwrap_or(0.0))
    };
    (-24..=24).map(at).collect()
}

fn sensitivity(site: &Site, best: &Candidate) -> Vec<Change> {
    let efficiency = |machine: &Machine, plan: &Plan| machine.forecast(plan).unwrap_or(0.0);
    let otherwise = [
        ("failures are twice as frequent", Factors { failures: 2.0, ..AS_STATED }),
        ("failures are half as frequent", Factors { failures: 0.5, ..AS_STATED }),
        ("checkpoints in cache cost twice as much", Factors { cache: 2.0, ..AS_STATED }),
        ("a flush costs twice as much", Factors { flush: 2.0, ..AS_STATED }),
    ];
    let of_machine = otherwise.into_iter().filter_map(|(what, factors)| {
        let machine = machine(site, &best.kinds, best.is_async, factors)?;
        let (kept, best) = (efficiency(&machine, &best.plan), best_plan(&machine, MOST_BETWEEN).1);
        Some((what, kept, best))
    });
    let scaled = |factor: f64| Plan { interval: best.plan.interval * factor, ..best.plan.clone() };
    let with_flushes = |every: f64| {
        let mut plan = best.plan.clone();
        if let Some(count) = plan.counts.last_mut() {
            *count = ((f64::from(*count) + 1.0) * every).round().max(1.0) as u32 - 1;
        }
        plan
    };
    let mut plans =
        vec![("the interval is twice as long", scaled(2.0)), ("the interval is half as long", scaled(0.5))];
    if !best.kinds.is_empty() {
        plans.push(("flushes are half as frequent", with_flushes(2.0)));
        plans.push(("flushes are twice as frequent", with_flushes(0.5)));
    }
    let kept = |plan: &Plan| efficiency(&best.machine, plan);
    let of_plan = plans.into_iter().map(|(what, plan)| (what, kept(&plan), best.efficiency));
    of_machine.chain(of_plan).collect()
}

/// The settings that make a job follow the plan.
fn settings(site: &Site, best: &Candidate) -> Vec<String> {
    let interval = (best.plan.interval.round() as u64).max(1);
    let mut lines = match &best.kinds[..] {
        [] => vec!["SCR_CACHE_BYPASS=1".to_owned()],
        [kind] => {
            let mut lines = vec!["SCR_CACHE_BYPASS=0".to_owned(), format!("SCR_COPY_TYPE={}", kind.name)];
            lines.extend(kind.options().map(|(key, value)| format!("SCR_{key}={value}")));
            lines.push(format!("SCR_CACHE_SIZE={}", best.count));
            lines
        }
        kinds => several(best, kinds),
    };
    let spreads = |kind: &Kind| site.failures.iter().any(|failure| kind.is_spread(failure.loses, site.nodes));
    if best.kinds.iter().any(spreads) {
        lines.extend(FAIL_TOGETHER.map(str::to_owned));
    }
    if !best.kinds.is_empty() {
        lines.push(format!("SCR_FLUSH={}", best.flush_every()));
    }
    if best.is_async {
        lines.extend(["SCR_FLUSH_ASYNC=1", "SCR_FLUSH_TYPE=PTHREAD"].map(str::to_owned));
    }
    lines.push(format!("SCR_CHECKPOINT_SECONDS={interval}"));
    lines
}

const FAIL_TOGETHER: [&str; 3] = [
    "# For each group of nodes that fail together, a line such as this one:",
    "GROUPS=node[1-4] RACK=1",
    "SCR_GROUP=RACK",
];

/// A store for each user and scheme: one for all schemes would delete what survives most with the next one that survives less.
fn several(best: &Candidate, kinds: &[Kind]) -> Vec<String> {
    let mut lines = vec!["SCR_CACHE_BYPASS=0".to_owned(), "SCR_COPY_TYPE=FILE".to_owned()];
    let store = |kind: Kind| format!("/dev/shm/{}.$USER", kind.name.to_ascii_lowercase());
    lines.extend(kinds.iter().map(|&kind| format!("STORE={} GROUP=NODE COUNT={}", store(kind), best.count)));
    for (at, kind) in kinds.iter().enumerate() {
        let options: String = kind.options().map(|(key, value)| format!(" {key}={value}")).collect();
        let every = best.plan.every(at + 1);
        lines.push(format!("CKPT={at} INTERVAL={every} STORE={} TYPE={}{options}", store(*kind), kind.name));
    }
    lines
}

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
type Excluded = (Vec<Kind>, String);

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

    /// The efficiency of the plan in the published model: there every restart costs as much as the level of the checkpoint says,
    /// and no flush is hidden.
    pub(super) fn published(&self) -> f64 {
        let levels = self.machine.levels().iter().map(|level| Level { hidden: 0.0, ..*level }).collect();
        let machine = Machine::new(levels, Recovery::OfCheckpoint);
        machine.ok().and_then(|machine| machine.forecast(&self.plan).ok()).unwrap_or(0.0)
    }

    /// Every how many checkpoints one is flushed.
    pub(super) fn flush_every(&self) -> u64 {
        self.plan.every(self.machine.levels().len())
    }
}

/// The schemes of a plan, for people.
pub(super) fn named(kinds: &[Kind]) -> String {
    match kinds {
        [] => "no cache".to_owned(),
        kinds => joined(kinds, " + "),
    }
}

/// All plans, the best first, and what has no room.
pub(super) fn candidates_of(site: &Site) -> (Vec<Candidate>, Vec<Excluded>) {
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
            Err(why) => excluded.push((schemes.iter().map(|scheme| scheme.kind).collect(), why)),
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
/// room. One more is being written, for which a run makes room before if there is too little.
fn room(site: &Site, schemes: &[&Scheme], wants_async: bool) -> Result<u64, String> {
    let wanted = if wants_async { 2 } else { 1 };
    let (Some(memory), Some(bytes)) = (site.memory, site.checkpoint) else { return Ok(wanted) };
    let stored: Vec<_> = schemes.iter().map(|scheme| (bytes * scheme.kind.stored()) as u64).collect();
    let (kept, next) = (stored.iter().sum::<u64>(), stored.into_iter().max().map_or(0, expected));
    let needed = |count: u64| kept.saturating_mul(count).saturating_add(next);
    let least = || format!("needs {} on each node, which has {}", amount(needed(1)), amount(memory as u64));
    (1..=wanted).rev().find(|&count| needed(count) <= memory as u64).ok_or_else(least)
}

/// The levels of checkpoints with these schemes. `None`: nothing ever fails.
fn machine(site: &Site, kinds: &[Kind], is_async: bool, factors: Factors) -> Option<Machine> {
    let mut survived = vec![0.0; site.failures.len()];
    let mut cache = Vec::new();
    for kind in kinds {
        let scheme = site.schemes.iter().find(|scheme| scheme.kind == *kind)?;
        let mut survives = 0.0;
        for (failure, survived) in site.failures.iter().zip(&mut survived) {
            let share = kind.survives(failure.loses, site.nodes).max(*survived);
            survives += failure.rate * (share - *survived);
            *survived = share;
        }
        let (checkpoint, restart) = (scheme.cost * factors.cache, scheme.recover * factors.cache);
        cache.push(CacheCosts { checkpoint, restart, survives });
    }
    let fatal = site.failures.iter().zip(&survived).map(|(one, survived)| one.rate * (1.0 - survived)).sum();
    let (flush, fetch) = (site.flush.cost * factors.flush, site.flush.recover * factors.flush);
    let hidden = if is_async { site.flush.hidden } else { 0.0 };
    Costs { cache, flush, hidden, fetch, fatal }.machine(|rate: f64| rate * factors.failures).ok()
}
