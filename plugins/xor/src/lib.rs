//! The scheme XOR: every member of a set keeps one parity chunk, and the set survives the loss of any one
//! of its members. See docs/user/concepts.md.

#![deny(unsafe_code)]

use scr_striping::Striping;

pub use scr_striping::FORMAT;

/// The scheme XOR.
pub fn xor() -> Striping {
    Striping::new(1)
}

scr_plugin_api::export_scheme! {
    formats: FORMAT..=FORMAT,
    new: |_options| Ok(xor()),
}
