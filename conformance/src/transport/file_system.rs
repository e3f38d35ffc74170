//! A file system that is soon full, or that cannot be written.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small file system in memory, mounted for the time of a test. It takes root to mount one.
#[derive(Debug)]
pub struct TinyFileSystem {
    folder: PathBuf,
}

impl TinyFileSystem {
    /// Mounts one of a mebibyte on an existing, empty folder; none where that is not permitted.
    pub fn mount(folder: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "scr-conformance"]).arg(folder);
        succeeds(&mut mount).then(|| Self { folder: folder.to_path_buf() })
    }

    /// The same, which nobody can write to any more; none where that is not permitted.
    pub fn made_read_only(self) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,ro"]).arg(&self.folder);
        succeeds(&mut mount).then_some(self)
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for TinyFileSystem {
    fn drop(&mut self) {
        succeeds(Command::new("umount").arg("-l").arg(&self.folder));
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
