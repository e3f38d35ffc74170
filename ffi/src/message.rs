//! The lines that this layer itself writes: to standard error, each in one write, so that ranks do not mix.

use crate::mpi_library;
use std::io::Write;
use std::sync::OnceLock;

/// Who speaks, once a session has told it.
static SPEAKER: OnceLock<(u32, String)> = OnceLock::new();

/// From now on lines carry this rank and node.
pub(crate) fn speak_as(rank: u32, node: &str) {
    // A second session does not come; if it did, it would be the same rank on the same node.
    let _ = SPEAKER.set((rank, node.to_owned()));
}

/// Tells why a call failed, with what lies behind it.
pub(crate) fn failed(call: &str, error: &dyn std::error::Error) {
    line("ERROR", &format!("{call}: {}", chain(error)));
}

/// Tells what will go on, but should not be so.
pub(crate) fn warn(text: &str) {
    line("WARNING", text);
}

/// Tells what happens on purpose.
pub(crate) fn note(text: &str) {
    line("NOTE", text);
}

fn line(kind: &str, text: &str) {
    let line = format!("SCR {} {kind}: {}: {text}\n", scr_core::VERSION, speaker());
    // Nothing is left to be done where even this fails.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn speaker() -> String {
    match (SPEAKER.get(), mpi_library::world_rank()) {
        (Some((rank, node)), _) => format!("rank {rank} on {node}"),
        (None, Some(rank)) => format!("rank {rank}"),
        (None, None) => format!("process {}", std::process::id()),
    }
}

/// The error and its causes, apart from those whose text stands in the one before.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    // One line per failure, whatever a file name or a system text holds.
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read it")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_line_shows_the_cause_behind_an_error() {
        let error = Outer(std::io::Error::other("no\nspace"));
        assert_eq!(chain(&error), "cannot read it: no space");
    }
}
