//! Entries as a table, and as JSON.

use crate::output::{columns, JSON_VERSION};
use scr_plugin_api::{LogEntry, LogKind};
use serde::Serialize;

/// What was found.
#[derive(Serialize)]
pub(super) struct Listing<'a> {
    version: u32,
    entries: Vec<Row<'a>>,
}

/// An entry. What it does not say is not there.
#[derive(Serialize)]
struct Row<'a> {
    kind: &'static str,
    name: &'a str,
    time: &'a str,
    /// Microseconds since the epoch; whole seconds from a text log.
    micros: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    job_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    job_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cluster: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    prefix: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
}

impl<'a> Listing<'a> {
    pub(super) fn of(entries: &'a [LogEntry]) -> Self {
        Self { version: JSON_VERSION, entries: entries.iter().map(Row::of).collect() }
    }

    pub(super) fn in_words(&self) -> String {
        if self.entries.is_empty() {
            return String::new();
        }
        let head =
            ["TIME", "JOB", "HOST", "WHAT", "DSET", "NAME", "SECS", "BYTES", "NOTE"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head).chain(self.entries.iter().map(Row::cells)).collect();
        columns(&rows)
    }
}

impl<'a> Row<'a> {
    fn of(entry: &'a LogEntry) -> Self {
        Self {
            kind: if entry.kind == LogKind::Event { "event" } else { "transfer" },
            name: &entry.name,
            time: &entry.local_time,
            micros: entry.micros,
            host: &entry.host,
            user: &entry.user,
            job_id: &entry.job_id,
            job_name: &entry.job_name,
            cluster: &entry.cluster,
            prefix: &entry.prefix,
            dataset: entry.dataset,
            dataset_name: entry.dataset_name.as_deref(),
            seconds: entry.seconds,
            bytes: entry.bytes,
            files: entry.files,
            processes: entry.processes,
            nodes: entry.nodes,
            note: entry.note.as_deref(),
            from: entry.from.as_deref(),
            to: entry.to.as_deref(),
        }
    }

    fn cells(&self) -> [String; 9] {
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        [
            plain(self.time),
            plain(self.job_id),
            plain(self.host),
            plain(self.name),
            number(self.dataset),
            plain(self.dataset_name.unwrap_or_default()),
            self.seconds.map_or_else(String::new, |seconds| format!("{seconds:.6}")),
            number(self.bytes),
            plain(&self.remark()),
        ]
    }

    /// The note, where bytes went, or how large a run is.
    fn remark(&self) -> String {
        match (self.note, self.from, self.to, self.processes, self.nodes) {
            (Some(note), ..) => note.to_owned(),
            (_, Some(from), Some(to), ..) => format!("{from} -> {to}"),
            (.., Some(processes), Some(nodes)) => format!("{processes} processes on {nodes} nodes"),
            _ => String::new(),
        }
    }
}

/// A name may hold anything, and must not make two lines of one.
fn plain(text: &str) -> String {
    text.replace(char::is_control, "?")
}
