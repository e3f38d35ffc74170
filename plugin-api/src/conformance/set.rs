//! A redundancy set of threads in one process, for tests: files in memory, messages in mailboxes.
//!
//! It keeps the host's side of the rules strictly, and notes whatever breaks the plugin's: a message of
//! another length than agreed, one that nobody receives, bytes past the end of a file. Nothing in it waits for
//! ever: members that all wait for each other are told so at once, and a thread that does not come back within
//! the limit is left behind and reported.

use super::threads::{fault, run_member, Shared};
use crate::{Level, PluginError, Scheme, MESSAGE_BYTES};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

/// One member's two logical files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// Its files, end to end.
    pub data: Vec<u8>,
    /// What the scheme keeps for the others.
    pub redundancy: Vec<u8>,
}

/// What the members are asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Scheme::protect`].
    Protect,
    /// [`Scheme::rebuild`] of redundancy in that format.
    Rebuild(u32),
}

/// What goes wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injected {
    /// One call of a member to its host fails.
    Failure {
        /// Which member.
        member: u32,
        /// Which of its calls, counted from 0, of those that can fail.
        call: u64,
    },
    /// A call of a member to its host fails, and so do all after it.
    Death {
        /// Which member.
        member: u32,
        /// Which of its calls, counted from 0, of those that can fail.
        call: u64,
    },
    /// The host asks a member to stop when it tells its progress.
    Cancel {
        /// Which member.
        member: u32,
    },
}

/// A set that is ready for one call of a scheme.
#[derive(Debug, Clone)]
pub struct SetUp {
    /// Id of the dataset.
    pub dataset: u64,
    /// Every member's rank in the pretended run.
    pub world_ranks: Vec<u32>,
    /// Every member's files as they are before the call.
    pub members: Vec<Stored>,
    /// Who has lost its files.
    pub lost: Vec<bool>,
    /// Bytes of a message at most, as the members are told.
    pub message_bytes: u64,
    /// Whether files lend their bytes, and not only have them read and written.
    pub lends: bool,
    /// What goes wrong on purpose.
    pub injected: Option<Injected>,
    /// How long the call may take.
    pub limit: Duration,
}

/// How one member's call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The plugin returned this.
    Returned(Result<(), PluginError>),
    /// The plugin panicked.
    Panicked,
    /// The plugin did not return within the limit; its thread was left behind.
    Hung,
}

/// All that came of one call.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How each member's call ended.
    pub ended: Vec<Ended>,
    /// Every member's files as they are after the call.
    pub members: Vec<Stored>,
    /// Rules of the boundary that were broken, in words.
    pub broken: Vec<String>,
    /// What the plugin logged.
    pub logged: Vec<(Level, String)>,
    /// How many calls that can fail each member made to its host.
    pub calls: Vec<u64>,
    /// How often each member told its progress.
    pub progress: Vec<u64>,
    /// Bytes that each member sent to others.
    pub sent: Vec<u64>,
    /// Bytes that each member received from others.
    pub received: Vec<u64>,
    /// Messages that each member sent to others.
    pub messages: Vec<u64>,
    /// Batches that each member took part in.
    pub exchanges: Vec<u64>,
}

impl Outcome {
    /// Whether every member returned `Ok` and no rule was broken.
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.ended.iter().all(|ended| *ended == Ended::Returned(Ok(())))
    }

    /// Whether a member did not come back.
    pub fn has_hung(&self) -> bool {
        self.ended.contains(&Ended::Hung)
    }

    /// All of it in one line: how each member ended, and what was broken.
    pub fn summary(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (member, ended) in self.ended.iter().enumerate() {
            match ended {
                Ended::Returned(Ok(())) => {}
                Ended::Returned(Err(error)) => {
                    parts.push(format!("member {member}: {:?}: {}", error.kind, error.text));
                }
                Ended::Panicked => parts.push(format!("member {member} panicked")),
                Ended::Hung => parts.push(format!("member {member} did not return")),
            }
        }
        parts.extend(self.broken.iter().cloned());
        if parts.is_empty() {
            "every member succeeded".to_owned()
        } else {
            parts.join("; ")
        }
    }
}

impl SetUp {
    /// A set with this data, redundancy of the right length filled with `0xEE`, nothing lost, nothing going wrong.
    ///
    /// # Errors
    /// What the scheme says to such a set.
    pub fn new(scheme: &dyn Scheme, data: Vec<Vec<u8>>) -> Result<Self, PluginError> {
        let lens: Vec<u64> = data.iter().map(|bytes| bytes.len() as u64).collect();
        let mut members = Vec::new();
        for (data, rank) in data.into_iter().zip(0_u32..) {
            let len = scheme.redundancy_len(&crate::SetShape { rank, data_lens: &lens })?;
            let len = usize::try_from(len)
                .ok()
                .filter(|len| *len < 1 << 40)
                .ok_or_else(|| fault(format!("a redundancy of {len} bytes was asked for")))?;
            members.push(Stored { data, redundancy: vec![0xEE; len] });
        }
        Ok(Self {
            dataset: 7,
            world_ranks: (0_u32..).take(members.len()).map(|member| 3 * member + 1).collect(),
            lost: vec![false; members.len()],
            members,
            message_bytes: MESSAGE_BYTES,
            lends: false,
            injected: None,
            limit: Duration::from_secs(20),
        })
    }

    /// The same set after these members have lost their files: theirs are zeros of the same length, as new files are.
    pub fn losing(&self, lost: &[bool]) -> Self {
        let mut after = self.clone();
        after.lost = lost.to_vec();
        for (member, _) in after.members.iter_mut().zip(lost).filter(|(_, is_lost)| **is_lost) {
            member.data.fill(0);
            member.redundancy.fill(0);
        }
        after
    }

    /// Calls the scheme on all members at once, each in its own thread.
    pub fn call(&self, scheme: &Arc<dyn Scheme>, call: Call) -> Outcome {
        self.call_each(self.members.iter().map(|_| Arc::clone(scheme)), call)
    }

    /// The same, each member with its own instance of the scheme, as in a real job.
    pub fn call_each(&self, schemes: impl IntoIterator<Item = Arc<dyn Scheme>>, call: Call) -> Outcome {
        let shared = Arc::new(Shared::new(self, call));
        let (report, reports) = mpsc::channel();
        for (rank, scheme) in (0..shared.size).zip(schemes) {
            let (shared, report) = (Arc::clone(&shared), report.clone());
            std::thread::spawn(move || {
                let ended = run_member(&shared, &*scheme, rank, call);
                drop(scheme);
                // Nobody listens any more where the limit has passed.
                let _ = report.send((rank, ended));
            });
        }
        let mut ended = vec![Ended::Hung; shared.size as usize];
        let deadline = Instant::now() + self.limit;
        for _ in 0..shared.size {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((rank, end)) = reports.recv_timeout(left) else { break };
            ended[rank as usize] = end;
        }
        shared.abort();
        shared.outcome(ended)
    }
}
