//! `SCR_Start_output`: all ranks agree on a dataset, and begin it.

use super::Output;
use crate::cache::filemap::Journal;
use crate::cache::part::PartDir;
use crate::cache::record::{Protection, RankRecord};
use crate::cache::CachedDataset;
use crate::comm::collective::{all_reduce, Op};
use crate::comm::{Collective, Rank};
use crate::error::Doing;
use crate::flush::catalog::Catalog;
use crate::prefix::DatasetDescriptor;
use crate::session::route::Unrouted;
use crate::session::{Error, OutputFlags, Phase, Session, MAX_FILENAME};
use crate::Described;
use std::hash::{DefaultHasher, Hash, Hasher};

impl Session {
    /// Begins a dataset. Collective. See the guide's `SCR_Start_output`.
    ///
    /// # Errors
    /// [`Error`]; no dataset is begun then, on any rank.
    pub fn start_output(&mut self, name: Option<&[u8]>, flags: OutputFlags) -> Result<(), Error> {
        let started = self.job.env.clock.elapsed();
        let sent = self.job.comm.traffic();
        self.expect_idle("SCR_Start_output")?;
        self.look_at_flush()?;
        let mut record = self.describe_output(name, flags)?;
        let (part, journal) = self.begin_output(&mut record, name)?;
        self.job.report.info(&format!("Starting {}", record.label()));
        self.log_output_start(&record, started);
        self.use_name(&record)?;
        if let Some(checkpoint) = record.dataset.checkpoint_id {
            self.last_checkpoint = checkpoint;
        }
        let store = self.cache.store_index(&record.protection.store);
        let ready = self.job.env.clock.elapsed();
        self.job.report.info(&format!("scr_start_output: {:.6} secs", (ready - started).as_secs_f64()));
        self.phase = Phase::Output(Box::new(Output {
            record,
            part,
            journal,
            unrouted: Unrouted::default(),
            flags,
            may_replace: false,
            store,
            started,
            sent,
            ready,
        }));
        Ok(())
    }

    /// What the dataset will be, once all agree and there is room for it.
    fn describe_output(&mut self, name: Option<&[u8]>, flags: OutputFlags) -> Result<RankRecord, Error> {
        self.schemes.plugins().forget_failures();
        let crowded = self.store_of(flags).is_some_and(|store| self.cache.is_crowded(&self.job, store));
        let start = self.agree_on_start(name, flags, crowded)?;
        let checkpoint = flags.checkpoint.then(|| self.last_checkpoint.saturating_add(1));
        let descriptor =
            self.job.descriptors.choose(checkpoint.unwrap_or(0), flags.checkpoint, flags.output).clone();
        let protection = self.schemes.protection_of(&self.job, &descriptor).or_else(|error| {
            let why = error.agreed()?;
            Err(Error::Config { why: format!("no dataset can be started: {why}") })
        })?;
        let id = self.cache.take_id();
        let mut record = self.new_record(id, start.created, name, flags, checkpoint, protection);
        (record.members, record.nodes) = self.schemes.members(&self.job, &descriptor);
        if start.crowded {
            self.make_room(&record.protection.store)?;
        }
        Ok(record)
    }

    /// Makes sure that all ranks begin the same dataset; learns when, and whether any store is too crowded for two.
    fn agree_on_start(&self, name: Option<&[u8]>, flags: OutputFlags, crowded: bool) -> Result<Start, Error> {
        let mut hasher = DefaultHasher::new();
        (name, flags.checkpoint, flags.output).hash(&mut hasher);
        let hash = hasher.finish();
        let created = if self.job.rank() == Rank(0) { self.job.micros() } else { 0 };
        let mut words = [hash, !hash, u64::from(crowded), created];
        all_reduce(&*self.job.comm, &mut words, Op::Max)?;
        let [most, least, crowded, created] = words;
        if most != !least {
            let what = "the ranks gave different names or flags to SCR_Start_output; all must give the same";
            return Err(Error::Argument { what: what.to_owned() });
        }
        if let Some(len) = name.map(<[u8]>::len).filter(|&len| len == 0 || len >= MAX_FILENAME) {
            let most = MAX_FILENAME - 1;
            let what = format!("the name of a dataset has 1 to {most} bytes, and this one has {len}");
            return Err(Error::Argument { what });
        }
        Ok(Start { created, crowded: crowded > 0 })
    }

    /// The descriptor's store for a dataset with these flags, unless it bypasses cache.
    fn store_of(&self, flags: OutputFlags) -> Option<usize> {
        let checkpoint = if flags.checkpoint { self.last_checkpoint.saturating_add(1) } else { 0 };
        let descriptor = self.job.descriptors.choose(checkpoint, flags.checkpoint, flags.output);
        (!descriptor.bypass).then(|| self.cache.store_index(&descriptor.store))
    }

    pub(in crate::session) fn new_record(
        &self,
        id: u64,
        begun: u64,
        name: Option<&[u8]>,
        flags: OutputFlags,
        checkpoint: Option<u64>,
        protection: Protection,
    ) -> RankRecord {
        let name = name.map_or_else(|| default_name(id), <[u8]>::to_vec);
        let job = &self.job;
        let dataset = DatasetDescriptor {
            id,
            name,
            checkpoint: flags.checkpoint,
            output: flags.output,
            created: begun,
            checkpoint_id: checkpoint,
            ..job.descriptor_of_job()
        };
        RankRecord {
            dataset,
            id_in_prefix: id,
            begun,
            prefix: job.prefix_bytes().to_vec(),
            rank: job.rank(),
            node: job.nodes.name(job.rank()).to_owned(),
            ranks: job.comm.size(),
            protection,
            members: Vec::new(),
            nodes: Vec::new(),
            files: Vec::new(),
            redundancy: None,
        }
    }

    /// Begins the dataset on all ranks, under an id that nobody has.
    fn begin_output(
        &mut self,
        record: &mut RankRecord,
        name: Option<&[u8]>,
    ) -> Result<(PartDir, Journal), Error> {
        let begun = self.cache.begin(&self.job, record, |record, id| {
            (record.dataset.id, record.id_in_prefix) = (id, id);
            if name.is_none() {
                record.dataset.name = default_name(id);
            }
        });
        begun.doing(|| format!("starting {}", record.label()))
    }

    /// From here on the name stands for this dataset, or it is not begun.
    fn use_name(&mut self, record: &RankRecord) -> Result<(), Error> {
        self.leave_files_to(record)?;
        let taken = self.take_name(record);
        if taken.is_err() {
            self.drop_part(record);
        }
        taken.doing(|| format!("using the name of {} again", record.label()))
    }

    /// CachedDataset datasets of the same name whose files lie in the prefix directory are about to lose them. What is on its way
    /// there arrives before: later it would take the place of what the application writes.
    fn leave_files_to(&mut self, record: &RankRecord) -> Result<(), Error> {
        if !record.protection.bypass {
            return Ok(());
        }
        let named_so = |cached: &CachedDataset| cached.record.dataset.name == record.dataset.name;
        let moving = self.flushes.moving.as_ref().and_then(|moving| self.cache.position(moving.id));
        if moving.is_some_and(|at| {
            !self.cache.datasets()[at].record.protection.bypass || named_so(&self.cache.datasets()[at])
        }) {
            self.finish_flush()?;
        }
        let shares = |cached: &&CachedDataset| cached.record.protection.bypass && named_so(cached);
        while let Some(id) = self.cache.datasets().iter().find(shares).map(CachedDataset::id) {
            self.loaded.take_if(|loaded| loaded.id == id);
            self.cache.evict(&self.job, id);
        }
        Ok(())
    }

    /// Where the files of a dataset are written in the prefix directory itself, older ones of its name count no more
    /// before the first path is given out; and that it was begun stands there, so that what it may have replaced
    /// when it is cut short is looked at closely.
    fn take_name(&self, record: &RankRecord) -> Collective<()> {
        if !record.protection.bypass {
            return Ok(());
        }
        self.wait_until_recorded();
        let ledger = Catalog { files: self.job.files(), prefix: &self.job.prefix };
        let taken = if self.job.rank() == Rank(0) {
            ledger.invalidate_previous(&record.dataset, &[])
        } else {
            Ok(())
        };
        self.job.agree(taken.described())
    }
}

/// What all ranks agree on before a dataset begins.
struct Start {
    /// Microseconds since the epoch.
    created: u64,
    crowded: bool,
}

/// The name of a dataset that the application gives none.
fn default_name(id: u64) -> Vec<u8> {
    format!("scr.dataset.{id}").into_bytes()
}
