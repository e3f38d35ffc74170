//! The plugin host against real libraries: good ones, and ones that are wrong in one way each.
//!
//! - `library`: what a library may be, and how a wrong one is refused
//! - `search`: which plugin a name means, and what is skipped
//! - `together`: the same plugin, or the same error, on all ranks of a job
//! - `world`: the folders, manifests and libraries that the tests use

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test makes its own files, and fails where it cannot"
)]

mod library;
mod search;
mod together;
mod world;
