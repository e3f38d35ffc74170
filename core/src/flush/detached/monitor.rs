//! Looks after the records of a node: asks the transport, compares what came with what was recorded, leaves the node's mark, and
//! finishes the flush that has the marks of all.
//!
//! On one node a lock in the control directory lets one process at a time do so; between nodes that of the finalizer does. A flush that
//! was taken back has no record under the prefix directory any more; its copies are stopped and their hidden files removed.

use super::record::{self, State, TransferRecord};
use crate::flush::closing::{alone, finalize_one};
use crate::flush::file_copy;
use crate::flush::pending::{self, PendingFlush};
use crate::flush::FlushOutcome;
use crate::fs::{Files, OwnedDir};
use crate::plugin::PluginHost;
use crate::prefix::Prefix;
use crate::{describe, env::Env, Described};
use scr_plugin_api::{CopyState, KvTree, Transport};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Gives a transport by its name, with these options.
pub type OpenTransport<'a> = &'a dyn Fn(&str, &KvTree) -> Result<Arc<dyn Transport>, String>;

/// Transports by name and options, each loaded once.
pub struct Transports<'a> {
    host: &'a PluginHost,
    /// By name and packed options.
    open: RefCell<HashMap<Wanted, Arc<dyn Transport>>>,
}

type Wanted = (String, Vec<u8>);

impl<'a> Transports<'a> {
    /// Those that this host finds.
    pub fn new(host: &'a PluginHost) -> Self {
        Self { host, open: RefCell::default() }
    }

    /// The transport of this name with these options, which a job has checked.
    ///
    /// # Errors
    /// There is none any more, or it refuses them, in one line.
    pub fn open(&self, name: &str, options: &KvTree) -> Result<Arc<dyn Transport>, String> {
        let key = (name.to_owned(), options.pack());
        if let Some(open) = self.open.borrow().get(&key) {
            return Ok(Arc::clone(open));
        }
        let loaded = self.host.load_transport(name, options).map_err(|error| error.full_text())?;
        let loaded: Arc<dyn Transport> = Arc::from(loaded);
        self.open.borrow_mut().insert(key, Arc::clone(&loaded));
        Ok(loaded)
    }
}

/// What was found and done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PollResult {
    /// Whether something of this node is still to be copied, or could not be ended.
    pub left: bool,
    /// Whether files of this node cannot arrive any more.
    pub failed: bool,
    /// So many bytes of what is still to be copied have arrived.
    pub moved: u64,
    /// What happened, one line each.
    pub told: Vec<String>,
    /// What went wrong, one line each.
    pub wrong: Vec<String>,
}

/// Looks after the flushes that go on detached applications, as far as they are this node's: those in the control
/// directory `control`. Returns at once; a copy under way is left alone.
pub fn poll_transfers(env: &Env, control: &OwnedDir, open: OpenTransport<'_>) -> PollResult {
    poll_some(&**control.files(), control.path(), open, &env.local_time(), Which::All)
}

/// Which flushes are meant.
#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    All,
    /// That of a token.
    Of(&'a str),
    /// Those to a prefix directory.
    To(&'a Prefix),
}

impl Which<'_> {
    fn may_be(self, token: &str) -> bool {
        match self {
            Self::Of(wanted) => wanted == token,
            Self::All | Self::To(_) => true,
        }
    }

    fn is(self, record: &TransferRecord) -> bool {
        match self {
            Self::To(prefix) => record.prefix == prefix.dir(),
            Self::All | Self::Of(_) => self.may_be(&record.token),
        }
    }
}

/// The same for some flushes.
pub(crate) fn poll_some(
    files: &dyn Files,
    control: &Path,
    open: OpenTransport<'_>,
    now: &str,
    which: Which<'_>,
) -> PollResult {
    let mut looked = PollResult::default();
    match record::tokens(files, control) {
        Ok(tokens) if !tokens.iter().any(|token| which.may_be(token)) => return looked,
        Ok(_) => (),
        Err(why) => {
            looked.wrong.push(why);
            return looked;
        }
    }
    let locked = files.exclusively_for_long(&control.join(LOCK), || {
        // Where nodes meet in one folder by mistake each has its mark all the same.
        let mut by_token: BTreeMap<(String, u32), Vec<TransferRecord>> = BTreeMap::new();
        let (records, bad) = record::list(files, control);
        for record in records.into_iter().filter(|record| which.is(record)) {
            by_token.entry((record.token.clone(), record.node)).or_default().push(record);
        }
        looked.wrong.extend(bad);
        for records in by_token.into_values() {
            TransferMonitor { files, control, open, now }.look(records, &mut looked);
        }
    });
    if let Err(error) = locked {
        looked.left = true;
        looked.wrong.push(describe(&error));
    }
    looked
}

/// Looks after the records of one flush on this node.
struct TransferMonitor<'a> {
    files: &'a dyn Files,
    control: &'a Path,
    open: OpenTransport<'a>,
    now: &'a str,
}

impl TransferMonitor<'_> {
    fn look(&self, mut records: Vec<TransferRecord>, looked: &mut PollResult) {
        let prefix = Prefix::new(records[0].prefix.clone());
        let record = match pending::find(self.files, &prefix, &records[0].token) {
            Ok(Some(record)) => record,
            Ok(None) => return self.clear_away(&records, looked),
            Err(why) => {
                looked.left = true;
                return looked.wrong.push(why);
            }
        };
        for record in records.iter_mut().filter(|record| record.state == State::Moving) {
            self.move_on(record, looked);
        }
        looked.failed |= records.iter().any(|record| matches!(record.state, State::Failed(_)));
        let arrived = records.iter().filter(|record| record.state == State::Arrived).count();
        if arrived == records[0].mates.len() {
            self.arrive(&prefix, &record, &records, looked);
        }
    }

    /// Asks the transport, and checks what came.
    fn move_on(&self, record: &mut TransferRecord, looked: &mut PollResult) {
        let transport = match (self.open)(&record.transport, &record.transport_options) {
            Ok(transport) => transport,
            Err(why) => {
                looked.left = true;
                return looked.wrong.push(why);
            }
        };
        if let Ok(CopyState::Running(bytes)) = transport.poll(&record.ticket) {
            looked.left = true;
            looked.moved = looked.moved.saturating_add(bytes);
            return;
        }
        let ticket = record.ticket.clone();
        let came = file_copy::finish(self.files, &*transport, &mut record.copies, &ticket, &record.options);
        record.state = match came {
            Ok(()) => State::Arrived,
            Err(error) => {
                let rank = record.rank;
                looked.wrong.push(format!("the files of rank {rank} were not flushed: {error}"));
                State::Failed(error.to_string())
            }
        };
        if let Err(error) = record.write(self.files, self.control) {
            looked.left = true;
            looked.wrong.push(describe(&error));
        }
    }

    /// All files of this node are where they should be.
    fn arrive(
        &self,
        prefix: &Prefix,
        record: &PendingFlush,
        records: &[TransferRecord],
        looked: &mut PollResult,
    ) {
        let ended = self.mark(prefix, record, records).and_then(|all_done| {
            if all_done {
                finalize_one(self.files, prefix, &record.token, self.now)
            } else {
                Ok(None)
            }
        });
        match ended {
            Ok(None | Some(FlushOutcome::Waiting { .. })) => (),
            Ok(Some(ended @ FlushOutcome::Finalized(_))) => {
                looked.told.push(ended.to_string());
                self.forget(records, looked);
            }
            Ok(Some(ended)) => {
                looked.left |= matches!(ended, FlushOutcome::Postponed { .. });
                looked.wrong.push(ended.to_string());
            }
            Err(why) => {
                looked.left = true;
                looked.wrong.push(why);
            }
        }
    }

    /// Says that this node is done, unless the flush was taken back meanwhile, and gives whether all are.
    fn mark(
        &self,
        prefix: &Prefix,
        record: &PendingFlush,
        records: &[TransferRecord],
    ) -> Result<bool, String> {
        let (files, node) = (self.files, records[0].node);
        let is_done = |node| record.is_done(files, prefix, node).described();
        if !is_done(node)? {
            let marked = alone(files, prefix, || match pending::find(files, prefix, &record.token)? {
                None => Ok(()),
                Some(record) => record.mark_done(files, prefix, node, &record::new_sums(records)).described(),
            });
            marked.described()??;
        }
        record.all_done(files, prefix).described()
    }

    /// The flush is over, in whichever way. Hidden files that are still there are of no use.
    fn clear_away(&self, records: &[TransferRecord], looked: &mut PollResult) {
        for record in records.iter().filter(|record| record.state == State::Moving) {
            let cancelled = (self.open)(&record.transport, &record.transport_options)
                .and_then(|transport| transport.cancel(&record.ticket).map_err(|error| error.to_string()));
            if let Err(why) = cancelled {
                looked.wrong.push(why);
            }
        }
        for record in records {
            file_copy::remove_staging(self.files, &record.copies);
        }
        self.forget(records, looked);
    }

    fn forget(&self, records: &[TransferRecord], looked: &mut PollResult) {
        for record in records {
            if let Err(error) = record.forget(self.files, self.control) {
                looked.wrong.push(describe(&error));
            }
        }
    }
}

/// Who looks after the records of a node has this name in its control directory.
const LOCK: &str = "detached.lock";
