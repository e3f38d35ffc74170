//! A node exporter of the test's own, which reads metrics of jobs from a folder. It is ended with the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// As Debian calls it.
pub const NODE_EXPORTER: &str = "prometheus-node-exporter";
/// How long it may take to start.
const LIMIT: Duration = Duration::from_secs(30);

/// The exporter.
pub struct NodeExporter {
    child: Child,
    address: SocketAddr,
}

impl NodeExporter {
    /// Starts one for a folder, and waits until it answers.
    pub fn start(folder: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let mut command = Command::new(NODE_EXPORTER);
        command.args(["--collector.disable-defaults", "--collector.textfile"]);
        command.arg(format!("--collector.textfile.directory={}", folder.display()));
        command.arg(format!("--web.listen-address={address}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the exporter starts");
        let exporter = Self { child, address };
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the node exporter does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        exporter
    }

    /// The text that Prometheus would get.
    pub fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the exporter answers");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("it takes a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers with text");
        text
    }
}

impl Drop for NodeExporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
