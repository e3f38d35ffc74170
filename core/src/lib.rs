//! The scr runtime.
//!
//! A [`comm`] is how ranks talk, an [`env`] is how the runtime sees the world around it. [`param`] turns what
//! users and sites set into values, [`descriptor`] those values into groups, stores and redundancy.

// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod comm;
pub mod descriptor;
pub mod env;
pub mod fs;
pub mod param;

/// The version of this release, as `SCR_Get_version` gives it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
