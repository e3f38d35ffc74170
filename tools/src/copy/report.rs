//! The parts that were copied from a node, as text and as JSON.

use crate::output::count;
use scr_base::message::amount;
use scr_core::scavenge::{Copied, CopiedPart};
use serde_json::{json, Value};
use std::path::PathBuf;

/// The request, and its result.
pub(super) struct CopyReport<'a> {
    pub(super) node: &'a str,
    /// The number that was asked for.
    pub(super) id: u64,
    pub(super) caches: &'a [PathBuf],
    pub(super) copied: &'a Copied,
}

impl CopyReport<'_> {
    /// The problems, a line each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let wrong = self.copied.parts.iter().flat_map(|part| {
            part.wrong.iter().map(|why| format!("the part of rank {} counts as lost: {why}", part.rank))
        });
        let mut lines: Vec<String> = self.copied.passed_over.iter().cloned().chain(wrong).collect();
        if self.copied.dataset.is_none() {
            lines.push(format!(
                "there is nothing of dataset {} in {}; `scr flush-file' shows the datasets of the allocation, and --cache names \
                 another directory",
                self.id,
                self.caches().join(", ")
            ));
        }
        lines
    }

    pub(super) fn text(&self) -> String {
        let Some((id, name)) = &self.copied.dataset else { return String::new() };
        let label = format!("{}: dataset {id} `{}'", self.node, String::from_utf8_lossy(name));
        if self.copied.already {
            return format!("{label} is complete in the prefix directory already; nothing is copied\n");
        }
        let elsewhere = match self.copied.elsewhere.as_slice() {
            [] => String::new(),
            ranks => format!("; other nodes have copied the ranks {}", list(ranks)),
        };
        let sum = |of: fn(&CopiedPart) -> u64| self.copied.parts.iter().map(of).sum();
        let (files, bytes) = (sum(|part| part.files), sum(|part| part.bytes));
        let ranks: Vec<u32> = self.copied.parts.iter().map(|part| part.rank).collect();
        let (files, bytes) = (count(files, "file"), amount(bytes));
        format!("{label}: copied {files} ({bytes}) of the ranks {}{elsewhere}\n", list(&ranks))
    }

    /// `whole`: whether the prefix directory has all that this node had.
    pub(super) fn json(&self) -> Value {
        let Copied { dataset, already, parts, elsewhere, passed_over } = self.copied;
        let part = |part: &CopiedPart| json!({ "rank": part.rank, "files": part.files, "bytes": part.bytes, "wrong": part.wrong });
        json!({
            "node": self.node,
            "id": self.id,
            "id_in_prefix": dataset.as_ref().map(|(id, _)| id),
            "name": dataset.as_ref().map(|(_, name)| String::from_utf8_lossy(name)),
            "already": already,
            "whole": self.copied.is_whole(),
            "parts": parts.iter().map(part).collect::<Vec<_>>(),
            "elsewhere": elsewhere,
            "passed_over": passed_over,
            "caches": self.caches(),
        })
    }

    fn caches(&self) -> Vec<String> {
        self.caches.iter().map(|cache| cache.display().to_string()).collect()
    }
}

fn list(ranks: &[u32]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
