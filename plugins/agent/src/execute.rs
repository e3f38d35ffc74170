//! The agent's work: copying what the transfer files of a control directory say.
//!
//! What counts as written is synced and then recorded, with its checksum so far, so that an agent that was killed at any
//! moment is followed by one that goes on from there. A wish to stop is seen within a fraction of a second.

use crate::transfer::{is_to_stop, list, Outcome, Transfer, Turns};
use scr_copying::{copy_part, Buffer, Control, CopyError, How, Pace, Part, Written};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How nodes take turns.
pub trait TakeTurn: std::fmt::Debug + Send + Sync {
    /// Does `work` if one of the places is free, and gives whether it was done. Returns at once where it is not.
    fn take(&self, turns: &Turns, work: &mut dyn FnMut()) -> bool;
}

/// Executes the transfer files of a control directory. Any number of threads may [`work`](Self::work).
#[derive(Debug)]
pub struct Executor {
    control: PathBuf,
    take_turn: Box<dyn TakeTurn>,
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
    /// Those that have ended, or are of no use, as they were then.
    ended: HashMap<PathBuf, Identity>,
}

/// Tells a file from one that has replaced it.
type Identity = (u64, i64, i64);

impl Executor {
    /// One that has done nothing yet. Whatever its process does from now on counts as work.
    pub fn new(control: PathBuf, take_turn: Box<dyn TakeTurn>) -> Self {
        Self {
            control,
            take_turn,
            pace: Arc::new(Pace::of_process()),
            stopped: AtomicBool::default(),
            looks: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Executes one transfer after another, until it is [stopped](Self::stop).
    pub fn work(&self) {
        let mut buffer = Buffer::new();
        while let Some((transfer, control)) = self.wait_for_work() {
            match transfer.turns.clone() {
                None => self.execute(transfer, &control, &mut buffer),
                Some(turns) => self.execute_in_turn(&turns, transfer, &control, &mut buffer),
            }
        }
    }

    /// Executes a transfer once there is a place for it. What should stop needs none: it ends before a byte is copied.
    fn execute_in_turn(&self, turns: &Turns, transfer: Transfer, control: &Control, buffer: &mut Buffer) {
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
            if self.take_turn.take(turns, &mut execute) {
                return;
            }
            let waits = Instant::now();
            while waits.elapsed() < pause && !control.is_cancelled() && !self.is_stopped() {
                std::thread::sleep(LOOK);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The next transfer; none once it is stopped.
    fn wait_for_work(&self) -> Option<(Transfer, Arc<Control>)> {
        let _looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_stopped() {
            match self.take() {
                None => std::thread::sleep(LOOK),
                found => return found,
            }
        }
        None
    }

    /// Looks whether transfers should stop that threads are at work on. To be called often.
    pub fn heed_wishes(&self) {
        self.pace.account_for_process();
        for (path, control) in &self.lock().running {
            if is_to_stop(path) {
                control.cancel();
            }
        }
    }

    /// Whether there is anything to copy, now or for a thread that comes later.
    pub fn has_work(&self) -> bool {
        let mut known = self.lock();
        !known.running.is_empty() || list(&self.control).iter().any(|path| known.is_open(path))
    }

    /// Whether there has been anything to copy.
    pub fn has_seen_any(&self) -> bool {
        let known = self.lock();
        !known.running.is_empty() || !known.ended.is_empty() || !list(&self.control).is_empty()
    }

    /// Lets all threads leave as soon as they can. What is not copied stays recorded for the next agent.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.lock().running.values().for_each(|control| control.cancel());
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
        let mut known = self.lock();
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
            Copying { transfer: &mut transfer, control, recorded: Instant::now() }.run(buffer)
        };
        transfer.running = false;
        transfer.outcome = match copied {
            Ok(()) => Some(Outcome::Done),
            // Another agent, or this one later, goes on.
            Err(Failure::Stopped) if !transfer.is_to_stop() => None,
            Err(Failure::Stopped) => Some(Outcome::Failed(transfer.cancelled())),
            Err(Failure::Copy(error)) => Some(Outcome::Failed(error.into())),
            // Nobody waits for it any more, or it will be found as it was.
            Err(Failure::Record) => None,
        };
        // What cannot be recorded is done again. What is recorded may be replaced by a new transfer at once, by whoever has
        // waited for it: so the file that lies there now is not noted as ended unread.
        let _ = transfer.write();
        let mut known = self.lock();
        known.running.remove(&transfer.path);
        if self.is_stopped() {
            known.note_ended(&transfer.path, identity(&transfer.path));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whether a transfer is still to be copied. What has ended is read once.
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
            self.note_ended(path, identity);
        }
        open
    }

    fn note_ended(&mut self, path: &Path, identity: Option<Identity>) {
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

/// Why a transfer did not come to its end.
#[derive(Debug)]
enum Failure {
    Stopped,
    Copy(CopyError),
    /// The transfer file could not be written.
    Record,
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Cancelled { .. } => Self::Stopped,
            error => Self::Copy(error),
        }
    }
}

/// One transfer under way.
struct Copying<'a> {
    transfer: &'a mut Transfer,
    control: &'a Control,
    recorded: Instant,
}

impl Copying<'_> {
    fn run(&mut self, buffer: &mut Buffer) -> Result<(), Failure> {
        self.record()?;
        let mut unsynced = Vec::new();
        for place in 0..self.transfer.files.len() {
            self.copy(place, buffer, &mut unsynced)?;
        }
        self.sync(&mut unsynced)
    }

    /// Copies what is missing of a file. Large ones go in pieces, small ones are synced several at a time.
    fn copy(
        &mut self,
        place: usize,
        buffer: &mut Buffer,
        unsynced: &mut Vec<(usize, u64, Written)>,
    ) -> Result<(), Failure> {
        let how = How::new(self.transfer.block_bytes, self.transfer.take_crc);
        let bytes = self.transfer.files[place].item.bytes;
        loop {
            let file = &mut self.transfer.files[place];
            if file.written > bytes || file.written > 0 && self.transfer.take_crc && file.crc.is_none() {
                file.written = 0;
            }
            let from = file.written;
            if from == bytes && bytes > 0 {
                return Ok(());
            }
            let to = from.saturating_add(PIECE).min(bytes);
            let part = Part { from, crc: file.crc.unwrap_or(0), to };
            let written = match copy_part(&file.item, how, self.control, buffer, part) {
                // What an earlier agent has written is gone: from the beginning.
                Err(CopyError::WrongSize { path, .. }) if from > 0 && path == file.item.destination => {
                    file.written = 0;
                    continue;
                }
                other => other?,
            };
            unsynced.push((place, to, written));
            let young = self.recorded.elapsed() < BETWEEN_RECORDS;
            if to == bytes && young && unsynced.len() < MOST_UNSYNCED {
                return Ok(());
            }
            self.sync(unsynced)?;
            if to == bytes {
                return Ok(());
            }
        }
    }

    fn sync(&mut self, unsynced: &mut Vec<(usize, u64, Written)>) -> Result<(), Failure> {
        for (place, to, written) in unsynced.drain(..) {
            let crc = written.sync()?;
            let file = &mut self.transfer.files[place];
            (file.written, file.crc) = (to, crc);
        }
        if self.recorded.elapsed() >= BETWEEN_RECORDS {
            self.record()?;
        }
        Ok(())
    }

    fn record(&mut self) -> Result<(), Failure> {
        self.recorded = Instant::now();
        self.transfer.write().map_err(|_| Failure::Record)
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let status = std::fs::metadata(path).ok()?;
    Some((status.ino(), status.mtime(), status.mtime_nsec()))
}

/// Between two looks for something to do.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks for a place: from the above, twice as long each time, to this. Thousands of nodes may be looking.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A large file is synced, and recorded, whenever so much of it is copied.
const PIECE: u64 = 64 << 20;
/// So many files are open before they are synced.
const MOST_UNSYNCED: usize = 32;
/// What is recorded less often has to be copied again after a death, and nothing worse.
const BETWEEN_RECORDS: Duration = Duration::from_millis(50);
/// So many transfers can be asked about after they have ended.
const MOST_KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_copying::Limits;
    use scr_plugin_api::{CopyItem, CopyJob};
    use std::fs;
    use std::sync::atomic::AtomicUsize;

    struct Stage(tempfile::TempDir);

    /// Places that are free once they have been asked for so often.
    #[derive(Debug, Default)]
    struct Free {
        after: usize,
        asked: AtomicUsize,
    }

    impl TakeTurn for Free {
        fn take(&self, _turns: &Turns, work: &mut dyn FnMut()) -> bool {
            let free = self.asked.fetch_add(1, Ordering::SeqCst) >= self.after;
            if free {
                work();
            }
            free
        }
    }

    impl Stage {
        fn transfer(&self, sizes: &[usize]) -> Transfer {
            let item = |(number, &size): (usize, &usize)| {
                let source = self.0.path().join(format!("in.{number}"));
                let bytes: Vec<u8> =
                    (0..size).map(|place| (place * 31 + place / 251 + number) as u8).collect();
                fs::write(&source, bytes).unwrap();
                let destination = self.0.path().join(format!("out.{number}"));
                CopyItem { source, destination, bytes: size as u64 }
            };
            let items = sizes.iter().enumerate().map(item).collect();
            let job = CopyJob { token: "t".into(), items, block_bytes: 1 << 16, take_crc: true };
            let transfer = Transfer::new(self.0.path(), &job, Limits::default()).unwrap();
            transfer.begin().unwrap();
            transfer
        }

        fn assert_copied(&self, transfer: &Transfer) {
            assert_eq!(transfer.outcome, Some(Outcome::Done));
            for file in &transfer.files {
                let bytes = fs::read(&file.item.source).unwrap();
                assert!(bytes == fs::read(&file.item.destination).unwrap());
                assert_eq!((file.written, file.crc), (bytes.len() as u64, Some(crc32fast::hash(&bytes))));
            }
        }
    }

    /// As an agent does that ends as soon as there is nothing left.
    fn work_through(control: &Path) {
        let executor = Executor::new(control.to_owned(), Box::new(Free::default()));
        std::thread::scope(|scope| {
            scope.spawn(|| executor.work());
            while executor.has_work() {
                std::thread::yield_now();
            }
            executor.stop();
        });
    }

    #[test]
    fn what_a_transfer_file_says_is_copied_and_recorded() {
        let stage = Stage(tempfile::tempdir().unwrap());
        let transfer = stage.transfer(&[0, 1, 100_000, 200_001]);
        work_through(stage.0.path());
        stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
    }

    #[test]
    fn no_more_transfers_are_begun_at_a_time_than_allowed() {
        let stage = Stage(tempfile::tempdir().unwrap());
        for token in ["a", "b", "c"] {
            let mut transfer = stage.transfer(&[1000]);
            transfer.path = stage.0.path().join(format!("transfer.{token}.scr"));
            transfer.width = 2;
            transfer.write().unwrap();
        }
        std::fs::remove_file(stage.0.path().join("transfer.t.scr")).unwrap();
        let executor = Executor::new(stage.0.path().to_owned(), Box::new(Free::default()));
        let begun: Vec<_> = (0..3).map(|_| executor.take()).collect();
        assert_eq!(begun.iter().flatten().count(), 2);
        let (first, control) = begun.into_iter().flatten().next().unwrap();
        executor.execute(first, &control, &mut Buffer::new());
        assert!(executor.take().is_some() && executor.take().is_none());
    }

    #[test]
    fn a_transfer_waits_for_a_place_and_one_that_should_stop_does_not() {
        let stage = Stage(tempfile::tempdir().unwrap());
        let mut transfer = stage.transfer(&[1000]);
        transfer.turns = Some(Turns { folder: stage.0.path().join("turns"), places: 1 });
        transfer.write().unwrap();
        let run = |after| {
            let executor =
                Executor::new(stage.0.path().to_owned(), Box::new(Free { after, ..Free::default() }));
            std::thread::scope(|scope| {
                scope.spawn(|| executor.work());
                if after == usize::MAX {
                    while executor.lock().running.is_empty() {
                        std::thread::yield_now();
                    }
                    Transfer::read(&transfer.path).unwrap().unwrap().stop().unwrap();
                }
                while executor.has_work() {
                    executor.heed_wishes();
                    std::thread::yield_now();
                }
                executor.stop();
            });
            Transfer::read(&transfer.path).unwrap().unwrap()
        };
        let stopped = run(usize::MAX);
        assert!(matches!(stopped.outcome, Some(Outcome::Failed(_))) && stopped.written() == 0, "{stopped:?}");
        transfer.begin().unwrap();
        stage.assert_copied(&run(2));
    }

    #[test]
    fn an_agent_goes_on_where_the_last_one_was_killed() {
        let stage = Stage(tempfile::tempdir().unwrap());
        let mut transfer = stage.transfer(&[100_000, 200_000, 300]);
        // As one leaves it that was killed in its second file, after a part of it was synced and more was written.
        let known = |number: usize, len: usize| {
            fs::read(stage.0.path().join(format!("in.{number}"))).unwrap()[..len].to_vec()
        };
        for (number, recorded, there) in [(0, 100_000, 100_000), (1, 70_000, 130_000)] {
            let bytes = known(number, there);
            fs::write(&transfer.files[number].item.destination, &bytes).unwrap();
            transfer.files[number].written = recorded;
            transfer.files[number].crc = Some(crc32fast::hash(&bytes[..recorded as usize]));
        }
        transfer.running = true;
        transfer.write().unwrap();
        // What is synced is not read again.
        let first = fs::metadata(&transfer.files[0].item.destination).unwrap().modified().unwrap();
        work_through(stage.0.path());
        stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
        assert_eq!(fs::metadata(&transfer.files[0].item.destination).unwrap().modified().unwrap(), first);
    }

    #[test]
    fn a_record_that_cannot_be_right_is_not_believed() {
        let stage = Stage(tempfile::tempdir().unwrap());
        let mut transfer = stage.transfer(&[100_000, 1000, 1000]);
        transfer.files[0].written = 50_000;
        transfer.files[0].crc = Some(1);
        transfer.files[1].written = u64::MAX;
        transfer.files[1].crc = Some(1);
        transfer.files[2].written = 500;
        transfer.write().unwrap();
        work_through(stage.0.path());
        stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
    }

    #[test]
    fn a_transfer_that_is_stopped_is_not_copied_by_the_next_agent_either() {
        let stage = Stage(tempfile::tempdir().unwrap());
        let transfer = stage.transfer(&[1000]);
        transfer.stop().unwrap();
        work_through(stage.0.path());
        let outcome = Transfer::read(&transfer.path).unwrap().unwrap().outcome;
        assert!(matches!(outcome, Some(Outcome::Failed(error)) if error.text.contains("cancelled")));
        assert!(!transfer.files[0].item.destination.exists());
    }

    #[test]
    fn an_agent_that_is_stopped_leaves_a_transfer_to_the_next() {
        let stage = Stage(tempfile::tempdir().unwrap());
        let mut transfer = stage.transfer(&[10_000_000]);
        transfer.limits.bytes_per_second = 1_000_000;
        transfer.write().unwrap();
        let executor = Executor::new(stage.0.path().to_owned(), Box::new(Free::default()));
        std::thread::scope(|scope| {
            scope.spawn(|| executor.work());
            let is_running = || Transfer::read(&transfer.path).unwrap().unwrap().running;
            while !is_running() {
                std::thread::yield_now();
            }
            executor.stop();
        });
        let left = Transfer::read(&transfer.path).unwrap().unwrap();
        assert_eq!((left.running, &left.outcome), (false, &None));
        transfer.limits.bytes_per_second = 0;
        transfer.write().unwrap();
        work_through(stage.0.path());
        stage.assert_copied(&Transfer::read(&transfer.path).unwrap().unwrap());
    }

    #[test]
    fn what_has_ended_is_cleared_away_and_nothing_else() {
        let stage = Stage(tempfile::tempdir().unwrap());
        let transfer = stage.transfer(&[10]);
        let executor = Executor::new(stage.0.path().to_owned(), Box::new(Free::default()));
        executor.clear_away();
        assert!(transfer.path.exists());
        work_through(stage.0.path());
        executor.clear_away();
        assert!(!transfer.path.exists());
    }
}
