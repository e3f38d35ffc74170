//! Which datasets are flushed and when, and with what: `SCR_FLUSH`, `SCR_FLUSH_ON_RESTART`, `SCR_FLUSH_ASYNC`, `SCR_FLUSH_TYPE`.
//!
//! Every Nth checkpoint is due, counted over all runs; output always is. A dataset that could not be flushed stays in cache.
//! Output is retried at every occasion and is not evicted before; instead of a failed checkpoint, the next one is due.

use super::flushes::Planned;
use super::host_options::host_options;
use super::{MakeCurrent, Options, SourceFile};
use crate::cache::record::{FileRecord, RankRecord};
use crate::cache::{Cache, CachedDataset};
use crate::holdings::{due, Standing, When};
use crate::job::Job;
use crate::plugin::Manifest;
use crate::redundancy::plugins::TransportInUse;
use crate::redundancy::schemes::Schemes;
use scr_comm::{Collective, CommError};
use scr_config::descriptor::{FlushBy, Store};
use scr_config::param;
use scr_prefix::rank2file::FAN_OUT;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a dataset is to be flushed as soon as it is complete. A plan of the run says which, or else the setting.
/// `retry_pending`: a checkpoint could not be flushed.
pub(super) fn is_due(job: &Job, record: &RankRecord, planned: Option<Planned>, retry_pending: bool) -> bool {
    let dataset = &record.dataset;
    let every = job.params.get(&param::FLUSH);
    let is_turn = |checkpoint: u64| match planned {
        Some(planned) => planned.is_due(checkpoint),
        None => every > 0 && checkpoint.is_multiple_of(every),
    };
    let turn = dataset.checkpoint_id.is_some_and(is_turn);
    let periodic = dataset.checkpoint && (turn || every > 0 && retry_pending);
    must_arrive(record) || periodic
}

/// Whether a dataset is of use only in the prefix directory: as output, and in bypass mode, where the files are in place and only
/// an entry in the index makes them count.
pub(super) fn must_arrive(record: &RankRecord) -> bool {
    record.dataset.output || record.protection.bypass
}

/// The datasets of earlier runs that are flushed when a run begins.
pub(super) fn due_at_start(job: &Job, cache: &Cache) -> Vec<u64> {
    let is_meant = |id| cache.dataset(id).is_some_and(|cached| is_due_at_start(job, &cached.record));
    due(&cache.holdings(), When::Begin(&is_meant))
}

/// Whether a dataset of an earlier run is to get to the prefix directory when a run begins.
pub(crate) fn is_due_at_start(job: &Job, record: &RankRecord) -> bool {
    flushes_all_first(job) || is_due(job, record, None, false)
}

/// Whether the settings ask for all of them there before the application reads any.
pub(super) fn flushes_all_first(job: &Job) -> bool {
    job.params.get(&param::FLUSH_ON_RESTART) || job.params.get(&param::GLOBAL_RESTART)
}

/// The datasets that must not be lost with the cache when a run ends: output, what lies in place, and the newest checkpoint.
pub(super) fn due_at_end(job: &Job, cache: &Cache) -> Vec<u64> {
    due(&cache.holdings(), When::End { checkpoints: job.params.get(&param::FLUSH) > 0 })
}

/// The transport that copies a dataset, behind the application or while it waits. Collective the first time that its store is
/// flushed so.
pub(super) fn transport_of(
    job: &Job,
    cache: &Cache,
    schemes: &Schemes,
    cached: &CachedDataset,
    behind: bool,
) -> Collective<TransportInUse> {
    if cached.record.protection.bypass {
        return Ok(TransportInUse::default());
    }
    transport_from(job, cache, schemes, &cache.stores()[cached.store].name, behind)
}

fn transport_from(
    job: &Job,
    cache: &Cache,
    schemes: &Schemes,
    store: &str,
    behind: bool,
) -> Collective<TransportInUse> {
    let wanted = flush_by(job, store);
    let of_host = |manifest: &Manifest| host_options(job, cache, &wanted, manifest, behind);
    schemes.plugins.transport(job, &wanted, behind, &of_host)
}

/// Loads the transports that new datasets need, so that one that refuses shows before there is anything to lose. The next flush
/// tries again. Collective.
pub(crate) fn load_transports(job: &Job, cache: &Cache, schemes: &Schemes) -> Result<(), CommError> {
    let used = job.descriptors.redundancy.all().into_iter().filter(|used| !used.bypass);
    for store in used.map(|used| &used.store).collect::<BTreeSet<_>>() {
        if let Err(error) = transport_from(job, cache, schemes, store, job.params.get(&param::FLUSH_ASYNC)) {
            let so = "nothing is flushed with it, and what is in cache only is lost with the allocation";
            job.report.error(&format!("{}; {so}", error.agreed()?));
        }
    }
    Ok(())
}

/// The transport of a store, which may be one that is no longer described.
fn flush_by(job: &Job, store: &str) -> FlushBy {
    let described = job.descriptors.stores.iter().find(|known| known.name == store);
    described.map_or_else(
        || FlushBy {
            transport: job.params.get(&param::FLUSH_TYPE),
            options: BTreeMap::new(),
            origin: job.params.origin(&param::FLUSH_TYPE).clone(),
        },
        Store::flush_by,
    )
}

/// How a dataset is flushed.
pub(super) fn options_of(job: &Job, cached: &CachedDataset) -> Options {
    let metadata = job.params.get(&param::COPY_METADATA);
    Options {
        width: job.params.get(&param::FLUSH_WIDTH),
        block_bytes: job.params.get(&param::FILE_BUF_SIZE),
        checksums: job.params.get(&param::CRC_ON_FLUSH),
        in_place: cached.record.protection.bypass,
        make_current: match cached.standing {
            Standing::Chosen => MakeCurrent::Always,
            Standing::WentBack => MakeCurrent::Never,
            Standing::Kept | Standing::Refused => cached.record.dataset.checkpoint.into(),
        },
        metadata,
        owner: metadata && job.env.uid == ROOT_USER,
        own_folders: job.params.get(&param::AXL_MKDIR),
        may_replace: cached.may_replace,
        synced: cached.record.dataset.run == job.run.number,
        ranks_per_leaf: FAN_OUT,
    }
}

/// The files of this rank that are flushed.
pub(super) fn files_of(cached: &CachedDataset) -> Vec<SourceFile> {
    let source =
        |file: &FileRecord| SourceFile { source: cached.part.file(&file.name), record: file.clone() };
    cached.record.files.iter().map(source).collect()
}

/// The user who may give files to other users.
const ROOT_USER: u32 = 0;
