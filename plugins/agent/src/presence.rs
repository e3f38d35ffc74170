//! Which processes run on a node: the agent, and applications.
//!
//! Each holds a lock of the system on a file in the control directory, which is node-local, so any death is noticed at once. The
//! agent's lock is exclusive: there is one agent for each node and allocation. Applications share theirs.

use super::launch::LIMIT;
use rustix::fs::{flock, utimensat, AtFlags, FlockOperation, Timespec, Timestamps, CWD, UTIME_NOW};
use rustix::io::Errno;
use scr_plugin_api::{above_standard, Handle};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Marks a control directory as served by an agent, until it is dropped.
#[derive(Debug)]
pub struct Agent(#[allow(dead_code, reason = "the lock is held while it is open")] Handle<File>);

/// Marks an application as a user of the agent, until it is dropped.
#[derive(Debug)]
pub struct Application(Handle<File>);

impl Agent {
    /// Becomes the agent; `None` if there is one.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn become_one(control: &Path) -> io::Result<Option<Self>> {
        let handle = open(&control.join(AGENT))?;
        let file = handle.get()?;
        for _ in 0..LOOKS {
            if lock(file, FlockOperation::NonBlockingLockExclusive)? {
                file.set_len(0)?;
                file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)?;
                return Ok(Some(Self(handle)));
            }
            // Somebody may only be looking whether there is one.
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// The process id of the agent, if one is there.
    pub fn find(control: &Path) -> Option<u32> {
        agent_is_there(control).then(|| {
            let text = std::fs::read_to_string(control.join(AGENT)).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        })
    }
}

impl Application {
    /// Says that this process is an application that uses the agent.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn enter(control: &Path) -> io::Result<Self> {
        let path = control.join(APPLICATION);
        let file = open(&path)?;
        // An agent that leaves has it, and may be stopped just then.
        wait_for_lock(&path, file.get()?, FlockOperation::NonBlockingLockShared, LIMIT)?;
        Ok(Self(file))
    }

    /// If no application is there, what keeps others from entering until it is dropped. So an agent that leaves meanwhile
    /// is seen to be gone by the application that enters next.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn none_is_there(control: &Path) -> io::Result<Option<Self>> {
        let file = open(&control.join(APPLICATION))?;
        let taken = lock(file.get()?, FlockOperation::NonBlockingLockExclusive)?;
        Ok(taken.then_some(Self(file)))
    }

    /// Whether the agent still knows: the process that it runs in may have closed the file, and with it the lock is gone.
    pub(crate) fn is_known(&self) -> bool {
        self.0.get().is_ok()
    }
}

/// Waits for a lock as long as the file is touched: who has it may be stopped.
fn wait_for_lock(path: &Path, file: &File, how: FlockOperation, limit: Duration) -> io::Result<()> {
    let mut sign = Sign::new(last_touch(path));
    while !lock(file, how)? {
        if sign.is_missed(last_touch(path), limit) {
            let why = format!("another process has kept {} locked for {limit:?}", path.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A sign that a process gives again and again.
pub(crate) struct Sign {
    last: Option<SystemTime>,
    came: Instant,
}

impl Sign {
    pub(crate) fn new(last: Option<SystemTime>) -> Self {
        Self { last, came: Instant::now() }
    }

    /// Whether it has not come anew for so long.
    pub(crate) fn is_missed(&mut self, now: Option<SystemTime>, longest: Duration) -> bool {
        if now != self.last {
            *self = Self::new(now);
        }
        self.came.elapsed() >= longest
    }
}

/// The agent of a control directory shows that it is alive.
pub(crate) fn beat(control: &Path) {
    touch(&control.join(AGENT));
}

/// Makes a file young, which needs no room.
pub(crate) fn touch(path: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let now = Timestamps { last_access: now, last_modification: now };
    // Without it, applications give up waiting for copies.
    let _ = utimensat(CWD, path, &now, AtFlags::empty());
}

/// When the agent has shown that last.
pub(crate) fn last_beat(control: &Path) -> Option<SystemTime> {
    last_touch(&control.join(AGENT))
}

/// When a file became young last.
pub(crate) fn last_touch(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|status| status.modified()).ok()
}

/// Whether an agent is there.
pub(crate) fn agent_is_there(control: &Path) -> bool {
    let Ok(file) = File::open(control.join(AGENT)) else { return false };
    matches!(lock(&file, FlockOperation::NonBlockingLockShared), Ok(false))
}

/// The right to start an agent, which one process has at a time, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    file: Handle<File>,
    /// Whether another process has told something since this one asked for it.
    was_told: bool,
}

impl Turn {
    /// Waits for it, until another process that has it has not told anything for so long.
    pub(crate) fn take(control: &Path, limit: Duration) -> io::Result<Self> {
        let path = control.join(LAUNCH);
        let before = last_touch(&path);
        let file = open(&path)?;
        wait_for_lock(&path, file.get()?, FlockOperation::NonBlockingLockExclusive, limit)?;
        Ok(Self { file, was_told: last_touch(&path) != before })
    }

    /// Why the process has failed that this one has waited for.
    pub(crate) fn failure_before(&self) -> Option<String> {
        let mut why = String::new();
        let read = self.file.get().and_then(|mut file| file.read_to_string(&mut why));
        read.is_ok_and(|bytes| bytes > 0 && self.was_told).then_some(why)
    }

    /// Tells those that wait how it went: why it failed, or nothing.
    pub(crate) fn tell(&self, failure: &str) {
        // If they do not hear it, each of them tries.
        let _ = self.file.get().and_then(|file| {
            file.set_len(0)?;
            file.write_all_at(failure.as_bytes(), 0)
        });
    }
}

fn open(path: &Path) -> io::Result<Handle<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // What the application prints meanwhile must not stand in it.
    Handle::new(above_standard(|| options.open(path))?)
}

/// Whether the lock was taken.
fn lock(file: &File, how: FlockOperation) -> io::Result<bool> {
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

const AGENT: &str = "agent.lock";
const APPLICATION: &str = "application.lock";
pub(crate) const LAUNCH: &str = "launch.lock";
/// Between two looks at a lock.
const LOOK: Duration = Duration::from_millis(2);
/// How many times an agent tries to become one.
const LOOKS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_agent_and_its_end_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Agent::find(dir.path()), None);
        let agent = Agent::become_one(dir.path()).unwrap().unwrap();
        assert_eq!(Agent::find(dir.path()), Some(std::process::id()));
        assert!(Agent::become_one(dir.path()).unwrap().is_none());
        drop(agent);
        assert_eq!(Agent::find(dir.path()), None);
        assert!(Agent::become_one(dir.path()).unwrap().is_some());
    }

    #[test]
    fn an_application_enters_only_when_the_agent_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let first = Application::enter(dir.path()).unwrap();
        let second = Application::enter(dir.path()).unwrap();
        assert!(Application::none_is_there(dir.path()).unwrap().is_none());
        drop((first, second));
        let agent = Agent::become_one(dir.path()).unwrap();
        let nobody = Application::none_is_there(dir.path()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let enters = scope.spawn(|| {
                let _there = Application::enter(dir.path()).unwrap();
                agent_is_there(dir.path())
            });
            drop(agent);
            drop(nobody);
            assert!(!enters.join().unwrap());
        });
    }
}
