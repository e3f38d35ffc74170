//! The cost of a job: the one owner of these figures. The block at the end of a job, `scr report`, `scr ckpt-interval` and the
//! metrics read them; [`Account`](super::Account) fills them in from the entries of the log.

use super::record::names;
use scr_base::message::{amount, count, span};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

names! {
    /// A use of a job's time. Every microsecond between its first entry and its last belongs to one class.
    #[derive(Serialize, PartialOrd, Ord)]
    #[serde(rename_all = "lowercase")]
    Class:
    /// The application computes, and the job goes on from the result.
    Computing = "computing";
    /// The application computed, and its result was lost: a later run computes it again.
    Lost = "computed twice";
    /// The application writes a dataset, and it is protected.
    Checkpoint = "checkpoints";
    /// The application waits for flushes.
    Flush = "waiting for flushes";
    /// A run starts: processes, `SCR_Init` with what it rebuilds and fetches, and reading the checkpoint.
    Restart = "restarts and rebuilds";
    /// No run: from the end of one to the start of the next.
    Down = "between runs";
    /// `scr run` or `scr postrun` saves what is in cache.
    Saving = "saving";
}

/// Seconds, and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Seconds.
    pub seconds: f64,
    /// How often.
    pub count: u64,
    /// How often it took more than one of [`BOUNDS`] and no more than the next, up from 0. The longest are not among them.
    #[serde(skip)]
    pub spread: [u64; BOUNDS.len()],
}

/// Seconds by which times are told apart.
pub const BOUNDS: [f64; 10] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0];

impl Spent {
    pub(crate) fn add(&mut self, seconds: Option<f64>) {
        let seconds = seconds.unwrap_or(0.0).max(0.0);
        self.seconds += seconds;
        self.count += 1;
        if let Some(at) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.spread[at] += 1;
        }
    }

    /// Adds all of another one.
    pub fn sum(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.count += other.count;
        self.spread.iter_mut().zip(other.spread).for_each(|(one, other)| *one += other);
    }

    /// Seconds each time.
    pub fn average(self) -> f64 {
        self.seconds / self.count.max(1) as f64
    }
}

/// The kind of a transfer of bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The application wrote files to this store, or to the prefix directory in bypass mode.
    Written(String),
    /// A scheme made redundancy for them. Whether that protects them depends on where the ranks run.
    Encoded(String),
    /// From cache to the prefix directory, while the application waited.
    FlushedSync,
    /// The same while it continued.
    FlushedAsync,
    /// From the prefix directory to cache.
    Fetched,
}

impl Level {
    /// For people.
    pub fn name(&self) -> String {
        match self {
            Self::Written(store) => format!("written to {store}"),
            Self::Encoded(scheme) => format!("encoded with {scheme}"),
            Self::FlushedSync => "flushed while waiting".to_owned(),
            Self::FlushedAsync => "flushed in the background".to_owned(),
            Self::Fetched => "fetched".to_owned(),
        }
    }
}

/// Bytes that were moved, and how long that took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// How often, and for how long.
    pub spent: Spent,
}

impl Moved {
    /// Bytes per second; 0 where no time is known.
    pub fn bandwidth(self) -> f64 {
        if self.spent.seconds > 0.0 {
            self.bytes as f64 / self.spent.seconds
        } else {
            0.0
        }
    }
}

names! {
    /// How a job stands, as far as its entries say.
    #[derive(Default)]
    State:
    /// No run has begun.
    #[default]
    Waiting = "not started";
    /// A run goes on, or has died without a word.
    Running = "running, or dead without a word";
    /// The last run has failed.
    Failed = "failed";
    /// The job was to halt, and its last run has ended.
    Halted = "halted";
    /// The application has called `SCR_Finalize`.
    Finished = "finished";
}

/// Everything that is added up for a job: a life in one prefix directory and one allocation, with all runs until one has
/// finished.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// The allocation.
    pub job_id: String,
    /// The name of the job, the user and the cluster, where they are known.
    pub job_name: String,
    /// As above.
    pub user: String,
    /// As above.
    pub cluster: String,
    /// Size of the last run.
    pub processes: u64,
    /// As above.
    pub nodes: u64,
    /// The first entry and the last one, in microseconds since the epoch.
    pub began: u64,
    /// As above.
    pub until: u64,
    /// How it stands.
    pub state: State,
    /// How many runs have begun.
    pub runs: u64,
    /// How many of them have failed.
    pub failures: u64,
    /// Nodes that `scr run` has left out.
    pub lost_nodes: u64,
    /// Seconds of all runs, without the time between them.
    pub run_seconds: f64,
    /// Microseconds by class, in the order of [`Class::ALL`].
    pub(super) times: [u64; Class::ALL.len()],
    /// Microseconds of computing since the newest checkpoint.
    pub unsaved: u64,
    /// As entries give it: stretches of computing.
    pub computing: Spent,
    /// Checkpoints from start to end, without their flushes.
    pub checkpoints: Spent,
    /// Checkpoints that have failed.
    pub failed_checkpoints: u64,
    /// The same for datasets that are no checkpoints.
    pub outputs: Spent,
    /// Flushes of checkpoints that the application waited for as a whole, and of other datasets.
    pub flushes_sync: Spent,
    /// As above.
    pub output_flushes_sync: Spent,
    /// Flushes in the background.
    pub flushes_async: Spent,
    /// Flushes that have failed.
    pub failed_flushes: u64,
    /// Flushes of the last run that have begun and not ended.
    pub flushing: u64,
    /// Waits for flushes.
    pub flush_waits: Spent,
    /// Fetches, rebuilds of datasets in cache, and restarts of the application from a checkpoint.
    pub fetches: Spent,
    /// As above.
    pub rebuilds: Spent,
    /// As above.
    pub restarts: Spent,
    /// Those that have failed.
    pub failed_restarts: u64,
    /// Datasets that commands have saved from the caches of the nodes.
    pub scavenged: Spent,
    /// Processes whose parts were rebuilt, over all datasets.
    pub rebuilt_processes: u64,
    /// Bytes of parts that were damaged.
    pub damaged_bytes: u64,
    /// Bytes by level.
    pub moved: BTreeMap<Level, Moved>,
    /// Checkpoints by store and scheme: what each kind costs.
    pub kinds: BTreeMap<(String, String), Spent>,
    /// When the newest checkpoint became complete in cache, and in the prefix directory; 0 where none has.
    pub newest_in_cache: u64,
    /// As above.
    pub newest_in_prefix: u64,
}

/// Adds fields of one value to those of another.
macro_rules! sum {
    ($one:ident, $other:ident, $add:ident: $($field:ident)*) => { $($add(&mut $one.$field, $other.$field);)* };
}

impl Figures {
    /// Microseconds of a class.
    pub fn time(&self, class: Class) -> u64 {
        self.times[class as usize]
    }

    /// Seconds of a class.
    pub fn seconds(&self, class: Class) -> f64 {
        self.time(class) as f64 / 1e6
    }

    /// Microseconds from the first entry to the last.
    pub fn elapsed(&self) -> u64 {
        self.until.saturating_sub(self.began)
    }

    /// The share of the elapsed time that has brought the job forward; `None` where no time has passed.
    pub fn goodput(&self) -> Option<f64> {
        let elapsed = self.elapsed();
        (elapsed > 0).then(|| self.time(Class::Computing) as f64 / elapsed as f64)
    }

    /// Seconds that a checkpoint costs the application.
    pub fn cost(&self) -> f64 {
        (self.checkpoints.seconds + self.flushes_sync.seconds) / self.checkpoints.count.max(1) as f64
    }

    /// Seconds from one failure to the next; without any failure, at least.
    pub fn between_failures(&self) -> f64 {
        self.run_seconds / self.failures.max(1) as f64
    }

    /// Seconds that a flush takes, and the share of it that the application did not wait for.
    pub fn flush(&self) -> Option<(f64, f64)> {
        let all = self.flushes_sync.seconds + self.flushes_async.seconds;
        let count = self.flushes_sync.count + self.flushes_async.count;
        let waited = (self.time(Class::Flush) as f64 / 1e6).min(all);
        (count > 0).then(|| (all / count as f64, if all > 0.0 { 1.0 - waited / all } else { 0.0 }))
    }

    /// Whether anything was written, restored or lost that is worth a word.
    pub fn has_costs(&self) -> bool {
        self.checkpoints.count + self.outputs.count + self.fetches.count + self.failures > 0
            || self.restarts.count + self.failed_checkpoints > 0
    }

    /// The figures of all these jobs together.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut total = Self::default();
        all.for_each(|figures| total.add(figures));
        total
    }

    /// Adds the figures of another job.
    pub fn add(&mut self, other: &Self) {
        let sums = Spent::sum;
        for (one, other) in self.times.iter_mut().zip(other.times) {
            *one += other;
        }
        sum! { self, other, sums: computing checkpoints outputs flushes_sync output_flushes_sync flushes_async flush_waits fetches
        rebuilds restarts scavenged }
        let counts = |one: &mut u64, other: u64| *one = one.saturating_add(other);
        sum! { self, other, counts: runs failures lost_nodes unsaved failed_checkpoints failed_flushes failed_restarts
        rebuilt_processes damaged_bytes }
        self.run_seconds += other.run_seconds;
        for (level, other) in &other.moved {
            let one = self.moved.entry(level.clone()).or_default();
            sum! { one, other, counts: bytes files }
            sums(&mut one.spent, other.spent);
        }
        for (kind, other) in &other.kinds {
            sums(self.kinds.entry(kind.clone()).or_default(), *other);
        }
        // The elapsed time is the sum of those of the jobs, which may have run at the same time.
        self.until += other.elapsed();
    }

    /// The block at the end of a job: five lines.
    pub fn block(&self) -> [String; 5] {
        let elapsed = self.elapsed();
        let time = |class: Class| {
            let share = 100.0 * self.time(class) as f64 / elapsed.max(1) as f64;
            format!("{} ({share:.1} %)", span(Duration::from_micros(self.time(class))))
        };
        let goodput =
            self.goodput().map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let failures = match self.failures {
            0 => String::new(),
            failures => format!(", {}", count(failures, "failure")),
        };
        let levels: Vec<String> = self.moved.iter().map(|(level, moved)| in_words(level, *moved)).collect();
        let levels = if levels.is_empty() { "none".to_owned() } else { levels.join("; ") };
        let elapsed = span(Duration::from_micros(elapsed));
        [
            format!("goodput: {goodput} of {elapsed} ({}{failures})", count(self.runs, "run")),
            format!("checkpoints: {} in {}", self.checkpoints.count, time(Class::Checkpoint)),
            format!("waiting for flushes: {}", time(Class::Flush)),
            format!("restarts and rebuilds: {}; computed twice: {}", time(Class::Restart), time(Class::Lost)),
            format!("bytes: {levels}"),
        ]
    }
}

fn in_words(level: &Level, moved: Moved) -> String {
    let name = level.name();
    match moved.bandwidth() {
        0.0 => format!("{name} {}", amount(moved.bytes)),
        rate => format!("{name} {} at {}/s", amount(moved.bytes), amount(rate as u64)),
    }
}
