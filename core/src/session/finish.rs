//! Between cache and prefix directory: when a dataset is flushed, what is fetched, and how a session ends.
//!
//! See the guide's "Fetch, flush, and scavenge", and its `SCR_Finalize`.

use super::datasets::{Cached, ROOT};
use super::output::{label, speed};
use super::restart::Loaded;
use super::{Error, OutputFlags, Phase, Session};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::part::PartDir;
use crate::cache::record::{base_name, FileRecord, RankRecord};
use crate::comm::collective::{all_reduce, barrier, broadcast, Op};
use crate::fetch::{self, Candidate, Fetch, FetchError};
use crate::flush::{self, finalize, Flush, FlushFile as FileToFlush, Options};
use crate::log::{Event, Record};
use crate::param;
use crate::prefix::{DatasetDescriptor, FlushFile, Halt, Index, Location};

/// Why a job is not started again once its application has ended it, as C SCR writes it.
const FINALIZED: &str = "SCR_FINALIZE_CALLED";

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
        self.halt_logged = false;
        self.log_halt(FINALIZED);
        if self.ctx.rank() == ROOT {
            let told = Halt::update(self.ctx.files(), &self.ctx.prefix, |halt| {
                halt.exit_reason = Some(FINALIZED.to_owned());
            });
            if let Err(error) = told {
                self.ctx.report.error(&crate::describe(&error));
            }
        }
        flushed
    }

    /// Flushes what must not be lost with the cache: output that is not there yet, and the newest checkpoint.
    fn flush_last(&mut self) -> Result<(), Error> {
        let newest = self
            .cached
            .iter()
            .filter(|cached| cached.record.dataset.checkpoint && !cached.refused)
            .map(Cached::id)
            .max();
        let periodic = self.ctx.params.get(&param::FLUSH) > 0;
        let superseded = |cached: &Cached| {
            let name = &cached.record.dataset.name;
            self.cached.iter().any(|other| other.id() > cached.id() && other.record.dataset.name == *name)
        };
        let wanted = |cached: &Cached| {
            let newest = periodic && Some(cached.id()) == newest;
            (cached.record.dataset.output || cached.record.protection.bypass || newest) && !superseded(cached)
        };
        let due: Vec<u64> =
            self.cached.iter().filter(|cached| !cached.flushed && wanted(cached)).map(Cached::id).collect();
        due.into_iter().fold(Ok(()), |outcome, id| {
            let flushed = self.flush(id);
            outcome.and(flushed)
        })
    }

    /// Whether a dataset that has just become complete is to be flushed now.
    pub(super) fn is_flush_due(&self, at: usize) -> bool {
        let dataset = &self.cached[at].record.dataset;
        let every = self.ctx.params.get(&param::FLUSH);
        let periodic = every > 0 && dataset.checkpoint_id.is_some_and(|checkpoint| checkpoint % every == 0);
        // In bypass mode the files are in place, and only an entry in the index makes them count.
        dataset.output || self.cached[at].record.protection.bypass || dataset.checkpoint && periodic
    }

    /// Copies a dataset to the prefix directory. It stays in cache.
    pub(super) fn flush(&mut self, id: u64) -> Result<(), Error> {
        let at = self.position(id).expect("the caller has it from the list");
        let (record, ctx) = (&self.cached[at].record, &self.ctx);
        let label = label(record);
        ctx.report.info(&format!("Initiating flush of {label}"));
        ctx.log.add_entry(Record::event(Event::FlushStart).dataset(&record.dataset));
        let began = ctx.elapsed();
        let outcome = self.copy_out(&self.cached[at], &label);
        let took = ctx.elapsed() - began;
        let report = match outcome {
            Ok(report) => report,
            Err(error) => {
                self.log_flush(record, took, Err(&crate::describe(&error)));
                ctx.report.info(&format!("scr_flush_sync: Flush failed for {label}"));
                return Err(error);
            }
        };
        self.log_flush(record, took, Ok((report.files, report.bytes)));
        ctx.report.info(&speed("scr_flush_sync", took, report.files, report.bytes, ctx.comm.size()));
        ctx.report.info(&format!("scr_flush_sync: Flush succeeded for {label}"));
        self.cached[at].flushed = true;
        self.note(id, |flush, id| _ = flush.add_location(id, Location::Prefix));
        Ok(())
    }

    fn copy_out(&self, cached: &Cached, label: &str) -> Result<flush::FlushReport, Error> {
        let (record, ctx) = (&cached.record, &self.ctx);
        let transport = match ctx.transport(&self.flush_type(cached.store))? {
            Ok(transport) => transport,
            Err(why) => {
                return Err(Error::Refused(format!("{label} cannot be flushed: {why}; it is kept in cache")))
            }
        };
        let files: Vec<_> = record.files.iter().map(|file| to_flush(cached, file)).collect();
        let token = broadcast(&*ctx.comm, ROOT, flush::new_token(record.dataset.id, &ctx.env).into_bytes())?;
        let token = String::from_utf8_lossy(&token).into_owned();
        let flush = Flush {
            comm: &*ctx.comm,
            files: ctx.files(),
            transport: &*transport,
            node: ctx.nodes.name(ctx.rank()),
            prefix: &ctx.prefix,
            now: &ctx.local_time(),
            options: Options {
                width: ctx.params.get(&param::FLUSH_WIDTH),
                block_bytes: ctx.params.get(&param::FILE_BUF_SIZE),
                checksums: ctx.params.get(&param::CRC_ON_FLUSH),
                in_place: record.protection.bypass,
                make_current: record.dataset.checkpoint,
            },
        };
        flush.sync(&token, &record.dataset, &files).map_err(|error| Error::Refused(error.to_string()))
    }

    fn flush_type(&self, store: usize) -> String {
        let name = &self.ctx.stores[store].name;
        let configured = self
            .ctx
            .descriptors
            .stores
            .iter()
            .find(|known| known.name == *name)
            .map(|store| store.flush.clone());
        configured.unwrap_or_else(|| self.ctx.params.get(&param::FLUSH_TYPE))
    }

    /// Ends, or clears away, the flushes that earlier runs have left behind.
    pub(super) fn settle_flushes(&self) -> Result<(), Error> {
        if self.ctx.rank() != ROOT {
            return Ok(());
        }
        let (files, prefix) = (self.ctx.files(), &self.ctx.prefix);
        match finalize::finalize_pending(files, prefix, &self.ctx.local_time()) {
            Ok(ended) => ended.iter().for_each(|ended| self.ctx.report.notice(&ended.to_string())),
            Err(error) => self.ctx.report.error(&crate::describe(&error)),
        }
        Ok(())
    }

    /// Fetches the newest checkpoint that the index offers below `below` and above `above`, going on to older ones while one cannot
    /// be fetched.
    pub(super) fn fetch_newest(
        &mut self,
        below: Option<u64>,
        above: Option<u64>,
    ) -> Result<Option<Loaded>, Error> {
        let began = self.ctx.elapsed();
        let wanted = self.ctx.params.get(&param::CURRENT);
        let candidates = fetch::candidates(
            &*self.ctx.comm,
            self.ctx.files(),
            &self.ctx.prefix,
            wanted.as_deref().map(str::as_bytes),
        );
        let candidates = match candidates {
            Ok(candidates) => candidates,
            Err(FetchError::Comm(error)) => return Err(error.into()),
            Err(error) => {
                self.ctx.report.error(&format!("nothing is fetched: {error}"));
                return Ok(None);
            }
        };
        if let Some(note) = &candidates.note {
            self.ctx.report.warn(note);
        }
        let eligible = candidates.list.into_iter().filter(|candidate| {
            below.is_none_or(|below| candidate.id < below) && above.is_none_or(|above| candidate.id > above)
        });
        let mut loaded = None;
        for candidate in eligible {
            loaded = self.fetch(&candidate)?;
            if loaded.is_some() {
                break;
            }
        }
        let (took, code) = ((self.ctx.elapsed() - began).as_secs_f64(), i32::from(loaded.is_none()));
        self.ctx.report.info(&format!("scr_fetch_latest: return code {code}, {took:.6} secs"));
        Ok(loaded)
    }

    /// Fetches one checkpoint: its files come to cache and are protected as a new dataset would be.
    fn fetch(&mut self, candidate: &Candidate) -> Result<Option<Loaded>, Error> {
        let name = String::from_utf8_lossy(&candidate.name).into_owned();
        self.ctx.report.info(&format!("Attempting fetch: {name}"));
        let log = |event| Record::event(event).id(candidate.id).named(&candidate.name);
        self.ctx.log.add_entry(log(Event::FetchStart));
        let began = self.ctx.elapsed();
        let fetched = self.fetch_into_cache(candidate)?;
        let took = self.ctx.elapsed() - began;
        match fetched {
            Ok(loaded) => {
                self.ctx.log.add_entry(log(Event::FetchSuccess).took(took));
                if let Some(at) = self.position(loaded.id) {
                    self.log_fetch(&self.cached[at].record, took);
                }
                Ok(Some(loaded))
            }
            Err(why) => {
                self.ctx.log.add_entry(log(Event::FetchFail).took(took).note(why.as_str()));
                self.ctx.report.error(&format!("`{name}' cannot be fetched: {why}"));
                Ok(None)
            }
        }
    }

    /// The inner error says why it cannot be fetched, the same on all ranks; what was copied is removed then.
    fn fetch_into_cache(&mut self, candidate: &Candidate) -> Result<Result<Loaded, String>, Error> {
        let descriptor = self.ctx.descriptors.choose(1, true, false).clone();
        let mut protection = match self.ctx.protection_of(&descriptor)? {
            Ok(protection) => protection,
            Err(why) => return Ok(Err(why)),
        };
        protection.bypass |= self.ctx.params.get(&param::FETCH_BYPASS);
        let flags = OutputFlags { checkpoint: true, output: false };
        let mut begun = [if self.ctx.rank() == ROOT { self.ctx.micros() } else { 0 }];
        all_reduce(&*self.ctx.comm, &mut begun, Op::Max)?;
        let mut record = self.new_record(begun[0], Some(&candidate.name), flags, None, protection);
        record.dataset.id = candidate.id;
        (record.members, record.nodes) = self.ctx.members(&descriptor);
        self.clear_kept(&record)?;
        record.dataset.id = self.free_id(&record)?;
        let (part, journal) = match self.begin_together(&record)? {
            Ok(begun) => begun,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let outcome = self.fill_and_seal(candidate, &mut record, &part, &journal)?;
        if outcome.is_err() {
            self.drop_part(&record);
        }
        Ok(outcome.map(|()| {
            let id = record.dataset.id;
            let loaded = Loaded { id, id_in_prefix: candidate.id, name: record.dataset.name.clone() };
            let store = self.ctx.store_index(&record.protection.store);
            let place = self.cached.partition_point(|cached| cached.id() < id);
            self.cached.insert(place, Cached { record, part, store, flushed: true, refused: false });
            self.note_in_cache(place);
            self.note(id, |flush, id| _ = flush.add_location(id, Location::Prefix));
            loaded
        }))
    }

    /// The id under which a dataset comes to cache: its own, unless a dataset of another prefix directory has it there.
    fn free_id(&mut self, record: &RankRecord) -> Result<u64, Error> {
        let filemap = self.part_of(record).filemap();
        let mut taken = [u64::from(self.ctx.files().status(&filemap).is_ok())];
        all_reduce(&*self.ctx.comm, &mut taken, Op::Max)?;
        if taken == [0] {
            return Ok(record.dataset.id);
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    /// Copies a checkpoint's files into this rank's part and protects them.
    fn fill_and_seal(
        &self,
        candidate: &Candidate,
        record: &mut RankRecord,
        part: &PartDir,
        journal: &Journal,
    ) -> Result<Result<(), String>, Error> {
        let ctx = &self.ctx;
        let began = ctx.elapsed();
        let fetch = Fetch {
            comm: &*ctx.comm,
            files: ctx.files(),
            node: ctx.nodes.name(ctx.rank()),
            prefix: &ctx.prefix,
            now: &ctx.local_time(),
            options: fetch::Options {
                width: ctx.params.get(&param::FETCH_WIDTH),
                block_bytes: ctx.params.get(&param::FILE_BUF_SIZE),
                bypass: record.protection.bypass,
                checksums: ctx.params.get(&param::CRC_ON_FLUSH),
            },
        };
        let mut bases = std::collections::BTreeSet::new();
        let fetched = fetch.dataset(candidate, &mut |_, file| {
            if !bases.insert(base_name(&file.name).to_vec()) {
                let name = String::from_utf8_lossy(&file.name);
                return Err(format!(
                    "`{name}' has the base name of another file; set SCR_FETCH_BYPASS=1 to read it in place"
                ));
            }
            let recorded = journal.append(&Entry::File(&file.name));
            recorded.map_err(|error| format!("cannot write {}: {error}", part.filemap().display()))?;
            Ok(part.file(&file.name))
        });
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(FetchError::Comm(error)) => return Err(error.into()),
            Err(error) => return Ok(Err(error.to_string())),
        };
        self.tell_fetched(&fetched, began);
        record.files = fetched.files.iter().map(recorded).collect();
        record.dataset = DatasetDescriptor { id: record.dataset.id, ..fetched.dataset };
        let scheme = ctx.scheme(&record.protection)?;
        let sealing = ctx.elapsed();
        let sealed = ctx.agree(self.seal(record, part, journal, scheme))?.map_err(|why| why.to_string());
        let (files, bytes) = (record.dataset.files.unwrap_or(0), record.dataset.bytes.unwrap_or(0));
        let took = ctx.elapsed() - sealing;
        ctx.report.info(&speed("scr_reddesc_apply", took, files, bytes, ctx.comm.size()));
        let sealed =
            sealed.and_then(|()| journal.append(&Entry::Complete).map_err(|error| error.to_string()));
        Ok(ctx.agree(sealed)?.map_err(|why| why.to_string()))
    }

    fn tell_fetched(&self, fetched: &fetch::Fetched, began: std::time::Duration) {
        let ctx = &self.ctx;
        if !fetched.verified {
            let name = String::from_utf8_lossy(&fetched.dataset.name);
            let why = if ctx.params.get(&param::CRC_ON_FLUSH) {
                "not all its files have checksums"
            } else {
                "SCR_CRC_ON_FLUSH=0 is set"
            };
            ctx.report.info(&format!("`{name}': only the lengths of its files are verified, as {why}"));
        }
        if let Some(note) = &fetched.note {
            ctx.report.warn(note);
        }
        let (files, bytes) = (fetched.dataset.files.unwrap_or(0), fetched.dataset.bytes.unwrap_or(0));
        ctx.report.info(&speed("scr_fetch_dset", ctx.elapsed() - began, files, bytes, ctx.comm.size()));
    }

    /// What is left in cache of a dataset that could not be brought back makes way for its copy from the prefix directory.
    fn clear_kept(&mut self, record: &RankRecord) -> Result<(), Error> {
        let target = self.part_of(record);
        let (same, other) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|part: &PartDir| part.dataset() == target.dataset());
        self.kept = other;
        let same: Vec<PartDir> = same;
        // Other ranks may already be making their parts in the same folders.
        for part in same {
            if let Err(error) = part.clear(self.ctx.files()) {
                self.ctx.report.error_here(&crate::describe(&error));
            }
        }
        if let Some(at) = self.position(record.dataset.id) {
            self.evict(at);
            barrier(&*self.ctx.comm)?;
        }
        Ok(())
    }

    /// Notes in the index that the application could not restart from a checkpoint.
    pub(super) fn mark_failed(&self, loaded: &Loaded) {
        if self.ctx.rank() != ROOT {
            return;
        }
        let time = self.ctx.local_time();
        let marked = Index::update(self.ctx.files(), &self.ctx.prefix, |index| {
            index.mark_failed(loaded.id_in_prefix, &time)
        });
        if let Err(error) = marked {
            self.ctx.report.error(&crate::describe(&error));
        }
    }

    /// Notes in the flush file that a dataset is in cache.
    pub(super) fn note_in_cache(&self, at: usize) {
        let dataset = self.cached[at].record.dataset.clone();
        self.note(dataset.id, |flush, _| flush.record(&dataset, Location::Cache));
    }

    /// Notes in the flush file that a dataset is not in cache any more.
    pub(super) fn forget_in_cache(&self, cached: &Cached) {
        self.note(cached.id(), |flush, id| flush.remove_location(id, Location::Cache));
    }

    /// The flush file is for the commands: where it cannot be written, the session goes on.
    fn note(&self, id: u64, change: impl FnOnce(&mut FlushFile, u64)) {
        if self.ctx.rank() != ROOT {
            return;
        }
        let noted = FlushFile::update(self.ctx.files(), &self.ctx.prefix, |flush| change(flush, id));
        if let Err(error) = noted {
            self.ctx.report.error(&crate::describe(&error));
        }
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

fn recorded(file: &fetch::FetchedFile) -> FileRecord {
    let (name, bytes, mode, mtime, crc) = (file.name.clone(), file.bytes, file.mode, file.mtime, file.crc);
    FileRecord { name, bytes, mode, mtime, crc }
}
