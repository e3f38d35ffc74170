//! The scr runtime.
//!
//! A [`comm`] is how ranks talk, an [`env`] is how the runtime sees the world around it.

pub mod comm;
pub mod env;
pub mod fs;
pub mod plugin;

/// The version of this release, as `SCR_Get_version` gives it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
