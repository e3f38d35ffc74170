//! Protects datasets behind the application: `ENCODE=ASYNC`.
//!
//! A dataset is local once its files are complete and recorded in cache on all ranks. It survives the death of processes then, as
//! with SINGLE. A thread of each rank protects one local dataset after the other, over a communicator of its own; the
//! application's communicator is for its own calls. If a thread could not protect a dataset, the application's ranks protect it
//! themselves in their next call that begins or ends a phase.
//!
//! A part is local, or it is protected, by its filemap alone. So a crash at any moment leaves parts of both kinds: a restart
//! protects the local ones if no member of their set lacks data, and rebuilds nothing from them.

use super::error::RedundancyError;
use super::protect::Protect;
use crate::cache::filemap::{Entry, Journal};
use crate::cache::kept_open::KeptOpen;
use crate::cache::loss::{self, Flaw};
use crate::cache::part::PartDir;
use crate::cache::record::RankRecord;
use crate::cache::verify::Opened;
use crate::holdings::MOST_LOCAL;
use crate::job::Job;
use crate::plugin::overdue::{LongestCall, PluginPhase};
use scr_base::env::Link;
use scr_base::parallel;
use scr_comm::collective::{all_reduce, barrier, Op};
use scr_comm::controlled::{Control, Controlled};
use scr_comm::tcp;
use scr_comm::{Collective, CollectiveError, Comm, CommError};
use scr_config::param;
use scr_plugin_api::pace::Limits as PaceLimits;
use scr_plugin_api::Scheme;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A local part to be protected.
pub(crate) struct LocalPart {
    pub(crate) record: RankRecord,
    pub(crate) part: PartDir,
    pub(crate) scheme: Arc<dyn Scheme>,
}

/// The outcome for a local part on this rank, the same on all ranks but for its record: it is protected, and this is its record
/// now, and it took so long; or it is still local.
pub(crate) type Protected = Result<(RankRecord, Duration), NotProtected>;

/// Why a local part could not be protected.
#[derive(Debug, Default)]
pub(crate) struct NotProtected {
    /// The reason, on the ranks that know it.
    pub(crate) why: String,
    /// Whether a file is not as it was when it was complete, so that it will not be protected either if that is tried again; the
    /// same on all ranks that know the reason.
    pub(crate) is_changed: bool,
}

/// The local datasets of a run, in the order in which they became complete; the same on all ranks.
#[derive(Default)]
pub(crate) struct Background {
    mode: Mode,
    local: VecDeque<u64>,
    /// Those that no thread could protect.
    pub(crate) unprotected: Vec<u64>,
    /// Whether the threads could not protect one, and may be no more.
    has_failed: bool,
}

/// How datasets are protected; the same on all ranks.
#[derive(Default)]
enum Mode {
    /// Before their calls return.
    #[default]
    Off,
    /// In the call that follows.
    InCalls,
    /// By the threads of all ranks.
    Threads(Worker),
}

/// The thread of this rank.
struct Worker {
    /// Nothing more comes after `None`.
    work: Sender<Option<LocalPart>>,
    done: Receiver<(u64, Protected)>,
    /// The outcomes that nobody has asked for yet.
    ended: BTreeMap<u64, Protected>,
    control: Arc<Control>,
    limits: PaceLimits,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the threads, if any checkpoint is to be protected behind the application. Without them all are protected before
    /// their calls return, which is reported. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk.
    pub(crate) fn start(&mut self, job: &Job, open: &Arc<KeptOpen>) -> Result<(), CommError> {
        self.has_failed = false;
        let is_wanted = job.descriptors.redundancy.all().iter().any(|wanted| wanted.is_behind());
        if job.comm.size() == 1 || !is_wanted {
            return Ok(());
        }
        self.mode = match job.env.link {
            Link::InCalls => Mode::InCalls,
            Link::Tcp => match Worker::connect(job, open) {
                Ok(worker) => Mode::Threads(worker),
                Err(error) => {
                    let why = error.agreed()?;
                    job.report.warn(&format!(
                        "ENCODE=ASYNC (SCR_ENCODE_ASYNC=1) has no effect, and SCR_Complete_output waits until a checkpoint is \
                         protected: the ranks cannot talk over TCP: {why}. Set SCR_TCP_INTERFACE to a network that connects the \
                         nodes, or ask for the ports of one to be opened between them"
                    ));
                    Mode::Off
                }
            },
        };
        Ok(())
    }

    /// Whether datasets may be protected behind the application.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.mode, Mode::Off)
    }

    /// Whether the threads are to be started again before they get more to do.
    pub(crate) fn is_broken(&self) -> bool {
        self.has_failed && self.local.is_empty()
    }

    /// Whether no more datasets may be local than there are.
    pub(crate) fn is_behind_time(&self) -> bool {
        self.local.len() >= MOST_LOCAL
    }

    /// Begins to protect a dataset whose parts are recorded as local.
    pub(crate) fn begin(&mut self, local: LocalPart) {
        self.local.push_back(local.record.cache_id);
        if let Mode::Threads(worker) = &self.mode {
            // A thread that has ended protects nothing, and the ranks find that out together.
            let _ = worker.work.send(Some(local));
        }
    }

    /// Nothing more is protected.
    pub(crate) fn leave(&self) {
        if let Mode::Threads(worker) = &self.mode {
            worker.leave();
        }
    }

    /// The oldest local dataset.
    pub(crate) fn first(&self) -> Option<u64> {
        self.local.front().copied()
    }

    /// The outcome for the oldest local dataset that a thread works on, as soon as no rank's thread does any more; or `None`.
    /// This may be to `wait` for them. Collective.
    pub(crate) fn end_first(&mut self, job: &Job, wait: bool) -> Result<Option<(u64, Protected)>, CommError> {
        let Some(id) = self.first() else { return Ok(None) };
        let own = match &mut self.mode {
            Mode::Threads(worker) if wait => Some(worker.wait_for(id)),
            Mode::Threads(worker) => worker.take(id),
            Mode::InCalls | Mode::Off => Some(Err(NotProtected::default())),
        };
        let words = [u64::from(own.is_some()), u64::from(matches!(own, Some(Ok(_))))];
        let [have_ended, are_protected] = all_reduce(&*job.comm, words, Op::Min)?;
        let Some(own) = own else { return Ok(None) };
        if have_ended == 0 {
            if let Mode::Threads(worker) = &mut self.mode {
                worker.ended.insert(id, own);
            }
            return Ok(None);
        }
        self.local.pop_front();
        if are_protected > 0 {
            return Ok(Some((id, own)));
        }
        self.has_failed = matches!(self.mode, Mode::Threads(_));
        self.unprotected.push(id);
        Ok(Some((id, own.and(Err(NotProtected::default())))))
    }
}

impl Worker {
    /// Connects the threads of all ranks, and starts that of this one. Collective.
    fn connect(job: &Job, open: &Arc<KeptOpen>) -> Collective<Self> {
        let (ip, limits) = job.network()?;
        job.report.debug(&format!("threads of ranks talk over TCP at {ip}"));
        let comm = tcp::connect(&*job.comm, ip, &limits)?;
        job.agree(Self::start(job, open, Box::new(comm)))
    }

    /// Starts the thread of this rank. It has a communicator of all ranks for itself.
    fn start(job: &Job, open: &Arc<KeptOpen>, comm: Box<dyn Comm + Send>) -> std::io::Result<Self> {
        let ((work, to_do), (ends, done)) = (channel::<Option<LocalPart>>(), channel());
        let (limits, control) = (limits(job), Arc::new(Control::default()));
        control.limit(limits);
        let (job_of, open, controls) = (job.for_thread(), Arc::clone(open), Arc::clone(&control));
        let run = move || {
            let mut job = job_of(Rc::new(Controlled::new(comm, controls)));
            if limits.percent > 0.0 {
                // The limit does not count the work of other threads for it.
                job.processors = 1;
            }
            let longest = LongestCall::default();
            while let Ok(Some(local)) = to_do.recv() {
                let (id, began) = (local.record.cache_id, job.elapsed());
                // No thread takes a processor from a rank that is about to return to its application.
                let all_return = barrier(&*job.comm).map_err(Failure::from);
                let protected = all_return.and_then(|()| protect(&job, &open, &longest, local));
                let is_broken = matches!(&protected, Err(Failure { error: CollectiveError::Comm(_), .. }));
                let protected = protected.map(|record| (record, job.elapsed() - began)).map_err(
                    |Failure { error, is_changed }| NotProtected { why: error.to_string(), is_changed },
                );
                // The others wait for this rank no longer once its communicator is dropped.
                if ends.send((id, protected)).is_err() || is_broken {
                    return;
                }
            }
        };
        let thread = Some(parallel::start(Builder::new().name("scr-protect".to_owned()), run)?);
        Ok(Self { work, done, ended: BTreeMap::new(), control, limits, thread })
    }

    /// Lets the thread end, for which those of the other ranks wait no longer then.
    fn leave(&self) {
        self.control.cancel();
        let _ = self.work.send(None);
    }

    /// The outcome for a part, if it is known.
    fn take(&mut self, id: u64) -> Option<Protected> {
        self.ended.extend(self.done.try_iter());
        self.ended.remove(&id)
    }

    /// Waits for the outcome for a part. The thread has no limits meanwhile, since the application waits.
    fn wait_for(&mut self, id: u64) -> Protected {
        self.control.limit(PaceLimits::default());
        let protected = loop {
            if let Some(protected) = self.take(id) {
                break protected;
            }
            match self.done.recv() {
                Ok((id, protected)) => _ = self.ended.insert(id, protected),
                Err(_) => {
                    let why = "its thread has ended".to_owned();
                    break Err(NotProtected { why, is_changed: false });
                }
            }
        };
        self.control.limit(self.limits);
        protected
    }
}

impl Drop for Worker {
    /// No thread writes in a cache that is not this session's any more.
    fn drop(&mut self) {
        self.leave();
        // It has said why it has failed, if it has.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The limits of one rank: the bytes are for all ranks together.
fn limits(job: &Job) -> PaceLimits {
    let bytes = job.params.get(&param::ENCODE_ASYNC_BW);
    // A share of nothing would be no limit at all.
    let share = if bytes == 0 { 0 } else { (bytes / u64::from(job.comm.size())).max(1) };
    PaceLimits { bytes_per_second: share, percent: job.params.get(&param::ENCODE_ASYNC_PERCENT) }
}

/// The error of all ranks.
pub(crate) struct Failure {
    pub(crate) error: CollectiveError,
    /// See [`NotProtected`]; the same on all ranks.
    pub(crate) is_changed: bool,
}

impl<E: Into<CollectiveError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), is_changed: false }
    }
}

/// Protects this rank's part of a dataset that is complete and local, and records that. Gives its new record. The part is
/// complete at every moment. Collective.
pub(super) fn protect(
    job: &Job,
    open: &KeptOpen,
    longest: &LongestCall,
    local: LocalPart,
) -> Result<RankRecord, Failure> {
    let LocalPart { mut record, part, scheme } = local;
    let plugin = ("scheme", &*record.protection.scheme);
    let phase = PluginPhase::begin(job, plugin, &record.dataset, Some(longest));
    let protect = Protect { job, open, scheme: &*scheme, phase: &phase };
    let kept = protect.encode_part(&part, &mut record, Opened::new());
    let kept = kept.and_then(|kept| expect_unchanged(job, &record, &part).map(|()| kept));
    let is_changed = matches!(kept, Err(RedundancyError::Changed(_) | RedundancyError::Damaged(_)));
    let kept = match job.agree(kept) {
        Ok(kept) => kept,
        Err(error) => {
            // Its room may be needed. No part of the dataset is recorded as protected.
            job.report_failed(job.files().remove_if_there(&part.redundancy()).map(drop));
            open.close_removed();
            let error = CollectiveError::from(error.agreed()?);
            return Err(Failure { error, is_changed: job.any(is_changed)? });
        }
    };
    job.agree(Journal::add(job.files(), &part, &[Entry::Prepared(&record, &kept), Entry::Complete]))?;
    Ok(record)
}

/// Fails if a file has changed since it was complete: nobody would notice that later, as its checksums are those of the changed
/// bytes.
fn expect_unchanged(job: &Job, record: &RankRecord, part: &PartDir) -> Result<(), RedundancyError> {
    record.files.iter().try_for_each(|file| {
        let path = part.file(&file.name);
        loss::expect_unchanged(job.files(), &path, file).map_err(|flaw| match flaw {
            Flaw::Unseen(error) => error.into(),
            _ => RedundancyError::Changed(path),
        })
    })
}
