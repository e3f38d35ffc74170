//! Catches a job that hangs: one that writes no checkpoint in the time it is expected to. See docs/user/running.md.
//!
//! The runtime records every dataset under the prefix directory, when it is complete in cache and when it has been copied;
//! the watchdog looks at these records. Data that goes to the parallel file system has its own timeout. An application
//! that has called `SCR_Finalize` writes no more checkpoints and is not watched.

use crate::prelude::*;
use scr_prefix::Location;

/// The times that are expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeouts {
    /// Between checkpoints that go to cache; `None` for as long as it takes.
    cache: Option<Duration>,
    /// A checkpoint goes to the prefix directory or comes from it.
    prefix: Option<Duration>,
    /// Whether all checkpoints go there.
    bypass: bool,
}

/// The activity of the application, as far as the files show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has no dataset of its own yet: it may be fetching one from the prefix directory.
    Starting,
    /// It computes or writes to cache.
    Working,
    /// It copies a dataset to the prefix directory.
    Flushing,
    /// It will write no more checkpoints.
    Finalized,
}

impl Timeouts {
    /// The user's limits. `None` if the watchdog is off.
    pub(super) fn of(params: &Params) -> Option<Self> {
        params.get(&param::WATCHDOG).then(|| Self {
            cache: params.get(&param::WATCHDOG_TIMEOUT),
            prefix: params.get(&param::WATCHDOG_TIMEOUT_PFS),
            bypass: params.get(&param::CACHE_BYPASS),
        })
    }

    /// When a run that hangs is not ended, as a time is not set; `None` where it always is.
    pub(super) fn gap(&self) -> Option<&'static str> {
        match (self.cache, self.prefix, self.bypass) {
            (None, None, _) => {
                Some("neither SCR_WATCHDOG_TIMEOUT nor SCR_WATCHDOG_TIMEOUT_PFS is set: nothing is watched")
            }
            (Some(_), None, true) => Some(
                "SCR_WATCHDOG_TIMEOUT_PFS is not set, and with SCR_CACHE_BYPASS=1 no other time counts: nothing is watched",
            ),
            (Some(_), None, false) => Some(
                "SCR_WATCHDOG_TIMEOUT_PFS is not set: a run that hangs before its first dataset, or while one is flushed, is not ended",
            ),
            (None, Some(_), false) => Some(
                "SCR_WATCHDOG_TIMEOUT is not set: a run that hangs before its first dataset, or between two, is not ended",
            ),
            (_, Some(_), _) => None,
        }
    }

    fn limit(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Finalized => None,
            Phase::Flushing => self.prefix,
            Phase::Working if self.bypass => self.prefix,
            Phase::Working => self.cache,
            // It takes as long as the longer of the two; one that is not set may take forever.
            Phase::Starting if self.bypass => self.prefix,
            Phase::Starting => Some(self.prefix?.max(self.cache?)),
        }
    }
}

/// Watches one run.
pub(super) struct Watchdog<'a> {
    timeouts: Timeouts,
    files: &'a dyn Files,
    prefix: &'a Prefix,
    /// The newest dataset before the run.
    newest_before: Option<u64>,
    /// The last seen state of the files under the prefix directory, and since when it is so.
    last: [Option<FileStamp>; 4],
    since: Duration,
    /// When it looked last.
    looked: Duration,
}

impl<'a> Watchdog<'a> {
    /// A run begins at the time `now`.
    pub(super) fn new(timeouts: Timeouts, files: &'a dyn Files, prefix: &'a Prefix, now: Duration) -> Self {
        let newest_before = FlushFile::read(files, prefix).ok().and_then(|file| file.highest_id());
        Self {
            timeouts,
            files,
            prefix,
            newest_before,
            last: file_stamps(files, prefix),
            since: now,
            looked: now,
        }
    }

    /// For how long the run has gone on without anything happening, where that is too long. The time counts in which the run was
    /// seen to go on: not while its launcher is suspended, nor where this process was suspended with it and looks late.
    pub(super) fn is_hanging(&mut self, now: Duration, is_suspended: bool) -> Option<Duration> {
        let since_last = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        if is_suspended || since_last > LATE {
            self.since += since_last;
        }
        let seen = file_stamps(self.files, self.prefix);
        if seen != self.last {
            (self.last, self.since) = (seen, now);
        }
        let waited = now.saturating_sub(self.since);
        self.timeouts.limit(self.phase()).filter(|&limit| waited > limit).map(|_| waited)
    }

    fn phase(&self) -> Phase {
        // Conditions of an earlier run in the halt file would have stopped this one.
        if Halt::read(self.files, self.prefix).is_ok_and(|halt| halt.is_some_and(|halt| halt.is_finalized()))
        {
            return Phase::Finalized;
        }
        let file = FlushFile::read(self.files, self.prefix).unwrap_or_default();
        let entries = file.entries();
        if entries.iter().any(|entry| Location::UNDER_WAY.iter().any(|way| entry.is_at(*way))) {
            return Phase::Flushing;
        }
        // Numbers of datasets only grow.
        if file.highest_id() <= self.newest_before {
            return Phase::Starting;
        }
        Phase::Working
    }
}

/// A value that changes whenever a dataset becomes complete somewhere, or the application begins or ends.
fn file_stamps(files: &dyn Files, prefix: &Prefix) -> [Option<FileStamp>; 4] {
    let paths = [prefix.flush_file(), prefix.index_file(), prefix.nodes_file(), prefix.halt_file()];
    paths.map(|path| stamp(files, &path))
}

/// That of a file; `None` where there is none.
pub(super) fn stamp(files: &dyn Files, path: &Path) -> Option<FileStamp> {
    let status = files.status(path).ok()?;
    Some((status.identity, status.mtime, status.len))
}

/// Changes with each change of a file. Reading the file changes none of this.
pub(super) type FileStamp = ((u64, u64), (i64, u32), u64);

/// It looks every second, and file systems may be slow.
const LATE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_prefix::{DatasetDescriptor, LastRun};

    const SECOND: Duration = Duration::from_secs(1);

    fn timeouts(cache: u32, prefix: u32, bypass: bool) -> Timeouts {
        let time = |seconds: u32| (seconds > 0).then(|| SECOND * seconds);
        Timeouts { cache: time(cache), prefix: time(prefix), bypass }
    }

    #[test]
    fn the_time_limit_depends_on_where_data_goes() {
        for (times, phase, limit) in [
            ((10, 60, false), Phase::Working, 10),
            ((10, 60, true), Phase::Working, 60),
            ((10, 60, false), Phase::Flushing, 60),
            ((10, 60, false), Phase::Starting, 60),
            ((60, 10, false), Phase::Starting, 60),
            ((10, 0, false), Phase::Starting, 0),
            ((0, 10, false), Phase::Starting, 0),
            ((0, 10, true), Phase::Starting, 10),
            ((10, 0, false), Phase::Flushing, 0),
            ((0, 10, false), Phase::Working, 0),
            ((10, 60, false), Phase::Finalized, 0),
        ] {
            let (cache, prefix, bypass) = times;
            let expected = (limit > 0).then(|| SECOND * limit);
            assert_eq!(timeouts(cache, prefix, bypass).limit(phase), expected, "{times:?} {phase:?}");
        }
    }

    /// With one of them set nothing was said, and a run that hung at its start was not ended.
    #[test]
    fn a_time_that_is_missing_is_named_unless_no_phase_waits_for_it() {
        let gap = |cache, prefix, bypass| timeouts(cache, prefix, bypass).gap();
        let phases = [Phase::Starting, Phase::Working, Phase::Flushing];
        for (cache, prefix) in [(0, 0), (10, 0), (0, 60), (10, 60)] {
            for bypass in [false, true] {
                let times = timeouts(cache, prefix, bypass);
                let is_watched = |phase: &Phase| times.limit(*phase).is_some();
                assert_eq!(times.gap().is_none(), phases.iter().all(is_watched), "{times:?}");
                let is_idle = times.gap().is_some_and(|gap| gap.contains("nothing is watched"));
                assert_eq!(is_idle, !phases.iter().any(is_watched), "{times:?}");
            }
        }
        assert!(gap(10, 0, false).unwrap().contains("SCR_WATCHDOG_TIMEOUT_PFS is not set"));
        assert!(gap(0, 60, false).unwrap().contains("SCR_WATCHDOG_TIMEOUT is not set"));
    }

    /// A job that was suspended for a while was killed when it went on.
    #[test]
    fn the_time_in_which_a_run_is_suspended_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        prefix.make_scr_dir(&RealFiles).unwrap();
        let mut dog = Watchdog::new(timeouts(0, 30, true), &RealFiles, &prefix, SECOND);
        let mut now = SECOND;
        let mut look = |after: u32, is_suspended| {
            now += SECOND * after;
            dog.is_hanging(now, is_suspended)
        };
        assert_eq!((1..=29).find_map(|_| look(1, false)), None);
        assert_eq!(look(3600, false), None, "it was suspended with the run");
        assert_eq!((1..=100).find_map(|_| look(1, true)), None, "the launcher is suspended");
        assert_eq!(look(1, false), None, "exactly as long as expected");
        assert_eq!(look(1, false), Some(SECOND * 31));
    }

    #[test]
    fn every_checkpoint_starts_the_time_anew_and_the_last_call_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::new(dir.path());
        prefix.make_scr_dir(&RealFiles).unwrap();
        let mut dog = Watchdog::new(timeouts(10, 100, false), &RealFiles, &prefix, SECOND * 5);
        let is_hanging = |dog: &mut Watchdog<'_>, at: Duration| {
            dog.looked = at;
            dog.is_hanging(at, false)
        };
        assert_eq!(is_hanging(&mut dog, SECOND * 105), None, "starting");
        LastRun::default().write(&RealFiles, &prefix).unwrap();
        assert_eq!(is_hanging(&mut dog, SECOND * 200), None, "it was seen now");
        assert_eq!(is_hanging(&mut dog, SECOND * 300), None, "it may fetch a checkpoint");
        let note = |location| {
            let dataset = DatasetDescriptor { id: 1, checkpoint: true, ..Default::default() };
            FlushFile::update(&RealFiles, &prefix, |file| file.record(&dataset, location)).unwrap();
        };
        note(Location::Cache);
        assert_eq!(is_hanging(&mut dog, SECOND * 300), None, "a checkpoint was seen");
        assert_eq!(is_hanging(&mut dog, SECOND * 310), None, "exactly as long as expected");
        assert_eq!(is_hanging(&mut dog, SECOND * 311), Some(SECOND * 11));
        note(Location::SyncFlushing);
        assert_eq!(is_hanging(&mut dog, SECOND * 320), None);
        assert_eq!(is_hanging(&mut dog, SECOND * 420), None, "a flush takes longer");
        assert_eq!(is_hanging(&mut dog, SECOND * 421), Some(SECOND * 101));
        Halt::update(&RealFiles, &prefix, |halt| halt.exit_reason = Some(Halt::FINALIZED.to_owned()))
            .unwrap();
        assert_eq!(is_hanging(&mut dog, SECOND * 430), None);
        assert_eq!(is_hanging(&mut dog, SECOND * 100_000), None, "it has called SCR_Finalize");
    }
}
