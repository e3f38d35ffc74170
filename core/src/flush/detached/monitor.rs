//! The transfer monitor of a node: polls the transports, compares the files that have arrived with the records, writes the
//! node's mark, and closes a flush that has the marks of all nodes.
//!
//! On one node a lock in the control directory admits one process at a time; between nodes the lock of `closing` does. A monitor
//! does not wait long for either, since the holder may be stuck in a file system; it tries again at the next poll. A flush that
//! was rolled back has no record below the prefix directory any more. Its copies are stopped and their staging files removed.

use super::record::{self, TransferRecord, TransferState, EXECUTED};
use crate::cache::owner::Owner;
use crate::flush::file_copy;
use crate::plugin::{PluginHost, PluginKind, PluginLoadError};
use scr_base::fs::{Files, FsError, OwnedDir};
use scr_base::{describe, env::Env};
use scr_config::descriptor::{Descriptors, Store};
use scr_config::param::Params;
use scr_plugin_api::{CopyState, KvTree, PluginError, Transport};
use scr_prefix::commit::{folders_of, if_soon_free, sync_folders, FlushOutcome};
pub(super) use scr_prefix::ledger::pending::{self, PendingFlush};
use scr_prefix::ledger::{Fence, LedgerDir};
use scr_prefix::{Prefix, PrefixId};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Gives a transport by its name, with these options.
pub type OpenTransport<'a> = &'a dyn Fn(&str, &KvTree) -> Result<Arc<dyn Transport>, PluginLoadError>;

/// Transports by name and options, each loaded once. Their programs come from the settings of this process.
pub struct Transports<'a> {
    host: &'a PluginHost,
    /// The program of this installation.
    program: Option<String>,
    /// The libraries that stores name, by the name of the transport.
    libraries: HashMap<String, String>,
    /// By name and packed options.
    open: RefCell<HashMap<Wanted, Arc<dyn Transport>>>,
}

type Wanted = (String, Vec<u8>);

impl<'a> Transports<'a> {
    /// Those that this host finds.
    pub fn new(host: &'a PluginHost, env: &Env, params: &Params) -> Self {
        let descriptors = Descriptors::build(params, &mut Vec::new());
        let stores = descriptors.map(|descriptors| descriptors.stores).unwrap_or_default();
        let named = stores.iter().map(Store::flush_by).filter_map(|flush_by| {
            let library = flush_by.options.iter().find(|(key, _)| key.eq_ignore_ascii_case(LIBRARY))?;
            Some((flush_by.transport.to_ascii_uppercase(), library.1.clone()))
        });
        let program = env.install_dir.as_ref().map(|install| install.join("bin/scr").display().to_string());
        Self { host, program, libraries: named.collect(), open: RefCell::default() }
    }

    /// The transport of this name with these options, which a job has checked.
    ///
    /// # Errors
    /// It does not exist any more, or it refuses them.
    pub fn open(&self, name: &str, options: &KvTree) -> Result<Arc<dyn Transport>, PluginLoadError> {
        let mut options = options.clone();
        for key in EXECUTED.into_iter().filter(|key| options.has(key)).collect::<Vec<_>>() {
            let own = match key {
                LIBRARY => self.libraries.get(&name.to_ascii_uppercase()),
                _ => self.program.as_ref(),
            };
            match own {
                Some(own) => options.set(key, own),
                None => _ = options.remove(key),
            }
        }
        let key = (name.to_owned(), options.pack());
        if let Some(open) = self.open.borrow().get(&key) {
            return Ok(Arc::clone(open));
        }
        let plugin = self.host.open(PluginKind::Transport, name)?;
        let loaded: Arc<dyn Transport> = Arc::from(plugin.transport(&options)?);
        self.open.borrow_mut().insert(key, Arc::clone(&loaded));
        Ok(loaded)
    }
}

const LIBRARY: &str = "LIBRARY";

/// The findings and actions of a monitor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PollResult {
    /// Whether something of this node is still to be copied, or could not be ended.
    pub unfinished: bool,
    /// Whether files of this node cannot arrive any more.
    pub failed: bool,
    /// The bytes that have arrived of what is still to be copied.
    pub bytes_moved: u64,
    /// The events, one line each.
    pub notices: Vec<String>,
    /// The failures, one line each.
    pub errors: Vec<String>,
}

impl PollResult {
    /// Something failed that may pass.
    fn postpone(&mut self, error: &dyn std::error::Error) {
        self.unfinished = true;
        self.errors.push(describe(error));
    }
}

/// Polls the detached flushes whose transfer records are in the control directory `control`, those of this node. Returns at
/// once; a copy under way is left alone.
pub fn poll_transfers(env: &Env, control: &OwnedDir, open: OpenTransport<'_>) -> PollResult {
    poll_some(&**control.files(), control.path(), open, &env.local_time(), Which::All)
}

/// The same, and copies that have failed for good are begun again: somebody asks for it, who may have removed the cause. Flushes
/// to `prefix` are found also where it had another path when they began.
pub fn poll_transfers_anew(
    env: &Env,
    control: &OwnedDir,
    open: OpenTransport<'_>,
    prefix: &Prefix,
) -> PollResult {
    let id = PrefixId::read(&*env.files, prefix).ok().flatten();
    let which = Which::AllAnew(Here { prefix, id: id.as_ref() });
    poll_some(&**control.files(), control.path(), open, &env.local_time(), which)
}

/// A prefix directory where it is now.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) prefix: &'a Prefix,
    pub(crate) id: Option<&'a PrefixId>,
}

impl Here<'_> {
    /// Whether a flush goes there, though the directory may have been renamed since it began.
    fn has(&self, record: &TransferRecord, files: &dyn Files) -> bool {
        let recorded_id = record.prefix_id.as_ref();
        Owner::of_path(&record.prefix, recorded_id, files, (self.prefix, self.id), || true) == Owner::This
    }
}

/// Which flushes are meant.
#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    All,
    /// And what has failed for good is begun again.
    AllAnew(Here<'a>),
    /// That of a token.
    Of(&'a str),
    /// Those to a prefix directory, and whether a run that has yet to compute waits for them: their limits are lifted.
    To(Here<'a>, bool),
}

impl Which<'_> {
    fn may_be(self, token: &str) -> bool {
        match self {
            Self::Of(wanted) => wanted == token,
            Self::All | Self::AllAnew(_) | Self::To(..) => true,
        }
    }

    /// The record, with the path that its prefix directory has now, if it is meant.
    fn find(self, mut record: TransferRecord, files: &dyn Files) -> Option<TransferRecord> {
        if let Self::To(here, _) | Self::AllAnew(here) = self {
            let is_here = here.has(&record, files);
            if is_here && record.prefix != here.prefix.dir() {
                record.belong_to(here.prefix);
            }
            return Some(record).filter(|_| is_here || matches!(self, Self::AllAnew(_)));
        }
        Some(record).filter(|record| self.may_be(&record.token))
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
    let mut polled = PollResult::default();
    match record::names(files, control) {
        Ok(names) if !names.iter().any(|(token, _)| which.may_be(token)) => return polled,
        Ok(_) => (),
        Err(error) => {
            polled.errors.push(describe(&error));
            return polled;
        }
    }
    let monitor = TransferMonitor { files, control, open, now };
    let mut poll = |_: Fence<'_>| {
        if let Err(error) = monitor.poll(which, &mut polled) {
            polled.postpone(&error);
        }
    };
    match if_soon_free(files, &control.join(LOCK), &mut poll) {
        Ok(true) => (),
        Ok(false) => polled.unfinished = true,
        Err(error) => polled.postpone(&error),
    }
    polled
}

/// Polls the transfers of a node.
struct TransferMonitor<'a> {
    files: &'a dyn Files,
    control: &'a Path,
    open: OpenTransport<'a>,
    now: &'a str,
}

impl TransferMonitor<'_> {
    fn poll(&self, which: Which<'_>, polled: &mut PollResult) -> Result<(), FsError> {
        // Even if nodes share one folder by mistake, each has its own mark.
        let mut by_token: BTreeMap<(String, u32), Vec<TransferRecord>> = BTreeMap::new();
        let (records, bad) = record::list(self.files, self.control)?;
        for record in records.into_iter().filter_map(|record| which.find(record, self.files)) {
            by_token.entry((record.token.clone(), record.node)).or_default().push(record);
        }
        polled.errors.extend(bad.iter().map(|error| describe(error)));
        by_token.into_values().for_each(|records| self.poll_flush(records, which, polled));
        Ok(())
    }

    /// Polls the transfers of one flush.
    fn poll_flush(&self, mut records: Vec<TransferRecord>, which: Which<'_>, polled: &mut PollResult) {
        let prefix = Prefix::new(records[0].prefix.clone());
        let pending = match pending::find(LedgerDir::new(self.files, &prefix), &records[0].token) {
            Ok(Some(pending)) => pending,
            Ok(None) => return self.end_unrecorded(&prefix, &records, polled),
            Err(error) if error.is_not_found() => {
                return polled.postpone(&MovedError { path: records[0].prefix.clone() });
            }
            Err(error) => return polled.postpone(&error),
        };
        for record in &mut records {
            match &record.state {
                TransferState::Copying => self.poll_record(record, which, polled),
                TransferState::Failed(_) if matches!(which, Which::AllAnew(_)) => {
                    polled.notices.push(format!("the files of rank {} are copied again", record.rank));
                    self.repeat(record, polled);
                }
                TransferState::Failed(_) | TransferState::Arrived => (),
            }
        }
        polled.failed |= records.iter().any(|record| matches!(record.state, TransferState::Failed(_)));
        let arrived = records.iter().filter(|record| record.state == TransferState::Arrived).count();
        if arrived == records[0].mates.len() && self.sync_names(&prefix, &pending, &mut records, polled) {
            self.arrive(&prefix, &pending, &records, polled);
        }
    }

    /// The flush has no record at this path. If another prefix directory is there, that says nothing of the flush: it can go on
    /// where the right one is now, and this node need not wait for it.
    fn end_unrecorded(&self, prefix: &Prefix, records: &[TransferRecord], polled: &mut PollResult) {
        let record = &records[0];
        match PrefixId::read(self.files, prefix) {
            Err(error) => polled.postpone(&error),
            Ok(found) if record.prefix_id.is_none() || found == record.prefix_id => {
                self.clear_away(records, polled);
            }
            Ok(_) => polled.errors.push(describe(&MovedError { path: record.prefix.clone() })),
        }
    }

    /// Syncs the names of the staging files, before the mark. A second sync would succeed though the system has lost names, so
    /// the files count as not copied if it fails. Returns whether it has not.
    fn sync_names(
        &self,
        prefix: &Prefix,
        pending: &PendingFlush,
        records: &mut [TransferRecord],
        polled: &mut PollResult,
    ) -> bool {
        let files = self.files;
        match pending.is_done(LedgerDir { files, prefix }, records[0].node) {
            Ok(true) => return true,
            Ok(false) => (),
            Err(error) => {
                polled.postpone(&error);
                return false;
            }
        }
        let copies = records.iter().flat_map(|record| &record.copies);
        let folders = folders_of(prefix, copies.map(|copy| &*copy.staging));
        let Err(error) = sync_folders(files, prefix, folders.into_iter()) else { return true };
        records.iter_mut().for_each(|record| self.give_up(record, describe(&error), polled));
        polled.failed = true;
        false
    }

    /// The transport that copies the files of a rank. It is asked again later where it cannot be had now.
    fn transport_of(&self, record: &TransferRecord, polled: &mut PollResult) -> Option<Arc<dyn Transport>> {
        let transport = (self.open)(&record.transport, &record.transport_options);
        transport.map_err(|error| polled.postpone(&error)).ok()
    }

    /// Asks the transport, and checks what came.
    fn poll_record(&self, record: &mut TransferRecord, which: Which<'_>, polled: &mut PollResult) {
        let Some(transport) = self.transport_of(record, polled) else { return };
        let ended = match transport.poll(&record.ticket) {
            Ok(CopyState::Running(bytes)) => {
                let lifts = matches!(which, Which::To(_, true)) && record.lift_limits();
                if lifts && transport.cancel(&record.ticket).is_ok() {
                    return self.repeat(record, polled);
                }
                polled.unfinished = true;
                polled.bytes_moved = polled.bytes_moved.saturating_add(bytes);
                return;
            }
            Ok(ended) => ended,
            Err(error) => return self.postpone_poll(record, &error, polled),
        };
        let TransferRecord { transport: name, copies, ticket, options, .. } = &mut *record;
        match file_copy::take_in(self.files, (name, &*transport), ended, copies, ticket, options) {
            Ok(()) => {
                record.state = TransferState::Arrived;
                self.write(record, polled);
            }
            Err(error) => self.give_up(record, describe(&error), polled),
        }
    }

    /// The transport may answer the next time. One that never does is given up.
    fn postpone_poll(&self, record: &mut TransferRecord, error: &PluginError, polled: &mut PollResult) {
        record.unpolled += 1;
        if record.unpolled >= MOST_UNPOLLED {
            return self.give_up(record, describe(error), polled);
        }
        polled.postpone(error);
        self.write(record, polled);
    }

    /// Begins copies again: their sources are still in cache.
    fn repeat(&self, record: &mut TransferRecord, polled: &mut PollResult) {
        (record.repeated, record.unpolled) = (record.repeated + 1, 0);
        let Some(transport) = self.transport_of(record, polled) else { return };
        // One that could not be polled may be under way, and must not write to the files that are made now.
        let _ = transport.cancel(&record.ticket);
        file_copy::remove_staging(self.files, &record.copies);
        let token = format!("{}.{}.{}", record.token, record.rank, record.repeated);
        match file_copy::start(self.files, &*transport, &mut record.copies, token, &record.options) {
            Ok(ticket) => {
                (record.ticket, record.state) = (ticket, TransferState::Copying);
                polled.unfinished = true;
                self.write(record, polled);
            }
            Err(error) => self.give_up(record, describe(&error), polled),
        }
    }

    fn give_up(&self, record: &mut TransferRecord, why: String, polled: &mut PollResult) {
        polled.errors.push(format!("the files of rank {} were not flushed: {why}", record.rank));
        record.state = TransferState::Failed(why);
        self.write(record, polled);
    }

    fn write(&self, record: &TransferRecord, polled: &mut PollResult) {
        if let Err(error) = record.write(self.files, self.control) {
            polled.postpone(&error);
        }
    }

    /// All files of this node are where they should be.
    fn arrive(
        &self,
        prefix: &Prefix,
        pending: &PendingFlush,
        records: &[TransferRecord],
        polled: &mut PollResult,
    ) {
        match self.mark(prefix, pending, records) {
            // Another process is doing it.
            Ok(None) => polled.unfinished = true,
            Ok(Some(None | Some(FlushOutcome::Waiting { .. }))) => (),
            Ok(Some(Some(ended @ FlushOutcome::Finalized(_)))) => {
                polled.notices.push(ended.to_string());
                self.forget(records, polled);
            }
            Ok(Some(Some(ended))) => {
                polled.unfinished |= matches!(ended, FlushOutcome::Postponed { .. });
                polled.errors.push(ended.to_string());
            }
            Err(error) => polled.postpone(&error),
        }
    }

    /// Leaves the mark of this node, unless the flush was rolled back meanwhile, and ends the flush if it was the last one. Gives
    /// how, or `None` where somebody else ends or marks flushes just now.
    fn mark(
        &self,
        prefix: &Prefix,
        pending: &PendingFlush,
        records: &[TransferRecord],
    ) -> Result<Option<Option<FlushOutcome>>, FsError> {
        let (ledger, node) = (LedgerDir::new(self.files, prefix), records[0].node);
        if !pending.is_done(ledger, node)? {
            let marked = ledger.try_alone(|_| match pending::find(ledger, &pending.token)? {
                None => Ok::<_, FsError>(()),
                Some(found) => found.mark_done(ledger, node, &record::new_sums(records)),
            });
            if marked?.is_none() {
                return Ok(None);
            }
        }
        match pending.all_done(ledger)? {
            true => ledger.commit(self.now).end_now(&pending.token),
            false => Ok(Some(None)),
        }
    }

    /// The flush is over, successfully or not. Remaining staging files are useless.
    fn clear_away(&self, records: &[TransferRecord], polled: &mut PollResult) {
        for record in records.iter().filter(|record| record.state == TransferState::Copying) {
            let opened = (self.open)(&record.transport, &record.transport_options);
            let cancelled = opened
                .map_err(|error| describe(&error))
                .and_then(|transport| transport.cancel(&record.ticket).map_err(|error| describe(&error)));
            polled.errors.extend(cancelled.err());
        }
        for record in records {
            file_copy::remove_staging(self.files, &record.copies);
        }
        self.forget(records, polled);
    }

    fn forget(&self, records: &[TransferRecord], polled: &mut PollResult) {
        for record in records {
            let removed = record::remove(self.files, self.control, &record.token, record.rank);
            polled.errors.extend(removed.err().map(|error| describe(&error)));
        }
    }
}

/// The prefix directory of a flush is not where it was when the flush began.
#[derive(Debug, thiserror::Error)]
#[error(
    "the flush of this node to {} cannot go on: that prefix directory is not there. If its file system is away, mount it. If the directory \
     was renamed, rename it back, or start the job, or `scr poststage' on this node, with SCR_PREFIX set to the new path",
    path.display()
)]
struct MovedError {
    path: PathBuf,
}

/// How often a transport may fail to say how far a copy is.
const MOST_UNPOLLED: u32 = 100;
/// The lock of the monitor of a node, in its control directory.
const LOCK: &str = "detached.lock";
