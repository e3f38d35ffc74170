//! The threads of a [`SetUp`](super::SetUp): mailboxes, the watch for deadlocks, and each member's `Set`.

use super::memory::{Lends, MemoryFile};
use super::set::{Call, Ended, Injected, Outcome, SetUp, Stored};
use crate::{Bytes, Level, Loan, PluginError, PluginErrorKind, ReceiveFrom, Scheme, SendTo, Set};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// One member: its call of the plugin, and what the host does after it.
pub(super) fn run_member(shared: &Arc<Shared>, scheme: &dyn Scheme, rank: u32, call: Call) -> Ended {
    let file = |index| MemberFile { shared: Arc::clone(shared), rank, index };
    let set = ThreadSet { shared: Arc::clone(shared), rank, data: file(0), redundancy: file(1) };
    let run = std::panic::AssertUnwindSafe(|| match call {
        Call::Protect => scheme.protect(&set),
        Call::Rebuild(format) => scheme.rebuild(&set, format),
    });
    let ended = match std::panic::catch_unwind(run) {
        Ok(result) => Ended::Returned(result),
        Err(_) => Ended::Panicked,
    };
    let mut state = shared.lock();
    state.done[rank as usize] = true;
    if ended != Ended::Returned(Ok(())) {
        state.aborted = true;
    }
    if ended == Ended::Returned(Ok(())) && state.failed[rank as usize] {
        state.broken.push(format!("member {rank} returned success although one of its calls had failed"));
    }
    shared.look_for_deadlock(&mut state);
    drop(state);
    shared.wake.notify_all();
    if matches!(&ended, Ended::Returned(Err(error)) if error.text.starts_with(DEADLOCK)) {
        return Ended::Hung;
    }
    ended
}

const DEADLOCK: &str = "every member waits for another: ";

pub(super) fn fault(text: String) -> PluginError {
    PluginError::new(PluginErrorKind::Fault, text)
}

/// What all members' threads see.
pub(super) struct Shared {
    pub(super) size: u32,
    set_up: SetUp,
    files: Vec<[MemoryFile; 2]>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queues: HashMap<(u32, u32), VecDeque<Vec<u8>>>,
    waiting: Vec<Option<Waiting>>,
    done: Vec<bool>,
    failed: Vec<bool>,
    aborted: bool,
    deadlock: Option<String>,
    maximum: Maximum,
    broken: Vec<String>,
    logged: Vec<(Level, String)>,
    calls: Vec<u64>,
    progress: Vec<u64>,
    sent: Vec<u64>,
    received: Vec<u64>,
    messages: Vec<u64>,
    exchanges: Vec<u64>,
}

/// The maximum that is being agreed on, or was last.
#[derive(Default)]
struct Maximum {
    round: u64,
    given: u32,
    so_far: u64,
    result: u64,
}

#[derive(Clone, Copy)]
enum Waiting {
    Message(u32),
    Maximum(u64),
}

impl Shared {
    pub(super) fn new(set_up: &SetUp, call: Call) -> Self {
        let count = set_up.members.len();
        let lends = |is_written: bool| match (set_up.lends, is_written) {
            (false, _) => Lends::Nothing,
            (true, false) => Lends::ToRead,
            (true, true) => Lends::ToWrite,
        };
        let files = set_up.members.iter().zip(&set_up.lost).map(|(stored, &lost)| {
            [
                MemoryFile::new("data", &stored.data, lends(lost)),
                MemoryFile::new("redundancy", &stored.redundancy, lends(lost || call == Call::Protect)),
            ]
        });
        let state = State {
            waiting: vec![None; count],
            done: vec![false; count],
            failed: vec![false; count],
            calls: vec![0; count],
            progress: vec![0; count],
            sent: vec![0; count],
            received: vec![0; count],
            messages: vec![0; count],
            exchanges: vec![0; count],
            ..State::default()
        };
        Self {
            size: u32::try_from(count).unwrap_or(u32::MAX),
            set_up: SetUp { members: Vec::new(), ..set_up.clone() },
            files: files.collect(),
            state: Mutex::new(state),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn abort(&self) {
        self.lock().aborted = true;
        self.wake.notify_all();
    }

    pub(super) fn outcome(&self, ended: Vec<Ended>) -> Outcome {
        let state = self.lock();
        let mut broken = state.broken.clone();
        if ended.iter().all(|end| *end == Ended::Returned(Ok(()))) {
            let left = state.queues.iter().filter(|(_, queue)| !queue.is_empty());
            let mut left: Vec<_> = left.map(|(pair, queue)| (*pair, queue.len())).collect();
            left.sort_unstable();
            broken.extend(left.into_iter().map(|((from, to), count)| {
                format!("{count} messages of member {from} to member {to} were never received")
            }));
        }
        for (member, files) in self.files.iter().enumerate() {
            broken.extend(files.iter().filter_map(|file| file.broken(member)));
        }
        let stored =
            |files: &[MemoryFile; 2]| Stored { data: files[0].content(), redundancy: files[1].content() };
        Outcome {
            ended,
            members: self.files.iter().map(stored).collect(),
            broken,
            logged: state.logged.clone(),
            calls: state.calls.clone(),
            progress: state.progress.clone(),
            sent: state.sent.clone(),
            received: state.received.clone(),
            messages: state.messages.clone(),
            exchanges: state.exchanges.clone(),
        }
    }

    /// Counts a call of a member that can fail, and lets it fail where that is wanted.
    fn count(&self, rank: u32) -> Result<(), PluginError> {
        let mut state = self.lock();
        let call = state.calls[rank as usize];
        state.calls[rank as usize] += 1;
        let fails = match self.set_up.injected {
            Some(Injected::Failure { member, call: at }) => member == rank && call == at,
            Some(Injected::Death { member, call: from }) => member == rank && call >= from,
            Some(Injected::Cancel { .. }) | None => false,
        };
        if !fails {
            return Ok(());
        }
        state.failed[rank as usize] = true;
        let text = format!("call {call} of member {rank} fails on purpose");
        Err(PluginError::new(PluginErrorKind::Io, text))
    }

    /// Whether every member that is not done waits for something that nobody can bring.
    fn look_for_deadlock(&self, state: &mut State) {
        if state.aborted || state.deadlock.is_some() || state.done.iter().all(|done| *done) {
            return;
        }
        let mut who = Vec::new();
        for (member, rank) in (0_u32..self.size).zip(0_usize..) {
            if state.done[rank] {
                continue;
            }
            match state.waiting[rank] {
                Some(Waiting::Message(from)) => {
                    if state.queues.get(&(from, member)).is_some_and(|queue| !queue.is_empty()) {
                        return;
                    }
                    who.push(format!("member {member} for a message of member {from}"));
                }
                Some(Waiting::Maximum(round)) => {
                    if state.maximum.round != round {
                        return;
                    }
                    who.push(format!("member {member} for the others' maximum"));
                }
                None => return,
            }
        }
        state.deadlock = Some(format!("{DEADLOCK}{}", who.join(", ")));
        self.wake.notify_all();
    }

    /// Waits until `ready` gives something.
    fn wait<T>(
        &self,
        rank: u32,
        waiting: Waiting,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, PluginError> {
        let mut state = self.lock();
        loop {
            if let Some(text) = &state.deadlock {
                return Err(fault(text.clone()));
            }
            if state.aborted {
                return Err(PluginError::new(PluginErrorKind::Aborted, "another member of the set gave up"));
            }
            if let Some(value) = ready(&mut state) {
                state.waiting[rank as usize] = None;
                return Ok(value);
            }
            state.waiting[rank as usize] = Some(waiting);
            self.look_for_deadlock(&mut state);
            if state.deadlock.is_none() {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// One member's end of the set.
struct ThreadSet {
    shared: Arc<Shared>,
    rank: u32,
    data: MemberFile,
    redundancy: MemberFile,
}

impl ThreadSet {
    fn send(&self, message: &SendTo<'_>) -> Result<(), PluginError> {
        if message.to >= self.shared.size {
            return self
                .broken(format!("member {} sent to member {}, who does not exist", self.rank, message.to));
        }
        let bytes = message.bytes.to_vec();
        let mut state = self.shared.lock();
        if message.to != self.rank {
            state.sent[self.rank as usize] += bytes.len() as u64;
            state.received[message.to as usize] += bytes.len() as u64;
            state.messages[self.rank as usize] += 1;
        }
        state.queues.entry((self.rank, message.to)).or_default().push_back(bytes);
        drop(state);
        self.shared.wake.notify_all();
        Ok(())
    }

    fn receive(&self, message: &mut ReceiveFrom<'_>) -> Result<(), PluginError> {
        if message.from >= self.shared.size {
            return self
                .broken(format!("member {} receives from {}, who does not exist", self.rank, message.from));
        }
        let pair = (message.from, self.rank);
        let bytes = self.shared.wait(self.rank, Waiting::Message(message.from), |state| {
            state.queues.get_mut(&pair).and_then(VecDeque::pop_front)
        })?;
        if bytes.len() != message.bytes.len() {
            return self.broken(format!(
                "member {} sent {} bytes to member {}, who expected {}",
                message.from,
                bytes.len(),
                self.rank,
                message.bytes.len()
            ));
        }
        message.bytes.copy_from_slice(&bytes);
        Ok(())
    }

    fn broken(&self, text: String) -> Result<(), PluginError> {
        self.shared.lock().broken.push(text.clone());
        Err(fault(text))
    }
}

impl Set for ThreadSet {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.shared.size
    }

    fn world_rank(&self, member: u32) -> u32 {
        self.shared.set_up.world_ranks[member as usize]
    }

    fn dataset(&self) -> u64 {
        self.shared.set_up.dataset
    }

    fn data_len(&self, member: u32) -> u64 {
        self.shared.files[member as usize][0].len()
    }

    fn lost(&self, member: u32) -> bool {
        self.shared.set_up.lost[member as usize]
    }

    fn exchange(&self, sends: &[SendTo<'_>], receives: &mut [ReceiveFrom<'_>]) -> Result<(), PluginError> {
        self.shared.count(self.rank)?;
        self.shared.lock().exchanges[self.rank as usize] += 1;
        sends.iter().try_for_each(|message| self.send(message))?;
        receives.iter_mut().try_for_each(|message| self.receive(message))
    }

    fn max(&self, value: u64) -> Result<u64, PluginError> {
        self.shared.count(self.rank)?;
        let round = {
            let mut state = self.shared.lock();
            let round = state.maximum.round;
            state.maximum.so_far = state.maximum.so_far.max(value);
            state.maximum.given += 1;
            if state.maximum.given == self.shared.size {
                let result = state.maximum.so_far;
                state.maximum = Maximum { round: round + 1, given: 0, so_far: 0, result };
                self.shared.wake.notify_all();
            }
            round
        };
        self.shared.wait(self.rank, Waiting::Maximum(round), |state| {
            (state.maximum.round != round).then_some(state.maximum.result)
        })
    }

    fn data(&self) -> &dyn Bytes {
        &self.data
    }

    fn redundancy(&self) -> &dyn Bytes {
        &self.redundancy
    }

    fn progress(&self, done: u64, total: u64) -> Result<(), PluginError> {
        if done > total {
            self.broken(format!("member {} says that {done} of {total} is done", self.rank))?;
        }
        self.shared.count(self.rank)?;
        let mut state = self.shared.lock();
        state.progress[self.rank as usize] += 1;
        if self.shared.set_up.injected == Some(Injected::Cancel { member: self.rank }) {
            state.failed[self.rank as usize] = true;
            return Err(PluginError::new(PluginErrorKind::Cancelled, "cancelled on purpose"));
        }
        Ok(())
    }

    fn log(&self, level: Level, text: &str) {
        self.shared.lock().logged.push((level, text.to_owned()));
    }

    fn processors(&self) -> u32 {
        // One set of members takes what a scheme does with one processor, the next what it does with more.
        if self.shared.set_up.dataset.is_multiple_of(2) {
            1
        } else {
            2
        }
    }

    fn message_bytes(&self) -> u64 {
        self.shared.set_up.message_bytes
    }
}

/// One of a member's files, with its calls counted.
struct MemberFile {
    shared: Arc<Shared>,
    rank: u32,
    index: usize,
}

impl MemberFile {
    fn file(&self) -> &MemoryFile {
        &self.shared.files[self.rank as usize][self.index]
    }
}

impl Bytes for MemberFile {
    fn len(&self) -> u64 {
        self.file().len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PluginError> {
        self.shared.count(self.rank)?;
        self.file().read_at(offset, buffer);
        Ok(())
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.file().lend(offset, len)
    }

    fn lend_to_write(&self, offset: u64, len: usize) -> Option<Box<dyn Loan + '_>> {
        self.file().lend_to_write(offset, len)
    }

    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        self.shared.count(self.rank)?;
        self.file().write_at(offset, buffer)
    }
}
