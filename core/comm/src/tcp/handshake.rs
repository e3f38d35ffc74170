//! The check of who may connect: both ends show that they know the secret of the run, which itself never travels.
//!
//! ```text
//! connecting rank  -> MAGIC, from: u32, to: u32, nonce
//! listening rank   -> nonce, proof
//! connecting rank  -> proof
//! listening rank   -> WELCOME
//! ```
//!
//! A connection that ends before the welcome has carried nothing, so that its rank may connect again.
//!
//! A proof is a HMAC-SHA256 over the role, both ranks and both nonces, with the secret as its key. Both nonces are new for each
//! connection, so that what somebody has recorded is worth nothing.

use crate::Rank;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The secret of a run, which all its ranks know. It is sent to them over a communicator that is trusted.
#[derive(Clone)]
pub struct Secret(pub(super) [u8; 32]);

/// New for each connection.
pub(super) type Nonce = [u8; 16];

/// The first frame: who connects to whom.
pub(super) const HELLO: usize = 8 + 4 + 4 + 16;
/// The answer.
pub(super) const ANSWER: usize = 16 + PROOF;
/// The last frame.
pub(super) const PROOF: usize = 32;

/// The other end may send now.
pub(super) const WELCOME: u8 = 1;

/// The last byte is the version.
const MAGIC: &[u8; 8] = b"scrcomm\x01";

/// A connection that is being made, as both ends know it.
#[derive(Clone, Copy)]
pub(super) struct Parties {
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) nonce: Nonce,
}

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> std::io::Result<Self> {
        random().map(Self)
    }

    /// The proof of the listening rank.
    pub(super) fn answer(&self, parties: &Parties, own: &Nonce) -> [u8; ANSWER] {
        let mut answer = [0; ANSWER];
        answer[..16].copy_from_slice(own);
        answer[16..].copy_from_slice(&self.mac(b"listens", parties, own).finalize().into_bytes());
        answer
    }

    /// The proof of the connecting rank to an answer, if that was one of a rank that knows the secret.
    pub(super) fn proof(&self, parties: &Parties, answer: &[u8; ANSWER]) -> Option<[u8; PROOF]> {
        let (theirs, proof) = answer.split_first_chunk::<16>()?;
        self.mac(b"listens", parties, theirs).verify_slice(proof).ok()?;
        Some(self.mac(b"connects", parties, theirs).finalize().into_bytes().into())
    }

    /// Whether the connecting rank knows the secret.
    pub(super) fn is_proof(&self, parties: &Parties, own: &Nonce, proof: &[u8; PROOF]) -> bool {
        self.mac(b"connects", parties, own).verify_slice(proof).is_ok()
    }

    fn mac(&self, role: &[u8], parties: &Parties, listener: &Nonce) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0).expect("a key of any length will do");
        for part in
            [role, &parties.from.0.to_be_bytes(), &parties.to.0.to_be_bytes(), &parties.nonce, listener]
        {
            mac.update(part);
        }
        mac
    }
}

impl Parties {
    pub(super) fn hello(&self) -> [u8; HELLO] {
        let mut hello = [0; HELLO];
        let parts: [&[u8]; 4] = [MAGIC, &self.from.0.to_be_bytes(), &self.to.0.to_be_bytes(), &self.nonce];
        hello.copy_from_slice(&parts.concat());
        hello
    }

    /// The sender of a hello, if the hello is meant for this rank.
    pub(super) fn of_hello(hello: &[u8; HELLO], me: Rank, size: u32) -> Option<Self> {
        let number =
            |at: usize| Rank(u32::from_be_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]));
        let (from, to) = (number(8), number(12));
        let nonce = hello[16..].try_into().ok()?;
        (hello.starts_with(MAGIC) && to == me && from.0 < size).then_some(Self { from, to, nonce })
    }
}

/// Random bytes of the system.
pub(super) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_know_each_other_by_the_secret_and_nothing_else_will_do() {
        let secret = Secret::new().unwrap();
        let parties = Parties { from: Rank(3), to: Rank(5), nonce: random().unwrap() };
        let heard = Parties::of_hello(&parties.hello(), Rank(5), 6).unwrap();
        let own = random().unwrap();
        let proof = secret.proof(&parties, &secret.answer(&heard, &own)).unwrap();
        assert!(secret.is_proof(&heard, &own, &proof));
        // Recorded, the same proof is worth nothing for another connection, nor in the other direction.
        assert!(!secret.is_proof(&heard, &random().unwrap(), &proof));
        assert!(!secret.is_proof(&Parties { from: Rank(2), ..heard }, &own, &proof));
        let foreign = Secret::new().unwrap();
        assert!(foreign.proof(&parties, &secret.answer(&heard, &own)).is_none());
        assert!(!foreign.is_proof(&heard, &own, &proof));
    }

    #[test]
    fn a_hello_for_another_rank_or_of_none_is_no_hello() {
        let parties = Parties { from: Rank(3), to: Rank(5), nonce: [7; 16] };
        assert!(Parties::of_hello(&parties.hello(), Rank(4), 6).is_none());
        assert!(Parties::of_hello(&parties.hello(), Rank(5), 3).is_none());
        let mut garbled = parties.hello();
        garbled[7] = 2;
        assert!(Parties::of_hello(&garbled, Rank(5), 6).is_none());
    }
}
