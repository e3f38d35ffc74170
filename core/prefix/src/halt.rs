//! `halt.scr`: when the job should stop. The library and commands read and change it at the same time, so it is changed in place
//! under a lock, never replaced.
//!
//! The rules are those of docs/user/concepts.md. Times are seconds since the epoch.

use super::fields::set_or_remove;
use super::{Prefix, PrefixError};
use scr_base::env::local_time;
use scr_base::fs::{retried, At, Files, Updated};
use scr_plugin_api::kvtree::FieldError;
use scr_plugin_api::KvTree;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The cure for a damaged file.
const OF_DAMAGE: &str = "`scr halt --remove' takes the file away, and every condition with it";

/// The conditions on which the job should stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Halt {
    /// The number of checkpoints that are still to be completed.
    pub checkpoints_left: Option<i64>,
    /// Stop once this time has come.
    pub exit_after: Option<i64>,
    /// Stop before this time, by as much as `halt_seconds` says, if it says anything.
    pub exit_before: Option<i64>,
    /// Stop when so many seconds or fewer are left, before `exit_before` or the end of the allocation.
    pub halt_seconds: Option<i64>,
    /// Stop now, for this reason.
    pub exit_reason: Option<String>,
    /// With the reason [`HALTED`](Self::HALTED): `scr run` ends the run, and does not wait for its next checkpoint.
    pub immediate: bool,
    /// With the reason [`FINALIZED`](Self::FINALIZED): the run stopped since its allocation was about to end, and has not
    /// finished.
    pub stopped_in_time: bool,
    /// When an allocation ends, where that has changed since its job began.
    pub changed_end: Option<ChangedEnd>,
}

/// The end of an allocation, as a command has written it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedEnd {
    /// The id of the allocation. For another one, this says nothing.
    pub job_id: String,
    /// When it ends.
    pub time: i64,
}

/// The knowledge of a job or a command about its allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownEnd<'a> {
    /// Its id.
    pub job_id: &'a str,
    /// When it ends, as the settings and the resource manager have said at the start.
    pub time: Option<i64>,
}

/// Which halt seconds a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// Those of its settings.
    AsSet,
    /// Those of a file that was there before, if it gives any.
    AsInFile(Option<i64>),
}

/// A condition that is met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HaltReason {
    /// A reason is written in the file.
    ExitReason(String),
    /// The last of the wanted checkpoints is complete.
    NoCheckpointsLeft,
    /// The time after which to stop has come.
    ExitAfter { time: i64 },
    /// Too little time is left before the time before which to stop.
    ExitBefore { time: i64, halt_seconds: i64 },
    /// Too little time is left in the allocation.
    AllocationEnds { left: i64, halt_seconds: i64 },
}

/// When a job is to halt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HaltDue {
    /// A condition holds: after the next checkpoint, or at the next check.
    Now(HaltReason),
    /// Once so many more checkpoints are complete.
    AfterCheckpoints(i64),
    /// At this time.
    At(i64),
}

impl HaltReason {
    /// The way to start the job of this prefix directory all the same.
    pub fn cure(&self, prefix: &Path) -> String {
        let remove = format!("scr halt --remove {}", prefix.display());
        match self {
            Self::ExitReason(reason) if reason == Halt::FINALIZED => format!("`{remove}' lets it run again"),
            // A job writes its settings into the halt file again.
            Self::AllocationEnds { .. } => format!(
                "to continue anyway, unset SCR_HALT_SECONDS and run {remove}; or start the job in the next allocation"
            ),
            _ => format!("to continue anyway: {remove}"),
        }
    }
}

impl std::fmt::Display for HaltReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HaltReason::ExitReason(reason) if reason == Halt::FINALIZED => {
                write!(f, "the application has called SCR_Finalize, which has left the reason {reason}")
            }
            HaltReason::ExitReason(reason) => write!(f, "the halt file gives the reason {reason}"),
            HaltReason::NoCheckpointsLeft => write!(f, "no checkpoints are left to be taken"),
            HaltReason::ExitAfter { time } => write!(f, "the time to halt after has come: {}", local(*time)),
            HaltReason::ExitBefore { time, halt_seconds } => {
                let time = local(*time);
                write!(f, "{halt_seconds} seconds or less are left before the time to halt before: {time}")
            }
            HaltReason::AllocationEnds { left, halt_seconds } => {
                write!(f, "{left} seconds are left in the allocation, and at {halt_seconds} the job halts")
            }
        }
    }
}

/// A number that no calendar of this century has stays a number.
fn local(seconds: i64) -> String {
    let since = u32::try_from(seconds).map(|since| Duration::from_secs(since.into()));
    since.map_or_else(|_| seconds.to_string(), |since| local_time(UNIX_EPOCH + since))
}

impl Halt {
    /// The reason that `SCR_Finalize` leaves.
    pub const FINALIZED: &str = "SCR_FINALIZE_CALLED";

    /// The reason of a job that somebody has asked to halt.
    pub const HALTED: &str = "JOB_HALTED";

    /// Whether the run is to be ended at once.
    pub fn is_immediate(&self) -> bool {
        self.immediate && self.exit_reason.as_deref() == Some(Self::HALTED)
    }

    /// Whether the application has called `SCR_Finalize`.
    pub fn is_finalized(&self) -> bool {
        self.exit_reason.as_deref() == Some(Self::FINALIZED)
    }

    /// Reads the conditions, waiting for the lock; `None` where there is no file.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn read(files: &dyn Files, prefix: &Prefix) -> Result<Option<Self>, PrefixError> {
        let path = prefix.halt_file();
        let read = retried(files, |files| files.read_locked(&path))
            .map_err(|error| PrefixError::of_file(error, OF_DAMAGE))?;
        Ok(read.map(|tree| Self::from_tree(&tree).at("use", &path)).transpose()?)
    }

    /// The conditions that hold for a job: those of the file, and where no command and no running job has written any, the time
    /// that `SCR_HALT_SECONDS` gives. See docs/user/concepts.md.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn in_force(files: &dyn Files, prefix: &Prefix, halt_seconds: Duration) -> Result<Self, PrefixError> {
        let mut halt = Self::read(files, prefix)?.unwrap_or_default();
        if halt.is_of_library() {
            halt.halt_seconds = i64::try_from(halt_seconds.as_secs()).ok();
        }
        Ok(halt)
    }

    /// Reads, changes and writes the conditions in place under the lock, keeping what else is in the file. Makes
    /// the file where there is none.
    ///
    /// # Errors
    /// The file is damaged, then it is left as it is, or cannot be read or written.
    pub fn update<R>(
        files: &dyn Files,
        prefix: &Prefix,
        mut change: impl FnMut(&mut Halt) -> R,
    ) -> Result<Updated<R>, PrefixError> {
        // A batch script may ask for it before the first run.
        prefix.make_scr_dir(files)?;
        let path = prefix.halt_file();
        let updated = retried(files, |files| {
            files.update_locked(&path, |tree| {
                let mut halt = Self::from_tree(tree)?;
                let value = change(&mut halt);
                halt.write_into(tree);
                Ok::<_, FieldError>(value)
            })
        });
        let Updated { value, locked, everywhere } =
            updated.map_err(|error| PrefixError::of_file(error, OF_DAMAGE))?;
        Ok(Updated { value: value.at("use", &path)?, locked, everywhere })
    }

    /// Begins the conditions of a run whose settings give it `seconds` as halt seconds. A file that was there before says
    /// itself what they are, unless the library alone has written it, at the end of the last run. So a command can
    /// change them while the run continues.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    pub fn begin(files: &dyn Files, prefix: &Prefix, seconds: i64) -> Result<Begun, PrefixError> {
        let known = Self::read(files, prefix)?.unwrap_or_default();
        if known.halt_seconds.unwrap_or(0) == seconds {
            return Ok(Begun::AsSet);
        }
        if !known.is_of_library() {
            return Ok(Begun::AsInFile(known.halt_seconds));
        }
        let change = |halt: &mut Halt| match halt.is_of_library() {
            true => {
                halt.halt_seconds = Some(seconds);
                Begun::AsSet
            }
            // A command has just been there.
            false => Begun::AsInFile(halt.halt_seconds),
        };
        Ok(Self::update(files, prefix, change)?.value)
    }

    /// A run begins: that the last one has ended says nothing about this one. Other reasons stay.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    pub fn forget_end(files: &dyn Files, prefix: &Prefix) -> Result<(), PrefixError> {
        if Self::read(files, prefix)?.is_some_and(|halt| halt.is_finalized()) {
            let forget =
                |halt: &mut Halt| halt.exit_reason.take_if(|reason| reason.as_str() == Self::FINALIZED);
            Self::update(files, prefix, forget)?;
        }
        Ok(())
    }

    /// Records that a run has ended, and whether it has `stopped_in_time`. The halt seconds from its settings do not apply to the
    /// next run.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    pub fn end(
        files: &dyn Files,
        prefix: &Prefix,
        seconds: i64,
        stopped_in_time: bool,
    ) -> Result<(), PrefixError> {
        Self::update(files, prefix, |halt| {
            halt.exit_reason = Some(Self::FINALIZED.to_owned());
            halt.stopped_in_time = stopped_in_time;
            halt.halt_seconds.take_if(|found| *found == seconds);
        })?;
        Ok(())
    }

    /// Whether no command has written it.
    fn is_of_library(&self) -> bool {
        (self.exit_reason.is_none() || self.is_finalized())
            && Self { exit_reason: None, stopped_in_time: false, changed_end: None, ..self.clone() }
                == Self::default()
    }

    /// Removes the file, and with it every condition, also where it is damaged. Gives whether there was any.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn remove(files: &dyn Files, prefix: &Prefix) -> Result<bool, PrefixError> {
        Ok(files.remove_if_there(&prefix.halt_file())?)
    }

    /// Counts one more successful checkpoint.
    pub fn checkpoint_completed(&mut self) {
        self.checkpoints_left = self.checkpoints_left.map(|left| left.saturating_sub(1).max(0));
    }

    /// When the allocation ends. A changed end that has passed was wrong, as the allocation is still there.
    pub fn end_of(&self, allocation: KnownEnd<'_>, now: i64) -> Option<i64> {
        let changed =
            self.changed_end.as_ref().filter(|end| end.job_id == allocation.job_id && end.time > now);
        changed.map(|end| end.time).or(allocation.time)
    }

    /// Why the job of an allocation should stop at the time `now`, if it should.
    pub fn reason(&self, now: i64, allocation: KnownEnd<'_>) -> Option<HaltReason> {
        let goes_on = self.is_finalized() && self.stopped_in_time;
        if let Some(reason) = self.exit_reason.as_ref().filter(|_| !goes_on) {
            return Some(HaltReason::ExitReason(reason.clone()));
        }
        if self.checkpoints_left.is_some_and(|left| left <= 0) {
            return Some(HaltReason::NoCheckpointsLeft);
        }
        if let Some(time) = self.exit_after.filter(|&time| now >= time) {
            return Some(HaltReason::ExitAfter { time });
        }
        let seconds = self.halt_seconds.unwrap_or(0).max(0);
        let left = |time: i64| time.saturating_sub(now).max(0);
        if let Some(time) = self.exit_before.filter(|&time| left(time) <= seconds) {
            return Some(HaltReason::ExitBefore { time, halt_seconds: seconds });
        }
        let left = self.end_of(allocation, now).map(left).filter(|&left| seconds > 0 && left <= seconds)?;
        Some(HaltReason::AllocationEnds { left, halt_seconds: seconds })
    }

    /// When the job of an allocation is to stop, if it is: the first time at which [`reason`](Self::reason) gives one, or the
    /// number of checkpoints where no time is known.
    pub fn due(&self, now: i64, allocation: KnownEnd<'_>) -> Option<HaltDue> {
        if let Some(reason) = self.reason(now, allocation) {
            return Some(HaltDue::Now(reason));
        }
        let seconds = self.halt_seconds.unwrap_or(0).max(0);
        let before = |time: Option<i64>| Some(time?.saturating_sub(seconds));
        let end = self.end_of(allocation, now).filter(|_| seconds > 0);
        let times = [self.exit_after, before(self.exit_before), before(end)];
        match times.into_iter().flatten().min() {
            Some(time) => Some(HaltDue::At(time)),
            None => self.checkpoints_left.map(HaltDue::AfterCheckpoints),
        }
    }

    /// From a tree.
    ///
    /// # Errors
    /// Names the field that is malformed.
    pub fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        Ok(Self {
            checkpoints_left: tree.parse("CheckpointsLeft")?,
            exit_after: tree.parse("ExitAfter")?,
            exit_before: tree.parse("ExitBefore")?,
            halt_seconds: tree.parse("HaltSeconds")?,
            exit_reason: tree.parse("ExitReason")?,
            immediate: tree.get("Immediate").is_some(),
            stopped_in_time: tree.get("StoppedInTime").is_some(),
            changed_end: match (tree.parse("AllocationId")?, tree.parse("AllocationEnd")?) {
                (Some(job_id), Some(time)) => Some(ChangedEnd { job_id, time }),
                _ => None,
            },
        })
    }

    /// Sets or removes every condition in `tree`, and keeps other keys.
    pub fn write_into(&self, tree: &mut KvTree) {
        set_or_remove(tree, "CheckpointsLeft", self.checkpoints_left);
        set_or_remove(tree, "ExitAfter", self.exit_after);
        set_or_remove(tree, "ExitBefore", self.exit_before);
        set_or_remove(tree, "HaltSeconds", self.halt_seconds);
        set_or_remove(tree, "ExitReason", self.exit_reason.as_ref());
        set_or_remove(tree, "Immediate", self.is_immediate().then_some(1));
        let stopped_in_time = self.is_finalized() && self.stopped_in_time;
        set_or_remove(tree, "StoppedInTime", stopped_in_time.then_some(1));
        let changed = self.changed_end.as_ref();
        set_or_remove(tree, "AllocationId", changed.map(|end| &end.job_id));
        set_or_remove(tree, "AllocationEnd", changed.map(|end| end.time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{damage, scratch, scratch_copy, tree};
    use scr_base::fs::RealFiles;
    use std::fs;

    fn ending(time: i64) -> KnownEnd<'static> {
        KnownEnd { job_id: "1", time: Some(time) }
    }

    #[test]
    fn the_file_of_c_scr_is_read_and_written_back_to_the_byte() {
        let (_dir, prefix) = scratch_copy("bypass");
        let before = fs::read(prefix.halt_file()).unwrap();
        let halt = Halt::read(&RealFiles, &prefix).unwrap().unwrap();
        assert_eq!(halt.exit_reason.as_deref(), Some("SCR_FINALIZE_CALLED"));
        Halt::update(&RealFiles, &prefix, |halt| halt.exit_reason = None).unwrap();
        Halt::update(&RealFiles, &prefix, |new| new.clone_from(&halt)).unwrap();
        assert_eq!(fs::read(prefix.halt_file()).unwrap(), before);
    }

    #[test]
    fn conditions_have_the_keys_of_the_manual() {
        let (_dir, prefix) = scratch();
        assert_eq!(Halt::read(&RealFiles, &prefix).unwrap(), None);
        let all = Halt {
            checkpoints_left: Some(7),
            exit_after: Some(1_298_937_600),
            exit_before: Some(1_298_944_800),
            halt_seconds: Some(1200),
            exit_reason: Some("SCR_FINALIZE_CALLED".to_owned()),
            ..Halt::default()
        };
        Halt::update(&RealFiles, &prefix, |halt| *halt = all.clone()).unwrap();
        assert_eq!(Halt::read(&RealFiles, &prefix).unwrap(), Some(all));
        let expected =
            "  CheckpointsLeft\n    7\n  ExitAfter\n    1298937600\n  ExitBefore\n    1298944800\n  \
                        HaltSeconds\n    1200\n  ExitReason\n    SCR_FINALIZE_CALLED\n";
        assert_eq!(tree(prefix.halt_file()).to_string(), expected);
    }

    /// C SCR writes the reason alone, for a job that is to halt after its next checkpoint.
    #[test]
    fn a_run_is_ended_at_once_only_if_requested_and_while_the_reason_holds() {
        let (_dir, prefix) = scratch();
        let update = |change: fn(&mut Halt)| {
            Halt::update(&RealFiles, &prefix, change).unwrap();
            Halt::read(&RealFiles, &prefix).unwrap().unwrap()
        };
        assert!(!update(|halt| halt.exit_reason = Some(Halt::HALTED.to_owned())).is_immediate());
        assert_eq!(tree(prefix.halt_file()).to_string(), "  ExitReason\n    JOB_HALTED\n");
        assert!(update(|halt| halt.immediate = true).is_immediate());
        assert!(!update(|halt| halt.exit_reason = None).immediate);
        assert_eq!(tree(prefix.halt_file()).to_string(), "");
    }

    #[test]
    fn keys_of_other_writers_survive_a_change() {
        let (_dir, prefix) = scratch_copy("bypass");
        damage(prefix.halt_file(), |tree| tree.set("Later", "kept"));
        Halt::update(&RealFiles, &prefix, |halt| *halt = Halt::default()).unwrap();
        assert_eq!(tree(prefix.halt_file()).to_string(), "  Later\n    kept\n");
    }

    #[test]
    fn a_halt_is_due_at_the_first_time_that_gives_a_reason() {
        let times = [None, Some(100), Some(140)];
        for (after, before) in times.iter().flat_map(|one| times.map(|other| (*one, other))) {
            for (end, seconds) in times.iter().flat_map(|end| [None, Some(0), Some(30)].map(|s| (*end, s))) {
                let halt = Halt {
                    exit_after: after,
                    exit_before: before,
                    halt_seconds: seconds,
                    checkpoints_left: Some(3),
                    ..Halt::default()
                };
                let allocation = KnownEnd { job_id: "1", time: end };
                let first = (0..200).find(|&now| halt.reason(now, allocation).is_some());
                let due = halt.due(0, allocation);
                assert_eq!(due, Some(first.map_or(HaltDue::AfterCheckpoints(3), HaltDue::At)), "{halt:?}");
                let Some(first) = first else { continue };
                assert!(matches!(halt.due(first, allocation), Some(HaltDue::Now(_))));
            }
        }
        assert_eq!(Halt::default().due(0, ending(10)), None);
    }

    #[test]
    fn each_condition_stops_the_job_when_it_is_met_and_not_before() {
        let reason = |halt: &Halt, now| halt.reason(now, ending(10_000));
        let none = Halt::default();
        assert_eq!(reason(&none, 20_000), None, "the end of the allocation alone is no condition");
        let mut counted = Halt { checkpoints_left: Some(2), ..none.clone() };
        counted.checkpoint_completed();
        assert_eq!(reason(&counted, 0), None);
        counted.checkpoint_completed();
        assert_eq!(reason(&counted, 0), Some(HaltReason::NoCheckpointsLeft));
        counted.checkpoint_completed();
        assert_eq!(counted.checkpoints_left, Some(0));

        let after = Halt { exit_after: Some(500), ..none.clone() };
        assert_eq!((reason(&after, 499), reason(&after, 500).is_some()), (None, true));

        let words = reason(&after, 500).unwrap().to_string();
        assert!(words.contains("come: 1970-01-01T") || words.contains("come: 1969-12-31T"), "{words}");
        let never = HaltReason::ExitAfter { time: i64::MAX };
        assert!(never.to_string().ends_with(&i64::MAX.to_string()));

        let before = Halt { exit_before: Some(500), ..none.clone() };
        for halt_seconds in [None, Some(0), Some(-1)] {
            let before = Halt { halt_seconds, ..before.clone() };
            let at_once = Some(HaltReason::ExitBefore { time: 500, halt_seconds: 0 });
            assert_eq!((reason(&before, 499), reason(&before, 500)), (None, at_once));
        }
        let before = Halt { halt_seconds: Some(100), ..before };
        assert_eq!(reason(&before, 399), None);
        assert_eq!(reason(&before, 400), Some(HaltReason::ExitBefore { time: 500, halt_seconds: 100 }));

        let end = Halt { halt_seconds: Some(100), ..none.clone() };
        assert_eq!((reason(&end, 9_899), end.reason(20_000, KnownEnd::default())), (None, None));
        let met = reason(&end, 9_900).unwrap();
        assert_eq!(met, HaltReason::AllocationEnds { left: 100, halt_seconds: 100 });
        assert_eq!(met.to_string(), "100 seconds are left in the allocation, and at 100 the job halts");

        let killed = Halt { exit_reason: Some("JOB_KILLED".to_owned()), ..none };
        assert_eq!(reason(&killed, 0).unwrap().to_string(), "the halt file gives the reason JOB_KILLED");
    }

    /// A job whose allocation was shortened was killed without a checkpoint, and one whose was extended halted at the old end.
    #[test]
    fn a_changed_end_counts_for_its_allocation_until_it_has_passed() {
        let (_dir, prefix) = scratch();
        Halt::begin(&RealFiles, &prefix, 60).unwrap();
        let changed = ChangedEnd { job_id: "7".to_owned(), time: 5000 };
        Halt::update(&RealFiles, &prefix, |halt| halt.changed_end = Some(changed.clone())).unwrap();
        let halt = Halt::read(&RealFiles, &prefix).unwrap().unwrap();
        assert_eq!(halt.changed_end, Some(changed));
        let halts = |job_id, time, now| halt.reason(now, KnownEnd { job_id, time }).is_some();
        assert!(halts("7", Some(9000), 4950) && !halts("7", Some(4000), 3950), "shortened, extended");
        assert!(!halts("8", Some(9000), 4950) && halts("8", Some(4000), 3950), "of another allocation");
        assert!(!halts("7", Some(9000), 5001), "it goes on all the same");
        assert!(halts("7", None, 4950));
        // The halt seconds are still those of the settings.
        Halt::end(&RealFiles, &prefix, 60, true).unwrap();
        assert_eq!(Halt::begin(&RealFiles, &prefix, 90).unwrap(), Begun::AsSet);
    }

    /// `scr run` did not start it in the next allocation either.
    #[test]
    fn a_run_that_has_stopped_in_time_has_not_finished() {
        let (_dir, prefix) = scratch();
        let in_force = || Halt::in_force(&RealFiles, &prefix, Duration::from_secs(60)).unwrap();
        Halt::begin(&RealFiles, &prefix, 60).unwrap();
        Halt::end(&RealFiles, &prefix, 60, true).unwrap();
        assert!(in_force().is_finalized(), "a hanging end is not killed");
        let ends = HaltReason::AllocationEnds { left: 50, halt_seconds: 60 };
        assert_eq!(in_force().reason(950, ending(1000)), Some(ends));
        assert_eq!(in_force().reason(950, ending(9000)), None, "in the next allocation");
        Halt::end(&RealFiles, &prefix, 60, false).unwrap();
        assert!(matches!(in_force().reason(950, ending(9000)), Some(HaltReason::ExitReason(_))));
        Halt::end(&RealFiles, &prefix, 60, true).unwrap();
        Halt::forget_end(&RealFiles, &prefix).unwrap();
        assert_eq!(Halt::read(&RealFiles, &prefix).unwrap(), Some(Halt::default()));
    }

    #[test]
    fn the_halt_seconds_of_the_settings_count_unless_a_command_was_there_first() {
        let (_dir, prefix) = scratch();
        let begin = |seconds| Halt::begin(&RealFiles, &prefix, seconds).unwrap();
        let found = || Halt::read(&RealFiles, &prefix).unwrap();
        assert_eq!((begin(0), found()), (Begun::AsSet, None), "nothing to say, no file");
        assert_eq!((begin(60), found().unwrap().halt_seconds), (Begun::AsSet, Some(60)));
        Halt::end(&RealFiles, &prefix, 60, false).unwrap();
        let ended = Halt { exit_reason: Some(Halt::FINALIZED.to_owned()), ..Halt::default() };
        assert_eq!(found(), Some(ended.clone()));
        // The next run has other settings, and dies.
        assert_eq!((begin(90), found()), (Begun::AsSet, Some(Halt { halt_seconds: Some(90), ..ended })));
        assert_eq!(begin(90), Begun::AsSet);
        // Conditions that it left, and those of a command, override the settings.
        assert_eq!(begin(60), Begun::AsInFile(Some(90)));
        Halt::update(&RealFiles, &prefix, |halt| {
            *halt = Halt { checkpoints_left: Some(3), ..Halt::default() }
        })
        .unwrap();
        assert_eq!(begin(60), Begun::AsInFile(None));
        assert_eq!(found().unwrap().halt_seconds, None);
    }

    #[test]
    fn times_beyond_all_bounds_do_no_harm() {
        let far = Halt {
            exit_after: Some(i64::MAX),
            exit_before: Some(i64::MIN),
            halt_seconds: Some(i64::MAX),
            ..Halt::default()
        };
        assert!(far.reason(i64::MAX - 1, ending(i64::MIN)).is_some());
        assert!(far.reason(i64::MIN, ending(i64::MAX)).is_some());
    }

    #[test]
    fn a_malformed_condition_is_named_and_left_as_it_is_until_the_file_is_removed() {
        let (_dir, prefix) = scratch_copy("bypass");
        damage(prefix.halt_file(), |tree| tree.set("ExitAfter", "noon"));
        let before = fs::read(prefix.halt_file()).unwrap();
        assert!(matches!(
            Halt::read(&RealFiles, &prefix),
            Err(PrefixError::Fs(scr_base::fs::FsError::Field { .. }))
        ));
        assert!(Halt::update(&RealFiles, &prefix, |halt| *halt = Halt::default()).is_err());
        assert_eq!(fs::read(prefix.halt_file()).unwrap(), before);
        Halt::remove(&RealFiles, &prefix).unwrap();
        Halt::remove(&RealFiles, &prefix).unwrap();
        assert_eq!(Halt::read(&RealFiles, &prefix).unwrap(), None);
    }

    #[test]
    fn no_count_is_lost_when_library_and_commands_write_at_once() {
        let (_dir, prefix) = scratch();
        Halt::update(&RealFiles, &prefix, |halt| halt.checkpoints_left = Some(1000)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        Halt::update(&RealFiles, &prefix, Halt::checkpoint_completed).unwrap();
                    }
                });
            }
        });
        assert_eq!(Halt::read(&RealFiles, &prefix).unwrap().unwrap().checkpoints_left, Some(900));
    }
}
