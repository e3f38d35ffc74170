//! The conformance kit: what any scheme must do, put to the test without a cluster.
//!
//! [`run`] puts a scheme through every check and gives a [`Report`]: sets of two to nine members, every pattern
//! of losses that is promised to be survived and one loss more, uneven and empty files, redundancy of something
//! else, flipped bits, members that die at any of their calls, users that cancel. [`SetUp`] below it runs one
//! call of a scheme on a set of threads in this process, with files in memory, and is there for tests of one's own.
//!
//! The map: `kit` has the order of the checks; `promises`, `losses`, `damage` and `faults` have the checks; `set`,
//! `threads` and `memory` are the host that they run on.

mod damage;
mod faults;
mod kit;
mod losses;
mod memory;
mod promises;
mod report;
mod set;
mod threads;

#[cfg(test)]
mod tests;

pub use kit::{run, Factory, Limits};
pub use report::{Check, Failure, Report};
pub use set::{Call, Ended, Injected, Outcome, SetUp, Stored};
