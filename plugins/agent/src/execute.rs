//! The agent's work: it executes the transfer files of a control directory.
//!
//! Bytes are synced and then recorded as written, with their checksum so far. So another agent can continue after one that was
//! killed at any moment. A request to stop is noticed within a fraction of a second.

mod copying;

use crate::presence;
use crate::transfer::{is_to_stop, list, Slots, Transfer};
use copying::{Copying, Failure};
use scr_copying::{Buffer, Control};
use scr_plugin_api::held;
use scr_plugin_api::pace::Pace;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// How nodes share slots: does the work if one of the places is free, and returns whether it did. Returns at once where it is not.
pub type TakeSlot = Box<dyn Fn(&Slots, &mut dyn FnMut()) -> bool + Send + Sync>;

/// Executes the transfer files of a control directory. Any number of threads may work.
pub struct Executor {
    control: PathBuf,
    take_slot: TakeSlot,
    pace: Arc<Pace>,
    stopped: AtomicBool,
    /// Held by the one thread that looks for something to do: the others rest.
    looks: Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Those that a thread is at work on.
    running: HashMap<PathBuf, Arc<Control>>,
    /// Those that have ended, or are useless, as they were then.
    ended: HashMap<PathBuf, Identity>,
}

/// Distinguishes a file from one that has replaced it.
type Identity = (u64, i64, i64);

impl Executor {
    /// One that has done nothing yet. All that its process does from now on counts as work.
    pub fn new(control: PathBuf, take_slot: TakeSlot) -> Self {
        Self {
            control,
            take_slot,
            pace: Arc::new(Pace::of_process()),
            stopped: AtomicBool::default(),
            looks: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Executes transfers in so many threads of a scope until it is [stopped](Self::stop), or in fewer if the system gives no
    /// more. One more thread looks for requests to stop a transfer: whoever has made one may wait for the answer, even in this
    /// very process. It also shows applications that wait for copies that the agent is alive.
    ///
    /// # Errors
    /// The system gives no thread for either. Then it is stopped.
    pub fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
    ) -> std::io::Result<()> {
        let started = self.start_look_out(scope).and_then(|()| {
            let start = |_| Builder::new().spawn_scoped(scope, || self.work());
            let mut workers = (0..threads.max(1)).map(start);
            workers.next().transpose()?;
            workers.take_while(Result::is_ok).for_each(drop);
            Ok(())
        });
        started.inspect_err(|_| self.stop())
    }

    fn start_look_out<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> std::io::Result<()> {
        let look_out = || {
            let (mut beaten, mut seen) = (None::<Instant>, HashMap::new());
            while !self.is_stopped() {
                self.check_cancel();
                if beaten.is_none_or(|at| at.elapsed() >= BETWEEN_BEATS) {
                    presence::beat(&self.control);
                    self.show_progress(&mut seen);
                    beaten = Some(Instant::now());
                }
                std::thread::sleep(LOOK);
            }
        };
        Builder::new().spawn_scoped(scope, look_out).map(drop)
    }

    /// Executes one transfer after another, until it is stopped.
    fn work(&self) {
        let mut buffer = Buffer::default();
        while let Some((transfer, control)) = self.wait_for_work() {
            match transfer.slots.clone() {
                None => self.execute(transfer, &control, &mut buffer),
                Some(slots) => self.execute_with_slot(&slots, transfer, &control, &mut buffer),
            }
        }
    }

    /// Executes a transfer once there is a slot for it. A transfer that should stop needs none: it ends before a byte is copied.
    fn execute_with_slot(
        &self,
        slots: &Slots,
        mut transfer: Transfer,
        control: &Control,
        buffer: &mut Buffer,
    ) {
        if std::mem::take(&mut transfer.running) {
            // As an agent has left it that was killed, while nobody copies now. It is for people to see.
            let _ = transfer.write();
        }
        let path = &transfer.path.clone();
        let mut transfer = Some(transfer);
        let mut execute = || {
            if let Some(transfer) = transfer.take() {
                self.execute(transfer, control, buffer);
            }
        };
        let mut pause = LOOK;
        loop {
            if self.is_stopped() {
                control.cancel();
            }
            if control.is_cancelled() {
                return execute();
            }
            if (self.take_slot)(slots, &mut execute) {
                return;
            }
            // Agents of other nodes have all slots.
            presence::touch(path);
            let waits = Instant::now();
            while waits.elapsed() < pause && !control.is_cancelled() && !self.is_stopped() {
                std::thread::sleep(LOOK);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The next transfer; none once it is stopped.
    fn wait_for_work(&self) -> Option<(Transfer, Arc<Control>)> {
        let _looks = held(&self.looks);
        while !self.is_stopped() {
            match self.take() {
                None => std::thread::sleep(LOOK),
                found => return found,
            }
        }
        None
    }

    /// Looks whether transfers should stop that threads are at work on. To be called often.
    fn check_cancel(&self) {
        self.pace.account_for_process();
        for (path, control) in &held(&self.known).running {
            if is_to_stop(path) {
                control.cancel();
            }
        }
    }

    /// Shows which transfers make progress: those of which more bytes are copied than were `seen`, and those that wait for them.
    fn show_progress(&self, seen: &mut HashMap<PathBuf, u64>) {
        let mut known = held(&self.known);
        let running = known.running.iter().map(|(path, control)| (path.clone(), control.done()));
        let before = std::mem::replace(seen, running.collect());
        let moved = seen.iter().filter(|(path, done)| before.get(*path) != Some(*done));
        let moved: Vec<&Path> = moved.map(|(path, _)| path.as_path()).collect();
        let all = if moved.is_empty() { Vec::new() } else { list(&self.control) };
        let waiting = all.iter().filter(|path| !seen.contains_key(*path) && known.is_open(path));
        waiting.map(PathBuf::as_path).chain(moved).for_each(presence::touch);
    }

    /// Whether there is anything to copy, now or for a thread that comes later.
    pub fn has_work(&self) -> bool {
        let mut known = held(&self.known);
        !known.running.is_empty() || list(&self.control).iter().any(|path| known.is_open(path))
    }

    /// Whether there has been anything to copy.
    pub fn has_seen_any(&self) -> bool {
        let known = held(&self.known);
        !known.running.is_empty() || !known.ended.is_empty() || !list(&self.control).is_empty()
    }

    /// Lets all threads leave as soon as they can. Unfinished transfers stay recorded for the next agent.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        held(&self.known).running.values().for_each(|control| control.cancel());
    }

    /// Removes the transfers that have ended.
    pub fn clear_away(&self) {
        for path in list(&self.control) {
            if let Ok(Some(transfer)) = Transfer::read(&path) {
                if transfer.outcome.is_some() || transfer.is_to_stop() {
                    transfer.remove();
                }
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The next transfer that nobody is at work on.
    fn take(&self) -> Option<(Transfer, Arc<Control>)> {
        let mut known = held(&self.known);
        for path in list(&self.control) {
            if known.running.contains_key(&path) || !known.is_open(&path) {
                continue;
            }
            if let Ok(Some(transfer)) = Transfer::read(&path) {
                if transfer.width > 0 && known.running.len() >= transfer.width {
                    continue;
                }
                let control = Arc::new(Control::paced(Arc::clone(&self.pace)));
                known.running.insert(path, Arc::clone(&control));
                return Some((transfer, control));
            }
        }
        None
    }

    fn execute(&self, mut transfer: Transfer, control: &Control, buffer: &mut Buffer) {
        self.pace.set(transfer.limits);
        transfer.running = true;
        let copied = if transfer.is_to_stop() {
            Err(Failure::Stopped)
        } else {
            Copying::new(&mut transfer, control).run(buffer)
        };
        transfer.running = false;
        transfer.outcome = match copied {
            Ok(()) => Some(Ok(())),
            // Another agent, or this one later, continues.
            Err(Failure::Stopped) if !transfer.is_to_stop() => None,
            Err(Failure::Stopped) => Some(Err(transfer.cancelled())),
            Err(Failure::Copy(error)) => Some(Err(error.into())),
            // Nobody waits for it.
            Err(Failure::Gone) => None,
        };
        // Unrecorded work is done again. A recorded transfer may be replaced by a new transfer at once, by whoever has
        // waited for it: so the file that lies there now is not recorded as ended unread.
        let _ = if transfer.outcome.is_some() { transfer.write_end() } else { transfer.write() };
        let mut known = held(&self.known);
        known.running.remove(&transfer.path);
        if self.is_stopped() {
            known.record_ended(&transfer.path, identity(&transfer.path));
        }
    }
}

impl Known {
    /// Whether a transfer is still to be copied. An ended one is read once.
    fn is_open(&mut self, path: &Path) -> bool {
        if self.running.contains_key(path) {
            return true;
        }
        let identity = identity(path);
        if identity.is_none() || self.ended.get(path).copied() == identity {
            return false;
        }
        let open = matches!(Transfer::read(path), Ok(Some(transfer)) if transfer.outcome.is_none());
        if !open {
            self.record_ended(path, identity);
        }
        open
    }

    fn record_ended(&mut self, path: &Path, identity: Option<Identity>) {
        self.ended.extend(identity.map(|identity| (path.to_owned(), identity)));
        if self.ended.len() > MOST_KEPT {
            self.forget_oldest();
        }
    }

    /// A job may flush for months; of what has ended long ago nobody asks any more.
    fn forget_oldest(&mut self) {
        let mut oldest: Vec<_> = self.ended.iter().map(|(path, id)| ((id.1, id.2), path.clone())).collect();
        oldest.sort();
        let gone: HashSet<_> = oldest.into_iter().take(MOST_KEPT / 2).map(|(_, path)| path).collect();
        for path in &gone {
            if let Ok(Some(transfer)) = Transfer::read(path) {
                transfer.remove();
            }
        }
        self.ended.retain(|path, _| !gone.contains(path));
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let status = std::fs::metadata(path).ok()?;
    Some((status.ino(), status.mtime(), status.mtime_nsec()))
}

const BETWEEN_BEATS: Duration = Duration::from_secs(1);
/// Between two looks for something to do.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks for a place: from the above, twice as long each time, to this. Thousands of nodes may be looking.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many transfers can be asked about after they have ended.
const MOST_KEPT: usize = 4096;

#[cfg(test)]
mod tests;
