//! The scr runtime.
//!
//! A [`session`] is one run of an application under the runtime. It talks to the other ranks through [`scr_comm`], sees the world
//! around it as an [`Env`](scr_base::env::Env), and touches files through [`scr_base::fs`]. [`scr_config`] turns what users and
//! sites set into groups, stores and redundancy; [`plugin`] finds the schemes and transports that they name. `cache` is what lies
//! on the nodes, [`scr_prefix`] what lies on the parallel file system; `redundancy`, `rebuild`, [`flush`] and `fetch` move data
//! between them, and [`scavenge`] saves the data of a dead job. The [`log`] records what happened when, and [`metrics`] shows it
//! to the site.

#![allow(
    missing_docs,
    reason = "only crates of scr call this one: a name that says everything needs no sentence"
)]
// Tests make and look at real files; the rule is for what ships.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod cache;
pub mod delete;
mod error;
mod fetch;
pub mod flush;
mod halt;
pub mod holdings;
mod job;
mod launcher;
pub mod log;
pub mod metrics;
#[cfg(any(test, feature = "parsers"))]
#[path = "tests/parsers/mod.rs"]
pub mod parsers;
pub mod plugin;
pub mod rebuild;
pub mod redundancy;
mod restart;
pub mod scavenge;
pub mod session;
mod typed;

pub use cache::bases::recorded as recorded_bases;
pub use cache::control::{find_control_dir, make_control_dir};
pub use job::{check_interface, descriptors, job_folder};
