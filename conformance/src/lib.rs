//! The conformance kits: what any plugin must do, tested without MPI and without a cluster.
//!
//! - [`scheme`] runs a redundancy scheme on sets whose members are threads of this process.
//! - [`transport`] has a flush transport copy real files.
//!
//! A vendor's own tests call them, and so does `scr plugin conformance` on the built library.

pub mod scheme;
pub mod transport;
