//! The restart phase: from `SCR_Have_restart` to `SCR_Complete_restart`.

use super::init::expect_all_read;
use super::restart_files::Listed;
use super::route::MeantPaths;
use super::{Error, Phase, Session};
use crate::cache::record::RankRecord;
use crate::cache::{CachedDataset, CheckpointId};
use crate::fetch::Fetcher;
use crate::flush::Flushes;
use crate::log::{Event, Record};
use scr_comm::collective::{all_reduce, any, Op};
use scr_comm::{AnyError, RankErrors};
use scr_config::param;

impl Session {
    /// The name of the checkpoint to restart from, if there is one; the same on all ranks.
    ///
    /// # Errors
    /// [`Error::State`] within a phase; [`Error::Refused`] if the application has refused all checkpoints, or the last one was lost,
    /// and the user wants no run without one; [`Error::Phase`] if one that could not be read may be left.
    pub fn have_restart(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let _call = self.begin_call("SCR_Have_restart");
        self.expect_idle("SCR_Have_restart")?;
        self.prepare_checkpoint()?;
        let name = self.restart.checkpoint(&self.cache).map(|cached| cached.record.dataset.name.clone());
        if name.is_none() && self.restart.owes_one {
            if self.job.params.get(&param::REQUIRE_RESTART) {
                let why = "none is left that the application can restart from";
                self.starts_without(why, "", &self.unread)?;
            }
            if let Some(left) = &self.restart.passed_over {
                return Err(Error::Refused(format!(
                    "`{left}' is not marked as failed, but this run has left it, and there is no other checkpoint to restart \
                     from; correct what the error of SCR_Complete_restart names, and start the job again"
                )));
            }
            expect_all_read(&self.job, &self.restart.unread)?;
        }
        Ok(name)
    }

    /// Begins to read the checkpoint that [`have_restart`](Self::have_restart) names. Collective.
    ///
    /// # Errors
    /// [`Error`] within a phase, and if there is no checkpoint.
    pub fn start_restart(&mut self) -> Result<Vec<u8>, Error> {
        let _call = self.begin_call("SCR_Start_restart");
        self.expect_idle("SCR_Start_restart")?;
        self.prepare_checkpoint()?;
        let cached = self.restart.checkpoint(&self.cache).ok_or(Error::State {
            call: "SCR_Start_restart",
            now: "without a checkpoint to restart from",
            hint: "ask SCR_Have_restart first",
        })?;
        let checkpoint = cached.checkpoint();
        let list = || Listed::of_all(&self.job, &self.cache, cached);
        let listed = self.reads_other_ranks().then(list).transpose()?;
        let of_others = match cached.record.read_by.and(cached.record.dataset.ranks) {
            Some(ranks) => format!(", which {ranks} ranks wrote"),
            None => String::new(),
        };
        let label = cached.record.label();
        let why = self.cache.in_words(cached.seq()).join("; ");
        self.job.report.notice(&format!("restarting from {label}{of_others}: {why}"));
        self.restart.begin(&self.job, &self.cache);
        self.phase = Phase::Restart { listed, meant: MeantPaths::default(), unrouted: None };
        self.job.log.add_entry(event(Event::RestartStart, &checkpoint));
        Ok(checkpoint.name)
    }

    /// Ends the restart: it has worked on all ranks, or the next older checkpoint is loaded. If scr gave a rank that failed no
    /// path for a file, nothing is known against the checkpoint, and the next run offers it again: the other ranks may have
    /// failed only as the application reduces the flag. It also fails if another job was given files to write over that the
    /// application has read. Collective.
    ///
    /// # Errors
    /// [`Error`], the same on all ranks, if any rank has failed to restart, or what the user wants to drop then cannot be.
    pub fn complete_restart(&mut self, valid: bool) -> Result<(), Error> {
        let _call = self.begin_call("SCR_Complete_restart");
        let (listed, meant, unrouted) = match std::mem::take(&mut self.phase) {
            Phase::Restart { listed, meant, unrouted } => (listed, meant, unrouted),
            other => {
                self.phase = other;
                return Err(self.no_phase_to_end("SCR_Complete_restart"));
            }
        };
        self.verify_redundancy()?;
        let failed = self.restart_failure(valid, &meant, unrouted)?;
        let loaded = self.restart.checkpoint(&self.cache).map(CachedDataset::checkpoint);
        let loaded = loaded.expect("a restart phase begins with a checkpoint, and none leaves meanwhile");
        self.warn_of_unread(listed.as_ref(), &meant)?;
        self.remove_copies();
        let is_output = self.cache.offered().is_some();
        if is_output {
            self.cache.offer(None);
            self.cache.evict_flushed_output(&self.job);
        }
        let Some((cause, why)) = failed else {
            self.job.log.add_entry(event(Event::RestartSuccess, &loaded));
            if !is_output && self.job.params.get(&param::DROP_AFTER_CURRENT) {
                self.with_flushes(Flushes::finish_all)?;
                self.restart.end(&self.job, &mut self.cache)?;
            }
            return Ok(());
        };
        self.job.log.add_entry(event(Event::RestartFail, &loaded).note(why.to_string()));
        let name = loaded.name_text();
        if is_output {
            return Err(Error::Refused(format!("reading back `{name}' failed: {why}")));
        }
        // Another checkpoint may come into its place.
        self.with_flushes(Flushes::finish_all)?;
        let mut from = Fetcher::new(&self.job, &mut self.cache, &self.schemes);
        let (next, kept) = match cause {
            Cause::Application => {
                self.restart.refuse(&mut from)?;
                ("the next older one", String::new())
            }
            Cause::Refusal => {
                self.restart.pass_over(&mut from)?;
                let kept = format!("; `{name}' is not marked as failed, and the next run offers it again");
                ("the next older one", kept)
            }
            Cause::Replaced => {
                self.restart.leave_replaced(&mut from, &loaded)?;
                ("the newest one that is left", format!("; `{name}' is not marked as failed"))
            }
        };
        from.report_left_alone();
        self.count_from_restart();
        let next = match self.restart.checkpoint(&self.cache) {
            Some(same) if same.seq() == loaded.seq => "its copy in the prefix directory is next".to_owned(),
            Some(other) => format!("{next} is `{}'", other.checkpoint().name_text()),
            None if cause == Cause::Replaced => "there is no other one".to_owned(),
            None => "there is no older one".to_owned(),
        };
        Err(Error::Refused(format!("restarting from `{name}' failed: {why}{kept}; {next}")))
    }

    /// Warns of files of another number of ranks that nobody has asked for: the application may not be able to read them.
    /// Collective.
    fn warn_of_unread(&self, listed: Option<&Listed>, meant: &MeantPaths) -> Result<(), Error> {
        let cached = self.restart.checkpoint(&self.cache).map(|cached| &cached.record);
        let of_others = |record: &&RankRecord| record.dataset.ranks != Some(self.job.comm.size());
        let Some((listed, record)) = listed.zip(cached.filter(of_others)) else { return Ok(()) };
        let [asked] = all_reduce(&*self.job.comm, [meant.paths.len() as u64], Op::Sum)?;
        if asked < listed.files.len() as u64 {
            self.job.report.warn(&format!(
                "the ranks have asked for {asked} of the {} files of {}: what else another number of ranks wrote is not read",
                listed.files.len(),
                record.label()
            ));
        }
        Ok(())
    }

    /// Why the restart has failed, if it has on any rank. Collective.
    fn restart_failure(
        &self,
        valid: bool,
        meant: &MeantPaths,
        unrouted: Option<String>,
    ) -> Result<Option<(Cause, RankErrors)>, Error> {
        // All ranks have read their files once this is done.
        let apart = meant.compare_all(&self.job)?;
        let kept = self.restart.expect_kept(&self.job, &self.cache)?;
        let is_replaced = kept.is_err();
        let is_refusal = apart.is_err() || !valid && unrouted.is_some();
        let own = match (kept, apart) {
            (Err(replaced), _) => Err(AnyError::from(replaced)),
            (Ok(()), Err(apart)) => Err(apart.into()),
            (Ok(()), Ok(())) if valid => Ok(()),
            (Ok(()), Ok(())) => {
                let why = unrouted.unwrap_or_else(|| "the application could not read its files".to_owned());
                Err(why.into())
            }
        };
        let Err(error) = self.job.agree(own) else { return Ok(None) };
        let why = error.agreed()?;
        let cause = match any(&*self.job.comm, [is_replaced, is_refusal])? {
            [true, _] => Cause::Replaced,
            [false, true] => Cause::Refusal,
            [false, false] => Cause::Application,
        };
        Ok(Some((cause, why)))
    }

    /// Loads the checkpoint that the application reads, before it gets its name. If it reads the checkpoint in the prefix
    /// directory, flushes under way end first, and nobody else's may replace its files from then on. Collective.
    fn prepare_checkpoint(&mut self) -> Result<(), Error> {
        self.wait_until_protected()?;
        self.load_chosen()?;
        self.restart.look_again(&mut Fetcher::new(&self.job, &mut self.cache, &self.schemes))?;
        let is_read_there = |cached: &CachedDataset| cached.is_read_in_prefix(&self.job);
        if self.restart.checkpoint(&self.cache).is_some_and(is_read_there) {
            self.with_flushes(Flushes::finish_all)?;
            let mut from = Fetcher::new(&self.job, &mut self.cache, &self.schemes);
            let is_another = self.restart.hold(&mut from)?;
            from.report_left_alone();
            if is_another {
                self.count_from_restart();
            }
        }
        self.prepare_lending()
    }

    /// Loads the checkpoint that the application has chosen with `SCR_Current`.
    fn load_chosen(&mut self) -> Result<(), Error> {
        if self.restart.chosen.is_some() {
            // An older copy of a dataset under way may come into its place.
            self.with_flushes(Flushes::finish_all)?;
            let mut from = Fetcher::new(&self.job, &mut self.cache, &self.schemes);
            self.restart.load_chosen(&mut from)?;
            from.report_left_alone();
            self.count_from_restart();
        }
        Ok(())
    }

    /// New checkpoints are counted on from the one to restart from.
    pub(super) fn count_from_restart(&mut self) {
        let checkpoint = self.restart.checkpoint(&self.cache);
        if let Some(number) = checkpoint.and_then(|cached| cached.record.dataset.checkpoint_id) {
            self.last_checkpoint = number;
        }
    }
}

/// Why a restart has failed, the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The application could not use the checkpoint.
    Application,
    /// The application has asked for what it may not have. Nothing is wrong with the checkpoint.
    Refusal,
    /// Another job has written over files of the checkpoint, or may have.
    Replaced,
}

fn event(event: Event, checkpoint: &CheckpointId) -> Record {
    Record::event(event).id(checkpoint.id).named(&checkpoint.name)
}
