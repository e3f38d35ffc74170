//! The entries of the log: events, and transfers of bytes. Their names are those of C SCR, so that programs that read its logs
//! can read ours.

use scr_base::message::without_error_numbers;
use scr_plugin_api::{LogEntry, LogKind};
use scr_prefix::DatasetDescriptor;
use std::path::Path;
use std::time::Duration;

macro_rules! names {
    ($(#[$doc:meta])* $kind:ident: $($(#[$line:meta])* $id:ident = $name:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind { $($(#[$line])* $id),* }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$id),*];

            /// Its name, for people and in the log.
            pub fn name(self) -> &'static str {
                match self { $(Self::$id => $name),* }
            }

            /// The one of this name.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$id),)* _ => None }
            }
        }
    };
}

pub(super) use names;

/// The note of [`Event::Start`] is this, and when the allocation ends, in seconds since the epoch.
pub const ALLOCATION_END: &str = "allocation ends at @";

names! {
    /// Something that happened.
    Event:
    /// A run starts, with this many processes on this many nodes. The note says when the allocation ends, if that is known.
    Start = "START";
    /// The application computes.
    ComputeStart = "COMPUTE_START";
    /// It stops computing, to write a dataset.
    ComputeEnd = "COMPUTE_END";
    /// A checkpoint begins. The note is the store.
    CheckpointStart = "CHECKPOINT_START";
    /// It is complete in cache.
    CheckpointEnd = "CHECKPOINT_END";
    /// It has failed. The note says why.
    CheckpointFail = "CHECKPOINT_FAIL";
    /// As for a checkpoint, for a dataset that is none.
    OutputStart = "OUTPUT_START";
    /// As above.
    OutputEnd = "OUTPUT_END";
    /// As above.
    OutputFail = "OUTPUT_FAIL";
    /// A dataset in cache is recovered.
    RebuildStart = "REBUILD_START";
    /// It is whole.
    RebuildSuccess = "REBUILD_SUCCESS";
    /// It cannot be recovered. The note says why.
    RebuildFail = "REBUILD_FAIL";
    /// A checkpoint is fetched from the prefix directory.
    FetchStart = "FETCH_START";
    /// It has been fetched.
    FetchSuccess = "FETCH_SUCCESS";
    /// It cannot be fetched. The note says why.
    FetchFail = "FETCH_FAIL";
    /// The application restarts from a checkpoint.
    RestartStart = "RESTART_START";
    /// All ranks have restarted.
    RestartSuccess = "RESTART_SUCCESS";
    /// Some rank could not. The note says why.
    RestartFail = "RESTART_FAIL";
    /// A dataset is copied to the prefix directory.
    FlushStart = "FLUSH_START";
    /// It is there.
    FlushSuccess = "FLUSH_SUCCESS";
    /// It could not be copied. The note says why.
    FlushFail = "FLUSH_FAIL";
    /// The job is to end. The note says why.
    Halt = "HALT";
    /// A command starts the job. The note says for which time.
    RunStart = "RUN_START";
    /// That run has ended. The note says how.
    RunEnd = "RUN_END";
    /// A node is not used any more. The note says which, and why.
    NodeFail = "NODE_FAIL";
    /// The data that the job has left in cache are saved.
    PostrunStart = "POSTRUN_START";
    /// A dataset that is in cache only is saved.
    ScavengeStart = "SCAVENGE_START";
    /// It is complete in the prefix directory.
    ScavengeSuccess = "SCAVENGE_SUCCESS";
    /// It could not be saved. The note says why.
    ScavengeFail = "SCAVENGE_FAIL";
    /// All that is done.
    PostrunEnd = "POSTRUN_END";
    /// The application has waited for flushes. Only the event log has it.
    FlushWait = "FLUSH_WAIT";
    /// Parts of a dataset were rebuilt: of how many processes, and how many bytes were damaged. Only the event log has it.
    Rebuilt = "REBUILT";
    /// A checkpoint was protected while the application computed. Only the event log has it.
    Protected = "PROTECTED";
    /// The application has said that it has restarted from this checkpoint. Only the event log has it.
    Current = "CURRENT";
    /// The interval of checkpoints is planned anew. The note says why. Only the event log has it.
    Plan = "CHECKPOINT_PLAN";
}

/// Whether the destinations of C SCR's log get an entry: not if that log has no such event, so that programs that read it need not
/// know it.
pub(super) fn is_for_all(entry: &LogEntry) -> bool {
    use Event::{Current, FlushWait, Plan, Protected, Rebuilt};
    ![FlushWait, Rebuilt, Protected, Current, Plan].iter().any(|own| entry.name == own.name())
}

/// Whether another entry follows at once, so that both are written together.
pub(super) fn is_followed(entry: &LogEntry) -> bool {
    use Event::{CheckpointEnd, ComputeEnd, FlushSuccess, FlushWait, OutputEnd, Rebuilt};
    let events = [ComputeEnd, CheckpointEnd, OutputEnd, FlushWait, FlushSuccess, Rebuilt].map(Event::name);
    let transfers = [Transfer::Write, Transfer::Encode, Transfer::Checkpoint, Transfer::Output];
    events.into_iter().chain(transfers.map(Transfer::name)).any(|name| entry.name == name)
}

names! {
    /// Bytes that were moved, with how long it took.
    Transfer:
    /// The application wrote its files.
    Write = "WRITE";
    /// Redundancy was made for them.
    Encode = "ENCODE";
    /// Both, from the start of a checkpoint to its end.
    Checkpoint = "CHECKPOINT";
    /// As above, for a dataset that is no checkpoint.
    Output = "OUTPUT";
    /// From cache to the prefix directory, while the application waited.
    FlushSync = "FLUSH_SYNC";
    /// The same while the application continued.
    FlushAsync = "FLUSH_ASYNC";
    /// From the prefix directory to cache.
    Fetch = "FETCH";
}

/// An entry that is being put together.
#[derive(Debug, Clone, Default)]
pub struct Record(pub LogEntry);

impl Record {
    /// Something happened.
    pub fn event(event: Event) -> Self {
        Self(LogEntry { kind: LogKind::Event, name: event.name().to_owned(), ..LogEntry::default() })
    }

    /// Bytes were moved.
    pub fn transfer(transfer: Transfer, from: &Path, to: &Path) -> Self {
        Self(LogEntry {
            kind: LogKind::Transfer,
            name: transfer.name().to_owned(),
            from: Some(from.display().to_string()),
            to: Some(to.display().to_string()),
            ..LogEntry::default()
        })
    }

    /// Adds the dataset.
    pub fn dataset(self, dataset: &DatasetDescriptor) -> Self {
        self.id(dataset.id).named(&dataset.name)
    }

    /// In an allocation that ends at this time, in seconds since the epoch, where that is known.
    pub(crate) fn until(mut self, end: Option<u64>) -> Self {
        self.0.note = end.map(|end| format!("{ALLOCATION_END}{end}"));
        self
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*): $($field:ident = $value:expr),*;)*) => {
        impl Record {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $($arg: $type),*) -> Self {
                    $(self.0.$field = Some($value);)*
                    self
                }
            )*
        }
    };
}

setters! {
    /// Adds the id of the dataset.
    id(id: u64): dataset = id;
    /// Adds the name of the dataset.
    named(name: &[u8]): dataset_name = String::from_utf8_lossy(name).into_owned();
    /// It took this long.
    took(time: Duration): seconds = time.as_secs_f64();
    /// With this to say.
    note(note: impl Into<String>): note = without_error_numbers(&note.into());
    /// The number of bytes and of files.
    size(bytes: u64, files: u64): bytes = bytes, files = files;
    /// With this redundancy scheme.
    scheme(scheme: &str): scheme = scheme.to_owned();
    /// Sets the number of bytes.
    bytes(bytes: u64): bytes = bytes;
    /// Sets the number of processes.
    processes(processes: u64): processes = processes;
    /// By this many processes on this many nodes.
    run(processes: u64, nodes: u64): processes = processes, nodes = nodes;
}
