//! A bounded pool of threads, which exist only while there is something to copy.
//!
//! So nothing has to be stopped between flushes, and a process that flushes once an hour has no idle threads.

use crate::{Buffer, Job, Workers};
use scr_plugin_api::held;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;

/// At most so many threads, and the jobs they work on, oldest first.
#[derive(Debug)]
pub struct Pool {
    most_threads: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    all_left: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Arc<Job>>,
    threads: usize,
}

impl Pool {
    /// At most so many threads, and at least one.
    pub fn new(most_threads: usize) -> Self {
        Self { most_threads: most_threads.max(1), shared: Arc::default() }
    }
}

impl Workers for Pool {
    /// Puts a job in the queue, and starts as many threads as it has use for. With fewer than wanted the work continues.
    fn take(&self, job: &Arc<Job>) -> io::Result<()> {
        let mut queue = held(&self.shared.queue);
        queue.jobs.push_back(Arc::clone(job));
        let wanted = queue.threads.saturating_add(job.order().items.len()).min(self.most_threads);
        while queue.threads < wanted {
            let shared = Arc::clone(&self.shared);
            match Builder::new().name("scr-copy".into()).spawn(move || shared.work()) {
                Ok(_) => queue.threads += 1,
                Err(_) if queue.threads > 0 => break,
                Err(error) => {
                    queue.jobs.retain(|other| !Arc::ptr_eq(other, job));
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    /// Waits until every thread has left, so that none outlives the transport.
    fn drop(&mut self) {
        let mut queue = held(&self.shared.queue);
        while queue.threads > 0 {
            queue = self.shared.all_left.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut buffer = Buffer::default();
        while let Some(job) = self.next_job() {
            job.work(&mut buffer);
        }
    }

    /// The oldest job that still has something to take. Without one the thread leaves: it is counted out under
    /// the same lock under which a job is put in, so that no job waits for a thread that is gone.
    fn next_job(&self) -> Option<Arc<Job>> {
        let mut queue = held(&self.queue);
        while let Some(job) = queue.jobs.front() {
            if job.has_work() {
                return Some(Arc::clone(job));
            }
            queue.jobs.pop_front();
        }
        queue.threads -= 1;
        if queue.threads == 0 {
            self.all_left.notify_all();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::{CopyItem, CopyJob, CopyState};

    fn job(folder: &std::path::Path, token: &str, files: usize) -> Arc<Job> {
        let items = (0..files)
            .map(|number| {
                let source = folder.join(format!("{token}.{number}"));
                std::fs::write(&source, [7; 5000]).unwrap();
                CopyItem { source, destination: folder.join(format!("{token}.{number}.copy")), bytes: 5000 }
            })
            .collect();
        let order = CopyJob { token: token.into(), items, block_bytes: 4096, take_crc: false };
        Arc::new(Job::new(order, Arc::default()))
    }

    #[test]
    fn there_are_never_more_threads_than_allowed_and_none_stays() {
        let folder = tempfile::TempDir::new().unwrap();
        let pool = Pool::new(3);
        let jobs: Vec<_> = (0..20).map(|number| job(folder.path(), &format!("{number}"), number)).collect();
        for job in &jobs {
            pool.take(job).unwrap();
            assert!(held(&pool.shared.queue).threads <= 3);
        }
        for job in &jobs {
            assert_eq!(job.wait(), CopyState::Done);
        }
        let shared = Arc::clone(&pool.shared);
        drop(pool);
        assert_eq!(held(&shared.queue).threads, 0);
        assert!(held(&shared.queue).jobs.is_empty());
    }

    #[test]
    fn a_pool_at_rest_takes_work_again() {
        let folder = tempfile::TempDir::new().unwrap();
        let pool = Pool::new(2);
        for round in 0..50 {
            let job = job(folder.path(), &format!("{round}"), 1);
            pool.take(&job).unwrap();
            assert_eq!(job.wait(), CopyState::Done);
        }
    }
}
