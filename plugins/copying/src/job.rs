//! A job of many files: any number of threads work on it, and any may poll, wait or stop it.
//!
//! A job has ended only when no thread works on it any more. So after the end of a job, or after a cancel, nothing more will be
//! written.

use crate::file::Written;
use crate::{copy_part, Buffer, Control, CopyError, How, Part};
use scr_plugin_api::pace::Pace;
use scr_plugin_api::{held, CopyItem, CopyJob, CopyState, PluginError};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// One list of copies, and how far it is.
#[derive(Debug)]
pub struct Job {
    order: CopyJob,
    control: Control,
    state: Mutex<JobState>,
    ended: Condvar,
}

#[derive(Debug)]
struct JobState {
    /// The item to be taken next.
    next: usize,
    /// Threads at work.
    workers: usize,
    crcs: Vec<Option<u32>>,
    /// The first error; the rest of the items are then left alone.
    failure: Option<PluginError>,
    ended: bool,
}

impl Job {
    /// A job on which nobody has worked yet. No faster than this.
    pub fn new(order: CopyJob, pace: Arc<Pace>) -> Self {
        let (crcs, ended) = (vec![None; order.items.len()], order.items.is_empty());
        let state = JobState { next: 0, workers: 0, crcs, failure: None, ended };
        Self { order, control: Control::paced(pace), state: Mutex::new(state), ended: Condvar::new() }
    }

    /// The order.
    pub fn order(&self) -> &CopyJob {
        &self.order
    }

    /// Copies one item after another, and returns when there is none left to take, which is not yet the end
    /// where other threads work on the job too. A panic becomes the job's failure.
    pub fn work(&self, buffer: &mut Buffer) {
        if !self.enter() {
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.copy_items(buffer)));
        self.leave(outcome.unwrap_or_else(|_| {
            let token = &self.order.token;
            let text = format!("copying job {token} panicked, which is an error in the transport");
            Err(PluginError::fault(text))
        }));
    }

    /// How far it is.
    pub fn poll(&self) -> CopyState {
        self.outcome(&held(&self.state))
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> CopyState {
        let mut state = held(&self.state);
        while !state.ended {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.outcome(&state)
    }

    /// Stops it, and returns when nobody works on it any more. One that has ended stays as it is.
    pub fn cancel(&self) {
        self.control.cancel();
        let mut state = held(&self.state);
        if !state.ended && state.workers == 0 {
            state.failure.get_or_insert_with(|| self.cancelled());
            self.end(&mut state);
        }
        drop(state);
        self.wait();
    }

    /// The checksum of an item, once the job has ended well.
    pub fn crc(&self, item: usize) -> Option<u32> {
        let state = held(&self.state);
        if !state.ended || state.failure.is_some() {
            return None;
        }
        state.crcs.get(item).copied().flatten()
    }

    /// Whether there is an item for another thread to take.
    pub fn has_work(&self) -> bool {
        let state = held(&self.state);
        !state.ended && state.failure.is_none() && state.next < self.order.items.len()
    }

    /// Whether it has ended, and badly.
    pub fn has_failed(&self) -> bool {
        let state = held(&self.state);
        state.ended && state.failure.is_some()
    }

    fn copy_items(&self, buffer: &mut Buffer) -> Result<(), PluginError> {
        let how = How::new(self.order.block_bytes, self.order.take_crc);
        let mut unsynced = Vec::new();
        while let Some((place, item)) = self.take_item() {
            unsynced.push((place, copy_part(item, how, &self.control, buffer, Part::WHOLE)?));
            if unsynced.len() >= MOST_UNSYNCED {
                self.sync(&mut unsynced, how, buffer)?;
            }
        }
        self.sync(&mut unsynced, how, buffer)
    }

    /// Several files at once: the first then commits the journal of the file system for all.
    fn sync(
        &self,
        unsynced: &mut Vec<(usize, Written)>,
        how: How,
        buffer: &mut Buffer,
    ) -> Result<(), PluginError> {
        for (place, written) in unsynced.drain(..) {
            let item = &self.order.items[place];
            let crc = written.sync(|| copy_part(item, how, &self.control, buffer, Part::WHOLE))?;
            held(&self.state).crcs[place] = crc;
        }
        Ok(())
    }

    fn take_item(&self) -> Option<(usize, &CopyItem)> {
        let mut state = held(&self.state);
        if state.failure.is_some() || self.control.is_cancelled() {
            return None;
        }
        let place = state.next;
        let item = self.order.items.get(place)?;
        state.next += 1;
        Some((place, item))
    }

    fn enter(&self) -> bool {
        let mut state = held(&self.state);
        if state.ended {
            return false;
        }
        state.workers += 1;
        true
    }

    fn leave(&self, outcome: Result<(), PluginError>) {
        let mut state = held(&self.state);
        state.workers -= 1;
        if let Err(error) = outcome {
            state.failure.get_or_insert(error);
        }
        let all_taken = state.next >= self.order.items.len();
        if self.control.is_cancelled() && !all_taken {
            state.failure.get_or_insert_with(|| self.cancelled());
        }
        if state.workers == 0 && (all_taken || state.failure.is_some()) {
            self.end(&mut state);
        }
    }

    fn end(&self, state: &mut JobState) {
        state.ended = true;
        self.ended.notify_all();
    }

    fn outcome(&self, state: &JobState) -> CopyState {
        match &state.failure {
            _ if !state.ended => CopyState::Running(self.control.done()),
            None => CopyState::Done,
            Some(error) => CopyState::Failed(error.clone()),
        }
    }

    fn cancelled(&self) -> PluginError {
        // A job without items has ended from the start.
        let path = self.order.items.first().map(|item| item.destination.clone()).unwrap_or_default();
        CopyError::Cancelled { path, offset: self.control.done() }.into()
    }
}

/// How many files a thread keeps open before it syncs them.
const MOST_UNSYNCED: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::PluginErrorKind;
    use std::fs;
    use std::path::Path;
    use tempfile::TempDir;

    fn job_of(folder: &Path, count: usize) -> Job {
        let items = (0..count)
            .map(|number| {
                let source = folder.join(format!("in.{number}"));
                fs::write(&source, vec![number as u8; 10_000]).unwrap();
                CopyItem { source, destination: folder.join(format!("out.{number}")), bytes: 10_000 }
            })
            .collect();
        Job::new(CopyJob { token: "t".into(), items, block_bytes: 4096, take_crc: true }, Arc::default())
    }

    #[test]
    fn many_threads_copy_every_file_once() {
        let folder = TempDir::new().unwrap();
        let job = job_of(folder.path(), 100);
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| job.work(&mut Buffer::default()));
            }
            assert_eq!(job.wait(), CopyState::Done);
        });
        for number in 0..100 {
            let bytes = fs::read(folder.path().join(format!("out.{number}"))).unwrap();
            assert_eq!(bytes, vec![number as u8; 10_000]);
            assert_eq!(job.crc(number), Some(crc32fast::hash(&bytes)));
        }
        assert_eq!(job.crc(100), None);
        assert_eq!(job.control.done(), 1_000_000);
    }

    #[test]
    fn the_first_error_ends_the_job_and_is_kept() {
        let folder = TempDir::new().unwrap();
        let job = job_of(folder.path(), 3);
        fs::remove_file(folder.path().join("in.1")).unwrap();
        job.work(&mut Buffer::default());
        let CopyState::Failed(error) = job.poll() else { panic!("the job should have failed") };
        assert_eq!(error.kind, PluginErrorKind::Corrupt);
        assert!(error.text.contains("in.1"), "{error}");
        assert_eq!(job.crc(0), None);
        assert!(!folder.path().join("out.2").exists());
        assert!(job.has_failed());
    }

    #[test]
    fn a_job_that_nobody_began_can_be_cancelled() {
        let folder = TempDir::new().unwrap();
        let job = job_of(folder.path(), 3);
        job.cancel();
        job.work(&mut Buffer::default());
        assert!(matches!(job.wait(), CopyState::Failed(error) if error.kind == PluginErrorKind::Cancelled));
        assert!(!folder.path().join("out.0").exists());
    }

    #[test]
    fn cancelling_what_is_done_changes_nothing() {
        let folder = TempDir::new().unwrap();
        let job = job_of(folder.path(), 2);
        job.work(&mut Buffer::default());
        job.cancel();
        assert_eq!(job.poll(), CopyState::Done);
    }

    #[test]
    fn a_job_without_files_is_done() {
        let order = CopyJob { token: "t".into(), items: vec![], block_bytes: 0, take_crc: false };
        assert_eq!(Job::new(order, Arc::default()).wait(), CopyState::Done);
    }
}
