//! The mistakes in a configuration: where, what, and whether a job starts with it.

use scr_config::param::{Origin, Problem};
use serde_json::{json, Value};
use std::path::Path;

/// Something that is wrong.
pub(super) struct Finding {
    pub(super) problem: Problem,
    pub(super) effect: Effect,
}

/// Its effect on a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Perhaps nothing: it depends on the host.
    None,
    Ignored,
    /// No job starts with it.
    Stops,
}

impl Finding {
    /// Whether it is a mistake on every host.
    pub(super) fn is_mistake(&self) -> bool {
        self.effect != Effect::None
    }

    /// File and line, for an order in which people fix things.
    pub(super) fn place(&self) -> Option<(&Path, u32)> {
        self.problem.origin.place().map(|place| (&*place.file, place.line))
    }

    pub(super) fn text(&self) -> String {
        match self.effect {
            Effect::None => format!("{} (note)", self.problem),
            Effect::Ignored => self.problem.to_string(),
            Effect::Stops => format!("{} (no job starts with this)", self.problem),
        }
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "from": origin_json(&self.problem.origin),
            "text": self.problem.cause.to_string(),
            "stops": self.effect == Effect::Stops,
            "note": !self.is_mistake(),
        })
    }
}

/// The place of a setting, for programs.
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
