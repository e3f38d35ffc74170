//! Times between failures: where a simulation takes them from, and what is known of their rate.

use fastrand::Rng;

/// How the times between failures are distributed: as W. Weibull has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gaps {
    /// Below 1 failures come in bursts: one is more likely soon after another.
    pub shape: f64,
}

impl Gaps {
    /// A failure is as likely at any time.
    pub const EXPONENTIAL: Self = Self { shape: 1.0 };

    /// The factor that turns [`Self::draw`]'s values into ones with this mean.
    pub(super) fn scale(self, mean: f64) -> f64 {
        mean / libm::tgamma(1.0 + 1.0 / self.shape)
    }

    /// The next gap, in units of its scale.
    pub(super) fn draw(self, random: &mut Rng) -> f64 {
        // Of a number above 0 and at most 1.
        let exponential = (-(1.0 - random.f64()).ln()).max(f64::MIN_POSITIVE);
        exponential.powf(1.0 / self.shape)
    }
}

/// The belief about a failure rate: a gamma distribution, as if `failures` had been seen in `seconds`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Belief {
    pub(super) failures: f64,
    pub(super) seconds: f64,
}

impl Belief {
    /// The weight of a stated mean time between failures: as much as one failure that was seen after that time.
    ///
    /// Nothing is learned from a time that is not positive and finite; then it is `None`.
    pub fn stated(mean_seconds: f64) -> Option<Self> {
        (mean_seconds.is_finite() && mean_seconds > 0.0)
            .then_some(Self { failures: 1.0, seconds: mean_seconds })
    }

    /// The belief after more failures in some seconds. Times that are negative or no numbers teach nothing.
    #[must_use]
    pub fn after(self, failures: u32, seconds: f64) -> Self {
        let seconds = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
        Self { failures: self.failures + f64::from(failures), seconds: self.seconds + seconds }
    }

    /// The belief about failures of either of two independent kinds: mean and variance add up.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let rate = self.rate() + other.rate();
        let variance = self.failures / self.seconds.powi(2) + other.failures / other.seconds.powi(2);
        let seconds = rate / variance;
        Self { failures: rate * seconds, seconds }
    }

    /// Failures per second that are to be expected. The waste of a plan grows in proportion to the rate, so that the best plan
    /// for an uncertain rate is the best one for its mean.
    pub fn rate(self) -> f64 {
        self.failures / self.seconds
    }

    /// The rate lies between these two with a probability of 95 %.
    pub fn bounds(self) -> (f64, f64) {
        (self.quantile(-1.96), self.quantile(1.96))
    }

    /// The approximation of E. B. Wilson and M. M. Hilferty (1931): the cube root is nearly normal.
    fn quantile(self, deviations: f64) -> f64 {
        let ninth = 1.0 / (9.0 * self.failures);
        let root = 1.0 - ninth + deviations * ninth.sqrt();
        self.rate() * root.max(0.0).powi(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_that_was_asked_for() {
        for gaps in [Gaps::EXPONENTIAL, Gaps { shape: 0.7 }, Gaps { shape: 2.0 }] {
            let mut random = Rng::with_seed(7);
            let scale = gaps.scale(100.0);
            let mean = (0..200_000).map(|_| scale * gaps.draw(&mut random)).sum::<f64>() / 2e5;
            assert!((mean - 100.0).abs() < 1.5, "{gaps:?}: {mean}");
        }
    }

    #[test]
    fn a_seed_gives_its_numbers_on_every_machine() {
        assert_eq!(Rng::with_seed(0).u64(..), 11_116_517_241_604_665_558, "as before");
        let mut random = Rng::with_seed(3);
        let gaps = (0..10_000).map(|_| Gaps::EXPONENTIAL.draw(&mut random));
        assert!(gaps.into_iter().all(|gap| gap > 0.0 && gap < 40.0));
    }

    #[test]
    fn a_weibull_distribution_of_shape_1_is_exponential() {
        let (one, half) = (Gaps { shape: 1.0 }, Gaps { shape: 0.5 });
        assert!((one.scale(7.0) - 7.0).abs() < 1e-9 && (half.scale(7.0) - 3.5).abs() < 1e-9);
    }

    #[test]
    fn what_is_seen_outweighs_what_was_stated_and_narrows_the_bounds() {
        let year = 365.25 * 86400.0;
        let stated = Belief::stated(5.0 * year).unwrap();
        assert!((stated.rate() * 5.0 * year - 1.0).abs() < 1e-12);
        let (low, high) = stated.bounds();
        assert!(high / low > 50.0, "one failure says little: {low} {high}");
        let seen = stated.after(100, year);
        assert!((seen.rate() * year - 101.0 / 6.0).abs() < 1e-9, "{}", seen.rate() * year);
        let (low, high) = seen.bounds();
        assert!(high / low < 1.6 && low < seen.rate() && seen.rate() < high, "{low} {high}");
        // Exact values for 1 and 10 failures: 0.0253 and 3.689, 4.795 and 17.085.
        let (low, high) = Belief { failures: 1.0, seconds: 1.0 }.bounds();
        assert!(low < 0.03 && (high - 3.689).abs() < 0.05, "{low} {high}");
        let (low, high) = Belief { failures: 10.0, seconds: 1.0 }.bounds();
        assert!((low - 4.795).abs() < 0.02 && (high - 17.085).abs() < 0.02, "{low} {high}");
    }

    #[test]
    fn senseless_times_teach_nothing() {
        for senseless in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Belief::stated(senseless), None);
        }
        let stated = Belief::stated(100.0).unwrap();
        for senseless in [-5.0, f64::NAN, f64::INFINITY] {
            assert_eq!(stated.after(0, senseless), stated);
        }
    }
}
