//! All flushes of a run: those under way, those that could not be closed, and whether to retry one.
//!
//! Any number may be under way while the application computes, and they end in any order. All ranks poll them in the same calls,
//! and so agree on their end. The application waits for one only when the cache needs the room of its dataset, when a new
//! dataset has a file of the same name, or when the run ends.

use super::folder_owners::Sums;
use super::running::RunningFlush;
use super::{aggregate, new_token, policy, Flush, FlushError, FlushReport, ToFlush};
use crate::cache::flush_file::News;
use crate::cache::loss::{visible_loss, Lost};
use crate::cache::record::RankRecord;
use crate::cache::{Cache, CachedDataset};
use crate::error::{Doing as _, Error};
use crate::holdings::{due, InPrefix, When};
use crate::job::{Job, Said};
use crate::log::{Event, Record, Transfer};
use crate::redundancy::plugins::TransportInUse;
use crate::redundancy::schemes::Schemes;
use crate::typed::broadcast_value;
use scr_base::message::throughput;
use scr_comm::collective::broadcast;
use scr_comm::{CommError, Rank};
use scr_config::param;
use scr_prefix::commit::CloseOutcome;
use scr_prefix::ledger::pending::PendingFlush;
use scr_prefix::{Index, PrefixError, Withdrawal};
use std::time::Duration;

/// The surroundings that flushes work with.
pub(crate) struct FlushSite<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cache: &'a mut Cache,
    pub(crate) schemes: &'a Schemes,
}

/// All flushes of a run; the same on all ranks.
#[derive(Default)]
pub(crate) struct Flushes {
    /// In the order in which they were begun.
    running: Vec<Copying>,
    /// Those whose bytes have all arrived, but that could not be closed, with the ids of their datasets in cache.
    unfinished: Vec<(u64, PendingFlush)>,
    /// The ids there of checkpoints that have become complete in the prefix directory since the caller has last asked.
    pub(crate) flushed: Vec<u64>,
    /// Whether a checkpoint that was due could not be flushed, so that the next one is due.
    retry_pending: bool,
    /// Which checkpoints are flushed where the run plans that itself.
    planned: Option<Planned>,
}

/// One of `every` checkpoints is flushed, counted from the last that was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    every: u64,
    last: u64,
}

impl Planned {
    pub(super) fn is_due(self, checkpoint: u64) -> bool {
        checkpoint.saturating_sub(self.last) >= self.every
    }
}

/// A flush under way while the application computes.
struct Copying {
    id: u64,
    run: RunningFlush,
    transport: TransportInUse,
    began: Duration,
}

/// A flush that has ended.
#[derive(Clone, Copy)]
struct Ended<'a> {
    /// The dataset in cache.
    id: u64,
    record: &'a PendingFlush,
    took: Duration,
    kind: Transfer,
}

impl Flushes {
    /// From here on one of `every` checkpoints is flushed, counted from the last that was, or else from `checkpoint`.
    pub(crate) fn flush_one_of(&mut self, every: u64, checkpoint: u64) {
        let last = self.planned.map_or(checkpoint, |planned| planned.last);
        self.planned = Some(Planned { every, last });
    }

    /// Flushes a dataset that has just become complete, if it is due, and output that could not be flushed before. If a dataset
    /// is of use only in the prefix directory, the call fails when it does not get there; a checkpoint is safe in cache, so there
    /// an error is only reported. Collective.
    pub(crate) fn flush_complete(&mut self, site: &mut FlushSite<'_>, id: u64) -> Result<(), Error> {
        self.poll(site)?;
        for other in due(&site.cache.holdings(), When::Again).into_iter().filter(|&other| other != id) {
            let flushed = self.flush(site, other);
            report_only(site.job, flushed)?;
        }
        let cached = dataset(site.cache, id);
        if !policy::is_due(site.job, &cached.record, self.planned, self.retry_pending) {
            return Ok(());
        }
        let number = cached.record.dataset.checkpoint_id;
        self.planned.iter_mut().for_each(|planned| planned.last = number.unwrap_or(planned.last));
        let must_arrive = policy::must_arrive(&cached.record);
        let flushed = if Self::is_async(site, id)? {
            self.copy(site, id, Transfer::FlushAsync)
        } else {
            self.flush(site, id)
        };
        if must_arrive {
            flushed
        } else {
            report_only(site.job, flushed)
        }
    }

    /// Whether the application waits for the flush of a new dataset as soon as it is complete.
    pub(crate) fn will_wait_for(&self, job: &Job, record: &RankRecord) -> bool {
        let is_due = policy::is_due(job, record, self.planned, self.retry_pending);
        policy::must_arrive(record) || is_due && !job.params.get(&param::FLUSH_ASYNC)
    }

    /// Flushes what earlier runs of the job have left in cache, if it is due or the settings want it. The application waits, but
    /// for asynchronous flushes of a recovery, unless the settings ask for them first: see
    /// [`flush_recovered`](Self::flush_recovered). Collective.
    pub(crate) fn flush_restored(&mut self, site: &mut FlushSite<'_>) -> Result<(), Error> {
        aggregate::remove_leftovers(site.job, site.cache);
        for id in policy::due_at_start(site.job, site.cache) {
            if site.job.is_recovery && !policy::flushes_all_first(site.job) && Self::is_async(site, id)? {
                continue;
            }
            if let Some(cached) = site.cache.dataset(id) {
                let label = cached.record.label();
                site.job.report.notice(&format!("waiting for the flush of {label}, left by an earlier run"));
            }
            let flushed = self.flush(site, id);
            report_only(site.job, flushed)?;
        }
        site.cache.evict_flushed_output(site.job);
        Ok(())
    }

    /// After a recovery, which is in a hurry, begins anew the asynchronous flushes that the loss of a rank has ended, once it is
    /// known what the run restarts from. Collective.
    pub(crate) fn flush_recovered(&mut self, site: &mut FlushSite<'_>) -> Result<(), Error> {
        for id in policy::due_at_start(site.job, site.cache) {
            let is_wanted = site.cache.dataset(id).is_some_and(|cached| !cached.is_gone_back_over());
            if site.job.is_recovery && is_wanted && Self::is_async(site, id)? {
                let begun = self.copy(site, id, Transfer::FlushAsync);
                report_only(site.job, begun)?;
            }
        }
        self.start_copying(site);
        Ok(())
    }

    /// Flushes what must not be lost with the cache, before the run ends, and waits for all flushes; those of a transport that
    /// continues without the application are left to `scr poststage` where the user wants that. Collective.
    pub(crate) fn flush_last(&mut self, site: &mut FlushSite<'_>) -> Result<(), Error> {
        let mut left = self.leave_to_poststage(site)?;
        self.finish_all(site)?;
        let wanted = site.job.params.get(&param::FLUSH_POSTSTAGE);
        let mut outcome = Ok(());
        for id in policy::due_at_end(site.job, site.cache) {
            if left.contains(&id) || site.cache.dataset(id).is_none() {
                continue;
            }
            let survives = |of: TransportInUse| of.survives_job;
            let detaches =
                wanted && Self::is_async(site, id)? && self.transport_of(site, id, true).is_ok_and(survives);
            let mut flushed = Ok(());
            if detaches {
                flushed = self.copy(site, id, Transfer::FlushAsync);
                self.start_copying(site);
                left.extend(self.leave_to_poststage(site)?);
            }
            if flushed.is_ok() && !left.contains(&id) {
                flushed = self.finish_all(site).and_then(|()| {
                    match site.cache.dataset(id).is_none_or(|cached| cached.prefix.is_whole()) {
                        true => Ok(()),
                        false => self.flush(site, id),
                    }
                });
            }
            outcome = outcome.and(flushed);
        }
        site.cache.offer(None);
        site.cache.evict_flushed_output(site.job);
        outcome
    }

    /// Flushes what must not be lost with the cache, before it leaves a store that is full. Gives whether all of it is safe; what
    /// is not is reported. Collective.
    pub(crate) fn flush_before_loss(&mut self, site: &mut FlushSite<'_>) -> Result<bool, Error> {
        let finished = self.finish_all(site);
        report_only(site.job, finished)?;
        for id in policy::due_at_end(site.job, site.cache) {
            let flushed = self.flush(site, id);
            report_only(site.job, flushed)?;
        }
        Ok(policy::due_at_end(site.job, site.cache).is_empty())
    }

    /// Closes the flushes that have arrived. Collective.
    pub(crate) fn poll(&mut self, site: &mut FlushSite<'_>) -> Result<(), Error> {
        for token in self.unfinished.iter().map(|(_, record)| record.token.clone()).collect::<Vec<_>>() {
            self.retry_closing(site, &token)?;
        }
        for id in self.running.iter().map(|copying| copying.id).collect::<Vec<_>>() {
            let Some(copying) = self.running.iter().find(|copying| copying.id == id) else { continue };
            if !flush_of(site, id, &copying.transport).is_running(&copying.run)? {
                self.finish(site, id)?;
            }
        }
        site.cache.evict_flushed_output(site.job);
        Ok(())
    }

    /// Lets the flushes that have begun copy: the last thing that is done for a dataset, so that the copying takes nothing from
    /// what the application waits for. Local.
    pub(crate) fn start_copying(&mut self, site: &FlushSite<'_>) {
        for copying in &mut self.running {
            flush_of(site, copying.id, &copying.transport).start_copying(&mut copying.run);
        }
    }

    /// Returns when no flush under way changes anything any more below the prefix directory but its own staging files, so that
    /// its record does not come after what the caller does there. Local.
    pub(crate) fn wait_until_recorded(&self, job: &Job) {
        self.running.iter().for_each(|copying| copying.run.wait_until_recorded(job.files()));
    }

    /// Waits for the flush of a dataset, if one is under way, and closes it. Reports how it went. Collective.
    pub(crate) fn finish(&mut self, site: &mut FlushSite<'_>, id: u64) -> Result<(), Error> {
        let Some(place) = self.running.iter().position(|copying| copying.id == id) else { return Ok(()) };
        let Copying { run, transport, began, .. } = self.running.remove(place);
        let record = run.record.clone();
        let outcome = flush_of(site, id, &transport).finish(run);
        let (took, kind) = (site.job.elapsed() - began, Transfer::FlushAsync);
        let outcome = self.record_end(site, Ended { id, record: &record, took, kind }, outcome);
        report_only(site.job, outcome)
    }

    /// The same for a dataset that is to leave the cache, for want of room. Collective.
    pub(crate) fn finish_for_room(&mut self, site: &mut FlushSite<'_>, id: u64) -> Result<(), Error> {
        let Some(copying) = self.running.iter().find(|copying| copying.id == id) else { return Ok(()) };
        if flush_of(site, id, &copying.transport).is_running(&copying.run)? {
            site.job.report.notice(&format!(
                "waiting for the flush of {}: the cache needs its room",
                dataset(site.cache, id).record.label()
            ));
        }
        self.finish(site, id)
    }

    /// The same for all of them. Collective.
    pub(crate) fn finish_all(&mut self, site: &mut FlushSite<'_>) -> Result<(), Error> {
        while let Some(copying) = self.running.first() {
            self.finish(site, copying.id)?;
        }
        Ok(())
    }

    /// Takes back the flushes of a name, of this run and of others: the application does not want the dataset any more.
    /// Collective.
    ///
    /// # Errors
    /// One could not be taken back, and would list the dataset again.
    pub(crate) fn abandon(&mut self, job: &Job, name: &[u8]) -> Result<(), Error> {
        let abandoned = job.do_on_first(|| job.ledger().abandon(|dataset| dataset.name == name));
        abandoned.doing(format_args!("ending the flushes of `{}'", String::from_utf8_lossy(name)))?;
        self.unfinished.retain(|(_, record)| record.dataset.name != name);
        Ok(())
    }

    /// Copies a dataset to the prefix directory, and returns when it is there. It stays in cache. One that has given its files to
    /// another, which was flushed before it, is not there any more. Collective.
    fn flush(&mut self, site: &mut FlushSite<'_>, id: u64) -> Result<(), Error> {
        if site.cache.dataset(id).is_none() {
            return Ok(());
        }
        let unfinished = self.unfinished.iter().find(|(other, _)| *other == id);
        if let Some(token) = unfinished.map(|(_, record)| record.token.clone()) {
            match self.retry_closing(site, &token)? {
                CloseOutcome::TakenBack => (),
                CloseOutcome::Complete => return Ok(()),
                CloseOutcome::Unfinished(why) => {
                    let dataset = dataset(site.cache, id).record.dataset.name_text();
                    return Err(FlushError::Unfinished { dataset, why }.into());
                }
            }
        }
        self.copy(site, id, Transfer::FlushSync)
    }

    /// Copies a dataset to the prefix directory, or begins to while the application continues: then not a byte is copied before
    /// [`start_copying`](Self::start_copying). Collective.
    fn copy(&mut self, site: &mut FlushSite<'_>, id: u64, kind: Transfer) -> Result<(), Error> {
        let Some(token) = self.token_for(site, id)? else { return Ok(()) };
        self.finish_overlapping(site, id)?;
        give_files_to(site, id)?;
        let began = report_begin(site, id);
        let is_async = kind == Transfer::FlushAsync;
        let transport = self.transport_of(site, id, is_async)?;
        if !is_async {
            let listed = dataset(site.cache, id).record.dataset.id;
            site.cache.list(site.job, News::FlushInCall(listed));
        }
        let cached = dataset(site.cache, id);
        let transport = transport.watched(site.job, &cached.record);
        let mut dataset = cached.record.dataset.clone();
        let (mine, detaches) = (policy::files_of(cached), is_async && transport.survives_job);
        let (mine, sums) = aggregate::sources(site.job, site.cache, cached, &mut dataset, mine, detaches)?;
        let is_news = dataset.aggregated && cached.record.files.iter().any(|file| file.crc.is_none());
        if dataset.aggregated && site.job.any(is_news)? {
            record_sums(site, id, &sums)?;
        }
        let cached = self::dataset(site.cache, id);
        let (flush, what) =
            (flush_of(site, id, &transport), ToFlush { token: &token, dataset: &dataset, mine: &mine });
        let outcome = match is_async {
            false => flush.sync(what, &|| _ = cached.record_refused(site.job)),
            true => match flush.begin(what) {
                Ok(run) => {
                    set_copy(site.cache, id, InPrefix::begin);
                    site.cache.list(site.job, News::None);
                    self.running.push(Copying { id, run, transport, began });
                    return Ok(());
                }
                Err(error) => Err(error),
            },
        };
        let (record, took) = (flush.pending(what, 1), site.job.elapsed() - began);
        self.record_end(site, Ended { id, record: &record, took, kind }, outcome)
    }

    /// Waits for the flushes under way that write a file of this dataset, or have its name: the newer one has to come last.
    fn finish_overlapping(&mut self, site: &mut FlushSite<'_>, id: u64) -> Result<(), Error> {
        if self.running.is_empty() {
            return Ok(());
        }
        let cached = dataset(site.cache, id);
        let runs: Vec<&RunningFlush> = self.running.iter().map(|copying| &copying.run).collect();
        let names = cached.record.files.iter().map(|file| &file.name);
        let overlapping = RunningFlush::overlapping(&*site.job.comm, &runs, &cached.record.dataset, names)?;
        let ids: Vec<u64> = overlapping.into_iter().map(|place| self.running[place].id).collect();
        for other in ids {
            site.job.report.notice(&format!(
                "waiting for the flush of {}: {} has a file of the same name",
                dataset(site.cache, other).record.label(),
                dataset(site.cache, id).record.label()
            ));
            self.finish(site, other)?;
        }
        Ok(())
    }

    /// Releases the flushes under way that continue without this process, if the user wants that, and gives their datasets. One
    /// that a transport could not start on some rank stays under way. Collective.
    fn leave_to_poststage(&mut self, site: &mut FlushSite<'_>) -> Result<Vec<u64>, Error> {
        let mut left = Vec::new();
        if !site.job.params.get(&param::FLUSH_POSTSTAGE) {
            return Ok(left);
        }
        for copying in self.running.iter().filter(|copying| copying.transport.survives_job) {
            if flush_of(site, copying.id, &copying.transport).is_started(&copying.run)? {
                let label = dataset(site.cache, copying.id).record.label();
                site.job.report.notice(&format!("the flush of {label} continues; scr_poststage finishes it"));
                left.push(copying.id);
            }
        }
        self.running.retain(|copying| !left.contains(&copying.id));
        Ok(left)
    }

    /// Whether a dataset can be flushed while the application continues, and the user wants that.
    fn is_async(site: &FlushSite<'_>, id: u64) -> Result<bool, Error> {
        let cached = dataset(site.cache, id);
        if !site.job.params.get(&param::FLUSH_ASYNC) || cached.record.protection.bypass {
            return Ok(false);
        }
        // If it cannot be used at all, the flush says why.
        let transport = match policy::transport_of(site.job, site.cache, site.schemes, cached, true) {
            Ok(transport) => transport,
            Err(error) => return Ok(error.agreed().map(|_| true)?),
        };
        if !transport.asynchronous && site.job.is_news(Said::Synchronous) {
            site.job.report.warn(&format!(
                "SCR_FLUSH_ASYNC=1 has no effect with the transport {}, which copies only while the application \
                 waits; set SCR_FLUSH_TYPE to one that does not, such as PTHREAD",
                transport.name
            ));
        }
        Ok(transport.asynchronous)
    }

    fn transport_of(&mut self, site: &FlushSite<'_>, id: u64, behind: bool) -> Result<TransportInUse, Error> {
        let cached = dataset(site.cache, id);
        policy::transport_of(site.job, site.cache, site.schemes, cached, behind).or_else(|error| {
            let why = error.agreed()?;
            self.retry_pending |= cached.record.dataset.checkpoint;
            let label = cached.record.label();
            Err(Error::Refused(format!("{label} cannot be flushed: {why}; {}", fate(site, id)?)))
        })
    }

    /// A token for the flush of a dataset, the same on all ranks; `None` if a command has dropped the dataset, which leaves the
    /// cache then. The prefix directory must be that of the start on each node: if its file system has gone, a folder of the same
    /// name would be made on another one. Collective.
    fn token_for(&mut self, site: &mut FlushSite<'_>, id: u64) -> Result<Option<String>, Error> {
        let (job, cached) = (site.job, dataset(site.cache, id));
        let mut is_dropped = false;
        let looked = job.on_each_node(|| {
            is_dropped = was_dropped(job, cached)?;
            Ok(())
        });
        looked.or_else(|error| {
            let why = error.agreed()?;
            self.retry_pending |= cached.record.dataset.checkpoint;
            let label = cached.record.label();
            Err(Error::Refused(format!("{label} was not flushed: {why}; {}", fate(site, id)?)))
        })?;
        let token = if is_dropped { String::new() } else { new_token(id, job.env.clock.now()) };
        // That of rank 0 counts.
        let token = broadcast(&*job.comm, Rank(0), token.into_bytes())?;
        if token.is_empty() {
            remove_dropped(site, id)?;
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&token).into_owned()))
    }

    /// Tries again to close a flush whose bytes have all arrived. Collective.
    fn retry_closing(&mut self, site: &mut FlushSite<'_>, token: &str) -> Result<CloseOutcome, Error> {
        let Some(place) = self.unfinished.iter().position(|(_, record)| record.token == token) else {
            return Ok(CloseOutcome::TakenBack);
        };
        let (job, (id, record)) = (site.job, self.unfinished[place].clone());
        let outcome = (job.rank() == Rank(0)).then(|| job.commit().resolve(&record));
        let outcome = broadcast_value(&*job.comm, outcome)?;
        match &outcome {
            CloseOutcome::Unfinished(_) => (),
            CloseOutcome::TakenBack => self.retry_pending |= record.dataset.checkpoint,
            CloseOutcome::Complete => {
                let report = FlushReport {
                    files: record.dataset.files.unwrap_or(0),
                    bytes: record.dataset.bytes.unwrap_or(0),
                    sums: None,
                };
                let (took, kind) = (Duration::ZERO, Transfer::FlushSync);
                self.record_success(site, Ended { id, record: &record, took, kind }, &report);
            }
        }
        if !matches!(outcome, CloseOutcome::Unfinished(_)) {
            self.unfinished.remove(place);
        }
        mark_replaced(site, id)?;
        Ok(outcome)
    }

    /// Records and reports how a flush has ended. However it did, it may have replaced files. Collective.
    fn record_end(
        &mut self,
        site: &mut FlushSite<'_>,
        flush: Ended<'_>,
        outcome: Result<FlushReport, FlushError>,
    ) -> Result<(), Error> {
        let Ended { id, record, .. } = flush;
        set_copy(site.cache, id, |copy| copy.end(InPrefix::Missing));
        if let Some(cached) = site.cache.dataset(id).filter(|_| record.dataset.aggregated) {
            let _ = site.job.files().remove_if_there(&cached.part.container());
        }
        let ended = match outcome {
            Ok(report) => {
                self.record_success(site, flush, &report);
                report.sums.map_or(Ok(()), |sums| record_sums(site, id, &sums))?;
                Ok(())
            }
            Err(error) => {
                let is_dropped = was_dropped_meanwhile(site, id, &error)?;
                self.record_failure(site, flush, &error);
                if is_dropped {
                    self.unfinished.retain(|(other, _)| *other != id);
                    remove_dropped(site, id)?;
                    return Ok(mark_replaced(site, id)?);
                }
                let must_arrive = policy::must_arrive(&dataset(site.cache, id).record);
                match error {
                    FlushError::Unsynced { .. } => site.cache.withdraw(site.job, &[id])?,
                    FlushError::Superseded { newer, .. } if must_arrive => {
                        site.cache.supersede(id);
                        let dataset = record.dataset.id;
                        site.cache.list(site.job, News::Replaced { dataset, newer });
                    }
                    _ => (),
                }
                match error {
                    // It is safe in cache, and due again as the newest that can be restarted from if the newer one turns out bad.
                    FlushError::Superseded { .. } if !must_arrive => report_only(site.job, Err(error.into())),
                    FlushError::Failed { .. } | FlushError::TakenBack { .. } => {
                        Err(Error::Refused(format!("{error}; {}", fate(site, id)?)))
                    }
                    error => Err(error.into()),
                }
            }
        };
        if !matches!(ended, Err(Error::Comm(_))) {
            mark_replaced(site, id)?;
        }
        ended
    }

    fn record_failure(&mut self, site: &mut FlushSite<'_>, flush: Ended<'_>, error: &FlushError) {
        let (job, Ended { id, record, took, kind }) = (site.job, flush);
        let why = scr_base::describe(error);
        let failed = Record::event(Event::FlushFail).dataset(&record.dataset).took(took).note(why);
        job.log.add_entry(failed);
        let label = dataset(site.cache, id).record.label();
        job.report.info(&format!("{}: Flush failed for {label}", function(kind)));
        site.cache.list(job, News::None);
        match error {
            FlushError::Unfinished { .. } => self.unfinished.push((id, record.clone())),
            FlushError::Superseded { .. } => (),
            _ => self.retry_pending |= record.dataset.checkpoint,
        }
    }

    fn record_success(&mut self, site: &mut FlushSite<'_>, flush: Ended<'_>, report: &FlushReport) {
        let Ended { id, record, took, kind } = flush;
        let (job, dataset) = (site.job, &record.dataset);
        job.log.add_entry(Record::event(Event::FlushSuccess).dataset(dataset).took(took));
        if let Some(cached) = site.cache.dataset(id) {
            let (from, to) = (site.cache.folder_of(job, &cached.record), job.prefix.dir());
            let moved = Record::transfer(kind, &from, to).dataset(dataset).took(took);
            job.log.add_entry(moved.size(report.bytes, report.files));
            let line = throughput(&function(kind), took, report.files, report.bytes, job.comm.size());
            job.report.info(&line);
            job.report.info(&format!("{}: Flush succeeded for {}", function(kind), cached.record.label()));
        }
        set_copy(site.cache, id, |copy| copy.end(InPrefix::whole(dataset.aggregated)));
        site.cache.list(job, News::None);
        if dataset.aggregated && job.rank() == Rank(0) {
            if let Err(error) = aggregate::remove_replaced(job.files(), &job.prefix) {
                let text = scr_base::describe(&error);
                job.report
                    .warn(&format!("containers of older datasets take room in the prefix directory: {text}"));
            }
        }
        if dataset.checkpoint {
            self.retry_pending = false;
            self.flushed.push(dataset.id);
        }
    }
}

/// Where a dataset is that was not flushed, as the message says. Somebody may have emptied the cache. Collective.
fn fate(site: &FlushSite<'_>, id: u64) -> Result<&'static str, CommError> {
    let (job, cached) = (site.job, dataset(site.cache, id));
    let loss = visible_loss(job.files(), &cached.part, &cached.record);
    let is_gone = !cached.record.protection.bypass && loss.is_some_and(|loss| loss.lost == Lost::Data);
    Ok(match job.any(is_gone)? {
        true => "files of it are missing in cache",
        false if cached.record.protection.bypass => {
            "its files stay in the prefix directory, where it is not listed"
        }
        false => "it is kept in cache",
    })
}

/// Gives up older datasets whose files in the prefix directory this flush replaces, before it does: they must not come back, not
/// even if the ranks die while files get their names. Collective.
fn give_files_to(site: &mut FlushSite<'_>, id: u64) -> Result<(), Error> {
    let owner = dataset(site.cache, id).record.clone();
    if owner.protection.bypass && owner.dataset.run == site.job.run.number {
        // That was done when it was completed.
        return Ok(());
    }
    let Some(newer) = site.cache.give_files_to(site.job, &owner)?.newer else { return Ok(()) };
    Err(FlushError::Superseded { dataset: owner.dataset.name_text(), newer }.into())
}

/// Marks the datasets in cache whose copies in the prefix directory are whole no more: this flush has replaced a file of theirs,
/// or was about to. Collective.
fn mark_replaced(site: &mut FlushSite<'_>, id: u64) -> Result<(), CommError> {
    let others = site.cache.ids_of(|other| other.id() != id && other.prefix.is_whole());
    if others.is_empty() {
        return Ok(());
    }
    let find = || {
        let is_replaced = |index: &Index, other: u64| {
            let entry = index.entry(dataset(site.cache, other).record.dataset.id);
            !entry.is_some_and(|entry| entry.complete && !entry.superseded)
        };
        let replaced =
            |index: &Index| others.iter().copied().filter(|&other| is_replaced(index, other)).collect();
        site.job.ledger().look(replaced).unwrap_or_else(|error| {
            site.job.report.error(&scr_base::describe(&error));
            others.clone()
        })
    };
    let replaced = (site.job.rank() == Rank(0)).then(find);
    let replaced: Vec<u64> = broadcast_value(&*site.job.comm, replaced)?;
    replaced.into_iter().for_each(|other| site.cache.supersede(other));
    Ok(())
}

/// Records the checksums that a flush was the first to take, so that a restart from cache compares them. Collective.
fn record_sums(site: &mut FlushSite<'_>, id: u64, sums: &Sums) -> Result<(), CommError> {
    let Some(cached) = site.cache.dataset_mut(id) else { return Ok(()) };
    for file in &mut cached.record.files {
        file.crc = file.crc.or_else(|| sums.get(&file.name).copied());
    }
    let CachedDataset { record, part, .. } = cached;
    if let Err(error) = site.schemes.record_anew(site.job, record, part) {
        let (why, label) = (error.agreed()?, record.label());
        site.job.report.error(&format!(
            "the checksums of {label} cannot be recorded in cache: {why}; a restart from there does not compare them"
        ));
    }
    Ok(())
}

/// The function of C SCR that flushes so, as messages name it.
fn function(kind: Transfer) -> String {
    format!("scr_{}", kind.name().to_lowercase())
}

/// Reports an error that does not make the call fail.
fn report_only(job: &Job, outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(Error::Refused(why)) => {
            job.report.error(&why);
            Ok(())
        }
        other => other,
    }
}

fn report_begin(site: &FlushSite<'_>, id: u64) -> Duration {
    let record = &dataset(site.cache, id).record;
    site.job.report.info(&format!("Initiating flush of {}", record.label()));
    site.job.log.add_entry(Record::event(Event::FlushStart).dataset(&record.dataset));
    site.job.elapsed()
}

/// Whether somebody has dropped a dataset since it was complete in cache. The application does that in a call, and then it has
/// left.
fn was_dropped(job: &Job, cached: &CachedDataset) -> Result<bool, PrefixError> {
    let withdrawn = job.run.withdrawn_in(job.files(), &job.prefix)?;
    let why = withdrawn.of(&cached.record.dataset);
    Ok(why == Some(Withdrawal::Removed))
}

/// The same for one whose flush has failed. Collective.
fn was_dropped_meanwhile(site: &FlushSite<'_>, id: u64, error: &FlushError) -> Result<bool, CommError> {
    if matches!(error, FlushError::Comm(_)) {
        return Ok(false);
    }
    let (job, cached) = (site.job, dataset(site.cache, id));
    job.any(job.rank() == Rank(0) && was_dropped(job, cached).unwrap_or(false))
}

/// The user does not want it any more.
fn remove_dropped(site: &mut FlushSite<'_>, id: u64) -> Result<(), Error> {
    let label = dataset(site.cache, id).record.label();
    site.job.report.warn(&format!(
        "{label} was dropped from the index by a command: it is not flushed, and leaves the cache"
    ));
    report_only(site.job, site.cache.withdraw(site.job, &[id]))
}

fn flush_of<'a>(site: &'a FlushSite<'_>, id: u64, transport: &TransportInUse) -> Flush<'a> {
    let options = policy::options_of(site.job, dataset(site.cache, id));
    Flush { job: site.job, control: site.cache.control(), transport: transport.clone(), options }
}

/// A dataset that is flushed, which does not leave the cache meanwhile.
fn dataset(cache: &Cache, id: u64) -> &CachedDataset {
    cache.dataset(id).expect("a dataset leaves the cache only when no flush is copying it")
}

fn set_copy(cache: &mut Cache, id: u64, set: impl FnOnce(&mut InPrefix)) {
    if let Some(cached) = cache.dataset_mut(id) {
        set(&mut cached.prefix);
    }
}

impl From<FlushError> for Error {
    fn from(error: FlushError) -> Self {
        match error {
            FlushError::Comm(error) => error.into(),
            failed => Error::Refused(failed.to_string()),
        }
    }
}
