//! Counters around the communicator and the file layer of a rank.

use nix::sched::{unshare, CloneFlags};
use scr_base::fs::{Files, RealFiles};
use scr_comm::thread::ThreadComm;
use scr_comm::{Comm, CommError, ExchangeEnd, Incoming, Outgoing, Rank, Tag, Traffic, WaitControl};
use scr_test_kit::faulty::FaultyFiles;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The counts of a rank so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    messages: u64,
    sent: u64,
    received: u64,
    in_prefix: u64,
    elsewhere: u64,
}

/// The sources of a rank's counts.
pub(crate) struct Counters {
    prefix: PathBuf,
    files: FaultyFiles,
    messages: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// A communicator that counts.
pub(crate) struct CountedComm {
    inner: ThreadComm,
    counters: Arc<Counters>,
}

impl Counts {
    /// The names of the counts, and how to read each.
    #[expect(clippy::type_complexity, reason = "a table")]
    pub(crate) const FIELDS: &'static [(&'static str, fn(&Counts) -> u64)] = &[
        ("messages sent", |counts| counts.messages),
        ("bytes sent", |counts| counts.sent),
        ("bytes received", |counts| counts.received),
        ("file calls in the prefix directory", |counts| counts.in_prefix),
        ("file calls elsewhere", |counts| counts.elsewhere),
    ];
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, other: Counts) -> Counts {
        Counts {
            messages: self.messages - other.messages,
            sent: self.sent - other.sent,
            received: self.received - other.received,
            in_prefix: self.in_prefix - other.in_prefix,
            elsewhere: self.elsewhere - other.elsewhere,
        }
    }
}

impl Counters {
    pub(crate) fn new(prefix: &Path) -> Self {
        Self {
            prefix: prefix.to_owned(),
            files: FaultyFiles::new(RealFiles),
            messages: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// The rank's file layer.
    pub(crate) fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.files.clone())
    }

    pub(crate) fn counts(&self) -> Counts {
        let operations = self.files.operations();
        let in_prefix =
            operations.iter().filter(|operation| operation.path.starts_with(&self.prefix)).count() as u64;
        Counts {
            messages: self.messages.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            in_prefix,
            elsewhere: operations.len() as u64 - in_prefix,
        }
    }

    /// Counting starts anew.
    pub(crate) fn reset(&self) {
        self.files.heal();
        for counter in [&self.messages, &self.sent, &self.received] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl CountedComm {
    pub(crate) fn wrap(inner: ThreadComm, counters: &[Arc<Counters>]) -> Rc<dyn Comm> {
        // As a process of its own would have: the system allows fewer files to be open than all ranks together have.
        unshare(CloneFlags::CLONE_FILES).expect("a thread may have a table of its own for open files");
        let counters = Arc::clone(&counters[inner.rank().index()]);
        Rc::new(Self { inner, counters })
    }

    fn count_sent(&self) {
        let Traffic { messages, bytes } = self.inner.traffic();
        self.counters.messages.store(messages, Ordering::Relaxed);
        self.counters.sent.store(bytes, Ordering::Relaxed);
    }

    fn count_received(&self, bytes: usize) {
        self.counters.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Comm for CountedComm {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn exchange(
        &self,
        tag: Tag,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        control: &mut dyn FnMut(&[bool]) -> Result<WaitControl, CommError>,
    ) -> Result<ExchangeEnd, CommError> {
        let ended = self.inner.exchange(tag, sends, receives, control);
        self.count_sent();
        self.count_received(receives.iter().map(|receive| receive.bytes.len()).sum());
        ended
    }

    fn take(&self, tag: Tag) -> Result<Option<(Rank, Vec<u8>)>, CommError> {
        let taken = self.inner.take(tag)?;
        self.count_received(taken.as_ref().map_or(0, |(_, bytes)| bytes.len()));
        Ok(taken)
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}
