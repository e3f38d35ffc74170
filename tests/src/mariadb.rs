//! A database server of the test's own: Debian's MariaDB, with its data in a folder of the test and a socket for its only
//! door. It is ended with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "mariadbd";
const INSTALLER: &str = "mariadb-install-db";
const CLIENT: &str = "mariadb";
/// How long the server may take to start or to end.
const LIMIT: Duration = Duration::from_secs(60);

/// A server.
pub struct MariaDb {
    folder: tempfile::TempDir,
    server: Option<Child>,
}

impl MariaDb {
    /// Runs `body` with a server, where MariaDB is there.
    pub fn run(test: &str, body: impl FnOnce(&mut MariaDb)) {
        let is_there = |program: &str| crate::mpi::starts(Command::new(program).arg("--version"));
        if ![SERVER, CLIENT].iter().all(|program| is_there(program)) {
            return crate::mpi::skip(test, SERVER);
        }
        body(&mut MariaDb::start());
    }

    fn start() -> Self {
        let mut database =
            Self { folder: tempfile::tempdir().expect("a folder for the database"), server: None };
        let mut install = database.program(INSTALLER);
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.arg(format!("--datadir={}", database.data().display()));
        install.args(as_whom());
        crate::programs::compile(install.stdout(Stdio::null()));
        database.start_server();
        database
    }

    fn start_server(&mut self) {
        let mut server = self.program(SERVER);
        server.args(["--no-defaults", "--skip-networking", "--innodb-flush-log-at-trx-commit=0"]);
        server.arg(format!("--datadir={}", self.data().display()));
        server.arg(format!("--socket={}", self.socket().display())).args(as_whom());
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log for the server");
        let copy = log.try_clone().expect("a log can be shared");
        self.server = Some(server.stdout(log).stderr(copy).spawn().expect("the server can be started"));
        let deadline = Instant::now() + LIMIT;
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server does not answer:\n{}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A server that starts removes what others have in their folder for temporary files.
    fn program(&self, name: &str) -> Command {
        let mut program = Command::new(name);
        program.env("TMPDIR", self.folder.path());
        program
    }

    /// Ends the server. Its data stays.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let pid = rustix::process::Pid::from_child(&server);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = server.wait();
        }
    }

    /// The value for `SCR_LOG_DB_HOST`.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The result of statements, a line for each row, with tabs between columns.
    pub fn ask(&self, statements: &str) -> String {
        let mut client = Command::new(CLIENT);
        client.args([
            "--no-defaults",
            "--user=root",
            "--batch",
            "--skip-column-names",
            "--execute",
            statements,
        ]);
        let output = client.arg("--socket").arg(self.socket()).output().expect("the client can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements}: {errors}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The folder of the server, which a test may use as well.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The server refuses to run as root without this option.
fn as_whom() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}
