//! For tests only: environments that a test makes, a file layer that fails where a test says so, and descriptors that an
//! application closes.
//!
//! Nothing that ships knows this crate. The units of `scr-base` and `scr-prefix` compile what they need of it as modules of
//! their own, since a crate and its units are two crates to the compiler.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test fails if it cannot continue"
)]

pub mod descriptors;
mod env;
pub mod faulty;
pub mod fixtures;
mod moments;
pub mod promises;

pub use env::{FakeClock, RecordedOutput, TestEnv};
pub use moments::{moments, takes_all};
