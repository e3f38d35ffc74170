//! The interface between the scr runtime and its plugins.
//!
//! A plugin author implements [`Scheme`] (how a set of processes protects its files against loss) or
//! [`Transport`] (how files are copied to the parallel file system) or [`LogSink`] (where the log goes) in ordinary Rust,
//! and exports it with one macro. The runtime owns processes, metadata and file creation; a plugin moves and computes bytes.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test fails if it gets no thread"))]

pub mod abi;
mod bytes;
mod error;
mod failing_writes;
mod handle;
mod interrupted;
pub mod kvtree;
mod listing;
mod lock;
mod log;
mod memory;
pub mod pace;
mod passing;
pub mod path_text;
mod scheme;
mod standard;
mod transfer;
mod transport;

pub use bytes::Bytes;
pub use error::{PluginError, PluginErrorKind};
pub use failing_writes::{with_limit, WritesFail};
pub use handle::{Call, Closed, Handle};
pub use interrupted::{uninterrupted, write_all};
pub use kvtree::KvTree;
pub use listing::{names_in, paths_in};
pub use lock::held;
pub use log::{LogEntry, LogKind, LogQuery, LogSink};
pub use memory::{grow, zeroed};
pub use passing::{may_pass, repeat};
pub use scheme::{Level, ReceiveFrom, Scheme, SendTo, Set, SetShape, MESSAGE_BYTES};
pub use standard::above_standard;
pub use transfer::{transfer, Place, Transfer};
pub use transport::{CopyItem, CopyJob, CopyState, Transport};

/// Tests of what belongs to a whole process, each in one of its own.
#[cfg(test)]
mod alone {
    use std::process::Command;

    /// Whether this process runs nothing but the test of this name. If not, it runs one that does, and the test must have passed there.
    pub(crate) fn is_alone(name: &str) -> bool {
        const ALONE: &str = "SCR_TEST_ALONE";
        let is_alone = std::env::var_os(ALONE).is_some();
        if !is_alone {
            let mut again = Command::new(std::env::current_exe().unwrap());
            let output = again.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        }
        is_alone
    }
}
