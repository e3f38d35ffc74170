//! The conformance kits: what any plugin must do, tested without MPI and without a cluster.
//!
//! - [`scheme`] runs a redundancy scheme on sets whose members are threads of this process.
//! - [`transport`] has a flush transport copy real files.
//!
//! A vendor's own tests call them, and so does `scr plugin conformance` on the built library.

#![allow(clippy::disallowed_methods, reason = "a test fails if it gets no thread")]

mod bytes;
mod report;
mod running;
pub mod scheme;
pub mod transport;

pub use report::{Check, Report};
pub use running::note_in;
