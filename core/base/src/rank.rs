//! The number of a rank.

use serde::{Deserialize, Serialize};

/// A rank in the whole run, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(pub u32);

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Rank {
    /// The rank as a place in a list of all ranks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
