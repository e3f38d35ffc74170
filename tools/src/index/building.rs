//! What became of datasets that were to be made complete, in words and as JSON.

use crate::output::JSON_VERSION;
use scr_core::scavenge::{BuildError, Built, Outcome};
use serde::Serialize;

/// What became of them.
#[derive(Serialize)]
pub(super) struct BuildReport {
    version: u32,
    complete: bool,
    datasets: Vec<Row>,
}

/// One dataset.
#[derive(Serialize)]
struct Row {
    id: Option<u64>,
    name: String,
    /// Whether a job may use it.
    complete: bool,
    /// How: `already`, `listed`, `built`, `incomplete`.
    outcome: &'static str,
    /// The ranks whose parts were rebuilt.
    rebuilt: Vec<u32>,
    files: Option<u64>,
    bytes: Option<u64>,
    /// Whether every file was compared with a checksum.
    verified: bool,
    why: Option<String>,
    notes: Vec<String>,
}

impl BuildReport {
    pub(super) fn new() -> Self {
        Self { version: JSON_VERSION, complete: true, datasets: Vec::new() }
    }

    /// Whether a job may use all of them.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes in what became of one; that there is none such is an answer, other errors are passed on.
    pub(super) fn note(&mut self, built: Result<Built, BuildError>) -> Result<(), BuildError> {
        let row = match built {
            Ok(built) => Row::new(built),
            Err(error @ BuildError::NoDataset { id, .. }) => Row::none(Some(id), &error),
            Err(error @ BuildError::NoName { .. }) => Row::none(None, &error),
            Err(error) => return Err(error),
        };
        self.complete &= row.complete;
        self.datasets.push(row);
        Ok(())
    }

    /// What the user should know besides, and what went wrong, a line each.
    pub(super) fn complaints(&self) -> Vec<String> {
        let told =
            |row: &Row| row.notes.iter().map(|note| format!("{}: {note}", row.label())).collect::<Vec<_>>();
        let wrong = |row: &Row| {
            row.why.as_ref().map(|why| match row.id {
                Some(_) if row.outcome == INCOMPLETE => format!("{} is not complete: {why}", row.label()),
                _ => why.clone(),
            })
        };
        self.datasets.iter().flat_map(|row| told(row).into_iter().chain(wrong(row))).collect()
    }

    /// What was done, a line each.
    pub(super) fn in_words(&self) -> String {
        self.datasets.iter().filter(|row| row.complete).map(Row::in_words).collect()
    }
}

impl Row {
    fn new(built: Built) -> Self {
        let mut row = Self {
            id: Some(built.id),
            name: String::from_utf8_lossy(&built.name).into_owned(),
            complete: built.outcome.is_complete(),
            outcome: "already",
            rebuilt: Vec::new(),
            files: None,
            bytes: None,
            verified: false,
            why: None,
            notes: built.notes,
        };
        match built.outcome {
            Outcome::Already => (),
            Outcome::Listed { files, bytes, verified } => {
                (row.outcome, row.files, row.bytes, row.verified) =
                    (LISTED, Some(files), Some(bytes), verified);
            }
            Outcome::Completed { rebuilt, files, bytes } => {
                (row.outcome, row.files, row.bytes, row.verified) = (BUILT, Some(files), Some(bytes), true);
                row.rebuilt = rebuilt;
            }
            Outcome::Incomplete { why } => (row.outcome, row.why) = (INCOMPLETE, Some(why)),
        }
        row
    }

    fn none(id: Option<u64>, error: &BuildError) -> Self {
        Self {
            id,
            name: String::new(),
            complete: false,
            outcome: "none",
            rebuilt: Vec::new(),
            files: None,
            bytes: None,
            verified: false,
            why: Some(error.to_string()),
            notes: Vec::new(),
        }
    }

    fn label(&self) -> String {
        let id = self.id.map_or_else(String::new, |id| id.to_string());
        format!("dataset {id} `{}'", self.name)
    }

    fn in_words(&self) -> String {
        let what = match (self.outcome, self.rebuilt.as_slice()) {
            (BUILT, []) => "is complete and listed, nothing was lost".to_owned(),
            (BUILT, ranks) => {
                let ranks: Vec<_> = ranks.iter().map(ToString::to_string).collect();
                format!("is complete and listed, the parts of ranks {} were rebuilt", ranks.join(", "))
            }
            (LISTED, _) if self.verified => "is whole and listed".to_owned(),
            (LISTED, _) => "is listed; it is unverified, as it has no checksums".to_owned(),
            _ => return format!("{} is complete already, nothing was done\n", self.label()),
        };
        let (files, bytes) = (self.files.unwrap_or(0), self.bytes.unwrap_or(0));
        format!("{} {what}: {files} files, {bytes} bytes\n", self.label())
    }
}

const LISTED: &str = "listed";
const BUILT: &str = "built";
const INCOMPLETE: &str = "incomplete";
