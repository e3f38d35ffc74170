//! From cache to the prefix directory: which datasets are flushed and when, also while the application goes on, and how
//! a session ends.
//!
//! A checkpoint is due after every so many, counted over all runs; output always. What could not be flushed stays in
//! cache: output is tried again at every occasion and does not leave before, and for a checkpoint the next one
//! takes its turn. An asynchronous flush is begun when a dataset is complete and looked at in later
//! calls; all ranks look at the same calls, so its end is agreed upon like everything else.
//!
//! See the guide's "Fetch, flush, and scavenge", its "Enable asynchronous flush" and its `SCR_Finalize`.

use super::datasets::{Cached, ROOT};
use super::output::{label, speed};
use super::{Error, Phase, Session};
use crate::cache::record::FileRecord;
use crate::comm::collective::broadcast;
use crate::descriptor::{FlushBy, Store};
use crate::flush::{
    self, Behind, Flush, FlushError, FlushFile as FileToFlush, FlushReport, Hands, NoTransport, Options,
    Started,
};
use crate::fs::Kind;
use crate::log::{Event, Record};
use crate::param;
use crate::plugin::schemes::TransportInUse;
use crate::prefix::{FlushFile, Halt, Location};
use scr_plugin_api::Transport;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// A flush under way while the application computes.
pub(super) struct Moving {
    pub(super) id: u64,
    started: Started,
    transport: TransportInUse,
    began: Duration,
}

/// How flushes have gone so far.
#[derive(Default)]
pub(super) struct FlushState {
    /// The one under way; at most one, and the same on all ranks.
    pub(super) moving: Option<Moving>,
    /// Whether a checkpoint that was due could not be flushed, so that the next one is due.
    owed: bool,
    /// Whether the user knows that a transport cannot copy in the background.
    told_synchronous: bool,
}

impl Session {
    /// Ends the session: what is due is flushed, and the job is told not to start again. Collective. See the guide's
    /// `SCR_Finalize`.
    ///
    /// # Errors
    /// [`Error`]: what could not be flushed stays in cache.
    pub fn finalize(mut self) -> Result<(), Error> {
        if !matches!(self.phase, Phase::Idle) {
            self.ctx
                .report
                .warn("SCR_Finalize was called within a phase: the dataset of that phase is given up");
            if let Phase::Output(output) = std::mem::take(&mut self.phase) {
                self.drop_part(&output.record);
            }
        }
        let flushed = self.flush_last();
        self.remove_spares();
        self.halt_logged = false;
        self.log_halt(Halt::FINALIZED);
        if self.ctx.rank() == ROOT {
            let told = Halt::end(self.ctx.files(), &self.ctx.prefix, self.halt_seconds());
            if let Err(error) = told {
                self.ctx.report.error(&crate::describe(&error));
            }
        }
        flushed
    }

    /// Ends the session because a halt condition holds: what is due is flushed, and the conditions stay as they are.
    /// Collective. See the guide's section "Halt a job".
    ///
    /// # Errors
    /// [`Error`]: what could not be flushed stays in cache.
    pub fn halt(mut self) -> Result<(), Error> {
        self.flush_last()
    }

    /// Flushes what must not be lost with the cache: output that is not there yet, and the newest checkpoint.
    fn flush_last(&mut self) -> Result<(), Error> {
        let left = self.leave_to_poststage();
        self.finish_flush()?;
        let newest = self
            .cached
            .iter()
            .filter(|cached| cached.record.dataset.checkpoint && !cached.refused)
            .map(Cached::id)
            .max();
        let periodic = self.ctx.params.get(&param::FLUSH) > 0;
        let wanted = |cached: &&Cached| {
            let newest = periodic && Some(cached.id()) == newest;
            let wanted = cached.record.dataset.output || cached.record.protection.bypass || newest;
            wanted && cached.is_unflushed() && Some(cached.id()) != left
        };
        let due: Vec<u64> = self.cached.iter().filter(wanted).map(Cached::id).collect();
        let mut outcome = Ok(());
        for id in due {
            let flushed = self.flush(id);
            outcome = outcome.and(flushed);
        }
        self.release_flushed_output();
        outcome
    }

    /// Lets go of a flush under way that goes on without this process, where the user wants that; gives its dataset.
    fn leave_to_poststage(&mut self) -> Option<u64> {
        let wanted = self.ctx.params.get(&param::FLUSH_POSTSTAGE);
        let id = self.flushes.moving.take_if(|moving| wanted && moving.transport.survives_job)?.id;
        let at = self.position(id).expect("a dataset on its way leaves the list only once it has arrived");
        let label = label(&self.cached[at].record);
        self.ctx.report.notice(&format!("the flush of {label} goes on; scr_poststage finishes it"));
        Some(id)
    }

    /// Whether a dataset is to be flushed as soon as it is complete.
    fn is_flush_due(&self, at: usize) -> bool {
        let dataset = &self.cached[at].record.dataset;
        let every = self.ctx.params.get(&param::FLUSH);
        let turn = every > 0 && dataset.checkpoint_id.is_some_and(|checkpoint| checkpoint % every == 0);
        let periodic = dataset.checkpoint && (turn || every > 0 && self.flushes.owed);
        // In bypass mode the files are in place, and only an entry in the index makes them count.
        dataset.output || self.cached[at].record.protection.bypass || periodic
    }

    /// What comes of a dataset that has just become complete, and of output that could not be flushed before. Where a
    /// dataset is of use only in the prefix directory, as output and in bypass mode, it makes the call fail that it is not
    /// safe there; a checkpoint is safe in cache, and that it is nowhere else is told.
    pub(super) fn flush_complete(&mut self, id: u64) -> Result<(), Error> {
        self.look_at_flush()?;
        self.retry_output(id)?;
        let at = self.position(id).expect("the caller has just put it into the list");
        if !self.is_flush_due(at) {
            return Ok(());
        }
        let record = &self.cached[at].record;
        let must_arrive = record.dataset.output || record.protection.bypass;
        let flushed = if self.goes_on_behind(at)? { self.begin_flush(id) } else { self.flush(id) };
        self.told_unless(must_arrive, flushed)
    }

    /// What earlier runs of the job have left in cache is flushed where it is due, or where the settings want it: the
    /// guide's `SCR_FLUSH_ON_RESTART` and `SCR_GLOBAL_RESTART`. The application waits.
    pub(super) fn flush_restored(&mut self) -> Result<(), Error> {
        self.compare_flushed()?;
        let params = &self.ctx.params;
        let all = params.get(&param::FLUSH_ON_RESTART) || params.get(&param::GLOBAL_RESTART);
        let wanted = (0..self.cached.len()).filter(|&at| {
            let cached = &self.cached[at];
            cached.is_unflushed() && !cached.refused && (all || self.is_flush_due(at))
        });
        let due: Vec<u64> = wanted.map(|at| self.cached[at].id()).collect();
        for id in due {
            let flushed = self.flush(id);
            self.told_unless(false, flushed)?;
        }
        self.release_flushed_output();
        Ok(())
    }

    /// Output that could not be flushed when its turn was.
    fn retry_output(&mut self, except: u64) -> Result<(), Error> {
        let moving = self.flushes.moving.as_ref().map(|moving| moving.id);
        let left = self.cached.iter().filter(|cached| cached.must_stay());
        let left: Vec<u64> = left.map(Cached::id).filter(|&id| id != except && Some(id) != moving).collect();
        for id in left {
            let flushed = self.flush(id);
            self.told_unless(false, flushed)?;
        }
        Ok(())
    }

    /// Tells what went wrong instead of failing, unless the caller's dataset has to be safe now.
    fn told_unless(&self, fails: bool, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Err(Error::Refused(why)) if !fails => {
                self.ctx.report.error(&why);
                Ok(())
            }
            other => other,
        }
    }

    /// Output-only datasets leave the cache once they are flushed.
    pub(super) fn release_flushed_output(&mut self) {
        let moving = self.flushes.moving.as_ref().map(|moving| moving.id);
        while let Some(at) = self.cached.iter().position(|cached| {
            let dataset = &cached.record.dataset;
            let stays = cached.is_unflushed() || Some(cached.id()) == moving;
            !stays && dataset.output && !dataset.checkpoint
        }) {
            self.evict(at);
        }
    }

    /// Copies a dataset to the prefix directory, and returns when it is there. It stays in cache.
    pub(super) fn flush(&mut self, id: u64) -> Result<(), Error> {
        self.finish_flush()?;
        let at = self.position(id).expect("the caller has it from the list");
        self.expect_prefix(at)?;
        let began = self.tell_begin(at);
        let transport: Arc<dyn Transport> = if self.cached[at].record.protection.bypass {
            Arc::new(NoTransport)
        } else {
            self.transport_for(at)?.transport
        };
        let token = self.agreed_token(id)?;
        let flush = self.flusher(at, &*transport);
        // A watchdog allows more time for this.
        self.note(id, |flush, id| _ = flush.add_location(id, Location::SyncFlushing));
        let outcome = flush.sync(&token, &self.cached[at].record.dataset, &self.files_to_flush(at));
        self.settle_flush(id, began, outcome, SYNC)
    }

    /// Begins to copy a dataset to the prefix directory while the application goes on. Not a byte moves before
    /// [`set_off_flush`](Self::set_off_flush).
    fn begin_flush(&mut self, id: u64) -> Result<(), Error> {
        self.finish_flush()?;
        let at = self.position(id).expect("the caller has it from the list");
        self.expect_prefix(at)?;
        let began = self.tell_begin(at);
        let transport = self.transport_for(at)?;
        let token = self.agreed_token(id)?;
        let flush = self.flusher_behind(at, &transport);
        let (dataset, mine) = (&self.cached[at].record.dataset, self.files_to_flush(at));
        let started = if flush.behind.is_some() {
            // It must be on record when the application ends right after.
            flush.announce(&token, dataset, &mine)
        } else {
            let files = Arc::clone(&self.ctx.env.files);
            flush.begin(Hands { files, transport: Arc::clone(&transport.transport) }, &token, dataset, &mine)
        };
        match started {
            Ok(started) => {
                self.note(id, |flush, id| _ = flush.add_location(id, Location::Flushing));
                self.flushes.moving = Some(Moving { id, started, transport, began });
                Ok(())
            }
            Err(error) => self.settle_flush(id, began, Err(error), ASYNC),
        }
    }

    /// Lets the bytes move of a flush that has begun: the last thing that is done for a dataset, so that the copying takes
    /// nothing from what the application waits for. Local.
    pub(super) fn set_off_flush(&mut self) {
        let Some(mut moving) = self.flushes.moving.take() else { return };
        if let Some(at) = self.position(moving.id) {
            self.flusher_behind(at, &moving.transport).set_off(&mut moving.started);
        }
        self.flushes.moving = Some(moving);
    }

    /// The prefix directory must be that of the start: where its file system has gone, a folder of the same name would be
    /// made on another one. Collective.
    fn expect_prefix(&mut self, at: usize) -> Result<(), Error> {
        let ctx = &self.ctx;
        let folder = ctx.prefix.scr_dir();
        let here = match ctx.files().status(&folder) {
            _ if ctx.rank() != ROOT => Ok(()),
            Ok(status) if status.kind == Kind::Dir => Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("cannot look at {}: {error}", folder.display()))
            }
            _ => Err(format!("{} has gone since this run began", folder.display())),
        };
        ctx.agree(here)?.map_err(|why| {
            let label = label(&self.cached[at].record);
            self.flushes.owed |= self.cached[at].record.dataset.checkpoint;
            Error::Refused(format!("{label} was not flushed: {why}; it is kept in cache"))
        })
    }

    /// Returns when a flush that was begun changes nothing any more below the prefix directory but its own files, so that its announcement does not
    /// come after what the caller does there. Local.
    pub(super) fn wait_until_announced(&self) {
        if let Some(moving) = &self.flushes.moving {
            moving.started.wait_until_announced(self.ctx.files());
        }
    }

    /// Ends the flush under way if all its bytes have arrived. Collective.
    pub(super) fn look_at_flush(&mut self) -> Result<(), Error> {
        let Some(moving) = &self.flushes.moving else { return Ok(()) };
        let Some(at) = self.position(moving.id) else { return Ok(()) };
        let running = self.flusher_behind(at, &moving.transport).is_running(&moving.started);
        if running.map_err(flush_error)? {
            return Ok(());
        }
        self.finish_flush()?;
        self.release_flushed_output();
        Ok(())
    }

    /// Waits for the flush under way and ends it; how it went is told. Collective.
    pub(super) fn finish_flush(&mut self) -> Result<(), Error> {
        let Some(moving) = self.flushes.moving.take() else { return Ok(()) };
        let Moving { id, started, transport, began } = moving;
        let at = self.position(id).expect("a dataset on its way leaves the list only once it has arrived");
        let outcome = self.flusher_behind(at, &transport).finish(started);
        let settled = self.settle_flush(id, began, outcome, ASYNC);
        self.told_unless(false, settled)
    }

    /// The same for one dataset, which is about to leave.
    pub(super) fn finish_flush_of(&mut self, id: u64) -> Result<(), Error> {
        if self.flushes.moving.as_ref().is_some_and(|moving| moving.id == id) {
            return self.finish_flush();
        }
        Ok(())
    }

    /// Notes and tells how a flush has ended.
    fn settle_flush(
        &mut self,
        id: u64,
        began: Duration,
        outcome: Result<FlushReport, FlushError>,
        what: &str,
    ) -> Result<(), Error> {
        let at = self.position(id).expect("it does not leave the list during a flush");
        let label = label(&self.cached[at].record);
        let is_checkpoint = self.cached[at].record.dataset.checkpoint;
        let took = self.ctx.elapsed() - began;
        self.log_flush_end(at, took, &outcome, what);
        match outcome.map_err(flush_error) {
            Ok(report) => {
                let ranks = self.ctx.comm.size();
                self.ctx.report.info(&speed(what, took, report.files, report.bytes, ranks));
                self.ctx.report.info(&format!("{what}: Flush succeeded for {label}"));
                self.cached[at].flushed = true;
                self.flushes.owed &= !is_checkpoint;
                self.note(id, |flush, id| {
                    flush.add_location(id, Location::Prefix);
                    Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(id, way));
                });
                if is_checkpoint {
                    self.slide_window(id)?;
                }
                Ok(())
            }
            Err(error) => {
                self.ctx.report.info(&format!("{what}: Flush failed for {label}"));
                self.flushes.owed |= is_checkpoint;
                self.note(id, |flush, id| {
                    Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(id, way));
                });
                Err(error)
            }
        }
    }

    fn log_flush_end(
        &self,
        at: usize,
        took: Duration,
        outcome: &Result<FlushReport, FlushError>,
        what: &str,
    ) {
        let why = outcome.as_ref().err().map(|error| crate::describe(error));
        let logged = match (outcome, &why) {
            (Ok(report), _) => Ok((report.files, report.bytes)),
            (Err(_), why) => Err(why.as_deref().unwrap_or_default()),
        };
        self.log_flush(&self.cached[at].record, took, logged, what == ASYNC);
    }

    fn tell_begin(&self, at: usize) -> Duration {
        let label = label(&self.cached[at].record);
        self.ctx.report.info(&format!("Initiating flush of {label}"));
        self.ctx.log.add_entry(Record::event(Event::FlushStart).dataset(&self.cached[at].record.dataset));
        self.ctx.elapsed()
    }

    /// A token for a flush, the same on all ranks.
    fn agreed_token(&self, id: u64) -> Result<String, Error> {
        let token = flush::new_token(id, &self.ctx.env).into_bytes();
        Ok(String::from_utf8_lossy(&broadcast(&*self.ctx.comm, ROOT, token)?).into_owned())
    }

    fn files_to_flush(&self, at: usize) -> Vec<FileToFlush> {
        let cached = &self.cached[at];
        cached.record.files.iter().map(|file| to_flush(cached, file)).collect()
    }

    fn flusher<'a>(&'a self, at: usize, transport: &'a dyn Transport) -> Flush<'a> {
        let (ctx, cached) = (&self.ctx, &self.cached[at]);
        Flush {
            comm: &*ctx.comm,
            files: ctx.files(),
            transport,
            node: ctx.nodes.name(ctx.rank()),
            prefix: &ctx.prefix,
            now: ctx.local_time(),
            options: Options {
                width: ctx.params.get(&param::FLUSH_WIDTH),
                block_bytes: ctx.params.get(&param::FILE_BUF_SIZE),
                checksums: ctx.params.get(&param::CRC_ON_FLUSH),
                in_place: cached.record.protection.bypass,
                make_current: cached.record.dataset.checkpoint,
                metadata: ctx.params.get(&param::COPY_METADATA),
                owner: ctx.params.get(&param::COPY_METADATA) && ctx.env.uid == ROOT_USER,
                own_folders: ctx.params.get(&param::AXL_MKDIR),
                may_replace: cached.may_replace,
            },
            behind: None,
        }
    }

    /// For a flush during which the application goes on; where the transport can, it also goes on without it.
    fn flusher_behind<'a>(&'a self, at: usize, transport: &'a TransportInUse) -> Flush<'a> {
        let ctx = &self.ctx;
        let (nodes, me) = (&ctx.nodes, ctx.rank());
        let behind = transport.survives_job.then(|| Behind {
            control: &ctx.control,
            transport: &transport.name,
            transport_options: &transport.options,
            shared: &transport.transport,
            node: nodes.numbers()[me.index()],
            nodes: u32::try_from(nodes.count()).unwrap_or(u32::MAX),
            mates: nodes.mates(me),
            pause: Duration::from_micros(ctx.params.get(&param::FLUSH_ASYNC_USLEEP)),
        });
        Flush { behind, ..self.flusher(at, &*transport.transport) }
    }

    /// Whether a dataset can be flushed while the application goes on, and the user wants that.
    fn goes_on_behind(&mut self, at: usize) -> Result<bool, Error> {
        if !self.ctx.params.get(&param::FLUSH_ASYNC) || self.cached[at].record.protection.bypass {
            return Ok(false);
        }
        let wanted = self.flush_by(self.cached[at].store);
        let asynchronous = self.ctx.transport(&wanted)?.is_ok_and(|transport| transport.asynchronous);
        if !asynchronous && !std::mem::replace(&mut self.flushes.told_synchronous, true) {
            self.ctx.report.warn(&format!(
                "SCR_FLUSH_ASYNC=1 has no effect with the transport {}, which copies only while the application \
                 waits; set SCR_FLUSH_TYPE to one that does not, such as PTHREAD",
                wanted.transport
            ));
        }
        Ok(asynchronous)
    }

    fn transport_for(&mut self, at: usize) -> Result<TransportInUse, Error> {
        let cached = &self.cached[at];
        let why = match self.ctx.transport(&self.flush_by(cached.store))? {
            Ok(transport) => return Ok(transport),
            Err(why) => why,
        };
        let label = label(&cached.record);
        self.flushes.owed |= cached.record.dataset.checkpoint;
        Err(Error::Refused(format!("{label} cannot be flushed: {why}; it is kept in cache")))
    }

    /// The transport of a store, which may be one that is no longer described.
    fn flush_by(&self, store: usize) -> FlushBy {
        let name = &self.ctx.stores[store].name;
        let described = self.ctx.descriptors.stores.iter().find(|known| known.name == *name);
        described.map_or_else(
            || FlushBy {
                transport: self.ctx.params.get(&param::FLUSH_TYPE),
                options: BTreeMap::new(),
                origin: self.ctx.params.origin(&param::FLUSH_TYPE).clone(),
            },
            Store::flush_by,
        )
    }

    /// Notes in the flush file that a dataset is in cache, and in the same step that another one is about to leave: the
    /// file is on the parallel file system, and it is synced.
    pub(super) fn note_in_cache(&mut self, at: usize, leaving: Option<u64>) {
        let dataset = self.cached[at].record.dataset.clone();
        self.note(dataset.id, |flush, _| {
            flush.record(&dataset, Location::Cache);
            leaving.into_iter().for_each(|id| flush.remove_location(id, Location::Cache));
        });
        self.cached[at].listed = true;
        let leaving = leaving.and_then(|id| self.position(id));
        leaving.into_iter().for_each(|at| self.cached[at].listed = false);
    }

    /// Notes in the flush file that a dataset is not in cache any more.
    pub(super) fn forget_in_cache(&self, cached: &Cached) {
        if cached.listed {
            self.note(cached.id(), |flush, id| flush.remove_location(id, Location::Cache));
        }
    }

    /// The flush file is for the commands: where it cannot be written, the session goes on.
    pub(super) fn note(&self, id: u64, change: impl FnOnce(&mut FlushFile, u64)) {
        if self.ctx.rank() != ROOT {
            return;
        }
        let noted = FlushFile::update(self.ctx.files(), &self.ctx.prefix, |flush| change(flush, id));
        if let Err(error) = noted {
            self.ctx.report.error(&crate::describe(&error));
        }
    }
}

fn flush_error(error: FlushError) -> Error {
    match error {
        FlushError::Comm(error) => error.into(),
        failed @ FlushError::Failed { .. } => Error::Refused(failed.to_string()),
    }
}

fn to_flush(cached: &Cached, file: &FileRecord) -> FileToFlush {
    FileToFlush {
        source: cached.part.file(&file.name),
        name: file.name.clone(),
        bytes: file.bytes,
        crc: file.crc,
        mode: file.mode,
        mtime: file.mtime,
    }
}

/// Who may give files to other users.
const ROOT_USER: u32 = 0;
/// What the two kinds of flushes are called in messages.
const SYNC: &str = "scr_flush_sync";
const ASYNC: &str = "scr_flush_async";
