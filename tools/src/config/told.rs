//! What is wrong with a configuration: where, what, what becomes of it.

use scr_core::param::{Origin, Problem};
use serde::Serialize;
use std::path::Path;

/// Something that is wrong.
pub(super) struct Told {
    pub(super) problem: Problem,
    /// Whether a job does not start with it.
    stops: bool,
}

/// The same for programs.
#[derive(Serialize)]
pub(super) struct Row {
    from: Source,
    text: String,
    stops: bool,
}

/// Where a setting was made.
#[derive(Serialize, PartialEq, Debug)]
pub(super) struct Source {
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl Told {
    pub(super) fn passed_over(problem: Problem) -> Self {
        Self { problem, stops: false }
    }

    pub(super) fn stops(problem: Problem) -> Self {
        Self { problem, stops: true }
    }

    /// File and line, for an order in which people mend things.
    pub(super) fn place(&self) -> Option<(&Path, u32)> {
        self.problem.origin.place().map(|place| (place.file.as_path(), place.line))
    }

    pub(super) fn in_words(&self) -> String {
        let effect = if self.stops { " (no job starts with this)" } else { "" };
        format!("{}{effect}", self.problem)
    }

    pub(super) fn row(&self) -> Row {
        Row {
            from: Source::of(&self.problem.origin),
            text: self.problem.cause.to_string(),
            stops: self.stops,
        }
    }
}

impl Source {
    pub(super) fn of(origin: &Origin) -> Self {
        let source = match origin {
            Origin::Environment => "environment",
            Origin::UserFile(_) => "user file",
            Origin::Application => "application",
            Origin::SystemFile(_) => "system file",
            Origin::Build => "build",
            Origin::Default => "default",
            _ => "other",
        };
        let place = origin.place();
        let file = place.map(|place| place.file.display().to_string());
        Self { source, file, line: place.map(|place| place.line).filter(|&line| line > 0) }
    }
}
