//! A log sink, as its author writes it and as the runtime calls it.
//!
//! The runtime decides what is worth logging, and calls sinks on one process of a job only. A sink that fails is told
//! once and left alone from then on; it never fails the job.

use crate::kvtree::FieldError;
use crate::{KvTree, PluginError};

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
}

/// One thing that happened in a job. Numbers and texts that do not apply to it are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogEntry {
    /// Whether bytes were moved or something happened.
    pub kind: LogKind,
    /// What: an event such as `CHECKPOINT_START`, or a transfer such as `FLUSH_SYNC`.
    pub name: String,
    /// When: microseconds since the epoch.
    pub micros: u64,
    /// The same as local time, as in `2026-11-21T03:28:24`.
    pub local_time: String,
    /// Host that wrote the entry.
    pub host: String,
    /// Name of the user.
    pub user: String,
    /// Id of the allocation.
    pub job_id: String,
    /// Name of the job.
    pub job_name: String,
    /// Name of the cluster.
    pub cluster: String,
    /// The prefix directory.
    pub prefix: String,
    /// What else there is to say.
    pub note: Option<String>,
    /// Where bytes came from, for a transfer.
    pub from: Option<String>,
    /// Where bytes went to, for a transfer.
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
}

/// What an entry is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogKind {
    /// Something happened.
    #[default]
    Event,
    /// Bytes were moved.
    Transfer,
}

impl LogEntry {
    /// As a tree: what crosses the boundary, and so may grow.
    pub fn to_tree(&self) -> KvTree {
        let mut tree = KvTree::new();
        tree.set("KIND", if self.kind == LogKind::Event { EVENT } else { TRANSFER });
        tree.set("MICROS", self.micros);
        let texts = [
            ("NAME", &self.name),
            ("TIME", &self.local_time),
            ("HOST", &self.host),
            ("USER", &self.user),
            ("JOBID", &self.job_id),
            ("JOBNAME", &self.job_name),
            ("CLUSTER", &self.cluster),
            ("PREFIX", &self.prefix),
        ];
        for (key, text) in texts {
            put_text(&mut tree, key, text);
        }
        let texts =
            [("NOTE", &self.note), ("FROM", &self.from), ("TO", &self.to), ("DSETNAME", &self.dataset_name)];
        for (key, text) in texts {
            if let Some(text) = text {
                put_text(&mut tree, key, text);
            }
        }
        let numbers = [
            ("DSET", self.dataset),
            ("BYTES", self.bytes),
            ("FILES", self.files),
            ("PROCS", self.processes),
            ("NODES", self.nodes),
        ];
        for (key, number) in numbers {
            if let Some(number) = number {
                tree.set(key, number);
            }
        }
        if let Some(seconds) = self.seconds {
            tree.set("SECS", seconds);
        }
        tree
    }

    /// From what [`to_tree`](Self::to_tree) made.
    ///
    /// # Errors
    /// A field is missing, or is not what it should be.
    pub fn from_tree(tree: &KvTree) -> Result<Self, FieldError> {
        let text = |key: &'static str| Ok::<_, FieldError>(tree.parse::<String>(key)?.unwrap_or_default());
        let kind: String = tree.require("KIND")?;
        Ok(Self {
            kind: if kind == TRANSFER { LogKind::Transfer } else { LogKind::Event },
            name: tree.require("NAME")?,
            micros: tree.require("MICROS")?,
            local_time: text("TIME")?,
            host: text("HOST")?,
            user: text("USER")?,
            job_id: text("JOBID")?,
            job_name: text("JOBNAME")?,
            cluster: text("CLUSTER")?,
            prefix: text("PREFIX")?,
            note: tree.parse("NOTE")?,
            from: tree.parse("FROM")?,
            to: tree.parse("TO")?,
            dataset: tree.parse("DSET")?,
            dataset_name: tree.parse("DSETNAME")?,
            seconds: tree.parse("SECS")?,
            bytes: tree.parse("BYTES")?,
            files: tree.parse("FILES")?,
            processes: tree.parse("PROCS")?,
            nodes: tree.parse("NODES")?,
        })
    }
}

/// A text with a NUL cannot travel in a tree.
fn put_text(tree: &mut KvTree, key: &str, text: &str) {
    tree.set(key, text.replace('\0', "?"));
}

const EVENT: &str = "EVENT";
const TRANSFER: &str = "TRANSFER";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_through_a_tree_as_it_was() {
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
        };
        for entry in [full, LogEntry { name: "HALT".to_owned(), ..LogEntry::default() }] {
            let packed = entry.to_tree().pack();
            let tree = KvTree::unpack(&packed).unwrap();
            assert_eq!(LogEntry::from_tree(&tree).unwrap(), entry);
        }
        assert!(LogEntry::from_tree(&KvTree::new()).is_err());
    }
}
