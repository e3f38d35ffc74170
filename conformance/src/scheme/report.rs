//! The findings of the kit, check by check.

use std::fmt;

/// All checks of one scheme.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they were made.
    pub checks: Vec<Check>,
}

/// One rule, tried on many sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The rule.
    pub name: &'static str,
    /// The usual cure if it is broken.
    pub cure: &'static str,
    /// How often it was tried.
    pub tried: u64,
    /// The places where it was broken; of many only the first few.
    pub failures: Vec<Failure>,
    /// How often it was broken.
    pub failed: u64,
    /// Legal, but not what users would want.
    pub warnings: Vec<String>,
    /// Why it was not tried at all, or not to the end.
    pub skipped: Option<String>,
}

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// On which set, and after which losses.
    pub place: String,
    /// The expected value.
    pub expected: String,
    /// The value that came.
    pub came: String,
}

/// How many failures of one check are kept.
const KEPT: usize = 3;

impl Report {
    /// Whether no rule was broken.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.failed == 0)
    }

    /// The names of the rules that were broken.
    pub fn broken(&self) -> Vec<&'static str> {
        self.checks.iter().filter(|check| check.failed > 0).map(|check| check.name).collect()
    }
}

impl Check {
    pub(super) fn new(name: &'static str, cure: &'static str) -> Self {
        Self { name, cure, tried: 0, failures: Vec::new(), failed: 0, warnings: Vec::new(), skipped: None }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.failed += 1;
        if self.failures.len() < KEPT {
            self.failures.push(failure);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.checks.iter().try_for_each(|check| check.fmt(f))?;
        let failed = self.broken().len();
        if failed == 0 {
            writeln!(f, "all {} checks passed", self.checks.len())
        } else {
            writeln!(f, "{failed} of {} checks failed", self.checks.len())
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.failed, self.tried) {
            (0, 0) => "skip",
            (0, _) => "pass",
            _ => "FAIL",
        };
        writeln!(f, "{verdict}  {} ({} tried)", self.name, self.tried)?;
        for failure in &self.failures {
            writeln!(f, "      {}: expected {}, but {}", failure.place, failure.expected, failure.came)?;
        }
        if self.failed > self.failures.len() as u64 {
            writeln!(f, "      and {} more", self.failed - self.failures.len() as u64)?;
        }
        if self.failed > 0 {
            writeln!(f, "      to fix it: {}", self.cure)?;
        }
        self.warnings.iter().try_for_each(|text| writeln!(f, "      warning: {text}"))?;
        self.skipped.iter().try_for_each(|text| writeln!(f, "      not tried: {text}"))
    }
}
