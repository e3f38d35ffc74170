//! Metrics of a running job, for the textfile collector of Prometheus: `SCR_METRICS_DIR`.
//!
//! Rank 0 writes a file on its node, at most every [`SECONDS`] seconds and within calls of the application: there is no thread.
//! The figures are those of the job as a whole. At its end the job says so in the file, and `scr clean` removes it. A file that
//! cannot be written never fails a job.

use crate::job::Job;
use crate::log::{Class, Figures, Level, Spent, BOUNDS};
use scr_base::fs::{Durability, Files};
use scr_comm::Rank;
use scr_config::param;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file is written at most so often, in seconds.
pub const SECONDS: u64 = 15;

/// The collector runs as another user. The site has chosen the folder, and the file has names, ids and figures only.
const MODE: u32 = 0o644;

/// The metrics of a rank that writes a file.
pub(crate) struct Metrics {
    path: PathBuf,
    labels: String,
    written: Option<Duration>,
    warned: bool,
}

/// The facts that the figures of a job do not contain.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Now {
    /// Whether the job is at work.
    pub(crate) is_running: bool,
    /// How many nodes may be lost with the newest checkpoint still there, where that is known.
    pub(crate) survives: Option<u64>,
}

impl Metrics {
    /// Those of this rank, if it writes any. Until the session has begun the file says that no job runs.
    pub(crate) fn begin(job: &Job) -> Option<Self> {
        let dir = job.params.get(&param::METRICS_DIR).filter(|_| job.rank() == Rank(0))?;
        let prefix = job.prefix.dir();
        let (user, id) = (job.params.get(&param::USER_NAME), job.params.get(&param::JOB_ID));
        let path = dir.join(file_name(&user, &id, job.nodes.name(job.rank()), prefix));
        // Prometheus has a label `job` of its own.
        let labels = [("jobid", id), ("user", user), ("prefix", prefix.display().to_string())];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(&value))).join(",");
        let mut metrics = Self { path, labels, written: None, warned: false };
        metrics.write(job, Now::default());
        Some(Self { written: None, ..metrics })
    }

    /// Whether this rank would write a file now.
    pub(crate) fn is_due(&self, job: &Job) -> bool {
        self.written
            .is_none_or(|written| job.elapsed().saturating_sub(written) >= Duration::from_secs(SECONDS))
    }

    /// Writes the file.
    pub(crate) fn write(&mut self, job: &Job, now: Now) {
        let Some(figures) = job.log.figures() else { return };
        self.written = Some(job.elapsed());
        let text = text(&self.labels, &figures, now, job.micros());
        let written = job.files().write_atomic(&self.path, text.as_bytes(), MODE, Durability::Shown);
        if let (Err(error), false) = (&written, self.warned) {
            self.warned = true;
            job.warn_of_setting(&format!(
                "the metrics of this job cannot be written: {}; SCR_METRICS_DIR must name a folder that the \
                 user may write to",
                scr_base::describe(error)
            ));
        }
    }
}

/// The name of the file of a job on a node.
pub fn file_name(user: &str, job_id: &str, node: &str, prefix: &Path) -> String {
    let prefix = crc32fast::hash(prefix.as_os_str().as_bytes());
    format!("{}{}.{prefix:08x}{ENDING}", beginning(user, job_id), plain(node))
}

const ENDING: &str = ".prom";

fn beginning(user: &str, job_id: &str) -> String {
    format!("scr.{}.{}.", plain(user), plain(job_id))
}

/// A text in which no dot ends it.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => plain.push(char::from(byte)),
            other => _ = write!(plain, "%{other:02X}"),
        }
    }
    plain
}

/// The files of a job in a folder for metrics, and what its dead processes have begun to write there.
///
/// # Errors
/// The folder cannot be listed.
pub fn files_of(files: &dyn Files, dir: &Path, user: &str, job_id: &str) -> std::io::Result<Vec<PathBuf>> {
    let beginning = beginning(user, job_id);
    let is_its = |name: &PathBuf| {
        let name = name.to_string_lossy();
        let begun = name.strip_prefix('.').filter(|name| name.contains(".prom.tmp."));
        begun.unwrap_or(&name).starts_with(&beginning) && (begun.is_some() || name.ends_with(ENDING))
    };
    Ok(files.list(dir)?.into_iter().filter(is_its).map(|name| dir.join(name)).collect())
}

/// A value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// One metric: its name, its help, and its value. The name of one that only grows ends in `_total`.
type Metric = (&'static str, &'static str, Option<f64>);

macro_rules! metrics {
    ($($name:literal = $value:expr, $help:literal;)*) => { vec![$(($name, $help, $value)),*] };
}

fn text(labels: &str, figures: &Figures, now: Now, micros: u64) -> String {
    let mut text = String::new();
    for (name, help, value) in all(figures, now, micros) {
        let Some(value) = value else { continue };
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{{labels}}} {value}");
    }
    for (name, help, spent) in spreads(figures) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut up_to = 0;
        for (bound, count) in BOUNDS.iter().zip(spent.spread) {
            up_to += count;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {up_to}");
        }
        let Spent { seconds, count, .. } = spent;
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {count}");
    }
    text
}

/// The times that are shown one by one: a sum hides the one that took long.
fn spreads(figures: &Figures) -> [(&'static str, &'static str, Spent); 3] {
    [
        ("scr_checkpoint_duration_seconds", "How long checkpoints took.", figures.checkpoints),
        ("scr_flush_duration_seconds", "How long flushes took.", flushes(figures)),
        ("scr_restart_duration_seconds", "How long restarts took.", figures.restarts),
    ]
}

/// Those that have succeeded.
fn flushes(figures: &Figures) -> Spent {
    let mut all = figures.flushes_sync;
    [figures.output_flushes_sync, figures.flushes_async].into_iter().for_each(|more| all.sum(more));
    all
}

/// The names of all metrics.
pub fn names() -> Vec<&'static str> {
    let figures = Figures::default();
    let all = all(&figures, Now::default(), 0).into_iter().map(|(name, ..)| name);
    all.chain(spreads(&figures).map(|(name, ..)| name)).collect()
}

fn all(figures: &Figures, now: Now, micros: u64) -> Vec<Metric> {
    let bytes = |is_wanted: fn(&Level) -> bool| {
        let moved = figures.moved.iter().filter(|(level, _)| is_wanted(level));
        Some(moved.map(|(_, moved)| moved.bytes).sum::<u64>() as f64)
    };
    let count = |count: u64| Some(count as f64);
    let time = |micros: u64| (micros > 0).then_some(micros as f64 / 1e6);
    let flushes = flushes(figures);
    let seconds = |class| Some(figures.seconds(class));
    metrics! {
        "scr_job_running" = count(now.is_running.into()), "Whether the job is at work: 0 once it has ended.";
        "scr_job_start_timestamp_seconds" = time(figures.began), "When the first run of the job began.";
        "scr_job_update_timestamp_seconds" = time(micros), "When the job has written these metrics.";
        "scr_runs_total" = count(figures.runs), "Runs of the job that have begun.";
        "scr_failures_total" = count(figures.failures), "Runs of the job that have failed.";
        "scr_goodput_ratio" = figures.goodput(), "Share of the elapsed time that has brought the job forward.";
        "scr_computing_seconds" = seconds(Class::Computing), "Computing that the job goes on from.";
        "scr_lost_seconds" = seconds(Class::Lost), "Computing that was lost with a failure.";
        "scr_unsaved_seconds" = Some(figures.unsaved as f64 / 1e6),
            "Computing since the newest checkpoint, as of the last call.";
        "scr_checkpoints_total" = count(figures.checkpoints.count), "Checkpoints that were complete.";
        "scr_checkpoint_failures_total" = count(figures.failed_checkpoints), "Datasets that have failed.";
        "scr_checkpoint_seconds_total" = seconds(Class::Checkpoint),
            "Time in which the application wrote datasets, and they were protected.";
        "scr_checkpoint_bytes_total" = bytes(|level| matches!(level, Level::Written(_))),
            "Bytes that the application has written to datasets.";
        "scr_last_checkpoint_cache_timestamp_seconds" = time(figures.newest_in_cache),
            "When the newest checkpoint was complete in cache.";
        "scr_last_checkpoint_prefix_timestamp_seconds" = time(figures.newest_in_prefix),
            "When a checkpoint was last complete in the prefix directory.";
        "scr_node_losses_survived" = now.survives.map(|nodes| nodes as f64),
            "How many nodes may be lost with the newest checkpoint still there.";
        "scr_flushes_total" = count(flushes.count + figures.failed_flushes), "Flushes that have ended.";
        "scr_flush_failures_total" = count(figures.failed_flushes), "Flushes that have failed.";
        "scr_flushes_running" = count(figures.flushing), "Flushes under way.";
        "scr_flush_seconds_total" = Some(flushes.seconds), "Time that flushes took.";
        "scr_flush_wait_seconds_total" = seconds(Class::Flush), "Time for which the application waited for flushes.";
        "scr_flush_bytes_total" = bytes(|level| matches!(level, Level::FlushedSync | Level::FlushedAsync)),
            "Bytes that were copied to the prefix directory.";
        "scr_fetch_bytes_total" = bytes(|level| *level == Level::Fetched),
            "Bytes that were copied from the prefix directory.";
        "scr_restarts_total" = count(figures.restarts.count), "Restarts of the application from a checkpoint.";
        "scr_restart_seconds_total" = seconds(Class::Restart), "Time in which runs started.";
        "scr_rebuilt_ranks_total" = count(figures.rebuilt_processes),
            "Processes whose part of a dataset was rebuilt.";
        "scr_damaged_bytes_total" = count(figures.damaged_bytes),
            "Bytes of parts that were damaged, and were rebuilt.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        for (name, help, _) in all(&Figures::default(), Now::default(), 1) {
            assert!(name.starts_with("scr_") && help.ends_with('.'), "{name}");
            let units = ["seconds", "bytes", "ratio", "total", "running", "survived"];
            assert!(units.iter().any(|unit| name.ends_with(unit)), "{name}");
        }
        let mut figures = Figures::default();
        for seconds in [0.2, 2.0, 5000.0] {
            figures.checkpoints.add(Some(seconds));
        }
        figures.flushes_sync.add(Some(0.5));
        figures.failed_flushes = 7;
        let text = text("jobid=\"7\"", &figures, Now { is_running: true, survives: Some(2) }, 1);
        assert!(text.contains("# TYPE scr_job_running gauge\nscr_job_running{jobid=\"7\"} 1\n"), "{text}");
        assert!(text.contains("\nscr_node_losses_survived{jobid=\"7\"} 2\n"), "{text}");
        // Those that have failed have ended, too.
        assert!(text.contains("\nscr_flushes_total{jobid=\"7\"} 8\n"), "{text}");
        for (bound, count) in [("0.1", 0), ("0.3", 1), ("3", 2), ("3000", 2), ("+Inf", 3)] {
            let line =
                format!("\nscr_checkpoint_duration_seconds_bucket{{jobid=\"7\",le=\"{bound}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(!text.contains("scr_last_checkpoint_cache_timestamp_seconds"), "there is none yet");
    }

    #[test]
    fn a_job_finds_its_own_files_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let names =
            [("a", "1", "n0"), ("a", "1", "n/1"), ("a", "1.2", "n0"), ("b", "1", "n0"), ("a", "12", "n0")];
        for (user, id, node) in names {
            std::fs::write(dir.path().join(file_name(user, id, node, Path::new("/p"))), "").unwrap();
        }
        let begun = format!(".{}.tmp.7", file_name("a", "1", "n0", Path::new("/p")));
        std::fs::write(dir.path().join(&begun), "").unwrap();
        std::fs::write(dir.path().join("scr.a.1.txt"), "").unwrap();
        let found = files_of(&RealFiles, dir.path(), "a", "1").unwrap();
        let found: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_string_lossy()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.contains(&begun.into()) && found.iter().any(|name| name.starts_with("scr.a.1.n%2F1.")));
        assert_eq!(files_of(&RealFiles, dir.path(), "a", "1.2").unwrap().len(), 1);
    }

    #[test]
    fn a_label_may_hold_anything() {
        assert_eq!(escaped("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
    }
}
