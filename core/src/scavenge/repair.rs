//! Rebuilds lost parts of a scavenged dataset with threads that stand for the ranks that wrote it, with the scheme and the
//! code of a restart.

use super::place::{Apart, ScavengedPart};
use super::scan::{Known, Scan};
use crate::cache::place::{is_whole, PartPlace};
use crate::cache::record::{Protection, RankRecord};
use crate::comm::thread::{self, RunError, ThreadComm};
use crate::comm::{Collective, CollectiveError, Comm, Rank, RankErrors};
use crate::describe;
use crate::env::Env;
use crate::fs::{Durability, Files, FsError};
use crate::job::Job;
use crate::plugin::{PluginHost, PluginKind};
use crate::prefix::{Prefix, DIR_MODE};
use crate::redundancy::plugins::readable_scheme;
use crate::redundancy::repair::Repair;
use crate::Described;
use scr_plugin_api::Scheme;
use std::sync::{Arc, OnceLock};

/// Makes a scavenged dataset whole.
pub(super) struct ScavengedRepair<'a> {
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

/// Why a scavenged dataset cannot be made whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum RepairError {
    /// The nodes have left too little of it.
    #[error("something is known of the parts of {known} of {ranks} ranks only")]
    TooFewKnown {
        /// Of so many parts there is a record.
        known: usize,
        /// So many ranks wrote it.
        ranks: u32,
    },
    /// The threads that stand for ranks have failed.
    #[error(transparent)]
    Threads(#[from] RunError),
    /// What is lost cannot be rebuilt.
    #[error(transparent)]
    Ranks(#[from] CollectiveError),
}

/// The scheme that all parts of a dataset were written with, loaded when the first rank asks for it.
type LoadedScheme = OnceLock<Result<Arc<dyn Scheme>, String>>;

impl ScavengedRepair<'_> {
    /// Makes every byte of every part what was recorded. Gives the ranks whose parts were rebuilt.
    pub(super) fn run(&self) -> Result<Vec<Rank>, RepairError> {
        let ranks = self.scan.any.ranks;
        let known = self.scan.records().count();
        if ranks as usize / FEWEST_KNOWN > known {
            return Err(RepairError::TooFewKnown { known, ranks });
        }
        let loaded = LoadedScheme::new();
        let results = thread::run(ranks, |comm| self.rank(comm, &loaded))?;
        let mut rebuilt = Vec::new();
        for (rank, result) in (0..).map(Rank).zip(results) {
            if result? {
                rebuilt.push(rank);
            }
        }
        Ok(rebuilt)
    }

    /// One rank's share; gives whether its part was rebuilt.
    fn rank(&self, comm: ThreadComm, loaded: &LoadedScheme) -> Collective<bool> {
        let rank = comm.rank();
        let job = Job::of_command(Box::new(comm), self.env, self.prefix, self.level)
            .map_err(|error| RankErrors::known_to_all(describe(&error)))?;
        let scheme = |protection: &Protection| self.scheme(protection, loaded);
        let repair = Repair { job: &job, scheme: &scheme, label: self.label };
        let id = self.scan.any.id_in_prefix;
        let part = ScavengedPart { prefix: self.prefix, apart: self.apart, id, rank };
        let known = self.scan.part(rank);
        let is_lost = !self.may_be_whole(known, &part);
        let record = repair.agree_on_record(known.record.as_ref(), is_lost)?;
        let mut rebuilt = false;
        repair.run(record, &part, is_lost, &mut || {
            rebuilt = true;
            self.make_room(record, &part)
        })?;
        Ok(rebuilt)
    }

    fn scheme(&self, protection: &Protection, loaded: &LoadedScheme) -> Collective<Arc<dyn Scheme>> {
        let load = || {
            let plugin = self.plugins.open(PluginKind::Scheme, &protection.scheme).described()?;
            readable_scheme(&plugin, protection).map(Arc::from)
        };
        Ok(loaded.get_or_init(load).clone().map_err(RankErrors::known_to_all)?)
    }

    /// Whether all that belongs to a part is there. A file of which no checksum is known could be any file.
    fn may_be_whole(&self, known: &Known, part: &ScavengedPart<'_>) -> bool {
        known.own
            && known.record.as_ref().is_some_and(|record| {
                record.files.iter().all(|file| file.crc.is_some()) && is_whole(&*self.env.files, part, record)
            })
    }

    fn make_room(&self, record: &RankRecord, part: &ScavengedPart<'_>) -> Result<(), FsError> {
        let files: &dyn Files = &*self.env.files;
        record
            .files
            .iter()
            .filter_map(|file| part.file(record, file).parent().map(ToOwned::to_owned))
            .try_for_each(|folder| files.make_dirs(&folder, DIR_MODE, Durability::Synced))
    }
}

/// With fewer than one of so many ranks known no scheme brings back the others, and threads for them are not even begun.
const FEWEST_KNOWN: usize = 16;
