//! The conformance kit for redundancy schemes.
//!
//! [`run`] puts a scheme through every check and returns a [`Report`]: sets of two to nine members, every pattern
//! of losses that the scheme promises to survive and one loss more, uneven and empty files, redundancy of another
//! dataset, flipped bits, members that fail at any of their calls, users that cancel. [`SetUp`] runs a single call
//! of a scheme, for tests of one's own.
//!
//! | module | what it has |
//! |---|---|
//! | `kit` | the order of the checks |
//! | `promises`, `losses`, `damage`, `faults` | the checks |
//! | `report` | what they found |
//! | `set` | one call of a scheme on all members of a set, as ranks of a thread communicator |
//! | `member` | one member's side of that call |
//! | `memory` | a member's files |

mod damage;
mod faults;
mod kit;
mod losses;
mod member;
mod memory;
mod promises;
mod report;
mod set;

#[cfg(test)]
mod tests;

pub use kit::{run, Factory, Limits};
pub use report::{Check, Failure, Report};
pub use set::{Call, Ended, Injected, Outcome, SetUp, Stored};
