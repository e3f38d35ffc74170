//! What the kits have found.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The findings of all checks, in order. Shown as text, it says all that an author of a plugin needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// One for each check.
    pub checks: Vec<Check>,
}

/// The finding of one check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The rule that it checks.
    #[serde(rename = "rule")]
    pub name: String,
    /// How many cases were tried, of a rule that has several.
    pub tried: Option<u64>,
    /// How many of them failed.
    pub failed: u64,
    /// The first failures.
    pub failures: Vec<String>,
    /// What usually helps, where it failed.
    pub cure: Option<String>,
    /// What is allowed and yet seldom meant.
    pub warnings: Vec<String>,
    /// Why it was not tried, or not all of it.
    pub skipped: Option<String>,
}

/// So many failures of a check are shown.
const KEPT: usize = 3;

impl Report {
    /// Whether nothing failed.
    pub fn passed(&self) -> bool {
        self.broken().is_empty()
    }

    /// The names of the checks that failed.
    pub fn broken(&self) -> Vec<&str> {
        self.checks.iter().filter(|check| check.failed > 0).map(|check| check.name.as_str()).collect()
    }
}

impl Check {
    pub(crate) fn fail(&mut self, failure: String, cure: &str) {
        self.failed += 1;
        let cures = self.cure.get_or_insert_default();
        if !cures.contains(cure) {
            let space = if cures.is_empty() { "" } else { " " };
            *cures += &format!("{space}{cure}");
        }
        if self.failures.len() < KEPT {
            self.failures.push(failure);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.checks.iter().try_for_each(|check| check.fmt(f))?;
        match (self.broken().len(), self.checks.len()) {
            (0, all) => writeln!(f, "all {all} checks passed"),
            (failed, all) => writeln!(f, "{failed} of {all} checks failed"),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.failed, self.tried) {
            (0, Some(0)) => "skip",
            (0, _) => "pass",
            _ => "FAIL",
        };
        let tried = self.tried.map_or_else(String::new, |tried| format!(" ({tried} tried)"));
        writeln!(f, "{verdict}  {}{tried}", self.name)?;
        let more = Some(self.failed - self.failures.len() as u64).filter(|&more| more > 0);
        let more = more.map(|more| format!("and {more} more"));
        let cure = self.cure.iter().map(|cure| format!("to fix it: {cure}"));
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}"));
        let skipped = self.skipped.iter().map(|reason| format!("not tried: {reason}"));
        let mut lines = self.failures.iter().cloned().chain(more).chain(cure).chain(warnings).chain(skipped);
        lines.try_for_each(|line| writeln!(f, "      {line}"))
    }
}
