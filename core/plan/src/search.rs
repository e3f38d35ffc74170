//! The best plan for a machine.
//!
//! The efficiency has one maximum over the interval and over each count, and is flat around it. The search goes through the
//! counts one after the other, in steps that grow with the count, and finds the best interval for each.

use super::model::{Machine, Plan};

/// The best interval with these counts, and the efficiency that it leads to.
pub fn best_interval(machine: &Machine, counts: &[u32]) -> (f64, f64) {
    // Young's interval for the mean cost is near it. If a job can hardly get on at all, it lies below.
    let cost = machine.levels().iter().enumerate().rfold(0.0, |above, (at, level)| {
        let share = counts.get(at).map_or(1.0, |&count| f64::from(count) / (f64::from(count) + 1.0));
        share * level.write + (1.0 - share) * above
    });
    let young = (2.0 * f64::max(cost, LEAST_COST) / machine.rate()).sqrt();
    near(machine, counts, young, REACH)
}

/// The best interval that is at most `2^reach` times as long or as short as this one.
fn near(machine: &Machine, counts: &[u32], guess: f64, reach: i32) -> (f64, f64) {
    let efficiency =
        |interval: f64| machine.forecast(&Plan { interval, counts: counts.to_vec() }).unwrap_or(0.0);
    let grid = |step: i32| guess * 2.0_f64.powi(step);
    let found = (-reach..=reach).map(|step| (step, efficiency(grid(step))));
    match found.max_by(|one, other| one.1.total_cmp(&other.1)) {
        Some((best, most)) if most > 0.0 => golden(grid(best - 1), grid(best + 1), efficiency),
        // The job does not get on at all: no interval is better than another one.
        _ => (guess, 0.0),
    }
}

/// A checkpoint that costs nothing would be written all the time.
const LEAST_COST: f64 = 1e-3;

/// How many times the interval is doubled and halved to find the region of the maximum.
const REACH: i32 = 8;

/// The same where a plan is known whose counts differ little.
const NEAR: i32 = 2;

/// The maximum between two values, on a logarithmic scale, by the golden section.
fn golden(low: f64, high: f64, value: impl Fn(f64) -> f64) -> (f64, f64) {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    let at = |log: f64| value(log.exp());
    let (mut low, mut high) = (low.ln(), high.ln());
    let (mut left, mut right) = (high - RATIO * (high - low), low + RATIO * (high - low));
    let (mut of_left, mut of_right) = (at(left), at(right));
    // To a thousandth of the interval: the efficiency differs by a millionth at most.
    while high - low > 1e-3 {
        if of_left >= of_right {
            (high, right, of_right) = (right, left, of_left);
            left = high - RATIO * (high - low);
            of_left = at(left);
        } else {
            (low, left, of_left) = (left, right, of_right);
            right = low + RATIO * (high - low);
            of_right = at(right);
        }
    }
    let middle = f64::midpoint(low, high).exp();
    (middle, value(middle))
}

/// The best plan for a machine, and its efficiency. No count is larger than `most`.
pub fn best_plan(machine: &Machine, most: u32) -> (Plan, f64) {
    let free = machine.levels().len() - 1;
    let starts = [0, 24].map(|start| vec![start.min(most); free]);
    let found = starts.into_iter().map(|counts| climb(machine, counts, most));
    let best = found.max_by(|one, other| one.1.total_cmp(&other.1));
    best.unwrap_or((Plan { interval: 0.0, counts: vec![0; free] }, 0.0))
}

/// From these counts to the nearest that none of the steps improves.
fn climb(machine: &Machine, mut counts: Vec<u32>, most: u32) -> (Plan, f64) {
    let (mut interval, mut efficiency) = best_interval(machine, &counts);
    loop {
        let before = efficiency;
        for at in 0..counts.len() {
            let mut step = (counts[at] / 2).max(1);
            while step > 0 {
                let tried = [counts[at].saturating_sub(step), counts[at].saturating_add(step).min(most)];
                let better = tried.into_iter().find_map(|count| {
                    let mut other = counts.clone();
                    other[at] = count;
                    let (interval, found) = near(machine, &other, interval, NEAR);
                    (found > efficiency + WORTH).then_some((other, interval, found))
                });
                match better {
                    Some((other, found, value)) => {
                        (counts, interval, efficiency) = (other, found, value);
                        step = step.max(counts[at] / 2);
                    }
                    None => step /= 2,
                }
            }
        }
        if efficiency <= before + WORTH {
            return (Plan { interval, counts }, efficiency);
        }
    }
}

/// A smaller gain of efficiency is none.
const WORTH: f64 = 1e-7;

#[cfg(test)]
mod tests {
    use super::super::model::{Level, Recovery};
    use super::*;

    fn level(cost: f64, rate: f64) -> Level {
        Level { write: cost, recover: cost, hidden: 0.0, rate }
    }

    #[test]
    fn with_one_level_the_best_interval_is_dalys() {
        for (cost, rate) in [(60.0, 1e-5), (300.0, 1e-6), (10.0, 1e-4)] {
            let machine = Machine::new(vec![level(cost, rate)], Recovery::OfCheckpoint).unwrap();
            let (interval, efficiency) = best_interval(&machine, &[]);
            let daly = super::super::daly(cost, 1.0 / rate);
            assert!((interval / daly - 1.0).abs() < 0.01, "{interval} {daly}");
            assert!(efficiency > 0.9);
        }
    }

    #[test]
    fn no_plan_of_a_fine_grid_is_better_than_the_one_found() {
        let machines = [
            vec![level(15.0, 8.54e-7), level(1835.0, 2.01e-7)],
            vec![level(9.0, 7.78e-6), level(50.0, 5.19e-7), level(438.0, 3e-8)],
            vec![level(1.0, 1e-3), level(600.0, 1e-6)],
        ];
        for levels in machines {
            for recovery in [Recovery::OfCheckpoint, Recovery::OfFailure] {
                let machine = Machine::new(levels.clone(), recovery).unwrap();
                let (plan, efficiency) = best_plan(&machine, 10_000);
                let steps = [0, 1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 135, 200];
                let grid: Vec<Vec<u32>> = match levels.len() {
                    2 => steps.iter().map(|&one| vec![one]).collect(),
                    _ => steps.iter().flat_map(|&one| steps.map(|other| vec![one, other])).collect(),
                };
                for counts in grid {
                    let (_, found) = best_interval(&machine, &counts);
                    assert!(found <= efficiency + 1e-5, "{counts:?} has {found}, {plan:?} {efficiency}");
                }
            }
        }
    }

    #[test]
    fn a_machine_that_is_lost_at_once_gets_a_plan_all_the_same() {
        let machine = Machine::new(vec![level(1e6, 1.0), level(1e9, 1.0)], Recovery::OfFailure).unwrap();
        let (plan, efficiency) = best_plan(&machine, 100);
        assert!(plan.interval > 0.0 && plan.interval.is_finite() && efficiency == 0.0, "{plan:?}");
        let restarts = Level { recover: 1e3, ..level(2.0, 1.0) };
        let machine = Machine::new(vec![restarts], Recovery::OfFailure).unwrap();
        assert_eq!(best_interval(&machine, &[]), (2.0, 0.0), "that of Young, and none that is longer");
        let free = Machine::new(vec![level(0.0, 1e-9)], Recovery::OfFailure).unwrap();
        let (plan, efficiency) = best_plan(&free, 100);
        assert!(plan.interval > 0.0 && efficiency > 0.999, "{plan:?}");
    }
}
