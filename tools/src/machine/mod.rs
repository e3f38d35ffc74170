//! The machine that a job runs on: its allocation, the state of its nodes, and how to run something on them.
//!
//! - `manifest`: resource managers and launchers, as files describe them
//! - `query`: what is asked of a resource manager, and how its answers read
//! - `allocation`: id, nodes and end of the allocation
//! - `on_nodes`: one command on many nodes
//! - `health`: which nodes are not to be used, and why; the check that runs on each of them
//! - `hostlist`: lists of nodes as text
//! - `process`: commands with a time limit

mod allocation;
pub(crate) mod health;
pub(crate) mod hostlist;
mod manifest;
mod on_nodes;
pub(crate) mod process;
mod query;

pub(crate) use allocation::{current_job_id, Allocation, Overrides};
pub(crate) use health::{BadNode, CheckNodeArgs};
pub(crate) use manifest::{Launcher, Manifests};
