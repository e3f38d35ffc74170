//! A log sink, as its author writes it and as the runtime calls it.
//!
//! The runtime decides what to log, and calls sinks on one process of a job only. A failing sink is reported once and not called
//! any more; it never fails the job.

use crate::PluginError;
use serde::{Deserialize, Serialize};

/// A place for log entries to go.
pub trait LogSink: Send + Sync {
    /// Takes one entry. Gives lines to show to a user who asked for details; mostly none.
    ///
    /// # Errors
    /// The text says where the entry could not go, and why. No further entry comes then.
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError>;

    /// Makes what the sink needs before its first entry, such as the tables of a database. Doing so again changes
    /// nothing. Gives lines that say what was done.
    ///
    /// # Errors
    /// The text says what could not be made, and why.
    fn prepare(&self) -> Result<Vec<String>, PluginError> {
        Ok(Vec::new())
    }

    /// The entries that match, oldest first. A sink that only passes entries on has none to give.
    ///
    /// # Errors
    /// The text says what could not be read, and why.
    fn read(&self, _query: &LogQuery) -> Result<Vec<LogEntry>, PluginError> {
        Err(PluginError::refused("what was logged there cannot be read back"))
    }
}

/// Which entries are wanted: those that meet all conditions that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogQuery {
    /// Only entries of this prefix directory.
    pub prefix: Option<String>,
    /// Only entries of this allocation.
    pub job_id: Option<String>,
    /// Events and transfers of these names, in any case; any where there is none.
    pub names: Vec<String>,
    /// Only entries of the dataset with this id or name.
    pub dataset: Option<String>,
    /// From this moment on: microseconds since the epoch.
    pub since: Option<u64>,
    /// Before this moment: microseconds since the epoch.
    pub until: Option<u64>,
    /// Only so many, the newest of them.
    pub last: Option<u64>,
}

impl LogQuery {
    /// Whether an entry meets the conditions. [`last`](Self::last) is none on a single entry.
    pub fn matches(&self, entry: &LogEntry) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let of_dataset = |wanted: &String| {
            entry.dataset.is_some_and(|id| id.to_string() == *wanted)
                || entry.dataset_name.as_ref() == Some(wanted)
        };
        let named = |name: &String| name.eq_ignore_ascii_case(&entry.name);
        is(&self.prefix, &entry.prefix)
            && is(&self.job_id, &entry.job_id)
            && (self.names.is_empty() || self.names.iter().any(named))
            && self.dataset.as_ref().is_none_or(of_dataset)
            && self.since.is_none_or(|since| entry.micros >= since)
            && self.until.is_none_or(|until| entry.micros < until)
    }
}

/// One thing that happened in a job. Numbers and texts that do not apply to it are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Whether bytes were moved or something happened.
    pub kind: LogKind,
    /// The name of an event such as `CHECKPOINT_START`, or of a transfer such as `FLUSH_SYNC`.
    #[serde(default)]
    pub name: String,
    /// When: microseconds since the epoch.
    pub micros: u64,
    /// The same as local time, as in `2026-11-21T03:28:24`.
    #[serde(default)]
    pub local_time: String,
    /// Host that wrote the entry.
    #[serde(default)]
    pub host: String,
    /// Name of the user.
    #[serde(default)]
    pub user: String,
    /// Id of the allocation.
    #[serde(default)]
    pub job_id: String,
    /// Name of the job.
    #[serde(default)]
    pub job_name: String,
    /// Name of the cluster.
    #[serde(default)]
    pub cluster: String,
    /// The prefix directory.
    #[serde(default)]
    pub prefix: String,
    /// Further information.
    pub note: Option<String>,
    /// The source of a transfer.
    pub from: Option<String>,
    /// The destination of a transfer.
    pub to: Option<String>,
    /// Id of the dataset.
    pub dataset: Option<u64>,
    /// Name of the dataset.
    pub dataset_name: Option<String>,
    /// How long it took.
    pub seconds: Option<f64>,
    /// How many bytes, for a transfer.
    pub bytes: Option<u64>,
    /// How many files, for a transfer.
    pub files: Option<u64>,
    /// How many processes, where a run starts.
    pub processes: Option<u64>,
    /// How many nodes, where a run starts.
    pub nodes: Option<u64>,
    /// Number of the run in its prefix directory. Entries of commands have none.
    pub run: Option<u64>,
    /// The redundancy scheme, where one was used.
    pub scheme: Option<String>,
}

/// The subject of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogKind {
    /// Bytes were moved.
    Transfer,
    /// Something happened; what only a newer side knows counts as that.
    #[default]
    #[serde(other)]
    Event,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_crosses_as_it_was() {
        let full = LogEntry {
            kind: LogKind::Transfer,
            name: "FLUSH_SYNC".to_owned(),
            micros: 1_764_000_000_123_456,
            local_time: "2026-11-21T03:28:24".to_owned(),
            host: "node0".to_owned(),
            user: "user1".to_owned(),
            job_id: "5132".to_owned(),
            job_name: "sim".to_owned(),
            cluster: "big".to_owned(),
            prefix: "/pfs/a b".to_owned(),
            note: Some(String::new()),
            from: Some("/dev/shm".to_owned()),
            to: Some("/pfs".to_owned()),
            dataset: Some(3),
            dataset_name: Some("ckpt \"3\"".to_owned()),
            seconds: Some(0.018_705),
            bytes: Some(u64::MAX),
            files: Some(4),
            processes: Some(4),
            nodes: Some(2),
            run: Some(7),
            scheme: Some("XOR".to_owned()),
        };
        for entry in [full, LogEntry { name: "HALT".to_owned(), ..LogEntry::default() }] {
            let crossed = serde_json::to_vec(&entry).unwrap();
            assert_eq!(serde_json::from_slice::<LogEntry>(&crossed).unwrap(), entry);
        }
    }

    #[test]
    fn an_entry_of_a_newer_or_an_older_side_is_read_as_far_as_it_is_known() {
        let of_newer = r#"{"kind": "Alarm", "name": "HALT", "micros": 0, "colour": "red"}"#;
        let known = LogEntry { name: "HALT".to_owned(), ..LogEntry::default() };
        assert_eq!(serde_json::from_str::<LogEntry>(of_newer).unwrap(), known);
        assert!(serde_json::from_str::<LogEntry>("{}").is_err(), "it does not say what it is, nor when");
    }

    #[test]
    fn a_query_crosses_as_it_was() {
        let full = LogQuery {
            prefix: Some("/pfs/a b".to_owned()),
            job_id: Some("5132".to_owned()),
            names: vec!["HALT".to_owned(), "fetch".to_owned()],
            dataset: Some("ckpt.3".to_owned()),
            since: Some(1),
            until: Some(u64::MAX),
            last: Some(7),
        };
        for query in [full, LogQuery::default()] {
            let crossed = serde_json::to_vec(&query).unwrap();
            assert_eq!(serde_json::from_slice::<LogQuery>(&crossed).unwrap(), query);
        }
    }

    #[test]
    fn an_entry_matches_where_it_meets_every_condition() {
        let entry = LogEntry {
            name: "FETCH_START".to_owned(),
            micros: 50,
            job_id: "5132".to_owned(),
            dataset: Some(3),
            dataset_name: Some("ckpt.3".to_owned()),
            ..LogEntry::default()
        };
        let text = |text: &str| Some(text.to_owned());
        for (query, wanted) in [
            (LogQuery::default(), true),
            (LogQuery { dataset: text("3"), ..LogQuery::default() }, true),
            (LogQuery { dataset: text("ckpt.3"), ..LogQuery::default() }, true),
            (LogQuery { dataset: text("ckpt"), ..LogQuery::default() }, false),
            (LogQuery { names: vec!["fetch_start".to_owned()], ..LogQuery::default() }, true),
            (LogQuery { names: vec!["FETCH".to_owned()], ..LogQuery::default() }, false),
            (LogQuery { since: Some(50), until: Some(51), ..LogQuery::default() }, true),
            (LogQuery { until: Some(50), ..LogQuery::default() }, false),
            (LogQuery { since: Some(51), ..LogQuery::default() }, false),
            (LogQuery { job_id: text("5132"), prefix: text("/pfs"), ..LogQuery::default() }, false),
        ] {
            assert_eq!(query.matches(&entry), wanted, "{query:?}");
        }
    }
}
