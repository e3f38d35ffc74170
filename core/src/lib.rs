//! The scr runtime.
//!
//! A [`comm`] is how ranks talk, an [`env`](mod@env) is how the runtime sees the world around it, and [`prefix`] is what
//! it keeps on the parallel file system.

pub mod comm;
pub mod env;
pub mod fs;
pub mod plugin;
pub mod prefix;

/// The version of this release, as `SCR_Get_version` gives it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
