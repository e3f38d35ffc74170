//! A Slurm of the test's own, whose nodes are pretend nodes.

use crate::cluster::Cluster;
use crate::job::RunningJob;
use crate::programs::repository;
use rustix::process::{kill_process, Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Daemons and nodes. They end with it.
pub struct Slurm {
    folder: TempDir,
}

impl Slurm {
    /// Starts one with nodes n0, n1, ...
    pub fn start(nodes: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("scr-slurm.").tempdir().expect("a folder for Slurm");
        let slurm = Self { folder };
        let started = slurm.script("start").arg(nodes.to_string()).status().expect("a script can be started");
        assert!(started.success(), "Slurm does not start; are slurmctld, slurmd and munge installed?");
        slurm
    }

    /// Starts a command that is to use it, in the prefix directory.
    pub fn run(&self, mut command: Command, cluster: &mut Cluster) -> RunningJob {
        // Settings of whoever runs the tests would change what is tested.
        let set: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        for (name, _) in std::env::vars_os().filter(|(name, _)| !set.contains(name)) {
            let text = name.to_string_lossy();
            if ["SCR_", "SLURM_"].iter().any(|start| text.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf")).env("SCR_PREFIX", cluster.prefix());
        command.current_dir(cluster.prefix());
        RunningJob::start(command, cluster, Duration::from_secs(240))
    }

    /// The node goes down: its processes end, its daemon too, and what it stored is gone.
    pub fn lose_node(&self, node: &str) {
        let pid = std::fs::read_to_string(self.folder.path().join(format!("{node}.pid")));
        let home = namespace(&Path::new("/proc").join(pid.expect("the daemon of the node").trim()));
        assert!(home.is_some() && home != namespace(Path::new("/proc/self")), "the node is this machine");
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| namespace(&process.path()) == home) {
                // It may have ended by itself meanwhile.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let stored = self.folder.path().join("nodes").join(node);
        std::fs::remove_dir_all(stored).expect("what the node stored can be removed");
    }

    /// Whether any node stores a file of this name.
    pub fn stores(&self, name: &str) -> bool {
        let all = crate::cluster::files_below(&self.folder.path().join("nodes"));
        all.iter().any(|file| file.file_name().is_some_and(|found| found == name))
    }

    fn script(&self, verb: &str) -> Command {
        let mut script = Command::new(repository().join("scripts/pretend-slurm"));
        script.arg(verb).arg(self.folder.path());
        script
    }
}

/// The namespace that makes a process see the host name of its node.
fn namespace(process: &Path) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns/uts")).ok()
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = self.script("stop").status();
    }
}
