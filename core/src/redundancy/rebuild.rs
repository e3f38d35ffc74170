//! A set rebuilds the parts that its members have lost.
//!
//! Lost files are rebuilt under other names, and get their own only if their checksums are right. So a rebuild that fails or is
//! interrupted destroys nothing.

use super::error::RedundancyError;
use super::host_set::{HostSet, Shape};
use super::overdue::SchemePhase;
use super::protect::exchange_lens;
use super::sets::in_set;
use crate::cache::logical_file::LogicalFile;
use crate::cache::place::PartPlace;
use crate::cache::record::RankRecord;
use crate::cache::verify::{compare, open_data, open_redundancy, Extent, Opened, Verified};
use crate::comm::set::SetComm;
use crate::comm::Rank;
use crate::fs::{At, File, Files, FsError, How};
use crate::job::Job;
use crate::planted::{planted, Bug};
use scr_plugin_api::Scheme;
use std::path::{Path, PathBuf};

/// Rebuilds the lost members of this rank's set.
pub(super) struct SetRebuild<'a> {
    pub(super) job: &'a Job,
    pub(super) scheme: &'a dyn Scheme,
    pub(super) part: &'a dyn PartPlace,
    pub(super) record: &'a RankRecord,
    pub(super) lost: &'a [Rank],
    pub(super) phase: &'a SchemePhase<'a>,
    /// How much of a part that is not lost is compared.
    pub(super) extent: Extent,
}

impl SetRebuild<'_> {
    /// Afterwards a lost part is in place, and every part is what was recorded, or this rank has an error. Called on all members
    /// at once.
    pub(super) fn run(&self, ready: Result<(), FsError>) -> Result<Verified, RedundancyError> {
        let Self { job, part, record, .. } = *self;
        let rebuilt = in_set(&*job.comm, &record.members, |set| {
            ready?;
            self.decode(set)
        });
        if self.lost.contains(&record.rank) {
            put_in_place(job.files(), part, record, rebuilt.is_ok())?;
        }
        rebuilt
    }

    fn decode(&self, set: &SetComm<'_>) -> Result<Verified, RedundancyError> {
        let Self { job, scheme, part, record, lost, phase, extent } = *self;
        let shape = Shape {
            dataset: record.dataset.id,
            members: record.members.clone(),
            data_lens: exchange_lens(set, record.data_bytes())?,
            lost: record.members.iter().map(|member| lost.contains(member)).collect(),
        };
        let files = job.files();
        let (data, redundancy) = if lost.contains(&record.rank) {
            (create_data(files, part, record)?, create_redundancy(files, part, record)?)
        } else {
            (open_data(files, part, record, Opened::new(), true)?, open_redundancy(files, part, record)?)
        };
        let host = HostSet { job, set, shape: &shape, data, redundancy, phase };
        phase.call("rebuild", || scheme.rebuild(&host, record.protection.format))?;
        if planted(Bug::RebuiltUnchecked) {
            return Ok(Verified::All);
        }
        let extent = if lost.contains(&record.rank) { Extent::All } else { extent };
        Ok(compare(record, &host.data, &host.redundancy, job.processors, extent)?)
    }
}

fn create_data(files: &dyn Files, part: &dyn PartPlace, record: &RankRecord) -> Result<LogicalFile, FsError> {
    let made = record.files.iter().enumerate().map(|(number, file)| {
        let path = part.file_being_rebuilt(record, number);
        Ok((path.clone(), create(files, &path, file.bytes)?, file.bytes))
    });
    Ok(LogicalFile::new(made.collect::<Result<_, FsError>>()?, true))
}

fn create_redundancy(
    files: &dyn Files,
    part: &dyn PartPlace,
    record: &RankRecord,
) -> Result<LogicalFile, FsError> {
    let made = record.redundancy.map(|redundancy| {
        let path = part.redundancy_being_rebuilt();
        Ok((path.clone(), create(files, &path, redundancy.bytes)?, redundancy.bytes))
    });
    Ok(LogicalFile::new(made.transpose()?.into_iter().collect(), true))
}

fn create(files: &dyn Files, path: &Path, bytes: u64) -> Result<Box<dyn File>, FsError> {
    let file = files.open(path, How::Replace(0o600)).at("create", path)?;
    file.set_len(bytes).at("create", path)?;
    Ok(file)
}

/// Gives rebuilt files their names, or removes them.
fn put_in_place(
    files: &dyn Files,
    part: &dyn PartPlace,
    record: &RankRecord,
    verified: bool,
) -> Result<(), FsError> {
    let data = record.files.iter().enumerate();
    let mut moves: Vec<(PathBuf, PathBuf, u32)> = data
        .map(|(number, file)| {
            (part.file_being_rebuilt(record, number), part.file(record, file), file.mode & PERMISSIONS)
        })
        .collect();
    if record.redundancy.is_some() {
        moves.push((part.redundancy_being_rebuilt(), part.redundancy(), 0o600));
    }
    for (from, to, mode) in moves {
        if verified {
            let file = files.open(&from, How::Read).at("open", &from)?;
            file.set_mode(mode).at("set the permissions of", &from)?;
            files.rename(&from, &to).at("put a rebuilt file in the place of", &to)?;
        } else {
            // Nothing relies on what is left, and the next start clears it away.
            let _ = files.remove_file(&from);
        }
    }
    Ok(())
}

/// The bits of its recorded mode that a rebuilt file gets: never setuid, setgid or sticky.
const PERMISSIONS: u32 = 0o777;
