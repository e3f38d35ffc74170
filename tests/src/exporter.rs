//! Servers of the test's own that show metrics: a node exporter, which reads those of jobs from a folder, and a Prometheus that
//! scrapes it. They are ended with the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// As Debian calls it.
pub const NODE_EXPORTER: &str = "prometheus-node-exporter";
/// How long one may take to start.
const LIMIT: Duration = Duration::from_secs(30);

/// A server that answers by HTTP.
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// A node exporter for a folder.
    pub fn node_exporter(folder: &Path) -> Self {
        let mut command = Command::new(NODE_EXPORTER);
        command.args(["--collector.disable-defaults", "--collector.textfile"]);
        command.arg(format!("--collector.textfile.directory={}", folder.display()));
        Self::start(command)
    }

    /// A Prometheus with its defaults, which scrapes a node exporter each second as its job `node`. It works in this folder.
    pub fn prometheus(folder: &Path, exporter: &Self) -> Self {
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: node\n  static_configs: [{{targets: ['{}']}}]\n",
            exporter.address
        );
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        Self::start(command)
    }

    /// Starts one, and waits until it answers.
    fn start(mut command: Command) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        command.arg(format!("--web.listen-address={address}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server starts");
        let server = Self { child, address };
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "{command:?} does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// The answer to a request, with its head.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the server answers");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it takes a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers with text");
        text
    }

    /// What a Prometheus finds for a query now.
    pub fn query(&self, query: &str) -> String {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.get(&format!("/api/v1/query?query={encoded}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
