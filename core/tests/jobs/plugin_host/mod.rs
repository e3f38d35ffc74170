//! The plugin host against real libraries: good ones, and ones that are wrong in one way each.
//!
//! - `library`: what a library may be, and how a wrong one is refused
//! - `search`: which plugin a name means, and what is skipped
//! - `together`: the same plugin, or the same error, on all ranks of a job
//! - `folders`: the folders, manifests and libraries that the tests use

mod folders;
mod library;
mod search;
mod together;
