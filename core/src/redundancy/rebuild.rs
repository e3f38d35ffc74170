//! A set repairs what its members have lost: parts that lack data are rebuilt; if none does, redundancy is computed again.
//!
//! Files are made under other names, and get their own only if their checksums are right. So a repair that fails or is
//! interrupted destroys nothing, and can be repeated.

use super::error::RedundancyError;
use super::host_set::{HostSet, Shape};
use super::protect::{exchange_lens, record_protected};
use super::repair::Losses;
use super::sets::in_set;
use crate::cache::logical_file::LogicalFile;
use crate::cache::part::PartPlace;
use crate::cache::record::RankRecord;
use crate::cache::verify::{compare, Damage, Extent, Opened, PartFiles, Verified};
use crate::job::Job;
use crate::plugin::overdue::PluginPhase;
use crate::plugin::CheckedScheme;
use scr_base::fs::{permissions, At, Files, FsError, How};
use scr_comm::set::SetComm;
use scr_plugin_api::{Scheme, SetShape};
use std::path::PathBuf;

/// Repairs this rank's set.
pub(super) struct SetRepair<'a> {
    pub(super) job: &'a Job,
    pub(super) scheme: &'a CheckedScheme,
    pub(super) part: &'a dyn PartPlace,
    pub(super) record: &'a RankRecord,
    pub(super) losses: &'a Losses,
    pub(super) phase: &'a PluginPhase,
    /// How much of a part that is not lost is compared.
    pub(super) extent: Extent,
}

impl SetRepair<'_> {
    /// Rebuilds the parts of the members that have lost anything. Afterwards they are in place, and every part is what was
    /// recorded, or this rank has an error. Called on all members at once.
    pub(super) fn rebuild(&self, ready: Result<(), FsError>) -> Result<Verified, RedundancyError> {
        let Self { job, part, record, .. } = *self;
        let rebuilt = in_set(&*job.comm, &record.members, |set| {
            ready?;
            self.decode(set)
        });
        if self.losses.has(record.rank) {
            put_in_place(
                job.files(),
                rebuilt_files(part, record).chain(rebuilt_redundancy(part, record)),
                rebuilt.is_ok(),
            )?;
        }
        rebuilt
    }

    /// Computes the redundancy of all members from their data. Those that have lost theirs get it, if all of it is what was
    /// recorded, and local ones, which get a new record too. Called on all members at once.
    pub(super) fn protect(&self) -> Result<(Verified, Option<RankRecord>), RedundancyError> {
        let Self { job, part, record, .. } = *self;
        let made = in_set(&*job.comm, &record.members, |set| self.encode(set));
        let is_wanted = made.is_ok() && self.losses.has(record.rank);
        let record = made.as_ref().ok().and_then(|(_, protected)| protected.as_ref()).unwrap_or(record);
        put_in_place(job.files(), rebuilt_redundancy(part, record), is_wanted)?;
        made
    }

    fn decode(&self, set: &SetComm<'_>) -> Result<Verified, RedundancyError> {
        let Self { job, scheme, part, record, losses, phase, extent } = *self;
        let shape = self.shape(set, losses.pattern(&record.members))?;
        let files = job.files();
        let (data, redundancy) = if losses.has(record.rank) {
            let length = record.redundancy.map(|kept| kept.bytes);
            let data = record.files.iter().enumerate().map(|(number, file)| {
                (part.file_being_rebuilt(record, number), file.bytes, file.mode & PERMISSIONS)
            });
            (create(files, data)?, create_redundancy(files, part, length)?)
        } else {
            let kept = PartFiles { files, part, record };
            (kept.open_data(Opened::new(), true)?, kept.open_redundancy()?)
        };
        let host = HostSet { job, set, shape: &shape, data, redundancy, phase };
        phase.call("rebuild", || scheme.rebuild(&host, record.protection.format))?;
        let extent = if losses.has(record.rank) { Extent::All } else { extent };
        let compared = compare(record, &host.data, &host.redundancy, job.processors, extent);
        let is_rebuilt = losses.has(record.rank) && record.files.iter().all(|file| file.crc.is_some());
        // Where another member has read wrong bytes, its part counts as lost, and this one is rebuilt again.
        let verified = compared.map_err(|damage| match is_rebuilt && damage.is_wrong_bytes() {
            true => RedundancyError::from(scheme.wrong_bytes(&damage)),
            false => damage.into(),
        })?;
        if losses.has(record.rank) {
            // A later time says that a program has written to a file. Nothing depends on it.
            let rebuilt = record
                .files
                .iter()
                .enumerate()
                .map(|(number, file)| (part.file_being_rebuilt(record, number), file.mtime));
            rebuilt.for_each(|(path, time)| _ = files.set_times(&path, time, time));
        }
        Ok(verified)
    }

    fn encode(&self, set: &SetComm<'_>) -> Result<(Verified, Option<RankRecord>), RedundancyError> {
        let Self { job, scheme, part, record, phase, .. } = *self;
        let shape = self.shape(set, vec![false; record.members.len()])?;
        let data = PartFiles { files: job.files(), part, record }.open_data(Opened::new(), true)?;
        let length = match record.local {
            Some(_) => {
                let shape = SetShape { rank: set.member(), data_lens: &shape.data_lens };
                Some(phase.call("redundancy_len", || scheme.redundancy_len(&shape))?).filter(|&len| len > 0)
            }
            None => record.redundancy.map(|kept| kept.bytes),
        };
        let redundancy = create_redundancy(job.files(), part, length)?;
        let host = HostSet { job, set, shape: &shape, data, redundancy, phase };
        phase.call("protect", || scheme.protect(&host))?;
        if record.local.is_some() {
            let mut protected = record.clone();
            record_protected(&mut protected, &host, length.unwrap_or(0))?;
            return Ok((Verified::All, Some(protected)));
        }
        match compare(record, &host.data, &host.redundancy, job.processors, Extent::All) {
            // Nothing of the part is damaged: a newer version of the scheme writes another format.
            Err(Damage::Redundancy(_)) => Err(RedundancyError::Lost(OTHER_REDUNDANCY.to_owned())),
            compared => Ok((compared?, None)),
        }
    }

    fn shape(&self, set: &SetComm<'_>, lost: Vec<bool>) -> Result<Shape, RedundancyError> {
        let record = self.record;
        let data_lens = exchange_lens(set, record.data_bytes())?;
        Ok(Shape { dataset: record.cache_id, members: record.members.clone(), data_lens, lost })
    }
}

fn create_redundancy(
    files: &dyn Files,
    part: &dyn PartPlace,
    length: Option<u64>,
) -> Result<LogicalFile, FsError> {
    create(files, length.map(|bytes| (part.redundancy_being_rebuilt(), bytes, 0o600)).into_iter())
}

/// Creates files of these lengths and modes, end to end.
fn create(
    files: &dyn Files,
    wanted: impl Iterator<Item = (PathBuf, u64, u32)>,
) -> Result<LogicalFile, FsError> {
    let made = wanted.map(|(path, bytes, mode)| {
        let mode = permissions::to_create(files, mode) | 0o600;
        let file = files.open(&path, How::Replace(mode)).at("create", &path)?;
        file.set_len(bytes).at("create", &path)?;
        Ok((path, file, bytes))
    });
    Ok(LogicalFile::new(made.collect::<Result<_, FsError>>()?, true).of_zeros())
}

/// A file that is made under another name: that name, its own, and the mode that it gets.
type Made = (PathBuf, PathBuf, u32);

fn rebuilt_files<'a>(part: &'a dyn PartPlace, record: &'a RankRecord) -> impl Iterator<Item = Made> + 'a {
    record.files.iter().enumerate().map(|(number, file)| {
        (part.file_being_rebuilt(record, number), part.file(record, file), file.mode & PERMISSIONS)
    })
}

fn rebuilt_redundancy(part: &dyn PartPlace, record: &RankRecord) -> Option<Made> {
    let is_made = record.redundancy.is_some() || record.local.is_some();
    is_made.then(|| (part.redundancy_being_rebuilt(), part.redundancy(), 0o600))
}

/// Gives files that were made their names, or removes them.
fn put_in_place(
    files: &dyn Files,
    made: impl IntoIterator<Item = Made>,
    is_wanted: bool,
) -> Result<(), FsError> {
    for (from, to, mode) in made {
        if is_wanted {
            let file = files.open(&from, How::Read).at("open", &from)?;
            permissions::set(files, &*file, mode).at("set the permissions of", &from)?;
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

const OTHER_REDUNDANCY: &str =
    "the scheme makes other redundancy of the same data than it did before; is another version of it installed?";
