//! The halt conditions of a job, and whether one of them holds now: as text and as JSON.

use crate::environment;
use crate::run::{JobArgs, JobContext};
use crate::time;
use scr_base::env::Env;
use scr_prefix::{Halt, HaltReason, Prefix};
use serde::Serialize;

/// The conditions. Times are seconds since the epoch.
#[derive(Serialize)]
pub(super) struct HaltStatus {
    file: String,
    checkpoints_left: Option<i64>,
    exit_after: Option<i64>,
    exit_before: Option<i64>,
    halt_seconds: Option<i64>,
    exit_reason: Option<String>,
    allocation_end: Option<i64>,
    /// Why a job would halt now, in words.
    holds: Option<String>,
}

impl HaltStatus {
    /// The status of a prefix directory; `None` if there is no file.
    pub(super) fn of(env: &Env, prefix: &Prefix, halt: Option<&Halt>) -> Self {
        let halt = halt.cloned().unwrap_or_default();
        // The other conditions are shown all the same where nothing is known of an allocation.
        let job = JobContext::on(&JobArgs::at(prefix.dir()), None);
        let end = job.as_ref().map(|job| job.allocation.end()).unwrap_or_default();
        let holds = halt.reason(environment::now(env), end).map(|reason| match reason {
            HaltReason::ExitAfter { time } => {
                format!("the time to halt after has come: {}", time::in_words(time))
            }
            other => other.to_string(),
        });
        Self {
            file: prefix.halt_file().display().to_string(),
            checkpoints_left: halt.checkpoints_left,
            exit_after: halt.exit_after,
            exit_before: halt.exit_before,
            halt_seconds: halt.halt_seconds,
            exit_reason: halt.exit_reason,
            allocation_end: halt.changed_end.map(|end| end.time),
            holds,
        }
    }

    /// Whether a job would halt now.
    pub(super) fn holds(&self) -> bool {
        self.holds.is_some()
    }

    fn is_finished(&self) -> bool {
        self.exit_reason.as_deref() == Some(Halt::FINALIZED)
    }

    pub(super) fn text(&self) -> String {
        let number = |value: Option<i64>| value.map(|value| value.to_string());
        let latest =
            self.exit_before.zip(self.halt_seconds).map(|(time, seconds)| time.saturating_sub(seconds));
        // In the words of C SCR, which scripts look for.
        let lines = [
            ("ExitReason:     ", self.exit_reason.clone()),
            ("CheckpointsLeft:", number(self.checkpoints_left)),
            ("ExitAfter:      ", self.exit_after.map(time::in_words)),
            ("ExitBefore:     ", self.exit_before.map(time::in_words)),
            ("HaltSeconds:    ", number(self.halt_seconds)),
            ("ExitBefore - HaltSeconds:", latest.map(time::in_words)),
            ("AllocationEnd:  ", self.allocation_end.map(time::in_words)),
        ];
        let set: String =
            lines.into_iter().filter_map(|(name, value)| Some(format!("  {name} {}\n", value?))).collect();
        let now = match (&self.holds, set.is_empty()) {
            (_, true) => "  None\n".to_owned(),
            (Some(why), _) if self.is_finished() => {
                format!("No job is started: {why}; `scr halt --remove' lets it run again.\n")
            }
            (Some(why), _) => format!("A job halts now: {why}.\n"),
            (None, _) => "No condition holds now.\n".to_owned(),
        };
        format!("Halt file settings for {}:\n{set}{now}", self.file)
    }
}
