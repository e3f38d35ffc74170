//! The command that starts a run: the user's, with the nodes to use.

use crate::machine::{process, Allocation, BadNode, Launcher};
use anyhow::Result;
use scr_config::descriptor::hostlist;
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;
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
    let mut for_each_part = Vec::new();
    if !bad.is_empty() {
        let nodes: Vec<_> = bad.iter().map(|bad| bad.node.clone()).collect();
        let (list, plain) = (hostlist::compress(&nodes), nodes.join(","));
        for_each_part.extend(
            launcher.exclude.iter().map(|word| word.replace("{nodes}", &list).replace("{nodes,}", &plain)),
        );
    }
    let names_nodes = !launcher.hostfile.is_empty() && (!bad.is_empty() || allocation.nodes_are_ours);
    let hostfile = names_nodes.then(|| hostfile(allocation, bad)).transpose()?;
    let path = hostfile.as_ref().map(|file| file.path().to_string_lossy());
    let names_file =
        path.iter().flat_map(|path| launcher.hostfile.iter().map(|word| word.replace("{file}", path)));
    let own = 1 + usize::from(launcher.subcommand.is_some());
    let mut options = launcher.always.clone();
    let is_in_parts = launcher.parts && command[own..].iter().any(|word| word == PART);
    if is_in_parts && takes_file_once(command, launcher) {
        options.extend(names_file);
    } else {
        for_each_part.extend(names_file);
    }
    let mut words = command[..own].to_vec();
    words.extend(options.into_iter().chain(for_each_part.iter().cloned()).map(OsString::from));
    for word in &command[own..] {
        words.push(word.clone());
        if is_in_parts && word == PART {
            words.extend(for_each_part.iter().map(OsString::from));
        }
    }
    Ok(RunCommand { words, _hostfile: hostfile })
}

/// Whether a launcher refuses a second file with nodes.
fn takes_file_once(command: &[OsString], launcher: &Launcher) -> bool {
    let Some(sign) = &launcher.file_once_if else { return false };
    let program = command[0].to_string_lossy().into_owned();
    let version = process::output_of(&[program, "--version".to_owned()], &[], LONGEST_VERSION);
    version.is_ok_and(|version| version.contains(sign.as_str()))
}

/// Begins another part of a command line, for another program.
const PART: &str = ":";
const LONGEST_VERSION: Duration = Duration::from_secs(20);

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
