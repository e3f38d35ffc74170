//! The conformance kit for redundancy schemes.
//!
//! [`run`] puts a scheme through every check and returns a [`Report`]: sets of two to nine members, every pattern
//! of losses that the scheme promises to survive and one loss more, uneven and empty files, redundancy of another
//! dataset, flipped bits, members that fail at any of their calls, users that cancel. [`SetUp`] runs a single call
//! of a scheme, for tests of one's own.
//!
//! | module | what it has |
//! |---|---|
//! | `kit` | what the checks have in common |
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
mod set;

#[cfg(test)]
mod tests;

pub use kit::{Factory, Limits};
pub use set::{Call, Ended, Injected, Outcome, SetUp, Stored};

use crate::Report;
use kit::Kit;

/// Puts a scheme through all checks. After a call that hangs no more is tried, since its threads are still about.
pub fn run(factory: &Factory<'_>, limits: &Limits) -> Report {
    let mut kit = Kit::new(factory, limits);
    let checks = [
        promises::set_sizes,
        promises::set_of_one,
        losses::round_trip,
        losses::promised,
        losses::tolerated,
        losses::beyond,
        losses::uneven,
        losses::much,
        damage::other_dataset,
        damage::flipped_identity,
        damage::flipped_bits,
        faults::in_protect,
        faults::in_rebuild,
        faults::cancelled,
    ];
    for check in checks {
        // One that ends early hinders no other.
        let _ = check(&mut kit);
    }
    kit.into_report()
}
