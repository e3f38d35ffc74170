//! What a flush of a dataset is made with: its files, the settings, the transport of its store.

use super::{Error, Session};
use crate::cache::record::FileRecord;
use crate::cache::CachedDataset;
use crate::comm::Collective;
use crate::descriptor::{FlushBy, Store};
use crate::flush::{host_options, Detached, Flush, Options, SourceFile};
use crate::param;
use crate::plugin::Manifest;
use crate::redundancy::plugins::TransportInUse;
use scr_plugin_api::Transport;
use std::collections::BTreeMap;
use std::time::Duration;

impl Session {
    pub(super) fn files_to_flush(&self, at: usize) -> Vec<SourceFile> {
        let cached = &self.cache.datasets()[at];
        cached.record.files.iter().map(|file| to_flush(cached, file)).collect()
    }

    pub(super) fn flusher<'a>(&'a self, at: usize, transport: &'a dyn Transport) -> Flush<'a> {
        let (job, cached) = (&self.job, &self.cache.datasets()[at]);
        Flush {
            comm: &*job.comm,
            files: job.files(),
            transport,
            node: job.nodes.name(job.rank()),
            prefix: &job.prefix,
            now: job.local_time(),
            options: Options {
                width: job.params.get(&param::FLUSH_WIDTH),
                block_bytes: job.params.get(&param::FILE_BUF_SIZE),
                checksums: job.params.get(&param::CRC_ON_FLUSH),
                in_place: cached.record.protection.bypass,
                make_current: cached.record.dataset.checkpoint && !cached.passed_over,
                metadata: job.params.get(&param::COPY_METADATA),
                owner: job.params.get(&param::COPY_METADATA) && job.env.uid == ROOT_USER,
                own_folders: job.params.get(&param::AXL_MKDIR),
                may_replace: cached.may_replace,
            },
            detached: None,
        }
    }

    /// For a flush during which the application goes on; where the transport can, it also goes on without it.
    pub(super) fn flusher_behind<'a>(&'a self, at: usize, transport: &'a TransportInUse) -> Flush<'a> {
        let job = &self.job;
        let (nodes, me) = (&job.nodes, job.rank());
        let detached = transport.survives_job.then(|| Detached {
            control: self.cache.control(),
            transport: &transport.name,
            transport_options: &transport.options,
            shared: &transport.transport,
            node: nodes.numbers()[me.index()],
            nodes: u32::try_from(nodes.count()).unwrap_or(u32::MAX),
            mates: nodes.mates(me),
            pause: Duration::from_micros(job.params.get(&param::FLUSH_ASYNC_USLEEP)),
        });
        Flush { detached, ..self.flusher(at, &*transport.transport) }
    }

    /// Whether a dataset can be flushed while the application goes on, and the user wants that.
    pub(super) fn goes_on_behind(&mut self, at: usize) -> Result<bool, Error> {
        if !self.job.params.get(&param::FLUSH_ASYNC) || self.cache.datasets()[at].record.protection.bypass {
            return Ok(false);
        }
        let wanted = self.flush_by(self.cache.datasets()[at].store);
        // Where it cannot be used at all, the flush says why.
        let transport = match self.open_transport(&wanted) {
            Ok(transport) => transport,
            Err(error) => return error.agreed().map(|_| false).map_err(Error::from),
        };
        let asynchronous = transport.asynchronous;
        if !asynchronous && !std::mem::replace(&mut self.flushes.told_synchronous, true) {
            self.job.report.warn(&format!(
                "SCR_FLUSH_ASYNC=1 has no effect with the transport {}, which copies only while the application \
                 waits; set SCR_FLUSH_TYPE to one that does not, such as PTHREAD",
                wanted.transport
            ));
        }
        Ok(asynchronous)
    }

    pub(super) fn transport_for(&mut self, at: usize) -> Result<TransportInUse, Error> {
        let cached = &self.cache.datasets()[at];
        let why = match self.open_transport(&self.flush_by(cached.store)) {
            Ok(transport) => return Ok(transport),
            Err(error) => error.agreed()?,
        };
        let label = cached.record.label();
        self.flushes.owed |= cached.record.dataset.checkpoint;
        Err(Error::Refused(format!("{label} cannot be flushed: {why}; it is kept in cache")))
    }

    /// Opens a transport. Collective the first time.
    fn open_transport(&self, wanted: &FlushBy) -> Collective<TransportInUse> {
        let of_host = |manifest: &Manifest| host_options(&self.job, &self.cache, wanted, manifest);
        self.schemes.plugins().transport(&self.job, wanted, &of_host)
    }

    /// The transport of a store, which may be one that is no longer described.
    fn flush_by(&self, store: usize) -> FlushBy {
        let name = &self.cache.stores()[store].name;
        let described = self.job.descriptors.stores.iter().find(|known| known.name == *name);
        described.map_or_else(
            || FlushBy {
                transport: self.job.params.get(&param::FLUSH_TYPE),
                options: BTreeMap::new(),
                origin: self.job.params.origin(&param::FLUSH_TYPE).clone(),
            },
            Store::flush_by,
        )
    }
}

fn to_flush(cached: &CachedDataset, file: &FileRecord) -> SourceFile {
    SourceFile {
        source: cached.part.file(&file.name),
        name: file.name.clone(),
        bytes: file.bytes,
        crc: file.crc,
        mode: file.mode,
        mtime: file.mtime,
    }
}

/// Who may give files to other users.
const ROOT_USER: u32 = 0;
