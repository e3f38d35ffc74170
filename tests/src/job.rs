//! One launch of a program on the nodes of a cluster, and its outcome.

use crate::cluster::Cluster;
use crate::mpi::Mpi;
use crate::programs::{repository, stage, Program};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A job that can be started. It runs in the prefix directory.
pub struct Job<'a> {
    cluster: &'a mut Cluster,
    mpi: Mpi,
    ranks: u32,
    program: Program,
    /// The program that runs instead of `program`.
    executable: Option<PathBuf>,
    hosts: Vec<u32>,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    left_out: Vec<String>,
    limit: Duration,
    /// Ranks on each node, where `scr run` starts the job.
    by_scr_run: Option<u32>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        cluster: &'a mut Cluster,
        mpi: Mpi,
        ranks: u32,
        program: Program,
        hosts: Vec<u32>,
    ) -> Self {
        let limit = Duration::from_secs(90);
        Job {
            cluster,
            mpi,
            ranks,
            program,
            executable: None,
            hosts,
            arguments: Vec::new(),
            variables: Vec::new(),
            left_out: Vec::new(),
            limit,
            by_scr_run: None,
        }
    }

    /// Runs this executable instead of a program of the tests.
    pub fn executable(mut self, path: &Path) -> Self {
        self.executable = Some(path.to_owned());
        self
    }

    fn path(&self) -> PathBuf {
        self.executable.clone().unwrap_or_else(|| self.program.path(self.mpi))
    }

    /// Runs on these nodes, the first ranks on the first one.
    pub fn on(mut self, hosts: &[u32]) -> Self {
        self.hosts = hosts.to_vec();
        self
    }

    /// Adds arguments of the program.
    pub fn args<S: ToString>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.to_string()));
        self
    }

    /// Adds options of the program, each a name and a number.
    pub fn options(self, options: &[(&str, i64)]) -> Self {
        self.args(options.iter().flat_map(|(name, value)| [format!("--{name}"), value.to_string()]))
    }

    /// Sets an environment variable.
    #[expect(clippy::needless_pass_by_value, reason = "so that a number can be passed as it is")]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// Leaves out what jobs of the tests have set otherwise.
    pub fn without(mut self, names: &[&str]) -> Self {
        self.left_out.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    /// Lets `scr run` start it, with this many ranks on each node; nodes that are then left over are spare. It finds the nodes by
    /// a stand-in for ssh, and those that are lost are known by that. Needs namespaces.
    pub fn by_scr_run(mut self, ranks_per_node: u32) -> Self {
        self.by_scr_run = Some(ranks_per_node);
        self
    }

    /// Ends the job after this time; by default it has 90 s.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end.
    pub fn run(self) -> Outcome {
        self.start().finish()
    }

    /// Starts it.
    pub fn start(self) -> RunningJob {
        let command = self.command();
        RunningJob::start(command, self.cluster, self.limit + Duration::from_secs(20))
    }

    fn command(&self) -> Command {
        let mut command = match self.by_scr_run {
            Some(_) => Command::new("timeout"),
            None => Command::new(repository().join("scripts/run-on-nodes")),
        };
        forget_settings(&mut command);
        command.env("SCR_PREFIX", self.cluster.prefix()).env("SCR_JOB_ID", "tests").env("SCR_DEBUG", "1");
        command.env("SCR_CACHE_BYPASS", "0").env("SCR_FLUSH", "0").env("SCR_COPY_TYPE", "XOR");
        self.left_out.iter().for_each(|name| _ = command.env_remove(name));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.cluster.prefix());
        if let Some(ranks_per_node) = self.by_scr_run {
            self.add_scr_run(&mut command, ranks_per_node);
            return command;
        }
        command.args(["--mpi", self.mpi.name(), "--limit", &self.limit.as_secs().to_string(), "--nodes"]);
        command.arg(self.cluster.storage()).arg("--hosts").arg(self.host_list());
        command.arg(self.path()).args(&self.arguments);
        command
    }

    /// `scr run` and the launcher as a user would type them, on the nodes that a stand-in for ssh leads to.
    fn add_scr_run(&self, command: &mut Command, ranks_per_node: u32) {
        let stage = stage(self.mpi);
        let node = repository().join("scripts/pretend-node");
        let nodes: Vec<_> = self.hosts.iter().map(|node| format!("n{node}")).collect();
        command.env("SCR_NODELIST", nodes.join(",")).env("PRETEND_NODES", self.cluster.storage());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("PATH", self.cluster.path_with_ssh());
        command
            .args(["--kill-after=5", &self.limit.as_secs().to_string()])
            .arg(stage.join("bin/scr"))
            .arg("run");
        let (ranks, per_node) = (self.ranks.to_string(), ranks_per_node.to_string());
        match self.mpi {
            Mpi::OpenMpi => command
                .args([
                    "mpirun.openmpi",
                    "--oversubscribe",
                    "--bind-to",
                    "none",
                    "--mca",
                    "mpi_yield_when_idle",
                    "1",
                ])
                .args([
                    "--mca",
                    "btl_vader_single_copy_mechanism",
                    "none",
                    "--mca",
                    "btl_tcp_if_include",
                    "lo",
                ])
                .args(["--mca", "plm_rsh_agent"])
                .arg(node)
                .args(["-n", &ranks, "-N", &per_node]),
            Mpi::Mpich => command
                .args(["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec"])
                .arg(node)
                .args(["-n", &ranks, "-ppn", &per_node]),
        };
        command.arg(self.path()).args(&self.arguments).stdin(std::process::Stdio::null());
    }

    /// `n0:2,n1:2,...`: the ranks dealt out evenly.
    fn host_list(&self) -> String {
        let nodes = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let upto = |node: u32| self.ranks * node / nodes;
        let ranks = (0..nodes).map(|node| upto(node + 1) - upto(node));
        let hosts = self.hosts.iter().zip(ranks).filter(|(_, ranks)| *ranks > 0);
        hosts.map(|(node, ranks)| format!("n{node}:{ranks}")).collect::<Vec<_>>().join(",")
    }
}

/// Settings of whoever runs the tests would change what is tested.
pub fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SCR_") {
            command.env_remove(name);
        }
    }
}

/// A job that runs. It is ended if it is dropped.
pub struct RunningJob {
    child: Child,
    logs: [PathBuf; 2],
    limit: Duration,
}

impl RunningJob {
    /// Starts a command with a log of its own. It has so long to end.
    pub(crate) fn start(mut command: Command, cluster: &mut Cluster, limit: Duration) -> Self {
        let log = cluster.scratch().join(format!("job{}.log", cluster.logs.len()));
        let file = File::create(&log).expect("a log can be made");
        // Launchers break the lines of the one in the middle with those of the other.
        let errors = log.with_extension("err");
        let other = File::create(&errors).expect("a log can be made");
        // Two launchers that start at once fail over the directory that Open MPI makes for all of a user's jobs.
        command.env("OMPI_MCA_orte_tmpdir_base", cluster.scratch());
        let child = command.stdout(file).stderr(other).spawn().expect("the launcher can be started");
        let logs = [log, errors];
        cluster.logs.push((format!("{command:?}"), logs.clone()));
        Self { child, logs, limit }
    }

    /// Waits until the job has said a line that holds this text. Panics if it ends or a minute passes before.
    pub fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.has_printed(text) {
            let ended = self.child.try_wait().expect("a child can be waited for").is_some();
            assert!(!ended || self.has_printed(text), "the job ended before it said `{text}`");
            assert!(Instant::now() < deadline, "the job has not said `{text}` within a minute");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Outcome {
        // The launcher has a limit of its own; this one is for a launcher that hangs.
        let deadline = Instant::now() + self.limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Outcome { status, log: self.text(), output: all_of(&self.logs[..1]) };
            }
            assert!(Instant::now() < deadline, "the launcher hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn has_printed(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    fn text(&self) -> String {
        all_of(&self.logs)
    }
}

/// The text of a job: its output, then its errors.
pub(crate) fn all_of(logs: &[PathBuf]) -> String {
    let bytes: Vec<u8> = logs.iter().flat_map(|log| std::fs::read(log).unwrap_or_default()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        // The wrapper passes its end on to the launcher; both have mostly gone already.
        if let Ok(None) = self.child.try_wait() {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// How a job ended, and all that it said.
#[derive(Debug, Clone)]
pub struct Outcome {
    status: ExitStatus,
    log: String,
    output: String,
}

impl Outcome {
    /// Whether it ended well. The program of the job tests says `DONE` then.
    pub fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// Whether it was ended by its time limit.
    pub fn timed_out(&self) -> bool {
        self.status.code() == Some(124)
    }

    /// Panics unless it ran to its end and found every byte in place.
    pub fn expect_success(self) -> Self {
        assert!(self.succeeded(), "the job ended with {}", self.status);
        assert!(self.prints_line("DONE"), "the job ended early");
        self.expect_every_byte()
    }

    /// Panics unless it died, as it was to, before its time limit, and had found every byte in place.
    pub fn expect_death(self) -> Self {
        assert!(!self.succeeded(), "the job was to die and did not");
        assert!(!self.timed_out(), "the job was to die, and hung");
        self.expect_every_byte()
    }

    fn expect_every_byte(self) -> Self {
        let bad: Vec<_> =
            self.lines().filter(|line| line.starts_with("BAD ") || line.starts_with("FAIL ")).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        self
    }

    /// The dataset it restarted from.
    pub fn restarted_from(&self) -> Option<&str> {
        self.lines().find_map(|line| line.strip_prefix("RESTARTED "))
    }

    /// The number of the dataset that it wrote under a name. Runs that die leave gaps between the numbers.
    pub fn id_of(&self, name: &str) -> u64 {
        let mut started =
            self.lines().filter_map(|line| line.split_once("Starting dataset ")?.1.split_once(' '));
        let found = started.find_map(|(id, rest)| id.parse().ok().filter(|_| rest == format!("`{name}'")));
        found.expect("the job has started that dataset")
    }

    /// Whether one of its lines is this one.
    pub fn prints_line(&self, line: &str) -> bool {
        self.lines().any(|found| found == line)
    }

    /// Whether its output contains this text. A long message is on several lines.
    pub fn prints(&self, text: &str) -> bool {
        self.log.contains(text) || self.log.replace("\n    ", " ").contains(text)
    }

    /// The lines of its standard output, sorted, as those of ranks come in any order.
    pub fn output(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.output.lines().collect();
        lines.sort_unstable();
        lines
    }

    /// The lines of its output, standard error too.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.log.lines()
    }

    /// The last dataset that was complete on all ranks.
    pub fn last_complete(&self) -> Option<&str> {
        let complete = self.lines().filter_map(|line| line.strip_prefix("COMPLETE ")?.strip_suffix(" 0"));
        complete.last()
    }
}
