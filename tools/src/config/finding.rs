//! What is wrong with a configuration: where, what, and whether a job starts with it.

use scr_core::param::{Origin, Problem};
use serde_json::{json, Value};
use std::path::Path;

/// Something that is wrong.
pub(super) struct Finding {
    pub(super) problem: Problem,
    /// Whether a job does not start with it.
    stops: bool,
}

impl Finding {
    pub(super) fn ignored(problem: Problem) -> Self {
        Self { problem, stops: false }
    }

    pub(super) fn stops(problem: Problem) -> Self {
        Self { problem, stops: true }
    }

    /// File and line, for an order in which people fix things.
    pub(super) fn place(&self) -> Option<(&Path, u32)> {
        self.problem.origin.place().map(|place| (&*place.file, place.line))
    }

    pub(super) fn text(&self) -> String {
        let effect = if self.stops { " (no job starts with this)" } else { "" };
        format!("{}{effect}", self.problem)
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "from": origin_json(&self.problem.origin),
            "text": self.problem.cause.to_string(),
            "stops": self.stops,
        })
    }
}

/// Where a setting was made, for programs.
pub(super) fn origin_json(origin: &Origin) -> Value {
    let source = match origin {
        Origin::Environment => "environment",
        Origin::UserFile(_) => "user file",
        Origin::Application => "application",
        Origin::SystemFile(_) => "system file",
        Origin::Build => "build",
        Origin::Default => "default",
        _ => "other",
    };
    let mut json = json!({ "source": source });
    if let Some(place) = origin.place() {
        json["file"] = place.file.display().to_string().into();
        if place.line > 0 {
            json["line"] = place.line.into();
        }
    }
    json
}

pub(super) fn jsons(findings: &[Finding]) -> Vec<Value> {
    findings.iter().map(Finding::json).collect()
}
