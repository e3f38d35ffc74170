//! The jobs of one transport, found again by their tickets.
//!
//! A ticket is the transport's name and the job's token. Another process and another transport get an error for it.

use crate::Job;
use scr_plugin_api::pace::Pace;
use scr_plugin_api::{held, CopyJob, CopyState, PluginError};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// All jobs that one transport object was asked for.
#[derive(Debug)]
pub struct Jobs {
    /// Name of the transport, for tickets and messages.
    transport: &'static str,
    pace: Arc<Pace>,
    /// The oldest first.
    jobs: Mutex<Vec<Arc<Job>>>,
}

impl Jobs {
    /// No jobs yet, of the transport with this name. All jobs together are no faster than this.
    pub fn new(transport: &'static str, pace: Pace) -> Self {
        Self { transport, pace: Arc::new(pace), jobs: Mutex::default() }
    }

    /// Takes an order. One that failed, or was cancelled, may be given again. Gives the job if somebody must work on it, and
    /// nothing if it is under way or done already.
    ///
    /// # Errors
    /// The order makes no sense, or its token was used for another one.
    pub fn begin(&self, order: &CopyJob) -> Result<Option<Arc<Job>>, PluginError> {
        check_order(self.transport, order)?;
        let mut known = held(&self.jobs);
        let is_same = |job: &&Arc<Job>| job.order().token == order.token;
        if let Some(job) = known.iter().find(is_same).filter(|job| !job.has_failed()) {
            if job.order() != order {
                let why = format!("token {} was used for another job", order.token);
                return Err(refused(self.transport, &why));
            }
            return Ok(None);
        }
        let job = Arc::new(Job::new(order.clone(), Arc::clone(&self.pace)));
        known.retain(|job| !is_same(&job));
        known.push(Arc::clone(&job));
        forget_oldest(&mut known, |job| !matches!(job.poll(), CopyState::Running(_)));
        Ok(Some(job))
    }

    /// Takes an order back that nobody could be found to work on.
    pub fn forget(&self, token: &str) {
        held(&self.jobs).retain(|job| job.order().token != token);
    }

    /// The ticket of an order.
    pub fn ticket(&self, order: &CopyJob) -> Vec<u8> {
        format!("{} {}", self.transport, order.token).into_bytes()
    }

    /// The job that a ticket names.
    ///
    /// # Errors
    /// It is no ticket of this transport object.
    pub fn find(&self, ticket: &[u8]) -> Result<Arc<Job>, PluginError> {
        let text = String::from_utf8_lossy(ticket);
        text.strip_prefix(self.transport)
            .and_then(|rest| rest.strip_prefix(' '))
            .and_then(|token| held(&self.jobs).iter().find(|job| job.order().token == token).cloned())
            .ok_or_else(|| {
                let why = format!("{:?} is no ticket of a copy that this process started", &*text);
                refused(self.transport, &why)
            })
    }

    /// Stops all jobs.
    pub fn cancel_all(&self) {
        let jobs = held(&self.jobs).clone();
        for job in jobs {
            job.cancel();
        }
    }
}

/// Looks whether an order for the transport of this name makes sense.
///
/// # Errors
/// It has no token, or two of its copies go to one place.
pub fn check_order(transport: &str, order: &CopyJob) -> Result<(), PluginError> {
    if order.token.is_empty() {
        return Err(refused(transport, "a job needs a token"));
    }
    let mut seen = HashSet::new();
    match order.items.iter().find(|item| !seen.insert(&item.destination)) {
        None => Ok(()),
        Some(twice) => {
            let path = twice.destination.display();
            Err(refused(transport, &format!("job {} names {path} twice", order.token)))
        }
    }
}

fn refused(transport: &str, text: &str) -> PluginError {
    PluginError::refused(format!("transport {transport}: {text}"))
}

/// Keeps the newest jobs only, but all that are under way: a run may flush for months.
pub fn forget_oldest<T>(known: &mut Vec<T>, has_ended: impl Fn(&T) -> bool) {
    let mut surplus = known.len().saturating_sub(MOST_KEPT);
    known.retain(|job| {
        let goes = surplus > 0 && has_ended(job);
        surplus -= usize::from(goes);
        !goes
    });
}

/// How many jobs can be asked about after they have ended.
const MOST_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;
    use scr_plugin_api::{CopyItem, CopyState, PluginErrorKind};

    fn order(token: &str, destinations: &[&str]) -> CopyJob {
        let items = destinations
            .iter()
            .map(|path| CopyItem { source: "/no/source".into(), destination: path.into(), bytes: 1 })
            .collect();
        CopyJob { token: token.into(), items, block_bytes: 0, take_crc: false }
    }

    #[test]
    fn a_token_names_one_job() {
        let jobs = Jobs::new("sync", Pace::default());
        let first = order("a", &["/x"]);
        assert!(matches!(jobs.begin(&first), Ok(Some(_))));
        assert!(matches!(jobs.begin(&first), Ok(None)));
        let error = jobs.begin(&order("a", &["/y"])).unwrap_err();
        assert_eq!(error.text, "transport sync: token a was used for another job");
    }

    #[test]
    fn a_failed_job_may_be_tried_again() {
        let jobs = Jobs::new("sync", Pace::default());
        let Ok(Some(job)) = jobs.begin(&order("a", &["/x"])) else { panic!("it is new") };
        job.work(&mut Buffer::new());
        assert!(matches!(job.poll(), CopyState::Failed(_)));
        assert!(matches!(jobs.begin(&order("a", &["/x"])), Ok(Some(_))));
    }

    #[test]
    fn two_copies_to_one_place_are_refused() {
        let error = Jobs::new("sync", Pace::default()).begin(&order("a", &["/x", "/y", "/x"])).unwrap_err();
        assert_eq!(error.text, "transport sync: job a names /x twice");
        assert!(Jobs::new("sync", Pace::default()).begin(&order("", &[])).is_err());
    }

    #[test]
    fn a_foreign_ticket_is_recognized() {
        let jobs = Jobs::new("sync", Pace::default());
        jobs.begin(&order("a", &[])).unwrap();
        assert!(jobs.find(b"sync a").is_ok());
        for ticket in [&b"pthread a"[..], b"sync b", b"sync", b"", b"\xff\xfe", b"synca"] {
            assert_eq!(jobs.find(ticket).unwrap_err().kind, PluginErrorKind::Refused);
        }
    }

    #[test]
    fn the_oldest_are_forgotten_but_none_that_is_under_way() {
        let jobs = Jobs::new("sync", Pace::default());
        jobs.begin(&order("running", &["/x"])).unwrap();
        for number in 0..2 * MOST_KEPT {
            jobs.begin(&order(&format!("{number}"), &[])).unwrap();
        }
        assert!(jobs.find(b"sync running").is_ok());
        assert!(jobs.find(b"sync 0").is_err());
        assert!(jobs.find(format!("sync {}", 2 * MOST_KEPT - 1).as_bytes()).is_ok());
    }
}
