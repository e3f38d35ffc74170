//! Finds the nodes that must not be used, and why; `scr check-node` is the check that each node makes of itself.
//!
//! C SCR's `scr_list_down_nodes`: what the user excludes, what was bad before, what the resource manager reports,
//! what does not answer, and what has no usable place for datasets.

use super::process::Limit;
use super::Allocation;
use crate::prelude::*;
use rustix::fs::statvfs;
use scr_base::fs::At;
use scr_config::descriptor::Store;
use scr_core::job_folder;
use std::io::{self, Write};

/// A node that must not be used, and its fault.
pub(crate) type BadNode = (String, String);

/// How long a node may take to answer; on a busy machine it takes seconds to reach it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The nodes of the allocation that must not be used. A node that was bad `before` stays bad: what has failed once in an
/// allocation may fail again.
pub(crate) fn bad_nodes(allocation: &Allocation, excluded: &[String], before: &[BadNode]) -> Vec<BadNode> {
    let mut bad = before.to_vec();
    let mut add = |nodes: Vec<String>, why: &str| {
        for node in nodes.iter().filter_map(|node| hostlist::find(node, &allocation.nodes)) {
            if bad.iter().all(|(known, _)| known != node) {
                bad.push((node.clone(), why.to_owned()));
            }
        }
    };
    add(excluded.to_vec(), "User excluded via SCR_EXCLUDE_NODES");
    add(reported_down(allocation), &format!("{} reports it down", allocation.manager.name));
    let good = good_nodes(allocation, &bad);
    bad.extend(failing_check(allocation, &good));
    bad
}

/// The nodes of the allocation that can be used.
pub(crate) fn good_nodes(allocation: &Allocation, bad: &[BadNode]) -> Vec<String> {
    let is_good = |node: &&String| bad.iter().all(|(bad, _)| bad != *node);
    allocation.nodes.iter().filter(is_good).cloned().collect()
}

/// The nodes that may hold data of a job: all but those that the resource manager reports down, with a warning for each of
/// these. A node may hold data although no job is to run there. `own` is this one.
pub(crate) fn nodes_with_data(allocation: &Allocation, own: String) -> Vec<String> {
    let (up, down) = up_and_down(allocation, own, || reported_down(allocation));
    for node in down {
        warn(format_args!(
            "node {node} is not asked for what it holds: {} reports it down",
            allocation.manager.name
        ));
    }
    up
}

/// The nodes of the allocation by whether they are none of those that are down.
pub(crate) fn up_and_down(
    allocation: &Allocation,
    own: String,
    down: impl FnOnce() -> Vec<String>,
) -> (Vec<String>, Vec<String>) {
    if allocation.is_here_alone() {
        return (vec![own], Vec::new());
    }
    let down = down();
    allocation.nodes.iter().cloned().partition(|node| hostlist::find(node, &down).is_none())
}

/// Says where a command has looked that has found nothing, and how to let it look elsewhere.
pub(crate) fn asked(nodes: &[String]) -> String {
    let nodes = if nodes.is_empty() { "no node".to_owned() } else { hostlist::compress(nodes) };
    format!("asked {nodes}; to ask others, name them in SCR_NODELIST")
}

fn reported_down(allocation: &Allocation) -> Vec<String> {
    allocation.reported_down().unwrap_or_else(|error| {
        warn(format_args!("cannot ask {} which nodes are down: {error:#}", allocation.manager.name));
        Vec::new()
    })
}

/// The nodes of the allocation that the user excludes, with a warning for each name that is none of them.
///
/// # Errors
/// The parameter is no list of nodes.
pub(crate) fn excluded(allocation: &Allocation, params: &Params) -> Result<Vec<String>> {
    let list = params.get(&param::EXCLUDE_NODES).unwrap_or_default();
    let list = hostlist::expand(&list).context("in SCR_EXCLUDE_NODES")?;
    Ok(own_names(list, "SCR_EXCLUDE_NODES", allocation))
}

/// These nodes under the names that the allocation has for them, with a warning that names their `source` for those that are no
/// nodes of it.
pub(crate) fn own_names(nodes: Vec<String>, source: &str, allocation: &Allocation) -> Vec<String> {
    let (ours, others): (Vec<_>, Vec<_>) =
        nodes.into_iter().partition(|node| hostlist::find(node, &allocation.nodes).is_some());
    if !others.is_empty() && !allocation.is_here_alone() {
        let (others, own) = (hostlist::compress(&others), hostlist::compress(&allocation.nodes));
        warn(format_args!("{source} names {others}, which is no node of this job; its nodes are {own}"));
    }
    hostlist::unique(ours.iter().filter_map(|node| hostlist::find(node, &allocation.nodes).cloned()))
}

/// Lets every node check itself.
fn failing_check(allocation: &Allocation, nodes: &[String]) -> Vec<BadNode> {
    if allocation.is_here_alone() {
        return Vec::new();
    }
    let Ok(command) = command_here(&["check-node"]) else { return Vec::new() };
    let answers = allocation.on_nodes().run(nodes, &command, Limit::Total(TIMEOUT));
    let mut bad = Vec::new();
    for (node, answer) in nodes.iter().zip(answers) {
        match answer {
            Ok(answer) if answer.succeeded() => (),
            Ok(answer) => bad.push((node.clone(), answer.failure())),
            // No node can be reached this way, so nothing is known of any of them.
            Err(error) => {
                warn(format_args!("the nodes cannot be checked: {error:#}"));
                return Vec::new();
            }
        }
    }
    bad
}

/// This very command with arguments, as other nodes find it.
pub(crate) fn command_here(arguments: &[&str]) -> Result<Vec<String>> {
    let program = environment::program()?;
    let program = program.to_str().context("the name of the folder of this command is not UTF-8")?;
    Ok([&[program], arguments].concat().into_iter().map(str::to_owned).collect())
}

/// There are no options: everything comes from the parameters.
#[derive(Args)]
pub(crate) struct CheckNodeArgs {}

/// `scr check-node`: whether this node has the stores that a job would use. It reports a store that is missing, not
/// writable, smaller than its description says, or in which another user is in the way.
pub(crate) fn check_node(_: &CheckNodeArgs) -> Result<Answer> {
    let mut env = environment::env()?;
    let prefix = environment::prefix(&mut env, None)?;
    let params = environment::params_of(&env, &prefix);
    let descriptors = environment::descriptors(&params)?;
    let stores = descriptors.enabled().chain([&descriptors.control]);
    let wrong: Vec<_> = stores.filter_map(|store| check_store(&env, &params, store).err()).collect();
    wrong.iter().for_each(|error| warn(format_args!("{}: {error:#}", env.host)));
    Ok(Answer::from(wrong.is_empty()))
}

/// Writes some bytes: a file system without room, or a quota that is used up, still makes empty files.
pub(crate) fn write_some(folder: &Path) -> io::Result<()> {
    let written = tempfile::tempfile_in(folder).and_then(|mut file| {
        file.write_all(&[b'x'; SOME])?;
        file.sync_all()
    });
    // The whole error has the random name of the file.
    written.map_err(|error| io::Error::from(error.kind()))
}

/// More bytes than a file system keeps with the name of a file.
const SOME: usize = 1 << 16;

/// Whether a job can use a store on this node.
///
/// # Errors
/// It is missing, not writable, full, or smaller than its description says, or another user is in the way.
pub(crate) fn check_store(env: &Env, params: &Params, store: &Store) -> Result<()> {
    let (is_there, path) = (store.path.is_dir(), store.path.display());
    ensure!(store.mkdir || is_there, "there is no folder {path}, and MKDIR=0 says that SCR does not make it");
    // Other folders that are missing are made by the job.
    let there = store.path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let folder = there.display();
    anyhow::ensure!(there.is_dir(), "{folder} is no folder, and datasets are to be kept there");
    write_some(there).at("write to", there)?;
    if there == store.path {
        OwnedDir::expect_free(&*env.files, &store.path, &job_folder(params), env.uid)
            .context("no job can have a folder of its own there")?;
    }
    if let Some(wanted) = store.size {
        let found = statvfs(there).with_context(|| format!("cannot look at {folder}"))?;
        let found = found.f_blocks.saturating_mul(found.f_frsize);
        // One in memory that may grow without limit has no blocks.
        let is_enough = found == 0 || found >= wanted;
        ensure!(is_enough, "{folder} holds {found} bytes, and {wanted} are expected");
    }
    Ok(())
}
