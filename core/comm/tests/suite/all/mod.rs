//! Requirements on every communicator: the same cases for threads and TCP here, and for MPI
//! (`ffi/tests/programs/comm_suite.rs`). After each case nothing may be left in any mailbox.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod collectives;
mod messages;
mod sets;

use scr_comm::{collective, Comm, Rank, Tag};

/// One case. Every rank calls it at once, and it panics where something is wrong.
pub(crate) type Case = (&'static str, fn(&dyn Comm));

/// All cases, in the order they run.
pub(crate) fn cases() -> Vec<Case> {
    [messages::CASES, collectives::CASES, sets::CASES].concat()
}

/// Runs one case and then checks that it has left nothing.
pub(crate) fn run_case(comm: &dyn Comm, (name, case): &Case) {
    case(comm);
    collective::barrier(comm).unwrap();
    // Not the tag of the collective calls: a rank that is ahead has sent for the next barrier.
    for tag in (2..64).chain(1024..1100).map(Tag) {
        assert_eq!(comm.take(tag).unwrap(), None, "left over by `{name}'");
    }
    collective::barrier(comm).unwrap();
}

/// All ranks of the communicator.
fn ranks(comm: &dyn Comm) -> impl Iterator<Item = Rank> + Clone {
    (0..comm.size()).map(Rank)
}

/// Bytes that depend on everything that names a message, so that no two are taken for each other.
fn payload(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed ^ len as u64);
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Small, and the same everywhere (splitmix64).
struct Random(u64);

impl Random {
    fn of(parts: &[u64]) -> Self {
        let mut random = Random(0);
        for &part in parts {
            random.0 ^= part;
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Mostly short, sometimes none, sometimes long enough for every protocol of an MPI library.
    fn len(&mut self) -> usize {
        match self.below(8) {
            0 => 0,
            1..=4 => self.below(100) as usize,
            5 | 6 => self.below(2000) as usize,
            _ => self.below(200_000) as usize,
        }
    }
}
