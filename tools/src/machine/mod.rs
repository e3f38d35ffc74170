//! The machine that a job runs on: its allocation, the state of its nodes, and how to run something on them.
//!
//! - `manifest`: resource managers and launchers, as files describe them; what is asked of a manager, and how its answers read
//! - `pretend`: pretend nodes of this machine
//! - `allocation`: id, nodes and end of the allocation, and one command on many of its nodes
//! - `health`: which nodes are not to be used, and why; the check that runs on each of them
//! - `process`: commands with a time limit

mod allocation;
pub(crate) mod health;
mod manifest;
pub(crate) mod pretend;
pub(crate) mod process;

pub(crate) use allocation::{current_job_id, Allocation, Overrides, AT_ONCE};
pub(crate) use health::{
    asked, bad_nodes, check_store, command_here, excluded, good_nodes, nodes_with_data, own_names,
    up_and_down, write_some, BadNode, CheckNodeArgs,
};
pub(crate) use manifest::{Launcher, Manifests};
pub(crate) use process::{print_answer, Activity, Finished, Limit, Started};

use crate::prelude::*;
use std::fs::File;
use std::io::Read;

/// More than any list of nodes, manifest or answer of a command takes.
const MOST_TEXT_BYTES: u64 = 64 << 20;

/// The text of a file, which may be a pipe that the user has named.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    Ok(String::from_utf8(limited(&mut File::open(path)?)?)?)
}

/// All bytes that are to be read, if they are not too many.
fn limited(from: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= MOST_TEXT_BYTES, "it has more than {MOST_TEXT_BYTES} bytes");
    Ok(bytes)
}
