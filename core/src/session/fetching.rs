//! From the prefix directory to cache: which checkpoint is fetched, and what is said where it cannot be.
//!
//! See the guide's "Fetch, flush, and scavenge".

use super::datasets::ROOT;
use super::restart::Loaded;
use super::{Error, OutputFlags, Session};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::flush_file::update_flush_file;
use crate::cache::part::PartDir;
use crate::cache::record::{FileRecord, RankRecord};
use crate::cache::{CachedDataset, PrefixCopy};
use crate::comm::collective::{all_reduce, barrier, Op};
use crate::fetch::{self, Candidate, Fetch, FetchError};
use crate::log::{Event, Record};
use crate::param;
use crate::prefix::{DatasetDescriptor, Index, Location};
use crate::redundancy::protect::Protect;

impl Session {
    /// Fetches the newest checkpoint that the index offers below `below` and above `above`, going on to older ones while one cannot
    /// be fetched.
    pub(super) fn fetch_newest(
        &mut self,
        below: Option<u64>,
        above: Option<u64>,
    ) -> Result<Option<Loaded>, Error> {
        let eligible = |candidate: &Candidate| {
            below.is_none_or(|below| candidate.id < below) && above.is_none_or(|above| candidate.id > above)
        };
        self.fetch_first(below.is_none(), &eligible)
    }

    /// Fetches the checkpoint that `SCR_CURRENT` names, and no other.
    pub(super) fn fetch_wanted(&mut self) -> Result<Option<Loaded>, Error> {
        let wanted = self.job.params.get(&param::CURRENT).map(String::into_bytes);
        self.fetch_first(false, &|candidate| Some(&candidate.name) == wanted.as_ref())
    }

    /// Fetches the first of the eligible checkpoints that can be fetched. Where that is the very first, and the first
    /// of a run, it is the one that the user, or the index, has made current.
    fn fetch_first(
        &mut self,
        at_start: bool,
        eligible: &dyn Fn(&Candidate) -> bool,
    ) -> Result<Option<Loaded>, Error> {
        let (began, sent) = (self.job.elapsed(), self.job.comm.traffic());
        let Some(candidates) = self.candidates(at_start)? else { return Ok(None) };
        let mut loaded = None;
        let mut tried = Vec::new();
        for candidate in candidates.iter().filter(|candidate| eligible(candidate)) {
            loaded = self.fetch(candidate)?;
            if loaded.is_some() {
                break;
            }
            tried.push(String::from_utf8_lossy(&candidate.name).into_owned());
        }
        match &loaded {
            Some(loaded) if at_start && tried.is_empty() => self.drop_newer(loaded.id_in_prefix)?,
            None if !tried.is_empty() => self.job.report.error(&format!(
                "no checkpoint could be fetched from {}; tried: {}",
                self.job.prefix.dir().display(),
                tried.join(", ")
            )),
            _ => (),
        }
        let (took, code) = ((self.job.elapsed() - began).as_secs_f64(), i32::from(loaded.is_none()));
        self.job.report.info(&format!("scr_fetch_latest: return code {code}, {took:.6} secs"));
        self.say_traffic("scr_fetch_latest", sent);
        Ok(loaded)
    }

    /// The checkpoints to try, in their order; none where they cannot be found out, which is told.
    fn candidates(&self, at_start: bool) -> Result<Option<Vec<Candidate>>, Error> {
        let job = &self.job;
        let wanted = job.params.get(&param::CURRENT);
        let wanted = wanted.as_deref().map(str::as_bytes);
        let candidates = match fetch::candidates(&*job.comm, job.files(), &job.prefix, wanted) {
            Ok(candidates) => candidates,
            Err(FetchError::Comm(error)) => return Err(error.into()),
            Err(error) => {
                job.report.error(&format!("nothing is fetched: {error}"));
                return Ok(None);
            }
        };
        if let Some(note) = &candidates.note {
            job.report.warn(note);
        }
        if let Some(why) = candidates.none.as_ref().filter(|_| at_start) {
            job.report.warn(why);
        }
        Ok(Some(candidates.list))
    }

    /// Fetches one checkpoint: its files come to cache and are protected as a new dataset would be.
    fn fetch(&mut self, candidate: &Candidate) -> Result<Option<Loaded>, Error> {
        let name = String::from_utf8_lossy(&candidate.name).into_owned();
        self.job.report.info(&format!("Attempting fetch: {name}"));
        let log = |event| Record::event(event).id(candidate.id).named(&candidate.name);
        self.job.log.add_entry(log(Event::FetchStart));
        let began = self.job.elapsed();
        let fetched = self.fetch_into_cache(candidate)?;
        let took = self.job.elapsed() - began;
        match fetched {
            Ok(loaded) => {
                self.job.log.add_entry(log(Event::FetchSuccess).took(took));
                if let Some(at) = self.cache.position(loaded.id) {
                    self.log_fetch(&self.cache.datasets()[at].record, took);
                }
                Ok(Some(loaded))
            }
            Err(why) => {
                self.job.log.add_entry(log(Event::FetchFail).took(took).note(why.as_str()));
                self.job.report.error(&format!("`{name}' cannot be fetched: {why}"));
                Ok(None)
            }
        }
    }

    /// The inner error says why it cannot be fetched, the same on all ranks; what was copied is removed then.
    fn fetch_into_cache(&mut self, candidate: &Candidate) -> Result<Result<Loaded, String>, Error> {
        let descriptor = self.job.descriptors.choose(1, true, false).clone();
        let mut protection = match self.schemes.protection_of(&self.job, &descriptor) {
            Ok(protection) => protection,
            Err(error) => return Ok(Err(error.agreed()?.to_string())),
        };
        let params = &self.job.params;
        protection.bypass |= params.get(&param::FETCH_BYPASS) || params.get(&param::GLOBAL_RESTART);
        let flags = OutputFlags { checkpoint: true, output: false };
        let mut begun = [if self.job.rank() == ROOT { self.job.micros() } else { 0 }];
        all_reduce(&*self.job.comm, &mut begun, Op::Max)?;
        let mut record =
            self.new_record(candidate.id, begun[0], Some(&candidate.name), flags, None, protection);
        (record.members, record.nodes) = self.schemes.members(&self.job, &descriptor);
        self.clear_place(&record)?;
        // Its own id, unless a dataset of another prefix directory has it in cache.
        let (part, journal) =
            match self.cache.begin(&self.job, &mut record, |record, id| record.dataset.id = id) {
                Ok(begun) => begun,
                Err(error) => return Ok(Err(error.agreed()?.to_string())),
            };
        let outcome = self.fill_and_protect(candidate, &mut record, &part, &journal)?;
        if outcome.is_err() {
            self.drop_part(&record);
        }
        Ok(outcome.map(|()| {
            let id = record.dataset.id;
            let loaded = Loaded { id, id_in_prefix: candidate.id, name: record.dataset.name.clone() };
            let store = self.cache.store_index(&record.protection.store);
            let cached =
                CachedDataset { copy: PrefixCopy::Complete, ..CachedDataset::new(record, part, store) };
            self.cache.insert(cached);
            self.cache.record_in_cache(&self.job, id, None);
            update_flush_file(&self.job, |flush| _ = flush.add_location(id, Location::Prefix));
            loaded
        }))
    }

    /// Copies a checkpoint's files into this rank's part and protects them.
    fn fill_and_protect(
        &self,
        candidate: &Candidate,
        record: &mut RankRecord,
        part: &PartDir,
        journal: &Journal,
    ) -> Result<Result<(), String>, Error> {
        let job = &self.job;
        let fetched = match self.fill(candidate, record, part, journal) {
            Ok(fetched) => fetched,
            Err(FetchError::Comm(error)) => return Err(error.into()),
            Err(error) => return Ok(Err(error.to_string())),
        };
        record.files = fetched.files.iter().map(recorded).collect();
        record.dataset = DatasetDescriptor { id: record.dataset.id, ..fetched.dataset };
        let protecting = job.elapsed();
        let protected = self.schemes.scheme(job, &record.protection).and_then(|scheme| {
            let protect = Protect { job, cache: &self.cache, scheme: &*scheme };
            job.agree(protect.encode_and_prepare(part, record, journal))
        });
        let (files, bytes) = (record.dataset.files.unwrap_or(0), record.dataset.bytes.unwrap_or(0));
        let took = job.elapsed() - protecting;
        job.report.info(&crate::message::throughput(
            "scr_reddesc_apply",
            took,
            files,
            bytes,
            job.comm.size(),
        ));
        match protected.and_then(|()| job.agree(journal.append(&Entry::Complete))) {
            Ok(()) => Ok(Ok(())),
            Err(error) => Ok(Err(error.agreed()?.to_string())),
        }
    }

    /// Copies a checkpoint's files into this rank's part, each recorded before it is there.
    fn fill(
        &self,
        candidate: &Candidate,
        record: &RankRecord,
        part: &PartDir,
        journal: &Journal,
    ) -> Result<fetch::Fetched, FetchError> {
        let job = &self.job;
        let began = job.elapsed();
        let fetch = Fetch {
            comm: &*job.comm,
            files: job.files(),
            node: job.nodes.name(job.rank()),
            prefix: &job.prefix,
            now: &job.local_time(),
            options: fetch::Options {
                width: job.params.get(&param::FETCH_WIDTH),
                block_bytes: job.params.get(&param::FILE_BUF_SIZE),
                bypass: record.protection.bypass,
                checksums: job.params.get(&param::CRC_ON_FLUSH),
                metadata: job.params.get(&param::COPY_METADATA),
            },
        };
        let mut bases = std::collections::BTreeSet::new();
        let fetched = fetch.dataset(candidate, &mut |_, file| {
            if !bases.insert(file.name.base().to_vec()) {
                return Err(format!(
                    "`{}' has the base name of another file; set SCR_FETCH_BYPASS=1 to read it in place",
                    file.name
                ));
            }
            let recorded = journal.append(&Entry::File(&file.name));
            recorded.map_err(|error| format!("cannot write {}: {error}", part.filemap().display()))?;
            Ok(part.file(&file.name))
        })?;
        self.tell_fetched(&fetched, began);
        Ok(fetched)
    }

    fn tell_fetched(&self, fetched: &fetch::Fetched, began: std::time::Duration) {
        let job = &self.job;
        if !fetched.verified {
            let name = String::from_utf8_lossy(&fetched.dataset.name);
            let why = if job.params.get(&param::CRC_ON_FLUSH) {
                "not all its files have checksums"
            } else {
                "SCR_CRC_ON_FLUSH=0 is set"
            };
            job.report.warn(&format!(
                "`{name}' is unverified: only the lengths of its files are verified, as {why}"
            ));
        }
        if let Some(note) = &fetched.note {
            job.report.warn(note);
        }
        let (files, bytes) = (fetched.dataset.files.unwrap_or(0), fetched.dataset.bytes.unwrap_or(0));
        job.report.info(&crate::message::throughput(
            "scr_fetch_dset",
            job.elapsed() - began,
            files,
            bytes,
            job.comm.size(),
        ));
    }

    /// What is left in cache of a dataset that could not be brought back makes way for its copy from the prefix directory.
    fn clear_place(&mut self, record: &RankRecord) -> Result<(), Error> {
        self.cache.clear_stale(&self.job, &self.cache.part_of(&self.job, record));
        // Another one that was given the same number stays.
        let is_copy = |cached: &CachedDataset| {
            cached.id() == record.dataset.id && cached.record.dataset.name == record.dataset.name
        };
        if self.cache.datasets().iter().any(is_copy) {
            self.finish_flush_of(record.dataset.id)?;
            self.cache.evict(&self.job, record.dataset.id);
            barrier(&*self.job.comm)?;
        }
        Ok(())
    }

    /// Notes in the index that the application could not restart from a checkpoint.
    pub(super) fn mark_failed(&self, loaded: &Loaded) {
        if self.job.rank() != ROOT {
            return;
        }
        let time = self.job.local_time();
        let marked = Index::update(self.job.files(), &self.job.prefix, |index| {
            index.mark_failed(loaded.id_in_prefix, &time)
        });
        if let Err(error) = marked {
            self.job.report.error(&crate::describe(&error));
        }
    }
}

fn recorded(file: &fetch::FetchedFile) -> FileRecord {
    let (name, bytes, mode, mtime, crc) = (file.name.clone(), file.bytes, file.mode, file.mtime, file.crc);
    FileRecord { name, bytes, mode, mtime, crc }
}
