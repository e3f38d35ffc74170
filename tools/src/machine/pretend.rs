//! Pretend nodes of this machine. `run-on-nodes` leaves a note of them beside `.scr`, so that commands can ask them after the job.

use super::manifest::{OnNode, ResourceManager, NONE};
use crate::prelude::*;
use scr_base::fs::{How, Kind};
use scr_prefix::LastRun;

/// The nodes of such a job, and the way to them.
pub(super) struct PretendNodes {
    nodes: Vec<String>,
    /// What they store, and what those of earlier jobs do.
    folder: PathBuf,
    pub(super) on_node: OnNode,
}

impl PretendNodes {
    /// Those of the note in this directory, where no resource manager has nodes. What it says becomes words of a command line, so
    /// a note counts only if nobody but this user or root can have written it.
    pub(super) fn noted(env: &Env, prefix: &Path, manager: &ResourceManager) -> Option<Self> {
        let (files, path) = (&*env.files, prefix.join(NOTE));
        if manager.name != NONE || files.status(&path).ok()?.kind != Kind::File {
            return None;
        }
        let note = files.open(&path, How::Read).ok()?;
        let status = note.status().ok()?;
        if !(status.uid == 0 || status.uid == env.uid) || status.mode & 0o022 != 0 {
            return None;
        }
        let mut text = vec![0; usize::try_from(status.len.min(MOST_BYTES)).ok()?];
        let read = note.read_at(0, &mut text).ok()?;
        let text = std::str::from_utf8(text.get(..read)?).ok()?;
        let [mode, hosts, folder] = *text.lines().collect::<Vec<_>>() else { return None };
        // The script of the installation, which this is a link to.
        let script = env.install_dir.as_ref()?.join("bin/run-on-nodes").canonicalize().ok()?;
        let script = script.with_file_name("pretend-node").to_str()?.to_owned();
        let command =
            ["env", &format!("PRETEND_MODE={mode}"), &format!("PRETEND_NODES={folder}"), &script, "-w"];
        let command = command.into_iter().chain(["{node}"]).map(str::to_owned).collect();
        let nodes = hosts.split(',').filter_map(|host| Some(host.split_once(':')?.0.to_owned())).collect();
        Some(Self { nodes, folder: folder.into(), on_node: OnNode { command, shell: false, group: None } })
    }

    /// The nodes of the last run, if it ran here in this allocation.
    pub(super) fn of_last_run(&self, env: &Env, prefix: &Path, job_id: &str) -> Vec<String> {
        let run = LastRun::read(&*env.files, &Prefix::new(prefix)).ok().flatten();
        let run = run.filter(|run| run.job_id == job_id);
        run.map(|run| run.all_nodes()).filter(|nodes| self.lead_to(nodes)).unwrap_or_default()
    }

    /// Whether these are such nodes. A program that looks after the job may have run on some of them since.
    pub(super) fn lead_to(&self, nodes: &[String]) -> bool {
        nodes.iter().any(|node| self.nodes.contains(node) || self.folder.join(node).is_dir())
    }
}

/// Whether there is a note of them: they can be asked for as long as this machine is there, also after their job has finished.
pub(crate) fn are_noted(files: &dyn Files, prefix: &Prefix) -> bool {
    files.status(&prefix.dir().join(NOTE)).is_ok()
}

/// Its lines are the mode of `pretend-mode`, the hosts as they were given, and the folder with what the nodes store.
const NOTE: &str = ".scrpretend";
const MOST_BYTES: u64 = 1 << 20;
