//! What transports share whose copies are made by a vendor's service outside of this process.
//!
//! A [`Service`] is the vendor's: it takes copies, says how they are, stops them. [`Staged`] makes a transport of it that keeps
//! the rules: sources are checked before, destinations after, a job asked for twice is one copy. Its ticket holds
//! all that another process needs to ask, to wait or to stop. [`open_library`] finds the vendor's library at run time.

#![deny(unsafe_code)]

mod library;
mod service;
mod staged;
mod ticket;

pub use library::{open_library, Symbols};
pub use service::{Copies, Prepare, Progress, Service, StagedFile};
pub use staged::Staged;
