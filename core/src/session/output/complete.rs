//! `SCR_Complete_output`: the dataset is measured, protected, and recorded as complete; or it is given up.

use super::Output;
use crate::cache::filemap::Entry;
use crate::cache::place::PartPlace;
use crate::cache::CachedDataset;
use crate::comm::collective::{all_reduce, barrier, Op};
use crate::comm::{Collective, RankErrors};
use crate::fs::Kind;
use crate::redundancy::protect::Protect;
use crate::session::logging::Spent;
use crate::session::{Error, Phase, Session};
use std::time::Duration;

impl Session {
    /// Ends the dataset: it is valid and protected, or it is gone. Collective. See the guide's `SCR_Complete_output`.
    ///
    /// # Errors
    /// [`Error`], the same on all ranks. Older datasets are kept then.
    pub fn complete_output(&mut self, valid: bool) -> Result<(), Error> {
        let output = match std::mem::take(&mut self.phase) {
            Phase::Output(output) => output,
            other => {
                self.phase = other;
                return Err(self.wrong_phase("SCR_Complete_output"));
            }
        };
        let outcome = self.complete(output, valid);
        self.log_compute_start();
        outcome
    }

    fn complete(&mut self, mut output: Box<Output>, valid: bool) -> Result<(), Error> {
        let label = output.record.label();
        let completing = self.job.elapsed();
        if output.record.protection.bypass {
            // A file that many ranks write has its length once the last of them is done.
            barrier(&*self.job.comm)?;
        }
        let sized = self.measure(&mut output, valid);
        let mut totals =
            [u64::from(sized.is_err()), output.record.files.len() as u64, output.record.data_bytes()];
        all_reduce(&*self.job.comm, &mut totals, Op::Sum)?;
        let [failed, files, bytes] = totals;
        if failed > 0 {
            let why = match self.job.agree(sized) {
                Ok(()) => RankErrors::default(),
                Err(error) => error.agreed()?,
            };
            self.abandon(&output, &why)?;
            return Err(Error::Phase { doing: format!("{label} is not valid: completing it"), why });
        }
        output.record.dataset.files = Some(files);
        output.record.dataset.bytes = Some(bytes);
        output.record.dataset.complete = Some(true);
        self.say_speed("app write stats", output.ready, completing, files, bytes);
        let written = self.job.elapsed();
        self.say_speed("scr write stats", output.started, written, files, bytes);
        if let Err(error) = self.protect(&mut output) {
            let why = error.agreed()?;
            self.abandon(&output, &why)?;
            return Err(Error::Phase { doing: format!("protecting {label}"), why });
        }
        let now = self.job.elapsed();
        self.say_speed("scr_reddesc_apply", written, now, files, bytes);
        let Output { record, part, flags, may_replace, store, started, sent, .. } = *output;
        let (write, encode, whole) = (written - started, now - written, now - started);
        self.log_output_end(&record, &Spent { write, encode, whole, files, bytes });
        let dataset = CachedDataset { may_replace, ..CachedDataset::new(record, part, store) };
        let outcome = self.after_complete(dataset, flags);
        let now = self.job.elapsed();
        if flags.checkpoint {
            self.advice.completed(now, now - started);
        }
        self.job.report.info(&format!("scr_complete_output: {:.6} secs", (now - completing).as_secs_f64()));
        self.job.report.info(&format!("start to complete: {:.6} secs", (now - started).as_secs_f64()));
        self.say_traffic("start to complete", sent);
        outcome
    }

    /// Takes the lengths and modes of the files that the application has written.
    fn measure(&self, output: &mut Output, valid: bool) -> Result<(), String> {
        if !valid {
            return Err("the application said that its files are not valid".to_owned());
        }
        output.unrouted.expect_none()?;
        for at in 0..output.record.files.len() {
            let path = PartPlace::file(&output.part, &output.record, &output.record.files[at]);
            let status =
                self.job.files().status(&path).map_err(|error| {
                    format!("{} was routed, but it cannot be found: {error}", path.display())
                })?;
            if status.kind != Kind::File {
                return Err(format!("{} was routed as a file and is something else", path.display()));
            }
            let file = &mut output.record.files[at];
            (file.bytes, file.mode, file.mtime) = (status.len, status.mode, status.mtime);
        }
        Ok(())
    }

    /// Protects this rank's part, and notes that the dataset is complete once all have done so.
    fn protect(&self, output: &mut Output) -> Collective<()> {
        let sent = self.job.comm.traffic();
        let scheme = self.schemes.scheme(&self.job, &output.record.protection)?;
        let Output { record, part, journal, .. } = output;
        let protect = Protect { job: &self.job, cache: &self.cache, scheme: &*scheme };
        self.job.agree(protect.encode_and_prepare(part, record, journal))?;
        if let Err(error) = journal.append(&Entry::Complete) {
            // The other parts say so as well; and where no part does, that all are prepared is enough.
            let (path, label) = (part.filemap(), record.label());
            self.job
                .report
                .error_here(&format!("cannot note in {} that {label} is complete: {error}", path.display()));
        }
        self.say_traffic("scr_reddesc_apply", sent);
        Ok(())
    }

    /// Gives up a dataset that has failed, and notes where it was for want of room.
    fn abandon(&mut self, output: &Output, why: &RankErrors) -> Result<(), Error> {
        self.log_output_fail(output, &why.to_string());
        self.cache.check_if_full(&self.job, output.store, output.record.data_bytes())?;
        if output.flags.checkpoint {
            self.last_checkpoint -= 1;
        }
        self.drop_part(&output.record);
        Ok(())
    }

    fn say_speed(&self, what: &str, from: Duration, to: Duration, files: u64, bytes: u64) {
        let line =
            crate::message::throughput(what, to.saturating_sub(from), files, bytes, self.job.comm.size());
        self.job.report.info(&line);
    }
}
