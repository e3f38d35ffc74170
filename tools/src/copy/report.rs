//! What was copied from a node, in words and as JSON.

use crate::output::JSON_VERSION;
use scr_core::scavenge::{Copied, CopiedPart};
use serde::Serialize;
use std::path::PathBuf;

/// What was copied.
#[derive(Serialize)]
pub(super) struct CopyReport {
    version: u32,
    node: String,
    /// The number that was asked for.
    id: u64,
    /// The dataset's number in the prefix directory and its name, where anything of it is here.
    id_in_prefix: Option<u64>,
    name: Option<String>,
    /// Whether it was complete in the prefix directory, so that nothing was copied.
    already: bool,
    /// Whether the prefix directory has all that this node had.
    whole: bool,
    parts: Vec<Part>,
    /// Ranks whose parts other nodes have copied meanwhile.
    elsewhere: Vec<u32>,
    passed_over: Vec<String>,
    caches: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Part {
    rank: u32,
    files: u64,
    bytes: u64,
    wrong: Vec<String>,
}

impl CopyReport {
    pub(super) fn new(id: u64, node: &str, caches: &[PathBuf], copied: &Copied) -> Self {
        let part = |part: &CopiedPart| Part {
            rank: part.rank,
            files: part.files,
            bytes: part.bytes,
            wrong: part.wrong.clone(),
        };
        Self {
            version: JSON_VERSION,
            node: node.to_owned(),
            id,
            id_in_prefix: copied.dataset.as_ref().map(|(id, _)| *id),
            name: copied.dataset.as_ref().map(|(_, name)| String::from_utf8_lossy(name).into_owned()),
            already: copied.already,
            whole: copied.is_whole(),
            parts: copied.parts.iter().map(part).collect(),
            elsewhere: copied.elsewhere.clone(),
            passed_over: copied.passed_over.clone(),
            caches: caches.to_vec(),
        }
    }

    /// What went wrong, a line each.
    pub(super) fn complaints(&self) -> Vec<String> {
        let wrong = self.parts.iter().flat_map(|part| {
            part.wrong.iter().map(|why| format!("the part of rank {} counts as lost: {why}", part.rank))
        });
        let mut lines: Vec<String> = self.passed_over.iter().cloned().chain(wrong).collect();
        if self.name.is_none() {
            let caches: Vec<_> = self.caches.iter().map(|cache| cache.display().to_string()).collect();
            lines.push(format!("there is nothing of dataset {} in {}", self.id, caches.join(", ")));
        }
        lines
    }

    pub(super) fn in_words(&self) -> String {
        let Some(name) = &self.name else { return String::new() };
        let label = format!("dataset {} `{name}'", self.id_in_prefix.unwrap_or(self.id));
        if self.already {
            return format!(
                "{}: {label} is complete in the prefix directory already; nothing is copied\n",
                self.node
            );
        }
        let listed = |ranks: &mut dyn Iterator<Item = u32>| {
            ranks.map(|rank| rank.to_string()).collect::<Vec<_>>().join(", ")
        };
        let elsewhere = match self.elsewhere.as_slice() {
            [] => String::new(),
            ranks => format!("; other nodes have copied the ranks {}", listed(&mut ranks.iter().copied())),
        };
        let files: u64 = self.parts.iter().map(|part| part.files).sum();
        let bytes: u64 = self.parts.iter().map(|part| part.bytes).sum();
        format!(
            "{}: {label}: copied {files} files ({bytes} bytes) of the ranks {}{elsewhere}\n",
            self.node,
            listed(&mut self.parts.iter().map(|part| part.rank))
        )
    }
}
