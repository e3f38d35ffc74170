//! Adds up what a job has cost, entry by entry.
//!
//! Between two entries a job does one thing, its [`Class`]. So all times add up to the elapsed time. A run that restarts from an
//! older state shows that what was computed since then is lost.

use super::figures::{Class, Figures, Level, Spent, State};
use super::record::{Event, Transfer, ALLOCATION_END};
use scr_plugin_api::LogEntry;
use scr_prefix::Halt;
use std::collections::BTreeSet;

/// A stretch of time, in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The activity of the job.
    pub class: Class,
    /// From then.
    pub from: u64,
    /// Until then.
    pub until: u64,
}

/// A transfer of bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Transferred {
    /// When it had ended, in microseconds since the epoch.
    pub at: u64,
    /// The kind of the transfer.
    pub level: Level,
    /// Bytes.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

/// The events of a job, step by step. A job at work keeps no such record of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// The activities of the job, in order and without gaps.
    pub segments: Vec<Segment>,
    /// The bytes that it moved.
    pub transfers: Vec<Transferred>,
    /// When runs have failed.
    pub failures: Vec<u64>,
    /// When checkpoints were complete.
    pub checkpoints: Vec<u64>,
}

/// The figures of a job, and what is needed to go on with them.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// How the job stands, and when that was said last. The times leave out its activity since then.
    pub(super) figures: Figures,
    history: Option<History>,
    /// All time until then is accounted for.
    at: Option<u64>,
    /// The activity of the job from then on, and when it began.
    class: Option<Class>,
    since: u64,
    /// How much of the time in which runs started was before the restart that may be under way, in microseconds.
    before_restart: u64,
    run: Option<Run>,
    /// Seconds of the runs before this one.
    earlier_runs: f64,
    /// The longest stretch of computing, in microseconds.
    usual: Option<u64>,
    marks: Vec<Mark>,
    /// The checkpoint of another job that the first run has restarted from.
    pub(super) inherits: Option<u64>,
    /// Datasets that are no checkpoints.
    outputs: BTreeSet<u64>,
    /// The scheme of the checkpoint that is being written.
    scheme: String,
}

/// A run, from its start until another one starts.
#[derive(Debug, Clone, Default)]
struct Run {
    began: u64,
    /// When the allocation ends, in microseconds.
    ends: Option<u64>,
    halted: bool,
    /// Seconds of parts that have a name.
    accounted: f64,
}

/// A checkpoint, and how much was computed before it.
#[derive(Debug, Clone, Copy)]
struct Mark {
    id: u64,
    at: u64,
    computed: u64,
}

/// The most checkpoints to remember; a restart from an older one counts as one from the oldest of them.
const MOST_MARKS: usize = 4096;
/// Resource managers end jobs up to a minute before the time that they give, in microseconds.
const END_IS_NEAR: u64 = 60_000_000;

impl Account {
    /// One that also records what happened step by step.
    pub fn with_history() -> Self {
        Self { history: Some(History::default()), ..Self::default() }
    }

    /// The figures as of a later time, in microseconds since the epoch: since its last entry the job does the same as before.
    pub fn figures_at(&self, now: u64) -> Figures {
        let now = now.max(self.figures.until);
        let mut account = Self { history: None, ..self.clone() };
        if let Some(at) = account.at {
            account.add(account.activity(), at, now);
            account.figures.until = now;
            account.count_run_time(now);
        }
        account.figures
    }

    /// The figures as of the last entry, and what happened step by step.
    pub fn into_parts(mut self) -> (Figures, History) {
        if let Some(at) = self.at {
            self.add(self.activity(), at, self.figures.until);
        }
        (self.figures, self.history.unwrap_or_default())
    }

    /// Takes the next entry of the job. One that seems to be older than the last counts as of that time.
    pub fn take(&mut self, entry: &LogEntry) {
        let now = entry.micros.max(self.figures.until);
        if self.at.is_none() {
            (self.figures.began, self.at) = (now, Some(now));
            self.figures.job_id.clone_from(&entry.job_id);
        }
        let event = Event::named(&entry.name);
        if matches!(event, Some(Event::Start | Event::RunStart | Event::PostrunStart)) {
            self.end_run_before(now);
        }
        self.figures.until = now;
        match event {
            Some(event) => self.happened(event, entry, now),
            None => self.moved(entry, now),
        }
        self.count_run_time(now);
    }

    fn happened(&mut self, event: Event, entry: &LogEntry, now: u64) {
        match event {
            Event::ComputeStart => self.turn_to(Class::Computing, now),
            Event::ComputeEnd => {
                self.spent(entry, |figures| &mut figures.computing);
                self.usual = self.usual.max(entry.seconds.map(micros));
                self.turn_to(Class::Checkpoint, now);
            }
            Event::CheckpointStart => self.turn_to(Class::Checkpoint, now),
            Event::OutputStart => {
                self.outputs.extend(entry.dataset);
                self.turn_to(Class::Checkpoint, now);
            }
            Event::CheckpointEnd => {
                self.spent(entry, |figures| &mut figures.checkpoints);
                self.mark(entry.dataset, now);
            }
            Event::OutputEnd => self.figures.outputs.add(entry.seconds),
            Event::CheckpointFail | Event::OutputFail => self.figures.failed_checkpoints += 1,
            Event::FlushStart => self.figures.flushing += 1,
            Event::FlushSuccess | Event::FlushFail => {
                self.figures.flushing = self.figures.flushing.saturating_sub(1);
                match event {
                    Event::FlushFail => self.figures.failed_flushes += 1,
                    _ if self.is_output(entry) => (),
                    _ => self.figures.newest_in_prefix = now,
                }
            }
            Event::FlushWait => self.wait(entry.seconds, now),
            event => self.happened_to_run(event, entry, now),
        }
    }

    /// Takes in an event that concerns the run as a whole, and not one dataset.
    fn happened_to_run(&mut self, event: Event, entry: &LogEntry, now: u64) {
        match event {
            Event::Start => self.start(entry, now),
            Event::RebuildSuccess | Event::RebuildFail => {
                self.spent(entry, |figures| &mut figures.rebuilds);
            }
            Event::Rebuilt => {
                let figures = &mut self.figures;
                let (parts, bytes) = (entry.processes.unwrap_or(0), entry.bytes.unwrap_or(0));
                figures.rebuilt_processes = figures.rebuilt_processes.saturating_add(parts);
                figures.damaged_bytes = figures.damaged_bytes.saturating_add(bytes);
            }
            Event::RestartStart => {
                self.restarts_from(entry.dataset, now);
                self.turn_to(Class::Restart, now);
            }
            Event::Current => self.restarts_from(entry.dataset, now),
            Event::RestartSuccess => {
                self.turn_to(Class::Computing, now);
                let all = self.figures.time(Class::Restart);
                let took = all - std::mem::replace(&mut self.before_restart, all);
                self.figures.restarts.add(Some(took as f64 / 1e6));
            }
            Event::RestartFail => {
                self.figures.failed_restarts += 1;
                self.turn_to(Class::Computing, now);
            }
            Event::Halt => self.halt(entry, now),
            Event::RunStart => {
                self.know(entry);
                self.turn_to(Class::Restart, now);
            }
            Event::RunEnd => self.end_run(entry, now),
            Event::NodeFail => self.figures.lost_nodes += 1,
            Event::PostrunStart => self.turn_to(Class::Saving, now),
            Event::ScavengeSuccess => self.figures.scavenged.add(entry.seconds),
            Event::PostrunEnd => self.turn_to(Class::Down, now),
            // Entries of these names are followed by others that say more.
            _ => (),
        }
    }

    fn moved(&mut self, entry: &LogEntry, now: u64) {
        let from = || entry.from.clone().unwrap_or_default();
        let in_place = entry.from == entry.to;
        let level = match Transfer::named(&entry.name) {
            Some(Transfer::Write) => Level::Written(from()),
            Some(Transfer::Encode) => {
                self.scheme = entry.scheme.clone().unwrap_or_default();
                Level::Encoded(entry.scheme.clone().unwrap_or_else(|| "redundancy".to_owned()))
            }
            Some(Transfer::Checkpoint) => {
                let kind = (from(), std::mem::take(&mut self.scheme));
                self.figures.kinds.entry(kind).or_default().add(entry.seconds);
                return;
            }
            Some(Transfer::FlushSync) => {
                match self.is_output(entry) {
                    true => self.spent(entry, |figures| &mut figures.output_flushes_sync),
                    false => self.spent(entry, |figures| &mut figures.flushes_sync),
                }
                if entry.run.is_none() {
                    // In C SCR's log nothing else says so.
                    self.wait(entry.seconds, now);
                }
                Level::FlushedSync
            }
            Some(Transfer::FlushAsync) => {
                self.figures.flushes_async.add(entry.seconds);
                Level::FlushedAsync
            }
            Some(Transfer::Fetch) => {
                self.spent(entry, |figures| &mut figures.fetches);
                Level::Fetched
            }
            Some(Transfer::Output) | None => return,
        };
        // Files that are in place are listed, and not copied.
        if in_place && matches!(level, Level::FlushedSync | Level::FlushedAsync) {
            return;
        }
        let (bytes, seconds) = (entry.bytes.unwrap_or(0), entry.seconds.unwrap_or(0.0));
        let moved = self.figures.moved.entry(level.clone()).or_default();
        moved.bytes = moved.bytes.saturating_add(bytes);
        moved.files = moved.files.saturating_add(entry.files.unwrap_or(0));
        moved.spent.add(entry.seconds);
        if let Some(history) = &mut self.history {
            history.transfers.push(Transferred { at: now, level, bytes, seconds });
        }
    }

    fn is_output(&self, entry: &LogEntry) -> bool {
        entry.dataset.is_some_and(|id| self.outputs.contains(&id))
    }

    /// Adds the seconds of an entry to a sum, and to what is known of the run.
    fn spent(&mut self, entry: &LogEntry, sum: impl Fn(&mut Figures) -> &mut Spent) {
        sum(&mut self.figures).add(entry.seconds);
        if let Some(run) = &mut self.run {
            run.accounted += entry.seconds.unwrap_or(0.0).max(0.0);
        }
    }

    /// Learns the owner and the other names of the job.
    fn know(&mut self, entry: &LogEntry) {
        let figures = &mut self.figures;
        let known = [
            (&mut figures.user, &entry.user),
            (&mut figures.job_name, &entry.job_name),
            (&mut figures.cluster, &entry.cluster),
        ];
        known.into_iter().filter(|(_, new)| !new.is_empty()).for_each(|(known, new)| known.clone_from(new));
    }

    fn start(&mut self, entry: &LogEntry, now: u64) {
        self.know(entry);
        self.turn_to(Class::Restart, now);
        let figures = &mut self.figures;
        figures.runs += 1;
        figures.flushing = 0;
        figures.state = State::Running;
        figures.processes = entry.processes.unwrap_or(figures.processes);
        figures.nodes = entry.nodes.unwrap_or(figures.nodes);
        let ends =
            entry.note.as_deref().and_then(|note| note.strip_prefix(ALLOCATION_END)?.parse::<u64>().ok());
        let ends = ends.map(|seconds| seconds.saturating_mul(1_000_000));
        self.run = Some(Run { began: now, ends, ..Run::default() });
    }

    /// No run goes on. If the last one has not said how it ended, it has died at some time since its last entry: it would have
    /// given a sign of life once it had computed as long as usual.
    fn end_run_before(&mut self, now: u64) {
        let Some(run) = self.run.take() else { return };
        let last = self.figures.until;
        self.earlier_runs = self.figures.run_seconds;
        if self.class != Some(Class::Down) {
            let next = self.usual.map_or(now, |usual| self.since.saturating_add(usual));
            self.turn_to(Class::Down, next.clamp(last, now));
        }
        if run.halted {
            return;
        }
        let met_its_end = run.meets_its_end(last, self.usual.unwrap_or(0));
        self.fail(last, met_its_end, now);
    }

    /// `scr run` has seen a run end.
    fn end_run(&mut self, entry: &LogEntry, now: u64) {
        self.turn_to(Class::Down, now);
        self.count_run_time(now);
        self.earlier_runs = self.figures.run_seconds;
        let Some(run) = self.run.take() else { return };
        let said =
            |wanted: &str| entry.note.iter().flat_map(|note| note.split(", ")).any(|word| word == wanted);
        if run.halted || said("status=0") || said("halted") {
            if self.figures.state == State::Running {
                self.figures.state = State::Halted;
            }
            return;
        }
        self.fail(now, run.meets_its_end(now, 0), now);
    }

    /// The run ended without a word, `at` that time. That its allocation ended is no failure.
    fn fail(&mut self, at: u64, met_its_end: bool, now: u64) {
        self.figures.state = State::Failed;
        if !met_its_end {
            self.figures.failures += 1;
            self.history.iter_mut().for_each(|history| history.failures.push(at));
        }
        self.lose_after(u64::MAX, now);
    }

    fn halt(&mut self, entry: &LogEntry, now: u64) {
        self.run.iter_mut().for_each(|run| run.halted = true);
        if entry.note.as_deref() == Some(Halt::FINALIZED) {
            self.turn_to(Class::Down, now);
            self.figures.state = State::Finished;
        }
    }

    /// The activity of the job since its last entry. No run counts as going on before one has said so.
    fn activity(&self) -> Class {
        self.class.unwrap_or(Class::Down)
    }

    /// The job does something else from now on.
    fn turn_to(&mut self, class: Class, now: u64) {
        let from = self.at.unwrap_or(now);
        let was = self.activity();
        self.class = Some(class);
        self.add(was, from, now);
        // A run that writes a checkpoint, or has ended, does not restart any more.
        if matches!(class, Class::Checkpoint | Class::Down) {
            self.before_restart = self.figures.time(Class::Restart);
        }
        if was == Class::Computing && class == Class::Checkpoint {
            self.usual = self.usual.max(Some(now - self.since));
        }
        if was != class {
            self.since = now;
        }
    }

    /// All time from `from`, until which it is accounted for, belongs to this class.
    fn add(&mut self, class: Class, from: u64, until: u64) {
        let until = until.max(from);
        self.at = Some(until);
        self.figures.times[class as usize] += until - from;
        if class == Class::Computing {
            self.figures.unsaved += until - from;
        }
        let Some(history) = self.history.as_mut().filter(|_| until > from) else { return };
        match history.segments.last_mut().filter(|last| last.class == class && last.until == from) {
            // Stretches of computing stay apart: a checkpoint lies between them, and it may be lost with all after it.
            Some(last) if class != Class::Computing => last.until = until,
            _ => history.segments.push(Segment { class, from, until }),
        }
    }

    /// The application has waited for flushes until now, whatever it does besides.
    fn wait(&mut self, seconds: Option<f64>, now: u64) {
        self.figures.flush_waits.add(seconds);
        let from = self.at.unwrap_or(now);
        let begun = now.saturating_sub(micros(seconds.unwrap_or(0.0))).max(from);
        self.add(self.activity(), from, begun);
        self.add(Class::Flush, begun, now);
    }

    /// A checkpoint is complete: what was computed until now is safe.
    fn mark(&mut self, id: Option<u64>, now: u64) {
        self.figures.newest_in_cache = now;
        self.figures.unsaved = 0;
        if self.marks.len() >= MOST_MARKS {
            self.marks.drain(..MOST_MARKS / 2);
        }
        let computed = self.figures.time(Class::Computing);
        self.marks.push(Mark { id: id.unwrap_or(0), at: now, computed });
        self.history.iter_mut().for_each(|history| history.checkpoints.push(now));
    }

    /// The run restarts from this checkpoint.
    fn restarts_from(&mut self, id: Option<u64>, now: u64) {
        let id = id.unwrap_or(u64::MAX);
        if self.marks.is_empty() && self.figures.runs == 1 {
            self.inherits = self.inherits.or(Some(id));
        }
        // The work of the last run since the newest checkpoint was lost when that run ended.
        if self.marks.last().is_some_and(|newest| newest.id > id) {
            self.lose_after(id, now);
        }
    }

    /// The work after this checkpoint is lost.
    pub(super) fn lose_after(&mut self, id: u64, now: u64) {
        if let Some(class) = self.class {
            self.add(class, self.at.unwrap_or(now), now.min(self.figures.until));
        }
        let kept = self.marks.iter().rposition(|mark| mark.id <= id).map_or(0, |at| at + 1);
        self.marks.truncate(kept);
        let (at, computed) = self.marks.last().map_or((0, 0), |mark| (mark.at, mark.computed));
        let times = &mut self.figures.times;
        let lost = times[Class::Computing as usize].saturating_sub(computed);
        times[Class::Computing as usize] -= lost;
        times[Class::Lost as usize] += lost;
        self.figures.unsaved = 0;
        let segments = self.history.iter_mut().flat_map(|history| history.segments.iter_mut().rev());
        for segment in segments.take_while(|segment| segment.from >= at) {
            if segment.class == Class::Computing {
                segment.class = Class::Lost;
            }
        }
    }

    fn count_run_time(&mut self, now: u64) {
        if let Some(run) = &self.run {
            // C SCR's log has whole seconds, so that of a short run what each part took is more exact.
            let seconds = ((now - run.began) as f64 / 1e6).max(run.accounted);
            self.figures.run_seconds = self.earlier_runs + seconds;
        }
    }
}

/// Seconds in microseconds; none of what is no length of time.
fn micros(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e6) as u64
}

impl Run {
    /// Whether the allocation ended not later than so long after the last sign of the run.
    fn meets_its_end(&self, last: u64, micros: u64) -> bool {
        self.ends.is_some_and(|ends| last.saturating_add(micros.max(END_IS_NEAR)) >= ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64, name: &str) -> LogEntry {
        let (name, job_id) = (name.to_owned(), "7".to_owned());
        LogEntry { name, job_id, micros: second * 1_000_000, run: Some(1), ..LogEntry::default() }
    }

    fn of(dataset: u64, entry: LogEntry) -> LogEntry {
        LogEntry { dataset: Some(dataset), ..entry }
    }

    fn noted(note: &str, entry: LogEntry) -> LogEntry {
        LogEntry { note: Some(note.to_owned()), ..entry }
    }

    fn took(seconds: f64, entry: LogEntry) -> LogEntry {
        LogEntry { seconds: Some(seconds), ..entry }
    }

    fn account(entries: &[LogEntry]) -> (Figures, History) {
        let mut account = Account::with_history();
        entries.iter().for_each(|entry| account.take(entry));
        account.into_parts()
    }

    fn seconds(figures: &Figures) -> Vec<(Class, f64)> {
        let all = Class::ALL.iter().map(|&class| (class, figures.seconds(class)));
        all.filter(|(_, seconds)| *seconds > 0.0).collect()
    }

    /// Until the checkpoint of this number is complete, from a start at this second on: 2 seconds to start, 10 to compute, 3 for
    /// the checkpoint, of which one is a wait for a flush.
    fn checkpoint(second: u64, id: u64) -> Vec<LogEntry> {
        vec![
            at(second, "START"),
            at(second + 2, "COMPUTE_START"),
            at(second + 12, "COMPUTE_END"),
            of(id, at(second + 12, "CHECKPOINT_START")),
            of(id, took(2.0, at(second + 14, "CHECKPOINT_END"))),
            took(1.0, at(second + 15, "FLUSH_WAIT")),
            at(second + 15, "COMPUTE_START"),
        ]
    }

    #[test]
    fn every_second_has_a_class_and_what_a_failure_undid_was_computed_twice() {
        let mut entries = vec![at(0, "RUN_START")];
        entries.extend(checkpoint(1, 1));
        entries.push(noted("run=1, status=9", at(24, "RUN_END")));
        entries.push(at(30, "RUN_START"));
        entries.extend(checkpoint(31, 2));
        entries.insert(entries.len() - 5, of(1, at(35, "RESTART_START")));
        entries.insert(entries.len() - 5, of(1, at(36, "RESTART_SUCCESS")));
        entries.push(noted(Halt::FINALIZED, at(50, "HALT")));
        let (figures, history) = account(&entries);
        let expected = [
            (Class::Computing, 10.0 + 9.0 + 4.0),
            (Class::Lost, 8.0),
            (Class::Checkpoint, 4.0),
            (Class::Flush, 2.0),
            (Class::Restart, 3.0 + 3.0 + 1.0),
            (Class::Down, 6.0),
        ];
        assert_eq!(seconds(&figures), expected);
        assert_eq!(figures.elapsed(), 50_000_000);
        let sum: u64 = Class::ALL.iter().map(|class| figures.time(*class)).sum();
        assert_eq!(sum, figures.elapsed());
        assert_eq!((figures.state, figures.runs, figures.failures), (State::Finished, 2, 1));
        assert_eq!((figures.restarts.count, figures.restarts.seconds), (1, 4.0));
        assert_eq!(history.failures, [24_000_000]);
        assert_eq!(history.segments.first().map(|first| first.from), Some(0));
        assert!(history.segments.windows(2).all(|pair| pair[0].until == pair[1].from), "{history:?}");
        let of_history = |class| {
            let of_class = history.segments.iter().filter(|segment| segment.class == class);
            of_class.map(|segment| segment.until - segment.from).sum::<u64>()
        };
        Class::ALL.iter().for_each(|class| assert_eq!(of_history(*class), figures.time(*class), "{class:?}"));
    }

    #[test]
    fn a_restart_from_an_older_checkpoint_loses_what_the_newer_ones_had() {
        let mut entries = checkpoint(0, 1);
        entries.extend(checkpoint(15, 2)[2..].to_vec());
        entries.extend([at(40, "START"), at(41, "COMPUTE_START"), of(2, at(41, "RESTART_START"))]);
        entries.extend([of(2, at(42, "RESTART_FAIL"))]);
        let (before, _) = account(&entries);
        entries.extend([of(1, at(42, "RESTART_START")), of(1, at(43, "RESTART_SUCCESS"))]);
        let (after, _) = account(&entries);
        assert_eq!(before.seconds(Class::Computing), 22.0);
        assert_eq!((after.seconds(Class::Computing), after.failed_restarts), (10.0, 1));
        assert_eq!(before.elapsed() + 1_000_000, after.elapsed());
    }

    /// It is not known when it died: after a stretch of computing it would have said something.
    #[test]
    fn a_run_that_has_died_without_a_word_computed_no_longer_than_usual() {
        let mut entries = checkpoint(0, 1);
        entries.push(at(100_000, "START"));
        let (figures, _) = account(&entries);
        assert_eq!((figures.seconds(Class::Lost), figures.failures), (10.0, 1));
        assert_eq!(figures.seconds(Class::Down), 100_000.0 - 25.0);
        assert_eq!(figures.run_seconds, 15.0);
    }

    /// The last entry of a dead job may be any, and so may the first one of a log that somebody has cut.
    #[test]
    fn times_add_up_wherever_the_log_begins_and_ends() {
        let mut all = checkpoint(0, 1);
        all.extend([at(20, "WRITE"), at(22, "FLUSH_FAIL"), at(23, "ENCODE")]);
        for (begin, end) in
            (0..all.len()).flat_map(|begin| (begin + 1..=all.len()).map(move |end| (begin, end)))
        {
            let (figures, history) = account(&all[begin..end]);
            let sum: u64 = Class::ALL.iter().map(|class| figures.time(*class)).sum();
            let segments: u64 = history.segments.iter().map(|part| part.until - part.from).sum();
            assert_eq!((sum, segments), (figures.elapsed(), figures.elapsed()), "{begin} {end}");
        }
    }

    #[test]
    fn while_a_job_computes_its_figures_grow_without_an_entry() {
        let mut account = Account::default();
        checkpoint(0, 1).iter().for_each(|entry| account.take(entry));
        let later = account.figures_at(40_000_000);
        assert_eq!((later.unsaved, later.elapsed(), later.run_seconds), (25_000_000, 40_000_000, 40.0));
        assert_eq!(later.seconds(Class::Computing), 35.0);
        assert_eq!(account.figures_at(0), account.figures, "never back");
        assert_eq!(Account::default().figures_at(7), Figures::default());
    }

    #[test]
    fn a_clock_that_goes_back_makes_no_time_negative() {
        let mut entries = checkpoint(100, 1);
        entries.push(at(20, "COMPUTE_END"));
        entries.push(took(1e18, at(21, "FLUSH_WAIT")));
        entries.push(took(f64::NAN, at(22, "FLUSH_WAIT")));
        entries.push(at(30, "START"));
        let (figures, _) = account(&entries);
        let sum: u64 = Class::ALL.iter().map(|class| figures.time(*class)).sum();
        assert_eq!((sum, figures.elapsed()), (15_000_000, 15_000_000));
    }

    #[test]
    fn bytes_are_added_up_by_level_and_files_that_are_in_place_are_not_copied() {
        let moved = |name: &str, from: &str, to: &str| {
            let (from, to) = (Some(from.to_owned()), Some(to.to_owned()));
            LogEntry { from, to, bytes: Some(1000), files: Some(2), ..took(0.5, at(1, name)) }
        };
        let encode = LogEntry { scheme: Some("XOR".to_owned()), ..moved("ENCODE", "/ssd", "/ssd/1") };
        let (figures, _) = account(&[
            moved("WRITE", "/ssd", "/ssd/1"),
            encode,
            moved("CHECKPOINT", "/ssd", "/ssd/1"),
            moved("FLUSH_SYNC", "/ssd/1", "/pfs"),
            moved("FLUSH_SYNC", "/pfs", "/pfs"),
        ]);
        let levels: Vec<_> = figures.moved.iter().map(|(level, moved)| (level.name(), moved.bytes)).collect();
        let expected = ["written to /ssd", "encoded with XOR", "flushed while waiting"];
        assert_eq!(levels, expected.map(|name| (name.to_owned(), 1000)));
        let kind = ("/ssd".to_owned(), "XOR".to_owned());
        assert_eq!(figures.kinds.get(&kind).map(|spent| spent.count), Some(1));
        assert_eq!(figures.flushes_sync.count, 2);
        assert!(
            figures.block()[4].contains("written to /ssd 1000 bytes at 1.95 KiB/s"),
            "{:?}",
            figures.block()
        );
    }
}
