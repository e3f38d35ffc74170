//! The output phase: from `SCR_Start_output` to `SCR_Complete_output`.
//!
//! The order of steps is the crash argument. Start: agree, make the folder, begin the filemap. Route: record the file before its
//! name is given out. Complete: agree that all is valid, protect, record as prepared, agree, record as complete; only
//! then do older datasets leave.

use super::datasets::Cached;
use super::error::Doing;
use super::logging::Spent;
use super::words::{label, speed};
use super::{Error, OutputFlags, Phase, Session};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::part::PartDir;
use crate::cache::record::{base_name, FileRecord, Protection, RankRecord};
use crate::comm::collective::{all_reduce, barrier, Op};
use crate::comm::{Disagreement, Rank, Traffic};
use crate::flush::ledger::Ledger;
use crate::fs::{Durability, FsError, Kind};
use crate::prefix::DatasetDescriptor;
use crate::redundancy::protect::Protecting;
use crate::Described;
use scr_plugin_api::Scheme;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// An output phase under way.
pub(crate) struct Output {
    pub(super) record: RankRecord,
    part: PartDir,
    journal: Journal,
    flags: OutputFlags,
    /// Whether a file that this rank writes in the prefix directory was there before.
    may_replace: bool,
    /// Place of the store in the context.
    store: usize,
    started: Duration,
    /// What this rank had sent by then.
    sent: Traffic,
    /// When the application could begin to write.
    ready: Duration,
}

/// What all ranks agree on before a dataset begins.
struct Start {
    /// Microseconds since the epoch.
    created: u64,
    crowded: bool,
}

impl Session {
    /// Begins a dataset. Collective. See the guide's `SCR_Start_output`.
    ///
    /// # Errors
    /// [`Error`]; no dataset is begun then, on any rank.
    pub fn start_output(&mut self, name: Option<&[u8]>, flags: OutputFlags) -> Result<(), Error> {
        let started = self.ctx.env.clock.elapsed();
        let sent = self.ctx.comm.traffic();
        self.expect_idle("SCR_Start_output")?;
        self.look_at_flush()?;
        let crowded = self.store_of(flags).is_some_and(|store| self.is_crowded(store));
        let start = self.agree_on_start(name, flags, crowded)?;
        let checkpoint = flags.checkpoint.then(|| self.last_checkpoint.saturating_add(1));
        let descriptor =
            self.ctx.descriptors.choose(checkpoint.unwrap_or(0), flags.checkpoint, flags.output).clone();
        let protection = self.ctx.protection_of(&descriptor)?;
        let protection =
            protection.map_err(|why| Error::Config { why: format!("no dataset can be started: {why}") })?;
        let mut record = self.new_record(start.created, name, flags, checkpoint, protection);
        (record.members, record.nodes) = self.ctx.members(&descriptor);
        if start.crowded {
            self.make_room(&record.protection.store)?;
        }
        // An id is never used twice, not even where a start has failed halfway.
        self.next_id += 1;
        let begun = self.begin_together(&mut record, |record, id| {
            (record.dataset.id, record.id_in_prefix) = (id, id);
            if name.is_none() {
                record.dataset.name = default_name(id);
            }
        })?;
        let label = label(&record);
        let (part, journal) = begun.doing(|| format!("starting {label}"))?;
        self.ctx.report.info(&format!("Starting {label}"));
        self.log_output_start(&record, started);
        self.leave_files_to(&record)?;
        let taken = self.take_name(&record)?;
        if taken.is_err() {
            self.drop_part(&record);
        }
        taken.doing(|| format!("using the name of {label} again"))?;
        if let Some(checkpoint) = checkpoint {
            self.last_checkpoint = checkpoint;
        }
        let store = self.ctx.store_index(&record.protection.store);
        let ready = self.ctx.env.clock.elapsed();
        self.ctx.report.info(&format!("scr_start_output: {:.6} secs", (ready - started).as_secs_f64()));
        self.phase = Phase::Output(Box::new(Output {
            record,
            part,
            journal,
            flags,
            may_replace: false,
            store,
            started,
            sent,
            ready,
        }));
        Ok(())
    }

    /// Makes sure that all ranks begin the same dataset; learns when, and whether any store is too crowded for two.
    fn agree_on_start(&self, name: Option<&[u8]>, flags: OutputFlags, crowded: bool) -> Result<Start, Error> {
        let mut hasher = DefaultHasher::new();
        (name, flags.checkpoint, flags.output).hash(&mut hasher);
        let hash = hasher.finish();
        let created = if self.ctx.rank() == Rank(0) { self.ctx.micros() } else { 0 };
        let mut words = [hash, !hash, u64::from(crowded), created];
        all_reduce(&*self.ctx.comm, &mut words, Op::Max)?;
        let [most, least, crowded, created] = words;
        if most != !least {
            let what = "the ranks gave different names or flags to SCR_Start_output; all must give the same";
            return Err(Error::Argument { what: what.to_owned() });
        }
        if let Some(len) = name.map(<[u8]>::len).filter(|&len| len == 0 || len >= super::MAX_FILENAME) {
            let most = super::MAX_FILENAME - 1;
            let what = format!("the name of a dataset has 1 to {most} bytes, and this one has {len}");
            return Err(Error::Argument { what });
        }
        Ok(Start { created, crowded: crowded > 0 })
    }

    pub(super) fn new_record(
        &self,
        begun: u64,
        name: Option<&[u8]>,
        flags: OutputFlags,
        checkpoint: Option<u64>,
        protection: Protection,
    ) -> RankRecord {
        let id = self.next_id;
        let name = name.map_or_else(|| default_name(id), <[u8]>::to_vec);
        let ctx = &self.ctx;
        let dataset = DatasetDescriptor {
            id,
            name,
            checkpoint: flags.checkpoint,
            output: flags.output,
            created: begun,
            checkpoint_id: checkpoint,
            ..ctx.descriptor_of_job()
        };
        RankRecord {
            dataset,
            id_in_prefix: id,
            begun,
            prefix: ctx.prefix_bytes().to_vec(),
            rank: ctx.rank(),
            node: ctx.nodes.name(ctx.rank()).to_owned(),
            ranks: ctx.comm.size(),
            protection,
            members: Vec::new(),
            nodes: Vec::new(),
            files: Vec::new(),
            redundancy: None,
        }
    }

    /// Where the files of a dataset are written in the prefix directory itself, older ones of its name count no more
    /// before the first path is given out; and that it was begun stands there, so that what it may have replaced
    /// when it is cut short is looked at closely.
    fn take_name(&self, record: &RankRecord) -> Result<Result<(), Disagreement>, Error> {
        if !record.protection.bypass {
            return Ok(Ok(()));
        }
        self.wait_until_announced();
        let ledger = Ledger { files: self.ctx.files(), prefix: &self.ctx.prefix };
        let taken =
            if self.ctx.rank() == Rank(0) { ledger.take_over_name(&record.dataset, &[]) } else { Ok(()) };
        Ok(self.ctx.agree(taken.described())?)
    }

    /// Cached datasets of the same name whose files lie in the prefix directory are about to lose them. What is on its way
    /// there arrives before: later it would take the place of what the application writes.
    fn leave_files_to(&mut self, record: &RankRecord) -> Result<(), Error> {
        if !record.protection.bypass {
            return Ok(());
        }
        let named_so = |cached: &Cached| cached.record.dataset.name == record.dataset.name;
        let moving = self.flushes.moving.as_ref().and_then(|moving| self.position(moving.id));
        if moving.is_some_and(|at| !self.cached[at].record.protection.bypass || named_so(&self.cached[at])) {
            self.finish_flush()?;
        }
        let shares = |cached: &Cached| cached.record.protection.bypass && named_so(cached);
        while let Some(at) = self.cached.iter().position(shares) {
            let id = self.cached[at].id();
            self.loaded.take_if(|loaded| loaded.id == id);
            self.evict(at);
        }
        Ok(())
    }

    /// Makes the folders and begins the filemap, on all ranks or on none. Another job of this allocation may have the id on
    /// one of the nodes: then the next one is taken, which `renumber` puts in. Collective.
    pub(super) fn begin_together(
        &mut self,
        record: &mut RankRecord,
        renumber: impl Fn(&mut RankRecord, u64),
    ) -> Result<Result<(PartDir, Journal), Disagreement>, Error> {
        let mut tries = 1;
        loop {
            let begun = self.begin(record);
            let is_taken = matches!(&begun, Err(error) if error.kind() == Some(ErrorKind::AlreadyExists));
            let is_final = tries == MOST_IDS || begun.is_err() && !is_taken;
            let begun = self.settle_begun(record, begun)?;
            if begun.is_ok() {
                return Ok(begun);
            }
            let mut words = [u64::from(is_final)];
            all_reduce(&*self.ctx.comm, &mut words, Op::Max)?;
            if words != [0] {
                return Ok(begun);
            }
            renumber(record, self.next_id);
            self.next_id += 1;
            tries += 1;
        }
    }

    /// One outcome on all ranks; where it is bad, what this rank has made is removed.
    fn settle_begun(
        &self,
        record: &RankRecord,
        begun: Result<(PartDir, Journal), FsError>,
    ) -> Result<Result<(PartDir, Journal), Disagreement>, Error> {
        let own = begun.is_ok();
        let begun = self.ctx.agree(begun.described())?;
        // What this rank has not made may belong to somebody else.
        if begun.is_err() && own {
            self.drop_part(record);
        }
        Ok(begun)
    }

    fn begin(&self, record: &RankRecord) -> Result<(PartDir, Journal), FsError> {
        let part = self.part_of(record);
        let files = self.ctx.files();
        match Journal::begin_part(files, &part, &Entry::Open(record)) {
            Ok(journal) => Ok((part, journal)),
            Err(error) => {
                // The first error is the one to tell.
                let _ = part.remove_empty_folders(files);
                Err(error)
            }
        }
    }

    /// Takes in a file of the dataset that is being written, and gives the path to write it at. Local.
    pub(super) fn route_output(&mut self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let below = super::route::below_prefix(&self.ctx, name)?;
        let Phase::Output(output) = &mut self.phase else {
            unreachable!("the caller has looked at the phase")
        };
        let known = output.record.files.iter().any(|file| file.name == below);
        let base = base_name(&below);
        let bypass = output.record.protection.bypass;
        let twin = output.record.files.iter().find(|file| file.base() == base && file.name != below);
        if let Some(twin) = twin.filter(|_| !bypass) {
            return Err(Error::Argument {
                what: format!(
                    "`{}' and `{}' have the same base name, and in cache only base names are kept; \
                     give this rank's files different base names or set SCR_CACHE_BYPASS=1",
                    String::from_utf8_lossy(&below),
                    String::from_utf8_lossy(&twin.name)
                ),
            });
        }
        let file = FileRecord { name: below, bytes: 0, mode: 0, mtime: (0, 0), crc: None };
        let path = if bypass { output.record.prefix_path(&file) } else { output.part.file(&file.name) };
        let path_bytes = super::path_bytes(&path)?;
        if !known {
            if bypass {
                output.may_replace |= self.ctx.files().status(&path).is_ok();
                let parent = path.parent().unwrap_or(&path);
                self.ctx.files().make_dirs(parent, 0o777, Durability::Unsynced)?;
            }
            let journal = output.part.filemap();
            output.journal.append(&Entry::File(&file.name)).map_err(|error| Error::Argument {
                what: format!("cannot record the file in {}: {error}", journal.display()),
            })?;
            output.record.files.push(file);
        }
        Ok(path_bytes)
    }

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
        let label = label(&output.record);
        let completing = self.ctx.elapsed();
        if output.record.protection.bypass {
            // A file that many ranks write has its length once the last of them is done.
            barrier(&*self.ctx.comm)?;
        }
        let sized = self.measure(&mut output, valid);
        let mut totals =
            [u64::from(sized.is_err()), output.record.files.len() as u64, output.record.data_bytes()];
        all_reduce(&*self.ctx.comm, &mut totals, Op::Sum)?;
        let [failed, files, bytes] = totals;
        if failed > 0 {
            let sized = self.ctx.agree(sized)?;
            self.abandon(&output, sized.as_ref().err())?;
            return sized.doing(|| format!("{label} is not valid: completing it"));
        }
        output.record.dataset.files = Some(files);
        output.record.dataset.bytes = Some(bytes);
        output.record.dataset.complete = Some(true);
        self.say_speed("app write stats", output.ready, completing, files, bytes);
        let written = self.ctx.elapsed();
        self.say_speed("scr write stats", output.started, written, files, bytes);
        if let Err(why) = self.protect(&mut output)? {
            self.abandon(&output, Some(&why))?;
            return Err(Error::Phase { doing: format!("protecting {label}"), why });
        }
        let now = self.ctx.elapsed();
        self.say_speed("scr_reddesc_apply", written, now, files, bytes);
        let Output { record, part, flags, may_replace, store, started, sent, .. } = *output;
        let (write, encode, whole) = (written - started, now - written, now - started);
        self.log_output_end(&record, &Spent { write, encode, whole, files, bytes });
        self.add_complete(record, part, store, may_replace)?;
        let outcome = self.after_complete(flags);
        let now = self.ctx.elapsed();
        if flags.checkpoint {
            self.advice.completed(now, now - started);
        }
        self.ctx.report.info(&format!("scr_complete_output: {:.6} secs", (now - completing).as_secs_f64()));
        self.ctx.report.info(&format!("start to complete: {:.6} secs", (now - started).as_secs_f64()));
        self.say_traffic("start to complete", sent);
        outcome
    }

    /// Protects this rank's part, and notes that the dataset is complete once all have done so. The inner error is the same
    /// on all ranks.
    fn protect(&self, output: &mut Output) -> Result<Result<(), Disagreement>, Error> {
        let sent = self.ctx.comm.traffic();
        let scheme = self.ctx.scheme(&output.record.protection)?;
        let Output { record, part, journal, .. } = output;
        let prepared = self.seal(record, part, journal, scheme);
        if let Err(why) = self.ctx.agree(prepared)? {
            return Ok(Err(why));
        }
        if let Err(error) = journal.append(&Entry::Complete) {
            // The other parts say so as well; and where no part does, that all are prepared is enough.
            let (path, label) = (part.filemap(), label(record));
            self.ctx
                .report
                .error_here(&format!("cannot note in {} that {label} is complete: {error}", path.display()));
        }
        self.say_traffic("scr_reddesc_apply", sent);
        Ok(Ok(()))
    }

    /// Takes the lengths and modes of the files that the application has written.
    fn measure(&self, output: &mut Output, valid: bool) -> Result<(), String> {
        if !valid {
            return Err("the application said that its files are not valid".to_owned());
        }
        let bypass = output.record.protection.bypass;
        for at in 0..output.record.files.len() {
            let file = &output.record.files[at];
            let path = if bypass { output.record.prefix_path(file) } else { output.part.file(&file.name) };
            let status =
                self.ctx.files().status(&path).map_err(|error| {
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

    /// Protects this rank's part of a dataset and records it as prepared. All ranks of its set call it.
    pub(super) fn seal(
        &self,
        record: &mut RankRecord,
        part: &PartDir,
        journal: &Journal,
        scheme: Result<Arc<dyn Scheme>, String>,
    ) -> Result<(), String> {
        let ctx = &self.ctx;
        let scheme = scheme?;
        let protecting = Protecting {
            comm: &*ctx.comm,
            files: ctx.files(),
            report: &ctx.report,
            scheme: &*scheme,
            processors: ctx.processors,
            message_bytes: ctx.params.get(&crate::param::MPI_BUF_SIZE),
            always_sum: ctx.params.get(&crate::param::CRC_ON_COPY),
            open: &ctx.open,
        };
        let kept = protecting.run(part, record, Ok(()))?;
        let recorded = journal.append(&Entry::Prepared(record, &kept));
        recorded.map_err(|error| format!("cannot write {}: {error}", part.filemap().display()))
    }

    /// Gives up a dataset that has failed, and notes where it was for want of room.
    fn abandon(&mut self, output: &Output, why: Option<&Disagreement>) -> Result<(), Error> {
        self.log_output_fail(output, &why.map(ToString::to_string).unwrap_or_default());
        self.note_if_full(output.store, output.record.data_bytes())?;
        if output.flags.checkpoint {
            self.last_checkpoint -= 1;
        }
        self.drop_part(&output.record);
        Ok(())
    }

    /// The descriptor's store for a dataset with these flags, unless it bypasses cache.
    fn store_of(&self, flags: OutputFlags) -> Option<usize> {
        let checkpoint = if flags.checkpoint { self.last_checkpoint.saturating_add(1) } else { 0 };
        let descriptor = self.ctx.descriptors.choose(checkpoint, flags.checkpoint, flags.output);
        (!descriptor.bypass).then(|| self.ctx.store_index(&descriptor.store))
    }

    pub(super) fn say_traffic(&self, what: &str, before: Traffic) {
        let now = self.ctx.comm.traffic();
        let (messages, bytes) = (now.messages - before.messages, now.bytes - before.bytes);
        self.ctx.report.info(&format!("{what}: rank 0 sent {messages} messages, {bytes} bytes"));
    }

    fn say_speed(&self, what: &str, from: Duration, to: Duration, files: u64, bytes: u64) {
        let line = speed(what, to.saturating_sub(from), files, bytes, self.ctx.comm.size());
        self.ctx.report.info(&line);
    }
}

/// So many ids are tried for a dataset where other jobs have them.
const MOST_IDS: u32 = 100;

/// The name of a dataset that the application gives none.
fn default_name(id: u64) -> Vec<u8> {
    format!("scr.dataset.{id}").into_bytes()
}
