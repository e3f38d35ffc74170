//! `scr halt`, and `scr_halt`: the conditions on which a job stops. See the user guide's section "Halt a job".
//!
//! They lie in `.scr/halt.scr` of the prefix directory, which a running job reads; it is changed in place under its lock.
//!
//! - `cntl`: `scr halt-cntl`

pub(crate) mod cntl;

use crate::environment;
use crate::machine::{current_job_id, Manifests};
use crate::output::{print, show, warn, Answer};
use crate::run::{IgnoredVerbose, JobArgs, JobContext};
use crate::time::{self, Ahead};
use anyhow::{Context, Result};
use clap::Args;
use scr_base::env::Env;
use scr_config::param;
use scr_prefix::{ChangedEnd, Halt, HaltReason, LastRun, Prefix};
use serde::Serialize;
use std::path::PathBuf;

/// Text below the help.
pub(crate) const EXIT_CODES: &str = "\
Without options, the job halts after its next checkpoint and is not restarted. It stops when the application calls \
SCR_Should_exit. With SCR_HALT_EXIT=1, scr ends it.

Exit codes: 0 done, 2 error. With --list: 0 the job should halt now, 1 it should not, 2 error.";

/// The changes, and the halt file.
#[derive(Args)]
pub(crate) struct HaltArgs {
    #[command(flatten)]
    set: Conditions,
    #[command(flatten)]
    unset: Unset,
    /// List the conditions, and say whether one of them holds now
    #[arg(short, long, group = "instead", conflicts_with_all = ["set", "unset"])]
    list: bool,
    /// Remove the halt file, and so all conditions
    #[arg(short, long, group = "instead", conflicts_with_all = ["set", "unset"])]
    remove: bool,
    /// The prefix directory [default: SCR_PREFIX, or the current folder]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The same as DIR
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    prefix: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
    #[command(flatten)]
    _ignored: IgnoredVerbose,
}

/// Conditions to be set.
#[derive(Args, Default, PartialEq)]
#[group(id = "set", multiple = true)]
struct Conditions {
    /// Halt after N more checkpoints
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    checkpoints: Option<i64>,
    /// Halt after the first checkpoint at or after TIME, such as 2h, '12:00pm today' or '2026-12-24 18:00'
    #[arg(short, long, value_name = "TIME", value_parser = time::ahead)]
    after: Option<Ahead>,
    /// Halt before TIME, such as '+2 hours' or '8:30am tomorrow'; --seconds says how long before
    #[arg(short, long, value_name = "TIME", value_parser = time::ahead)]
    before: Option<Ahead>,
    /// Halt this long before the time of --before, or before the allocation ends
    #[arg(short, long, value_name = "SECONDS", value_parser = time::whole_seconds)]
    seconds: Option<i64>,
    /// The allocation ends at TIME: its time limit was changed, and the job does not know
    #[arg(long, value_name = "TIME", value_parser = time::ahead)]
    end: Option<Ahead>,
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
    let dir = args.dir.as_deref().or(args.prefix.as_deref());
    let mut env = environment::env_at(dir)?;
    let prefix = environment::prefix(&mut env, dir)?;
    if !environment::was_used(&prefix) {
        let holds =
            if args.list || args.remove { "" } else { "; the conditions hold for the next one that does" };
        warn(format_args!("{}{holds}", environment::unused(&prefix)));
    }
    if args.list {
        return list(&env, &prefix, args.json);
    }
    if args.remove {
        let path = prefix.halt_file();
        print(match Halt::remove(&*env.files, &prefix)? {
            true => format!("removed {}: no condition is left\n", path.display()),
            false => format!("there is no {}: nothing halts a job here\n", path.display()),
        })?;
        return Ok(Answer::Yes);
    }
    let [_, _, end] = args.set.times();
    let end = end.map(|time| changed_end(&env, &prefix, time)).transpose()?;
    let updated = Halt::update(&*env.files, &prefix, |halt| {
        args.apply(halt);
        change(&mut halt.changed_end, end.clone(), args.unset.unset_end);
        halt.clone()
    });
    let path = prefix.halt_file();
    let updated = updated.with_context(|| format!("cannot change {}", path.display()))?;
    if !updated.locked {
        warn(format_args!(
            "{} cannot be locked here: look with `scr halt --list' whether a job has written it at the same time",
            path.display()
        ));
    }
    args.set.doubts().for_each(warn);
    warn_without_seconds(&env, &updated.value);
    if args.set.immediate {
        warn(
            "scr run ends the run now; a job that was started without it stops at its next check. To end that at once, kill \
             its step with the resource manager (scancel JOB.STEP under Slurm), not the allocation: that would lose the cache",
        );
    }
    print(HaltStatus::of(&env, &prefix, Some(&updated.value)).text())?;
    Ok(Answer::Yes)
}

/// The end of the allocation whose job began last in the prefix directory, or else of the one that this command runs in.
fn changed_end(env: &Env, prefix: &Prefix, time: i64) -> Result<ChangedEnd> {
    let here = || current_job_id(env, &environment::params(env), &Manifests::load(env)?);
    let last = LastRun::read(&*env.files, prefix).ok().flatten();
    let job_id = last.map_or_else(here, |run| Ok(run.job_id))?;
    Ok(ChangedEnd { job_id, time })
}

fn list(env: &Env, prefix: &Prefix, json: bool) -> Result<Answer> {
    let halt = Halt::read(&*env.files, prefix)
        .with_context(|| format!("cannot read {}", prefix.halt_file().display()))?;
    let listing = HaltStatus::of(env, prefix, halt.as_ref());
    show(json, serde_json::to_value(&listing)?, listing.text())?;
    Ok(Answer::from(listing.holds()))
}

/// A time to halt before has no effect without halt seconds.
fn warn_without_seconds(env: &Env, halt: &Halt) {
    if halt.exit_before.is_none() || halt.halt_seconds.is_some_and(|seconds| seconds > 0) {
        return;
    }
    let seconds = environment::params(env).get(&param::HALT_SECONDS).as_secs();
    let hint = if seconds > 0 {
        format!(", for example {seconds} as SCR_HALT_SECONDS has it")
    } else {
        String::new()
    };
    warn(format_args!("--before has no effect without halt seconds; set them with scr halt --seconds{hint}"));
}

impl Conditions {
    /// Of `after`, `before` and `end`, in seconds since the epoch.
    fn times(&self) -> [Option<i64>; 3] {
        [&self.after, &self.before, &self.end].map(|time| time.as_ref().map(|time| time.seconds))
    }

    fn doubts(&self) -> impl Iterator<Item = &str> {
        let times = [&self.after, &self.before, &self.end].into_iter().flatten();
        times.filter_map(|time| time.doubt.as_deref())
    }
}

impl HaltArgs {
    fn apply(&self, halt: &mut Halt) {
        let (set, unset) = (&self.set, &self.unset);
        change(&mut halt.checkpoints_left, set.checkpoints, unset.unset_checkpoints);
        let [after, before, _] = set.times();
        change(&mut halt.exit_after, after, unset.unset_after);
        change(&mut halt.exit_before, before, unset.unset_before);
        change(&mut halt.halt_seconds, set.seconds, unset.unset_seconds);
        // Without anything to do, the plain command of the guide: a job that it has stopped is not started again either.
        let reason = (set.immediate || self.is_plain()).then(|| Halt::HALTED.to_owned());
        change(&mut halt.exit_reason, reason, unset.unset_reason);
        halt.immediate |= set.immediate;
    }

    fn is_plain(&self) -> bool {
        self.set == Conditions::default() && self.unset == Unset::default()
    }
}

/// Sets or unsets a condition. One that is both set and unset counts as set.
fn change<T>(condition: &mut Option<T>, set: Option<T>, unset: bool) {
    if set.is_some() || unset {
        *condition = set;
    }
}

/// The conditions. Times are seconds since the epoch.
#[derive(Serialize)]
struct HaltStatus {
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
    fn of(env: &Env, prefix: &Prefix, halt: Option<&Halt>) -> Self {
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
    fn holds(&self) -> bool {
        self.holds.is_some()
    }

    fn is_finished(&self) -> bool {
        self.exit_reason.as_deref() == Some(Halt::FINALIZED)
    }

    fn text(&self) -> String {
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
