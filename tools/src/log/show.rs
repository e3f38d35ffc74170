//! Entries as a table, and as JSON.

use crate::output::count;
use crate::table::Table;
use crate::time;
use scr_base::message::{amount, span};
use scr_core::log::ALLOCATION_END;
use scr_plugin_api::{LogEntry, LogKind};
use serde_json::{json, Value};
use std::time::Duration;

/// A table of what was found.
pub(super) fn table(entries: &[LogEntry]) -> String {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let row = |entry: &LogEntry| {
        let took = entry.seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        [
            plain(&entry.local_time),
            plain(&entry.job_id),
            plain(&entry.host),
            plain(&entry.name),
            number(entry.dataset),
            plain(entry.dataset_name.as_deref().unwrap_or_default()),
            took.map_or_else(String::new, span),
            entry.bytes.map_or_else(String::new, amount),
            plain(&remark(entry)),
        ]
    };
    let head = ["TIME", "JOB", "HOST", "WHAT", "DSET", "NAME", "TOOK", "SIZE", "NOTE"];
    Table::of(&head, entries.iter().map(row)).text()
}

/// How large a run is, the note, or where bytes went.
fn remark(entry: &LogEntry) -> String {
    let size = entry.processes.zip(entry.nodes).map(|(processes, nodes)| size(processes, nodes));
    let way = entry.from.as_ref().zip(entry.to.as_ref()).map(|(from, to)| format!("{from} -> {to}"));
    let parts: Vec<_> = [size, entry.note.as_deref().map(note)].into_iter().flatten().collect();
    if parts.is_empty() {
        way.unwrap_or_default()
    } else {
        parts.join(", ")
    }
}

/// How large a run is.
pub(crate) fn size(processes: u64, nodes: u64) -> String {
    format!("{processes} process{} on {}", if processes == 1 { "" } else { "es" }, count(nodes, "node"))
}

/// A note for people: the end of an allocation as a time.
fn note(text: &str) -> String {
    let end = text.strip_prefix(ALLOCATION_END).and_then(|seconds| seconds.parse().ok());
    end.map_or_else(|| text.to_owned(), |end| format!("allocation ends {}", time::in_words(end)))
}

/// A name may hold anything, and must not make two lines of one.
fn plain(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// The same for programs. Fields that an entry lacks are left out. `micros` are microseconds since the epoch, from a text
/// log whole seconds.
pub(super) fn json(entries: &[LogEntry]) -> Value {
    json!({ "entries": entries.iter().map(entry_json).collect::<Vec<_>>() })
}

fn entry_json(entry: &LogEntry) -> Value {
    let mut fields = json!({
        "kind": if entry.kind == LogKind::Event { "event" } else { "transfer" },
        "name": entry.name,
        "time": entry.local_time,
        "micros": entry.micros,
        "host": entry.host,
        "user": entry.user,
        "job_id": entry.job_id,
        "job_name": entry.job_name,
        "cluster": entry.cluster,
        "prefix": entry.prefix,
        "dataset": entry.dataset,
        "dataset_name": entry.dataset_name,
        "seconds": entry.seconds,
        "bytes": entry.bytes,
        "files": entry.files,
        "processes": entry.processes,
        "nodes": entry.nodes,
        "note": entry.note,
        "from": entry.from,
        "to": entry.to,
    });
    let always = ["name", "time", "dataset_name", "note", "from", "to"];
    if let Value::Object(fields) = &mut fields {
        fields.retain(|key, value| !value.is_null() && (*value != "" || always.contains(&key.as_str())));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_run_says_how_large_it_is_and_when_its_allocation_ends() {
        let start = LogEntry { processes: Some(1), nodes: Some(1), ..LogEntry::default() };
        assert_eq!(remark(&start), "1 process on 1 node");
        let known = LogEntry {
            processes: Some(8),
            nodes: Some(2),
            note: Some(format!("{ALLOCATION_END}1298944800")),
            ..start
        };
        let expected = format!("8 processes on 2 nodes, allocation ends {}", time::in_words(1_298_944_800));
        assert_eq!(remark(&known), expected);
        assert_eq!(note("allocation ends at @soon"), "allocation ends at @soon");
    }
}
