//! How a count grows with the number of ranks.

use std::fmt;

/// A count as a function of the number of ranks P: `base + step * by(P)`, the closest of a few such functions.
pub(crate) struct Growth {
    by: By,
    base: f64,
    step: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Constant,
    Logarithm,
    Ranks,
}

impl By {
    /// In order of preference where two are as close.
    const ALL: [By; 3] = [By::Constant, By::Logarithm, By::Ranks];

    fn of(self, ranks: usize) -> f64 {
        match self {
            By::Constant => 0.0,
            By::Logarithm => (ranks as f64).log2(),
            By::Ranks => ranks as f64,
        }
    }
}

impl Growth {
    /// By least squares, from counts of jobs of different sizes.
    pub(crate) fn of(points: impl Iterator<Item = (usize, u64)>) -> Self {
        let points: &[(usize, u64)] = &points.collect::<Vec<_>>();
        let fits = By::ALL.map(|by| {
            let fit = Self::by(by, points);
            let error: f64 =
                points.iter().map(|&(ranks, count)| (fit.value(ranks) - count as f64).powi(2)).sum();
            (fit, error)
        });
        // A little noise is no growth.
        let scale = points.iter().map(|&(_, count)| (count as f64).powi(2)).sum::<f64>();
        let enough = fits.iter().map(|(_, error)| *error).fold(f64::INFINITY, f64::min) + 1e-4 * scale;
        let chosen = fits.into_iter().find(|(_, error)| *error <= enough);
        chosen.map(|(fit, _)| fit).expect("one of them is the closest")
    }

    fn by(by: By, points: &[(usize, u64)]) -> Self {
        let n = points.len() as f64;
        let mean_x = points.iter().map(|&(ranks, _)| by.of(ranks)).sum::<f64>() / n;
        let mean_y = points.iter().map(|&(_, count)| count as f64).sum::<f64>() / n;
        let spread: f64 = points.iter().map(|&(ranks, _)| (by.of(ranks) - mean_x).powi(2)).sum();
        let joint: f64 =
            points.iter().map(|&(ranks, count)| (by.of(ranks) - mean_x) * (count as f64 - mean_y)).sum();
        let step = if spread > 0.0 { joint / spread } else { 0.0 };
        Self { by, base: mean_y - step * mean_x, step }
    }

    fn value(&self, ranks: usize) -> f64 {
        self.base + self.step * self.by.of(ranks)
    }

    /// The count that a job of this many ranks would have.
    pub(crate) fn at(&self, ranks: usize) -> u64 {
        self.value(ranks).max(0.0).round() as u64
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Constant => write!(to, "constant"),
            By::Logarithm => write!(to, "{:.1} log P", self.step),
            By::Ranks => write!(to, "{:.2} P", self.step),
        }
    }
}
