//! The scr runtime.
//!
//! A [`session`] is one run of an application under the runtime. It talks to the other ranks through a [`comm`], sees the world
//! around it as an [`env`](mod@env), and touches files through [`fs`]. [`param`] turns what users and sites set into values,
//! [`descriptor`] those values into groups, stores and redundancy; [`plugin`] finds the schemes and transports that they name.
//! `cache` is what lies on the nodes, [`prefix`] what lies on the parallel file system; `redundancy`, `rebuild`,
//! [`flush`] and `fetch` move data between them, [`scavenge`] saves the data of a dead job, and [`scrub`] checks all of it. The
//! [`log`] records what happened when, and [`metrics`] shows it to the site.

// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod build;
mod cache;
pub mod comm;
mod delete;
pub mod descriptor;
pub mod env;
mod error;
mod fetch;
pub mod flush;
pub mod fs;
mod halt;
mod job;
pub mod ledger;
pub mod log;
pub mod message;
pub mod metrics;
mod parallel;
pub mod param;
#[cfg(any(test, feature = "parsers"))]
pub mod parsers;
mod placement;
pub mod plan;
#[cfg(not(feature = "planted"))]
mod planted;
#[cfg(feature = "planted")]
pub mod planted;
pub mod plugin;
pub mod prefix;
mod rebuild;
mod redundancy;
mod restart;
pub mod scavenge;
pub mod scrub;
pub mod session;
#[cfg(test)]
mod testing;

/// The version of this release, as `SCR_Get_version` gives it.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

pub use cache::bases::recorded as recorded_bases;
pub use cache::control::{find_control_dir, make_control_dir};
pub use job::job_folder;

/// An error with its causes, on one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
