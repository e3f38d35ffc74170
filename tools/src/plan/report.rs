//! The report on the best plan: the other plans, how it depends on the interval and on what was assumed, the settings that make
//! a job follow it, and the results of a simulation.

use super::candidates::{self, Candidate, Excluded, Factors, AS_STATED, MOST_BETWEEN};
use super::site::{Kind, Site};
use anyhow::{ensure, Context, Result};
use scr_plan::{best_plan, simulate, Gaps, Machine, Outcome, Plan};
use serde_json::{json, Value};

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

/// Something that is otherwise than assumed.
pub(super) struct Change {
    pub(super) what: &'static str,
    /// The efficiency of the plan then, and that of the best plan for it.
    pub(super) kept: f64,
    pub(super) best: f64,
}

/// A simulation of the best plan.
pub(super) struct Simulated {
    pub(super) gaps: String,
    pub(super) outcome: Outcome,
}

/// The parameters of a simulation.
pub(super) struct Simulation {
    pub(super) shape: f64,
    pub(super) years: Option<f64>,
    pub(super) seed: u64,
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
    pub(super) fn run(&self, machine: &Machine, plan: &Plan) -> Result<Vec<Simulated>> {
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
            ("exponential".to_owned(), Gaps::Exponential),
            (format!("Weibull, shape {}", self.shape), Gaps::Weibull { shape: self.shape }),
        ];
        let run = |(gaps, kind)| {
            Ok(Simulated { gaps, outcome: simulate(machine, plan, kind, seconds, self.seed)? })
        };
        kinds.into_iter().map(run).collect()
    }
}

impl Report {
    pub(super) fn new(site: Site, simulation: Option<&Simulation>) -> Result<Self> {
        let (candidates, excluded) = candidates::all(&site);
        let best = candidates
            .first()
            .context("nothing of this machine ever fails, so that it needs no checkpoints")?;
        let simulated = simulation.map(|simulation| simulation.run(&best.machine, &best.plan)).transpose()?;
        Ok(Self {
            curve: curve(best),
            sensitivity: sensitivity(&site, best),
            settings: settings(best),
            simulated: simulated.unwrap_or_default(),
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
        let losses = site
            .failures
            .iter()
            .map(|failure| json!({ "loses": failure.loses.in_words(), "rate": failure.rate }));
        let changes = self
            .sensitivity
            .iter()
            .map(|change| json!({ "change": change.what, "efficiency": change.kept, "best": change.best }));
        let excluded = self
            .excluded
            .iter()
            .map(|excluded| json!({ "schemes": names(&excluded.kinds), "why": excluded.why }));
        let curve = self.curve.iter().map(|(interval, efficiency)| json!([interval, efficiency]));
        json!({
            "machine": site.name,
            "source": site.source,
            "nodes": site.nodes,
            "failures": losses.collect::<Vec<_>>(),
            "best": candidate(self.best()),
            "plans": self.candidates.iter().map(candidate).collect::<Vec<_>>(),
            "excluded": excluded.collect::<Vec<_>>(),
            "curve": curve.collect::<Vec<_>>(),
            "sensitivity": changes.collect::<Vec<_>>(),
            "settings": self.settings,
            "simulated": self.simulated.iter().map(Simulated::json).collect::<Vec<_>>(),
        })
    }
}

impl Simulated {
    pub(super) fn json(&self) -> Value {
        json!({
            "gaps": self.gaps,
            "efficiency": self.outcome.efficiency,
            "error": self.outcome.error,
            "failures": self.outcome.failures,
            "years": self.outcome.seconds / YEAR,
        })
    }
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
        (interval, best.machine.forecast(&plan).map_or(0.0, |forecast| forecast.efficiency))
    };
    (-24..=24).map(at).collect()
}

fn sensitivity(site: &Site, best: &Candidate) -> Vec<Change> {
    let efficiency =
        |machine: &Machine, plan: &Plan| machine.forecast(plan).map_or(0.0, |found| found.efficiency);
    let otherwise = [
        ("failures are twice as frequent", Factors { failures: 2.0, ..AS_STATED }),
        ("failures are half as frequent", Factors { failures: 0.5, ..AS_STATED }),
        ("checkpoints in cache cost twice as much", Factors { cache: 2.0, ..AS_STATED }),
        ("a flush costs twice as much", Factors { flush: 2.0, ..AS_STATED }),
    ];
    let of_machine = otherwise.into_iter().filter_map(|(what, factors)| {
        let machine = best.with(site, factors)?;
        Some(Change {
            what,
            kept: efficiency(&machine, &best.plan),
            best: best_plan(&machine, MOST_BETWEEN).1,
        })
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
    let of_plan = plans.into_iter().map(|(what, plan)| Change {
        what,
        kept: efficiency(&best.machine, &plan),
        best: best.efficiency,
    });
    of_machine.chain(of_plan).collect()
}

/// The settings that make a job follow the plan.
fn settings(best: &Candidate) -> Vec<String> {
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
    if !best.kinds.is_empty() {
        lines.push(format!("SCR_FLUSH={}", best.flush_every()));
    }
    if best.is_async {
        lines.extend(["SCR_FLUSH_ASYNC=1", "SCR_FLUSH_TYPE=PTHREAD"].map(str::to_owned));
    }
    lines.push(format!("SCR_CHECKPOINT_SECONDS={interval}"));
    lines
}

/// A store for each scheme: one store for all would delete what survives most with the next checkpoint that survives less.
fn several(best: &Candidate, kinds: &[Kind]) -> Vec<String> {
    let mut lines = vec!["SCR_CACHE_BYPASS=0".to_owned(), "SCR_COPY_TYPE=FILE".to_owned()];
    let store = |kind: Kind| format!("/dev/shm/{}", kind.name.to_ascii_lowercase());
    lines.extend(kinds.iter().map(|&kind| format!("STORE={} GROUP=NODE COUNT={}", store(kind), best.count)));
    for (at, kind) in kinds.iter().enumerate() {
        let options: String = kind.options().map(|(key, value)| format!(" {key}={value}")).collect();
        let every = best.plan.every(at + 1);
        lines.push(format!("CKPT={at} INTERVAL={every} STORE={} TYPE={}{options}", store(*kind), kind.name));
    }
    lines
}
