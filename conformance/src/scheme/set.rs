//! One call of a scheme on a whole set: each member is a rank of a thread communicator, its files are in memory.
//!
//! The members keep the host's rules strictly and record violations by the plugin: a message of another length than agreed, a
//! message that nobody receives, bytes past the end of a file. A call always ends: the communicator finds members that wait for
//! each other, and a member that does not return within the limit is abandoned and reported.

use super::member::{Member, Record};
use scr_comm::thread::{run_with_stack, ThreadComm};
use scr_comm::Comm;
use scr_plugin_api::PluginErrorKind::Aborted;
use scr_plugin_api::{held, Level, PluginError, Scheme, SetShape, MESSAGE_BYTES};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

/// One member's two logical files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// Its files, end to end.
    pub data: Vec<u8>,
    /// The redundancy that the scheme keeps for the others.
    pub redundancy: Vec<u8>,
}

/// The operation that the members are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Scheme::protect`].
    Protect,
    /// [`Scheme::rebuild`] of redundancy in that format.
    Rebuild(u32),
}

impl Call {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Protect => "protect",
            Self::Rebuild(_) => "rebuild",
        }
    }
}

/// The fault that is injected: one call of a member to its host fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injected {
    /// Which member.
    pub member: u32,
    /// Which of its calls, counted from 0, of those that can fail.
    pub call: u64,
    /// Whether all calls after it fail too, as if the member died.
    pub is_death: bool,
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
    /// The members that have lost their files.
    pub lost: Vec<bool>,
    /// Maximum bytes of a message, as the members know it.
    pub message_bytes: u64,
    /// The fault that is injected.
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
    /// The plugin did not return within the limit; its thread was abandoned.
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
    /// The plugin's log.
    pub logged: Vec<(Level, String)>,
    /// What each member did.
    pub records: Vec<Record>,
}

impl Outcome {
    fn new(members: Vec<(Record, Stored)>, failure: Option<String>) -> Self {
        let ended: Vec<Ended> =
            members.iter().map(|(record, _)| record.ended.clone().unwrap_or(Ended::Hung)).collect();
        let broken = members.iter().flat_map(|(record, _)| record.broken.clone());
        let broken = failure.into_iter().chain(broken).chain(deserted(&members, &ended)).collect();
        let logged = members.iter().flat_map(|(record, _)| record.logged.clone()).collect();
        let (records, members) = members.into_iter().unzip();
        Self { ended, members, broken, logged, records }
    }

    /// One thing of each member.
    pub fn each<T>(&self, of: impl Fn(&Record) -> T) -> Vec<T> {
        self.records.iter().map(of).collect()
    }

    /// Whether every member returned `Ok` and no rule was broken.
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.ended.iter().all(|ended| *ended == Ended::Returned(Ok(())))
    }

    /// All of it in one line: how the members' calls ended, and what was broken.
    pub fn summary(&self) -> String {
        let mut ends: Vec<(Vec<String>, String)> = Vec::new();
        for (member, (ended, record)) in self.ended.iter().zip(&self.records).enumerate() {
            let text = match ended {
                Ended::Returned(Ok(())) => continue,
                // It is not their fault.
                Ended::Hung if self.culprits() && !record.hangs() => continue,
                Ended::Returned(Err(error)) if error.kind == Aborted && !self.all_aborted() => continue,
                Ended::Returned(Err(error)) => format!(": {:?}: {}", error.kind, error.text),
                Ended::Panicked => format!(" {}", record.panic),
                Ended::Hung => format!(" did not return, {}", record.place()),
            };
            match ends.iter_mut().find(|(_, end)| *end == text) {
                Some((members, _)) => members.push(member.to_string()),
                None => ends.push((vec![member.to_string()], text)),
            }
        }
        let ends = ends.into_iter().map(|(members, text)| match &members[..] {
            [member] => format!("member {member}{text}"),
            _ => format!("members {}{text}", members.join(", ")),
        });
        let parts: Vec<String> = ends.chain(self.broken.iter().cloned()).collect();
        match parts.is_empty() {
            true => "every member succeeded".to_owned(),
            false => parts.join("; "),
        }
    }

    /// Whether all that failed were stopped by others.
    fn all_aborted(&self) -> bool {
        let stopped =
            |ended: &Ended| matches!(ended, Ended::Returned(Ok(()) | Err(PluginError { kind: Aborted, .. })));
        self.ended.iter().all(stopped)
    }

    /// Whether a member hangs while it waits for no other.
    pub(super) fn culprits(&self) -> bool {
        self.records.iter().any(Record::hangs)
    }
}

/// Members that returned success while others still waited for a message of theirs.
fn deserted(members: &[(Record, Stored)], ended: &[Ended]) -> Option<String> {
    let mut stopped = members.iter().filter_map(|(record, _)| record.stopped_by);
    let by = stopped.find(|&by| ended.get(by as usize) == Some(&Ended::Returned(Ok(()))))?;
    Some(format!("member {by} returned success while others still waited for a message of it"))
}

impl SetUp {
    /// A set with this data, redundancy of the right length filled with `0xEE`, nothing lost, nothing going wrong.
    ///
    /// # Errors
    /// The answer of the scheme to such a set.
    pub fn new(scheme: &dyn Scheme, data: Vec<Vec<u8>>) -> Result<Self, PluginError> {
        let lens: Vec<u64> = data.iter().map(|bytes| bytes.len() as u64).collect();
        let mut members = Vec::new();
        for (data, rank) in data.into_iter().zip(0_u32..) {
            let len = scheme.redundancy_len(&SetShape { rank, data_lens: &lens })?;
            let len = usize::try_from(len)
                .ok()
                .filter(|len| *len < 1 << 40)
                .ok_or_else(|| PluginError::fault(format!("a redundancy of {len} bytes was asked for")))?;
            members.push(Stored { data, redundancy: vec![0xEE; len] });
        }
        Ok(Self {
            dataset: 7,
            world_ranks: (0_u32..).take(members.len()).map(|member| 3 * member + 1).collect(),
            lost: vec![false; members.len()],
            members,
            message_bytes: MESSAGE_BYTES,
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
        let set_up = Arc::new(self.clone());
        let ranks = (0_u32..).take(self.members.len());
        let members: Arc<[Member]> = ranks.map(|rank| Member::new(&set_up, rank, call)).collect();
        let schemes: Vec<_> = schemes.into_iter().map(|scheme| Mutex::new(Some(scheme))).collect();
        let (returned, all_returned) = mpsc::channel();
        let ours = Arc::clone(&members);
        // A thread of its own, since it does not return either where a member never does.
        std::thread::spawn(move || {
            let size = u32::try_from(ours.len()).unwrap_or(u32::MAX);
            let job = run_with_stack(size, STACK_BYTES, |comm: ThreadComm| {
                let place = comm.rank().index();
                let scheme = schemes.get(place).and_then(|scheme| held(scheme).take());
                scheme.map(|scheme| ours[place].run(&comm, scheme, call))
            });
            // After the limit there is no receiver any more.
            let _ = returned.send(job.map(drop));
        });
        let failure = match all_returned.recv_timeout(self.limit) {
            Ok(Err(error)) => Some(format!("the kit cannot run the set: {error}")),
            _ => None,
        };
        Outcome::new(members.iter().map(Member::take_record).collect(), failure)
    }
}

/// As much as a thread of a program has.
const STACK_BYTES: usize = 2 << 20;
