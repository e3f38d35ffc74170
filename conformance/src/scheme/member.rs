//! One member's side of a call: its thread, the set that the scheme sees, and a record of what the scheme does.

use super::memory::MemoryFile;
use super::set::{Call, Ended, Injected, SetUp, Stored};
use crate::running;
use scr_comm::set::{SetComm, SetError};
use scr_comm::thread::ThreadComm;
use scr_comm::{Comm, CommError, Rank};
use scr_plugin_api::{held, Bytes, Level, PluginError, ReceiveFrom, Scheme, SendTo, Set};
use std::error::Error;
use std::sync::{Arc, Mutex};

/// A member during a call. It outlives the member's thread, which may never return.
pub(super) struct Member {
    rank: u32,
    /// Its call, for a message.
    name: String,
    set_up: Arc<SetUp>,
    data: MemoryFile,
    redundancy: MemoryFile,
    record: Mutex<Record>,
}

/// The actions of a member so far.
#[derive(Debug, Clone, Default)]
pub struct Record {
    call: &'static str,
    /// How its call ended, once it has.
    pub(super) ended: Option<Ended>,
    /// With which text it panicked.
    pub(super) panic: String,
    /// The call of the host in which it waits for others.
    pub(super) waits_in: Option<&'static str>,
    /// Rules that it broke.
    pub(super) broken: Vec<String>,
    /// The member that stopped it by ending before it.
    pub(super) stopped_by: Option<u32>,
    /// The call of the host in which it waited for a message that nobody could send any more.
    pub(super) deadlocked: Option<&'static str>,
    /// Whether a call of it has failed on purpose.
    failed: bool,
    /// The first byte of its redundancy that was not written, and the first that was written twice.
    pub(super) left_out: Option<usize>,
    pub(super) twice: Option<usize>,
    pub(super) logged: Vec<(Level, String)>,
    /// Calls that can fail which it made to its host.
    pub calls: u64,
    /// Bytes that it sent to others.
    pub sent: u64,
    /// Bytes that it received from others.
    pub received: u64,
    /// Messages that it sent to others.
    pub messages: u64,
    /// Batches that it took part in.
    pub exchanges: u64,
}

impl Record {
    /// Whether it has not returned, and waits for no other member.
    pub(super) fn hangs(&self) -> bool {
        self.ended.is_none() && self.waits_in.is_none()
    }

    /// Where it hangs.
    pub(super) fn place(&self) -> String {
        match (self.deadlocked, self.waits_in) {
            (Some(call), _) => format!("as it waits in {call} for what nobody sends"),
            (None, Some(call)) => format!("as it waits in {call} for others"),
            (None, None) => format!("and hangs in {} itself", self.call),
        }
    }
}

impl Member {
    pub(super) fn new(set_up: &Arc<SetUp>, rank: u32, call: Call) -> Self {
        let stored = &set_up.members[rank as usize];
        let data = MemoryFile::new("data", &stored.data);
        let redundancy = MemoryFile::new("redundancy", &stored.redundancy);
        let name = format!("{} of member {rank} of {}", call.name(), set_up.members.len());
        let record = Mutex::new(Record { call: call.name(), ..Record::default() });
        Self { rank, name, set_up: Arc::clone(set_up), data, redundancy, record }
    }

    /// Calls the scheme, and then does what the host does after it. Each rank of the communicator is a member.
    pub(super) fn run(&self, comm: &ThreadComm, scheme: Arc<dyn Scheme>, call: Call) {
        let ranks = (0..comm.size()).map(Rank).collect();
        let comm = match SetComm::new(comm, ranks, 0) {
            Ok(comm) => comm,
            Err(error) => {
                return held(&self.record).broken.push(format!("the kit cannot make a set: {error}"))
            }
        };
        let set = MemberSet {
            member: self,
            comm,
            data: File(self, &self.data),
            redundancy: File(self, &self.redundancy),
        };
        let result = running::call(&self.name, || match call {
            Call::Protect => scheme.protect(&set),
            Call::Rebuild(format) => scheme.rebuild(&set, format),
        });
        drop(scheme);
        let (ended, panic) = match result {
            Ok(result) => match result.as_ref().err().and_then(running::panic_across) {
                Some(text) => (Ended::Panicked, text.to_owned()),
                None => (Ended::Returned(result), String::new()),
            },
            Err(text) => (Ended::Panicked, text),
        };
        held(&self.record).panic.clone_from(&panic);
        let panicked = SetError::Failed { text: panic };
        let outcome = match &ended {
            Ended::Returned(result) => result.as_ref().map(drop).map_err(|error| error as &dyn Error),
            _ => Err(&panicked as &dyn Error),
        };
        self.end(ended.clone());
        if let Err(SetError::Unclaimed { member, messages, .. }) = set.comm.finish(outcome) {
            self.broke(format!(
                "{messages} messages of member {member} to member {} were never received",
                self.rank
            ));
        }
    }

    /// Its record, and what its files say.
    pub(super) fn take_record(&self) -> (Record, Stored) {
        let mut record = held(&self.record).clone();
        record.left_out = self.redundancy.written(|writes| writes == 0);
        record.twice = self.redundancy.written(|writes| writes > 1);
        let files = [&self.data, &self.redundancy];
        let broken = files.iter().filter_map(|file| file.broken());
        record.broken.extend(broken.map(|what| format!("member {} {what}", self.rank)));
        (record, Stored { data: self.data.content(), redundancy: self.redundancy.content() })
    }

    fn end(&self, ended: Ended) {
        let mut record = held(&self.record);
        if ended == Ended::Returned(Ok(())) && record.failed {
            let rank = self.rank;
            record
                .broken
                .push(format!("member {rank} returned success although one of its calls had failed"));
        }
        record.ended = Some(if record.deadlocked.is_some() { Ended::Hung } else { ended });
    }

    /// Counts a call that can fail, and lets it fail where that is wanted.
    fn count(&self) -> Result<(), PluginError> {
        let mut record = held(&self.record);
        let number = record.calls;
        record.calls += 1;
        let fails = self.set_up.injected.is_some_and(|Injected { member, call, is_death }| {
            member == self.rank && (call == number || is_death && call < number)
        });
        if !fails {
            return Ok(());
        }
        record.failed = true;
        Err(PluginError::io(format!("call {number} of member {} fails on purpose", self.rank)))
    }

    /// Notes a rule that was broken.
    fn broke(&self, text: String) -> PluginError {
        held(&self.record).broken.push(text.clone());
        PluginError::fault(text)
    }
}

/// The set as a member's scheme sees it.
struct MemberSet<'a> {
    member: &'a Member,
    comm: SetComm<'a>,
    data: File<'a>,
    redundancy: File<'a>,
}

impl MemberSet<'_> {
    /// Waits for other members in a call.
    fn wait<T>(
        &self,
        call: &'static str,
        wait: impl FnOnce() -> Result<T, SetError>,
    ) -> Result<T, PluginError> {
        held(&self.member.record).waits_in = Some(call);
        let result = running::in_host(&self.member.name, wait);
        held(&self.member.record).waits_in = None;
        result.map_err(|error| self.error(call, error))
    }

    /// An error of the set, as the scheme gets it and as the record does.
    fn error(&self, call: &'static str, error: SetError) -> PluginError {
        let me = self.member.rank;
        match &error {
            SetError::NoSuchMember { member, .. } => {
                return self.member.broke(format!("member {me} named member {member}, who does not exist"));
            }
            SetError::Comm(CommError::WrongLength { from, found, expected, .. }) => {
                return self.member.broke(format!(
                    "member {from} sent {found} bytes to member {me}, who expected {expected}"
                ));
            }
            SetError::Comm(CommError::Deadlock { .. }) => held(&self.member.record).deadlocked = Some(call),
            SetError::Aborted { member, .. } => held(&self.member.record).stopped_by = Some(*member),
            _ => {}
        }
        error.into()
    }
}

impl Set for MemberSet<'_> {
    fn rank(&self) -> u32 {
        self.member.rank
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn world_rank(&self, member: u32) -> u32 {
        self.member.set_up.world_ranks[member as usize]
    }

    fn dataset(&self) -> u64 {
        self.member.set_up.dataset
    }

    fn data_len(&self, member: u32) -> u64 {
        self.member.set_up.members[member as usize].data.len() as u64
    }

    fn lost(&self, member: u32) -> bool {
        self.member.set_up.lost[member as usize]
    }

    fn exchange(&self, sends: &[SendTo<'_>], receives: &mut [ReceiveFrom<'_>]) -> Result<(), PluginError> {
        self.member.count()?;
        {
            let mut record = held(&self.member.record);
            record.exchanges += 1;
            for send in sends.iter().filter(|send| send.to != self.member.rank) {
                record.sent += send.bytes.len() as u64;
                record.messages += 1;
            }
        }
        self.wait("exchange", || self.comm.exchange(sends, receives))?;
        let others = receives.iter().filter(|receive| receive.from != self.member.rank);
        held(&self.member.record).received += others.map(|receive| receive.bytes.len() as u64).sum::<u64>();
        Ok(())
    }

    fn max(&self, value: u64) -> Result<u64, PluginError> {
        self.member.count()?;
        self.wait("max", || self.comm.max(value))
    }

    fn data(&self) -> &dyn Bytes {
        &self.data
    }

    fn redundancy(&self) -> &dyn Bytes {
        &self.redundancy
    }

    fn log(&self, level: Level, text: &str) {
        held(&self.member.record).logged.push((level, text.to_owned()));
    }

    fn processors(&self) -> u32 {
        // Both what a scheme does with one processor and what it does with more are tried.
        1 + u32::from(!self.member.set_up.dataset.is_multiple_of(2))
    }

    fn message_bytes(&self) -> u64 {
        self.member.set_up.message_bytes
    }
}

/// One of a member's files, with its calls counted.
struct File<'a>(&'a Member, &'a MemoryFile);

impl Bytes for File<'_> {
    fn len(&self) -> u64 {
        self.1.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PluginError> {
        self.0.count()?;
        self.1.read_at(offset, buffer);
        Ok(())
    }

    fn write_at(&self, offset: u64, buffer: &[u8]) -> Result<(), PluginError> {
        self.0.count()?;
        self.1.write_at(offset, buffer)
    }
}
