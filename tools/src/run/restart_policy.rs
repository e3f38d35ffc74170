//! Decides whether a job is started, or started again. See docs/user/running.md.
//!
//! It is a function of what is known and looks at nothing else, so one table tests every case.

use super::signals::Request;
use scr_prefix::HaltReason;
use std::fmt;

/// The state of a job between two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct JobState {
    /// How often the job was started so far.
    pub(super) runs: u64,
    /// How often it may be started; `None` for no limit.
    pub(super) most_runs: Option<u64>,
    /// Whether the last run ended well; `None` before the first.
    pub(super) succeeded: Option<bool>,
    /// The request made to `scr run` with a signal.
    pub(super) interrupted: Option<Request>,
    /// Why the job is to halt.
    pub(super) halt: Option<HaltReason>,
    /// Seconds left in the allocation, where its end is known.
    pub(super) seconds_left: Option<i64>,
    /// Nodes that can be used.
    pub(super) good: usize,
    /// Nodes that a run needs, and who says so; `None` if only the launcher knows.
    pub(super) needed: Option<Needed>,
}

/// A number of nodes, and who says that they are needed.
pub(super) type Needed = (usize, &'static str);

/// Why the job is not started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StopReason {
    /// It has finished.
    Succeeded,
    /// A signal has ended it, or was passed on to it before it failed.
    Interrupted(Request),
    /// It was started as often as it may be.
    NoRunsLeft(u64),
    /// A halt condition is met.
    Halted(HaltReason),
    /// The allocation ends.
    NoTime,
    /// Too few nodes are left.
    TooFewNodes { good: usize, needed: Option<Needed> },
}

impl JobState {
    /// Why the job must not be started now, if it must not.
    pub(super) fn stop(&self) -> Option<StopReason> {
        let (good, needed) = (self.good, self.needed);
        let least = needed.map_or(1, |(nodes, _)| nodes.max(1));
        let ended = self.interrupted.filter(|request| matches!(request, Request::End(_)));
        // The first that is so counts.
        let reasons = [
            ended.map(StopReason::Interrupted),
            (self.succeeded == Some(true)).then_some(StopReason::Succeeded),
            self.interrupted.map(StopReason::Interrupted),
            self.most_runs.filter(|&most| self.runs >= most).map(StopReason::NoRunsLeft),
            self.halt.clone().map(StopReason::Halted),
            self.seconds_left.is_some_and(|left| left <= 0).then_some(StopReason::NoTime),
            (good < least).then_some(StopReason::TooFewNodes { good, needed }),
        ];
        reasons.into_iter().flatten().next()
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Succeeded => write!(f, "the job has succeeded"),
            StopReason::Interrupted(ended @ Request::End(_)) => {
                write!(f, "received {}, and ended the job", ended.name())
            }
            StopReason::Interrupted(passed_on) => write!(
                f,
                "the job is not started again: it has failed after {}, which batch systems send before they end a job",
                passed_on.name()
            ),
            StopReason::NoRunsLeft(1) => write!(
                f,
                "the job was started once, which is what SCR_RUNS allows: with SCR_RUNS=3 it is started again after a failure, \
                 up to three times"
            ),
            StopReason::NoRunsLeft(most) => {
                write!(f, "the job was started {most} times, which is what SCR_RUNS allows")
            }
            StopReason::Halted(reason) => write!(f, "the job is to halt: {reason}"),
            StopReason::NoTime => write!(f, "the allocation has ended"),
            StopReason::TooFewNodes { good, needed: None } => {
                write!(f, "{good} nodes can be used, and a run needs one")
            }
            StopReason::TooFewNodes { good, needed: Some((nodes, by)) } => {
                write!(f, "{good} nodes can be used and {} are needed: {by}", (*nodes).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;

    /// After a first run that failed, with every reason to continue.
    fn failed() -> JobState {
        JobState {
            runs: 1,
            most_runs: Some(3),
            succeeded: Some(false),
            good: 4,
            needed: Some((4, "the last run had as many")),
            ..JobState::default()
        }
    }

    /// It was "0 nodes can be used and 1 are needed: some are".
    #[test]
    fn too_few_nodes_are_counted_in_a_sentence() {
        let few = |good, needed| StopReason::TooFewNodes { good, needed }.to_string();
        assert_eq!(few(0, None), "0 nodes can be used, and a run needs one");
        assert_eq!(few(3, failed().needed), "3 nodes can be used and 4 are needed: the last run had as many");
    }

    #[test]
    fn a_job_is_restarted_until_a_condition_prevents_it() {
        let first = JobState { runs: 0, succeeded: None, needed: None, ..failed() };
        let halted = Some(HaltReason::NoCheckpointsLeft);
        let few = |good, needed| Some(StopReason::TooFewNodes { good, needed });
        let cases = [
            ("the first run", first.clone(), None),
            ("a run that failed", failed(), None),
            (
                "a run that succeeded",
                JobState { succeeded: Some(true), ..failed() },
                Some(StopReason::Succeeded),
            ),
            ("as often as allowed", JobState { runs: 3, ..failed() }, Some(StopReason::NoRunsLeft(3))),
            ("once by default", JobState { most_runs: Some(1), ..failed() }, Some(StopReason::NoRunsLeft(1))),
            ("without a limit", JobState { runs: 1_000_000, most_runs: None, ..failed() }, None),
            ("never", JobState { most_runs: Some(0), ..first.clone() }, Some(StopReason::NoRunsLeft(0))),
            (
                "halted",
                JobState { halt: halted.clone(), ..failed() },
                Some(StopReason::Halted(HaltReason::NoCheckpointsLeft)),
            ),
            (
                "halted before",
                JobState { halt: halted, ..first.clone() },
                Some(StopReason::Halted(HaltReason::NoCheckpointsLeft)),
            ),
            ("a second left", JobState { seconds_left: Some(1), ..failed() }, None),
            ("no time left", JobState { seconds_left: Some(0), ..failed() }, Some(StopReason::NoTime)),
            ("a node too few", JobState { good: 3, ..failed() }, few(3, failed().needed)),
            ("a spare took its place", JobState { good: 5, ..failed() }, None),
            (
                "fewer will do",
                JobState { good: 3, needed: Some((3, "SCR_MIN_NODES wants them")), ..failed() },
                None,
            ),
            ("no node", JobState { good: 0, needed: None, ..first }, few(0, None)),
            (
                "a signal",
                JobState { interrupted: Some(Request::End(15)), succeeded: Some(true), ..failed() },
                Some(StopReason::Interrupted(Request::End(15))),
            ),
            (
                "a notice of the batch system",
                JobState { interrupted: Some(Request::PassOn(Signal::USR1)), ..failed() },
                Some(StopReason::Interrupted(Request::PassOn(Signal::USR1))),
            ),
            (
                "a notice to a job that has succeeded",
                JobState {
                    interrupted: Some(Request::PassOn(Signal::USR1)),
                    succeeded: Some(true),
                    ..failed()
                },
                Some(StopReason::Succeeded),
            ),
        ];
        for (case, state, stop) in cases {
            assert_eq!(state.stop(), stop, "{case}");
        }
    }
}
