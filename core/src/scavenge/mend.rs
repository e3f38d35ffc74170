//! Lost parts of a scavenged dataset are rebuilt by threads, one for each rank that wrote it, with the scheme and the code of
//! a restart.

use super::place::{Apart, ScavengedPart};
use super::scan::{Known, Scan};
use crate::cache::record::{Protection, RankRecord};
use crate::comm::thread::{self, ThreadComm};
use crate::comm::{Collective, Comm, Rank, RankErrors};
use crate::env::Env;
use crate::fs::{Durability, Files};
use crate::message::Reporter;
use crate::plugin::schemes::readable_scheme;
use crate::plugin::{PluginHost, PluginKind};
use crate::prefix::{Prefix, DIR_MODE};
use crate::redundancy::mend::{Mending, SchemeSource};
use crate::redundancy::place::{is_whole, PartPlace};
use crate::Described;
use scr_plugin_api::{Scheme, MESSAGE_BYTES};
use std::sync::{Arc, OnceLock};

/// What is needed to make a scavenged dataset whole.
pub(super) struct Mend<'a> {
    pub(super) env: &'a Env,
    pub(super) prefix: &'a Prefix,
    pub(super) plugins: &'a PluginHost,
    /// `SCR_DEBUG`.
    pub(super) level: u64,
    pub(super) scan: &'a Scan,
    pub(super) apart: &'a Apart,
    /// The dataset as messages name it.
    pub(super) label: &'a str,
}

impl Mend<'_> {
    /// Makes every byte of every part what was recorded. Gives the ranks whose parts were rebuilt; the error says what cannot
    /// be done.
    pub(super) fn run(&self) -> Result<Vec<Rank>, String> {
        let scheme = OneScheme { plugins: self.plugins, loaded: OnceLock::new() };
        let ranks = self.scan.any.ranks;
        let known = self.scan.records().count();
        if ranks as usize / FEWEST_KNOWN > known {
            return Err(format!("something is known of the parts of {known} of {ranks} ranks only"));
        }
        let results = thread::run(ranks, |comm| self.rank(&comm, &scheme)).described()?;
        let mut rebuilt = Vec::new();
        for (rank, result) in (0..).map(Rank).zip(results) {
            if result.described()? {
                rebuilt.push(rank);
            }
        }
        Ok(rebuilt)
    }

    /// One rank's share; gives whether its part was rebuilt.
    fn rank(&self, comm: &ThreadComm, scheme: &OneScheme<'_>) -> Collective<bool> {
        let rank = comm.rank();
        let report = Reporter::new(self.env.output.clone(), rank, &self.env.host, self.level);
        let mending = Mending {
            comm,
            files: &*self.env.files,
            report: &report,
            node: &self.env.host,
            schemes: scheme,
            processors: 1,
            message_bytes: MESSAGE_BYTES,
            label: self.label,
        };
        let id = self.scan.any.id_in_prefix;
        let part = ScavengedPart { prefix: self.prefix, apart: self.apart, id, rank };
        let known = self.scan.part(rank);
        let is_lost = !self.may_be_whole(known, &part);
        let record = mending.everybody_knows(known.record.as_ref(), is_lost)?;
        let mut rebuilt = false;
        mending.run(record, &part, is_lost, &mut || {
            rebuilt = true;
            self.make_room(record, &part)
        })?;
        Ok(rebuilt)
    }

    /// Whether all that belongs to a part is there. A file of which no checksum is known could be any file.
    fn may_be_whole(&self, known: &Known, part: &ScavengedPart<'_>) -> bool {
        known.own
            && known.record.as_ref().is_some_and(|record| {
                record.files.iter().all(|file| file.crc.is_some()) && is_whole(&*self.env.files, part, record)
            })
    }

    fn make_room(&self, record: &RankRecord, part: &ScavengedPart<'_>) -> Result<(), String> {
        let files: &dyn Files = &*self.env.files;
        record
            .files
            .iter()
            .filter_map(|file| part.file(record, file).parent().map(ToOwned::to_owned))
            .try_for_each(|folder| {
                let made = files.make_dirs(&folder, DIR_MODE, Durability::Synced);
                made.described()
            })
    }
}

/// With fewer than one of so many ranks known no scheme brings back the others, and threads for them are not even begun.
const FEWEST_KNOWN: usize = 16;

/// The scheme that all parts of a dataset were written with, loaded when the first rank asks for it.
struct OneScheme<'a> {
    plugins: &'a PluginHost,
    loaded: OnceLock<Result<Arc<dyn Scheme>, String>>,
}

impl SchemeSource for OneScheme<'_> {
    fn scheme(&self, protection: &Protection) -> Collective<Arc<dyn Scheme>> {
        let load = || {
            let opened = self.plugins.open(PluginKind::Scheme, &protection.scheme);
            let plugin = opened.described()?;
            readable_scheme(&plugin, protection).map(Arc::from)
        };
        let loaded = self.loaded.get_or_init(load).clone();
        Ok(loaded.map_err(RankErrors::known_to_all)?)
    }
}
