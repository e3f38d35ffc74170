//! The command that starts a run: the user's, with the nodes to use.

use crate::machine::{Allocation, BadNode, Launcher};
use anyhow::Result;
use scr_core::descriptor::hostlist;
use std::ffi::OsString;
use std::io::Write;
use tempfile::NamedTempFile;

/// A command, and the file that it names.
pub(super) struct RunCommand {
    pub(super) words: Vec<OsString>,
    /// Nodes to use; removed in the end.
    _hostfile: Option<NamedTempFile>,
}

/// The user's command with the options that its launcher needs. Nodes are named only where they have to be: where some are not
/// to be used, or where the launcher cannot know of them.
///
/// # Errors
/// The file with the nodes cannot be written.
pub(super) fn run_command(
    command: &[OsString],
    launcher: Option<&Launcher>,
    allocation: &Allocation,
    bad: &[BadNode],
) -> Result<RunCommand> {
    let Some(launcher) = launcher else {
        return Ok(RunCommand { words: command.to_vec(), _hostfile: None });
    };
    let mut options = launcher.always.clone();
    if !bad.is_empty() {
        let nodes: Vec<_> = bad.iter().map(|bad| bad.node.clone()).collect();
        let (list, plain) = (hostlist::compress(&nodes), nodes.join(","));
        options.extend(
            launcher.exclude.iter().map(|word| word.replace("{nodes}", &list).replace("{nodes,}", &plain)),
        );
    }
    let names_nodes = !launcher.hostfile.is_empty() && (!bad.is_empty() || allocation.nodes_are_ours);
    let hostfile = names_nodes.then(|| hostfile(allocation, bad)).transpose()?;
    if let Some(file) = &hostfile {
        let path = file.path().to_string_lossy();
        options.extend(launcher.hostfile.iter().map(|word| word.replace("{file}", &path)));
    }
    let own = 1 + usize::from(launcher.subcommand.is_some());
    let mut words = command[..own].to_vec();
    words.extend(options.into_iter().map(OsString::from));
    words.extend_from_slice(&command[own..]);
    Ok(RunCommand { words, _hostfile: hostfile })
}

/// Whether a launcher has an option to leave nodes out.
pub(super) fn can_leave_out(launcher: Option<&Launcher>) -> bool {
    launcher.is_some_and(|launcher| !launcher.exclude.is_empty() || !launcher.hostfile.is_empty())
}

fn hostfile(allocation: &Allocation, bad: &[BadNode]) -> Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("scr-hosts.").tempfile()?;
    let good = allocation.host_lines.iter().filter(|(node, _)| bad.iter().all(|bad| bad.node != *node));
    for (_, line) in good {
        writeln!(file, "{line}")?;
    }
    Ok(file)
}
