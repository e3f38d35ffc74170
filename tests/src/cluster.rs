//! Pretend nodes: what they store, and how they are lost.

use crate::job::{all_of, forget_settings, Job};
use crate::mpi::{pretends_by_namespaces, Mpi};
use crate::programs::{repository, stage, Program};
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Some nodes and one prefix directory. All is removed in the end; a failed test shows what its jobs said.
pub struct Cluster {
    nodes: u32,
    storage: TempDir,
    work: TempDir,
    /// One log per job.
    pub(crate) logs: Vec<(String, [PathBuf; 2])>,
}

impl Cluster {
    /// Nodes n0, n1, ... with empty storage and an empty prefix directory.
    pub fn new(nodes: u32) -> Self {
        let work = tempfile::Builder::new().prefix("scr-tests.").tempdir().expect("a folder for the test");
        // Memory, as on real nodes, if there is enough.
        let memory = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(memory).map_or(0, |info| info.f_bavail * info.f_frsize);
        let base = if room > 256 << 20 { memory } else { work.path() };
        let storage = tempfile::Builder::new().prefix("scr-tests.").tempdir_in(base);
        let storage = storage.expect("a folder for the storage of the nodes");
        let cluster = Cluster { nodes, storage, work, logs: Vec::new() };
        std::fs::create_dir(cluster.prefix()).expect("the prefix directory can be made");
        cluster
    }

    /// A job of this many ranks, dealt out evenly to the nodes in their order.
    pub fn job(&mut self, mpi: Mpi, ranks: u32, program: Program) -> Job<'_> {
        let hosts = (0..self.nodes).collect();
        Job::new(self, mpi, ranks, program, hosts)
    }

    /// The prefix directory, which is also where jobs run.
    pub fn prefix(&self) -> PathBuf {
        self.work.path().join("prefix")
    }

    /// A folder for whatever the test needs.
    pub fn scratch(&self) -> &Path {
        self.work.path()
    }

    /// Runs the `scr` command of the installed tree on this prefix directory, in the jobs' allocation but on no node.
    pub fn scr(&self, mpi: Mpi, arguments: &[&str]) -> Output {
        self.scr_command(mpi, arguments).output().expect("the command can be started")
    }

    fn scr_command(&self, mpi: Mpi, arguments: &[&str]) -> Command {
        let mut command = Command::new(Program::Scr.path(mpi));
        forget_settings(&mut command);
        command.env("SCR_PREFIX", self.prefix()).env("SCR_JOB_ID", "tests").args(arguments);
        command
    }

    /// The same with a way to the nodes that are not lost. Needs namespaces.
    pub fn scr_with_ssh(&self, mpi: Mpi, arguments: &[&str]) -> Output {
        let mut command = self.scr_command(mpi, arguments);
        command.env("PATH", self.path_with_ssh()).env("PRETEND_NODES", self.storage());
        command.output().expect("the command can be started")
    }

    /// The folder with the storage of all nodes.
    pub(crate) fn storage(&self) -> &Path {
        self.storage.path()
    }

    /// The storage of a node.
    pub fn node_storage(&self, node: u32) -> PathBuf {
        self.storage().join(format!("n{node}"))
    }

    /// PATH with a stand-in for ssh, which leads to every node that is not lost.
    pub(crate) fn path_with_ssh(&self) -> OsString {
        let folder = self.work.path().join("bin");
        std::fs::create_dir_all(&folder).expect("a folder for the stand-in");
        let (work, node) = (self.work.path().display(), repository().join("scripts/pretend-node"));
        let script = format!(
            "#!/bin/bash\n# Stands in for ssh.\nwhile [[ $1 == -* ]]; do shift; done\n\
             [ ! -e '{work}'/lost.$1 ] || {{ echo \"ssh: no route to $1\" >&2; exit 255; }}\nexec '{}' \"$@\"\n",
            node.display()
        );
        let ssh = folder.join("ssh");
        std::fs::write(&ssh, script).expect("the stand-in can be written");
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
        std::env::join_paths(folders).expect("folders without colons")
    }

    /// Stops the ranks on a node: they hang from then on.
    pub fn freeze_ranks_of(&self, node: u32, program: &Path) {
        self.signal_processes_of(node, Signal::STOP, &[], Some(program));
    }

    /// The node goes down: its processes end, and what it stored is gone.
    pub fn lose_node(&mut self, node: u32) {
        let lost = self.work.path().join(format!("lost.n{node}"));
        std::fs::write(lost, "").expect("a lost node can be marked");
        self.kill_processes_of(node);
        match std::fs::remove_dir_all(self.node_storage(node)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("the storage of node n{node} cannot be removed: {error}")
            }
            _ => {}
        }
    }

    /// Keeps a copy of what the nodes and the prefix directory hold. No job runs meanwhile.
    pub fn save(&self) {
        self.copy_all(|held, copy| (held, copy));
    }

    /// Gives the nodes and the prefix directory what they held when it was [saved](Self::save). Lost nodes are there again.
    pub fn restore(&mut self) {
        (0..self.nodes)
            .for_each(|node| _ = std::fs::remove_file(self.work.path().join(format!("lost.n{node}"))));
        self.copy_all(|held, copy| (copy, held));
    }

    /// Makes the second folder of each pair equal to the first one. A pair is chosen of a folder in use and its copy.
    fn copy_all(&self, choose: impl Fn(PathBuf, PathBuf) -> (PathBuf, PathBuf)) {
        for (held, name) in [(self.prefix(), "prefix"), (self.storage().to_owned(), "storage")] {
            let (from, to) = choose(held, self.work.path().join("saved").join(name));
            let _ = std::fs::remove_dir_all(&to);
            std::fs::create_dir_all(&to).expect("a folder for a copy");
            let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(&to).status();
            assert!(copied.is_ok_and(|status| status.success()), "{} cannot be copied", from.display());
        }
    }

    /// Kills what runs on a node. Its processes carry the node's storage in their environment.
    /// Returns when none is left, of those neither that were being started meanwhile nor that take their time to go.
    pub fn kill_processes_of(&self, node: u32) {
        self.kill_until_none_is_left(node, &[]);
    }

    /// Kills a rank of a job under Open MPI.
    pub fn kill_rank(&self, node: u32, rank: u32) {
        self.kill_until_none_is_left(node, &[&format!("OMPI_COMM_WORLD_RANK={rank}")]);
    }

    fn kill_until_none_is_left(&self, node: u32, variables: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.signal_processes_of(node, Signal::KILL, variables, None) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Signals the processes of a node that have these variables and run this program. Whether there were any.
    fn signal_processes_of(
        &self,
        node: u32,
        signal: Signal,
        variables: &[&str],
        program: Option<&Path>,
    ) -> bool {
        let mut any = false;
        let mark = format!("PRETEND_STORAGE={}", self.node_storage(node).display());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid =
                name.to_str().and_then(|name| name.parse().ok()).and_then(rustix::process::Pid::from_raw);
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let has =
                |wanted: &str| environment.split(|&byte| byte == 0).any(|found| found == wanted.as_bytes());
            let runs_there = has(&mark) && variables.iter().all(|variable| has(variable));
            let is_wanted = program.is_none_or(|program| {
                std::fs::read_link(entry.path().join("exe")).is_ok_and(|running| running == program)
            });
            if let (Some(pid), true) = (pid, runs_there && is_wanted) {
                // It may have ended by itself meanwhile.
                let _ = rustix::process::kill_process(pid, signal);
                any = true;
            }
        }
        any
    }

    /// The `scr` command with these arguments, to be run on a node as a job's processes are. It sees the prefix directory and
    /// the allocation of the jobs.
    pub fn scr_on(&self, node: u32, mpi: Mpi, arguments: &[&str]) -> Command {
        let (name, scr) = (format!("n{node}"), stage(mpi).join("bin/scr"));
        let storage = self.node_storage(node);
        let namespaces = pretends_by_namespaces();
        let mut command = if namespaces {
            let mut command = Command::new(repository().join("scripts/pretend-node"));
            command.arg(&name).arg(scr);
            command
        } else {
            Command::new(scr)
        };
        forget_settings(&mut command);
        command.args(arguments).env("SCR_PREFIX", self.prefix()).env("SCR_JOB_ID", "tests");
        command
            .env("PRETEND_NODES", self.storage())
            .env("PRETEND_STORAGE", &storage)
            .env("SCR_NODE_NAME", &name);
        if !namespaces {
            command.env("SCR_CNTL_BASE", &storage).env("SCR_CACHE_BASE", &storage);
        }
        command.current_dir(self.prefix());
        command
    }

    /// The control directory of the jobs on a node, once there is one.
    pub fn control_of(&self, node: u32) -> Option<PathBuf> {
        let users = std::fs::read_dir(self.node_storage(node)).ok()?.flatten();
        users.map(|user| user.path().join("scr.tests")).find(|path| path.is_dir())
    }

    /// All files below the storage of a node, as paths below it, sorted.
    pub fn files_of(&self, node: u32) -> Vec<PathBuf> {
        let root = self.node_storage(node);
        let mut files = files_below(&root);
        files.iter_mut().for_each(|file| *file = file.strip_prefix(&root).unwrap_or(file).to_path_buf());
        files
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in 0..self.nodes {
            self.kill_processes_of(node);
        }
        if std::thread::panicking() {
            for (what, logs) in &self.logs {
                eprintln!("---- {what}\n{}", all_of(logs));
            }
        }
    }
}

pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}
