//! Whether a job is started, or started again. See the user guide's section "The SCR wrapper script".
//!
//! A function of what is known, without a look at the world: so every case stands in one table.

use std::fmt;

/// What is known between two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Situation {
    /// How often the job was started so far.
    pub(super) runs: u64,
    /// How often it may be started; `None` for no limit.
    pub(super) most_runs: Option<u64>,
    /// Whether the last run ended well; `None` before the first.
    pub(super) succeeded: Option<bool>,
    /// Whether the user ended it with a signal.
    pub(super) interrupted: bool,
    /// Why the job is to halt.
    pub(super) halt: Option<String>,
    /// Seconds left in the allocation, where its end is known.
    pub(super) seconds_left: Option<i64>,
    /// Nodes that can be used.
    pub(super) good: usize,
    /// Nodes that a run needs, and who says so.
    pub(super) needed: (usize, Needed),
}

/// Who says how many nodes are needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Needed {
    /// Nobody: the launcher will complain.
    #[default]
    Nobody,
    /// `SCR_MIN_NODES`.
    Parameter,
    /// The last run had so many.
    LastRun,
    /// The last run has left no number, so it is taken to have had all nodes.
    AllNodes,
}

/// Why the job is not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has come to its end.
    Succeeded,
    /// The user has ended it.
    Interrupted,
    /// It was started as often as it may be.
    NoRunsLeft(u64),
    /// A halt condition is met.
    Halted(String),
    /// The allocation ends.
    NoTime,
    /// Too few nodes are left.
    TooFewNodes { good: usize, needed: usize, by: Needed },
}

impl Situation {
    /// What to do now.
    pub(super) fn stop(&self) -> Option<Stop> {
        if self.interrupted {
            return Some(Stop::Interrupted);
        }
        if self.succeeded == Some(true) {
            return Some(Stop::Succeeded);
        }
        if let Some(most) = self.most_runs.filter(|&most| self.runs >= most) {
            return Some(Stop::NoRunsLeft(most));
        }
        if let Some(reason) = &self.halt {
            return Some(Stop::Halted(reason.clone()));
        }
        if self.seconds_left.is_some_and(|left| left <= 0) {
            return Some(Stop::NoTime);
        }
        let (needed, by) = self.needed;
        (self.good < needed.max(1)).then_some(Stop::TooFewNodes { good: self.good, needed, by })
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Succeeded => write!(f, "the job has come to its end"),
            Stop::Interrupted => write!(f, "the job was ended by a signal"),
            Stop::NoRunsLeft(most) => {
                write!(f, "the job was started {most} times, which is what SCR_RUNS allows")
            }
            Stop::Halted(reason) => write!(f, "the job is to halt: {reason}"),
            Stop::NoTime => write!(f, "the allocation has come to its end"),
            Stop::TooFewNodes { good, needed, by } => {
                let by = match by {
                    Needed::Nobody => "some are",
                    Needed::Parameter => "SCR_MIN_NODES wants them",
                    Needed::LastRun => "the last run had as many",
                    Needed::AllNodes => {
                        "the last run has not told how many it had, so all of the allocation are"
                    }
                };
                let needed = (*needed).max(1);
                write!(f, "{good} nodes can be used and {needed} are needed: {by}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a first run that failed, with every reason to go on.
    fn failed() -> Situation {
        Situation {
            runs: 1,
            most_runs: Some(3),
            succeeded: Some(false),
            good: 4,
            needed: (4, Needed::LastRun),
            ..Situation::default()
        }
    }

    #[test]
    fn a_job_is_started_again_until_something_speaks_against_it() {
        let first = Situation { runs: 0, succeeded: None, needed: (0, Needed::Nobody), ..failed() };
        let halted = Some("why".to_owned());
        let few = |good, needed, by| Some(Stop::TooFewNodes { good, needed, by });
        let cases = [
            ("the first run", first.clone(), None),
            ("a run that failed", failed(), None),
            ("a run that succeeded", Situation { succeeded: Some(true), ..failed() }, Some(Stop::Succeeded)),
            ("as often as allowed", Situation { runs: 3, ..failed() }, Some(Stop::NoRunsLeft(3))),
            ("once by default", Situation { most_runs: Some(1), ..failed() }, Some(Stop::NoRunsLeft(1))),
            ("without a limit", Situation { runs: 1_000_000, most_runs: None, ..failed() }, None),
            ("never", Situation { most_runs: Some(0), ..first.clone() }, Some(Stop::NoRunsLeft(0))),
            ("halted", Situation { halt: halted.clone(), ..failed() }, Some(Stop::Halted("why".to_owned()))),
            (
                "halted before",
                Situation { halt: halted, ..first.clone() },
                Some(Stop::Halted("why".to_owned())),
            ),
            ("a second left", Situation { seconds_left: Some(1), ..failed() }, None),
            ("no time left", Situation { seconds_left: Some(0), ..failed() }, Some(Stop::NoTime)),
            ("a node too few", Situation { good: 3, ..failed() }, few(3, 4, Needed::LastRun)),
            ("a spare took its place", Situation { good: 5, ..failed() }, None),
            ("fewer will do", Situation { good: 3, needed: (3, Needed::Parameter), ..failed() }, None),
            (
                "no node",
                Situation { good: 0, needed: (0, Needed::Nobody), ..first },
                few(0, 0, Needed::Nobody),
            ),
            (
                "a signal",
                Situation { interrupted: true, succeeded: Some(true), ..failed() },
                Some(Stop::Interrupted),
            ),
        ];
        for (case, situation, stop) in cases {
            assert_eq!(situation.stop(), stop, "{case}");
        }
    }
}
