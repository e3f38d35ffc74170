//! The scheme XOR: every member of a set keeps one parity chunk, and the set survives the loss of any one
//! of its members. See the user guide's section "Redundancy schemes".

#![forbid(unsafe_code)]

use scr_striping::Striping;

pub use scr_striping::FORMAT;

/// The scheme XOR.
pub fn xor() -> Striping {
    Striping::new(1)
}
