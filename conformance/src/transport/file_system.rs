//! A file system that is soon full, or that cannot be written.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small file system in memory, mounted for the time of a test. It takes root to mount one.
#[derive(Debug)]
pub struct TinyFileSystem {
    folder: PathBuf,
}

impl TinyFileSystem {
    /// Mounts one of a mebibyte on an existing, empty folder; none where that is not permitted. Those that processes have left
    /// which were killed are unmounted.
    pub fn mount(folder: &Path) -> Option<Self> {
        left_by_the_dead().iter().for_each(|folder| unmount(folder));
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m"]).arg(format!("{NAME}{}", std::process::id())).arg(folder);
        succeeds(&mut mount).then(|| Self { folder: folder.to_path_buf() })
    }

    /// The same, which nobody can write to any more; none where that is not permitted.
    pub fn made_read_only(self) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,ro"]).arg(&self.folder);
        succeeds(&mut mount).then_some(self)
    }

    /// Its mount point.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for TinyFileSystem {
    fn drop(&mut self) {
        unmount(&self.folder);
    }
}

/// With the number of the process that has mounted it, in the table of mounts.
const NAME: &str = "scr-conformance-";

fn left_by_the_dead() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let left = mounts.lines().filter_map(|line| {
        let (process, rest) = line.strip_prefix(NAME)?.split_once(' ')?;
        let is_dead = !Path::new("/proc").join(process).exists();
        is_dead.then(|| PathBuf::from(rest.split(' ').next().unwrap_or_default()))
    });
    left.collect()
}

fn unmount(folder: &Path) {
    succeeds(Command::new("umount").arg("-l").arg(folder));
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
