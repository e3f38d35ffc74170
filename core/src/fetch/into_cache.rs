//! Fetches a checkpoint from the prefix directory into cache, and protects it there like a new dataset.
//!
//! See docs/user/save-a-dead-job.md.

use super::{candidates, Candidate, Fetch, FetchError, Fetched, Mates, NotFetched, Options};
use crate::cache::filemap::{Entry, Journal};
use crate::cache::flush_file::News;
use crate::cache::part::PartDir;
use crate::cache::record::{of_other_size, RankRecord};
use crate::cache::verify::Opened;
use crate::cache::{Cache, CachedDataset, CheckpointId};
use crate::error::Error;
use crate::holdings::InPrefix;
use crate::job::Job;
use crate::log::{Event, Record, Transfer};
use crate::redundancy::schemes::Schemes;
use crate::restart::Unread;
use scr_base::fs::verify::FileError;
use scr_base::fs::At;
use scr_base::message::throughput;
use scr_comm::CommError;
use scr_config::param;
use scr_prefix::{rank2file, DatasetDescriptor, FileName};
use std::collections::BTreeSet;
use std::time::Duration;

/// Fetches checkpoints into the cache of a job.
pub(crate) struct Fetcher<'a> {
    pub(crate) job: &'a Job,
    pub(crate) cache: &'a mut Cache,
    pub(crate) schemes: &'a Schemes,
    /// The checkpoints of another number of ranks that it has found, each with both numbers.
    pub(crate) of_other_size: Vec<String>,
    /// Those that could not be read.
    pub(crate) unread: BTreeSet<Unread>,
}

/// Which checkpoints a search is for.
pub(crate) struct Search<'a> {
    /// Whether it is the first of a run: then it is reported why the index offers none.
    pub(crate) at_start: bool,
    /// The one that it is for, and no other.
    pub(crate) wanted: Option<Wanted<'a>>,
    /// The place of the one to try next, of those that are left.
    pub(crate) next: &'a dyn Fn(&[Candidate], &Cache) -> Option<usize>,
}

/// A checkpoint that somebody has named.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a [u8],
    /// Whether the user has, in `SCR_CURRENT`, or else the application.
    pub(crate) by_user: bool,
}

impl<'a> Fetcher<'a> {
    /// One that has found nothing yet.
    pub(crate) fn new(job: &'a Job, cache: &'a mut Cache, schemes: &'a Schemes) -> Self {
        Self { job, cache, schemes, of_other_size: Vec::new(), unread: BTreeSet::new() }
    }

    /// The first of what another number of ranks wrote, and how many more there are.
    pub(crate) fn of_other_size(&self) -> Option<String> {
        let (first, others) = self.of_other_size.split_first()?;
        let others = others.iter().filter(|other| *other != first).collect::<BTreeSet<_>>().len();
        Some(if others == 0 { first.clone() } else { format!("{first} (the same holds for {others} more)") })
    }

    /// Says what is left alone, since another number of ranks wrote it.
    pub(crate) fn report_left_alone(&self) {
        if let Some(what) = self.of_other_size() {
            self.job
                .report
                .warn(&format!("{what}: it is left alone; to restart from it, {}", as_many_ranks(self.job)));
        }
    }

    /// Fetches the first checkpoint that can be fetched of those that are tried. Collective.
    ///
    /// # Errors
    /// The ranks cannot talk. When a run begins, also if the index cannot be read though it is not damaged: what it lists may be
    /// newer than all that is in cache. If somebody has named the checkpoint, also if the index, or that checkpoint, cannot be
    /// read or put into cache though it is not damaged: another one is not wanted.
    pub(crate) fn first(&mut self, search: &Search<'_>) -> Result<Option<CheckpointId>, Error> {
        let job = self.job;
        let (began, sent) = (job.elapsed(), job.comm.traffic());
        let (mut fetched, mut tried) = (None, Vec::new());
        for _ in 0..MOST_LISTINGS {
            let Some(candidates) = self.candidates(search)? else { return Ok(None) };
            if let Some(first) = self.first_of(candidates, search, &mut tried)? {
                fetched = first;
                break;
            }
        }
        if fetched.is_none() && !tried.is_empty() {
            job.report.error(&format!(
                "no checkpoint could be fetched from {}; tried: {}",
                job.prefix.dir().display(),
                tried.join(", ")
            ));
        }
        let (took, code) = ((job.elapsed() - began).as_secs_f64(), i32::from(fetched.is_none()));
        job.report.info(&format!("scr_fetch_latest: return code {code}, {took:.6} secs"));
        job.report_traffic("scr_fetch_latest", sent);
        Ok(fetched)
    }

    /// The one that was fetched of one listing, if any could be. Nothing is known where another process has replaced one of them:
    /// the index lists others by now.
    fn first_of(
        &mut self,
        mut left: Vec<Candidate>,
        search: &Search<'_>,
        tried: &mut Vec<String>,
    ) -> Result<Option<Option<CheckpointId>>, Error> {
        let mut may_pass = false;
        let mut unread = None;
        while let Some(next) = (search.next)(&left, self.cache) {
            let candidate = left.remove(next);
            match self.one(&candidate, !may_pass) {
                Ok(checkpoint) => return Ok(Some(Some(checkpoint))),
                Err(FetchError::Comm(error)) => return Err(error.into()),
                Err(FetchError::Replaced { .. }) => return Ok(None),
                Err(FetchError::Damaged { .. }) => tried.push(candidate.name_text()),
                Err(FetchError::Ranks { found, expected, .. }) => {
                    let label = format!("dataset {} `{}'", candidate.seq.id, candidate.name_text());
                    self.of_other_size.push(of_other_size(&label, found, expected));
                    self.cache.unread.insert(candidate.seq.id);
                    may_pass = true;
                }
                Err(error) => {
                    may_pass = true;
                    self.cache.unread.insert(candidate.seq.id);
                    tried.push(candidate.name_text());
                    // A dataset that is written over stays so.
                    if !matches!(error, FetchError::NotFetched { why: NotFetched::Unproven, .. }) {
                        self.unread.insert((candidate.seq, candidate.name_text()));
                        unread = Some(error);
                    }
                }
            }
        }
        // Another one is not wanted.
        if let Some((wanted, unread)) = search.wanted.zip(unread) {
            let name = String::from_utf8_lossy(wanted.name);
            return Err(Error::Refused(match wanted.by_user {
                true => format!("SCR_CURRENT={name}: {unread}; start the job again once it can be read, or unset SCR_CURRENT"),
                false => format!("`{name}', which SCR_Current was given: {unread}"),
            }));
        }
        Ok(Some(None))
    }

    /// The checkpoints to try, in their order; `None` if they cannot be found out, which is reported.
    fn candidates(&self, search: &Search<'_>) -> Result<Option<Vec<Candidate>>, Error> {
        let (job, at_start) = (self.job, search.at_start);
        let named = search.wanted.filter(|wanted| wanted.by_user).map(|wanted| wanted.name);
        let candidates = match candidates(&*job.comm, job.files(), &job.prefix, named) {
            Ok(candidates) => candidates,
            Err(FetchError::Comm(error)) => return Err(error.into()),
            Err(error @ FetchError::Index { is_damaged: false, .. })
                if at_start || search.wanted.is_some() =>
            {
                return Err(Error::Refused(format!("{error}; start the job again once it can be read")));
            }
            Err(error) => {
                job.report.error(&format!("nothing is fetched: {error}"));
                return Ok(None);
            }
        };
        if let Some(warning) = &candidates.warning {
            job.warn_of_setting(warning);
        }
        if let Some(why) = candidates.none.as_ref().filter(|_| at_start) {
            job.report.warn(why);
        }
        Ok(Some(candidates.list))
    }

    /// Fetches one checkpoint, and reports how that went. `make_current` says whether the index calls it current then. Collective.
    ///
    /// # Errors
    /// [`FetchError`], the same on all ranks.
    pub(crate) fn one(
        &mut self,
        candidate: &Candidate,
        make_current: bool,
    ) -> Result<CheckpointId, FetchError> {
        let (job, name) = (self.job, candidate.name_text());
        job.report.info(&format!("Attempting fetch: {name}"));
        let log = |event| Record::event(event).id(candidate.seq.id).named(&candidate.name);
        job.log.add_entry(log(Event::FetchStart));
        let began = job.elapsed();
        let fetched = self.fetch_one(candidate, make_current);
        let took = job.elapsed() - began;
        match &fetched {
            Err(FetchError::Comm(_)) => (),
            Ok(checkpoint) => {
                job.log.add_entry(log(Event::FetchSuccess).took(took));
                self.log_transfer(checkpoint, took);
            }
            Err(error) => {
                job.log.add_entry(log(Event::FetchFail).took(took).note(error.to_string()));
                // The run says once what it leaves alone.
                if !matches!(error, FetchError::Ranks { .. }) {
                    job.report.error(&format!("`{name}' cannot be fetched: {error}"));
                }
            }
        }
        fetched
    }

    /// Fetches one checkpoint. Its parts in cache stay until the copy is whole, and so do the remains of others, unless there is
    /// no room for all. What is damaged is looked at twice before it is marked.
    fn fetch_one(&mut self, candidate: &Candidate, make_current: bool) -> Result<CheckpointId, FetchError> {
        self.cache.remove_spares(self.job);
        let mut how = How { make_current, marks: false };
        loop {
            let mut full = None;
            match self.fetch_beside(candidate, how, &mut full) {
                Err(FetchError::Damaged { .. }) if !how.marks => how.marks = true,
                Err(error) => match full {
                    Some(store) if self.cache.make_way(self.job, store, candidate.seq)? => (),
                    _ => return Err(error),
                },
                fetched => return fetched,
            }
        }
    }

    /// Fetches one checkpoint. If that fails, all that was copied is removed, and `full` says which store had no room for it, if
    /// that was why.
    fn fetch_beside(
        &mut self,
        candidate: &Candidate,
        how: How,
        full: &mut Option<usize>,
    ) -> Result<CheckpointId, FetchError> {
        let job = self.job;
        let descriptor = job.descriptors.redundancy.choose(1, true, false);
        let mut protection = self.schemes.protection_of(job, self.cache, descriptor)?;
        let writers = self.writers(candidate)?;
        protection.bypass |= job.params.get(&param::FETCH_BYPASS) || job.params.get(&param::GLOBAL_RESTART);
        protection.bypass |= candidate.is_output;
        // In place the application would not find its files.
        protection.bypass &= !candidate.aggregated;
        protection.bypass |= writers.is_some();
        let store = self.cache.store_index(&protection.store);
        if !protection.bypass && self.cache.do_remains_crowd(job, store)? {
            self.cache.clear_remains(job)?;
        }
        let created = job.number_of_first(|| job.micros())?;
        let dataset = DatasetDescriptor {
            id: candidate.seq.id,
            run: candidate.seq.run,
            name: candidate.name.clone(),
            checkpoint: true,
            created,
            ranks: Some(writers.unwrap_or(job.comm.size())),
            ..job.descriptor_of_job()
        };
        let set = self.schemes.members(job, descriptor);
        let read_by = writers.map(|_| job.comm.size());
        let mut record = RankRecord { read_by, ..RankRecord::begun(job, dataset, protection, set) };
        // Its own id, unless cache has something under it.
        let (part, journal) =
            self.cache.begin(job, &mut record, || Ok(()), |record, id| record.cache_id = id)?;
        if let Err(error) = self.fill(candidate, how, &mut record, &part, &journal) {
            let has_no_room = match &error {
                FetchError::NotFetched { why: NotFetched::Failed { no_room }, .. } => *no_room,
                // All was read by then, and was right: only the redundancy is missing.
                FetchError::Cache(_) => self.cache.is_full(job, store)?,
                _ => false,
            };
            *full = has_no_room.then_some(store);
            self.cache.remove_part(job, &part);
            return Err(error);
        }
        let copies = self.cache.ids_of(|cached| cached.record.is_of_same(&record));
        copies.into_iter().for_each(|id| self.cache.evict(job, id));
        let cached = CachedDataset::new(record, part, journal.into_claim(), store);
        let dataset = CachedDataset { prefix: InPrefix::whole(candidate.aggregated), ..cached };
        let checkpoint = dataset.checkpoint();
        self.cache.insert(dataset);
        self.cache.list(job, News::None);
        Ok(checkpoint)
    }

    /// The number of ranks that wrote the dataset, if it is another one than that of this run, and the application can read what
    /// any number wrote. Collective.
    fn writers(&self, candidate: &Candidate) -> Result<Option<u32>, CommError> {
        let job = self.job;
        if !job.params.get(&param::RESTART_OTHER_RANKS) {
            return Ok(None);
        }
        // Why it cannot be read is found out once more.
        let ranks = || rank2file::ranks(job.files(), &job.prefix, candidate.seq.id).unwrap_or(0);
        let writers = job.number_of_first(|| ranks().into())?;
        let others = |&writers: &u32| writers != 0 && writers != job.comm.size();
        Ok(u32::try_from(writers).ok().filter(others))
    }

    /// Copies a checkpoint's files into this rank's part and protects them.
    fn fill(
        &self,
        candidate: &Candidate,
        how: How,
        record: &mut RankRecord,
        part: &PartDir,
        journal: &Journal,
    ) -> Result<(), FetchError> {
        let job = self.job;
        let fetched = self.copy(candidate, how, record, part, journal)?;
        record.files = fetched.files;
        if record.read_by.is_some() {
            // Ranks of a block may have written one together.
            record.files.sort_by(|one, other| one.name.cmp(&other.name));
            record.files.dedup_by(|one, other| one.name == other.name);
        }
        // The caches of this allocation have it from here on.
        let DatasetDescriptor { id, run, ranks, user, job_id, .. } = std::mem::take(&mut record.dataset);
        record.dataset =
            DatasetDescriptor { id, run, ranks, user, job_id, aggregated: false, ..fetched.dataset };
        let began = job.elapsed();
        self.schemes.protect(job, self.cache, record, part, journal, Opened::new())?;
        let (files, bytes) = (record.dataset.files.unwrap_or(0), record.dataset.bytes.unwrap_or(0));
        let took = job.elapsed() - began;
        job.report.info(&throughput("scr_reddesc_apply", took, files, bytes, job.comm.size()));
        Ok(job.agree(journal.append(job.files(), &Entry::Complete))?)
    }

    /// Copies a checkpoint's files into this rank's part, each recorded before it is there.
    fn copy(
        &self,
        candidate: &Candidate,
        How { make_current, marks }: How,
        record: &RankRecord,
        part: &PartDir,
        journal: &Journal,
    ) -> Result<Fetched, FetchError> {
        let job = self.job;
        let began = job.elapsed();
        let path_of = |rank, name: &FileName| part.of_rank(rank).file(name);
        let fetch = Fetch {
            comm: &*job.comm,
            files: job.files(),
            node: job.nodes.name(job.rank()),
            prefix: &job.prefix,
            now: &job.local_time(),
            mates: Some(Mates { nodes: &job.nodes, path_of: &path_of }),
            is_there: &|| job.run.wait_for_prefix(job.files(), &job.prefix).is_ok(),
            marks,
            options: Options {
                width: job.params.get(&param::FETCH_WIDTH),
                block_bytes: job.params.get(&param::FILE_BUF_SIZE),
                bypass: record.protection.bypass,
                checksums: job.params.get(&param::CRC_ON_FLUSH),
                metadata: job.params.get(&param::COPY_METADATA),
                make_current,
                global: job.params.get(&param::GLOBAL_RESTART),
                writers: record.read_by.and(record.dataset.ranks),
            },
        };
        // A file without a checksum that lies there in place may have been found changed.
        let by_time = candidate.by_time || self.cache.changed.contains(&candidate.seq);
        let candidate = &Candidate { by_time, ..candidate.clone() };
        let mut bases = BTreeSet::new();
        let fetched = fetch.dataset(candidate, &mut |_, file| {
            if !bases.insert(file.name.base().to_vec()) {
                return Err(FileError::BaseName { name: file.name.to_string() });
            }
            journal.append(job.files(), &Entry::File(&file.name)).at("write", &part.filemap())?;
            Ok(part.file(&file.name))
        })?;
        self.report_fetched(&fetched, began);
        Ok(fetched)
    }

    fn report_fetched(&self, fetched: &Fetched, began: Duration) {
        let job = self.job;
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
        if let Some(warning) = &fetched.warning {
            job.report.warn(warning);
        }
        let (files, bytes) = (fetched.dataset.files.unwrap_or(0), fetched.dataset.bytes.unwrap_or(0));
        let took = job.elapsed() - began;
        job.report.info(&throughput("scr_fetch_dset", took, files, bytes, job.comm.size()));
    }

    fn log_transfer(&self, checkpoint: &CheckpointId, took: Duration) {
        let Some(cached) = self.cache.dataset(checkpoint.id) else { return };
        let dataset = &cached.record.dataset;
        let (from, to) = (self.job.prefix.dir(), self.cache.folder_of(self.job, &cached.record));
        let (bytes, files) = (dataset.bytes.unwrap_or(0), dataset.files.unwrap_or(0));
        let moved = Record::transfer(Transfer::Fetch, from, &to).dataset(dataset);
        self.job.log.add_entry(moved.took(took).size(bytes, files));
    }
}

/// What a fetch records in the index.
#[derive(Clone, Copy)]
struct How {
    /// That this checkpoint is the current one from then on.
    make_current: bool,
    /// That it is damaged, if so.
    marks: bool,
}

/// What to do to restart from a checkpoint of another number of ranks.
pub(crate) fn as_many_ranks(job: &Job) -> &'static str {
    let is_set = |param| job.params.get(param);
    match is_set(&param::RESTART_OTHER_RANKS) && !is_set(&param::FETCH) {
        true => "start with as many ranks, or with SCR_FETCH=1",
        false => {
            "start with as many ranks, or with SCR_RESTART_OTHER_RANKS=1 if the application can read what another number of ranks \
             wrote"
        }
    }
}

/// How many times to list the candidates again when other processes replace them meanwhile.
const MOST_LISTINGS: usize = 5;
