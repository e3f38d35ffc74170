//! The conformance kit for redundancy schemes.
//!
//! [`run`] puts a scheme through every check and returns a [`Report`]: sets of two to nine members, every pattern
//! of losses that the scheme promises to survive and one loss more, uneven and empty files, redundancy of another
//! dataset, flipped bits, members that fail at any of their calls. [`SetUp`] runs a single call of a scheme, for tests
//! of one's own.
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
pub use member::Record;
pub use set::{Call, Ended, Injected, Outcome, SetUp, Stored};

use crate::Report;
use kit::{Kit, Tried};

/// What tries a check, its name, and what usually helps where it fails.
type Check = (fn(&mut Kit<'_>) -> Tried, &'static str, &'static str);

macro_rules! checks {
    ($($check:path: $name:literal, $cure:literal;)*) => { &[$(($check, $name, $cure)),*] };
}

const CHECKS: &[Check] = checks! {
    promises::set_sizes: "set sizes: taken with a sensible promise, or refused with a reason",
        "Let `losses_survived` return less than the size of the set, or `Refused` with a text that says which sizes \
         work. Compute `redundancy_len` from the shape and the options alone.";
    promises::set_of_one: "set of one: nothing promised, nothing invented",
        "Promise no loss in a set of one. If its member is lost, let `rebuild` return `TooManyLost` before it \
         writes anything.";
    losses::round_trip: "round trip: protect leaves the data alone, and rebuild has nothing to do",
        "Let `protect` only read the data, let `rebuild` write nothing where nobody is lost, and receive every \
         message with exactly the length that was sent.";
    losses::each_byte_once: "each byte once: protect writes all of the redundancy, and nothing twice",
        "Write every byte up to the length that `redundancy_len` returned, also those that pad: the file may hold \
         those of an older dataset.";
    losses::promised: "promised losses: every pattern comes back",
        "Restore data and redundancy of every lost member, or promise fewer losses. Write to lost members only.";
    losses::tolerated: "tolerated losses: members are rebuilt as the manifest says",
        "Let `tolerates` in the manifest be what `losses_survived` returns for sets that are large enough.";
    losses::beyond: "beyond the promise: refused, and nothing invented",
        "Compare `lost` with what is needed before anything is written, and return `TooManyLost` on all members. \
         Let `recoverable` say the same.";
    losses::uneven: "uneven and empty files: every promised loss comes back",
        "Take the lengths from `data_len` for every member; pad with zeros in memory, and never write past the end \
         of a file.";
    losses::much: "much data: promised losses come back",
        "Check the arithmetic of blocks at their ends: the last block of a member may be shorter or missing.";
    damage::other_dataset: "stale redundancy: that of another dataset or another set is found out",
        "Write a header at the start of the redundancy with the dataset's id and the world ranks of all members. \
         Compare all of it in `rebuild`, and return `Corrupt` where it differs.";
    damage::flipped_identity: "flipped bits in what names the dataset are found",
        "Compare every byte of the header in `rebuild`, not only a part of it.";
    damage::flipped_bits: "flipped bits in data and redundancy: no panic, no hang, and a second try without the culprit",
        "Check every length and number that is read from the redundancy before it is used, and write to lost \
         members only.";
    faults::in_protect: "failures and deaths in protect: everybody comes to an end",
        "Return the error of every call of the host at once, with `?`, and do not call `exchange` again after one \
         of its errors.";
    faults::in_rebuild: "failures and deaths in rebuild: everybody comes to an end, and another try succeeds",
        "Return the error of every call of the host at once, with `?`, and write to lost members only.";
};

/// Puts a scheme through all checks. After a call that hangs no more is tried, since its threads are still about.
pub fn run(factory: &Factory<'_>, limits: &Limits) -> Report {
    let mut kit = Kit::new(factory, limits);
    for (check, name, cure) in CHECKS {
        // One that ends early hinders no other.
        _ = kit.begin(name, cure).and_then(|()| check(&mut kit));
    }
    // What follows fails with the plain sets, whose cure comes first.
    if let Some(first) = kit.report.checks.iter().take(5).position(|check| check.failed > 0) {
        kit.report.checks[first + 1..].iter_mut().for_each(|check| check.cure = None);
    }
    kit.report
}
