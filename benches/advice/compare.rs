//! The value of the plan of `SCR_CHECKPOINT_INTERVAL=AUTO`: a simulation compares it with all plans of a grid around it and with
//! the intervals of Young and Daly.

use scr_plan::{
    daly, simulate, young, Auto, Belief, CacheCosts, Costs, Experience, Gaps, Kind, Machine, Plan, Stated,
};

/// Costs of a job with one kind of checkpoint in cache, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Between two failures of any kind.
    pub(crate) mean: f64,
    /// The share of failures that need the prefix directory.
    pub(crate) fatal: f64,
    /// A checkpoint in cache.
    pub(crate) checkpoint: f64,
    /// A flush, and the share of it during which the job computes.
    pub(crate) flush: f64,
    pub(crate) hidden: f64,
}

/// No job computes for longer without a checkpoint.
const HOUR: f64 = 3600.0;

/// Efficiencies by simulation.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) auto: Auto,
    pub(crate) planned: f64,
    /// The best plan of the grid.
    pub(crate) best: (f64, Plan),
    /// With every checkpoint in the prefix directory, at the intervals of Young and of Daly, and an hour at most, as for the
    /// plan; the better one.
    pub(crate) single: f64,
}

impl Case {
    /// The measurements of the job, which has not failed yet.
    pub(crate) fn experience(&self) -> Experience {
        Experience {
            kinds: vec![Kind { checkpoint: self.checkpoint, protects: true, every: 1 }],
            flush: self.flush,
            hidden: self.hidden,
            restart: 2.0 * self.checkpoint,
            fetch: self.flush,
            ..Experience::default()
        }
    }

    /// The mean times that a site states if it knows its machine.
    pub(crate) fn stated(&self) -> Stated {
        // Processes are believed to fail as often as nodes.
        Stated { node: 2.0 * self.mean / (1.0 - self.fatal), system: self.mean / self.fatal, nodes: 1 }
    }

    /// The machine as it is.
    pub(crate) fn costs(&self) -> Costs {
        let belief = |share: f64| Belief::stated(self.mean / share).expect("a positive time");
        let Experience { flush, hidden, restart, fetch, .. } = self.experience();
        let survives = belief(1.0 - self.fatal);
        let cached = CacheCosts { checkpoint: self.checkpoint, restart, survives };
        Costs { cache: vec![cached], flush, hidden, fetch, fatal: belief(self.fatal) }
    }

    /// Simulates about so many failures for each plan, the same ones for all.
    pub(crate) fn compare(&self, gaps: Gaps, failures: f64) -> Compared {
        let machine = self.costs().machine(Belief::rate).expect("costs in their range");
        let auto = self.experience().plan(&self.stated(), None).expect("costs in their range");
        let counts = vec![u32::try_from(auto.flush_every - 1).expect("one of its counts")];
        let plan = Plan { interval: auto.interval, counts };
        let efficiency = |plan: &Plan| run(&machine, plan, gaps, failures);
        let plans = around(&plan);
        let best = plans.map(|plan| (efficiency(&plan), plan)).max_by(|one, other| one.0.total_cmp(&other.0));
        let cost = self.checkpoint + self.flush * (1.0 - self.hidden);
        let single = [young, daly].map(|model| {
            let plan = Plan { interval: model(cost, self.mean).min(HOUR), counts: vec![0] };
            efficiency(&plan)
        });
        Compared {
            planned: efficiency(&plan),
            auto,
            best: best.expect("a grid of plans"),
            single: single[0].max(single[1]),
        }
    }
}

fn run(machine: &Machine, plan: &Plan, gaps: Gaps, failures: f64) -> f64 {
    let seconds = failures / machine.rate();
    simulate(machine, plan, gaps, seconds, 5).expect("a plan for this machine").efficiency
}

/// Intervals from an eighth to eight times this one, and flushes from an eighth to eight times as often.
fn around(plan: &Plan) -> impl Iterator<Item = Plan> + '_ {
    let every = f64::from(plan.counts[0]) + 1.0;
    let counts = (-3..=3).map(move |step| (every * 2.0_f64.powi(step)).round().max(1.0) as u32 - 1);
    counts.flat_map(|count| {
        let interval = |step: i32| plan.interval * 2.0_f64.powf(f64::from(step) / 2.0);
        (-6..=6).map(move |step| Plan { interval: interval(step), counts: vec![count] })
    })
}
