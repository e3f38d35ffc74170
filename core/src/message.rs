//! What the runtime says to the user: one line, with the version, the rank and the node before it.
//!
//! At `SCR_DEBUG=0` it says nothing but warnings and errors; 1 adds what it does and how long it took, 2 the details.

use crate::comm::Rank;
use crate::env::Output;
use std::sync::Arc;

/// Says lines for one rank.
#[derive(Clone)]
pub struct Reporter {
    output: Arc<dyn Output>,
    /// Rank and node, once they are known.
    place: String,
    rank: Rank,
    level: u64,
}

impl Reporter {
    /// A reporter for a rank on a node; `level` is `SCR_DEBUG`.
    pub fn new(output: Arc<dyn Output>, rank: Rank, node: &str, level: u64) -> Self {
        Self { output, place: format!("rank {rank} on {node}"), rank, level }
    }

    /// A reporter for a command, which has no rank.
    pub fn of_command(output: Arc<dyn Output>, command: &str) -> Self {
        Self { output, place: command.to_owned(), rank: Rank(0), level: 0 }
    }

    /// What the user asked to see with `SCR_DEBUG=1`; rank 0 says it for all.
    pub fn info(&self, text: &str) {
        if self.level >= 1 && self.rank == Rank(0) {
            self.output.info(&self.line("", text));
        }
    }

    /// Details of this very rank, for `SCR_DEBUG=2`.
    pub fn debug(&self, text: &str) {
        if self.level >= 2 {
            self.output.info(&self.line("", text));
        }
    }

    /// What the user must know at every level; rank 0 says it for all.
    pub fn notice(&self, text: &str) {
        if self.rank == Rank(0) {
            self.output.info(&self.line("", text));
        }
    }

    /// The same, of this very rank.
    pub fn notice_here(&self, text: &str) {
        self.output.info(&self.line("", text));
    }

    /// Going on with less than was asked for; rank 0 says it for all.
    pub fn warn(&self, text: &str) {
        if self.rank == Rank(0) {
            self.warn_here(text);
        }
    }

    /// Going on with less than was asked for on this very rank.
    pub fn warn_here(&self, text: &str) {
        self.output.error(&self.line(" WARNING", text));
    }

    /// Something failed for the whole run; rank 0 says it for all.
    pub fn error(&self, text: &str) {
        if self.rank == Rank(0) {
            self.error_here(text);
        }
    }

    /// Something failed on this very rank.
    pub fn error_here(&self, text: &str) {
        self.output.error(&self.line(" ERROR", text));
    }

    fn line(&self, kind: &str, text: &str) -> String {
        format!("SCR {}{kind}: {}: {text}", crate::VERSION, self.place)
    }
}
