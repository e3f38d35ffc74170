//! A transport of this process's own threads: everything but the threads.
//!
//! A ticket is the transport's name and the job's token. Another process and another transport get an error for it.

use crate::jobs::{check_order, forget_oldest, refused};
use crate::Job;
use scr_plugin_api::pace::{Limits, Pace};
use scr_plugin_api::{held, CopyJob, CopyState, PluginError, Transport};
use std::io;
use std::sync::{Arc, Mutex};

/// The workers for the jobs of a transport.
pub trait Workers: Send + Sync {
    /// Works on a job, or sees to it that somebody does. When it is dropped, all jobs have ended.
    ///
    /// # Errors
    /// There is no worker for it.
    fn take(&self, job: &Arc<Job>) -> io::Result<()>;
}

/// A transport whose jobs are worked on in this process. Unfinished jobs are cancelled when it is dropped, so
/// that nothing is written after it.
#[derive(Debug)]
pub struct Copying<W: Workers> {
    name: &'static str,
    pace: Arc<Pace>,
    jobs: Mutex<Vec<Arc<Job>>>,
    workers: W,
}

impl<W: Workers> Copying<W> {
    /// A transport with this name, for tickets and messages, that has copied nothing yet.
    pub fn new(name: &'static str, workers: W) -> Self {
        Self::limited(name, workers, Limits::default())
    }

    /// The same; all its jobs together keep to the limits.
    pub fn limited(name: &'static str, workers: W, limits: Limits) -> Self {
        Self { name, pace: Arc::new(Pace::new(limits)), jobs: Mutex::default(), workers }
    }

    /// Takes an order. One that failed, or was cancelled, may be given again. Gives the job if somebody must work on it, and
    /// nothing if it is under way or done already.
    ///
    /// # Errors
    /// The order makes no sense, or its token was used for another one.
    fn begin(&self, order: &CopyJob) -> Result<Option<Arc<Job>>, PluginError> {
        check_order(self.name, order)?;
        let mut known = held(&self.jobs);
        let is_same = |job: &&Arc<Job>| job.order().token == order.token;
        if let Some(job) = known.iter().find(is_same).filter(|job| !job.has_failed()) {
            if job.order() != order {
                let why = format!("token {} was used for another job", order.token);
                return Err(refused(self.name, &why));
            }
            return Ok(None);
        }
        let job = Arc::new(Job::new(order.clone(), Arc::clone(&self.pace)));
        known.retain(|job| !is_same(&job));
        known.push(Arc::clone(&job));
        forget_oldest(&mut known, |job| !matches!(job.poll(), CopyState::Running(_)));
        Ok(Some(job))
    }

    /// The job that a ticket names.
    ///
    /// # Errors
    /// It is no ticket of this transport object.
    fn find(&self, ticket: &[u8]) -> Result<Arc<Job>, PluginError> {
        let text = String::from_utf8_lossy(ticket);
        text.strip_prefix(self.name)
            .and_then(|rest| rest.strip_prefix(' '))
            .and_then(|token| held(&self.jobs).iter().find(|job| job.order().token == token).cloned())
            .ok_or_else(|| {
                let why = format!("{:?} is no ticket of a copy that this process started", &*text);
                refused(self.name, &why)
            })
    }
}

impl<W: Workers> Transport for Copying<W> {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        if let Some(begun) = self.begin(job)? {
            self.workers.take(&begun).map_err(|error| {
                held(&self.jobs).retain(|known| known.order().token != job.token);
                PluginError::io(format!("transport {}: no thread could be started: {error}", self.name))
            })?;
        }
        Ok(format!("{} {}", self.name, job.token).into_bytes())
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        Ok(self.find(ticket)?.poll())
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        Ok(self.find(ticket)?.wait())
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        self.find(ticket)?.cancel();
        Ok(())
    }

    fn crc(&self, ticket: &[u8], item: usize) -> Option<u32> {
        self.find(ticket).ok()?.crc(item)
    }
}

impl<W: Workers> Drop for Copying<W> {
    fn drop(&mut self) {
        let jobs = held(&self.jobs).clone();
        jobs.iter().for_each(|job| job.cancel());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::MOST_KEPT;
    use crate::Buffer;
    use scr_plugin_api::{CopyItem, CopyState, PluginErrorKind};

    /// Takes no job.
    struct Idle;

    impl Workers for Idle {
        fn take(&self, _job: &Arc<Job>) -> io::Result<()> {
            Ok(())
        }
    }

    fn jobs() -> Copying<Idle> {
        Copying::new("sync", Idle)
    }

    fn order(token: &str, destinations: &[&str]) -> CopyJob {
        let items = destinations
            .iter()
            .map(|path| CopyItem { source: "/no/source".into(), destination: path.into(), bytes: 1 })
            .collect();
        CopyJob { token: token.into(), items, block_bytes: 0, take_crc: false }
    }

    #[test]
    fn a_token_names_one_job() {
        let jobs = jobs();
        let first = order("a", &["/x"]);
        assert!(matches!(jobs.begin(&first), Ok(Some(_))));
        assert!(matches!(jobs.begin(&first), Ok(None)));
        let error = jobs.begin(&order("a", &["/y"])).unwrap_err();
        assert_eq!(error.text, "transport sync: token a was used for another job");
    }

    #[test]
    fn a_failed_job_may_be_tried_again() {
        let jobs = jobs();
        let Ok(Some(job)) = jobs.begin(&order("a", &["/x"])) else { panic!("it is new") };
        job.work(&mut Buffer::default());
        assert!(matches!(job.poll(), CopyState::Failed(_)));
        assert!(matches!(jobs.begin(&order("a", &["/x"])), Ok(Some(_))));
    }

    #[test]
    fn two_copies_to_one_place_are_refused() {
        let error = jobs().begin(&order("a", &["/x", "/y", "/x"])).unwrap_err();
        assert_eq!(error.text, "transport sync: job a names /x twice");
        assert!(jobs().begin(&order("", &[])).is_err());
    }

    #[test]
    fn a_foreign_ticket_is_recognized() {
        let jobs = jobs();
        jobs.begin(&order("a", &[])).unwrap();
        assert!(jobs.find(b"sync a").is_ok());
        for ticket in [&b"pthread a"[..], b"sync b", b"sync", b"", b"\xff\xfe", b"synca"] {
            assert_eq!(jobs.find(ticket).unwrap_err().kind, PluginErrorKind::Refused);
        }
    }

    #[test]
    fn the_oldest_are_forgotten_but_none_that_is_under_way() {
        let jobs = jobs();
        jobs.begin(&order("running", &["/x"])).unwrap();
        for number in 0..2 * MOST_KEPT {
            jobs.begin(&order(&format!("{number}"), &[])).unwrap();
        }
        assert!(jobs.find(b"sync running").is_ok());
        assert!(jobs.find(b"sync 0").is_err());
        assert!(jobs.find(format!("sync {}", 2 * MOST_KEPT - 1).as_bytes()).is_ok());
    }
}
