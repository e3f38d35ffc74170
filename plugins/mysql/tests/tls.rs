//! Connections to a real MariaDB that are encrypted, with certificates that the test makes. Skipped where MariaDB or openssl is
//! missing.

#![allow(clippy::unwrap_used, reason = "a test fails if it cannot continue")]

use scr_mysql::MySql;
use scr_plugin_api::{KvTree, LogEntry, LogQuery, LogSink};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// A server on a port of this machine, ended with the test.
struct Server {
    folder: TempDir,
    port: u16,
    process: Child,
}

impl Server {
    /// Nothing where a program is missing.
    fn start(with_tls: bool) -> Option<Self> {
        for program in ["mariadbd", "mariadb", "openssl"] {
            let found =
                Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if found.is_err() {
                println!("skipped: {program} is missing");
                return None;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for authority in ["ca", "other"] {
            make_authority(folder.path(), authority);
        }
        sign(folder.path(), "ca", "server");
        let user = ["--user=root"];
        let install = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"];
        // A server that starts removes what others have in their folder for temporary files.
        run(Command::new("mariadb-install-db")
            .env("TMPDIR", folder.path())
            .args(install)
            .args(user)
            .arg(format!("--datadir={}", at("data"))));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Command::new("mariadbd");
        server.env("TMPDIR", folder.path());
        server.args(["--no-defaults", "--bind-address=127.0.0.1"]).args(user).arg(format!("--port={port}"));
        server.arg(format!("--datadir={}", at("data"))).arg(format!("--socket={}", at("socket")));
        if with_tls {
            server
                .arg(format!("--ssl-cert={}", at("server.pem")))
                .arg(format!("--ssl-key={}", at("server.key")));
        } else {
            server.arg("--skip-ssl");
        }
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = server.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let server = Self { folder, port, process };
        let until = Instant::now() + LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(server.at("log")).unwrap_or_default();
            assert!(Instant::now() < until, "the server does not answer:\n{}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        let user = "CREATE USER scr@'%' IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO scr@'%'";
        let user = if with_tls { user.replace("'secret'", "'secret' REQUIRE SSL") } else { user.to_owned() };
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=root", "--execute", &user]);
        run(client.arg(format!("--socket={}", server.at("socket").display())));
        Some(server)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The database as the parameters would describe it.
    fn sink(&self, host: &str, authorities: Option<&str>) -> MySql {
        let mut options = KvTree::new();
        options.set("HOST", format!("{host}:{}", self.port));
        for (key, value) in [("NAME", "log"), ("USER", "scr"), ("PASS", "secret")] {
            options.set(key, value);
        }
        if let Some(name) = authorities {
            options.set("CA", self.at(name).display());
        }
        MySql::new(&options).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn a_server_is_spoken_to_only_if_its_certificate_is_good() {
    let Some(server) = Server::start(true) else { return };
    let good = server.sink("localhost", Some("ca.pem"));
    assert!(good.prepare().unwrap().iter().any(|line| line.contains("made the table events")));
    let entry = LogEntry {
        name: "START".to_owned(),
        local_time: "2026-11-21T03:28:24".to_owned(),
        ..LogEntry::default()
    };
    good.write(&entry).unwrap();
    assert_eq!(good.read(&LogQuery::default()).unwrap().len(), 1);
    // The server takes the user's password in no other way.
    let plain = server.sink("localhost", None).prepare().unwrap_err().text;
    assert!(plain.contains("denied"), "{plain}");
    for (host, authorities, expected) in [
        ("localhost", "other.pem", "UnknownIssuer"),
        ("127.0.0.1", "ca.pem", "certificate"),
        ("localhost", "missing.pem", "No such file"),
    ] {
        let error = server.sink(host, Some(authorities)).prepare().unwrap_err().text;
        assert!(error.contains(expected) && !error.contains("secret"), "{host}, {authorities}: {error}");
    }
}

#[test]
fn a_server_without_encryption_gets_no_password_if_encryption_is_wanted() {
    let Some(server) = Server::start(false) else { return };
    server.sink("localhost", None).prepare().unwrap();
    let error = server.sink("localhost", Some("ca.pem")).prepare().unwrap_err().text;
    assert!(error.contains("requires secure connection"), "{error}");
}

fn make_authority(folder: &Path, name: &str) {
    let at = |ending: &str| folder.join(format!("{name}.{ending}"));
    let mut make = openssl("req");
    make.args(["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"])
        .arg(format!("/CN={name} of the test"));
    run(make.arg("-keyout").arg(at("key")).arg("-out").arg(at("pem")));
}

/// A certificate for localhost.
fn sign(folder: &Path, authority: &str, name: &str) {
    let at = |name: &str, ending: &str| folder.join(format!("{name}.{ending}"));
    fs::write(at(name, "ext"), "subjectAltName=DNS:localhost\n").unwrap();
    let mut request = openssl("req");
    request.args(["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout"]).arg(at(name, "key"));
    run(request.arg("-out").arg(at(name, "csr")));
    let mut sign = openssl("x509");
    sign.args(["-req", "-days", "2", "-set_serial", "1", "-in"])
        .arg(at(name, "csr"))
        .arg("-CA")
        .arg(at(authority, "pem"));
    sign.arg("-CAkey").arg(at(authority, "key")).arg("-extfile").arg(at(name, "ext"));
    run(sign.arg("-out").arg(at(name, "pem")));
}

fn openssl(command: &str) -> Command {
    let mut openssl = Command::new("openssl");
    openssl.arg(command);
    openssl
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
