//! Limits how many processes of a job copy to the prefix directory at a time: `SCR_FLUSH_WIDTH`.
//!
//! A node has its share of the width of flushes, and at least one slot: a file in its control directory, which is local. A
//! process locks it while it copies. If there are more nodes than the width, a process with a slot of its node also takes one of
//! the slots below the prefix directory, so that only one process of a node searches for these. A process that
//! dies gives its slots back. Agents take the same slots; one agent counts the copies of its node by itself.

use crate::job::Job;
use scr_base::fs::{File, Files, How, LockAttempt, Pauses};
use scr_prefix::{Prefix, DIR_MODE};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The slots that a rank needs in order to copy.
pub(super) struct Throttle {
    /// Its slot on the node.
    own: PathBuf,
    /// The slots that all nodes share, where there are fewer than nodes: their folder, and how many there are.
    shared: Option<(PathBuf, u32)>,
}

impl Throttle {
    pub(super) fn new(job: &Job, control: &Path, width: u32) -> Self {
        let width = width.max(1);
        let nodes = u32::try_from(job.nodes.count()).unwrap_or(u32::MAX);
        let before = job.nodes.mates(job.rank()).iter().take_while(|&&mate| mate != job.rank()).count();
        let slot = before % job.nodes.share(width) as usize;
        let shared = (nodes > width).then(|| (SharedSlots::folder(&job.prefix), width));
        Self { own: control.join(format!("slot.{slot}")), shared }
    }

    /// Does `work` once this rank has its slots; `None` if that is cancelled before. A folder of slots that cannot be used
    /// keeps nobody from working.
    pub(super) fn run<T>(
        &self,
        files: &dyn Files,
        is_cancelled: &dyn Fn() -> bool,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let _own = self.own_slot(files, is_cancelled)?;
        let Some((folder, count)) = &self.shared else { return Some(work()) };
        let slots = SharedSlots { files, folder, count: *count };
        let (mut work, mut value, mut pauses) = (Some(work), None, Pauses::up_to(LONGEST_PAUSE_OF_NODES));
        while !slots.take(&mut || value = work.take().map(|work| work())) {
            if is_cancelled() {
                return None;
            }
            pauses.wait(files);
        }
        value
    }

    /// The slot on the node, held until the file is closed.
    fn own_slot(&self, files: &dyn Files, is_cancelled: &dyn Fn() -> bool) -> Option<Option<Box<dyn File>>> {
        let Ok(file) = files.open(&self.own, How::Ensure(PRIVATE)) else { return Some(None) };
        let mut pauses = Pauses::up_to(LONGEST_PAUSE);
        for look in 1_u64.. {
            if file.try_lock() != LockAttempt::Held || look % LOOKS == 0 && is_held_by_stopped(files, &*file)
            {
                break;
            }
            if is_cancelled() {
                return None;
            }
            pauses.wait(files);
        }
        Some(Some(file))
    }
}

/// Whether a process has the lock of a file and is stopped, such as by `kill -STOP`: it copies nothing, and nobody knows for
/// how long. The system says so of locks of the kind flock on this machine.
fn is_held_by_stopped(files: &dyn Files, file: &dyn File) -> bool {
    let holder = || {
        let inode = format!(":{}", file.status().ok()?.identity.1);
        let locks = files.read_about_system("/proc/locks")?;
        let of_file = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let pid = of_file
            .filter(|words| words.get(5).is_some_and(|id| id.ends_with(&inode)))
            .find_map(|words| words.get(4)?.parse::<u32>().ok())?;
        files.read_about_system(format!("/proc/{pid}/stat"))
    };
    // The name of the program comes before, in parentheses.
    let state = holder().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    matches!(state, Some('T' | 't'))
}

/// Between two looks for a slot of the node, and for one of all nodes.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
const LONGEST_PAUSE_OF_NODES: Duration = Duration::from_millis(500);
/// One of this many looks for a slot of the node is for its holder: about once a second.
const LOOKS: u64 = 64;
/// Private to the owner (mode 0600).
const PRIVATE: u32 = 0o600;

/// Slots in a folder that all nodes see: lock files with numbers, each held by one process at a time. A process that dies
/// gives its slot back; see `if_free`.
#[derive(Clone, Copy)]
pub struct SharedSlots<'a> {
    /// Sees the folder.
    pub files: &'a dyn Files,
    /// It is there only while anybody has, or had, a slot.
    pub folder: &'a Path,
    /// How many.
    pub count: u32,
}

impl SharedSlots<'_> {
    /// The folder of the slots for copies to a prefix directory.
    pub(crate) fn folder(prefix: &Prefix) -> PathBuf {
        prefix.scr_file("slots")
    }

    /// Does `work` if a slot is free, and returns whether it did. If the folder cannot be used, it does not wait for a slot.
    pub fn take(&self, work: &mut dyn FnMut()) -> bool {
        let done = match self.files.make_dir(self.folder, DIR_MODE) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => None,
            _ => self.try_take(work),
        };
        let done = done.unwrap_or_else(|| {
            work();
            true
        });
        if done {
            // As long as others have a slot it is not empty, and stays.
            let _ = self.files.remove_dir(self.folder);
        }
        done
    }

    /// Nothing where the folder cannot be used.
    fn try_take(&self, work: &mut dyn FnMut()) -> Option<bool> {
        let names = match self.files.list(self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Some(false),
            other => other.ok()?,
        };
        let taken: HashSet<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
        // Those who look at the same moment begin at different slots.
        let count = self.count.max(1);
        let first = u32::try_from(RandomState::new().hash_one(()) % u64::from(count)).unwrap_or(0);
        let slots = (first..count).chain(0..first);
        // One of the taken slots is checked for a dead owner.
        let worth = slots.filter(|slot| *slot == first || !taken.contains(slot));
        for slot in worth {
            match self.files.if_free(&self.folder.join(slot.to_string()), &mut |_| work()) {
                Ok(false) => (),
                Ok(true) => return Some(true),
                // Another process has just removed the folder, as no process had a slot in it.
                Err(error) if error.is_not_found() => return Some(false),
                Err(_) => return None,
            }
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{kill, Signal};
    use nix::unistd::Pid;
    use scr_base::fs::RealFiles;
    use scr_test_kit::descriptors::wait_until;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    #[test]
    fn no_more_work_than_there_are_slots_and_the_dead_hold_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("slots");
        for count in [1, 3] {
            let (now, most, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
            std::fs::create_dir(&folder).unwrap();
            // Its owner was killed.
            std::fs::write(folder.join("0"), RealFiles.machine()).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let slots = SharedSlots { files: &RealFiles, folder: &folder, count };
                        let mut work = || {
                            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            std::thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                        };
                        for _ in 0..10 {
                            while !slots.take(&mut work) {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
            });
            let most = most.load(Ordering::SeqCst);
            assert!(most <= count, "{most} at a time where {count} may");
            assert_eq!(done.load(Ordering::SeqCst), 80);
            let left = std::fs::read_dir(&folder).map(Iterator::count);
            assert!(left.is_err() || count > 1 && folder.join("0").exists(), "{left:?}");
            let _ = std::fs::remove_dir_all(&folder);
        }
    }

    /// Another job has the slot of the node, and its process is stopped.
    #[test]
    #[ignore = "long"]
    fn a_slot_is_waited_for_unless_its_holder_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let throttle = Throttle { own: dir.path().join("slot.0"), shared: None };
        let mut holder = Command::new("flock");
        holder.arg("--no-fork").arg(&throttle.own).args(["sleep", "1000"]);
        let mut holder = holder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let slot = || RealFiles.open(&throttle.own, How::Ensure(PRIVATE)).unwrap();
        wait_until(|| slot().try_lock() == LockAttempt::Held);
        let run = |most: u64| {
            let looks = AtomicU64::new(0);
            throttle.run(&RealFiles, &|| looks.fetch_add(1, Ordering::SeqCst) == most, || ())
        };
        let beside_running = run(2 * LOOKS);
        kill(Pid::from_raw(holder.id() as i32), Signal::SIGSTOP).unwrap();
        let beside_stopped = run(4 * LOOKS);
        let is_held = slot().try_lock() == LockAttempt::Held;
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!((beside_running, beside_stopped, is_held), (None, Some(()), true));
        assert_eq!(run(LOOKS), Some(()));
    }

    #[test]
    fn unusable_slots_block_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let mut times = 0;
        for folder in [dir.path().join("gone/slots"), dir.path().join("file")] {
            std::fs::write(dir.path().join("file"), "").unwrap();
            assert!(SharedSlots { files: &RealFiles, folder: &folder, count: 1 }.take(&mut || times += 1));
        }
        assert_eq!(times, 2);
    }
}
