//! The conformance kit: what any scheme must do, put to the test without a cluster.
//!
//! [`SetUp`] runs one call of a scheme on a set of threads in this process, with files in memory.

mod memory;
mod set;
mod threads;

pub use set::{Call, Ended, Injected, Outcome, SetUp, Stored};
