//! `scr halt`, and `scr_halt`: the conditions on which a job stops. See docs/user/concepts.md.
//!
//! They lie in `.scr/halt.scr` of the prefix directory, which a running job reads; it is changed in place under its lock.
//!
//! - `cntl`: `scr halt-cntl`

pub(crate) mod cntl;

use crate::machine::{current_job_id, Manifests};
use crate::prelude::*;
use crate::run::{JobArgs, JobContext};
use scr_prefix::{ChangedEnd, HaltReason, KnownEnd, LastRun};

/// The changes, and the halt file.
#[derive(Args)]
pub(crate) struct HaltArgs {
    #[command(flatten)]
    set: Conditions,
    #[command(flatten)]
    unset: Unset,
    /// List the conditions
    #[arg(short, long, group = "instead", conflicts_with_all = ["set", "unset"])]
    list: bool,
    /// Remove the halt file, and so all conditions
    #[arg(short, long, group = "instead", conflicts_with_all = ["set", "unset"])]
    remove: bool,
    /// The prefix directories [default: SCR_PREFIX, or the current folder]
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The same as DIR
    #[arg(long, value_name = "DIR", conflicts_with = "dirs")]
    prefix: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
}

/// Conditions to be set.
#[derive(Args, Default, PartialEq)]
#[group(id = "set", multiple = true)]
struct Conditions {
    /// Halt after N more checkpoints; 0: the next time that the job checks the conditions
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    checkpoints: Option<i64>,
    /// Halt at the first check of the conditions at or after TIME, such as 2h, '12:00pm today' or '2026-12-24 18:00'
    #[arg(short, long, value_name = "TIME", value_parser = time::ahead)]
    after: Option<i64>,
    /// Halt before TIME, such as '+2 hours' or '8:30am tomorrow'; --seconds says how long before
    #[arg(short, long, value_name = "TIME", value_parser = time::ahead)]
    before: Option<i64>,
    /// Halt this long before the time of --before, or before the allocation ends
    #[arg(short, long, value_name = "SECONDS", value_parser = time::whole_seconds)]
    seconds: Option<i64>,
    /// The allocation ends at TIME: its time limit was changed, and the job does not know
    #[arg(long, value_name = "TIME", value_parser = time::ahead)]
    end: Option<i64>,
    /// Halt the next time that the job checks the conditions; `scr run` does not restart it
    #[arg(short, long)]
    immediate: bool,
}

/// Conditions to remove.
#[derive(Args, Default, PartialEq)]
#[group(id = "unset", multiple = true)]
struct Unset {
    /// Remove the number of checkpoints
    #[arg(long, conflicts_with = "checkpoints")]
    unset_checkpoints: bool,
    /// Remove the time of --after
    #[arg(long, conflicts_with = "after")]
    unset_after: bool,
    /// Remove the time of --before
    #[arg(long, conflicts_with = "before")]
    unset_before: bool,
    /// Remove the time of --end
    #[arg(long, conflicts_with = "end")]
    unset_end: bool,
    /// Remove the seconds of --seconds
    #[arg(long, conflicts_with = "seconds")]
    unset_seconds: bool,
    /// Remove the reason: the job has finished, or --immediate was given
    #[arg(long, conflicts_with = "immediate")]
    unset_reason: bool,
}

/// Runs the command.
pub(crate) fn run(args: &HaltArgs) -> Result<Answer> {
    let named: Vec<_> = args.dirs.iter().chain(&args.prefix).map(|dir| Some(dir.as_path())).collect();
    let dirs = if named.is_empty() { vec![None] } else { named };
    // One that cannot be used does not keep the others from their conditions.
    let answers: Vec<_> = dirs.into_iter().map(|dir| args.run_in(dir)).collect();
    let is_done = answers.iter().all(|answer| !matches!(answer, Ok(Answer::No)));
    let mut failed: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let last = failed.pop();
    failed.iter().for_each(|error| warn(format_args!("{error:#}")));
    last.map_or_else(|| Ok(Answer::from(is_done)), Err)
}

/// The end of the allocation whose job began last in the prefix directory, or else of the one that this command runs in.
fn changed_end(env: &Env, prefix: &Prefix, time: i64) -> Result<ChangedEnd> {
    let here = || current_job_id(env, &environment::params(env), &Manifests::load(env)?);
    let last = LastRun::read(&*env.files, prefix).ok().flatten();
    let job_id = last.map_or_else(here, |run| Ok(run.job_id))?;
    Ok(ChangedEnd { job_id, time })
}

impl HaltArgs {
    fn run_in(&self, dir: Option<&Path>) -> Result<Answer> {
        let mut env = environment::env_at(dir)?;
        let prefix = environment::prefix(&mut env, dir)?;
        if !environment::was_used(&prefix) {
            let holds = if self.list || self.remove {
                ""
            } else {
                "; the conditions hold for the next one that does"
            };
            warn(format_args!("{}{holds}", environment::unused(&prefix)));
        }
        let path = prefix.halt_file();
        if self.list {
            let halt = Halt::read(&*env.files, &prefix).or_cannot("read", &path)?;
            let listing = HaltStatus::of(&env, &prefix, halt.as_ref());
            return show(self.json, listing.json(), listing.text(), true);
        }
        if self.remove {
            let is_removed = Halt::remove(&*env.files, &prefix)?;
            if !is_removed {
                warn(format_args!("there is no {}: nothing halts a job here", path.display()));
            }
            return Ok(Answer::from(is_removed));
        }
        let end = self.set.end.map(|time| changed_end(&env, &prefix, time)).transpose()?;
        let updated =
            Halt::update(&*env.files, &prefix, |halt| (self.apply(halt, end.clone()), halt.clone()));
        let updated = updated.or_cannot("change", &path)?;
        if !updated.locked {
            warn(format_args!(
                "{} cannot be locked here: look with `scr halt --list' whether a job has written it at the same time",
                path.display()
            ));
        }
        if self.set.immediate {
            warn(
                "scr run ends the run now; a job that was started without it stops at its next check. To end that at once, \
                 kill its step with the resource manager (scancel JOB.STEP under Slurm), not the allocation: that would lose the \
                 cache",
            );
        }
        let (changes, halt) = updated.value;
        print(format!("{changes}\n{}", HaltStatus::of(&env, &prefix, Some(&halt)).text()))
    }

    fn apply(&self, halt: &mut Halt, end: Option<ChangedEnd>) -> String {
        let (set, unset) = (&self.set, &self.unset);
        halt.immediate |= set.immediate;
        // Without anything to do, the plain command: a job that it has stopped is not started again either.
        let is_plain = *set == Conditions::default() && *unset == Unset::default();
        let is_now = set.immediate || set.checkpoints == Some(0) || is_plain;
        let reason = is_now.then(|| Halt::HALTED.to_owned());
        let left = set.checkpoints.filter(|left| *left > 0);
        [
            change("CheckpointsLeft", &mut halt.checkpoints_left, left, unset.unset_checkpoints),
            change("ExitAfter", &mut halt.exit_after, set.after, unset.unset_after),
            change("ExitBefore", &mut halt.exit_before, set.before, unset.unset_before),
            change("HaltSeconds", &mut halt.halt_seconds, set.seconds, unset.unset_seconds),
            change("ExitReason", &mut halt.exit_reason, reason, unset.unset_reason),
            change("AllocationEnd", &mut halt.changed_end, end, unset.unset_end),
        ]
        .concat()
    }
}

/// Sets or unsets a condition, and says so in the words of C SCR. One that is both set and unset counts as set.
fn change<T>(name: &str, condition: &mut Option<T>, set: Option<T>, unset: bool) -> String {
    let what = match (&set, unset) {
        (Some(_), _) => "Setting",
        (None, true) => "Unsetting",
        (None, false) => return String::new(),
    };
    *condition = set;
    format!("{what} {name}\n")
}

/// Why a job is not started, in the words of C SCR.
pub(crate) fn in_classic_words(reason: &HaltReason, now: i64) -> String {
    let past = |what: &str, time: i64| {
        format!("Current time ({}) is past {what} time ({})", time::in_words(now), time::in_words(time))
    };
    match reason {
        HaltReason::ExitReason(reason) => format!("Reason: {reason}"),
        HaltReason::NoCheckpointsLeft => "No checkpoints remaining".to_owned(),
        HaltReason::ExitAfter { time } => past("ExitAfter", *time),
        HaltReason::ExitBefore { time, halt_seconds } => {
            past("ExitBefore-HaltSeconds", time.saturating_sub(*halt_seconds))
        }
        HaltReason::AllocationEnds { .. } => reason.to_string(),
    }
}

/// The conditions. Times are seconds since the epoch.
struct HaltStatus {
    file: String,
    halt: Halt,
    /// Why a job would halt now, in words.
    holds: Option<String>,
}

impl HaltStatus {
    /// The status of a prefix directory; `None` if there is no file.
    fn of(env: &Env, prefix: &Prefix, halt: Option<&Halt>) -> Self {
        let halt = halt.cloned().unwrap_or_default();
        // The other conditions are shown all the same where nothing is known of an allocation.
        let job = JobContext::on(&JobArgs::default().or_in(Some(prefix.dir())), None, false);
        let end = job.as_ref().map(|job| job.allocation.end()).unwrap_or_default();
        let last = LastRun::read(&*env.files, prefix).ok().flatten().and_then(|run| run.end);
        let known = KnownEnd { time: end.time.or(last), ..end };
        if halt.halt_seconds > Some(0) && halt.due(environment::now(env), known).is_none() {
            warn(
                "the end of the allocation is not known, so HaltSeconds halts only a job that knows it: --end gives it, --before \
                 another time",
            );
        }
        let holds = halt.reason(environment::now(env), end);
        holds.iter().for_each(|reason| warn(format_args!("{reason}; {}", reason.cure(prefix.dir()))));
        let holds = holds.map(|reason| reason.to_string());
        Self { file: prefix.halt_file().display().to_string(), halt, holds }
    }

    fn json(&self) -> Value {
        let Self { file, halt, holds } = self;
        json!({
            "file": file,
            "checkpoints_left": halt.checkpoints_left,
            "exit_after": halt.exit_after,
            "exit_before": halt.exit_before,
            "halt_seconds": halt.halt_seconds,
            "exit_reason": halt.exit_reason,
            "allocation_end": halt.changed_end.as_ref().map(|end| end.time),
            "holds": holds,
        })
    }

    fn text(&self) -> String {
        let halt = &self.halt;
        let number = |value: Option<i64>| value.map(|value| value.to_string());
        let latest = halt.exit_before.zip(halt.halt_seconds);
        let latest = latest.map(|(time, seconds)| time.saturating_sub(seconds));
        let end = halt.changed_end.as_ref().map(|end| end.time);
        // In the words of C SCR, which scripts look for.
        let lines = [
            ("ExitReason:     ", halt.exit_reason.clone()),
            ("CheckpointsLeft:", number(halt.checkpoints_left)),
            ("ExitAfter:      ", halt.exit_after.map(time::in_words)),
            ("ExitBefore:     ", halt.exit_before.map(time::in_words)),
            ("HaltSeconds:    ", number(halt.halt_seconds)),
            ("ExitBefore - HaltSeconds:", latest.map(time::in_words)),
            ("AllocationEnd:  ", end.map(time::in_words)),
        ];
        let set: String =
            lines.into_iter().filter_map(|(name, value)| Some(format!("  {name} {}\n", value?))).collect();
        let none = if set.is_empty() { "  None\n" } else { "" };
        format!("Halt file settings for {}:\n{set}{none}", self.file)
    }
}
