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
    // One line per failure, whatever a file name or a text of the system holds.
    let text = scr_core::describe(error).replace('\n', " ");
    // Some begin with the name of the call themselves.
    let text = if text.starts_with(call) { text } else { format!("{call}: {text}") };
    line("ERROR", &text);
}

/// Tells what will go on, but should not be so.
pub(crate) fn warn(text: &str) {
    line("WARNING", text);
}

/// Tells what happens on purpose.
pub(crate) fn note(text: &str) {
    line("NOTE", text);
}

/// Whether this rank speaks for all where all would say the same. Without MPI every process speaks for itself.
pub(crate) fn is_first_rank() -> bool {
    mpi_library::world_rank().is_none_or(|rank| rank == 0)
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
