//! Times between failures: where a simulation takes them from, and what is known of their rate.

/// Random numbers from a seed: SplitMix64, which gives the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Another sequence, independent of this one.
    pub(super) fn fork(&mut self) -> Self {
        Self(self.bits())
    }

    /// Above 0, and at most 1.
    pub(super) fn unit(&mut self) -> f64 {
        (((self.bits() >> 11) + 1) as f64) / (1_u64 << 53) as f64
    }
}

/// How the times between failures are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Gaps {
    /// A failure is as likely at any time.
    Exponential,
    /// Below a shape of 1 failures come in bursts: one is more likely soon after another.
    Weibull {
        /// The shape; 1 is exponential.
        shape: f64,
    },
}

impl Gaps {
    /// The factor that turns [`Self::draw`]'s values into ones with this mean.
    pub(super) fn scale(self, mean: f64) -> f64 {
        match self {
            Self::Exponential => mean,
            Self::Weibull { shape } => mean / gamma(1.0 + 1.0 / shape),
        }
    }

    /// The next gap, in units of its scale.
    pub(super) fn draw(self, random: &mut Random) -> f64 {
        let exponential = (-random.unit().ln()).max(f64::MIN_POSITIVE);
        match self {
            Self::Exponential => exponential,
            Self::Weibull { shape } => exponential.powf(1.0 / shape),
        }
    }
}

/// The gamma function of `x >= 1`, by the approximation of Lanczos (g = 5, six terms), which is right to ten digits.
fn gamma(x: f64) -> f64 {
    const TERMS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.001_208_650_973_866_179,
        -0.000_005_395_239_384_953,
    ];
    let x = x - 1.0;
    let series =
        (1..).zip(TERMS).fold(1.000_000_000_190_015, |sum, (at, term)| sum + term / (x + f64::from(at)));
    let base = x + 5.5;
    (2.0 * std::f64::consts::PI).sqrt() * series * base.powf(x + 0.5) * (-base).exp()
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
        for gaps in [Gaps::Exponential, Gaps::Weibull { shape: 0.7 }, Gaps::Weibull { shape: 2.0 }] {
            let mut random = Random::new(7);
            let scale = gaps.scale(100.0);
            let mean = (0..200_000).map(|_| scale * gaps.draw(&mut random)).sum::<f64>() / 2e5;
            assert!((mean - 100.0).abs() < 1.5, "{gaps:?}: {mean}");
        }
    }

    #[test]
    fn a_seed_gives_its_numbers_on_every_machine() {
        let mut random = Random::new(0);
        assert_eq!(
            random.bits(),
            0xE220_A839_7B1D_CDAF,
            "the first value that the authors of SplitMix64 give"
        );
        let mut units = Random::new(3);
        assert!((0..10_000).map(|_| units.unit()).all(|unit| unit > 0.0 && unit <= 1.0));
    }

    #[test]
    fn the_gamma_function_is_a_factorial_between_whole_numbers() {
        for (x, value) in
            [(1.0, 1.0), (2.0, 1.0), (5.0, 24.0), (1.5, 0.886_226_925_452_758), (11.0, 3_628_800.0)]
        {
            assert!((gamma(x) / value - 1.0).abs() < 1e-9, "{x}");
        }
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
