//! The models of when to write checkpoints: against the figures that their authors published, against simulation, and against
//! each other.

#![allow(clippy::unwrap_used, reason = "a test fails if it cannot continue")]

#[path = "../../../benches/advice/compare.rs"]
mod compare;

use compare::{Case, Compared};
use scr_plan::{simulate, Auto, Belief, Costs, Experience, Gaps, Level, Machine, Plan, Recovery};
use std::sync::LazyLock;

fn machine(costs: &[f64], rates: &[f64], hidden: f64, recovery: Recovery) -> Machine {
    let mut levels: Vec<_> = costs
        .iter()
        .zip(rates)
        .map(|(&cost, &rate)| Level { write: cost, recover: cost, hidden: 0.0, rate })
        .collect();
    levels.last_mut().unwrap().hidden = hidden;
    Machine::new(levels, recovery).unwrap()
}

/// To six digits.
fn same(found: f64, published: f64) -> bool {
    (found - published).abs() <= 5e-7 * published
}

#[test]
fn the_model_gives_the_published_figures_to_six_digits() {
    let table = include_str!("published.tsv");
    let mut figures = 0;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let row: Vec<f64> = line.split('\t').map(|number| number.parse().unwrap()).collect();
        let rates = [7.78e-6, 5.19e-7, 3e-8].map(|rate| rate * row[1]);
        let machine = machine(&[9.0, 50.0, 438.0 * row[0]], &rates, 0.0, Recovery::OfCheckpoint);
        let efficiency = |interval: f64| {
            let plan = Plan { interval, counts: vec![row[2] as u32, row[3] as u32] };
            machine.forecast(&plan).unwrap()
        };
        let intervals = [500.0, 1000.0, 1500.0, 2500.0, 5000.0, 10000.0, 20000.0, 40000.0];
        for (interval, published) in intervals.into_iter().zip(&row[6..]) {
            assert!(same(efficiency(interval), *published), "{line}: {interval} s {}", efficiency(interval));
            figures += 1;
        }
        let best = (1..=80)
            .map(|step| f64::from(step) * 500.0)
            .max_by(|one, other| efficiency(*one).total_cmp(&efficiency(*other)));
        assert!(best == Some(row[4]) || row[5] == 0.0, "{line}: {best:?}");
        assert!(same(efficiency(row[4]), row[5]), "{line}");
    }
    assert_eq!(figures, 216 * 8);
}

/// Costs and rates of each level, and a plan: its interval and counts.
type Planned = (&'static [f64], &'static [f64], f64, &'static [u32]);

#[test]
fn the_simulation_agrees_with_the_model_within_its_error() {
    let cases: [Planned; 5] = [
        (&[15.0, 1835.0], &[8.54e-7, 2.01e-7], 7000.0, &[10]),
        (&[9.0, 50.0, 438.0], &[3.89e-4, 2.6e-5, 1.5e-6], 300.0, &[5, 3]),
        (&[9.0, 50.0, 438.0], &[3.89e-4, 2.6e-5, 1.5e-6], 300.0, &[0, 3]),
        (&[60.0, 300.0], &[1e-3, 3e-4], 200.0, &[3]),
        (&[60.0], &[1e-3], 200.0, &[]),
    ];
    for (costs, rates, interval, counts) in cases {
        for recovery in [Recovery::OfCheckpoint, Recovery::OfFailure] {
            let machine = machine(costs, rates, 0.0, recovery);
            let plan = Plan { interval, counts: counts.to_vec() };
            let model = machine.forecast(&plan).unwrap();
            let run = simulate(&machine, &plan, Gaps::EXPONENTIAL, 2e4 / machine.rate(), 1).unwrap();
            assert!(
                (run.efficiency - model).abs() < 3.5 * run.error,
                "{costs:?} {recovery:?}: {model} {run:?}"
            );
            assert!(run.error < 0.01, "{run:?}");
        }
    }
}

#[test]
fn a_flush_that_is_hidden_costs_what_the_simulation_says() {
    let cases = [
        ([1e-5, 4e-6], 600.0, 1800.0, 10),
        ([1e-5, 4e-6], 3600.0, 1200.0, 5),
        ([1e-5, 4e-6], 7200.0, 900.0, 3),
        ([6e-4, 4e-5], 250.0, 130.0, 6),
    ];
    for (rates, flush, interval, counts) in cases {
        let machine = machine(&[15.0, 60.0], &rates, flush, Recovery::OfFailure);
        let plan = Plan { interval, counts: vec![counts] };
        let model = machine.forecast(&plan).unwrap();
        let run = simulate(&machine, &plan, Gaps::EXPONENTIAL, 4e4 / machine.rate(), 2).unwrap();
        let difference = (run.efficiency - model).abs();
        assert!(difference < 3.5 * run.error + 0.001, "{flush}: {model} {run:?}");
    }
}

#[test]
fn a_seed_gives_the_same_simulation_again() {
    let machine = machine(&[15.0, 1835.0], &[8.54e-7, 2.01e-7], 0.0, Recovery::OfFailure);
    let plan = Plan { interval: 7000.0, counts: vec![10] };
    let run = |seed| simulate(&machine, &plan, Gaps { shape: 0.7 }, 1e9, seed).unwrap();
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_simulation_ends_although_the_job_never_gets_on() {
    let machine = machine(&[1e6, 1e9], &[1.0, 1.0], 0.0, Recovery::OfFailure);
    let plan = Plan { interval: 1e6, counts: vec![5] };
    let run = simulate(&machine, &plan, Gaps::EXPONENTIAL, 1e4, 1).unwrap();
    assert!(run.efficiency == 0.0 && run.seconds < 1.2e4, "{run:?}");
    let machine = self::machine(&[0.0, 0.0], &[1e-320, 0.0], 0.0, Recovery::OfFailure);
    let simulated = |interval, counts, seconds| {
        simulate(&machine, &Plan { interval, counts: vec![counts] }, Gaps::EXPONENTIAL, seconds, 1).unwrap()
    };
    assert_eq!(simulated(0.0, 5, 1e9).efficiency, 0.0, "no interval");
    assert_eq!(simulated(1.0, 5, f64::INFINITY).efficiency, 0.0, "no end");
    let run = simulated(1e-3, 5, 1e9);
    assert!((run.efficiency - 1.0).abs() < 1e-6 && run.failures == [0, 0], "no failure: {run:?}");
    let run = simulated(1e-3, 5, 1e16);
    assert!((run.efficiency - 1.0).abs() < 1e-6, "longer than an interval can be added to: {run:?}");
}

/// A part of the grid; `cargo bench -p scr-core --bench advice` goes through all of it.
fn cases() -> impl Iterator<Item = Case> {
    let hour = 3600.0;
    let costs = [(1.0, 600.0, 0.0), (10.0, 3600.0, 0.9), (60.0, 600.0, 0.9), (10.0, 60.0, 0.0)];
    let failures = [(hour, 0.1), (6.0 * hour, 0.02), (24.0 * hour, 0.5), (168.0 * hour, 0.1)];
    let case = |((checkpoint, flush, hidden), (mean, fatal))| Case { mean, fatal, checkpoint, flush, hidden };
    costs.into_iter().flat_map(move |costs| failures.map(|failures| case((costs, failures))))
}

/// The cases with gaps of both kinds, simulated once for all tests.
static COMPARED: LazyLock<Vec<(Case, Gaps, Compared)>> = LazyLock::new(|| {
    let with_gaps = |case: Case| {
        let kinds = [Gaps::EXPONENTIAL, Gaps { shape: 0.7 }];
        kinds.map(|gaps| (case, gaps, case.compare(gaps, 1500.0)))
    };
    cases().flat_map(with_gaps).collect()
});

#[test]
fn the_plan_of_auto_is_near_the_best_fixed_plan_whatever_the_gaps() {
    for (case, gaps, compared) in &*COMPARED {
        let share = if *gaps == Gaps::EXPONENTIAL { 0.98 } else { 0.95 };
        assert!(compared.planned >= share * compared.best.0, "{gaps:?} {case:?}: {compared:?}");
    }
}

#[test]
fn the_plan_of_auto_is_better_than_the_intervals_of_young_and_daly_where_there_are_two_levels() {
    for (case, gaps, compared) in &*COMPARED {
        // If every checkpoint is to be flushed, there is one level only.
        let least = if compared.auto.flush_every > 1 { compared.single } else { 0.995 * compared.single };
        assert!(compared.planned > least, "{gaps:?} {case:?}: {compared:?}");
    }
    assert!(COMPARED.iter().filter(|(_, _, compared)| compared.auto.flush_every > 1).count() > 20);
}

#[test]
fn the_plan_of_auto_names_bounds_that_failures_narrow() {
    let case = Case { mean: 86400.0, fatal: 0.1, checkpoint: 10.0, flush: 600.0, hidden: 0.9 };
    let plan = |job: Experience| -> Auto { job.plan(&case.stated(), None).unwrap() };
    let stated = plan(case.experience());
    let (low, high) = stated.between;
    assert!(low < stated.interval && stated.interval < high && high / low > 2.5, "{stated:?}");
    let seconds = 1000.0 * case.mean;
    let seen = plan(Experience { processes: 450, lost_nodes: 450, fatal: 100, seconds, ..case.experience() });
    assert!(seen.between.1 / seen.between.0 < 1.3, "{seen:?}");
    assert!((seen.interval / stated.interval - 1.0).abs() < 0.1, "{seen:?} {stated:?}");
}

#[test]
fn costs_out_of_range_make_no_machine_but_a_reason() {
    let case = Case { mean: 86400.0, fatal: 0.1, checkpoint: 10.0, flush: 600.0, hidden: 0.5 };
    let with = |change: fn(&mut Costs)| {
        let mut costs = case.costs();
        change(&mut costs);
        costs.machine(Belief::rate).unwrap_err().to_string()
    };
    assert_eq!(
        with(|costs| costs.hidden = 1.5),
        "the hidden share of a flush is 1.5; it must be between 0 and 1"
    );
    assert!(with(|costs| costs.hidden = f64::NAN).contains("NaN"));
    let negative = with(|costs| costs.cache[0].checkpoint = -1.0);
    assert_eq!(negative, "the cost of writing of level 1 is -1; it must be 0 or more, and finite");
    assert!(with(|costs| costs.fetch = f64::INFINITY).contains("the cost of recovery of level 2 is inf"));
    let many = with(|costs| costs.cache = vec![costs.cache[0]; 9]);
    assert_eq!(many, "a machine has 1 to 8 levels, and not 10");
}

#[test]
fn a_plan_that_does_not_fit_is_refused() {
    let machine = machine(&[15.0, 1835.0], &[8.54e-7, 2.01e-7], 0.0, Recovery::OfFailure);
    let error = |interval, counts: &[u32]| {
        machine.forecast(&Plan { interval, counts: counts.to_vec() }).unwrap_err().to_string()
    };
    assert_eq!(error(-1.0, &[1]), "the interval is -1; it must be 0 or more seconds, and finite");
    assert!(error(f64::NAN, &[1]).contains("NaN"));
    let counts = error(1.0, &[]);
    assert_eq!(counts, "a machine of 2 levels takes 1 counts and not 0, without the highest level");
    let level = Level { write: 1.0, recover: 1.0, hidden: 0.0, rate: 0.0 };
    let never = Machine::new(vec![level], Recovery::OfFailure).unwrap_err().to_string();
    assert_eq!(never, "the rates of all levels are 0; a machine that never fails needs no checkpoints");
}
