//! The flags between the thread of a flush and the application.

use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub(super) struct Flags {
    /// This rank has recorded what is its own to record.
    pub(super) recorded: bool,
    /// All ranks have.
    pub(super) all_recorded: bool,
    pub(super) cancelled: bool,
    pub(super) failed: bool,
    /// The transport's ticket.
    pub(super) ticket: Option<Vec<u8>>,
}

/// The flags of one rank's part of a flush, for both.
pub(super) type SharedFlags = Arc<Mutex<Flags>>;
