//! Stretches of time that end well or with a failure, and how they are put together.
//!
//! An [`Exit`] is a probability with the time that goes with it: `time` is the expected time to get there, weighted with the
//! probability. Two exits in a row multiply like numbers `probability + time * e` with `e * e = 0`. So sequences, repetitions
//! and loops are plain arithmetic, and no exit divides by a probability that may be 0. Only positive values are added: no
//! digits are lost where failures are rare.

use super::model::MOST_LEVELS;
use std::ops::{Add, AddAssign, Mul};

/// A way out of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Exit {
    pub(super) probability: f64,
    /// The expected time until then, times the probability.
    pub(super) time: f64,
}

impl Exit {
    /// At once, for certain.
    pub(super) const CERTAIN: Self = Self { probability: 1.0, time: 0.0 };

    /// The mean time of those that leave here.
    pub(super) fn mean_time(self) -> f64 {
        self.time / self.probability
    }

    /// A loop that returns to its start through this exit, as a factor of the exits that follow it. `leaves` is the probability of
    /// leaving, which is 1 minus that of this exit, as a sum of its parts.
    pub(super) fn again_until(self, leaves: f64) -> Self {
        Self { probability: 1.0 / leaves, time: self.time / (leaves * leaves) }
    }
}

impl Add for Exit {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { probability: self.probability + other.probability, time: self.time + other.time }
    }
}

impl AddAssign for Exit {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul for Exit {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self {
            probability: self.probability * other.probability,
            time: self.probability * other.time + self.time * other.probability,
        }
    }
}

/// A stretch of time: it is done, or a failure ends it. `failed[0]` are failures of the lowest level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stage {
    pub(super) done: Exit,
    pub(super) failed: [Exit; MOST_LEVELS],
}

impl Stage {
    /// Nothing at all.
    const EMPTY: Self =
        Self { done: Exit::CERTAIN, failed: [Exit { probability: 0.0, time: 0.0 }; MOST_LEVELS] };

    /// A span of seconds with failures of these rates, one for each level.
    pub(super) fn lasting(seconds: f64, rates: &[f64]) -> Self {
        let rate: f64 = rates.iter().sum();
        let expected = rate * seconds;
        let survives = (-expected).exp();
        let mut stage = Self::EMPTY;
        stage.done = Exit { probability: survives, time: seconds * survives };
        if rate > 0.0 {
            let fails = Exit { probability: -(-expected).exp_m1(), time: early_part(expected) / rate };
            for (exit, level) in stage.failed.iter_mut().zip(rates) {
                let share = level / rate;
                *exit = Exit { probability: fails.probability * share, time: fails.time * share };
            }
        }
        stage
    }

    /// This one, and then another if it is done.
    pub(super) fn then(mut self, next: &Self) -> Self {
        for (exit, next) in self.failed.iter_mut().zip(next.failed) {
            *exit += self.done * next;
        }
        self.done = self.done * next.done;
        self
    }

    /// This one so many times in a row.
    pub(super) fn times(self, count: u64) -> Self {
        power(self, count, Self::EMPTY, |one, other| one.then(other))
    }
}

/// The product of so many equal factors, by repeated squaring; `one` is that of none.
pub(super) fn power<T>(mut base: T, mut exponent: u64, one: T, product: impl Fn(&T, &T) -> T) -> T {
    let mut all = one;
    while exponent > 0 {
        if exponent & 1 == 1 {
            all = product(&all, &base);
        }
        exponent >>= 1;
        base = product(&base, &base);
    }
    all
}

/// `1 - (1 + x) exp(-x)`: the expected time of a failure before `x`, for failures at the rate 1, weighted with its probability.
fn early_part(x: f64) -> f64 {
    // Below this the difference has fewer right digits than the first terms of its series.
    if x < 1e-3 {
        return x * x * (0.5 - x * (1.0 / 3.0 - x * (0.125 - x / 30.0)));
    }
    -(-x).exp_m1() - x * (-x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-12 * other.abs().max(1e-300)
    }

    fn same(one: &Stage, other: &Stage) -> bool {
        let exits = |stage: &Stage| std::iter::once(stage.done).chain(stage.failed).collect::<Vec<_>>();
        exits(one).iter().zip(exits(other)).all(|(one, other)| {
            close(one.probability, other.probability)
                && (one.time - other.time).abs() <= 1e-11 * other.time.abs()
        })
    }

    #[test]
    fn a_stage_is_left_for_certain_and_two_halves_make_a_whole() {
        let rates = [3e-4, 0.0, 1e-5];
        let whole = Stage::lasting(700.0, &rates);
        let sum: f64 = whole.done.probability + whole.failed.iter().map(|exit| exit.probability).sum::<f64>();
        assert!(close(sum, 1.0), "{sum}");
        assert_eq!(whole.failed[1], Exit::default(), "no failure of a level whose rate is 0");
        let half = Stage::lasting(350.0, &rates);
        assert!(same(&half.then(&half), &whole), "{:?} {whole:?}", half.then(&half));
        assert!(same(&Stage::lasting(7.0, &rates).times(100), &whole));
        assert!(same(&Stage::lasting(100.0, &rates).times(7), &whole));
        assert_eq!(whole.times(0).done, Exit::CERTAIN);
    }

    #[test]
    fn a_rare_failure_happens_half_way_on_average() {
        for seconds in [1e-3, 1.0, 1e4] {
            let stage = Stage::lasting(seconds, &[1e-9]);
            assert!((stage.failed[0].mean_time() / seconds - 0.5).abs() < 1e-5, "{seconds}");
        }
        assert!((early_part(1e-3 - 1e-12) / early_part(1e-3 + 1e-12) - 1.0).abs() < 1e-7);
    }

    #[test]
    fn a_loop_is_left_after_as_many_rounds_as_its_probability_says() {
        // Nine of ten rounds return, after 5 seconds each: nine returns on average.
        let rounds = Exit { probability: 0.9, time: 4.5 }.again_until(0.1);
        let out = rounds * Exit { probability: 0.1, time: 0.0 };
        assert!(close(out.probability, 1.0) && close(out.mean_time(), 45.0), "{out:?}");
    }
}
