//! Shared code of transports whose copies a vendor's service makes outside of this process.
//!
//! A [`Service`] is the vendor's: it starts, polls and stops copies. [`Staged`] makes a transport of it that keeps the rules:
//! sources are checked before, destinations after, and a job requested twice is one copy. Its ticket holds everything that
//! another process needs to poll, wait or stop. [`open_library`] finds the vendor's library at run time.

#![deny(unsafe_code)]

mod library;
mod service;
mod staged;
mod ticket;

pub use library::{open_library, Symbols};
pub use service::{Copies, Prepare, Progress, Service, StagedFile};
pub use staged::Staged;
