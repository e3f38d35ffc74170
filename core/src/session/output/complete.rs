//! `SCR_Complete_output`: measures and protects the dataset, and records it as complete, or discards it.

use super::events::{self, Spent};
use super::{InvalidError, Output};
use crate::cache::filemap::Entry;
use crate::cache::shared_files::{self, NamePattern};
use crate::cache::verify::Opened;
use crate::cache::{Cache, CachedDataset, Crowded};
use crate::flush::folder_owners::assign_owners;
use crate::flush::Flushes;
use crate::holdings::{Holding, Limit};
use crate::job::Said;
use crate::session::{Error, OutputFlags, Phase, Session};
use crate::typed::first_value;
use scr_base::message::throughput;
use scr_comm::collective::{all_reduce, barrier, first_rank, Op};
use scr_comm::{Collective, Rank, RankErrors};
use scr_prefix::ledger::{Request, Whose};
use scr_prefix::Index;
use std::path::PathBuf;
use std::time::Duration;

impl Session {
    /// Ends the dataset: it is valid and protected, or it is gone. Collective. See `SCR_Complete_output` in docs/user/c-api.md.
    ///
    /// # Errors
    /// [`Error`], the same on all ranks. Older datasets are kept then.
    pub fn complete_output(&mut self, valid: bool) -> Result<(), Error> {
        let _call = self.begin_call("SCR_Complete_output");
        let output = match std::mem::take(&mut self.phase) {
            Phase::Output(output) => output,
            other => {
                self.phase = other;
                return Err(self.no_phase_to_end("SCR_Complete_output"));
            }
        };
        let outcome = self.complete(output, valid);
        self.start_computing();
        outcome
    }

    fn complete(&mut self, mut output: Box<Output>, valid: bool) -> Result<(), Error> {
        let label = output.record.label();
        let completing = self.job.elapsed();
        if output.record.protection.bypass {
            // Whether it becomes complete or not.
            let is_any = |cache: &Cache| cache.holdings().iter().any(Holding::is_restartable);
            let had_any = is_any(&self.cache);
            output.given = self.cache.give_files_to(&self.job, &output.record)?;
            self.restart.leave_lost(&self.job, &self.cache);
            if had_any && !is_any(&self.cache) {
                self.warn_of_same_files(&output);
            }
        }
        let (measured, [failed, files, bytes]) = self.measure(&mut output, valid)?;
        output.names = None;
        self.warn_of_writer(output.open_elsewhere.take());
        let measured = match measured {
            // It would count as the newest one, and the last good one would leave for it.
            Ok(_) if files == 0 && failed == 0 && output.flags.checkpoint => Err(InvalidError::Empty),
            measured => measured,
        };
        let opened = match measured {
            Ok(opened) if failed == 0 => opened,
            measured => {
                let why = match self.job.agree(measured) {
                    Ok(_) => RankErrors::default(),
                    Err(error) => error.agreed()?,
                };
                self.abandon(&mut output, &why)?;
                return Err(Error::Phase { doing: format!("{label} is not valid: completing it"), why });
            }
        };
        output.shared.withdraw(self.job.files());
        output.record.dataset.files = Some(files);
        output.record.dataset.bytes = Some(bytes);
        output.record.dataset.complete = Some(true);
        self.report_speed("app write stats", output.ready, completing, files, bytes);
        let written = self.job.elapsed();
        self.report_speed("scr write stats", output.started, written, files, bytes);
        output.behind &= !self.flushes.will_wait_for(&self.job, &output.record);
        if !output.behind {
            // Nobody would protect an older one any more, nor flush it, although it is due.
            self.wait_until_protected()?;
        }
        if let Err(error) = self.protect(&mut output, opened) {
            let why = error.agreed()?;
            self.reopen(&output)?;
            self.abandon(&mut output, &why)?;
            return Err(Error::Phase { doing: format!("protecting {label}"), why });
        }
        let now = self.job.elapsed();
        self.report_speed("scr_reddesc_apply", written, now, files, bytes);
        let (started, flags, sent) = (output.started, output.flags, output.sent);
        let (write, encode, whole) = (written - started, now - written, now - started);
        let dataset = self.dataset_of(*output, &Spent { write, encode, whole, files, bytes })?;
        let outcome = self.after_complete(dataset, flags);
        let now = self.job.elapsed();
        if flags.checkpoint {
            self.times.completed(now, now - started);
        }
        self.job.report.info(&format!("scr_complete_output: {:.6} secs", (now - completing).as_secs_f64()));
        self.job.report.info(&format!("start to complete: {:.6} secs", (now - started).as_secs_f64()));
        self.job.report_traffic("start to complete", sent);
        outcome
    }

    /// The dataset that has become complete, now. Collective.
    fn dataset_of(&mut self, output: Output, spent: &Spent) -> Result<CachedDataset, Error> {
        let Output { record, part, journal, flags, may_replace, survives, store, started, .. } = output;
        events::completed(&self.job, &self.cache, &record, spent);
        if spent.files == 0 && self.job.is_news(Said::NoFiles) {
            self.job.report.warn(&format!(
                "{} has no files: scr protects those that a rank names with SCR_Route_file between SCR_Start_output and \
                 SCR_Complete_output",
                record.label()
            ));
        }
        if flags.checkpoint {
            self.auto.add_checkpoint(&record, spent.whole);
        }
        let after = if flags.checkpoint { self.times.since_last(started + spent.whole) } else { None };
        let owed = match record.local {
            Some(_) => {
                self.schemes.owed_bytes(&self.job, &record).or_else(|error| error.agreed().map(|_| 0))?
            }
            None => 0,
        };
        let dataset = CachedDataset::new(record, part, journal.into_claim(), store);
        Ok(CachedDataset { may_replace, survives, after, owed, ..dataset })
    }

    /// Measures the files of this rank. Gives what is wrong with them, and of all ranks how many have failed, their files and
    /// their bytes.
    fn measure(
        &mut self,
        output: &mut Output,
        valid: bool,
    ) -> Result<(Result<Opened, InvalidError>, [u64; 3]), Error> {
        let comm = &*self.job.comm;
        let bypass = output.record.protection.bypass;
        if bypass {
            // A file that many ranks write has its length once the last of them is done.
            barrier(comm)?;
        }
        let measured = output.measure(&self.job, valid);
        let names = Some((bypass, NamePattern::of(output.claimed(), &output.record.dataset.name)));
        let renamed = self.last_names != names;
        let sums = |output: &Output, failed: bool| {
            [u64::from(failed), output.record.files.len() as u64, output.record.data_bytes()]
        };
        let [failed, files, bytes] = sums(output, measured.is_err());
        let [inside, common, elsewhere] = output.meant.kinds(&self.job);
        let own =
            [failed, files, bytes, u64::from(renamed), output.shared.count(), inside, common, elsewhere];
        let [failed, files, bytes, renamed, shared, inside, common, elsewhere] =
            all_reduce(comm, own, Op::Sum)?;
        let (compared, apart) = output.meant.compare(&self.job, [inside, common, elsewhere])?;
        if apart > 0 {
            return Ok((compared.map(|()| Opened::new()).map_err(InvalidError::from), [apart, files, bytes]));
        }
        let mut clashes = [0];
        if renamed > 0 {
            clashes = all_reduce(comm, [shared_files::clashes(comm, output.claimed())?], Op::Sum)?;
        }
        let clash = clashes != [0] && !bypass;
        if !clash {
            self.last_names = names;
        }
        if (shared > 0 || bypass && clashes != [0]) && self.job.is_news(Said::SharedFile) {
            self.note_shared_file(output)?;
        }
        if !clash && shared == 0 {
            return Ok((measured, [failed, files, bytes]));
        }
        drop(measured);
        let twice = if clash { assign_owners(comm, output.claimed())?.shared.pop_first() } else { None };
        let named = twice.map_or(Ok(()), |(name, other)| Err(InvalidError::SharedName { name, other }));
        // Only now is every rank done with the files that several have written.
        let taken = named.and_then(|()| Ok(output.shared.take(self.job.files(), &output.part)?));
        let measured = taken.and_then(|()| output.measure(&self.job, valid));
        let own = sums(output, measured.is_err());
        Ok((measured, all_reduce(comm, own, Op::Sum)?))
    }

    /// Notes once that ranks write one file: nothing tells MPI-IO from ranks that write over each other's bytes. Collective.
    fn note_shared_file(&self, output: &Output) -> Result<(), Error> {
        let comm = &*self.job.comm;
        let mut owners = assign_owners(comm, output.record.files.iter().map(|file| &file.name))?;
        let own = owners.shared.pop_first().map(|(name, other)| (name, comm.rank(), other));
        if let Some((name, one, other)) = first_value(comm, own.as_ref())? {
            self.job.report.notice(&format!(
                "ranks {one} and {other} have routed one file, `{name}': right for MPI-IO and HDF5; if each writes it with fopen, \
                 one writes over the other's bytes: give each rank a name of its own"
            ));
        }
        Ok(())
    }

    /// Warns once of a checkpoint that has taken the files of the only other one, unless the index knows one more: whenever the job
    /// dies while it writes such files, nothing is left.
    fn warn_of_same_files(&self, output: &Output) {
        let (record, replaced) = (&output.record, &output.given.replaced);
        let is_other = |id: u64| id != record.dataset.id && !replaced.contains(&id);
        let is_listed =
            |index: &Index| index.entries().iter().any(|entry| entry.is_candidate() && is_other(entry.id));
        let is_meant = self.job.rank() == Rank(0) && record.dataset.checkpoint;
        let is_only = || !self.job.ledger().look(is_listed).unwrap_or(true);
        if !is_meant || !is_only() || !self.job.is_news(Said::SameFiles) {
            return;
        }
        self.job.report.warn(&format!(
            "{} is written over files of the only older checkpoint: if the job dies while it writes one, none is left to restart \
             from. Give each checkpoint files of its own, such as in a folder with the number of the step, or write to two sets of \
             files in turn, or set SCR_CACHE_BYPASS=0",
            record.label()
        ));
    }

    /// Warns once of another process that has a file open for writing which this process has closed.
    fn warn_of_writer(&self, found: Option<(PathBuf, String)>) {
        let Some((path, process)) = found.filter(|_| self.job.is_news(Said::Writer)) else { return };
        self.job.report.warn_here(&format!(
            "{} is closed here, and process {process} still has it open for writing; the file counts as complete: if that process \
             is to write some of it, let it end before SCR_Complete_output",
            path.display()
        ));
    }

    /// Protects this rank's part, and records that the dataset is complete once all have done so.
    fn protect(&self, output: &mut Output, opened: Opened) -> Collective<()> {
        let sent = self.job.comm.traffic();
        let Output { record, part, journal, behind, .. } = output;
        if *behind {
            self.schemes.leave_local(&self.job, record, part, journal)?;
        } else {
            self.schemes.protect(&self.job, &self.cache, record, part, journal, opened)?;
        }
        if let Err(error) = journal.append(self.job.files(), &Entry::Complete) {
            // The other parts say so as well; and if no part does, it is enough that all are prepared.
            let (path, label) = (part.filemap(), record.label());
            self.job.report.error_here(&format!(
                "cannot record in {} that {label} is complete: {error}",
                path.display()
            ));
        }
        self.job.report_traffic("scr_reddesc_apply", sent);
        Ok(())
    }

    /// Records that nothing is complete before the first part goes. Some parts may be prepared, and if a rank dies meanwhile they
    /// would look like a dataset of which a node was lost. Collective.
    fn reopen(&self, output: &Output) -> Result<(), Error> {
        if let Err(error) = output.journal.append(self.job.files(), &Entry::Open(&output.record)) {
            let path = output.part.filemap();
            self.job.report.error_here(&format!("cannot write {}: {error}", path.display()));
        }
        Ok(barrier(&*self.job.comm)?)
    }

    /// Gives up a dataset that has failed, and finds out whether its store is full.
    fn abandon(&mut self, output: &mut Output, why: &RankErrors) -> Result<(), Error> {
        events::failed(&self.job, &output.record, &why.to_string());
        self.cache.check_if_full(&self.job, output.store, output.record.data_bytes())?;
        if output.flags.checkpoint {
            self.last_checkpoint -= 1;
            self.times.failed();
        }
        if let Some(left) = &output.made_room {
            let label = output.record.label();
            self.job.report.error(&format!(
                "`{left}', which was in cache only, had left the cache for {label} and is lost"
            ));
        }
        self.give_files_back(output);
        output.remove(&self.job, &self.cache);
        Ok(())
    }

    /// Older datasets may have their names again that the application has written over for nothing.
    fn give_files_back(&mut self, output: &Output) {
        self.cache.give_files_back(&output.given);
        if output.record.protection.bypass && self.job.rank() == Rank(0) {
            let release = Request::Release(Whose::Writer(output.record.dataset.id));
            self.job.report_failed(self.job.ledger().transact(&release).map(drop));
        }
    }

    /// After a dataset has become complete: it is flushed if it is due, surplus leaves, and the halt conditions are checked.
    fn after_complete(&mut self, dataset: CachedDataset, flags: OutputFlags) -> Result<(), Error> {
        let (id, is_local) = (dataset.id(), dataset.is_local());
        self.cache.add_complete(&self.job, dataset)?;
        self.last_completed = Some(id);
        let flushed = if is_local { Ok(()) } else { self.after_protected(id) };
        if flags.checkpoint {
            self.restart.offer_newest(&self.job, &mut self.cache);
            self.halt.check(&self.job, 1)?;
        }
        self.with_flushes(|flushes, site| {
            flushes.start_copying(site);
            Ok(())
        })?;
        if is_local {
            self.protect_behind(id)?;
        }
        flushed
    }

    /// After a dataset has been protected, which it is at once or behind the application. Collective.
    pub(in crate::session) fn after_protected(&mut self, id: u64) -> Result<(), Error> {
        let Some(cached) = self.cache.dataset(id) else { return Ok(()) };
        let store = cached.store;
        self.cache.list_counting(&self.job, store);
        let before = self.job.elapsed();
        let flushed = self.with_flushes(|flushes, site| flushes.flush_complete(site, id));
        let was_copied =
            |cached: &CachedDataset| cached.prefix.is_whole() && !cached.record.protection.bypass;
        if self.cache.dataset(id).is_some_and(was_copied) {
            self.auto.add_flush(self.job.elapsed() - before);
        }
        self.cache.evict_flushed_output(&self.job);
        self.cache.remove_stale_for(&self.job, id);
        self.evict_to(store, self.cache.limit_after(store))?;
        self.cache.list_stayed(&self.job);
        flushed
    }

    /// Lets old datasets leave before a new one is begun, since the store has no room for both. One rank is to warn. Once a
    /// dataset has failed there, any later one may not fit either: the checkpoint that would be lost with it is flushed first, or
    /// stays.
    pub(super) fn make_room(&mut self, store: usize, mut warn: Option<Crowded>) -> Result<(), Error> {
        // Remains that no run can use leave first, and then what another number of ranks wrote. That may be enough.
        for of_others in [false, true] {
            let has_cleared = match of_others {
                false => self.cache.clear_remains(&self.job)?,
                true => self.make_room_of_others()?,
            };
            if has_cleared {
                warn = self.cache.crowded(&self.job, store);
                let Some(first) = first_rank(&*self.job.comm, warn.is_some())? else { return Ok(()) };
                warn = warn.filter(|_| first == self.job.rank());
            }
        }
        if self.cache.may_be_left_empty(store) && !self.with_flushes(Flushes::flush_before_loss)? {
            return Ok(());
        }
        let limit = self.cache.limit_before(&self.job, store, warn);
        self.evict_to(store, limit)?;
        Ok(self.cache.wait_until_freed(&self.job)?)
    }

    /// Lets datasets leave a store until it keeps no more than its limit. A flush that copies one of them ends first.
    pub(in crate::session) fn evict_to(&mut self, store: usize, limit: Limit) -> Result<(), Error> {
        while let Some(victim) = self.cache.victim(store, limit) {
            if victim.prefix.is_under_way() {
                self.with_flushes(|flushes, site| flushes.finish_for_room(site, victim.id))?;
            } else {
                self.cache.remove(&self.job, victim.id);
            }
        }
        self.cache.list_left(&self.job);
        Ok(())
    }

    fn report_speed(&self, what: &str, from: Duration, to: Duration, files: u64, bytes: u64) {
        let took = to.saturating_sub(from);
        self.job.report.info(&throughput(what, took, files, bytes, self.job.comm.size()));
    }
}
