//! A dataset on its way to the prefix directory: begun, looked at and ended. At most one is on its way while the application goes
//! on, and all ranks look at it in the same calls, so that its end is agreed upon like everything else.

use super::{Error, Session};
use crate::cache::flush_file::update_flush_file;
use crate::cache::PrefixCopy;
use crate::comm::collective::broadcast;
use crate::comm::Rank;
use crate::delete::slide_window;
use crate::flush::{self, FlushError, FlushReport, Hands, NoTransport, Started};
use crate::fs::Kind;
use crate::log::{Event, Record, Transfer};
use crate::param;
use crate::prefix::Location;
use crate::redundancy::plugins::TransportInUse;
use scr_plugin_api::Transport;
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
    pub(super) owed: bool,
    /// Whether the user knows that a transport cannot copy in the background.
    pub(super) told_synchronous: bool,
}

impl Session {
    /// Copies a dataset to the prefix directory, and returns when it is there. It stays in cache.
    pub(super) fn flush(&mut self, id: u64) -> Result<(), Error> {
        self.finish_flush()?;
        let at = self.cache.position(id).expect("the caller has it from the list");
        self.expect_prefix(at)?;
        let began = self.tell_begin(at);
        let transport: Arc<dyn Transport> = if self.cache.datasets()[at].record.protection.bypass {
            Arc::new(NoTransport)
        } else {
            self.transport_for(at)?.transport
        };
        let token = self.agreed_token(id)?;
        let flush = self.flusher(at, &*transport);
        // A watchdog allows more time for this.
        update_flush_file(&self.job, |flush| _ = flush.add_location(id, Location::SyncFlushing));
        let outcome = flush.sync(&token, &self.cache.datasets()[at].record.dataset, &self.files_to_flush(at));
        self.settle_flush(id, began, outcome, SYNC)
    }

    /// Begins to copy a dataset to the prefix directory while the application goes on. Not a byte moves before
    /// [`start_copying`](Self::start_copying).
    pub(super) fn begin_flush(&mut self, id: u64) -> Result<(), Error> {
        self.finish_flush()?;
        let at = self.cache.position(id).expect("the caller has it from the list");
        self.expect_prefix(at)?;
        let began = self.tell_begin(at);
        let transport = self.transport_for(at)?;
        let token = self.agreed_token(id)?;
        let flush = self.flusher_behind(at, &transport);
        let (dataset, mine) = (&self.cache.datasets()[at].record.dataset, self.files_to_flush(at));
        let started = if flush.detached.is_some() {
            // It must be on record when the application ends right after.
            flush.announce(&token, dataset, &mine)
        } else {
            let files = Arc::clone(&self.job.env.files);
            flush.begin(Hands { files, transport: Arc::clone(&transport.transport) }, &token, dataset, &mine)
        };
        match started {
            Ok(started) => {
                update_flush_file(&self.job, |flush| _ = flush.add_location(id, Location::Flushing));
                self.cache.datasets_mut()[at].copy = PrefixCopy::UnderWay;
                self.flushes.moving = Some(Moving { id, started, transport, began });
                Ok(())
            }
            Err(error) => self.settle_flush(id, began, Err(error), ASYNC),
        }
    }

    /// Lets the bytes move of a flush that has begun: the last thing that is done for a dataset, so that the copying takes
    /// nothing from what the application waits for. Local.
    pub(super) fn start_copying(&mut self) {
        let Some(mut moving) = self.flushes.moving.take() else { return };
        if let Some(at) = self.cache.position(moving.id) {
            self.flusher_behind(at, &moving.transport).start_copying(&mut moving.started);
        }
        self.flushes.moving = Some(moving);
    }

    /// The prefix directory must be that of the start: where its file system has gone, a folder of the same name would be
    /// made on another one. Collective.
    fn expect_prefix(&mut self, at: usize) -> Result<(), Error> {
        let job = &self.job;
        let folder = job.prefix.scr_dir();
        let here = match job.files().status(&folder) {
            _ if job.rank() != Rank(0) => Ok(()),
            Ok(status) if status.kind == Kind::Dir => Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("cannot look at {}: {error}", folder.display()))
            }
            _ => Err(format!("{} has gone since this run began", folder.display())),
        };
        job.agree(here).or_else(|error| {
            let why = error.agreed()?;
            let label = self.cache.datasets()[at].record.label();
            self.flushes.owed |= self.cache.datasets()[at].record.dataset.checkpoint;
            Err(Error::Refused(format!("{label} was not flushed: {why}; it is kept in cache")))
        })
    }

    /// Returns when a flush that was begun changes nothing any more below the prefix directory but its own files, so that its
    /// announcement does not come after what the caller does there. Local.
    pub(super) fn wait_until_recorded(&self) {
        if let Some(moving) = &self.flushes.moving {
            moving.started.wait_until_recorded(self.job.files());
        }
    }

    /// Ends the flush under way if all its bytes have arrived. Collective.
    pub(super) fn look_at_flush(&mut self) -> Result<(), Error> {
        let Some(moving) = &self.flushes.moving else { return Ok(()) };
        let Some(at) = self.cache.position(moving.id) else { return Ok(()) };
        let running = self.flusher_behind(at, &moving.transport).is_running(&moving.started);
        if running.map_err(flush_error)? {
            return Ok(());
        }
        self.finish_flush()?;
        self.cache.evict_flushed_output(&self.job);
        Ok(())
    }

    /// Lets go of a flush under way that goes on without this process, where the user wants that; gives its dataset. One that
    /// a transport could not begin on some rank stays under way. Collective.
    pub(super) fn leave_to_poststage(&mut self) -> Result<Option<u64>, Error> {
        let wanted = self.job.params.get(&param::FLUSH_POSTSTAGE);
        let Some(moving) = &self.flushes.moving else { return Ok(None) };
        let at = self.cache.position(moving.id);
        let at = at.expect("a dataset on its way leaves the list only once it has arrived");
        let flush = self.flusher_behind(at, &moving.transport);
        if !wanted
            || !moving.transport.survives_job
            || !flush.has_begun(&moving.started).map_err(flush_error)?
        {
            return Ok(None);
        }
        let label = self.cache.datasets()[at].record.label();
        self.job.report.notice(&format!("the flush of {label} goes on; scr_poststage finishes it"));
        Ok(self.flushes.moving.take().map(|moving| moving.id))
    }

    /// Flushes a dataset before the session ends. Where the user wants that, and the transport can go on without this process, it is only begun.
    pub(super) fn flush_or_leave(&mut self, id: u64) -> Result<(), Error> {
        let at = self.cache.position(id).expect("the caller has it from the list");
        let wanted = self.job.params.get(&param::FLUSH_POSTSTAGE);
        if wanted && self.goes_on_behind(at)? && self.transport_for(at)?.survives_job {
            self.begin_flush(id)?;
            self.start_copying();
            if self.leave_to_poststage()?.is_some() {
                return Ok(());
            }
        }
        self.flush(id)
    }

    /// Waits for the flush under way and ends it; how it went is told. Collective.
    pub(super) fn finish_flush(&mut self) -> Result<(), Error> {
        let Some(moving) = self.flushes.moving.take() else { return Ok(()) };
        let Moving { id, started, transport, began } = moving;
        let at =
            self.cache.position(id).expect("a dataset on its way leaves the list only once it has arrived");
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
        let at = self.cache.position(id).expect("it does not leave the list during a flush");
        self.cache.datasets_mut()[at].copy = PrefixCopy::Missing;
        let label = self.cache.datasets()[at].record.label();
        let is_checkpoint = self.cache.datasets()[at].record.dataset.checkpoint;
        let took = self.job.elapsed() - began;
        self.log_flush_end(at, took, &outcome, what);
        match outcome.map_err(flush_error) {
            Ok(report) => {
                let ranks = self.job.comm.size();
                self.job.report.info(&crate::message::throughput(
                    what,
                    took,
                    report.files,
                    report.bytes,
                    ranks,
                ));
                self.job.report.info(&format!("{what}: Flush succeeded for {label}"));
                self.cache.datasets_mut()[at].copy = PrefixCopy::Complete;
                self.flushes.owed &= !is_checkpoint;
                update_flush_file(&self.job, |flush| {
                    flush.add_location(id, Location::Prefix);
                    Location::UNDER_WAY.into_iter().for_each(|way| flush.remove_location(id, way));
                });
                if is_checkpoint {
                    slide_window(&self.job, &mut self.cache, id)?;
                }
                Ok(())
            }
            Err(error) => {
                self.job.report.info(&format!("{what}: Flush failed for {label}"));
                self.flushes.owed |= is_checkpoint;
                update_flush_file(&self.job, |flush| {
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
        let (log, record) = (&self.job.log, &self.cache.datasets()[at].record);
        let of = |event| Record::event(event).dataset(&record.dataset).took(took);
        match outcome {
            Ok(report) => {
                log.add_entry(of(Event::FlushSuccess));
                let (from, to) = (self.cache.folder_of(&self.job, record), self.job.prefix.dir());
                let kind = if what == ASYNC { Transfer::FlushAsync } else { Transfer::FlushSync };
                let moved = Record::transfer(kind, &from, to).dataset(&record.dataset);
                log.add_entry(moved.took(took).size(report.bytes, report.files));
            }
            Err(error) => log.add_entry(of(Event::FlushFail).note(crate::describe(error))),
        }
    }

    fn tell_begin(&self, at: usize) -> Duration {
        let label = self.cache.datasets()[at].record.label();
        self.job.report.info(&format!("Initiating flush of {label}"));
        self.job
            .log
            .add_entry(Record::event(Event::FlushStart).dataset(&self.cache.datasets()[at].record.dataset));
        self.job.elapsed()
    }

    /// A token for a flush, the same on all ranks.
    fn agreed_token(&self, id: u64) -> Result<String, Error> {
        let token = flush::new_token(id, &self.job.env).into_bytes();
        Ok(String::from_utf8_lossy(&broadcast(&*self.job.comm, Rank(0), token)?).into_owned())
    }
}

fn flush_error(error: FlushError) -> Error {
    match error {
        FlushError::Comm(error) => error.into(),
        failed @ FlushError::Failed { .. } => Error::Refused(failed.to_string()),
    }
}

/// What the two kinds of flushes are called in messages.
const SYNC: &str = "scr_flush_sync";
const ASYNC: &str = "scr_flush_async";
