//! A parallel file system of the test's own, which can be too small, read-only or gone.

use crate::cluster::Cluster;
use rustix::thread::{unshare_unsafe, UnshareFlags};
use std::path::PathBuf;
use std::process::Command;

/// The file system of a cluster's prefix directory, a small one in memory. Only the calling thread, and the jobs that it starts
/// from now on, see it; it goes with the thread. Its nodes must be names only, since what happens to it has to be seen by all of
/// them.
pub struct ParallelFs {
    whole: PathBuf,
    prefix: PathBuf,
}

impl ParallelFs {
    /// Makes one with room for this many bytes. Needs root.
    #[allow(unsafe_code, reason = "a mount namespace of the thread's own")]
    pub fn new(cluster: &Cluster, bytes: u64) -> Self {
        // SAFETY: only where this thread finds mounts changes, and no open file.
        let own = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
        own.expect("a mount namespace of the thread's own");
        let fs = Self { whole: cluster.scratch().join("fs"), prefix: cluster.prefix() };
        std::fs::create_dir(&fs.whole).expect("a folder can be made");
        let whole = fs.whole.display();
        run("mount --make-rprivate /");
        run(&format!("mount -t tmpfs -o size={bytes} prefix {whole}"));
        run(&fs.comes_back());
        fs
    }

    /// The command that gives it room for this many bytes.
    pub fn has_room(&self, bytes: u64) -> String {
        format!("mount -o remount,size={bytes} {}", self.whole.display())
    }

    /// The command that makes it read-only. That waits until no file there is open to be written, as by a flush under way.
    pub fn becomes_read_only(&self) -> String {
        format!("until mount -o remount,ro {}; do sleep 0.01; done", self.whole.display())
    }

    /// The command that ends that.
    pub fn becomes_writable(&self) -> String {
        format!("mount -o remount,rw {}", self.whole.display())
    }

    /// The command that takes it away; an empty folder is left.
    pub fn goes(&self) -> String {
        format!("umount -l {}", self.prefix.display())
    }

    /// The command that brings it back.
    pub fn comes_back(&self) -> String {
        format!("mount --bind {} {}", self.whole.display(), self.prefix.display())
    }
}

impl Drop for ParallelFs {
    /// Or the folders could not be removed.
    fn drop(&mut self) {
        for folder in [&self.prefix, &self.whole] {
            let _ = Command::new("umount").arg("-l").arg(folder).status();
        }
    }
}

fn run(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status();
    assert!(status.is_ok_and(|status| status.success()), "this has failed: {command}");
}
